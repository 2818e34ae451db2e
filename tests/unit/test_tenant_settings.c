/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * daemon/tenant_settings.c: a tenant's object and back, names, keys and quotas at their
 * boundaries, and lists in which no name and no key may be there twice.
 */
#include "daemon/tenant_settings.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "common/strict_json.h"
#include "proto/message.h"
#include "tests/unit/tenants.h"
#include "tests/unit/test.h"

/* 32 bytes, the first 1 and the others 0, and the same with the last two bits not 0. */
#define KEY_ONE	   "AQAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA="
#define KEY_ONE_B  "AQAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAB="
#define KEY_ZERO   "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA="
#define KEY_TWO	   "AgAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA="
#define KEYS_WRONG "keys: is not valid; allowed: 1..8 entries of the form base64 of 32 bytes"

struct result {
	struct tenant_settings settings;
	char error[SCHEMA_ERROR_MAX];
	int r;
};

static void from_text(const char *text, struct result *result)
{
	char why[STRICT_JSON_ERROR_MAX];
	json_t *root;

	memset(result, 0x5a, sizeof(*result));
	result->error[0] = '\0';
	result->r = strict_json_parse(text, strlen(text), why, &root);
	if (result->r < 0) {
		snprintf(result->error, sizeof(result->error), "%s", why);
		return;
	}
	result->r = tenant_settings_from_json(root, &result->settings, result->error);
	json_decref(root);
}

static void check_refused(const char *text, const char *error)
{
	struct tenant_settings untouched;
	struct result result;

	memset(&untouched, 0x5a, sizeof(untouched));
	from_text(text, &result);
	CHECK_STR(result.error, error);
	CHECK_INT(result.r, -EINVAL);
	CHECK_MEM(&result.settings, &untouched, sizeof(untouched));
}

static void check_quota_refused(const char *quota, const char *error)
{
	char text[512];

	snprintf(text, sizeof(text), "{\"name\":\"a\",\"keys\":[\"" KEY_ONE "\"],\"quota\":{%s}}",
		 quota);
	check_refused(text, error);
}

static void check_quota_taken(const char *quota)
{
	struct result result;
	char text[512];

	snprintf(text, sizeof(text), "{\"name\":\"a\",\"keys\":[\"" KEY_ONE "\"],\"quota\":{%s}}",
		 quota);
	from_text(text, &result);
	CHECK_STR(result.error, "");
	CHECK_INT(result.r, 0);
}

static void check_keys_refused(const char *keys, const char *error)
{
	char text[1024];

	snprintf(text, sizeof(text), "{\"name\":\"a\",\"keys\":%s}", keys);
	check_refused(text, error);
}

/* Without a quota: what the daemon's own limits can be at most. */
TEST(tenant_settings_from_json__defaults)
{
	const struct tenant_quota *quota;
	struct result result;

	from_text("{\"name\":\"a\",\"keys\":[\"" KEY_ONE "\"]}", &result);
	CHECK_INT(result.r, 0);
	CHECK_STR(result.settings.name, "a");
	CHECK_INT(result.settings.key_count, 1);
	CHECK_INT(result.settings.keys[0][0], 1);
	quota = &result.settings.quota;
	CHECK_INT(quota->limit[TENANT_BYTES], UINT64_C(64) << 40);
	CHECK_INT(quota->limit[TENANT_LEASES], 1048576);
	CHECK_INT(quota->limit[TENANT_WINDOWS], 1048576 * 64);
	CHECK_INT(quota->limit[TENANT_SESSIONS], 65536);
	CHECK_INT(quota->limit[TENANT_LANES], 65536 * 1024);
	CHECK_INT(quota->requests_per_second, 0);
	CHECK_INT(quota->lease_max_bytes, UINT64_C(64) << 40);
	CHECK_INT(quota->ttl_max_ms, UINT64_C(30) * 24 * 3600 * 1000);
	CHECK_INT(quota->rights, MESSAGE_RIGHTS_ALL);
}

