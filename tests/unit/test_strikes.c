/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * daemon/strikes.c and daemon/back_off.h: which strike brings which wait and which the ban,
 * when what is over, and which access errors are pardoned.
 */
#include "daemon/strikes.h"

#include "common/clock.h"
#include "daemon/back_off.h"
#include "tests/unit/abort.h"
#include "tests/unit/random.h"
#include "tests/unit/test.h"

#define S  CLOCK_NS_PER_S
#define MS CLOCK_NS_PER_MS

static const struct strike_limits limits = {
	.strikes_max = 5,
	.decay_ms = 60000,
	.back_off_min_ms = 100,
	.back_off_max_ms = 250,
	.ban_ms = 300000,
	.grace_ms = 2000,
	.pardons_max = 5,
};

/* A tenant on the way to its ban, with a second between strikes from @now_ns on. */
static void add_strikes(struct strikes *strikes, uint32_t count, uint64_t now_ns)
{
	for (uint32_t i = 0; i < count; i++)
		(void)strikes_add(strikes, &limits, STRIKE_ACCESS, now_ns + i * S);
}

TEST(back_off_ms__doubles_to_its_limit)
{
	CHECK_INT(back_off_ms(100, 1000, 0), 0);
	CHECK_INT(back_off_ms(100, 1000, 1), 100);
	CHECK_INT(back_off_ms(100, 1000, 2), 200);
	CHECK_INT(back_off_ms(100, 1000, 4), 800);
	CHECK_INT(back_off_ms(100, 1000, 5), 1000);
	CHECK_INT(back_off_ms(100, 800, 4), 800);
	CHECK_INT(back_off_ms(100, 799, 4), 799);
	CHECK_INT(back_off_ms(100, 99, 1), 99);
	CHECK_INT(back_off_ms(0, 1000, 9), 0);
}

TEST(back_off_ms__does_not_overflow)
{
	CHECK_INT(back_off_ms(1, UINT64_MAX, 64), UINT64_C(1) << 63);
	CHECK_INT(back_off_ms(1, UINT64_MAX, 65), UINT64_MAX);
	CHECK_INT(back_off_ms(3, UINT64_MAX, 63), UINT64_C(3) << 62);
	CHECK_INT(back_off_ms(3, UINT64_MAX, 64), UINT64_MAX);
	CHECK_INT(back_off_ms(UINT64_MAX, UINT64_MAX, 2), UINT64_MAX);
	CHECK_INT(back_off_ms(1, 1000, UINT64_MAX), 1000);
}

TEST(strikes_add__ban_at_the_last)
{
	struct strikes strikes = {0};

	for (uint64_t i = 1; i < 5; i++) {
		CHECK_INT(strikes_add(&strikes, &limits, STRIKE_ACCESS, i * S), STRIKE_COUNTED);
		CHECK_INT(strikes_count(&strikes, &limits, i * S), i);
		CHECK_INT(strikes_banned_until_ns(&strikes, i * S), 0);
	}
	CHECK_INT(strikes_add(&strikes, &limits, STRIKE_PROTOCOL, 5 * S), STRIKE_BAN);
	CHECK_INT(strikes_banned_until_ns(&strikes, 5 * S), 305 * S);
	CHECK_INT(strikes.total[STRIKE_ACCESS], 4);
	CHECK_INT(strikes.total[STRIKE_PROTOCOL], 1);
	CHECK_INT(strikes.bans_total, 1);
}

TEST(strikes_add__ban_is_over_at_its_nanosecond)
{
	struct strikes strikes = {0};

	add_strikes(&strikes, 5, 0);
	CHECK_INT(strikes_banned_until_ns(&strikes, 304 * S - 1), 304 * S);
	CHECK_INT(strikes_banned_until_ns(&strikes, 304 * S), 0);
	/* Nothing is left of what led to it, nor of the wait for lanes. */
	CHECK_INT(strikes_count(&strikes, &limits, 4 * S), 0);
	CHECK_INT(strikes_lane_from_ns(&strikes, 4 * S), 0);
	CHECK_INT(strikes_add(&strikes, &limits, STRIKE_ACCESS, 304 * S), STRIKE_COUNTED);
	CHECK_INT(strikes_count(&strikes, &limits, 304 * S), 1);
}

