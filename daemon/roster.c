/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The tenants of the daemon: from the files into the registry, and what an operator changes
 * while it runs. Owns the list of what is on file.
 *
 * Invariants: a change is checked against what lives and, if it is to be saved, against what is
 * on file, before anything is written or changed: what was saved never keeps the daemon from
 * starting with the configuration that it was saved under. It is on file before it lives.
 *
 * Thread: the loop.
 */
#include "daemon/roster.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/events.h"
#include "daemon/server.h"
#include "daemon/tenant_state.h"
#include "proto/error.h"

#define ROSTER_FILE	"tenants.json"
#define ROSTER_PATH_MAX (CONFIG_STRING_MAX + sizeof("/" ROSTER_FILE))

static int roster_code(int r)
{
	switch (r) {
	case -EINVAL:
		return ERROR_INVALID;
	case -ENOMEM:
		return ERROR_NO_MEMORY;
	default:
		return ERROR_SYSTEM;
	}
}

static int roster_fail(int code, char *error)
{
	snprintf(error, ROSTER_ERROR_MAX, "%s", error_text(code));
	return code;
}

static void roster_path(const struct config *config, char *path)
{
	snprintf(path, ROSTER_PATH_MAX, "%s/" ROSTER_FILE, config->state_dir);
}

/* The files. */

int roster_read(const struct config *config, struct tenant_list *ret_list, char *error)
{
	struct tenant_state state = {0};
	struct tenant_settings *items;
	char path[ROSTER_PATH_MAX];
	size_t count;
	int r;

	roster_path(config, path);
	r = tenant_state_load(path, &state, error);
	if (r < 0)
		return roster_code(r);
	r = tenant_state_merge(config->tenants, config->tenant_count, &state, &items, &count,
			       error);
	tenant_state_free(&state);
	if (r < 0)
		return roster_code(r);
	tenant_list_own(ret_list, items, count);
	return 0;
}

/* What the configuration does not say need not be contradicted. */
static bool roster_is_configured(const struct config *config, const char *name)
{
	for (size_t i = 0; i < config->tenant_count; i++) {
		if (strcmp(config->tenants[i].name, name) == 0)
			return true;
	}
	return false;
}

/* @settings: NULL: the tenant is removed */
static int roster_edit_state(const struct config *config, struct tenant_state *state,
			     const char *name, const struct tenant_settings *settings)
{
	if (settings != NULL)
		return tenant_state_put(state, settings);
	if (roster_is_configured(config, name))
		return tenant_state_remove(state, name);
	tenant_state_forget(state, name);
	return 0;
}

static int roster_save(const struct config *config, const char *name,
		       const struct tenant_settings *settings, char *error)
{
	struct tenant_state state;
	char path[ROSTER_PATH_MAX];
	int r;

	roster_path(config, path);
	r = tenant_state_load(path, &state, error);
	if (r < 0)
		return roster_code(r);
	r = roster_edit_state(config, &state, name, settings);
	if (r < 0)
		snprintf(error, ROSTER_ERROR_MAX, "cannot be saved: %s", strerror(-r));
	else
		r = tenant_state_save(path, &state, error);
	tenant_state_free(&state);
	return r < 0 ? roster_code(r) : 0;
}

/* What lives. */

struct roster_apply {
	struct server *server;
	json_t *changes; /* NULL: nobody asks */
};

static void roster_tell(json_t *changes, const char *list, const char *name)
{
	if (changes != NULL)
		(void)json_array_append_new(json_object_get(changes, list), json_string(name));
}

static void roster_end_strangers(struct server *server, const struct tenant *tenant)
{
	struct session *session;
	struct session *next;

	for (session = TAILQ_FIRST(&server->sessions); session != NULL; session = next) {
		next = TAILQ_NEXT(session, server_link);
		if (session->tenant == tenant &&
		    tenant_find_by_key(&server->tenants, channel_peer(session->channel)) != tenant)
			session_end(session, ERROR_AUTH, "its key was removed");
	}
}

static void roster_on_change(struct tenant *tenant, unsigned int changes, void *arg)
{
	struct roster_apply *apply = arg;
	const char *what = "changed";
	char event[32];

	if ((changes & TENANT_ADDED) != 0)
		what = "added";
	else if ((changes & TENANT_REMOVED) != 0)
		what = "removed";
	(void)snprintf(event, sizeof(event), "tenant-%s", what);
	events_tell(apply->server->admin, event, tenant->name, NULL);
	log_info("tenant %s tenant=%s quota_changed=%d keys_changed=%d", what, tenant->name,
		 (changes & TENANT_QUOTA) != 0, (changes & TENANT_KEYS) != 0);
	roster_tell(apply->changes, what, tenant->name);
	if ((changes & TENANT_REMOVED) != 0)
		session_end_tenant(apply->server, tenant, ERROR_AUTH, "its tenant was removed");
	else if ((changes & TENANT_KEYS) != 0)
		roster_end_strangers(apply->server, tenant);
}

/* @changes: the lists of roster_replace(), or NULL */
static int roster_apply(struct server *server, const struct tenant_list *list, json_t *changes)
{
	struct roster_apply apply = {.server = server, .changes = changes};

	return tenant_registry_apply(&server->tenants, list->items, list->count, roster_on_change,
				     &apply) < 0
		       ? ERROR_NO_MEMORY
		       : 0;
}

static int roster_export(const struct server *server, struct tenant_list *ret_live)
{
	struct tenant_settings *items;
	size_t count;

	if (tenant_registry_export(&server->tenants, &items, &count) < 0)
		return ERROR_NO_MEMORY;
	tenant_list_own(ret_live, items, count);
	return 0;
}

