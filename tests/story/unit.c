/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The daemon as a service of systemd's: systemctl, and what it shows.
 */
#include "tests/story/unit.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/story/command.h"
#include "tests/story/tell.h"

#define UNIT_LOG_LINES "40"

static int unit_run(const char *const *argv, char **ret_output)
{
	int status;
	int r;

	r = command_run(argv, ret_output, &status);
	if (r < 0)
		return tell_failure("cannot run %s: %s", argv[0], strerrordesc_np(-r));
	if (status == 0)
		return 0;
	tell_block(*ret_output);
	free(*ret_output);
	return tell_failure("%s %s: exit status %d", argv[0], argv[1], status);
}

static int unit_number(const char *unit, const char *property, int *ret_number)
{
	const char *argv[] = {"systemctl", "show", "--value", "--property", property, unit, NULL};
	char *output;

	if (unit_run(argv, &output) < 0)
		return -1;
	*ret_number = (int)strtol(output, NULL, 10);
	free(output);
	return 0;
}

/* Real, effective, saved and of the file system. */
static int unit_check_user(pid_t pid)
{
	unsigned int uid[4];
	char path[64];
	char line[256];
	bool found = false;
	FILE *file;

	(void)snprintf(path, sizeof(path), "/proc/%d/status", (int)pid);
	file = fopen(path, "re");
	if (file == NULL)
		return tell_failure("cannot read %s", path);
	while (!found && fgets(line, sizeof(line), file) != NULL)
		found = sscanf(line, "Uid: %u %u %u %u", &uid[0], &uid[1], &uid[2], &uid[3]) == 4;
	(void)fclose(file);
	if (!found || uid[0] == 0 || uid[1] == 0 || uid[2] == 0 || uid[3] == 0)
		return tell_failure("the daemon should not have root's rights");
	tell("its user is number %u", uid[1]);
	return 0;
}

int unit_start(const char *unit, pid_t *ret_pid)
{
	const char *argv[] = {"systemctl", "start", unit, NULL};
	char *output;
	int pid;

	if (unit_run(argv, &output) < 0)
		return -1;
	free(output);
	if (unit_number(unit, "MainPID", &pid) < 0)
		return -1;
	*ret_pid = pid;
	return unit_check_user(pid);
}

int unit_stop(const char *unit, int *ret_status)
{
	const char *argv[] = {"systemctl", "stop", unit, NULL};
	char *output;

	if (unit_run(argv, &output) < 0)
		return -1;
	free(output);
	return unit_number(unit, "ExecMainStatus", ret_status);
}

void unit_print_log(const char *unit)
{
	const char *argv[] = {"journalctl", "--no-pager", "-n", UNIT_LOG_LINES, "-u", unit, NULL};
	char *output;

	if (unit_run(argv, &output) < 0)
		return;
	tell_block(output);
	free(output);
}
