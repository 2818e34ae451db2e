/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * How a queue's operations get to the device and back. Work requests complete in the order in
 * which they were posted, so which operation a completion is of needs no look-up.
 *
 * Invariants: an operation holds its memory, and keeps its lease, from when it is taken until it
 * is done; it uses the lease from its first work request on. No work request is posted for a
 * lease that has ended by what we know, on a lane that is lost, or for an atomic operation that
 * was posted before. When the lane is lost, what waits fails at once, and what is in flight
 * when it has come back, or when there is no QP any more that it could come back from.
 *
 * Thread: any that has the queue's lock. Takes the session's lock for each batch; the doorbell
 * is rung, and the device asked for completions, without it.
 */
#include <stddef.h>

#include "client/error.h"
#include "client/lease.h"
#include "client/pool.h"
#include "client/queue.h"
#include "client/split.h"
#include "common/checked.h"
#include "common/clock.h"
#include "proto/error.h"

#define RUN_BATCH    16
#define RUN_FLUSH_MS 1000 /* a QP in ERR gives everything back within that, or never */

/* Ends. */

/* Session's lock held. */
static void run_let_go(struct mempool_queue *queue, struct operation *operation)
{
	struct mempool_lease *lease = operation->op.lease;

	if (operation->using)
		lease_unuse_held(lease);
	if (operation->counted)
		lease->queued--;
	operation->using = false;
	operation->counted = false;
	memory_drop(&queue->pool->memory, &operation->hold);
}

/* Session's lock held. What is to be posted yet is not. */
static void run_fail(struct mempool_queue *queue, struct operation *operation, int code)
{
	operations_fail(&queue->operations, operation, code);
	if (operation->state == OPERATION_DONE)
		run_let_go(queue, operation);
}

/* Session's lock held. A piece has come back, or will not. */
static void run_complete(struct mempool_queue *queue, int code)
{
	struct operation *operation = queue->flight[queue->flight_ended % queue->depth];

	queue->flight_ended++;
	operations_completed(&queue->operations, operation, code);
	if (operation->state == OPERATION_DONE)
		run_let_go(queue, operation);
}

/* Why an operation fails of which nothing more is posted, since the lane is lost. */
static int run_stopped(const struct operation *operation)
{
	int code = lease_code(operation->op.lease);

	if (code != 0)
		return code;
	return operation->timed_out ? MEMPOOL_E_TIMEOUT : MEMPOOL_E_LANE;
}

/* Why an operation fails of which a piece has failed so. */
static int run_failure(const struct operation *operation, enum ibv_wc_status status)
{
	if (operation_is_atomic(operation) && !lane_is_refusal(status))
		return MEMPOOL_E_UNKNOWN;
	return run_stopped(operation);
}

/* Session's lock held. */
static void run_lose(struct mempool_queue *queue, const char *text)
{
	lane_lose(&queue->lane, MEMPOOL_E_LANE, text);
	if (queue->flush_until_ns == 0)
		queue->flush_until_ns = clock_add_ms(clock_now_ns(), RUN_FLUSH_MS);
}

/* Session's lock held. */
static void run_fail_waiting(struct mempool_queue *queue)
{
	struct operation *operation = operations_next(&queue->operations);

	while (operation != NULL) {
		run_fail(queue, operation, run_stopped(operation));
		operation = operations_next(&queue->operations);
	}
}

/* Taking. */

static uint32_t run_right(const struct mempool_op *op)
{
	switch (op->kind) {
	case MEMPOOL_OP_READ:
		return MEMPOOL_READ;
	case MEMPOOL_OP_WRITE:
		return MEMPOOL_WRITE;
	case MEMPOOL_OP_FETCH_ADD:
	case MEMPOOL_OP_COMPARE_SWAP:
		return MEMPOOL_ATOMIC;
	default:
		return 0;
	}
}

static int run_hold_memory(struct mempool_queue *queue, struct operation *operation)
{
	const struct mempool_op *op = &operation->op;

	if (op->buf != NULL)
		return memory_hold(&queue->pool->memory, queue->lane.pd, op->buf, op->bytes,
				   op->len_bytes, &operation->hold);
	if (op->kind == MEMPOOL_OP_WRITE && op->bytes != NULL &&
	    op->len_bytes <= queue->lane.inline_max_bytes)
		return 0;
	return MEMPOOL_E_INVALID;
}

