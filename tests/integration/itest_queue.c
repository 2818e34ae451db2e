/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Queues: what is submitted is done, and reported once, whatever happens to leases and lanes
 * meanwhile; and what an event loop needs.
 */
#include <errno.h>
#include <event2/event.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <unistd.h>

#include "client/lane.h"
#include "client/pool.h"
#include "client/queue.h"
#include "common/clock.h"
#include "tests/integration/accounts.h"
#include "tests/integration/harness.h"
#include "tests/integration/order.h"
#include "tests/integration/wire.h"
#include "tests/unit/random.h"

#define PAGE	4096
#define TTL_MS	600000
#define ALL	(MEMPOOL_READ | MEMPOOL_WRITE | MEMPOOL_ATOMIC)
#define NO_WAIT "\"lane_wait_min\": \"0\""
#define CHUNK	(64 * 1024)

static int acquire(mempool *pool, uint64_t len_bytes, uint32_t rights, uint64_t ttl_ms,
		   mempool_lease **ret_lease)
{
	struct mempool_acquire_opts opts = {
		.size = sizeof(opts), .ttl_ms = ttl_ms, .rights = rights};

	return mempool_acquire(pool, len_bytes, &opts, ret_lease);
}

static int make_queue(mempool *pool, uint32_t depth, uint32_t capacity, mempool_queue **ret_queue)
{
	struct mempool_queue_opts opts = {
		.size = sizeof(opts), .depth = depth, .capacity = capacity};

	return mempool_queue_create(pool, &opts, ret_queue);
}

/* One after the other until all are reported; @codes: by cookie, each written once. */

#define NOT_YET 1

static int drain(mempool_queue *queue, int *codes, size_t count, size_t expected)
{
	struct mempool_completion completions[7];
	size_t reported = 0;
	size_t n = 0;
	int r;

	r = mempool_flush(queue, 0);
	if (r < 0)
		return r;
	do {
		r = mempool_poll(queue, completions, 7, &n);
		for (size_t i = 0; i < n && r == 0; i++) {
			if (completions[i].cookie >= count ||
			    codes[completions[i].cookie] != NOT_YET)
				return -ENOENT;
			codes[completions[i].cookie] = completions[i].code;
			reported++;
		}
	} while (r == 0 && n > 0);
	if (r == 0 && reported != expected)
		printf("# %zu operations reported instead of %zu\n", reported, expected);
	return r < 0 ? r : reported == expected ? 0 : -EBADE;
}

static int submit_all(mempool_queue *queue, const struct mempool_op *ops, size_t count)
{
	size_t taken = 0;
	int r = mempool_submit(queue, ops, count, &taken);

	return r < 0 ? r : taken == count ? 0 : -ENOBUFS;
}

static int run_one(mempool_queue *queue, const struct mempool_op *op)
{
	struct mempool_op one = *op;
	int code = NOT_YET;
	int r;

	one.cookie = 0;
	r = submit_all(queue, &one, 1);
	if (r == 0)
		r = drain(queue, &code, 1, 1);
	return r < 0 ? r : code;
}

/* Contents. */

#define REGIONS	     64
#define REGION_BYTES (100 * 1024)
#ifdef __SANITIZE_THREAD__
#define ROUNDS 2 /* with it the filling of memory takes longer than all else */
#else
#define ROUNDS 30
#endif

/* Random writes of regions and reads of them afterwards, against a copy. */
static void verify_depth(mempool *alpha, mempool_lease *lease, uint32_t depth)
{
	struct random random = random_start();
	uint8_t *shadow = calloc(REGIONS, REGION_BYTES);
	mempool_queue *queue;
	mempool_buf *buf;
	uint8_t *bytes;

	CHECK(shadow != NULL);
	CHECK_INT(mempool_buf_alloc(alpha, (size_t)REGIONS * REGION_BYTES, 0, &buf), 0);
	CHECK_INT(make_queue(alpha, depth, REGIONS, &queue), 0);
	CHECK_INT(mempool_queue_attach(queue, lease), 0);
	CHECK_INT(mempool_queue_attach(queue, lease), 0);
	bytes = mempool_buf_bytes(buf);
	CHECK_INT(mempool_read(lease, 0, shadow, (size_t)REGIONS * REGION_BYTES), 0);
	for (uint32_t round = 0; round < ROUNDS; round++) {
		struct mempool_op ops[REGIONS];
		int codes[REGIONS];

		for (size_t i = 0; i < REGIONS; i++) {
			uint64_t len_bytes = 1 + random_below(&random, REGION_BYTES);
			uint64_t at = random_below(&random, REGION_BYTES - len_bytes + 1);
			bool writes = random_below(&random, 2) == 0;

			at += i * REGION_BYTES;
			ops[i] = (struct mempool_op){
				.cookie = i,
				.lease = lease,
				.offset_bytes = at,
				.len_bytes = len_bytes,
				.bytes = bytes + at,
				.buf = buf,
				.kind = writes ? MEMPOOL_OP_WRITE : MEMPOOL_OP_READ,
			};
			codes[i] = NOT_YET;
			if (writes) {
				harness_fill(bytes + at, len_bytes, round * REGIONS + (uint32_t)i);
				memcpy(shadow + at, bytes + at, len_bytes);
			} else {
				memset(bytes + at, 0, len_bytes);
			}
		}
		CHECK_INT(submit_all(queue, ops, REGIONS), 0);
		CHECK_INT(drain(queue, codes, REGIONS, REGIONS), 0);
		for (size_t i = 0; i < REGIONS; i++) {
			CHECK_INT(codes[i], 0);
			CHECK_MEM(ops[i].bytes, shadow + ops[i].offset_bytes, ops[i].len_bytes);
		}
	}
	CHECK_INT(mempool_read(lease, 0, bytes, (size_t)REGIONS * REGION_BYTES), 0);
	CHECK_MEM(bytes, shadow, (size_t)REGIONS * REGION_BYTES);
	mempool_queue_destroy(queue);
	CHECK_INT(mempool_buf_free(buf), 0);
	free(shadow);
}

/* The session's own lane is used at the same time, with its own keys for the lease. */
TEST(queue__contents)
{
	static const uint32_t depths[] = {1, 8, 64};
	HARNESS(h, .pool_size = "64MiB", .extra = "\"window_max\": \"256KiB\"");
	SESSION(alpha, "alpha");
	mempool_lease *lease;

	CHECK_INT(harness_acquire(alpha, REGIONS * REGION_BYTES, TTL_MS, &lease), 0);
	for (size_t i = 0; i < 3 && !test_has_failed(); i++)
		verify_depth(alpha, lease, depths[i]);
	CHECK(!test_has_failed());
	CHECK_INT(harness_number(&h, "counters.lanes_lost"), 0);
	harness_close(&alpha);
	CHECK_INT(harness_stop(&h), 0);
}

