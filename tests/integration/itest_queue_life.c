/* SPDX-License-Identifier: BSD-3-Clause */
/* Queues and what happens to their session: it is lost and comes back, or not, and tells of it. */
#include <inttypes.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include "client/lane.h"
#include "client/pool.h"
#include "client/queue.h"
#include "common/clock.h"
#include "tests/integration/accounts.h"
#include "tests/integration/harness.h"
#include "tests/integration/queues.h"
#include "tests/integration/told.h"

#define PAGE	 4096
#define BYTES	 (64 * 1024)
#define TTL_MS	 600000
#define LIMIT_MS 30000
#define BATCH	 QUEUES_OPS_MAX

static bool lane_is_known_up(mempool_queue *queue)
{
	struct mempool_queue_info info = {.size = sizeof(info)};

	return mempool_queue_info(queue, &info) == 0 && info.lane_up != 0;
}

/* Return: is the session lost, and back? */
static bool break_session(mempool *pool)
{
	told_cut(pool);
	return told_wait(pool, MEMPOOL_EVENT_SESSION_LOST, LIMIT_MS, NULL) &&
	       told_wait(pool, MEMPOOL_EVENT_SESSION_RESTORED, LIMIT_MS, NULL);
}

/* The session. */

/* The queue has lost its lane, and gets another with the same leases. */
TEST(queue_life__session_comes_back)
{
	HARNESS(h, .extra = TOLD_KEEPING);
	TOLD_COMING_BACK(alpha, UINT32_MAX, 0);
	static uint8_t sent[BYTES];
	mempool_lease *leases[2];
	mempool_queue *queue;
	mempool_buf *buf;

	CHECK_INT(queues_make(alpha, &queue), 0);
	CHECK_INT(mempool_buf_alloc(alpha, BYTES, 0, &buf), 0);
	for (int i = 0; i < 2; i++) {
		CHECK_INT(harness_acquire(alpha, BYTES, TTL_MS, &leases[i]), 0);
		CHECK_INT(mempool_queue_attach(queue, leases[i]), 0);
	}
	for (uint32_t round = 0; round < 3; round++) {
		harness_fill(sent, BYTES, round);
		for (int i = 0; i < 2; i++) {
			memcpy(mempool_buf_bytes(buf), sent, BYTES);
			CHECK_INT(queues_run(queue, leases[i], MEMPOOL_OP_WRITE, buf, BYTES), 0);
		}
		CHECK(break_session(alpha));
		CHECK(!lane_is_known_up(queue));
		CHECK_INT(queues_run(queue, leases[0], MEMPOOL_OP_READ, buf, BYTES),
			  MEMPOOL_E_LANE);
		CHECK_INT(mempool_queue_restore(queue), 0);
		CHECK(lane_is_known_up(queue));
		CHECK_INT(mempool_queue_restore(queue), 0);
		for (int i = 0; i < 2; i++) {
			memset(mempool_buf_bytes(buf), 0, BYTES);
			CHECK_INT(queues_run(queue, leases[i], MEMPOOL_OP_READ, buf, BYTES), 0);
			CHECK_MEM(mempool_buf_bytes(buf), sent, BYTES);
		}
		CHECK_INT(mempool_read(leases[1], 0, sent, BYTES), 0);
	}
	CHECK_INT(harness_number(&h, "sessions"), 1);
	CHECK(harness_wait_number(&h, "lanes", 2, LIMIT_MS));
	for (int i = 0; i < 2; i++)
		CHECK_INT(mempool_release(leases[i]), 0);
	mempool_queue_destroy(queue);
	harness_close(&alpha);
	accounts_finish(&h);
}

