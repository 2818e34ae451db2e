/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Operations that a call waits for, beyond plain reads and writes: lists of ranges, and
 * atomic operations, with the data connection cut in the middle of them.
 */
#include <inttypes.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/lane.h"
#include "client/pool.h"
#include "common/clock.h"
#include "tests/integration/harness.h"
#include "tests/integration/wire.h"
#include "tests/unit/random.h"

#define PAGE	4096
#define TTL_MS	600000
#define ALL	(MEMPOOL_READ | MEMPOOL_WRITE | MEMPOOL_ATOMIC)
#define NO_WAIT "\"lane_wait_min\": \"0\""
#define KEEPING "\"orphan_grace\": \"1min\", " NO_WAIT

static int acquire(mempool *pool, uint64_t len_bytes, uint32_t rights, uint64_t ttl_ms,
		   mempool_lease **ret_lease)
{
	struct mempool_acquire_opts opts = {
		.size = sizeof(opts), .ttl_ms = ttl_ms, .rights = rights};

	return mempool_acquire(pool, len_bytes, &opts, ret_lease);
}

/* Lists of ranges. */

#define VECTOR_BYTES	UINT64_C(300000)
#define VECTOR_SEGMENTS 50

/* Ranges of any length that fill a list; some are empty. */
static size_t make_segments(struct random *random, uint8_t *local, struct mempool_segment *segments)
{
	uint64_t used_bytes = 0;
	size_t count = 0;

	while (count < VECTOR_SEGMENTS) {
		uint64_t len_bytes = random_below(random, 12000);

		if (count % 7 == 3)
			len_bytes = 0;
		segments[count++] = (struct mempool_segment){
			.offset_bytes = random_below(random, VECTOR_BYTES - len_bytes + 1),
			.buf = len_bytes == 0 ? NULL : local + used_bytes,
			.len_bytes = len_bytes,
		};
		used_bytes += len_bytes;
	}
	return count;
}

/* Against a copy. Windows of 64 KiB, so that ranges cross their borders. */
TEST(operations__lists_of_ranges)
{
	HARNESS(h, .pool_size = NULL, .extra = "\"window_max\": \"64KiB\"");
	SESSION(alpha, "alpha");
	static uint8_t shadow[VECTOR_BYTES];
	static uint8_t local[VECTOR_SEGMENTS * 12000];
	struct mempool_segment segments[VECTOR_SEGMENTS];
	struct random random = random_start();
	mempool_lease *lease;
	size_t count;
	size_t done;

	CHECK_INT(harness_acquire(alpha, VECTOR_BYTES, TTL_MS, &lease), 0);
	for (uint32_t round = 0; round < 10; round++) {
		count = make_segments(&random, local, segments);
		harness_fill(local, sizeof(local), round + 1);
		for (size_t i = 0; i < count; i++) {
			if (segments[i].len_bytes > 0)
				memcpy(shadow + segments[i].offset_bytes, segments[i].buf,
				       segments[i].len_bytes);
		}
		done = 0;
		CHECK_INT(mempool_writev(lease, segments, count, &done), 0);
		CHECK_INT(done, count);
		count = make_segments(&random, local, segments);
		memset(local, 0, sizeof(local));
		CHECK_INT(mempool_readv(lease, segments, count, round % 2 ? &done : NULL), 0);
		CHECK_INT(done, count);
		for (size_t i = 0; i < count; i++) {
			if (segments[i].len_bytes > 0)
				CHECK_MEM(segments[i].buf, shadow + segments[i].offset_bytes,
					  segments[i].len_bytes);
		}
	}
	harness_close(&alpha);
	CHECK_INT(harness_stop(&h), 0);
}

