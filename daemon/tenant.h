/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef DAEMON_TENANT_H
#define DAEMON_TENANT_H

#include <stdint.h>
#include <sys/queue.h>

#include "daemon/tenant_settings.h"
#include "daemon/tree.h"

struct lease;

struct tenant {
	LIST_ENTRY(tenant) link;
	char name[PROTO_TENANT_NAME_MAX + 1];
	uint64_t references;
	uint64_t charged[TENANT_RESOURCES];
	TAILQ_HEAD(, lease) waiting; /* leases that wait for clean bytes, oldest first */
	uint64_t served_at;	     /* the registry's count when one of these was served last */
	uint64_t tried_round;	     /* in which the first of them could not be served */
	struct tree acquires;	     /* requests of which a lease lives */
};

struct tenant_registry {
	LIST_HEAD(, tenant) tenants;
	uint64_t round;	 /* of serving those that wait */
	uint64_t served; /* leases that have waited, so far */
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
