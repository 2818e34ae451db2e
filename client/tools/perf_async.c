/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The mode in which each thread has many operations under way, through a queue of its own and
 * from registered memory: what has ended is submitted anew, with one call for all that ended
 * together.
 *
 * Invariants: a slot has one operation at a time, and each of them memory and bytes of the lease
 * of its own. Nothing is under way when a run returns: if it has failed the queue is ended.
 *
 * Thread: the worker's.
 */
#include <poll.h>
#include <stdbool.h>

#include "client/error.h"
#include "client/tools/perf.h"
#include "client/tools/stop.h"
#include "common/clock.h"

#define ASYNC_BATCH	   64 /* operations in one call */
#define ASYNC_POLLS_A_LOOK 64 /* empty ones, between two looks at the clock */
#define ASYNC_AWAKE_NS	   (CLOCK_NS_PER_MS / 10)
#define ASYNC_SLEEP_MS	   100

struct async_loop {
	const struct perf_case *what;
	struct perf_worker *worker;
	struct perf_tally *tally;
	uint32_t idle_count;
	uint32_t idle[PERF_DEPTH_MAX];	   /* slots without an operation */
	uint64_t begun_ns[PERF_DEPTH_MAX]; /* of the operations of the others */
};

static void async_end_queue(struct perf_worker *worker)
{
	mempool_queue_destroy(worker->queue);
	worker->queue = NULL;
}

int perf_async_prepare(struct perf_worker *worker, const struct perf_case *what)
{
	struct mempool_queue_opts opts = {.size = sizeof(opts), .depth = what->depth};
	int r = 0;

	if (worker->queue != NULL && worker->queue_depth != what->depth)
		async_end_queue(worker);
	if (worker->registered == NULL)
		r = mempool_buf_register(worker->pool, worker->buf, worker->lease_bytes,
					 &worker->registered);
	if (r == 0 && worker->queue == NULL)
		r = mempool_queue_create(worker->pool, &opts, &worker->queue);
	if (r < 0)
		return r;
	worker->queue_depth = what->depth;
	return mempool_queue_attach(worker->queue, worker->lease);
}

static struct mempool_op async_op(const struct async_loop *loop, uint32_t slot)
{
	uint64_t offset_bytes = perf_offset(loop->what, slot);

	return (struct mempool_op){
		.cookie = slot,
		.lease = loop->worker->lease,
		.offset_bytes = offset_bytes,
		.len_bytes = loop->what->size_bytes,
		.bytes = loop->worker->buf + offset_bytes,
		.buf = loop->worker->registered,
		.kind = loop->what->op->kind,
		.operand = loop->what->op->operand,
	};
}

/* Return: 0 or a code, last error set. */
static int async_submit(struct async_loop *loop, uint64_t now_ns)
{
	struct mempool_op ops[ASYNC_BATCH];
	size_t taken;
	int r = 0;

	while (r == 0 && loop->idle_count > 0) {
		size_t count = 0;

		while (count < ASYNC_BATCH && loop->idle_count > 0) {
			uint32_t slot = loop->idle[--loop->idle_count];

			loop->begun_ns[slot] = now_ns;
			ops[count++] = async_op(loop, slot);
		}
		/* There is room for one in each slot, so it takes them all. */
		r = mempool_submit(loop->worker->queue, ops, count, &taken);
	}
	return r;
}

/* Return: 0 or a code. */
static int async_sleep(const struct async_loop *loop)
{
	struct pollfd fd = {.fd = mempool_queue_fd(loop->worker->queue), .events = POLLIN};
	int r = mempool_queue_arm(loop->worker->queue);

	if (r == 0)
		(void)poll(&fd, 1, ASYNC_SLEEP_MS);
	return r;
}

/*
 * Polls until something has ended, awake for as long as most operations take. The queue ends
 * operations at their deadlines, so this does not last for ever.
 */
static int async_poll(struct async_loop *loop, struct mempool_completion *completions,
		      size_t *ret_count)
{
	uint64_t begun_ns = perf_now_ns();
	bool sleeps = false;
	int r;

	for (uint32_t i = 1;; i++) {
		r = mempool_poll(loop->worker->queue, completions, ASYNC_BATCH, ret_count);
		if (r < 0 || *ret_count > 0)
			return r;
		if (!sleeps && i % ASYNC_POLLS_A_LOOK == 0)
			sleeps = perf_now_ns() - begun_ns >= ASYNC_AWAKE_NS;
		if (sleeps)
			r = async_sleep(loop);
		if (r < 0)
			return r;
	}
}

static int async_collect(struct async_loop *loop)
{
	struct mempool_completion completions[ASYNC_BATCH];
	size_t count = 0;
	uint64_t now_ns;
	int r = async_poll(loop, completions, &count);

	if (r < 0)
		return r;
	now_ns = perf_now_ns();
	for (size_t i = 0; i < count; i++) {
		uint32_t slot = (uint32_t)completions[i].cookie;

		if (completions[i].code != 0)
			return client_error_raise(completions[i].code,
						  "an operation of the queue has failed: %s",
						  mempool_error_text(completions[i].code));
		histogram_add(&loop->tally->latency_ns, now_ns - loop->begun_ns[slot]);
		loop->tally->operations++;
		loop->idle[loop->idle_count++] = slot;
	}
	return 0;
}

int perf_async_run(struct perf_worker *worker, const struct perf_case *what, uint64_t until_ns,
		   struct perf_tally *tally)
{
	struct async_loop loop = {.what = what, .worker = worker, .tally = tally};
	uint64_t now_ns = perf_now_ns();
	int r;

	while (loop.idle_count < what->depth) {
		loop.idle[loop.idle_count] = loop.idle_count;
		loop.idle_count++;
	}
	do {
		r = async_submit(&loop, now_ns);
		if (r == 0)
			r = async_collect(&loop);
		now_ns = perf_now_ns();
	} while (r == 0 && now_ns < until_ns && !stop_asked());
	while (r == 0 && loop.idle_count < what->depth)
		r = async_collect(&loop);
	if (r < 0)
		async_end_queue(worker);
	return r;
}
