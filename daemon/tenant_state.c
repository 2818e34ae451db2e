/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The tenants that were changed at run time and saved, in memory and in the state folder.
 * Knows nothing of the tenants that live; the loop's thread loads, saves and merges.
 *
 * Invariant: no name is there twice, neither within a list nor in both.
 */
#include "daemon/tenant_state.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/text.h"
#include "daemon/json_file.h"

/* More than TENANT_SETTINGS_MAX tenants need, with the longest names and all keys. */
#define FILE_MAX      "16MiB"
#define NAME_TEXT_MAX (2 * PROTO_TENANT_NAME_MAX + 1) /* each character escaped */
#define PLACE_MAX     48

#define FIELD(name) offsetof(struct tenant_state, name)

static const struct schema_key state_keys[] = {
	{.name = "tenants",
	 .type = SCHEMA_OBJECTS,
	 .offset = FIELD(tenants),
	 .count_offset = FIELD(tenant_count),
	 .item_bytes = sizeof(struct tenant_settings),
	 .is_allocated = true,
	 .default_text = "",
	 .min = "0",
	 .max = "4096",
	 .table = &tenant_settings_table,
	 .is_hidden = true,
	 .help = "that replace the configuration's or are added"},
	{.name = "removed",
	 .type = SCHEMA_LIST,
	 .offset = FIELD(removed),
	 .count_offset = FIELD(removed_count),
	 .item_bytes = PROTO_TENANT_NAME_MAX + 1,
	 .is_allocated = true,
	 .default_text = "",
	 .min = "0",
	 .max = "4096",
	 .is_valid = tenant_settings_name_valid,
	 .form = "a tenant's name",
	 .help = "tenants of the configuration that drop out"},
};

static const struct schema_table state_table = {
	.keys = state_keys,
	.count = sizeof(state_keys) / sizeof(state_keys[0]),
};

void tenant_state_free(struct tenant_state *state)
{
	free(state->tenants);
	free(state->removed);
	*state = (struct tenant_state){0};
}

/* Names in order, so that many can be looked up. */
struct names {
	const char **sorted;
	size_t count;
};

static int compare_names(const void *a, const void *b)
{
	return strcmp(*(const char *const *)a, *(const char *const *)b);
}

static void names_free(struct names *names)
{
	free(names->sorted);
}

/* The names are @stride bytes apart. */
static int names_sort(const char *first, size_t stride, size_t count, struct names *ret_names)
{
	const char **sorted = calloc(count + 1, sizeof(*sorted));

	if (!sorted)
		return -ENOMEM;
	for (size_t i = 0; i < count; i++)
		sorted[i] = first + i * stride;
	qsort(sorted, count, sizeof(*sorted), compare_names);
	*ret_names = (struct names){.sorted = sorted, .count = count};
	return 0;
}

/* The name as it stands in what was sorted; NULL if it is not there. */
static const char *names_find(const struct names *names, const char *name)
{
	const char **found =
		bsearch(&name, names->sorted, names->count, sizeof(*names->sorted), compare_names);

	return found ? *found : NULL;
}

static int names_of_removed(const struct tenant_state *state, struct names *ret_names)
{
	return names_sort((const char *)state->removed, sizeof(state->removed[0]),
			  state->removed_count, ret_names);
}

static int names_of_tenants(const struct tenant_state *state, struct names *ret_names)
{
	static_assert(offsetof(struct tenant_settings, name) == 0, "names are found in the array");
	return names_sort((const char *)state->tenants, sizeof(state->tenants[0]),
			  state->tenant_count, ret_names);
}

static int fail_removed(const struct tenant_state *state, size_t i, const char *what,
			const struct schema_context *context)
{
	char place[PLACE_MAX], name[NAME_TEXT_MAX];

	snprintf(place, sizeof(place), "removed[%zu]", i);
	text_escape(state->removed[i], name, sizeof(name));
	return schema_fail(context, place, "\"%s\" is %s as well; allowed: each name once", name,
			   what);
}

