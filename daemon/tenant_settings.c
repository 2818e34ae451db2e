/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What an operator says about tenants: the table of a tenant's JSON object, and the rules that
 * tie several tenants together. A public key stands for one tenant only, else it would not say
 * who is there.
 *
 * The defaults of a quota are the greatest values that the daemon's own limits can have, so a
 * tenant without a quota is held back by those alone.
 *
 * Errors do not show keys: somebody may have put a private one there by mistake.
 *
 * Keeps nothing between calls; any thread.
 */
#include "daemon/tenant_settings.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/text.h"
#include "proto/message.h"

#define NAME_TEXT_MAX (2 * PROTO_TENANT_NAME_MAX + 1) /* each character escaped */
#define PLACE_MAX     48			      /* "tenants[4095].keys[7]" */

static_assert(TENANT_SETTINGS_MAX == 4096, "the tables' max of tenants must say the same");
static_assert(TENANT_KEYS_MAX == 8, "the table's max of keys must say the same");
static_assert(PROTO_TENANT_NAME_MAX == 64, "the table's max of name must say the same");

static const char *const rights_names[] = {"read", "write", "atomic", NULL};

static_assert(MESSAGE_RIGHT_READ == 1u << 0 && MESSAGE_RIGHT_WRITE == 1u << 1 &&
		      MESSAGE_RIGHT_ATOMIC == 1u << 2 && MESSAGE_RIGHTS_ALL == 7,
	      "the names must be in the order of the bits");

static bool name_form_valid(const char *name)
{
	for (const char *c = name; *c; c++) {
		if (*c < 0x21 || *c > 0x7e)
			return false;
	}
	return true;
}

bool tenant_settings_name_valid(const char *name)
{
	size_t len = strlen(name);

	return len >= 1 && len <= PROTO_TENANT_NAME_MAX && name_form_valid(name);
}

static bool key_decode(const char *text, void *ret_item)
{
	static const uint8_t zero[SECURE_KEY_BYTES];
	uint8_t key[SECURE_KEY_BYTES];

	if (strlen(text) != SECURE_KEY_TEXT_LENGTH || secure_key_decode(text, key) < 0)
		return false;
	/*
	 * Zeros are left if somebody forgets to fill it in. The last bit does not count in X25519:
	 * with it set a key would have a second spelling. Keys of low order are for the handshake
	 * to refuse, as finding them takes long.
	 */
	if (!memcmp(key, zero, sizeof(zero)) || key[SECURE_KEY_BYTES - 1] & 0x80)
		return false;
	memcpy(ret_item, key, sizeof(key));
	return true;
}

static void key_encode(const void *item, char *ret_text)
{
	static_assert(SECURE_KEY_TEXT_LENGTH < SCHEMA_KEY_TEXT_MAX, "a key must fit");
	secure_key_encode(item, ret_text);
	ret_text[SECURE_KEY_TEXT_LENGTH] = '\0';
}

#define FIELD(name) offsetof(struct tenant_quota, name)

static const struct schema_key quota_keys[] = {
	{.name = "bytes",
	 .type = SCHEMA_SIZE,
	 .offset = FIELD(limit[TENANT_BYTES]),
	 .default_text = "64TiB",
	 .min = "0",
	 .max = "64TiB",
	 .help = "memory of all its leases, each in whole pages"},
	{.name = "leases",
	 .type = SCHEMA_UINT,
	 .offset = FIELD(limit[TENANT_LEASES]),
	 .default_text = "1048576",
	 .min = "0",
	 .max = "1048576",
	 .help = "leases at the same time"},
	{.name = "windows",
	 .type = SCHEMA_UINT,
	 .offset = FIELD(limit[TENANT_WINDOWS]),
	 .default_text = "67108864",
	 .min = "0",
	 .max = "67108864",
	 .help = "memory windows at the same time"},
	{.name = "sessions",
	 .type = SCHEMA_UINT,
	 .offset = FIELD(limit[TENANT_SESSIONS]),
	 .default_text = "65536",
	 .min = "0",
	 .max = "65536",
	 .help = "sessions at the same time"},
	{.name = "lanes",
	 .type = SCHEMA_UINT,
	 .offset = FIELD(limit[TENANT_LANES]),
	 .default_text = "67108864",
	 .min = "0",
	 .max = "67108864",
	 .help = "data connections at the same time"},
	{.name = "requests_per_second",
	 .type = SCHEMA_UINT,
	 .offset = FIELD(requests_per_second),
	 .default_text = "0",
	 .min = "0",
	 .max = "1000000",
	 .help = "requests of all its sessions; 0: any number"},
	{.name = "lease_max",
	 .type = SCHEMA_SIZE,
	 .offset = FIELD(lease_max_bytes),
	 .default_text = "64TiB",
	 .min = "1",
	 .max = "64TiB",
	 .help = "the longest lease"},
	{.name = "ttl_max",
	 .type = SCHEMA_DURATION,
	 .offset = FIELD(ttl_max_ms),
	 .default_text = "30d",
	 .min = "1ms",
	 .max = "30d",
	 .help = "the longest that it may ask for at a time; the daemon's ttl_max holds as well"},
	{.name = "rights",
	 .type = SCHEMA_FLAGS,
	 .offset = FIELD(rights),
	 .default_text = "read,write,atomic",
	 .min = "1",
	 .max = "3",
	 .names = rights_names,
	 .help = "that its leases may have"},
};

