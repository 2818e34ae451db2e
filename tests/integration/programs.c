/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Tools for tenants as programs of their own. Keeps nothing. Thread: the test's.
 */
#include "tests/integration/programs.h"

#include <errno.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/clock.h"

#define PROGRAMS_ARGS_MAX 28
#define PROGRAMS_LIMIT_MS 90000

struct programs_line {
	char program[PATH_MAX];
	const char *argv[PROGRAMS_ARGS_MAX];
};

/* What is given later counts, so the time-out may be another. */
static const char *const *programs_line(const struct place *place, const char *name,
					const char *const *args, struct programs_line *line)
{
	const char *const who[] = {harness_program(name, line->program),
				   "--daemon",
				   place->address,
				   "--key-file",
				   place->key,
				   "--timeout",
				   "60s"};
	size_t count = sizeof(who) / sizeof(who[0]);

	for (size_t i = 0; i < count; i++)
		line->argv[i] = who[i];
	while (*args != NULL && count < PROGRAMS_ARGS_MAX - 1)
		line->argv[count++] = *args++;
	line->argv[count] = NULL;
	return line->argv;
}

int programs_run(const struct place *place, const char *name, const char *const *args,
		 struct harness_output *ret_output)
{
	struct programs_line line;

	(void)harness_run(programs_line(place, name, args, &line), PROGRAMS_LIMIT_MS, ret_output);
	return ret_output->status;
}

pid_t programs_spawn(const struct place *place, const char *name, const char *const *args,
		     int *ret_out)
{
	struct programs_line line;

	return harness_spawn(programs_line(place, name, args, &line), ret_out);
}

static int programs_status(int status)
{
	return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

int programs_end(pid_t pid, int out, uint64_t limit_ms)
{
	uint64_t until_ns = clock_add_ms(clock_now_ns(), limit_ms);
	int status = 0;
	pid_t got = 0;

	while (got == 0 && clock_now_ns() < until_ns) {
		got = waitpid(pid, &status, WNOHANG);
		if (got == 0)
			harness_sleep_ms(2);
	}
	if (got == 0) {
		(void)kill(pid, SIGKILL);
		(void)waitpid(pid, &status, 0);
	}
	close(out);
	if (got < 0)
		return -ECHILD;
	return got == 0 ? -ETIMEDOUT : programs_status(status);
}

char *programs_lease(const struct place *place, char *buf)
{
	snprintf(buf, PLACE_TEXT_MAX, "lease:%s/token", place->dir);
	return buf;
}

bool programs_has_token(const struct place *place)
{
	char path[PLACE_TEXT_MAX];

	return access(place_path(place, "token", path), F_OK) == 0;
}
