/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef COMMON_LOG_H
#define COMMON_LOG_H

#include <stdbool.h>
#include <stdint.h>

/*
 * The daemon's log: one line per event on standard error, a sentence followed by
 * key=value fields. Used by the daemon only; the library never logs by itself.
 * Keys and secrets are never passed to it.
 */

enum log_level {
	LOG_LEVEL_ERROR, /* the daemon cannot do what it should */
	LOG_LEVEL_WARN,	 /* an operator should know */
	LOG_LEVEL_INFO,	 /* start, stop, sessions, leases */
	LOG_LEVEL_DEBUG, /* for developers */
};

/* Lines a second about what tenants do all the time, of each kind. */
#define LOG_TENANTS_PER_S 1000

/* Limits the lines of one cause; static storage, all zero at first but for lines_per_s. */
struct log_limit {
	uint32_t lines_per_s; /* 0: 10 */
	uint32_t lines;	      /* in the second that began at: */
	uint64_t window_start_ns;
	uint64_t suppressed;	/* not told yet */
	const char *format;	/* of what was suppressed last */
	struct log_limit *next; /* of those that have something to tell */
	bool is_listed;
};

/**
 * What takes lines in place of standard error.
 * @text: sentence and fields, escaped, without time, level and newline
 *
 * Any thread. Return: false if it cannot: the line then goes to standard error.
 */
typedef bool (*log_sink_fn)(enum log_level level, const char *text);

/** log_set_sink() - before there are other threads; NULL: standard error */
void log_set_sink(log_sink_fn sink);

/** log_is_journal() - is standard error a stream of systemd's journal? */
bool log_is_journal(void);

void log_set_level(enum log_level level);
enum log_level log_get_level(void);

/** log_level_name() - "error", "warn", "info" or "debug" */
const char *log_level_name(enum log_level level);

/** log_level_find() - the level of a name; Return: is there one? */
bool log_level_find(const char *name, enum log_level *ret_level);

/**
 * log_write() - write one line
 * @level: lines above the set level are dropped
 * @format: sentence in lower case, then fields: "lease ended id=%" PRIu64 " reason=%s"
 *
 * Control characters in the result are escaped, so a peer's text cannot forge
 * lines; a line is cut at 1000 bytes. errno is kept. Any thread.
 */
void log_write(enum log_level level, const char *format, ...) __attribute__((format(printf, 2, 3)));

/**
 * log_limited() - write one line, at most so many a second as the limit says
 * @limit: state of this cause; one thread, the same for all limits
 *
 * What is suppressed is counted, and the next line of that cause that passes says "suppressed=N",
 * or log_tick() does.
 */
void log_limited(enum log_level level, struct log_limit *limit, const char *format, ...)
	__attribute__((format(printf, 3, 4)));

/**
 * log_tick() - tell what was suppressed if the second is over; to be called now and then
 *
 * Thread: that of the limits.
 */
void log_tick(void);

#define log_error(...) log_write(LOG_LEVEL_ERROR, __VA_ARGS__)
#define log_warn(...)  log_write(LOG_LEVEL_WARN, __VA_ARGS__)
#define log_info(...)  log_write(LOG_LEVEL_INFO, __VA_ARGS__)
#define log_debug(...) log_write(LOG_LEVEL_DEBUG, __VA_ARGS__)

#endif
