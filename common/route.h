/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef COMMON_ROUTE_H
#define COMMON_ROUTE_H

#include <stddef.h>
#include <stdint.h>

/*
 * From a completion to its object. A work request's id is {route, index}; the route names
 * the object in a table. Soft-RoCE leaves the completions of a destroyed QP in the queue,
 * so an id must never be a pointer: a route that is gone is simply not found.
 */

struct route_table {
	struct route_entry *entries;
	uint32_t capacity;
	uint32_t used;
	uint32_t free_first; /* freed slots are used again in order of freeing */
	uint32_t free_last;
};

/** route_table_deinit() - all zero is allowed; no route may be left (asserted) */
void route_table_deinit(struct route_table *table);

/** route_add() - Return: 0, or -ENOMEM (also at the limit of 2^20 objects) */
int route_add(struct route_table *table, void *object, uint32_t *ret_route);

/** route_remove() - @route: 0 is allowed */
void route_remove(struct route_table *table, uint32_t route);

/** route_find() - Return: the object, or NULL if the route is gone */
void *route_find(const struct route_table *table, uint32_t route);

static inline uint64_t route_wr_id(uint32_t route, uint32_t index)
{
	return (uint64_t)route << 32 | index;
}

static inline uint32_t route_of(uint64_t wr_id)
{
	return (uint32_t)(wr_id >> 32);
}

static inline uint32_t route_index(uint64_t wr_id)
{
	return (uint32_t)wr_id;
}

#endif