TEST(queue__atomic_operations)
{
	HARNESS(h, .pool_size = NULL);
	SESSION(alpha, "alpha");
	struct mempool_op ops[64];
	mempool_queue *queue;
	mempool_lease *lease;
	mempool_buf *buf;
	uint64_t *words;
	uint64_t seen = 0;
	uint64_t old;
	int codes[64];
	int r;

	r = acquire(alpha, PAGE, ALL, TTL_MS, &lease);
	if (r == MEMPOOL_E_RIGHTS_DEVICE)
		SKIP("the device does not keep atomics inside their window");
	CHECK_INT(r, 0);
	CHECK_INT(mempool_buf_alloc(alpha, PAGE, 0, &buf), 0);
	words = mempool_buf_bytes(buf);
	CHECK_INT(make_queue(alpha, 64, 0, &queue), 0);
	CHECK_INT(mempool_queue_attach(queue, lease), 0);
	for (size_t i = 0; i < 64; i++) {
		ops[i] = (struct mempool_op){
			.cookie = i,
			.lease = lease,
			.offset_bytes = 8,
			.len_bytes = 8,
			.bytes = &words[i],
			.buf = buf,
			.kind = MEMPOOL_OP_FETCH_ADD,
			.operand = 1,
		};
		codes[i] = NOT_YET;
	}
	ops[63].kind = MEMPOOL_OP_COMPARE_SWAP;
	ops[63].operand = 63;
	ops[63].swap = 1000;
	CHECK_INT(submit_all(queue, ops, 64), 0);
	CHECK_INT(drain(queue, codes, 64, 64), 0);
	for (size_t i = 0; i < 64; i++) {
		CHECK_INT(codes[i], 0);
		CHECK(words[i] < 64);
		seen |= UINT64_C(1) << words[i];
	}
	CHECK_INT(seen, UINT64_MAX);
	CHECK_INT(mempool_fetch_add(lease, 8, 0, &old), 0);
	CHECK_INT(old, 1000);
}

/* Refusals: each with its code, and none of them reaches the device. */

TEST(queue__operations_that_are_refused)
{
	HARNESS(h, .pool_size = NULL);
	SESSION(alpha, "alpha");
	SESSION(beta, "beta");
	mempool_lease *lease, *reading, *alien, *stranger;
	mempool_queue *queue;
	mempool_buf *buf, *gone, *foreign;
	struct mempool_op good;
	uint8_t *bytes;
	struct mempool_op op;

	CHECK_INT(harness_acquire(alpha, PAGE, TTL_MS, &lease), 0);
	CHECK_INT(harness_acquire(alpha, PAGE, TTL_MS, &stranger), 0);
	CHECK_INT(acquire(alpha, PAGE, MEMPOOL_READ, TTL_MS, &reading), 0);
	CHECK_INT(harness_acquire(beta, PAGE, TTL_MS, &alien), 0);
	CHECK_INT(mempool_buf_alloc(alpha, PAGE, 0, &buf), 0);
	CHECK_INT(mempool_buf_alloc(alpha, PAGE, 0, &gone), 0);
	CHECK_INT(mempool_buf_alloc(beta, PAGE, 0, &foreign), 0);
	CHECK_INT(make_queue(alpha, 4, 0, &queue), 0);
	CHECK_INT(mempool_queue_attach(queue, lease), 0);
	CHECK_INT(mempool_queue_attach(queue, reading), 0);
	bytes = mempool_buf_bytes(buf);
	good = (struct mempool_op){.lease = lease,
				   .len_bytes = PAGE,
				   .bytes = bytes,
				   .buf = buf,
				   .kind = MEMPOOL_OP_WRITE};
	CHECK_INT(run_one(queue, &good), 0);
#define REFUSED(code, ...)                              \
	do {                                            \
		op = good;                              \
		__VA_ARGS__;                            \
		CHECK_INT(run_one(queue, &op), (code)); \
	} while (0)
	REFUSED(MEMPOOL_E_INVALID, op.lease = NULL);
	REFUSED(MEMPOOL_E_INVALID, op.lease = alien);
	REFUSED(MEMPOOL_E_INVALID, op.kind = 0);
	REFUSED(MEMPOOL_E_INVALID, op.kind = 5);
	REFUSED(MEMPOOL_E_INVALID, op.reserved = 1);
	REFUSED(MEMPOOL_E_INVALID, op.buf = NULL);
	REFUSED(MEMPOOL_E_INVALID, op.bytes = NULL);
	REFUSED(MEMPOOL_E_INVALID, op.bytes = bytes + 1);
	REFUSED(MEMPOOL_E_INVALID, op.bytes = bytes - 1; op.len_bytes = 1);
	REFUSED(MEMPOOL_E_INVALID, op.buf = foreign);
	REFUSED(MEMPOOL_E_RANGE, op.offset_bytes = 1);
	REFUSED(MEMPOOL_E_RANGE, op.offset_bytes = PAGE; op.len_bytes = 1);
	REFUSED(MEMPOOL_E_RANGE, op.offset_bytes = UINT64_MAX; op.len_bytes = 1);
	REFUSED(MEMPOOL_E_RANGE, op.len_bytes = UINT64_MAX);
	REFUSED(MEMPOOL_E_RANGE, op.offset_bytes = PAGE + 1; op.len_bytes = 0);
	REFUSED(0, op.offset_bytes = PAGE; op.len_bytes = 0; op.buf = NULL);
	REFUSED(MEMPOOL_E_ACCESS, op.lease = reading);
	REFUSED(MEMPOOL_E_STATE, op.lease = stranger);
	REFUSED(MEMPOOL_E_ACCESS, op.kind = MEMPOOL_OP_FETCH_ADD; op.len_bytes = 8);
	REFUSED(MEMPOOL_E_ALIGN, op.kind = MEMPOOL_OP_FETCH_ADD; op.len_bytes = 8;
		op.offset_bytes = 4);
	REFUSED(MEMPOOL_E_ALIGN, op.kind = MEMPOOL_OP_COMPARE_SWAP; op.len_bytes = 8;
		op.bytes = bytes + 4);
	REFUSED(MEMPOOL_E_INVALID, op.kind = MEMPOOL_OP_FETCH_ADD; op.len_bytes = 4);
	CHECK_INT(mempool_buf_free(gone), 0);
	REFUSED(MEMPOOL_E_STATE, op.buf = gone);
	CHECK_INT(run_one(queue, &good), 0);
	CHECK_INT(harness_number(&h, "counters.lanes_lost"), 0);
	CHECK_INT(mempool_queue_attach(queue, alien), MEMPOOL_E_INVALID);
	CHECK_INT(mempool_queue_attach(queue, NULL), MEMPOOL_E_INVALID);
}

