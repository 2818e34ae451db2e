/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The map of the pool. All extents, free or not, form a list in the order of their
 * offsets which covers the pool without gap or overlap; the free ones are also in a
 * tree by (length, offset), where the best fit is one look-up. Two neighbours are
 * never both free: they are coalesced when the second becomes clean. Ranges that are
 * not free keep their borders, but for leased ones that are grown or cut. Pure
 * bookkeeping on the loop's thread; the bytes themselves are never touched here.
 */
#include "daemon/extent.h"

#include <assert.h>
#include <errno.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdlib.h>

#include "common/checked.h"
#include "daemon/tree.h"

#define EXTENT_STATES 5

struct extent {
	struct tree_node free_node; /* in the map's tree while free */
	struct extent *prev;
	struct extent *next;
	uint64_t offset_bytes;
	uint64_t len_bytes;
	enum extent_state state;
};

struct extent_map {
	uint64_t size_bytes;
	uint64_t page_bytes;
	struct extent *first; /* never NULL: the pool is not empty */
	struct tree free_tree;
	uint64_t state_bytes[EXTENT_STATES];
};

/* Steps by extent_set_state(); taking and cleaning have functions of their own. */
static const bool may_follow[EXTENT_STATES][EXTENT_STATES] = {
	[EXTENT_LEASED] = {[EXTENT_DIRTY] = true},
	[EXTENT_DIRTY] = {[EXTENT_SCRUBBING] = true},
	[EXTENT_SCRUBBING] = {[EXTENT_DIRTY] = true},
};

static struct extent *extent_of(const struct tree_node *node)
{
	return (struct extent *)((uintptr_t)node - offsetof(struct extent, free_node));
}

static int compare_fit(const struct tree_node *a_node, const struct tree_node *b_node)
{
	const struct extent *a = extent_of(a_node);
	const struct extent *b = extent_of(b_node);

	if (a->len_bytes != b->len_bytes)
		return a->len_bytes < b->len_bytes ? -1 : 1;
	return (a->offset_bytes > b->offset_bytes) - (a->offset_bytes < b->offset_bytes);
}

static void move_state(struct extent_map *map, struct extent *extent, enum extent_state state)
{
	map->state_bytes[extent->state] -= extent->len_bytes;
	map->state_bytes[state] += extent->len_bytes;
	extent->state = state;
}

int extent_map_new(uint64_t size_bytes, uint64_t page_bytes, struct extent_map **ret_map)
{
	struct extent_map *map;
	struct extent *all;

	if (page_bytes == 0 || (page_bytes & (page_bytes - 1)) != 0)
		return -EINVAL;
	if (size_bytes == 0 || size_bytes % page_bytes != 0)
		return -EINVAL;
	map = calloc(1, sizeof(*map));
	if (map == NULL)
		return -ENOMEM;
	all = calloc(1, sizeof(*all));
	if (all == NULL)
		goto err_free_map;
	all->len_bytes = size_bytes;
	all->state = EXTENT_FREE;
	map->size_bytes = size_bytes;
	map->page_bytes = page_bytes;
	map->first = all;
	map->free_tree.compare = compare_fit;
	map->state_bytes[EXTENT_FREE] = size_bytes;
	tree_insert(&map->free_tree, &all->free_node);
	*ret_map = map;
	return 0;

err_free_map:
	free(map);
	return -ENOMEM;
}

struct extent_map *extent_map_free(struct extent_map *map)
{
	struct extent *next;

	if (map == NULL)
		return NULL;
	for (struct extent *extent = map->first; extent != NULL; extent = next) {
		next = extent->next;
		free(extent);
	}
	free(map);
	return NULL;
}

/* Cut an extent that is not in the tree after so many bytes; the rest, in the same state, too. */
static void split(struct extent *extent, uint64_t len_bytes, struct extent *rest)
{
	rest->offset_bytes = extent->offset_bytes + len_bytes;
	rest->len_bytes = extent->len_bytes - len_bytes;
	rest->state = extent->state;
	rest->prev = extent;
	rest->next = extent->next;
	if (rest->next != NULL)
		rest->next->prev = rest;
	extent->next = rest;
	extent->len_bytes = len_bytes;
}