TEST(operations__lists_that_are_refused)
{
	HARNESS(h, .pool_size = NULL);
	SESSION(alpha, "alpha");
	static struct mempool_segment many[1025];
	uint8_t bytes[16] = {0};
	struct mempool_segment list[] = {{0, bytes, 8}, {PAGE - 8, bytes + 8, 8}};
	mempool_lease *lease, *reading;
	size_t done = 9;

	CHECK_INT(harness_acquire(alpha, PAGE, TTL_MS, &lease), 0);
	CHECK_INT(acquire(alpha, PAGE, MEMPOOL_READ, TTL_MS, &reading), 0);
	CHECK_INT(mempool_writev(NULL, list, 2, &done), MEMPOOL_E_INVALID);
	CHECK_INT(mempool_writev(lease, NULL, 2, &done), MEMPOOL_E_INVALID);
	CHECK_INT(mempool_writev(lease, list, 0, &done), MEMPOOL_E_INVALID);
	CHECK_INT(mempool_writev(lease, many, 1025, &done), MEMPOOL_E_INVALID);
	CHECK_INT(done, 9);
	/* Nothing of a list is done of which a part is wrong. */
	memset(bytes, 0x33, sizeof(bytes));
	list[1].offset_bytes = PAGE - 7;
	CHECK_INT(mempool_writev(lease, list, 2, &done), MEMPOOL_E_RANGE);
	CHECK_INT(done, 0);
	list[1].offset_bytes = UINT64_MAX - 6;
	CHECK_INT(mempool_writev(lease, list, 2, &done), MEMPOOL_E_RANGE);
	list[1] = (struct mempool_segment){PAGE + 1, NULL, 0};
	CHECK_INT(mempool_writev(lease, list, 2, &done), MEMPOOL_E_RANGE);
	list[1] = (struct mempool_segment){0, NULL, 1};
	CHECK_INT(mempool_writev(lease, list, 2, &done), MEMPOOL_E_INVALID);
	list[1] = (struct mempool_segment){PAGE, NULL, 0};
	CHECK_INT(mempool_writev(reading, list, 2, &done), MEMPOOL_E_ACCESS);
	CHECK_INT(mempool_read(lease, 0, bytes, 8), 0);
	for (int i = 0; i < 8; i++)
		CHECK_INT(bytes[i], 0);
	CHECK_INT(mempool_readv(lease, list, 2, &done), 0);
	CHECK_INT(done, 2);
	CHECK_INT(mempool_readv(lease, many, 1024, &done), 0);
	CHECK_INT(done, 1024);
}

/* The segments that are reported as done are, and no others are claimed. */
TEST(operations__a_lease_expires_in_a_list)
{
	HARNESS(h, .pool_size = "64MiB");
	SESSION(alpha, "alpha");
	struct mempool_segment list[1024];
	mempool_lease *lease;
	size_t done = 0;
	uint8_t *local;
	int r = 0;

	local = calloc(1, 1 * MIB);
	CHECK(local != NULL);
	for (size_t i = 0; i < 1024; i++)
		list[i] = (struct mempool_segment){i % 32 * MIB, local, MIB};
	CHECK_INT(harness_acquire(alpha, 32 * MIB, 700, &lease), 0);
	while (r == 0)
		r = mempool_readv(lease, list, 1024, &done);
	printf("# the lease has expired after %zu segments: %s\n", done, mempool_last_error());
	CHECK_INT(r, MEMPOOL_E_EXPIRED);
	CHECK(done < 1024);
	CHECK_INT(mempool_readv(lease, list, 1024, &done), MEMPOOL_E_EXPIRED);
	CHECK_INT(done, 0);
	free(local);
}

/* Atomic operations. */

TEST(operations__atomic_values)
{
	HARNESS(h, .pool_size = NULL);
	SESSION(alpha, "alpha");
	const uint64_t offsets[] = {0, 8, PAGE - 8};
	mempool_lease *lease;
	uint64_t old = 0;
	int r;

	r = acquire(alpha, PAGE, ALL, TTL_MS, &lease);
	if (r == MEMPOOL_E_RIGHTS_DEVICE)
		SKIP("the device does not keep atomics inside their window");
	CHECK_INT(r, 0);
	for (size_t i = 0; i < 3; i++) {
		uint64_t value = 5;

		CHECK_INT(mempool_write(lease, offsets[i], &value, sizeof(value)), 0);
		CHECK_INT(mempool_compare_swap(lease, offsets[i], 5, 7, &old), 0);
		CHECK_INT(old, 5);
		CHECK_INT(mempool_compare_swap(lease, offsets[i], 5, 9, &old), 0);
		CHECK_INT(old, 7);
		CHECK_INT(mempool_fetch_add(lease, offsets[i], UINT64_MAX, &old), 0);
		CHECK_INT(old, 7);
		CHECK_INT(mempool_fetch_add(lease, offsets[i], UINT64_C(1) << 63, &old), 0);
		CHECK_INT(old, 6);
		CHECK_INT(mempool_read(lease, offsets[i], &value, sizeof(value)), 0);
		CHECK_INT(value, 6 + (UINT64_C(1) << 63));
	}
}

