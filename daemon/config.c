/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The configuration file: the table of its keys, and the rules that tie several keys
 * together. A key is added by adding a row and a field. Nothing is kept between calls; used
 * before the loop runs, and by it when the file is read again.
 */
#include "daemon/config.h"

#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "common/units.h"
#include "daemon/json_file.h"
#include "daemon/mapping.h"
#include "daemon/strikes.h"

#define FILE_MAX "1MiB"
#define NODE_ANY "any"
#define NODE_MAX 1023

static const char *const isolation_names[] = {
	[CONFIG_ISOLATION_AUTO] = "auto",
	[CONFIG_ISOLATION_WINDOWS] = "windows",
	[CONFIG_ISOLATION_UNVERIFIED] = "unverified",
	NULL,
};

static const char *const hugepages_names[] = {
	[MAPPING_PAGES_NONE] = "none",
	[MAPPING_PAGES_2MIB] = "2MiB",
	[MAPPING_PAGES_1GIB] = "1GiB",
	NULL,
};

static const char *const mtu_names[] = {
	[CONFIG_MTU_ANY] = "any",   [CONFIG_MTU_512] = "512",	[CONFIG_MTU_1024] = "1024",
	[CONFIG_MTU_2048] = "2048", [CONFIG_MTU_4096] = "4096", NULL,
};

static const char *const log_level_names[] = {
	[LOG_LEVEL_ERROR] = "error",
	[LOG_LEVEL_WARN] = "warn",
	[LOG_LEVEL_INFO] = "info",
	[LOG_LEVEL_DEBUG] = "debug",
	NULL,
};

/* A decimal port other than 0 behind a host; colons within the host need brackets. */
static bool is_endpoint(const char *item)
{
	const char *colon = strrchr(item, ':');
	uint64_t port;
	size_t host_len;

	if (!colon || colon == item)
		return false;
	host_len = (size_t)(colon - item);
	if (item[0] == '[' ? host_len < 3 || colon[-1] != ']' : memchr(item, ':', host_len) != NULL)
		return false;
	if (strspn(colon + 1, "0123456789") != strlen(colon + 1))
		return false;
	return units_parse_size(colon + 1, &port) == 0 && port >= 1 && port <= 65535;
}

static bool is_node(const char *item)
{
	uint64_t node;

	if (strcmp(item, NODE_ANY) == 0)
		return true;
	return strspn(item, "0123456789") == strlen(item) && units_parse_size(item, &node) == 0 &&
	       node <= NODE_MAX;
}

#define FIELD(name) offsetof(struct config, name)