TEST(tenant_settings_from_json__quota)
{
	const struct tenant_quota *quota;
	struct result result;

	from_text("{\"name\":\"a\",\"keys\":[\"" KEY_ONE "\"],\"quota\":{\"bytes\":\"1GiB\","
		  "\"leases\":2,\"windows\":3,\"sessions\":4,\"lanes\":5,"
		  "\"requests_per_second\":6,\"lease_max\":\"7KiB\",\"ttl_max\":\"8s\","
		  "\"rights\":[\"atomic\",\"read\"]}}",
		  &result);
	CHECK_STR(result.error, "");
	CHECK_INT(result.r, 0);
	quota = &result.settings.quota;
	CHECK_INT(quota->limit[TENANT_BYTES], 1 << 30);
	CHECK_INT(quota->limit[TENANT_LEASES], 2);
	CHECK_INT(quota->limit[TENANT_WINDOWS], 3);
	CHECK_INT(quota->limit[TENANT_SESSIONS], 4);
	CHECK_INT(quota->limit[TENANT_LANES], 5);
	CHECK_INT(quota->requests_per_second, 6);
	CHECK_INT(quota->lease_max_bytes, 7168);
	CHECK_INT(quota->ttl_max_ms, 8000);
	CHECK_INT(quota->rights, MESSAGE_RIGHT_READ | MESSAGE_RIGHT_ATOMIC);
}

TEST(tenant_settings_from_json__quota_range)
{
	check_quota_taken("\"bytes\":\"0\"");
	check_quota_taken("\"bytes\":\"64TiB\"");
	check_quota_refused("\"bytes\":\"70368744177665\"",
			    "quota.bytes: \"70368744177665\" is out of range; allowed: 0..64TiB");
	check_quota_taken("\"leases\":0,\"windows\":0,\"sessions\":0,\"lanes\":0");
	check_quota_taken("\"leases\":1048576");
	check_quota_refused("\"leases\":1048577",
			    "quota.leases: 1048577 is out of range; allowed: 0..1048576");
	check_quota_taken("\"windows\":67108864");
	check_quota_refused("\"windows\":67108865",
			    "quota.windows: 67108865 is out of range; allowed: 0..67108864");
	check_quota_taken("\"sessions\":65536");
	check_quota_refused("\"sessions\":65537",
			    "quota.sessions: 65537 is out of range; allowed: 0..65536");
	check_quota_taken("\"lanes\":67108864");
	check_quota_refused("\"lanes\":67108865",
			    "quota.lanes: 67108865 is out of range; allowed: 0..67108864");
	check_quota_taken("\"requests_per_second\":1000000");
	check_quota_refused("\"requests_per_second\":1000001",
			    "quota.requests_per_second: 1000001 is out of range; allowed: "
			    "0..1000000");
	check_quota_taken("\"lease_max\":\"1\"");
	check_quota_refused("\"lease_max\":\"0\"",
			    "quota.lease_max: \"0\" is out of range; allowed: 1..64TiB");
	check_quota_taken("\"ttl_max\":\"1ms\"");
	check_quota_refused("\"ttl_max\":\"0\"",
			    "quota.ttl_max: \"0\" is out of range; allowed: 1ms..30d");
	check_quota_refused("\"ttl_max\":\"2592000001ms\"",
			    "quota.ttl_max: \"2592000001ms\" is out of range; allowed: 1ms..30d");
	check_quota_refused("\"leases\":-1", "quota.leases: -1 is out of range; allowed: "
					     "0..1048576");
	check_quota_refused("\"lanes\":9223372036854775807",
			    "quota.lanes: 9223372036854775807 is out of range; allowed: "
			    "0..67108864");
}

TEST(tenant_settings_from_json__quota_wrong)
{
	check_quota_refused("\"bytes\":1", "quota.bytes: 1 is not a string with a size such as "
					   "\"256MiB\"; allowed: 0..64TiB");
	check_quota_refused("\"leases\":\"1\"",
			    "quota.leases: \"1\" is not a number; allowed: 0..1048576");
	check_quota_refused("\"ttl_max\":\"1\"",
			    "quota.ttl_max: \"1\" is not a string with a duration such as \"5s\"; "
			    "allowed: 1ms..30d");
	check_quota_refused("\"rights\":\"read\"",
			    "quota.rights: \"read\" is not a list of strings; allowed: 1..3 of "
			    "read|write|atomic");
	check_quota_refused("\"rights\":[]",
			    "quota.rights: [] has too few or too many entries; allowed: 1..3 of "
			    "read|write|atomic");
	check_quota_refused("\"rights\":[\"execute\"]",
			    "quota.rights: \"execute\" is not one of the choices; allowed: 1..3 of "
			    "read|write|atomic");
	check_quota_refused("\"rights\":[\"read\",\"read\"]",
			    "quota.rights: \"read\" is there twice; allowed: 1..3 of "
			    "read|write|atomic");
	check_quota_refused("\"session\":1", "quota.session: is not a known key; mempoold "
					     "--help-config lists all");
	check_quota_refused("\"lanes\":1,\"lanes\":1",
			    "line 1: duplicate object key near '\"lanes\"'");
}

