/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Buckets: one for each value below 8, then eight of equal width for each power of
 * two. So the first three bits of a value after its highest choose the bucket, and
 * no value is out of range. The sum saturates rather than wraps. No locks: the owner
 * sees to it that one thread uses a histogram at a time.
 */
#include "common/histogram.h"

#include <assert.h>
#include <stddef.h>

#include "common/checked.h"

#define SUB_BITS  3 /* 8 buckets for each power of two */
#define SUB_COUNT ((size_t)1 << SUB_BITS)

static_assert(HISTOGRAM_BUCKETS == (64 - SUB_BITS + 1) * SUB_COUNT, "all 64-bit values");

static size_t bucket_of(uint64_t value)
{
	unsigned int shift;

	if (value < SUB_COUNT)
		return (size_t)value;
	shift = 63 - SUB_BITS - (unsigned int)__builtin_clzll(value);
	return (shift + 1) * SUB_COUNT + (size_t)((value >> shift) & (SUB_COUNT - 1));
}

/* The greatest value that falls into a bucket. */
static uint64_t bucket_end(size_t bucket)
{
	uint64_t leading = SUB_COUNT + bucket % SUB_COUNT;
	size_t shift;

	if (bucket < SUB_COUNT)
		return bucket;
	shift = bucket / SUB_COUNT - 1;
	return (leading << shift) + ((UINT64_C(1) << shift) - 1);
}

static uint64_t add_saturating(uint64_t a, uint64_t b)
{
	uint64_t sum;

	return checked_add(a, b, &sum) ? sum : UINT64_MAX;
}

void histogram_add(struct histogram *histogram, uint64_t value)
{
	if (histogram->count == 0 || value < histogram->min)
		histogram->min = value;
	if (value > histogram->max)
		histogram->max = value;
	histogram->count++;
	histogram->sum = add_saturating(histogram->sum, value);
	histogram->buckets[bucket_of(value)]++;
}

/* How many of the values make up a share: rounded up, at least one. */
static uint64_t share_of(uint64_t count, uint32_t permille)
{
	uint64_t share = count / 1000 * permille + (count % 1000 * permille + 999) / 1000;

	return share == 0 ? 1 : share;
}

uint64_t histogram_percentile(const struct histogram *histogram, uint32_t permille)
{
	uint64_t share;
	uint64_t seen = 0;

	assert(permille <= 1000);
	if (histogram->count == 0)
		return 0;
	share = share_of(histogram->count, permille);
	for (size_t i = 0; i < HISTOGRAM_BUCKETS; i++) {
		seen += histogram->buckets[i];
		if (seen >= share) {
			uint64_t end = bucket_end(i);

			return end < histogram->max ? end : histogram->max;
		}
	}
	return histogram->max;
}