TEST(queue__calls_that_are_refused)
{
	HARNESS(h, .pool_size = NULL);
	SESSION(alpha, "alpha");
	struct mempool_queue_opts opts = {.size = sizeof(opts) - 1};
	struct mempool_queue_info info = {.size = sizeof(info) - 1};
	struct mempool_completion completion;
	struct mempool_op op = {0};
	mempool_queue *queue = NULL;
	size_t n = 0;

	CHECK_INT(mempool_queue_create(alpha, &opts, &queue), MEMPOOL_E_INVALID);
	opts.size = sizeof(opts);
	opts.depth = 4097;
	CHECK_INT(mempool_queue_create(alpha, &opts, &queue), MEMPOOL_E_INVALID);
	opts.depth = 0;
	opts.capacity = 65537;
	CHECK_INT(mempool_queue_create(alpha, &opts, &queue), MEMPOOL_E_INVALID);
	opts.capacity = 0;
	CHECK_INT(mempool_queue_create(NULL, &opts, &queue), MEMPOOL_E_INVALID);
	CHECK_INT(mempool_queue_create(alpha, NULL, &queue), MEMPOOL_E_INVALID);
	CHECK_INT(mempool_queue_create(alpha, &opts, NULL), MEMPOOL_E_INVALID);
	CHECK(queue == NULL);
	CHECK_INT(mempool_queue_create(alpha, &opts, &queue), 0);
	CHECK_INT(mempool_submit(NULL, &op, 1, &n), MEMPOOL_E_INVALID);
	CHECK_INT(mempool_submit(queue, NULL, 1, &n), MEMPOOL_E_INVALID);
	CHECK_INT(mempool_submit(queue, &op, 0, &n), MEMPOOL_E_INVALID);
	CHECK_INT(mempool_submit(queue, &op, 1, NULL), MEMPOOL_E_INVALID);
	CHECK_INT(mempool_poll(NULL, &completion, 1, &n), MEMPOOL_E_INVALID);
	CHECK_INT(mempool_poll(queue, NULL, 1, &n), MEMPOOL_E_INVALID);
	CHECK_INT(mempool_poll(queue, &completion, 0, &n), MEMPOOL_E_INVALID);
	CHECK_INT(mempool_poll(queue, &completion, 1, NULL), MEMPOOL_E_INVALID);
	CHECK_INT(mempool_cancel(NULL, 1, &n), MEMPOOL_E_INVALID);
	CHECK_INT(mempool_cancel(queue, 1, NULL), MEMPOOL_E_INVALID);
	CHECK_INT(mempool_queue_fd(NULL), MEMPOOL_E_INVALID);
	CHECK_INT(mempool_queue_arm(NULL), MEMPOOL_E_INVALID);
	CHECK_INT(mempool_queue_restore(NULL), MEMPOOL_E_INVALID);
	CHECK_INT(mempool_flush(NULL, 0), MEMPOOL_E_INVALID);
	CHECK_INT(mempool_queue_info(queue, &info), MEMPOOL_E_INVALID);
	CHECK_INT(mempool_queue_info(queue, NULL), MEMPOOL_E_INVALID);
	info.size = sizeof(info);
	CHECK_INT(mempool_queue_info(NULL, &info), MEMPOOL_E_INVALID);
	CHECK_INT(mempool_queue_info(queue, &info), 0);
	CHECK_INT(info.depth, 64);
	CHECK_INT(info.capacity, 64);
	CHECK_INT(info.lane_up, 1);
	CHECK_INT(info.waiting + info.posted + info.done, 0);
	printf("# writes up to %u bytes go inline\n", info.inline_max_bytes);
	CHECK_INT(mempool_poll(queue, &completion, 1, &n), 0);
	CHECK_INT(n, 0);
	CHECK_INT(mempool_flush(queue, 0), 0);
	mempool_queue_destroy(NULL);
	/* The session's end ends it. */
}

TEST(queue__full)
{
	HARNESS(h, .pool_size = "64MiB");
	SESSION(alpha, "alpha");
	struct mempool_op ops[12];
	struct mempool_completion completions[12];
	mempool_queue *queue;
	mempool_lease *lease;
	mempool_buf *buf;
	size_t n = 0;

	CHECK_INT(harness_acquire(alpha, 12 * CHUNK, TTL_MS, &lease), 0);
	CHECK_INT(mempool_buf_alloc(alpha, 12 * CHUNK, 0, &buf), 0);
	CHECK_INT(make_queue(alpha, 2, 10, &queue), 0);
	CHECK_INT(mempool_queue_attach(queue, lease), 0);
	for (size_t i = 0; i < 12; i++)
		ops[i] = (struct mempool_op){
			.cookie = i,
			.lease = lease,
			.offset_bytes = i * CHUNK,
			.len_bytes = CHUNK,
			.bytes = (uint8_t *)mempool_buf_bytes(buf) + i * CHUNK,
			.buf = buf,
			.kind = MEMPOOL_OP_READ,
		};
	CHECK_INT(mempool_submit(queue, ops, 12, &n), 0);
	CHECK_INT(n, 10);
	CHECK_INT(mempool_submit(queue, ops + 10, 2, &n), MEMPOOL_E_BUSY);
	CHECK_INT(n, 0);
	CHECK_INT(mempool_buf_free(buf), MEMPOOL_E_BUSY);
	CHECK_INT(mempool_release(lease), MEMPOOL_E_BUSY);
	CHECK_INT(mempool_flush(queue, 0), 0);
	/* They are done, but take room until they are reported. */
	CHECK_INT(mempool_submit(queue, ops + 10, 2, &n), MEMPOOL_E_BUSY);
	CHECK_INT(mempool_poll(queue, completions, 1, &n), 0);
	CHECK_INT(n, 1);
	CHECK_INT(completions[0].cookie, 0);
	CHECK_INT(mempool_submit(queue, ops + 10, 2, &n), 0);
	CHECK_INT(n, 1);
	CHECK_INT(mempool_flush(queue, 0), 0);
	CHECK_INT(mempool_poll(queue, completions, 12, &n), 0);
	CHECK_INT(n, 10);
	for (size_t i = 0; i < 10; i++) {
		CHECK_INT(completions[i].cookie, i + 1);
		CHECK_INT(completions[i].code, 0);
	}
	CHECK_INT(mempool_buf_free(buf), 0);
	CHECK_INT(mempool_release(lease), 0);
	mempool_queue_destroy(queue);
}

/* Writes that go with the work request need no registered memory; one byte more does. */
TEST(queue__inline_writes)
{
	HARNESS(h, .pool_size = NULL);
	SESSION(alpha, "alpha");
	struct mempool_queue_info info = {.size = sizeof(info)};
	uint8_t sent[LANE_INLINE_BYTES + 1];
	uint8_t got[LANE_INLINE_BYTES];
	struct mempool_op op = {.kind = MEMPOOL_OP_WRITE, .bytes = sent};
	mempool_queue *queue;
	mempool_lease *lease;

	CHECK_INT(harness_acquire(alpha, PAGE, TTL_MS, &lease), 0);
	CHECK_INT(make_queue(alpha, 8, 0, &queue), 0);
	CHECK_INT(mempool_queue_attach(queue, lease), 0);
	CHECK_INT(mempool_queue_info(queue, &info), 0);
	if (info.inline_max_bytes == 0)
		SKIP("the device has no inline sends");
	CHECK_INT(info.inline_max_bytes, LANE_INLINE_BYTES);
	op.lease = lease;
	for (op.len_bytes = 1; op.len_bytes <= info.inline_max_bytes; op.len_bytes += 127) {
		harness_fill(sent, op.len_bytes, (uint32_t)op.len_bytes);
		CHECK_INT(run_one(queue, &op), 0);
		CHECK_INT(mempool_read(lease, 0, got, op.len_bytes), 0);
		CHECK_MEM(got, sent, op.len_bytes);
	}
	op.len_bytes = info.inline_max_bytes + 1;
	CHECK_INT(run_one(queue, &op), MEMPOOL_E_INVALID);
	op.kind = MEMPOOL_OP_READ;
	op.len_bytes = 1;
	CHECK_INT(run_one(queue, &op), MEMPOOL_E_INVALID);
	CHECK_INT(mempool_write(lease, 100, sent, 5), 0);
	CHECK_INT(harness_number(&h, "counters.lanes_lost"), 0);
}

