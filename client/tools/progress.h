/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef CLIENT_TOOLS_PROGRESS_H
#define CLIENT_TOOLS_PROGRESS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* How far a copy has come, in one line of a terminal that is written over and over. */
struct progress {
	bool shown;
	uint64_t total_bytes; /* 0: not known */
	uint64_t begun_ns;
	uint64_t drawn_ns; /* 0: never */
};

/**
 * progress_format() - the line
 * @columns: at most so many characters, all of them one column wide
 * @total_bytes: 0: not known, so there is no bar
 * @buf: at least @columns + 1 bytes
 *
 * What does not fit is left out, the bar first. Return: @buf.
 */
char *progress_format(uint64_t done_bytes, uint64_t total_bytes, uint64_t elapsed_ms,
		      size_t columns, char *buf);

void progress_begin(struct progress *progress, bool shown, uint64_t total_bytes);

/** progress_update() - draws on standard error, at most ten times a second */
void progress_update(struct progress *progress, uint64_t done_bytes);

/** progress_end() - draws for the last time, and leaves the line */
void progress_end(struct progress *progress, uint64_t done_bytes);

#endif
