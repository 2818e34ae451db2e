/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef DAEMON_GRANT_H
#define DAEMON_GRANT_H

#include <stdbool.h>
#include <stdint.h>

struct attachment;
struct lease;
struct session;

/** grant_send() - tell a session the descriptors of a lease on a lane; @more: further grants of that request follow */
void grant_send(struct lease *lease, struct session *session, const struct attachment *attachment,
		uint64_t request_id, bool more);

/** grant_send_first() - the same for the first lane that it is bound on; there must be one */
void grant_send_first(struct lease *lease, struct session *session, uint64_t request_id, bool more);

/** grant_send_all() - tell the owner of every lane that it is bound on */
void grant_send_all(struct lease *lease, uint64_t request_id);

#endif
