/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * One lease: from the request to the moment its bytes are free again.
 *
 * Invariants:
 * - the end is decided once, whatever fires together; the first reason stays;
 * - the fence of a lease is the fence of all its attachments: bytes go to the scrubber only
 *   when none is left;
 * - bytes, leases and windows stay charged to the tenant until they are free again;
 * - the deadline runs from the grant on; it is cleared when the end is decided.
 *
 * Thread: the loop.
 */
#include "daemon/lease.h"

#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "common/checked.h"
#include "common/clock.h"
#include "common/secure.h"
#include "daemon/acquire.h"
#include "daemon/grant.h"
#include "daemon/lease_check.h"
#include "daemon/modify.h"
#include "daemon/orphan.h"
#include "daemon/release.h"
#include "daemon/revocation.h"
#include "daemon/server.h"
#include "daemon/session.h"
#include "daemon/waiting.h"
#include "proto/error.h"

static struct log_limit lease_granted_limit = {.lines_per_s = LOG_TENANTS_PER_S};
static struct log_limit lease_ends_limit = {.lines_per_s = LOG_TENANTS_PER_S};

#define GO(state) (1u << LEASE_##state)

static const uint32_t lease_next[LEASE_STATES] = {
	[LEASE_REQUESTED] = GO(WAITING) | GO(BINDING),
	[LEASE_WAITING] = GO(BINDING) | GO(ENDING),
	[LEASE_BINDING] = GO(ACTIVE) | GO(ENDING),
	[LEASE_ACTIVE] = GO(DETACHED) | GO(QUIESCING) | GO(REBINDING) | GO(ENDING),
	[LEASE_DETACHED] = GO(ACTIVE) | GO(ENDING),
	[LEASE_QUIESCING] = GO(ACTIVE) | GO(REBINDING) | GO(DETACHED) | GO(ENDING),
	[LEASE_REBINDING] = GO(ACTIVE) | GO(DETACHED) | GO(ENDING),
	[LEASE_ENDING] = GO(FENCING),
	[LEASE_FENCING] = GO(SCRUBBING) | GO(GONE),
	[LEASE_SCRUBBING] = GO(GONE),
	[LEASE_GONE] = 0,
};

static const char *const lease_names[LEASE_STATES] = {
	[LEASE_REQUESTED] = "requested", [LEASE_WAITING] = "waiting",
	[LEASE_BINDING] = "binding",	 [LEASE_ACTIVE] = "active",
	[LEASE_DETACHED] = "detached",	 [LEASE_ENDING] = "ending",
	[LEASE_QUIESCING] = "quiescing", [LEASE_REBINDING] = "rebinding",
	[LEASE_FENCING] = "fencing",	 [LEASE_SCRUBBING] = "scrubbing",
	[LEASE_GONE] = "gone",
};

bool lease_can_go(enum lease_state from, enum lease_state to)
{
	return from < LEASE_STATES && to < LEASE_STATES && (lease_next[from] >> to & 1) != 0;
}

const char *lease_state_name(enum lease_state state)
{
	return state < LEASE_STATES ? lease_names[state] : "invalid";
}

void lease_set_state(struct lease *lease, enum lease_state state)
{
	assert(lease_can_go(lease->state, state));
	lease->state = state;
}

struct lease *lease_find(const struct server *server, uint64_t id)
{
	struct lease *lease = route_find(&server->lease_routes, (uint32_t)id);

	return lease != NULL && lease->id == id ? lease : NULL;
}

/* Making one. */

static void lease_on_deadline(struct deadline *deadline, void *context);
static void lease_cleaned(struct pool_return *back);

/* Also a lease that waits has its bytes charged: what it waits for nobody else of it gets. */
static int lease_charge(struct tenant *tenant, uint64_t bytes)
{
	int code = tenant_try_charge(tenant, TENANT_LEASES, 1);

	if (code != 0)
		return code;
	code = tenant_try_charge(tenant, TENANT_BYTES, bytes);
	if (code != 0)
		tenant_uncharge(tenant, TENANT_LEASES, 1);
	return code;
}

