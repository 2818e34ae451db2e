/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * mempoolctl tenant, and reload. What a quota may be is the daemon's to say; only how its
 * values are written in JSON is known here. Keeps nothing.
 */
#include "client/ctl/tenant.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/ctl/list.h"
#include "common/text.h"
#include "common/units.h"

#define NAME_MAX_BYTES 600

enum quota_kind {
	QUOTA_TEXT,   /* with a unit */
	QUOTA_NUMBER, /* a JSON integer */
	QUOTA_LIST,   /* texts */
};

static const struct quota {
	const char *name;
	enum quota_kind kind;
	const char *denial;  /* its name among what was denied */
	const char *charged; /* among what is charged, NULL: nothing */
} quotas[] = {
	{"bytes", QUOTA_TEXT, "bytes", "bytes"},
	{"leases", QUOTA_NUMBER, "leases", "leases"},
	{"windows", QUOTA_NUMBER, "windows", "windows"},
	{"sessions", QUOTA_NUMBER, "sessions", "sessions"},
	{"lanes", QUOTA_NUMBER, "lanes", "lanes"},
	{"requests_per_second", QUOTA_NUMBER, "rate", NULL},
	{"lease_max", QUOTA_TEXT, "lease-length", NULL},
	{"ttl_max", QUOTA_TEXT, "ttl", NULL},
	{"rights", QUOTA_LIST, "rights", NULL},
};

#define QUOTA_COUNT (sizeof(quotas) / sizeof(quotas[0]))

static const struct table_field list_fields[] = {
	{"TENANT", "{name}", false},
	{"STATE", "{state:state}", false},
	{"SESSIONS", "{charged.sessions}", true},
	{"LANES", "{charged.lanes}", true},
	{"LEASES", "{charged.leases}", true},
	{"BYTES", "{charged.bytes:size}", true},
	{"OF", "{quota.bytes}", true},
	{"STRIKES", "{strikes}", true},
	{"SAVED", "{saved}", false},
	{NULL, NULL, false},
};

static const struct table_field show_fields[] = {
	{"tenant", "{name}", false},
	{"state", "{state:state}", false},
	{"keys", "{keys}", false},
	{"strikes", "{strikes}", false},
	{"ban left", "{ban_left_ms:duration}", false},
	{"saved", "{saved}", false},
	{NULL, NULL, false},
};

static const struct table_field quota_fields[] = {
	{"QUOTA", "{name}", false},   {"LIMIT", "{limit}", true}, {"USED", "{used}", true},
	{"DENIED", "{denied}", true}, {NULL, NULL, false},
};

enum exit_status tenant_run_list(const struct options *options, int argc, char **argv)
{
	(void)argc;
	(void)argv;
	return list_run(options, "tenant.list", "tenants", list_fields);
}

static json_t *used_text(const struct quota *quota, const json_t *tenant)
{
	const json_t *charged = json_object_get(tenant, "charged");
	json_int_t used = json_integer_value(json_object_get(charged, quota->name));
	char text[UNITS_TEXT_MAX];

	if (quota->charged == NULL)
		return json_null();
	if (quota->kind == QUOTA_NUMBER)
		return json_integer(used);
	return json_string(units_format_size((uint64_t)used, text));
}

static json_t *quota_rows(const json_t *tenant)
{
	json_t *rows = json_array();

	for (size_t i = 0; i < QUOTA_COUNT; i++) {
		const struct quota *quota = &quotas[i];

		(void)json_array_append_new(
			rows,
			json_pack(
				"{s:s, s:O*, s:o, s:O*}", "name", quota->name, "limit",
				json_object_get(json_object_get(tenant, "quota"), quota->name),
				"used", used_text(quota, tenant), "denied",
				json_object_get(json_object_get(tenant, "denied"), quota->denial)));
	}
	return rows;
}

static enum exit_status print_tenant(const json_t *tenant)
{
	json_t *rows = quota_rows(tenant);
	enum exit_status status;