/* What can be seen of an operation itself. */
static int run_check(const struct mempool_queue *queue, const struct operation *operation)
{
	const struct mempool_op *op = &operation->op;
	bool is_atomic = operation_is_atomic(operation);

	if (op->lease == NULL || op->lease->pool != queue->pool || run_right(op) == 0 ||
	    op->reserved != 0)
		return MEMPOOL_E_INVALID;
	if (is_atomic && op->len_bytes != SPLIT_WORD_BYTES)
		return MEMPOOL_E_INVALID;
	if (is_atomic && op->offset_bytes % SPLIT_WORD_BYTES != 0)
		return MEMPOOL_E_ALIGN;
	if (is_atomic && (uintptr_t)op->bytes % SPLIT_WORD_BYTES != 0)
		return MEMPOOL_E_ALIGN;
	return 0;
}

/* Session's lock held. What it is told now, and each time that a piece is to be posted. */
static int run_check_lease(const struct mempool_op *op)
{
	const struct mempool_lease *lease = op->lease;
	int code = lease_code(lease);

	if (!checked_within(op->offset_bytes, op->len_bytes, lease->len_bytes))
		return MEMPOOL_E_RANGE;
	if ((lease->rights & run_right(op)) == 0)
		return MEMPOOL_E_ACCESS;
	return code;
}

bool queue_take(struct mempool_queue *queue, const struct mempool_op *op, uint64_t now_ns)
{
	struct operation *operation = operations_take(&queue->operations, op);
	uint32_t timeout_ms = op->timeout_ms != 0 ? op->timeout_ms : queue->pool->timeout_ms;
	int code;

	if (operation == NULL)
		return false;
	code = run_check(queue, operation);
	if (code == 0)
		code = run_check_lease(&operation->op);
	if (code == 0 && operation->op.len_bytes > 0)
		code = run_hold_memory(queue, operation);
	if (code != 0 || operation->op.len_bytes == 0) {
		run_fail(queue, operation, code);
		return true;
	}
	operation->deadline_ns = clock_add_ms(now_ns, timeout_ms);
	if (operation->deadline_ns < queue->due_ns)
		queue->due_ns = operation->deadline_ns;
	operation->op.lease->queued++;
	operation->counted = true;
	return true;
}

/* Posting. */

/* Session's lock held. Return: 0, or the code with which the operation fails. */
static int run_piece(struct mempool_queue *queue, struct operation *operation,
		     struct split_piece *ret_piece)
{
	const struct mempool_op *op = &operation->op;
	uint64_t offset_bytes = op->offset_bytes + operation->at_bytes;
	const struct message_descriptor *descriptor;
	struct attachment *attachment;
	int code = run_check_lease(op);

	if (code != 0)
		return code;
	attachment = attachment_find(&op->lease->own, &queue->lane);
	if (attachment == NULL)
		return MEMPOOL_E_STATE;
	if (!attachment_is_good(attachment))
		return MEMPOOL_E_LANE;
	/* It changes when nobody uses it: what has begun goes on. */
	if (lease_is_changing(op->lease) && !operation->using)
		return MEMPOOL_E_BUSY;
	descriptor = attachment_at(attachment, offset_bytes);
	if (descriptor == NULL)
		return MEMPOOL_E_RANGE;
	if (operation_is_atomic(operation))
		return split_word(descriptor, offset_bytes, ret_piece) ? 0 : MEMPOOL_E_ALIGN;
	split_next(descriptor, offset_bytes, op->len_bytes - operation->at_bytes,
		   queue->lane.message_max_bytes, ret_piece);
	return 0;
}

static enum ibv_wr_opcode run_opcode(uint32_t kind)
{
	switch (kind) {
	case MEMPOOL_OP_READ:
		return IBV_WR_RDMA_READ;
	case MEMPOOL_OP_WRITE:
		return IBV_WR_RDMA_WRITE;
	case MEMPOOL_OP_FETCH_ADD:
		return IBV_WR_ATOMIC_FETCH_AND_ADD;
	default:
		return IBV_WR_ATOMIC_CMP_AND_SWP;
	}
}