static void lease_init(struct lease *lease, struct session *session, struct acquire *acquire)
{
	const struct message_acquire *request = &acquire->request;
	struct server *server = session->server;

	lease->id = server_random_id(lease->route);
	lease->state = LEASE_REQUESTED;
	lease->server = server;
	lease->tenant = tenant_ref(session->tenant);
	lease->rights = request->rights;
	lease->len_bytes = request->len_bytes;
	lease->ttl_ms = request->ttl_ms;
	lease->deadline = (struct deadline){.fire = lease_on_deadline, .context = lease};
	lease->orphan_deadline = (struct deadline){.fire = orphan_on_deadline, .context = lease};
	secure_random(lease->secret, sizeof(lease->secret));
	lease->back.cleaned = lease_cleaned;
	LIST_INIT(&lease->attachments);
	TAILQ_INSERT_TAIL(&server->leases, lease, server_link);
	server->lease_count++;
	drain_lease_made(&server->drain);
	lease_join_session(lease, session);
	lease->acquire = acquire;
	acquire->holds++;
	TAILQ_INSERT_TAIL(&acquire->leases, lease, acquire_link);
}

int lease_new(struct session *session, struct acquire *acquire, struct lease **ret_lease)
{
	struct server *server = session->server;
	struct lease *lease;
	uint64_t bytes = 0;
	bool fits = checked_round_up(acquire->request.len_bytes, server->pool.page_bytes, &bytes);
	int code = lease_charge(session->tenant, bytes);

	assert(fits); /* it is not longer than the pool */
	(void)fits;
	if (code != 0)
		return code;
	lease = calloc(1, sizeof(*lease));
	if (lease == NULL || route_add(&server->lease_routes, lease, &lease->route) < 0) {
		tenant_uncharge(session->tenant, TENANT_LEASES, 1);
		tenant_uncharge(session->tenant, TENANT_BYTES, bytes);
		free(lease);
		return ERROR_INTERNAL;
	}
	lease->extent_bytes = bytes;
	lease_init(lease, session, acquire);
	*ret_lease = lease;
	return 0;
}

static void lease_uncharge(struct lease *lease)
{
	if (lease->quarantined)
		return;
	tenant_uncharge(lease->tenant, TENANT_BYTES, lease->extent_bytes);
	tenant_uncharge(lease->tenant, TENANT_LEASES, 1);
	tenant_uncharge(lease->tenant, TENANT_WINDOWS, lease->charged_windows);
	lease->charged_windows = 0;
}

/* Nobody waits for it any more. */
static void lease_note_fenced(struct lease *lease)
{
	if (!lease->fenced)
		drain_lease_fenced(&lease->server->drain);
	lease->fenced = true;
}

void lease_quarantine(struct lease *lease)
{
	struct attachment *attachment;
	struct attachment *next;

	lease_uncharge(lease);
	lease->quarantined = true;
	lease_note_fenced(lease);
	if (lease->revocation != NULL)
		revocation_stuck(lease->revocation);
	lease->revocation = NULL;
	/* What waits for the fence of the stuck windows is answered, since that may take for ever. */
	if (lease->state == LEASE_REBINDING || lease->state == LEASE_BINDING) {
		lease_end(lease, ERROR_LANE);
		return;
	}
	if (lease->state == LEASE_QUIESCING) {
		modify_cancel(lease, ERROR_LANE);
		lease_set_state(lease, LEASE_ACTIVE);
	}
	for (attachment = LIST_FIRST(&lease->attachments); attachment != NULL; attachment = next) {
		next = LIST_NEXT(attachment, lease_link);
		if (attachment->state == ATTACHMENT_WAITING && !attachment->in_waiting)
			attachment_fail(attachment, ERROR_LANE);
	}
}

static void lease_free(struct lease *lease)
{
	struct server *server = lease->server;

	assert(LIST_EMPTY(&lease->attachments));
	assert(lease->charged_windows == 0 && lease->back.extent == NULL);
	assert(!deadline_is_set(&lease->orphan_deadline));
	deadline_clear(server->deadlines, &lease->deadline);
	route_remove(&server->lease_routes, lease->route);
	lease_note_fenced(lease);
	revocation_lease_gone(server, lease);
	drain_lease_gone(&server->drain, lease);
	damage_watch_lease_gone(&server->damage_watch, lease);
	TAILQ_REMOVE(&server->leases, lease, server_link);
	server->lease_count--;
	if (lease->session != NULL)
		lease_leave_session(lease);
	acquire_lease_gone(lease->acquire, lease);
	lease_uncharge(lease);
	lease->tenant = tenant_unref(lease->tenant);
	secure_wipe(lease->secret, sizeof(lease->secret));
	free(lease);
	server_maybe_stopped(server);
}

