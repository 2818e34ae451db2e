/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef TESTS_STORY_TELL_H
#define TESTS_STORY_TELL_H

/* What the story prints: plain lines on standard output, each at once. */

/** tell_chapter() - a heading */
void tell_chapter(const char *format, ...) __attribute__((format(printf, 1, 2)));

/** tell() - one line of the present chapter */
void tell(const char *format, ...) __attribute__((format(printf, 1, 2)));

/** tell_failure() - a line that starts "step failed: "; Return: -1, for the caller to pass on */
int tell_failure(const char *format, ...) __attribute__((format(printf, 1, 2)));

/** tell_block() - lines that another program has printed, indented */
void tell_block(const char *text);

#endif
