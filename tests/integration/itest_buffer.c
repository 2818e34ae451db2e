/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Registered memory: transfers without a copy, what may not be a buffer, the cache, and when
 * memory is the application's own again.
 */
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "client/lane.h"
#include "client/pool.h"
#include "common/clock.h"
#include "tests/integration/harness.h"
#include "tests/integration/wire.h"

#define PAGE	4096
#define TTL_MS	600000
#define BYTES	(4 * MIB + 77)
#define NO_WAIT "\"lane_wait_min\": \"0\""
#define KEEPING "\"orphan_grace\": \"1min\", " NO_WAIT

/* What passes through the library's own memory leaves its bytes there. */

static void mark_staging(mempool *pool)
{
	memset(pool_lane(pool)->staging.bytes, 0xee, pool_lane(pool)->staging.len_bytes);
}

static bool staging_is_marked(mempool *pool)
{
	const struct buffer *staging = &pool_lane(pool)->staging;

	for (size_t i = 0; i < staging->len_bytes; i++) {
		if (staging->bytes[i] != 0xee)
			return false;
	}
	return true;
}

static void transfer(mempool *pool, mempool_lease *lease, uint8_t *bytes, size_t len_bytes,
		     bool copied)
{
	uint8_t *sent = malloc(len_bytes);

	CHECK(sent != NULL);
	harness_fill(sent, len_bytes, (uint32_t)len_bytes);
	memcpy(bytes, sent, len_bytes);
	mark_staging(pool);
	CHECK_INT(mempool_write(lease, 5, bytes, len_bytes), 0);
	memset(bytes, 0, len_bytes);
	CHECK_INT(mempool_read(lease, 5, bytes, len_bytes), 0);
	CHECK_INT(staging_is_marked(pool), !copied);
	CHECK_MEM(bytes, sent, len_bytes);
	free(sent);
}

TEST(buffer__no_copy)
{
	HARNESS(h, .pool_size = "64MiB", .extra = "\"window_max\": \"1MiB\"");
	SESSION(alpha, "alpha");
	mempool_lease *lease;
	mempool_buf *buf, *own;
	uint8_t *bytes;

	CHECK_INT(harness_acquire(alpha, BYTES + 10, TTL_MS, &lease), 0);
	CHECK_INT(mempool_buf_alloc(alpha, BYTES, 0, &buf), 0);
	CHECK_INT(mempool_buf_length(buf), BYTES);
	bytes = mempool_buf_bytes(buf);
	for (size_t i = 0; i < BYTES; i += 511)
		CHECK_INT(bytes[i], 0);
	transfer(alpha, lease, bytes, BYTES, false);
	transfer(alpha, lease, bytes + 13, 300001, false);
	CHECK(!test_has_failed());
	/* Memory of the application's, at an odd place. */
	bytes = malloc(MIB);
	CHECK(bytes != NULL);
	transfer(alpha, lease, bytes + 3, 300001, true);
	CHECK_INT(mempool_buf_register(alpha, bytes + 3, 300001, &own), 0);
	CHECK(mempool_buf_bytes(own) == bytes + 3);
	transfer(alpha, lease, bytes + 3, 300001, false);
	/* One byte that is not in it. */
	transfer(alpha, lease, bytes + 2, 300001, true);
	transfer(alpha, lease, bytes + 4, 300001, true);
	CHECK_INT(mempool_buf_free(own), 0);
	transfer(alpha, lease, bytes + 3, 300001, true);
	CHECK_INT(mempool_buf_free(buf), 0);
	free(bytes);
	CHECK(!test_has_failed());
	harness_close(&alpha);
	CHECK_INT(harness_stop(&h), 0);
}