void lease_start_binding(struct lease *lease, struct extent *extent, struct lane *lane)
{
	struct attachment *attachment;
	int code;

	assert(extent_len_bytes(extent) == lease->extent_bytes);
	lease->back.extent = extent;
	lease_set_state(lease, LEASE_BINDING);
	/* Its time begins with the grant; until then lanes and workers see to it that it goes on. */
	if (!lease->revoking)
		deadline_clear(lease->server->deadlines, &lease->deadline);
	code = attachment_new(lease, lane, 0, &attachment);
	if (code != 0) {
		lease_end(lease, code);
		return;
	}
	attachment_start(attachment);
}

int lease_extent_error(int r)
{
	switch (r) {
	case -ENOSPC:
		return ERROR_LENGTH_EXTENT;
	case -E2BIG:
		return ERROR_LENGTH_POOL;
	default:
		return ERROR_INTERNAL;
	}
}

int lease_begin(struct lease *lease, struct lane *lane, uint32_t wait_ms)
{
	struct extent *extent;
	int r = waiting_take(lease, wait_ms, &extent);

	if (r == -EAGAIN) {
		r = waiting_add(lease, lane, wait_ms);
		if (r == 0)
			return 0;
	}
	if (r < 0) {
		lease_free(lease);
		return lease_extent_error(r);
	}
	lease_start_binding(lease, extent, lane);
	return 0;
}

static bool lease_is_usable(const struct lease *lease)
{
	const struct attachment *attachment;

	LIST_FOREACH (attachment, &lease->attachments, lease_link) {
		if (attachment->state == ATTACHMENT_BOUND)
			return true;
	}
	return false;
}

/* A lost lane's windows must be behind the fence before the lease is bound again elsewhere. */
static void lease_try_start(struct lease *lease, struct attachment *attachment)
{
	struct attachment *other;

	LIST_FOREACH (other, &lease->attachments, lease_link) {
		if (attachment_is_ending(other))
			return;
	}
	attachment_start(attachment);
}

int lease_attach(struct lease *lease, struct lane *lane, uint64_t request_id)
{
	struct attachment *attachment;
	int code = lease_check_attach(lease, lane);

	if (code != 0)
		return code;
	code = attachment_new(lease, lane, request_id, &attachment);
	if (code != 0)
		return code;
	lease_try_start(lease, attachment);
	return 0;
}

/* Its time. */

int lease_start_time(struct lease *lease)
{
	lease->granted_ns = clock_now_ns();
	if (lease->revoking)
		return 0;
	return deadline_set(lease->server->deadlines, &lease->deadline,
			    clock_add_ms(clock_now_ns(), lease->ttl_ms));
}

void lease_audit(const struct lease *lease, enum audit_event event, const char *reason,
		 uint64_t duration_ms)
{
	server_audit(lease->server,
		     &(struct audit_record){
			     .event = event,
			     .tenant = lease->tenant->name,
			     .session_id = lease->session != NULL ? lease->session->id : 0,
			     .lease_id = lease->id,
			     .generation = lease->generation,
			     .len_bytes = lease->len_bytes,
			     .rights = lease->rights,
			     .reason = reason,
			     .duration_ms = duration_ms,
		     });
}

void lease_bound(struct lease *lease, struct attachment *attachment)
{
	if (lease->state == LEASE_REBINDING) {
		modify_progress(lease);
		return;
	}
	lease->generation++;
	if (lease->state == LEASE_BINDING) {
		lease->server->counters.leases_granted++;
		log_limited(LOG_LEVEL_INFO, &lease_granted_limit,
			    "lease granted id=0x%" PRIx64 " tenant=%s bytes=%" PRIu64
			    " ttl_ms=%" PRIu64,
			    lease->id, lease->tenant->name, lease->len_bytes, lease->ttl_ms);
		lease_set_state(lease, LEASE_ACTIVE);
		lease_audit(lease, AUDIT_LEASE_GRANTED, NULL, lease->ttl_ms);
		acquire_lease_bound(lease->acquire);
		return;
	}
	if (lease->state == LEASE_DETACHED)
		lease_set_state(lease, LEASE_ACTIVE);
	grant_send(lease, lease->session, attachment, attachment->request_id, false);
	attachment->request_id = 0;
}

