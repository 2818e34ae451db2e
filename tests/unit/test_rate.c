/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * daemon/rate.c: how many requests pass at which nanosecond, and the same decisions as
 * another way of counting, which remembers no level but when the next request would be due.
 */
#include "daemon/rate.h"

#include "common/clock.h"
#include "tests/unit/random.h"
#include "tests/unit/test.h"

#define S  CLOCK_NS_PER_S
#define MS CLOCK_NS_PER_MS

static uint32_t take_all(struct rate *rate, uint64_t now_ns)
{
	uint32_t taken = 0;

	while (taken < 100000 && rate_take(rate, now_ns))
		taken++;
	return taken;
}

TEST(rate_take__burst_is_one_second)
{
	struct rate rate;

	rate_init(&rate, 5, 7 * S);
	for (int i = 0; i < 5; i++)
		CHECK(rate_take(&rate, 7 * S));
	CHECK(!rate_take(&rate, 7 * S));
	/* A long rest brings no more than that. */
	CHECK_INT(take_all(&rate, 1000 * S), 5);
}

TEST(rate_take__one_more_at_its_nanosecond)
{
	struct rate rate;

	rate_init(&rate, 5, 7 * S);
	CHECK_INT(take_all(&rate, 7 * S), 5);
	CHECK(!rate_take(&rate, 7 * S + 200 * MS - 1));
	CHECK(rate_take(&rate, 7 * S + 200 * MS));
	CHECK(!rate_take(&rate, 7 * S + 200 * MS));
	CHECK(!rate_take(&rate, 7 * S + 400 * MS - 1));
	CHECK(rate_take(&rate, 7 * S + 400 * MS));
}

/* A third of a second is no whole number of nanoseconds; asking often must not lose the rest. */
TEST(rate_take__no_drift)
{
	struct rate rate;
	uint64_t taken = 0;

	rate_init(&rate, 3, 0);
	CHECK_INT(take_all(&rate, 0), 3);
	for (uint64_t now_ns = 0; now_ns < 1000 * S; now_ns += 999983)
		taken += rate_take(&rate, now_ns);
	CHECK_INT(taken, 2999);
	CHECK(rate_take(&rate, 1000 * S));
	CHECK(!rate_take(&rate, 1000 * S));
}

TEST(rate_take__one_a_second)
{
	struct rate rate;

	rate_init(&rate, 1, 0);
	CHECK(rate_take(&rate, 0));
	CHECK(!rate_take(&rate, S - 1));
	CHECK(rate_take(&rate, S));
	CHECK(!rate_take(&rate, S));
}

TEST(rate_take__highest_rate)
{
	struct rate rate;

	rate_init(&rate, UINT32_MAX, 0);
	CHECK_INT(rate.level, UINT64_C(4294967295) * S);
	CHECK(rate_take(&rate, 0));
	rate.level = 0;
	/* Four requests and a bit come each nanosecond. */
	CHECK_INT(take_all(&rate, 1), 4);
	CHECK_INT(take_all(&rate, 10), 38);
	CHECK(rate_take(&rate, UINT64_MAX));
	CHECK_INT(rate.level, UINT64_C(4294967294) * S);
}

/* A rest in which 2^64 units come, which is 0 in 64 bits. */
TEST(rate_take__rest_that_overflows)
{
	struct rate rate;

	rate_init(&rate, UINT32_C(1) << 31, 0);
	rate.level = 0;
	CHECK(rate_take(&rate, UINT64_C(1) << 33));
	CHECK_INT(rate.level, ((UINT64_C(1) << 31) - 1) * S);
}

TEST(rate_take__unlimited)
{
	struct rate rate;

	rate_init(&rate, 0, 0);
	CHECK_INT(take_all(&rate, 0), 100000);
	CHECK(rate_take(&rate, UINT64_MAX));
}

TEST(rate_take__clock_goes_back)
{
	struct rate rate;

	rate_init(&rate, 2, 100 * S);
	CHECK_INT(take_all(&rate, 100 * S), 2);
	CHECK_INT(take_all(&rate, 0), 0);
	CHECK_INT(take_all(&rate, 99 * S), 0);
	/* The seconds before 100 s count once, when they were first seen. */
	CHECK_INT(take_all(&rate, 100 * S), 0);
	CHECK(!rate_take(&rate, 100 * S + 500 * MS - 1));
	CHECK(rate_take(&rate, 100 * S + 500 * MS));
}