int extent_take(struct extent_map *map, uint64_t len_bytes, struct extent **ret_extent)
{
	struct extent key = {0};
	struct tree_node *node;
	struct extent *extent;
	struct extent *rest = NULL;

	if (len_bytes == 0)
		return -EINVAL;
	if (!checked_round_up(len_bytes, map->page_bytes, &key.len_bytes) ||
	    key.len_bytes > map->size_bytes)
		return -E2BIG;
	node = tree_at_least(&map->free_tree, &key.free_node);
	if (node == NULL)
		return -ENOSPC;
	extent = extent_of(node);
	if (extent->len_bytes > key.len_bytes) {
		rest = calloc(1, sizeof(*rest));
		if (rest == NULL)
			return -ENOMEM;
	}
	tree_remove(&map->free_tree, node);
	if (rest != NULL) {
		split(extent, key.len_bytes, rest);
		tree_insert(&map->free_tree, &rest->free_node);
	}
	move_state(map, extent, EXTENT_LEASED);
	*ret_extent = extent;
	return 0;
}

void extent_set_state(struct extent_map *map, struct extent *extent, enum extent_state state)
{
	bool is_legal = may_follow[extent->state][state];

	assert(is_legal);
	(void)is_legal;
	move_state(map, extent, state);
}

static bool is_free(const struct extent *extent)
{
	return extent != NULL && extent->state == EXTENT_FREE;
}

/* Make one of two neighbours that are in the same state, neither of them in the tree. */
static void absorb_next(struct extent *extent)
{
	struct extent *next = extent->next;

	extent->len_bytes += next->len_bytes;
	extent->next = next->next;
	if (extent->next != NULL)
		extent->next->prev = extent;
	free(next);
}

void extent_clean(struct extent_map *map, struct extent *extent)
{
	assert(extent->state == EXTENT_SCRUBBING);
	move_state(map, extent, EXTENT_FREE);
	if (is_free(extent->prev)) {
		extent = extent->prev;
		tree_remove(&map->free_tree, &extent->free_node);
		absorb_next(extent);
	}
	if (is_free(extent->next)) {
		tree_remove(&map->free_tree, &extent->next->free_node);
		absorb_next(extent);
	}
	tree_insert(&map->free_tree, &extent->free_node);
}

/* Move the border between a leased extent and the longer free one behind it. */
static void move_border(struct extent_map *map, struct extent *extent, uint64_t add_bytes)
{
	struct extent *rest = extent->next;

	tree_remove(&map->free_tree, &rest->free_node);
	extent->len_bytes += add_bytes;
	rest->offset_bytes += add_bytes;
	rest->len_bytes -= add_bytes;
	tree_insert(&map->free_tree, &rest->free_node);
	map->state_bytes[EXTENT_FREE] -= add_bytes;
	map->state_bytes[EXTENT_LEASED] += add_bytes;
}

int extent_grow(struct extent_map *map, struct extent *extent, uint64_t len_bytes)
{
	struct extent *next = extent->next;
	uint64_t add_bytes;

	assert(extent->state == EXTENT_LEASED);
	if (!checked_round_up(len_bytes, map->page_bytes, &len_bytes) ||
	    len_bytes > map->size_bytes)
		return -E2BIG;
	assert(len_bytes >= extent->len_bytes);
	add_bytes = len_bytes - extent->len_bytes;
	if (add_bytes == 0)
		return 0;
	if (!is_free(next) || next->len_bytes < add_bytes)
		return -ENOSPC;
	if (next->len_bytes > add_bytes) {
		move_border(map, extent, add_bytes);
		return 0;
	}
	tree_remove(&map->free_tree, &next->free_node);
	move_state(map, next, EXTENT_LEASED);
	absorb_next(extent);
	return 0;
}

int extent_cut(struct extent_map *map, struct extent *extent, uint64_t len_bytes,
	       struct extent **ret_tail)
{
	struct extent *tail;

	assert(extent->state == EXTENT_LEASED);
	assert(len_bytes != 0 && len_bytes <= extent->len_bytes);
	/* Cannot overflow: the extent's own length is whole pages. */
	(void)checked_round_up(len_bytes, map->page_bytes, &len_bytes);
	if (len_bytes == extent->len_bytes) {
		*ret_tail = NULL;
		return 0;
	}
	tail = calloc(1, sizeof(*tail));
	if (tail == NULL)
		return -ENOMEM;
	split(extent, len_bytes, tail);
	*ret_tail = tail;
	return 0;
}