int lease_renew(struct lease *lease, uint64_t ttl_ms, uint64_t *ret_ttl_ms)
{
	uint64_t limit_ns = drain_limit_ns(&lease->server->drain);
	uint64_t now_ns = clock_now_ns();
	uint64_t until_ns = clock_add_ms(now_ns, ttl_ms);
	int code;

	if (ttl_ms == 0)
		return ERROR_TTL_ZERO;
	if (ttl_ms > lease->server->config.ttl_max_ms)
		return ERROR_TTL_MAX;
	code = tenant_check_ttl(lease->tenant, ttl_ms);
	if (code != 0)
		return code;
	if (lease->revoking)
		return ERROR_REVOKED;
	if (!lease->granted)
		return ERROR_BUSY;
	if (limit_ns <= now_ns)
		return ERROR_DRAINED;
	if (until_ns > limit_ns) {
		until_ns = limit_ns;
		ttl_ms = clock_left_ms(limit_ns, now_ns);
	}
	if (deadline_set(lease->server->deadlines, &lease->deadline, until_ns) < 0)
		return ERROR_INTERNAL;
	lease->ttl_ms = ttl_ms;
	lease_audit(lease, AUDIT_LEASE_RENEWED, NULL, ttl_ms);
	*ret_ttl_ms = ttl_ms;
	return 0;
}

/* The end. */

static void lease_gone(struct lease *lease)
{
	lease_set_state(lease, LEASE_GONE);
	lease_free(lease);
}

static void lease_cleaned(struct pool_return *back)
{
	struct lease *lease = (struct lease *)((char *)back - offsetof(struct lease, back));

	lease_gone(lease);
}

/* Behind the fence: whoever waited for it may know, and the bytes may be touched. */
static void lease_fenced(struct lease *lease)
{
	struct server *server = lease->server;

	server->counters.leases_ended++;
	lease_note_fenced(lease);
	histogram_add(&server->revocation_us, (clock_now_ns() - lease->decided_ns) / 1000);
	if (lease->revocation != NULL)
		revocation_fenced(lease->revocation, lease);
	if (lease->release != NULL)
		release_lease_fenced(lease->release, lease->session);
	if (lease->back.extent == NULL) {
		lease_gone(lease);
		return;
	}
	lease_set_state(lease, LEASE_SCRUBBING);
	pool_give_back(&server->pool, &lease->back);
}

static void lease_check_fence(struct lease *lease)
{
	if (lease->state == LEASE_FENCING && LIST_EMPTY(&lease->attachments))
		lease_fenced(lease);
}

static void lease_end_attachments(struct lease *lease)
{
	struct attachment *attachment;
	struct attachment *next;

	for (attachment = LIST_FIRST(&lease->attachments); attachment != NULL; attachment = next) {
		next = LIST_NEXT(attachment, lease_link);
		if (attachment->request_id != 0 && lease->session != NULL)
			session_reply_error(lease->session, attachment->request_id, lease->reason);
		attachment->request_id = 0;
		attachment_end(attachment);
	}
}

/* What its owner does not expect to end may still be in use for a moment. A lost lane is not. */
static void lease_note_grace(const struct lease *lease)
{
	uint64_t now_ns = clock_now_ns();
	struct attachment *attachment;

	if (lease->reason == ERROR_RELEASED || lease->reason == ERROR_LANE)
		return;
	LIST_FOREACH (attachment, &lease->attachments, lease_link) {
		if (lease->reason == ERROR_REVOKED)
			strike_grace_note_operator(&attachment->lane->grace, now_ns);
		else
			strike_grace_note(&attachment->lane->grace, now_ns);
	}
}

bool lease_end(struct lease *lease, int reason)
{
	if (lease_is_ending(lease))
		return false;
	if (lease->state == LEASE_WAITING)
		waiting_remove(lease);
	lease_set_state(lease, LEASE_ENDING);
	lease->reason = reason;
	lease->decided_ns = clock_now_ns();
	deadline_clear(lease->server->deadlines, &lease->deadline);
	deadline_clear(lease->server->deadlines, &lease->orphan_deadline);
	log_limited(LOG_LEVEL_INFO, &lease_ends_limit,
		    "lease ends id=0x%" PRIx64 " tenant=%s reason=%s", lease->id,
		    lease->tenant->name, error_name(reason));
	if (lease->granted)
		lease_audit(lease, AUDIT_LEASE_ENDED, error_name(reason),
			    (lease->decided_ns - lease->granted_ns) / CLOCK_NS_PER_MS);
	lease_note_grace(lease);
	modify_cancel(lease, reason);
	if (lease->session != NULL)
		notices_ended(lease->session, lease, lease->granted && lease->release == NULL);
	if (!lease->granted)
		acquire_lease_failed(lease->acquire, reason);
	lease_end_attachments(lease);
	lease_set_state(lease, LEASE_FENCING);
	lease_check_fence(lease);
	return true;
}

