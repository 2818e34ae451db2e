/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef DAEMON_REVOCATION_H
#define DAEMON_REVOCATION_H

#include <stdint.h>
#include <sys/queue.h>

#include "daemon/deadline.h"
#include "proto/limits.h"

struct admin_request;
struct lease;
struct server;

/* An operator's order to revoke leases: answered when all of them are behind their fences,
 * or in quarantine. */
struct revocation {
	LIST_ENTRY(revocation) link; /* in the server's list, while it still looks for leases */
	struct admin_request *request;
	struct server *server;
	struct deadline deadline; /* for the next step */
	char tenant[PROTO_TENANT_NAME_MAX + 1];
	uint64_t grace_ms;
	struct lease *next; /* to be looked at; NULL: all have been */
	uint64_t started_ns;
	uint64_t pending;      /* leases not yet fenced, and one while it looks for leases */
	uint64_t leases;       /* that the order was for */
	uint64_t stuck;	       /* of these, in quarantine: nobody knows when they are fenced */
	uint64_t fence_max_us; /* longest time from the decision to the fence */
	uint64_t lease_id;     /* of the only one, 0: an order for several */
};

/**
 * revocation_lease() - revoke one lease
 * @request: answered by this order; consumed if 0 is returned
 *
 * Return: 0, or the error code that the caller answers with.
 */
int revocation_lease(struct server *server, uint64_t lease_id, uint64_t grace_ms,
		     struct admin_request *request);

/** revocation_tenant() - revoke all leases of a tenant; none is no error; Return: as revocation_lease() */
int revocation_tenant(struct server *server, const char *tenant, uint64_t grace_ms,
		      struct admin_request *request);

/** revocation_fenced() - a lease of the order is behind its fence */
void revocation_fenced(struct revocation *revocation, const struct lease *lease);

/** revocation_stuck() - a lease of the order is in quarantine, and not waited for */
void revocation_stuck(struct revocation *revocation);

/** revocation_lease_gone() - a lease is about to be freed: no order may look at it any more */
void revocation_lease_gone(struct server *server, const struct lease *lease);

#endif
