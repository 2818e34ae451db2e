/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Leases of a queue: those that the daemon refuses, those that are being changed, and lanes that
 * are not there any more when they are attached.
 */
#include <pthread.h>
#include <stdatomic.h>
#include <unistd.h>

#include "client/lane.h"
#include "client/lease.h"
#include "client/pool.h"
#include "client/queue.h"
#include "common/clock.h"
#include "tests/integration/harness.h"
#include "tests/integration/held.h"
#include "tests/integration/queues.h"
#include "tests/integration/told.h"

#define PAGE	 4096
#define TTL_MS	 600000
#define LIMIT_MS 30000
#define KEEPING	 "\"orphan_grace\": \"1min\", \"lane_wait_min\": \"0\""

static void lose_lane(mempool *pool, struct lane *lane)
{
	(void)pthread_mutex_lock(&pool->lock);
	lane_lose(lane, MEMPOOL_E_LANE, "lost by the test");
	(void)pthread_mutex_unlock(&pool->lock);
}

/* One that is refused is not attached, then or later, and takes nobody's place. */
TEST(queue_attach__refused)
{
	HARNESS(h, .extra = "\"lane_wait_min\": \"0\", \"lane_leases_max\": 2");
	SESSION(alpha, "alpha");
	mempool_lease *leases[3];
	mempool_queue *queue;
	mempool_buf *buf;

	CHECK_INT(queues_make(alpha, &queue), 0);
	CHECK_INT(mempool_buf_alloc(alpha, PAGE, 0, &buf), 0);
	for (int i = 0; i < 3; i++) {
		/* The session's own lane has room for two as well. */
		if (i == 2)
			lose_lane(alpha, pool_lane(alpha));
		CHECK_INT(harness_acquire(alpha, PAGE, TTL_MS, &leases[i]), 0);
		CHECK_INT(mempool_queue_attach(queue, leases[i]),
			  i < 2 ? 0 : MEMPOOL_E_LANE_LEASES_MAX);
	}
	CHECK_INT(queues_run(queue, leases[2], MEMPOOL_OP_READ, buf, PAGE), MEMPOOL_E_STATE);
	CHECK_INT(mempool_queue_restore(queue), 0);
	lose_lane(alpha, &queue->lane);
	CHECK_INT(mempool_queue_restore(queue), 0);
	for (int i = 0; i < 2; i++)
		CHECK_INT(queues_run(queue, leases[i], MEMPOOL_OP_WRITE, buf, PAGE), 0);
	CHECK_INT(queues_run(queue, leases[2], MEMPOOL_OP_READ, buf, PAGE), MEMPOOL_E_STATE);
	CHECK_INT(mempool_queue_attach(queue, leases[2]), MEMPOOL_E_LANE_LEASES_MAX);
	CHECK_INT(mempool_release(leases[0]), 0);
	CHECK_INT(mempool_queue_attach(queue, leases[2]), 0);
	CHECK_INT(queues_run(queue, leases[2], MEMPOOL_OP_WRITE, buf, PAGE), 0);
	harness_close(&alpha);
	CHECK_INT(harness_stop(&h), 0);
}

/* One of several cannot be attached again: the others are, and it is told. */
TEST(queue_attach__restored_but_for_one)
{
	HARNESS(h, .extra = "\"lane_wait_min\": \"0\", \"lane_leases_max\": 2");
	SESSION(alpha, "alpha");
	mempool_lease *leases[3];
	mempool_queue *queue;
	mempool_buf *buf;
	uint32_t works = 0;

	CHECK_INT(queues_make(alpha, &queue), 0);
	CHECK_INT(mempool_buf_alloc(alpha, PAGE, 0, &buf), 0);
	for (int i = 0; i < 3; i++) {
		lose_lane(alpha, pool_lane(alpha));
		CHECK_INT(harness_acquire(alpha, PAGE, TTL_MS, &leases[i]), 0);
		/* Each is attached once, two of them at a time. */
		lose_lane(alpha, &queue->lane);
		CHECK_INT(mempool_queue_attach(queue, leases[i]), 0);
	}
	lose_lane(alpha, &queue->lane);
	CHECK_INT(mempool_queue_restore(queue), MEMPOOL_E_LANE_LEASES_MAX);
	for (int i = 0; i < 3; i++)
		works += queues_run(queue, leases[i], MEMPOOL_OP_WRITE, buf, PAGE) == 0;
	CHECK_INT(works, 2);
	harness_close(&alpha);
	CHECK_INT(harness_stop(&h), 0);
}

/* A change that waits for what is in flight is not stopped by one that attaches the lease. */

struct change {
	mempool_lease *lease;
	atomic_bool over;
	int r;
};

