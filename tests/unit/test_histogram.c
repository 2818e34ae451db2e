/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * common/histogram.c: exact for small values, within 12.5 % above for all others,
 * over the whole range of 64 bits; random samples are held against sorted ones.
 */
#include "common/histogram.h"

#include "tests/unit/random.h"
#include "tests/unit/test.h"

TEST(histogram_percentile__empty)
{
	static const struct histogram empty;

	CHECK_INT(histogram_percentile(&empty, 0), 0);
	CHECK_INT(histogram_percentile(&empty, 500), 0);
	CHECK_INT(histogram_percentile(&empty, 1000), 0);
}

TEST(histogram_add__counts)
{
	struct histogram histogram = {0};

	histogram_add(&histogram, 7);
	CHECK_INT(histogram.min, 7);
	histogram_add(&histogram, 3);
	histogram_add(&histogram, 1000);
	CHECK_INT(histogram.count, 3);
	CHECK_INT(histogram.sum, 1010);
	CHECK_INT(histogram.min, 3);
	CHECK_INT(histogram.max, 1000);
}

TEST(histogram_add__sum_saturates)
{
	struct histogram histogram = {0};

	histogram_add(&histogram, UINT64_MAX - 1);
	histogram_add(&histogram, 1);
	CHECK_INT(histogram.sum, UINT64_MAX);
	histogram_add(&histogram, 5);
	CHECK_INT(histogram.sum, UINT64_MAX);
	CHECK_INT(histogram.count, 3);
}

TEST(histogram_percentile__one_value_is_exact)
{
	static const uint64_t values[] = {0,
					  1,
					  7,
					  8,
					  9,
					  100,
					  4095,
					  4096,
					  1000000007,
					  INT64_MAX,
					  UINT64_C(1) << 63,
					  UINT64_MAX - 1,
					  UINT64_MAX};

	for (size_t i = 0; i < sizeof(values) / sizeof(values[0]); i++) {
		struct histogram histogram = {0};

		histogram_add(&histogram, values[i]);
		CHECK_INT(histogram_percentile(&histogram, 0), values[i]);
		CHECK_INT(histogram_percentile(&histogram, 500), values[i]);
		CHECK_INT(histogram_percentile(&histogram, 1000), values[i]);
	}
}

TEST(histogram_percentile__rank_is_rounded_up)
{
	struct histogram histogram = {0};

	for (uint64_t value = 1; value <= 10; value++)
		histogram_add(&histogram, value);
	CHECK_INT(histogram_percentile(&histogram, 0), 1);
	CHECK_INT(histogram_percentile(&histogram, 1), 1);
	CHECK_INT(histogram_percentile(&histogram, 100), 1);
	CHECK_INT(histogram_percentile(&histogram, 101), 2);
	CHECK_INT(histogram_percentile(&histogram, 500), 5);
	CHECK_INT(histogram_percentile(&histogram, 501), 6);
	CHECK_INT(histogram_percentile(&histogram, 900), 9);
	CHECK_INT(histogram_percentile(&histogram, 901), 10);
	CHECK_INT(histogram_percentile(&histogram, 1000), 10);
}

TEST(histogram_percentile__huge_count)
{
	struct histogram histogram = {.count = UINT64_MAX, .max = 5, .min = 1};

	histogram.buckets[1] = UINT64_MAX / 1000 * 500;
	histogram.buckets[5] = UINT64_MAX - histogram.buckets[1];
	CHECK_INT(histogram_percentile(&histogram, 499), 1);
	CHECK_INT(histogram_percentile(&histogram, 501), 5);
}

/* At both ends of every power of two: the bucket's end is 12.5 % off at most. */
TEST(histogram_percentile__error_bound_over_all_powers)
{
	for (unsigned int shift = 0; shift < 64; shift++) {
		for (int below = 0; below < 2; below++) {
			struct histogram histogram = {0};
			uint64_t value = (UINT64_C(1) << shift) - (uint64_t)below;
			uint64_t end;

			histogram_add(&histogram, value);
			histogram_add(&histogram, UINT64_MAX);
			end = histogram_percentile(&histogram, 500);
			CHECK(end >= value);
			CHECK(end - value <= value / 8);
		}
	}
}

TEST(histogram_add__top_buckets_are_in_range)
{
	struct histogram histogram = {0};

	histogram_add(&histogram, UINT64_MAX);
	CHECK_INT(histogram.buckets[HISTOGRAM_BUCKETS - 1], 1);
	histogram_add(&histogram, UINT64_C(15) << 60);
	CHECK_INT(histogram.buckets[HISTOGRAM_BUCKETS - 1], 2);
	histogram_add(&histogram, (UINT64_C(15) << 60) - 1);
	CHECK_INT(histogram.buckets[HISTOGRAM_BUCKETS - 2], 1);
}

static int compare_values(const void *a, const void *b)
{
	uint64_t x = *(const uint64_t *)a;
	uint64_t y = *(const uint64_t *)b;

	return (x > y) - (x < y);
}

TEST(histogram_percentile__against_sorted_samples)
{
	enum { SAMPLES = 5000 };
	static uint64_t values[SAMPLES];
	struct random random = random_start();
	struct histogram histogram = {0};

	for (size_t i = 0; i < SAMPLES; i++) {
		values[i] = random_next(&random) >> random_below(&random, 64);
		histogram_add(&histogram, values[i]);
	}
	qsort(values, SAMPLES, sizeof(values[0]), compare_values);
	CHECK_INT(histogram.min, values[0]);
	CHECK_INT(histogram.max, values[SAMPLES - 1]);
	for (uint32_t permille = 1; permille <= 1000; permille++) {
		uint64_t value = values[(SAMPLES * permille + 999) / 1000 - 1];
		uint64_t end = histogram_percentile(&histogram, permille);

		CHECK(end >= value);
		CHECK(end - value <= value / 8);
	}
}
