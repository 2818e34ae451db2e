/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * daemon/posting.c over a replaced verbs_post_send(): what a chain looks like, that the send
 * queue is never overrun, what happens if the device takes only a part, and the way back by
 * sequence number.
 */
#include "daemon/posting.h"

#include <errno.h>
#include <string.h>

#include "common/clock.h"
#include "common/route.h"
#include "daemon/server.h"
#include "daemon/window.h"
#include "tests/unit/abort.h"
#include "tests/unit/random.h"
#include "tests/unit/test.h"

#define ROUTE	  0x00500007u
#define WINDOWS	  300
#define CHAIN_MAX 64u /* work requests of one post */

int __wrap_verbs_post_send(struct ibv_qp *qp, struct ibv_send_wr *wr, struct ibv_send_wr **ret_bad);

/* What was posted, in order; and when the device shall fail. */
static struct {
	struct ibv_send_wr taken[WINDOWS * 2];
	uint32_t count;
	uint32_t calls;
	uint32_t chain_count; /* of the last call, refused ones included */
	uint32_t take;	      /* work requests that a call may take before it fails */
	bool fails;
	bool hides_bad; /* fails without saying where */
	struct ibv_qp *qp;
} fake;

int __wrap_verbs_post_send(struct ibv_qp *qp, struct ibv_send_wr *wr, struct ibv_send_wr **ret_bad)
{
	uint32_t count = 0;

	fake.calls++;
	fake.qp = qp;
	fake.chain_count = 0;
	for (struct ibv_send_wr *each = wr; each != NULL; each = each->next)
		fake.chain_count++;
	for (; wr != NULL; wr = wr->next) {
		if (fake.fails && count == fake.take) {
			if (!fake.hides_bad)
				*ret_bad = wr;
			return -ENOMEM;
		}
		fake.taken[fake.count++] = *wr;
		count++;
	}
	return 0;
}

static uint64_t fake_now_ns = 1000;

static uint64_t read_fake_clock(void)
{
	return fake_now_ns;
}

static struct server_counters counters;
static struct posting posting;
static struct window windows[WINDOWS];
static struct ibv_mw mws[WINDOWS];
static struct ibv_mr mr;
static struct ibv_qp qp;

static void start(uint32_t depth, uint32_t sequence)
{
	memset(&fake, 0, sizeof(fake));
	memset(&counters, 0, sizeof(counters));
	memset(windows, 0, sizeof(windows));
	for (uint32_t i = 0; i < WINDOWS; i++) {
		windows[i].mw = &mws[i];
		windows[i].mr = &mr;
		windows[i].rkey = 0x100 + i;
		windows[i].addr = 0x10000 * (i + 1);
		windows[i].len_bytes = 1000 + i;
		windows[i].access = IBV_ACCESS_REMOTE_READ;
		windows[i].state = WINDOW_BINDING;
	}
	CHECK_INT(posting_init(&posting, &qp, ROUTE, depth, &counters), 0);
	posting.head = sequence;
	posting.tail = sequence;
	fake_now_ns = 1000;
	clock_set_source(read_fake_clock);
}

static void finish(void)
{
	while (posting_pop_any(&posting) != NULL)
		;
	while (!TAILQ_EMPTY(&posting.queue))
		posting_remove(&posting, TAILQ_FIRST(&posting.queue));
	posting_deinit(&posting);
	clock_set_source(NULL);
}

static void add(uint32_t first, uint32_t count)
{
	for (uint32_t i = first; i < first + count; i++)
		posting_add(&posting, &windows[i]);
}

TEST(posting_flush__nothing_queued)
{
	start(16, 0);
	CHECK_INT(posting_flush(&posting), 0);
	CHECK_INT(fake.calls, 0);
	CHECK(posting_is_empty(&posting));
	CHECK_INT(posting_oldest_ns(&posting), UINT64_MAX);
	CHECK(posting_pop_any(&posting) == NULL);
	CHECK(posting_pop(&posting, 0) == NULL);
	finish();
}