TEST(operations__atomics_that_are_refused)
{
	HARNESS(h, .pool_size = NULL);
	SESSION(alpha, "alpha");
	mempool_lease *lease, *plain;
	uint64_t old = 99;
	int r;

	r = acquire(alpha, PAGE + 4, ALL, TTL_MS, &lease);
	if (r == MEMPOOL_E_RIGHTS_DEVICE)
		SKIP("the device does not keep atomics inside their window");
	CHECK_INT(r, 0);
	CHECK_INT(harness_acquire(alpha, PAGE, TTL_MS, &plain), 0);
	for (uint64_t i = 1; i < 8; i++)
		CHECK_INT(mempool_fetch_add(lease, 16 + i, 1, &old), MEMPOOL_E_ALIGN);
	CHECK_INT(mempool_compare_swap(lease, 4, 0, 1, &old), MEMPOOL_E_ALIGN);
	CHECK_INT(mempool_fetch_add(lease, PAGE - 8, 1, &old), 0);
	CHECK_INT(old, 0);
	old = 99;
	CHECK_INT(mempool_fetch_add(lease, PAGE, 1, &old), MEMPOOL_E_RANGE);
	CHECK_INT(mempool_fetch_add(lease, UINT64_MAX - 7, 1, &old), MEMPOOL_E_RANGE);
	CHECK_INT(mempool_fetch_add(plain, 0, 1, &old), MEMPOOL_E_ACCESS);
	CHECK_INT(mempool_compare_swap(plain, 0, 0, 1, &old), MEMPOOL_E_ACCESS);
	CHECK_INT(mempool_fetch_add(NULL, 0, 1, &old), MEMPOOL_E_INVALID);
	CHECK_INT(mempool_fetch_add(lease, 0, 1, NULL), MEMPOOL_E_INVALID);
	CHECK_INT(old, 99);
	/* None of them has reached the device. */
	CHECK_INT(harness_number(&h, "counters.lanes_lost"), 0);
}

/* The word that lies in the window before and in the one that was added. */
TEST(operations__atomics_where_a_lease_grew)
{
	HARNESS(h, .pool_size = NULL, .extra = NO_WAIT);
	SESSION(alpha, "alpha");
	mempool_lease *lease;
	uint64_t old = 0;
	int r;

	r = acquire(alpha, 12, ALL, TTL_MS, &lease);
	if (r == MEMPOOL_E_RIGHTS_DEVICE)
		SKIP("the device does not keep atomics inside their window");
	CHECK_INT(r, 0);
	CHECK_INT(mempool_fetch_add(lease, 8, 1, &old), MEMPOOL_E_RANGE);
	CHECK_INT(mempool_modify(lease, 32, ALL), 0);
	r = mempool_fetch_add(lease, 8, 1, &old);
	printf("# the word in two windows: %s\n", mempool_error_text(r));
	CHECK(r == 0 || r == MEMPOOL_E_ALIGN);
	CHECK_INT(mempool_fetch_add(lease, 0, 3, &old), 0);
	CHECK_INT(mempool_fetch_add(lease, 24, 4, &old), 0);
	CHECK_INT(old, 0);
	CHECK_INT(harness_number(&h, "counters.lanes_lost"), 0);
}

/* Outcomes that are not known. */

struct cutter {
	mempool *pool;
	atomic_bool stop;
	uint32_t cuts;
};

static void *cut_lanes(void *arg)
{
	struct cutter *cutter = arg;
	struct random random = random_start();

	while (!atomic_load(&cutter->stop)) {
		harness_sleep_ms(1 + random_below(&random, 60));
		(void)pthread_mutex_lock(&cutter->pool->lock);
		/* One that is being opened would never be up. */
		if (pool_lane(cutter->pool)->state == LANE_UP) {
			cutter->cuts++;
			lane_lose(pool_lane(cutter->pool), MEMPOOL_E_LANE, "cut by the test");
		}
		(void)pthread_mutex_unlock(&cutter->pool->lock);
	}
	return NULL;
}