/* A list whose parts are in a buffer and not. */
TEST(buffer__mixed_list)
{
	HARNESS(h, .pool_size = "64MiB");
	SESSION(alpha, "alpha");
	static uint8_t plain[700000];
	static uint8_t sent[2 * MIB];
	struct mempool_segment list[40];
	mempool_lease *lease;
	mempool_buf *buf;
	uint8_t *bytes;
	size_t done = 0;

	CHECK_INT(harness_acquire(alpha, 2 * MIB, TTL_MS, &lease), 0);
	CHECK_INT(mempool_buf_alloc(alpha, 2 * MIB, 0, &buf), 0);
	bytes = mempool_buf_bytes(buf);
	harness_fill(sent, sizeof(sent), 3);
	CHECK_INT(mempool_write(lease, 0, sent, sizeof(sent)), 0);
	for (size_t i = 0; i < 40; i++)
		list[i] = (struct mempool_segment){
			.offset_bytes = i * 50000,
			.buf = i % 3 == 0 ? plain + i / 3 * 50000 : bytes + i * 50000,
			.len_bytes = 50000 - i,
		};
	CHECK_INT(mempool_readv(lease, list, 40, &done), 0);
	CHECK_INT(done, 40);
	for (size_t i = 0; i < 40; i++)
		CHECK_MEM(list[i].buf, sent + i * 50000, 50000 - i);
	CHECK_INT(mempool_buf_free(buf), 0);
}

