/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Queues: what is submitted is done, and reported once; what is refused never reaches the device.
 */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/lane.h"
#include "tests/integration/harness.h"
#include "tests/integration/queues.h"
#include "tests/unit/random.h"

#define PAGE   4096
#define TTL_MS 600000
#define ALL    (MEMPOOL_READ | MEMPOOL_WRITE | MEMPOOL_ATOMIC)
#define CHUNK  (64 * 1024)

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
	CHECK_INT(queues_make_sized(alpha, depth, REGIONS, &queue), 0);
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
			codes[i] = QUEUES_NOT_YET;
			if (writes) {
				harness_fill(bytes + at, len_bytes, round * REGIONS + (uint32_t)i);
				memcpy(shadow + at, bytes + at, len_bytes);
			} else {
				memset(bytes + at, 0, len_bytes);
			}
		}
		CHECK_INT(queues_submit(queue, ops, REGIONS), 0);
		CHECK_INT(queues_drain(queue, codes, REGIONS, REGIONS), 0);
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

	r = queues_acquire(alpha, PAGE, ALL, TTL_MS, &lease);
	if (r == MEMPOOL_E_RIGHTS_DEVICE)
		SKIP("the device does not keep atomics inside their window");
	CHECK_INT(r, 0);
	CHECK_INT(mempool_buf_alloc(alpha, PAGE, 0, &buf), 0);
	words = mempool_buf_bytes(buf);
	CHECK_INT(queues_make_sized(alpha, 64, 0, &queue), 0);
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
		codes[i] = QUEUES_NOT_YET;
	}
	ops[63].kind = MEMPOOL_OP_COMPARE_SWAP;
	ops[63].operand = 63;
	ops[63].swap = 1000;
	CHECK_INT(queues_submit(queue, ops, 64), 0);
	CHECK_INT(queues_drain(queue, codes, 64, 64), 0);
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
	CHECK_INT(queues_acquire(alpha, PAGE, MEMPOOL_READ, TTL_MS, &reading), 0);
	CHECK_INT(harness_acquire(beta, PAGE, TTL_MS, &alien), 0);
	CHECK_INT(mempool_buf_alloc(alpha, PAGE, 0, &buf), 0);
	CHECK_INT(mempool_buf_alloc(alpha, PAGE, 0, &gone), 0);
	CHECK_INT(mempool_buf_alloc(beta, PAGE, 0, &foreign), 0);
	CHECK_INT(queues_make_sized(alpha, 4, 0, &queue), 0);
	CHECK_INT(mempool_queue_attach(queue, lease), 0);
	CHECK_INT(mempool_queue_attach(queue, reading), 0);
	bytes = mempool_buf_bytes(buf);
	good = (struct mempool_op){.lease = lease,
				   .len_bytes = PAGE,
				   .bytes = bytes,
				   .buf = buf,
				   .kind = MEMPOOL_OP_WRITE};
	CHECK_INT(queues_run_op(queue, &good), 0);
#define REFUSED(code, ...)                                    \
	do {                                                  \
		op = good;                                    \
		__VA_ARGS__;                                  \
		CHECK_INT(queues_run_op(queue, &op), (code)); \
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
	CHECK_INT(queues_run_op(queue, &good), 0);
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
	CHECK_INT(queues_make_sized(alpha, 2, 10, &queue), 0);
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
	CHECK_INT(queues_make_sized(alpha, 8, 0, &queue), 0);
	CHECK_INT(mempool_queue_attach(queue, lease), 0);
	CHECK_INT(mempool_queue_info(queue, &info), 0);
	if (info.inline_max_bytes == 0)
		SKIP("the device has no inline sends");
	CHECK_INT(info.inline_max_bytes, LANE_INLINE_BYTES);
	op.lease = lease;
	for (op.len_bytes = 1; op.len_bytes <= info.inline_max_bytes; op.len_bytes += 127) {
		harness_fill(sent, op.len_bytes, (uint32_t)op.len_bytes);
		CHECK_INT(queues_run_op(queue, &op), 0);
		CHECK_INT(mempool_read(lease, 0, got, op.len_bytes), 0);
		CHECK_MEM(got, sent, op.len_bytes);
	}
	op.len_bytes = info.inline_max_bytes + 1;
	CHECK_INT(queues_run_op(queue, &op), MEMPOOL_E_INVALID);
	op.kind = MEMPOOL_OP_READ;
	op.len_bytes = 1;
	CHECK_INT(queues_run_op(queue, &op), MEMPOOL_E_INVALID);
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
	CHECK_INT(queues_make_sized(alpha, 1, 20, &queue), 0);
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
	CHECK_INT(queues_submit(queue, ops, 20), 0);
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
	struct mempool_completion completion = {.code = QUEUES_NOT_YET};
	size_t n = 0;

	if (worker->queue == NULL && kind == MEMPOOL_OP_READ)
		return mempool_read(worker->lease, op.offset_bytes, bytes, THREAD_BYTES);
	if (worker->queue == NULL)
		return mempool_write(worker->lease, op.offset_bytes, bytes, THREAD_BYTES);
	if (mempool_submit(worker->queue, &op, 1, &n) < 0)
		return QUEUES_NOT_YET;
	for (n = 0; n == 0;) {
		if (mempool_poll(worker->queue, &completion, 1, &n) < 0)
			return QUEUES_NOT_YET;
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
		CHECK_INT(queues_make_sized(alpha, 4, 0, &workers[i].queue), 0);
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
