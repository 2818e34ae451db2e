/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Queues: how they are made, get to know leases, get a new lane, and end. Owns the lane, the
 * operations, and the descriptors that are waited for.
 *
 * Invariants: the queue is the lane's holder from its beginning to its end. A lane that goes takes
 * with it what its channel has to tell; whoever made it go says so instead.
 *
 * Thread: any; while a lane is opened, or a lease attached, the queue's lock is held, and others on
 * this queue are held up. For sessions and leases it is waited without.
 */
#include "client/queue.h"

#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

#include "client/error.h"
#include "client/guard.h"
#include "client/lease.h"
#include "client/pool.h"
#include "client/reconnect.h"
#include "common/clock.h"

#define QUEUE_DEPTH	   64
#define QUEUE_DEPTH_MAX	   4096
#define QUEUE_CAPACITY_MAX 65536

/* Parts. */

static int queue_alloc(struct mempool_queue *queue, uint32_t capacity)
{
	queue->flight = calloc(queue->depth, sizeof(struct operation *));
	queue->wrs = calloc(queue->depth, sizeof(*queue->wrs));
	queue->sges = calloc(queue->depth, sizeof(*queue->sges));
	if (queue->flight == NULL || queue->wrs == NULL || queue->sges == NULL)
		return -ENOMEM;
	return operations_init(&queue->operations, capacity);
}

static void queue_free_parts(struct mempool_queue *queue)
{
	operations_deinit(&queue->operations);
	free(queue->flight);
	free(queue->wrs);
	free(queue->sges);
	waker_deinit(&queue->waker);
}

static int queue_init(struct mempool_queue *queue, uint32_t capacity)
{
	int r = waker_init(&queue->waker);

	if (r < 0)
		return r;
	queue->due_ns = UINT64_MAX;
	r = queue_alloc(queue, capacity);
	if (r == 0)
		r = lane_init(&queue->lane, queue->pool);
	if (r < 0)
		goto err_free_parts;
	queue->lane.sends = queue->depth;
	queue->lane.staged = false;
	queue->lane.busy = true;
	r = -pthread_mutex_init(&queue->lock, NULL);
	if (r == 0)
		return 0;
	queue->lane.busy = false;
	lane_deinit(&queue->lane);
err_free_parts:
	queue_free_parts(queue);
	return r;
}

/* With its lane closed. Session's lock held. */
static void queue_deinit(struct mempool_queue *queue)
{
	lease_forget_lane(queue->pool, &queue->lane);
	queue->lane.busy = false;
	lane_deinit(&queue->lane);
	(void)pthread_mutex_destroy(&queue->lock);
	queue_free_parts(queue);
}

/* The session's lists. */

static void queue_link(struct mempool_queue *queue)
{
	struct mempool *pool = queue->pool;

	(void)pthread_mutex_lock(&pool->lock);
	queue->next = pool->queues;
	pool->queues = queue;
	queue->lane.next = pool->lanes;
	pool->lanes = &queue->lane;
	(void)pthread_mutex_unlock(&pool->lock);
}

/* Session's lock held. */
static void queue_unlink(struct mempool_queue *queue)
{
	struct mempool_queue **queues = &queue->pool->queues;
	struct lane **lanes = &queue->pool->lanes;

	while (*queues != queue)
		queues = &(*queues)->next;
	*queues = queue->next;
	while (*lanes != &queue->lane)
		lanes = &(*lanes)->next;
	*lanes = queue->lane.next;
}

/* The lane. */

/* What is in flight has come back, or there is no QP any more. */
static void queue_settle(struct mempool_queue *queue)
{
	queue_step(queue);
	while (queue_in_flight(queue) > 0) {
		(void)usleep(1000);
		queue_step(queue);
	}
}

/* What is wrong with the connection, whatever it is, asks the caller to try again. */
static int queue_told(int code)
{
	switch (code) {
	case MEMPOOL_E_LANE_STATE:
	case MEMPOOL_E_UNREACHABLE:
	case MEMPOOL_E_REJECTED:
	case MEMPOOL_E_NO_RDMA:
	case MEMPOOL_E_INTERNAL:
		return client_error_raise(MEMPOOL_E_LANE, "the data connection is not open: %s",
					  mempool_last_error());
	default:
		return code;
	}
}

static int queue_open_lane(struct mempool_queue *queue, uint64_t deadline_ns)
{
	int r;

	queue_settle(queue);
	waker_unwatch(&queue->waker);
	r = lane_open(&queue->lane, deadline_ns);
	queue->flush_until_ns = 0;
	if (r < 0)
		return queue_told(r);
	r = waker_watch(&queue->waker, queue->lane.cq.channel->fd);
	if (r == 0)
		return 0;
	(void)lane_close(&queue->lane);
	return client_error_raise(client_error_errno(r), "epoll_ctl: %s", strerrordesc_np(-r));
}

