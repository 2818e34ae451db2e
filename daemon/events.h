/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef DAEMON_EVENTS_H
#define DAEMON_EVENTS_H

#include "daemon/admin.h"
#include "daemon/audit.h"

/*
 * What goes to the audit log, and some more, for whoever follows it on the admin socket:
 * notifications of the method "event", whose params have "time" (UTC), "event", and those fields
 * of the audit log that apply. All of it is told, also what the audit log suppresses.
 */

/* Ends with a NULL name; their context is the server. */
extern const struct admin_method events_methods[];

/** events_publish() - tell an event of the audit log; @admin: NULL is allowed */
void events_publish(struct admin *admin, const struct audit_record *record);

/** events_tell() - tell another one; @admin, @tenant, @reason: NULL is allowed */
void events_tell(struct admin *admin, const char *event, const char *tenant, const char *reason);

#endif
