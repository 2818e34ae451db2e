/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * common/checked.h: each operation at the last value that fits and the first that
 * does not, and that a refusal leaves the output alone where it is promised.
 */
#include "common/checked.h"

#include "tests/unit/test.h"

TEST(checked_add__up_to_the_limit)
{
	uint64_t sum = 1;

	CHECK(checked_add(0, 0, &sum));
	CHECK_INT(sum, 0);
	CHECK(checked_add(UINT64_MAX, 0, &sum));
	CHECK_INT(sum, UINT64_MAX);
	CHECK(checked_add(UINT64_MAX - 5, 5, &sum));
	CHECK_INT(sum, UINT64_MAX);
}

TEST(checked_add__overflow)
{
	uint64_t sum;

	CHECK(!checked_add(UINT64_MAX, 1, &sum));
	CHECK(!checked_add(UINT64_MAX - 5, 6, &sum));
	CHECK(!checked_add(UINT64_MAX, UINT64_MAX, &sum));
}

TEST(checked_mul__up_to_the_limit)
{
	uint64_t product = 1;

	CHECK(checked_mul(UINT64_MAX, 0, &product));
	CHECK_INT(product, 0);
	CHECK(checked_mul(UINT64_MAX, 1, &product));
	CHECK_INT(product, UINT64_MAX);
	CHECK(checked_mul(UINT64_C(0xffffffff), UINT64_C(0x100000001), &product));
	CHECK_INT(product, UINT64_MAX);
}

TEST(checked_mul__overflow)
{
	uint64_t product;

	CHECK(!checked_mul(UINT64_C(1) << 32, UINT64_C(1) << 32, &product));
	CHECK(!checked_mul(UINT64_MAX, 2, &product));
	CHECK(!checked_mul(UINT64_C(0x100000000), UINT64_C(0x100000001), &product));
}

TEST(checked_within__boundaries)
{
	CHECK(checked_within(0, 100, 100));
	CHECK(!checked_within(0, 101, 100));
	CHECK(checked_within(99, 1, 100));
	CHECK(!checked_within(99, 2, 100));
	CHECK(!checked_within(100, 1, 100));
}

TEST(checked_within__empty_range)
{
	CHECK(checked_within(0, 0, 0));
	CHECK(checked_within(100, 0, 100));
	CHECK(!checked_within(101, 0, 100));
}

TEST(checked_within__sum_overflows)
{
	CHECK(!checked_within(1, UINT64_MAX, 100));
	CHECK(!checked_within(UINT64_MAX, 1, UINT64_MAX));
	CHECK(!checked_within(UINT64_MAX - 1, 2, UINT64_MAX));
	CHECK(checked_within(UINT64_MAX - 1, 1, UINT64_MAX));
	CHECK(checked_within(0, UINT64_MAX, UINT64_MAX));
}

TEST(checked_round_up__boundaries)
{
	uint64_t rounded = 7;

	CHECK(checked_round_up(0, 4096, &rounded));
	CHECK_INT(rounded, 0);
	CHECK(checked_round_up(1, 4096, &rounded));
	CHECK_INT(rounded, 4096);
	CHECK(checked_round_up(4096, 4096, &rounded));
	CHECK_INT(rounded, 4096);
	CHECK(checked_round_up(4097, 4096, &rounded));
	CHECK_INT(rounded, 8192);
	CHECK(checked_round_up(UINT64_MAX, 1, &rounded));
	CHECK_INT(rounded, UINT64_MAX);
}

TEST(checked_round_up__overflow)
{
	uint64_t rounded = 7;

	CHECK(checked_round_up(UINT64_MAX - 4095, 4096, &rounded));
	CHECK_INT(rounded, UINT64_MAX - 4095);
	rounded = 7;
	CHECK(!checked_round_up(UINT64_MAX - 4094, 4096, &rounded));
	CHECK(!checked_round_up(UINT64_MAX, 2, &rounded));
	CHECK_INT(rounded, 7);
}
