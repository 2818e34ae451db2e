/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef TESTS_INTEGRATION_TOLD_H
#define TESTS_INTEGRATION_TOLD_H

#include <stdbool.h>
#include <stdint.h>

#include "client/include/mempool.h"

/* What tests do with a session that tells of events, or that comes back. */

/**
 * told_connect() - a session with more options than harness_connect() has
 * @opts: who is who is filled in, and the time-out if it is 0
 */
int told_connect(const char *tenant, struct mempool_connect_opts *opts, mempool **ret_pool);

/** told_connect_for() - alpha's session, which comes back for so long */
int told_connect_for(uint32_t reconnect_ms, uint32_t timeout_ms, mempool **ret_pool);

/* The same, in a variable of the test case; and a daemon that keeps leases for such. */
#define TOLD_COMING_BACK(name, reconnect_ms, timeout_ms)              \
	__attribute__((cleanup(harness_close))) mempool *name = NULL; \
	CHECK_INT(told_connect_for(reconnect_ms, timeout_ms, &name), 0)
#define TOLD_KEEPING "\"orphan_grace\": \"1min\", \"lane_wait_min\": \"0\""

/** told_acquire() - with the rights to read and write; @flags: MEMPOOL_AUTO_RENEW, or 0 */
int told_acquire(mempool *pool, uint64_t len_bytes, uint64_t ttl_ms, uint32_t flags,
		 mempool_lease **ret_lease);

/** told_wait() - pass over events until one of a kind comes; Return: did it, in time? */
bool told_wait(mempool *pool, uint32_t kind, uint64_t limit_ms, struct mempool_event *ret_event);

/** told_nothing() - is there no event, for so long? Tells which there is */
bool told_nothing(mempool *pool, uint32_t for_ms);

/** told_cut() - break the control connection at our end; the daemon is not told */
void told_cut(mempool *pool);

/** told_cut_lane() - break the lane likewise; none there is allowed */
void told_cut_lane(mempool *pool);

const char *told_name(uint32_t kind);

#endif