TEST(posting_flush__one_bind)
{
	struct ibv_send_wr *wr = &fake.taken[0];

	start(16, 7);
	windows[0].access = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC;
	add(0, 1);
	CHECK(windows[0].queued && !windows[0].posted);
	CHECK(!posting_is_empty(&posting));
	CHECK_INT(posting_flush(&posting), 0);
	CHECK(!windows[0].queued && windows[0].posted);
	CHECK(!posting_is_empty(&posting));
	CHECK_INT(fake.calls, 1);
	CHECK_INT(fake.count, 1);
	CHECK(fake.qp == &qp);
	CHECK_INT(wr->wr_id, route_wr_id(ROUTE, 7));
	CHECK_INT(wr->opcode, IBV_WR_BIND_MW);
	CHECK_INT(wr->send_flags, IBV_SEND_SIGNALED);
	CHECK_INT(wr->num_sge, 0);
	CHECK(wr->next == NULL);
	CHECK(wr->bind_mw.mw == &mws[0]);
	CHECK_INT(wr->bind_mw.rkey, 0x100);
	CHECK(wr->bind_mw.bind_info.mr == &mr);
	CHECK_INT(wr->bind_mw.bind_info.addr, 0x10000);
	CHECK_INT(wr->bind_mw.bind_info.length, 1000);
	CHECK_INT(wr->bind_mw.bind_info.mw_access_flags,
		  IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC);
	CHECK_INT(counters.binds_posted, 1);
	CHECK_INT(counters.invalidates_posted, 0);
	finish();
}

TEST(posting_flush__one_invalidate)
{
	struct ibv_send_wr *wr = &fake.taken[0];

	start(16, 0);
	windows[3].state = WINDOW_INVALIDATING;
	add(3, 1);
	CHECK_INT(posting_flush(&posting), 0);
	CHECK_INT(wr->opcode, IBV_WR_LOCAL_INV);
	CHECK_INT(wr->invalidate_rkey, 0x103);
	CHECK_INT(wr->send_flags, IBV_SEND_SIGNALED);
	CHECK_INT(counters.binds_posted, 0);
	CHECK_INT(counters.invalidates_posted, 1);
	finish();
}

TEST(posting_flush__chain)
{
	start(256, 100);
	for (uint32_t i = 0; i < 10; i += 3)
		windows[i].state = WINDOW_INVALIDATING;
	add(0, 10);
	CHECK_INT(posting_flush(&posting), 0);
	CHECK_INT(fake.calls, 1);
	CHECK_INT(fake.count, 10);
	for (uint32_t i = 0; i < 10; i++) {
		CHECK_INT(fake.taken[i].wr_id, route_wr_id(ROUTE, 100 + i));
		CHECK_INT(fake.taken[i].send_flags, i == 9 ? IBV_SEND_SIGNALED : 0);
		CHECK_INT(fake.taken[i].opcode, i % 3 == 0 ? IBV_WR_LOCAL_INV : IBV_WR_BIND_MW);
		if (i % 3 == 0)
			CHECK_INT(fake.taken[i].invalidate_rkey, 0x100 + i);
		else
			CHECK_INT(fake.taken[i].bind_mw.rkey, 0x100 + i);
	}
	CHECK_INT(counters.binds_posted, 6);
	CHECK_INT(counters.invalidates_posted, 4);
	finish();
}

/* Every chain ends signalled, so that everything posted is completed by some completion. */
TEST(posting_flush__several_chains)
{
	start(256, 0);
	add(0, CHAIN_MAX + 1);
	CHECK_INT(posting_flush(&posting), 0);
	CHECK_INT(fake.calls, 2);
	CHECK_INT(fake.count, CHAIN_MAX + 1);
	for (uint32_t i = 0; i < fake.count; i++) {
		bool is_last = i == CHAIN_MAX - 1 || i == CHAIN_MAX;

		CHECK_INT(fake.taken[i].send_flags, is_last ? IBV_SEND_SIGNALED : 0);
		CHECK_INT(route_index(fake.taken[i].wr_id), i);
	}
	finish();
}

