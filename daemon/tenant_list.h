/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef DAEMON_TENANT_LIST_H
#define DAEMON_TENANT_LIST_H

#include <stdbool.h>
#include <stddef.h>

#include "daemon/tenant_settings.h"

/* Settings of tenants, one of each name, by name. All zero: empty. */
struct tenant_list {
	struct tenant_settings *items; /* owned */
	size_t count;
};

/* What becomes of a tenant between two lists. */
enum tenant_list_change {
	TENANT_LIST_ADDED,
	TENANT_LIST_CHANGED,
	TENANT_LIST_REMOVED,
};

/** tenant_list_own() - take over an array in any order, without a name twice; NULL if empty */
void tenant_list_own(struct tenant_list *list, struct tenant_settings *items, size_t count);

/** tenant_list_free() - it is empty then */
void tenant_list_free(struct tenant_list *list);

/** tenant_list_find() - Return: NULL if there is none of that name */
const struct tenant_settings *tenant_list_find(const struct tenant_list *list, const char *name);

/** tenant_list_put() - add, or replace that of the same name; Return: 0 or -ENOMEM */
int tenant_list_put(struct tenant_list *list, const struct tenant_settings *settings);

/** tenant_list_remove() - nothing happens if there is none of that name */
void tenant_list_remove(struct tenant_list *list, const char *name);

/** tenant_list_copy() - Return: 0 or -ENOMEM */
int tenant_list_copy(const struct tenant_list *list, struct tenant_list *ret_list);

/** tenant_list_same() - has a name the same settings in both, or is it in neither? */
bool tenant_list_same(const struct tenant_list *a, const struct tenant_list *b, const char *name);

typedef void (*tenant_list_fn)(const char *name, enum tenant_list_change change, void *arg);

/**
 * tenant_list_lost() - which changes get lost when one list takes the place of another?
 * @base: what the changes were made to
 * @live: base with the changes
 * @next: what takes the place of live
 * @report: called for each tenant that is in live as it was not in base, and is not so in next
 *
 * The change told is that from base to live.
 */
void tenant_list_lost(const struct tenant_list *base, const struct tenant_list *live,
		      const struct tenant_list *next, tenant_list_fn report, void *arg);

/** tenant_list_change_name() - "added", "changed", "removed" */
const char *tenant_list_change_name(enum tenant_list_change change);

#endif
