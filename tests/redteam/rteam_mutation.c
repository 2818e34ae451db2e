/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Can the hammer fail? Against a daemon that skips the invalidate it must. Against one that
 * does not wait for the guard of a window to be gone it may: what it sees is printed.
 */
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/integration/harness.h"

#define LIMIT_MS 280000

struct verdict {
	int status;
	/* Bytes, and accesses, that should not have been there. */
	unsigned long long stale;
	unsigned long long open;
};

static void verdict_read(struct verdict *verdict, const char *line)
{
	unsigned long long first, later, leases, read;

	if (sscanf(line,
		   "# S2 stale bytes: %llu read by the reader, %llu found by the next owner at "
		   "first, %llu later, in %llu leases; accesses that succeeded after the end: %llu",
		   &read, &first, &later, &leases, &verdict->open) == 5)
		verdict->stale = read + first + later;
}

static struct verdict hammer_judges(const char *seam)
{
	struct verdict verdict = {0};
	static struct harness_output output;
	char program[PATH_MAX];
	const char *argv[] = {program, NULL};
	char *line;

	(void)setenv("RTEAM_DAEMON", "mempoold-seam", 1);
	(void)setenv("RTEAM_SEAM", seam, 1);
	harness_program("rteam_hammer", program);
	(void)harness_run(argv, LIMIT_MS, &output);
	(void)unsetenv("RTEAM_DAEMON");
	(void)unsetenv("RTEAM_SEAM");
	printf("# %s: status %d\n", seam, output.status);
	for (line = strtok(output.out, "\n"); line != NULL; line = strtok(NULL, "\n")) {
		verdict_read(&verdict, line);
		if (strstr(line, "S2") != NULL || strstr(line, "# owner") != NULL ||
		    strstr(line, "# reader") != NULL || strstr(line, "# writer") != NULL)
			printf("#   %s\n", line + (line[0] == '#' ? 2 : 0));
	}
	verdict.status = output.status;
	return verdict;
}

TEST(mutation__skip_invalidate_is_found)
{
	struct verdict verdict = hammer_judges("skip-invalidate");

	CHECK_INT(verdict.status, 1);
	CHECK(verdict.stale > 0 || verdict.open > 0);
}

TEST(mutation__skip_guard_wait)
{
	struct verdict verdict = hammer_judges("skip-guard-wait");

	printf("# the guard's end not waited for: %llu stale bytes seen, exit status %d\n",
	       verdict.stale, verdict.status);
}
