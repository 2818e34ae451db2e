/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef CLIENT_ACQUIRE_H
#define CLIENT_ACQUIRE_H

#include <stdint.h>

#include "client/include/mempool.h"
#include "proto/limits.h"
#include "proto/message.h"

/* What an acquire that was sent again has brought. */
struct acquire_repetition {
	uint16_t count;
	uint64_t lease_ids[PROTO_ACQUIRE_LEASES];
	uint32_t generations[PROTO_ACQUIRE_LEASES];
};

/**
 * acquire_repeat() - for tests: send an acquire again, under a request id that was used
 * @request: lease->acquired, or something else that must be refused
 * @request_id: lease->acquired_id
 * @ret_repetition: what was granted
 *
 * Makes no handles and changes none: if the daemon grants leases that it had not granted
 * before, they last until they expire. Return: 0 or a code, last error set.
 */
int acquire_repeat(mempool *pool, const struct message_acquire *request, uint64_t request_id,
		   struct acquire_repetition *ret_repetition);

#endif
