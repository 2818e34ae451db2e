/* SPDX-License-Identifier: BSD-3-Clause */
/* common/secure.c: that each name reaches the right function of the library. */
#include "common/secure.h"

#include <string.h>

#include "tests/unit/test.h"

TEST(secure_init__again)
{
	CHECK_INT(secure_init(), 0);
	CHECK_INT(secure_init(), 0);
}

TEST(secure_random__fills_all_and_no_more)
{
	uint8_t ors[66] = {0};

	CHECK_INT(secure_init(), 0);
	/* A byte stays 0 in 64 fills with a chance of 2^-512. */
	for (int fill = 0; fill < 64; fill++) {
		uint8_t buf[66] = {0};

		secure_random(buf + 1, 64);
		for (size_t i = 0; i < sizeof(buf); i++)
			ors[i] |= buf[i];
	}
	CHECK_INT(ors[0], 0);
	CHECK_INT(ors[65], 0);
	for (size_t i = 1; i <= 64; i++)
		CHECK(ors[i] != 0);
}

TEST(secure_random__differs_each_time)
{
	uint8_t a[16];
	uint8_t b[16];

	CHECK_INT(secure_init(), 0);
	secure_random(a, sizeof(a));
	secure_random(b, sizeof(b));
	CHECK(memcmp(a, b, sizeof(a)) != 0);
}

TEST(secure_random__empty)
{
	uint8_t byte = 0x5a;

	CHECK_INT(secure_init(), 0);
	secure_random(&byte, 0);
	CHECK_INT(byte, 0x5a);
}

TEST(secure_uniform__every_value_below_the_bound)
{
	unsigned int counts[7] = {0};

	CHECK_INT(secure_init(), 0);
	for (int i = 0; i < 7000; i++) {
		uint32_t value = secure_uniform(7);

		CHECK(value < 7);
		counts[value]++;
	}
	/* 1000 expected, standard deviation 29: 15 of them either way. */
	for (size_t i = 0; i < 7; i++)
		CHECK(counts[i] > 560 && counts[i] < 1440);
}

TEST(secure_uniform__bound_of_one)
{
	CHECK_INT(secure_init(), 0);
	for (int i = 0; i < 100; i++)
		CHECK_INT(secure_uniform(1), 0);
}

TEST(secure_uniform__greatest_bound)
{
	uint32_t ors = 0;

	CHECK_INT(secure_init(), 0);
	for (int i = 0; i < 64; i++)
		ors |= secure_uniform(UINT32_MAX);
	CHECK_INT(ors, UINT32_MAX);
}

TEST(secure_equal__each_byte_counts)
{
	uint8_t a[32];
	uint8_t b[32];

	memset(a, 0xa5, sizeof(a));
	memcpy(b, a, sizeof(a));
	CHECK(secure_equal(a, b, sizeof(a)));
	for (size_t i = 0; i < sizeof(b); i++) {
		b[i] ^= 1;
		CHECK(!secure_equal(a, b, sizeof(a)));
		CHECK(secure_equal(a, b, i));
		b[i] ^= 1;
	}
}

TEST(secure_equal__empty)
{
	CHECK(secure_equal("a", "b", 0));
}

TEST(secure_wipe__exactly_the_range)
{
	uint8_t buf[10];
	static const uint8_t expected[10] = {1, 0, 0, 0, 0, 0, 0, 0, 0, 1};

	memset(buf, 1, sizeof(buf));
	secure_wipe(buf + 1, 8);
	CHECK_MEM(buf, expected, sizeof(buf));
	secure_wipe(buf, 0);
	CHECK_INT(buf[0], 1);
}