/* Calls that make lanes wait for the session; operations do not. */
TEST(queue_life__calls_wait)
{
	HARNESS(h, .extra = TOLD_KEEPING);
	TOLD_COMING_BACK(alpha, UINT32_MAX, 0);
	mempool_lease *first, *second;
	mempool_queue *queue, *other;
	mempool_buf *buf;
	uint8_t byte = 7;
	struct mempool_segment segment = {.buf = &byte, .len_bytes = 1};
	uint64_t begun_ns;
	int r;

	CHECK_INT(queues_make(alpha, &queue), 0);
	CHECK_INT(mempool_buf_alloc(alpha, PAGE, 0, &buf), 0);
	CHECK_INT(harness_acquire(alpha, PAGE, TTL_MS, &first), 0);
	CHECK_INT(harness_acquire(alpha, PAGE, TTL_MS, &second), 0);
	CHECK_INT(mempool_queue_attach(queue, first), 0);
	told_cut(alpha);
	CHECK(told_wait(alpha, MEMPOOL_EVENT_SESSION_LOST, LIMIT_MS, NULL));
	begun_ns = clock_now_ns();
	r = queues_run(queue, first, MEMPOOL_OP_WRITE, buf, PAGE);
	printf("# an operation fails with %d after %" PRIu64 " ms\n", r,
	       harness_since_ms(begun_ns));
	/* The other one, if it is back so soon. */
	CHECK(r == MEMPOOL_E_SESSION_LOST || r == MEMPOOL_E_LANE);
	CHECK_INT(mempool_queue_restore(queue), 0);
	CHECK_INT(queues_run(queue, first, MEMPOOL_OP_WRITE, buf, PAGE), 0);
	told_cut(alpha);
	CHECK(told_wait(alpha, MEMPOOL_EVENT_SESSION_LOST, LIMIT_MS, NULL));
	CHECK_INT(mempool_queue_attach(queue, second), 0);
	CHECK_INT(queues_run(queue, second, MEMPOOL_OP_WRITE, buf, PAGE), 0);
	/* Only what was asked for is attached. */
	CHECK_INT(queues_run(queue, first, MEMPOOL_OP_WRITE, buf, PAGE), MEMPOOL_E_LANE);
	CHECK_INT(mempool_queue_restore(queue), 0);
	CHECK_INT(queues_run(queue, first, MEMPOOL_OP_WRITE, buf, PAGE), 0);
	told_cut(alpha);
	CHECK(told_wait(alpha, MEMPOOL_EVENT_SESSION_LOST, LIMIT_MS, NULL));
	CHECK_INT(queues_make(alpha, &other), 0);
	CHECK_INT(mempool_queue_attach(other, first), 0);
	CHECK_INT(queues_run(other, first, MEMPOOL_OP_READ, buf, PAGE), 0);
	told_cut(alpha);
	CHECK(told_wait(alpha, MEMPOOL_EVENT_SESSION_LOST, LIMIT_MS, NULL));
	CHECK_INT(mempool_writev(first, &segment, 1, NULL), 0);
	told_cut(alpha);
	CHECK(told_wait(alpha, MEMPOOL_EVENT_SESSION_LOST, LIMIT_MS, NULL));
	/* Nothing to be transferred, but who asks has to wait as well. */
	segment.len_bytes = 0;
	CHECK_INT(mempool_readv(first, &segment, 1, NULL), 0);
	CHECK_INT(mempool_release(first), 0);
	CHECK_INT(mempool_release(second), 0);
	harness_close(&alpha);
	accounts_finish(&h);
}

/* What is under way when the session is lost ends once, and what is said to be done is so. */

static void fill_ops(struct mempool_op *ops, mempool_lease *lease, mempool_buf *buf)
{
	uint8_t *bytes = mempool_buf_bytes(buf);

	for (size_t i = 0; i < BATCH; i++)
		ops[i] = (struct mempool_op){
			.cookie = i,
			.lease = lease,
			.offset_bytes = i * BYTES,
			.len_bytes = BYTES,
			.bytes = bytes + i * BYTES,
			.buf = buf,
			.kind = MEMPOOL_OP_WRITE,
		};
}

/* Return: how many are said to be done, and are. */
static uint32_t verify_done(mempool_lease *lease, const struct mempool_op *ops, const int *codes)
{
	static uint8_t got[BYTES];
	uint32_t done = 0;

	for (size_t i = 0; i < BATCH; i++) {
		if (codes[i] != 0)
			continue;
		done += mempool_read(lease, i * BYTES, got, BYTES) == 0 &&
			memcmp(got, ops[i].bytes, BYTES) == 0;
	}
	return done;
}

static uint32_t count_lost(const int *codes)
{
	uint32_t lost = 0;

	for (size_t i = 0; i < BATCH; i++)
		lost += codes[i] == MEMPOOL_E_LANE || codes[i] == MEMPOOL_E_SESSION_LOST;
	return lost;
}

