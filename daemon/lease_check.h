/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef DAEMON_LEASE_CHECK_H
#define DAEMON_LEASE_CHECK_H

struct lane;
struct lease;
struct message_acquire;
struct session;

/** lease_check_request() - may leases like that be made now? @lane: may be NULL; Return: 0 or an error code */
int lease_check_request(const struct session *session, const struct lane *lane,
			const struct message_acquire *request);

/** lease_check_attach() - may it be bound on that lane? @lane: may be NULL; Return: 0 or an error code */
int lease_check_attach(const struct lease *lease, const struct lane *lane);

#endif