TEST(queue__cancel)
{
	HARNESS(h, .pool_size = "64MiB");
	SESSION(alpha, "alpha");
	struct mempool_op ops[20];
	struct mempool_completion completions[20];
	mempool_queue *queue;
	mempool_lease *lease;
	mempool_buf *buf;
	size_t cancelled = 0;
	size_t seen = 0;
	size_t n = 0;

	CHECK_INT(harness_acquire(alpha, 20 * MIB, TTL_MS, &lease), 0);
	CHECK_INT(mempool_buf_alloc(alpha, 20 * MIB, 0, &buf), 0);
	CHECK_INT(make_queue(alpha, 1, 20, &queue), 0);
	CHECK_INT(mempool_queue_attach(queue, lease), 0);
	for (size_t i = 0; i < 20; i++)
		ops[i] = (struct mempool_op){
			.cookie = i % 2,
			.lease = lease,
			.offset_bytes = i * MIB,
			.len_bytes = MIB,
			.bytes = (uint8_t *)mempool_buf_bytes(buf) + i * MIB,
			.buf = buf,
			.kind = MEMPOOL_OP_WRITE,
		};
	CHECK_INT(submit_all(queue, ops, 20), 0);
	CHECK_INT(mempool_cancel(queue, 7, &cancelled), 0);
	CHECK_INT(cancelled, 0);
	/* The first one of them is posted. */
	CHECK_INT(mempool_cancel(queue, 0, &cancelled), 0);
	CHECK_INT(cancelled, 9);
	CHECK_INT(mempool_flush(queue, 0), 0);
	CHECK_INT(mempool_poll(queue, completions, 20, &n), 0);
	CHECK_INT(n, 20);
	for (size_t i = 0; i < 20; i++) {
		if (completions[i].code == MEMPOOL_E_CANCELLED) {
			CHECK_INT(completions[i].cookie, 0);
			seen++;
		} else {
			CHECK_INT(completions[i].code, 0);
		}
	}
	CHECK_INT(seen, 9);
	mempool_queue_destroy(queue);
}

/* Ends. */

#define BATCH 64

static void fill_batch(struct mempool_op *ops, mempool_lease *const *leases, size_t lease_count,
		       mempool_buf *buf, uint32_t kind)
{
	for (size_t i = 0; i < BATCH; i++)
		ops[i] = (struct mempool_op){
			.cookie = i,
			.lease = leases[i % lease_count],
			.offset_bytes = i * CHUNK,
			.len_bytes = CHUNK,
			.bytes = (uint8_t *)mempool_buf_bytes(buf) + i * CHUNK,
			.buf = buf,
			.kind = kind,
		};
}

struct outcomes {
	uint32_t done;
	uint32_t expired;
	uint32_t lost;
	uint32_t others;
};

static void count_outcome(struct outcomes *outcomes, int code)
{
	switch (code) {
	case 0:
		outcomes->done++;
		break;
	case MEMPOOL_E_EXPIRED:
		outcomes->expired++;
		break;
	case MEMPOOL_E_LANE:
		outcomes->lost++;
		break;
	default:
		printf("# code %d: %s\n", code, mempool_error_text(code));
		outcomes->others++;
	}
}

/*
 * Of two leases one expires while batches of both are under way. Its operations succeed or have
 * expired; the other's succeed, or were cut off with the lane that they shared.
 */
TEST(queue__expiry_in_a_batch_of_64)
{
	HARNESS(h, .pool_size = "64MiB", .extra = NO_WAIT);
	SESSION(alpha, "alpha");
	struct mempool_op ops[BATCH];
	struct outcomes one = {0}, other = {0};
	mempool_lease *leases[2];
	mempool_queue *queue;
	mempool_buf *buf;
	int codes[BATCH];
	uint64_t lost;
	int mixed = 0;

	CHECK_INT(harness_acquire(alpha, BATCH * CHUNK, TTL_MS, &leases[1]), 0);
	CHECK_INT(mempool_buf_alloc(alpha, BATCH * CHUNK, 0, &buf), 0);
	for (int round = 0; round < 8; round++) {
		/* All at once to the device, or most of it waiting for its turn. */
		CHECK_INT(make_queue(alpha, round % 2 == 0 ? BATCH : 4, BATCH, &queue), 0);
		CHECK_INT(harness_acquire(alpha, BATCH * CHUNK, 400, &leases[0]), 0);
		CHECK_INT(mempool_queue_attach(queue, leases[0]), 0);
		CHECK_INT(mempool_queue_attach(queue, leases[1]), 0);
		one = (struct outcomes){0};
		while (one.expired == 0 && one.others == 0 && one.lost == 0) {
			fill_batch(ops, leases, 2, buf,
				   round / 2 % 2 == 0 ? MEMPOOL_OP_READ : MEMPOOL_OP_WRITE);
			for (size_t i = 0; i < BATCH; i++)
				codes[i] = NOT_YET;
			CHECK_INT(submit_all(queue, ops, BATCH), 0);
			CHECK_INT(drain(queue, codes, BATCH, BATCH), 0);
			one = (struct outcomes){0};
			other = (struct outcomes){0};
			for (size_t i = 0; i < BATCH; i++)
				count_outcome(i % 2 == 0 ? &one : &other, codes[i]);
		}
		printf("# round %d: of the one %u done, %u expired; of the other %u done, %u "
		       "cut off\n",
		       round, one.done, one.expired, other.done, other.lost);
		CHECK_INT(one.done + one.expired, BATCH / 2);
		CHECK_INT(other.done + other.lost, BATCH / 2);
		mixed += one.done > 0;
		/* Now that it has expired nothing of it is posted any more. */
		CHECK_INT(mempool_queue_restore(queue), 0);
		lost = (uint64_t)harness_number(&h, "counters.lanes_lost");
		for (size_t i = 0; i < BATCH; i++)
			codes[i] = NOT_YET;
		CHECK_INT(submit_all(queue, ops, BATCH), 0);
		CHECK_INT(drain(queue, codes, BATCH, BATCH), 0);
		for (size_t i = 0; i < BATCH; i++)
			CHECK_INT(codes[i], i % 2 == 0 ? MEMPOOL_E_EXPIRED : 0);
		CHECK_INT(harness_number(&h, "counters.lanes_lost"), lost);
		(void)mempool_release(leases[0]);
		mempool_queue_destroy(queue);
	}
	printf("# expired in the middle of a batch %d times\n", mixed);
	CHECK(mixed > 0);
	harness_close(&alpha);
	CHECK_INT(harness_stop(&h), 0);
}

