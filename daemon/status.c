/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A method of the admin socket: the state of the daemon as JSON.
 * Owns nothing.
 *
 * Thread: the loop.
 */
#include "daemon/status.h"

#include <unistd.h>

#include "common/clock.h"
#include "common/key_file.h"
#include "daemon/admin_drain.h"
#include "daemon/loop.h"
#include "daemon/orphan.h"
#include "daemon/server.h"

#define NUMBER(value) ((json_int_t)(value))

static json_t *status_device(const struct server *server)
{
	const struct device *device = &server->device;
	struct ibv_port_attr port;
	const char *state = "unknown";
	const char *link = "unknown";

	if (ibv_query_port(device->context, 1, &port) == 0) {
		state = ibv_port_state_str(port.state);
		link = port.link_layer == IBV_LINK_LAYER_ETHERNET ? "Ethernet" : "InfiniBand";
	}
	return json_pack("{s:s,s:i,s:s,s:s,s:b}", "name",
			 ibv_get_device_name(device->context->device), "port", 1, "state", state,
			 "link", link, "degraded", server->port_down);
}

static json_t *status_listen(const struct server *server)
{
	json_t *list = json_array();

	for (size_t i = 0; i < server->config.listen_count; i++)
		json_array_append_new(list, json_string(server->config.listen[i]));
	return list;
}

static json_t *status_pool(const struct server *server)
{
	struct extent_totals totals;

	extent_map_totals(server->pool.extents, &totals);
	return json_pack(
		"{s:I,s:I,s:s,s:s,s:I,s:I,s:I,s:I,s:I}", "bytes", NUMBER(server->pool.len_bytes),
		"page_bytes", NUMBER(server->pool.page_bytes), "hugepages",
		config_hugepages_name(server->config.hugepages), "numa_node",
		server->config.numa_node, "free_bytes", NUMBER(totals.free_bytes), "leased_bytes",
		NUMBER(totals.leased_bytes), "dirty_bytes", NUMBER(totals.dirty_bytes),
		"largest_free_bytes", NUMBER(totals.largest_free_bytes), "damaged_bytes",
		NUMBER(totals.retired_bytes));
}

static json_t *status_properties(const struct isolation *isolation)
{
	static const char *const column[2] = {"windows", "guarded"};
	json_t *list = json_array();

	for (int i = 0; i < SELFTEST_PROPERTIES; i++) {
		json_t *row = json_pack("{s:s}", "name",
					selftest_property_name((enum selftest_property)i));

		for (int mode = 0; mode < 2; mode++) {
			if (isolation->ran[mode])
				json_object_set_new(row, column[mode],
						    json_string(selftest_outcome_name(
							    isolation->result[mode].outcome[i])));
		}
		json_array_append_new(list, row);
	}
	return list;
}

static json_t *status_isolation(const struct server *server)
{
	const struct isolation *isolation = &server->isolation;

	return json_pack("{s:s,s:s,s:s,s:s,s:o}", "configured",
			 config_isolation_name(server->config.isolation), "mode",
			 isolation_mode_name(isolation->mode), "why", isolation->why, "fence",
			 isolation->fence_strict ? "strict" : "not strict", "properties",
			 status_properties(isolation));
}

static json_t *status_scrub(const struct server *server)
{
	const struct pool *pool = &server->pool;
	const struct pool_return *back = TAILQ_FIRST(&pool->returns);

	return json_pack("{s:I,s:I}", "extent_bytes",
			 NUMBER(back != NULL ? extent_len_bytes(back->extent) : 0), "done_bytes",
			 NUMBER(back != NULL ? pool->scrub_done_bytes : 0));
}

static json_t *status_leases(const struct server *server)
{
	const struct lease *lease;
	uint64_t detached = 0;
	uint64_t orphaned = 0;
	uint64_t ending = 0;

	TAILQ_FOREACH (lease, &server->leases, server_link) {
		detached += lease->state == LEASE_DETACHED || orphan_is(lease);
		orphaned += orphan_is(lease);
		ending += lease_is_ending(lease);
	}
	return json_pack("{s:I,s:I,s:I,s:I}", "active", NUMBER(server->lease_count - ending),
			 "detached", NUMBER(detached), "orphaned", NUMBER(orphaned), "ending",
			 NUMBER(ending));
}

static json_t *status_revocation(const struct server *server)
{
	const struct histogram *histogram = &server->revocation_us;

	return json_pack("{s:I,s:I,s:I,s:I}", "count", NUMBER(histogram->count), "p50_us",
			 NUMBER(histogram_percentile(histogram, 500)), "p99_us",
			 NUMBER(histogram_percentile(histogram, 990)), "max_us",
			 NUMBER(histogram->max));
}

/* What cannot be torn down and is tried again. */
static json_t *status_stuck(const struct server *server)
{
	const struct lane *lane;
	uint64_t windows = 0;
	uint64_t bytes = 0;

	TAILQ_FOREACH (lane, &server->lanes, server_link) {
		const struct attachment *attachment;

		if (lane->session != NULL)
			continue; /* not in quarantine */
		for (uint32_t i = 0; i < lane->windows.count; i++)
			windows += lane->windows.windows[i]->state != WINDOW_GONE;
		TAILQ_FOREACH (attachment, &lane->attachments, lane_link)
			bytes += attachment->lease->extent_bytes;
	}
	return json_pack("{s:I,s:I}", "windows", NUMBER(windows), "bytes", NUMBER(bytes));
}

static json_t *status_counters(const struct server *server)
{
	json_t *counters = json_object();

#define X(name) json_object_set_new(counters, #name, json_integer(NUMBER(server->counters.name)));
	SERVER_COUNTERS(X)
#undef X
	return counters;
}

static void status_status(struct admin_request *request, json_t *params, void *context)
{
	const struct server *server = context;
	uint64_t up_ms = (clock_now_ns() - server->started_ns) / CLOCK_NS_PER_MS;
	char key[KEY_FILE_PUBLIC_TEXT];

	(void)params;
	key_file_print_public(server->identity.own->public_key, key);
	admin_reply(
		request,
		json_pack(
			"{s:s,s:I,s:I,s:s,s:b,s:o,s:o,s:o,s:o,s:o,s:o,s:I,s:I,s:o,s:o,s:o,s:I,s:o}",
			"version", MEMPOOL_VERSION, "pid", NUMBER(getpid()), "uptime_ms",
			NUMBER(up_ms), "public_key", key, "stopping",
			drain_is_stopping(&server->drain), "drain",
			admin_drain_show(&server->drain), "device", status_device(server), "listen",
			status_listen(server), "pool", status_pool(server), "scrubbing",
			status_scrub(server), "isolation", status_isolation(server), "sessions",
			NUMBER(server->session_count), "lanes", NUMBER(server->lane_count),
			"leases", status_leases(server), "revocation", status_revocation(server),
			"stuck", status_stuck(server), "longest_turn_us", NUMBER(loop_longest_us()),
			"counters", status_counters(server)));
}

const struct admin_method status_methods[] = {
	{"status", status_status},
	{NULL, NULL},
};
