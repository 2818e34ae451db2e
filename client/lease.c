/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Leases that are held: what is known of each, who uses it, what the daemon says about it.
 * The session's list has all; a grant puts its lease there before anything later that the
 * daemon sends is looked at, so that no notice about it is missed.
 *
 * Invariants: an end reason is set once; the first is kept. Length, rights and descriptors
 * change together, and not to something shorter while somebody uses the lease, unless its lane
 * was lost. The daemon is told that nothing is in flight when that is so.
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

#include "client/events.h"
#include "client/guard.h"
#include "client/lane.h"
#include "client/pool.h"
#include "client/reconnect.h"
#include "client/wait.h"
#include "common/checked.h"
#include "common/clock.h"
#include "common/secure.h"
#include "proto/error.h"

struct lease_extension {
	struct mempool_lease *lease;
	uint64_t ttl_ms;
};

struct lease_asking {
	struct mempool_lease *lease;
	struct attachment *attachment; /* to a lane ... */
	uint32_t number;	       /* ... of that number ... */
	uint64_t incarnation;	       /* ... as it was when we asked */
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
	renewal_forget(lease);
	events_forget(lease->pool, lease);
}

struct mempool_lease *lease_new(struct mempool *pool)
{
	struct mempool_lease *lease = calloc(1, sizeof(*lease));

	if (lease == NULL || renewal_init(&lease->renewal, lease) < 0) {
		free(lease);
		(void)client_error_raise(MEMPOOL_E_NO_MEMORY, "not enough memory");
		return NULL;
	}
	lease->pool = pool;
	lease->own.lane = &pool->lane;
	return lease;
}

void lease_reset(struct mempool_lease *lease)
{
	lease->end_reason = 0;
	lease->away = false;
	lease->revoking = false;
	lease->grace_ns = 0;
}

void lease_free(struct mempool_lease *lease)
{
	if (lease == NULL)
		return;
	attachment_free_rest(&lease->own);
	renewal_deinit(&lease->renewal);
	secure_wipe(lease->secret, sizeof(lease->secret));
	free(lease);
}

void lease_free_all(struct mempool *pool)
{
	while (pool->leases != NULL) {
		struct mempool_lease *lease = pool->leases;

		lease_unlink(lease);
		lease_free(lease);
	}
}

/* State. */

void lease_end(struct mempool_lease *lease, int reason)
{
	if (lease->end_reason == 0) {
		lease->end_reason = reason;
		lease->away = false;
		events_tell_lease(lease, MEMPOOL_EVENT_LEASE_ENDED, reason, 0);
	}
	(void)pthread_cond_broadcast(&lease->pool->leases_changed);
}

/* The operator takes it back: then the notices are yet to come, and a grace for what is in flight. */
void lease_refused(struct mempool_lease *lease, int code)
{
	if (code != MEMPOOL_E_REVOKED) {
		lease_end(lease, code);
		return;
	}
	lease->revoking = true;
	(void)pthread_cond_broadcast(&lease->pool->leases_changed);
}

static void lease_tell_revoking(struct mempool_lease *lease)
{
	events_tell_lease(lease, MEMPOOL_EVENT_LEASE_REVOKING, 0,
			  clock_left_ms(lease->grace_ns, clock_now_ns()));
}

void lease_reveal(struct mempool_lease *lease)
{
	lease->hidden = false;
	reconnect_adopt(lease, lease->session);
	if (lease->grace_ns != 0)
		lease_tell_revoking(lease);
	if (lease->end_reason != 0)
		events_tell_lease(lease, MEMPOOL_EVENT_LEASE_ENDED, lease->end_reason, 0);
	renewal_reveal(lease);
}

bool lease_is_end(int code)
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
	if (lease->away || !control_is_open(&lease->pool->control))
		return client_error_forward(&lease->pool->control.loss);
	return 0;
}

int lease_code(const struct mempool_lease *lease)
{
	if (lease->end_reason != 0)
		return lease->end_reason;
	if (lease->away || !control_is_open(&lease->pool->control))
		return MEMPOOL_E_SESSION_LOST;
	if (lease->revoking)
		return MEMPOOL_E_REVOKED;
	return clock_now_ns() >= lease->deadline_ns ? MEMPOOL_E_EXPIRED : 0;
}

int lease_check_usable_held(const struct mempool_lease *lease)
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

static const char *lease_right_name(uint32_t right)
{
	switch (right) {
	case MEMPOOL_READ:
		return "read";
	case MEMPOOL_WRITE:
		return "write";
	default:
		return "do atomic operations";
	}
}

