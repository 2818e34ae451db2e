/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef DAEMON_ACQUIRE_H
#define DAEMON_ACQUIRE_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/queue.h>

#include "daemon/tree.h"
#include "proto/message.h"

struct lane;
struct lease;
struct session;
struct tenant;

/*
 * One acquire request and the leases made for it: all are granted or none. It is remembered
 * as long as one of them lives, so that the same request again gives the same leases.
 */
struct acquire {
	struct tree_node node; /* among its tenant's, by instance and request id */
	struct tenant *tenant;
	uint8_t instance[PROTO_INSTANCE_BYTES];
	uint64_t request_id;
	struct message_acquire request;
	struct session *session; /* to be answered; not used once it has been */
	bool answered;
	int may_wait;	/* for clean bytes: 0 not known yet, 1 yes, -1 no */
	uint32_t bound; /* leases whose windows are bound */
	uint32_t holds; /* leases, and callers that still need it */
	TAILQ_HEAD(, lease) leases;
};

/** acquire_compare() - the order of a tenant's acquires */
int acquire_compare(const struct tree_node *a, const struct tree_node *b);

/**
 * acquire_begin() - begin the leases of a request
 * @lane: on which they are wanted; NULL if there is no such lane that is ready
 *
 * The answer goes to the session now or later.
 * Return: 0, or an error code that the caller answers with.
 */
int acquire_begin(struct session *session, struct lane *lane, uint64_t request_id,
		  const struct message_acquire *request);

/** acquire_may_wait() - would its leases fit if all that is dirty were clean? Asked once per request */
bool acquire_may_wait(struct acquire *acquire);

/** acquire_lease_bound() - one of its leases is bound; with the last one all are granted */
void acquire_lease_bound(struct acquire *acquire);

/** acquire_lease_failed() - a lease ends before it was granted: so do the others */
void acquire_lease_failed(struct acquire *acquire, int code);

/** acquire_lease_gone() - one of its leases is about to be freed */
void acquire_lease_gone(struct acquire *acquire, struct lease *lease);

#endif