TEST(strikes_add__during_a_ban)
{
	struct strikes strikes = {0};

	add_strikes(&strikes, 5, 0);
	for (int i = 0; i < 20; i++)
		CHECK_INT(strikes_add(&strikes, &limits, STRIKE_ACCESS, 304 * S - 1),
			  STRIKE_BANNED_YET);
	CHECK_INT(strikes.total[STRIKE_ACCESS], 25);
	CHECK_INT(strikes.bans_total, 1);
	CHECK_INT(strikes_banned_until_ns(&strikes, 304 * S - 1), 304 * S);
	CHECK_INT(strikes_banned_until_ns(&strikes, 304 * S), 0);
	CHECK_INT(strikes_count(&strikes, &limits, 304 * S), 0);
	CHECK_INT(strikes_lane_from_ns(&strikes, 304 * S - 1), 0);
}

/* The ban takes the place of the wait for lanes. */
TEST(strikes_add__ban_ends_the_wait)
{
	struct strikes strikes = {0};

	for (int i = 0; i < 4; i++)
		CHECK_INT(strikes_add(&strikes, &limits, STRIKE_ACCESS, 0), STRIKE_COUNTED);
	CHECK_INT(strikes_lane_from_ns(&strikes, 0), 250 * MS);
	CHECK_INT(strikes_add(&strikes, &limits, STRIKE_ACCESS, 0), STRIKE_BAN);
	CHECK_INT(strikes_lane_from_ns(&strikes, 0), 0);
}

TEST(strikes_add__forgotten_at_its_nanosecond)
{
	struct strikes strikes = {0};

	add_strikes(&strikes, 4, 10 * S); /* at 10, 11, 12 and 13 s */
	CHECK_INT(strikes_count(&strikes, &limits, 70 * S - 1), 4);
	CHECK_INT(strikes_count(&strikes, &limits, 70 * S), 3);
	CHECK_INT(strikes_count(&strikes, &limits, 73 * S - 1), 1);
	CHECK_INT(strikes_count(&strikes, &limits, 73 * S), 0);
}

TEST(strikes_add__fifth_just_in_time_and_just_too_late)
{
	struct strikes strikes = {0};

	add_strikes(&strikes, 4, 10 * S);
	CHECK_INT(strikes_add(&strikes, &limits, STRIKE_ACCESS, 70 * S - 1), STRIKE_BAN);
	strikes = (struct strikes){0};
	add_strikes(&strikes, 4, 10 * S);
	CHECK_INT(strikes_add(&strikes, &limits, STRIKE_ACCESS, 70 * S), STRIKE_COUNTED);
	CHECK_INT(strikes_count(&strikes, &limits, 70 * S), 4);
}

TEST(strikes_add__never_banned)
{
	struct strike_limits no_ban = limits;
	struct strikes strikes = {0};

	no_ban.strikes_max = 0;
	for (uint64_t i = 0; i < 1000; i++)
		CHECK_INT(strikes_add(&strikes, &no_ban, STRIKE_ACCESS, i), STRIKE_COUNTED);
	CHECK_INT(strikes_count(&strikes, &no_ban, 1000), STRIKES_CAP);
	/* Those that are kept are the last ones. */
	CHECK_INT(strikes_count(&strikes, &no_ban, 60 * S + 1000 - STRIKES_CAP - 1), STRIKES_CAP);
	CHECK_INT(strikes_count(&strikes, &no_ban, 60 * S + 1000 - STRIKES_CAP), STRIKES_CAP - 1);
	CHECK_INT(strikes_count(&strikes, &no_ban, 60 * S + 999), 0);
}

