/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Lists of tenants' settings: what the files say, what lives, and the difference. Knows no
 * tenant that lives. Invariant: sorted by name, no name twice. Any thread.
 */
#include "daemon/tenant_list.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

static int compare_names(const void *a, const void *b)
{
	return strcmp(((const struct tenant_settings *)a)->name,
		      ((const struct tenant_settings *)b)->name);
}

void tenant_list_own(struct tenant_list *list, struct tenant_settings *items, size_t count)
{
	if (count > 0)
		qsort(items, count, sizeof(*items), compare_names);
	for (size_t i = 1; i < count; i++)
		assert(strcmp(items[i - 1].name, items[i].name) != 0);
	*list = (struct tenant_list){.items = items, .count = count};
}

void tenant_list_free(struct tenant_list *list)
{
	free(list->items);
	*list = (struct tenant_list){0};
}

/* Where a name is, or would be. */
static size_t place_of(const struct tenant_list *list, const char *name)
{
	size_t low = 0, high = list->count;

	while (low < high) {
		size_t middle = low + (high - low) / 2;

		if (strcmp(list->items[middle].name, name) < 0)
			low = middle + 1;
		else
			high = middle;
	}
	return low;
}

static bool is_at(const struct tenant_list *list, size_t i, const char *name)
{
	return i < list->count && strcmp(list->items[i].name, name) == 0;
}

const struct tenant_settings *tenant_list_find(const struct tenant_list *list, const char *name)
{
	size_t i = place_of(list, name);

	return is_at(list, i, name) ? &list->items[i] : NULL;
}

int tenant_list_put(struct tenant_list *list, const struct tenant_settings *settings)
{
	size_t i = place_of(list, settings->name);
	struct tenant_settings *items;

	if (!is_at(list, i, settings->name)) {
		items = reallocarray(list->items, list->count + 1, sizeof(*items));
		if (!items)
			return -ENOMEM;
		memmove(&items[i + 1], &items[i], (list->count - i) * sizeof(*items));
		list->items = items;
		list->count++;
	}
	list->items[i] = *settings;
	return 0;
}

void tenant_list_remove(struct tenant_list *list, const char *name)
{
	size_t i = place_of(list, name);

	if (!is_at(list, i, name))
		return;
	list->count--;
	memmove(&list->items[i], &list->items[i + 1], (list->count - i) * sizeof(*list->items));
}

int tenant_list_copy(const struct tenant_list *list, struct tenant_list *ret_list)
{
	struct tenant_settings *items = NULL;

	if (list->count > 0) {
		items = calloc(list->count, sizeof(*items));
		if (!items)
			return -ENOMEM;
		memcpy(items, list->items, list->count * sizeof(*items));
	}
	*ret_list = (struct tenant_list){.items = items, .count = list->count};
	return 0;
}

/* NULL: not there. */
static bool same(const struct tenant_settings *a, const struct tenant_settings *b)
{
	if (!a || !b)
		return a == b;
	return tenant_settings_same(a, b);
}

bool tenant_list_same(const struct tenant_list *a, const struct tenant_list *b, const char *name)
{
	return same(tenant_list_find(a, name), tenant_list_find(b, name));
}

void tenant_list_lost(const struct tenant_list *base, const struct tenant_list *live,
		      const struct tenant_list *next, tenant_list_fn report, void *arg)
{
	for (size_t i = 0; i < live->count; i++) {
		const char *name = live->items[i].name;

		if (!tenant_list_same(base, live, name) && !tenant_list_same(live, next, name))
			report(name,
			       tenant_list_find(base, name) ? TENANT_LIST_CHANGED
							    : TENANT_LIST_ADDED,
			       arg);
	}
	for (size_t i = 0; i < base->count; i++) {
		const char *name = base->items[i].name;

		if (!tenant_list_find(live, name) && tenant_list_find(next, name))
			report(name, TENANT_LIST_REMOVED, arg);
	}
}

const char *tenant_list_change_name(enum tenant_list_change change)
{
	static const char *const names[] = {
		[TENANT_LIST_ADDED] = "added",
		[TENANT_LIST_CHANGED] = "changed",
		[TENANT_LIST_REMOVED] = "removed",
	};

	return names[change];
}
