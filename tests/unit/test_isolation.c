/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * daemon/isolation.c: what is made of the outcomes of the self-test, which is replaced here.
 * Whatever is not a clear "enforced" must lead to a refusal, except where the operator has
 * said `unverified` and where guarded mode mends it.
 */
#include "daemon/isolation.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "proto/message.h"
#include "tests/unit/test.h"

int __wrap_selftest_run(const struct selftest_params *params, struct selftest_result *ret_result,
			char *error);

/* What the self-test will say over the big MR and guarded, and what it was asked. */
static struct {
	struct selftest_result result[2];
	int r[2];
	int runs;
	bool guarded[4];
	bool bounds_decide[4];
	struct selftest_params params;
} fake;

int __wrap_selftest_run(const struct selftest_params *params, struct selftest_result *ret_result,
			char *error)
{
	int r = fake.r[params->guarded];

	if (fake.runs < 4)
		fake.guarded[fake.runs] = params->guarded;
	if (fake.runs < 4)
		fake.bounds_decide[fake.runs] = params->bounds_decide;
	fake.runs++;
	fake.params = *params;
	if (r == 0)
		*ret_result = fake.result[params->guarded];
	else
		snprintf(error, 256, "the test could not run");
	return r;
}

static struct selftest_result all(enum selftest_outcome outcome)
{
	struct selftest_result result;

	for (int i = 0; i < SELFTEST_PROPERTIES; i++)
		result.outcome[i] = outcome;
	return result;
}

/* Everything enforced but one property. */
static struct selftest_result but(enum selftest_property property, enum selftest_outcome outcome)
{
	struct selftest_result result = all(SELFTEST_ENFORCED);

	result.outcome[property] = outcome;
	return result;
}

/* As Soft-RoCE: the bounds of a window do not count, and atomics outside go through as well. */
static struct selftest_result no_bounds(void)
{
	struct selftest_result result = all(SELFTEST_ENFORCED);

	result.outcome[SELFTEST_BOUNDS_BELOW] = SELFTEST_NOT_ENFORCED;
	result.outcome[SELFTEST_BOUNDS_ABOVE] = SELFTEST_NOT_ENFORCED;
	result.outcome[SELFTEST_BOUNDS_STRADDLE] = SELFTEST_NOT_ENFORCED;
	result.outcome[SELFTEST_ATOMICS] = SELFTEST_NOT_ENFORCED;
	return result;
}

static const enum selftest_outcome failures[] = {SELFTEST_UNKNOWN, SELFTEST_NOT_ENFORCED,
						 SELFTEST_NOT_SUPPORTED};
#define FAILURES (sizeof(failures) / sizeof(failures[0]))

/* What keeps tenants apart, without atomics; and which of it guarded mode mends. */
static const struct {
	enum selftest_property property;
	bool is_mended;
} essentials[] = {
	{SELFTEST_BOUNDS_BELOW, true},	  {SELFTEST_BOUNDS_ABOVE, true},
	{SELFTEST_BOUNDS_STRADDLE, true}, {SELFTEST_RIGHTS_READ, false},
	{SELFTEST_RIGHTS_WRITE, false},	  {SELFTEST_FOREIGN_QP, false},
	{SELFTEST_INVALIDATED, false},	  {SELFTEST_REBOUND, false},
	{SELFTEST_MR_KEYS, false},
};
#define ESSENTIALS (sizeof(essentials) / sizeof(essentials[0]))

TEST(isolation_choose__all_enforced)
{
	struct selftest_result good = all(SELFTEST_ENFORCED);
	struct selftest_result bad = all(SELFTEST_UNKNOWN);

	CHECK_INT(isolation_choose(CONFIG_ISOLATION_AUTO, &good, NULL), MESSAGE_ISOLATION_WINDOWS);
	CHECK_INT(isolation_choose(CONFIG_ISOLATION_AUTO, &good, &good), MESSAGE_ISOLATION_WINDOWS);
	CHECK_INT(isolation_choose(CONFIG_ISOLATION_AUTO, &good, &bad), MESSAGE_ISOLATION_WINDOWS);
	CHECK_INT(isolation_choose(CONFIG_ISOLATION_WINDOWS, &good, NULL),
		  MESSAGE_ISOLATION_WINDOWS);
	CHECK_INT(isolation_choose(CONFIG_ISOLATION_UNVERIFIED, &good, NULL),
		  MESSAGE_ISOLATION_UNVERIFIED);
}