#undef FIELD

static const struct schema_table quota_table = {
	.keys = quota_keys,
	.count = sizeof(quota_keys) / sizeof(quota_keys[0]),
};

#define FIELD(name) offsetof(struct tenant_settings, name)

static const struct schema_key settings_keys[] = {
	{.name = "name",
	 .type = SCHEMA_STRING,
	 .offset = FIELD(name),
	 .min = "1",
	 .max = "64",
	 .is_valid = name_form_valid,
	 .form = "visible ASCII",
	 .help = "no two tenants have the same"},
	{.name = "keys",
	 .type = SCHEMA_LIST,
	 .offset = FIELD(keys),
	 .count_offset = FIELD(key_count),
	 .item_bytes = SECURE_KEY_BYTES,
	 .min = "1",
	 .max = "8",
	 .decode = key_decode,
	 .encode = key_encode,
	 .form = "base64 of 32 bytes",
	 .is_hidden = true,
	 .help = "public keys, any of which stands for it; no two tenants share one"},
	{.name = "quota",
	 .type = SCHEMA_OBJECT,
	 .offset = FIELD(quota),
	 .default_text = "",
	 .table = &quota_table,
	 .help = "what it may take; without it, what the daemon has"},
};

const struct schema_table tenant_settings_table = {
	.keys = settings_keys,
	.count = sizeof(settings_keys) / sizeof(settings_keys[0]),
};

/* A name or a key, and where it stands in the list. */
struct entry {
	const void *what;
	size_t tenant;
	size_t key;
};

/* Entries that are the same come one after the other, in the order of the list. */
static int entry_order(const struct entry *a, const struct entry *b)
{
	if (a->tenant != b->tenant)
		return a->tenant < b->tenant ? -1 : 1;
	return (a->key > b->key) - (a->key < b->key);
}

static int compare_names(const void *a, const void *b)
{
	const struct entry *left = a, *right = b;
	int order = strcmp(left->what, right->what);

	return order != 0 ? order : entry_order(left, right);
}

static int compare_keys(const void *a, const void *b)
{
	const struct entry *left = a, *right = b;
	int order = memcmp(left->what, right->what, SECURE_KEY_BYTES);

	return order != 0 ? order : entry_order(left, right);
}

/*
 * Of sorted entries that are the same as the one before, the first in the order of the list;
 * NULL if all are different.
 */
static const struct entry *find_twin(const struct entry *entries, size_t count,
				     bool (*same)(const struct entry *a, const struct entry *b))
{
	const struct entry *first = NULL;

	for (size_t i = 1; i < count; i++) {
		if (same(&entries[i - 1], &entries[i]) &&
		    (!first || entry_order(&entries[i], first) < 0))
			first = &entries[i];
	}
	return first;
}

static bool same_name(const struct entry *a, const struct entry *b)
{
	return !strcmp(a->what, b->what);
}

static bool same_key(const struct entry *a, const struct entry *b)
{
	return !memcmp(a->what, b->what, SECURE_KEY_BYTES);
}

static int check_names(const struct tenant_settings *list, size_t count, struct entry *entries,
		       const struct schema_context *context)
{
	char place[PLACE_MAX], name[NAME_TEXT_MAX];
	const struct entry *twin;

	for (size_t i = 0; i < count; i++)
		entries[i] = (struct entry){.what = list[i].name, .tenant = i};
	qsort(entries, count, sizeof(*entries), compare_names);
	twin = find_twin(entries, count, same_name);
	if (!twin)
		return 0;
	snprintf(place, sizeof(place), "tenants[%zu].name", twin->tenant);
	text_escape(twin->what, name, sizeof(name));
	return schema_fail(context, place,
			   "\"%s\" is the name of tenants[%zu] as well; allowed: each name once",
			   name, twin[-1].tenant);
}