int roster_open(struct server *server, char *error)
{
	int code = roster_read(&server->config, &server->roster.filed, error);

	if (code != 0)
		return code;
	/* Nobody is there yet to be told. */
	if (tenant_registry_apply(&server->tenants, server->roster.filed.items,
				  server->roster.filed.count, NULL, NULL) < 0)
		return roster_fail(ERROR_NO_MEMORY, error);
	return 0;
}

void roster_close(struct roster *roster)
{
	tenant_list_free(&roster->filed);
}

static void roster_note_lost(const char *name, enum tenant_list_change change, void *arg)
{
	json_t *lost = arg;
	const char *what = tenant_list_change_name(change);

	log_warn("a change that was not saved is gone tenant=%s change=%s", name, what);
	(void)json_array_append_new(lost, json_pack("{s:s,s:s}", "name", name, "change", what));
}

int roster_replace(struct server *server, struct tenant_list *filed, json_t **ret_changes,
		   json_t **ret_lost)
{
	json_t *changes = json_pack("{s:[],s:[],s:[]}", "added", "changed", "removed");
	json_t *lost = json_array();
	struct tenant_list live = {0};
	int code = changes != NULL && lost != NULL ? 0 : ERROR_NO_MEMORY;

	if (code == 0)
		code = roster_export(server, &live);
	if (code == 0)
		code = roster_apply(server, filed, changes);
	if (code != 0)
		goto out_free;
	tenant_list_lost(&server->roster.filed, &live, filed, roster_note_lost, lost);
	tenant_list_free(&server->roster.filed);
	server->roster.filed = *filed;
	*filed = (struct tenant_list){0};
	*ret_changes = json_incref(changes);
	*ret_lost = json_incref(lost);
out_free:
	tenant_list_free(&live);
	json_decref(changes);
	json_decref(lost);
	return code;
}

/* One change. */

/* The tenant of a list that has one of the keys; NULL if none, or it is the same tenant. */
static const struct tenant_settings *roster_key_owner(const struct tenant_list *list,
						      const struct tenant_settings *settings)
{
	for (size_t i = 0; i < list->count; i++) {
		const struct tenant_settings *other = &list->items[i];

		if (strcmp(other->name, settings->name) != 0 &&
		    tenant_settings_share_key(other, settings))
			return other;
	}
	return NULL;
}

/* @where: it is */
static int roster_check(const struct tenant_list *list, const struct tenant_settings *settings,
			const char *where, char *error)
{
	const struct tenant_settings *owner = roster_key_owner(list, settings);

	if (owner != NULL) {
		snprintf(error, ROSTER_ERROR_MAX, "a key is that of tenant \"%s\" %s", owner->name,
			 where);
		return ERROR_KEY_USED;
	}
	if (list->count >= TENANT_SETTINGS_MAX && tenant_list_find(list, settings->name) == NULL) {
		snprintf(error, ROSTER_ERROR_MAX, "there are %d tenants already %s",
			 TENANT_SETTINGS_MAX, where);
		return ERROR_INVALID;
	}
	return 0;
}

/* @settings: NULL: the tenant is removed */
static int roster_edit(struct tenant_list *list, const char *name,
		       const struct tenant_settings *settings, const char *where, char *error)
{
	int code;

	if (settings == NULL) {
		tenant_list_remove(list, name);
		return 0;
	}
	code = roster_check(list, settings, where, error);
	if (code == 0 && tenant_list_put(list, settings) < 0)
		code = roster_fail(ERROR_NO_MEMORY, error);
	return code;
}

static int roster_file(struct server *server, const char *name,
		       const struct tenant_settings *settings, char *error)
{
	struct tenant_list filed;
	int code;

	if (tenant_list_copy(&server->roster.filed, &filed) < 0)
		return roster_fail(ERROR_NO_MEMORY, error);
	code = roster_edit(&filed, name, settings, "on file", error);
	if (code == 0)
		code = roster_save(&server->config, name, settings, error);
	if (code != 0) {
		tenant_list_free(&filed);
		return code;
	}
	tenant_list_free(&server->roster.filed);
	server->roster.filed = filed;
	return 0;
}

static int roster_change(struct server *server, const char *name,
			 const struct tenant_settings *settings, bool save, char *error)
{
	struct tenant_list live;
	int code = roster_export(server, &live);

	if (code != 0)
		return roster_fail(code, error);
	code = roster_edit(&live, name, settings, "that lives", error);
	if (code == 0 && save)
		code = roster_file(server, name, settings, error);
	if (code == 0) {
		code = roster_apply(server, &live, NULL);
		if (code != 0)
			(void)roster_fail(code, error);
	}
	tenant_list_free(&live);
	return code;
}

static bool roster_lives(const struct server *server, const char *name)
{
	const struct tenant *tenant = tenant_find(&server->tenants, name);

	return tenant != NULL && tenant->configured;
}

int roster_put(struct server *server, const struct tenant_settings *settings, bool is_new,
	       bool save, char *error)
{
	if (roster_lives(server, settings->name) == is_new)
		return roster_fail(is_new ? ERROR_TENANT_EXISTS : ERROR_NO_TENANT, error);
	return roster_change(server, settings->name, settings, save, error);
}

int roster_remove(struct server *server, const char *name, bool save, char *error)
{
	if (!roster_lives(server, name))
		return roster_fail(ERROR_NO_TENANT, error);
	return roster_change(server, name, NULL, save, error);
}

bool roster_is_saved(const struct server *server, const char *name)
{
	const struct tenant_settings *filed = tenant_list_find(&server->roster.filed, name);
	const struct tenant *tenant = tenant_find(&server->tenants, name);
	struct tenant_settings is;

	if (tenant == NULL || !tenant->configured)
		return filed == NULL;
	tenant_export(tenant, &is);
	return filed != NULL && tenant_settings_same(filed, &is);
}
