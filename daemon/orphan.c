/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Leases that outlive their session, and how they come to another one. Owns nothing: an
 * orphan is a lease without a session whose second deadline is set.
 *
 * Invariants: the old windows are told to go before the lease has left its session, and new
 * ones are bound only behind their fence; who asks for a lease and may not have it learns
 * nothing about it; a session that is lost keeps no lease.
 *
 * Thread: the loop.
 */
#include "daemon/orphan.h"

#include <inttypes.h>

#include "common/clock.h"
#include "common/secure.h"
#include "daemon/lease_check.h"
#include "daemon/server.h"
#include "proto/error.h"

static struct log_limit orphan_limit = {.lines_per_s = LOG_TENANTS_PER_S};

void orphan_on_deadline(struct deadline *deadline, void *context)
{
	struct lease *lease = context;

	(void)deadline;
	lease_end(lease, lease->orphan_reason);
}

bool orphan_keep(struct lease *lease, uint64_t lost_ns)
{
	struct server *server = lease->server;
	uint64_t grace_ms = server->config.orphan_grace_ms;

	if (grace_ms == 0 || drain_is_stopping(&server->drain) || !lease->granted ||
	    lease_is_ending(lease))
		return false;
	if (lease->revoking) {
		lease_end(lease, ERROR_REVOKED);
		return true;
	}
	if (deadline_set(server->deadlines, &lease->orphan_deadline,
			 clock_add_ms(lost_ns, grace_ms)) < 0)
		return false;
	lease->orphan_reason = ERROR_ORPHANED;
	server->counters.leases_orphaned++;
	log_limited(LOG_LEVEL_INFO, &orphan_limit,
		    "lease orphaned id=0x%" PRIx64 " tenant=%s grace_ms=%" PRIu64, lease->id,
		    lease->tenant->name, grace_ms);
	lease_audit(lease, AUDIT_LEASE_ORPHANED, NULL, grace_ms);
	lease_leave_session(lease);
	lease_drop_windows(lease);
	return true;
}

/* Whatever is wrong, it is as if there were no such lease. */
static struct lease *orphan_find(const struct session *session,
				 const struct message_reattach *request)
{
	const struct server *server = session->server;
	struct lease *lease = lease_find(server, request->lease_id);
	const struct session *owner;

	if (lease == NULL || lease_is_ending(lease) || !lease->granted ||
	    lease->tenant != session->tenant ||
	    !secure_equal(lease->secret, request->secret, sizeof(lease->secret)))
		return NULL;
	owner = lease->session;
	if (owner == NULL || owner == session)
		return lease;
	/* Leases of a session that has ended in order end with it, though perhaps not all at once. */
	if (server->config.orphan_grace_ms == 0 || !session_may_lose_leases(owner))
		return NULL;
	return lease;
}

/* Its session looks alive, but the tenant must know. */
static int orphan_take_from_owner(struct lease *lease)
{
	struct session *owner = lease->session;

	if (!orphan_keep(lease, clock_now_ns()))
		return ERROR_NO_MEMORY;
	session_lose(owner, ERROR_TAKEN_OVER, "another session took over a lease of it");
	return 0;
}

int orphan_reattach(struct session *session, struct lane *lane, uint64_t request_id,
		    const struct message_reattach *request)
{
	struct lease *lease = orphan_find(session, request);
	struct server *server = session->server;
	int code;

	if (lease == NULL)
		return notices_reason(&session->notices, request->lease_id);
	if (lease->session == session)
		return lease_attach(lease, lane, request_id);
	code = lease_check_attach(lease, lane);
	if (code == 0 && lease->session != NULL)
		code = orphan_take_from_owner(lease);
	if (code != 0)
		return code;
	/* First, since it is the session that is told if the windows cannot be had. */
	lease_join_session(lease, session);
	code = lease_attach(lease, lane, request_id);
	if (code != 0) {
		lease_leave_session(lease);
		return code;
	}
	deadline_clear(server->deadlines, &lease->orphan_deadline);
	server->counters.leases_reattached++;
	log_limited(LOG_LEVEL_INFO, &orphan_limit,
		    "lease reattached id=0x%" PRIx64 " tenant=%s session=0x%" PRIx64, lease->id,
		    lease->tenant->name, session->id);
	lease_audit(lease, AUDIT_LEASE_REATTACHED, NULL,
		    clock_left_ms(lease->deadline.at_ns, clock_now_ns()));
	return 0;
}

void orphan_end_all(struct server *server, const struct tenant *tenant, int reason)
{
	struct lease *lease;

	TAILQ_FOREACH (lease, &server->leases, server_link) {
		if (!orphan_is(lease) || (tenant != NULL && lease->tenant != tenant))
			continue;
		lease->orphan_reason = reason;
		/* It is set already, so it can only be moved. */
		(void)deadline_set(server->deadlines, &lease->orphan_deadline, clock_now_ns());
	}
}