TEST(rate_take__after_years)
{
	const uint64_t year_ns = UINT64_C(365) * 86400 * S;
	struct rate rate;

	rate_init(&rate, 1000, 0);
	CHECK_INT(take_all(&rate, 500 * year_ns), 1000);
	CHECK(!rate_take(&rate, 500 * year_ns + MS - 1));
	CHECK(rate_take(&rate, 500 * year_ns + MS));
	CHECK_INT(take_all(&rate, UINT64_MAX), 1000);
}

TEST(rate_set__lower)
{
	struct rate rate;

	rate_init(&rate, 10, 0);
	rate_set(&rate, 3, 0);
	CHECK_INT(take_all(&rate, 0), 3);
	CHECK(!rate_take(&rate, S / 3));
	CHECK(rate_take(&rate, S / 3 + 1));
}

TEST(rate_set__higher)
{
	struct rate rate;

	rate_init(&rate, 2, 0);
	CHECK_INT(take_all(&rate, 0), 2);
	/* Half a second at the old rate brings one, the rest comes at the new one. */
	rate_set(&rate, 10, 500 * MS);
	CHECK_INT(take_all(&rate, 500 * MS), 1);
	CHECK(!rate_take(&rate, 600 * MS - 1));
	CHECK(rate_take(&rate, 600 * MS));
	CHECK_INT(take_all(&rate, 10 * S), 10);
}

TEST(rate_set__from_and_to_unlimited)
{
	struct rate rate;

	rate_init(&rate, 0, 0);
	rate_set(&rate, 4, 10 * S);
	CHECK_INT(take_all(&rate, 10 * S), 4);
	rate_set(&rate, 0, 10 * S);
	CHECK_INT(take_all(&rate, 10 * S), 100000);
	rate_set(&rate, 4, 10 * S);
	CHECK_INT(take_all(&rate, 10 * S), 4);
}

/*
 * The model. Requests are due 1 / per_s seconds apart; one may come early by what the burst
 * allows. All is counted in 1 / per_s ns, so it is exact, too.
 */
struct model {
	unsigned __int128 due;
	uint64_t per_s;
};

static bool model_take(struct model *model, uint64_t now_ns)
{
	unsigned __int128 now = (unsigned __int128)now_ns * model->per_s;

	if (model->due > now + (unsigned __int128)(model->per_s - 1) * S)
		return false;
	model->due = (model->due > now ? model->due : now) + S;
	return true;
}

/* Requests come twice as often as is allowed, with rests of up to decades between whiles. */
static uint64_t random_step_ns(struct random *random, uint64_t per_s)
{
	if (random_below(random, 5 * per_s) == 0)
		return random_below(random, 2) == 0 ? random_below(random, 3 * S)
						    : random_below(random, 86400) * 365 * S;
	if (random_below(random, 10) == 0)
		return random_below(random, 3);
	return random_below(random, S / per_s + 2);
}

static void compare_with_model(struct random *random, uint32_t per_s)
{
	struct model model = {.per_s = per_s};
	uint64_t now_ns = random_below(random, 1000 * S);
	uint64_t passed = 0;
	struct rate rate;

	rate_init(&rate, per_s, now_ns);
	for (uint32_t i = 0; i < per_s; i++)
		CHECK(rate_take(&rate, now_ns) && model_take(&model, now_ns));
	for (int i = 0; i < 20000; i++) {
		bool expected = model_take(&model, now_ns);

		CHECK_INT(rate_take(&rate, now_ns), expected);
		passed += expected;
		now_ns += random_step_ns(random, per_s);
	}
	/* Both answers must have been among them, neither seldom. */
	CHECK(passed > 1000 && passed < 19000);
}

TEST(rate_take__as_model)
{
	static const uint32_t rates[] = {1, 2, 3, 7, 100, 1000, 999983};
	struct random random = random_start();

	for (size_t i = 0; i < sizeof(rates) / sizeof(rates[0]); i++)
		compare_with_model(&random, rates[i]);
	for (int i = 0; i < 20; i++)
		compare_with_model(&random, (uint32_t)random_below(&random, 1000) + 1);
}
