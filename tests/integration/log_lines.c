/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What a daemon has written to its log. Owns nothing.
 */
#include "tests/integration/log_lines.h"

#include <stdio.h>
#include <string.h>

#include "common/clock.h"
#include "tests/integration/harness.h"

/* @ret_last: may be NULL */
static int log_lines_look(const struct harness *h, const char *text, char *ret_last,
			  size_t cap_bytes)
{
	char path[HARNESS_TEXT_MAX];
	char line[1024];
	int count = 0;
	FILE *file;

	snprintf(path, sizeof(path), "%s/log", h->dir);
	file = fopen(path, "re");
	if (file == NULL)
		return -1;
	while (fgets(line, sizeof(line), file) != NULL) {
		if (strstr(line, text) == NULL)
			continue;
		count++;
		if (ret_last != NULL)
			snprintf(ret_last, cap_bytes, "%s", line);
	}
	fclose(file);
	return count;
}

int log_lines_count(const struct harness *h, const char *text)
{
	return log_lines_look(h, text, NULL, 0);
}

bool log_lines_last(const struct harness *h, const char *text, char *buf, size_t cap_bytes)
{
	buf[0] = '\0';
	return log_lines_look(h, text, buf, cap_bytes) > 0;
}

bool log_lines_wait(const struct harness *h, const char *text, int count, uint64_t limit_ms)
{
	uint64_t until_ns = clock_add_ms(clock_now_ns(), limit_ms);

	while (log_lines_count(h, text) < count) {
		if (clock_now_ns() >= until_ns)
			return false;
		harness_sleep_ms(5);
	}
	return true;
}
