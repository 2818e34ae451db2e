/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What wakes those who wait for a queue: whoever has armed its descriptor, or flushes, learns of
 * what is done, whatever others do with the queue meanwhile.
 */
#include <inttypes.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "client/lane.h"
#include "client/pool.h"
#include "client/queue.h"
#include "common/clock.h"
#include "tests/integration/harness.h"
#include "tests/integration/held.h"
#include "tests/integration/queues.h"
#include "tests/unit/random.h"

#define PAGE	 4096
#define TTL_MS	 600000
#define OP_MS	 600000 /* no deadline of an operation wakes anybody */
#define FLUSH_MS 60000
#define LATE_MS	 1000
#define LOOP_OPS 4
#define NO_WAIT	 "\"lane_wait_min\": \"0\""

/* A queue with a lease and a buffer. */
struct scene {
	mempool *pool;
	mempool_lease *lease;
	mempool_queue *queue;
	mempool_buf *buf;
};

static void make(mempool *pool, struct scene *scene)
{
	*scene = (struct scene){.pool = pool};
	CHECK_INT(harness_acquire(pool, PAGE, TTL_MS, &scene->lease), 0);
	CHECK_INT(mempool_buf_alloc(pool, PAGE, 0, &scene->buf), 0);
	CHECK_INT(queues_make(pool, &scene->queue), 0);
	CHECK_INT(mempool_queue_attach(scene->queue, scene->lease), 0);
}

static bool submit(const struct scene *scene, uint64_t cookie)
{
	struct mempool_op op = {
		.cookie = cookie,
		.lease = scene->lease,
		.len_bytes = PAGE,
		.bytes = mempool_buf_bytes(scene->buf),
		.buf = scene->buf,
		.kind = MEMPOOL_OP_READ,
		.timeout_ms = OP_MS,
	};
	size_t n = 0;

	return mempool_submit(scene->queue, &op, 1, &n) == 0 && n == 1;
}

static bool is_readable(mempool_queue *queue, int wait_ms)
{
	struct pollfd fd = {.fd = mempool_queue_fd(queue), .events = POLLIN};

	return poll(&fd, 1, wait_ms) == 1;
}

/* Return: how many were reported. */
static size_t report(mempool_queue *queue)
{
	struct mempool_completion done[QUEUES_OPS_MAX];
	size_t n = 0;

	return mempool_poll(queue, done, QUEUES_OPS_MAX, &n) == 0 ? n : 0;
}

static void lose_lane(const struct scene *scene)
{
	(void)pthread_mutex_lock(&scene->pool->lock);
	lane_lose(&scene->queue->lane, MEMPOOL_E_LANE, "lost by the test");
	(void)pthread_mutex_unlock(&scene->pool->lock);
}

/*
 * The lane is opened anew before whoever armed the queue has looked: what the old lane's channel
 * had to tell is not lost with it.
 */
static void lane_is_opened_anew(bool by_attach)
{
	HARNESS(h, .extra = NO_WAIT);
	SESSION(alpha, "alpha");
	struct scene scene;
	mempool_lease *other;

	make(alpha, &scene);
	CHECK(!test_has_failed());
	CHECK_INT(harness_acquire(alpha, PAGE, TTL_MS, &other), 0);
	held_begin(scene.queue->lane.cq.cq, 0);
	CHECK(submit(&scene, 0));
	CHECK_INT(mempool_queue_arm(scene.queue), 0);
	lose_lane(&scene);
	held_end();
	if (by_attach)
		CHECK_INT(mempool_queue_attach(scene.queue, other), 0);
	else
		CHECK_INT(mempool_queue_restore(scene.queue), 0);
	CHECK(is_readable(scene.queue, 0));
	CHECK_INT(report(scene.queue), 1);
	CHECK_INT(mempool_queue_arm(scene.queue), 0);
	CHECK(!is_readable(scene.queue, 100));
	/* The new lane tells, too. */
	CHECK_INT(mempool_queue_restore(scene.queue), 0);
	CHECK(submit(&scene, 0));
	CHECK_INT(mempool_queue_arm(scene.queue), 0);
	CHECK(is_readable(scene.queue, FLUSH_MS));
	CHECK_INT(mempool_flush(scene.queue, 0), 0);
	CHECK_INT(report(scene.queue), 1);
	harness_close(&alpha);
	CHECK_INT(harness_stop(&h), 0);
}

