/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Atomic operations on leases, on raw verbs, since the library has none. Where the device
 * keeps them inside their window the daemon grants the right; an operation without the right,
 * or at an address that is not a multiple of 8, is the devices' to refuse.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "common/clock.h"
#include "proto/error.h"
#include "tests/integration/accounts.h"
#include "tests/integration/harness.h"
#include "tests/integration/peer.h"

#define PAGE	  4096
#define TTL_MS	  600000
#define WORD	  8
#define ACCESS_MS 10000
#define RW	  (MESSAGE_RIGHT_READ | MESSAGE_RIGHT_WRITE)
#define ID	  UINT64_MAX

static int acquire(struct peer *peer, const struct peer_lane *lane, uint32_t rights,
		   struct message_grant *ret_grant)
{
	struct message m = {
		.type = MESSAGE_ACQUIRE,
		.u.acquire = {.len_bytes = PAGE,
			      .ttl_ms = TTL_MS,
			      .rights = rights,
			      .lane = lane->number,
			      .count = 1},
	};
	int r = peer_call(peer, &m, &m);

	if (r == 0)
		*ret_grant = m.u.grant;
	return r;
}

/*
 * Return: an enum ibv_wc_status, or a negative errno: of a post that was refused, -ETIMEDOUT
 * without a completion. What was there comes into the buffer.
 */
static int execute(struct peer_lane *lane, struct ibv_send_wr *wr)
{
	struct ibv_sge sge = {
		.addr = (uintptr_t)peer_buffer(lane), .length = WORD, .lkey = lane->raw.mr->lkey};
	uint64_t until_ns = clock_add_ms(clock_now_ns(), ACCESS_MS);
	struct ibv_send_wr *bad;
	struct ibv_wc wc = {0};
	int r;

	wr->wr_id = ID;
	wr->sg_list = &sge;
	wr->num_sge = 1;
	wr->send_flags = IBV_SEND_SIGNALED;
	r = verbs_post_send(lane->raw.id->qp, wr, &bad);
	if (r < 0)
		return r;
	/* A QP in ERR gives the receives back as well. */
	while (verbs_poll_cq(lane->raw.cq.cq, 1, &wc) != 1 || wc.wr_id != ID) {
		if (clock_now_ns() >= until_ns)
			return -ETIMEDOUT;
	}
	return (int)wc.status;
}

/* @add: for fetch and add; else what is compared, and @swap what comes in its place */
static int atomic(struct peer_lane *lane, enum ibv_wr_opcode opcode,
		  const struct message_grant *grant, uint64_t offset_bytes, uint64_t add,
		  uint64_t swap)
{
	struct ibv_send_wr wr = {
		.opcode = opcode,
		.wr.atomic = {.remote_addr = grant->descriptors[0].remote_addr + offset_bytes,
			      .rkey = grant->descriptors[0].rkey,
			      .compare_add = add,
			      .swap = swap},
	};

	return execute(lane, &wr);
}

static int write_word(struct peer_lane *lane, const struct message_grant *grant,
		      uint64_t offset_bytes, uint64_t value)
{
	struct ibv_send_wr wr = {
		.opcode = IBV_WR_RDMA_WRITE,
		.wr.rdma = {.remote_addr = grant->descriptors[0].remote_addr + offset_bytes,
			    .rkey = grant->descriptors[0].rkey},
	};

	memcpy(peer_buffer(lane), &value, sizeof(value));
	return execute(lane, &wr);
}

static uint64_t buffer_word(const struct peer_lane *lane)
{
	uint64_t value;

	memcpy(&value, peer_buffer(lane), sizeof(value));
	return value;
}

static void check_word(struct peer_lane *lane, const struct message_grant *grant,
		       uint64_t offset_bytes, uint64_t expected)
{
	struct ibv_send_wr wr = {
		.opcode = IBV_WR_RDMA_READ,
		.wr.rdma = {.remote_addr = grant->descriptors[0].remote_addr + offset_bytes,
			    .rkey = grant->descriptors[0].rkey},
	};

	memset(peer_buffer(lane), 0x66, WORD);
	CHECK_INT(execute(lane, &wr), IBV_WC_SUCCESS);
	CHECK_INT(buffer_word(lane), expected);
}

static const enum ibv_wr_opcode opcodes[] = {IBV_WR_ATOMIC_CMP_AND_SWP,
					     IBV_WR_ATOMIC_FETCH_AND_ADD};

/* The lease on another lane of its session. */
static void attach_anew(struct peer *peer, struct peer_lane *lane, struct message_grant *grant)
{
	peer_lane_close(lane);
	CHECK_INT(peer_lane_open(peer, lane), 0);
	CHECK_INT(peer_attach(peer, lane, grant->lease_id, grant), 0);
}

/*
 * One that changes nothing, in the lease or in the buffer, and costs at most its lane. It
 * would swap, and add, whatever is compared: 40 is there.
 * @posted: what comes of it if it can be posted; Soft-RoCE's library refuses what is misaligned
 */
static void refuse(struct harness *h, struct peer *peer, struct peer_lane *lane,
		   struct message_grant *grant, enum ibv_wr_opcode opcode, uint64_t offset_bytes,
		   enum ibv_wc_status posted)
{
	const uint64_t sentinel = UINT64_C(0x7171717171717171);
	int64_t lost = harness_number(h, "counters.lanes_lost");
	uint64_t at = offset_bytes / WORD * WORD;
	int r;

