/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Leases that are held: what is known of each, who uses it, what the daemon says about it.
 * The session's list has all; a grant puts its lease there before anything later that the
 * daemon sends is looked at, so that no notice about it is missed.
 *
 * Invariants: a lease's own deadline counts from when the request was sent and so is never
 * later than the daemon's. An end reason is set once; the first is kept. Length, rights and
 * descriptors change together, and not to something shorter while somebody uses the lease,
 * unless its lane was lost. The daemon is told that nothing is in flight when that is so.
 *
 * Thread: any; answers and notices on the service thread. Under the session's lock.
 */
#include "client/lease.h"

#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "client/lane.h"
#include "client/pool.h"
#include "client/wait.h"
#include "common/checked.h"
#include "common/clock.h"
#include "common/secure.h"
#include "proto/error.h"

struct lease_renewal {
	struct mempool_lease *lease;
	uint64_t ttl_ms;
};

struct lease_attachment {
	struct mempool_lease *lease;
	struct lane *lane;
	uint32_t number;      /* of the lane ... */
	uint64_t incarnation; /* ... as it was when we asked */
};

struct mempool_lease *lease_find(struct mempool *pool, uint64_t id)
{
	struct mempool_lease *lease = pool->leases;

	while (lease != NULL && lease->id != id)
		lease = lease->next;
	return lease;
}

void lease_link(struct mempool_lease *lease)
{
	struct mempool *pool = lease->pool;

	lease->prev = NULL;
	lease->next = pool->leases;
	if (lease->next != NULL)
		lease->next->prev = lease;
	pool->leases = lease;
}

void lease_unlink(struct mempool_lease *lease)
{
	if (lease->prev != NULL)
		lease->prev->next = lease->next;
	else
		lease->pool->leases = lease->next;
	if (lease->next != NULL)
		lease->next->prev = lease->prev;
}

void lease_free(struct mempool_lease *lease)
{
	if (lease != NULL)
		secure_wipe(lease->secret, sizeof(lease->secret));
	free(lease);
}

void lease_free_all(struct mempool *pool)
{
	while (pool->leases != NULL) {
		struct mempool_lease *lease = pool->leases;

		pool->leases = lease->next;
		lease_free(lease);
	}
}

/* State. */

static void lease_end(struct mempool_lease *lease, int reason)
{
	if (lease->end_reason == 0)
		lease->end_reason = reason;
	(void)pthread_cond_broadcast(&lease->pool->leases_changed);
}

/* Does an answer with this code mean that the lease is over? */
static bool lease_is_end(int code)
{
	switch (code) {
	case MEMPOOL_E_NO_LEASE:
	case MEMPOOL_E_EXPIRED:
	case MEMPOOL_E_REVOKED:
	case MEMPOOL_E_RELEASED:
	case MEMPOOL_E_SESSION_ENDED:
	case MEMPOOL_E_DRAINED:
	case MEMPOOL_E_ORPHANED:
	case MEMPOOL_E_MEMORY:
		return true;
	default:
		return false;
	}
}

int lease_raise(const struct mempool_lease *lease, int code)
{
	return client_error_raise(code, "lease 0x%" PRIx64 ": %s", lease->id, error_text(code));
}

int lease_check_open(const struct mempool_lease *lease)
{
	if (lease->end_reason != 0)
		return lease_raise(lease, lease->end_reason);
	if (lease->pool->control.lost)
		return client_error_forward(&lease->pool->control.loss);
	return 0;
}

static int lease_check_usable_held(const struct mempool_lease *lease)
{
	int r = lease_check_open(lease);

	if (r < 0)
		return r;
	if (lease->revoking)
		return lease_raise(lease, MEMPOOL_E_REVOKED);
	if (clock_now_ns() >= lease->deadline_ns)
		return lease_raise(lease, MEMPOOL_E_EXPIRED);
	return 0;
}

int lease_check_usable(struct mempool_lease *lease)
{
	struct mempool *pool = lease->pool;
	int r;

	(void)pthread_mutex_lock(&pool->lock);
	r = lease_check_usable_held(lease);
	(void)pthread_mutex_unlock(&pool->lock);
	return r;
}

