/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Lines of the audit log. Owns the file's descriptor, and the numbers of lines that were
 * suppressed or lost and of which nothing has been said yet.
 *
 * Invariants: a number is set back only when a line that tells it has been written whole;
 * memory does not grow, whatever happens; nothing waits for a sink. A line that was written
 * in part counts as lost, and the next one begins with the newline that it lacks.
 *
 * Thread: the loop.
 */
#include "daemon/audit.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "common/clock.h"
#include "common/log.h"
#include "common/text.h"
#include "proto/message.h"

/* A byte of text becomes four at most. */
#define AUDIT_VALUE_MAX (4 * AUDIT_TEXT_MAX + sizeof("..."))
#define AUDIT_LINE_MAX	1200
#define AUDIT_TIME_MAX	32
#define AUDIT_WINDOW_MS 1000
#define AUDIT_RETRY_MS	1000

struct audit {
	char *path; /* NULL: the daemon's log */
	int fd;	    /* -1: the daemon's log */
	uint32_t lines_per_s;
	uint32_t lines; /* of events, in the window */
	uint64_t window_end_ns;
	uint64_t suppressed[AUDIT_EVENTS]; /* not told yet */
	uint64_t lost;			   /* not told yet */
	bool torn;			   /* the file ends in a part of a line */
	uint64_t retry_ns;		   /* when to try again what could not be told */
	struct audit_counts counts;
};

static const struct {
	const char *name;
	bool has_duration;
} audit_events[AUDIT_EVENTS] = {
#define X(id, name, has_duration) [AUDIT_##id] = {(name), (has_duration)},
	AUDIT_EVENT_LIST(X)
#undef X
};

const char *audit_event_name(enum audit_event event)
{
	return event < AUDIT_EVENTS ? audit_events[event].name : "unknown";
}

bool audit_event_has_duration(enum audit_event event)
{
	return event < AUDIT_EVENTS && audit_events[event].has_duration;
}

const char *audit_rights(uint32_t rights, char *buf)
{
	buf[0] = (rights & MESSAGE_RIGHT_READ) != 0 ? 'r' : '-';
	buf[1] = (rights & MESSAGE_RIGHT_WRITE) != 0 ? 'w' : '-';
	buf[2] = (rights & MESSAGE_RIGHT_ATOMIC) != 0 ? 'a' : '-';
	buf[3] = '\0';
	return buf;
}

/* Return: a descriptor or a negative errno. */
static int audit_open(const char *path)
{
	/* Non-blocking for the sake of a pipe or a terminal; a regular file does not care. */
	int flags = O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY;
	int fd = open(path, flags | O_EXCL, 0640);

	if (fd < 0 && errno == EEXIST)
		fd = open(path, flags, 0640);
	else if (fd >= 0)
		(void)fchmod(fd, 0640); /* for the group, whatever the umask */
	return fd < 0 ? -errno : fd;
}

int audit_new(const char *path, uint32_t lines_per_s, struct audit **ret_audit)
{
	struct audit *audit = calloc(1, sizeof(*audit));
	int r = -ENOMEM;

	assert(lines_per_s > 0);
	if (audit == NULL)
		return -ENOMEM;
	audit->fd = -1;
	audit->lines_per_s = lines_per_s;
	if (path != NULL) {
		audit->path = strdup(path);
		if (audit->path == NULL)
			goto err_free;
		audit->fd = audit_open(path);
		if (audit->fd < 0) {
			r = audit->fd;
			goto err_free;
		}
	}
	*ret_audit = audit;
	return 0;
err_free:
	free(audit->path);
	free(audit);
	return r;
}

int audit_reopen(struct audit *audit)
{
	struct stat before, after;
	int fd;

	if (audit->path == NULL)
		return 0;
	fd = audit_open(audit->path);
	if (fd < 0)
		return fd;
	/* Another file does not end in the part of a line that this one ends in. */
	if (fstat(audit->fd, &before) != 0 || fstat(fd, &after) != 0 ||
	    before.st_dev != after.st_dev || before.st_ino != after.st_ino)
		audit->torn = false;
	(void)close(audit->fd);
	audit->fd = fd;
	return 0;
}

