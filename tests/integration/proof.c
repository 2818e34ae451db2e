/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Raw accesses that bypass all checks of the library, and the conditions under which a
 * refusal of one shows something. Thread: the test's; nobody else uses the session.
 */
#include "tests/integration/proof.h"

#include <stdio.h>
#include <string.h>

#include "client/lane.h"
#include "client/lease.h"
#include "client/pool.h"
#include "common/verbs.h"
#include "tests/integration/harness.h"

#define PROOF_BYTES_MAX		64u
#define PROOF_SENTINEL		0x5a
#define PROOF_ACCESS_TIMEOUT_MS 10000

static const char *const proof_names[] = {
	[PROOF_REFUSED] = "refused",
	[PROOF_OPEN] = "the old key works",
	[PROOF_CHANGED] = "refused, but the buffer has changed",
	[PROOF_VOID] = "not shown",
};

const char *proof_result_name(enum proof_result result)
{
	return proof_names[result];
}

struct message_descriptor proof_descriptor(const mempool_lease *lease)
{
	uint32_t count;

	return lease_descriptors(lease, &count)[0];
}

int proof_access(struct lane *lane, enum ibv_wr_opcode opcode, uint32_t len_bytes,
		 uint64_t remote_addr, uint32_t rkey)
{
	enum ibv_wc_status status;
	int r;

	if (!lane_is_up(lane)) {
		printf("# the lane is not up\n");
		return -1;
	}
	r = lane_raw(lane, opcode, lane_slot(lane, 0), len_bytes, remote_addr, rkey,
		     PROOF_ACCESS_TIMEOUT_MS, &status);
	if (r == 0)
		return (int)status;
	printf("# access not carried out: %s\n", mempool_last_error());
	return -1;
}

static bool proof_void(const char *why)
{
	printf("# proof: %s\n", why);
	return false;
}

/* Is the lane's queue pair the one that we began with, and ready to send? */
static bool proof_qp_is_good(const struct proof *proof)
{
	struct ibv_qp *qp = lane_qp(proof->lane);

	if (qp == NULL || !lane_is_up(proof->lane))
		return proof_void("the lane is gone");
	if (qp->qp_num != proof->qp_num)
		return proof_void("the lane has another QP");
	if (verbs_qp_state(qp) != IBV_QPS_RTS)
		return proof_void("the QP is not RTS");
	return true;
}

static bool proof_witness_works(const struct proof *proof)
{
	if (proof_access(proof->lane, IBV_WR_RDMA_READ, 1, proof->witness_at.remote_addr,
			 proof->witness_at.rkey) != IBV_WC_SUCCESS)
		return proof_void("another lease of the same lane cannot be read");
	return true;
}

int proof_touch(struct proof *proof)
{
	return proof_access(proof->lane, proof->opcode, proof->len_bytes, proof->at.remote_addr,
			    proof->at.rkey);
}

bool proof_begin(struct proof *proof, mempool *pool, mempool_lease *lease,
		 enum ibv_wr_opcode opcode)
{
	uint8_t pattern[PROOF_BYTES_MAX];
	uint8_t *slot;

	*proof = (struct proof){
		.pool = pool,
		.lane = pool_lane(pool),
		.opcode = opcode,
		.at = proof_descriptor(lease),
	};
	if (harness_acquire(pool, 1, 600000, &proof->witness) < 0)
		return proof_void(mempool_last_error());
	if (!lease_is_attached(lease, proof->lane))
		return proof_void("the lease is not attached to the lane");
	proof->witness_at = proof_descriptor(proof->witness);
	proof->len_bytes = proof->at.len_bytes < PROOF_BYTES_MAX ? (uint32_t)proof->at.len_bytes
								 : PROOF_BYTES_MAX;
	proof->qp_num = lane_qp(proof->lane)->qp_num;
	slot = lane_slot(proof->lane, 0);
	harness_fill(pattern, proof->len_bytes, proof->qp_num);
	memcpy(slot, pattern, proof->len_bytes);
	if (proof_access(proof->lane, IBV_WR_RDMA_WRITE, proof->len_bytes, proof->at.remote_addr,
			 proof->at.rkey) != IBV_WC_SUCCESS)
		return proof_void("the lease cannot be written");
	memset(slot, PROOF_SENTINEL, proof->len_bytes);
	if (proof_access(proof->lane, IBV_WR_RDMA_READ, proof->len_bytes, proof->at.remote_addr,
			 proof->at.rkey) != IBV_WC_SUCCESS)
		return proof_void("the lease cannot be read");
	if (memcmp(slot, pattern, proof->len_bytes) != 0)
		return proof_void("what was written is not what is read");
	if (proof_touch(proof) != IBV_WC_SUCCESS)
		return proof_void("the access fails before the lease has ended");
	return proof_qp_is_good(proof) && proof_witness_works(proof);
}

enum proof_result proof_end(struct proof *proof)
{
	uint8_t *slot = lane_slot(proof->lane, 0);
	uint8_t expected[PROOF_BYTES_MAX];
	int status;

	if (!proof_qp_is_good(proof) || !proof_witness_works(proof))
		return PROOF_VOID;
	memset(expected, PROOF_SENTINEL, sizeof(expected));
	memset(slot, PROOF_SENTINEL, sizeof(expected));
	status = proof_touch(proof);
	if (status == IBV_WC_SUCCESS)
		return PROOF_OPEN;
	if (status != IBV_WC_REM_ACCESS_ERR) {
		printf("# proof: the access ended with status %d\n", status);
		return PROOF_VOID;
	}
	return memcmp(slot, expected, sizeof(expected)) == 0 ? PROOF_REFUSED : PROOF_CHANGED;
}