/* Session's lock held. The work request is the next of the doorbell's. */
static void run_add(struct mempool_queue *queue, struct operation *operation,
		    const struct split_piece *piece, uint32_t at)
{
	struct lane_work work = {
		.opcode = run_opcode(operation->op.kind),
		.local = (uint8_t *)operation->op.bytes + operation->at_bytes,
		.lkey = operation->hold.lkey,
		.remote = *piece,
		.compare_add = operation->op.operand,
		.swap = operation->op.swap,
	};

	lane_fill(&queue->lane, &work, &queue->sges[at], &queue->wrs[at]);
	if (at > 0)
		queue->wrs[at - 1].next = &queue->wrs[at];
	if (!operation->using) {
		operation->using = true;
		operation->op.lease->users++;
	}
	queue->flight[queue->flight_begun++ % queue->depth] = operation;
	operations_posted(&queue->operations, operation, piece->len_bytes);
}

/* Session's lock held. Return: how many work requests there are now for one doorbell. */
static uint32_t run_fill(struct mempool_queue *queue)
{
	struct operation *operation = operations_next(&queue->operations);
	struct split_piece piece;
	uint32_t count = 0;
	int code;

	while (operation != NULL && queue_in_flight(queue) < queue->depth) {
		code = run_piece(queue, operation, &piece);
		if (code != 0)
			run_fail(queue, operation, code);
		else
			run_add(queue, operation, &piece, count++);
		operation = operations_next(&queue->operations);
	}
	return count;
}

/* Session's lock held. The last @count of the ring are not posted after all. */
static void run_take_back(struct mempool_queue *queue, uint32_t count)
{
	for (uint32_t i = 0; i < count; i++) {
		uint64_t at = --queue->flight_begun;
		struct operation *operation = queue->flight[at % queue->depth];

		operations_completed(&queue->operations, operation, MEMPOOL_E_LANE);
		if (operation->state == OPERATION_DONE)
			run_let_go(queue, operation);
	}
}

/*
 * Session's lock held. Of @count work requests @bad is the first that was not posted. If it is none
 * of them, the device may have any: it has taken them all, and then not been told. They are in
 * flight like others of a lane that is lost, until they come back or there is no QP any more.
 */
static void run_unpost(struct mempool_queue *queue, uint32_t count, const struct ibv_send_wr *bad)
{
	if (bad >= queue->wrs && bad < queue->wrs + count)
		run_take_back(queue, count - (uint32_t)(bad - queue->wrs));
	run_lose(queue, "a work request could not be posted");
	run_fail_waiting(queue);
}

void queue_post(struct mempool_queue *queue)
{
	struct mempool *pool = queue->pool;
	struct ibv_send_wr *bad = NULL;
	uint32_t count = 0;

	(void)pthread_mutex_lock(&pool->lock);
	if (queue->lane.state == LANE_UP)
		count = run_fill(queue);
	else
		run_fail_waiting(queue);
	(void)pthread_mutex_unlock(&pool->lock);
	if (count == 0 || verbs_post_send(cm_qp(&queue->lane.cm), queue->wrs, &bad) == 0)
		return;
	(void)pthread_mutex_lock(&pool->lock);
	run_unpost(queue, count, bad);
	(void)pthread_mutex_unlock(&pool->lock);
}

/* Collecting. */

/* Session's lock held. A device that gives back more than it was given is not believed. */
static void run_digest(struct mempool_queue *queue, const struct ibv_wc *wc)
{
	const struct operation *operation;

	if (queue_in_flight(queue) == 0) {
		queue->strays++;
		return;
	}
	operation = queue->flight[queue->flight_ended % queue->depth];
	if (wc->status == IBV_WC_SUCCESS) {
		run_complete(queue, 0);
		return;
	}
	run_lose(queue, ibv_wc_status_str(wc->status));
	run_complete(queue, run_failure(operation, wc->status));
}

static void run_collect(struct mempool_queue *queue)
{
	struct mempool *pool = queue->pool;
	struct ibv_wc wc[RUN_BATCH];
	int n = RUN_BATCH;

	while (n == RUN_BATCH && queue_in_flight(queue) > 0) {
		n = verbs_poll_cq(queue->lane.cq.cq, RUN_BATCH, wc);
		if (n == 0)
			return;
		(void)pthread_mutex_lock(&pool->lock);
		for (int i = 0; i < n; i++)
			run_digest(queue, &wc[i]);
		(void)pthread_mutex_unlock(&pool->lock);
		if (n < 0)
			queue_give_up(queue);
	}
}

