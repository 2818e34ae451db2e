/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef TESTS_STORY_COMMAND_H
#define TESTS_STORY_COMMAND_H

#include <stdint.h>
#include <sys/types.h>

/* Other programs, found by PATH. Statuses are exit statuses, or 128 + the signal's number. */

/**
 * command_run() - run a program to its end
 * @argv: ends with NULL
 * @ret_output: its standard output, NUL-terminated; the caller frees it; standard error is ours
 * @ret_status: its exit status
 *
 * Return: 0 or a negative errno.
 */
int command_run(const char *const *argv, char **ret_output, int *ret_status);

/** command_start() - start a program, all output into a file; Return: 0 or a negative errno */
int command_start(const char *const *argv, const char *output_path, pid_t *ret_pid);

/**
 * command_wait() - wait for a started program
 *
 * Return: 0, -ETIMEDOUT (it still runs), or a negative errno.
 */
int command_wait(pid_t pid, uint32_t timeout_ms, int *ret_status);

#endif
