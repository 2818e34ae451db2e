/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Several leases, all alike, in one message there and back: blocks of a cache, say, each of
 * which can be given back alone.
 *
 * usage: example-04-many ADDRESS KEY-FILE
 */
#include <mempool.h>
#include <stdio.h>
#include <string.h>

#define BLOCKS	    16
#define BLOCK_BYTES (64 * 1024)

static char block[BLOCK_BYTES];

static int fill(mempool_lease **leases)
{
	int r = 0;

	for (int i = 0; i < BLOCKS && r == 0; i++) {
		memset(block, 'a' + i, sizeof(block));
		r = mempool_write(leases[i], 0, block, sizeof(block));
	}
	return r;
}

/* Return: 0, a code, or 1: other bytes than were written. */
static int verify(mempool_lease **leases)
{
	int r = 0;

	for (int i = 0; i < BLOCKS && r == 0; i++) {
		r = mempool_read(leases[i], 0, block, sizeof(block));
		for (size_t at = 0; at < sizeof(block) && r == 0; at++)
			r = block[at] != 'a' + i;
	}
	return r;
}

int main(int argc, char **argv)
{
	struct mempool_connect_opts who = {.size = sizeof(who)};
	struct mempool_acquire_opts what = {
		.size = sizeof(what),
		.ttl_ms = 60 * 1000,
		.rights = MEMPOOL_READ | MEMPOOL_WRITE,
		.wait_ms = 1000, /* for memory that others give back meanwhile */
	};
	mempool_lease *leases[BLOCKS];
	mempool *pool = NULL;
	int r;

	if (argc != 3) {
		fprintf(stderr, "usage: %s ADDRESS KEY-FILE\n", argv[0]);
		return 2;
	}
	who.key_file = argv[2];
	r = mempool_connect(argv[1], &who, &pool);
	/* All of them, or none. */
	if (r == 0)
		r = mempool_acquire_many(pool, BLOCK_BYTES, &what, BLOCKS, leases);
	if (r == 0)
		r = fill(leases);
	if (r == 0)
		r = verify(leases);
	if (r == 0) {
		printf("%d blocks of %d bytes hold what was written\n", BLOCKS, BLOCK_BYTES);
		/* The first one alone, the others together. */
		r = mempool_release(leases[0]);
	}
	if (r == 0)
		r = mempool_release_many(leases + 1, BLOCKS - 1);
	if (r < 0)
		fprintf(stderr, "error %d: %s\n", r, mempool_last_error());
	mempool_close(pool);
	return r == 0 ? 0 : 1;
}