TEST(queue_wake__armed_and_restored)
{
	lane_is_opened_anew(false);
}

TEST(queue_wake__armed_and_attached)
{
	lane_is_opened_anew(true);
}

/* One that flushes, and gives up, leaves what is done to whoever has armed the queue. */
TEST(queue_wake__flush_takes_nothing_away)
{
	HARNESS(h, .extra = NO_WAIT);
	SESSION(alpha, "alpha");
	struct epoll_event event = {.events = EPOLLIN | EPOLLET};
	struct scene scene;
	int fd = epoll_create1(EPOLL_CLOEXEC);

	make(alpha, &scene);
	CHECK(!test_has_failed());
	CHECK(fd >= 0);
	CHECK_INT(epoll_ctl(fd, EPOLL_CTL_ADD, mempool_queue_fd(scene.queue), &event), 0);
	CHECK_INT(mempool_queue_arm(scene.queue), 0);
	(void)epoll_wait(fd, &event, 1, 0);
	/* Done before it flushes ... */
	held_begin(scene.queue->lane.cq.cq, 1);
	CHECK(submit(&scene, 0));
	CHECK(submit(&scene, 1));
	while (held_left() > 0)
		CHECK_INT(mempool_queue_arm(scene.queue), 0);
	CHECK_INT(mempool_flush(scene.queue, 1), MEMPOOL_E_TIMEOUT);
	CHECK(is_readable(scene.queue, 0));
	CHECK_INT(epoll_wait(fd, &event, 1, 0), 1);
	CHECK_INT(report(scene.queue), 1);
	/* ... and by what it has found itself. */
	CHECK_INT(mempool_queue_arm(scene.queue), 0);
	CHECK(submit(&scene, 2));
	held_let(1);
	while (held_left() > 0)
		CHECK_INT(mempool_flush(scene.queue, 1), MEMPOOL_E_TIMEOUT);
	CHECK(is_readable(scene.queue, 0));
	CHECK_INT(epoll_wait(fd, &event, 1, 0), 1);
	CHECK_INT(report(scene.queue), 1);
	CHECK_INT(mempool_queue_arm(scene.queue), 0);
	held_end();
	CHECK_INT(mempool_flush(scene.queue, 0), 0);
	CHECK(is_readable(scene.queue, 0));
	CHECK_INT(report(scene.queue), 1);
	CHECK_INT(close(fd), 0);
	harness_close(&alpha);
	CHECK_INT(harness_stop(&h), 0);
}

/* One flushes all the time while another has an event loop: none misses the end. */

struct flusher {
	mempool_queue *queue;
	atomic_uint turns;
	atomic_uint failures;
	atomic_bool stop;
};

static void *flush_always(void *arg)
{
	struct flusher *flusher = arg;

	while (!atomic_load(&flusher->stop)) {
		if (mempool_flush(flusher->queue, FLUSH_MS) < 0)
			(void)atomic_fetch_add(&flusher->failures, 1);
		(void)atomic_fetch_add(&flusher->turns, 1);
	}
	return NULL;
}

/* Return: has it been woken for all there was? */
static bool turn_loop(const struct scene *scene, int fd, uint32_t count)
{
	struct epoll_event event;
	size_t done = 0;
	size_t n;

	for (uint32_t i = 0; i < count; i++)
		(void)submit(scene, i);
	for (;;) {
		do {
			n = report(scene->queue);
			done += n;
		} while (n > 0);
		(void)mempool_queue_arm(scene->queue);
		if (done >= count)
			return true;
		if (epoll_wait(fd, &event, 1, FLUSH_MS) != 1)
			return false;
	}
}

