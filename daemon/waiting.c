/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Leases that wait for clean bytes: a list for each tenant, oldest first.
 *
 * Invariants:
 * - nobody of a tenant passes one of it that waits, however few bytes it wants;
 * - tenants are served in turn, the one that was served the longest ago first.
 *
 * Thread: the loop.
 */
#include "daemon/waiting.h"

#include <errno.h>

#include "common/clock.h"
#include "daemon/acquire.h"
#include "daemon/lease.h"
#include "daemon/server.h"
#include "daemon/session.h"
#include "proto/error.h"

int waiting_take(struct lease *lease, uint32_t wait_ms, struct extent **ret_extent)
{
	struct pool *pool = &lease->server->pool;
	bool others_first = !TAILQ_EMPTY(&lease->tenant->waiting);
	int r = -ENOSPC;

	if (!others_first)
		r = extent_take(pool->extents, lease->len_bytes, ret_extent);
	if (r == -ENOSPC && wait_ms > 0 && acquire_may_wait(lease->acquire))
		return -EAGAIN;
	return r;
}

int waiting_add(struct lease *lease, const struct lane *lane, uint32_t wait_ms)
{
	if (deadline_set(lease->server->deadlines, &lease->deadline,
			 clock_add_ms(clock_now_ns(), wait_ms)) < 0)
		return -ENOMEM;
	lease->first_lane = lane->number;
	lease_set_state(lease, LEASE_WAITING);
	TAILQ_INSERT_TAIL(&lease->tenant->waiting, lease, tenant_link);
	return 0;
}

void waiting_remove(struct lease *lease)
{
	TAILQ_REMOVE(&lease->tenant->waiting, lease, tenant_link);
	/* Who waits behind it may fit now. */
	lease->server->serve_waiting = true;
	server_end_turn(lease->server);
}

/* Try the first that waits of one tenant. Return: was it served? */
static bool waiting_serve_tenant(struct server *server, struct tenant *tenant)
{
	struct lease *lease = TAILQ_FIRST(&tenant->waiting);
	struct extent *extent;
	struct lane *lane;

	if (lease == NULL)
		return false;
	if (lease->revoking) {
		lease_end(lease, ERROR_REVOKED);
		return true;
	}
	if (extent_take(server->pool.extents, lease->len_bytes, &extent) < 0)
		return false;
	lane = session_lane(lease->session, lease->first_lane);
	if (lane != NULL && lane->state == LANE_READY &&
	    lane->attachment_count < server->config.lane_leases_max) {
		TAILQ_REMOVE(&tenant->waiting, lease, tenant_link);
		lease_start_binding(lease, extent, lane);
		return true;
	}
	/* Nothing has been bound over it, so it is as clean as it was. */
	extent_set_state(server->pool.extents, extent, EXTENT_DIRTY);
	extent_set_state(server->pool.extents, extent, EXTENT_SCRUBBING);
	extent_clean(server->pool.extents, extent);
	lease_end(lease, ERROR_LANE_STATE);
	return true;
}

/* Of those that wait, the one that was served the longest ago and has not been tried yet. */
static struct tenant *waiting_next_tenant(const struct tenant_registry *registry)
{
	struct tenant *first = NULL;
	struct tenant *tenant;

	LIST_FOREACH (tenant, &registry->tenants, link) {
		if (!TAILQ_EMPTY(&tenant->waiting) && tenant->tried_round != registry->round &&
		    (first == NULL || tenant->served_at < first->served_at))
			first = tenant;
	}
	return first;
}

void waiting_serve(struct server *server)
{
	struct tenant_registry *registry = &server->tenants;
	struct tenant *tenant;

	registry->round++;
	while ((tenant = waiting_next_tenant(registry)) != NULL) {
		if (waiting_serve_tenant(server, tenant))
			tenant->served_at = ++registry->served;
		else
			tenant->tried_round = registry->round;
	}
}
