/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Lines of the log as entries of systemd's journal. The text of a line has been escaped, so
 * nothing in it can end a field. Keeps nothing.
 *
 * Thread: any.
 */
#define SD_JOURNAL_SUPPRESS_LOCATION

#include "daemon/journal.h"

#include <stdio.h>
#include <string.h>
#include <sys/uio.h>
#include <syslog.h>
#include <systemd/sd-journal.h>

#include "common/log.h"
#include "daemon/log_fields.h"

#define FIELDS_MAX	 16
#define FIXED		 3
#define NAME_MAX_BYTES	 24
#define FIELDS_MAX_BYTES 2048
#define PREFIX		 "MEMPOOL_"

static const char *priority_of(enum log_level level)
{
	switch (level) {
	case LOG_LEVEL_ERROR:
		return "PRIORITY=3";
	case LOG_LEVEL_WARN:
		return "PRIORITY=4";
	case LOG_LEVEL_INFO:
		return "PRIORITY=6";
	case LOG_LEVEL_DEBUG:
		return "PRIORITY=7";
	}
	return "PRIORITY=5";
}

static struct iovec text_of(const char *text)
{
	return (struct iovec){.iov_base = (char *)text, .iov_len = strlen(text)};
}

/* "MEMPOOL_TENANT=alpha" into @buf. Return: its length; 0 if there is no room. */
static size_t put_field(const struct log_field *field, char *buf, size_t cap_bytes)
{
	size_t used = strlen(PREFIX);

	if (field->name_len > NAME_MAX_BYTES ||
	    used + field->name_len + 1 + field->value_len > cap_bytes)
		return 0;
	memcpy(buf, PREFIX, used);
	for (size_t i = 0; i < field->name_len; i++) {
		char c = field->name[i];

		buf[used++] = c >= 'a' && c <= 'z' ? (char)(c - 'a' + 'A') : c;
	}
	buf[used++] = '=';
	memcpy(buf + used, field->value, field->value_len);
	return used + field->value_len;
}

static bool journal_send(enum log_level level, const char *text)
{
	struct log_field fields[FIELDS_MAX];
	struct iovec entry[FIXED + FIELDS_MAX];
	char message[1024], buf[FIELDS_MAX_BYTES];
	size_t count = log_fields_find(text, fields, FIELDS_MAX);
	size_t used = 0;
	int items = 0;

	(void)snprintf(message, sizeof(message), "MESSAGE=%s", text);
	entry[items++] = text_of(message);
	entry[items++] = text_of(priority_of(level));
	entry[items++] = text_of("SYSLOG_IDENTIFIER=mempoold");
	for (size_t i = 0; i < count; i++) {
		size_t len = put_field(&fields[i], buf + used, sizeof(buf) - used);

		if (len > 0)
			entry[items++] = (struct iovec){.iov_base = buf + used, .iov_len = len};
		used += len;
	}
	return sd_journal_sendv(entry, items) == 0;
}

bool journal_open(void)
{
	if (!log_is_journal())
		return false;
	log_set_sink(journal_send);
	return true;
}
