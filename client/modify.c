/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Changing a lease's rights or length. While the daemon waits for us to stop, transfers of
 * that lease wait before they post anything; with the answer they go on with the new keys,
 * or with the old ones if nothing was changed.
 *
 * Invariants: one change of a lease at a time. A change whose answer did not come costs the
 * lanes, since the keys are not known; the next attachment tells what the lease has become.
 *
 * Thread: any; grants on the service thread.
 */
#include <errno.h>
#include <pthread.h>

#include "client/guard.h"
#include "client/lane.h"
#include "client/lease.h"
#include "client/pool.h"
#include "proto/error.h"

struct modification {
	struct mempool_lease *lease;
	struct message_modify wanted;
	bool begun; /* a grant has come */
};

static void modify_mark_stale(struct mempool_lease *lease)
{
	for (struct attachment *at = &lease->own; at != NULL; at = at->next)
		at->stale = true;
}

static void modify_drop_stale(struct mempool_lease *lease)
{
	for (struct attachment *at = &lease->own; at != NULL; at = at->next) {
		if (at->stale)
			at->incarnation = 0;
		at->stale = false;
	}
}

/*
 * There is one grant for each lane. On a lane without one the lease is not attached any more.
 * The lease is not longer before it is so on each lane.
 */
static int modify_granted(struct request *request, const struct message *m)
{
	struct modification *modification = request->context;
	struct mempool_lease *lease = modification->lease;
	const struct message_grant *grant = &m->u.grant;
	bool more = (m->flags & MESSAGE_FLAG_MORE) != 0;
	struct attachment *attachment;

	if (grant->lease_id != lease->id || grant->len_bytes != modification->wanted.len_bytes ||
	    grant->rights != modification->wanted.rights || !lease_grant_is_valid(grant))
		return -EPROTO;
	if (!modification->begun)
		modify_mark_stale(lease);
	modification->begun = true;
	attachment = attachment_numbered(&lease->own, grant->lane);
	if (attachment != NULL)
		attachment_set(attachment, grant, attachment->incarnation);
	if (more)
		return 1;
	lease_take_terms(lease, grant);
	modify_drop_stale(lease);
	return 0;
}

static int modify_claim(struct mempool_lease *lease, struct request *request)
{
	struct mempool *pool = lease->pool;
	int r = 0;

	(void)pthread_mutex_lock(&pool->lock);
	if (lease->change != NULL)
		r = client_error_raise(MEMPOOL_E_BUSY, "the lease is being modified already");
	else
		lease->change = request;
	(void)pthread_mutex_unlock(&pool->lock);
	return r;
}

/* The keys on each lane are not known. */
static void modify_lose_lanes(struct mempool_lease *lease)
{
	for (struct attachment *at = &lease->own; at != NULL; at = at->next) {
		if (attachment_is_good(at))
			lane_lose(at->lane, MEMPOOL_E_LANE, error_text(MEMPOOL_E_LANE));
	}
}

static void modify_unclaim(struct mempool_lease *lease, int r)
{
	struct mempool *pool = lease->pool;

	(void)pthread_mutex_lock(&pool->lock);
	lease->change = NULL;
	lease->quiescing = false;
	if (r == MEMPOOL_E_TIMEOUT)
		modify_lose_lanes(lease);
	(void)pthread_cond_broadcast(&pool->leases_changed);
	(void)pthread_mutex_unlock(&pool->lock);
}

static int modify_request(struct modification *modification, uint64_t deadline_ns)
{
	struct message m = {.type = MESSAGE_MODIFY, .u.modify = modification->wanted};
	struct mempool_lease *lease = modification->lease;
	struct request request;
	int r;

	r = request_init(&request, MESSAGE_GRANT, modify_granted, modification);
	if (r < 0)
		return client_error_raise(client_error_errno(r), "cannot wait for an answer");
	r = modify_claim(lease, &request);
	if (r == 0) {
		r = lease_call(lease, &m, &request, deadline_ns);
		modify_unclaim(lease, r);
	}
	request_deinit(&request);
	return r;
}

/* The daemon modifies only what is bound. */
static int modify_restore(struct mempool_lease *lease, uint64_t deadline_ns)
{
	struct lane *lane = &lease->pool->lane;
	int r;

	r = lane_enter(lane, deadline_ns);
	if (r < 0)
		return r;
	r = lease_restore(lease, lane, deadline_ns);
	lane_leave(lane);
	return r;
}

static int modify_try(struct modification *modification, uint64_t deadline_ns)
{
	int r;

	r = lease_check_usable(modification->lease);
	if (r == 0)
		r = modify_restore(modification->lease, deadline_ns);
	return r < 0 ? r : modify_request(modification, deadline_ns);
}

/* Has the lane been lost since, which would explain a refusal? */
static bool modify_is_worth_repeating(struct mempool_lease *lease, int code)
{
	struct lane *lane = &lease->pool->lane;

	return code == MEMPOOL_E_LANE ||
	       (code == MEMPOOL_E_BUSY && (!lane_is_up(lane) || !lease_is_attached(lease, lane)));
}

int mempool_modify(mempool_lease *lease, uint64_t len_bytes, uint32_t rights)
{
	struct modification modification = {.lease = lease};
	uint64_t deadline_ns;
	int r = guard_call();

	if (r < 0)
		return r;
	if (lease == NULL)
		return client_error_raise(MEMPOOL_E_INVALID, "no lease was given");
	modification.wanted = (struct message_modify){
		.lease_id = lease->id,
		.len_bytes = len_bytes,
		.rights = rights,
	};
	deadline_ns = pool_deadline(lease->pool);
	r = reconnect_await_lease(lease, deadline_ns);
	if (r < 0)
		return r;
	r = modify_try(&modification, deadline_ns);
	if (r < 0 && modify_is_worth_repeating(lease, r))
		r = modify_try(&modification, deadline_ns);
	return r;
}
