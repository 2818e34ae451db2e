/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Orders to revoke. The leases end one by one through their deadlines, a bounded number in
 * each turn of the loop, so an order for ten thousand leases holds up nothing else.
 *
 * Invariant: `pending` counts the leases that refer to the order; the last one that is
 * fenced, or in quarantine, answers and frees it. A lease is of one order at most.
 *
 * Thread: the loop.
 */
#include "daemon/revocation.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/clock.h"
#include "daemon/admin.h"
#include "daemon/server.h"
#include "proto/error.h"

#define REVOCATION_STEP 128 /* leases looked at in one turn of the loop */

static struct revocation *revocation_new(struct server *server, struct admin_request *request)
{
	struct revocation *revocation = calloc(1, sizeof(*revocation));

	if (revocation == NULL)
		return NULL;
	revocation->server = server;
	revocation->request = request;
	revocation->started_ns = clock_now_ns();
	revocation->pending = 1;
	return revocation;
}

static void revocation_done(struct revocation *revocation)
{
	uint64_t elapsed_us = (clock_now_ns() - revocation->started_ns) / 1000;
	json_t *answer;

	if (--revocation->pending > 0)
		return;
	answer = json_pack("{s:I,s:I,s:I,s:I}", "leases", (json_int_t)revocation->leases, "stuck",
			   (json_int_t)revocation->stuck, "took_us",
			   (json_int_t)revocation->fence_max_us, "elapsed_us",
			   (json_int_t)elapsed_us);
	if (revocation->lease_id != 0)
		json_object_set_new(answer, "id", json_integer((json_int_t)revocation->lease_id));
	admin_reply(revocation->request, answer);
	free(revocation);
}

static void revocation_add(struct revocation *revocation, struct lease *lease, uint64_t grace_ms)
{
	revocation->leases++;
	if (lease->quarantined) {
		revocation->stuck++;
	} else {
		revocation->pending++;
		lease->revocation = revocation;
	}
	lease_revoke(lease, grace_ms);
}

int revocation_lease(struct server *server, uint64_t lease_id, uint64_t grace_ms,
		     struct admin_request *request)
{
	struct lease *lease = lease_find(server, lease_id);
	struct revocation *revocation;

	if (lease == NULL)
		return ERROR_NO_LEASE;
	if (lease_is_ending(lease))
		return lease->reason;
	if (lease->revoking)
		return ERROR_REVOKED;
	revocation = revocation_new(server, request);
	if (revocation == NULL)
		return ERROR_NO_MEMORY;
	revocation->lease_id = lease_id;
	revocation_add(revocation, lease, grace_ms);
	revocation_done(revocation);
	return 0;
}

/* A bounded number of leases is looked at in each turn of the loop. */
static void revocation_step(struct deadline *deadline, void *context)
{
	struct revocation *revocation = context;
	struct lease *lease;

	for (int i = 0; i < REVOCATION_STEP && (lease = revocation->next) != NULL; i++) {
		revocation->next = TAILQ_NEXT(lease, server_link);
		if (!lease_is_ending(lease) && !lease->revoking &&
		    strcmp(lease->tenant->name, revocation->tenant) == 0)
			revocation_add(revocation, lease, revocation->grace_ms);
	}
	if (revocation->next != NULL &&
	    deadline_set(revocation->server->deadlines, deadline, clock_now_ns()) == 0)
		return;
	LIST_REMOVE(revocation, link);
	revocation_done(revocation);
}

int revocation_tenant(struct server *server, const char *tenant, uint64_t grace_ms,
		      struct admin_request *request)
{
	struct revocation *revocation;

	/* Cut to what a name can be it would be somebody else's. */
	if (strlen(tenant) > PROTO_TENANT_NAME_MAX)
		return ERROR_NO_TENANT;
	revocation = revocation_new(server, request);
	if (revocation == NULL)
		return ERROR_NO_MEMORY;
	snprintf(revocation->tenant, sizeof(revocation->tenant), "%s", tenant);
	revocation->grace_ms = grace_ms;
	revocation->next = TAILQ_FIRST(&server->leases);
	revocation->deadline = (struct deadline){.fire = revocation_step, .context = revocation};
	LIST_INSERT_HEAD(&server->revocations, revocation, link);
	revocation_step(&revocation->deadline, revocation);
	return 0;
}

void revocation_lease_gone(struct server *server, const struct lease *lease)
{
	struct revocation *revocation;

	LIST_FOREACH (revocation, &server->revocations, link) {
		if (revocation->next == lease)
			revocation->next = TAILQ_NEXT(lease, server_link);
	}
}

void revocation_stuck(struct revocation *revocation)
{
	revocation->stuck++;
	revocation_done(revocation);
}

void revocation_fenced(struct revocation *revocation, const struct lease *lease)
{
	uint64_t fence_us = (clock_now_ns() - lease->decided_ns) / 1000;

	if (fence_us > revocation->fence_max_us)
		revocation->fence_max_us = fence_us;
	revocation_done(revocation);
}
