/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef TESTS_REDTEAM_FIGURES_H
#define TESTS_REDTEAM_FIGURES_H

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

/* How many: all of them with TEST_FULL=1, else a tenth, and at least one. */
static inline uint64_t figure(uint64_t full)
{
	const char *env = getenv("TEST_FULL");

	if (env != NULL && strcmp(env, "1") == 0)
		return full;
	return full < 10 ? 1 : full / 10;
}

#endif