static int check_removed(const struct tenant_state *state, const struct names *removed,
			 const struct schema_context *context)
{
	/* Sorted, so those that are the same are neighbours. */
	for (size_t i = 1; i < removed->count; i++) {
		const char *name = removed->sorted[i];
		size_t at =
			(size_t)(name - (const char *)state->removed) / sizeof(state->removed[0]);

		if (!strcmp(removed->sorted[i - 1], name))
			return fail_removed(state, at, "another entry", context);
	}
	for (size_t i = 0; i < state->tenant_count; i++) {
		const char *name = names_find(removed, state->tenants[i].name);

		if (name)
			return fail_removed(state,
					    (size_t)(name - (const char *)state->removed) /
						    sizeof(state->removed[0]),
					    "a tenant's name", context);
	}
	return 0;
}

static int check(const struct tenant_state *state, const struct schema_context *context)
{
	struct names removed;
	int r;

	r = tenant_settings_check(state->tenants, state->tenant_count, context);
	if (r < 0)
		return r;
	if (names_of_removed(state, &removed) < 0) {
		(void)schema_fail(context, NULL, "%s", strerror(ENOMEM));
		return -ENOMEM;
	}
	r = check_removed(state, &removed, context);
	names_free(&removed);
	return r;
}

static int read_root(json_t *root, struct tenant_state *ret_state,
		     const struct schema_context *context)
{
	struct tenant_state state = {0};
	int r;

	schema_defaults(&state_table, &state);
	r = schema_read(&state_table, root, &state, context);
	if (r == 0)
		r = check(&state, context);
	if (r < 0) {
		tenant_state_free(&state);
		return r;
	}
	*ret_state = state;
	return 0;
}

int tenant_state_load(const char *path, struct tenant_state *ret_state, char *error)
{
	struct schema_context context = {.file = path, .error = error};
	json_t *root;
	int r;

	r = json_file_read_own(&context, FILE_MAX, &root);
	if (r == -ENOENT) {
		error[0] = '\0';
		*ret_state = (struct tenant_state){0};
		return 0;
	}
	if (r < 0)
		return r;
	r = read_root(root, ret_state, &context);
	json_decref(root);
	return r;
}

int tenant_state_save(const char *path, const struct tenant_state *state, char *error)
{
	struct schema_context context = {.file = path, .error = error};
	struct tenant_state again;
	json_t *root = schema_write(&state_table, state);
	int r;

	if (!root) {
		(void)schema_fail(&context, NULL, "%s", strerror(ENOMEM));
		return -ENOMEM;
	}
	/* What cannot be read must not be written: the daemon would not start any more. */
	r = read_root(root, &again, &context);
	if (r == 0) {
		tenant_state_free(&again);
		r = json_file_write(&context, root);
	}
	json_decref(root);
	return r;
}

/* Of the tenants or the removed, as their names stand in the arrays. */
static size_t find(const char *first, size_t stride, size_t count, const char *name)
{
	size_t i = 0;

	while (i < count && strcmp(first + i * stride, name) != 0)
		i++;
	return i;
}

static size_t find_tenant(const struct tenant_state *state, const char *name)
{
	return find((const char *)state->tenants, sizeof(state->tenants[0]), state->tenant_count,
		    name);
}

static size_t find_removed(const struct tenant_state *state, const char *name)
{
	return find((const char *)state->removed, sizeof(state->removed[0]), state->removed_count,
		    name);
}

static void drop_removed(struct tenant_state *state, const char *name)
{
	size_t i = find_removed(state, name);

	if (i == state->removed_count)
		return;
	state->removed_count--;
	memmove(state->removed[i], state->removed[i + 1],
		(state->removed_count - i) * sizeof(state->removed[0]));
}

static void drop_tenant(struct tenant_state *state, const char *name)
{
	size_t i = find_tenant(state, name);

	if (i == state->tenant_count)
		return;
	state->tenant_count--;
	memmove(&state->tenants[i], &state->tenants[i + 1],
		(state->tenant_count - i) * sizeof(state->tenants[0]));
}