TEST(isolation_choose__one_essential_fails)
{
	struct selftest_result good = all(SELFTEST_ENFORCED);

	for (size_t i = 0; i < ESSENTIALS; i++) {
		for (size_t k = 0; k < FAILURES; k++) {
			struct selftest_result result = but(essentials[i].property, failures[k]);

			CHECK_INT(isolation_choose(CONFIG_ISOLATION_AUTO, &result, NULL), 0);
			CHECK_INT(isolation_choose(CONFIG_ISOLATION_AUTO, &result, &good),
				  essentials[i].is_mended ? MESSAGE_ISOLATION_GUARDED : 0);
			CHECK_INT(isolation_choose(CONFIG_ISOLATION_WINDOWS, &result, NULL), 0);
			CHECK_INT(isolation_choose(CONFIG_ISOLATION_WINDOWS, &result, &good), 0);
			CHECK_INT(isolation_choose(CONFIG_ISOLATION_UNVERIFIED, &result, NULL),
				  MESSAGE_ISOLATION_UNVERIFIED);
		}
	}
}

/* Guarded mode has to pass the whole test, not only the bounds. */
TEST(isolation_choose__guarded_fails_too)
{
	struct selftest_result windows = no_bounds();

	for (size_t i = 0; i < ESSENTIALS; i++) {
		for (size_t k = 0; k < FAILURES; k++) {
			struct selftest_result guarded = but(essentials[i].property, failures[k]);

			CHECK_INT(isolation_choose(CONFIG_ISOLATION_AUTO, &windows, &guarded), 0);
		}
	}
	CHECK_INT(isolation_choose(CONFIG_ISOLATION_AUTO, &windows, &windows), 0);
}

TEST(isolation_choose__bounds_and_more_fail)
{
	struct selftest_result good = all(SELFTEST_ENFORCED);

	for (size_t i = 0; i < ESSENTIALS; i++) {
		struct selftest_result windows = no_bounds();

		if (essentials[i].is_mended)
			continue;
		windows.outcome[essentials[i].property] = SELFTEST_UNKNOWN;
		CHECK_INT(isolation_choose(CONFIG_ISOLATION_AUTO, &windows, &good), 0);
	}
}

TEST(isolation_choose__atomics)
{
	struct selftest_result good = all(SELFTEST_ENFORCED);
	struct selftest_result absent = but(SELFTEST_ATOMICS, SELFTEST_NOT_SUPPORTED);
	struct selftest_result unknown = but(SELFTEST_ATOMICS, SELFTEST_UNKNOWN);
	struct selftest_result open = but(SELFTEST_ATOMICS, SELFTEST_NOT_ENFORCED);
	struct selftest_result windows = no_bounds();

	CHECK_INT(isolation_choose(CONFIG_ISOLATION_AUTO, &absent, NULL),
		  MESSAGE_ISOLATION_WINDOWS);
	CHECK_INT(isolation_choose(CONFIG_ISOLATION_AUTO, &unknown, &good), 0);
	CHECK_INT(isolation_choose(CONFIG_ISOLATION_AUTO, &open, &good), 0);
	CHECK_INT(isolation_choose(CONFIG_ISOLATION_WINDOWS, &open, NULL), 0);
	CHECK_INT(isolation_choose(CONFIG_ISOLATION_AUTO, &windows, &good),
		  MESSAGE_ISOLATION_GUARDED);
	CHECK_INT(isolation_choose(CONFIG_ISOLATION_AUTO, &windows, &absent),
		  MESSAGE_ISOLATION_GUARDED);
	CHECK_INT(isolation_choose(CONFIG_ISOLATION_AUTO, &windows, &unknown), 0);
	CHECK_INT(isolation_choose(CONFIG_ISOLATION_AUTO, &windows, &open), 0);
}

/* Windows are not bound zero-based, so whether those would hold does not matter. */
TEST(isolation_choose__zero_based_does_not_count)
{
	struct selftest_result windows = no_bounds();

	for (size_t k = 0; k < FAILURES; k++) {
		struct selftest_result result = but(SELFTEST_ZERO_BASED, failures[k]);

		CHECK_INT(isolation_choose(CONFIG_ISOLATION_AUTO, &result, NULL),
			  MESSAGE_ISOLATION_WINDOWS);
		CHECK_INT(isolation_choose(CONFIG_ISOLATION_WINDOWS, &result, NULL),
			  MESSAGE_ISOLATION_WINDOWS);
		CHECK_INT(isolation_choose(CONFIG_ISOLATION_AUTO, &windows, &result),
			  MESSAGE_ISOLATION_GUARDED);
	}
}

