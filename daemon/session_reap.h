/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef DAEMON_SESSION_REAP_H
#define DAEMON_SESSION_REAP_H

struct session;

void session_reap_init(struct session *session);

/** session_reap_maybe() - begin the teardown if the session is closing and nothing holds it up any more */
void session_reap_maybe(struct session *session);

#endif