static int lease_check_access_held(const struct mempool_lease *lease, uint64_t offset_bytes,
				   uint64_t len_bytes, uint32_t right)
{
	if (!checked_within(offset_bytes, len_bytes, lease->len_bytes))
		return client_error_raise(MEMPOOL_E_RANGE, "%s", error_text(MEMPOOL_E_RANGE));
	if ((lease->rights & right) == 0)
		return client_error_raise(MEMPOOL_E_ACCESS, "the lease lacks the right to %s",
					  lease_right_name(right));
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

bool lease_is_attached(struct mempool_lease *lease, struct lane *lane)
{
	struct mempool *pool = lease->pool;
	bool attached;

	(void)pthread_mutex_lock(&pool->lock);
	attached = attachment_is_good(attachment_find(&lease->own, lane));
	(void)pthread_mutex_unlock(&pool->lock);
	return attached;
}

/* Use, and what the daemon waits for. */

/* With the answer to the change the daemon has stopped waiting. */
bool lease_is_changing(const struct mempool_lease *lease)
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

void lease_unuse_held(struct mempool_lease *lease)
{
	assert(lease->users > 0);
	if (--lease->users > 0)
		return;
	if (lease_is_changing(lease))
		lease_tell_quiesced(lease);
	if (lease->revoking && (lease->end_reason == 0 || lease->end_reason == MEMPOOL_E_REVOKED))
		lease_tell_revoked(lease);
}

void lease_unuse(struct mempool_lease *lease)
{
	struct mempool *pool = lease->pool;

	(void)pthread_mutex_lock(&pool->lock);
	lease_unuse_held(lease);
	(void)pthread_mutex_unlock(&pool->lock);
}

int lease_window_at(struct mempool_lease *lease, struct lane *lane, uint64_t offset_bytes,
		    struct message_descriptor *ret_descriptor)
{
	const struct message_descriptor *descriptor = NULL;
	struct mempool *pool = lease->pool;
	const struct attachment *attachment;
	int r;

	(void)pthread_mutex_lock(&pool->lock);
	r = lease_check_usable_held(lease);
	attachment = attachment_find(&lease->own, lane);
	if (r == 0 && !attachment_is_good(attachment))
		r = client_error_raise(MEMPOOL_E_LANE, "%s", error_text(MEMPOOL_E_LANE));
	if (r == 0 && offset_bytes < lease->len_bytes)
		descriptor = attachment_at(attachment, offset_bytes);
	if (r == 0 && descriptor == NULL)
		r = client_error_raise(MEMPOOL_E_RANGE, "%s", error_text(MEMPOOL_E_RANGE));
	if (r == 0)
		*ret_descriptor = *descriptor;
	(void)pthread_mutex_unlock(&pool->lock);
	return r;
}

/* Notices. */

void lease_ended(struct mempool *pool, const struct message_leases_ended *notice)
{
	for (uint16_t i = 0; i < notice->count; i++) {
		struct mempool_lease *lease = lease_find(pool, notice->ended[i].lease_id);
		int reason = client_error_code(notice->ended[i].reason);

		if (reason == MEMPOOL_E_DRAINED)
			events_tell_draining(pool);
		if (lease != NULL)
			lease_end(lease, reason);
	}
}

static void lease_note_revoked(struct mempool_lease *lease, uint64_t grace_ms)
{
	lease->revoking = true;
	if (lease->grace_ns != 0 || lease->end_reason != 0)
		return;
	lease->grace_ns = clock_add_ms(clock_now_ns(), grace_ms);
	lease_tell_revoking(lease);
}

/* What has nothing in flight, and what we no longer know, is acknowledged in one message. */
void lease_revoke(struct mempool *pool, const struct message_revoke *notice)
{
	struct message m = {.type = MESSAGE_REVOKED};
	struct message_leases *idle = &m.u.leases;

	for (uint16_t i = 0; i < notice->count; i++) {
		struct mempool_lease *lease = lease_find(pool, notice->revoked[i].lease_id);

		if (lease != NULL)
			lease_note_revoked(lease, notice->revoked[i].grace_ms);
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

void lease_take_terms(struct mempool_lease *lease, const struct message_grant *grant)
{
	lease->len_bytes = grant->len_bytes;
	lease->rights = grant->rights;
	lease->generation = grant->generation;
	memcpy(lease->secret, grant->secret, sizeof(lease->secret));
}

void lease_take_grant(struct mempool_lease *lease, const struct message_grant *grant,
		      struct attachment *attachment, uint64_t incarnation)
{
	lease_take_terms(lease, grant);
	attachment_set(attachment, grant, incarnation);
}

void lease_forget_lane(struct mempool *pool, const struct lane *lane)
{
	for (struct mempool_lease *lease = pool->leases; lease != NULL; lease = lease->next)
		attachment_remove(&lease->own, lane);
}

/* Requests. */

/* Not in another session than the one in which the lease is known to be ours. */
static int lease_call_held(struct mempool_lease *lease, struct message *m, struct request *request,
			   uint64_t deadline_ns)
{
	struct mempool *pool = lease->pool;
	int r;

	if (lease->away)
		return client_error_forward(&pool->control.loss);
	r = control_begin(pool, m, request);
	if (r == 0)
		r = control_await(pool, request, m->type, deadline_ns);
	request_remove(&pool->control.requests, request);
	if (!lease_is_end(r))
		return r;
	lease_refused(lease, r);
	return lease_raise(lease, lease->end_reason != 0 ? lease->end_reason : r);
}

int lease_call(struct mempool_lease *lease, struct message *m, struct request *request,
	       uint64_t deadline_ns)
{
	struct mempool *pool = lease->pool;
	int r;

	(void)pthread_mutex_lock(&pool->lock);
	r = lease_call_held(lease, m, request, deadline_ns);
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
	struct lease_extension *extension = request->context;
	uint64_t ttl_ms = m->u.renew.ttl_ms;

	if (m->u.renew.lease_id != extension->lease->id)
		return -EPROTO;
	if (ttl_ms > extension->ttl_ms)
		ttl_ms = extension->ttl_ms;
	renewal_start(extension->lease, request->sent_ns, ttl_ms);
	return 0;
}

int lease_renew(struct mempool_lease *lease, uint64_t ttl_ms, uint64_t deadline_ns)
{
	struct lease_extension extension = {.lease = lease, .ttl_ms = ttl_ms};
	struct message m = {
		.type = MESSAGE_RENEW,
		.u.renew = {.lease_id = lease->id, .ttl_ms = ttl_ms},
	};

	return lease_request(lease, &m, MESSAGE_RENEWED, lease_renewed, &extension, deadline_ns);
}

/*
 * Taken as it is, whatever we think the lease's length and rights are: a change of them whose
 * outcome we have not learnt may have taken place.
 */
static int lease_reattached(struct request *request, const struct message *m)
{
	struct lease_asking *asking = request->context;
	const struct message_grant *grant = &m->u.grant;

	if ((m->flags & MESSAGE_FLAG_MORE) != 0 || grant->lease_id != asking->lease->id ||
	    grant->lane != asking->number || !lease_grant_is_valid(grant))
		return -EPROTO;
	lease_take_grant(asking->lease, grant, asking->attachment, asking->incarnation);
	return 0;
}

/*
 * Lock held from here until it is sent: the number is that of the lane as it is. A lane that the
 * lease has never been on is as if it had not been asked for when that fails.
 */
static int lease_attach_held(struct mempool_lease *lease, struct lane *lane,
			     struct lease_asking *asking, struct request *request,
			     uint64_t deadline_ns)
{
	struct message m = {.type = MESSAGE_ATTACH};
	bool is_new;
	int r;

	if (lane->state != LANE_UP)
		return client_error_raise(MEMPOOL_E_LANE, "%s", error_text(MEMPOOL_E_LANE));
	asking->attachment = attachment_find(&lease->own, lane);
	is_new = asking->attachment == NULL;
	if (is_new)
		asking->attachment = attachment_new(&lease->own, lane);
	if (asking->attachment == NULL)
		return client_error_raise(MEMPOOL_E_NO_MEMORY, "not enough memory");
	asking->incarnation = lane->incarnation;
	asking->number = lane->number;
	m.u.attach = (struct message_attach){.lease_id = lease->id, .lane = asking->number};
	r = lease_call_held(lease, &m, request, deadline_ns);
	if (r == MEMPOOL_E_TIMEOUT || r == MEMPOOL_E_LANE_STATE)
		lane_lose(lane, MEMPOOL_E_LANE, error_text(MEMPOOL_E_LANE));
	if (r < 0 && is_new && asking->attachment->incarnation == 0)
		attachment_remove(&lease->own, lane);
	return r;
}

int lease_attach(struct mempool_lease *lease, struct lane *lane, uint64_t deadline_ns)
{
	struct lease_asking asking = {.lease = lease};
	struct mempool *pool = lease->pool;
	struct request request;
	int r;

	r = request_init(&request, MESSAGE_GRANT, lease_reattached, &asking);
	if (r < 0)
		return client_error_raise(client_error_errno(r), "cannot wait for an answer");
	(void)pthread_mutex_lock(&pool->lock);
	r = lease_attach_held(lease, lane, &asking, &request, deadline_ns);
	(void)pthread_mutex_unlock(&pool->lock);
	request_deinit(&request);
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
	uint64_t deadline_ns;
	int r = guard_call();

	if (r < 0)
		return r;
	if (lease == NULL)
		return client_error_raise(MEMPOOL_E_INVALID, "no lease was given");
	deadline_ns = pool_deadline(lease->pool);
	r = reconnect_await_lease(lease, deadline_ns);
	if (r == 0)
		r = lease_check_usable(lease);
	return r < 0 ? r : lease_renew(lease, ttl_ms, deadline_ns);
}

int mempool_lease_info(mempool_lease *lease, struct mempool_lease_info *ret_info)
{
	struct mempool *pool;
	int r = guard_look();

	if (r < 0)
		return r;
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
