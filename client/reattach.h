/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef CLIENT_REATTACH_H
#define CLIENT_REATTACH_H

#include <stdint.h>

#include "proto/limits.h"

struct mempool;

/**
 * reattach() - have a lease of the session's list that the daemon holds for another session
 *
 * By its id and secret, so that its handle may be released meanwhile: then it is given back. The
 * lane is made if it is not up. That the lease is over is kept as its reason. Return: 0 or a
 * code, last error set.
 */
int reattach(struct mempool *pool, uint64_t lease_id, const uint8_t secret[PROTO_SECRET_BYTES],
	     uint64_t deadline_ns);

#endif
