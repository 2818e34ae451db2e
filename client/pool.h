/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef CLIENT_POOL_H
#define CLIENT_POOL_H

#include <infiniband/verbs.h>
#include <pthread.h>
#include <rdma/rdma_cma.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/socket.h>

#include "client/control.h"
#include "client/events.h"
#include "client/include/mempool.h"
#include "client/lane.h"
#include "client/memory.h"
#include "client/reconnect.h"

/*
 * A session. One lock guards its state: connections, requests, leases. A lane moreover has a
 * holder (see client/lane.h), who owns its queue and buffers; the lock is taken by holders,
 * never the other way round: nobody waits for a lane with the lock held but in wait_until().
 */

struct pool_device;
struct secrets;

struct mempool {
	struct mempool *next_open; /* see client/sessions.h */
	pthread_mutex_t lock;
	pthread_t thread;
	bool thread_runs; /* only the thread that opens and closes looks at it */
	bool stop;
	int wake_fd;
	uint32_t timeout_ms; /* constant */
	struct rdma_event_channel *channel;
	struct pool_device *devices;
	struct sockaddr_storage peer; /* constant once connected */
	struct secrets *secrets;
	struct control control;
	struct lane lane; /* the one that is used; first of lanes */
	struct lane *lanes;
	struct mempool_queue *queues;
	uint64_t incarnations; /* of all lanes so far */
	struct memory memory;  /* has a lock of its own, which may be taken under this one */
	struct events events;
	struct reconnect reconnect;
	struct mempool_lease *leases;
	uint64_t renewal_due_ns;       /* when the times of one of them ask for something */
	pthread_cond_t leases_changed; /* one of them may be used again, or never more */
};

/** pool_pd() - our protection domain of a device; lock held; Return: 0 or a negative errno */
int pool_pd(struct mempool *pool, struct ibv_context *context, struct ibv_pd **ret_pd);

/** pool_current_pd() - that of the device we have used last; lock held; Return: it, or NULL */
struct ibv_pd *pool_current_pd(const struct mempool *pool);

/** pool_deadline() - of a call that begins now */
uint64_t pool_deadline(const struct mempool *pool);

/**
 * pool_spawn() - start a thread of the session, with all signals blocked
 *
 * Return: 0 or a negative errno.
 */
int pool_spawn(struct mempool *pool, void *(*run)(void *), const char *name, pthread_t *ret_thread);

/** pool_wake() - let the service thread do a step */
void pool_wake(struct mempool *pool);

/**
 * pool_step() - handle all events there are, without blocking; lock held
 *
 * All that the service thread does between two polls.
 */
void pool_step(struct mempool *pool);

#define POOL_OPTIONS_MAX 4096 /* no version will have a longer struct */

/**
 * pool_options_known() - is a struct that begins with its size one that we understand in full?
 *
 * One that claims to be longer than POOL_OPTIONS_MAX is not, and is not looked into.
 */
bool pool_options_known(const void *options, size_t known_bytes);

/**
 * pool_options_take() - copy a struct that begins with its size
 * @oldest_bytes: what the first version of it had
 * @known_bytes: room in @ret_options
 * @ret_options: as we know it; what the caller's does not have is 0
 *
 * Return: was it of one of the two sizes, or larger with nothing in it that we do not know?
 */
bool pool_options_take(const void *options, size_t oldest_bytes, size_t known_bytes,
		       void *ret_options);

/** pool_lane() - for tests: the lane that is used */
static inline struct lane *pool_lane(mempool *pool)
{
	return &pool->lane;
}

/**
 * pool_lane_new() - for tests: a further lane, opened
 *
 * Belongs to the session. Return: 0 or a code.
 */
int pool_lane_new(mempool *pool, struct lane **ret_lane);

#endif