static int queue_ensure_lane(struct mempool_queue *queue, uint64_t deadline_ns)
{
	return lane_is_up(&queue->lane) ? 0 : queue_open_lane(queue, deadline_ns);
}

static int queue_restore_lane(struct mempool_queue *queue, uint64_t deadline_ns)
{
	int r;

	(void)pthread_mutex_lock(&queue->lock);
	r = queue_ensure_lane(queue, deadline_ns);
	queue_notify(queue);
	queue_unlock(queue);
	return r;
}

/* Leases. */

static bool queue_has(struct mempool_queue *queue, struct mempool_lease *lease)
{
	return lane_is_up(&queue->lane) && lease_is_attached(lease, &queue->lane);
}

/*
 * Without the queue's lock: a change of the lease waits for what is in flight, which is seen to by
 * others who use the queue.
 */
static int queue_await_lease(struct mempool_queue *queue, struct mempool_lease *lease,
			     uint64_t deadline_ns)
{
	int r = reconnect_await_lease(lease, deadline_ns);

	if (r < 0)
		return r;
	return queue_has(queue, lease) ? lease_check_usable(lease)
				       : lease_settle(lease, deadline_ns);
}

/* The lane may have been lost while the lease was waited for. */
static int queue_attach(struct mempool_queue *queue, struct mempool_lease *lease,
			uint64_t deadline_ns)
{
	int r;

	(void)pthread_mutex_lock(&queue->lock);
	r = queue_ensure_lane(queue, deadline_ns);
	if (r == 0 && !lease_is_attached(lease, &queue->lane))
		r = queue_told(lease_attach(lease, &queue->lane, deadline_ns));
	queue_notify(queue);
	queue_unlock(queue);
	return r;
}

/* Session's lock held. Of one whose session is lost that is not known. */
static bool queue_lease_is_over(const struct mempool_lease *lease)
{
	int code = lease_code(lease);

	return code != 0 && code != MEMPOOL_E_SESSION_LOST;
}

/* Session's lock held. Was it attached, and is it not any more? */
static bool queue_misses(const struct mempool_queue *queue, struct mempool_lease *lease)
{
	struct attachment *at = attachment_find(&lease->own, &queue->lane);

	return at != NULL && !attachment_is_good(at) && !queue_lease_is_over(lease);
}

/* Return: the next one that is missing, kept, or NULL; @lease is not kept any more; NULL: first. */
static struct mempool_lease *queue_next_lease(struct mempool_queue *queue,
					      struct mempool_lease *lease)
{
	struct mempool *pool = queue->pool;
	struct mempool_lease *next;

	(void)pthread_mutex_lock(&pool->lock);
	next = lease != NULL ? lease->next : pool->leases;
	while (next != NULL && !queue_misses(queue, next))
		next = next->next;
	if (next != NULL)
		next->queued++;
	if (lease != NULL)
		lease->queued--;
	(void)pthread_mutex_unlock(&pool->lock);
	return next;
}

/* A lease that has ended meanwhile is no failure. */
static int queue_reattach(struct mempool_queue *queue, struct mempool_lease *lease,
			  uint64_t deadline_ns)
{
	struct mempool *pool = queue->pool;
	bool over;
	int r;

	r = queue_await_lease(queue, lease, deadline_ns);
	if (r == 0)
		r = queue_attach(queue, lease, deadline_ns);
	(void)pthread_mutex_lock(&pool->lock);
	over = queue_lease_is_over(lease);
	(void)pthread_mutex_unlock(&pool->lock);
	return over ? 0 : r;
}

/* One that fails leaves the others alone. Return: 0, or the code of the first that has failed. */
static int queue_reattach_each(struct mempool_queue *queue, uint64_t deadline_ns)
{
	struct mempool_lease *lease = queue_next_lease(queue, NULL);
	int first = 0;
	int r;

	while (lease != NULL) {
		r = first == MEMPOOL_E_TIMEOUT ? first : queue_reattach(queue, lease, deadline_ns);
		if (first == 0)
			first = r;
		lease = queue_next_lease(queue, lease);
	}
	return first;
}

static uint64_t queue_incarnation(struct mempool_queue *queue)
{
	struct mempool *pool = queue->pool;
	uint64_t incarnation;

	(void)pthread_mutex_lock(&pool->lock);
	incarnation = queue->lane.incarnation;
	(void)pthread_mutex_unlock(&pool->lock);
	return incarnation;
}

/* If the lane was lost and opened once more meanwhile, those that were first are missing again. */
static int queue_reattach_all(struct mempool_queue *queue, uint64_t deadline_ns)
{
	uint64_t incarnation;
	int r;

	do {
		incarnation = queue_incarnation(queue);
		r = queue_reattach_each(queue, deadline_ns);
	} while (r == 0 && incarnation != queue_incarnation(queue));
	return r;
}

/* The library's functions. */