static char memory[64];
static struct isolation isolation;
static char error[CONFIG_ERROR_MAX];

static int decide(int configured, struct selftest_result windows, struct selftest_result guarded)
{
	struct selftest_params params = {
		.pd = (struct ibv_pd *)&memory[0],
		.mr = (struct ibv_mr *)&memory[1],
		.memory = (uint8_t *)&memory[2],
		.len_bytes = 1 << 20,
		.guarded = true, /* filled in by isolation_decide() */
	};
	int keep_r[2] = {fake.r[0], fake.r[1]};

	memset(&fake, 0, sizeof(fake));
	fake.r[0] = keep_r[0];
	fake.r[1] = keep_r[1];
	fake.result[0] = windows;
	fake.result[1] = guarded;
	memset(&isolation, 0x5a, sizeof(isolation));
	error[0] = '\0';
	return isolation_decide(configured, &params, false, &isolation, error);
}

TEST(isolation_decide__auto_windows)
{
	struct selftest_result good = all(SELFTEST_ENFORCED);

	CHECK_INT(decide(CONFIG_ISOLATION_AUTO, good, all(SELFTEST_UNKNOWN)), 0);
	CHECK_INT(fake.runs, 1);
	CHECK(!fake.guarded[0]);
	CHECK_INT(isolation.mode, MESSAGE_ISOLATION_WINDOWS);
	CHECK(!isolation.guarded);
	CHECK(isolation.ran[0] && !isolation.ran[1]);
	CHECK_INT(isolation.rights, MESSAGE_RIGHTS_ALL);
	CHECK(isolation_result(&isolation) == &isolation.result[0]);
	CHECK_MEM(&isolation.result[0], &good, sizeof(good));
	CHECK(strlen(isolation.why) > 0 && strlen(isolation.why) < sizeof(isolation.why));
	CHECK_STR(error, "");
}

TEST(isolation_decide__passes_the_parameters_on)
{
	CHECK_INT(decide(CONFIG_ISOLATION_AUTO, no_bounds(), all(SELFTEST_ENFORCED)), 0);
	CHECK((char *)fake.params.pd == &memory[0]);
	CHECK((char *)fake.params.mr == &memory[1]);
	CHECK((char *)fake.params.memory == &memory[2]);
	CHECK_INT(fake.params.len_bytes, 1 << 20);
}

TEST(isolation_decide__auto_guarded)
{
	struct selftest_result bad = no_bounds();
	struct selftest_result good = all(SELFTEST_ENFORCED);

	CHECK_INT(decide(CONFIG_ISOLATION_AUTO, bad, good), 0);
	CHECK_INT(fake.runs, 2);
	CHECK(!fake.guarded[0] && fake.guarded[1]);
	CHECK_INT(isolation.mode, MESSAGE_ISOLATION_GUARDED);
	CHECK(isolation.guarded);
	CHECK(isolation.ran[0] && isolation.ran[1]);
	CHECK_INT(isolation.rights, MESSAGE_RIGHTS_ALL);
	CHECK(isolation_result(&isolation) == &isolation.result[1]);
	CHECK_MEM(&isolation.result[0], &bad, sizeof(bad));
	CHECK_MEM(&isolation.result[1], &good, sizeof(good));
	CHECK(strstr(isolation.why, "bounds-below") != NULL);
}

/* What is not tried over the pool, since guards are needed anyway, is tried over them. */
TEST(isolation_decide__auto_bounds_decide)
{
	struct selftest_result bad = all(SELFTEST_NOT_TRIED);

	bad.outcome[SELFTEST_BOUNDS_BELOW] = SELFTEST_NOT_ENFORCED;
	CHECK_INT(decide(CONFIG_ISOLATION_AUTO, bad, all(SELFTEST_ENFORCED)), 0);
	CHECK_INT(fake.runs, 2);
	CHECK(fake.bounds_decide[0] && !fake.bounds_decide[1]);
	CHECK_INT(isolation.mode, MESSAGE_ISOLATION_GUARDED);
	CHECK_INT(decide(CONFIG_ISOLATION_AUTO, bad, bad), -EPERM);
	CHECK_INT(decide(CONFIG_ISOLATION_AUTO, all(SELFTEST_NOT_TRIED), all(SELFTEST_ENFORCED)),
		  -EPERM);
	CHECK_INT(fake.runs, 1);
}

