/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A lease that gets longer when more is to be stored, shorter when all is there, and read-only
 * when nothing shall change any more: the daemon's device refuses writes from then on.
 *
 * usage: example-05-modify ADDRESS KEY-FILE
 */
#include <mempool.h>
#include <stdio.h>
#include <string.h>

#define STEP_BYTES (64 * 1024)

/* Appends texts to a lease that grows by steps. Return: 0 or a code. */
static int append_all(mempool_lease *lease, uint64_t *lease_bytes, uint64_t *used_bytes)
{
	char text[1000];
	int r = 0;

	memset(text, 'x', sizeof(text));
	for (int i = 0; i < 300 && r == 0; i++) {
		if (*used_bytes + sizeof(text) > *lease_bytes) {
			r = mempool_modify(lease, *lease_bytes + STEP_BYTES,
					   MEMPOOL_READ | MEMPOOL_WRITE);
			if (r < 0)
				break;
			*lease_bytes += STEP_BYTES;
		}
		r = mempool_write(lease, *used_bytes, text, sizeof(text));
		*used_bytes += sizeof(text);
	}
	return r;
}

/* Return: 0 or a code; 1 if a write gets through that must not. */
static int seal(mempool_lease *lease, uint64_t used_bytes)
{
	struct mempool_lease_info info = {.size = sizeof(info)};
	int r = mempool_modify(lease, used_bytes, MEMPOOL_READ);

	if (r == 0)
		r = mempool_lease_info(lease, &info);
	if (r < 0)
		return r;
	printf("sealed with %llu bytes\n", (unsigned long long)info.len_bytes);
	if (info.len_bytes != used_bytes || info.rights != MEMPOOL_READ)
		return 1;
	return mempool_write(lease, 0, "y", 1) == MEMPOOL_E_ACCESS ? 0 : 1;
}

int main(int argc, char **argv)
{
	struct mempool_connect_opts who = {.size = sizeof(who)};
	struct mempool_acquire_opts what = {
		.size = sizeof(what),
		.ttl_ms = 60 * 1000,
		.rights = MEMPOOL_READ | MEMPOOL_WRITE,
	};
	uint64_t lease_bytes = STEP_BYTES;
	uint64_t used_bytes = 0;
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
		r = mempool_acquire(pool, lease_bytes, &what, &lease);
	if (r == 0)
		r = append_all(lease, &lease_bytes, &used_bytes);
	if (r == 0)
		r = seal(lease, used_bytes);
	if (r == 0)
		r = mempool_release(lease);
	if (r < 0)
		fprintf(stderr, "error %d: %s\n", r, mempool_last_error());
	mempool_close(pool);
	return r == 0 ? 0 : 1;
}
