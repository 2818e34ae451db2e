/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Tenants by name and by key, what each of them may take, and what it has taken.
 *
 * Invariants: a tenant lives as long as it is configured or a session or lease refers to it;
 * when the last reference goes, every charge has been given back. Only keys of configured
 * tenants are in the tree of keys. A charge that tenant_try_charge() has made was within the
 * limit of that moment.
 *
 * Thread: the loop.
 */
#include "daemon/tenant.h"

#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/checked.h"
#include "common/clock.h"
#include "common/log.h"
#include "daemon/acquire.h"
#include "proto/error.h"
#include "proto/message.h"

static const struct {
	const char *name;
	int code;
} denials[TENANT_DENIALS] = {
	[TENANT_BYTES] = {"bytes", ERROR_QUOTA_BYTES},
	[TENANT_LEASES] = {"leases", ERROR_QUOTA_LEASES},
	[TENANT_WINDOWS] = {"windows", ERROR_QUOTA_WINDOWS},
	[TENANT_SESSIONS] = {"sessions", ERROR_QUOTA_SESSIONS},
	[TENANT_LANES] = {"lanes", ERROR_QUOTA_LANES},
	[TENANT_DENIED_RATE] = {"rate", ERROR_QUOTA_RATE},
	[TENANT_DENIED_LEASE_LENGTH] = {"lease-length", ERROR_QUOTA_LEASE_LENGTH},
	[TENANT_DENIED_TTL] = {"ttl", ERROR_QUOTA_TTL},
	[TENANT_DENIED_RIGHTS] = {"rights", ERROR_QUOTA_RIGHTS},
};

static_assert(TENANT_DENIALS <= 32, "a bit each in denied_logged");

/* The node is a tenant's first member, and a tenant_key's. */
static_assert(offsetof(struct tenant, node) == 0 && offsetof(struct tenant_key, node) == 0,
	      "a node is cast to what it is the node of");

static int compare_names(const struct tree_node *a, const struct tree_node *b)
{
	return strcmp(((const struct tenant *)a)->name, ((const struct tenant *)b)->name);
}

static int compare_keys(const struct tree_node *a, const struct tree_node *b)
{
	return memcmp(((const struct tenant_key *)a)->key, ((const struct tenant_key *)b)->key,
		      SECURE_KEY_BYTES);
}

struct tenant *tenant_find(const struct tenant_registry *registry, const char *name)
{
	struct tenant wanted = {0};
	struct tree_node *node;

	if (strlen(name) >= sizeof(wanted.name))
		return NULL;
	snprintf(wanted.name, sizeof(wanted.name), "%s", name);
	node = tree_at_least(&registry->names, &wanted.node);
	if (node == NULL || compare_names(node, &wanted.node) != 0)
		return NULL;
	return (struct tenant *)node;
}

struct tenant *tenant_find_by_key(const struct tenant_registry *registry,
				  const uint8_t key[SECURE_KEY_BYTES])
{
	struct tenant_key wanted = {0};
	struct tree_node *node;

	memcpy(wanted.key, key, sizeof(wanted.key));
	node = tree_at_least(&registry->keys, &wanted.node);
	if (node == NULL || compare_keys(node, &wanted.node) != 0)
		return NULL;
	return ((struct tenant_key *)node)->tenant;
}

/* Not in the registry yet. */
static struct tenant *tenant_new(struct tenant_registry *registry, const char *name)
{
	struct tenant *tenant = calloc(1, sizeof(*tenant));

	if (tenant == NULL)
		return NULL;
	tenant->registry = registry;
	snprintf(tenant->name, sizeof(tenant->name), "%s", name);
	TAILQ_INIT(&tenant->waiting);
	tenant->acquires.compare = acquire_compare;
	for (int i = 0; i < TENANT_RESOURCES; i++)
		tenant->quota.limit[i] = UINT64_MAX;
	tenant->quota.lease_max_bytes = UINT64_MAX;
	tenant->quota.ttl_max_ms = UINT64_MAX;
	tenant->quota.rights = MESSAGE_RIGHTS_ALL;
	return tenant;
}

