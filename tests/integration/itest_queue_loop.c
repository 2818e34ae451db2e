/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Queues and time: deadlines of operations, and what an event loop needs, which is neither a spin
 * nor a wake-up that is missed.
 */
#include <event2/event.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <unistd.h>

#include "common/clock.h"
#include "tests/integration/harness.h"
#include "tests/integration/queues.h"
#include "tests/integration/wire.h"

#define TTL_MS	600000
#define ALL	(MEMPOOL_READ | MEMPOOL_WRITE | MEMPOOL_ATOMIC)
#define NO_WAIT "\"lane_wait_min\": \"0\""
#define CHUNK	(64 * 1024)

/* Deadlines. */

#define CUT_MS	 1500
#define SLACK_MS 1500

static void deadlines(void)
{
	HARNESS(h, .pool_size = "64MiB", .extra = NO_WAIT);
	SESSION(alpha, "alpha");
	struct mempool_op ops[4];
	int codes[4] = {QUEUES_NOT_YET, QUEUES_NOT_YET, QUEUES_NOT_YET, QUEUES_NOT_YET};
	mempool_lease *lease;
	mempool_queue *queue;
	mempool_buf *buf;
	uint64_t begun_ns;
	uint64_t took_ms;
	uint8_t *bytes;
	bool atomics;
	int r;

	r = queues_acquire(alpha, MIB, ALL, TTL_MS, &lease);
	atomics = r == 0;
	if (r == MEMPOOL_E_RIGHTS_DEVICE)
		r = harness_acquire(alpha, MIB, TTL_MS, &lease);
	CHECK_INT(r, 0);
	CHECK_INT(mempool_buf_alloc(alpha, MIB, 0, &buf), 0);
	CHECK_INT(queues_make_sized(alpha, 3, 8, &queue), 0);
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
	CHECK_INT(queues_submit(queue, ops, 4), 0);
	r = queues_drain(queue, codes, 4, 4);
	took_ms = harness_since_ms(begun_ns);
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
	CHECK_INT(queues_run_op(queue, &ops[0]), 0);
	harness_close(&alpha);
	CHECK_INT(harness_stop(&h), 0);
}

TEST(queue__deadlines)
{
	wire_test("queue__deadlines", 120000, deadlines);
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
	CHECK_INT(queues_make_sized(alpha, LOOP_DEPTH, 0, &loop->queue), 0);
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