TEST(queue_life__operations_are_cut_off)
{
	HARNESS(h, .extra = TOLD_KEEPING);
	TOLD_COMING_BACK(alpha, UINT32_MAX, 0);
	struct mempool_op ops[BATCH];
	uint32_t done = 0, lost = 0;
	mempool_lease *lease;
	mempool_queue *queue;
	mempool_buf *buf;
	int codes[BATCH];
	size_t n;

	CHECK_INT(queues_make(alpha, &queue), 0);
	CHECK_INT(mempool_buf_alloc(alpha, (size_t)BATCH * BYTES, 0, &buf), 0);
	CHECK_INT(harness_acquire(alpha, (uint64_t)BATCH * BYTES, TTL_MS, &lease), 0);
	CHECK_INT(mempool_queue_attach(queue, lease), 0);
	fill_ops(ops, lease, buf);
	for (uint32_t round = 0; round < 5; round++) {
		harness_fill(mempool_buf_bytes(buf), (size_t)BATCH * BYTES, round + 1);
		CHECK_INT(mempool_submit(queue, ops, BATCH, &n), 0);
		CHECK_INT(n, BATCH);
		harness_sleep_ms(round);
		told_cut(alpha);
		CHECK_INT(queues_collect(queue, BATCH, codes), 0);
		CHECK(told_wait(alpha, MEMPOOL_EVENT_SESSION_RESTORED, LIMIT_MS, NULL));
		CHECK_INT(mempool_queue_restore(queue), 0);
		done += verify_done(lease, ops, codes);
		lost += count_lost(codes);
	}
	printf("# %u done, %u lost\n", done, lost);
	CHECK_INT(done + lost, 5 * BATCH);
	mempool_queue_destroy(queue);
	CHECK_INT(mempool_release(lease), 0);
	harness_close(&alpha);
	accounts_finish(&h);
}

/*
 * The numbers of lanes begin anew with each session: what the daemon says of a lane is not to be
 * taken for one that has had that number before and is not restored.
 */
TEST(queue_life__lease_is_modified_with_one_queue_restored)
{
	HARNESS(h, .extra = TOLD_KEEPING);
	TOLD_COMING_BACK(alpha, UINT32_MAX, 0);
	mempool_queue *early, *late;
	mempool_lease *lease;
	mempool_buf *buf;

	CHECK_INT(queues_make(alpha, &early), 0);
	CHECK_INT(queues_make(alpha, &late), 0);
	CHECK_INT(mempool_buf_alloc(alpha, PAGE, 0, &buf), 0);
	CHECK_INT(harness_acquire(alpha, PAGE, TTL_MS, &lease), 0);
	/* The one that is looked at first has had the number that the other will get. */
	CHECK_INT(mempool_queue_attach(late, lease), 0);
	CHECK_INT(mempool_queue_attach(early, lease), 0);
	CHECK(break_session(alpha));
	CHECK_INT(mempool_queue_restore(late), 0);
	printf("# the lanes are %" PRIu32 " and, if it were there, %" PRIu32 "\n",
	       late->lane.number, early->lane.number);
	CHECK_INT(queues_run(late, lease, MEMPOOL_OP_WRITE, buf, PAGE), 0);
	CHECK_INT(mempool_modify(lease, 2 * PAGE, MEMPOOL_READ | MEMPOOL_WRITE), 0);
	CHECK_INT(queues_run(late, lease, MEMPOOL_OP_WRITE, buf, PAGE), 0);
	CHECK_INT(queues_run(early, lease, MEMPOOL_OP_WRITE, buf, PAGE), MEMPOOL_E_LANE);
	CHECK_INT(mempool_queue_restore(early), 0);
	CHECK_INT(queues_run(early, lease, MEMPOOL_OP_READ, buf, PAGE), 0);
	CHECK_INT(mempool_modify(lease, PAGE, MEMPOOL_READ | MEMPOOL_WRITE), 0);
	CHECK_INT(queues_run(early, lease, MEMPOOL_OP_READ, buf, PAGE), 0);
	CHECK_INT(queues_run(late, lease, MEMPOOL_OP_READ, buf, PAGE), 0);
	CHECK_INT(mempool_release(lease), 0);
	harness_close(&alpha);
	accounts_finish(&h);
}