/* Return: was the whole line written? */
static bool audit_write_file(struct audit *audit, const char *text)
{
	char line[AUDIT_LINE_MAX + AUDIT_TIME_MAX], stamp[AUDIT_TIME_MAX];
	struct timespec now = {0};
	struct tm utc = {0};
	ssize_t written;
	int len;

	(void)clock_gettime(CLOCK_REALTIME, &now);
	(void)gmtime_r(&now.tv_sec, &utc);
	if (strftime(stamp, sizeof(stamp), "%Y-%m-%dT%H:%M:%S", &utc) == 0)
		stamp[0] = '\0';
	len = snprintf(line, sizeof(line), "%s%s.%03ldZ audit: %s\n", audit->torn ? "\n" : "",
		       stamp, now.tv_nsec / 1000000, text);
	assert(len > 0 && (size_t)len < sizeof(line));
	do {
		written = write(audit->fd, line, (size_t)len);
	} while (written < 0 && errno == EINTR);
	if (written == len) {
		audit->torn = false;
		return true;
	}
	/* Of a part that is nothing but the missing newline, nothing is torn. */
	if (written > 0)
		audit->torn = line[written - 1] != '\n';
	return false;
}

/* Return: was the line written, as far as can be told? */
static bool audit_put(struct audit *audit, const char *text)
{
	/* Not a matter of the log's level: whoever wants few lines has not asked for no audit. */
	enum log_level level = log_get_level() < LOG_LEVEL_INFO ? log_get_level() : LOG_LEVEL_INFO;

	if (audit->fd >= 0)
		return audit_write_file(audit, text);
	log_write(level, "audit: %s", text);
	return true;
}

static size_t audit_append(char *text, size_t used, const char *format, ...)
	__attribute__((format(printf, 3, 4)));

static size_t audit_append(char *text, size_t used, const char *format, ...)
{
	va_list args;
	int len;

	va_start(args, format);
	len = vsnprintf(text + used, AUDIT_LINE_MAX - used, format, args);
	va_end(args);
	/* All values are bounded, so that a line always fits. */
	assert(len >= 0 && (size_t)len < AUDIT_LINE_MAX - used);
	return used + (size_t)len;
}

static bool audit_tell_lost(struct audit *audit)
{
	char text[AUDIT_LINE_MAX];

	if (audit->lost == 0)
		return true;
	audit_append(text, 0, "%" PRIu64 " lines lost", audit->lost);
	if (!audit_put(audit, text))
		return false;
	audit->lost = 0;
	return true;
}

static uint64_t audit_suppressed(const struct audit *audit)
{
	uint64_t sum = 0;

	for (int i = 0; i < AUDIT_EVENTS; i++)
		sum += audit->suppressed[i];
	return sum;
}

static bool audit_tell_suppressed(struct audit *audit)
{
	uint64_t sum = audit_suppressed(audit);
	char text[AUDIT_LINE_MAX];
	size_t used;

	if (sum == 0)
		return true;
	used = audit_append(text, 0, "%" PRIu64 " lines suppressed", sum);
	for (int i = 0; i < AUDIT_EVENTS; i++) {
		if (audit->suppressed[i] > 0)
			used = audit_append(text, used, " %s=%" PRIu64, audit_events[i].name,
					    audit->suppressed[i]);
	}
	if (!audit_put(audit, text))
		return false;
	memset(audit->suppressed, 0, sizeof(audit->suppressed));
	return true;
}

/* Tell what is to be told; Return: does writing work, as far as that was tried? */
static bool audit_catch_up(struct audit *audit, uint64_t now_ns)
{
	bool works = audit_tell_lost(audit);

	if (works && now_ns >= audit->window_end_ns)
		works = audit_tell_suppressed(audit);
	audit->retry_ns = works ? 0 : clock_add_ms(now_ns, AUDIT_RETRY_MS);
	return works;
}

struct audit *audit_free(struct audit *audit)
{
	if (audit == NULL)
		return NULL;
	if (!audit_tell_lost(audit) || !audit_tell_suppressed(audit))
		log_error("audit log ends with lines untold lost=%" PRIu64 " suppressed=%" PRIu64,
			  audit->lost, audit_suppressed(audit));
	if (audit->fd >= 0)
		(void)close(audit->fd);
	free(audit->path);
	free(audit);
	return NULL;
}

