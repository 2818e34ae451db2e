/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The daemon's log, on standard error unless something else takes it. Each line is put
 * together on the stack and written with one write(2), so lines of different threads do not
 * mix. Shared between threads are the level, and what takes the lines, which is set before
 * there are any. If the line cannot be written it is lost: nothing waits for a log.
 *
 * Limits that have suppressed something are on a list until that has been told.
 */
#include "common/log.h"

#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
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
static log_sink_fn current_sink;
static struct log_limit *untold; /* those that have something to tell */

void log_set_sink(log_sink_fn sink)
{
	current_sink = sink;
}

bool log_is_journal(void)
{
	const char *stream = getenv("JOURNAL_STREAM");
	unsigned long long dev, ino;
	struct stat st;
	int end = 0;

	/* It is inherited by whoever has sent its output elsewhere, too. */
	return stream != NULL && sscanf(stream, "%llu:%llu%n", &dev, &ino, &end) == 2 &&
	       stream[end] == '\0' && fstat(STDERR_FILENO, &st) == 0 && st.st_dev == dev &&
	       st.st_ino == ino;
}

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

	if (log_is_journal())
		return (size_t)snprintf(buf, cap_bytes, "<%d>", levels[level].journal);
	(void)clock_gettime(CLOCK_REALTIME, &now);
	(void)gmtime_r(&now.tv_sec, &utc);
	used = strftime(buf, cap_bytes, "%Y-%m-%dT%H:%M:%S", &utc);
	return used + (size_t)snprintf(buf + used, cap_bytes - used,
				       ".%03ldZ %s: ", now.tv_nsec / 1000000, levels[level].word);
}

/* Sentence and fields. Return: the length. */
static size_t write_text(uint64_t suppressed, const char *format, va_list ap, char *buf,
			 size_t cap_bytes)
{
	char text[LINE_MAX_BYTES], suffix[SUFFIX_MAX_BYTES] = "";
	size_t used, suffix_len = 0;

	/* What does not fit here would not fit the line either: the escaped text is no shorter. */
	if (vsnprintf(text, sizeof(text), format, ap) < 0)
		text[0] = '\0';
	if (suppressed > 0)
		suffix_len = (size_t)snprintf(suffix, sizeof(suffix), " suppressed=%" PRIu64,
					      suppressed);
	used = text_escape(text, buf, cap_bytes - suffix_len);
	return used + (size_t)snprintf(buf + used, cap_bytes - used, "%s", suffix);
}

static void write_line(enum log_level level, uint64_t suppressed, const char *format, va_list ap)
{
	int saved_errno = errno;
	char line[LINE_MAX_BYTES];
	size_t prefix = current_sink != NULL ? 0 : write_prefix(level, line, sizeof(line));
	size_t used =
		prefix + write_text(suppressed, format, ap, line + prefix, sizeof(line) - prefix);

	if (current_sink != NULL && current_sink(level, line)) {
		errno = saved_errno;
		return;
	}
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

/* It has something to tell, which the next line of its cause does, or log_tick(). */
static void suppress(struct log_limit *limit, const char *format)
{
	limit->suppressed++;
	limit->format = format;
	if (limit->is_listed)
		return;
	limit->is_listed = true;
	limit->next = untold;
	untold = limit;
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
	if (limit->lines >= (limit->lines_per_s > 0 ? limit->lines_per_s : LIMIT_LINES)) {
		suppress(limit, format);
		return;
	}
	limit->lines++;
	va_start(ap, format);
	write_line(level, limit->suppressed, format, ap);
	va_end(ap);
	limit->suppressed = 0;
}

/* A format's sentence, which is before its first field, says what it was about. */
static void tell_suppressed(const struct log_limit *limit)
{
	size_t len = strcspn(limit->format, "=%");

	if (limit->format[len] == '=') {
		while (len > 0 && limit->format[len - 1] != ' ')
			len--;
	}
	while (len > 0 && limit->format[len - 1] == ' ')
		len--;
	log_write(LOG_LEVEL_WARN, "lines suppressed cause=\"%.*s\" suppressed=%" PRIu64, (int)len,
		  limit->format, limit->suppressed);
}

void log_tick(void)
{
	uint64_t now_ns = clock_now_ns();
	struct log_limit **at = &untold;

	while (*at != NULL) {
		struct log_limit *limit = *at;

		if (limit->suppressed > 0 && now_ns - limit->window_start_ns < LIMIT_WINDOW_NS) {
			at = &limit->next;
			continue;
		}
		if (limit->suppressed > 0)
			tell_suppressed(limit);
		limit->suppressed = 0;
		limit->is_listed = false;
		*at = limit->next;
	}
}
