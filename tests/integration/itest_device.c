/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A device of ours that takes its time, or fails: nothing is posted too late, nothing is let go
 * too early, and nobody waits for ever.
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "client/lane.h"
#include "client/pool.h"
#include "client/queue.h"
#include "common/clock.h"
#include "tests/integration/harness.h"
#include "tests/integration/held.h"
#include "tests/integration/queues.h"
#include "tests/integration/told.h"

#define PAGE	4096
#define TTL_MS	600000
#define ALL	(MEMPOOL_READ | MEMPOOL_WRITE | MEMPOOL_ATOMIC)
#define NO_WAIT "\"lane_wait_min\": \"0\""

/* Registers memory slowly, and posts what it is told to in its own way. */

static void *slow_bytes; /* takes slow_ms */
static uint64_t slow_ms;
static atomic_uint posts;
static atomic_bool mute;	/* the next chain is posted, and said not to be */
static struct ibv_qp *immortal; /* cannot be destroyed */

int __real_verbs_reg_mr(struct ibv_pd *pd, void *addr, size_t len_bytes, int access,
			struct ibv_mr **ret_mr);
int __wrap_verbs_reg_mr(struct ibv_pd *pd, void *addr, size_t len_bytes, int access,
			struct ibv_mr **ret_mr);
int __real_verbs_post_send(struct ibv_qp *qp, struct ibv_send_wr *wr, struct ibv_send_wr **ret_bad);
int __wrap_verbs_post_send(struct ibv_qp *qp, struct ibv_send_wr *wr, struct ibv_send_wr **ret_bad);

int __real_verbs_destroy_qp(struct ibv_qp *qp);
int __wrap_verbs_destroy_qp(struct ibv_qp *qp);

int __wrap_verbs_reg_mr(struct ibv_pd *pd, void *addr, size_t len_bytes, int access,
			struct ibv_mr **ret_mr)
{
	if (addr == slow_bytes)
		harness_sleep_ms(slow_ms);
	return __real_verbs_reg_mr(pd, addr, len_bytes, access, ret_mr);
}

int __wrap_verbs_post_send(struct ibv_qp *qp, struct ibv_send_wr *wr, struct ibv_send_wr **ret_bad)
{
	if (wr->opcode == IBV_WR_RDMA_WRITE || wr->opcode == IBV_WR_RDMA_READ)
		(void)atomic_fetch_add(&posts, 1);
	if (wr->opcode == IBV_WR_SEND || !atomic_exchange(&mute, false))
		return __real_verbs_post_send(qp, wr, ret_bad);
	(void)__real_verbs_post_send(qp, wr, ret_bad);
	*ret_bad = NULL;
	return -ENOMEM;
}

int __wrap_verbs_destroy_qp(struct ibv_qp *qp)
{
	return qp != NULL && qp == immortal ? -EIO : __real_verbs_destroy_qp(qp);
}

/* With as many rights as the device allows; @ret_atomics: that of atomic operations, too? */
static int acquire(mempool *pool, uint64_t len_bytes, mempool_lease **ret_lease, bool *ret_atomics)
{
	struct mempool_acquire_opts opts = {.size = sizeof(opts), .ttl_ms = TTL_MS, .rights = ALL};
	int r = mempool_acquire(pool, len_bytes, &opts, ret_lease);

	*ret_atomics = r == 0;
	return r == MEMPOOL_E_RIGHTS_DEVICE ? harness_acquire(pool, len_bytes, TTL_MS, ret_lease)
					    : r;
}

/* The cache registers memory for longer than the lease lasts by our count. */
TEST(device__lease_expires_while_memory_is_registered)
{
	HARNESS(h, .extra = NO_WAIT);
	SESSION(alpha, "alpha");
	struct mempool_cache_opts limits = {
		.size = sizeof(limits), .bytes_max = MIB, .entries_max = 4};
	struct mempool_cache_stats stats = {.size = sizeof(stats)};
	uint8_t *bytes = aligned_alloc(PAGE, 4 * PAGE);
	unsigned int before;
	mempool_lease *lease;
	int r;

	CHECK(bytes != NULL);
	memset(bytes, 1, 4 * PAGE);
	CHECK_INT(mempool_cache_limit(alpha, &limits), 0);
	/* The lane is opened, and the lease used, before the time begins to matter. */
	CHECK_INT(harness_acquire(alpha, 4 * PAGE, 300, &lease), 0);
	slow_bytes = bytes;
	slow_ms = 1000;
	before = atomic_load(&posts);
	r = mempool_write(lease, 0, bytes, 4 * PAGE);
	slow_bytes = NULL;
	CHECK_INT(atomic_load(&posts), before);
	CHECK_INT(r, MEMPOOL_E_EXPIRED);
	/* What was registered is not in use, and the lane has not been lost. */
	CHECK_INT(mempool_cache_forget(alpha, bytes, 4 * PAGE), 0);
	CHECK_INT(mempool_cache_stats(alpha, &stats), 0);
	CHECK_INT(stats.entries, 0);
	CHECK(lane_is_up(pool_lane(alpha)));
	CHECK_INT(harness_number(&h, "counters.lanes_lost"), 0);
	CHECK_INT(harness_number(&h, "counters.strikes"), 0);
	(void)mempool_release(lease);
	free(bytes);
	harness_close(&alpha);
	CHECK_INT(harness_stop(&h), 0);
}

