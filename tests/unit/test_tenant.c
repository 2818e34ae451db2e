/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * daemon/tenant.c: one tenant per name for as long as somebody refers to it or it is
 * configured, charges that are given back exactly once, quotas up to their last unit, and what
 * a changed configuration makes of tenants that are in use.
 */
#include "daemon/tenant.h"

#include <string.h>

#include "common/clock.h"
#include "daemon/lease.h"
#include "proto/error.h"
#include "proto/message.h"
#include "tests/unit/abort.h"
#include "tests/unit/tenants.h"
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

/* A name that is too long is nobody's, also if it begins as one that is not. */
TEST(tenant_find__too_long)
{
	struct tenant_registry registry = {0};
	char name[10001];
	struct tenant *tenant;

	memset(name, 'x', sizeof(name));
	name[PROTO_TENANT_NAME_MAX] = '\0';
	CHECK_INT(tenant_get(&registry, name, &tenant), 0);
	CHECK(tenant_find(&registry, name) == tenant);
	name[PROTO_TENANT_NAME_MAX] = 'x';
	name[PROTO_TENANT_NAME_MAX + 1] = '\0';
	CHECK(tenant_find(&registry, name) == NULL);
	memset(name, 'x', sizeof(name) - 1);
	name[sizeof(name) - 1] = '\0';
	CHECK(tenant_find(&registry, name) == NULL);
	tenant_unref(tenant);
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

/* What a report has told: the changes of each tenant by the last letter of its name. */
struct told {
	unsigned int changes[256];
	int calls;
	struct tenant *unref; /* by the first call */
};

static void tell(struct tenant *tenant, unsigned int changes, void *arg)
{
	struct told *told = arg;
	unsigned char letter = (unsigned char)tenant->name[strlen(tenant->name) - 1];

	told->calls++;
	told->changes[letter] |= changes;
	told->unref = tenant_unref(told->unref);
}

static int apply(struct tenant_registry *registry, const struct tenant_settings *list, size_t count,
		 struct told *told)
{
	memset(told, 0, sizeof(*told));
	return tenant_registry_apply(registry, list, count, tell, told);
}

static struct tenant *find_by_number(const struct tenant_registry *registry, uint32_t number)
{
	uint8_t key[SECURE_KEY_BYTES];

	tenants_key(number, key);
	return tenant_find_by_key(registry, key);
}

/* A configured tenant with one limit of everything, and a reference to it. */
static struct tenant *with_limits(struct tenant_registry *registry, uint64_t limit)
{
	struct tenant_settings settings = tenants_make("blue", 1);

	for (int i = 0; i < TENANT_RESOURCES; i++)
		settings.quota.limit[i] = limit;
	if (tenant_registry_apply(registry, &settings, 1, NULL, NULL) < 0)
		abort();
	return tenant_ref(tenant_find(registry, "blue"));
}

static const int resource_codes[TENANT_RESOURCES] = {
	[TENANT_BYTES] = ERROR_QUOTA_BYTES,	[TENANT_LEASES] = ERROR_QUOTA_LEASES,
	[TENANT_WINDOWS] = ERROR_QUOTA_WINDOWS, [TENANT_SESSIONS] = ERROR_QUOTA_SESSIONS,
	[TENANT_LANES] = ERROR_QUOTA_LANES,
};

TEST(tenant_try_charge__each_resource_up_to_its_limit)
{
	struct tenant_registry registry = {0};
	struct tenant *tenant = with_limits(&registry, 10);

	for (int i = 0; i < TENANT_RESOURCES; i++) {
		enum tenant_resource resource = (enum tenant_resource)i;

		CHECK_INT(tenant_try_charge(tenant, resource, 11), resource_codes[i]);
		CHECK_INT(tenant->charged[i], 0);
		CHECK_INT(tenant_try_charge(tenant, resource, 9), 0);
		CHECK_INT(tenant_try_charge(tenant, resource, 2), resource_codes[i]);
		CHECK_INT(tenant_try_charge(tenant, resource, 1), 0);
		CHECK_INT(tenant->charged[i], 10);
		CHECK_INT(tenant_try_charge(tenant, resource, 0), 0);
		CHECK_INT(tenant_try_charge(tenant, resource, 1), resource_codes[i]);
		CHECK_INT(tenant->charged[i], 10);
		CHECK_INT(tenant->denied[i], 3);
		tenant_uncharge(tenant, resource, 1);
		CHECK_INT(tenant_try_charge(tenant, resource, 1), 0);
		CHECK(!tenant_is_over_quota(tenant));
		tenant_uncharge(tenant, resource, 10);
	}
	tenant_unref(tenant);
	tenant_registry_clear(&registry);
}

TEST(tenant_try_charge__overflow)
{
	struct tenant_registry registry = {0};
	struct tenant *tenant = with_limits(&registry, UINT64_MAX);

	CHECK_INT(tenant_try_charge(tenant, TENANT_BYTES, UINT64_MAX), 0);
	CHECK_INT(tenant_try_charge(tenant, TENANT_BYTES, 1), ERROR_QUOTA_BYTES);
	CHECK_INT(tenant_try_charge(tenant, TENANT_BYTES, UINT64_MAX), ERROR_QUOTA_BYTES);
	CHECK_INT(tenant->charged[TENANT_BYTES], UINT64_MAX);
	tenant_uncharge(tenant, TENANT_BYTES, UINT64_MAX - 5);
	/* The sum would be 4. */
	CHECK_INT(tenant_try_charge(tenant, TENANT_BYTES, UINT64_MAX), ERROR_QUOTA_BYTES);
	CHECK_INT(tenant->charged[TENANT_BYTES], 5);
	tenant_uncharge(tenant, TENANT_BYTES, 5);
	tenant_unref(tenant);
	tenant_registry_clear(&registry);
}

TEST(tenant_try_charge__limit_zero)
{
	struct tenant_registry registry = {0};
	struct tenant *tenant = with_limits(&registry, 0);

	CHECK_INT(tenant_try_charge(tenant, TENANT_LEASES, 1), ERROR_QUOTA_LEASES);
	CHECK(!tenant_is_over_quota(tenant));
	tenant_unref(tenant);
	tenant_registry_clear(&registry);
}

/* Of a tenant that nobody has configured. */
TEST(tenant_try_charge__without_limits)
{
	struct tenant_registry registry = {0};
	struct tenant *tenant;

	CHECK_INT(tenant_get(&registry, "blue", &tenant), 0);
	CHECK(!tenant->configured);
	CHECK_INT(tenant_try_charge(tenant, TENANT_WINDOWS, UINT64_MAX), 0);
	tenant_uncharge(tenant, TENANT_WINDOWS, UINT64_MAX);
	for (int i = 0; i < 1000; i++)
		CHECK_INT(tenant_try_request(tenant, 1), 0);
	CHECK_INT(tenant_check_length(tenant, UINT64_MAX), 0);
	CHECK_INT(tenant_check_ttl(tenant, UINT64_MAX), 0);
	CHECK_INT(tenant_check_rights(tenant, MESSAGE_RIGHTS_ALL), 0);
	tenant_unref(tenant);
}

TEST(tenant_check__lease)
{
	struct tenant_settings settings = tenants_make("blue", 1);
	struct tenant_registry registry = {0};
	struct tenant *tenant;

	settings.quota.lease_max_bytes = 4097;
	settings.quota.ttl_max_ms = 1000;
	settings.quota.rights = MESSAGE_RIGHT_READ | MESSAGE_RIGHT_ATOMIC;
	CHECK_INT(tenant_registry_apply(&registry, &settings, 1, NULL, NULL), 0);
	tenant = tenant_find(&registry, "blue");
	CHECK_INT(tenant_check_length(tenant, 4097), 0);
	CHECK_INT(tenant_check_length(tenant, 4098), ERROR_QUOTA_LEASE_LENGTH);
	CHECK_INT(tenant_check_length(tenant, UINT64_MAX), ERROR_QUOTA_LEASE_LENGTH);
	CHECK_INT(tenant_check_ttl(tenant, 1000), 0);
	CHECK_INT(tenant_check_ttl(tenant, 1001), ERROR_QUOTA_TTL);
	CHECK_INT(tenant_check_rights(tenant, MESSAGE_RIGHT_READ), 0);
	CHECK_INT(tenant_check_rights(tenant, MESSAGE_RIGHT_READ | MESSAGE_RIGHT_ATOMIC), 0);
	CHECK_INT(tenant_check_rights(tenant, MESSAGE_RIGHT_WRITE), ERROR_QUOTA_RIGHTS);
	CHECK_INT(tenant_check_rights(tenant, MESSAGE_RIGHTS_ALL), ERROR_QUOTA_RIGHTS);
	CHECK_INT(tenant->denied[TENANT_DENIED_LEASE_LENGTH], 2);
	CHECK_INT(tenant->denied[TENANT_DENIED_TTL], 1);
	CHECK_INT(tenant->denied[TENANT_DENIED_RIGHTS], 2);
	CHECK_INT(tenant->denied[TENANT_DENIED_RATE], 0);
	tenant_registry_clear(&registry);
}

/* How many requests are taken at one time. */
static uint64_t requests_at(struct tenant *tenant, uint64_t now_ns)
{
	uint64_t taken = 0;

	while (tenant_try_request(tenant, now_ns) == 0)
		taken++;
	return taken;
}

static void check_rate(uint64_t rate)
{
	struct tenant_settings settings = tenants_make("blue", 1);
	struct tenant_registry registry = {0};
	uint64_t interval_ns = (CLOCK_NS_PER_S + rate - 1) / rate;
	uint64_t now_ns = 12345;
	struct tenant *tenant;

	settings.quota.requests_per_second = rate;
	CHECK_INT(tenant_registry_apply(&registry, &settings, 1, NULL, NULL), 0);
	tenant = tenant_find(&registry, "blue");
	CHECK_INT(requests_at(tenant, now_ns), rate);
	CHECK_INT(tenant_try_request(tenant, now_ns), ERROR_QUOTA_RATE);
	CHECK_INT(requests_at(tenant, now_ns + interval_ns - 1), 0);
	CHECK_INT(requests_at(tenant, now_ns + interval_ns), 1);
	now_ns += 3 * CLOCK_NS_PER_S;
	CHECK_INT(requests_at(tenant, now_ns), rate);
	/* In any second that follows not more than the rate. */
	CHECK_INT(requests_at(tenant, now_ns + CLOCK_NS_PER_S / 2) +
				  requests_at(tenant, now_ns + CLOCK_NS_PER_S - 1) <=
			  rate,
		  true);
	CHECK(tenant->denied[TENANT_DENIED_RATE] >= 5);
	tenant_registry_clear(&registry);
}

TEST(tenant_try_request__rate)
{
	check_rate(1);
	check_rate(2);
	check_rate(3);
	check_rate(1000);
	check_rate(999999);
	check_rate(1000000);
}

/* What was refused does not count. */
TEST(tenant_try_request__refused_costs_nothing)
{
	struct tenant_settings settings = tenants_make("blue", 1);
	struct tenant_registry registry = {0};
	struct tenant *tenant;

	settings.quota.requests_per_second = 2;
	CHECK_INT(tenant_registry_apply(&registry, &settings, 1, NULL, NULL), 0);
	tenant = tenant_find(&registry, "blue");
	CHECK_INT(requests_at(tenant, 1000), 2);
	for (int i = 0; i < 10000; i++)
		CHECK_INT(tenant_try_request(tenant, 1000), ERROR_QUOTA_RATE);
	CHECK_INT(requests_at(tenant, 1000 + CLOCK_NS_PER_S / 2), 1);
	tenant_registry_clear(&registry);
}

TEST(tenant_denial_name__all)
{
	static const char *const names[TENANT_DENIALS] = {
		"bytes", "leases",	 "windows", "sessions", "lanes",
		"rate",	 "lease-length", "ttl",	    "rights",
	};

	for (unsigned int i = 0; i < TENANT_DENIALS; i++)
		CHECK_STR(tenant_denial_name(i), names[i]);
}

TEST(tenant_registry_apply__added_changed_removed)
{
	struct tenant_settings list[] = {tenants_make("a", 1), tenants_make("b", 2),
					 tenants_make("c", 3)};
	struct tenant_registry registry = {0};
	struct tenant *a, *b;
	struct told told;

	CHECK_INT(apply(&registry, list, 3, &told), 0);
	CHECK_INT(told.calls, 3);
	CHECK_INT(told.changes['a'], TENANT_ADDED);
	CHECK_INT(told.changes['c'], TENANT_ADDED);
	a = tenant_find(&registry, "a");
	b = tenant_find(&registry, "b");
	CHECK(a->configured && b->configured);
	CHECK(find_by_number(&registry, 1) == a);
	CHECK(find_by_number(&registry, 2) == b);
	CHECK(find_by_number(&registry, 4) == NULL);
	/* Nobody refers to them. */
	CHECK(LIST_EMPTY(&registry.tenants));
	CHECK_INT(tree_check(&registry.names), 3);
	CHECK_INT(tree_check(&registry.keys), 3);

	/* The same once more. */
	CHECK_INT(apply(&registry, list, 3, &told), 0);
	CHECK_INT(told.calls, 0);
	CHECK(find_by_number(&registry, 1) == a);

	/* In another order: a quota, keys, both and gone. */
	list[2] = list[0];
	list[2].quota.ttl_max_ms--;
	list[0] = tenants_make("d", 5);
	tenants_key(6, list[1].keys[1]);
	list[1].key_count = 2;
	list[1].quota.limit[TENANT_LANES] = 7;
	CHECK_INT(apply(&registry, list, 3, &told), 0);
	CHECK_INT(told.calls, 4);
	CHECK_INT(told.changes['a'], TENANT_QUOTA);
	CHECK_INT(told.changes['b'], TENANT_QUOTA | TENANT_KEYS);
	CHECK_INT(told.changes['c'], TENANT_REMOVED);
	CHECK_INT(told.changes['d'], TENANT_ADDED);
	CHECK(tenant_find(&registry, "c") == NULL);
	CHECK(find_by_number(&registry, 3) == NULL);
	CHECK(find_by_number(&registry, 2) == b);
	CHECK(find_by_number(&registry, 6) == b);
	CHECK_INT(b->quota.limit[TENANT_LANES], 7);
	CHECK_INT(tree_check(&registry.names), 3);
	CHECK_INT(tree_check(&registry.keys), 4);

	CHECK_INT(apply(&registry, NULL, 0, &told), 0);
	CHECK_INT(told.calls, 3);
	CHECK(LIST_EMPTY(&registry.all));
	CHECK_INT(tree_check(&registry.names), 0);
	CHECK_INT(tree_check(&registry.keys), 0);
}

/* Each field counts, and only the fields. */
TEST(tenant_registry_apply__each_quota)
{
	struct tenant_settings settings = tenants_make("a", 1);
	uint64_t *const numbers[] = {
		&settings.quota.limit[TENANT_BYTES],   &settings.quota.limit[TENANT_LEASES],
		&settings.quota.limit[TENANT_WINDOWS], &settings.quota.limit[TENANT_SESSIONS],
		&settings.quota.limit[TENANT_LANES],   &settings.quota.requests_per_second,
		&settings.quota.lease_max_bytes,       &settings.quota.ttl_max_ms,
	};
	struct tenant_registry registry = {0};
	struct told told;

	CHECK_INT(apply(&registry, &settings, 1, &told), 0);
	for (size_t i = 0; i < sizeof(numbers) / sizeof(numbers[0]); i++) {
		*numbers[i] ^= 1;
		CHECK_INT(apply(&registry, &settings, 1, &told), 0);
		CHECK_INT(told.changes['a'], TENANT_QUOTA);
	}
	settings.quota.rights = 3;
	CHECK_INT(apply(&registry, &settings, 1, &told), 0);
	CHECK_INT(told.changes['a'], TENANT_QUOTA);
	CHECK_INT(apply(&registry, &settings, 1, &told), 0);
	CHECK_INT(told.calls, 0);
	tenant_registry_clear(&registry);
}

TEST(tenant_registry_apply__keys_rotate)
{
	struct tenant_settings list[] = {tenants_make("a", 1), tenants_make("b", 2)};
	struct tenant_registry registry = {0};
	struct tenant *a, *b;
	struct told told;

	CHECK_INT(apply(&registry, list, 2, &told), 0);
	a = tenant_find(&registry, "a");
	b = tenant_find(&registry, "b");
	/* A second key, in front. */
	tenants_key(3, list[0].keys[0]);
	tenants_key(1, list[0].keys[1]);
	list[0].key_count = 2;
	CHECK_INT(apply(&registry, list, 2, &told), 0);
	CHECK_INT(told.calls, 1);
	CHECK_INT(told.changes['a'], TENANT_KEYS);
	CHECK(find_by_number(&registry, 1) == a && find_by_number(&registry, 3) == a);
	/* Another order is no change. */
	tenants_key(1, list[0].keys[0]);
	tenants_key(3, list[0].keys[1]);
	CHECK_INT(apply(&registry, list, 2, &told), 0);
	CHECK_INT(told.calls, 0);
	/* The first goes. */
	tenants_key(3, list[0].keys[0]);
	list[0].key_count = 1;
	CHECK_INT(apply(&registry, list, 2, &told), 0);
	CHECK_INT(told.changes['a'], TENANT_KEYS);
	CHECK(find_by_number(&registry, 1) == NULL && find_by_number(&registry, 3) == a);
	/* Two tenants change places. */
	tenants_key(2, list[0].keys[0]);
	tenants_key(3, list[1].keys[0]);
	CHECK_INT(apply(&registry, list, 2, &told), 0);
	CHECK_INT(told.calls, 2);
	CHECK(find_by_number(&registry, 2) == a && find_by_number(&registry, 3) == b);
	CHECK_INT(tree_check(&registry.keys), 2);
	/* To one that comes, from one that goes. */
	list[0] = tenants_make("c", 2);
	CHECK_INT(apply(&registry, list, 2, &told), 0);
	CHECK_INT(told.changes['a'], TENANT_REMOVED);
	CHECK_STR(find_by_number(&registry, 2)->name, "c");
	tenant_registry_clear(&registry);
	CHECK_INT(tree_check(&registry.keys), 0);
}

/* Only the last byte of two keys is different. */
TEST(tenant_find_by_key__all_bytes_count)
{
	struct tenant_settings list[] = {tenants_make("a", 1), tenants_make("b", 1)};
	struct tenant_registry registry = {0};
	uint8_t key[SECURE_KEY_BYTES];

	list[1].keys[0][SECURE_KEY_BYTES - 1]++;
	CHECK_INT(tenant_registry_apply(&registry, list, 2, NULL, NULL), 0);
	memcpy(key, list[1].keys[0], sizeof(key));
	CHECK_STR(tenant_find_by_key(&registry, key)->name, "b");
	for (size_t i = 0; i < sizeof(key); i++) {
		key[i] ^= 0x80;
		CHECK(tenant_find_by_key(&registry, key) == NULL);
		key[i] ^= 0x80;
	}
	memset(key, 0, sizeof(key));
	CHECK(tenant_find_by_key(&registry, key) == NULL);
	tenant_registry_clear(&registry);
}

TEST(tenant_registry_apply__lowered_quota)
{
	struct tenant_settings settings = tenants_make("blue", 1);
	struct tenant_registry registry = {0};
	struct tenant *tenant = with_limits(&registry, 10);
	struct told told;

	CHECK_INT(tenant_try_charge(tenant, TENANT_BYTES, 10), 0);
	settings.quota.limit[TENANT_BYTES] = 6;
	CHECK_INT(apply(&registry, &settings, 1, &told), 0);
	CHECK_INT(told.changes['e'], TENANT_QUOTA);
	CHECK_INT(tenant->charged[TENANT_BYTES], 10);
	CHECK(tenant_is_over_quota(tenant));
	CHECK_INT(tenant_try_charge(tenant, TENANT_BYTES, 0), ERROR_QUOTA_BYTES);
	CHECK_INT(tenant_try_charge(tenant, TENANT_BYTES, 1), ERROR_QUOTA_BYTES);
	tenant_uncharge(tenant, TENANT_BYTES, 3);
	CHECK(tenant_is_over_quota(tenant));
	tenant_uncharge(tenant, TENANT_BYTES, 1);
	CHECK(!tenant_is_over_quota(tenant));
	CHECK_INT(tenant_try_charge(tenant, TENANT_BYTES, 1), ERROR_QUOTA_BYTES);
	tenant_uncharge(tenant, TENANT_BYTES, 1);
	CHECK_INT(tenant_try_charge(tenant, TENANT_BYTES, 1), 0);
	tenant_uncharge(tenant, TENANT_BYTES, 6);
	tenant_unref(tenant);
	tenant_registry_clear(&registry);
}

/* It is granted nothing, but what it has it can give back, and then it goes. */
TEST(tenant_registry_apply__removed_with_references)
{
	struct tenant_registry registry = {0};
	struct tenant *tenant = with_limits(&registry, 10), *same;
	struct told told;

	CHECK_INT(tenant_try_charge(tenant, TENANT_LEASES, 2), 0);
	CHECK_INT(apply(&registry, NULL, 0, &told), 0);
	CHECK_INT(told.changes['e'], TENANT_REMOVED);
	CHECK(!tenant->configured && tenant->removed);
	CHECK(find_by_number(&registry, 1) == NULL);
	CHECK(tenant_find(&registry, "blue") == tenant);
	CHECK(LIST_FIRST(&registry.tenants) == tenant);
	CHECK_INT(tenant_try_charge(tenant, TENANT_LEASES, 1), ERROR_AUTH);
	CHECK_INT(tenant_try_request(tenant, 1), ERROR_AUTH);
	CHECK_INT(tenant_check_length(tenant, 1), ERROR_AUTH);
	CHECK_INT(tenant_check_ttl(tenant, 1), ERROR_AUTH);
	CHECK_INT(tenant_check_rights(tenant, MESSAGE_RIGHT_READ), ERROR_AUTH);
	CHECK_INT(tenant->denied[TENANT_LEASES], 0);
	CHECK_INT(tenant_get(&registry, "blue", &same), 0);
	CHECK(same == tenant);
	tenant_unref(same);
	/* Gone means gone: it is not reported again. */
	CHECK_INT(apply(&registry, NULL, 0, &told), 0);
	CHECK_INT(told.calls, 0);
	tenant_uncharge(tenant, TENANT_LEASES, 2);
	tenant_unref(tenant);
	CHECK(tenant_find(&registry, "blue") == NULL);
	CHECK(LIST_EMPTY(&registry.all));
}

/* Whoever comes back finds what it still has. */
TEST(tenant_registry_apply__removed_and_added_again)
{
	struct tenant_settings settings = tenants_make("blue", 2);
	struct tenant_registry registry = {0};
	struct tenant *tenant = with_limits(&registry, 10);
	struct told told;

	CHECK_INT(tenant_try_charge(tenant, TENANT_LEASES, 2), 0);
	CHECK_INT(apply(&registry, NULL, 0, &told), 0);
	settings.quota.limit[TENANT_LEASES] = 3;
	CHECK_INT(apply(&registry, &settings, 1, &told), 0);
	CHECK_INT(told.changes['e'], TENANT_ADDED);
	CHECK(find_by_number(&registry, 2) == tenant);
	CHECK(find_by_number(&registry, 1) == NULL);
	CHECK_INT(tenant_try_charge(tenant, TENANT_LEASES, 2), ERROR_QUOTA_LEASES);
	CHECK_INT(tenant_try_charge(tenant, TENANT_LEASES, 1), 0);
	tenant_uncharge(tenant, TENANT_LEASES, 3);
	tenant_unref(tenant);
	CHECK(tenant_find(&registry, "blue") == tenant);
	tenant_registry_clear(&registry);
	CHECK(LIST_EMPTY(&registry.all));
}

/* One that was made for a name without being configured becomes configured. */
TEST(tenant_registry_apply__known_before)
{
	struct tenant_settings settings = tenants_make("blue", 2);
	struct tenant_registry registry = {0};
	struct tenant *tenant;
	struct told told;

	CHECK_INT(tenant_get(&registry, "blue", &tenant), 0);
	CHECK_INT(apply(&registry, NULL, 0, &told), 0);
	CHECK_INT(told.calls, 0);
	CHECK(!tenant->removed);
	CHECK_INT(apply(&registry, &settings, 1, &told), 0);
	CHECK_INT(told.changes['e'], TENANT_ADDED);
	CHECK(tenant_find(&registry, "blue") == tenant && tenant->configured);
	CHECK_INT(tenant->references, 1);
	tenant_unref(tenant);
	tenant_registry_clear(&registry);
}

/* The last reference goes while the change is told; so does that of a tenant told later. */
TEST(tenant_registry_apply__ends_while_told)
{
	struct tenant_settings list[] = {tenants_make("a", 1), tenants_make("b", 2)};
	struct tenant_registry registry = {0};
	struct told told = {0};

	for (int i = 0; i < 2; i++) {
		CHECK_INT(tenant_registry_apply(&registry, list, 2, NULL, NULL), 0);
		told = (struct told){.unref = tenant_ref(tenant_find(&registry, list[i].name))};
		CHECK_INT(tenant_registry_apply(&registry, NULL, 0, tell, &told), 0);
		CHECK_INT(told.calls, 2);
		CHECK(LIST_EMPTY(&registry.all));
		CHECK(LIST_EMPTY(&registry.tenants));
	}
}

/* Who comes anew is not served before who waits, configured or not. */
TEST(tenant_ref__comes_anew)
{
	struct tenant_registry registry = {0};
	struct tenant *tenant = with_limits(&registry, 10);

	CHECK_INT(tenant->served_at, 0);
	registry.served = 5;
	tenant_ref(tenant);
	CHECK_INT(tenant->served_at, 0);
	tenant_unref(tenant);
	tenant_unref(tenant);
	tenant_ref(tenant);
	CHECK_INT(tenant->served_at, 5);
	tenant_unref(tenant);
	tenant_registry_clear(&registry);
}

TEST(tenant_registry_export__as_applied)
{
	struct tenant_settings list[] = {tenants_make("b", 1), tenants_make("c", 2),
					 tenants_make("a", 3)};
	struct tenant_registry registry = {0};
	struct tenant_settings *exported;
	struct tenant *other;
	size_t count = 7;

	CHECK_INT(tenant_registry_export(&registry, &exported, &count), 0);
	CHECK(exported == NULL);
	CHECK_INT(count, 0);
	CHECK_INT(tenant_get(&registry, "nobody", &other), 0);
	list[0].quota.rights = 5;
	list[1].quota.limit[TENANT_BYTES] = 99;
	tenants_key(4, list[1].keys[1]);
	list[1].key_count = 2;
	CHECK_INT(tenant_registry_apply(&registry, list, 3, NULL, NULL), 0);
	CHECK_INT(tenant_registry_export(&registry, &exported, &count), 0);
	CHECK_INT(count, 3);
	CHECK(tenants_equal(&exported[0], &list[2]));
	CHECK(tenants_equal(&exported[1], &list[0]));
	CHECK(tenants_equal(&exported[2], &list[1]));
	free(exported);
	tenant_unref(other);
	tenant_registry_clear(&registry);
}

/* As many as there can be, with all their keys; found, changed and gone. */
TEST(tenant_registry_apply__many)
{
	struct tenant_settings *list = tenants_many(TENANT_SETTINGS_MAX, 0);
	struct tenant_registry registry = {0};
	struct told told;

	for (uint32_t i = 0; i < TENANT_SETTINGS_MAX; i++) {
		for (uint32_t k = 0; k < TENANT_KEYS_MAX; k++)
			tenants_key(i * TENANT_KEYS_MAX + k, list[i].keys[k]);
		list[i].key_count = TENANT_KEYS_MAX;
	}
	CHECK_INT(apply(&registry, list, TENANT_SETTINGS_MAX, &told), 0);
	CHECK_INT(told.calls, TENANT_SETTINGS_MAX);
	CHECK_INT(tree_check(&registry.names), TENANT_SETTINGS_MAX);
	CHECK_INT(tree_check(&registry.keys), TENANT_SETTINGS_MAX * TENANT_KEYS_MAX);
	for (uint32_t i = 0; i < TENANT_SETTINGS_MAX * TENANT_KEYS_MAX; i += 1001)
		CHECK_STR(find_by_number(&registry, i)->name, list[i / TENANT_KEYS_MAX].name);
	CHECK(find_by_number(&registry, TENANT_SETTINGS_MAX * TENANT_KEYS_MAX) == NULL);
	CHECK_INT(apply(&registry, list, TENANT_SETTINGS_MAX, &told), 0);
	CHECK_INT(told.calls, 0);
	CHECK_INT(apply(&registry, list, 1, &told), 0);
	CHECK_INT(told.calls, TENANT_SETTINGS_MAX - 1);
	CHECK_INT(tree_check(&registry.names), 1);
	CHECK_INT(tree_check(&registry.keys), TENANT_KEYS_MAX);
	tenant_registry_clear(&registry);
	free(list);
}

/* Lines on standard error while quotas deny, as the daemon's log writes them. */
static size_t log_lines(struct tenant *tenant, int times)
{
	char text[4096];
	FILE *file = tmpfile();
	int saved = dup(STDERR_FILENO);
	size_t len, lines = 0;

	if (file == NULL || saved < 0 || dup2(fileno(file), STDERR_FILENO) < 0)
		abort();
	for (int i = 0; i < times; i++) {
		(void)tenant_try_charge(tenant, TENANT_BYTES, 11);
		(void)tenant_check_ttl(tenant, UINT64_MAX);
	}
	if (dup2(saved, STDERR_FILENO) < 0)
		abort();
	close(saved);
	rewind(file);
	len = fread(text, 1, sizeof(text), file);
	fclose(file);
	for (size_t i = 0; i < len; i++)
		lines += text[i] == '\n';
	return lines;
}

TEST(tenant_try_charge__first_denial_is_logged)
{
	struct tenant_settings settings = tenants_make("blue", 1);
	struct tenant_registry registry = {0};
	struct tenant *tenant = with_limits(&registry, 10);

	/* One line of each kind, whoever comes and goes meanwhile. */
	CHECK_INT(log_lines(tenant, 100), 2);
	tenant_unref(tenant);
	tenant_ref(tenant);
	CHECK_INT(log_lines(tenant, 100), 0);
	CHECK_INT(tenant->denied[TENANT_BYTES], 200);
	CHECK_INT(tenant->denied[TENANT_DENIED_TTL], 200);
	/* Another quota is news. */
	settings.quota.limit[TENANT_BYTES] = 9;
	CHECK_INT(tenant_registry_apply(&registry, &settings, 1, NULL, NULL), 0);
	CHECK_INT(log_lines(tenant, 100), 2);
	tenant_unref(tenant);
	tenant_registry_clear(&registry);
}