	CHECK_INT(write_word(lane, grant, at, 40), IBV_WC_SUCCESS);
	CHECK_INT(write_word(lane, grant, at + WORD, 41), IBV_WC_SUCCESS);
	memcpy(peer_buffer(lane), &sentinel, sizeof(sentinel));
	r = atomic(lane, opcode, grant, offset_bytes, 40, 99);
	printf("# opcode %d at offset %" PRIu64 ": %s\n", (int)opcode, offset_bytes,
	       r < 0 ? strerror(-r) : ibv_wc_status_str((enum ibv_wc_status)r));
	CHECK_INT(r, offset_bytes % WORD != 0 && r < 0 ? -EINVAL : (int)posted);
	CHECK_INT(buffer_word(lane), sentinel);
	if (r > 0) {
		attach_anew(peer, lane, grant);
		CHECK(!test_has_failed());
		CHECK(harness_wait_number(h, "counters.lanes_lost", ++lost, 10000));
	}
	check_word(lane, grant, at, 40);
	check_word(lane, grant, at + WORD, 41);
	CHECK(!test_has_failed());
	CHECK_INT(harness_number(h, "counters.lanes_lost"), lost);
	CHECK_INT(harness_number(h, "sessions"), 1);
}

static void end(struct harness *h, struct peer *peer, struct peer_lane *lane, uint64_t lease_id)
{
	CHECK_INT(peer_release(peer, lease_id), 0);
	peer_lane_close(lane);
	peer_close(peer);
	accounts_check(h);
	CHECK(!test_has_failed());
	CHECK_INT(harness_stop(h), 0);
}

TEST(field_29_atomic__without_the_right)
{
	HARNESS(h, .extra = "\"lane_wait_min\": \"0\"");
	PEER(alpha, "alpha");
	PEER_LANE(lane, &alpha);
	struct message_grant grant;

	CHECK_INT(acquire(&alpha, &lane, RW, &grant), 0);
	for (size_t i = 0; i < 2 && !test_has_failed(); i++) {
		refuse(&h, &alpha, &lane, &grant, opcodes[i], 0, IBV_WC_REM_ACCESS_ERR);
		refuse(&h, &alpha, &lane, &grant, opcodes[i], PAGE - 2 * WORD,
		       IBV_WC_REM_ACCESS_ERR);
	}
	CHECK(!test_has_failed());
	end(&h, &alpha, &lane, grant.lease_id);
}

static void use_word(struct peer_lane *lane, const struct message_grant *grant,
		     uint64_t offset_bytes)
{
	CHECK_INT(write_word(lane, grant, offset_bytes, 5), IBV_WC_SUCCESS);
	CHECK_INT(atomic(lane, IBV_WR_ATOMIC_CMP_AND_SWP, grant, offset_bytes, 5, 7),
		  IBV_WC_SUCCESS);
	CHECK_INT(buffer_word(lane), 5);
	CHECK_INT(atomic(lane, IBV_WR_ATOMIC_CMP_AND_SWP, grant, offset_bytes, 5, 9),
		  IBV_WC_SUCCESS);
	CHECK_INT(buffer_word(lane), 7);
	CHECK_INT(atomic(lane, IBV_WR_ATOMIC_FETCH_AND_ADD, grant, offset_bytes, UINT64_MAX, 0),
		  IBV_WC_SUCCESS);
	CHECK_INT(buffer_word(lane), 7);
	check_word(lane, grant, offset_bytes, 6);
}

TEST(field_29_atomic__at_the_edges_and_between)
{
	HARNESS(h, .extra = "\"lane_wait_min\": \"0\"");
	PEER(alpha, "alpha");
	PEER_LANE(lane, &alpha);
	struct message_grant grant;
	int r = acquire(&alpha, &lane, RW | MESSAGE_RIGHT_ATOMIC, &grant);

	if (r == ERROR_RIGHTS_DEVICE)
		SKIP("the device does not keep atomics inside their window");
	CHECK_INT(r, 0);
	use_word(&lane, &grant, 0);
	use_word(&lane, &grant, PAGE - WORD);
	CHECK(!test_has_failed());
	for (size_t i = 0; i < 2 && !test_has_failed(); i++) {
		refuse(&h, &alpha, &lane, &grant, opcodes[i], 4, IBV_WC_REM_INV_REQ_ERR);
		refuse(&h, &alpha, &lane, &grant, opcodes[i], PAGE - WORD - 4,
		       IBV_WC_REM_INV_REQ_ERR);
	}
	CHECK(!test_has_failed());
	/* The word behind the end. */
	for (size_t i = 0; i < 2 && !test_has_failed(); i++) {
		CHECK_INT(atomic(&lane, opcodes[i], &grant, PAGE, 0, 1), IBV_WC_REM_ACCESS_ERR);
		attach_anew(&alpha, &lane, &grant);
	}
	check_word(&lane, &grant, PAGE - 2 * WORD, 40);
	check_word(&lane, &grant, PAGE - WORD, 41);
	CHECK(!test_has_failed());
	end(&h, &alpha, &lane, grant.lease_id);
}
