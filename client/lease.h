/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef CLIENT_LEASE_H
#define CLIENT_LEASE_H

#include <stdbool.h>
#include <stdint.h>

#include "client/include/mempool.h"
#include "proto/message.h"

struct lane;

/*
 * A lease as the client knows it. Everything is guarded by the session's lock, but the
 * descriptors and what belongs to them are also read by the holder of the lane, who alone
 * replaces them.
 */
struct mempool_lease {
	struct mempool_lease *next;
	struct mempool_lease *prev;
	struct mempool *pool;  /* constant from here */
	uint64_t id;
	uint64_t len_bytes;
	uint32_t rights;       /* constant to here */
	int end_reason;	       /* 0, or why it has ended: a code of enum mempool_error */
	uint64_t deadline_ns;  /* not later than the daemon's */
	struct lane *lane;     /* that the descriptors are good for ... */
	uint64_t incarnation;  /* ... as long as it is this one */
	uint32_t generation;
	uint32_t descriptor_count;
	struct message_descriptor descriptors[PROTO_LEASE_WINDOWS_MAX]; /* cover [0, len_bytes) */
};

/** lease_find() - lock held; Return: the lease, or NULL */
struct mempool_lease *lease_find(struct mempool *pool, uint64_t id);

/** lease_ended() - lock held: the daemon says that leases have ended; unknown ones are ignored */
void lease_ended(struct mempool *pool, const struct message_leases_ended *notice);

/** lease_check_usable() - takes the lock; Return: 0, or why not, with the last error set */
int lease_check_usable(struct mempool_lease *lease);

/** lease_is_attached() - takes the lock: are the descriptors good for that lane as it is now? */
bool lease_is_attached(struct mempool_lease *lease, struct lane *lane);

/**
 * lease_attach() - have the lease's windows bound on a lane; the lane's holder (tests: anybody,
 * while nobody uses the lease)
 *
 * Return: 0, or a code with the last error set; if it says that the lease has ended, then the
 * lease has that reason from now on. At a time-out the lane is lost: its keys are not known.
 */
int lease_attach(struct mempool_lease *lease, struct lane *lane, uint64_t deadline_ns);

/** lease_free_all() - no thread uses the session any more */
void lease_free_all(struct mempool *pool);

/** lease_descriptors() - for tests; @ret_count: their number */
static inline const struct message_descriptor *lease_descriptors(const mempool_lease *lease,
								  uint32_t *ret_count)
{
	*ret_count = lease->descriptor_count;
	return lease->descriptors;
}

#endif
