/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Queues over a device that does what it is told, when it is told: who is woken, what a failed
 * doorbell leaves, which leases a new lane gets.
 */
#include "client/queue.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "client/lease.h"
#include "client/pool.h"
#include "common/clock.h"
#include "tests/unit/test.h"

#define DEPTH	    8
#define CAPACITY    16
#define BYTES	    64
#define LEASE_BYTES (1 << 20)
#define LONG_MS	    600000
#define LATE_MS	    10000

/* A device with one queue. */

enum post_mode {
	POST_ALL,
	POST_MUTE, /* takes all, and fails without naming one */
	POST_TWO,  /* takes two, and names the third */
};

static struct {
	struct ibv_comp_channel channel;
	struct ibv_cq cq;
	enum post_mode mode;
	bool armed;
	bool cannot_close;
	int refuse; /* what attaching the lease ends with that is not to be had */
	const struct mempool_lease *refused;
	uint32_t posted;
	uint32_t given_back;
	uint32_t ready; /* of those posted so far */
	enum ibv_wc_status status;
	uint32_t closed;
} device;

static void device_open(struct lane *lane)
{
	device.channel.fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
	lane->cq = (struct verbs_cq){.cq = &device.cq, .channel = &device.channel};
	lane->state = LANE_UP;
	lane->incarnation++;
	device.armed = true;
	device.posted = device.given_back = device.ready = 0;
	device.status = IBV_WC_SUCCESS;
}

int __wrap_verbs_post_send(struct ibv_qp *qp, struct ibv_send_wr *wr, struct ibv_send_wr **ret_bad);
int __wrap_verbs_poll_cq(struct ibv_cq *cq, int cap, struct ibv_wc *ret_wc);
int __wrap_verbs_cq_rearm(struct verbs_cq *cq);
int __wrap_lane_open(struct lane *lane, uint64_t deadline_ns);
int __wrap_lane_close(struct lane *lane);
int __wrap_lease_attach(struct mempool_lease *lease, struct lane *lane, uint64_t deadline_ns);

int __wrap_verbs_post_send(struct ibv_qp *qp, struct ibv_send_wr *wr, struct ibv_send_wr **ret_bad)
{
	uint32_t count = 0;

	(void)qp;
	for (; wr != NULL && (device.mode != POST_TWO || count < 2); wr = wr->next)
		count++;
	device.posted += count;
	if (device.mode == POST_ALL)
		return 0;
	*ret_bad = device.mode == POST_MUTE ? NULL : wr;
	return -ENOMEM;
}

int __wrap_verbs_poll_cq(struct ibv_cq *cq, int cap, struct ibv_wc *ret_wc)
{
	int n = 0;

	(void)cq;
	while (n < cap && device.given_back < device.ready) {
		ret_wc[n++] = (struct ibv_wc){.status = device.status};
		device.given_back++;
	}
	return n;
}

int __wrap_verbs_cq_rearm(struct verbs_cq *cq)
{
	uint64_t value;
	ssize_t n = read(cq->channel->fd, &value, sizeof(value));

	(void)n;
	device.armed = true;
	return 0;
}

int __wrap_lane_open(struct lane *lane, uint64_t deadline_ns)
{
	(void)deadline_ns;
	(void)__wrap_lane_close(lane);
	device_open(lane);
	return 0;
}

int __wrap_lane_close(struct lane *lane)
{
	if (lane->cq.cq != NULL) {
		(void)close(device.channel.fd);
		device.closed++;
	}
	lane->cq = (struct verbs_cq){0};
	lane->state = LANE_CLOSED;
	return device.cannot_close ? -EIO : 0;
}

int __wrap_lease_attach(struct mempool_lease *lease, struct lane *lane, uint64_t deadline_ns)
{
	(void)deadline_ns;
	if (lease == device.refused)
		return device.refuse;
	attachment_find(&lease->own, lane)->incarnation = lane->incarnation;
	return 0;
}

/* A queue of it, with two leases and a buffer; the second is the first in the session's list. */

