/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The configuration read again. All that can fail comes first; then the tenants change, and
 * then, which cannot fail, the limits and times. Whoever uses one of these looks it up in the
 * server's configuration each time, but for those that are told here.
 *
 * Owns nothing. Thread: the loop, which waits for the disk meanwhile.
 */
#include "daemon/reload.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "common/log.h"
#include "daemon/server.h"
#include "daemon/service.h"
#include "daemon/startup.h"
#include "proto/error.h"

#define RELOAD_NAMES_MAX 512

static void reload_reopen_audit(struct server *server)
{
	int r = audit_reopen(server->audit);

	if (r < 0)
		log_error("audit log cannot be opened again, lines go on into the old file "
			  "file=%s error=\"%s\"",
			  server->config.audit_log, strerror(-r));
}

static int reload_load(const struct server *server, struct config *ret_config, char *error)
{
	struct schema_context context = {.file = server->config_path, .error = error};
	struct stat status;
	int r;

	/* The daemon may have been started with a pipe; to wait for one would hold up everybody. */
	if (stat(server->config_path, &status) == 0 && !S_ISREG(status.st_mode)) {
		(void)schema_fail(&context, NULL, "is not a file that can be read again");
		return ERROR_INVALID;
	}
	r = config_load(server->config_path, ret_config, error);
	if (r == 0)
		return 0;
	if (r == -ENOMEM)
		return ERROR_NO_MEMORY;
	return r == -EINVAL ? ERROR_INVALID : ERROR_SYSTEM;
}

static void reload_log_kept(const json_t *kept)
{
	char names[RELOAD_NAMES_MAX] = "";
	const json_t *name;
	size_t used = 0;
	size_t i;

	json_array_foreach(kept, i, name)
	{
		if (used < sizeof(names))
			used += (size_t)snprintf(names + used, sizeof(names) - used, "%s%s",
						 i > 0 ? "," : "", json_string_value(name));
	}
	if (i > 0)
		log_warn("some keys take effect at a restart keys=%s", names);
}

/* @config: its contents are taken over */
static void reload_take(struct server *server, const struct config *config)
{
	struct admission_limits limits = startup_admission_limits(config);

	config_free(&server->config);
	server->config = *config;
	admission_set_limits(server->admission, &limits);
	log_set_level((enum log_level)config->log_level);
}

static size_t reload_count(const json_t *changes, const char *list)
{
	return json_array_size(json_object_get(changes, list));
}

/* @config: loaded; its contents are taken over if 0 is returned */
static int reload_apply(struct server *server, struct config *config, json_t **ret_answer,
			char *error)
{
	struct tenant_list filed = {0};
	json_t *kept, *changes, *lost;
	int code;

	if (config_keep(&server->config, config, &kept) < 0) {
		snprintf(error, RELOAD_ERROR_MAX, "%s", error_text(ERROR_NO_MEMORY));
		return ERROR_NO_MEMORY;
	}
	code = roster_read(config, &filed, error);
	if (code != 0)
		goto err_free;
	code = roster_replace(server, &filed, &changes, &lost);
	if (code != 0) {
		snprintf(error, RELOAD_ERROR_MAX, "%s", error_text(code));
		goto err_free;
	}
	reload_take(server, config);
	log_info("configuration reloaded file=%s tenants_added=%zu tenants_changed=%zu "
		 "tenants_removed=%zu changes_lost=%zu",
		 server->config_path, reload_count(changes, "added"),
		 reload_count(changes, "changed"), reload_count(changes, "removed"),
		 json_array_size(lost));
	reload_log_kept(kept);
	server_audit(server, &(struct audit_record){.event = AUDIT_ADMIN, .reason = "reload"});
	*ret_answer =
		json_pack("{s:o,s:o,s:o}", "tenants", changes, "lost", lost, "needs_restart", kept);
	return 0;

err_free:
	tenant_list_free(&filed);
	json_decref(kept);
	return code;
}

int reload_run(struct server *server, json_t **ret_answer, char *error)
{
	struct config config;
	int code;

	service_reloading();
	reload_reopen_audit(server);
	code = reload_load(server, &config, error);
	if (code == 0) {
		code = reload_apply(server, &config, ret_answer, error);
		if (code != 0)
			config_free(&config);
	}
	if (code != 0)
		log_error("configuration not reloaded, nothing has changed error=\"%s\"", error);
	service_reloaded(&server->service, code != 0 ? error : NULL);
	return code;
}

void reload_on_signal(struct server *server)
{
	char error[RELOAD_ERROR_MAX];
	json_t *answer = NULL;

	(void)reload_run(server, &answer, error);
	json_decref(answer);
}