static void *change(void *arg)
{
	struct change *c = arg;

	c->r = mempool_modify(c->lease, PAGE, MEMPOOL_READ | MEMPOOL_WRITE);
	atomic_store(&c->over, true);
	return NULL;
}

static bool wait_quiescing(mempool *pool, const mempool_lease *lease)
{
	uint64_t until_ns = clock_add_ms(clock_now_ns(), LIMIT_MS);
	bool quiescing = false;

	while (!quiescing && clock_now_ns() < until_ns) {
		(void)usleep(1000);
		(void)pthread_mutex_lock(&pool->lock);
		quiescing = lease->quiescing;
		(void)pthread_mutex_unlock(&pool->lock);
	}
	return quiescing;
}

TEST(queue_attach__attached_while_it_is_modified)
{
	HARNESS(h, .extra = KEEPING);
	SESSION(alpha, "alpha");
	static struct change c;
	struct mempool_op op = {.kind = MEMPOOL_OP_READ, .len_bytes = PAGE};
	bool quiescing;
	mempool_queue *queue;
	mempool_buf *buf;
	pthread_t thread;
	int codes[1];
	int attached;
	size_t n = 0;

	c = (struct change){.r = 1};
	CHECK_INT(queues_make(alpha, &queue), 0);
	CHECK_INT(mempool_buf_alloc(alpha, PAGE, 0, &buf), 0);
	CHECK_INT(harness_acquire(alpha, 2 * PAGE, TTL_MS, &c.lease), 0);
	CHECK_INT(mempool_queue_attach(queue, c.lease), 0);
	op.lease = c.lease;
	op.buf = buf;
	op.bytes = mempool_buf_bytes(buf);
	held_begin(queue->lane.cq.cq, 0);
	CHECK_INT(mempool_submit(queue, &op, 1, &n), 0);
	CHECK_INT(pthread_create(&thread, NULL, change, &c), 0);
	quiescing = wait_quiescing(alpha, c.lease);
	attached = mempool_queue_attach(queue, c.lease);
	quiescing = quiescing && !atomic_load(&c.over);
	held_end();
	n = 0;
	CHECK_INT(queues_collect(queue, 1, codes), 0);
	CHECK_INT(pthread_join(thread, NULL), 0);
	CHECK(quiescing);
	CHECK_INT(attached, 0);
	CHECK_INT(codes[0], 0);
	CHECK_INT(c.r, 0);
	CHECK_INT(queues_run(queue, c.lease, MEMPOOL_OP_WRITE, buf, PAGE), 0);
	harness_close(&alpha);
	CHECK_INT(harness_stop(&h), 0);
}

/* The number of a lane that is lost may be that of another one in the next session. */
TEST(queue_attach__lane_of_the_session_before)
{
	HARNESS(h, .extra = KEEPING);
	struct mempool_connect_opts opts = {.reconnect_ms = UINT32_MAX};
	__attribute__((cleanup(harness_close))) mempool *alpha = NULL;
	mempool_queue *early, *late;
	mempool_lease *lease;
	mempool_buf *buf;

	CHECK_INT(told_connect("alpha", &opts, &alpha), 0);
	CHECK_INT(queues_make(alpha, &early), 0);
	CHECK_INT(queues_make(alpha, &late), 0);
	CHECK_INT(mempool_buf_alloc(alpha, PAGE, 0, &buf), 0);
	CHECK_INT(harness_acquire(alpha, PAGE, TTL_MS, &lease), 0);
	told_cut(alpha);
	CHECK(told_wait(alpha, MEMPOOL_EVENT_SESSION_LOST, LIMIT_MS, NULL));
	CHECK(told_wait(alpha, MEMPOOL_EVENT_SESSION_RESTORED, LIMIT_MS, NULL));
	CHECK_INT(mempool_queue_restore(late), 0);
	(void)pthread_mutex_lock(&alpha->lock);
	early->lane.number = late->lane.number;
	(void)pthread_mutex_unlock(&alpha->lock);
	/* As if the session had been lost after the lane was found to be up. */
	CHECK_INT(lease_attach(lease, &early->lane, pool_deadline(alpha)), MEMPOOL_E_LANE);
	CHECK(!lease_is_attached(lease, &early->lane));
	CHECK_INT(mempool_queue_attach(late, lease), 0);
	CHECK_INT(queues_run(late, lease, MEMPOOL_OP_WRITE, buf, PAGE), 0);
	CHECK_INT(mempool_queue_attach(early, lease), 0);
	CHECK_INT(queues_run(early, lease, MEMPOOL_OP_READ, buf, PAGE), 0);
	harness_close(&alpha);
	CHECK_INT(harness_stop(&h), 0);
}