/* An operator takes the lease back: operations under way end, then none begins. */
TEST(queue__revoked)
{
	HARNESS(h, .pool_size = "64MiB", .extra = NO_WAIT);
	SESSION(alpha, "alpha");
	struct mempool_op ops[BATCH];
	struct outcomes outcomes = {0};
	uint32_t revoked = 0;
	mempool_lease *lease;
	mempool_queue *queue;
	mempool_buf *buf;
	int codes[BATCH];

	CHECK_INT(harness_acquire(alpha, BATCH * CHUNK, TTL_MS, &lease), 0);
	CHECK_INT(mempool_buf_alloc(alpha, BATCH * CHUNK, 0, &buf), 0);
	CHECK_INT(make_queue(alpha, 8, BATCH, &queue), 0);
	CHECK_INT(mempool_queue_attach(queue, lease), 0);
	fill_batch(ops, &lease, 1, buf, MEMPOOL_OP_READ);
	for (size_t i = 0; i < BATCH; i++)
		codes[i] = NOT_YET;
	CHECK_INT(submit_all(queue, ops, BATCH), 0);
	CHECK_INT(harness_revoke(&h, harness_lease_id(lease)), 0);
	CHECK_INT(drain(queue, codes, BATCH, BATCH), 0);
	for (size_t i = 0; i < BATCH; i++) {
		if (codes[i] == MEMPOOL_E_REVOKED)
			revoked++;
		else
			count_outcome(&outcomes, codes[i]);
	}
	printf("# %u done, %u revoked\n", outcomes.done, revoked);
	CHECK_INT(outcomes.done + revoked, BATCH);
	CHECK(harness_wait_lease_gone(&h, harness_lease_id(lease), 5000));
	CHECK_INT(run_one(queue, &ops[0]), MEMPOOL_E_REVOKED);
}

/* A lane that is lost by itself: everything ends, once, and can go on. */
TEST(queue__lane_lost_at_random)
{
	HARNESS(h, .pool_size = "64MiB", .extra = NO_WAIT);
	SESSION(alpha, "alpha");
	struct random random = random_start();
	struct mempool_op ops[BATCH];
	struct outcomes outcomes = {0};
	mempool_lease *lease;
	mempool_queue *queue;
	mempool_buf *buf;
	int codes[BATCH];

	CHECK_INT(harness_acquire(alpha, BATCH * CHUNK, TTL_MS, &lease), 0);
	CHECK_INT(mempool_buf_alloc(alpha, BATCH * CHUNK, 0, &buf), 0);
	CHECK_INT(make_queue(alpha, 16, BATCH, &queue), 0);
	CHECK_INT(mempool_queue_attach(queue, lease), 0);
	for (uint32_t round = 0; round < 40; round++) {
		uint32_t kind = round % 2 == 0 ? MEMPOOL_OP_READ : MEMPOOL_OP_WRITE;

		fill_batch(ops, &lease, 1, buf, kind);
		for (size_t i = 0; i < BATCH; i++)
			codes[i] = NOT_YET;
		CHECK_INT(submit_all(queue, ops, BATCH), 0);
		(void)usleep((useconds_t)random_below(&random, 20000));
		(void)pthread_mutex_lock(&alpha->lock);
		lane_lose(&queue->lane, MEMPOOL_E_LANE, "lost by the test");
		(void)pthread_mutex_unlock(&alpha->lock);
		CHECK_INT(drain(queue, codes, BATCH, BATCH), 0);
		for (size_t i = 0; i < BATCH; i++)
			count_outcome(&outcomes, codes[i]);
		CHECK_INT(run_one(queue, &ops[0]), MEMPOOL_E_LANE);
		CHECK_INT(mempool_queue_restore(queue), 0);
		CHECK_INT(run_one(queue, &ops[0]), 0);
	}
	printf("# %u done, %u cut off\n", outcomes.done, outcomes.lost);
	CHECK_INT(outcomes.done + outcomes.lost, 40 * BATCH);
	CHECK(outcomes.lost > 0);
	harness_close(&alpha);
	CHECK_INT(harness_stop(&h), 0);
}

/* A lease that is made longer and shorter has new keys on the queue's lane, too. */
TEST(queue__lease_is_modified)
{
	HARNESS(h, .pool_size = "64MiB", .extra = NO_WAIT);
	SESSION(alpha, "alpha");
	struct mempool_op op = {.kind = MEMPOOL_OP_WRITE, .len_bytes = PAGE};
	mempool_lease *lease;
	mempool_queue *queue;
	mempool_buf *buf;

	CHECK_INT(harness_acquire(alpha, PAGE, TTL_MS, &lease), 0);
	CHECK_INT(mempool_buf_alloc(alpha, PAGE, 0, &buf), 0);
	CHECK_INT(make_queue(alpha, 4, 0, &queue), 0);
	CHECK_INT(mempool_queue_attach(queue, lease), 0);
	op.lease = lease;
	op.buf = buf;
	op.bytes = mempool_buf_bytes(buf);
	CHECK_INT(run_one(queue, &op), 0);
	CHECK_INT(mempool_modify(lease, 3 * PAGE, MEMPOOL_READ | MEMPOOL_WRITE), 0);
	op.offset_bytes = 2 * PAGE;
	CHECK_INT(run_one(queue, &op), 0);
	CHECK_INT(mempool_modify(lease, 2 * PAGE, MEMPOOL_READ | MEMPOOL_WRITE), 0);
	CHECK_INT(run_one(queue, &op), MEMPOOL_E_RANGE);
	op.offset_bytes = PAGE;
	CHECK_INT(run_one(queue, &op), 0);
	CHECK_INT(mempool_modify(lease, 2 * PAGE, MEMPOOL_READ), 0);
	CHECK_INT(run_one(queue, &op), MEMPOOL_E_ACCESS);
	op.kind = MEMPOOL_OP_READ;
	CHECK_INT(run_one(queue, &op), 0);
	CHECK_INT(mempool_read(lease, 0, op.bytes, PAGE), 0);
	CHECK_INT(harness_number(&h, "counters.lanes_lost"), 0);
	/* Its end by release closes both lanes' keys; the handle is gone. */
	CHECK_INT(mempool_release(lease), 0);
	harness_close(&alpha);
	accounts_check(&h);
	CHECK(!test_has_failed());
	CHECK_INT(harness_stop(&h), 0);
}

TEST(queue__session_lost)
{
	HARNESS(h, .pool_size = "64MiB");
	SESSION(alpha, "alpha");
	struct mempool_op ops[BATCH];
	uint32_t done = 0, lost = 0;
	mempool_lease *lease;
	mempool_queue *queue;
	mempool_buf *buf;
	int codes[BATCH];

	CHECK_INT(harness_acquire(alpha, BATCH * CHUNK, TTL_MS, &lease), 0);
	CHECK_INT(mempool_buf_alloc(alpha, BATCH * CHUNK, 0, &buf), 0);
	CHECK_INT(make_queue(alpha, 8, BATCH, &queue), 0);
	CHECK_INT(mempool_queue_attach(queue, lease), 0);
	fill_batch(ops, &lease, 1, buf, MEMPOOL_OP_WRITE);
	for (size_t i = 0; i < BATCH; i++)
		codes[i] = NOT_YET;
	CHECK_INT(submit_all(queue, ops, BATCH), 0);
	harness_kill(&h);
	CHECK_INT(drain(queue, codes, BATCH, BATCH), 0);
	for (size_t i = 0; i < BATCH; i++) {
		done += codes[i] == 0;
		lost += codes[i] == MEMPOOL_E_LANE || codes[i] == MEMPOOL_E_SESSION_LOST;
	}
	printf("# %u done, %u lost with the session\n", done, lost);
	CHECK_INT(done + lost, BATCH);
	for (int i = 0; i < 100 && mempool_renew(lease, TTL_MS) != MEMPOOL_E_SESSION_LOST; i++)
		harness_sleep_ms(50);
	CHECK_INT(run_one(queue, &ops[0]), MEMPOOL_E_SESSION_LOST);
	CHECK_INT(mempool_queue_restore(queue), MEMPOOL_E_SESSION_LOST);
	mempool_queue_destroy(queue);
	CHECK_INT(mempool_buf_free(buf), 0);
}