	table_print_record(stdout, show_fields, tenant);
	putchar('\n');
	status = command_print_table(quota_fields, rows);
	json_decref(rows);
	return status;
}

/* One call about one tenant. @params: consumed */
static enum exit_status call_about(const struct options *options, const char *method,
				   const char *name, json_t *params, json_t **ret_result)
{
	char about[NAME_MAX_BYTES];

	snprintf(about, sizeof(about), "tenant %.*s: ", NAME_MAX_BYTES / 2, name);
	return command_call_once(options, method, params, about, ret_result);
}

/* Params with the name and nothing else; NULL: it has complained. */
static json_t *params_of(const char *name)
{
	json_t *params = json_pack("{s:s}", "name", name);

	if (params == NULL)
		command_complain("a tenant's name is text in UTF-8");
	return params;
}

enum exit_status tenant_run_show(const struct options *options, int argc, char **argv)
{
	json_t *params = params_of(argv[0]);
	enum exit_status status;
	json_t *result;

	(void)argc;
	if (params == NULL)
		return STATUS_USAGE;
	status = call_about(options, "tenant.show", argv[0], params, &result);
	if (status != STATUS_OK)
		return status;
	if (options->json)
		command_print_json(result);
	else
		status = print_tenant(result);
	json_decref(result);
	return status;
}

/* Changes */

static json_t *number_value(const char *text)
{
	unsigned long long number;

	if (!*text || text[strspn(text, "0123456789")])
		return NULL;
	errno = 0;
	number = strtoull(text, NULL, 10);
	if (errno || number > INT64_MAX)
		return NULL;
	return json_integer((json_int_t)number);
}

/* Texts between commas; none at all is an empty list. */
static json_t *list_value(const char *text)
{
	json_t *list = json_array();

	while (*text) {
		size_t len = strcspn(text, ",");

		(void)json_array_append_new(list, json_stringn(text, len));
		text += len;
		text += *text == ',';
	}
	return list;
}

static json_t *quota_value(enum quota_kind kind, const char *text)
{
	switch (kind) {
	case QUOTA_TEXT:
		return json_string(text);
	case QUOTA_NUMBER:
		return number_value(text);
	case QUOTA_LIST:
		return list_value(text);
	}
	return NULL;
}

static const struct quota *find_quota(const char *name, size_t len)
{
	for (size_t i = 0; i < QUOTA_COUNT; i++) {
		if (strlen(quotas[i].name) == len && !memcmp(quotas[i].name, name, len))
			return &quotas[i];
	}
	return NULL;
}

/* "bytes=1GiB" */
static enum exit_status add_quota(json_t *object, const char *text)
{
	const char *equals = strchr(text, '=');
	const struct quota *quota = equals ? find_quota(text, (size_t)(equals - text)) : NULL;
	json_t *value;

	if (!equals)
		return command_fail_usage("--quota takes NAME=VALUE, not ", text);
	if (!quota)
		return command_fail_usage("there is no such quota: ", text);
	if (json_object_get(object, quota->name))
		return command_fail_usage("a quota is there twice: ", quota->name);
	value = quota_value(quota->kind, equals + 1);
	if (!value)
		return command_fail_usage("that quota takes a number: ", text);
	return json_object_set_new(object, quota->name, value) == 0 ? STATUS_OK : STATUS_PROTOCOL;
}

static enum exit_status add_quotas(json_t *params, const json_t *given)
{
	json_t *object = json_object();
	enum exit_status status = STATUS_OK;
	const json_t *item;
	size_t i;

	json_array_foreach(given, i, item)
	{
		if (status == STATUS_OK)
			status = add_quota(object, json_string_value(item));
	}
	if (given)
		(void)json_object_set(params, "quota", object);
	json_decref(object);
	return status;
}