/* Who has no guards to go to wants to know all. */
TEST(isolation_decide__all_is_tried_without_guards)
{
	CHECK_INT(decide(CONFIG_ISOLATION_WINDOWS, no_bounds(), all(SELFTEST_ENFORCED)), -EPERM);
	CHECK(!fake.bounds_decide[0]);
	CHECK_INT(decide(CONFIG_ISOLATION_UNVERIFIED, no_bounds(), all(SELFTEST_ENFORCED)), 0);
	CHECK(!fake.bounds_decide[0]);
}

TEST(isolation_decide__auto_guarded_refused)
{
	struct selftest_result guarded = but(SELFTEST_FOREIGN_QP, SELFTEST_NOT_ENFORCED);

	CHECK_INT(decide(CONFIG_ISOLATION_AUTO, no_bounds(), guarded), -EPERM);
	CHECK_INT(fake.runs, 2);
	CHECK(strstr(error, "foreign-qp") != NULL);
	CHECK(strstr(error, "'auto'") != NULL);
	CHECK(strstr(error, "'unverified'") != NULL);
	CHECK_INT(isolation.mode, 0x5a5a5a5a);
}

TEST(isolation_decide__auto_refused)
{
	for (size_t i = 0; i < ESSENTIALS; i++) {
		const char *name = selftest_property_name(essentials[i].property);

		if (essentials[i].is_mended)
			continue;
		for (size_t k = 0; k < FAILURES; k++) {
			struct selftest_result result = but(essentials[i].property, failures[k]);

			CHECK_INT(decide(CONFIG_ISOLATION_AUTO, result, all(SELFTEST_ENFORCED)),
				  -EPERM);
			CHECK_INT(fake.runs, 1);
			CHECK(strstr(error, name) != NULL);
			CHECK_INT(isolation.mode, 0x5a5a5a5a);
		}
	}
}

/* The text names what is wrong, also if it is the last in the list. */
TEST(isolation_decide__refused_for_atomics)
{
	CHECK_INT(decide(CONFIG_ISOLATION_AUTO, but(SELFTEST_ATOMICS, SELFTEST_NOT_ENFORCED),
			 all(SELFTEST_ENFORCED)),
		  -EPERM);
	CHECK_INT(fake.runs, 1);
	CHECK(strstr(error, "atomics") != NULL);
	CHECK_INT(
		decide(CONFIG_ISOLATION_AUTO, no_bounds(), but(SELFTEST_ATOMICS, SELFTEST_UNKNOWN)),
		-EPERM);
	CHECK_INT(fake.runs, 2);
	CHECK(strstr(error, "atomics") != NULL);
}

/* Who asks for windows over the big MR does not get anything else. */
TEST(isolation_decide__windows)
{
	CHECK_INT(decide(CONFIG_ISOLATION_WINDOWS, all(SELFTEST_ENFORCED), all(SELFTEST_ENFORCED)),
		  0);
	CHECK_INT(fake.runs, 1);
	CHECK_INT(isolation.mode, MESSAGE_ISOLATION_WINDOWS);
	CHECK_INT(decide(CONFIG_ISOLATION_WINDOWS, no_bounds(), all(SELFTEST_ENFORCED)), -EPERM);
	CHECK_INT(fake.runs, 1);
	CHECK(strstr(error, "bounds-below") != NULL);
	CHECK(strstr(error, "'windows'") != NULL);
}

TEST(isolation_decide__unknown_is_not_enforced)
{
	CHECK_INT(decide(CONFIG_ISOLATION_AUTO, all(SELFTEST_UNKNOWN), all(SELFTEST_ENFORCED)),
		  -EPERM);
	CHECK_INT(fake.runs, 1);
	CHECK_INT(decide(CONFIG_ISOLATION_WINDOWS, all(SELFTEST_UNKNOWN), all(SELFTEST_ENFORCED)),
		  -EPERM);
	CHECK_INT(decide(CONFIG_ISOLATION_AUTO, no_bounds(), all(SELFTEST_UNKNOWN)), -EPERM);
	CHECK_INT(fake.runs, 2);
}

TEST(isolation_decide__unverified)
{
	CHECK_INT(decide(CONFIG_ISOLATION_UNVERIFIED, all(SELFTEST_NOT_ENFORCED),
			 all(SELFTEST_ENFORCED)),
		  0);
	CHECK_INT(fake.runs, 1);
	CHECK_INT(isolation.mode, MESSAGE_ISOLATION_UNVERIFIED);
	CHECK(!isolation.guarded);
	CHECK_INT(isolation.rights, MESSAGE_RIGHT_READ | MESSAGE_RIGHT_WRITE);
	CHECK(strstr(isolation.why, "unverified") != NULL);
	CHECK_INT(decide(CONFIG_ISOLATION_UNVERIFIED, no_bounds(), all(SELFTEST_ENFORCED)), 0);
	CHECK_INT(fake.runs, 1);
	CHECK_INT(isolation.mode, MESSAGE_ISOLATION_UNVERIFIED);
}

