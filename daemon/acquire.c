/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Acquire requests. Owns the record of a request: whether it has been answered, and which
 * leases it led to.
 *
 * Invariants: a request is answered exactly once (or never, if its session has gone); no
 * descriptor of it leaves the daemon before all its leases are bound; a record lives as long
 * as a lease of it.
 *
 * Thread: the loop.
 */
#include "daemon/acquire.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/grant.h"
#include "daemon/lease_check.h"
#include "daemon/server.h"
#include "proto/error.h"

int acquire_compare(const struct tree_node *a, const struct tree_node *b)
{
	const struct acquire *left = (const struct acquire *)a;
	const struct acquire *right = (const struct acquire *)b;
	int order = memcmp(left->instance, right->instance, sizeof(left->instance));

	if (order != 0)
		return order;
	return (left->request_id > right->request_id) - (left->request_id < right->request_id);
}

static struct acquire *acquire_find(const struct session *session, uint64_t request_id)
{
	struct acquire key = {.request_id = request_id};
	struct tree_node *node;

	memcpy(key.instance, session->instance, sizeof(key.instance));
	node = tree_at_least(&session->tenant->acquires, &key.node);
	if (node == NULL || acquire_compare(node, &key.node) != 0)
		return NULL;
	return (struct acquire *)node;
}

static struct acquire *acquire_new(struct session *session, uint64_t request_id,
				   const struct message_acquire *request)
{
	struct acquire *acquire = calloc(1, sizeof(*acquire));

	if (acquire == NULL)
		return NULL;
	acquire->tenant = tenant_ref(session->tenant);
	acquire->session = session;
	memcpy(acquire->instance, session->instance, sizeof(acquire->instance));
	acquire->request_id = request_id;
	acquire->request = *request;
	TAILQ_INIT(&acquire->leases);
	tree_insert(&acquire->tenant->acquires, &acquire->node);
	return acquire;
}

static void acquire_unhold(struct acquire *acquire)
{
	assert(acquire->holds > 0);
	if (--acquire->holds > 0)
		return;
	assert(TAILQ_EMPTY(&acquire->leases));
	tree_remove(&acquire->tenant->acquires, &acquire->node);
	acquire->tenant = tenant_unref(acquire->tenant);
	free(acquire);
}

static struct lease *acquire_next_living(struct lease *lease)
{
	while (lease != NULL && lease_is_ending(lease))
		lease = TAILQ_NEXT(lease, acquire_link);
	return lease;
}

static void acquire_grant_all(struct acquire *acquire, struct session *session)
{
	struct lease *lease = acquire_next_living(TAILQ_FIRST(&acquire->leases));

	while (lease != NULL) {
		struct lease *next = acquire_next_living(TAILQ_NEXT(lease, acquire_link));

		grant_send_first(lease, session, acquire->request_id, next != NULL);
		lease = next;
	}
}

static bool acquire_is_same(const struct message_acquire *a, const struct message_acquire *b)
{
	return a->len_bytes == b->len_bytes && a->ttl_ms == b->ttl_ms && a->rights == b->rights &&
	       a->count == b->count;
}

/* The request has come before. Leases that have ended since are not granted again. */
static int acquire_repeat(struct acquire *acquire, struct session *session,
			  const struct message_acquire *request)
{
	struct lease *lease;

	if (!acquire_is_same(&acquire->request, request))
		return ERROR_INVALID;
	if (!acquire->answered)
		return acquire->session == session ? 0 : ERROR_BUSY;
	lease = acquire_next_living(TAILQ_FIRST(&acquire->leases));
	if (lease == NULL)
		return TAILQ_FIRST(&acquire->leases)->reason;
	for (; lease != NULL; lease = acquire_next_living(TAILQ_NEXT(lease, acquire_link))) {
		if (lease->session != session || lease->state != LEASE_ACTIVE)
			return ERROR_BUSY;
	}
	acquire_grant_all(acquire, session);
	return 0;
}

/* Return: 0, or the code with which one of the leases could not even begin. */
static int acquire_begin_leases(struct acquire *acquire, struct lane *lane)
{
	int code = 0;

	for (uint16_t i = 0; i < acquire->request.count && code == 0 && !acquire->answered; i++) {
		struct lease *lease;

		code = lease_new(acquire->session, acquire, &lease);
		if (code == 0)
			code = lease_begin(lease, lane, acquire->request.wait_ms);
	}
	return code;
}

static void acquire_end_leases(struct acquire *acquire, int code)
{
	struct lease *lease;
	struct lease *next;

	acquire->holds++;
	for (lease = TAILQ_FIRST(&acquire->leases); lease != NULL; lease = next) {
		next = TAILQ_NEXT(lease, acquire_link);
		lease_end(lease, code);
	}
	acquire_unhold(acquire);
}

int acquire_begin(struct session *session, struct lane *lane, uint64_t request_id,
		  const struct message_acquire *request)
{
	struct acquire *acquire = acquire_find(session, request_id);
	int code;

	if (acquire != NULL)
		return acquire_repeat(acquire, session, request);
	if (!drain_is_serving(&session->server->drain))
		return ERROR_DRAINING;
	code = lease_check_request(session, lane, request);
	if (code != 0)
		return code;
	acquire = acquire_new(session, request_id, request);
	if (acquire == NULL)
		return ERROR_INTERNAL;
	acquire->holds++;
	code = acquire_begin_leases(acquire, lane);
	if (code != 0 && !acquire->answered) {
		acquire->answered = true;
		acquire_end_leases(acquire, code);
	} else {
		code = 0;
	}
	acquire_unhold(acquire);
	return code;
}

bool acquire_may_wait(struct acquire *acquire)
{
	const struct server *server = acquire->session->server;

	if (acquire->may_wait == 0)
		acquire->may_wait =
			extent_map_could_fit(server->pool.extents, acquire->request.len_bytes) ? 1
											       : -1;
	return acquire->may_wait > 0;
}

void acquire_lease_bound(struct acquire *acquire)
{
	struct lease *lease;

	acquire->bound++;
	if (acquire->answered || acquire->bound < acquire->request.count)
		return;
	TAILQ_FOREACH (lease, &acquire->leases, acquire_link) {
		if (lease_start_time(lease) < 0) {
			acquire_lease_failed(acquire, ERROR_INTERNAL);
			return;
		}
	}
	acquire->answered = true;
	acquire_grant_all(acquire, acquire->session);
}

void acquire_lease_failed(struct acquire *acquire, int code)
{
	if (acquire->answered)
		return;
	acquire->answered = true;
	session_reply_error(acquire->session, acquire->request_id, code);
	acquire_end_leases(acquire, code);
}

void acquire_lease_gone(struct acquire *acquire, struct lease *lease)
{
	TAILQ_REMOVE(&acquire->leases, lease, acquire_link);
	acquire_unhold(acquire);
}
