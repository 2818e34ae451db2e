/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Leases: acquired, renewed, attached to a lane, released, ended by the daemon. The session's
 * list has all that are held; a grant puts its lease there before anything later that the
 * daemon sends is looked at, so that no notice about it is missed.
 *
 * A lease's own deadline counts from when the request was sent and so is never later than the
 * daemon's. An end reason is set once; the first is kept.
 *
 * Thread: any; answers and notices on the service thread. Under the session's lock.
 */
#include "client/lease.h"

#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "client/lane.h"
#include "client/pool.h"
#include "common/checked.h"
#include "common/clock.h"
#include "proto/error.h"

/* A grant as it comes in, in one message or several. */
struct lease_grant {
	uint32_t lane; /* that it must be for */
	uint64_t len_bytes; /* that it must have */
	uint64_t lease_id;  /* 0: not known yet */
	uint64_t ttl_ms;
	uint32_t generation;
	uint64_t covered_bytes;
	uint32_t descriptor_count;
	struct message_descriptor descriptors[PROTO_LEASE_WINDOWS_MAX];
};

struct lease_acquisition {
	struct lease_grant grant;
	struct mempool_lease *lease; /* in the session's list once the grant is complete */
	uint64_t ttl_ms;	     /* that was asked for */
	uint64_t incarnation;	     /* of the lane that was asked for */
};

struct lease_renewal {
	struct mempool_lease *lease;
	uint64_t ttl_ms;
};

static uint64_t lease_shorter(uint64_t a_ms, uint64_t b_ms)
{
	return a_ms < b_ms ? a_ms : b_ms;
}

struct mempool_lease *lease_find(struct mempool *pool, uint64_t id)
{
	struct mempool_lease *lease = pool->leases;

	while (lease != NULL && lease->id != id)
		lease = lease->next;
	return lease;
}

static void lease_link(struct mempool_lease *lease)
{
	struct mempool *pool = lease->pool;

	lease->prev = NULL;
	lease->next = pool->leases;
	if (lease->next != NULL)
		lease->next->prev = lease;
	pool->leases = lease;
}

static void lease_unlink(struct mempool_lease *lease)
{
	if (lease->prev != NULL)
		lease->prev->next = lease->next;
	else
		lease->pool->leases = lease->next;
	if (lease->next != NULL)
		lease->next->prev = lease->prev;
}

void lease_free_all(struct mempool *pool)
{
	while (pool->leases != NULL) {
		struct mempool_lease *lease = pool->leases;

		pool->leases = lease->next;
		free(lease);
	}
}

static void lease_end(struct mempool_lease *lease, int reason)
{
	if (lease->end_reason == 0)
		lease->end_reason = reason;
}

