/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef DAEMON_TENANT_STATE_H
#define DAEMON_TENANT_STATE_H

#include <stddef.h>

#include "daemon/tenant_settings.h"

/*
 * What was changed about tenants at run time and saved: the file
 * {"tenants": [...], "removed": ["name", ...]} of the daemon's own. It comes on top of the
 * configuration: tenants replace those of the same name or are added, removed ones drop out.
 */
struct tenant_state {
	struct tenant_settings *tenants;
	size_t tenant_count;
	char (*removed)[PROTO_TENANT_NAME_MAX + 1];
	size_t removed_count;
};

/**
 * tenant_state_load() - read the file
 * @ret_state: for tenant_state_free(); empty if there is no file; untouched on failure
 * @error: SCHEMA_ERROR_MAX bytes; on failure one line
 *
 * What the configuration refuses is refused here, and so is a name that is both among the
 * tenants and the removed, or twice among the removed.
 * Return: 0 or a negative errno, as json_file_read_own().
 */
int tenant_state_load(const char *path, struct tenant_state *ret_state, char *error);

/**
 * tenant_state_save() - replace the file, as json_file_write(); the folder must be there
 * @error: SCHEMA_ERROR_MAX bytes; on failure one line
 *
 * Refuses (-EINVAL) what tenant_state_load() would refuse. Blocks on the disk.
 */
int tenant_state_save(const char *path, const struct tenant_state *state, char *error);

/** tenant_state_free() - what it owns; it is empty then */
void tenant_state_free(struct tenant_state *state);

/**
 * tenant_state_put() - add a tenant, or replace that of the same name; it is not removed any more
 *
 * Return: 0, -ENOSPC (TENANT_SETTINGS_MAX are there), -ENOMEM.
 */
int tenant_state_put(struct tenant_state *state, const struct tenant_settings *settings);

/**
 * tenant_state_remove() - drop a tenant, and have the configuration's of the same name drop out
 * @name: valid
 *
 * Return: 0, -ENOSPC (TENANT_SETTINGS_MAX are removed), -ENOMEM.
 */
int tenant_state_remove(struct tenant_state *state, const char *name);

/** tenant_state_forget() - say nothing about a tenant: what the configuration says is so */
void tenant_state_forget(struct tenant_state *state, const char *name);

/**
 * tenant_state_merge() - the tenants of the configuration and the file together
 * @configured: as tenant_settings_check() lets them through
 * @ret_list: the configuration's order, then what was added; to be freed; NULL if there are none
 * @error: SCHEMA_ERROR_MAX bytes; on failure one line, which names the tenants that conflict
 *
 * Return: 0, -EINVAL (too many, or two of them have a key in common), -ENOMEM.
 */
int tenant_state_merge(const struct tenant_settings *configured, size_t count,
		       const struct tenant_state *state, struct tenant_settings **ret_list,
		       size_t *ret_count, char *error);

#endif
