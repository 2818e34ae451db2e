/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef TESTS_INTEGRATION_LOG_LINES_H
#define TESTS_INTEGRATION_LOG_LINES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct harness;

/** log_lines_count() - lines of the daemon's log with a text; -1 if there is no log */
int log_lines_count(const struct harness *h, const char *text);

/** log_lines_last() - the last line with a text; @buf: "" if there is none; Return: is there one? */
bool log_lines_last(const struct harness *h, const char *text, char *buf, size_t cap_bytes);

/** log_lines_wait() - until there are so many lines with a text; Return: are there, in time? */
bool log_lines_wait(const struct harness *h, const char *text, int count, uint64_t limit_ms);

#endif
