/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef DAEMON_DEADLINE_H
#define DAEMON_DEADLINE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct event_base;
struct deadline_queue;

/*
 * All deadlines of the daemon: one heap, one timerfd on CLOCK_BOOTTIME in the
 * event loop. A deadline never fires early.
 */

/* Embedded in the object that waits; zero-initialised = not set. */
struct deadline {
	uint64_t at_ns;
	size_t index_1; /* place in the heap, from 1; 0 = not set */
	void (*fire)(struct deadline *deadline, void *context);
	void *context;
};

/**
 * deadline_queue_new() - make the queue and join it to a loop
 * @base: the loop, or NULL: then the caller drives it with deadline_queue_run() (tests)
 *
 * Return: 0 or a negative errno.
 */
int deadline_queue_new(struct event_base *base, struct deadline_queue **ret_queue);

/**
 * deadline_queue_free() - NULL is allowed; no deadline may be set any more (asserted)
 *
 * Return: NULL.
 */
struct deadline_queue *deadline_queue_free(struct deadline_queue *queue);

/**
 * deadline_set() - set or move a deadline
 * @deadline: fire and context filled in by the caller
 * @at_ns: on clock_now_ns()'s time scale
 *
 * O(log n). Return: 0, or -ENOMEM (a deadline that was set before stays as it was).
 */
int deadline_set(struct deadline_queue *queue, struct deadline *deadline, uint64_t at_ns);

/**
 * deadline_clear() - a deadline that is not set is allowed
 */
void deadline_clear(struct deadline_queue *queue, struct deadline *deadline);

static inline bool deadline_is_set(const struct deadline *deadline)
{
	return deadline->index_1 != 0;
}

/**
 * deadline_queue_run() - fire what is due, at most @budget deadlines
 *
 * A deadline is taken out before its function is called, which may set it again
 * or set and clear others.
 * Return: the number fired.
 */
size_t deadline_queue_run(struct deadline_queue *queue, uint64_t now_ns, size_t budget);

/**
 * deadline_queue_next_ns() - the earliest deadline, UINT64_MAX if there is none
 */
uint64_t deadline_queue_next_ns(const struct deadline_queue *queue);

#endif