/* n in flight, not n + 1; then as many as have come back. */
static void check_depth(uint32_t depth)
{
	start(depth, UINT32_MAX - 3);
	add(0, depth + 5);
	CHECK_INT(posting_flush(&posting), 0);
	CHECK_INT(fake.count, depth);
	CHECK_INT(fake.taken[depth - 1].send_flags, IBV_SEND_SIGNALED);
	CHECK_INT(posting.tail - posting.head, depth);
	CHECK(windows[depth - 1].posted && !windows[depth].posted && windows[depth].queued);
	CHECK_INT(posting_flush(&posting), 0);
	CHECK_INT(fake.count, depth);
	CHECK(posting_pop_any(&posting) == &windows[0]);
	CHECK_INT(posting_flush(&posting), 0);
	CHECK_INT(fake.count, depth + 1);
	CHECK_INT(fake.taken[depth].bind_mw.rkey, 0x100 + depth);
	CHECK_INT(fake.taken[depth].send_flags, IBV_SEND_SIGNALED);
	CHECK_INT(posting.tail - posting.head, depth);
	finish();
}

TEST(posting_flush__depth)
{
	check_depth(1);
	check_depth(2);
	check_depth(3); /* the ring is rounded up to a power of two, the send queue is not */
	check_depth(5);
	check_depth(64);
	check_depth(65);
	check_depth(200);
}

TEST(posting_flush__device_takes_a_part)
{
	start(256, 0);
	add(0, 10);
	fake.fails = true;
	fake.take = 4;
	CHECK_INT(posting_flush(&posting), -ENOMEM);
	CHECK_INT(fake.calls, 1);
	CHECK_INT(fake.chain_count, 10);
	CHECK_INT(posting.tail - posting.head, 4);
	CHECK_INT(counters.binds_posted, 4);
	for (uint32_t i = 0; i < 10; i++) {
		CHECK_INT(windows[i].posted, i < 4);
		CHECK_INT(windows[i].queued, i >= 4);
	}
	/* What was taken comes back in order; what was not is still there to be removed. */
	for (uint32_t i = 0; i < 4; i++)
		CHECK(posting_pop_any(&posting) == &windows[i]);
	CHECK(posting_pop_any(&posting) == NULL);
	for (uint32_t i = 4; i < 10; i++) {
		CHECK(TAILQ_FIRST(&posting.queue) == &windows[i]);
		posting_remove(&posting, &windows[i]);
	}
	CHECK(posting_is_empty(&posting));
	finish();
}

TEST(posting_flush__device_takes_nothing)
{
	start(256, 0);
	add(0, 3);
	fake.fails = true;
	fake.take = 0;
	CHECK_INT(posting_flush(&posting), -ENOMEM);
	CHECK_INT(posting.tail - posting.head, 0);
	CHECK_INT(counters.binds_posted, 0);
	CHECK(windows[0].queued && windows[2].queued);
	CHECK_INT(posting_oldest_ns(&posting), UINT64_MAX);
	finish();
}

/* The second chain fails: the first stays posted, and the flush ends there. */
TEST(posting_flush__later_chain_fails)
{
	start(256, 0);
	add(0, CHAIN_MAX);
	CHECK_INT(posting_flush(&posting), 0);
	add(CHAIN_MAX, CHAIN_MAX * 2);
	fake.fails = true;
	fake.take = 1;
	CHECK_INT(posting_flush(&posting), -ENOMEM);
	CHECK_INT(fake.calls, 2);
	CHECK_INT(posting.tail - posting.head, CHAIN_MAX + 1);
	CHECK(windows[CHAIN_MAX].posted && !windows[CHAIN_MAX].queued);
	CHECK(!windows[CHAIN_MAX + 1].posted && windows[CHAIN_MAX + 1].queued);
	finish();
}