static int lease_check_access_held(const struct mempool_lease *lease, uint64_t offset_bytes,
				   uint64_t len_bytes, uint32_t right)
{
	if (!checked_within(offset_bytes, len_bytes, lease->len_bytes))
		return client_error_raise(MEMPOOL_E_RANGE, "%s", error_text(MEMPOOL_E_RANGE));
	if ((lease->rights & right) == 0)
		return client_error_raise(MEMPOOL_E_ACCESS, "the lease lacks the right to %s",
					  right == MEMPOOL_READ ? "read" : "write");
	return lease_check_usable_held(lease);
}

int lease_check_access(struct mempool_lease *lease, uint64_t offset_bytes, uint64_t len_bytes,
		       uint32_t right)
{
	struct mempool *pool = lease->pool;
	int r;

	(void)pthread_mutex_lock(&pool->lock);
	r = lease_check_access_held(lease, offset_bytes, len_bytes, right);
	(void)pthread_mutex_unlock(&pool->lock);
	return r;
}

static bool lease_is_attached_held(const struct mempool_lease *lease, const struct lane *lane)
{
	return lease->lane == lane && lease->incarnation == lane->incarnation;
}

bool lease_is_attached(struct mempool_lease *lease, struct lane *lane)
{
	struct mempool *pool = lease->pool;
	bool attached;

	(void)pthread_mutex_lock(&pool->lock);
	attached = lease_is_attached_held(lease, lane);
	(void)pthread_mutex_unlock(&pool->lock);
	return attached;
}

/* Use, and what the daemon waits for. */

/* With the answer to the change the daemon has stopped waiting. */
static bool lease_is_changing(const struct mempool_lease *lease)
{
	return lease->quiescing && !lease->change->done;
}

static void lease_tell_quiesced(struct mempool_lease *lease)
{
	struct message m = {.type = MESSAGE_QUIESCED, .u.lease = {.lease_id = lease->id}};

	control_notify(lease->pool, &m);
}

static void lease_tell_revoked(struct mempool_lease *lease)
{
	struct message m = {
		.type = MESSAGE_REVOKED,
		.u.leases = {.count = 1, .lease_ids = {lease->id}},
	};

	control_notify(lease->pool, &m);
}

int lease_settle(struct mempool_lease *lease, uint64_t deadline_ns)
{
	struct mempool *pool = lease->pool;
	int r;

	(void)pthread_mutex_lock(&pool->lock);
	r = lease_check_usable_held(lease);
	while (r == 0 && lease_is_changing(lease)) {
		if (wait_until(&pool->leases_changed, &pool->lock, deadline_ns))
			r = lease_check_usable_held(lease);
		else
			r = client_error_raise(MEMPOOL_E_TIMEOUT, "the lease is being modified");
	}
	(void)pthread_mutex_unlock(&pool->lock);
	return r;
}

int lease_use(struct mempool_lease *lease, uint64_t offset_bytes, uint64_t len_bytes,
	      uint32_t right)
{
	struct mempool *pool = lease->pool;
	int r;

	(void)pthread_mutex_lock(&pool->lock);
	r = lease_check_access_held(lease, offset_bytes, len_bytes, right);
	if (r == 0 && lease_is_changing(lease))
		r = LEASE_CHANGING;
	if (r == 0)
		lease->users++;
	(void)pthread_mutex_unlock(&pool->lock);
	return r;
}

void lease_unuse(struct mempool_lease *lease)
{
	struct mempool *pool = lease->pool;

	(void)pthread_mutex_lock(&pool->lock);
	assert(lease->users > 0);
	if (--lease->users == 0) {
		if (lease_is_changing(lease))
			lease_tell_quiesced(lease);
		if (lease->revoking && lease->end_reason == 0)
			lease_tell_revoked(lease);
	}
	(void)pthread_mutex_unlock(&pool->lock);
}

int lease_window_at(struct mempool_lease *lease, struct lane *lane, uint64_t offset_bytes,
		    struct message_descriptor *ret_descriptor)
{
	struct mempool *pool = lease->pool;
	uint32_t i = 0;
	int r;