/*
 * The provider has taken the requests, and then fails without naming one: they are in flight, and
 * neither is their memory let go, nor is it said of one that it did not take place.
 */
TEST(device__posting_fails_after_all_was_posted)
{
	HARNESS(h, .pool_size = "64MiB", .extra = NO_WAIT);
	SESSION(alpha, "alpha");
	struct mempool_op ops[QUEUES_OPS_MAX];
	int codes[QUEUES_OPS_MAX];
	uint32_t done = 0, unknown = 0;
	mempool_lease *lease;
	mempool_queue *queue;
	mempool_buf *buf;
	uint8_t *bytes;
	uint64_t sum = 0;
	bool atomics;
	size_t n = 0;

	CHECK_INT(acquire(alpha, QUEUES_OPS_MAX * PAGE, &lease, &atomics), 0);
	CHECK_INT(mempool_buf_alloc(alpha, QUEUES_OPS_MAX * PAGE, 0, &buf), 0);
	CHECK_INT(queues_make(alpha, &queue), 0);
	CHECK_INT(mempool_queue_attach(queue, lease), 0);
	bytes = mempool_buf_bytes(buf);
	for (uint64_t i = 0; i < QUEUES_OPS_MAX; i++)
		ops[i] = (struct mempool_op){
			.cookie = i,
			.lease = lease,
			.offset_bytes = i * PAGE,
			.len_bytes = PAGE,
			.bytes = bytes + i * PAGE,
			.buf = buf,
			.kind = MEMPOOL_OP_WRITE,
			.operand = 1,
		};
	for (uint64_t i = 1; atomics && i < QUEUES_OPS_MAX; i += 2) {
		ops[i].kind = MEMPOOL_OP_FETCH_ADD;
		ops[i].len_bytes = 8;
		ops[i].offset_bytes = PAGE;
	}
	/* One is in flight already. */
	held_begin(queue->lane.cq.cq, 0);
	CHECK_INT(mempool_submit(queue, ops, 1, &n), 0);
	atomic_store(&mute, true);
	CHECK_INT(mempool_submit(queue, ops + 1, QUEUES_OPS_MAX - 1, &n), 0);
	CHECK_INT(n, QUEUES_OPS_MAX - 1);
	CHECK(!atomic_load(&mute));
	/* None is over before it has come back. */
	CHECK_INT(queue->operations.done.count, 0);
	CHECK_INT(mempool_buf_free(buf), MEMPOOL_E_BUSY);
	held_end();
	CHECK_INT(queues_collect(queue, QUEUES_OPS_MAX, codes), 0);
	for (size_t i = 0; i < QUEUES_OPS_MAX; i++) {
		bool atomic = ops[i].kind == MEMPOOL_OP_FETCH_ADD;

		if (codes[i] != 0)
			CHECK_INT(codes[i], atomic ? MEMPOOL_E_UNKNOWN : MEMPOOL_E_LANE);
		done += codes[i] == 0 && atomic;
		unknown += codes[i] != 0 && atomic;
	}
	CHECK_INT(queue->strays, 0);
	CHECK_INT(mempool_queue_restore(queue), 0);
	if (atomics)
		CHECK_INT(mempool_fetch_add(lease, PAGE, 0, &sum), 0);
	printf("# of the atomic operations %u done, %u unknown; the sum is %" PRIu64 "\n", done,
	       unknown, sum);
	CHECK(sum >= done && sum <= done + unknown);
	CHECK_INT(queues_run(queue, lease, MEMPOOL_OP_READ, buf, PAGE), 0);
	CHECK_INT(mempool_buf_free(buf), 0);
	harness_close(&alpha);
	CHECK_INT(harness_stop(&h), 0);
}