/* A device that does not say what it refused may have taken it all. */
TEST(posting_flush__device_does_not_say)
{
	start(256, 0);
	add(0, 3);
	fake.fails = true;
	fake.hides_bad = true;
	CHECK_INT(posting_flush(&posting), -ENOMEM);
	CHECK_INT(posting.tail - posting.head, 3);
	CHECK(windows[0].posted && windows[2].posted);
	CHECK(TAILQ_EMPTY(&posting.queue));
	finish();
}

TEST(posting_pop__by_sequence)
{
	start(16, 0);
	add(0, 6);
	CHECK_INT(posting_flush(&posting), 0);
	/* One success is that of all before it. */
	CHECK(posting_pop(&posting, 2) == &windows[0]);
	CHECK(!windows[0].posted && windows[1].posted);
	CHECK(posting_pop(&posting, 2) == &windows[1]);
	CHECK(posting_pop(&posting, 2) == &windows[2]);
	CHECK(posting_pop(&posting, 2) == NULL);
	/* Duplicates and older ones do nothing. */
	CHECK(posting_pop(&posting, 1) == NULL);
	CHECK(posting_pop(&posting, 0) == NULL);
	CHECK(posting_pop(&posting, UINT32_MAX) == NULL);
	/* What was never posted does nothing. */
	CHECK(posting_pop(&posting, 6) == NULL);
	CHECK(posting_pop(&posting, 7) == NULL);
	CHECK(posting_pop(&posting, 0x80000003u) == NULL);
	CHECK(windows[3].posted);
	CHECK(posting_pop(&posting, 5) == &windows[3]);
	CHECK(posting_pop(&posting, 5) == &windows[4]);
	CHECK(posting_pop(&posting, 5) == &windows[5]);
	CHECK(posting_pop(&posting, 5) == NULL);
	CHECK(posting_is_empty(&posting));
	finish();
}

TEST(posting_pop__sequence_wraps)
{
	start(16, UINT32_MAX - 2);
	add(0, 6);
	CHECK_INT(posting_flush(&posting), 0);
	CHECK_INT(fake.taken[0].wr_id, route_wr_id(ROUTE, UINT32_MAX - 2));
	CHECK_INT(fake.taken[2].wr_id, route_wr_id(ROUTE, UINT32_MAX));
	CHECK_INT(fake.taken[3].wr_id, route_wr_id(ROUTE, 0));
	CHECK_INT(fake.taken[5].wr_id, route_wr_id(ROUTE, 2));
	CHECK(posting_pop(&posting, UINT32_MAX - 3) == NULL);
	CHECK(posting_pop(&posting, 3) == NULL);
	CHECK(posting_pop(&posting, UINT32_MAX - 2) == &windows[0]);
	CHECK(posting_pop(&posting, UINT32_MAX - 2) == NULL);
	CHECK(posting_pop(&posting, 1) == &windows[1]);
	CHECK(posting_pop(&posting, 1) == &windows[2]);
	CHECK(posting_pop(&posting, 1) == &windows[3]);
	CHECK(posting_pop(&posting, 1) == &windows[4]);
	CHECK(posting_pop(&posting, 1) == NULL);
	CHECK(posting_pop(&posting, UINT32_MAX) == NULL);
	CHECK(posting_pop(&posting, 2) == &windows[5]);
	CHECK(posting_is_empty(&posting));
	finish();
}

TEST(posting_oldest_ns__when_it_was_posted)
{
	start(16, UINT32_MAX);
	fake_now_ns = 5000;
	add(0, 2);
	CHECK_INT(posting_oldest_ns(&posting), UINT64_MAX);
	CHECK_INT(posting_flush(&posting), 0);
	fake_now_ns = 9000;
	add(2, 1);
	CHECK_INT(posting_flush(&posting), 0);
	CHECK_INT(posting_oldest_ns(&posting), 5000);
	posting_pop_any(&posting);
	CHECK_INT(posting_oldest_ns(&posting), 5000);
	posting_pop_any(&posting);
	CHECK_INT(posting_oldest_ns(&posting), 9000);
	posting_pop_any(&posting);
	CHECK_INT(posting_oldest_ns(&posting), UINT64_MAX);
	finish();
}

