/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef DAEMON_SESSION_REPORT_H
#define DAEMON_SESSION_REPORT_H

struct session;

/** session_report_opened() - it is a tenant's now */
void session_report_opened(const struct session *session);

/** session_report_end() - it ends; @why: static text */
void session_report_end(const struct session *session, const char *why);

/** session_report_banned() - its address has failed too often */
void session_report_banned(const struct session *session);

#endif