static const struct schema_key keys[] = {
	{.name = "device",
	 .type = SCHEMA_STRING,
	 .offset = FIELD(device),
	 .default_text = "",
	 .min = "0",
	 .max = "255",
	 .needs_restart = true,
	 .help = "RDMA device; empty: by listen address, else the first that can serve"},
	{.name = "device_wait",
	 .type = SCHEMA_DURATION,
	 .offset = FIELD(device_wait_ms),
	 .default_text = "60s",
	 .min = "0",
	 .max = "1h",
	 .needs_restart = true,
	 .help = "how long to wait at start for a device"},
	{.name = "listen",
	 .type = SCHEMA_LIST,
	 .offset = FIELD(listen),
	 .count_offset = FIELD(listen_count),
	 .item_bytes = CONFIG_STRING_MAX,
	 .min = "1",
	 .max = "8",
	 .is_valid = is_endpoint,
	 .form = "host:port or [v6]:port",
	 .needs_restart = true,
	 .help = "addresses of RDMA interfaces to serve on"},
	{.name = "pool_size",
	 .type = SCHEMA_SIZE,
	 .offset = FIELD(pool_size_bytes),
	 .min = "1MiB",
	 .max = "64TiB",
	 .multiple = "4KiB",
	 .needs_restart = true,
	 .help = "memory to lend; all of it is locked at start"},
	{.name = "hugepages",
	 .type = SCHEMA_ENUM,
	 .offset = FIELD(hugepages),
	 .default_text = "none",
	 .names = hugepages_names,
	 .needs_restart = true,
	 .help = "pages that the pool consists of; huge ones must have been set aside before"},
	{.name = "numa_node",
	 .type = SCHEMA_STRING,
	 .offset = FIELD(numa_node),
	 .default_text = NODE_ANY,
	 .min = "1",
	 .max = "4",
	 .is_valid = is_node,
	 .form = "\"any\" or a number up to \"1023\"",
	 .needs_restart = true,
	 .help = "NUMA node that the pool's memory is taken from; best the one of the device"},
	{.name = "admin_socket",
	 .type = SCHEMA_STRING,
	 .offset = FIELD(admin_socket),
	 .default_text = "/run/mempoold/admin.sock",
	 .min = "1",
	 .max = "107",
	 .needs_restart = true,
	 .help = "unix socket for mempoolctl"},
	{.name = "admin_group",
	 .type = SCHEMA_STRING,
	 .offset = FIELD(admin_group),
	 .default_text = "",
	 .min = "0",
	 .max = "255",
	 .needs_restart = true,
	 .help = "group whose members may use mempoolctl, the daemon being one; empty: its own"},
	{.name = "ttl_default",
	 .type = SCHEMA_DURATION,
	 .offset = FIELD(ttl_default_ms),
	 .default_text = "30s",
	 .min = "1ms",
	 .max = "30d",
	 .help = "life of a lease that is not renewed, if the client does not say"},
	{.name = "ttl_max",
	 .type = SCHEMA_DURATION,
	 .offset = FIELD(ttl_max_ms),
	 .default_text = "1h",
	 .min = "1ms",
	 .max = "30d",
	 .help = "the longest that a client may ask for at a time; at least ttl_default"},
	{.name = "isolation",
	 .type = SCHEMA_ENUM,
	 .offset = FIELD(isolation),
	 .default_text = "auto",
	 .names = isolation_names,
	 .needs_restart = true,
	 .help = "how tenants are kept apart; unverified only for tests or a single tenant"},
	{.name = "window_max",
	 .type = SCHEMA_SIZE,
	 .offset = FIELD(window_max_bytes),
	 .default_text = "1GiB",
	 .min = "4KiB",
	 .max = "2GiB",
	 .multiple = "4KiB",
	 .needs_restart = true,
	 .help = "the longest memory window; longer leases have several"},
	{.name = "scrub_chunk",
	 .type = SCHEMA_SIZE,
	 .offset = FIELD(scrub_chunk_bytes),
	 .default_text = "16MiB",
	 .min = "4KiB",
	 .max = "1GiB",
	 .needs_restart = true,
	 .help = "bytes zeroed at a time before memory is lent again"},
	{.name = "sessions_max",
	 .type = SCHEMA_UINT,
	 .offset = FIELD(sessions_max),
	 .default_text = "256",
	 .min = "1",
	 .max = "65536",
	 .needs_restart = true,
	 .help = "sessions at the same time"},
	{.name = "lanes_max",
	 .type = SCHEMA_UINT,
	 .offset = FIELD(lanes_max),
	 .default_text = "16",
	 .min = "1",
	 .max = "1024",
	 .help = "data connections of one session"},
	{.name = "leases_max",
	 .type = SCHEMA_UINT,
	 .offset = FIELD(leases_max),
	 .default_text = "65536",
	 .min = "1",
	 .max = "1048576",
	 .help = "leases of the whole daemon"},
	{.name = "lane_leases_max",
	 .type = SCHEMA_UINT,
	 .offset = FIELD(lane_leases_max),
	 .default_text = "1024",
	 .min = "1",
	 .max = "16384",
	 .help = "leases on one data connection"},
	{.name = "control_receives",
	 .type = SCHEMA_UINT,
	 .offset = FIELD(control_receives),
	 .default_text = "32",
	 .min = "4",
	 .max = "4096",
	 .needs_restart = true,
	 .help = "receives posted on a control connection"},
	{.name = "lane_send_queue",
	 .type = SCHEMA_UINT,
	 .offset = FIELD(lane_send_queue),
	 .default_text = "128",
	 .min = "2",
	 .max = "4096",
	 .needs_restart = true,
	 .help = "binds and invalidates in flight on a data connection"},
	{.name = "read_depth",
	 .type = SCHEMA_UINT,
	 .offset = FIELD(read_depth),
	 .default_text = "16",
	 .min = "1",
	 .max = "255",
	 .needs_restart = true,
	 .help = "outstanding reads and atomics of a data connection"},
	{.name = "backlog",
	 .type = SCHEMA_UINT,
	 .offset = FIELD(backlog),
	 .default_text = "128",
	 .min = "1",
	 .max = "65535",
	 .needs_restart = true,
	 .help = "connection requests that may wait to be accepted"},
	{.name = "traffic_class",
	 .type = SCHEMA_UINT,
	 .offset = FIELD(traffic_class),
	 .default_text = "0",
	 .min = "0",
	 .max = "255",
	 .needs_restart = true,
	 .help = "traffic class (RoCE: the octet with DSCP and ECN) of what the daemon sends; 0: "
		 "as the client says"},
	{.name = "ack_timeout",
	 .type = SCHEMA_DURATION,
	 .offset = FIELD(ack_timeout_ms),
	 .default_text = "0",
	 .min = "0",
	 .max = "10s",
	 .needs_restart = true,
	 .help = "how long the daemon waits for an acknowledgement before it sends again, rounded "
		 "up to what devices can; 0: as the client says"},
	{.name = "path_mtu_min",
	 .type = SCHEMA_ENUM,
	 .offset = FIELD(path_mtu_min),
	 .default_text = "any",
	 .names = mtu_names,
	 .needs_restart = true,
	 .help = "connections with a smaller path MTU, which the client's end decides, are "
		 "refused"},
	{.name = "handshake_timeout",
	 .type = SCHEMA_DURATION,
	 .offset = FIELD(handshake_timeout_ms),
	 .default_text = "5s",
	 .min = "10ms",
	 .max = "1min",
	 .help = "a new connection must have introduced itself within this time"},
	{.name = "lane_offer",
	 .type = SCHEMA_DURATION,
	 .offset = FIELD(lane_offer_ms),
	 .default_text = "10s",
	 .min = "10ms",
	 .max = "5min",
	 .help = "how long an offer of a data connection is good"},
	{.name = "lane_sweep",
	 .type = SCHEMA_DURATION,
	 .offset = FIELD(lane_sweep_ms),
	 .default_text = "5s",
	 .min = "10ms",
	 .max = "1min",
	 .help = "the state of every data connection is looked at within this time"},
	{.name = "completion_timeout",
	 .type = SCHEMA_DURATION,
	 .offset = FIELD(completion_timeout_ms),
	 .default_text = "2s",
	 .min = "10ms",
	 .max = "1min",
	 .help = "the device must complete a bind or invalidate within this time"},
	{.name = "credit_timeout",
	 .type = SCHEMA_DURATION,
	 .offset = FIELD(credit_timeout_ms),
	 .default_text = "2s",
	 .min = "10ms",
	 .max = "1min",
	 .help = "a client that takes no messages for so long is dropped"},
	{.name = "revoke_grace",
	 .type = SCHEMA_DURATION,
	 .offset = FIELD(revoke_grace_ms),
	 .default_text = "100ms",
	 .min = "0",
	 .max = "1min",
	 .help = "between the notice of a revocation and the end of the lease"},
	{.name = "quiesce_timeout",
	 .type = SCHEMA_DURATION,
	 .offset = FIELD(quiesce_timeout_ms),
	 .default_text = "1s",
	 .min = "1ms",
	 .max = "1min",
	 .help = "for a client to stop using a lease that it wants changed"},
	{.name = "lane_wait_min",
	 .type = SCHEMA_DURATION,
	 .offset = FIELD(lane_wait_min_ms),
	 .default_text = "100ms",
	 .min = "0",
	 .max = "1min",
	 .help = "wait before a second lost data connection is replaced; doubles with each loss"},
	{.name = "lane_wait_max",
	 .type = SCHEMA_DURATION,
	 .offset = FIELD(lane_wait_max_ms),
	 .default_text = "10s",
	 .min = "0",
	 .max = "10min",
	 .help = "the longest such wait"},
	{.name = "lane_peace",
	 .type = SCHEMA_DURATION,
	 .offset = FIELD(lane_peace_ms),
	 .default_text = "1min",
	 .min = "0",
	 .max = "1h",
	 .help = "time without a loss after which that wait begins anew"},
	{.name = "state_dir",
	 .type = SCHEMA_STRING,
	 .offset = FIELD(state_dir),
	 .default_text = "/var/lib/mempoold",
	 .min = "1",
	 .max = "255",
	 .needs_restart = true,
	 .help = "folder for what the daemon itself keeps: its key, saved tenants"},
	{.name = "key_file",
	 .type = SCHEMA_STRING,
	 .offset = FIELD(key_file),
	 .default_text = "",
	 .min = "0",
	 .max = "255",
	 .needs_restart = true,
	 .help = "the daemon's private key; empty: a file in state_dir"},
	{.name = "connections_max_per_address",
	 .type = SCHEMA_UINT,
	 .offset = FIELD(connections_max_per_address),
	 .default_text = "64",
	 .min = "1",
	 .max = "65536",
	 .help = "connections of one client address, in all"},
	{.name = "handshakes_max",
	 .type = SCHEMA_UINT,
	 .offset = FIELD(handshakes_max),
	 .default_text = "64",
	 .min = "1",
	 .max = "65536",
	 .help = "connections that have not introduced themselves yet"},
	{.name = "handshakes_max_per_address",
	 .type = SCHEMA_UINT,
	 .offset = FIELD(handshakes_max_per_address),
	 .default_text = "16",
	 .min = "1",
	 .max = "65536",
	 .help = "of these, from one address"},
	{.name = "ban_after",
	 .type = SCHEMA_UINT,
	 .offset = FIELD(ban_after),
	 .default_text = "10",
	 .min = "0",
	 .max = "1000000",
	 .help = "failed handshakes after which an address is banned; 0: never"},
	{.name = "ban_time",
	 .type = SCHEMA_DURATION,
	 .offset = FIELD(ban_time_ms),
	 .default_text = "10min",
	 .min = "1ms",
	 .max = "30d",
	 .help = "how long a ban of an address or tenant lasts"},
	{.name = "ban_backoff_min",
	 .type = SCHEMA_DURATION,
	 .offset = FIELD(ban_backoff_min_ms),
	 .default_text = "100ms",
	 .min = "0",
	 .max = "1min",
	 .help = "wait after the first failed handshake; doubles with each"},
	{.name = "strikes_max",
	 .type = SCHEMA_UINT,
	 .offset = FIELD(strikes_max),
	 .default_text = "10",
	 .min = "0",
	 .max = "64",
	 .help = "refused accesses and protocol violations after which a tenant is banned; "
		 "0: never"},
	{.name = "strike_grace",
	 .type = SCHEMA_DURATION,
	 .offset = FIELD(strike_grace_ms),
	 .default_text = "2s",
	 .min = "0",
	 .max = "1min",
	 .help = "no strike for so long after the daemon itself ended a lease"},
	{.name = "strike_decay",
	 .type = SCHEMA_DURATION,
	 .offset = FIELD(strike_decay_ms),
	 .default_text = "1min",
	 .min = "1ms",
	 .max = "30d",
	 .help = "time after which one strike is forgotten"},
	{.name = "heartbeat",
	 .type = SCHEMA_DURATION,
	 .offset = FIELD(heartbeat_ms),
	 .default_text = "5s",
	 .min = "0",
	 .max = "1min",
	 .help = "a client gives a sign of life so often, and is dropped when three have not come; "
		 "0: never"},
	{.name = "orphan_grace",
	 .type = SCHEMA_DURATION,
	 .offset = FIELD(orphan_grace_ms),
	 .default_text = "0",
	 .min = "0",
	 .max = "1d",
	 .help = "how long the leases of a lost session wait for its tenant to come back"},
	{.name = "stop_drain",
	 .type = SCHEMA_DURATION,
	 .offset = FIELD(stop_drain_ms),
	 .default_text = "100ms",
	 .min = "0",
	 .max = "1d",
	 .help = "how long leases last when the daemon is told to stop; a second signal ends them "
		 "at once"},
	{.name = "audit_log",
	 .type = SCHEMA_STRING,
	 .offset = FIELD(audit_log),
	 .default_text = "",
	 .min = "0",
	 .max = "255",
	 .needs_restart = true,
	 .help = "file with a line per session and lease event; empty: with the log"},
	{.name = "log_level",
	 .type = SCHEMA_ENUM,
	 .offset = FIELD(log_level),
	 .default_text = "info",
	 .names = log_level_names,
	 .help = "the least important lines that are logged"},
	{.name = "tenants",
	 .type = SCHEMA_OBJECTS,
	 .offset = FIELD(tenants),
	 .count_offset = FIELD(tenant_count),
	 .item_bytes = sizeof(struct tenant_settings),
	 .is_allocated = true,
	 .default_text = "",
	 .min = "0",
	 .max = "4096",
	 .table = &tenant_settings_table,
	 .is_hidden = true,
	 .help = "who may come, and what they may take"},
};

