/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef DAEMON_LEASE_H
#define DAEMON_LEASE_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/queue.h>

#include "daemon/attachment.h"
#include "daemon/deadline.h"
#include "daemon/pool.h"
#include "proto/message.h"

struct admin_request;
struct lane;
struct server;
struct session;
struct tenant;

enum lease_state {
	LEASE_REQUESTED, /* valid, nothing taken yet */
	LEASE_WAITING,	 /* for clean bytes */
	LEASE_BINDING,	 /* has its bytes; windows are being bound */
	LEASE_ACTIVE,	 /* at least one lane can use it */
	LEASE_DETACHED,	 /* no lane can use it, but its owner may attach it again */
	LEASE_ENDING,	 /* decided; windows are being told */
	LEASE_FENCING,	 /* waits until no window of it opens anything */
	LEASE_SCRUBBING, /* behind the fence; bytes are being zeroed */
	LEASE_GONE,	 /* bytes are free; about to be freed itself */
	LEASE_STATES,
};

/* Somebody who wants to know when a lease is behind its fence. */
struct lease_watcher {
	SLIST_ENTRY(lease_watcher) link;
	struct admin_request *request;
};

struct lease {
	enum lease_state state;
	struct server *server;
	struct session *session; /* NULL once the owner is gone (fencing or later) */
	struct tenant *tenant;
	TAILQ_ENTRY(lease) server_link;
	TAILQ_ENTRY(lease) session_link;
	TAILQ_ENTRY(lease) tenant_link; /* while waiting */
	uint64_t id;
	uint32_t route;
	uint32_t generation; /* counts changes of the keys */
	uint32_t rights;     /* MESSAGE_RIGHT_* */
	uint64_t len_bytes;  /* as asked for */
	uint64_t extent_bytes; /* whole pages */
	uint64_t charged_windows;
	uint64_t ttl_ms;
	int reason; /* error code: why it ended */
	struct deadline deadline; /* its end; while waiting, the end of the wait */
	struct pool_return back;  /* has the extent */
	LIST_HEAD(, attachment) attachments;
	uint32_t first_lane;		/* number of the lane it was acquired on */
	uint64_t acquire_request_id;	/* 0: answered */
	uint64_t release_request_id;	/* 0: none waits */
	uint64_t decided_ns;		/* when the end was decided */
	SLIST_HEAD(, lease_watcher) watchers;
};

/**
 * lease_acquire() - begin a lease for a session
 * @lane: on which it is wanted
 *
 * The answer (grant or error) goes to the session now or later.
 * Return: 0, or an error code that the caller answers with.
 */
int lease_acquire(struct session *session, struct lane *lane, uint64_t request_id,
		  const struct message_acquire *request);

/** lease_attach() - bind the lease on a further (or a new) lane; Return: as lease_acquire() */
int lease_attach(struct lease *lease, struct lane *lane, uint64_t request_id);

/** lease_renew() - let it last @ttl_ms from now; Return: 0 or an error code */
int lease_renew(struct lease *lease, uint64_t ttl_ms);

/**
 * lease_end() - end a lease, once
 * @reason: an error code, ERROR_EXPIRED say
 *
 * Return: true if this call decided it, false if it was ending already.
 */
bool lease_end(struct lease *lease, int reason);

/** lease_is_ending() - has its end been decided? */
static inline bool lease_is_ending(const struct lease *lease)
{
	return lease->state >= LEASE_ENDING;
}

/** lease_find() - by id; Return: NULL if there is none */
struct lease *lease_find(const struct server *server, uint64_t id);

/** lease_forget_session() - its session goes; the lease must be ending */
void lease_forget_session(struct lease *lease);

/** lease_bound(), lease_attachment_fenced(), lease_lane_closing() - attachments and lanes report */
void lease_bound(struct lease *lease, struct attachment *attachment);
void lease_attachment_fenced(struct lease *lease, struct attachment *attachment);
void lease_lane_closing(struct lease *lease, struct attachment *attachment);

/** lease_serve_waiting() - bytes have become clean: serve who waits, tenants in turn */
void lease_serve_waiting(struct server *server);

/** lease_watch() - answer an admin request when the lease is fenced; Return: 0 or -ENOMEM */
int lease_watch(struct lease *lease, struct admin_request *request);

const char *lease_state_name(enum lease_state state);
bool lease_can_go(enum lease_state from, enum lease_state to);

#endif
