/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef COMMON_TEXT_H
#define COMMON_TEXT_H

#include <stddef.h>

/**
 * text_escape() - make any bytes safe for a terminal and for one line of a log
 * @text: NUL-terminated
 * @buf: the result, always NUL-terminated
 * @cap_bytes: room in @buf, at least 4
 *
 * Printable ASCII is kept, a backslash is doubled, every other byte becomes "\xNN".
 * What does not fit is cut between characters and ends in "...".
 * Return: the length of the result.
 */
size_t text_escape(const char *text, char *buf, size_t cap_bytes);

#endif
