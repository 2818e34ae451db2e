/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef DAEMON_CONFIG_H
#define DAEMON_CONFIG_H

#include <infiniband/verbs.h>
#include <jansson.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "common/log.h"
#include "daemon/schema.h"
#include "daemon/tenant_settings.h"

#define CONFIG_LISTEN_MAX 8
#define CONFIG_STRING_MAX 256
#define CONFIG_NODE_TEXT  5
#define CONFIG_ERROR_MAX  SCHEMA_ERROR_MAX

enum config_isolation {
	CONFIG_ISOLATION_AUTO,
	CONFIG_ISOLATION_WINDOWS,
	CONFIG_ISOLATION_UNVERIFIED,
};

enum config_mtu {
	CONFIG_MTU_ANY,
	CONFIG_MTU_512,
	CONFIG_MTU_1024,
	CONFIG_MTU_2048,
	CONFIG_MTU_4096,
};

/* One value per key of the schema table in config.c, which has units, ranges and defaults. */
struct config {
	char device[CONFIG_STRING_MAX]; /* "" = by listen address, else the first that can serve */
	uint64_t device_wait_ms;	/* how long to wait at start for a device */
	char listen[CONFIG_LISTEN_MAX][CONFIG_STRING_MAX]; /* "host:port", "[v6]:port" */
	size_t listen_count;
	uint64_t pool_size_bytes;
	int hugepages;			  /* enum mapping_pages: of the pool */
	char numa_node[CONFIG_NODE_TEXT]; /* "any" or a number, of the pool's memory */
	char admin_socket[CONFIG_STRING_MAX];
	char admin_group[CONFIG_STRING_MAX]; /* "" = the daemon's own */
	uint64_t ttl_default_ms;
	uint64_t ttl_max_ms;
	int isolation; /* enum config_isolation */
	uint64_t window_max_bytes;
	uint64_t scrub_chunk_bytes;
	uint64_t sessions_max;
	uint64_t lanes_max;	   /* of one session */
	uint64_t leases_max;	   /* of the whole daemon */
	uint64_t lane_leases_max;  /* on one lane */
	uint64_t control_receives; /* posted per control connection */
	uint64_t lane_send_queue;  /* binds and invalidates in flight per lane */
	uint64_t read_depth;	   /* outstanding reads and atomics per lane, at most */
	uint64_t backlog;
	uint64_t traffic_class;	 /* of what the daemon sends; 0 = as the client's request says */
	uint64_t ack_timeout_ms; /* 0 = as the client's request says */
	int path_mtu_min;	 /* enum config_mtu */
	uint64_t handshake_timeout_ms;
	uint64_t lane_offer_ms;		/* how long an offer is good */
	uint64_t lane_sweep_ms;		/* every lane's state is looked at within this time */
	uint64_t completion_timeout_ms; /* for a bind or invalidate, before the lane is given up */
	uint64_t credit_timeout_ms;	/* a peer that returns no credit for so long is dropped */
	uint64_t revoke_grace_ms;	/* between the notice of a revocation and the end */
	uint64_t quiesce_timeout_ms;	/* for the owner to stop before its lease is changed */
	uint64_t lane_wait_min_ms;	/* wait before a second lost lane is replaced; doubles */
	uint64_t lane_wait_max_ms;
	uint64_t lane_peace_ms; /* without a loss, after which the wait begins anew */
	char state_dir[CONFIG_STRING_MAX];
	char key_file[CONFIG_STRING_MAX];     /* "" = a file in state_dir */
	uint64_t connections_max_per_address; /* in all */
	uint64_t handshakes_max;	      /* connections that have not introduced themselves */
	uint64_t handshakes_max_per_address;
	uint64_t ban_after;	     /* failed handshakes of an address */
	uint64_t ban_time_ms;	     /* of an address or tenant */
	uint64_t ban_backoff_min_ms; /* after the first failure; doubles */
	uint64_t strikes_max;	     /* of a tenant, before it is banned */
	uint64_t strike_grace_ms;    /* no strike so long after the daemon ended a window itself */
	uint64_t strike_decay_ms;    /* after which one strike is forgotten */
	uint64_t heartbeat_ms;	     /* 0 = none */
	uint64_t orphan_grace_ms;    /* 0 = leases end with their session */
	uint64_t stop_drain_ms; /* that leases have when the daemon is told to stop; 0 = none */
	char audit_log[CONFIG_STRING_MAX]; /* a file; "" = with the log */
	int log_level;			   /* enum log_level */
	struct tenant_settings *tenants;   /* owned; no name and no key is there twice */
	size_t tenant_count;
};

/**
 * config_load() - read and check a configuration file
 * @path: the file; at most 1 MiB
 * @ret_config: complete with defaults on success, for config_free(); untouched on failure
 * @error: CONFIG_ERROR_MAX bytes; on failure one line that names file, key, value and what
 *         is allowed
 *
 * Return: 0, or a negative errno (-EINVAL for anything wrong in the file, -ENOMEM).
 */
int config_load(const char *path, struct config *ret_config, char *error);

/**
 * config_keep() - give a configuration the running values of the keys that need a restart
 * @config: loaded; changed
 * @ret_names: the caller's list of the names of those keys whose values were different
 *
 * Return: 0 or -ENOMEM; on failure @config may have changed, and is still to be freed.
 */
int config_keep(const struct config *running, struct config *config, json_t **ret_names);

/** config_free() - give back the tenants; the rest stays */
void config_free(struct config *config);

/**
 * config_defaults() - what an empty file gives (pool_size and listen have no default: left 0)
 */
void config_defaults(struct config *ret_config);

/** config_schema() - the table of the keys; static */
const struct schema_table *config_schema(void);

/**
 * config_print_schema() - a table of all keys: type, default, what is allowed, help
 */
void config_print_schema(FILE *out);

/** config_numa_node() - the node that the pool's memory is to be on, or MAPPING_ANY_NODE */
int config_numa_node(const struct config *config);

/** config_mtu() - the least path MTU of a connection */
enum ibv_mtu config_mtu(const struct config *config);

/** config_hugepages_name() - "none", "2MiB", "1GiB" */
const char *config_hugepages_name(int hugepages);

/**
 * config_isolation_name() - "auto", "windows", "unverified"
 */
const char *config_isolation_name(int isolation);

#endif