struct scene {
	struct mempool pool;
	struct mempool_queue queue;
	struct mempool_lease leases[2];
	struct mempool_buf buf;
	struct ibv_mr mr;
	struct ibv_pd pd;
	uint64_t words[BYTES / sizeof(uint64_t)];
};

static struct scene scene;

/* @count more are done, and it says so if it was asked to. */
static void device_complete(uint32_t count, enum ibv_wc_status status)
{
	uint64_t one = 1;
	ssize_t n = 0;

	(void)pthread_mutex_lock(&scene.queue.lock);
	device.ready += count;
	device.status = status;
	if (device.armed)
		n = write(device.channel.fd, &one, sizeof(one));
	(void)n; /* it cannot be full */
	device.armed = false;
	(void)pthread_mutex_unlock(&scene.queue.lock);
}

static void make_lease(struct mempool_lease *lease, uint64_t id)
{
	struct attachment *at;

	*lease = (struct mempool_lease){
		.pool = &scene.pool,
		.id = id,
		.len_bytes = LEASE_BYTES,
		.rights = MEMPOOL_READ | MEMPOOL_WRITE | MEMPOOL_ATOMIC,
		.deadline_ns = UINT64_MAX,
	};
	lease->own.lane = &scene.pool.lane;
	lease_link(lease);
	at = attachment_new(&lease->own, &scene.queue.lane);
	CHECK(at != NULL);
	at->incarnation = 1;
	/* Two windows. */
	at->descriptor_count = 2;
	for (uint64_t i = 0; i < 2; i++)
		at->descriptors[i] = (struct message_descriptor){
			.offset_bytes = i * LEASE_BYTES / 2, .len_bytes = LEASE_BYTES / 2};
}

static void make(void)
{
	struct mempool_queue *queue = &scene.queue;
	struct mempool *pool = &scene.pool;

	memset(&scene, 0, sizeof(scene));
	memset(&device, 0, sizeof(device));
	CHECK_INT(pthread_mutex_init(&pool->lock, NULL), 0);
	CHECK_INT(memory_init(&pool->memory), 0);
	pool->control.welcomed = true;
	pool->timeout_ms = LATE_MS;
	CHECK_INT(pthread_mutex_init(&queue->lock, NULL), 0);
	CHECK_INT(waker_init(&queue->waker), 0);
	CHECK_INT(operations_init(&queue->operations, CAPACITY), 0);
	queue->pool = pool;
	queue->depth = DEPTH;
	queue->due_ns = UINT64_MAX;
	queue->flight = calloc(DEPTH, sizeof(*queue->flight));
	queue->wrs = calloc(DEPTH, sizeof(*queue->wrs));
	queue->sges = calloc(DEPTH, sizeof(*queue->sges));
	queue->lane.pool = pool;
	queue->lane.quiet = true;
	queue->lane.message_max_bytes = LEASE_BYTES;
	queue->lane.pd = &scene.pd;
	device_open(&queue->lane);
	CHECK_INT(waker_watch(&queue->waker, device.channel.fd), 0);
	scene.mr.pd = &scene.pd;
	scene.buf = (struct mempool_buf){.pool = pool,
					 .live = true,
					 .bytes = (uint8_t *)scene.words,
					 .len_bytes = LEASE_BYTES,
					 .mr = &scene.mr};
	for (int i = 0; i < 2; i++)
		make_lease(&scene.leases[i], (uint64_t)i + 1);
}

static void finish(void)
{
	CHECK_INT(scene.queue.strays, 0);
	queue_give_up(&scene.queue);
	waker_deinit(&scene.queue.waker);
	operations_deinit(&scene.queue.operations);
	free(scene.queue.flight);
	free(scene.queue.wrs);
	free(scene.queue.sges);
	for (int i = 0; i < 2; i++)
		attachment_free_rest(&scene.leases[i].own);
	memory_deinit(&scene.pool.memory);
}

