/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef DAEMON_NOTICES_H
#define DAEMON_NOTICES_H

#include <stdbool.h>
#include <stdint.h>

#include "proto/message.h"

struct lease;
struct session;

#define NOTICES_ENDED_MAX 256 /* ended leases that are remembered for their reason */

/* What a session's client is told of its leases, many at a time. All zero at first. */
struct notices {
	struct message_leases_ended ended;
	struct message_revoke revoked;
	struct {
		uint64_t lease_id;
		int reason;
	} past[NOTICES_ENDED_MAX]; /* ring */
	uint32_t past_next;
};

/** notices_revoked() - tell the client with the next notice that a lease ends after a grace */
void notices_revoked(struct session *session, const struct lease *lease, uint64_t grace_ms);

/** notices_ended() - remember why a lease ended, and tell the client with the next notice if @tell */
void notices_ended(struct session *session, const struct lease *lease, bool tell);

/** notices_reason() - why a lease of the session ended; ERROR_NO_LEASE if nothing is known of it */
int notices_reason(const struct notices *notices, uint64_t lease_id);

/** notices_send() - send what has been collected */
void notices_send(struct session *session);

#endif