TEST(strikes_add__most_strikes)
{
	struct strike_limits most = limits;
	struct strikes strikes = {0};

	most.strikes_max = STRIKES_CAP;
	for (int round = 0; round < 3; round++) {
		uint64_t at_ns = (uint64_t)round * 301 * S;

		for (int i = 1; i < STRIKES_CAP; i++)
			CHECK_INT(strikes_add(&strikes, &most, STRIKE_ACCESS, at_ns),
				  STRIKE_COUNTED);
		CHECK_INT(strikes_add(&strikes, &most, STRIKE_ACCESS, at_ns), STRIKE_BAN);
	}
}

struct too_many {
	struct strikes strikes;
	struct strike_limits limits;
};

static void add_one(void *arg)
{
	struct too_many *too_many = arg;

	(void)strikes_add(&too_many->strikes, &too_many->limits, STRIKE_ACCESS, 0);
}

TEST(strikes_add__more_than_can_be_kept)
{
	struct too_many too_many = {.limits = limits};

	too_many.limits.strikes_max = STRIKES_CAP;
	CHECK(!test_aborts(add_one, &too_many));
	too_many.limits.strikes_max = STRIKES_CAP + 1;
	CHECK(test_aborts(add_one, &too_many));
}

TEST(strikes_lane_from_ns__doubles)
{
	struct strikes strikes = {0};

	CHECK_INT(strikes_lane_from_ns(&strikes, 0), 0);
	(void)strikes_add(&strikes, &limits, STRIKE_ACCESS, 1 * S);
	CHECK_INT(strikes_lane_from_ns(&strikes, 1 * S), 0);
	(void)strikes_add(&strikes, &limits, STRIKE_ACCESS, 2 * S);
	CHECK_INT(strikes_lane_from_ns(&strikes, 2 * S), 2 * S + 100 * MS);
	CHECK_INT(strikes_lane_from_ns(&strikes, 2 * S + 100 * MS - 1), 2 * S + 100 * MS);
	CHECK_INT(strikes_lane_from_ns(&strikes, 2 * S + 100 * MS), 0);
	(void)strikes_add(&strikes, &limits, STRIKE_ACCESS, 3 * S);
	CHECK_INT(strikes_lane_from_ns(&strikes, 3 * S), 3 * S + 200 * MS);
	(void)strikes_add(&strikes, &limits, STRIKE_ACCESS, 4 * S);
	CHECK_INT(strikes_lane_from_ns(&strikes, 4 * S), 4 * S + 250 * MS);
}

/* Peace makes the next wait short again. */
TEST(strikes_lane_from_ns__after_decay)
{
	struct strikes strikes = {0};

	add_strikes(&strikes, 3, 0);
	(void)strikes_add(&strikes, &limits, STRIKE_ACCESS, 61 * S);
	CHECK_INT(strikes_count(&strikes, &limits, 61 * S), 2);
	CHECK_INT(strikes_lane_from_ns(&strikes, 61 * S), 61 * S + 100 * MS);
}

/* Forgotten strikes make the later wait shorter, but not the one that runs. */
TEST(strikes_lane_from_ns__never_earlier)
{
	struct strike_limits slow = limits;
	struct strikes strikes = {0};

	slow.back_off_min_ms = 40000;
	slow.back_off_max_ms = 80000;
	for (uint64_t i = 0; i < 3; i++)
		(void)strikes_add(&strikes, &slow, STRIKE_ACCESS, i * S);
	CHECK_INT(strikes_lane_from_ns(&strikes, 2 * S), 82 * S);
	(void)strikes_add(&strikes, &slow, STRIKE_ACCESS, 62 * S);
	CHECK_INT(strikes_count(&strikes, &slow, 62 * S), 1);
	CHECK_INT(strikes_lane_from_ns(&strikes, 62 * S), 82 * S);
}

