/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Text from peers, files and daemons on its way to a terminal or a log. Pure code.
 */
#include "common/text.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

#define ELLIPSIS    "..."
#define ESCAPED_MAX 5 /* "\xNN" and its NUL */

static size_t escape_char(unsigned char c, char *buf)
{
	if (c == '\\') {
		memcpy(buf, "\\\\", 3);
		return 2;
	}
	if (c < 0x20 || c > 0x7e)
		return (size_t)snprintf(buf, ESCAPED_MAX, "\\x%02x", (unsigned int)c);
	buf[0] = (char)c;
	return 1;
}

size_t text_escape(const char *text, char *buf, size_t cap_bytes)
{
	size_t used = 0, cut_at = 0;
	char one[ESCAPED_MAX];

	assert(cap_bytes >= sizeof(ELLIPSIS));
	for (; *text; text++) {
		size_t len = escape_char((unsigned char)*text, one);

		if (len >= cap_bytes - used) {
			memcpy(buf + cut_at, ELLIPSIS, sizeof(ELLIPSIS));
			return cut_at + strlen(ELLIPSIS);
		}
		memcpy(buf + used, one, len);
		used += len;
		/* The last place between characters that leaves room for the ellipsis. */
		if (used + sizeof(ELLIPSIS) <= cap_bytes)
			cut_at = used;
	}
	buf[used] = '\0';
	return used;
}
