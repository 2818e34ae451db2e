/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef DAEMON_ISOLATION_H
#define DAEMON_ISOLATION_H

#include <stdbool.h>
#include <stdint.h>

#include "daemon/config.h"
#include "daemon/selftest.h"

/* How tenants are kept apart on this device, decided by the self-test and the configuration. */
struct isolation {
	uint32_t mode; /* MESSAGE_ISOLATION_* */
	bool guarded;  /* mode is MESSAGE_ISOLATION_GUARDED: each window over an MR of its own */
	bool fence_strict; /* does the fence wait for packets that had passed the key check? */
	char why[256];
	bool ran[2]; /* the self-test over the big MR; guarded */
	struct selftest_result result[2];
	uint32_t rights; /* MESSAGE_RIGHT_* that may be granted */
};

/**
 * isolation_decide() - run the self-test and choose
 * @configured: enum config_isolation
 * @test: how to test; its `guarded` is filled in here
 * @soft_roce: the device is known not to wait for packets under way when a window is invalidated
 * @error: CONFIG_ERROR_MAX bytes: why the daemon must not start
 *
 * Return: 0, or -EPERM (the device does not do what the configuration demands), or another
 * negative errno (the test could not run).
 */
int isolation_decide(int configured, const struct selftest_params *test, bool soft_roce,
		     struct isolation *ret_isolation, char *error);

/** isolation_choose() - the decision alone, from outcomes (pure); Return: MESSAGE_ISOLATION_* or 0 = refuse */
uint32_t isolation_choose(int configured, const struct selftest_result *windows,
			  const struct selftest_result *guarded);

/** isolation_mode_name() - "windows", "guarded", "unverified" */
const char *isolation_mode_name(uint32_t mode);

/** isolation_result() - the outcomes in the mode that is used */
const struct selftest_result *isolation_result(const struct isolation *isolation);

#endif