/* @done: what is said about it, "added" say. @params: consumed */
static enum exit_status order(const struct options *options, const char *method, const char *name,
			      json_t *params, const char *done)
{
	char shown[NAME_MAX_BYTES];
	enum exit_status status;
	json_t *result;

	if (options->save)
		(void)json_object_set_new(params, "save", json_true());
	status = call_about(options, method, name, params, &result);
	if (status != STATUS_OK)
		return status;
	text_escape(name, shown, sizeof(shown));
	if (options->json)
		command_print_json(result);
	else
		printf("tenant %s %s%s\n", shown, done,
		       options->save ? " and saved" : ", not saved: a reload takes it back");
	json_decref(result);
	return STATUS_OK;
}

static enum exit_status put(const struct options *options, const char *method, const char *name,
			    const char *done)
{
	json_t *params = params_of(name);
	enum exit_status status;

	if (params == NULL)
		return STATUS_USAGE;
	if (options->keys)
		(void)json_object_set(params, "keys", options->keys);
	status = add_quotas(params, options->quotas);
	if (status != STATUS_OK) {
		json_decref(params);
		return status;
	}
	return order(options, method, name, params, done);
}

enum exit_status tenant_run_add(const struct options *options, int argc, char **argv)
{
	(void)argc;
	if (!options->keys)
		return command_fail_usage("tenant add needs --key KEY", "");
	return put(options, "tenant.add", argv[0], "added");
}

enum exit_status tenant_run_set(const struct options *options, int argc, char **argv)
{
	(void)argc;
	if (!options->keys && !options->quotas && !options->save)
		return command_fail_usage("tenant set needs --key, --quota or --save", "");
	return put(options, "tenant.set", argv[0], "set");
}

enum exit_status tenant_run_remove(const struct options *options, int argc, char **argv)
{
	json_t *params = params_of(argv[0]);

	(void)argc;
	if (params == NULL)
		return STATUS_USAGE;
	return order(options, "tenant.remove", argv[0], params, "removed");
}

enum exit_status tenant_run_unban(const struct options *options, int argc, char **argv)
{
	json_t *params = params_of(argv[0]);
	char shown[NAME_MAX_BYTES];
	enum exit_status status;
	json_t *result;

	(void)argc;
	if (params == NULL)
		return STATUS_USAGE;
	status = call_about(options, "tenant.unban", argv[0], params, &result);
	if (status != STATUS_OK)
		return status;
	text_escape(argv[0], shown, sizeof(shown));
	if (options->json)
		command_print_json(result);
	else
		printf("tenant %s %s\n", shown,
		       json_is_true(json_object_get(result, "was_banned")) ? "unbanned"
									   : "was not banned");
	json_decref(result);
	return STATUS_OK;
}

/* reload */

static size_t count_of(const json_t *tenants, const char *list)
{
	return json_array_size(json_object_get(tenants, list));
}

static void print_word(const char *text, const char *before)
{
	char shown[NAME_MAX_BYTES];

	text_escape(text ? text : "?", shown, sizeof(shown));
	printf("%s%s", before, shown);
}

static void print_reload(const json_t *result)
{
	const json_t *tenants = json_object_get(result, "tenants");
	const json_t *item;
	size_t i;

	printf("reloaded; tenants: %zu added, %zu changed, %zu removed\n",
	       count_of(tenants, "added"), count_of(tenants, "changed"),
	       count_of(tenants, "removed"));
	json_array_foreach(json_object_get(result, "lost"), i, item)
	{
		print_word(json_string_value(json_object_get(item, "name")),
			   "gone, as it was not saved: tenant ");
		print_word(json_string_value(json_object_get(item, "change")), " ");
		putchar('\n');
	}
	json_array_foreach(json_object_get(result, "needs_restart"), i, item)
	{
		print_word(json_string_value(item), "takes effect at a restart: ");
		putchar('\n');
	}
}

enum exit_status tenant_run_reload(const struct options *options, int argc, char **argv)
{
	enum exit_status status;
	json_t *result;

	(void)argc;
	(void)argv;
	status = command_call_once(options, "reload", NULL, "", &result);
	if (status != STATUS_OK)
		return status;
	if (options->json)
		command_print_json(result);
	else
		print_reload(result);
	json_decref(result);
	return STATUS_OK;
}
