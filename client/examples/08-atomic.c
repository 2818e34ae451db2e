/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Two words of a lease that threads share: a counter that gives each ticket to one of them, and
 * a place that only the first one gets. Not every device can keep such operations within a
 * lease; the daemon refuses the right then.
 *
 * usage: example-08-atomic ADDRESS KEY-FILE
 */
#include <mempool.h>
#include <pthread.h>
#include <stdio.h>

#define THREADS	    4
#define TICKETS	    25 /* for each thread */
#define TICKETS_ALL (THREADS * TICKETS)

/* Where the words are in the lease: at multiples of 8. */
#define COUNTER_AT 0
#define LEADER_AT  8

struct part {
	pthread_t thread;
	mempool_lease *lease;
	uint64_t number; /* from 1 on */
	uint64_t tickets[TICKETS];
	int is_leader;
	int code;
};

/*
 * After MEMPOOL_E_LANE nothing has happened, so it may be tried again. After MEMPOOL_E_UNKNOWN
 * the counter may have moved or not: to try again would be safe here, where a ticket may be lost,
 * but not where every one must be used.
 */
static int take_ticket(mempool_lease *lease, uint64_t *ret_ticket)
{
	int r = MEMPOOL_E_LANE;

	for (int i = 0; i < 5 && r == MEMPOOL_E_LANE; i++)
		r = mempool_fetch_add(lease, COUNTER_AT, 1, ret_ticket);
	return r;
}

/* Whoever finds 0 has put its number there in the same moment. */
static int try_to_lead(struct part *part)
{
	uint64_t old;
	int r;

	r = mempool_compare_swap(part->lease, LEADER_AT, 0, part->number, &old);
	part->is_leader = r == 0 && old == 0;
	return r;
}

static void *run(void *arg)
{
	struct part *part = arg;

	for (int i = 0; i < TICKETS && part->code == 0; i++)
		part->code = take_ticket(part->lease, &part->tickets[i]);
	if (part->code == 0)
		part->code = try_to_lead(part);
	if (part->code < 0)
		fprintf(stderr, "thread %d: error %d: %s\n", (int)part->number, part->code,
			mempool_last_error());
	return NULL;
}

/* Return: 0 if each ticket was given once, and one thread leads. */
static int check(const struct part *parts)
{
	int given[TICKETS_ALL] = {0};
	int once = 0, leaders = 0;

	for (int i = 0; i < THREADS; i++) {
		leaders += parts[i].is_leader;
		for (int k = 0; k < TICKETS; k++) {
			if (parts[i].tickets[k] < TICKETS_ALL)
				given[parts[i].tickets[k]]++;
		}
	}
	for (int i = 0; i < TICKETS_ALL; i++)
		once += given[i] == 1;
	printf("%d of %d tickets were given once, %d of %d threads leads\n", once, TICKETS_ALL,
	       leaders, THREADS);
	return once == TICKETS_ALL && leaders == 1 ? 0 : 1;
}

static int run_all(mempool_lease *lease)
{
	struct part parts[THREADS];
	int started = 0;
	int failed = 0;

	for (; started < THREADS; started++) {
		parts[started] = (struct part){.lease = lease, .number = (uint64_t)started + 1};
		if (pthread_create(&parts[started].thread, NULL, run, &parts[started]) != 0)
			break;
	}
	for (int i = 0; i < started; i++) {
		(void)pthread_join(parts[i].thread, NULL);
		failed += parts[i].code != 0;
	}
	return started == THREADS && failed == 0 ? check(parts) : 1;
}

int main(int argc, char **argv)
{
	struct mempool_connect_opts who = {.size = sizeof(who)};
	struct mempool_acquire_opts what = {
		.size = sizeof(what),
		.ttl_ms = 60 * 1000,
		.rights = MEMPOOL_READ | MEMPOOL_WRITE | MEMPOOL_ATOMIC,
	};
	mempool *pool = NULL;
	mempool_lease *lease = NULL;
	int r;

	if (argc != 3) {
		fprintf(stderr, "usage: %s ADDRESS KEY-FILE\n", argv[0]);
		return 2;
	}
	who.key_file = argv[2];
	r = mempool_connect(argv[1], &who, &pool);
	/* The bytes of a lease are zero at first, so both words are. */
	if (r == 0)
		r = mempool_acquire(pool, 4096, &what, &lease);
	if (r < 0)
		fprintf(stderr, "error %d: %s\n", r, mempool_last_error());
	else
		r = run_all(lease);
	(void)mempool_release(lease);
	mempool_close(pool);
	return r == 0 ? 0 : 1;
}
