/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef DAEMON_REQUEST_H
#define DAEMON_REQUEST_H

#include "proto/message.h"

struct session;

/**
 * request_handle() - act on a message of a session that is in HELLO or OPEN
 *
 * Answers go out through the session, now or later.
 * Return: 0, or the error code with which the session must end.
 */
int request_handle(struct session *session, const struct message *m);

#endif
