/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What the log and the audit log are told of sessions. Keeps the limits of its lines.
 *
 * Thread: the loop.
 */
#include "daemon/session_report.h"

#include <inttypes.h>

#include "common/clock.h"
#include "common/log.h"
#include "daemon/server.h"
#include "daemon/session.h"

static struct log_limit stranger_limit; /* of connections that never were a tenant's */
static struct log_limit opened_limit = {.lines_per_s = LOG_TENANTS_PER_S};
static struct log_limit ends_limit = {.lines_per_s = LOG_TENANTS_PER_S};

void session_report_opened(const struct session *session)
{
	server_audit(session->server, &(struct audit_record){
					      .event = AUDIT_SESSION_OPENED,
					      .tenant = session->tenant->name,
					      .session_id = session->id,
					      .peer = session->peer,
				      });
	log_limited(LOG_LEVEL_INFO, &opened_limit,
		    "session opened id=0x%" PRIx64 " tenant=%s peer=%s", session->id,
		    session->tenant->name, session->peer);
}

void session_report_banned(const struct session *session)
{
	uint64_t ban_ms = session->server->config.ban_time_ms;

	log_warn("address banned peer=%s ban_ms=%" PRIu64, session->peer, ban_ms);
	server_audit(session->server, &(struct audit_record){
					      .event = AUDIT_ADDRESS_BANNED,
					      .peer = session->peer,
					      .duration_ms = ban_ms,
				      });
}

static void audit_end(const struct session *session, const char *why)
{
	if (!session->charged)
		return;
	server_audit(session->server,
		     &(struct audit_record){
			     .event = AUDIT_SESSION_ENDED,
			     .tenant = session->tenant->name,
			     .session_id = session->id,
			     .reason = why,
			     .duration_ms = (clock_now_ns() - session->opened_ns) / CLOCK_NS_PER_MS,
			     .peer = session->peer,
		     });
}

/* Whoever comes without being anybody's client writes no more than a few lines. */
static void log_end(const struct session *session, const char *why)
{
	if (session->charged)
		log_limited(LOG_LEVEL_INFO, &ends_limit,
			    "session ends id=0x%" PRIx64 " tenant=%s peer=%s leases=%" PRIu64
			    " why=\"%s\"",
			    session->id, session->tenant->name, session->peer, session->lease_count,
			    why);
	else
		log_limited(LOG_LEVEL_INFO, &stranger_limit,
			    "session ends id=0x%" PRIx64 " tenant=- peer=%s why=\"%s\"",
			    session->id, session->peer, why);
}

void session_report_end(const struct session *session, const char *why)
{
	log_end(session, why);
	audit_end(session, why);
}