/* Retire [begin, end) of a free extent, which it overlaps. Return: the last of the pieces. */
static struct extent *retire_part(struct extent_map *map, struct extent *extent, uint64_t begin,
				  uint64_t end)
{
	struct extent *bad = begin > extent->offset_bytes ? calloc(1, sizeof(*bad)) : NULL;
	struct extent *rest =
		end < extent->offset_bytes + extent->len_bytes ? calloc(1, sizeof(*rest)) : NULL;

	tree_remove(&map->free_tree, &extent->free_node);
	if (rest != NULL) {
		split(extent, end - extent->offset_bytes, rest);
		tree_insert(&map->free_tree, &rest->free_node);
	}
	if (bad != NULL) {
		split(extent, begin - extent->offset_bytes, bad);
		tree_insert(&map->free_tree, &extent->free_node);
		extent = bad;
	}
	move_state(map, extent, EXTENT_RETIRED);
	return rest != NULL ? rest : extent;
}

uint64_t extent_retire(struct extent_map *map, uint64_t offset_bytes, uint64_t len_bytes)
{
	uint64_t before_bytes = map->state_bytes[EXTENT_RETIRED];
	uint64_t begin = offset_bytes & ~(map->page_bytes - 1);
	uint64_t end;

	if (!checked_add(offset_bytes, len_bytes, &end) ||
	    !checked_round_up(end, map->page_bytes, &end))
		end = map->size_bytes;
	for (struct extent *extent = map->first; extent != NULL; extent = extent->next) {
		if (extent->offset_bytes >= end)
			break;
		if (is_free(extent) && extent->offset_bytes + extent->len_bytes > begin)
			extent = retire_part(map, extent, begin, end);
	}
	return map->state_bytes[EXTENT_RETIRED] - before_bytes;
}

uint64_t extent_offset_bytes(const struct extent *extent)
{
	return extent->offset_bytes;
}

uint64_t extent_len_bytes(const struct extent *extent)
{
	return extent->len_bytes;
}

enum extent_state extent_state(const struct extent *extent)
{
	return extent->state;
}

void extent_map_totals(const struct extent_map *map, struct extent_totals *ret_totals)
{
	const struct tree_node *largest = tree_last(&map->free_tree);

	*ret_totals = (struct extent_totals){
		.free_bytes = map->state_bytes[EXTENT_FREE],
		.leased_bytes = map->state_bytes[EXTENT_LEASED],
		.dirty_bytes = map->state_bytes[EXTENT_DIRTY] + map->state_bytes[EXTENT_SCRUBBING],
		.retired_bytes = map->state_bytes[EXTENT_RETIRED],
		.largest_free_bytes = largest == NULL ? 0 : extent_of(largest)->len_bytes,
	};
}

int extent_map_could_fit(const struct extent_map *map, uint64_t len_bytes)
{
	uint64_t run_bytes = 0;

	if (len_bytes == 0)
		return false;
	/* Runs are whole pages, so the unrounded length gives the same answer. */
	for (const struct extent *extent = map->first; extent != NULL; extent = extent->next) {
		if (extent->state == EXTENT_LEASED || extent->state == EXTENT_RETIRED)
			run_bytes = 0;
		else
			run_bytes += extent->len_bytes;
		if (run_bytes >= len_bytes)
			return true;
	}
	return false;
}

void extent_map_check(const struct extent_map *map)
{
	uint64_t state_bytes[EXTENT_STATES] = {0};
	const struct extent *prev = NULL;
	uint64_t end_bytes = 0;
	size_t free_count = 0;

	for (const struct extent *extent = map->first; extent != NULL; extent = extent->next) {
		assert(extent->prev == prev && extent->offset_bytes == end_bytes);
		assert(extent->len_bytes != 0 && extent->len_bytes % map->page_bytes == 0);
		state_bytes[extent->state] += extent->len_bytes;
		end_bytes += extent->len_bytes;
		if (is_free(extent)) {
			assert(!is_free(extent->prev));
			assert(tree_at_least(&map->free_tree, &extent->free_node) ==
			       &extent->free_node);
			free_count++;
		}
		prev = extent;
	}
	(void)prev; /* without assertions */
	(void)end_bytes;
	assert(end_bytes == map->size_bytes);
	assert(tree_check(&map->free_tree) == free_count);
	for (int state = 0; state < EXTENT_STATES; state++)
		assert(state_bytes[state] == map->state_bytes[state]);
}
