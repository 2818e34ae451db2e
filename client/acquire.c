/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Acquiring leases, one or many in one message. The handles exist before the request is sent,
 * and each is put into the session's list when its grant arrives.
 *
 * Invariants: the caller gets all leases or none. What was granted and does not get to the
 * caller is given back: by the thread that gave up if it came before, by the control
 * connection if it comes later.
 *
 * Thread: any; grants on the service thread.
 */
#include "client/acquire.h"

#include <errno.h>
#include <pthread.h>
#include <stddef.h>
#include <string.h>

#include "client/guard.h"
#include "client/lane.h"
#include "client/lease.h"
#include "client/pool.h"
#include "common/clock.h"
#include "proto/error.h"

#define ACQUIRE_OPTS_MIN offsetof(struct mempool_acquire_opts, flags) /* of the first version */

struct acquisition {
	struct mempool *pool;
	struct message_acquire request;
	uint64_t incarnation; /* of the lane that was asked for */
	bool renews;	      /* the leases are renewed by themselves */
	uint16_t granted;     /* of the leases; these are in the session's list */
	struct mempool_lease *leases[PROTO_ACQUIRE_LEASES];
};

static bool acquire_is_asked_for(const struct acquisition *a, const struct message_grant *grant)
{
	return a->granted < a->request.count && grant->lane == a->request.lane &&
	       grant->len_bytes == a->request.len_bytes && grant->rights == a->request.rights &&
	       lease_grant_is_valid(grant) && lease_find(a->pool, grant->lease_id) == NULL;
}

static int acquire_granted(struct request *request, const struct message *m)
{
	struct acquisition *a = request->context;
	const struct message_grant *grant = &m->u.grant;
	bool more = (m->flags & MESSAGE_FLAG_MORE) != 0;
	uint64_t ttl_ms = grant->ttl_ms;
	struct mempool_lease *lease;

	if (!acquire_is_asked_for(a, grant))
		return -EPROTO;
	if (ttl_ms > a->request.ttl_ms)
		ttl_ms = a->request.ttl_ms;
	lease = a->leases[a->granted++];
	lease->hidden = true;
	lease->session = a->pool->control.sessions;
	lease->id = grant->lease_id;
	lease->acquired = a->request;
	lease->acquired_id = request->id;
	lease->renewal.ttl_ms = a->renews ? a->request.ttl_ms : 0;
	renewal_start(lease, request->sent_ns, ttl_ms);
	lease_take_grant(lease, grant, &lease->own, a->incarnation);
	lease_link(lease);
	if (more == (a->granted == a->request.count))
		return -EPROTO;
	return more ? 1 : 0;
}

/* Not all came. Those that did are in the list, but nobody has their handles. */
static void acquire_undo(struct acquisition *a)
{
	struct message_leases back = {0};

	for (uint16_t i = 0; i < a->granted; i++) {
		lease_unlink(a->leases[i]);
		if (a->leases[i]->end_reason == 0)
			back.lease_ids[back.count++] = a->leases[i]->id;
		lease_reset(a->leases[i]);
	}
	a->granted = 0;
	control_give_back(a->pool, &back);
}

/* One request. The lane is up, or was a moment ago. */
static int acquire_request(struct acquisition *a, uint64_t deadline_ns)
{
	struct message m = {.type = MESSAGE_ACQUIRE};
	struct mempool *pool = a->pool;
	int r;

	(void)pthread_mutex_lock(&pool->lock);
	a->incarnation = pool->lane.incarnation;
	a->request.lane = pool->lane.number;
	(void)pthread_mutex_unlock(&pool->lock);
	m.u.acquire = a->request;
	r = control_request(pool, &m, MESSAGE_GRANT, acquire_granted, a, deadline_ns);
	if (r == 0)
		return 0;
	(void)pthread_mutex_lock(&pool->lock);
	acquire_undo(a);
	(void)pthread_mutex_unlock(&pool->lock);
	return r;
}

/* The daemon may know before us that a lane is lost: then a new one is made, once. */
static int acquire_try_twice(struct acquisition *a, uint64_t deadline_ns)
{
	struct mempool *pool = a->pool;
	int r;

	r = lane_ensure(&pool->lane, deadline_ns);
	if (r < 0)
		return r;
	r = acquire_request(a, deadline_ns);
	if (r != MEMPOOL_E_LANE_STATE && r != MEMPOOL_E_LANE)
		return r;
	(void)pthread_mutex_lock(&pool->lock);
	if (pool->lane.incarnation == a->incarnation)
		lane_lose(&pool->lane, MEMPOOL_E_LANE, error_text(MEMPOOL_E_LANE_STATE));
	(void)pthread_mutex_unlock(&pool->lock);
	r = lane_ensure(&pool->lane, deadline_ns);
	if (r == 0)
		r = acquire_request(a, deadline_ns);
	return r == MEMPOOL_E_LANE_STATE
		       ? client_error_raise(MEMPOOL_E_LANE, "%s", error_text(MEMPOOL_E_LANE))
		       : r;
}

