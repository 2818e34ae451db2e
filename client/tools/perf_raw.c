/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The measure of the library: posts and polls with verbs alone, from registered memory, on the
 * very QP that the library uses for calls, with the same key. Nothing is copied and nothing is
 * asked before a post. A short write goes with its work request, as the library's do.
 *
 * Invariants: whoever runs the loop is the lane's holder; nothing of it is in flight when the
 * loop returns, or the lane is lost and its QP flushed.
 *
 * Thread: the worker's.
 */
#include <assert.h>
#include <errno.h>
#include <poll.h>
#include <sched.h>
#include <stdbool.h>
#include <string.h>

#include "client/error.h"
#include "client/lane.h"
#include "client/lease.h"
#include "client/pool.h"
#include "client/tools/perf.h"
#include "client/tools/stop.h"
#include "common/clock.h"
#include "common/verbs.h"

#define RAW_POLL	 16 /* completions at once */
#define RAW_POLLS_A_LOOK 64 /* empty ones, between two looks at the clock */
#define RAW_AWAKE_NS	 (CLOCK_NS_PER_MS / 10)
#define RAW_SLEEP_MS	 100
#define RAW_FLUSH_NS	 (2 * CLOCK_NS_PER_S)

static_assert(PERF_RAW_DEPTH_MAX <= LANE_SENDS, "the QP takes them all");

struct raw_loop {
	const struct perf_case *what;
	struct perf_tally *tally;
	struct lane *lane;
	struct ibv_qp *qp;
	uint8_t *buf;
	uint32_t lkey;
	struct message_descriptor at;
	uint64_t silence_max_ns; /* without a completion the loop has failed */
	uint64_t posted;
	uint64_t done;
	uint64_t begun_ns[PERF_RAW_DEPTH_MAX]; /* of those in flight */
};

static int raw_post(struct raw_loop *loop, uint64_t now_ns)
{
	uint64_t offset_bytes = perf_offset(loop->what, loop->posted);
	struct lane_work work = {
		.opcode = loop->what->op->opcode,
		.local = loop->buf + offset_bytes,
		.lkey = loop->lkey,
		.remote = {.remote_addr = loop->at.remote_addr + offset_bytes,
			   .rkey = loop->at.rkey,
			   .len_bytes = (uint32_t)loop->what->size_bytes},
		.compare_add = loop->what->op->operand,
	};
	struct ibv_send_wr *bad;
	struct ibv_send_wr wr;
	struct ibv_sge sge;
	int r;

	lane_fill(loop->lane, &work, &sge, &wr);
	r = ibv_post_send(loop->qp, &wr, &bad);
	if (r != 0)
		return client_error_raise(MEMPOOL_E_SYSTEM, "ibv_post_send: %s",
					  strerrordesc_np(r > 0 ? r : errno));
	loop->begun_ns[loop->posted % loop->what->depth] = now_ns;
	loop->posted++;
	return 0;
}

/*
 * Nothing has come for a while. The first time the queue is only armed, for what came before
 * that wakes up nobody. Return: 0 or a code.
 */
static int raw_sleep(struct raw_loop *loop, bool *armed)
{
	struct pollfd fd = {.fd = loop->lane->cq.channel->fd, .events = POLLIN};

	if (*armed)
		(void)poll(&fd, 1, RAW_SLEEP_MS);
	*armed = true;
	if (verbs_cq_rearm(&loop->lane->cq) < 0)
		return client_error_raise(MEMPOOL_E_SYSTEM, "the completion queue is broken");
	return 0;
}

/* Polls, awake for as long as most operations take. Return: how many have completed, or a code. */
static int raw_poll(struct raw_loop *loop, struct ibv_wc *wcs)
{
	uint64_t begun_ns = perf_now_ns();
	bool armed = false;
	uint64_t waited_ns;
	int r;

	for (uint32_t i = 1;; i++) {
		r = ibv_poll_cq(loop->lane->cq.cq, RAW_POLL, wcs);
		if (r < 0)
			return client_error_raise(MEMPOOL_E_SYSTEM, "ibv_poll_cq has failed");
		if (r > 0)
			return r;
		if (!armed && i % RAW_POLLS_A_LOOK != 0)
			continue;
		waited_ns = perf_now_ns() - begun_ns;
		if (waited_ns >= loop->silence_max_ns)
			return client_error_raise(MEMPOOL_E_TIMEOUT, "no completion in time");
		if (waited_ns >= RAW_AWAKE_NS)
			r = raw_sleep(loop, &armed);
		if (r < 0)
			return r;
	}
}

/* Completions come in the order of posting. Return: 0 or a code. */
static int raw_collect(struct raw_loop *loop)
{
	struct ibv_wc wcs[RAW_POLL];
	int n = raw_poll(loop, wcs);
	uint64_t now_ns = perf_now_ns();

	if (n < 0)
		return n;
	for (int i = 0; i < n; i++) {
		uint64_t begun_ns = loop->begun_ns[loop->done % loop->what->depth];

		loop->done++;
		if (wcs[i].status != IBV_WC_SUCCESS)
			return client_error_raise(MEMPOOL_E_LANE, "a raw operation failed: %s",
						  ibv_wc_status_str(wcs[i].status));
		histogram_add(&loop->tally->latency_ns, now_ns - begun_ns);
		loop->tally->operations++;
	}
	return 0;
}