TEST(tenant_settings_from_json__missing)
{
	check_refused("{\"name\":\"a\"}", "keys: is required and missing; allowed: 1..8 entries of "
					  "the form base64 of 32 bytes");
	check_refused("{\"keys\":[\"" KEY_ONE "\"]}",
		      "name: is required and missing; allowed: 1..64 characters of the form "
		      "visible ASCII");
	check_refused("[]", "is not a JSON object");
}

static void name_text(const char *name, struct result *result)
{
	size_t cap = strlen(name) + 128;
	char *text = malloc(cap);

	if (!text)
		abort();
	snprintf(text, cap, "{\"name\":\"%s\",\"keys\":[\"" KEY_ONE "\"]}", name);
	from_text(text, result);
	free(text);
}

static void check_name_refused(const char *name)
{
	struct result result;

	name_text(name, &result);
	CHECK_INT(result.r, -EINVAL);
	CHECK(!strchr(result.error, '\n') && strlen(result.error) < 400);
	CHECK(strstr(result.error, "; allowed: 1..64 characters of the form visible ASCII"));
}

TEST(tenant_settings_from_json__name)
{
	char name[10001];
	struct result result;

	memset(name, 'n', sizeof(name));
	name[64] = '\0';
	name_text(name, &result);
	CHECK_INT(result.r, 0);
	CHECK_STR(result.settings.name, name);
	name[64] = 'n';
	name[65] = '\0';
	check_name_refused(name);
	name[65] = 'n';
	name[10000] = '\0';
	check_name_refused(name);
	check_name_refused("");
	name_text("!~'%s/:", &result);
	CHECK_INT(result.r, 0);
	CHECK_STR(result.settings.name, "!~'%s/:");
}

TEST(tenant_settings_from_json__name_characters)
{
	struct result result;

	check_name_refused("a b");
	check_name_refused("a\\nb");
	check_name_refused("a\\tb");
	check_name_refused("\\u0001");
	check_name_refused("\\u001f");
	check_name_refused("\x7f");
	check_name_refused("\xc3\xa4");
	check_name_refused("\\u2028");
	name_text("a\\u0000b", &result);
	CHECK_INT(result.r, -EINVAL);
	CHECK(strstr(result.error, "\\u0000 is not allowed"));
	check_refused("{\"name\":1,\"keys\":[\"" KEY_ONE "\"]}",
		      "name: 1 is not a string; allowed: 1..64 characters of the form visible "
		      "ASCII");
}

TEST(tenant_settings_name_valid__every_byte)
{
	for (int c = 1; c < 256; c++) {
		char name[] = {'a', (char)c, '\0'};

		CHECK_INT(tenant_settings_name_valid(name), c >= 0x21 && c <= 0x7e);
	}
	CHECK(!tenant_settings_name_valid(""));
}

/* A list of keys with different numbers. */
static void keys_list(uint32_t count, char *text, size_t cap_bytes)
{
	size_t used = (size_t)snprintf(text, cap_bytes, "[");

	for (uint32_t i = 0; i < count; i++) {
		char base64[SECURE_KEY_TEXT_LENGTH];
		uint8_t key[SECURE_KEY_BYTES];

		tenants_key(i, key);
		secure_key_encode(key, base64);
		used += (size_t)snprintf(text + used, cap_bytes - used, "%s\"%.*s\"",
					 i > 0 ? "," : "", SECURE_KEY_TEXT_LENGTH, base64);
	}
	snprintf(text + used, cap_bytes - used, "]");
}