TEST(strikes_unban__as_new)
{
	struct strikes strikes = {0};

	CHECK(!strikes_unban(&strikes, 0));
	add_strikes(&strikes, 5, 0);
	CHECK(strikes_unban(&strikes, 5 * S));
	CHECK_INT(strikes_banned_until_ns(&strikes, 5 * S), 0);
	CHECK(!strikes_unban(&strikes, 5 * S));
	CHECK_INT(strikes.bans_total, 1);
	add_strikes(&strikes, 4, 6 * S);
	CHECK_INT(strikes_banned_until_ns(&strikes, 9 * S), 0);
	CHECK(strikes_lane_from_ns(&strikes, 9 * S) != 0);
	CHECK(!strikes_unban(&strikes, 9 * S));
	CHECK_INT(strikes_count(&strikes, &limits, 9 * S), 0);
	CHECK_INT(strikes_lane_from_ns(&strikes, 9 * S), 0);
}

TEST(strikes_unban__ban_that_is_over)
{
	struct strikes strikes = {0};

	add_strikes(&strikes, 5, 0);
	CHECK(!strikes_unban(&strikes, 304 * S));
	strikes = (struct strikes){0};
	add_strikes(&strikes, 5, 0);
	CHECK(strikes_unban(&strikes, 304 * S - 1));
}

TEST(strikes__ban_for_ever)
{
	struct strike_limits ever = limits;
	struct strikes strikes = {0};

	ever.ban_ms = UINT64_MAX;
	ever.strikes_max = 1;
	CHECK_INT(strikes_add(&strikes, &ever, STRIKE_ACCESS, 5), STRIKE_BAN);
	CHECK_INT(strikes_banned_until_ns(&strikes, UINT64_MAX - 1), UINT64_MAX);
}

TEST(strikes__clock_goes_back)
{
	struct strikes strikes = {0};

	(void)strikes_add(&strikes, &limits, STRIKE_ACCESS, 100 * S);
	(void)strikes_add(&strikes, &limits, STRIKE_ACCESS, 50 * S);
	CHECK_INT(strikes_lane_from_ns(&strikes, 0), 100 * S + 100 * MS);
	/* Both were made at 100 s. */
	CHECK_INT(strikes_count(&strikes, &limits, 0), 2);
	CHECK_INT(strikes_count(&strikes, &limits, 160 * S - 1), 2);
	CHECK_INT(strikes_count(&strikes, &limits, 160 * S), 0);
	add_strikes(&strikes, 3, 0);
	CHECK_INT(strikes_banned_until_ns(&strikes, 0), 400 * S);
	CHECK(strikes_unban(&strikes, 0));
}

TEST(strikes_access_error__pardon_ends_at_its_nanosecond)
{
	struct strikes strikes = {0};
	struct strike_grace grace = {0};

	strike_grace_note(&grace, 10 * S);
	CHECK_INT(strikes_access_error(&strikes, &limits, &grace, 12 * S - 1, 12 * S - 1),
		  STRIKE_PARDONED);
	CHECK_INT(strikes_access_error(&strikes, &limits, &grace, 12 * S, 12 * S), STRIKE_COUNTED);
	CHECK_INT(strikes.pardons_total, 1);
	CHECK_INT(strikes.total[STRIKE_ACCESS], 1);
	CHECK_INT(strikes_count(&strikes, &limits, 12 * S), 1);
}

/* The sweep finds a lane dead at 15 s that was last seen alive at 10 or 12 s. */
TEST(strikes_access_error__found_late)
{
	struct strikes strikes = {0};
	struct strike_grace grace = {0};

	strike_grace_note(&grace, 10 * S);
	CHECK_INT(strikes_access_error(&strikes, &limits, &grace, 10 * S, 15 * S), STRIKE_PARDONED);
	CHECK_INT(strikes_access_error(&strikes, &limits, &grace, 12 * S - 1, 15 * S),
		  STRIKE_PARDONED);
	CHECK_INT(strikes_access_error(&strikes, &limits, &grace, 12 * S, 15 * S), STRIKE_COUNTED);
}

