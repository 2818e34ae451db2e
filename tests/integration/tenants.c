/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Tenants of a daemon. Owns nothing. Thread: the test's.
 */
#include "tests/integration/tenants.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/clock.h"

static json_t *tenants_keys(const char *names)
{
	json_t *keys = json_array();
	char text[KEYS_TEXT_MAX];
	char name[64];

	while (*names != '\0') {
		size_t len = strcspn(names, ",");

		snprintf(name, sizeof(name), "%.*s", (int)len, names);
		json_array_append_new(keys, json_string(keys_public_text(name, text)));
		names += len + (names[len] == ',');
	}
	return keys;
}

json_t *tenants_entry(const struct tenants_row *row)
{
	const char *keys = row->keys != NULL ? row->keys : row->name;
	json_t *entry = json_pack("{s:s,s:o}", "name", row->name, "keys", tenants_keys(keys));

	if (row->quota != NULL)
		json_object_set_new(entry, "quota", json_loads(row->quota, 0, NULL));
	return entry;
}

char *tenants_text(const struct tenants_row *rows)
{
	json_t *list = json_array();
	char *text;

	for (; rows->name != NULL; rows++)
		json_array_append_new(list, tenants_entry(rows));
	text = json_dumps(list, JSON_COMPACT);
	json_decref(list);
	return text;
}

int tenants_reload(struct harness *h, const struct tenants_row *rows)
{
	char *text = tenants_text(rows);
	int r = harness_configure(h, &(struct harness_options){.tenants = text});

	free(text);
	return r == 0 ? harness_order(h, "reload", NULL, NULL) : r;
}

int tenants_quota(struct harness *h, const char *name, const char *quota)
{
	return harness_order(
		h, "tenant.set",
		json_pack("{s:s,s:o}", "name", name, "quota", json_loads(quota, 0, NULL)), NULL);
}

int64_t tenants_number(struct harness *h, const char *name, const char *path)
{
	json_t *tenant = harness_call(h, "tenant.show", json_pack("{s:s}", "name", name));
	const json_t *at = tenant;
	int64_t value = -1;
	char part[64];

	while (at != NULL && *path != '\0') {
		size_t len = strcspn(path, ".");

		snprintf(part, sizeof(part), "%.*s", (int)len, path);
		at = json_object_get(at, part);
		path += len + (path[len] == '.');
	}
	if (json_is_integer(at))
		value = json_integer_value(at);
	else if (json_is_boolean(at))
		value = json_is_true(at);
	json_decref(tenant);
	return value;
}

bool tenants_wait(struct harness *h, const char *name, const char *path, int64_t value)
{
	uint64_t until_ns = clock_add_ms(clock_now_ns(), TENANTS_LATE_MS);

	while (tenants_number(h, name, path) != value) {
		if (clock_now_ns() >= until_ns) {
			printf("# %s of %s is %" PRId64 " and not %" PRId64 "\n", path, name,
			       tenants_number(h, name, path), value);
			return false;
		}
		harness_sleep_ms(2);
	}
	return true;
}

bool tenants_says(const char *text, const char *part)
{
	if (strstr(text, part) != NULL)
		return true;
	printf("# \"%s\" is not in: %s\n", part, text);
	return false;
}

char *tenants_list(struct harness *h)
{
	json_t *result = harness_call(h, "tenant.list", NULL);
	char *text = result != NULL ? json_dumps(result, JSON_COMPACT | JSON_SORT_KEYS) : NULL;

	json_decref(result);
	return text;
}
