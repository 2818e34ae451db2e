/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What applications do with a queue all the time: submit, poll, wait for its descriptor.
 *
 * Invariants: after mempool_queue_arm() the descriptor becomes readable for whatever there is to
 * do: what came before it was asked to is looked for after it was. Whoever takes what the channel
 * has told, and so could wake another one, tells that one.
 *
 * Thread: any; one at a time on a queue, by its lock.
 */
#include <limits.h>
#include <poll.h>

#include "client/error.h"
#include "client/guard.h"
#include "client/pool.h"
#include "client/queue.h"
#include "common/clock.h"

static bool submit_take(struct mempool_queue *queue, const struct mempool_op *ops, size_t count,
			size_t *ret_count)
{
	struct mempool *pool = queue->pool;
	uint64_t now_ns = clock_now_ns();
	size_t taken = 0;

	(void)pthread_mutex_lock(&pool->lock);
	while (taken < count && queue_take(queue, &ops[taken], now_ns))
		taken++;
	(void)pthread_mutex_unlock(&pool->lock);
	*ret_count = taken;
	return taken > 0;
}

int mempool_submit(mempool_queue *queue, const struct mempool_op *ops, size_t count,
		   size_t *ret_count)
{
	bool any;
	int r = guard_call();

	if (r < 0)
		return r;
	if (queue == NULL || ops == NULL || count == 0 || ret_count == NULL)
		return client_error_raise(MEMPOOL_E_INVALID, "an argument is not valid");
	(void)pthread_mutex_lock(&queue->lock);
	any = submit_take(queue, ops, count, ret_count);
	if (any)
		queue_post(queue);
	queue_unlock(queue);
	return any ? 0
		   : client_error_raise(MEMPOOL_E_BUSY,
					"the queue is full of operations that are not reported");
}

int mempool_poll(mempool_queue *queue, struct mempool_completion *completions, size_t count,
		 size_t *ret_count)
{
	struct operation *operation;
	size_t reported = 0;
	int r = guard_call();

	if (r < 0)
		return r;
	if (queue == NULL || completions == NULL || count == 0 || ret_count == NULL)
		return client_error_raise(MEMPOOL_E_INVALID, "an argument is not valid");
	(void)pthread_mutex_lock(&queue->lock);
	queue_step(queue);
	while (reported < count) {
		operation = operations_report(&queue->operations);
		if (operation == NULL)
			break;
		completions[reported++] = (struct mempool_completion){
			.cookie = operation->op.cookie,
			.code = operation->code,
		};
	}
	queue_unlock(queue);
	*ret_count = reported;
	return 0;
}

int mempool_cancel(mempool_queue *queue, uint64_t cookie, size_t *ret_count)
{
	int r = guard_call();

	if (r < 0)
		return r;
	if (queue == NULL || ret_count == NULL)
		return client_error_raise(MEMPOOL_E_INVALID, "an argument is not valid");
	(void)pthread_mutex_lock(&queue->lock);
	*ret_count = queue_cancel(queue, cookie);
	queue_unlock(queue);
	return 0;
}

/* Waiting. */

void queue_notify(struct mempool_queue *queue)
{
	waker_set_timer(&queue->waker, queue_next_ns(queue));
	if (queue->operations.done.first != NULL)
		waker_say_done(&queue->waker);
}

/* Costs nothing where nobody flushes. Others may have submitted what is due before all else. */
void queue_unlock(struct mempool_queue *queue)
{
	struct waker *waker = &queue->waker;

	if (waker->flushing > 0 && operations_outstanding(&queue->operations) == 0)
		waker_say_idle(waker);
	else if (waker->flushing > 0 && queue_next_ns(queue) < waker->due_ns)
		waker_set_timer(waker, queue_next_ns(queue));
	(void)pthread_mutex_unlock(&queue->lock);
}

/* What the channel has told is looked at now, and then it tells of what comes next. */
static void submit_look(struct mempool_queue *queue)
{
	if (queue->lane.cq.cq != NULL && verbs_cq_rearm(&queue->lane.cq) < 0)
		queue_give_up(queue);
	queue_step(queue);
	queue_notify(queue);
}

int mempool_queue_fd(mempool_queue *queue)
{
	int r = guard_look();

	if (r < 0)
		return r;
	if (queue == NULL)
		return client_error_raise(MEMPOOL_E_INVALID, "no queue was given");
	return queue->waker.app_fd;
}

int mempool_queue_arm(mempool_queue *queue)
{
	int r = guard_call();

	if (r < 0)
		return r;
	if (queue == NULL)
		return client_error_raise(MEMPOOL_E_INVALID, "no queue was given");
	(void)pthread_mutex_lock(&queue->lock);
	waker_take_done(&queue->waker);
	submit_look(queue);
	queue_unlock(queue);
	return 0;
}

/* Return: are there operations that are not done? flush_fd tells when to look again. */
static bool submit_is_outstanding(struct mempool_queue *queue)
{
	submit_look(queue);
	if (operations_outstanding(&queue->operations) == 0)
		return false;
	waker_take_idle(&queue->waker);
	return true;
}

/* The lock is held before and after. */
static void submit_sleep(struct mempool_queue *queue, uint64_t ms)
{
	struct pollfd fd = {.fd = queue->waker.flush_fd, .events = POLLIN};

	queue_unlock(queue);
	(void)poll(&fd, 1, ms > INT_MAX ? INT_MAX : (int)ms);
	(void)pthread_mutex_lock(&queue->lock);
}

/* That nothing is outstanding any more stays said until the last one who flushes has seen it. */
static int submit_flush(struct mempool_queue *queue, uint64_t deadline_ns)
{
	uint64_t left_ms = 1;

	queue->waker.flushing++;
	while (submit_is_outstanding(queue)) {
		left_ms = clock_left_ms(deadline_ns, clock_now_ns());
		if (left_ms == 0)
			break;
		submit_sleep(queue, left_ms);
	}
	if (--queue->waker.flushing == 0)
		waker_take_idle(&queue->waker);
	if (left_ms == 0)
		return client_error_raise(MEMPOOL_E_TIMEOUT, "operations are not done yet");
	return 0;
}

int mempool_flush(mempool_queue *queue, uint32_t timeout_ms)
{
	uint64_t deadline_ns;
	int r = guard_call();

	if (r < 0)
		return r;
	if (queue == NULL)
		return client_error_raise(MEMPOOL_E_INVALID, "no queue was given");
	deadline_ns = clock_add_ms(clock_now_ns(),
				   timeout_ms != 0 ? timeout_ms : queue->pool->timeout_ms);
	(void)pthread_mutex_lock(&queue->lock);
	r = submit_flush(queue, deadline_ns);
	queue_unlock(queue);
	return r;
}