TEST(strikes_access_error__no_window_was_ended)
{
	struct strikes strikes = {0};
	struct strike_grace grace = {0};

	/* A lane of which nothing was noted is not one that was noted at boot. */
	CHECK_INT(strikes_access_error(&strikes, &limits, &grace, 0, 0), STRIKE_COUNTED);
	strike_grace_note(&grace, 0);
	CHECK_INT(strikes_access_error(&strikes, &limits, &grace, 0, 0), STRIKE_PARDONED);
}

TEST(strike_grace_note__last_counts)
{
	struct strikes strikes = {0};
	struct strike_grace grace = {0};

	strike_grace_note(&grace, 10 * S);
	strike_grace_note(&grace, 20 * S);
	strike_grace_note(&grace, 15 * S);
	CHECK_INT(strikes_access_error(&strikes, &limits, &grace, 22 * S - 1, 22 * S - 1),
		  STRIKE_PARDONED);
	CHECK_INT(strikes_access_error(&strikes, &limits, &grace, 22 * S, 22 * S), STRIKE_COUNTED);
}

TEST(strikes_access_error__five_pardons_a_minute)
{
	struct strikes strikes = {0};
	struct strike_grace grace = {0};

	for (uint64_t i = 0; i < 5; i++) {
		strike_grace_note(&grace, i * S);
		CHECK_INT(strikes_access_error(&strikes, &limits, &grace, i * S, i * S),
			  STRIKE_PARDONED);
	}
	strike_grace_note(&grace, 5 * S);
	CHECK_INT(strikes_access_error(&strikes, &limits, &grace, 5 * S, 5 * S), STRIKE_COUNTED);
	/* The first pardon is a minute old at 60 s, and with it one is free. */
	strike_grace_note(&grace, 59 * S);
	CHECK_INT(strikes_access_error(&strikes, &limits, &grace, 60 * S - 1, 60 * S - 1),
		  STRIKE_COUNTED);
	CHECK_INT(strikes_access_error(&strikes, &limits, &grace, 60 * S, 60 * S), STRIKE_PARDONED);
	CHECK_INT(strikes_access_error(&strikes, &limits, &grace, 60 * S, 60 * S), STRIKE_COUNTED);
	CHECK_INT(strikes_access_error(&strikes, &limits, &grace, 60 * S, 61 * S), STRIKE_PARDONED);
	CHECK_INT(strikes.pardons_total, 7);
}

/* The pardons are the tenant's: another lane brings no further ones. */
TEST(strikes_access_error__pardons_over_all_lanes)
{
	struct strikes strikes = {0};

	for (int i = 0; i < 6; i++) {
		struct strike_grace grace = {0};

		strike_grace_note(&grace, 7);
		CHECK_INT(strikes_access_error(&strikes, &limits, &grace, 8, 8),
			  i < 5 ? STRIKE_PARDONED : STRIKE_COUNTED);
	}
}

/* The operator may take back as many leases at a time as he likes, in the midst of transfers. */
TEST(strikes_access_error__operator_is_pardoned_without_limit)
{
	struct strikes strikes = {0};
	struct strike_grace grace = {0};

	for (int i = 0; i < 20; i++) {
		strike_grace_note_operator(&grace, 10 * S);
		CHECK_INT(strikes_access_error(&strikes, &limits, &grace, 10 * S, 10 * S),
			  STRIKE_PARDONED);
	}
	CHECK_INT(strikes.pardons_total, 20);
	CHECK_INT(strikes_access_error(&strikes, &limits, &grace, 12 * S - 1, 12 * S - 1),
		  STRIKE_PARDONED);
	CHECK_INT(strikes_access_error(&strikes, &limits, &grace, 12 * S, 12 * S), STRIKE_COUNTED);
	/* None of them was taken from those for other endings. */
	for (int i = 0; i < 6; i++) {
		strike_grace_note(&grace, 13 * S);
		CHECK_INT(strikes_access_error(&strikes, &limits, &grace, 13 * S, 13 * S),
			  i < 5 ? STRIKE_PARDONED : STRIKE_COUNTED);
	}
}

