/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef DAEMON_EXTENT_H
#define DAEMON_EXTENT_H

#include <stdint.h>

/*
 * Which bytes of the pool belong to whom: pure bookkeeping, in whole pages.
 * A range is free-clean, leased, dirty (given back, waits for the scrubber)
 * or being scrubbed.
 */

struct extent_map;

enum extent_state {
	EXTENT_FREE,	  /* zeroed, may be lent */
	EXTENT_LEASED,	  /* lent, or still reachable by a device */
	EXTENT_DIRTY,	  /* behind the fence, not yet zeroed */
	EXTENT_SCRUBBING, /* a worker is zeroing it */
	EXTENT_RETIRED,	  /* damaged: never lent again */
};

/* A range taken by extent_take(): owned by the map, valid until extent_clean(). */
struct extent;

struct extent_totals {
	uint64_t free_bytes;
	uint64_t leased_bytes;
	uint64_t dirty_bytes; /* dirty and being scrubbed */
	uint64_t retired_bytes;
	uint64_t largest_free_bytes;
};

/**
 * extent_map_new() - a map of a pool that is all free and clean
 * @size_bytes: multiple of @page_bytes, not 0
 * @page_bytes: a power of two
 * @ret_map: the map
 *
 * Return: 0, -EINVAL, -ENOMEM.
 */
int extent_map_new(uint64_t size_bytes, uint64_t page_bytes, struct extent_map **ret_map);

/**
 * extent_map_free() - free the map and all its extents; NULL is allowed
 *
 * Return: NULL.
 */
struct extent_map *extent_map_free(struct extent_map *map);

/**
 * extent_take() - lend a range
 * @len_bytes: not 0; rounded up to whole pages
 * @ret_extent: the range, in state EXTENT_LEASED
 *
 * O(log n). Best fit: the smallest free range that is long enough, the lowest
 * offset among equals.
 * Return: 0, -EINVAL (0 bytes), -E2BIG (longer than the pool, also when rounding
 * up overflows), -ENOSPC (no free range is long enough now), -ENOMEM.
 */
int extent_take(struct extent_map *map, uint64_t len_bytes, struct extent **ret_extent);

/**
 * extent_set_state() - leased -> dirty, dirty -> scrubbing, scrubbing -> dirty (the scrub failed)
 *
 * Any other step is a mistake of ours and asserted.
 */
void extent_set_state(struct extent_map *map, struct extent *extent, enum extent_state state);

/**
 * extent_clean() - a range has been zeroed: scrubbing -> free, coalesced with its neighbours
 * @extent: consumed
 */
void extent_clean(struct extent_map *map, struct extent *extent);

/**
 * extent_grow() - make a leased range longer in place
 * @len_bytes: wanted; rounded up to whole pages; not shorter than it is (asserted)
 *
 * O(log n). Return: 0 (also if no page had to be added), -E2BIG (longer than the pool, or
 * rounding overflows), -ENOSPC (the bytes behind it are not free and clean, or too few).
 * On failure nothing has changed.
 */
int extent_grow(struct extent_map *map, struct extent *extent, uint64_t len_bytes);

/**
 * extent_cut() - cut whole pages off the end of a leased range
 * @len_bytes: that it keeps, not 0, not more than it has (asserted); rounded up to whole pages
 * @ret_tail: the pages cut off, a range of its own in state EXTENT_LEASED; NULL if there are none
 *
 * O(log n). Return: 0 or -ENOMEM (nothing has changed).
 */
int extent_cut(struct extent_map *map, struct extent *extent, uint64_t len_bytes,
	       struct extent **ret_tail);

/**
 * extent_retire() - take what is free of a range out of use for ever
 * @offset_bytes, @len_bytes: rounded outwards to whole pages; what lies outside the pool is ignored
 *
 * What of it is not free now is left as it is. O(n). Without memory for the bookkeeping more is
 * retired than was asked for, all of a free range at worst. Return: bytes retired.
 */
uint64_t extent_retire(struct extent_map *map, uint64_t offset_bytes, uint64_t len_bytes);

uint64_t extent_offset_bytes(const struct extent *extent);
uint64_t extent_len_bytes(const struct extent *extent); /* whole pages */
enum extent_state extent_state(const struct extent *extent);

/**
 * extent_map_totals() - O(1) sums; largest_free_bytes O(log n)
 */
void extent_map_totals(const struct extent_map *map, struct extent_totals *ret_totals);

/**
 * extent_map_could_fit() - would a length fit if everything dirty were clean?
 * @len_bytes: as asked for
 *
 * True if some run of neighbouring free, dirty and being-scrubbed ranges is long
 * enough; O(n) at worst, for the slow path of an acquire that did not fit.
 */
int extent_map_could_fit(const struct extent_map *map, uint64_t len_bytes);

/**
 * extent_map_check() - assert all invariants (tests; O(n))
 */
void extent_map_check(const struct extent_map *map);

#endif
