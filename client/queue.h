/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef CLIENT_QUEUE_H
#define CLIENT_QUEUE_H

#include <infiniband/verbs.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "client/include/mempool.h"
#include "client/lane.h"
#include "client/operation.h"
#include "client/waker.h"

/*
 * A queue of operations with a lane of its own. Its lock guards all of it; the session's lock
 * and that of the memory are taken under it, never the other way round. Whoever has the lock is
 * the lane's holder.
 */
struct mempool_queue {
	struct mempool_queue *next; /* of the session; under its lock */
	struct mempool *pool;	    /* constant */
	pthread_mutex_t lock;
	struct lane lane;
	struct operations operations;
	/* Of the work requests that are posted, oldest first: a ring of @depth. */
	struct operation **flight;
	uint64_t flight_begun; /* counters; the difference is in flight */
	uint64_t flight_ended;
	uint64_t strays; /* completions of nothing that was in flight; ignored */
	uint32_t depth;
	struct ibv_send_wr *wrs; /* of one doorbell; @depth of each */
	struct ibv_sge *sges;
	uint64_t
		flush_until_ns; /* what is in flight comes back until then, or never; 0: not lost */
	uint64_t due_ns;	/* no operation has an earlier deadline */
	struct waker waker;
};

/** queue_free_all() - no thread uses the session any more */
void queue_free_all(struct mempool *pool);

/* The steps of a queue, in run.c. All with the queue's lock held, and none waits. */

/** queue_take() - one more operation, under the session's lock; Return: false if there is no room */
bool queue_take(struct mempool_queue *queue, const struct mempool_op *op, uint64_t now_ns);

/** queue_post() - ring the doorbell, once, for as much as there is room for */
void queue_post(struct mempool_queue *queue);

/** queue_cancel() - what has that cookie and is not posted; Return: how many are done by that */
uint32_t queue_cancel(struct mempool_queue *queue, uint64_t cookie);

/** queue_step() - collect what has completed, look at deadlines, post what waits */
void queue_step(struct mempool_queue *queue);

/** queue_give_up() - nothing in flight will come back: destroy the QP, so that it is over */
void queue_give_up(struct mempool_queue *queue);

/** queue_next_ns() - when queue_step() is due, if no completion comes before */
uint64_t queue_next_ns(const struct mempool_queue *queue);

static inline uint32_t queue_in_flight(const struct mempool_queue *queue)
{
	return (uint32_t)(queue->flight_begun - queue->flight_ended);
}

/* Who waits for a queue, in submit.c. All with the queue's lock held. */

/** queue_notify() - wake the application for what is done, and whoever waits when something is due */
void queue_notify(struct mempool_queue *queue);

/** queue_unlock() - give the lock back; those who flush are told if there is nothing to wait for */
void queue_unlock(struct mempool_queue *queue);

#endif
