/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The admin socket's methods about tenants: JSON into the roster's terms and back. Public keys
 * are shown by tenant.show alone, and no error shows one.
 *
 * Owns nothing. Thread: the loop.
 */
#include "daemon/admin_tenant.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/penalty.h"
#include "daemon/reload.h"
#include "daemon/server.h"
#include "proto/error.h"

#define NUMBER(value) ((json_int_t)(value))

static json_t *show_charges(const struct tenant *tenant)
{
	json_t *charged = json_object();

	for (unsigned int i = 0; i < TENANT_RESOURCES; i++)
		(void)json_object_set_new(charged, tenant_denial_name(i),
					  json_integer(NUMBER(tenant->charged[i])));
	return charged;
}

static json_t *show_denials(const struct tenant *tenant)
{
	json_t *denied = json_object();

	for (unsigned int i = 0; i < TENANT_DENIALS; i++)
		(void)json_object_set_new(denied, tenant_denial_name(i),
					  json_integer(NUMBER(tenant->denied[i])));
	return denied;
}

/* What is to be said first about a tenant. */
static const char *state_of(const struct tenant *tenant)
{
	if (!tenant->configured)
		return "removed";
	if (penalty_is_banned(tenant))
		return "banned";
	return tenant_is_over_quota(tenant) ? "over quota" : "ok";
}

static json_t *show_state(const struct server *server, const struct tenant *tenant)
{
	return json_pack("{s:s,s:b,s:b,s:b,s:I,s:I,s:I,s:I,s:o,s:o}", "state", state_of(tenant),
			 "configured", tenant->configured, "saved",
			 roster_is_saved(server, tenant->name), "over_quota",
			 tenant_is_over_quota(tenant), "key_count", NUMBER(tenant->key_count),
			 "sessions", NUMBER(tenant->charged[TENANT_SESSIONS]), "strikes",
			 NUMBER(penalty_strikes(server, tenant)), "ban_left_ms",
			 NUMBER(penalty_ban_left_ms(tenant)), "charged", show_charges(tenant),
			 "denied", show_denials(tenant));
}

static json_t *show_tenant(const struct server *server, const struct tenant *tenant, bool with_keys)
{
	json_t *state = show_state(server, tenant);
	struct tenant_settings settings;
	json_t *row;

	tenant_export(tenant, &settings);
	row = tenant_settings_to_json(&settings);
	if (!with_keys)
		(void)json_object_del(row, "keys");
	(void)json_object_update(row, state);
	json_decref(state);
	return row;
}

/* @result: consumed; NULL: there was no memory for it */
static void answer(struct admin_request *request, json_t *result)
{
	if (result != NULL)
		admin_reply(request, result);
	else
		admin_fail(request, ERROR_NO_MEMORY, error_text(ERROR_NO_MEMORY));
}

static int compare_rows(const void *a, const void *b)
{
	return strcmp((*(const struct tenant *const *)a)->name,
		      (*(const struct tenant *const *)b)->name);
}

/* By name; the array is the caller's, NULL if there is no memory. */
static const struct tenant **sort_tenants(const struct tenant_registry *registry, size_t *ret_count)
{
	const struct tenant **sorted;
	const struct tenant *tenant;
	size_t count = 0, used = 0;

	LIST_FOREACH (tenant, &registry->all, all_link)
		count++;
	sorted = calloc(count + 1, sizeof(*sorted));
	if (sorted == NULL)
		return NULL;
	LIST_FOREACH (tenant, &registry->all, all_link)
		sorted[used++] = tenant;
	qsort(sorted, count, sizeof(*sorted), compare_rows);
	*ret_count = count;
	return sorted;
}

static void tenant_list(struct admin_request *request, json_t *params, void *context)
{
	const struct server *server = context;
	const struct tenant **sorted;
	json_t *rows = json_array();
	size_t count = 0;

	(void)params;
	sorted = sort_tenants(&server->tenants, &count);
	for (size_t i = 0; i < count; i++)
		(void)json_array_append_new(rows, show_tenant(server, sorted[i], false));
	answer(request, sorted != NULL ? json_pack("{s:O}", "tenants", rows) : NULL);
	json_decref(rows);
	free(sorted);
}

/* Params that are {"name": ...} alone; NULL if they are not: the request is answered then. */
static struct tenant *find_by_params(struct admin_request *request, json_t *params,
				     const struct server *server)
{
	struct tenant *tenant;
	const char *name;

	if (json_unpack(params, "{s:s!}", "name", &name) < 0) {
		admin_fail(request, ADMIN_ERROR_PARAMS, "params must be {\"name\": a tenant's}");
		return NULL;
	}
	tenant = tenant_find(&server->tenants, name);
	if (tenant == NULL)
		admin_fail(request, ERROR_NO_TENANT, error_text(ERROR_NO_TENANT));
	return tenant;
}

static void tenant_show(struct admin_request *request, json_t *params, void *context)
{
	const struct server *server = context;
	const struct tenant *tenant = find_by_params(request, params, server);

	if (tenant != NULL)
		answer(request, show_tenant(server, tenant, true));
}

static void tenant_unban(struct admin_request *request, json_t *params, void *context)
{
	struct server *server = context;
	struct tenant *tenant = find_by_params(request, params, server);

	if (tenant != NULL)
		answer(request, json_pack("{s:s,s:b}", "name", tenant->name, "was_banned",
					  penalty_unban(server, tenant)));
}

