/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef DAEMON_LEASE_H
#define DAEMON_LEASE_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/queue.h>

#include "daemon/attachment.h"
#include "daemon/audit.h"
#include "daemon/deadline.h"
#include "daemon/pool.h"
#include "proto/message.h"

struct acquire;
struct lane;
struct modify;
struct release;
struct revocation;
struct server;
struct session;
struct tenant;

enum lease_state {
	LEASE_REQUESTED, /* valid, nothing taken yet */
	LEASE_WAITING,	 /* for clean bytes */
	LEASE_BINDING,	 /* has its bytes; windows are being bound */
	LEASE_ACTIVE,	 /* at least one lane can use it */
	LEASE_DETACHED,	 /* no lane can use it, but its owner may attach it again */
	LEASE_QUIESCING, /* about to be changed; waits until the owner has nothing in flight */
	LEASE_REBINDING, /* being changed: old windows on their way out, or new ones in */
	LEASE_ENDING,	 /* decided; windows are being told */
	LEASE_FENCING,	 /* waits until no window of it opens anything */
	LEASE_SCRUBBING, /* behind the fence; bytes are being zeroed */
	LEASE_GONE,	 /* bytes are free; about to be freed itself */
	LEASE_STATES,
};

struct lease {
	enum lease_state state;
	struct server *server;
	struct session *session; /* NULL: an orphan, or the owner is gone (fencing or later) */
	struct tenant *tenant;
	TAILQ_ENTRY(lease) server_link;
	TAILQ_ENTRY(lease) session_link;
	TAILQ_ENTRY(lease) tenant_link; /* while waiting */
	uint64_t id;
	uint32_t route;
	uint32_t generation;   /* counts changes of the keys */
	uint32_t rights;       /* MESSAGE_RIGHT_* */
	uint64_t len_bytes;    /* as asked for */
	uint64_t extent_bytes; /* whole pages */
	uint64_t charged_windows;
	uint64_t ttl_ms;
	int reason;			    /* error code: why it ended */
	struct deadline deadline;	    /* its end; while waiting, the end of the wait */
	struct deadline orphan_deadline;    /* likewise, while it is an orphan */
	int orphan_reason;		    /* error code: why it ends then */
	uint8_t secret[PROTO_SECRET_BYTES]; /* with it its tenant may take it over */
	struct pool_return back;	    /* has the extent */
	LIST_HEAD(, attachment) attachments;
	uint32_t first_lane;	 /* number of the lane it was acquired on */
	struct acquire *acquire; /* that it was made for */
	TAILQ_ENTRY(lease) acquire_link;
	struct release *release; /* that is answered when it is fenced, or NULL */
	struct modify *modify;	 /* change that is under way, or NULL */
	bool granted;		 /* the owner knows of it */
	bool fenced;		 /* or in quarantine: a drain does not wait for it */
	uint64_t granted_ns;
	bool revoking;		       /* the deadline is that of a revocation */
	bool quarantined;	       /* a window is stuck: nothing is charged any more */
	uint64_t decided_ns;	       /* when the end was decided */
	struct revocation *revocation; /* order that it is revoked by, or NULL */
};

/** lease_extent_error() - the error code for what extent_take() or extent_grow() returned */
int lease_extent_error(int r);

/**
 * lease_new() - a lease for a request, in LEASE_REQUESTED, charged to its tenant
 *
 * Return: 0, or an error code: the tenant's quota, or no memory.
 */
int lease_new(struct session *session, struct acquire *acquire, struct lease **ret_lease);

/**
 * lease_begin() - take bytes for a new lease and bind it, or let it wait for bytes
 * @wait_ms: how long it may wait; 0: not at all
 *
 * Return: 0, or an error code; the lease is freed then.
 */
int lease_begin(struct lease *lease, struct lane *lane, uint32_t wait_ms);

/** lease_start_binding() - it has its bytes: bind; a failure ends the lease, which answers the request */
void lease_start_binding(struct lease *lease, struct extent *extent, struct lane *lane);

/**
 * lease_attach() - bind the lease on a further (or a new) lane
 *
 * The answer goes to the session now or later. Return: 0, or an error code that the caller answers with.
 */
int lease_attach(struct lease *lease, struct lane *lane, uint64_t request_id);

/** lease_start_time() - it is granted: it lasts for its ttl from now on; Return: 0 or -ENOMEM */
int lease_start_time(struct lease *lease);

/**
 * lease_renew() - let it last @ttl_ms from now, or until the deadline of a drain
 * @ret_ttl_ms: how long it lasts
 *
 * Return: 0 or an error code.
 */
int lease_renew(struct lease *lease, uint64_t ttl_ms, uint64_t *ret_ttl_ms);

/**
 * lease_end() - end a lease, once
 * @reason: an error code, ERROR_EXPIRED say
 *
 * Return: true if this call decided it, false if it was ending already.
 */
bool lease_end(struct lease *lease, int reason);

/**
 * lease_revoke() - let a lease end as revoked when a time is over
 * @grace_ms: until then its owner may finish; 0, or if it has not been granted: at the loop's
 *	      next turn, without notice
 *
 * Return: true if this call decided it, false if it was ending or being revoked already.
 */
bool lease_revoke(struct lease *lease, uint64_t grace_ms);

/** lease_revoke_now() - the owner has acknowledged: end a lease that is being revoked */
void lease_revoke_now(struct lease *lease);

/** lease_set_state() - the only writer of the state; an illegal step is asserted */
void lease_set_state(struct lease *lease, enum lease_state state);

/** lease_quarantine() - a window of it cannot be freed: charge it to nobody from now on */
void lease_quarantine(struct lease *lease);

/** lease_audit() - write of it to the audit log; @reason may be NULL */
void lease_audit(const struct lease *lease, enum audit_event event, const char *reason,
		 uint64_t duration_ms);

/** lease_is_ending() - has its end been decided? */
static inline bool lease_is_ending(const struct lease *lease)
{
	return lease->state >= LEASE_ENDING;
}

/** lease_find() - by id; Return: NULL if there is none */
struct lease *lease_find(const struct server *server, uint64_t id);

/** lease_forget_session() - its session goes; the lease must be ending */
void lease_forget_session(struct lease *lease);

/** lease_leave_session(), lease_join_session() - it is nobody's; it is a session's that it was not */
void lease_leave_session(struct lease *lease);
void lease_join_session(struct lease *lease, struct session *session);

/**
 * lease_drop_windows() - put all windows of a lease without a session behind the fence
 *
 * A change that waits for the owner is dropped, one that has begun goes on without windows.
 */
void lease_drop_windows(struct lease *lease);

/** lease_bound(), lease_attachment_fenced(), lease_lane_closing() - attachments and lanes report */
void lease_bound(struct lease *lease, struct attachment *attachment);
void lease_attachment_fenced(struct lease *lease, struct attachment *attachment);
void lease_lane_closing(struct lease *lease, struct attachment *attachment);

const char *lease_state_name(enum lease_state state);
bool lease_can_go(enum lease_state from, enum lease_state to);

#endif