/* Return: has the flush that was under way returned? */
static bool flush_returns(struct flusher *flusher)
{
	uint64_t until_ns = clock_add_ms(clock_now_ns(), LATE_MS);
	unsigned int turns = atomic_load(&flusher->turns);

	while (atomic_load(&flusher->turns) == turns) {
		if (clock_now_ns() >= until_ns)
			return false;
		(void)usleep(50);
	}
	return true;
}

TEST(queue_wake__flush_beside_an_event_loop)
{
	HARNESS(h, .extra = NO_WAIT);
	SESSION(alpha, "alpha");
	uint32_t rounds = harness_figure(FIGURE_FLUSHES);
	struct epoll_event event = {.events = EPOLLIN | EPOLLET};
	static struct flusher flushers[2];
	struct random random = random_start();
	pthread_t threads[2];
	struct scene scene;
	uint32_t missed = 0;
	int fd = epoll_create1(EPOLL_CLOEXEC);

	make(alpha, &scene);
	CHECK(!test_has_failed());
	CHECK(fd >= 0);
	CHECK_INT(epoll_ctl(fd, EPOLL_CTL_ADD, mempool_queue_fd(scene.queue), &event), 0);
	for (int i = 0; i < 2; i++) {
		flushers[i] = (struct flusher){.queue = scene.queue};
		CHECK_INT(pthread_create(&threads[i], NULL, flush_always, &flushers[i]), 0);
	}
	for (uint32_t round = 0; round < rounds && missed == 0; round++) {
		uint32_t count = 1 + (uint32_t)random_below(&random, LOOP_OPS);

		missed += !turn_loop(&scene, fd, count);
		for (int i = 0; i < 2; i++)
			missed += !flush_returns(&flushers[i]);
	}
	for (int i = 0; i < 2; i++) {
		atomic_store(&flushers[i].stop, true);
		CHECK_INT(pthread_join(threads[i], NULL), 0);
		printf("# flushed %u times\n", atomic_load(&flushers[i].turns));
		CHECK_INT(atomic_load(&flushers[i].failures), 0);
	}
	CHECK_INT(missed, 0);
	CHECK_INT(close(fd), 0);
	harness_close(&alpha);
	CHECK_INT(harness_stop(&h), 0);
}

/* Operations of another thread's that end without the device end the flush, too. */

static void *flush_once(void *arg)
{
	struct flusher *flusher = arg;

	if (mempool_flush(flusher->queue, FLUSH_MS) < 0)
		(void)atomic_fetch_add(&flusher->failures, 1);
	(void)atomic_fetch_add(&flusher->turns, 1);
	return NULL;
}

TEST(queue_wake__last_one_ends_without_the_device)
{
	HARNESS(h, .extra = NO_WAIT);
	SESSION(alpha, "alpha");
	struct mempool_queue_opts opts = {.size = sizeof(opts), .depth = 1, .capacity = 4};
	static struct flusher flusher;
	struct scene scene;
	pthread_t thread;
	bool returned;
	size_t n = 0;
	int r;

	make(alpha, &scene);
	CHECK(!test_has_failed());
	mempool_queue_destroy(scene.queue);
	CHECK_INT(mempool_queue_create(alpha, &opts, &scene.queue), 0);
	CHECK_INT(mempool_queue_attach(scene.queue, scene.lease), 0);
	flusher = (struct flusher){.queue = scene.queue};
	held_begin(scene.queue->lane.cq.cq, 0);
	CHECK(submit(&scene, 0));
	CHECK(submit(&scene, 1));
	CHECK_INT(pthread_create(&thread, NULL, flush_once, &flusher), 0);
	harness_sleep_ms(200);
	/* It sleeps; what it would be woken for has come and is not to be had yet. */
	r = mempool_cancel(scene.queue, 1, &n);
	held_let(1);
	while (report(scene.queue) == 0 || held_left() > 0)
		;
	held_end();
	returned = atomic_load(&flusher.turns) > 0 || flush_returns(&flusher);
	CHECK_INT(pthread_join(thread, NULL), 0);
	CHECK_INT(r, 0);
	CHECK_INT(n, 1);
	CHECK(returned);
	CHECK_INT(atomic_load(&flusher.failures), 0);
	harness_close(&alpha);
	CHECK_INT(harness_stop(&h), 0);
}