TEST(tenant_settings_from_json__key_count)
{
	char keys[512], text[600];
	struct result result;
	uint8_t key[SECURE_KEY_BYTES];

	keys_list(8, keys, sizeof(keys));
	snprintf(text, sizeof(text), "{\"name\":\"a\",\"keys\":%s}", keys);
	from_text(text, &result);
	CHECK_STR(result.error, "");
	CHECK_INT(result.settings.key_count, 8);
	for (uint32_t i = 0; i < 8; i++) {
		tenants_key(i, key);
		CHECK_MEM(result.settings.keys[i], key, sizeof(key));
	}
	keys_list(9, keys, sizeof(keys));
	check_keys_refused(keys, "keys: has too few or too many entries; allowed: 1..8 entries of "
				 "the form base64 of 32 bytes");
	check_keys_refused("[]", "keys: has too few or too many entries; allowed: 1..8 entries of "
				 "the form base64 of 32 bytes");
}

/* Each text stands for one key at most, and the other way round. */
TEST(tenant_settings_from_json__key_form)
{
	static const char *const refused[] = {
		"[\"\"]",
		"[\"" KEY_ZERO "\"]",
		"[\"" KEY_ONE_B "\"]",
		/* One too few, one too many, no padding, space, another alphabet, more padding. */
		"[\"AQAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=\"]",
		"[\"AQAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=\"]",
		"[\"AQAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA\"]",
		"[\"AQAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA\"]",
		"[\"AQAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA= \"]",
		"[\" AQAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=\"]",
		"[\"AQAAAAAAAAAAAAAAAAAA AAAAAAAAAAAAAAAAAAAAAA=\"]",
		"[\"AQAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=\\n\"]",
		"[\"_-AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=\"]",
		"[\"AQAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA==\"]",
		"[\"0000000000000000000000000000000000000000000000000000000000000001\"]",
		"[\"" KEY_ONE "\",\"x\"]",
		/* The last bit set: a second spelling of another key. */
		"[\"//////////////////////////////////////////8=\"]",
		"[\"AQAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAIA=\"]",
	};
	struct result result;

	for (size_t i = 0; i < sizeof(refused) / sizeof(refused[0]); i++)
		check_keys_refused(refused[i], KEYS_WRONG);
	check_keys_refused("\"" KEY_ONE "\"", "keys: is not a list of strings; allowed: 1..8 "
					      "entries of the form base64 of 32 bytes");
	check_keys_refused("[1]", "keys: is not a list of strings; allowed: 1..8 entries of the "
				  "form base64 of 32 bytes");
	/* The greatest. */
	from_text("{\"name\":\"a\",\"keys\":["
		  "\"/////////////////////////////////////////38=\"]}",
		  &result);
	CHECK_INT(result.r, 0);
	for (int i = 0; i < SECURE_KEY_BYTES; i++)
		CHECK_INT(result.settings.keys[0][i], i < SECURE_KEY_BYTES - 1 ? 0xff : 0x7f);
}

TEST(tenant_settings_from_json__key_twice)
{
	check_keys_refused("[\"" KEY_ONE "\",\"" KEY_TWO "\",\"" KEY_ONE "\"]",
			   "keys[2]: is keys[0] as well; allowed: each key once");
	check_keys_refused("[\"" KEY_TWO "\",\"" KEY_TWO "\"]",
			   "keys[1]: is keys[0] as well; allowed: each key once");
}

TEST(tenant_settings_to_json__round_trip)
{
	struct tenant_settings before = tenants_make("!round~trip", 1), after;
	char error[SCHEMA_ERROR_MAX] = "";
	json_t *object;

	for (uint32_t i = 0; i < TENANT_KEYS_MAX; i++)
		tenants_key(77 * i, before.keys[i]);
	before.key_count = TENANT_KEYS_MAX;
	for (uint32_t i = 0; i < TENANT_RESOURCES; i++)
		before.quota.limit[i] = 1000 + i;
	before.quota.requests_per_second = 999999;
	before.quota.lease_max_bytes = (UINT64_C(1) << 40) + 1;
	before.quota.ttl_max_ms = 86400001;
	before.quota.rights = MESSAGE_RIGHT_WRITE;
	object = tenant_settings_to_json(&before);
	CHECK(object);
	CHECK_INT(tenant_settings_from_json(object, &after, error), 0);
	json_decref(object);
	CHECK_STR(error, "");
	CHECK(tenants_equal(&before, &after));
	/* The comparison itself. */
	after.quota.rights = MESSAGE_RIGHT_READ;
	CHECK(!tenants_equal(&before, &after));
}

