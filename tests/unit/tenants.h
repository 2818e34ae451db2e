/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef TESTS_UNIT_TENANTS_H
#define TESTS_UNIT_TENANTS_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/tenant_settings.h"

/* Key number @n: distinct for each, not all zero. */
static inline void tenants_key(uint32_t n, uint8_t ret_key[SECURE_KEY_BYTES])
{
	memset(ret_key, 0, SECURE_KEY_BYTES);
	memcpy(ret_key, &n, sizeof(n));
	ret_key[SECURE_KEY_BYTES - 1] = 0x40;
}

/* A tenant with the default quota and one key, of a number. */
static inline struct tenant_settings tenants_make(const char *name, uint32_t key)
{
	struct tenant_settings settings = {0};

	schema_defaults(&tenant_settings_table, &settings);
	snprintf(settings.name, sizeof(settings.name), "%s", name);
	tenants_key(key, settings.keys[0]);
	settings.key_count = 1;
	return settings;
}

/* Tenants t0, t1 and so on with keys of their own, from @first_key on; to be freed. */
static inline struct tenant_settings *tenants_many(size_t count, uint32_t first_key)
{
	struct tenant_settings *list = calloc(count, sizeof(*list));

	for (size_t i = 0; i < count; i++) {
		char name[32];

		if (list == NULL)
			abort();
		snprintf(name, sizeof(name), "t%zu", i);
		list[i] = tenants_make(name, first_key + (uint32_t)i);
	}
	return list;
}

static inline bool tenants_equal(const struct tenant_settings *a, const struct tenant_settings *b)
{
	return strcmp(a->name, b->name) == 0 && a->key_count == b->key_count &&
	       memcmp(a->keys, b->keys, a->key_count * sizeof(a->keys[0])) == 0 &&
	       memcmp(a->quota.limit, b->quota.limit, sizeof(a->quota.limit)) == 0 &&
	       a->quota.requests_per_second == b->quota.requests_per_second &&
	       a->quota.lease_max_bytes == b->quota.lease_max_bytes &&
	       a->quota.ttl_max_ms == b->quota.ttl_max_ms && a->quota.rights == b->quota.rights;
}

#endif
