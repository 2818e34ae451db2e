/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef DAEMON_TENANT_H
#define DAEMON_TENANT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/queue.h>

#include "daemon/strikes.h"
#include "daemon/tenant_settings.h"
#include "daemon/tree.h"

struct lease;
struct tenant;

/* Why a tenant was denied something. The first are the resources, under their own numbers. */
enum tenant_denial {
	TENANT_DENIED_RATE = TENANT_RESOURCES,
	TENANT_DENIED_LEASE_LENGTH,
	TENANT_DENIED_TTL,
	TENANT_DENIED_RIGHTS,
	TENANT_DENIALS, /* their number */
};

/* What became different about a tenant; several bits can be set. */
enum tenant_change {
	TENANT_ADDED = 1u << 0,	  /* it is configured, and was not */
	TENANT_REMOVED = 1u << 1, /* it is not configured any more: end its sessions */
	TENANT_QUOTA = 1u << 2,
	TENANT_KEYS = 1u << 3, /* end the sessions of keys that are not its own any more */
};

/* One of a tenant's public keys. */
struct tenant_key {
	struct tree_node node; /* among the registry's, by key */
	struct tenant *tenant;
	uint8_t key[SECURE_KEY_BYTES];
};

struct tenant {
	struct tree_node node;	 /* among the registry's, by name */
	LIST_ENTRY(tenant) link; /* while somebody refers to it */
	LIST_ENTRY(tenant) all_link;
	struct tenant_registry *registry;
	char name[PROTO_TENANT_NAME_MAX + 1];
	uint64_t references;
	uint64_t charged[TENANT_RESOURCES];
	TAILQ_HEAD(, lease) waiting; /* leases that wait for clean bytes, oldest first */
	uint64_t served_at;	     /* the registry's count when one of these was served last */
	uint64_t tried_round;	     /* in which the first of them could not be served */
	struct tree acquires;	     /* requests of which a lease lives */

	bool configured;
	bool removed; /* it was configured; nothing is granted to it any more */
	struct tenant_key keys[TENANT_KEYS_MAX];
	size_t key_count;
	struct tenant_quota quota;
	uint64_t rate_at_ns; /* up to here requests are used up */
	struct strikes strikes;
	uint64_t denied[TENANT_DENIALS]; /* times */
	uint32_t denied_logged;		 /* bit i: the first denial i has been logged */

	/* While settings are applied. */
	uint64_t applied;		 /* the registry's count when it was last listed */
	unsigned int changes;		 /* of enum tenant_change */
	TAILQ_ENTRY(tenant) change_link; /* if there are any */
};

/* All zero at first. */
struct tenant_registry {
	LIST_HEAD(, tenant) tenants; /* that somebody refers to */
	LIST_HEAD(, tenant) all;     /* and the configured ones */
	struct tree names;
	struct tree keys;
	uint64_t round;	  /* of serving those that wait */
	uint64_t served;  /* leases that have waited, so far */
	uint64_t applied; /* times that settings were */
	bool reporting;
};

/**
 * tenant_change_fn() - a tenant has changed
 * @changes: bits of enum tenant_change
 *
 * Called when all changes of all tenants are made. May end the tenant's sessions and leases;
 * must not apply settings. The tenant lives until the call returns.
 */
typedef void (*tenant_change_fn)(struct tenant *tenant, unsigned int changes, void *arg);

/**
 * tenant_registry_apply() - have the configured tenants be those of a list
 * @list: as tenant_settings_check() lets them through; copied
 * @report: called for each tenant that is changed by it; NULL is allowed
 *
 * A tenant that is not listed any more is found by none of its keys at once, is granted nothing,
 * and lives on until its last object has ended. One that is listed keeps its charges: if these
 * are above a limit, nothing is taken from it, and it is granted nothing until they are below.
 * Return: 0, or -ENOMEM: nothing has changed.
 */
int tenant_registry_apply(struct tenant_registry *registry, const struct tenant_settings *list,
			  size_t count, tenant_change_fn report, void *arg);

/** tenant_registry_clear() - no tenant is configured any more; nobody is told */
void tenant_registry_clear(struct tenant_registry *registry);

/**
 * tenant_registry_export() - the settings of all configured tenants, by name
 * @ret_list: to be freed; NULL if there are none
 *
 * Return: 0 or -ENOMEM.
 */
int tenant_registry_export(const struct tenant_registry *registry,
			   struct tenant_settings **ret_list, size_t *ret_count);

/** tenant_export() - what a tenant is configured with */
void tenant_export(const struct tenant *tenant, struct tenant_settings *ret_settings);

/**
 * tenant_find() - the tenant of a name, configured or not
 *
 * Return: NULL if there is none. No reference is taken.
 */
struct tenant *tenant_find(const struct tenant_registry *registry, const char *name);

/**
 * tenant_find_by_key() - the configured tenant that a public key stands for
 *
 * O(log n). How long it takes tells something about public keys and nothing about others.
 * Return: NULL if there is none. No reference is taken.
 */
struct tenant *tenant_find_by_key(const struct tenant_registry *registry,
				  const uint8_t key[SECURE_KEY_BYTES]);

/**
 * tenant_get() - the tenant of a name, made if there is none yet: not configured, without limits
 *
 * Return: 0, or -ENOMEM. The caller holds a reference.
 */
int tenant_get(struct tenant_registry *registry, const char *name, struct tenant **ret_tenant);

/** tenant_ref() - Return: @tenant */
struct tenant *tenant_ref(struct tenant *tenant);

/** tenant_unref() - NULL is allowed; with the last reference all charges are zero (asserted) */
struct tenant *tenant_unref(struct tenant *tenant);

/** tenant_charge(), tenant_uncharge() - each charge is given back exactly once (asserted) */
void tenant_charge(struct tenant *tenant, enum tenant_resource resource, uint64_t amount);
void tenant_uncharge(struct tenant *tenant, enum tenant_resource resource, uint64_t amount);

/**
 * tenant_try_charge() - charge if the quota allows it
 *
 * A denial is counted, the first of its kind logged.
 * Return: 0 and the charge is made, for tenant_uncharge(); else the error code to answer with,
 * ERROR_QUOTA_* of the resource, or ERROR_AUTH if the tenant was removed.
 */
int tenant_try_charge(struct tenant *tenant, enum tenant_resource resource, uint64_t amount);

/**
 * tenant_try_request() - take one of the requests that are allowed in a second
 * @now_ns: clock_now_ns()
 *
 * After a pause a second's worth may come at once.
 * Return: 0, ERROR_QUOTA_RATE or ERROR_AUTH, as tenant_try_charge().
 */
int tenant_try_request(struct tenant *tenant, uint64_t now_ns);

/**
 * tenant_check_length(), tenant_check_ttl(), tenant_check_rights() - may a lease be like that?
 * @rights: MESSAGE_RIGHT_*
 *
 * Return: 0, ERROR_QUOTA_LEASE_LENGTH, ERROR_QUOTA_TTL, ERROR_QUOTA_RIGHTS or ERROR_AUTH, as
 * tenant_try_charge().
 */
int tenant_check_length(struct tenant *tenant, uint64_t len_bytes);
int tenant_check_ttl(struct tenant *tenant, uint64_t ttl_ms);
int tenant_check_rights(struct tenant *tenant, uint32_t rights);

/** tenant_is_over_quota() - does it have more than a limit, which was lowered since, allows? */
bool tenant_is_over_quota(const struct tenant *tenant);

/** tenant_denial_name() - of a resource or enum tenant_denial: "bytes", "rate", "ttl" and so on */
const char *tenant_denial_name(unsigned int denial);

#endif
