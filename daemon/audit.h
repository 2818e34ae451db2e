/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef DAEMON_AUDIT_H
#define DAEMON_AUDIT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/*
 * The audit log: who had which memory, when, and why no longer. One line per event, to a
 * file or to the daemon's log:
 *
 *	audit: event=lease-ended tenant=blue session=0x1f lease=0x2a generation=1 bytes=4096
 *	rights=rw- reason=expired duration_ms=30000 peer=192.0.2.7:4791
 *
 * (one line), always with these fields in this order; a field that does not apply is "-".
 * In a file each line begins with the time of day in UTC. Text is escaped as text_escape() does,
 * and a space in it is "\x20", so a line splits at its spaces and nobody can forge a field; what
 * is longer than AUDIT_TEXT_MAX bytes is cut and ends in "...". The daemon's log escapes
 * backslashes once more.
 *
 * No line disappears without a word. What is over the limit is counted by event and told in
 * one line as soon as the second is over, and what could not be written to the file as soon
 * as it can be written to again:
 *
 *	audit: 12 lines suppressed lease-granted=10 lease-ended=2
 *	audit: 3 lines lost
 *
 * For that audit_tick() must be called at audit_due_ns(). Whether standard error takes the
 * lines is not known here: only a file tells what is lost.
 * Times are clock_now_ns()'s; if time goes back, a second lasts so much longer.
 */

#define AUDIT_TEXT_MAX 64 /* of the bytes of a tenant, reason or peer, before they are escaped */

/* Columns: identifier, name, has it a duration? */
#define AUDIT_EVENT_LIST(X)                           \
	X(SESSION_OPENED, "session-opened", false)    \
	X(SESSION_ENDED, "session-ended", true)       \
	X(LEASE_GRANTED, "lease-granted", true)       \
	X(LEASE_RENEWED, "lease-renewed", true)       \
	X(LEASE_MODIFIED, "lease-modified", true)     \
	X(LEASE_ENDED, "lease-ended", true)           \
	X(LEASE_ORPHANED, "lease-orphaned", true)     \
	X(LEASE_REATTACHED, "lease-reattached", true) \
	X(TENANT_BANNED, "tenant-banned", true)       \
	X(TENANT_UNBANNED, "tenant-unbanned", false)  \
	X(ADDRESS_BANNED, "address-banned", true)     \
	X(ADMIN, "admin", false)

enum audit_event {
#define X(id, name, has_duration) AUDIT_##id,
	AUDIT_EVENT_LIST(X)
#undef X
		AUDIT_EVENTS, /* their number */
};

/* What is told of an event. What is 0 or NULL does not apply. Never a key. */
struct audit_record {
	enum audit_event event;
	const char *tenant;
	uint64_t session_id;
	uint64_t lease_id;
	uint32_t generation;
	uint64_t len_bytes;
	uint32_t rights;    /* MESSAGE_RIGHT_* */
	const char *reason; /* why it ended or was banned; of an admin action: which */
	/* Ended: that it lasted; lease: that it may last; orphaned: that it waits; banned: of the ban. */
	uint64_t duration_ms;
	const char *peer; /* address and port; of an admin action: who */
};

#define AUDIT_RIGHTS_MAX 4 /* bytes of a text about rights */

/** audit_rights() - "rw-"; @buf: AUDIT_RIGHTS_MAX bytes; Return: @buf */
const char *audit_rights(uint32_t rights, char *buf);

/** audit_event_name() - "session-opened" and so on; audit_event_has_duration() - has it one? */
const char *audit_event_name(enum audit_event event);
bool audit_event_has_duration(enum audit_event event);

struct audit_counts {
	uint64_t written; /* lines of events that the sink took, ever */
	uint64_t suppressed;
	uint64_t lost;
};

struct audit;

/**
 * audit_new() - begin to write
 * @path: of a file, made with mode 0640 if there is none, appended to if there is, never
 *	followed if it is a symbolic link; NULL: the daemon's log. Copied.
 * @lines_per_s: at most so many lines of events a second; not 0 (asserted)
 *
 * Return: 0, -ENOMEM, or the negative errno of opening the file.
 */
int audit_new(const char *path, uint32_t lines_per_s, struct audit **ret_audit);

/**
 * audit_free() - tell what is still to be told, and close; NULL is allowed
 *
 * Return: NULL.
 */
struct audit *audit_free(struct audit *audit);

/**
 * audit_reopen() - open the file by its name again, after it was renamed (log rotation)
 *
 * If it cannot be opened lines go on into the old file.
 * Return: 0 (also if there is no file), or a negative errno.
 */
int audit_reopen(struct audit *audit);

/**
 * audit_write() - tell an event
 *
 * Each line is one write(2), which is not waited for if the file is no regular one.
 */
void audit_write(struct audit *audit, const struct audit_record *record, uint64_t now_ns);

/**
 * audit_tick() - tell what was suppressed or lost, if it is time
 */
void audit_tick(struct audit *audit, uint64_t now_ns);

/**
 * audit_due_ns() - when audit_tick() must be called; UINT64_MAX: need not be
 *
 * Changes with audit_write() and audit_tick() only.
 */
uint64_t audit_due_ns(const struct audit *audit);

/** audit_counts() - for status */
void audit_counts(const struct audit *audit, struct audit_counts *ret_counts);

#endif