static void submit(uint32_t kind, uint64_t len_bytes, uint64_t at_bytes, uint32_t timeout_ms)
{
	struct mempool_op op = {
		.lease = &scene.leases[0],
		.offset_bytes = at_bytes,
		.len_bytes = len_bytes,
		.bytes = scene.words,
		.buf = &scene.buf,
		.kind = kind,
		.timeout_ms = timeout_ms,
	};
	size_t n = 0;

	CHECK_INT(mempool_submit(&scene.queue, &op, 1, &n), 0);
	CHECK_INT(n, 1);
}

/* The codes of what is reported now, in their order. */
static size_t report(int *codes)
{
	struct mempool_completion done[CAPACITY];
	size_t n = 0;

	if (mempool_poll(&scene.queue, done, CAPACITY, &n) != 0)
		return 0;
	for (size_t i = 0; i < n; i++)
		codes[i] = done[i].code;
	return n;
}

static bool is_readable(int wait_ms)
{
	struct pollfd fd = {.fd = mempool_queue_fd(&scene.queue), .events = POLLIN};

	return poll(&fd, 1, wait_ms) == 1;
}

static void lose_lane(void)
{
	(void)pthread_mutex_lock(&scene.pool.lock);
	lane_lose(&scene.queue.lane, MEMPOOL_E_LANE, "");
	(void)pthread_mutex_unlock(&scene.pool.lock);
}

/* Wake-ups. */

TEST(mempool_queue_restore__says_what_the_old_channel_would_have)
{
	int codes[CAPACITY];

	make();
	submit(MEMPOOL_OP_READ, BYTES, 0, LONG_MS);
	CHECK_INT(mempool_queue_arm(&scene.queue), 0);
	CHECK(!is_readable(0));
	lose_lane();
	device_complete(1, IBV_WC_WR_FLUSH_ERR);
	CHECK_INT(mempool_queue_restore(&scene.queue), 0);
	CHECK(is_readable(0));
	CHECK_INT(report(codes), 1);
	CHECK_INT(codes[0], MEMPOOL_E_LANE);
	CHECK_INT(mempool_queue_arm(&scene.queue), 0);
	CHECK(!is_readable(0));
	/* The new lane's is watched. */
	submit(MEMPOOL_OP_READ, BYTES, 0, LONG_MS);
	device_complete(1, IBV_WC_SUCCESS);
	CHECK(is_readable(0));
	CHECK_INT(report(codes), 1);
	CHECK_INT(codes[0], 0);
	finish();
}

/* One polls, and so gives the lane up, beside the one who has armed the queue. */
TEST(mempool_poll__says_what_the_channel_of_a_lost_lane_would_have)
{
	struct mempool_completion done;
	size_t n = 0;

	make();
	for (int i = 0; i < 2; i++)
		submit(MEMPOOL_OP_READ, BYTES, 0, LONG_MS);
	CHECK_INT(mempool_queue_arm(&scene.queue), 0);
	lose_lane();
	device_complete(2, IBV_WC_WR_FLUSH_ERR);
	CHECK_INT(mempool_poll(&scene.queue, &done, 1, &n), 0);
	CHECK_INT(n, 1);
	CHECK_INT(device.closed, 1);
	CHECK(is_readable(0));
	finish();
}

TEST(mempool_flush__leaves_what_is_done_to_who_has_armed_the_queue)
{
	int codes[CAPACITY];

	make();
	for (int i = 0; i < 2; i++)
		submit(MEMPOOL_OP_READ, BYTES, 0, LONG_MS);
	device_complete(1, IBV_WC_SUCCESS);
	CHECK_INT(mempool_queue_arm(&scene.queue), 0);
	CHECK_INT(mempool_flush(&scene.queue, 1), MEMPOOL_E_TIMEOUT);
	CHECK(is_readable(0));
	CHECK_INT(report(codes), 1);
	/* And what it has found itself. */
	CHECK_INT(mempool_queue_arm(&scene.queue), 0);
	CHECK(!is_readable(0));
	submit(MEMPOOL_OP_READ, BYTES, 0, LONG_MS);
	device_complete(1, IBV_WC_SUCCESS);
	CHECK_INT(mempool_flush(&scene.queue, 1), MEMPOOL_E_TIMEOUT);
	CHECK(is_readable(0));
	CHECK_INT(report(codes), 1);
	device_complete(1, IBV_WC_SUCCESS);
	CHECK_INT(mempool_flush(&scene.queue, 1), 0);
	CHECK(is_readable(0));
	finish();
}