/* A device that takes only a part of a chain, or whose completions cannot be had any more. */

static int post_only = -1;	 /* so many of the next chain; -1: all */
static struct ibv_cq *poll_from; /* fails, once */

int __real_verbs_post_send(struct ibv_qp *qp, struct ibv_send_wr *wr, struct ibv_send_wr **ret_bad);
int __wrap_verbs_post_send(struct ibv_qp *qp, struct ibv_send_wr *wr, struct ibv_send_wr **ret_bad);
int __real_verbs_poll_cq(struct ibv_cq *cq, int cap, struct ibv_wc *ret_wc);
int __wrap_verbs_poll_cq(struct ibv_cq *cq, int cap, struct ibv_wc *ret_wc);

int __wrap_verbs_post_send(struct ibv_qp *qp, struct ibv_send_wr *wr, struct ibv_send_wr **ret_bad)
{
	struct ibv_send_wr *last = wr;
	int count = post_only;
	int r = 0;

	/* Others post single ones. */
	if (count < 0 || wr->next == NULL)
		return __real_verbs_post_send(qp, wr, ret_bad);
	post_only = -1;
	for (int i = 1; i < count && last->next != NULL; i++)
		last = last->next;
	*ret_bad = count == 0 ? wr : last->next;
	last->next = NULL;
	if (count > 0)
		r = __real_verbs_post_send(qp, wr, &last);
	return r < 0 ? r : -ENOMEM;
}

int __wrap_verbs_poll_cq(struct ibv_cq *cq, int cap, struct ibv_wc *ret_wc)
{
	if (cq != poll_from)
		return __real_verbs_poll_cq(cq, cap, ret_wc);
	poll_from = NULL;
	return -EIO;
}

static void post_part(mempool_queue *queue, struct mempool_op *ops, int count)
{
	uint32_t done = 0;
	int codes[BATCH];

	CHECK_INT(mempool_queue_restore(queue), 0);
	for (size_t i = 0; i < BATCH; i++)
		codes[i] = NOT_YET;
	post_only = count;
	CHECK_INT(submit_all(queue, ops, BATCH), 0);
	CHECK_INT(post_only, -1);
	CHECK_INT(drain(queue, codes, BATCH, BATCH), 0);
	for (size_t i = 0; i < BATCH; i++) {
		bool atomic = ops[i].kind == MEMPOOL_OP_FETCH_ADD;

		/* Of what was not posted it is known that it did not take place. */
		if (codes[i] == 0 || (atomic && codes[i] == MEMPOOL_E_UNKNOWN))
			CHECK((int)i < count);
		else
			CHECK_INT(codes[i], MEMPOOL_E_LANE);
		done += codes[i] == 0;
	}
	printf("# %d of 64 posted, %u done\n", count, done);
}

TEST(queue__posting_fails_in_the_middle)
{
	HARNESS(h, .pool_size = "64MiB", .extra = NO_WAIT);
	SESSION(alpha, "alpha");
	struct mempool_op ops[BATCH];
	mempool_lease *lease;
	mempool_queue *queue;
	mempool_buf *buf;
	bool atomics;
	int r;

	r = acquire(alpha, BATCH * CHUNK, ALL, TTL_MS, &lease);
	atomics = r == 0;
	if (r == MEMPOOL_E_RIGHTS_DEVICE)
		r = harness_acquire(alpha, BATCH * CHUNK, TTL_MS, &lease);
	CHECK_INT(r, 0);
	CHECK_INT(mempool_buf_alloc(alpha, BATCH * CHUNK, 0, &buf), 0);
	CHECK_INT(make_queue(alpha, BATCH, 0, &queue), 0);
	CHECK_INT(mempool_queue_attach(queue, lease), 0);
	fill_batch(ops, &lease, 1, buf, MEMPOOL_OP_WRITE);
	for (size_t i = 0; atomics && i < BATCH; i += 2) {
		ops[i].kind = MEMPOOL_OP_FETCH_ADD;
		ops[i].len_bytes = 8;
	}
	post_part(queue, ops, 0);
	post_part(queue, ops, 1);
	post_part(queue, ops, 33);
	post_part(queue, ops, 63);
	CHECK(!test_has_failed());
	CHECK_INT(mempool_queue_restore(queue), 0);
	CHECK_INT(run_one(queue, &ops[1]), 0);
	mempool_queue_destroy(queue);
	CHECK_INT(mempool_buf_free(buf), 0);
	CHECK_INT(mempool_release(lease), 0);
}

TEST(queue__completions_cannot_be_had)
{
	HARNESS(h, .pool_size = "64MiB", .extra = NO_WAIT);
	SESSION(alpha, "alpha");
	struct mempool_op ops[BATCH];
	mempool_lease *lease;
	uint32_t reported;
	mempool_queue *queue;
	mempool_buf *buf;
	int codes[BATCH];

	CHECK_INT(harness_acquire(alpha, BATCH * CHUNK, TTL_MS, &lease), 0);
	CHECK_INT(mempool_buf_alloc(alpha, BATCH * CHUNK, 0, &buf), 0);
	CHECK_INT(make_queue(alpha, 16, BATCH, &queue), 0);
	CHECK_INT(mempool_queue_attach(queue, lease), 0);
	fill_batch(ops, &lease, 1, buf, MEMPOOL_OP_READ);
	for (size_t i = 0; i < BATCH; i++)
		codes[i] = NOT_YET;
	CHECK_INT(submit_all(queue, ops, BATCH), 0);
	poll_from = queue->lane.cq.cq;
	while (poll_from != NULL) {
		struct mempool_completion completion = {0};
		size_t n = 0;

		CHECK_INT(mempool_poll(queue, &completion, 1, &n), 0);
		if (n > 0)
			codes[completion.cookie] = completion.code;
	}
	/* There is no QP any more: everything is over. */
	CHECK(lane_qp(&queue->lane) == NULL);
	CHECK_INT(operations_outstanding(&queue->operations), 0);
	reported = BATCH - queue->operations.done.count;
	CHECK_INT(drain(queue, codes, BATCH, BATCH - reported), 0);
	for (size_t i = 0; i < BATCH; i++)
		CHECK(codes[i] == 0 || codes[i] == MEMPOOL_E_LANE);
	CHECK_INT(mempool_queue_restore(queue), 0);
	mempool_queue_destroy(queue);
	CHECK_INT(mempool_buf_free(buf), 0);
	CHECK_INT(mempool_release(lease), 0);
}