/*
 * What was reported as done is in the counter, what was reported as lost before is not, and
 * of what is not known there may be any number.
 */
TEST(operations__fetch_and_add_counts_while_lanes_are_lost)
{
	HARNESS(h, .pool_size = NULL, .extra = NO_WAIT);
	SESSION(alpha, "alpha");
	struct cutter cutter = {.pool = alpha};
	uint64_t done = 0, unknown = 0, lost = 0, old = 0;
	mempool_lease *lease;
	pthread_t thread;
	int r;

	r = acquire(alpha, PAGE, ALL, TTL_MS, &lease);
	if (r == MEMPOOL_E_RIGHTS_DEVICE)
		SKIP("the device does not keep atomics inside their window");
	CHECK_INT(r, 0);
	CHECK_INT(pthread_create(&thread, NULL, cut_lanes, &cutter), 0);
	for (int i = 0; i < 3000 && (r == 0 || r == MEMPOOL_E_UNKNOWN || r == MEMPOOL_E_LANE);
	     i++) {
		r = mempool_fetch_add(lease, 0, 1, &old);
		done += r == 0;
		unknown += r == MEMPOOL_E_UNKNOWN;
		lost += r == MEMPOOL_E_LANE;
	}
	atomic_store(&cutter.stop, true);
	CHECK_INT(pthread_join(thread, NULL), 0);
	printf("# %u cuts: %" PRIu64 " done, %" PRIu64 " not known, %" PRIu64
	       " not begun; last: %s\n",
	       cutter.cuts, done, unknown, lost, mempool_error_text(r));
	CHECK(r == 0 || r == MEMPOOL_E_UNKNOWN || r == MEMPOOL_E_LANE);
	for (int i = 0; i < 5; i++) {
		r = mempool_fetch_add(lease, 0, 0, &old);
		if (r == 0)
			break;
	}
	CHECK_INT(r, 0);
	printf("# the counter is at %" PRIu64 "\n", old);
	CHECK(done > 0 && cutter.cuts > 0);
	CHECK(old >= done && old <= done + unknown);
}

#define CUT_TIMEOUT_MS 3000

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

/* While the daemon's answers are lost an addition takes place, and we cannot know. */
static void cut_off(void)
{
	HARNESS(h, .pool_size = NULL, .extra = KEEPING);
	__attribute__((cleanup(harness_close))) mempool *alpha = NULL;
	mempool_lease *lease;
	uint64_t begun_ns;
	uint64_t old = 0;
	uint64_t took_ms;
	int r;

	CHECK_INT(connect_briefly(&alpha), 0);
	r = acquire(alpha, PAGE, ALL, TTL_MS, &lease);
	if (r == MEMPOOL_E_RIGHTS_DEVICE)
		SKIP("the device does not keep atomics inside their window");
	CHECK_INT(r, 0);
	CHECK_INT(mempool_fetch_add(lease, 0, 1, &old), 0);
	CHECK(wire_drop(WIRE_DAEMON, true));
	begun_ns = clock_now_ns();
	r = mempool_fetch_add(lease, 0, 1, &old);
	took_ms = harness_since_ms(begun_ns);
	printf("# cut off, after %" PRIu64 " ms: %s\n", took_ms, mempool_last_error());
	CHECK(wire_drop(WIRE_DAEMON, false));
	CHECK_INT(r, MEMPOOL_E_UNKNOWN);
	CHECK(took_ms < CUT_TIMEOUT_MS + 1500);
	for (int i = 0; i < 10 && r != 0; i++)
		r = mempool_fetch_add(lease, 0, 0, &old);
	CHECK_INT(r, 0);
	printf("# the counter is at %" PRIu64 "\n", old);
	CHECK(old == 1 || old == 2);
	harness_close(&alpha);
	CHECK_INT(harness_stop(&h), 0);
}

TEST(operations__fetch_and_add_cut_off_by_the_link)
{
	wire_test("operations__fetch_and_add_cut_off_by_the_link", 120000, cut_off);
}
