/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A lease lasts only so long, so that what a crashed program had comes back by itself. A program
 * that lives renews it in time: here at half of it.
 *
 * usage: example-03-renew ADDRESS KEY-FILE
 */
#include <mempool.h>
#include <stdio.h>
#include <time.h>

#define TTL_MS	2000
#define ROUNDS	20
#define WORK_MS 200

/* Renews the lease if half of its time is over. Return: 0 or a code. */
static int keep(mempool_lease *lease, unsigned int *renewals)
{
	struct mempool_lease_info info = {.size = sizeof(info)};
	int r = mempool_lease_info(lease, &info);

	if (r < 0 || info.ttl_left_ms > TTL_MS / 2)
		return r;
	(*renewals)++;
	return mempool_renew(lease, TTL_MS);
}

static int work(mempool_lease *lease, unsigned int round)
{
	struct timespec a_while = {.tv_nsec = WORK_MS * 1000 * 1000L};

	(void)nanosleep(&a_while, NULL);
	return mempool_write(lease, round * sizeof(round), &round, sizeof(round));
}

int main(int argc, char **argv)
{
	struct mempool_connect_opts who = {.size = sizeof(who)};
	struct mempool_acquire_opts what = {
		.size = sizeof(what),
		.ttl_ms = TTL_MS,
		.rights = MEMPOOL_READ | MEMPOOL_WRITE,
	};
	unsigned int renewals = 0;
	mempool *pool = NULL;
	mempool_lease *lease = NULL;
	int r;

	if (argc != 3) {
		fprintf(stderr, "usage: %s ADDRESS KEY-FILE\n", argv[0]);
		return 2;
	}
	who.key_file = argv[2];
	r = mempool_connect(argv[1], &who, &pool);
	if (r == 0)
		r = mempool_acquire(pool, 4096, &what, &lease);
	for (unsigned int round = 0; r == 0 && round < ROUNDS; round++) {
		r = keep(lease, &renewals);
		if (r == 0)
			r = work(lease, round);
	}
	if (r == 0) {
		printf("%u rounds of %u ms with a lease of %u ms, renewed %u times\n", ROUNDS,
		       WORK_MS, TTL_MS, renewals);
		r = mempool_release(lease);
	}
	if (r != 0)
		fprintf(stderr, "error %d: %s\n", r, mempool_last_error());
	mempool_close(pool);
	return r == 0 && renewals > 0 ? 0 : 1;
}
