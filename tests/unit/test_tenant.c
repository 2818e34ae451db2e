/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * daemon/tenant.c: one tenant per name for as long as somebody refers to it, and charges
 * that are given back exactly once.
 */
#include "daemon/tenant.h"

#include <string.h>

#include "daemon/lease.h"
#include "tests/unit/abort.h"
#include "tests/unit/test.h"

TEST(tenant_get__same_name)
{
	struct tenant_registry registry = {0};
	struct tenant *a, *b;

	CHECK_INT(tenant_get(&registry, "blue", &a), 0);
	CHECK_STR(a->name, "blue");
	CHECK_INT(a->references, 1);
	CHECK_INT(tenant_get(&registry, "blue", &b), 0);
	CHECK(a == b);
	CHECK_INT(a->references, 2);
	CHECK(tenant_unref(a) == NULL);
	CHECK_INT(b->references, 1);
	CHECK(LIST_FIRST(&registry.tenants) == b);
	CHECK(tenant_unref(b) == NULL);
	CHECK(LIST_EMPTY(&registry.tenants));
}

TEST(tenant_get__other_names)
{
	static const char *const names[] = {"blue", "Blue", "blu", "bluer", " "};
	enum { COUNT = sizeof(names) / sizeof(names[0]) };
	struct tenant_registry registry = {0};
	struct tenant *tenants[COUNT];

	for (int i = 0; i < COUNT; i++) {
		CHECK_INT(tenant_get(&registry, names[i], &tenants[i]), 0);
		CHECK_STR(tenants[i]->name, names[i]);
		for (int k = 0; k < i; k++)
			CHECK(tenants[i] != tenants[k]);
	}
	/* Out of the middle, the front and the back. */
	tenant_unref(tenants[2]);
	tenant_unref(tenants[4]);
	tenant_unref(tenants[0]);
	CHECK_INT(tenant_get(&registry, names[1], &tenants[0]), 0);
	CHECK(tenants[0] == tenants[1]);
	tenant_unref(tenants[0]);
	tenant_unref(tenants[1]);
	tenant_unref(tenants[3]);
	CHECK(LIST_EMPTY(&registry.tenants));
}

TEST(tenant_get__longest_name)
{
	struct tenant_registry registry = {0};
	char name[PROTO_TENANT_NAME_MAX + 1];
	struct tenant *a, *b;

	memset(name, 'x', sizeof(name) - 1);
	name[PROTO_TENANT_NAME_MAX] = '\0';
	CHECK_INT(tenant_get(&registry, name, &a), 0);
	CHECK_STR(a->name, name);
	/* The last byte counts. */
	name[PROTO_TENANT_NAME_MAX - 1] = 'y';
	CHECK_INT(tenant_get(&registry, name, &b), 0);
	CHECK(a != b);
	tenant_unref(a);
	tenant_unref(b);
}

/* A tenant that has gone is made anew, not found. */
TEST(tenant_get__after_last_unref)
{
	struct tenant_registry registry = {0};
	struct tenant *tenant;

	CHECK_INT(tenant_get(&registry, "blue", &tenant), 0);
	tenant_unref(tenant);
	CHECK_INT(tenant_get(&registry, "blue", &tenant), 0);
	CHECK_INT(tenant->references, 1);
	for (int i = 0; i < TENANT_RESOURCES; i++)
		CHECK_INT(tenant->charged[i], 0);
	tenant_unref(tenant);
}

TEST(tenant_ref__counts)
{
	struct tenant_registry registry = {0};
	struct tenant *tenant;

	CHECK_INT(tenant_get(&registry, "blue", &tenant), 0);
	CHECK(tenant_ref(tenant) == tenant);
	CHECK(tenant_ref(tenant) == tenant);
	CHECK_INT(tenant->references, 3);
	tenant_unref(tenant);
	tenant_unref(tenant);
	CHECK(LIST_FIRST(&registry.tenants) == tenant);
	tenant_unref(tenant);
	CHECK(LIST_EMPTY(&registry.tenants));
}

TEST(tenant_unref__null)
{
	CHECK(tenant_unref(NULL) == NULL);
}

