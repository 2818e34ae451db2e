/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Three ways not to copy bytes on this machine: memory that the library allocates, memory of the
 * program's own that is registered, and the cache, which registers what calls are given. The
 * calls are the same as ever: they find out by themselves.
 *
 * usage: example-09-buffers ADDRESS KEY-FILE
 */
#include <mempool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define BUF_BYTES   (4 * 1024 * 1024)
#define TABLE_BYTES (256 * 1024)

static char table[TABLE_BYTES];

/* Return: 0, a code, or 1: other bytes than were written. */
static int use_allocated(mempool *pool, mempool_lease *lease)
{
	mempool_buf *buf;
	char *bytes;
	int r;

	/* Huge pages if there are any: fewer entries for the device to look up. */
	r = mempool_buf_alloc(pool, BUF_BYTES, MEMPOOL_BUF_HUGE, &buf);
	if (r < 0)
		return r;
	bytes = mempool_buf_bytes(buf);
	memset(bytes, 'a', BUF_BYTES);
	r = mempool_write(lease, 0, bytes, BUF_BYTES);
	memset(bytes, 0, BUF_BYTES);
	if (r == 0)
		r = mempool_read(lease, 0, bytes, BUF_BYTES);
	for (size_t i = 0; i < BUF_BYTES && r == 0; i++)
		r = bytes[i] != 'a';
	(void)mempool_buf_free(buf);
	return r;
}

/* Two parts of a table of the program's own, to two places of the lease, in one call. */
static int use_registered(mempool *pool, mempool_lease *lease)
{
	struct mempool_segment segments[] = {
		{.offset_bytes = 0, .buf = table, .len_bytes = TABLE_BYTES / 2},
		{.offset_bytes = BUF_BYTES / 2,
		 .buf = table + TABLE_BYTES / 2,
		 .len_bytes = TABLE_BYTES / 2},
	};
	mempool_buf *buf;
	size_t done;
	int r;

	memset(table, 'b', TABLE_BYTES);
	r = mempool_buf_register(pool, table, TABLE_BYTES, &buf);
	if (r < 0)
		return r;
	r = mempool_writev(lease, segments, 2, &done);
	memset(table, 0, TABLE_BYTES);
	if (r == 0)
		r = mempool_readv(lease, segments, 2, &done);
	for (size_t i = 0; i < TABLE_BYTES && r == 0; i++)
		r = table[i] != 'b';
	/* From here on the table is the program's alone. */
	(void)mempool_buf_free(buf);
	return r;
}

static int show_cache(mempool *pool)
{
	struct mempool_cache_stats stats = {.size = sizeof(stats)};
	int r = mempool_cache_stats(pool, &stats);

	if (r == 0)
		printf("cache: %llu misses, %llu hits, %llu entries\n",
		       (unsigned long long)stats.misses, (unsigned long long)stats.hits,
		       (unsigned long long)stats.entries);
	return r;
}

/* The promise of whoever turns the cache on: to say it before memory goes. */
static int unmap(mempool *pool, void *bytes, size_t len_bytes)
{
	int r = mempool_cache_forget(pool, bytes, len_bytes);

	if (r == 0)
		(void)munmap(bytes, len_bytes);
	return r;
}

static int use_cache(mempool *pool, mempool_lease *lease)
{
	struct mempool_cache_opts limits = {
		.size = sizeof(limits),
		.bytes_max = 16 * 1024 * 1024,
		.len_min_bytes = 16 * 1024,
		.entries_max = 64,
	};
	char *bytes =
		mmap(NULL, TABLE_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	int r;

	if (bytes == MAP_FAILED)
		return MEMPOOL_E_NO_MEMORY;
	memset(bytes, 'c', TABLE_BYTES);
	r = mempool_cache_limit(pool, &limits);
	/* Registered by the first call, and found by the second; the third is too short. */
	if (r == 0)
		r = mempool_write(lease, 0, bytes, TABLE_BYTES);
	if (r == 0)
		r = mempool_read(lease, 0, bytes, TABLE_BYTES);
	if (r == 0)
		r = mempool_read(lease, 0, bytes, 8);
	for (size_t i = 0; i < TABLE_BYTES && r == 0; i++)
		r = bytes[i] != 'c';
	if (r == 0)
		r = show_cache(pool);
	if (r == 0)
		r = unmap(pool, bytes, TABLE_BYTES);
	return r == 0 ? show_cache(pool) : r;
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
		r = mempool_acquire(pool, BUF_BYTES, &what, &lease);
	if (r == 0)
		r = use_allocated(pool, lease);
	if (r == 0)
		r = use_registered(pool, lease);
	if (r == 0)
		r = use_cache(pool, lease);
	if (r == 0)
		printf("all bytes came back\n");
	if (r < 0)
		fprintf(stderr, "error %d: %s\n", r, mempool_last_error());
	(void)mempool_release(lease);
	mempool_close(pool);
	return r == 0 ? 0 : 1;
}