static void tenant_enter(struct tenant *tenant)
{
	struct tenant_registry *registry = tenant->registry;

	registry->names.compare = compare_names;
	tree_insert(&registry->names, &tenant->node);
	LIST_INSERT_HEAD(&registry->all, tenant, all_link);
}

/* It goes if nothing keeps it. */
static void tenant_maybe_free(struct tenant *tenant)
{
	if (tenant->references > 0 || tenant->configured)
		return;
	tree_remove(&tenant->registry->names, &tenant->node);
	LIST_REMOVE(tenant, all_link);
	free(tenant);
}

int tenant_get(struct tenant_registry *registry, const char *name, struct tenant **ret_tenant)
{
	struct tenant *tenant = tenant_find(registry, name);

	if (tenant == NULL) {
		tenant = tenant_new(registry, name);
		if (tenant == NULL)
			return -ENOMEM;
		tenant_enter(tenant);
	}
	*ret_tenant = tenant_ref(tenant);
	return 0;
}

struct tenant *tenant_ref(struct tenant *tenant)
{
	if (tenant->references++ > 0)
		return tenant;
	tenant->served_at = tenant->registry->served; /* who comes anew is not before who waits */
	LIST_INSERT_HEAD(&tenant->registry->tenants, tenant, link);
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
	tenant_maybe_free(tenant);
	return NULL;
}

/* Charges. */

void tenant_charge(struct tenant *tenant, enum tenant_resource resource, uint64_t amount)
{
	uint64_t sum;
	bool fits = checked_add(tenant->charged[resource], amount, &sum);

	assert(fits);
	tenant->charged[resource] = sum;
}

void tenant_uncharge(struct tenant *tenant, enum tenant_resource resource, uint64_t amount)
{
	assert(tenant->charged[resource] >= amount);
	tenant->charged[resource] -= amount;
}

const char *tenant_denial_name(unsigned int denial)
{
	assert(denial < TENANT_DENIALS);
	return denials[denial].name;
}

static int tenant_deny(struct tenant *tenant, unsigned int denial, uint64_t asked, uint64_t limit)
{
	if (tenant->removed)
		return ERROR_AUTH;
	tenant->denied[denial]++;
	if ((tenant->denied_logged & 1u << denial) == 0)
		log_warn("tenant denied by its quota, further denials are only counted tenant=%s "
			 "quota=%s asked=%" PRIu64 " limit=%" PRIu64,
			 tenant->name, denials[denial].name, asked, limit);
	tenant->denied_logged |= 1u << denial;
	return denials[denial].code;
}

int tenant_try_charge(struct tenant *tenant, enum tenant_resource resource, uint64_t amount)
{
	uint64_t limit = tenant->quota.limit[resource];
	uint64_t sum;

	if (tenant->removed || !checked_add(tenant->charged[resource], amount, &sum) || sum > limit)
		return tenant_deny(tenant, resource, amount, limit);
	tenant->charged[resource] = sum;
	return 0;
}

int tenant_try_request(struct tenant *tenant, uint64_t now_ns)
{
	uint64_t rate = tenant->quota.requests_per_second;
	uint64_t interval_ns, used_ns;

	if (tenant->removed)
		return tenant_deny(tenant, TENANT_DENIED_RATE, 1, rate);
	if (rate == 0)
		return 0;
	/* Rounded up: rather a little less than allowed. */
	interval_ns = (CLOCK_NS_PER_S + rate - 1) / rate;
	if (tenant->rate_at_ns < now_ns)
		tenant->rate_at_ns = now_ns;
	used_ns = tenant->rate_at_ns - now_ns;
	if (used_ns > (rate - 1) * interval_ns)
		return tenant_deny(tenant, TENANT_DENIED_RATE, 1, rate);
	tenant->rate_at_ns += interval_ns;
	return 0;
}

