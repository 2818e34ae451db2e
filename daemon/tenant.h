/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef DAEMON_TENANT_H
#define DAEMON_TENANT_H

#include <stdint.h>
#include <sys/queue.h>

#include "proto/limits.h"

struct lease;

/* What a tenant can use up. */
enum tenant_resource {
	TENANT_BYTES, /* of the pool, in whole pages */
	TENANT_LEASES,
	TENANT_WINDOWS,
	TENANT_SESSIONS,
	TENANT_LANES,
	TENANT_RESOURCES, /* their number */
};

struct tenant {
	LIST_ENTRY(tenant) link;
	char name[PROTO_TENANT_NAME_MAX + 1];
	uint64_t references;
	uint64_t charged[TENANT_RESOURCES];
	TAILQ_HEAD(, lease) waiting; /* leases that wait for clean bytes, oldest first */
};

struct tenant_registry {
	LIST_HEAD(, tenant) tenants;
};

/**
 * tenant_get() - the tenant of a name, made if there is none yet
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

#endif
