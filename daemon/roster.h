/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef DAEMON_ROSTER_H
#define DAEMON_ROSTER_H

#include <jansson.h>
#include <stdbool.h>

#include "daemon/config.h"
#include "daemon/tenant_list.h"

struct server;

#define ROSTER_ERROR_MAX SCHEMA_ERROR_MAX

/*
 * Who the tenants are. What the configuration and the file of saved changes say together is
 * on file; what the operator changes lives at once, and is on file only if it is saved. All zero:
 * none.
 */
struct roster {
	struct tenant_list filed;
};

/**
 * roster_read() - what the files say: the configuration's tenants, and on top what was saved
 * @ret_list: to be freed
 * @error: ROSTER_ERROR_MAX bytes, one line
 *
 * Return: 0 or an error code.
 */
int roster_read(const struct config *config, struct tenant_list *ret_list, char *error);

/** roster_open() - at start: read, and have these tenants; Return and @error: as roster_read() */
int roster_open(struct server *server, char *error);

void roster_close(struct roster *roster);

/**
 * roster_replace() - have the tenants that the files say
 * @filed: of roster_read(); empty afterwards if 0 is returned
 * @ret_changes: the caller's; names of tenants in the lists "added", "changed", "removed"
 * @ret_lost: the caller's; a list of {"name", "change"}: changes that were not saved, and are
 *	gone by this. Each is logged.
 *
 * Sessions of a tenant that is removed end, and its leases are revoked; so do sessions of keys
 * that are not their tenant's any more.
 * Return: 0, or ERROR_NO_MEMORY: nothing has changed.
 */
int roster_replace(struct server *server, struct tenant_list *filed, json_t **ret_changes,
		   json_t **ret_lost);

/**
 * roster_put() - add a tenant, or change the one of that name
 * @is_new: there must be none of that name; else there must be one
 * @save: on file too
 * @error: ROSTER_ERROR_MAX bytes, one line
 *
 * Sessions end as by roster_replace(). Saving blocks on the disk.
 * Return: 0, or an error code: nothing has changed. ERROR_TENANT_EXISTS, ERROR_NO_TENANT,
 * ERROR_KEY_USED (by a tenant that lives or is on file), ERROR_INVALID (too many tenants),
 * ERROR_SYSTEM (it cannot be saved), ERROR_NO_MEMORY.
 */
int roster_put(struct server *server, const struct tenant_settings *settings, bool is_new,
	       bool save, char *error);

/** roster_remove() - as roster_put(); ERROR_NO_TENANT if there is none of that name */
int roster_remove(struct server *server, const char *name, bool save, char *error);

/** roster_is_saved() - is it on file that a tenant is as it is? */
bool roster_is_saved(const struct server *server, const char *name);

#endif
