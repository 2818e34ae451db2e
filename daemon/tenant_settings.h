/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef DAEMON_TENANT_SETTINGS_H
#define DAEMON_TENANT_SETTINGS_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/secure.h"
#include "daemon/schema.h"
#include "proto/limits.h"

#define TENANT_SETTINGS_MAX 4096 /* tenants */
#define TENANT_KEYS_MAX	    8	 /* of one tenant */

/* What a tenant can use up. */
enum tenant_resource {
	TENANT_BYTES, /* of the pool, in whole pages */
	TENANT_LEASES,
	TENANT_WINDOWS,
	TENANT_SESSIONS,
	TENANT_LANES,
	TENANT_RESOURCES, /* their number */
};

struct tenant_quota {
	uint64_t limit[TENANT_RESOURCES]; /* that much is granted, no more */
	uint64_t requests_per_second;	  /* 0: any number */
	uint64_t lease_max_bytes;
	uint64_t ttl_max_ms;
	uint32_t rights; /* MESSAGE_RIGHT_* that its leases may have */
};

/* What an operator says about a tenant. */
struct tenant_settings {
	char name[PROTO_TENANT_NAME_MAX + 1];
	uint8_t keys[TENANT_KEYS_MAX][SECURE_KEY_BYTES]; /* public */
	size_t key_count;
	struct tenant_quota quota;
};

/* The keys of a tenant's JSON object, over struct tenant_settings. */
extern const struct schema_table tenant_settings_table;

/**
 * tenant_settings_name_valid() - 1 to PROTO_TENANT_NAME_MAX printable ASCII characters, no spaces
 */
bool tenant_settings_name_valid(const char *name);

/**
 * tenant_settings_from_json() - one tenant's settings from an object
 * @object: any JSON value that strict_json_parse() has let through
 * @ret_settings: untouched on failure
 * @error: SCHEMA_ERROR_MAX bytes; on failure one line with key, value and what is allowed
 *
 * Return: 0, -EINVAL, -ENOMEM.
 */
int tenant_settings_from_json(json_t *object, struct tenant_settings *ret_settings, char *error);

/**
 * tenant_settings_to_json() - all of it; tenant_settings_from_json() reads the same again
 *
 * Return: the caller's reference, NULL if there is no memory.
 */
json_t *tenant_settings_to_json(const struct tenant_settings *settings);

/** tenant_settings_same_quota(), tenant_settings_same_keys() - the keys in whatever order */
bool tenant_settings_same_quota(const struct tenant_settings *a, const struct tenant_settings *b);
bool tenant_settings_same_keys(const struct tenant_settings *a, const struct tenant_settings *b);

/** tenant_settings_same() - both of these; the names do not matter */
bool tenant_settings_same(const struct tenant_settings *a, const struct tenant_settings *b);

/** tenant_settings_share_key() - do they have a key in common? */
bool tenant_settings_share_key(const struct tenant_settings *a, const struct tenant_settings *b);

/**
 * tenant_settings_check() - no two tenants of a list have the same name, no key is there twice
 * @context: of the object whose key "tenants" is the list; on failure its error names both
 *
 * Return: 0, -EINVAL, -ENOMEM.
 */
int tenant_settings_check(const struct tenant_settings *list, size_t count,
			  const struct schema_context *context);

#endif
