/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef CLIENT_LEASE_H
#define CLIENT_LEASE_H

#include <stdbool.h>
#include <stdint.h>

#include "client/attachment.h"
#include "client/include/mempool.h"
#include "client/renewal.h"
#include "proto/message.h"

struct lane;
struct request;

/* What lease_use() says when the lease is about to get other keys: wait, without any lane. */
#define LEASE_CHANGING 1

/* A lease as the client knows it, guarded by the session's lock. */
struct mempool_lease {
	struct mempool_lease *next;
	struct mempool_lease *prev;
	struct mempool *pool; /* constant from here */
	uint64_t id;
	struct message_acquire acquired; /* how it was asked for ... */
	uint64_t acquired_id; /* ... and under which request id; 0: not by us; constant to here */
	uint8_t secret[PROTO_SECRET_BYTES];
	bool unclaimed;	  /* asked for with mempool_reattach(), and nobody has got the handle */
	bool hidden;	  /* granted, but the call that asked for it has not returned */
	uint64_t session; /* in which it was granted to us, by our count of them */
	bool reattaching; /* a thread is at it */
	uint64_t len_bytes;
	uint32_t rights;
	int end_reason;		/* 0, or why it has ended: a code of enum mempool_error */
	bool away;		/* its session is lost, and it is to be reattached to the next */
	uint64_t away_pass;	/* of the thread that does it, in which it was last asked for */
	bool revoking;		/* about to end: no new operations */
	uint64_t grace_ns;	/* until then, as the daemon has told; 0: it has not */
	uint32_t users;		/* transfers that may have operations in flight */
	uint32_t queued;	/* operations of queues that are not done */
	struct request *change; /* that is to modify it; NULL: none */
	bool quiescing;		/* the daemon waits for us because of that change */
	uint64_t deadline_ns;	/* earlier than the daemon's */
	struct renewal renewal;
	uint32_t generation;
	struct attachment own; /* on the session's own lane; first of a list, one for each lane */
};

/* The list of a session. */

/** lease_find() - lock held; Return: the lease, or NULL */
struct mempool_lease *lease_find(struct mempool *pool, uint64_t id);

/** lease_link(), lease_unlink() - put it into the session's list, take it out; lock held */
void lease_link(struct mempool_lease *lease);
void lease_unlink(struct mempool_lease *lease);

/** lease_new() - a handle, in no list; NULL if memory is short, last error set */
struct mempool_lease *lease_new(struct mempool *pool);

/** lease_reset() - in no list: nothing has happened to it, for another grant */
void lease_reset(struct mempool_lease *lease);

/** lease_free() - NULL is allowed; it is in no list */
void lease_free(struct mempool_lease *lease);

/** lease_free_all() - no thread uses the session any more */
void lease_free_all(struct mempool *pool);

/* Notices; lock held. Leases that are not known have ended for us and are no mistake. */

/** lease_ended() - the daemon says that leases have ended */
void lease_ended(struct mempool *pool, const struct message_leases_ended *notice);

/** lease_revoke() - the daemon takes leases back: acknowledged when nothing is in flight */
void lease_revoke(struct mempool *pool, const struct message_revoke *notice);

/** lease_quiesce() - keys are about to change: acknowledged when nothing is in flight */
void lease_quiesce(struct mempool *pool, uint64_t id);

/* Grants. */

/** lease_grant_is_valid() - do the descriptors cover the lease in order, without gap or overlap? */
bool lease_grant_is_valid(const struct message_grant *grant);

/** lease_take_terms() - length, rights, generation are what a valid grant says; lock held */
void lease_take_terms(struct mempool_lease *lease, const struct message_grant *grant);

/**
 * lease_take_grant() - the lease is what a valid grant says; lock held
 * @attachment: of the lease, that the grant is for
 */
void lease_take_grant(struct mempool_lease *lease, const struct message_grant *grant,
		      struct attachment *attachment, uint64_t incarnation);

/** lease_forget_lane() - no lease is attached to that lane ever again; lock held */
void lease_forget_lane(struct mempool *pool, const struct lane *lane);

/* State. */

/** lease_raise() - make a code the thread's last error, with the lease's id; Return: @code */
int lease_raise(const struct mempool_lease *lease, int code);