static int fail_key(const struct tenant_settings *list, const struct entry *twin,
		    const struct schema_context *context)
{
	char place[PLACE_MAX], name[NAME_TEXT_MAX], other_name[NAME_TEXT_MAX];
	const struct entry *other = twin - 1;

	snprintf(place, sizeof(place), "tenants[%zu].keys[%zu]", twin->tenant, twin->key);
	text_escape(list[twin->tenant].name, name, sizeof(name));
	text_escape(list[other->tenant].name, other_name, sizeof(other_name));
	return schema_fail(context, place,
			   "a key of \"%s\" is tenants[%zu].keys[%zu] of \"%s\" as well; "
			   "allowed: each key once",
			   name, other->tenant, other->key, other_name);
}

static int check_keys(const struct tenant_settings *list, size_t count, struct entry *entries,
		      const struct schema_context *context)
{
	const struct entry *twin;
	size_t used = 0;

	for (size_t i = 0; i < count; i++) {
		for (size_t k = 0; k < list[i].key_count; k++)
			entries[used++] =
				(struct entry){.what = list[i].keys[k], .tenant = i, .key = k};
	}
	qsort(entries, used, sizeof(*entries), compare_keys);
	twin = find_twin(entries, used, same_key);
	return twin ? fail_key(list, twin, context) : 0;
}

int tenant_settings_check(const struct tenant_settings *list, size_t count,
			  const struct schema_context *context)
{
	struct entry *entries;
	int r;

	if (count == 0)
		return 0;
	entries = calloc(count, TENANT_KEYS_MAX * sizeof(*entries));
	if (!entries) {
		(void)schema_fail(context, "tenants", "%s", strerror(ENOMEM));
		return -ENOMEM;
	}
	r = check_names(list, count, entries, context);
	if (r == 0)
		r = check_keys(list, count, entries, context);
	free(entries);
	return r;
}

static int check_own_keys(const struct tenant_settings *settings,
			  const struct schema_context *context)
{
	char place[PLACE_MAX];

	for (size_t i = 1; i < settings->key_count; i++) {
		for (size_t k = 0; k < i; k++) {
			if (memcmp(settings->keys[i], settings->keys[k], SECURE_KEY_BYTES) != 0)
				continue;
			snprintf(place, sizeof(place), "keys[%zu]", i);
			return schema_fail(context, place,
					   "is keys[%zu] as well; allowed: each key once", k);
		}
	}
	return 0;
}

int tenant_settings_from_json(json_t *object, struct tenant_settings *ret_settings, char *error)
{
	struct schema_context context = {.error = error};
	struct tenant_settings settings = {0};
	int r;

	schema_defaults(&tenant_settings_table, &settings);
	r = schema_read(&tenant_settings_table, object, &settings, &context);
	if (r < 0)
		return r;
	r = check_own_keys(&settings, &context);
	if (r < 0)
		return r;
	*ret_settings = settings;
	return 0;
}

/* Not by memcmp() of the whole: there may be padding. */
bool tenant_settings_same_quota(const struct tenant_settings *a, const struct tenant_settings *b)
{
	const struct tenant_quota *left = &a->quota, *right = &b->quota;

	return memcmp(left->limit, right->limit, sizeof(left->limit)) == 0 &&
	       left->requests_per_second == right->requests_per_second &&
	       left->lease_max_bytes == right->lease_max_bytes &&
	       left->ttl_max_ms == right->ttl_max_ms && left->rights == right->rights;
}

static bool has_key(const struct tenant_settings *settings, const uint8_t key[SECURE_KEY_BYTES])
{
	for (size_t i = 0; i < settings->key_count; i++) {
		if (memcmp(settings->keys[i], key, SECURE_KEY_BYTES) == 0)
			return true;
	}
	return false;
}

bool tenant_settings_same_keys(const struct tenant_settings *a, const struct tenant_settings *b)
{
	if (a->key_count != b->key_count)
		return false;
	/* Within each there is no key twice. */
	for (size_t i = 0; i < b->key_count; i++) {
		if (!has_key(a, b->keys[i]))
			return false;
	}
	return true;
}

bool tenant_settings_same(const struct tenant_settings *a, const struct tenant_settings *b)
{
	return tenant_settings_same_quota(a, b) && tenant_settings_same_keys(a, b);
}

bool tenant_settings_share_key(const struct tenant_settings *a, const struct tenant_settings *b)
{
	for (size_t i = 0; i < b->key_count; i++) {
		if (has_key(a, b->keys[i]))
			return true;
	}
	return false;
}

json_t *tenant_settings_to_json(const struct tenant_settings *settings)
{
	return schema_write(&tenant_settings_table, settings);
}
