/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef DAEMON_RELOAD_H
#define DAEMON_RELOAD_H

#include <jansson.h>

#include "daemon/schema.h"

struct server;

#define RELOAD_ERROR_MAX SCHEMA_ERROR_MAX

/**
 * reload_run() - read the configuration and the saved tenants again, and go by them
 * @ret_answer: the caller's; NULL if there was no memory for it:
 *	{"tenants": {"added", "changed", "removed": names},
 *	 "lost": [{"name", "change"}]: changes of tenants that were not saved, and are gone,
 *	 "needs_restart": names of keys that have changed and that a running daemon keeps}
 * @error: RELOAD_ERROR_MAX bytes, one line
 *
 * All or nothing: if anything is wrong in either file nothing changes, and the log says why.
 * The audit log's file is opened by its name again in any case.
 * Return: 0, or an error code.
 */
int reload_run(struct server *server, json_t **ret_answer, char *error);

/** reload_on_signal() - the same by SIGHUP: the log alone says what came of it */
void reload_on_signal(struct server *server);

#endif