/** lease_is_end() - does an answer with this code mean that the lease is over? */
bool lease_is_end(int code);

/** lease_end() - lock held: it has ended; the first reason is kept */
void lease_end(struct mempool_lease *lease, int reason);

/** lease_refused() - lock held: an answer says that it is over, with a code that means it */
void lease_refused(struct mempool_lease *lease, int code);

/**
 * lease_reveal() - lock held: the caller has the handle, and is told what has happened before
 *
 * In a session that is lost meanwhile the lease is away as the others are.
 */
void lease_reveal(struct mempool_lease *lease);

/** lease_code() - lock held; Return: 0, or the code for which it cannot be used; no last error */
int lease_code(const struct mempool_lease *lease);

/** lease_is_changing() - lock held: does the daemon wait until nothing of it is in flight? */
bool lease_is_changing(const struct mempool_lease *lease);

/** lease_check_open() - lock held; Return: 0, or why it has ended, with the last error set */
int lease_check_open(const struct mempool_lease *lease);

/** lease_check_usable_held() - lock held; Return: 0, or why not, with the last error set */
int lease_check_usable_held(const struct mempool_lease *lease);

/** lease_check_usable() - takes the lock; Return: 0, or why not, with the last error set */
int lease_check_usable(struct mempool_lease *lease);

/**
 * lease_check_access() - may a range be accessed? takes the lock
 * @right: MEMPOOL_READ, ...
 *
 * Return: 0, or why not, with the last error set.
 */
int lease_check_access(struct mempool_lease *lease, uint64_t offset_bytes, uint64_t len_bytes,
		       uint32_t right);

/** lease_is_attached() - takes the lock: are the descriptors good for that lane as it is now? */
bool lease_is_attached(struct mempool_lease *lease, struct lane *lane);

/* Use. */

/** lease_settle() - wait until the lease is not about to get other keys; Return: 0 or a code */
int lease_settle(struct mempool_lease *lease, uint64_t deadline_ns);

/**
 * lease_use() - operations will be in flight until lease_unuse()
 *
 * Checks what lease_check_access() does. Return: 0, a code, or LEASE_CHANGING.
 */
int lease_use(struct mempool_lease *lease, uint64_t offset_bytes, uint64_t len_bytes,
	      uint32_t right);

/** lease_unuse() - nothing of that use is in flight any more */
void lease_unuse(struct mempool_lease *lease);

/** lease_unuse_held() - the same with the lock held; in use: lease->users was counted up */
void lease_unuse_held(struct mempool_lease *lease);

/**
 * lease_window_at() - in use: where the next operation may go
 * @ret_descriptor: that covers @offset_bytes
 *
 * Return: 0, or the code for which no further operation may be posted, last error set.
 */
int lease_window_at(struct mempool_lease *lease, struct lane *lane, uint64_t offset_bytes,
		    struct message_descriptor *ret_descriptor);

/* Requests. */

/** lease_call() - as control_call(); an answer that the lease has ended is kept as its reason */
int lease_call(struct mempool_lease *lease, struct message *m, struct request *request,
	       uint64_t deadline_ns);

/** lease_renew() - Return: 0 or a code, last error set */
int lease_renew(struct mempool_lease *lease, uint64_t ttl_ms, uint64_t deadline_ns);

/**
 * lease_attach() - have the lease's windows bound on a lane; the lane's holder (tests: anybody,
 * while nobody uses the lease)
 *
 * Return: 0, or a code with the last error set; if it says that the lease has ended, then the
 * lease has that reason from now on. MEMPOOL_E_LANE: the lane is not up, and nothing was asked. At
 * a time-out the lane is lost: its keys are not known.
 */
int lease_attach(struct mempool_lease *lease, struct lane *lane, uint64_t deadline_ns);

/**
 * lease_restore() - the lane's holder: open the lane if it is not up, attach the lease if it
 * is not attached; Return: 0 or a code, last error set
 */
int lease_restore(struct mempool_lease *lease, struct lane *lane, uint64_t deadline_ns);

/** lease_descriptors() - for tests: on the session's own lane; @ret_count: their number */
static inline const struct message_descriptor *lease_descriptors(const mempool_lease *lease,
								 uint32_t *ret_count)
{
	*ret_count = lease->own.descriptor_count;
	return lease->own.descriptors;
}

#endif