/* Threads. */

#define THREADS	     6
#define THREAD_TURNS 300
#define THREAD_BYTES 8192

struct worker {
	mempool *pool;
	mempool_lease *lease;
	mempool_queue *queue; /* NULL: works without */
	mempool_buf *buf;
	uint32_t number;
	uint32_t failures;
};

static int worker_operate(const struct worker *worker, uint32_t kind, uint8_t *bytes)
{
	struct mempool_op op = {
		.cookie = worker->number,
		.lease = worker->lease,
		.offset_bytes = worker->number * THREAD_BYTES,
		.len_bytes = THREAD_BYTES,
		.bytes = bytes,
		.buf = worker->buf,
		.kind = kind,
	};
	struct mempool_completion completion = {.code = NOT_YET};
	size_t n = 0;

	if (worker->queue == NULL && kind == MEMPOOL_OP_READ)
		return mempool_read(worker->lease, op.offset_bytes, bytes, THREAD_BYTES);
	if (worker->queue == NULL)
		return mempool_write(worker->lease, op.offset_bytes, bytes, THREAD_BYTES);
	if (mempool_submit(worker->queue, &op, 1, &n) < 0)
		return NOT_YET;
	for (n = 0; n == 0;) {
		if (mempool_poll(worker->queue, &completion, 1, &n) < 0)
			return NOT_YET;
	}
	return completion.code;
}

static void *work(void *arg)
{
	struct worker *worker = arg;
	uint8_t *bytes = (uint8_t *)mempool_buf_bytes(worker->buf) + worker->number * THREAD_BYTES;
	static uint8_t expected[THREADS][THREAD_BYTES];

	for (uint32_t turn = 0; turn < THREAD_TURNS; turn++) {
		harness_fill(expected[worker->number], THREAD_BYTES,
			     turn * THREADS + worker->number);
		memcpy(bytes, expected[worker->number], THREAD_BYTES);
		worker->failures += worker_operate(worker, MEMPOOL_OP_WRITE, bytes) != 0;
		memset(bytes, 0, THREAD_BYTES);
		worker->failures += worker_operate(worker, MEMPOOL_OP_READ, bytes) != 0;
		worker->failures += memcmp(bytes, expected[worker->number], THREAD_BYTES) != 0;
	}
	return NULL;
}

/* Each with its own queue, but for two who have none and take turns on the session's lane. */
TEST(queue__threads)
{
	HARNESS(h, .pool_size = NULL);
	SESSION(alpha, "alpha");
	struct worker workers[THREADS];
	pthread_t threads[THREADS];
	mempool_lease *lease;
	mempool_buf *buf;

	CHECK_INT(harness_acquire(alpha, THREADS * THREAD_BYTES, TTL_MS, &lease), 0);
	CHECK_INT(mempool_buf_alloc(alpha, THREADS * THREAD_BYTES, 0, &buf), 0);
	for (uint32_t i = 0; i < THREADS; i++) {
		workers[i] =
			(struct worker){.pool = alpha, .lease = lease, .buf = buf, .number = i};
		if (i < 2)
			continue;
		CHECK_INT(make_queue(alpha, 4, 0, &workers[i].queue), 0);
		CHECK_INT(mempool_queue_attach(workers[i].queue, lease), 0);
	}
	for (uint32_t i = 0; i < THREADS; i++)
		CHECK_INT(pthread_create(&threads[i], NULL, work, &workers[i]), 0);
	for (uint32_t i = 0; i < THREADS; i++)
		CHECK_INT(pthread_join(threads[i], NULL), 0);
	for (uint32_t i = 0; i < THREADS; i++)
		CHECK_INT(workers[i].failures, 0);
	CHECK_INT(harness_number(&h, "counters.lanes_lost"), 0);
	harness_close(&alpha);
	CHECK_INT(harness_stop(&h), 0);
}

/* Deadlines. */

#define CUT_MS	 1500
#define SLACK_MS 1500

static void deadlines(void)
{
	HARNESS(h, .pool_size = "64MiB", .extra = NO_WAIT);
	SESSION(alpha, "alpha");
	struct mempool_op ops[4];
	int codes[4] = {NOT_YET, NOT_YET, NOT_YET, NOT_YET};
	mempool_lease *lease;
	mempool_queue *queue;
	mempool_buf *buf;
	uint64_t begun_ns;
	uint64_t took_ms;
	uint8_t *bytes;
	bool atomics;
	int r;

	r = acquire(alpha, MIB, ALL, TTL_MS, &lease);
	atomics = r == 0;
	if (r == MEMPOOL_E_RIGHTS_DEVICE)
		r = harness_acquire(alpha, MIB, TTL_MS, &lease);
	CHECK_INT(r, 0);
	CHECK_INT(mempool_buf_alloc(alpha, MIB, 0, &buf), 0);
	CHECK_INT(make_queue(alpha, 3, 8, &queue), 0);
	CHECK_INT(mempool_queue_attach(queue, lease), 0);
	bytes = mempool_buf_bytes(buf);
	for (size_t i = 0; i < 4; i++)
		ops[i] = (struct mempool_op){
			.cookie = i,
			.lease = lease,
			.offset_bytes = i * CHUNK,
			.len_bytes = CHUNK,
			.bytes = bytes + i * CHUNK,
			.buf = buf,
			.kind = MEMPOOL_OP_READ,
			.timeout_ms = 20000,
		};
	ops[1].timeout_ms = CUT_MS;
	if (atomics) {
		ops[2].kind = MEMPOOL_OP_FETCH_ADD;
		ops[2].len_bytes = 8;
		ops[2].operand = 1;
	}
	/* The fourth waits behind three, and not for long. */
	ops[3].timeout_ms = 300;
	CHECK(wire_drop(WIRE_DAEMON, true));
	begun_ns = clock_now_ns();
	CHECK_INT(submit_all(queue, ops, 4), 0);
	r = drain(queue, codes, 4, 4);
	took_ms = (clock_now_ns() - begun_ns) / CLOCK_NS_PER_MS;
	memset(bytes, 0x5a, MIB);
	CHECK(wire_drop(WIRE_DAEMON, false));
	printf("# after %" PRIu64 " ms: %s; %s; %s; %s\n", took_ms, mempool_error_text(codes[0]),
	       mempool_error_text(codes[1]), mempool_error_text(codes[2]),
	       mempool_error_text(codes[3]));
	CHECK_INT(r, 0);
	CHECK(took_ms >= CUT_MS && took_ms < CUT_MS + SLACK_MS);
	CHECK_INT(codes[0], MEMPOOL_E_LANE);
	CHECK_INT(codes[1], MEMPOOL_E_TIMEOUT);
	CHECK_INT(codes[2], atomics ? MEMPOOL_E_UNKNOWN : MEMPOOL_E_LANE);
	CHECK_INT(codes[3], MEMPOOL_E_TIMEOUT);
	for (int i = 0; i < 10; i++) {
		harness_sleep_ms(100);
		for (size_t at = 0; at < MIB; at++)
			CHECK_INT(bytes[at], 0x5a);
	}
	r = mempool_queue_restore(queue);
	if (r == MEMPOOL_E_LANE)
		r = mempool_queue_restore(queue);
	CHECK_INT(r, 0);
	CHECK_INT(run_one(queue, &ops[0]), 0);
	harness_close(&alpha);
	CHECK_INT(harness_stop(&h), 0);
}

