/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef TESTS_UNIT_ABORT_H
#define TESTS_UNIT_ABORT_H

#include <fcntl.h>
#include <signal.h>
#include <stdbool.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

/* Does a call end in a failed assertion? Tried in a child, whose complaint is not shown. */
static inline bool test_aborts(void (*call)(void *arg), void *arg)
{
	pid_t child = fork();
	int status;

	if (child == 0) {
		int null_fd = open("/dev/null", O_WRONLY | O_CLOEXEC);

		if (null_fd < 0 || dup2(null_fd, STDERR_FILENO) < 0)
			_exit(EXIT_FAILURE);
		call(arg);
		_exit(EXIT_SUCCESS);
	}
	return child > 0 && waitpid(child, &status, 0) == child && WIFSIGNALED(status) &&
	       WTERMSIG(status) == SIGABRT;
}

#endif