/* The leases are gone, the queue is not. */
TEST(queue_life__daemon_is_started_anew)
{
	HARNESS(h, .extra = TOLD_KEEPING);
	TOLD_COMING_BACK(alpha, UINT32_MAX, 0);
	mempool_lease *lease, *fresh;
	mempool_queue *queue;
	mempool_buf *buf;

	CHECK_INT(queues_make(alpha, &queue), 0);
	CHECK_INT(mempool_buf_alloc(alpha, PAGE, 0, &buf), 0);
	CHECK_INT(harness_acquire(alpha, PAGE, TTL_MS, &lease), 0);
	CHECK_INT(mempool_queue_attach(queue, lease), 0);
	harness_kill(&h);
	CHECK(told_wait(alpha, MEMPOOL_EVENT_SESSION_LOST, LIMIT_MS, NULL));
	CHECK_INT(harness_restart(&h), 0);
	CHECK(told_wait(alpha, MEMPOOL_EVENT_SESSION_RESTORED, LIMIT_MS, NULL));
	CHECK_INT(mempool_queue_restore(queue), 0);
	CHECK_INT(queues_run(queue, lease, MEMPOOL_OP_READ, buf, PAGE), MEMPOOL_E_NO_LEASE);
	CHECK_INT(mempool_queue_attach(queue, lease), MEMPOOL_E_NO_LEASE);
	CHECK_INT(harness_acquire(alpha, PAGE, TTL_MS, &fresh), 0);
	CHECK_INT(mempool_queue_attach(queue, fresh), 0);
	CHECK_INT(queues_run(queue, fresh, MEMPOOL_OP_WRITE, buf, PAGE), 0);
	CHECK_INT(mempool_release(lease), MEMPOOL_E_NO_LEASE);
	CHECK_INT(mempool_release(fresh), 0);
	harness_close(&alpha);
	accounts_finish(&h);
}

#define GONE_TIMEOUT_MS 2000
#define GONE_SLACK_MS	1500

static void check_lost(uint64_t begun_ns, int r, bool waits)
{
	uint64_t took_ms = harness_since_ms(begun_ns);

	printf("# %d after %" PRIu64 " ms: %s\n", r, took_ms, mempool_last_error());
	CHECK_INT(r, MEMPOOL_E_SESSION_LOST);
	CHECK(!waits || took_ms >= GONE_TIMEOUT_MS);
	CHECK(took_ms < (waits ? GONE_TIMEOUT_MS : 0) + GONE_SLACK_MS);
}

/* Nobody is there: calls end by their time-outs, or at once if nobody comes back. */
static void session_is_away(uint32_t reconnect_ms)
{
	HARNESS(h, .extra = TOLD_KEEPING);
	TOLD_COMING_BACK(alpha, reconnect_ms, GONE_TIMEOUT_MS);
	bool waits = reconnect_ms != 0;
	mempool_queue *queue, *other;
	uint64_t begun_ns;
	int r;
	mempool_lease *lease;
	mempool_buf *buf;

	CHECK_INT(queues_make(alpha, &queue), 0);
	CHECK_INT(mempool_buf_alloc(alpha, PAGE, 0, &buf), 0);
	CHECK_INT(harness_acquire(alpha, PAGE, TTL_MS, &lease), 0);
	CHECK_INT(mempool_queue_attach(queue, lease), 0);
	harness_kill(&h);
	CHECK(told_wait(alpha, MEMPOOL_EVENT_SESSION_LOST, LIMIT_MS, NULL));
	begun_ns = clock_now_ns();
	r = queues_run(queue, lease, MEMPOOL_OP_READ, buf, PAGE);
	check_lost(begun_ns, r, false);
	begun_ns = clock_now_ns();
	r = mempool_queue_restore(queue);
	check_lost(begun_ns, r, waits);
	begun_ns = clock_now_ns();
	r = mempool_queue_attach(queue, lease);
	check_lost(begun_ns, r, waits);
	begun_ns = clock_now_ns();
	r = queues_make(alpha, &other);
	check_lost(begun_ns, r, waits);
	begun_ns = clock_now_ns();
	r = queues_run(queue, lease, MEMPOOL_OP_WRITE, buf, PAGE);
	check_lost(begun_ns, r, false);
	mempool_queue_destroy(queue);
	CHECK_INT(mempool_buf_free(buf), 0);
}

