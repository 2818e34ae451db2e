/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef DAEMON_POSTING_H
#define DAEMON_POSTING_H

#include <infiniband/verbs.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/queue.h>

struct server_counters;
struct window;

/*
 * The one place that posts binds and invalidates: a queue of windows for one QP, posted in
 * chains with one signalled completion, never more than the send queue holds.
 */
struct posting {
	struct ibv_qp *qp;
	uint32_t route;
	struct server_counters *counters;
	TAILQ_HEAD(posting_queue, window) queue; /* not yet posted, oldest first */
	struct window **ring;			 /* posted, by sequence number modulo the size */
	uint64_t *ring_posted_ns;
	uint32_t ring_mask;
	uint32_t depth; /* of the send queue */
	uint32_t head;	/* sequence number of the oldest posted */
	uint32_t tail;	/* of the next to post */
};

/** posting_init() - @depth: of the send queue; Return: 0 or -ENOMEM */
int posting_init(struct posting *posting, struct ibv_qp *qp, uint32_t route, uint32_t depth,
		 struct server_counters *counters);

/** posting_deinit() - nothing may be queued (asserted); what is posted is dropped; all zero is allowed */
void posting_deinit(struct posting *posting);

/**
 * posting_add() - queue a window for what its state says: BINDING or INVALIDATING
 */
void posting_add(struct posting *posting, struct window *window);

/** posting_remove() - take out a window that is queued and not posted */
void posting_remove(struct posting *posting, struct window *window);

/**
 * posting_flush() - post what the send queue has room for
 *
 * Return: 0, or a negative errno: the QP is of no use any more. What the device has taken is posted.
 */
int posting_flush(struct posting *posting);

/**
 * posting_pop() - the oldest posted window, if its work request is not younger than a completed one
 * @sequence: lower half of a completion's wr_id
 *
 * Work requests of a send queue complete in order, so the success of one is that of all before it.
 * Return: NULL when there is none left.
 */
struct window *posting_pop(struct posting *posting, uint32_t sequence);

/** posting_pop_any() - the oldest posted window whatever has completed; Return: NULL if there is none */
struct window *posting_pop_any(struct posting *posting);

/** posting_oldest_ns() - when the oldest work request was posted; UINT64_MAX if there is none */
uint64_t posting_oldest_ns(const struct posting *posting);

static inline bool posting_is_empty(const struct posting *posting)
{
	return TAILQ_EMPTY(&posting->queue) && posting->head == posting->tail;
}

#endif