void queue_give_up(struct mempool_queue *queue)
{
	struct mempool *pool = queue->pool;
	bool is_over;

	waker_unwatch(&queue->waker);
	is_over = lane_close(&queue->lane) == 0;
	queue->flush_until_ns = 0;
	(void)pthread_mutex_lock(&pool->lock);
	while (queue_in_flight(queue) > 0) {
		struct operation *operation = queue->flight[queue->flight_ended % queue->depth];

		/* Memory that the device may yet use stays held until the process ends. */
		if (!is_over)
			operation->hold = (struct memory_hold){0};
		run_complete(queue, run_failure(operation, IBV_WC_WR_FLUSH_ERR));
	}
	run_fail_waiting(queue);
	(void)pthread_mutex_unlock(&pool->lock);
	/* The channel, which would have told, is gone. */
	if (queue->operations.done.first != NULL)
		waker_say_done(&queue->waker);
}

uint32_t queue_cancel(struct mempool_queue *queue, uint64_t cookie)
{
	struct operation *operation = queue->operations.waiting.first;
	struct mempool *pool = queue->pool;
	uint32_t count = 0;

	(void)pthread_mutex_lock(&pool->lock);
	while (operation != NULL) {
		struct operation *next = operation->next;

		if (operation->op.cookie == cookie) {
			run_fail(queue, operation, MEMPOOL_E_CANCELLED);
			count++;
		}
		operation = next;
	}
	(void)pthread_mutex_unlock(&pool->lock);
	return count;
}

/* Deadlines. */

/* Session's lock held. Return: is its deadline one that the device must be stopped for? */
static bool run_time_out(struct mempool_queue *queue, struct operation *operation)
{
	operation->timed_out = true;
	/* What is posted of it may all have come back, and the rest not be posted yet. */
	if (operation->in_flight > 0)
		return true;
	run_fail(queue, operation, MEMPOOL_E_TIMEOUT);
	return false;
}

/* Session's lock held. Looks at all, which is seldom needed. */
static void run_deadlines(struct mempool_queue *queue, uint64_t now_ns)
{
	bool stop = false;

	queue->due_ns = UINT64_MAX;
	for (uint32_t i = 0; i < queue->operations.room; i++) {
		struct operation *operation = &queue->operations.slots[i];
		bool is_open = operation->state == OPERATION_WAITING ||
			       operation->state == OPERATION_POSTED;

		if (!is_open || operation->timed_out)
			continue;
		if (operation->deadline_ns <= now_ns)
			stop = run_time_out(queue, operation) || stop;
		else if (operation->deadline_ns < queue->due_ns)
			queue->due_ns = operation->deadline_ns;
	}
	if (!stop)
		return;
	run_lose(queue, error_text(MEMPOOL_E_TIMEOUT));
	run_fail_waiting(queue);
}

/* The lane may have been lost by others: then it is only noticed here, and closed. */
static void run_watch(struct mempool_queue *queue)
{
	struct mempool *pool = queue->pool;
	uint64_t now_ns = clock_now_ns();
	bool is_lost;

	(void)pthread_mutex_lock(&pool->lock);
	if (now_ns >= queue->due_ns)
		run_deadlines(queue, now_ns);
	is_lost = queue->lane.state == LANE_LOST;
	if (is_lost && queue_in_flight(queue) > 0)
		run_lose(queue, "");
	(void)pthread_mutex_unlock(&pool->lock);
	/* With nothing in flight, too: the channel of a device that was removed is never quiet. */
	if (is_lost && (queue_in_flight(queue) == 0 || now_ns >= queue->flush_until_ns))
		queue_give_up(queue);
}

void queue_step(struct mempool_queue *queue)
{
	run_collect(queue);
	run_watch(queue);
	if (operations_next(&queue->operations) != NULL)
		queue_post(queue);
}

uint64_t queue_next_ns(const struct mempool_queue *queue)
{
	bool is_flushing = queue->flush_until_ns != 0 && queue_in_flight(queue) > 0;

	if (operations_outstanding(&queue->operations) == 0)
		return UINT64_MAX;
	return is_flushing && queue->flush_until_ns < queue->due_ns ? queue->flush_until_ns
								    : queue->due_ns;
}
