/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Which range an address lies in: a sorted array, since ranges are looked up far more often
 * than they come and go.
 *
 * Invariant: ranges are in ascending order, none is empty, no two overlap.
 *
 * Thread: any; the caller guards the object.
 */
#include "client/registry.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "common/checked.h"

#define REGISTRY_ROOM 16

void registry_deinit(struct registry *registry)
{
	free(registry->entries);
	*registry = (struct registry){0};
}

/* Return: the index of the first range that ends behind an address. */
static size_t registry_behind(const struct registry *registry, uint64_t address)
{
	size_t low = 0;
	size_t high = registry->count;

	while (low < high) {
		size_t middle = low + (high - low) / 2;
		const struct registry_entry *entry = &registry->entries[middle];

		if (entry->start + (entry->len_bytes - 1) < address)
			low = middle + 1;
		else
			high = middle;
	}
	return low;
}

/* Return: the first range that has a part of this one, or NULL. */
static struct registry_entry *registry_first(const struct registry *registry, uint64_t start,
					     uint64_t len_bytes)
{
	size_t at = registry_behind(registry, start);
	uint64_t last;

	if (at == registry->count || len_bytes == 0)
		return NULL;
	if (!checked_add(start, len_bytes - 1, &last))
		last = UINT64_MAX;
	return registry->entries[at].start <= last ? &registry->entries[at] : NULL;
}

static int registry_grow(struct registry *registry)
{
	size_t room = registry->room == 0 ? REGISTRY_ROOM : registry->room * 2;
	struct registry_entry *entries;

	if (registry->count < registry->room)
		return 0;
	entries = reallocarray(registry->entries, room, sizeof(*entries));
	if (entries == NULL)
		return -ENOMEM;
	registry->entries = entries;
	registry->room = room;
	return 0;
}

int registry_insert(struct registry *registry, uint64_t start, uint64_t len_bytes, void *value)
{
	uint64_t last;
	size_t at;
	int r;

	if (len_bytes == 0 || !checked_add(start, len_bytes - 1, &last))
		return -EINVAL;
	if (registry_first(registry, start, len_bytes) != NULL)
		return -EEXIST;
	r = registry_grow(registry);
	if (r < 0)
		return r;
	at = registry_behind(registry, start);
	memmove(&registry->entries[at + 1], &registry->entries[at],
		(registry->count - at) * sizeof(registry->entries[0]));
	registry->entries[at] = (struct registry_entry){start, len_bytes, value};
	registry->count++;
	return 0;
}

void *registry_find(const struct registry *registry, uint64_t start, uint64_t len_bytes)
{
	const struct registry_entry *entry = registry_first(registry, start, len_bytes);

	if (entry == NULL || start < entry->start ||
	    !checked_within(start - entry->start, len_bytes, entry->len_bytes))
		return NULL;
	return entry->value;
}

void *registry_overlap(const struct registry *registry, uint64_t start, uint64_t len_bytes)
{
	const struct registry_entry *entry = registry_first(registry, start, len_bytes);

	return entry == NULL ? NULL : entry->value;
}

void registry_remove(struct registry *registry, uint64_t start)
{
	size_t at = registry_behind(registry, start);

	if (at == registry->count || registry->entries[at].start != start)
		return;
	registry->count--;
	memmove(&registry->entries[at], &registry->entries[at + 1],
		(registry->count - at) * sizeof(registry->entries[0]));
}