/* Atomics are granted only where they are enforced in the mode that is used. */
TEST(isolation_decide__rights)
{
	struct selftest_result good = all(SELFTEST_ENFORCED);
	struct selftest_result absent = but(SELFTEST_ATOMICS, SELFTEST_NOT_SUPPORTED);
	const uint32_t read_write = MESSAGE_RIGHT_READ | MESSAGE_RIGHT_WRITE;

	CHECK_INT(decide(CONFIG_ISOLATION_AUTO, absent, good), 0);
	CHECK_INT(isolation.rights, read_write);
	CHECK_INT(decide(CONFIG_ISOLATION_AUTO, no_bounds(), absent), 0);
	CHECK_INT(isolation.mode, MESSAGE_ISOLATION_GUARDED);
	CHECK_INT(isolation.rights, read_write);
	CHECK_INT(decide(CONFIG_ISOLATION_AUTO, no_bounds(), good), 0);
	CHECK_INT(isolation.rights, MESSAGE_RIGHTS_ALL);
	for (size_t k = 0; k < FAILURES; k++) {
		CHECK_INT(decide(CONFIG_ISOLATION_UNVERIFIED, but(SELFTEST_ATOMICS, failures[k]),
				 good),
			  0);
		CHECK_INT(isolation.rights, read_write);
	}
	CHECK_INT(decide(CONFIG_ISOLATION_UNVERIFIED, good, good), 0);
	CHECK_INT(isolation.rights, MESSAGE_RIGHTS_ALL);
}

/* Soft-RoCE lets a packet that has passed the key check finish; only a guard waits for it. */
TEST(isolation_decide__strict_fence)
{
	static const struct {
		int configured;
		bool bounds;
		bool soft_roce;
		bool strict;
	} cases[] = {
		{CONFIG_ISOLATION_AUTO, true, false, true},
		{CONFIG_ISOLATION_AUTO, true, true, false},
		{CONFIG_ISOLATION_AUTO, false, true, true},
		{CONFIG_ISOLATION_AUTO, false, false, true},
		{CONFIG_ISOLATION_UNVERIFIED, false, true, false},
		{CONFIG_ISOLATION_UNVERIFIED, false, false, true},
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct selftest_params params = {0};

		memset(&fake, 0, sizeof(fake));
		fake.result[0] = cases[i].bounds ? all(SELFTEST_ENFORCED) : no_bounds();
		fake.result[1] = all(SELFTEST_ENFORCED);
		CHECK_INT(isolation_decide(cases[i].configured, &params, cases[i].soft_roce,
					   &isolation, error),
			  0);
		CHECK_INT(isolation.fence_strict, cases[i].strict);
	}
}

TEST(isolation_decide__test_cannot_run)
{
	fake.r[0] = -ENETUNREACH;
	CHECK_INT(decide(CONFIG_ISOLATION_AUTO, all(SELFTEST_ENFORCED), all(SELFTEST_ENFORCED)),
		  -ENETUNREACH);
	CHECK_STR(error, "the test could not run");
	CHECK_INT(isolation.mode, 0x5a5a5a5a);
	/* Not even for tests: what is reported must have been tried. */
	CHECK_INT(
		decide(CONFIG_ISOLATION_UNVERIFIED, all(SELFTEST_ENFORCED), all(SELFTEST_ENFORCED)),
		-ENETUNREACH);
	fake.r[0] = 0;
	fake.r[1] = -ENOMEM;
	CHECK_INT(decide(CONFIG_ISOLATION_AUTO, no_bounds(), all(SELFTEST_ENFORCED)), -ENOMEM);
	CHECK_INT(isolation.mode, 0x5a5a5a5a);
	fake.r[1] = 0;
}

TEST(isolation_mode_name__all)
{
	CHECK_STR(isolation_mode_name(MESSAGE_ISOLATION_WINDOWS), "windows");
	CHECK_STR(isolation_mode_name(MESSAGE_ISOLATION_GUARDED), "guarded");
	CHECK_STR(isolation_mode_name(MESSAGE_ISOLATION_UNVERIFIED), "unverified");
	CHECK_STR(isolation_mode_name(0), "none");
	CHECK_STR(isolation_mode_name(4), "none");
}