int tenant_state_put(struct tenant_state *state, const struct tenant_settings *settings)
{
	size_t i = find_tenant(state, settings->name);
	struct tenant_settings *tenants;

	if (i == TENANT_SETTINGS_MAX)
		return -ENOSPC;
	if (i == state->tenant_count) {
		tenants = reallocarray(state->tenants, i + 1, sizeof(*tenants));
		if (!tenants)
			return -ENOMEM;
		state->tenants = tenants;
		state->tenant_count++;
	}
	state->tenants[i] = *settings;
	drop_removed(state, settings->name);
	return 0;
}

int tenant_state_remove(struct tenant_state *state, const char *name)
{
	size_t i = find_removed(state, name);
	void *removed;

	assert(tenant_settings_name_valid(name));
	if (i == TENANT_SETTINGS_MAX)
		return -ENOSPC;
	if (i == state->removed_count) {
		removed = reallocarray(state->removed, i + 1, sizeof(state->removed[0]));
		if (!removed)
			return -ENOMEM;
		state->removed = removed;
		state->removed_count++;
		snprintf(state->removed[i], sizeof(state->removed[0]), "%s", name);
	}
	drop_tenant(state, name);
	return 0;
}

void tenant_state_forget(struct tenant_state *state, const char *name)
{
	drop_tenant(state, name);
	drop_removed(state, name);
}

/* What a merge is made of. */
struct merge {
	const struct tenant_state *state;
	struct names tenants;
	struct names removed;
	bool *placed; /* for each of the state's tenants: it has replaced one */
	struct tenant_settings *list;
	size_t count;
};

static void merge_free(struct merge *merge)
{
	names_free(&merge->tenants);
	names_free(&merge->removed);
	free(merge->placed);
	free(merge->list);
}

static int merge_prepare(struct merge *merge, size_t configured)
{
	const struct tenant_state *state = merge->state;

	/* One more each, as nothing at all would be no pointer. */
	merge->placed = calloc(state->tenant_count + 1, sizeof(*merge->placed));
	merge->list = calloc(configured + state->tenant_count + 1, sizeof(*merge->list));
	if (!merge->placed || !merge->list || names_of_tenants(state, &merge->tenants) < 0 ||
	    names_of_removed(state, &merge->removed) < 0)
		return -ENOMEM;
	return 0;
}

static void merge_configured(struct merge *merge, const struct tenant_settings *settings)
{
	const struct tenant_settings *saved;
	const char *name;

	if (names_find(&merge->removed, settings->name))
		return;
	name = names_find(&merge->tenants, settings->name);
	if (name) {
		saved = (const struct tenant_settings *)(const void *)name;
		merge->placed[saved - merge->state->tenants] = true;
		settings = saved;
	}
	merge->list[merge->count++] = *settings;
}

static void merge_added(struct merge *merge)
{
	for (size_t i = 0; i < merge->state->tenant_count; i++) {
		if (!merge->placed[i])
			merge->list[merge->count++] = merge->state->tenants[i];
	}
}

static int merge_check(const struct merge *merge, const struct schema_context *context)
{
	if (merge->count > TENANT_SETTINGS_MAX)
		return schema_fail(context, "tenants", "are %zu; allowed: 0..%d entries",
				   merge->count, TENANT_SETTINGS_MAX);
	return tenant_settings_check(merge->list, merge->count, context);
}

int tenant_state_merge(const struct tenant_settings *configured, size_t count,
		       const struct tenant_state *state, struct tenant_settings **ret_list,
		       size_t *ret_count, char *error)
{
	struct schema_context context = {.file = "configuration with what was saved",
					 .error = error};
	struct merge merge = {.state = state};
	int r;

	r = merge_prepare(&merge, count);
	if (r < 0) {
		(void)schema_fail(&context, NULL, "%s", strerror(-r));
		goto out_free;
	}
	for (size_t i = 0; i < count; i++)
		merge_configured(&merge, &configured[i]);
	merge_added(&merge);
	r = merge_check(&merge, &context);
	if (r < 0)
		goto out_free;
	*ret_count = merge.count;
	*ret_list = NULL;
	if (merge.count > 0) {
		*ret_list = merge.list;
		merge.list = NULL;
	}
out_free:
	merge_free(&merge);
	return r;
}
