/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef COMMON_HISTOGRAM_H
#define COMMON_HISTOGRAM_H

#include <stdint.h>

/*
 * Distribution of durations in bounded memory: buckets whose width is 1/8 of their
 * power of two, so a percentile is at most 12.5 % above the true value. Zero-initialised = empty.
 */

#define HISTOGRAM_BUCKETS 496

struct histogram {
	uint64_t count;
	uint64_t sum;
	uint64_t max;
	uint64_t min; /* valid if count is not 0 */
	uint64_t buckets[HISTOGRAM_BUCKETS];
};

void histogram_add(struct histogram *histogram, uint64_t value);

/**
 * histogram_percentile() - upper bound of the bucket in which a share of the values ends
 * @permille: 500 = median, 990 = 99th percentile; 1000 at most
 *
 * Return: 0 if empty; never more than the largest value seen.
 */
uint64_t histogram_percentile(const struct histogram *histogram, uint32_t permille);

#endif