/* Escape a value of a field, spaces too; "-" if there is none. */
static const char *audit_value(const char *text, char buf[AUDIT_VALUE_MAX])
{
	char raw[AUDIT_TEXT_MAX + 1], escaped[AUDIT_VALUE_MAX];
	size_t used = 0;

	if (text == NULL)
		return "-";
	if (strcmp(text, "-") == 0)
		return "\\x2d";
	(void)snprintf(raw, sizeof(raw), "%s", text);
	(void)text_escape(raw, escaped, sizeof(escaped));
	for (const char *c = escaped; *c != '\0'; c++)
		used += (size_t)snprintf(buf + used, AUDIT_VALUE_MAX - used,
					 *c == ' ' ? "\\x20" : "%c", *c);
	(void)snprintf(buf + used, AUDIT_VALUE_MAX - used, "%s",
		       strlen(text) > AUDIT_TEXT_MAX ? "..." : "");
	return buf;
}

static size_t audit_append_id(char *text, size_t used, const char *field, uint64_t id)
{
	if (id == 0)
		return audit_append(text, used, " %s=-", field);
	return audit_append(text, used, " %s=0x%" PRIx64, field, id);
}

static size_t audit_append_number(char *text, size_t used, const char *field, bool applies,
				  uint64_t number)
{
	if (!applies)
		return audit_append(text, used, " %s=-", field);
	return audit_append(text, used, " %s=%" PRIu64, field, number);
}

static size_t audit_append_rights(char *text, size_t used, uint32_t rights)
{
	char shown[AUDIT_RIGHTS_MAX];

	if (rights == 0)
		return audit_append(text, used, " rights=-");
	return audit_append(text, used, " rights=%s", audit_rights(rights, shown));
}

static void audit_format(const struct audit_record *record, char text[AUDIT_LINE_MAX])
{
	char value[AUDIT_VALUE_MAX];
	size_t used;

	used = audit_append(text, 0, "event=%s", audit_events[record->event].name);
	used = audit_append(text, used, " tenant=%s", audit_value(record->tenant, value));
	used = audit_append_id(text, used, "session", record->session_id);
	used = audit_append_id(text, used, "lease", record->lease_id);
	used = audit_append_number(text, used, "generation", record->generation != 0,
				   record->generation);
	used = audit_append_number(text, used, "bytes", record->len_bytes != 0, record->len_bytes);
	used = audit_append_rights(text, used, record->rights);
	used = audit_append(text, used, " reason=%s", audit_value(record->reason, value));
	used = audit_append_number(text, used, "duration_ms",
				   audit_events[record->event].has_duration, record->duration_ms);
	(void)audit_append(text, used, " peer=%s", audit_value(record->peer, value));
}

/* Return: may a line of an event be written in this second? If so it is counted. */
static bool audit_admit(struct audit *audit, uint64_t now_ns)
{
	if (now_ns >= audit->window_end_ns) {
		audit->window_end_ns = clock_add_ms(now_ns, AUDIT_WINDOW_MS);
		audit->lines = 0;
	}
	if (audit->lines >= audit->lines_per_s)
		return false;
	audit->lines++;
	return true;
}

void audit_write(struct audit *audit, const struct audit_record *record, uint64_t now_ns)
{
	char text[AUDIT_LINE_MAX];
	bool works;

	assert(record->event < AUDIT_EVENTS);
	works = audit_catch_up(audit, now_ns);
	if (!audit_admit(audit, now_ns)) {
		audit->suppressed[record->event]++;
		audit->counts.suppressed++;
		return;
	}
	audit_format(record, text);
	if (works && audit_put(audit, text)) {
		audit->counts.written++;
		return;
	}
	audit->lost++;
	audit->counts.lost++;
	audit->retry_ns = clock_add_ms(now_ns, AUDIT_RETRY_MS);
}

void audit_tick(struct audit *audit, uint64_t now_ns)
{
	if (now_ns >= audit_due_ns(audit))
		(void)audit_catch_up(audit, now_ns);
}

uint64_t audit_due_ns(const struct audit *audit)
{
	if (audit->lost > 0)
		return audit->retry_ns;
	if (audit_suppressed(audit) == 0)
		return UINT64_MAX;
	return audit->retry_ns > audit->window_end_ns ? audit->retry_ns : audit->window_end_ns;
}

void audit_counts(const struct audit *audit, struct audit_counts *ret_counts)
{
	*ret_counts = audit->counts;
}