	(void)pthread_mutex_lock(&pool->lock);
	r = lease_check_usable_held(lease);
	if (r == 0 && !lease_is_attached_held(lease, lane))
		r = client_error_raise(MEMPOOL_E_LANE, "%s", error_text(MEMPOOL_E_LANE));
	if (r == 0 && offset_bytes >= lease->len_bytes)
		r = client_error_raise(MEMPOOL_E_RANGE, "%s", error_text(MEMPOOL_E_RANGE));
	if (r == 0) {
		while (offset_bytes - lease->descriptors[i].offset_bytes >=
		       lease->descriptors[i].len_bytes)
			i++;
		assert(i < lease->descriptor_count);
		*ret_descriptor = lease->descriptors[i];
	}
	(void)pthread_mutex_unlock(&pool->lock);
	return r;
}

/* Notices. */

void lease_ended(struct mempool *pool, const struct message_leases_ended *notice)
{
	for (uint16_t i = 0; i < notice->count; i++) {
		struct mempool_lease *lease = lease_find(pool, notice->ended[i].lease_id);

		if (lease != NULL)
			lease_end(lease, client_error_code(notice->ended[i].reason));
	}
}

/* What has nothing in flight, and what we no longer know, is acknowledged in one message. */
void lease_revoke(struct mempool *pool, const struct message_revoke *notice)
{
	struct message m = {.type = MESSAGE_REVOKED};
	struct message_leases *idle = &m.u.leases;

	for (uint16_t i = 0; i < notice->count; i++) {
		struct mempool_lease *lease = lease_find(pool, notice->revoked[i].lease_id);

		if (lease != NULL)
			lease->revoking = true;
		if (lease == NULL || lease->users == 0)
			idle->lease_ids[idle->count++] = notice->revoked[i].lease_id;
	}
	(void)pthread_cond_broadcast(&pool->leases_changed);
	if (idle->count > 0)
		control_notify(pool, &m);
}

/* A change that nobody waits for any more had better not take place: then no answer. */
void lease_quiesce(struct mempool *pool, uint64_t id)
{
	struct mempool_lease *lease = lease_find(pool, id);

	if (lease == NULL || lease->change == NULL)
		return;
	lease->quiescing = true;
	if (lease->users == 0)
		lease_tell_quiesced(lease);
}

/* Grants. */

bool lease_grant_is_valid(const struct message_grant *grant)
{
	uint64_t covered_bytes = 0;
	uint64_t end;

	for (uint16_t i = 0; i < grant->descriptor_count; i++) {
		const struct message_descriptor *descriptor = &grant->descriptors[i];

		if (descriptor->len_bytes == 0 || descriptor->offset_bytes != covered_bytes ||
		    !checked_within(covered_bytes, descriptor->len_bytes, grant->len_bytes) ||
		    !checked_add(descriptor->remote_addr, descriptor->len_bytes - 1, &end))
			return false;
		covered_bytes += descriptor->len_bytes;
	}
	return covered_bytes > 0 && covered_bytes == grant->len_bytes && grant->lease_id != 0;
}

void lease_take_grant(struct mempool_lease *lease, const struct message_grant *grant,
		      struct lane *lane, uint64_t incarnation)
{
	lease->len_bytes = grant->len_bytes;
	lease->rights = grant->rights;
	lease->lane = lane;
	lease->incarnation = incarnation;
	lease->generation = grant->generation;
	memcpy(lease->secret, grant->secret, sizeof(lease->secret));
	lease->descriptor_count = grant->descriptor_count;
	memcpy(lease->descriptors, grant->descriptors,
	       grant->descriptor_count * sizeof(lease->descriptors[0]));
}

/* Requests. */

int lease_call(struct mempool_lease *lease, struct message *m, struct request *request,
	       uint64_t deadline_ns)
{
	struct mempool *pool = lease->pool;
	int r;

	r = control_call(pool, m, request, deadline_ns);
	if (!lease_is_end(r))
		return r;
	(void)pthread_mutex_lock(&pool->lock);
	lease_end(lease, r);
	r = lease_raise(lease, lease->end_reason);
	(void)pthread_mutex_unlock(&pool->lock);
	return r;
}

static int lease_request(struct mempool_lease *lease, struct message *m, uint16_t answer_type,
			 request_answer_fn answer, void *context, uint64_t deadline_ns)
{
	struct request request;
	int r;

	r = request_init(&request, answer_type, answer, context);
	if (r < 0)
		return client_error_raise(client_error_errno(r), "cannot wait for an answer");
	r = lease_call(lease, m, &request, deadline_ns);
	request_deinit(&request);
	return r;
}

