/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The choice between windows over the one big MR, guarded windows and refusal. The rule:
 * nobody is served unless the device itself keeps tenants apart, except where the operator
 * has said `unverified`.
 *
 * Thread: before the loop starts.
 */
#include "daemon/isolation.h"

#include <errno.h>
#include <stdio.h>

#include "proto/message.h"

const char *isolation_mode_name(uint32_t mode)
{
	switch (mode) {
	case MESSAGE_ISOLATION_WINDOWS:
		return "windows";
	case MESSAGE_ISOLATION_GUARDED:
		return "guarded";
	case MESSAGE_ISOLATION_UNVERIFIED:
		return "unverified";
	default:
		return "none";
	}
}

uint32_t isolation_choose(int configured, const struct selftest_result *windows,
			  const struct selftest_result *guarded)
{
	if (configured == CONFIG_ISOLATION_UNVERIFIED)
		return MESSAGE_ISOLATION_UNVERIFIED;
	if (selftest_isolates(windows))
		return MESSAGE_ISOLATION_WINDOWS;
	if (configured == CONFIG_ISOLATION_AUTO && selftest_only_bounds_fail(windows) &&
	    guarded != NULL && selftest_isolates(guarded))
		return MESSAGE_ISOLATION_GUARDED;
	return 0;
}

const struct selftest_result *isolation_result(const struct isolation *isolation)
{
	return &isolation->result[isolation->guarded];
}

/* The first isolating property that is not enforced, for the operator. */
static const char *isolation_first_failure(const struct selftest_result *result)
{
	for (int i = 0; i <= SELFTEST_ATOMICS; i++) {
		if (result->outcome[i] != SELFTEST_ENFORCED)
			return selftest_property_name((enum selftest_property)i);
	}
	return "none";
}

static void isolation_explain(struct isolation *isolation)
{
	switch (isolation->mode) {
	case MESSAGE_ISOLATION_WINDOWS:
		snprintf(isolation->why, sizeof(isolation->why),
			 "the device enforces windows over the pool's registration");
		break;
	case MESSAGE_ISOLATION_GUARDED:
		snprintf(isolation->why, sizeof(isolation->why),
			 "the device does not enforce the bounds of a window (%s), but those of a "
			 "registration: every window has a registration of its own",
			 isolation_first_failure(&isolation->result[0]));
		break;
	default:
		snprintf(isolation->why, sizeof(isolation->why),
			 "the configuration says 'unverified': tenants are not kept apart by more "
			 "than "
			 "what the self-test found enforced");
	}
}

static uint32_t isolation_rights(const struct isolation *isolation)
{
	const struct selftest_result *result = isolation_result(isolation);
	uint32_t rights = MESSAGE_RIGHT_READ | MESSAGE_RIGHT_WRITE;

	if (result->outcome[SELFTEST_ATOMICS] == SELFTEST_ENFORCED)
		rights |= MESSAGE_RIGHT_ATOMIC;
	return rights;
}

int isolation_decide(int configured, const struct selftest_params *test, bool soft_roce,
		     struct isolation *ret_isolation, char *error)
{
	struct selftest_params params = *test;
	struct isolation isolation = {0};
	int r;

	params.guarded = false;
	/* A guard is the only way out then, and the run with guards tries everything. */
	params.bounds_decide = configured == CONFIG_ISOLATION_AUTO;
	r = selftest_run(&params, &isolation.result[0], error);
	if (r < 0)
		return r;
	isolation.ran[0] = true;
	if (configured == CONFIG_ISOLATION_AUTO &&
	    selftest_only_bounds_fail(&isolation.result[0])) {
		params.guarded = true;
		params.bounds_decide = false;
		r = selftest_run(&params, &isolation.result[1], error);
		if (r < 0)
			return r;
		isolation.ran[1] = true;
	}
	isolation.mode = isolation_choose(configured, &isolation.result[0],
					  isolation.ran[1] ? &isolation.result[1] : NULL);
	if (isolation.mode == 0) {
		snprintf(error, CONFIG_ERROR_MAX,
			 "the device does not keep tenants apart (%s is not enforced) and "
			 "isolation is "
			 "'%s'; 'unverified' serves all the same, for tests or a single tenant",
			 isolation_first_failure(&isolation.result[isolation.ran[1]]),
			 config_isolation_name(configured));
		return -EPERM;
	}
	isolation.guarded = isolation.mode == MESSAGE_ISOLATION_GUARDED;
	isolation.fence_strict = isolation.guarded || !soft_roce;
	isolation.rights = isolation_rights(&isolation);
	isolation_explain(&isolation);
	*ret_isolation = isolation;
	return 0;
}