TEST(tenant_settings_to_json__text)
{
	struct tenant_settings settings = tenants_make("a", 0);
	json_t *object;
	char *dump;

	memset(settings.keys[0], 0, SECURE_KEY_BYTES);
	settings.keys[0][0] = 1;
	object = tenant_settings_to_json(&settings);
	CHECK(object);
	dump = json_dumps(object, JSON_COMPACT);
	json_decref(object);
	CHECK_STR(dump, "{\"name\":\"a\",\"keys\":[\"" KEY_ONE "\"],\"quota\":{\"bytes\":\"64TiB\","
			"\"leases\":1048576,\"windows\":67108864,\"sessions\":65536,"
			"\"lanes\":67108864,\"requests_per_second\":0,\"lease_max\":\"64TiB\","
			"\"ttl_max\":\"30d\",\"rights\":[\"read\",\"write\",\"atomic\"]}}");
	free(dump);
}

static void check_list(const struct tenant_settings *list, size_t count, int r,
		       const char *expected)
{
	char error[SCHEMA_ERROR_MAX] = "";
	struct schema_context context = {.file = "f", .error = error};

	CHECK_INT(tenant_settings_check(list, count, &context), r);
	CHECK_STR(error, expected);
}

TEST(tenant_settings_check__names)
{
	struct tenant_settings list[] = {
		tenants_make("b", 1),
		tenants_make("a", 2),
		tenants_make("\\", 3),
		tenants_make("B", 4),
	};

	check_list(NULL, 0, 0, "");
	check_list(list, 4, 0, "");
	/* Of several the first in the order of the list. */
	strcpy(list[3].name, "b");
	strcpy(list[2].name, "a");
	check_list(list, 4, -EINVAL,
		   "f: tenants[2].name: \"a\" is the name of tenants[1] as well; "
		   "allowed: each name once");
	strcpy(list[2].name, "c");
	check_list(list, 4, -EINVAL,
		   "f: tenants[3].name: \"b\" is the name of tenants[0] as well; "
		   "allowed: each name once");
}

TEST(tenant_settings_check__keys)
{
	struct tenant_settings list[] = {
		tenants_make("alpha", 1),
		tenants_make("\\\\", 2),
		tenants_make("gamma", 3),
	};

	tenants_key(4, list[1].keys[1]);
	tenants_key(5, list[1].keys[2]);
	list[1].key_count = 3;
	check_list(list, 3, 0, "");
	/* A key behind the last one does not count. */
	tenants_key(1, list[1].keys[3]);
	check_list(list, 3, 0, "");
	tenants_key(5, list[2].keys[0]);
	check_list(list, 3, -EINVAL,
		   "f: tenants[2].keys[0]: a key of \"gamma\" is tenants[1].keys[2] of "
		   "\"\\\\\\\\\" as well; allowed: each key once");
	tenants_key(4, list[1].keys[2]);
	tenants_key(3, list[2].keys[0]);
	check_list(list, 3, -EINVAL,
		   "f: tenants[1].keys[2]: a key of \"\\\\\\\\\" is tenants[1].keys[1] of "
		   "\"\\\\\\\\\" as well; allowed: each key once");
}

/* The longest error: both names of characters that are escaped. */
TEST(tenant_settings_check__longest_names)
{
	struct tenant_settings list[] = {tenants_make("", 1), tenants_make("", 1)};
	char error[SCHEMA_ERROR_MAX] = "", file[1000];
	struct schema_context context = {.file = file, .error = error};

	memset(file, 'f', sizeof(file) - 1);
	file[sizeof(file) - 1] = '\0';
	for (int i = 0; i < 2; i++)
		memset(list[i].name, '\\', PROTO_TENANT_NAME_MAX);
	list[1].name[0] = '!';
	CHECK_INT(tenant_settings_check(list, 2, &context), -EINVAL);
	CHECK(strlen(error) < SCHEMA_ERROR_MAX - 1);
	CHECK(strstr(error, " as well; allowed: each key once"));
}

TEST(tenant_settings_check__many)
{
	struct tenant_settings *list = tenants_many(TENANT_SETTINGS_MAX, 0);

	check_list(list, TENANT_SETTINGS_MAX, 0, "");
	tenants_key(17, list[4095].keys[0]);
	check_list(list, TENANT_SETTINGS_MAX, -EINVAL,
		   "f: tenants[4095].keys[0]: a key of \"t4095\" is tenants[17].keys[0] of \"t17\" "
		   "as well; allowed: each key once");
	free(list);
}
