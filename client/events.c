/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Telling the application what has happened: into a ring, from where it takes events, or from
 * where the service thread hands them to its callback.
 *
 * Invariants: the descriptor is readable exactly while the ring is not empty. A callback runs
 * without the lock, on the service thread, one at a time, in order.
 *
 * Thread: any that holds the session's lock.
 */
#include "client/events.h"

#include <errno.h>
#include <stddef.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "client/error.h"
#include "client/guard.h"
#include "client/lease.h"
#include "client/pool.h"
#include "client/wait.h"
#include "common/clock.h"

int events_init(struct events *events, const struct mempool_connect_opts *opts)
{
	int r;

	*events = (struct events){.callback = opts->on_event, .context = opts->on_event_context};
	events->fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
	if (events->fd < 0)
		return -errno;
	r = wait_init(&events->came);
	if (r < 0)
		(void)close(events->fd);
	return r;
}

void events_deinit(struct events *events)
{
	(void)pthread_cond_destroy(&events->came);
	(void)close(events->fd);
}

static void events_signal(struct events *events)
{
	uint64_t one = 1;
	ssize_t n = write(events->fd, &one, sizeof(one));

	(void)n; /* it cannot be full: one is written when it is empty */
}

static void events_unsignal(struct events *events)
{
	uint64_t count;
	ssize_t n = read(events->fd, &count, sizeof(count));

	(void)n;
}

static void events_push(struct mempool *pool, const struct mempool_event *event)
{
	struct events *events = &pool->events;

	if (!events->on)
		return;
	if (event_ring_is_empty(&events->ring))
		events_signal(events);
	event_ring_push(&events->ring, event);
	(void)pthread_cond_broadcast(&events->came);
	if (events->callback != NULL)
		pool_wake(pool);
}

static bool events_pop(struct events *events, struct mempool_event *ret_event)
{
	if (!event_ring_pop(&events->ring, ret_event))
		return false;
	if (event_ring_is_empty(&events->ring))
		events_unsignal(events);
	return true;
}

void events_tell(struct mempool *pool, uint32_t kind, int code)
{
	struct mempool_event event = {.kind = kind, .code = code};

	events_push(pool, &event);
}

void events_tell_lease(struct mempool_lease *lease, uint32_t kind, int code, uint64_t left_ms)
{
	struct mempool_event event = {
		.kind = kind,
		.code = code,
		.lease = lease,
		.lease_id = lease->id,
		.left_ms = left_ms,
	};

	/* Of a handle that nobody has there is nobody to tell. */
	if (!lease->unclaimed && !lease->hidden)
		events_push(lease->pool, &event);
}

void events_tell_draining(struct mempool *pool)
{
	if (pool->events.draining)
		return;
	pool->events.draining = true;
	events_tell(pool, MEMPOOL_EVENT_DRAINING, 0);
}

void events_tell_drain(struct mempool *pool, const struct message_drain *notice)
{
	struct mempool_event event = {.kind = MEMPOOL_EVENT_DRAINING, .left_ms = notice->left_ms};

	pool->events.draining = notice->draining != 0;
	if (pool->events.draining)
		events_push(pool, &event);
}

void events_forget(struct mempool *pool, const struct mempool_lease *lease)
{
	event_ring_forget(&pool->events.ring, lease);
}

void events_deliver(struct mempool *pool)
{
	struct events *events = &pool->events;
	struct mempool_event event;

	if (events->callback == NULL)
		return;
	while (events->on && events_pop(events, &event)) {
		event.size = sizeof(event);
		(void)pthread_mutex_unlock(&pool->lock);
		guard_enter_callback();
		events->callback(&event, events->context);
		guard_leave_callback();
		(void)pthread_mutex_lock(&pool->lock);
	}
}

static int events_await(struct mempool *pool, uint64_t deadline_ns, struct mempool_event *ret_event)
{
	struct events *events = &pool->events;

	while (!events_pop(events, ret_event)) {
		if (!wait_until(&events->came, &pool->lock, deadline_ns))
			return client_error_raise(MEMPOOL_E_TIMEOUT, "nothing has happened");
	}
	return 0;
}

int mempool_next_event(mempool *pool, struct mempool_event *ret_event, uint32_t timeout_ms)
{
	struct mempool_event event;
	uint64_t deadline_ns;
	size_t size;
	int r = guard_call();

	if (r < 0)
		return r;
	if (pool == NULL || ret_event == NULL || ret_event->size < sizeof(*ret_event))
		return client_error_raise(MEMPOOL_E_INVALID, "an argument is not valid");
	if (pool->events.callback != NULL)
		return client_error_raise(MEMPOOL_E_STATE,
					  "the session's events go to its callback");
	deadline_ns = clock_add_ms(clock_now_ns(), timeout_ms);
	(void)pthread_mutex_lock(&pool->lock);
	r = events_await(pool, deadline_ns, &event);
	(void)pthread_mutex_unlock(&pool->lock);
	if (r < 0)
		return r;
	size = ret_event->size;
	*ret_event = event;
	ret_event->size = size;
	return 0;
}

int mempool_event_fd(mempool *pool)
{
	int r = guard_call();

	if (r < 0)
		return r;
	if (pool == NULL)
		return client_error_raise(MEMPOOL_E_INVALID, "no session was given");
	if (pool->events.callback != NULL)
		return client_error_raise(MEMPOOL_E_STATE,
					  "the session's events go to its callback");
	return pool->events.fd;
}