static const struct schema_table table = {
	.keys = keys,
	.count = sizeof(keys) / sizeof(keys[0]),
};

static_assert(STRIKES_CAP == 64, "the table's max of strikes_max must say the same");
static_assert(CONFIG_LISTEN_MAX == 8, "the schema's max of listen must say the same");
static_assert(CONFIG_NODE_TEXT == 4 + 1, "the schema's max of numa_node must say the same");
static_assert(CONFIG_STRING_MAX == 256, "the schema's max of device must say the same");
static_assert(TENANT_SETTINGS_MAX == 4096, "the schema's max of tenants must say the same");

static int check_pages(const struct schema_context *context, const struct config *config)
{
	uint64_t page_bytes = mapping_page_bytes((enum mapping_pages)config->hugepages);
	char page[UNITS_TEXT_MAX];

	if (config->pool_size_bytes % page_bytes == 0)
		return 0;
	return schema_fail(context, "pool_size",
			   "%" PRIu64
			   "B is not a whole number of pages; allowed with hugepages %s: "
			   "multiples of %s",
			   config->pool_size_bytes, config_hugepages_name(config->hugepages),
			   units_format_size(page_bytes, page));
}

/* Rules that tie several keys together. */
static int check_together(const struct schema_context *context, const struct config *config)
{
	char ttl_default[UNITS_TEXT_MAX], ttl_max[UNITS_TEXT_MAX];

	if (config->ttl_default_ms > config->ttl_max_ms)
		return schema_fail(context, "ttl_default",
				   "%s is longer than ttl_max; allowed: at most ttl_max, %s",
				   units_format_duration(config->ttl_default_ms, ttl_default),
				   units_format_duration(config->ttl_max_ms, ttl_max));
	if (check_pages(context, config) < 0)
		return -EINVAL;
	return tenant_settings_check(config->tenants, config->tenant_count, context);
}

