/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What tests do to the machine itself: its clock, its sleep, its network. Owns nothing.
 */
#include "tests/integration/machine.h"

#include <errno.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/integration/harness.h"

#define MACHINE_INNER "TEST_INNER" /* in the environment of the process that is started for it */

void machine_resume(const pid_t *pid)
{
	if (*pid > 0)
		(void)kill(*pid, SIGCONT);
}

bool machine_is_guest(void)
{
	return access("/etc/vm/command", R_OK) == 0;
}

bool machine_shell(const char *command)
{
	static struct harness_output output;
	const char *argv[] = {"sh", "-c", command, NULL};
	int r = harness_run(argv, 20000, &output);

	if (r == 0 && output.status == 0)
		return true;
	printf("# %s: status %d, %s\n", command, output.status, output.err);
	return false;
}

static void machine_undo(const struct machine_change **change)
{
	if (*change != NULL)
		(void)machine_shell((*change)->undo);
}

static void machine_print_quoted(char *text)
{
	for (char *line = strtok(text, "\n"); line != NULL; line = strtok(NULL, "\n"))
		printf("# %s\n", line);
}

void machine_test(const struct machine_change *change, const char *name, uint64_t limit_ms,
		  void (*run)(void))
{
	static struct harness_output output;
	__attribute__((cleanup(machine_undo))) const struct machine_change *made = NULL;
	char path[PATH_MAX];
	const char *argv[] = {"env", MACHINE_INNER "=1",
			      harness_program(program_invocation_short_name, path), name, NULL};

	if (getenv(MACHINE_INNER) != NULL) {
		run();
		return;
	}
	if (!machine_is_guest())
		SKIP("only test guests are changed");
	made = change;
	CHECK(machine_shell(change->make));
	CHECK_INT(harness_run(argv, limit_ms, &output), 0);
	machine_print_quoted(output.out);
	CHECK_INT(output.status, 0);
}