static int lease_renewed(struct request *request, const struct message *m)
{
	struct lease_renewal *renewal = request->context;
	uint64_t ttl_ms = m->u.renew.ttl_ms;

	if (m->u.renew.lease_id != renewal->lease->id)
		return -EPROTO;
	if (ttl_ms > renewal->ttl_ms)
		ttl_ms = renewal->ttl_ms;
	renewal->lease->deadline_ns = clock_add_ms(request->sent_ns, ttl_ms);
	return 0;
}

int lease_renew(struct mempool_lease *lease, uint64_t ttl_ms)
{
	struct lease_renewal renewal = {.lease = lease, .ttl_ms = ttl_ms};
	struct message m = {
		.type = MESSAGE_RENEW,
		.u.renew = {.lease_id = lease->id, .ttl_ms = ttl_ms},
	};

	return lease_request(lease, &m, MESSAGE_RENEWED, lease_renewed, &renewal,
			     pool_deadline(lease->pool));
}

/*
 * Taken as it is, whatever we think the lease's length and rights are: a change of them whose
 * outcome we have not learnt may have taken place.
 */
static int lease_reattached(struct request *request, const struct message *m)
{
	struct lease_attachment *attachment = request->context;
	const struct message_grant *grant = &m->u.grant;

	if ((m->flags & MESSAGE_FLAG_MORE) != 0 || grant->lease_id != attachment->lease->id ||
	    grant->lane != attachment->number || !lease_grant_is_valid(grant))
		return -EPROTO;
	lease_take_grant(attachment->lease, grant, attachment->lane, attachment->incarnation);
	return 0;
}

int lease_attach(struct mempool_lease *lease, struct lane *lane, uint64_t deadline_ns)
{
	struct lease_attachment attachment = {.lease = lease, .lane = lane};
	struct message m = {.type = MESSAGE_ATTACH};
	struct mempool *pool = lease->pool;
	int r;

	(void)pthread_mutex_lock(&pool->lock);
	attachment.incarnation = lane->incarnation;
	attachment.number = lane->number;
	(void)pthread_mutex_unlock(&pool->lock);
	m.u.attach = (struct message_attach){.lease_id = lease->id, .lane = attachment.number};
	r = lease_request(lease, &m, MESSAGE_GRANT, lease_reattached, &attachment, deadline_ns);
	if (r != MEMPOOL_E_TIMEOUT && r != MEMPOOL_E_LANE_STATE)
		return r;
	(void)pthread_mutex_lock(&pool->lock);
	lane_lose(lane, MEMPOOL_E_LANE, error_text(MEMPOOL_E_LANE));
	(void)pthread_mutex_unlock(&pool->lock);
	return r;
}

int lease_restore(struct mempool_lease *lease, struct lane *lane, uint64_t deadline_ns)
{
	int r = 0;

	if (!lane_is_up(lane))
		r = lane_open(lane, deadline_ns);
	if (r < 0 || lease_is_attached(lease, lane))
		return r;
	return lease_attach(lease, lane, deadline_ns);
}

int mempool_renew(mempool_lease *lease, uint64_t ttl_ms)
{
	int r;

	if (lease == NULL)
		return client_error_raise(MEMPOOL_E_INVALID, "no lease was given");
	r = lease_check_usable(lease);
	return r < 0 ? r : lease_renew(lease, ttl_ms);
}

int mempool_lease_info(mempool_lease *lease, struct mempool_lease_info *ret_info)
{
	struct mempool *pool;

	if (lease == NULL || ret_info == NULL || ret_info->size < sizeof(*ret_info))
		return client_error_raise(MEMPOOL_E_INVALID, "an argument is not valid");
	pool = lease->pool;
	(void)pthread_mutex_lock(&pool->lock);
	*ret_info = (struct mempool_lease_info){
		.size = ret_info->size,
		.id = lease->id,
		.len_bytes = lease->len_bytes,
		.ttl_left_ms = lease->end_reason != 0
				       ? 0
				       : clock_left_ms(lease->deadline_ns, clock_now_ns()),
		.rights = lease->rights,
		.generation = lease->generation,
	};
	(void)pthread_mutex_unlock(&pool->lock);
	return 0;
}
