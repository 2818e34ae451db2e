/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * One session and one lease, used by several threads at once, each in a part of its own. The
 * library needs no lock around its calls; that two threads do not write to the same bytes is
 * the program's part. A thread reads the sentence about its own last error only.
 *
 * usage: example-07-threads ADDRESS KEY-FILE
 */
#include <mempool.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#define THREADS	   4
#define ROUNDS	   50
#define PART_BYTES 8192

struct part {
	pthread_t thread;
	mempool_lease *lease;
	int number;
	int code; /* 0, a code, or 1: other bytes than were written */
};

static int write_and_read(const struct part *part, int round)
{
	uint64_t offset_bytes = (uint64_t)part->number * PART_BYTES;
	char sent[PART_BYTES], got[PART_BYTES];
	int r;

	memset(sent, part->number * ROUNDS + round, sizeof(sent));
	r = mempool_write(part->lease, offset_bytes, sent, sizeof(sent));
	if (r == 0)
		r = mempool_read(part->lease, offset_bytes, got, sizeof(got));
	return r == 0 && memcmp(sent, got, sizeof(got)) != 0 ? 1 : r;
}

static void *run(void *arg)
{
	struct part *part = arg;

	for (int round = 0; round < ROUNDS && part->code == 0; round++)
		part->code = write_and_read(part, round);
	if (part->code < 0)
		fprintf(stderr, "thread %d: error %d: %s\n", part->number, part->code,
			mempool_last_error());
	return NULL;
}

static int run_all(mempool_lease *lease)
{
	struct part parts[THREADS];
	int started = 0;
	int wrong = 0;

	for (; started < THREADS; started++) {
		parts[started] = (struct part){.lease = lease, .number = started};
		if (pthread_create(&parts[started].thread, NULL, run, &parts[started]) != 0)
			break;
	}
	/* No call on a lease may be running when it is given back. */
	for (int i = 0; i < started; i++) {
		(void)pthread_join(parts[i].thread, NULL);
		wrong += parts[i].code != 0;
	}
	printf("%d threads, %d of them without a mistake\n", started, started - wrong);
	return started == THREADS && wrong == 0 ? 0 : 1;
}

int main(int argc, char **argv)
{
	struct mempool_connect_opts who = {.size = sizeof(who)};
	struct mempool_acquire_opts what = {
		.size = sizeof(what),
		.ttl_ms = 60 * 1000,
		.rights = MEMPOOL_READ | MEMPOOL_WRITE,
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
	if (r == 0)
		r = mempool_acquire(pool, THREADS * PART_BYTES, &what, &lease);
	if (r < 0)
		fprintf(stderr, "error %d: %s\n", r, mempool_last_error());
	else
		r = run_all(lease);
	(void)mempool_release(lease);
	mempool_close(pool);
	return r == 0 ? 0 : 1;
}
