/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What the story prints. Every line is flushed, so that the last one is seen even if what
 * follows never returns.
 */
#include "tests/story/tell.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static void tell_line(const char *prefix, const char *format, va_list args)
{
	(void)fputs(prefix, stdout);
	(void)vprintf(format, args);
	(void)putchar('\n');
	(void)fflush(stdout);
}

void tell_chapter(const char *format, ...)
{
	va_list args;

	va_start(args, format);
	tell_line("\n", format, args);
	va_end(args);
}

void tell(const char *format, ...)
{
	va_list args;

	va_start(args, format);
	tell_line("    ", format, args);
	va_end(args);
}

int tell_failure(const char *format, ...)
{
	va_list args;

	va_start(args, format);
	tell_line("step failed: ", format, args);
	va_end(args);
	return -1;
}

void tell_block(const char *text)
{
	const char *end;

	for (; *text != '\0'; text = *end == '\0' ? end : end + 1) {
		end = strchrnul(text, '\n');
		tell("  %.*s", (int)(end - text), text);
	}
}
