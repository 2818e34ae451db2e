/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Taking over a lease of another session by its token. The handle is in the session's list
 * before the request is sent, so that no grant and no notice finds it missing: a grant that
 * nobody waits for any more must not cost the lease.
 *
 * Invariants: one thread at a time asks for a lease. A handle that is unclaimed is known to
 * nobody but this file; it stays when the outcome is not known, for the next try.
 *
 * Thread: any; the grant on the service thread.
 */
#include "client/reattach.h"

#include <assert.h>
#include <errno.h>
#include <pthread.h>
#include <string.h>

#include "client/guard.h"
#include "client/lane.h"
#include "client/lease.h"
#include "client/pool.h"
#include "common/secure.h"
#include "proto/error.h"

static_assert(sizeof(struct mempool_lease_token) == 32, "a token is kept in files");
static_assert(sizeof(((struct mempool_lease_token *)0)->secret) == PROTO_SECRET_BYTES,
	      "the installed header must say the same");

struct reattachment {
	struct mempool *pool;
	struct message_reattach wanted;
	uint64_t incarnation; /* of the lane that was asked for */
};

/* The handle may have been given back meanwhile: then so is the lease. */
static int reattach_granted(struct request *request, const struct message *m)
{
	struct reattachment *r = request->context;
	const struct message_grant *grant = &m->u.grant;
	struct message_leases back = {.count = 1, .lease_ids = {grant->lease_id}};
	struct mempool_lease *lease;

	if ((m->flags & MESSAGE_FLAG_MORE) != 0 || grant->lease_id != r->wanted.lease_id ||
	    grant->lane != r->wanted.lane || !lease_grant_is_valid(grant))
		return -EPROTO;
	lease = lease_find(r->pool, grant->lease_id);
	if (lease == NULL) {
		control_give_back(r->pool, &back);
		return 0;
	}
	lease->session = r->pool->control.sessions;
	if (lease->unclaimed)
		renewal_start(lease, request->sent_ns, grant->ttl_ms);
	else
		renewal_resume(lease, request->sent_ns, grant->ttl_ms);
	lease_take_grant(lease, grant, &lease->own, r->incarnation);
	return 0;
}

/* Lock held. The handle of an earlier try, or a new one. */
static int reattach_claim(struct mempool *pool, uint64_t lease_id, struct mempool_lease **ret_lease)
{
	struct mempool_lease *lease = lease_find(pool, lease_id);

	if (lease != NULL && !lease->unclaimed)
		return client_error_raise(MEMPOOL_E_STATE, "the session has the lease already");
	if (lease != NULL && lease->reattaching)
		return client_error_raise(MEMPOOL_E_BUSY, "another thread takes the lease over");
	if (lease == NULL) {
		lease = lease_new(pool);
		if (lease == NULL)
			return MEMPOOL_E_NO_MEMORY;
		lease->id = lease_id;
		lease->unclaimed = true;
		lease_link(lease);
	}
	lease->reattaching = true;
	*ret_lease = lease;
	return 0;
}

/* Lock held. */
static void reattach_unclaim(struct mempool_lease *lease, int r)
{
	lease->reattaching = false;
	if (r == 0) {
		lease->unclaimed = false;
		lease_reveal(lease);
	} else if (r != MEMPOOL_E_TIMEOUT) {
		lease_unlink(lease);
		lease_free(lease);
	}
}

static void reattach_note_end(struct mempool *pool, uint64_t lease_id, int code)
{
	struct mempool_lease *lease;

	(void)pthread_mutex_lock(&pool->lock);
	lease = lease_find(pool, lease_id);
	if (lease != NULL)
		lease_end(lease, code);
	(void)pthread_mutex_unlock(&pool->lock);
}

