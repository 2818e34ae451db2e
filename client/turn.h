/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef CLIENT_TURN_H
#define CLIENT_TURN_H

#include <infiniband/verbs.h>
#include <stdint.h>

#include "client/include/mempool.h"

struct lane;

#define TURN_FAILED 1 /* the lane has failed; what went wrong is in failure */

/* What a thread that waits for its operations does with a lease, on the session's own lane. */
struct turn {
	struct mempool_lease *lease;
	uint64_t offset_bytes; /* all that is accessed lies in this range */
	uint64_t len_bytes;
	uint32_t right;
	/* Posts and collects; nothing is in flight when it returns. The lane is held, the lease
	 * attached to it and in use. Return: 0, a code with the last error set, or TURN_FAILED. */
	int (*run)(struct turn *turn);
	struct lane *lane; /* filled in, and so to the end */
	uint64_t deadline_ns;
	enum ibv_wc_status failure;
};

/**
 * turn_begin() - wait until the lease is there, if its session is being restored, and check
 *
 * Return: 0, or a code with the last error set.
 */
int turn_begin(struct turn *turn);

/**
 * turn_take() - the same; then wait until the lane is free, run, restore the lane if it was lost
 *
 * Return: 0, or a code with the last error set.
 */
int turn_take(struct turn *turn);

#endif
