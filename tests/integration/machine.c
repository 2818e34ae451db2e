/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What tests do to the machine itself: its clock, its sleep, its network. Owns nothing.
 */
#include "tests/integration/machine.h"

#include <stdio.h>
#include <unistd.h>

#include "tests/integration/harness.h"

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