TEST(posting_remove__from_the_middle)
{
	start(16, 0);
	add(0, 3);
	posting_remove(&posting, &windows[1]);
	CHECK(!windows[1].queued);
	CHECK_INT(posting_flush(&posting), 0);
	CHECK_INT(fake.count, 2);
	CHECK_INT(fake.taken[0].bind_mw.rkey, 0x100);
	CHECK_INT(fake.taken[1].bind_mw.rkey, 0x102);
	CHECK_INT(route_index(fake.taken[1].wr_id), 1);
	finish();
}

static void add_again(void *arg)
{
	posting_add(&posting, arg);
}

static void remove_it(void *arg)
{
	posting_remove(&posting, arg);
}

static void flush(void *arg)
{
	(void)arg;
	posting_flush(&posting);
}

static void deinit(void *arg)
{
	(void)arg;
	posting_deinit(&posting);
}

/* Soft-RoCE panics on a second invalidate: a window is in one place only. */
TEST(posting_add__twice)
{
	start(16, 0);
	CHECK(test_aborts(remove_it, &windows[0]));
	add(0, 1);
	CHECK(test_aborts(add_again, &windows[0]));
	CHECK_INT(posting_flush(&posting), 0);
	CHECK(test_aborts(add_again, &windows[0]));
	CHECK(test_aborts(remove_it, &windows[0]));
	CHECK(posting_pop_any(&posting) == &windows[0]);
	CHECK(!test_aborts(add_again, &windows[0]));
	finish();
}

TEST(posting_flush__neither_bind_nor_invalidate)
{
	for (int state = 0; state < WINDOW_STATES; state++) {
		bool is_right = state == WINDOW_BINDING || state == WINDOW_INVALIDATING;

		start(16, 0);
		windows[0].state = (enum window_state)state;
		add(0, 1);
		CHECK_INT(test_aborts(flush, NULL), !is_right);
		finish();
	}
}

TEST(posting_deinit__states)
{
	struct posting zero = {0};

	posting_deinit(&zero);
	start(16, 0);
	add(0, 1);
	CHECK(test_aborts(deinit, NULL));
	/* What is posted is dropped. */
	CHECK_INT(posting_flush(&posting), 0);
	CHECK(!test_aborts(deinit, NULL));
	posting_deinit(&posting);
	CHECK(posting.ring == NULL && posting.ring_posted_ns == NULL);
	posting_deinit(&posting);
	clock_set_source(NULL);
}

/* Random adds, flushes and completions: everything comes back once and in order. */
TEST(posting_pop__random_steps)
{
	enum { STEPS = 20000, DEPTH = 11 };
	struct random random = random_start();
	uint32_t next_add = 0;
	uint32_t next_pop = 0;

	start(DEPTH, UINT32_MAX - STEPS / 4);
	for (int step = 0; step < STEPS; step++) {
		uint32_t in_flight = posting.tail - posting.head;

		CHECK(in_flight <= DEPTH);
		switch (random_below(&random, 3)) {
		case 0:
			if (next_add - next_pop < WINDOWS)
				posting_add(&posting, &windows[next_add++ % WINDOWS]);
			break;
		case 1:
			fake.count = 0;
			CHECK_INT(posting_flush(&posting), 0);
			CHECK(in_flight + fake.count <= DEPTH);
			break;
		default:
			if (in_flight == 0)
				break;
			in_flight = (uint32_t)random_below(&random, in_flight);
			for (uint32_t sequence = posting.head + in_flight;;) {
				struct window *window = posting_pop(&posting, sequence);

				if (window == NULL)
					break;
				CHECK(window == &windows[next_pop++ % WINDOWS]);
			}
		}
	}
	CHECK(next_pop > STEPS / 10);
	finish();
}
