/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Tenants by name, and what each of them has taken. A tenant lives as long as a session or
 * lease refers to it; when the last reference goes, every charge has been given back.
 *
 * Thread: the loop.
 */
#include "daemon/tenant.h"

#include <assert.h>
#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/acquire.h"

int tenant_get(struct tenant_registry *registry, const char *name, struct tenant **ret_tenant)
{
	struct tenant *tenant;

	LIST_FOREACH (tenant, &registry->tenants, link) {
		if (strcmp(tenant->name, name) == 0) {
			*ret_tenant = tenant_ref(tenant);
			return 0;
		}
	}
	tenant = calloc(1, sizeof(*tenant));
	if (tenant == NULL)
		return -ENOMEM;
	snprintf(tenant->name, sizeof(tenant->name), "%s", name);
	tenant->references = 1;
	tenant->served_at = registry->served; /* who comes anew is not before who waits */
	TAILQ_INIT(&tenant->waiting);
	tenant->acquires.compare = acquire_compare;
	LIST_INSERT_HEAD(&registry->tenants, tenant, link);
	*ret_tenant = tenant;
	return 0;
}

struct tenant *tenant_ref(struct tenant *tenant)
{
	tenant->references++;
	return tenant;
}

struct tenant *tenant_unref(struct tenant *tenant)
{
	if (tenant == NULL || --tenant->references > 0)
		return NULL;
	for (int i = 0; i < TENANT_RESOURCES; i++)
		assert(tenant->charged[i] == 0);
	assert(TAILQ_EMPTY(&tenant->waiting) && tenant->acquires.root == NULL);
	LIST_REMOVE(tenant, link);
	free(tenant);
	return NULL;
}

void tenant_charge(struct tenant *tenant, enum tenant_resource resource, uint64_t amount)
{
	uint64_t sum;
	bool fits = !__builtin_add_overflow(tenant->charged[resource], amount, &sum);

	assert(fits);
	tenant->charged[resource] = sum;
}

void tenant_uncharge(struct tenant *tenant, enum tenant_resource resource, uint64_t amount)
{
	assert(tenant->charged[resource] >= amount);
	tenant->charged[resource] -= amount;
}
