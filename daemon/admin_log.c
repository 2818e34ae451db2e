/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The admin socket's method about the log: what is logged, from now until the configuration is
 * read again. Owns nothing.
 *
 * Thread: the loop.
 */
#include "daemon/admin_log.h"

#include <stdio.h>

#include "common/log.h"
#include "daemon/server.h"

#define REASON_MAX 32

static void set_level(struct server *server, enum log_level level)
{
	char reason[REASON_MAX];

	snprintf(reason, sizeof(reason), "log-level-%s", log_level_name(level));
	log_set_level(level);
	log_write(level, "log level set level=%s", log_level_name(level));
	server_audit(server, &(struct audit_record){.event = AUDIT_ADMIN, .reason = reason});
}

static void log_level(struct admin_request *request, json_t *params, void *context)
{
	enum log_level was = log_get_level();
	const char *name = NULL;
	enum log_level level;

	if (json_unpack(params, "{s?s!}", "level", &name) < 0 ||
	    (name != NULL && !log_level_find(name, &level))) {
		admin_fail(request, ADMIN_ERROR_PARAMS,
			   "params may be {\"level\": \"error\", \"warn\", \"info\" or \"debug\"}");
		return;
	}
	if (name != NULL)
		set_level(context, level);
	if (name != NULL)
		admin_reply(request, json_pack("{s:s,s:s}", "level", log_level_name(level), "was",
					       log_level_name(was)));
	else
		admin_reply(request, json_pack("{s:s}", "level", log_level_name(was)));
}

const struct admin_method admin_log_methods[] = {
	{"log-level", log_level},
	{NULL, NULL},
};
