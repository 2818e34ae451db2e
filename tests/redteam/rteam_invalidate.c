/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A tenant sends a SEND with invalidate that names another tenant's key, over its control
 * connection, where alone a receive is posted. Soft-RoCE obeys; a second one for the same
 * window would panic the kernel, so one it is, and a daemon that invalidated the window once
 * more would be found out in the same way.
 */
#include <stdio.h>
#include <string.h>

#include "proto/error.h"
#include "tests/integration/accounts.h"
#include "tests/integration/harness.h"
#include "tests/integration/peer.h"

#define PAGE   4096
#define TTL_MS 600000

/* Seals a message into the slot of the memory that is the @from_last-th from its end. */
static int put(struct raw *raw, const struct message *m, size_t from_last, struct ibv_sge *ret_sge)
{
	uint8_t *buf =
		raw->memory + (RAW_RECEIVES + RAW_SENDS - from_last) * (size_t)PROTO_FRAME_MAX;
	uint8_t bytes[PROTO_MESSAGE_MAX];
	size_t len_bytes;

	if (message_encode(m, bytes, sizeof(bytes), &len_bytes) < 0 ||
	    channel_seal(&raw->secrets, bytes, len_bytes, buf, PROTO_FRAME_MAX, &len_bytes) < 0)
		return -1;
	*ret_sge = (struct ibv_sge){
		.addr = (uintptr_t)buf,
		.length = (uint32_t)len_bytes,
		.lkey = raw->mr->lkey,
	};
	return 0;
}

/*
 * The message itself is as good as any. @before: sent right before it, so that what the daemon
 * does about that comes too late; may be NULL.
 */
static int send_with_invalidate(struct peer *peer, const struct message *before, uint32_t rkey)
{
	struct message m = {.type = MESSAGE_PING, .request_id = 4711, .credits = peer->owed};
	struct raw *raw = &peer->control;
	struct ibv_sge sge, sge_before;
	struct ibv_send_wr wr = {
		.wr_id = UINT64_MAX,
		.sg_list = &sge,
		.num_sge = 1,
		.opcode = IBV_WR_SEND_WITH_INV,
		.send_flags = IBV_SEND_SIGNALED,
		.invalidate_rkey = rkey,
	};
	struct ibv_send_wr first = {
		.wr_id = UINT64_MAX,
		.next = &wr,
		.sg_list = &sge_before,
		.num_sge = 1,
		.opcode = IBV_WR_SEND,
		.send_flags = IBV_SEND_SIGNALED,
	};
	struct ibv_send_wr *bad;

	if ((before != NULL && put(raw, before, 2, &sge_before) < 0) || put(raw, &m, 1, &sge) < 0)
		return -1;
	raw->sends_posted += before != NULL ? 2 : 1;
	return verbs_post_send(raw->id->qp, before != NULL ? &first : &wr, &bad);
}

/* Return: the code with which the session ended, or -1 */
static int last_word(struct peer *peer)
{
	struct message m;
	int code = -1;

	while (peer_take(peer, MESSAGE_ERROR, 0, 5000, &m) == 1)
		code = (int)m.u.error.code;
	return code;
}

/* The session is over when the message with invalidate is found, which may have no session then. */
TEST(field_02_invalidate__behind_a_bye)
{
	HARNESS(h, .extra = "\"lane_wait_min\": \"0\"");
	PEER(owner, "owner");
	PEER(attacker, "attacker");
	PEER_LANE(lane, &owner);
	struct message_grant grant;
	struct message m = {.type = MESSAGE_BYE};

	CHECK_INT(peer_acquire(&owner, &lane, PAGE, TTL_MS, 0, &grant), 0);
	CHECK_INT(send_with_invalidate(&attacker, &m, grant.descriptors[0].rkey), 0);
	CHECK(harness_wait_number(&h, "sessions", 1, 10000));
	/* The owner is told at once, and may come again at once. */
	CHECK_INT(peer_take(&owner, MESSAGE_LANE_LOST, 0, 5000, &m), 1);
	CHECK_INT(m.u.lane.lane, lane.number);
	peer_lane_close(&lane);
	CHECK_INT(peer_lane_open(&owner, &lane), 0);
	CHECK_INT(peer_attach(&owner, &lane, grant.lease_id, &grant), 0);
	CHECK_INT(peer_access(&lane, IBV_WR_RDMA_READ, PAGE, grant.descriptors[0].remote_addr,
			      grant.descriptors[0].rkey),
		  IBV_WC_SUCCESS);
	CHECK_INT(harness_number(&h, "counters.strikes"), 0);
	CHECK_INT(peer_release(&owner, grant.lease_id), 0);
	peer_lane_close(&lane);
	peer_close(&attacker);
	peer_close(&owner);
	accounts_check(&h);
	CHECK(!test_has_failed());
	CHECK_INT(harness_stop(&h), 0);
}

static void invalidate(bool own)
{
	HARNESS(h, .extra = "\"lane_wait_min\": \"0\"");
	PEER(owner, "owner");
	PEER(attacker, "attacker");
	PEER_LANE(lane, &owner);
	PEER_LANE(other, &attacker);
	struct message_grant grant, of_attacker;
	struct message m;
	int code;

	CHECK_INT(peer_acquire(&owner, &lane, PAGE, TTL_MS, 0, &grant), 0);
	CHECK_INT(peer_acquire(&attacker, &other, PAGE, TTL_MS, 0, &of_attacker), 0);
	memset(peer_buffer(&lane), 0x31, PAGE);
	CHECK_INT(peer_access(&lane, IBV_WR_RDMA_WRITE, PAGE, grant.descriptors[0].remote_addr,
			      grant.descriptors[0].rkey),
		  IBV_WC_SUCCESS);
	CHECK_INT(send_with_invalidate(&attacker, NULL,
				       own ? of_attacker.descriptors[0].rkey
					   : grant.descriptors[0].rkey),
		  0);
	code = last_word(&attacker);
	printf("# S7 the sender's session ends with: %s\n", error_name(code));
	CHECK_INT(code, ERROR_PROTOCOL);
	CHECK(harness_wait_number(&h, "sessions", 1, 10000));
	CHECK_INT(harness_number(&h, "counters.protocol_errors"), 1);
	/* The owner's lane is given up, its lease detached, and comes back as it was. */
	if (!own) {
		CHECK_INT(peer_take(&owner, MESSAGE_LANE_LOST, 0, 5000, &m), 1);
		CHECK_INT(m.u.lane.lane, lane.number);
		peer_lane_close(&lane);
		CHECK_INT(peer_lane_open(&owner, &lane), 0);
		CHECK_INT(peer_attach(&owner, &lane, grant.lease_id, &grant), 0);
	}
	CHECK_INT(peer_access(&lane, IBV_WR_RDMA_READ, PAGE, grant.descriptors[0].remote_addr,
			      grant.descriptors[0].rkey),
		  IBV_WC_SUCCESS);
	for (int i = 0; i < PAGE; i++)
		CHECK_INT(peer_buffer(&lane)[i], 0x31);
	CHECK_INT(peer_release(&owner, grant.lease_id), 0);
	peer_lane_close(&other);
	peer_lane_close(&lane);
	peer_close(&attacker);
	peer_close(&owner);
	accounts_check(&h);
	CHECK(!test_has_failed());
	CHECK_INT(harness_stop(&h), 0);
}

TEST(field_02_invalidate__of_a_neighbour)
{
	invalidate(false);
}

TEST(field_02_invalidate__of_ones_own)
{
	invalidate(true);
}
