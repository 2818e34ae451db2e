/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Strikes against tenants, and bans. A ban ends the tenant's sessions, and with them its
 * leases; the tenant is told why, and at each new try until the ban is over.
 *
 * Thread: the loop.
 */
#include "daemon/penalty.h"

#include <inttypes.h>

#include "common/clock.h"
#include "daemon/server.h"
#include "proto/error.h"

#define PENALTY_PARDONS_MAX 5 /* a minute */

static struct strike_limits penalty_limits(const struct server *server)
{
	const struct config *config = &server->config;

	return (struct strike_limits){
		.strikes_max = (uint32_t)config->strikes_max,
		.decay_ms = config->strike_decay_ms,
		.back_off_min_ms = config->lane_wait_min_ms,
		.back_off_max_ms = config->lane_wait_max_ms,
		.ban_ms = config->ban_time_ms,
		.grace_ms = config->strike_grace_ms,
		.pardons_max = PENALTY_PARDONS_MAX,
	};
}

static void penalty_ban(struct server *server, struct tenant *tenant)
{
	log_warn("tenant banned tenant=%s ban_ms=%" PRIu64, tenant->name,
		 server->config.ban_time_ms);
	server_audit(server, &(struct audit_record){
				     .event = AUDIT_TENANT_BANNED,
				     .tenant = tenant->name,
				     .reason = error_name(ERROR_BANNED),
				     .duration_ms = server->config.ban_time_ms,
			     });
	session_end_tenant(server, tenant, ERROR_BANNED, "its tenant is banned");
}

static void penalty_outcome(struct server *server, struct tenant *tenant,
			    enum strike_outcome outcome)
{
	if (outcome == STRIKE_COUNTED || outcome == STRIKE_BAN)
		server->counters.strikes++;
	if (outcome == STRIKE_PARDONED)
		server->counters.strikes_pardoned++;
	if (outcome == STRIKE_BAN)
		penalty_ban(server, tenant);
}

void penalty_lane_died(struct lane *lane)
{
	struct server *server = lane->server;
	struct strike_limits limits = penalty_limits(server);
	struct tenant *tenant = tenant_ref(lane->session->tenant);

	penalty_outcome(server, tenant,
			strikes_access_error(&tenant->strikes, &limits, &lane->grace,
					     lane->alive_ns, clock_now_ns()));
	(void)tenant_unref(tenant);
}

void penalty_session(struct session *session, enum strike_kind kind)
{
	struct server *server = session->server;
	struct strike_limits limits = penalty_limits(server);
	struct tenant *tenant = tenant_ref(session->tenant);

	penalty_outcome(server, tenant,
			strikes_add(&tenant->strikes, &limits, kind, clock_now_ns()));
	(void)tenant_unref(tenant);
}

uint64_t penalty_lane_from_ns(const struct tenant *tenant)
{
	return strikes_lane_from_ns(&tenant->strikes, clock_now_ns());
}

bool penalty_is_banned(const struct tenant *tenant)
{
	return strikes_banned_until_ns(&tenant->strikes, clock_now_ns()) != 0;
}

uint32_t penalty_strikes(const struct server *server, const struct tenant *tenant)
{
	struct strike_limits limits = penalty_limits(server);

	return strikes_count(&tenant->strikes, &limits, clock_now_ns());
}

uint64_t penalty_ban_left_ms(const struct tenant *tenant)
{
	uint64_t now_ns = clock_now_ns();

	return clock_left_ms(strikes_banned_until_ns(&tenant->strikes, now_ns), now_ns);
}

bool penalty_unban(struct server *server, struct tenant *tenant)
{
	if (!strikes_unban(&tenant->strikes, clock_now_ns()))
		return false;
	log_info("tenant unbanned tenant=%s", tenant->name);
	server_audit(server, &(struct audit_record){.event = AUDIT_TENANT_UNBANNED,
						    .tenant = tenant->name});
	return true;
}