static int raw_go(struct raw_loop *loop, uint64_t until_ns)
{
	uint64_t now_ns = perf_now_ns();
	int r = 0;

	do {
		while (r == 0 && loop->posted - loop->done < loop->what->depth)
			r = raw_post(loop, now_ns);
		if (r == 0)
			r = raw_collect(loop);
		now_ns = perf_now_ns();
	} while (r == 0 && now_ns < until_ns && !stop_asked());
	while (r == 0 && loop->posted > loop->done)
		r = raw_collect(loop);
	return r;
}

/* After a failure: the device must be done with our memory before it is anybody else's. */
static void raw_flush(struct raw_loop *loop)
{
	uint64_t until_ns = perf_now_ns() + RAW_FLUSH_NS;
	struct ibv_wc wc;

	lane_abort(loop->lane);
	(void)verbs_qp_to_error(loop->qp);
	while (loop->posted > loop->done && perf_now_ns() < until_ns) {
		int n = ibv_poll_cq(loop->lane->cq.cq, 1, &wc);

		if (n < 0)
			break;
		loop->done += (uint64_t)n;
		if (n == 0)
			(void)sched_yield();
	}
}

/* Before the first run, and should the data connection be another device's now. */
static int raw_register(struct perf_worker *worker, struct ibv_pd *pd)
{
	int r;

	if (worker->raw_mr != NULL && worker->raw_mr->pd == pd)
		return 0;
	r = perf_raw_unprepare(worker);
	if (r < 0)
		return r;
	r = verbs_reg_mr(pd, worker->buf, worker->lease_bytes, IBV_ACCESS_LOCAL_WRITE,
			 &worker->raw_mr);
	if (r < 0)
		return client_error_raise(client_error_errno(r), "raw: cannot register memory: %s",
					  strerrordesc_np(-r));
	return 0;
}

static int raw_prepare_held(struct perf_worker *worker, const struct perf_case *what,
			    struct lane *lane)
{
	struct ibv_port_attr port;
	uint32_t windows;

	if (lane_qp(lane) == NULL || !lane_is_up(lane) || !lease_is_attached(worker->lease, lane))
		return client_error_raise(MEMPOOL_E_LANE, "raw: the data connection was lost");
	if (ibv_query_port(lane_qp(lane)->context, lane->cm.id->port_num, &port) != 0)
		return client_error_raise(MEMPOOL_E_SYSTEM, "ibv_query_port has failed");
	if (what->size_bytes > port.max_msg_sz)
		return client_error_raise(MEMPOOL_E_RANGE,
					  "raw: the device's messages have at most %u bytes",
					  port.max_msg_sz);
	if (lease_descriptors(worker->lease, &windows)[0].len_bytes < worker->lease_bytes)
		return client_error_raise(MEMPOOL_E_RANGE,
					  "raw: the lease does not fit one memory window");
	return raw_register(worker, lane_qp(lane)->pd);
}

/* Return: 0 or a code, last error set. */
static int raw_enter(const struct perf_worker *worker, struct lane *lane)
{
	return lane_enter(lane, clock_add_ms(clock_now_ns(), worker->timeout_ms));
}

int perf_raw_prepare(struct perf_worker *worker, const struct perf_case *what)
{
	struct lane *lane = pool_lane(worker->pool);
	int r = raw_enter(worker, lane);

	if (r < 0)
		return r;
	r = raw_prepare_held(worker, what, lane);
	lane_leave(lane);
	return r;
}

int perf_raw_unprepare(struct perf_worker *worker)
{
	if (worker->raw_mr == NULL)
		return 0;
	if (verbs_dereg_mr(worker->raw_mr) < 0)
		return client_error_raise(MEMPOOL_E_SYSTEM, "raw: memory stays registered");
	worker->raw_mr = NULL;
	return 0;
}

/* The connection may be another than the one that was prepared for. */
static int raw_run_held(struct raw_loop *loop, const struct perf_worker *worker, uint64_t until_ns)
{
	uint32_t windows;
	int r;

	loop->qp = lane_qp(loop->lane);
	if (loop->qp == NULL || loop->qp->pd != worker->raw_mr->pd || !lane_is_up(loop->lane) ||
	    !lease_is_attached(worker->lease, loop->lane))
		return client_error_raise(MEMPOOL_E_LANE, "raw: the data connection was lost");
	loop->at = lease_descriptors(worker->lease, &windows)[0];
	r = raw_go(loop, until_ns);
	if (r < 0)
		raw_flush(loop);
	return r;
}

int perf_raw_run(struct perf_worker *worker, const struct perf_case *what, uint64_t until_ns,
		 struct perf_tally *tally)
{
	struct raw_loop loop = {
		.what = what,
		.tally = tally,
		.lane = pool_lane(worker->pool),
		.buf = worker->buf,
		.lkey = worker->raw_mr->lkey,
		.silence_max_ns = worker->timeout_ms * CLOCK_NS_PER_MS,
	};
	int r = raw_enter(worker, loop.lane);

	if (r < 0)
		return r;
	r = raw_run_held(&loop, worker, until_ns);
	lane_leave(loop.lane);
	return r;
}