/* What the operator did is in the audit log, whoever asks later. */
static void audit_order(struct server *server, const char *tenant, const char *order)
{
	server_audit(server, &(struct audit_record){
				     .event = AUDIT_ADMIN,
				     .tenant = tenant,
				     .reason = order,
			     });
}

static void answer_order(struct admin_request *request, struct server *server, const char *name,
			 const char *order, bool saved)
{
	audit_order(server, name, order);
	answer(request, json_pack("{s:s,s:b}", "name", name, "saved", saved));
}

/*
 * Settings and an order to save apart: a copy of the params without "save". Return: NULL if it
 * is no boolean, and the request is answered then.
 */
static json_t *take_save(struct admin_request *request, json_t *params, bool *ret_save)
{
	const json_t *save = json_object_get(params, "save");
	json_t *settings;

	if (save != NULL && !json_is_boolean(save)) {
		admin_fail(request, ADMIN_ERROR_PARAMS, "save must be true or false");
		return NULL;
	}
	*ret_save = json_is_true(save);
	settings = json_copy(params);
	if (settings == NULL)
		admin_fail(request, ERROR_NO_MEMORY, error_text(ERROR_NO_MEMORY));
	else
		(void)json_object_del(settings, "save");
	return settings;
}

static int read_settings(json_t *object, struct tenant_settings *ret_settings, char *error)
{
	int r = tenant_settings_from_json(object, ret_settings, error);

	if (r == 0)
		return 0;
	return r == -ENOMEM ? ERROR_NO_MEMORY : ERROR_INVALID;
}

static void put(struct admin_request *request, struct server *server, json_t *object, bool is_new,
		bool save)
{
	struct tenant_settings settings;
	char error[ROSTER_ERROR_MAX];
	int code = read_settings(object, &settings, error);

	if (code == 0)
		code = roster_put(server, &settings, is_new, save, error);
	if (code != 0)
		admin_fail(request, code, error);
	else
		answer_order(request, server, settings.name, is_new ? "tenant-add" : "tenant-set",
			     save);
}

static void tenant_add(struct admin_request *request, json_t *params, void *context)
{
	bool save;
	json_t *object = take_save(request, params, &save);

	if (object != NULL)
		put(request, context, object, true, save);
	json_decref(object);
}

/* The settings of a tenant with what is named in @changes in place of what is so now. */
static json_t *change_settings(const struct tenant *tenant, json_t *changes)
{
	struct tenant_settings settings;
	json_t *object, *quota;

	tenant_export(tenant, &settings);
	object = tenant_settings_to_json(&settings);
	if (object == NULL)
		return NULL;
	quota = json_incref(json_object_get(object, "quota"));
	if (json_is_object(json_object_get(changes, "quota"))) {
		(void)json_object_update(quota, json_object_get(changes, "quota"));
		(void)json_object_set(changes, "quota", quota);
	}
	(void)json_object_update(object, changes);
	json_decref(quota);
	return object;
}

static void tenant_set(struct admin_request *request, json_t *params, void *context)
{
	struct server *server = context;
	const char *name = json_string_value(json_object_get(params, "name"));
	const struct tenant *tenant = name != NULL ? tenant_find(&server->tenants, name) : NULL;
	json_t *changes, *object;
	bool save;

	if (name == NULL) {
		admin_fail(request, ADMIN_ERROR_PARAMS, "params must have the name of a tenant");
		return;
	}
	if (tenant == NULL || !tenant->configured) {
		admin_fail(request, ERROR_NO_TENANT, error_text(ERROR_NO_TENANT));
		return;
	}
	changes = take_save(request, params, &save);
	if (changes == NULL)
		return;
	object = change_settings(tenant, changes);
	if (object != NULL)
		put(request, server, object, false, save);
	else
		admin_fail(request, ERROR_NO_MEMORY, error_text(ERROR_NO_MEMORY));
	json_decref(object);
	json_decref(changes);
}

static void tenant_remove(struct admin_request *request, json_t *params, void *context)
{
	struct server *server = context;
	char error[ROSTER_ERROR_MAX];
	const char *name;
	int save = 0;
	int code;

	if (json_unpack(params, "{s:s,s?b!}", "name", &name, "save", &save) < 0) {
		admin_fail(request, ADMIN_ERROR_PARAMS,
			   "params must be {\"name\": a tenant's}, and may have \"save\": true");
		return;
	}
	code = roster_remove(server, name, save != 0, error);
	if (code != 0)
		admin_fail(request, code, error);
	else
		answer_order(request, server, name, "tenant-remove", save != 0);
}

static void reload(struct admin_request *request, json_t *params, void *context)
{
	struct server *server = context;
	char error[RELOAD_ERROR_MAX];
	json_t *result = NULL;
	int code;

	if (json_object_size(params) > 0) {
		admin_fail(request, ADMIN_ERROR_PARAMS, "reload takes no params");
		return;
	}
	code = reload_run(server, &result, error);
	if (code != 0) {
		admin_fail(request, code, error);
		return;
	}
	answer(request, result);
}

const struct admin_method admin_tenant_methods[] = {
	{"tenant.list", tenant_list}, {"tenant.show", tenant_show},
	{"tenant.add", tenant_add},   {"tenant.remove", tenant_remove},
	{"tenant.set", tenant_set},   {"tenant.unban", tenant_unban},
	{"reload", reload},	      {NULL, NULL},
};
