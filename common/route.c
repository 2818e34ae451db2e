/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Table from 32-bit routes to objects. A route is a slot number (20 bits) under a generation
 * (12 bits, never 0) that changes whenever the slot is used again. Free slots are chained in
 * a queue, oldest first, so that a generation comes back as late as possible.
 *
 * Thread: one.
 */
#include "common/route.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>

#define ROUTE_SLOT_BITS	  20
#define ROUTE_SLOTS_MAX	  (1u << ROUTE_SLOT_BITS)
#define ROUTE_GENERATIONS (1u << (32 - ROUTE_SLOT_BITS))
#define ROUTE_NONE	  UINT32_MAX

struct route_entry {
	void *object; /* NULL: free */
	uint32_t generation;
	uint32_t next_free;
};

void route_table_deinit(struct route_table *table)
{
	assert(table->used == 0);
	free(table->entries);
	*table = (struct route_table){0};
}

static void route_free_slot(struct route_table *table, uint32_t slot)
{
	table->entries[slot].object = NULL;
	table->entries[slot].next_free = ROUTE_NONE;
	if (table->free_first == ROUTE_NONE)
		table->free_first = slot;
	else
		table->entries[table->free_last].next_free = slot;
	table->free_last = slot;
}

static int route_grow(struct route_table *table)
{
	uint32_t capacity = table->capacity == 0 ? 64 : table->capacity * 2;
	struct route_entry *entries;

	if (capacity > ROUTE_SLOTS_MAX)
		return -ENOMEM;
	entries = realloc(table->entries, capacity * sizeof(*entries));
	if (entries == NULL)
		return -ENOMEM;
	table->entries = entries;
	table->free_first = ROUTE_NONE;
	for (uint32_t slot = table->capacity; slot < capacity; slot++) {
		entries[slot].generation = 0;
		route_free_slot(table, slot);
	}
	table->capacity = capacity;
	return 0;
}

int route_add(struct route_table *table, void *object, uint32_t *ret_route)
{
	struct route_entry *entry;
	uint32_t slot;

	assert(object != NULL);
	if (table->used == table->capacity && route_grow(table) < 0)
		return -ENOMEM;
	slot = table->free_first;
	entry = &table->entries[slot];
	table->free_first = entry->next_free;
	entry->object = object;
	entry->generation = entry->generation % (ROUTE_GENERATIONS - 1) + 1;
	table->used++;
	*ret_route = entry->generation << ROUTE_SLOT_BITS | slot;
	return 0;
}

void *route_find(const struct route_table *table, uint32_t route)
{
	uint32_t slot = route % ROUTE_SLOTS_MAX;

	if (slot >= table->capacity || table->entries[slot].generation != route >> ROUTE_SLOT_BITS)
		return NULL;
	return table->entries[slot].object;
}

void route_remove(struct route_table *table, uint32_t route)
{
	if (route == 0)
		return;
	assert(route_find(table, route) != NULL);
	table->used--;
	route_free_slot(table, route % ROUTE_SLOTS_MAX);
}
