/* SPDX-License-Identifier: BSD-3-Clause */
/* Cases of common/clock.c; each one that replaces the source puts the kernel's back. */
#include "common/clock.h"

#include <time.h>

#include "tests/unit/test.h"

static uint64_t fake_ns;

static uint64_t fake_source(void)
{
	return fake_ns;
}

static uint64_t boottime_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_BOOTTIME, &now);
	return (uint64_t)now.tv_sec * CLOCK_NS_PER_S + (uint64_t)now.tv_nsec;
}

TEST(clock_now_ns__is_boottime)
{
	uint64_t before = boottime_ns();
	uint64_t now = clock_now_ns();

	CHECK(before <= now);
	CHECK(now <= boottime_ns());
}

TEST(clock_now_ns__source_goes_back)
{
	uint64_t first, back, same, later;

	clock_set_source(fake_source);
	fake_ns = 1000;
	first = clock_now_ns();
	fake_ns = 999;
	back = clock_now_ns();
	fake_ns = 1000;
	same = clock_now_ns();
	fake_ns = 1001;
	later = clock_now_ns();
	clock_set_source(NULL);
	CHECK_INT(first, 1000);
	CHECK_INT(back, 1000);
	CHECK_INT(same, 1000);
	CHECK_INT(later, 1001);
}

TEST(clock_set_source__forgets_highest)
{
	uint64_t high, low;

	clock_set_source(fake_source);
	fake_ns = UINT64_MAX;
	high = clock_now_ns();
	clock_set_source(fake_source);
	fake_ns = 5;
	low = clock_now_ns();
	clock_set_source(NULL);
	CHECK_INT(high, UINT64_MAX);
	CHECK_INT(low, 5);
}

TEST(clock_add_ms__exact)
{
	CHECK_INT(clock_add_ms(7, 0), 7);
	CHECK_INT(clock_add_ms(7, 1), 1000007);
	CHECK_INT(clock_add_ms(0, UINT64_MAX / CLOCK_NS_PER_MS), UINT64_C(18446744073709000000));
}

TEST(clock_add_ms__saturates)
{
	/* The product is 551615 short of the end. */
	CHECK_INT(clock_add_ms(551615, UINT64_MAX / CLOCK_NS_PER_MS), UINT64_MAX);
	CHECK_INT(clock_add_ms(551614, UINT64_MAX / CLOCK_NS_PER_MS), UINT64_MAX - 1);
	CHECK_INT(clock_add_ms(551616, UINT64_MAX / CLOCK_NS_PER_MS), UINT64_MAX);
	CHECK_INT(clock_add_ms(0, UINT64_MAX / CLOCK_NS_PER_MS + 1), UINT64_MAX);
	CHECK_INT(clock_add_ms(0, UINT64_MAX), UINT64_MAX);
}

TEST(clock_left_ms__rounds_up)
{
	CHECK_INT(clock_left_ms(CLOCK_NS_PER_MS, 0), 1);
	CHECK_INT(clock_left_ms(CLOCK_NS_PER_MS + 1, 0), 2);
	CHECK_INT(clock_left_ms(CLOCK_NS_PER_MS - 1, 0), 1);
	CHECK_INT(clock_left_ms(11, 10), 1);
	CHECK_INT(clock_left_ms(UINT64_MAX, 0), UINT64_C(18446744073710));
}

TEST(clock_left_ms__passed)
{
	CHECK_INT(clock_left_ms(10, 10), 0);
	CHECK_INT(clock_left_ms(10, 11), 0);
	CHECK_INT(clock_left_ms(0, UINT64_MAX), 0);
}
