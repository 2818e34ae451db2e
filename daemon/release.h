/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef DAEMON_RELEASE_H
#define DAEMON_RELEASE_H

#include <stdint.h>

#include "proto/message.h"

struct lease;
struct session;

/* One release request: answered when all its leases are behind their fences. */
struct release {
	uint64_t request_id;
	uint32_t pending; /* leases that are not, and the caller while it begins */
	struct message_released answer;
};

/**
 * release_begin() - end leases at their owner's wish
 *
 * Those that are not the session's, or have ended, are answered with a code each.
 * Return: 0, or an error code that the caller answers with.
 */
int release_begin(struct session *session, uint64_t request_id,
		  const struct message_leases *request);

/** release_lease_fenced() - one of its leases is behind the fence; @session: NULL if it has gone */
void release_lease_fenced(struct release *release, struct session *session);

#endif