bool lease_revoke(struct lease *lease, uint64_t grace_ms)
{
	struct server *server = lease->server;
	uint64_t until_ns;

	if (lease_is_ending(lease) || lease->revoking)
		return false;
	if (orphan_is(lease))
		grace_ms = 0; /* there is nobody to finish anything */
	lease->revoking = true;
	/* Who has not got it has nothing to write back, and waits no longer than it wanted to. */
	until_ns = clock_add_ms(clock_now_ns(), lease->granted ? grace_ms : 0);
	if (!deadline_is_set(&lease->deadline) || until_ns < lease->deadline.at_ns) {
		if (deadline_set(server->deadlines, &lease->deadline, until_ns) < 0)
			return lease_end(lease, ERROR_REVOKED);
	}
	if (grace_ms > 0 && lease->granted)
		notices_revoked(lease->session, lease, grace_ms);
	return true;
}

void lease_revoke_now(struct lease *lease)
{
	if (lease->revoking)
		lease_end(lease, ERROR_REVOKED);
}

void lease_forget_session(struct lease *lease)
{
	assert(lease_is_ending(lease));
	lease_leave_session(lease);
}

void lease_leave_session(struct lease *lease)
{
	session_lease_gone(lease->session, lease);
	lease->session = NULL;
}

void lease_join_session(struct lease *lease, struct session *session)
{
	assert(lease->session == NULL);
	lease->session = session;
	TAILQ_INSERT_TAIL(&session->leases, lease, session_link);
	session->lease_count++;
}

void lease_drop_windows(struct lease *lease)
{
	assert(lease->session == NULL);
	if (lease->state == LEASE_QUIESCING)
		modify_cancel(lease, ERROR_LANE);
	if (lease->state == LEASE_ACTIVE || lease->state == LEASE_QUIESCING)
		lease_set_state(lease, LEASE_DETACHED);
	lease_note_grace(lease);
	modify_hold(lease);
	lease_end_attachments(lease);
	modify_resume(lease);
}

static void lease_on_deadline(struct deadline *deadline, void *context)
{
	struct lease *lease = context;

	(void)deadline;
	if (lease->revoking)
		lease_end(lease, ERROR_REVOKED);
	else if (lease->state == LEASE_WAITING)
		lease_end(lease, ERROR_TIMEOUT);
	else if (clock_now_ns() >= drain_limit_ns(&lease->server->drain))
		lease_end(lease, ERROR_DRAINED);
	else
		lease_end(lease, ERROR_EXPIRED);
}

/* Attachments and lanes report. */

void lease_attachment_fenced(struct lease *lease, struct attachment *attachment)
{
	struct attachment *waiting;
	struct attachment *next;

	if (lease->state == LEASE_BINDING) {
		lease_end(lease, attachment->failure != 0 ? attachment->failure : ERROR_LANE);
		return;
	}
	if (attachment->request_id != 0)
		session_reply_error(lease->session, attachment->request_id, attachment->failure);
	if (lease_is_ending(lease)) {
		lease_check_fence(lease);
		return;
	}
	if (lease->state == LEASE_REBINDING) {
		modify_progress(lease);
		return;
	}
	if (lease->session == NULL)
		return; /* nothing is to be started for nobody */
	for (waiting = LIST_FIRST(&lease->attachments); waiting != NULL; waiting = next) {
		next = LIST_NEXT(waiting, lease_link);
		if (waiting->state == ATTACHMENT_WAITING && !waiting->in_waiting)
			lease_try_start(lease, waiting);
	}
}

void lease_lane_closing(struct lease *lease, struct attachment *attachment)
{
	bool was_bound = attachment->state == ATTACHMENT_BOUND;

	attachment_fail(attachment, ERROR_LANE);
	if (!was_bound || lease_is_usable(lease))
		return;
	if (lease->state == LEASE_QUIESCING)
		modify_cancel(lease, ERROR_LANE);
	if (lease->state == LEASE_ACTIVE || lease->state == LEASE_QUIESCING)
		lease_set_state(lease, LEASE_DETACHED);
}
