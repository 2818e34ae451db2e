/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * May there be a lease like that, and may it be bound there? Changes and keeps nothing.
 *
 * Thread: the loop.
 */
#include "daemon/lease_check.h"

#include "common/checked.h"
#include "daemon/lease.h"
#include "daemon/server.h"
#include "daemon/session.h"
#include "proto/error.h"

/* Several leases that cannot all fit are refused before the first of them takes anything. */
static int lease_check_room(const struct server *server, const struct message_acquire *request)
{
	struct extent_totals totals;
	uint64_t room_bytes;
	uint64_t each_bytes;

	extent_map_totals(server->pool.extents, &totals);
	room_bytes = totals.free_bytes + (request->wait_ms > 0 ? totals.dirty_bytes : 0);
	if (!checked_round_up(request->len_bytes, server->pool.page_bytes, &each_bytes))
		return ERROR_LENGTH_POOL;
	return each_bytes > room_bytes / request->count ? ERROR_LENGTH_EXTENT : 0;
}

/* What the tenant may not have, whatever there is. */
static int lease_check_quota(struct tenant *tenant, const struct message_acquire *request)
{
	int code = tenant_check_length(tenant, request->len_bytes);

	if (code == 0)
		code = tenant_check_ttl(tenant, request->ttl_ms);
	if (code == 0)
		code = tenant_check_rights(tenant, request->rights);
	return code;
}

int lease_check_request(const struct session *session, const struct lane *lane,
			const struct message_acquire *request)
{
	const struct server *server = session->server;
	const struct config *config = &server->config;
	int code;

	if (request->len_bytes == 0)
		return ERROR_LENGTH_ZERO;
	if (request->len_bytes > server->pool.len_bytes)
		return ERROR_LENGTH_POOL;
	if (request->ttl_ms == 0)
		return ERROR_TTL_ZERO;
	if (request->ttl_ms > config->ttl_max_ms)
		return ERROR_TTL_MAX;
	if (request->rights == 0 || (request->rights & ~(uint32_t)MESSAGE_RIGHTS_ALL) != 0)
		return ERROR_RIGHTS;
	if ((request->rights & ~server->isolation.rights) != 0)
		return ERROR_RIGHTS_DEVICE;
	if (attachment_window_total(request->len_bytes, config->window_max_bytes) >
	    PROTO_LEASE_WINDOWS_MAX)
		return ERROR_WINDOWS_MAX;
	code = lease_check_quota(session->tenant, request);
	if (code != 0)
		return code;
	if (server->port_down)
		return ERROR_PORT;
	if (lane == NULL || lane->state != LANE_READY)
		return ERROR_LANE_STATE;
	if (lane->attachment_count + request->count > config->lane_leases_max)
		return ERROR_LANE_LEASES_MAX;
	if (server->lease_count + request->count > config->leases_max)
		return ERROR_LEASES_MAX;
	return lease_check_room(server, request);
}

/* Is a lane with windows of it in quarantine? They may reach its bytes for ever. */
static bool lease_is_stuck(const struct lease *lease)
{
	const struct attachment *attachment;

	LIST_FOREACH (attachment, &lease->attachments, lease_link) {
		if (attachment->lane->session == NULL)
			return true;
	}
	return false;
}

int lease_check_attach(const struct lease *lease, const struct lane *lane)
{
	const struct attachment *attachment;

	if (lane == NULL || lane->state != LANE_READY)
		return ERROR_LANE_STATE;
	if (lease->revoking)
		return ERROR_REVOKED;
	if (lease->state != LEASE_ACTIVE && lease->state != LEASE_DETACHED)
		return ERROR_BUSY;
	if (lease_is_stuck(lease))
		return ERROR_LANE;
	if (lane->attachment_count >= lease->server->config.lane_leases_max)
		return ERROR_LANE_LEASES_MAX;
	LIST_FOREACH (attachment, &lease->attachments, lease_link) {
		if (attachment->lane == lane)
			return ERROR_BUSY;
	}
	return 0;
}
