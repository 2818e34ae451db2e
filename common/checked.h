/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef COMMON_CHECKED_H
#define COMMON_CHECKED_H

#include <stdbool.h>
#include <stdint.h>

/* Arithmetic on offsets and lengths that notices when it does not fit. */

static inline bool checked_add(uint64_t a, uint64_t b, uint64_t *ret_sum)
{
	return !__builtin_add_overflow(a, b, ret_sum);
}

static inline bool checked_mul(uint64_t a, uint64_t b, uint64_t *ret_product)
{
	return !__builtin_mul_overflow(a, b, ret_product);
}

/* Is [offset, offset + len) within [0, size)? An empty range is within if its offset is. */
static inline bool checked_within(uint64_t offset, uint64_t len, uint64_t size)
{
	return offset <= size && len <= size - offset;
}

/* Round up to a multiple of align, a power of two. */
static inline bool checked_round_up(uint64_t value, uint64_t align, uint64_t *ret_rounded)
{
	uint64_t sum;

	if (!checked_add(value, align - 1, &sum))
		return false;
	*ret_rounded = sum & ~(align - 1);
	return true;
}

#endif