TEST(buffer__what_is_refused)
{
	HARNESS(h, .pool_size = NULL);
	SESSION(alpha, "alpha");
	mempool_buf *buf = NULL, *other = NULL;
	uint8_t *bytes;
	uint8_t *constant;
	int r;

	bytes = malloc(64 * 1024);
	constant = mmap(NULL, PAGE, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	CHECK(bytes != NULL && constant != MAP_FAILED);
	CHECK_INT(mempool_buf_alloc(NULL, PAGE, 0, &buf), MEMPOOL_E_INVALID);
	CHECK_INT(mempool_buf_alloc(alpha, 0, 0, &buf), MEMPOOL_E_INVALID);
	CHECK_INT(mempool_buf_alloc(alpha, PAGE, 0, NULL), MEMPOOL_E_INVALID);
	CHECK_INT(mempool_buf_alloc(alpha, PAGE, 4, &buf), MEMPOOL_E_INVALID);
	CHECK_INT(mempool_buf_alloc(alpha, PAGE, MEMPOOL_BUF_HUGE_ONLY, &buf), MEMPOOL_E_INVALID);
	CHECK_INT(mempool_buf_alloc(alpha, SIZE_MAX, 0, &buf), MEMPOOL_E_NO_MEMORY);
	CHECK_INT(mempool_buf_alloc(alpha, SIZE_MAX / 2, 0, &buf), MEMPOOL_E_NO_MEMORY);
	CHECK_INT(mempool_buf_register(NULL, bytes, 1, &buf), MEMPOOL_E_INVALID);
	CHECK_INT(mempool_buf_register(alpha, NULL, 1, &buf), MEMPOOL_E_INVALID);
	CHECK_INT(mempool_buf_register(alpha, bytes, 0, &buf), MEMPOOL_E_INVALID);
	CHECK_INT(mempool_buf_register(alpha, bytes, SIZE_MAX, &buf), MEMPOOL_E_INVALID);
	CHECK_INT(mempool_buf_register(alpha, bytes, 1, NULL), MEMPOOL_E_INVALID);
	r = mempool_buf_register(alpha, constant, PAGE, &buf);
	printf("# memory that cannot be written: %s\n", mempool_last_error());
	CHECK(r == MEMPOOL_E_SYSTEM);
	CHECK(buf == NULL);
	/* Two may share a page, but no byte. */
	CHECK_INT(mempool_buf_register(alpha, bytes + 100, 1000, &buf), 0);
	CHECK_INT(mempool_buf_register(alpha, bytes + 1100, 100, &other), 0);
	CHECK_INT(mempool_buf_free(other), 0);
	CHECK_INT(mempool_buf_register(alpha, bytes + 1099, 100, &other), MEMPOOL_E_STATE);
	CHECK_INT(mempool_buf_register(alpha, bytes, 101, &other), MEMPOOL_E_STATE);
	CHECK_INT(mempool_buf_register(alpha, bytes, 64 * 1024, &other), MEMPOOL_E_STATE);
	CHECK_INT(mempool_buf_register(alpha, bytes, 100, &other), 0);
	CHECK_INT(mempool_buf_free(other), 0);
	CHECK_INT(mempool_buf_free(other), MEMPOOL_E_STATE);
	CHECK(mempool_buf_bytes(other) == NULL);
	CHECK_INT(mempool_buf_length(other), 0);
	CHECK_INT(mempool_buf_free(NULL), 0);
	CHECK(mempool_buf_bytes(NULL) == NULL);
	CHECK_INT(mempool_buf_length(NULL), 0);
	/* The session's end gives back what is left. */
	harness_close(&alpha);
	free(bytes);
	(void)munmap(constant, PAGE);
}

TEST(buffer__huge_pages)
{
	HARNESS(h, .pool_size = NULL);
	SESSION(alpha, "alpha");
	mempool_lease *lease;
	mempool_buf *buf;
	int r;

	CHECK_INT(harness_acquire(alpha, MIB, TTL_MS, &lease), 0);
	CHECK_INT(mempool_buf_alloc(alpha, 3 * MIB, MEMPOOL_BUF_HUGE, &buf), 0);
	CHECK_INT(mempool_buf_length(buf), 3 * MIB);
	transfer(alpha, lease, mempool_buf_bytes(buf), 500000, false);
	CHECK_INT(mempool_buf_free(buf), 0);
	r = mempool_buf_alloc(alpha, 3 * MIB, MEMPOOL_BUF_HUGE | MEMPOOL_BUF_HUGE_ONLY, &buf);
	printf("# huge pages only: %s\n", r < 0 ? mempool_last_error() : "there are some");
	CHECK(r == 0 || r == MEMPOOL_E_NO_MEMORY);
	if (r == 0)
		CHECK_INT(mempool_buf_free(buf), 0);
}

struct freeing {
	pthread_barrier_t *start;
	mempool_buf *buf;
	int code;
};

static void *free_buffer(void *arg)
{
	struct freeing *freeing = arg;

	(void)pthread_barrier_wait(freeing->start);
	freeing->code = mempool_buf_free(freeing->buf);
	return NULL;
}

TEST(buffer__given_back_by_two_at_once)
{
	HARNESS(h, .pool_size = NULL);
	SESSION(alpha, "alpha");
	pthread_barrier_t start;

	CHECK_INT(pthread_barrier_init(&start, NULL, 2), 0);
	for (int round = 0; round < 100; round++) {
		struct freeing both[2] = {{.start = &start}, {.start = &start}};
		pthread_t threads[2];
		mempool_buf *buf;

		CHECK_INT(mempool_buf_alloc(alpha, PAGE, 0, &buf), 0);
		for (int i = 0; i < 2; i++) {
			both[i].buf = buf;
			CHECK_INT(pthread_create(&threads[i], NULL, free_buffer, &both[i]), 0);
		}
		for (int i = 0; i < 2; i++)
			CHECK_INT(pthread_join(threads[i], NULL), 0);
		CHECK((both[0].code == 0 && both[1].code == MEMPOOL_E_STATE) ||
		      (both[1].code == 0 && both[0].code == MEMPOOL_E_STATE));
	}
	CHECK_INT(pthread_barrier_destroy(&start), 0);
}

/* The cache. */

static void check_cache(mempool *pool, uint64_t hits, uint64_t misses, uint64_t entries,
			uint64_t bytes)
{
	struct mempool_cache_stats stats = {.size = sizeof(stats)};

	CHECK_INT(mempool_cache_stats(pool, &stats), 0);
	CHECK_INT(stats.hits, hits);
	CHECK_INT(stats.misses, misses);
	CHECK_INT(stats.entries, entries);
	CHECK_INT(stats.bytes, bytes);
}

TEST(buffer__cache)
{
	HARNESS(h, .pool_size = NULL);
	SESSION(alpha, "alpha");
	struct mempool_cache_opts limits = {
		.size = sizeof(limits),
		.bytes_max = 2 * MIB,
		.len_min_bytes = 64 * 1024,
		.entries_max = 3,
	};
	static const char constant[100000] = {1};
	mempool_lease *lease;
	uint8_t *bytes;

	bytes = malloc(4 * MIB);
	CHECK(bytes != NULL);
	CHECK_INT(harness_acquire(alpha, 2 * MIB, TTL_MS, &lease), 0);
	transfer(alpha, lease, bytes, 100000, true);
	check_cache(alpha, 0, 0, 0, 0);
	CHECK_INT(mempool_cache_limit(alpha, &limits), 0);
	transfer(alpha, lease, bytes, 100000, false);
	check_cache(alpha, 1, 1, 1, 100000);
	transfer(alpha, lease, bytes, 64 * 1024 - 1, true);
	transfer(alpha, lease, bytes + 5, 64 * 1024, false);
	check_cache(alpha, 3, 1, 1, 100000);
	for (size_t i = 0; i < 4; i++)
		transfer(alpha, lease, bytes + i * 200000, 200000, false);
	check_cache(alpha, 7, 5, 3, 600000);
	/* Cannot be registered, being constant, and is copied instead; it drives out nothing. */
	CHECK_INT(mempool_write(lease, 0, constant, sizeof(constant)), 0);
	check_cache(alpha, 7, 6, 3, 600000);
	CHECK_INT(mempool_cache_forget(alpha, bytes, 4 * MIB), 0);
	check_cache(alpha, 7, 6, 0, 0);
	/* What a program does that maps other memory at the same place. */
	CHECK_INT(mempool_write(lease, 0, bytes, 100000), 0);
	CHECK_INT(mempool_cache_forget(alpha, bytes, 1), 0);
	check_cache(alpha, 7, 7, 0, 0);
	CHECK_INT(mempool_cache_limit(NULL, &limits), MEMPOOL_E_INVALID);
	CHECK_INT(mempool_cache_limit(alpha, NULL), MEMPOOL_E_INVALID);
	limits.reserved = 1;
	CHECK_INT(mempool_cache_limit(alpha, &limits), MEMPOOL_E_INVALID);
	limits.reserved = 0;
	limits.size--;
	CHECK_INT(mempool_cache_limit(alpha, &limits), MEMPOOL_E_INVALID);
	CHECK_INT(mempool_cache_forget(alpha, NULL, 1), MEMPOOL_E_INVALID);
	CHECK_INT(mempool_cache_stats(alpha, NULL), MEMPOOL_E_INVALID);
	CHECK(!test_has_failed());
	harness_close(&alpha);
	free(bytes);
	CHECK_INT(harness_stop(&h), 0);
}

/* When a call returns the memory is the caller's. */

#define CUT_TIMEOUT_MS 3000
#define CUT_BYTES      (2 * MIB)

/* It may notice the silence before a call's time is over: then the whole session is made anew. */
static int connect_briefly(mempool **ret_pool)
{
	struct mempool_connect_opts opts = {
		.size = sizeof(opts),
		.timeout_ms = CUT_TIMEOUT_MS,
		.reconnect_ms = UINT32_MAX,
	};
	struct harness_keys keys;

	harness_keys("alpha", &keys, &opts);
	return mempool_connect(harness_endpoint(), &opts, ret_pool);
}

/*
 * A read is cut off in its middle; the answers that were lost are on the wire again when it has
 * returned, and find nothing. @registered: without a copy, straight into that memory
 */
static void read_cut_off(mempool *alpha, mempool_lease *lease, bool registered)
{
	mempool_buf *buf = NULL;
	uint64_t begun_ns;
	uint64_t took_ms;
	uint8_t *bytes;
	int r;

	bytes = mmap(NULL, CUT_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	CHECK(bytes != MAP_FAILED);
	if (registered)
		CHECK_INT(mempool_buf_register(alpha, bytes, CUT_BYTES, &buf), 0);
	CHECK_INT(mempool_read(lease, 0, bytes, CUT_BYTES), 0);
	CHECK(wire_drop(WIRE_DAEMON, true));
	begun_ns = clock_now_ns();
	r = mempool_read(lease, 0, bytes, CUT_BYTES);
	took_ms = harness_since_ms(begun_ns);
	printf("# %s memory, cut off after %" PRIu64 " ms: %s\n",
	       registered ? "registered" : "plain", took_ms, mempool_last_error());
	memset(bytes, 0x5a, CUT_BYTES);
	CHECK(r == MEMPOOL_E_TIMEOUT || r == MEMPOOL_E_LANE || r == MEMPOOL_E_SESSION_LOST);
	CHECK(took_ms < CUT_TIMEOUT_MS + 2500);
	CHECK(wire_drop(WIRE_DAEMON, false));
	for (int i = 0; i < 20; i++) {
		harness_sleep_ms(100);
		for (size_t at = 0; at < CUT_BYTES; at++)
			CHECK_INT(bytes[at], 0x5a);
	}
	if (registered)
		CHECK_INT(mempool_buf_free(buf), 0);
	CHECK_INT(munmap(bytes, CUT_BYTES), 0);
}

/* Unmapped in the moment of the return: whoever writes there now ends the program. */
static void read_and_unmap(mempool *alpha, mempool_lease *lease)
{
	mempool_buf *buf;
	uint8_t *bytes;
	int r;

	bytes = mmap(NULL, CUT_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	CHECK(bytes != MAP_FAILED);
	CHECK_INT(mempool_buf_register(alpha, bytes, CUT_BYTES, &buf), 0);
	CHECK(wire_drop(WIRE_DAEMON, true));
	r = mempool_read(lease, 0, bytes, CUT_BYTES);
	CHECK_INT(mempool_buf_free(buf), 0);
	CHECK_INT(munmap(bytes, CUT_BYTES), 0);
	CHECK(wire_drop(WIRE_DAEMON, false));
	CHECK(r == MEMPOOL_E_TIMEOUT || r == MEMPOOL_E_LANE || r == MEMPOOL_E_SESSION_LOST);
	harness_sleep_ms(500);
}

static void cut_off(void)
{
	HARNESS(h, .pool_size = NULL, .extra = KEEPING);
	__attribute__((cleanup(harness_close))) mempool *alpha = NULL;
	uint8_t *sent = malloc(CUT_BYTES);
	mempool_lease *lease;
	int r = MEMPOOL_E_LANE;

	CHECK(sent != NULL);
	harness_fill(sent, CUT_BYTES, 9);
	CHECK_INT(connect_briefly(&alpha), 0);
	CHECK_INT(harness_acquire(alpha, CUT_BYTES, TTL_MS, &lease), 0);
	CHECK_INT(mempool_write(lease, 0, sent, CUT_BYTES), 0);
	for (int registered = 0; registered < 2 && !test_has_failed(); registered++) {
		read_cut_off(alpha, lease, registered == 1);
		r = MEMPOOL_E_LANE;
		for (int i = 0; i < 10 && r != 0; i++)
			r = mempool_write(lease, 0, sent, CUT_BYTES);
		CHECK_INT(r, 0);
	}
	CHECK(!test_has_failed());
	read_and_unmap(alpha, lease);
	CHECK(!test_has_failed());
	harness_close(&alpha);
	free(sent);
	CHECK_INT(harness_stop(&h), 0);
}

TEST(buffer__is_the_callers_after_a_deadline)
{
	wire_test("buffer__is_the_callers_after_a_deadline", 120000, cut_off);
}