int tenant_check_length(struct tenant *tenant, uint64_t len_bytes)
{
	uint64_t limit = tenant->quota.lease_max_bytes;

	if (tenant->removed || len_bytes > limit)
		return tenant_deny(tenant, TENANT_DENIED_LEASE_LENGTH, len_bytes, limit);
	return 0;
}

int tenant_check_ttl(struct tenant *tenant, uint64_t ttl_ms)
{
	uint64_t limit = tenant->quota.ttl_max_ms;

	if (tenant->removed || ttl_ms > limit)
		return tenant_deny(tenant, TENANT_DENIED_TTL, ttl_ms, limit);
	return 0;
}

int tenant_check_rights(struct tenant *tenant, uint32_t rights)
{
	uint32_t limit = tenant->quota.rights;

	if (tenant->removed || (rights & ~limit) != 0)
		return tenant_deny(tenant, TENANT_DENIED_RIGHTS, rights, limit);
	return 0;
}

bool tenant_is_over_quota(const struct tenant *tenant)
{
	for (int i = 0; i < TENANT_RESOURCES; i++) {
		if (tenant->charged[i] > tenant->quota.limit[i])
			return true;
	}
	return false;
}

/* Settings. */

static void tenant_drop_keys(struct tenant *tenant)
{
	for (size_t i = 0; i < tenant->key_count; i++)
		tree_remove(&tenant->registry->keys, &tenant->keys[i].node);
	tenant->key_count = 0;
}

static void tenant_take_keys(struct tenant *tenant, const struct tenant_settings *settings)
{
	struct tenant_registry *registry = tenant->registry;

	registry->keys.compare = compare_keys;
	for (size_t i = 0; i < settings->key_count; i++) {
		struct tenant_key *key = &tenant->keys[i];

		key->tenant = tenant;
		memcpy(key->key, settings->keys[i], sizeof(key->key));
		tree_insert(&registry->keys, &key->node);
	}
	tenant->key_count = settings->key_count;
}

static unsigned int tenant_compare(const struct tenant *tenant,
				   const struct tenant_settings *settings)
{
	struct tenant_settings is;
	unsigned int changes = 0;

	if (!tenant->configured)
		return TENANT_ADDED;
	tenant_export(tenant, &is);
	if (!tenant_settings_same_quota(&is, settings))
		changes |= TENANT_QUOTA;
	if (!tenant_settings_same_keys(&is, settings))
		changes |= TENANT_KEYS;
	return changes;
}

static void tenant_unconfigure(struct tenant *tenant)
{
	tenant_drop_keys(tenant);
	tenant->configured = false;
	tenant->removed = true;
}

/* Its keys are not there yet. */
static void tenant_configure(struct tenant *tenant, const struct tenant_settings *settings)
{
	tenant->configured = true;
	tenant->removed = false;
	tenant->quota = settings->quota;
	if ((tenant->changes & (TENANT_ADDED | TENANT_QUOTA)) != 0) {
		tenant->rate_at_ns = 0;
		tenant->denied_logged = 0;
	}
	tenant_take_keys(tenant, settings);
}

TAILQ_HEAD(tenant_changed, tenant);

/* Kept until it has been reported. */
static void tenant_note(struct tenant *tenant, unsigned int changes, struct tenant_changed *changed)
{
	tenant->changes = changes;
	if (changes == 0)
		return;
	tenant_ref(tenant);
	TAILQ_INSERT_TAIL(changed, tenant, change_link);
}

static void report_all(struct tenant_changed *changed, tenant_change_fn report, void *arg)
{
	struct tenant *tenant;

	while ((tenant = TAILQ_FIRST(changed)) != NULL) {
		TAILQ_REMOVE(changed, tenant, change_link);
		if (report != NULL)
			report(tenant, tenant->changes, arg);
		tenant_unref(tenant);
	}
}