TEST(queue_life__session_stays_away)
{
	session_is_away(UINT32_MAX);
}

TEST(queue_life__coming_back_is_not_asked_for)
{
	session_is_away(0);
}

/* Events. */

static void lose_lane(mempool *pool, mempool_queue *queue)
{
	(void)pthread_mutex_lock(&pool->lock);
	lane_lose(&queue->lane, MEMPOOL_E_LANE, "lost by the test");
	(void)pthread_mutex_unlock(&pool->lock);
}

/* Of a queue's lane as of the session's own; but what the caller does is none. */
TEST(queue_life__events)
{
	HARNESS(h, .extra = TOLD_KEEPING);
	SESSION(alpha, "alpha");
	mempool_lease *lease;
	mempool_queue *queue;
	mempool_buf *buf;

	CHECK_INT(queues_make(alpha, &queue), 0);
	CHECK_INT(mempool_buf_alloc(alpha, PAGE, 0, &buf), 0);
	CHECK_INT(harness_acquire(alpha, PAGE, TTL_MS, &lease), 0);
	CHECK_INT(mempool_queue_attach(queue, lease), 0);
	CHECK(told_nothing(alpha, 0));
	lose_lane(alpha, queue);
	CHECK(told_wait(alpha, MEMPOOL_EVENT_LANE_LOST, LIMIT_MS, NULL));
	CHECK(told_nothing(alpha, 0));
	CHECK_INT(mempool_queue_restore(queue), 0);
	CHECK(told_wait(alpha, MEMPOOL_EVENT_LANE_RESTORED, LIMIT_MS, NULL));
	CHECK_INT(queues_run(queue, lease, MEMPOOL_OP_WRITE, buf, PAGE), 0);
	mempool_queue_destroy(queue);
	CHECK(told_nothing(alpha, 500));
	CHECK_INT(mempool_release(lease), 0);
	harness_close(&alpha);
	accounts_finish(&h);
}

struct callback {
	mempool_queue *queue;
	mempool_buf *buf;
	atomic_int wrong; /* the number of the first call that did not say "state" */
	atomic_bool called;
};

/* From within a callback everything that might wait for the session's thread is refused. */
static void call_back(const struct mempool_event *event, void *context)
{
	struct callback *callback = context;
	struct mempool_completion completion;
	size_t n;
	int results[8];
	int count = 0;

	(void)event;
	results[count++] = mempool_poll(callback->queue, &completion, 1, &n);
	results[count++] = mempool_cancel(callback->queue, 0, &n);
	results[count++] = mempool_queue_arm(callback->queue);
	results[count++] = mempool_flush(callback->queue, 0);
	results[count++] = mempool_queue_restore(callback->queue);
	results[count++] = mempool_buf_free(callback->buf);
	for (int i = 0; i < count; i++) {
		if (results[i] != MEMPOOL_E_STATE)
			atomic_store(&callback->wrong, i + 1);
	}
	if (mempool_queue_fd(callback->queue) < 0 || mempool_buf_bytes(callback->buf) == NULL)
		atomic_store(&callback->wrong, 100);
	mempool_queue_destroy(callback->queue);
	atomic_store(&callback->called, true);
}

TEST(queue_life__callback)
{
	HARNESS(h, .extra = TOLD_KEEPING);
	static struct callback callback;
	struct mempool_connect_opts opts = {
		.on_event = call_back,
		.on_event_context = &callback,
	};
	__attribute__((cleanup(harness_close))) mempool *alpha = NULL;

	callback = (struct callback){0};
	CHECK_INT(told_connect("alpha", &opts, &alpha), 0);
	CHECK_INT(queues_make(alpha, &callback.queue), 0);
	CHECK_INT(mempool_buf_alloc(alpha, PAGE, 0, &callback.buf), 0);
	lose_lane(alpha, callback.queue);
	for (int i = 0; i < 500 && !atomic_load(&callback.called); i++)
		harness_sleep_ms(10);
	CHECK(atomic_load(&callback.called));
	CHECK_INT(atomic_load(&callback.wrong), 0);
	CHECK_INT(mempool_queue_restore(callback.queue), 0);
	CHECK_INT(mempool_buf_free(callback.buf), 0);
	harness_close(&alpha);
	accounts_finish(&h);
}