static void unref(void *arg)
{
	tenant_unref(arg);
}

TEST(tenant_unref__still_charged)
{
	struct tenant_registry registry = {0};
	struct tenant *tenant;

	CHECK_INT(tenant_get(&registry, "blue", &tenant), 0);
	for (int i = 0; i < TENANT_RESOURCES; i++) {
		tenant_charge(tenant, (enum tenant_resource)i, 1);
		CHECK(test_aborts(unref, tenant));
		tenant_uncharge(tenant, (enum tenant_resource)i, 1);
	}
	/* With another reference left nothing is due yet. */
	tenant_ref(tenant);
	tenant_charge(tenant, TENANT_BYTES, 1);
	tenant_unref(tenant);
	CHECK_INT(tenant->charged[TENANT_BYTES], 1);
	tenant_uncharge(tenant, TENANT_BYTES, 1);
	tenant_unref(tenant);
}

TEST(tenant_unref__lease_still_waiting)
{
	struct tenant_registry registry = {0};
	struct lease lease = {0};
	struct tenant *tenant;

	CHECK_INT(tenant_get(&registry, "blue", &tenant), 0);
	CHECK(TAILQ_EMPTY(&tenant->waiting));
	TAILQ_INSERT_TAIL(&tenant->waiting, &lease, tenant_link);
	CHECK(test_aborts(unref, tenant));
	TAILQ_REMOVE(&tenant->waiting, &lease, tenant_link);
	tenant_unref(tenant);
}

TEST(tenant_charge__each_resource_apart)
{
	struct tenant_registry registry = {0};
	struct tenant *a, *b;

	CHECK_INT(tenant_get(&registry, "a", &a), 0);
	CHECK_INT(tenant_get(&registry, "b", &b), 0);
	for (int i = 0; i < TENANT_RESOURCES; i++)
		tenant_charge(a, (enum tenant_resource)i, (uint64_t)i + 10);
	tenant_charge(a, TENANT_BYTES, 4096);
	CHECK_INT(a->charged[TENANT_BYTES], 4106);
	for (int i = 1; i < TENANT_RESOURCES; i++)
		CHECK_INT(a->charged[i], i + 10);
	for (int i = 0; i < TENANT_RESOURCES; i++)
		CHECK_INT(b->charged[i], 0);
	tenant_uncharge(a, TENANT_BYTES, 4096);
	for (int i = 0; i < TENANT_RESOURCES; i++)
		tenant_uncharge(a, (enum tenant_resource)i, (uint64_t)i + 10);
	tenant_unref(a);
	tenant_unref(b);
}

static void charge_one(void *arg)
{
	tenant_charge(arg, TENANT_BYTES, 1);
}

static void uncharge_two(void *arg)
{
	tenant_uncharge(arg, TENANT_LEASES, 2);
}

TEST(tenant_charge__overflow)
{
	struct tenant_registry registry = {0};
	struct tenant *tenant;

	CHECK_INT(tenant_get(&registry, "blue", &tenant), 0);
	tenant_charge(tenant, TENANT_BYTES, UINT64_MAX - 1);
	CHECK(!test_aborts(charge_one, tenant));
	tenant_charge(tenant, TENANT_BYTES, 1);
	CHECK(test_aborts(charge_one, tenant));
	tenant_uncharge(tenant, TENANT_BYTES, UINT64_MAX);
	tenant_unref(tenant);
}

TEST(tenant_uncharge__more_than_charged)
{
	struct tenant_registry registry = {0};
	struct tenant *tenant;

	CHECK_INT(tenant_get(&registry, "blue", &tenant), 0);
	tenant_charge(tenant, TENANT_LEASES, 1);
	CHECK(test_aborts(uncharge_two, tenant));
	tenant_charge(tenant, TENANT_LEASES, 1);
	CHECK(!test_aborts(uncharge_two, tenant));
	tenant_uncharge(tenant, TENANT_LEASES, 2);
	CHECK_INT(tenant->charged[TENANT_LEASES], 0);
	tenant_unref(tenant);
}