static void *flush(void *arg)
{
	*(int *)arg = mempool_flush(&scene.queue, LONG_MS);
	return NULL;
}

static bool wait_flushing(uint32_t count)
{
	uint64_t until_ns = clock_add_ms(clock_now_ns(), LATE_MS);
	uint32_t flushing = 0;

	while (flushing != count && clock_now_ns() < until_ns) {
		(void)usleep(100);
		(void)pthread_mutex_lock(&scene.queue.lock);
		flushing = scene.queue.waker.flushing;
		(void)pthread_mutex_unlock(&scene.queue.lock);
	}
	return flushing == count;
}

static bool wait_done(uint32_t count)
{
	uint64_t until_ns = clock_add_ms(clock_now_ns(), LATE_MS);
	uint32_t done = 0;

	while (done != count && clock_now_ns() < until_ns) {
		(void)usleep(100);
		(void)pthread_mutex_lock(&scene.queue.lock);
		done = scene.queue.operations.done.count;
		(void)pthread_mutex_unlock(&scene.queue.lock);
	}
	return done == count;
}

/* Whoever takes what the channel has told, or ends the last one without it, wakes all flushes. */
static void end_beside_flushes(void (*end)(void))
{
	pthread_t threads[2];
	int codes[2] = {1, 1};

	make();
	for (int i = 0; i < DEPTH + 1; i++)
		submit(MEMPOOL_OP_READ, BYTES, 0, LONG_MS);
	for (int i = 0; i < 2; i++)
		CHECK_INT(pthread_create(&threads[i], NULL, flush, &codes[i]), 0);
	CHECK(wait_flushing(2));
	end();
	CHECK(wait_flushing(0));
	for (int i = 0; i < 2; i++) {
		CHECK_INT(pthread_join(threads[i], NULL), 0);
		CHECK_INT(codes[i], 0);
	}
	CHECK(!scene.queue.waker.idle);
	finish();
}

static void end_by_arming(void)
{
	size_t n = 0;

	CHECK_INT(mempool_cancel(&scene.queue, 0, &n), 0);
	CHECK_INT(n, 1);
	/* As if the channel had been drained before those who flush have looked. */
	(void)pthread_mutex_lock(&scene.queue.lock);
	device.ready += DEPTH;
	(void)pthread_mutex_unlock(&scene.queue.lock);
	CHECK_INT(mempool_queue_arm(&scene.queue), 0);
	CHECK(is_readable(0));
}

static void end_by_polling(void)
{
	int codes[CAPACITY];
	size_t n = 0;

	CHECK_INT(mempool_cancel(&scene.queue, 0, &n), 0);
	(void)pthread_mutex_lock(&scene.queue.lock);
	device.ready += DEPTH;
	(void)pthread_mutex_unlock(&scene.queue.lock);
	CHECK_INT(report(codes), DEPTH + 1);
}

TEST(mempool_flush__beside_one_who_arms)
{
	end_beside_flushes(end_by_arming);
}

TEST(mempool_flush__beside_one_who_polls)
{
	end_beside_flushes(end_by_polling);
}