/* The same of calls that wait for their operation. */
TEST(device__posting_of_one_fails_after_it_was_posted)
{
	HARNESS(h, .extra = NO_WAIT);
	SESSION(alpha, "alpha");
	uint64_t old = 0;
	mempool_lease *lease;
	mempool_buf *buf;
	bool atomics;

	CHECK_INT(acquire(alpha, PAGE, &lease, &atomics), 0);
	CHECK_INT(mempool_buf_alloc(alpha, PAGE, 0, &buf), 0);
	atomic_store(&mute, true);
	CHECK_INT(mempool_write(lease, 0, mempool_buf_bytes(buf), PAGE), MEMPOOL_E_LANE);
	CHECK(!atomic_load(&mute));
	CHECK_INT(mempool_write(lease, 0, mempool_buf_bytes(buf), PAGE), 0);
	if (atomics) {
		atomic_store(&mute, true);
		CHECK_INT(mempool_fetch_add(lease, 0, 1, &old), MEMPOOL_E_UNKNOWN);
		CHECK_INT(mempool_fetch_add(lease, 0, 1, &old), 0);
		CHECK(old <= 1);
	}
	CHECK_INT(mempool_buf_free(buf), 0);
	harness_close(&alpha);
	CHECK_INT(harness_stop(&h), 0);
}

/* Of an operation whose first piece has come back the deadline passes: that stops nobody else. */
TEST(device__deadline_between_two_pieces)
{
	HARNESS(h, .extra = NO_WAIT ", \"window_max\": \"64KiB\"");
	SESSION(alpha, "alpha");
	struct mempool_queue_opts opts = {.size = sizeof(opts), .depth = 1, .capacity = 2};
	struct mempool_op ops[2];
	mempool_lease *lease;
	mempool_queue *queue;
	mempool_buf *buf;
	int codes[2];
	size_t n = 0;

	CHECK_INT(harness_acquire(alpha, 128 * 1024, TTL_MS, &lease), 0);
	CHECK_INT(mempool_buf_alloc(alpha, 128 * 1024, 0, &buf), 0);
	CHECK_INT(mempool_queue_create(alpha, &opts, &queue), 0);
	CHECK_INT(mempool_queue_attach(queue, lease), 0);
	for (uint64_t i = 0; i < 2; i++)
		ops[i] = (struct mempool_op){
			.cookie = i,
			.lease = lease,
			.len_bytes = i == 0 ? 128 * 1024 : PAGE,
			.bytes = mempool_buf_bytes(buf),
			.buf = buf,
			.kind = MEMPOOL_OP_READ,
			.timeout_ms = i == 0 ? 500 : 0,
		};
	CHECK_INT(mempool_submit(queue, ops, 2, &n), 0);
	CHECK_INT(n, 2);
	harness_sleep_ms(1000);
	CHECK_INT(queues_collect(queue, 2, codes), 0);
	CHECK_INT(codes[0], MEMPOOL_E_TIMEOUT);
	CHECK_INT(codes[1], 0);
	CHECK_INT(harness_number(&h, "counters.lanes_lost"), 0);
	harness_close(&alpha);
	CHECK_INT(harness_stop(&h), 0);
}

#define MUTE_TIMEOUT_MS 2000
#define MUTE_SLACK_MS	1600 /* a second for what may come back, once */

static int connect_for(uint32_t timeout_ms, mempool **ret_pool)
{
	struct mempool_connect_opts opts = {.timeout_ms = timeout_ms};

	return told_connect("alpha", &opts, ret_pool);
}

/* Nothing ever comes back. */
TEST(device__gives_nothing_back)
{
	HARNESS(h, .extra = NO_WAIT);
	__attribute__((cleanup(harness_close))) mempool *alpha = NULL;
	uint64_t begun_ns;
	uint64_t took_ms;
	mempool_lease *lease;
	mempool_buf *buf;
	int r;

	CHECK_INT(connect_for(MUTE_TIMEOUT_MS, &alpha), 0);
	CHECK_INT(harness_acquire(alpha, PAGE, TTL_MS, &lease), 0);
	CHECK_INT(mempool_buf_alloc(alpha, PAGE, 0, &buf), 0);
	for (int i = 0; i < 2; i++) {
		/* Copied, and not. */
		uint8_t byte = 1;

		held_begin(pool_lane(alpha)->cq.cq, 0);
		begun_ns = clock_now_ns();
		r = i == 0 ? mempool_write(lease, 0, &byte, 1)
			   : mempool_write(lease, 0, mempool_buf_bytes(buf), PAGE);
		took_ms = harness_since_ms(begun_ns);
		held_end();
		printf("# over after %" PRIu64 " ms\n", took_ms);
		CHECK_INT(r, MEMPOOL_E_TIMEOUT);
		CHECK(took_ms >= MUTE_TIMEOUT_MS && took_ms < MUTE_TIMEOUT_MS + MUTE_SLACK_MS);
		CHECK_INT(mempool_write(lease, 0, mempool_buf_bytes(buf), PAGE), 0);
	}
	CHECK_INT(mempool_buf_free(buf), 0);
	harness_close(&alpha);
	CHECK_INT(harness_stop(&h), 0);
}

