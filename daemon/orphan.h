/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef DAEMON_ORPHAN_H
#define DAEMON_ORPHAN_H

#include <stdbool.h>
#include <stdint.h>

#include "daemon/lease.h"
#include "proto/message.h"

/*
 * Leases whose session was lost. Such a lease has no session and, behind the fence, no window;
 * it has its bytes, its deadline and what is charged for it. It ends when its own time is over,
 * or the configuration's grace, unless a session of its tenant has taken it over.
 */

/** orphan_is() - does a lease wait for a session? */
static inline bool orphan_is(const struct lease *lease)
{
	return lease->session == NULL && !lease_is_ending(lease);
}

/**
 * orphan_keep() - the session of a lease is lost
 * @lost_ns: since when; the grace counts from there
 *
 * The lease leaves its session, and its windows go behind the fence. One that is being revoked
 * ends. Return: true; or false if the lease is not to be kept, and then it is as it was.
 */
bool orphan_keep(struct lease *lease, uint64_t lost_ns);

/**
 * orphan_reattach() - a session asks for a lease by its secret
 * @lane: to bind it on; NULL if there is no such lane that is ready
 *
 * The lease may still belong to another session of the tenant: that one is lost by this. The
 * answer goes to the session now or later. Return: 0, or an error code that the caller answers
 * with.
 */
int orphan_reattach(struct session *session, struct lane *lane, uint64_t request_id,
		    const struct message_reattach *request);

/**
 * orphan_end_all() - let all orphans end, some in each turn of the loop
 * @tenant: whose; NULL: everybody's
 * @reason: an error code
 */
void orphan_end_all(struct server *server, const struct tenant *tenant, int reason);

/** orphan_on_deadline() - for struct lease's second deadline */
void orphan_on_deadline(struct deadline *deadline, void *context);

#endif