/* What is due before all else is submitted while somebody flushes. */
TEST(mempool_flush__deadline_that_comes_later)
{
	pthread_t thread;
	int codes[CAPACITY];
	int code = 1;

	make();
	for (int i = 0; i < DEPTH; i++)
		submit(MEMPOOL_OP_READ, BYTES, 0, LONG_MS);
	CHECK_INT(pthread_create(&thread, NULL, flush, &code), 0);
	CHECK(wait_flushing(1));
	(void)usleep(20000);
	submit(MEMPOOL_OP_READ, BYTES, 0, 20);
	/* It is the one who flushes that looks. */
	CHECK(wait_done(1));
	CHECK_INT(report(codes), 1);
	CHECK_INT(codes[0], MEMPOOL_E_TIMEOUT);
	device_complete(DEPTH, IBV_WC_SUCCESS);
	CHECK_INT(pthread_join(thread, NULL), 0);
	CHECK_INT(code, 0);
	finish();
}

/* A lost lane goes with nothing in flight, too: its channel may never be quiet again. */
TEST(mempool_queue_arm__lane_lost_while_idle)
{
	make();
	CHECK_INT(mempool_queue_arm(&scene.queue), 0);
	CHECK_INT(device.closed, 0);
	lose_lane();
	CHECK_INT(mempool_queue_arm(&scene.queue), 0);
	CHECK_INT(device.closed, 1);
	CHECK_INT(scene.queue.waker.channel_fd, -1);
	CHECK(!is_readable(0));
	finish();
}

/* Doorbells that fail. */

static void submit_chain(struct mempool_op *ops, size_t count)
{
	size_t n = 0;

	for (size_t i = 0; i < count; i++)
		ops[i] = (struct mempool_op){
			.cookie = i,
			.lease = &scene.leases[0],
			.len_bytes = 8,
			.bytes = scene.words,
			.buf = &scene.buf,
			.kind = i % 2 == 0 ? MEMPOOL_OP_WRITE : MEMPOOL_OP_FETCH_ADD,
			.timeout_ms = LONG_MS,
		};
	CHECK_INT(mempool_submit(&scene.queue, ops, count, &n), 0);
	CHECK_INT(n, count);
}

/* It may have taken all: none is over, nor is its memory let go, before it has come back. */
TEST(mempool_submit__doorbell_fails_and_names_none)
{
	struct mempool_op ops[6];
	int codes[CAPACITY];

	make();
	submit(MEMPOOL_OP_READ, BYTES, 0, LONG_MS);
	device.mode = POST_MUTE;
	submit_chain(ops, 6);
	CHECK_INT(report(codes), 0);
	CHECK_INT(scene.buf.users, 7);
	CHECK_INT(queue_in_flight(&scene.queue), 7);
	/* The first has succeeded nevertheless, and one of those. */
	device_complete(2, IBV_WC_SUCCESS);
	CHECK_INT(report(codes), 2);
	CHECK_INT(codes[0], 0);
	CHECK_INT(codes[1], 0);
	device_complete(5, IBV_WC_WR_FLUSH_ERR);
	CHECK_INT(report(codes), 5);
	for (int i = 0; i < 5; i++)
		CHECK_INT(codes[i], i % 2 == 0 ? MEMPOOL_E_UNKNOWN : MEMPOOL_E_LANE);
	CHECK_INT(scene.buf.users, 0);
	CHECK_INT(scene.leases[0].users, 0);
	finish();
}

/* It never got there: then they are over when there is no QP any more. */
TEST(mempool_submit__doorbell_fails_and_nothing_comes_back)
{
	struct mempool_op ops[2];
	int codes[CAPACITY];
	size_t n = 0;

	make();
	device.mode = POST_MUTE;
	submit_chain(ops, 2);
	CHECK_INT(report(codes), 0);
	while (n == 0)
		n = report(codes);
	CHECK_INT(n, 2);
	CHECK_INT(device.closed, 1);
	CHECK_INT(codes[0], MEMPOOL_E_LANE);
	CHECK_INT(codes[1], MEMPOOL_E_UNKNOWN);
	CHECK_INT(scene.buf.users, 0);
	finish();
}

