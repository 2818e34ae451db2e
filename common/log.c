/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The daemon's log on standard error. Each line is put together on the stack and
 * written with one write(2), so lines of different threads do not mix. The only
 * shared state is the level. If the line cannot be written it is lost: nothing
 * waits for a log.
 */
#include "common/log.h"

#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "common/clock.h"
#include "common/text.h"

#define LINE_MAX_BYTES	 1000 /* newline included */
#define SUFFIX_MAX_BYTES 40
#define LIMIT_LINES	 10
#define LIMIT_WINDOW_NS	 CLOCK_NS_PER_S

static const struct {
	const char *word;
	int journal; /* number that systemd's journal takes as a prefix */
} levels[] = {
	[LOG_LEVEL_ERROR] = {"error", 3},
	[LOG_LEVEL_WARN] = {"warn", 4},
	[LOG_LEVEL_INFO] = {"info", 6},
	[LOG_LEVEL_DEBUG] = {"debug", 7},
};

static _Atomic int current_level = LOG_LEVEL_INFO;

void log_set_level(enum log_level level)
{
	atomic_store(&current_level, (int)level);
}

enum log_level log_get_level(void)
{
	return (enum log_level)atomic_load(&current_level);
}

const char *log_level_name(enum log_level level)
{
	return levels[level].word;
}

bool log_level_find(const char *name, enum log_level *ret_level)
{
	for (size_t i = 0; i < sizeof(levels) / sizeof(levels[0]); i++) {
		if (strcmp(levels[i].word, name) == 0) {
			*ret_level = (enum log_level)i;
			return true;
		}
	}
	return false;
}

static size_t write_prefix(enum log_level level, char *buf, size_t cap_bytes)
{
	struct timespec now = {0};
	struct tm utc = {0};
	size_t used;

	if (getenv("JOURNAL_STREAM"))
		return (size_t)snprintf(buf, cap_bytes, "<%d>", levels[level].journal);
	(void)clock_gettime(CLOCK_REALTIME, &now);
	(void)gmtime_r(&now.tv_sec, &utc);
	used = strftime(buf, cap_bytes, "%Y-%m-%dT%H:%M:%S", &utc);
	return used + (size_t)snprintf(buf + used, cap_bytes - used,
				       ".%03ldZ %s: ", now.tv_nsec / 1000000, levels[level].word);
}

static void write_line(enum log_level level, uint64_t suppressed, const char *format, va_list ap)
{
	char text[LINE_MAX_BYTES], line[LINE_MAX_BYTES], suffix[SUFFIX_MAX_BYTES] = "";
	int saved_errno = errno;
	size_t used, suffix_len = 0;

	/* What does not fit here would not fit the line either: the escaped text is no shorter. */
	if (vsnprintf(text, sizeof(text), format, ap) < 0)
		text[0] = '\0';
	if (suppressed > 0)
		suffix_len = (size_t)snprintf(suffix, sizeof(suffix), " suppressed=%" PRIu64,
					      suppressed);
	used = write_prefix(level, line, sizeof(line));
	used += text_escape(text, line + used, sizeof(line) - used - suffix_len);
	used += (size_t)snprintf(line + used, sizeof(line) - used, "%s", suffix);
	line[used++] = '\n';
	while (write(STDERR_FILENO, line, used) < 0 && errno == EINTR)
		;
	errno = saved_errno;
}

void log_write(enum log_level level, const char *format, ...)
{
	va_list ap;

	if (level > log_get_level())
		return;
	va_start(ap, format);
	write_line(level, 0, format, ap);
	va_end(ap);
}

void log_limited(enum log_level level, struct log_limit *limit, const char *format, ...)
{
	uint64_t now_ns = clock_now_ns();
	va_list ap;

	if (level > log_get_level())
		return;
	if (now_ns - limit->window_start_ns >= LIMIT_WINDOW_NS) {
		limit->window_start_ns = now_ns;
		limit->lines = 0;
	}
	if (limit->lines >= LIMIT_LINES) {
		limit->suppressed++;
		return;
	}
	limit->lines++;
	va_start(ap, format);
	write_line(level, limit->suppressed, format, ap);
	va_end(ap);
	limit->suppressed = 0;
}