TEST(queue__deadlines)
{
	wire_test("itest_queue", "queue__deadlines", 120000, deadlines);
}

/* Event loops. */

#define LOOP_OPS   1000
#define LOOP_DEPTH 32
#define LOOP_BYTES 2048

struct loop {
	mempool_queue *queue;
	mempool_lease *lease;
	mempool_buf *buf;
	uint32_t submitted;
	uint32_t done;
	uint32_t wakeups;
	uint32_t failures;
	bool reported[LOOP_OPS];
	struct event_base *base;
};

static void loop_submit(struct loop *loop)
{
	while (loop->submitted < LOOP_OPS && loop->submitted - loop->done < LOOP_DEPTH) {
		uint32_t slot = loop->submitted % LOOP_DEPTH;
		struct mempool_op op = {
			.cookie = loop->submitted,
			.lease = loop->lease,
			.offset_bytes = slot * LOOP_BYTES,
			.len_bytes = LOOP_BYTES,
			.bytes = (uint8_t *)mempool_buf_bytes(loop->buf) + slot * LOOP_BYTES,
			.buf = loop->buf,
			.kind = loop->submitted % 2 == 0 ? MEMPOOL_OP_WRITE : MEMPOOL_OP_READ,
		};
		size_t n = 0;

		if (mempool_submit(loop->queue, &op, 1, &n) < 0)
			break;
		loop->submitted++;
	}
}

/* As the header says: drain, submit more, arm. */
static void loop_turn(struct loop *loop)
{
	struct mempool_completion completions[16];
	size_t n = 0;

	do {
		if (mempool_poll(loop->queue, completions, 16, &n) < 0)
			loop->failures++;
		for (size_t i = 0; i < n; i++) {
			loop->failures +=
				completions[i].code != 0 || loop->reported[completions[i].cookie];
			loop->reported[completions[i].cookie] = true;
			loop->done++;
		}
		loop_submit(loop);
	} while (n > 0);
	loop->failures += mempool_queue_arm(loop->queue) < 0;
}

static uint64_t cpu_us(void)
{
	struct rusage usage;

	(void)getrusage(RUSAGE_SELF, &usage);
	return ((uint64_t)usage.ru_utime.tv_sec + (uint64_t)usage.ru_stime.tv_sec) * 1000000 +
	       (uint64_t)usage.ru_utime.tv_usec + (uint64_t)usage.ru_stime.tv_usec;
}

static void loop_make(mempool *alpha, struct loop *loop)
{
	CHECK_INT(harness_acquire(alpha, LOOP_DEPTH * LOOP_BYTES, TTL_MS, &loop->lease), 0);
	CHECK_INT(mempool_buf_alloc(alpha, LOOP_DEPTH * LOOP_BYTES, 0, &loop->buf), 0);
	CHECK_INT(make_queue(alpha, LOOP_DEPTH, 0, &loop->queue), 0);
	CHECK_INT(mempool_queue_attach(loop->queue, loop->lease), 0);
}

static void loop_check(const struct loop *loop, const char *what, uint64_t wall_ns, uint64_t us)
{
	printf("# %s: %u operations in %.0f ms, %.0f ms of CPU, %u wake-ups\n", what, loop->done,
	       (double)wall_ns / 1e6, (double)us / 1e3, loop->wakeups);
	CHECK_INT(loop->done, LOOP_OPS);
	CHECK_INT(loop->failures, 0);
	/* Each wake-up has something to do, or nearly. */
	CHECK(loop->wakeups <= LOOP_OPS + 50);
}

/* Nothing to do: no wake-up, and no CPU. */
static void loop_idle(mempool_queue *queue)
{
	struct epoll_event event = {.events = EPOLLIN};
	uint64_t begun_us;
	int fd = epoll_create1(EPOLL_CLOEXEC);

	CHECK(fd >= 0);
	CHECK_INT(epoll_ctl(fd, EPOLL_CTL_ADD, mempool_queue_fd(queue), &event), 0);
	CHECK_INT(mempool_queue_arm(queue), 0);
	begun_us = cpu_us();
	CHECK_INT(epoll_wait(fd, &event, 1, 1000), 0);
	printf("# idle for 1 s: %" PRIu64 " us of CPU\n", cpu_us() - begun_us);
	CHECK(cpu_us() - begun_us < 200000);
	CHECK_INT(close(fd), 0);
}

static void run_epoll(bool edges)
{
	HARNESS(h, .pool_size = NULL);
	SESSION(alpha, "alpha");
	struct epoll_event event = {.events = EPOLLIN | (edges ? (uint32_t)EPOLLET : 0u)};
	static struct loop loop;
	uint64_t begun_ns;
	uint64_t begun_us;
	int fd;

	loop = (struct loop){0};
	loop_make(alpha, &loop);
	CHECK(!test_has_failed());
	fd = epoll_create1(EPOLL_CLOEXEC);
	CHECK(fd >= 0);
	CHECK_INT(epoll_ctl(fd, EPOLL_CTL_ADD, mempool_queue_fd(loop.queue), &event), 0);
	begun_ns = clock_now_ns();
	begun_us = cpu_us();
	loop_turn(&loop);
	while (loop.done < LOOP_OPS && loop.failures == 0) {
		CHECK_INT(epoll_wait(fd, &event, 1, 10000), 1);
		loop.wakeups++;
		loop_turn(&loop);
	}
	loop_check(&loop, edges ? "epoll, edges" : "epoll", clock_now_ns() - begun_ns,
		   cpu_us() - begun_us);
	CHECK_INT(close(fd), 0);
	loop_idle(loop.queue);
}

TEST(queue__epoll)
{
	run_epoll(false);
}

TEST(queue__epoll_of_edges)
{
	run_epoll(true);
}

static void on_readable(evutil_socket_t fd, short what, void *arg)
{
	struct loop *loop = arg;

	(void)fd;
	(void)what;
	loop->wakeups++;
	loop_turn(loop);
	if (loop->done == LOOP_OPS || loop->failures > 0)
		(void)event_base_loopbreak(loop->base);
}

TEST(queue__libevent)
{
	HARNESS(h, .pool_size = NULL);
	SESSION(alpha, "alpha");
	static struct loop loop;
	struct event *event;
	uint64_t begun_ns;
	uint64_t begun_us;

	loop_make(alpha, &loop);
	CHECK(!test_has_failed());
	loop.base = event_base_new();
	CHECK(loop.base != NULL);
	event = event_new(loop.base, mempool_queue_fd(loop.queue), EV_READ | EV_PERSIST,
			  on_readable, &loop);
	CHECK(event != NULL);
	CHECK_INT(event_add(event, NULL), 0);
	begun_ns = clock_now_ns();
	begun_us = cpu_us();
	loop_turn(&loop);
	CHECK_INT(event_base_dispatch(loop.base), 0);
	loop_check(&loop, "libevent", clock_now_ns() - begun_ns, cpu_us() - begun_us);
	event_free(event);
	event_base_free(loop.base);
	loop_idle(loop.queue);
}
