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
#include <assert.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "client/lane.h"
#include "client/lease.h"
#include "client/pool.h"
#include "common/clock.h"
#include "proto/error.h"

static_assert(sizeof(struct mempool_lease_token) == 32, "a token is kept in files");
static_assert(sizeof(((struct mempool_lease_token *)0)->secret) == PROTO_SECRET_BYTES,
	      "the installed header must say the same");

struct reattachment {
	struct mempool_lease *lease;
	struct message_reattach wanted;
	uint64_t incarnation; /* of the lane that was asked for */
};

static int reattach_granted(struct request *request, const struct message *m)
{
	struct reattachment *r = request->context;
	const struct message_grant *grant = &m->u.grant;

	if ((m->flags & MESSAGE_FLAG_MORE) != 0 || grant->lease_id != r->wanted.lease_id ||
	    grant->lane != r->wanted.lane || !lease_grant_is_valid(grant))
		return -EPROTO;
	r->lease->deadline_ns = clock_add_ms(request->sent_ns, grant->ttl_ms);
	lease_take_grant(r->lease, grant, &r->lease->pool->lane, r->incarnation);
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
		lease = calloc(1, sizeof(*lease));
		if (lease == NULL)
			return client_error_raise(MEMPOOL_E_NO_MEMORY, "not enough memory");
		lease->pool = pool;
		lease->id = lease_id;
		lease->lane = &pool->lane;
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
	} else if (r != MEMPOOL_E_TIMEOUT) {
		lease_unlink(lease);
		lease_free(lease);
	}
}

/* One request. The lane is up, or was a moment ago. */
static int reattach_request(struct reattachment *reattachment, uint64_t deadline_ns)
{
	struct message m = {.type = MESSAGE_REATTACH};
	struct mempool_lease *lease = reattachment->lease;
	struct mempool *pool = lease->pool;
	struct request request;
	int r;

	(void)pthread_mutex_lock(&pool->lock);
	reattachment->incarnation = pool->lane.incarnation;
	reattachment->wanted.lane = pool->lane.number;
	(void)pthread_mutex_unlock(&pool->lock);
	m.u.reattach = reattachment->wanted;
	r = request_init(&request, MESSAGE_GRANT, reattach_granted, reattachment);
	if (r < 0)
		return client_error_raise(client_error_errno(r), "cannot wait for an answer");
	r = lease_call(lease, &m, &request, deadline_ns);
	request_deinit(&request);
	return r;
}

/* The keys are not known, or the daemon knows before us that the lane is lost. */
static void reattach_lose_lane(const struct reattachment *reattachment)
{
	struct mempool *pool = reattachment->lease->pool;

	(void)pthread_mutex_lock(&pool->lock);
	if (pool->lane.incarnation == reattachment->incarnation)
		lane_lose(&pool->lane, MEMPOOL_E_LANE, error_text(MEMPOOL_E_LANE));
	(void)pthread_mutex_unlock(&pool->lock);
}

static int reattach_try(struct reattachment *reattachment, uint64_t deadline_ns)
{
	int r = lane_ensure(&reattachment->lease->pool->lane, deadline_ns);

	if (r < 0)
		return r;
	r = reattach_request(reattachment, deadline_ns);
	if (r == MEMPOOL_E_TIMEOUT || r == MEMPOOL_E_LANE || r == MEMPOOL_E_LANE_STATE)
		reattach_lose_lane(reattachment);
	return r;
}

int mempool_reattach(mempool *pool, const struct mempool_lease_token *token,
		     mempool_lease **ret_lease)
{
	struct reattachment reattachment = {0};
	uint64_t deadline_ns;
	int r;

	if (pool == NULL || token == NULL || ret_lease == NULL ||
	    token->version != MEMPOOL_LEASE_TOKEN_VERSION || token->reserved != 0)
		return client_error_raise(MEMPOOL_E_INVALID, "an argument is not valid");
	deadline_ns = pool_deadline(pool);
	reattachment.wanted.lease_id = token->lease_id;
	memcpy(reattachment.wanted.secret, token->secret, sizeof(token->secret));
	(void)pthread_mutex_lock(&pool->lock);
	r = reattach_claim(pool, token->lease_id, &reattachment.lease);
	(void)pthread_mutex_unlock(&pool->lock);
	if (r < 0)
		return r;
	r = reattach_try(&reattachment, deadline_ns);
	if (r == MEMPOOL_E_LANE || r == MEMPOOL_E_LANE_STATE)
		r = reattach_try(&reattachment, deadline_ns);
	(void)pthread_mutex_lock(&pool->lock);
	reattach_unclaim(reattachment.lease, r);
	(void)pthread_mutex_unlock(&pool->lock);
	if (r == 0)
		*ret_lease = reattachment.lease;
	return r;
}

int mempool_lease_token(mempool_lease *lease, struct mempool_lease_token *ret_token)
{
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