TEST(strikes_access_error__no_pardons)
{
	struct strike_limits strict = limits;
	struct strikes strikes = {0};
	struct strike_grace grace = {0};

	strict.pardons_max = 0;
	strike_grace_note(&grace, 7);
	CHECK_INT(strikes_access_error(&strikes, &strict, &grace, 7, 7), STRIKE_COUNTED);
	strict = limits;
	strict.grace_ms = 0;
	CHECK_INT(strikes_access_error(&strikes, &strict, &grace, 7, 7), STRIKE_COUNTED);
	CHECK_INT(strikes.pardons_total, 0);
}

TEST(strikes_access_error__during_a_ban)
{
	struct strikes strikes = {0};
	struct strike_grace grace = {0};

	add_strikes(&strikes, 5, 0);
	strike_grace_note(&grace, 5 * S);
	CHECK_INT(strikes_access_error(&strikes, &limits, &grace, 5 * S, 5 * S), STRIKE_BANNED_YET);
	CHECK_INT(strikes.pardons_total, 0);
}

/* An honest client whose leases are revoked one after the other, and a guesser. */
TEST(strikes_access_error__guesser_is_banned_honest_one_is_not)
{
	struct strikes honest = {0}, guesser = {0};
	struct strike_grace grace = {0}, no_grace = {0};
	enum strike_outcome outcome = STRIKE_COUNTED;
	int tries = 0;

	for (uint64_t i = 0; i < 20; i++) {
		strike_grace_note(&grace, i * 12 * S);
		CHECK_INT(
			strikes_access_error(&honest, &limits, &grace, i * 12 * S, i * 12 * S + S),
			STRIKE_PARDONED);
	}
	while (outcome == STRIKE_COUNTED) {
		outcome = strikes_access_error(&guesser, &limits, &no_grace, 0, 0);
		tries++;
	}
	CHECK_INT(outcome, STRIKE_BAN);
	CHECK_INT(tries, 5);
}

/* A list of all strikes, searched each time. */
struct model {
	uint64_t at_ns[4000];
	size_t count;
	uint64_t banned_until_ns;
};

static uint32_t model_count(const struct model *model, uint64_t now_ns)
{
	uint32_t count = 0;

	for (size_t i = 0; i < model->count; i++)
		count += now_ns - model->at_ns[i] < limits.decay_ms * MS;
	return count;
}

static enum strike_outcome model_add(struct model *model, uint64_t now_ns)
{
	if (now_ns < model->banned_until_ns)
		return STRIKE_BANNED_YET;
	model->at_ns[model->count++] = now_ns;
	if (model_count(model, now_ns) < limits.strikes_max)
		return STRIKE_COUNTED;
	model->banned_until_ns = now_ns + limits.ban_ms * MS;
	model->count = 0;
	return STRIKE_BAN;
}

TEST(strikes_add__as_model)
{
	struct random random = random_start();
	struct strikes strikes = {0};
	static struct model model;
	uint64_t now_ns = 0;
	int bans = 0;

	model = (struct model){0};
	for (int i = 0; i < 4000; i++) {
		enum strike_outcome expected = model_add(&model, now_ns);

		CHECK_INT(strikes_add(&strikes, &limits, STRIKE_ACCESS, now_ns), expected);
		CHECK_INT(strikes_count(&strikes, &limits, now_ns), model_count(&model, now_ns));
		bans += expected == STRIKE_BAN;
		/* In whole seconds, so that strikes are forgotten just when others are made. */
		now_ns += random_below(&random, 40) * S;
	}
	CHECK(bans > 20);
}