TEST(mempool_submit__doorbell_fails_and_names_the_third)
{
	struct mempool_op ops[6];
	int codes[CAPACITY];

	make();
	device.mode = POST_TWO;
	submit_chain(ops, 6);
	CHECK_INT(report(codes), 4);
	for (int i = 0; i < 4; i++)
		CHECK_INT(codes[i], MEMPOOL_E_LANE);
	device_complete(2, IBV_WC_WR_FLUSH_ERR);
	CHECK_INT(report(codes), 2);
	CHECK_INT(codes[0], MEMPOOL_E_LANE);
	CHECK_INT(codes[1], MEMPOOL_E_UNKNOWN);
	finish();
}

/* The QP cannot be destroyed: the memory stays held. */
TEST(mempool_poll__device_keeps_what_it_was_given)
{
	int codes[CAPACITY];
	size_t n = 0;

	make();
	device.cannot_close = true;
	submit(MEMPOOL_OP_READ, BYTES, 0, 1);
	while (n == 0)
		n = report(codes);
	CHECK_INT(n, 1);
	CHECK_INT(codes[0], MEMPOOL_E_TIMEOUT);
	CHECK_INT(scene.buf.users, 1);
	CHECK_INT(scene.leases[0].users, 0);
	finish();
}

/* A device that gives back more than it was given is not believed. */
TEST(mempool_poll__more_comes_back_than_was_posted)
{
	int codes[CAPACITY];

	make();
	submit(MEMPOOL_OP_READ, BYTES, 0, LONG_MS);
	device_complete(3, IBV_WC_SUCCESS);
	CHECK_INT(report(codes), 1);
	CHECK_INT(codes[0], 0);
	CHECK_INT(scene.queue.strays, 2);
	scene.queue.strays = 0;
	finish();
}

/* Of two pieces the first has come back, and the deadline passes: others are left alone. */
TEST(mempool_poll__deadline_between_two_pieces)
{
	int codes[CAPACITY];

	make();
	for (int i = 0; i < DEPTH - 1; i++)
		submit(MEMPOOL_OP_READ, BYTES, 0, LONG_MS);
	submit(MEMPOOL_OP_READ, BYTES, LEASE_BYTES / 2 - BYTES / 2, 20);
	submit(MEMPOOL_OP_READ, BYTES, 0, LONG_MS);
	CHECK_INT(device.posted, DEPTH);
	(void)usleep(50000);
	device_complete(DEPTH, IBV_WC_SUCCESS);
	CHECK_INT(report(codes), DEPTH);
	CHECK_INT(codes[DEPTH - 1], MEMPOOL_E_TIMEOUT);
	CHECK_INT(scene.queue.lane.state, LANE_UP);
	device_complete(1, IBV_WC_SUCCESS);
	CHECK_INT(report(codes), 1);
	CHECK_INT(codes[0], 0);
	finish();
}

/* Leases. */

TEST(mempool_queue_restore__goes_on_after_one_that_fails)
{
	struct attachment *at;

	make();
	lose_lane();
	/* The first that is asked for. */
	CHECK(scene.pool.leases == &scene.leases[1]);
	device.refused = &scene.leases[1];
	device.refuse = MEMPOOL_E_QUOTA_WINDOWS;
	CHECK_INT(mempool_queue_restore(&scene.queue), MEMPOOL_E_QUOTA_WINDOWS);
	for (int i = 0; i < 2; i++) {
		at = attachment_find(&scene.leases[i].own, &scene.queue.lane);
		CHECK_INT(attachment_is_good(at), i == 0);
		CHECK_INT(scene.leases[i].queued, 0);
	}
	device.refuse = MEMPOOL_E_LANE_STATE;
	CHECK_INT(mempool_queue_restore(&scene.queue), MEMPOOL_E_LANE);
	/* One that has ended is none that has failed. */
	scene.leases[1].end_reason = MEMPOOL_E_EXPIRED;
	CHECK_INT(mempool_queue_restore(&scene.queue), 0);
	device.refused = NULL;
	scene.leases[1].end_reason = 0;
	CHECK_INT(mempool_queue_restore(&scene.queue), 0);
	CHECK(attachment_is_good(at));
	finish();
}
