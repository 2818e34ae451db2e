/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef CLIENT_RECONNECT_H
#define CLIENT_RECONNECT_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

struct mempool;
struct mempool_lease;

/* Coming back to a session that was lost; guarded by the session's lock. */
struct reconnect {
	uint32_t limit_ms; /* how long it is tried; 0: not at all; UINT32_MAX: for ever; constant */
	bool away;	   /* the session is lost and may come back */
	bool given_up;	   /* for good */
	bool stop;
	bool resting;	  /* leases of a session that is back are asked for */
	bool thread_runs; /* only the thread that opens and closes looks at it */
	pthread_t thread;
	pthread_cond_t changed; /* it has become away, or is to stop */
	uint64_t lost_ns;
	uint64_t pass; /* over the leases, so far */
};

/** reconnect_init() - Return: 0 or a negative errno */
int reconnect_init(struct reconnect *reconnect, uint32_t limit_ms);
void reconnect_deinit(struct reconnect *reconnect);

/** reconnect_start() - make its thread, if it is wanted; Return: 0 or a negative errno */
int reconnect_start(struct mempool *pool);

/** reconnect_stop() - end its thread, within the time-out of a call; takes the lock */
void reconnect_stop(struct mempool *pool);

/** reconnect_lost() - lock held: the session that the application has is lost */
void reconnect_lost(struct mempool *pool);

/** reconnect_lost_leases() - lock held: what a session had that was not yet back is lost, too */
void reconnect_lost_leases(struct mempool *pool);

/**
 * reconnect_adopt() - lock held: a lease that nobody had the handle of until now
 * @session: in which it was granted; if that is over it is to be reattached
 */
void reconnect_adopt(struct mempool_lease *lease, uint64_t session);

/** reconnect_is_away() - lock held: is the session lost, or not yet open again? */
bool reconnect_is_away(const struct mempool *pool);

/**
 * reconnect_await() - at the beginning of a call: wait until the session is back
 *
 * Takes the lock. Return: 0 (it is not away, but may be lost for good), or
 * MEMPOOL_E_SESSION_LOST with the last error set.
 */
int reconnect_await(struct mempool *pool, uint64_t deadline_ns);

/** reconnect_await_lease() - the same, until the lease is back or has ended */
int reconnect_await_lease(struct mempool_lease *lease, uint64_t deadline_ns);

#endif