/* Moreover the QP cannot be destroyed: the memory stays the device's, so nobody gets it back. */
TEST(device__keeps_what_it_was_given)
{
	HARNESS(h, .extra = NO_WAIT);
	__attribute__((cleanup(harness_close))) mempool *alpha = NULL;
	struct mempool_op op = {.kind = MEMPOOL_OP_READ, .len_bytes = PAGE, .timeout_ms = 300};
	mempool_lease *lease;
	mempool_queue *queue;
	mempool_buf *bufs[2];
	int codes[1];
	size_t n = 0;
	int r;

	CHECK_INT(connect_for(MUTE_TIMEOUT_MS, &alpha), 0);
	CHECK_INT(harness_acquire(alpha, PAGE, TTL_MS, &lease), 0);
	for (int i = 0; i < 2; i++)
		CHECK_INT(mempool_buf_alloc(alpha, PAGE, 0, &bufs[i]), 0);
	CHECK_INT(queues_make(alpha, &queue), 0);
	CHECK_INT(mempool_queue_attach(queue, lease), 0);
	op.lease = lease;
	op.buf = bufs[0];
	op.bytes = mempool_buf_bytes(bufs[0]);
	held_begin(queue->lane.cq.cq, 0);
	immortal = lane_qp(&queue->lane);
	CHECK_INT(mempool_submit(queue, &op, 1, &n), 0);
	CHECK_INT(queues_collect(queue, 1, codes), 0);
	CHECK_INT(codes[0], MEMPOOL_E_TIMEOUT);
	CHECK_INT(mempool_buf_free(bufs[0]), MEMPOOL_E_BUSY);
	held_begin(pool_lane(alpha)->cq.cq, 0);
	immortal = lane_qp(pool_lane(alpha));
	r = mempool_write(lease, 0, mempool_buf_bytes(bufs[1]), PAGE);
	held_end();
	immortal = NULL;
	CHECK_INT(r, MEMPOOL_E_TIMEOUT);
	CHECK_INT(mempool_buf_free(bufs[1]), MEMPOOL_E_BUSY);
	/* Others can be had. */
	CHECK_INT(mempool_queue_restore(queue), 0);
	CHECK_INT(mempool_buf_alloc(alpha, PAGE, 0, &bufs[0]), 0);
	CHECK_INT(queues_run(queue, lease, MEMPOOL_OP_WRITE, bufs[0], PAGE), 0);
	CHECK_INT(mempool_write(lease, 0, mempool_buf_bytes(bufs[0]), PAGE), 0);
	CHECK_INT(mempool_buf_free(bufs[0]), 0);
	harness_close(&alpha);
	CHECK_INT(harness_stop(&h), 0);
}

#define TAKEN_WAKEUPS_MAX 50

/*
 * The channel of a device that was taken away is never quiet again, as the end of a pipe that nobody
 * writes to: whoever waits for an idle queue is woken until it has seen that, and no more.
 */
TEST(device__taken_away_from_an_idle_queue)
{
	HARNESS(h, .extra = NO_WAIT);
	SESSION(alpha, "alpha");
	struct mempool_completion completion;
	struct pollfd fd = {.events = POLLIN};
	uint64_t until_ns;
	uint32_t wakeups = 0;
	mempool_queue *queue;
	int ends[2];
	size_t n = 0;

	CHECK_INT(queues_make(alpha, &queue), 0);
	CHECK_INT(pipe2(ends, O_CLOEXEC), 0);
	CHECK_INT(close(ends[1]), 0);
	CHECK_INT(mempool_queue_arm(queue), 0);
	waker_unwatch(&queue->waker);
	CHECK_INT(waker_watch(&queue->waker, ends[0]), 0);
	fd.fd = mempool_queue_fd(queue);
	CHECK_INT(poll(&fd, 1, 0), 1);
	(void)pthread_mutex_lock(&alpha->lock);
	lane_lose(&queue->lane, MEMPOOL_E_LANE, "taken away by the test");
	(void)pthread_mutex_unlock(&alpha->lock);
	until_ns = clock_add_ms(clock_now_ns(), 1000);
	while (clock_now_ns() < until_ns && wakeups < TAKEN_WAKEUPS_MAX) {
		if (poll(&fd, 1, 100) != 1)
			continue;
		wakeups++;
		CHECK_INT(mempool_poll(queue, &completion, 1, &n), 0);
		CHECK_INT(mempool_queue_arm(queue), 0);
	}
	printf("# %u wake-ups in a second\n", wakeups);
	CHECK(wakeups < TAKEN_WAKEUPS_MAX);
	CHECK_INT(mempool_queue_restore(queue), 0);
	CHECK_INT(close(ends[0]), 0);
	harness_close(&alpha);
	CHECK_INT(harness_stop(&h), 0);
}