/* One request. The lane is up, or was a moment ago. */
static int reattach_request(struct reattachment *reattachment, uint64_t deadline_ns)
{
	struct message m = {.type = MESSAGE_REATTACH};
	struct mempool *pool = reattachment->pool;
	int r;

	(void)pthread_mutex_lock(&pool->lock);
	reattachment->incarnation = pool->lane.incarnation;
	reattachment->wanted.lane = pool->lane.number;
	(void)pthread_mutex_unlock(&pool->lock);
	m.u.reattach = reattachment->wanted;
	r = control_request(pool, &m, MESSAGE_GRANT, reattach_granted, reattachment, deadline_ns);
	secure_wipe(&m.u.reattach, sizeof(m.u.reattach));
	if (lease_is_end(r))
		reattach_note_end(pool, reattachment->wanted.lease_id, r);
	return r;
}

/* The keys are not known, or the daemon knows before us that the lane is lost. */
static void reattach_lose_lane(const struct reattachment *reattachment)
{
	struct mempool *pool = reattachment->pool;

	(void)pthread_mutex_lock(&pool->lock);
	if (pool->lane.incarnation == reattachment->incarnation)
		lane_lose(&pool->lane, MEMPOOL_E_LANE, error_text(MEMPOOL_E_LANE));
	(void)pthread_mutex_unlock(&pool->lock);
}

static int reattach_try(struct reattachment *reattachment, uint64_t deadline_ns)
{
	int r = lane_ensure(&reattachment->pool->lane, deadline_ns);

	if (r < 0)
		return r;
	r = reattach_request(reattachment, deadline_ns);
	if (r == MEMPOOL_E_TIMEOUT || r == MEMPOOL_E_LANE || r == MEMPOOL_E_LANE_STATE)
		reattach_lose_lane(reattachment);
	return r;
}

int reattach(struct mempool *pool, uint64_t lease_id, const uint8_t secret[PROTO_SECRET_BYTES],
	     uint64_t deadline_ns)
{
	struct reattachment reattachment = {.pool = pool, .wanted = {.lease_id = lease_id}};
	int r;

	memcpy(reattachment.wanted.secret, secret, sizeof(reattachment.wanted.secret));
	r = reattach_try(&reattachment, deadline_ns);
	if (r == MEMPOOL_E_LANE || r == MEMPOOL_E_LANE_STATE)
		r = reattach_try(&reattachment, deadline_ns);
	secure_wipe(reattachment.wanted.secret, sizeof(reattachment.wanted.secret));
	return r;
}

int mempool_reattach(mempool *pool, const struct mempool_lease_token *token,
		     mempool_lease **ret_lease)
{
	struct mempool_lease *lease = NULL;
	uint64_t deadline_ns;
	int r = guard_call();

	if (r < 0)
		return r;
	if (pool == NULL || token == NULL || ret_lease == NULL ||
	    token->version != MEMPOOL_LEASE_TOKEN_VERSION || token->reserved != 0)
		return client_error_raise(MEMPOOL_E_INVALID, "an argument is not valid");
	deadline_ns = pool_deadline(pool);
	r = reconnect_await(pool, deadline_ns);
	if (r < 0)
		return r;
	(void)pthread_mutex_lock(&pool->lock);
	r = reattach_claim(pool, token->lease_id, &lease);
	(void)pthread_mutex_unlock(&pool->lock);
	if (r < 0)
		return r;
	r = reattach(pool, token->lease_id, token->secret, deadline_ns);
	(void)pthread_mutex_lock(&pool->lock);
	reattach_unclaim(lease, r);
	(void)pthread_mutex_unlock(&pool->lock);
	if (r == 0)
		*ret_lease = lease;
	return r;
}

int mempool_lease_token(mempool_lease *lease, struct mempool_lease_token *ret_token)
{
	int r = guard_look();

	if (r < 0)
		return r;
	if (lease == NULL || ret_token == NULL)
		return client_error_raise(MEMPOOL_E_INVALID, "an argument is not valid");
	(void)pthread_mutex_lock(&lease->pool->lock);
	*ret_token = (struct mempool_lease_token){
		.version = MEMPOOL_LEASE_TOKEN_VERSION,
		.lease_id = lease->id,
	};
	memcpy(ret_token->secret, lease->secret, sizeof(ret_token->secret));
	(void)pthread_mutex_unlock(&lease->pool->lock);
	return 0;
}
