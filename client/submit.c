/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What applications do with a queue all the time: submit, poll, wait for its descriptor.
 *
 * Invariant: after mempool_queue_arm() the descriptor becomes readable for whatever there is to
 * do: what came before it was asked to is looked for after it was.
 *
 * Thread: any; one at a time on a queue, by its lock.
 */
#include <errno.h>
#include <limits.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/timerfd.h>
#include <unistd.h>

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
	(void)pthread_mutex_unlock(&queue->lock);
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
	(void)pthread_mutex_unlock(&queue->lock);
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
	(void)pthread_mutex_unlock(&queue->lock);
	return 0;
}

/* Waiting. */

static void submit_set_timer(const struct mempool_queue *queue)
{
	uint64_t at_ns = queue_next_ns(queue);
	struct itimerspec timer = {0};

	/* 0 means never; a time that has passed fires at once. */
	if (at_ns != UINT64_MAX) {
		timer.it_value.tv_sec = (time_t)(at_ns / CLOCK_NS_PER_S);
		timer.it_value.tv_nsec = (long)(at_ns % CLOCK_NS_PER_S);
	}
	(void)timerfd_settime(queue->timer_fd, TFD_TIMER_ABSTIME, &timer, NULL);
}

static void submit_drain(struct mempool_queue *queue)
{
	uint64_t value;
	ssize_t n = read(queue->wake_fd, &value, sizeof(value));

	(void)n; /* nothing in it is as good */
	if (queue->lane.cq.cq != NULL && verbs_cq_rearm(&queue->lane.cq) < 0)
		queue_give_up(queue);
}

static void submit_wake(const struct mempool_queue *queue)
{
	uint64_t one = 1;
	ssize_t n;

	if (queue->operations.done.first == NULL)
		return;
	n = write(queue->wake_fd, &one, sizeof(one));
	(void)n; /* it cannot be full */
}

int mempool_queue_fd(mempool_queue *queue)
{
	int r = guard_look();

	if (r < 0)
		return r;
	if (queue == NULL)
		return client_error_raise(MEMPOOL_E_INVALID, "no queue was given");
	return queue->poll_fd;
}

int mempool_queue_arm(mempool_queue *queue)
{
	int r = guard_call();

	if (r < 0)
		return r;
	if (queue == NULL)
		return client_error_raise(MEMPOOL_E_INVALID, "no queue was given");
	(void)pthread_mutex_lock(&queue->lock);
	submit_drain(queue);
	queue_step(queue);
	submit_set_timer(queue);
	submit_wake(queue);
	(void)pthread_mutex_unlock(&queue->lock);
	return 0;
}

/* Return: are there operations that are not done? The descriptor tells when to look again. */
static bool submit_look(struct mempool_queue *queue)
{
	bool outstanding;

	(void)pthread_mutex_lock(&queue->lock);
	submit_drain(queue);
	queue_step(queue);
	submit_set_timer(queue);
	outstanding = operations_outstanding(&queue->operations) > 0;
	if (!outstanding)
		submit_wake(queue);
	(void)pthread_mutex_unlock(&queue->lock);
	return outstanding;
}

int mempool_flush(mempool_queue *queue, uint32_t timeout_ms)
{
	uint64_t deadline_ns;
	uint64_t left_ms;
	struct pollfd fd;
	int r = guard_call();

	if (r < 0)
		return r;
	if (queue == NULL)
		return client_error_raise(MEMPOOL_E_INVALID, "no queue was given");
	deadline_ns = clock_add_ms(clock_now_ns(),
				   timeout_ms != 0 ? timeout_ms : queue->pool->timeout_ms);
	fd = (struct pollfd){.fd = queue->poll_fd, .events = POLLIN};
	while (submit_look(queue)) {
		left_ms = clock_left_ms(deadline_ns, clock_now_ns());
		if (left_ms == 0)
			return client_error_raise(MEMPOOL_E_TIMEOUT, "operations are not done yet");
		(void)poll(&fd, 1, left_ms > INT_MAX ? INT_MAX : (int)left_ms);
	}
	return 0;
}
