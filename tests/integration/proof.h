/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef TESTS_INTEGRATION_PROOF_H
#define TESTS_INTEGRATION_PROOF_H

#include <infiniband/verbs.h>
#include <stdbool.h>
#include <stdint.h>

#include "client/include/mempool.h"
#include "proto/message.h"

struct lane;

/*
 * Proves that the device refuses the key of an ended lease. It counts only if the very same
 * access, key, address, length and direction, has succeeded before on the QP that the window
 * was bound on; that QP is still the same and RTS; the daemon's is, too: an access of another
 * lease on the same lane has succeeded just before; the access ends with a remote access
 * error; and the reader's buffer stays as it was. (That a refused write has changed nothing
 * is for the next owner of the bytes to see.)
 */

enum proof_result {
	PROOF_REFUSED,
	PROOF_OPEN,    /* the access succeeded: the old key works */
	PROOF_CHANGED, /* refused, but the buffer has changed */
	PROOF_VOID,    /* a condition of the proof does not hold */
};

struct proof {
	mempool *pool;
	struct lane *lane;
	mempool_lease *witness;
	struct message_descriptor at; /* of the lease under test */
	struct message_descriptor witness_at;
	enum ibv_wr_opcode opcode;
	uint32_t len_bytes;
	uint32_t qp_num;
};

/**
 * proof_begin() - carry out the access that is to be refused later
 * @lease: of @pool's own lane; filled with a pattern at its beginning
 * @opcode: IBV_WR_RDMA_READ or IBV_WR_RDMA_WRITE
 *
 * Leases a few bytes more, as the witness; lost with the lane. Return: did it succeed?
 */
bool proof_begin(struct proof *proof, mempool *pool, mempool_lease *lease,
		 enum ibv_wr_opcode opcode);

/** proof_touch() - the same access once more; Return: how it completed, or -1 */
int proof_touch(struct proof *proof);

/** proof_end() - the same access after the lease has ended */
enum proof_result proof_end(struct proof *proof);

/**
 * proof_access() - any access on a lane, through its first staging buffer
 *
 * Return: how it completed (enum ibv_wc_status), or -1 if it was not carried out.
 */
int proof_access(struct lane *lane, enum ibv_wr_opcode opcode, uint32_t len_bytes,
		 uint64_t remote_addr, uint32_t rkey);

/** proof_descriptor() - the first descriptor of a lease */
struct message_descriptor proof_descriptor(const mempool_lease *lease);

const char *proof_result_name(enum proof_result result);

#endif