static int queue_new(mempool *pool, const struct mempool_queue_opts *opts,
		     struct mempool_queue **ret_queue)
{
	struct mempool_queue *queue = calloc(1, sizeof(*queue));
	int r;

	if (queue == NULL)
		return client_error_raise(MEMPOOL_E_NO_MEMORY, "not enough memory");
	queue->pool = pool;
	queue->depth = opts->depth != 0 ? opts->depth : QUEUE_DEPTH;
	r = queue_init(queue, opts->capacity != 0 ? opts->capacity : queue->depth);
	if (r < 0) {
		free(queue);
		return client_error_raise(client_error_errno(r), "cannot make a queue: %s",
					  strerrordesc_np(-r));
	}
	queue_link(queue);
	*ret_queue = queue;
	return 0;
}

static void queue_free(struct mempool_queue *queue)
{
	struct mempool *pool = queue->pool;

	(void)pthread_mutex_lock(&queue->lock);
	(void)pthread_mutex_lock(&pool->lock);
	queue->lane.quiet = true;
	(void)pthread_mutex_unlock(&pool->lock);
	queue_give_up(queue);
	queue_unlock(queue);
	(void)pthread_mutex_lock(&pool->lock);
	queue_unlink(queue);
	queue_deinit(queue);
	(void)pthread_mutex_unlock(&pool->lock);
	free(queue);
}

int mempool_queue_create(mempool *pool, const struct mempool_queue_opts *opts,
			 mempool_queue **ret_queue)
{
	struct mempool_queue *queue = NULL;
	uint64_t deadline_ns;
	int r = guard_call();

	if (r < 0)
		return r;
	if (pool == NULL || ret_queue == NULL || !pool_options_known(opts, sizeof(*opts)) ||
	    opts->depth > QUEUE_DEPTH_MAX || opts->capacity > QUEUE_CAPACITY_MAX)
		return client_error_raise(MEMPOOL_E_INVALID, "an argument is not valid");
	deadline_ns = pool_deadline(pool);
	r = reconnect_await(pool, deadline_ns);
	if (r == 0)
		r = queue_new(pool, opts, &queue);
	if (r < 0)
		return r;
	(void)pthread_mutex_lock(&queue->lock);
	r = queue_open_lane(queue, deadline_ns);
	(void)pthread_mutex_unlock(&queue->lock);
	if (r < 0)
		queue_free(queue);
	else
		*ret_queue = queue;
	return r;
}

void mempool_queue_destroy(mempool_queue *queue)
{
	if (queue != NULL && guard_call() == 0)
		queue_free(queue);
}

void queue_free_all(struct mempool *pool)
{
	while (pool->queues != NULL)
		queue_free(pool->queues);
}

int mempool_queue_attach(mempool_queue *queue, mempool_lease *lease)
{
	uint64_t deadline_ns;
	int r = guard_call();

	if (r < 0)
		return r;
	if (queue == NULL || lease == NULL || lease->pool != queue->pool)
		return client_error_raise(MEMPOOL_E_INVALID, "an argument is not valid");
	deadline_ns = pool_deadline(queue->pool);
	/* Others may go on with the queue while the lease is waited for. */
	r = reconnect_await(queue->pool, deadline_ns);
	if (r == 0)
		r = queue_await_lease(queue, lease, deadline_ns);
	return r < 0 ? r : queue_attach(queue, lease, deadline_ns);
}

int mempool_queue_restore(mempool_queue *queue)
{
	uint64_t deadline_ns;
	int r = guard_call();

	if (r < 0)
		return r;
	if (queue == NULL)
		return client_error_raise(MEMPOOL_E_INVALID, "no queue was given");
	deadline_ns = pool_deadline(queue->pool);
	/* Others may go on with the queue meanwhile. */
	r = reconnect_await(queue->pool, deadline_ns);
	if (r < 0)
		return r;
	r = queue_restore_lane(queue, deadline_ns);
	return r < 0 ? r : queue_reattach_all(queue, deadline_ns);
}

int mempool_queue_info(mempool_queue *queue, struct mempool_queue_info *ret_info)
{
	int r = guard_call();

	if (r < 0)
		return r;
	if (queue == NULL || ret_info == NULL || ret_info->size < sizeof(*ret_info))
		return client_error_raise(MEMPOOL_E_INVALID, "an argument is not valid");
	(void)pthread_mutex_lock(&queue->lock);
	*ret_info = (struct mempool_queue_info){
		.size = ret_info->size,
		.depth = queue->depth,
		.capacity = queue->operations.room,
		.inline_max_bytes = queue->lane.inline_max_bytes,
		.waiting = queue->operations.waiting.count,
		.posted = queue->operations.posted,
		.done = queue->operations.done.count,
		.lane_up = lane_is_up(&queue->lane),
	};
	(void)pthread_mutex_unlock(&queue->lock);
	return 0;
}