static int read_root(const struct schema_context *context, json_t *root, struct config *ret_config)
{
	struct config config;
	int r;

	config_defaults(&config);
	r = schema_read(&table, root, &config, context);
	if (r == 0)
		r = check_together(context, &config);
	if (r < 0) {
		config_free(&config);
		return r;
	}
	*ret_config = config;
	return 0;
}

int config_keep(const struct config *running, struct config *config, json_t **ret_names)
{
	return schema_keep(&table, running, config, ret_names);
}

int config_load(const char *path, struct config *ret_config, char *error)
{
	struct schema_context context = {.file = path, .error = error};
	json_t *root;
	int r;

	r = json_file_read(&context, FILE_MAX, &root);
	if (r < 0)
		return r;
	r = read_root(&context, root, ret_config);
	json_decref(root);
	return r;
}

void config_free(struct config *config)
{
	free(config->tenants);
	config->tenants = NULL;
	config->tenant_count = 0;
}

void config_defaults(struct config *ret_config)
{
	memset(ret_config, 0, sizeof(*ret_config));
	schema_defaults(&table, ret_config);
}

const struct schema_table *config_schema(void)
{
	return &table;
}

void config_print_schema(FILE *out)
{
	schema_print(&table, out);
}

int config_numa_node(const struct config *config)
{
	if (strcmp(config->numa_node, NODE_ANY) == 0)
		return MAPPING_ANY_NODE;
	return (int)strtol(config->numa_node, NULL, 10);
}

enum ibv_mtu config_mtu(const struct config *config)
{
	return (enum ibv_mtu)(IBV_MTU_256 + (config->path_mtu_min - CONFIG_MTU_ANY));
}

const char *config_hugepages_name(int hugepages)
{
	switch (hugepages) {
	case MAPPING_PAGES_NONE:
	case MAPPING_PAGES_2MIB:
	case MAPPING_PAGES_1GIB:
		return hugepages_names[hugepages];
	}
	return "unknown";
}

const char *config_isolation_name(int isolation)
{
	switch (isolation) {
	case CONFIG_ISOLATION_AUTO:
	case CONFIG_ISOLATION_WINDOWS:
	case CONFIG_ISOLATION_UNVERIFIED:
		return isolation_names[isolation];
	}
	return "unknown";
}