void lease_ended(struct mempool *pool, const struct message_leases_ended *notice)
{
	for (uint16_t i = 0; i < notice->count; i++) {
		struct mempool_lease *lease = lease_find(pool, notice->ended[i].lease_id);

		if (lease != NULL)
			lease_end(lease, client_error_code(notice->ended[i].reason));
	}
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

static int lease_raise(const struct mempool_lease *lease, int code)
{
	return client_error_raise(code, "lease %" PRIx64 ": %s", lease->id, error_text(code));
}

/* Why the lease has ended or its session is lost; 0 if neither. Lock held. */
static int lease_check_open(struct mempool_lease *lease)
{
	if (lease->end_reason != 0)
		return lease_raise(lease, lease->end_reason);
	if (lease->pool->control.lost)
		return client_error_forward(&lease->pool->control.loss);
	return 0;
}

int lease_check_usable(struct mempool_lease *lease)
{
	struct mempool *pool = lease->pool;
	int r;

	(void)pthread_mutex_lock(&pool->lock);
	r = lease_check_open(lease);
	if (r == 0 && clock_now_ns() >= lease->deadline_ns)
		r = lease_raise(lease, MEMPOOL_E_EXPIRED);
	(void)pthread_mutex_unlock(&pool->lock);
	return r;
}

bool lease_is_attached(struct mempool_lease *lease, struct lane *lane)
{
	struct mempool *pool = lease->pool;
	bool attached;

	(void)pthread_mutex_lock(&pool->lock);
	attached = lease->lane == lane && lease->incarnation == lane->incarnation;
	(void)pthread_mutex_unlock(&pool->lock);
	return attached;
}

/* Descriptors must cover the lease without gap or overlap, in order. */
static bool lease_grant_append(struct lease_grant *grant,
			       const struct message_descriptor *descriptor)
{
	uint64_t end;

	if (grant->descriptor_count == PROTO_LEASE_WINDOWS_MAX || descriptor->len_bytes == 0 ||
	    descriptor->offset_bytes != grant->covered_bytes ||
	    !checked_within(descriptor->offset_bytes, descriptor->len_bytes, grant->len_bytes) ||
	    !checked_add(descriptor->remote_addr, descriptor->len_bytes - 1, &end))
		return false;
	grant->covered_bytes += descriptor->len_bytes;
	grant->descriptors[grant->descriptor_count++] = *descriptor;
	return true;
}

/* Return: as an answer function. */
static int lease_grant_add(struct lease_grant *grant, const struct message *m)
{
	const struct message_grant *part = &m->u.grant;
	bool more = (m->flags & MESSAGE_FLAG_MORE) != 0;

	if (part->lane != grant->lane || part->len_bytes != grant->len_bytes ||
	    part->lease_id == 0)
		return -EPROTO;
	if (grant->lease_id == 0)
		grant->lease_id = part->lease_id;
	if (part->lease_id != grant->lease_id)
		return -EPROTO;
	grant->ttl_ms = part->ttl_ms;
	grant->generation = part->generation;
	for (uint16_t i = 0; i < part->descriptor_count; i++) {
		if (!lease_grant_append(grant, &part->descriptors[i]))
			return -EPROTO;
	}
	if (more)
		return 1;
	return grant->covered_bytes == grant->len_bytes ? 0 : -EPROTO;
}

static void lease_take_descriptors(struct mempool_lease *lease, const struct lease_grant *grant,
				   struct lane *lane, uint64_t incarnation)
{
	lease->lane = lane;
	lease->incarnation = incarnation;
	lease->generation = grant->generation;
	lease->descriptor_count = grant->descriptor_count;
	memcpy(lease->descriptors, grant->descriptors, sizeof(lease->descriptors));
}

static int lease_granted(struct request *request, const struct message *m)
{
	struct lease_acquisition *acquisition = request->context;
	struct mempool_lease *lease = acquisition->lease;
	uint64_t ttl_ms;
	int r;

	r = lease_grant_add(&acquisition->grant, m);
	if (r != 0)
		return r;
	if (lease_find(lease->pool, acquisition->grant.lease_id) != NULL)
		return -EPROTO;
	ttl_ms = lease_shorter(acquisition->grant.ttl_ms, acquisition->ttl_ms);
	lease->id = acquisition->grant.lease_id;
	lease->deadline_ns = clock_add_ms(request->sent_ns, ttl_ms);
	lease_take_descriptors(lease, &acquisition->grant, lease->lane, acquisition->incarnation);
	lease_link(lease);
	return 0;
}

/* One request. @lease->lane is up, or was a moment ago. */
static int lease_request(struct mempool_lease *lease, const struct mempool_acquire_opts *opts,
			 uint64_t deadline_ns)
{
	struct lease_acquisition acquisition = {.lease = lease, .ttl_ms = opts->ttl_ms};
	struct mempool *pool = lease->pool;
	struct message m = {.type = MESSAGE_ACQUIRE};

	(void)pthread_mutex_lock(&pool->lock);
	acquisition.incarnation = lease->lane->incarnation;
	acquisition.grant.lane = lease->lane->number;
	(void)pthread_mutex_unlock(&pool->lock);
	acquisition.grant.len_bytes = lease->len_bytes;
	m.u.acquire = (struct message_acquire){
		.len_bytes = lease->len_bytes,
		.ttl_ms = opts->ttl_ms,
		.rights = opts->rights,
		.lane = acquisition.grant.lane,
		.wait_ms = opts->wait_ms,
	};
	return control_request(pool, &m, MESSAGE_GRANT, lease_granted, &acquisition, deadline_ns);
}

/* The daemon may know before us that a lane is lost: then a new one is made, once. */
static int lease_acquire(struct mempool_lease *lease, const struct mempool_acquire_opts *opts,
			 uint64_t deadline_ns)
{
	struct mempool *pool = lease->pool;
	int r;

	r = lane_ensure(lease->lane, deadline_ns);
	if (r < 0)
		return r;
	r = lease_request(lease, opts, deadline_ns);
	if (r != MEMPOOL_E_LANE_STATE)
		return r;
	(void)pthread_mutex_lock(&pool->lock);
	lane_lose(lease->lane, MEMPOOL_E_LANE, error_text(MEMPOOL_E_LANE_STATE));
	(void)pthread_mutex_unlock(&pool->lock);
	r = lane_ensure(lease->lane, deadline_ns);
	return r < 0 ? r : lease_request(lease, opts, deadline_ns);
}

static int lease_renewed(struct request *request, const struct message *m)
{
	struct lease_renewal *renewal = request->context;
	uint64_t ttl_ms = lease_shorter(m->u.renew.ttl_ms, renewal->ttl_ms);

	if (m->u.renew.lease_id != renewal->lease->id)
		return -EPROTO;
	renewal->lease->deadline_ns = clock_add_ms(request->sent_ns, ttl_ms);
	return 0;
}

/* A request about a lease. An answer that it has ended is kept as its reason. */
static int lease_call(struct mempool_lease *lease, struct message *m, uint16_t answer_type,
		      request_answer_fn answer, void *context, uint64_t deadline_ns)
{
	struct mempool *pool = lease->pool;
	int r;

	r = control_request(pool, m, answer_type, answer, context, deadline_ns);
	if (!lease_is_end(r))
		return r;
	(void)pthread_mutex_lock(&pool->lock);
	lease_end(lease, r);
	r = lease_raise(lease, lease->end_reason);
	(void)pthread_mutex_unlock(&pool->lock);
	return r;
}

static int lease_renew(struct mempool_lease *lease, uint64_t ttl_ms)
{
	struct lease_renewal renewal = {.lease = lease, .ttl_ms = ttl_ms};
	struct message m = {
		.type = MESSAGE_RENEW,
		.u.renew = {.lease_id = lease->id, .ttl_ms = ttl_ms},
	};

	return lease_call(lease, &m, MESSAGE_RENEWED, lease_renewed, &renewal,
			  pool_deadline(lease->pool));
}

static int lease_reattached(struct request *request, const struct message *m)
{
	return lease_grant_add(request->context, m);
}

int lease_attach(struct mempool_lease *lease, struct lane *lane, uint64_t deadline_ns)
{
	struct lease_grant grant = {.len_bytes = lease->len_bytes, .lease_id = lease->id};
	struct mempool *pool = lease->pool;
	struct message m = {.type = MESSAGE_ATTACH};
	uint64_t incarnation;
	int r;

	(void)pthread_mutex_lock(&pool->lock);
	incarnation = lane->incarnation;
	grant.lane = lane->number;
	(void)pthread_mutex_unlock(&pool->lock);
	m.u.attach = (struct message_attach){.lease_id = lease->id, .lane = grant.lane};
	r = lease_call(lease, &m, MESSAGE_GRANT, lease_reattached, &grant, deadline_ns);
	(void)pthread_mutex_lock(&pool->lock);
	if (r == 0)
		lease_take_descriptors(lease, &grant, lane, incarnation);
	else if (r == MEMPOOL_E_TIMEOUT || r == MEMPOOL_E_LANE_STATE)
		lane_lose(lane, MEMPOOL_E_LANE, error_text(MEMPOOL_E_LANE));
	(void)pthread_mutex_unlock(&pool->lock);
	return r;
}

/* A lease that was waited for has less left by our count than by the daemon's. */
static int lease_make_up(struct mempool_lease *lease, const struct mempool_acquire_opts *opts)
{
	struct mempool *pool = lease->pool;
	uint64_t left_ms;

	if (opts->wait_ms == 0)
		return 0;
	(void)pthread_mutex_lock(&pool->lock);
	left_ms = clock_left_ms(lease->deadline_ns, clock_now_ns());
	(void)pthread_mutex_unlock(&pool->lock);
	return left_ms < opts->ttl_ms / 2 ? lease_renew(lease, opts->ttl_ms) : 0;
}

int mempool_acquire(mempool *pool, uint64_t len_bytes, const struct mempool_acquire_opts *opts,
		    mempool_lease **ret_lease)
{
	struct mempool_lease *lease;
	int r;

	if (pool == NULL || ret_lease == NULL || !pool_options_known(opts, sizeof(*opts)))
		return client_error_raise(MEMPOOL_E_INVALID, "an argument is not valid");
	lease = calloc(1, sizeof(*lease));
	if (lease == NULL)
		return client_error_raise(MEMPOOL_E_NO_MEMORY, "not enough memory");
	lease->pool = pool;
	lease->lane = &pool->lane;
	lease->len_bytes = len_bytes;
	lease->rights = opts->rights;
	r = lease_acquire(lease, opts, clock_add_ms(pool_deadline(pool), opts->wait_ms));
	if (r < 0) {
		free(lease);
		return r;
	}
	r = lease_make_up(lease, opts);
	if (r < 0) {
		(void)mempool_release(lease);
		return r;
	}
	*ret_lease = lease;
	return 0;
}

int mempool_renew(mempool_lease *lease, uint64_t ttl_ms)
{
	int r;

	if (lease == NULL)
		return client_error_raise(MEMPOOL_E_INVALID, "no lease was given");
	r = lease_check_usable(lease);
	return r < 0 ? r : lease_renew(lease, ttl_ms);
}

static int lease_give_back(struct mempool_lease *lease)
{
	struct mempool *pool = lease->pool;
	struct message m = {.type = MESSAGE_RELEASE, .u.lease = {.lease_id = lease->id}};
	int r;

	(void)pthread_mutex_lock(&pool->lock);
	r = lease_check_open(lease);
	(void)pthread_mutex_unlock(&pool->lock);
	if (r < 0)
		return r;
	return lease_call(lease, &m, MESSAGE_RELEASED, NULL, NULL, pool_deadline(pool));
}

int mempool_release(mempool_lease *lease)
{
	struct mempool *pool;
	int r;

	if (lease == NULL)
		return 0;
	pool = lease->pool;
	r = lease_give_back(lease);
	(void)pthread_mutex_lock(&pool->lock);
	lease_unlink(lease);
	(void)pthread_mutex_unlock(&pool->lock);
	free(lease);
	return r;
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