/* All that can fail: every tenant of the list is there, configured or not. */
static int make_missing(struct tenant_registry *registry, const struct tenant_settings *list,
			size_t count)
{
	for (size_t i = 0; i < count; i++) {
		struct tenant *tenant = tenant_find(registry, list[i].name);

		if (tenant == NULL) {
			tenant = tenant_new(registry, list[i].name);
			if (tenant == NULL)
				return -ENOMEM;
			tenant_enter(tenant);
		}
		tenant->applied = registry->applied;
	}
	return 0;
}

static void free_unused(struct tenant_registry *registry)
{
	struct tenant *tenant, *next;

	for (tenant = LIST_FIRST(&registry->all); tenant != NULL; tenant = next) {
		next = LIST_NEXT(tenant, all_link);
		tenant_maybe_free(tenant);
	}
}

static void remove_unlisted(struct tenant_registry *registry, struct tenant_changed *changed)
{
	struct tenant *tenant;

	LIST_FOREACH (tenant, &registry->all, all_link) {
		if (!tenant->configured || tenant->applied == registry->applied)
			continue;
		tenant_note(tenant, TENANT_REMOVED, changed);
		tenant_unconfigure(tenant);
	}
}

int tenant_registry_apply(struct tenant_registry *registry, const struct tenant_settings *list,
			  size_t count, tenant_change_fn report, void *arg)
{
	struct tenant_changed changed = TAILQ_HEAD_INITIALIZER(changed);

	assert(!registry->reporting);
	registry->applied++;
	if (make_missing(registry, list, count) < 0) {
		free_unused(registry);
		return -ENOMEM;
	}
	remove_unlisted(registry, &changed);
	/* First all keys go, as one may move from a tenant to another. */
	for (size_t i = 0; i < count; i++) {
		struct tenant *tenant = tenant_find(registry, list[i].name);

		tenant_note(tenant, tenant_compare(tenant, &list[i]), &changed);
		tenant_drop_keys(tenant);
	}
	for (size_t i = 0; i < count; i++)
		tenant_configure(tenant_find(registry, list[i].name), &list[i]);
	registry->reporting = true;
	report_all(&changed, report, arg);
	registry->reporting = false;
	return 0;
}

void tenant_registry_clear(struct tenant_registry *registry)
{
	struct tenant *tenant;

	LIST_FOREACH (tenant, &registry->all, all_link) {
		if (tenant->configured)
			tenant_unconfigure(tenant);
	}
	free_unused(registry);
}

void tenant_export(const struct tenant *tenant, struct tenant_settings *ret_settings)
{
	memset(ret_settings, 0, sizeof(*ret_settings));
	memcpy(ret_settings->name, tenant->name, sizeof(ret_settings->name));
	for (size_t i = 0; i < tenant->key_count; i++)
		memcpy(ret_settings->keys[i], tenant->keys[i].key, SECURE_KEY_BYTES);
	ret_settings->key_count = tenant->key_count;
	ret_settings->quota = tenant->quota;
}

static int compare_settings(const void *a, const void *b)
{
	return strcmp(((const struct tenant_settings *)a)->name,
		      ((const struct tenant_settings *)b)->name);
}

int tenant_registry_export(const struct tenant_registry *registry,
			   struct tenant_settings **ret_list, size_t *ret_count)
{
	struct tenant_settings *list = NULL;
	const struct tenant *tenant;
	size_t count = 0, used = 0;

	LIST_FOREACH (tenant, &registry->all, all_link)
		count += tenant->configured;
	if (count > 0) {
		list = calloc(count, sizeof(*list));
		if (list == NULL)
			return -ENOMEM;
	}
	LIST_FOREACH (tenant, &registry->all, all_link) {
		if (tenant->configured)
			tenant_export(tenant, &list[used++]);
	}
	if (count > 0)
		qsort(list, count, sizeof(*list), compare_settings);
	*ret_list = list;
	*ret_count = count;
	return 0;
}