/* Leases that were waited for have less left by our count than by the daemon's. */
static int acquire_make_up(struct acquisition *a)
{
	struct mempool *pool = a->pool;
	uint64_t left_ms;
	int r = 0;

	if (a->request.wait_ms == 0)
		return 0;
	(void)pthread_mutex_lock(&pool->lock);
	left_ms = clock_left_ms(a->leases[0]->deadline_ns, clock_now_ns());
	(void)pthread_mutex_unlock(&pool->lock);
	if (left_ms >= a->request.ttl_ms / 2)
		return 0;
	for (uint16_t i = 0; i < a->request.count && r == 0; i++)
		r = lease_renew(a->leases[i], a->request.ttl_ms, pool_deadline(pool));
	return r;
}

static void acquire_free_handles(struct acquisition *a, uint16_t count)
{
	for (uint16_t i = 0; i < count; i++)
		lease_free(a->leases[i]);
}

static int acquire_make_handles(struct acquisition *a)
{
	for (uint16_t i = 0; i < a->request.count; i++) {
		a->leases[i] = lease_new(a->pool);
		if (a->leases[i] == NULL) {
			acquire_free_handles(a, i);
			return MEMPOOL_E_NO_MEMORY;
		}
	}
	return 0;
}

static void acquire_reveal(struct acquisition *a)
{
	(void)pthread_mutex_lock(&a->pool->lock);
	for (uint16_t i = 0; i < a->request.count; i++)
		lease_reveal(a->leases[i]);
	(void)pthread_mutex_unlock(&a->pool->lock);
}

static int acquire(struct acquisition *a, mempool_lease **ret_leases)
{
	uint64_t deadline_ns = clock_add_ms(pool_deadline(a->pool), a->request.wait_ms);
	int r;

	r = reconnect_await(a->pool, deadline_ns);
	if (r == 0)
		r = acquire_make_handles(a);
	if (r < 0)
		return r;
	r = acquire_try_twice(a, deadline_ns);
	if (r < 0)
		goto err_free_handles;
	r = acquire_make_up(a);
	if (r < 0)
		goto err_undo;
	acquire_reveal(a);
	memcpy(ret_leases, a->leases, a->request.count * sizeof(*ret_leases));
	return 0;

err_undo:
	(void)pthread_mutex_lock(&a->pool->lock);
	acquire_undo(a);
	(void)pthread_mutex_unlock(&a->pool->lock);
err_free_handles:
	acquire_free_handles(a, a->request.count);
	return r;
}

int mempool_acquire_many(mempool *pool, uint64_t len_bytes, const struct mempool_acquire_opts *opts,
			 size_t count, mempool_lease **ret_leases)
{
	struct acquisition a = {.pool = pool};
	struct mempool_acquire_opts own;
	int r = guard_call();

	if (r < 0)
		return r;
	if (pool == NULL || ret_leases == NULL || count == 0 || count > PROTO_ACQUIRE_LEASES ||
	    !pool_options_take(opts, ACQUIRE_OPTS_MIN, sizeof(own), &own) ||
	    (own.flags & ~MEMPOOL_AUTO_RENEW) != 0 || own.reserved != 0)
		return client_error_raise(MEMPOOL_E_INVALID, "an argument is not valid");
	a.request = (struct message_acquire){
		.len_bytes = len_bytes,
		.ttl_ms = own.ttl_ms,
		.rights = own.rights,
		.wait_ms = own.wait_ms,
		.count = (uint16_t)count,
	};
	a.renews = (own.flags & MEMPOOL_AUTO_RENEW) != 0;
	return acquire(&a, ret_leases);
}

int mempool_acquire(mempool *pool, uint64_t len_bytes, const struct mempool_acquire_opts *opts,
		    mempool_lease **ret_lease)
{
	return mempool_acquire_many(pool, len_bytes, opts, 1, ret_lease);
}

static int acquire_repeated(struct request *request, const struct message *m)
{
	struct acquire_repetition *repetition = request->context;
	const struct message_grant *grant = &m->u.grant;

	if (repetition->count == PROTO_ACQUIRE_LEASES || !lease_grant_is_valid(grant))
		return -EPROTO;
	repetition->lease_ids[repetition->count] = grant->lease_id;
	repetition->generations[repetition->count] = grant->generation;
	repetition->count++;
	return (m->flags & MESSAGE_FLAG_MORE) != 0 ? 1 : 0;
}

int acquire_repeat(mempool *pool, const struct message_acquire *request, uint64_t request_id,
		   struct acquire_repetition *ret_repetition)
{
	struct message m = {.type = MESSAGE_ACQUIRE, .u.acquire = *request};
	struct acquire_repetition repetition = {0};
	struct request again;
	int r;

	r = request_init(&again, MESSAGE_GRANT, acquire_repeated, &repetition);
	if (r < 0)
		return client_error_raise(client_error_errno(r), "cannot wait for an answer");
	again.id = request_id;
	r = control_call(pool, &m, &again, pool_deadline(pool));
	request_deinit(&again);
	if (r == 0)
		*ret_repetition = repetition;
	return r;
}
