/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Other programs: started by posix_spawn(), which does not copy our address space, so memory
 * that a device knows stays where it is.
 */
#include "tests/story/command.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "common/clock.h"

#define COMMAND_POLL_NS 1000000

static int command_status(int wait_status)
{
	return WIFSIGNALED(wait_status) ? 128 + WTERMSIG(wait_status) : WEXITSTATUS(wait_status);
}

static int command_spawn(const char *const *argv, const posix_spawn_file_actions_t *actions,
			 pid_t *ret_pid)
{
	/* The cast takes nothing away: the strings are not written to. */
	return -posix_spawnp(ret_pid, argv[0], actions, NULL, (char *const *)(uintptr_t)argv,
			     environ);
}

/* Return: 0 or a negative errno; @fd is closed in any case. */
static int command_read_all(int fd, char **ret_text)
{
	FILE *from = fdopen(fd, "r");
	size_t cap_bytes = 0;
	char *text = NULL;
	ssize_t n;
	int r = 0;

	if (from == NULL) {
		r = -errno;
		(void)close(fd);
		return r;
	}
	/* None of the programs prints a NUL, so this is up to the end. */
	n = getdelim(&text, &cap_bytes, '\0', from);
	if (n < 0 && ferror(from) != 0)
		r = -EIO;
	(void)fclose(from);
	if (r == 0 && n < 0 && text != NULL)
		text[0] = '\0';
	if (r == 0 && text == NULL)
		r = -ENOMEM;
	if (r < 0)
		free(text);
	else
		*ret_text = text;
	return r;
}

static int command_spawn_piped(const char *const *argv, int write_fd, pid_t *ret_pid)
{
	posix_spawn_file_actions_t actions;
	int r;

	r = -posix_spawn_file_actions_init(&actions);
	if (r < 0)
		return r;
	r = -posix_spawn_file_actions_adddup2(&actions, write_fd, STDOUT_FILENO);
	if (r == 0)
		r = command_spawn(argv, &actions, ret_pid);
	(void)posix_spawn_file_actions_destroy(&actions);
	return r;
}

int command_run(const char *const *argv, char **ret_output, int *ret_status)
{
	int wait_status;
	int fds[2];
	pid_t pid;
	int r;

	if (pipe2(fds, O_CLOEXEC) < 0)
		return -errno;
	r = command_spawn_piped(argv, fds[1], &pid);
	(void)close(fds[1]);
	if (r < 0) {
		(void)close(fds[0]);
		return r;
	}
	r = command_read_all(fds[0], ret_output);
	if (waitpid(pid, &wait_status, 0) < 0)
		wait_status = 0xff00;
	*ret_status = command_status(wait_status);
	return r;
}

int command_start(const char *const *argv, const char *output_path, pid_t *ret_pid)
{
	posix_spawn_file_actions_t actions;
	int r;

	r = -posix_spawn_file_actions_init(&actions);
	if (r < 0)
		return r;
	r = -posix_spawn_file_actions_addopen(&actions, STDOUT_FILENO, output_path,
					      O_WRONLY | O_CREAT | O_TRUNC, 0600);
	if (r == 0)
		r = -posix_spawn_file_actions_adddup2(&actions, STDOUT_FILENO, STDERR_FILENO);
	if (r == 0)
		r = command_spawn(argv, &actions, ret_pid);
	(void)posix_spawn_file_actions_destroy(&actions);
	return r;
}

int command_wait(pid_t pid, uint32_t timeout_ms, int *ret_status)
{
	const struct timespec pause = {.tv_nsec = COMMAND_POLL_NS};
	uint64_t until_ns = clock_add_ms(clock_now_ns(), timeout_ms);
	int wait_status;
	pid_t ended;

	for (;;) {
		ended = waitpid(pid, &wait_status, WNOHANG);
		if (ended < 0)
			return -errno;
		if (ended == pid)
			break;
		if (clock_now_ns() >= until_ns)
			return -ETIMEDOUT;
		(void)nanosleep(&pause, NULL);
	}
	*ret_status = command_status(wait_status);
	return 0;
}
