/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Ways around what a wrong access or a failed connection costs: over the control connection,
 * behind requests that are under way, by going before a connection is made. And the honest
 * client that does look like that.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "proto/error.h"
#include "tests/integration/accounts.h"
#include "tests/integration/harness.h"
#include "tests/integration/peer.h"

#define PAGE	   4096
#define TTL_MS	   600000
#define LATE_MS	   10000
#define WRONG_KEY  0x00000100
#define GIVEN_UP   12 /* more than the strikes that are a ban by default */
#define BINDS	   64
#define TRIES	   10
#define SILENCE_MS 300

#define NO_BANS                                                                \
	"\"ban_after\": 0, \"ban_backoff_min\": \"0\", \"heartbeat\": \"0\", " \
	"\"connections_max_per_address\": 65536, \"handshakes_max\": 65536, "  \
	"\"handshakes_max_per_address\": 65536"
#define NO_WAIT "\"lane_wait_min\": \"0\""

/* It may be that its time was over. librdmacm breaks the daemon's QP then, and not the client. */
TEST(evade__lanes_given_up_are_no_strikes)
{
	HARNESS(h, .limits = NO_BANS, .extra = NO_WAIT);
	PEER(alpha, "alpha");
	struct message_lane_offer offer;

	for (int i = 0; i < GIVEN_UP; i++) {
		CHECK_INT(peer_offer(&alpha, &offer), 0);
		CHECK_INT(peer_give_up(&alpha, &offer), 0);
		CHECK(!test_has_failed());
	}
	CHECK(harness_wait_number(&h, "lanes", 0, LATE_MS));
	CHECK_INT(harness_number(&h, "counters.strikes"), 0);
	CHECK_INT(harness_number(&h, "counters.strikes_pardoned"), 0);
	PEER_LANE(lane, &alpha);
	peer_lane_close(&lane);
	peer_close(&alpha);
	accounts_finish(&h);
}

/* Who has had the daemon's answer and goes has failed as surely as who then says nothing. */
TEST(evade__connections_given_up_cost_the_address)
{
	HARNESS(h, .limits = "\"ban_after\": 3, \"ban_backoff_min\": \"0\", \"ban_time\": \"2s\"");
	struct private_data data = {
		.kind = PRIVATE_DATA_CONTROL,
		.version = PROTO_VERSION,
		.version_min = PROTO_VERSION_MIN,
	};
	uint8_t bytes[PROTO_PRIVATE_DATA_MAX];
	uint8_t len_bytes = private_data_encode(&data, bytes);

	for (int i = 0; i < 3; i++) {
		struct raw raw;

		CHECK_INT(harness_count_log(&h, "event=address-banned", NULL), 0);
		CHECK_INT(raw_prepare(&raw), 0);
		CHECK_INT(raw_give_up(&raw, bytes, len_bytes), 0);
		CHECK(harness_wait_number(&h, "sessions", 0, LATE_MS));
		CHECK(!test_has_failed());
	}
	CHECK_INT(harness_count_log(&h, "event=address-banned", NULL), 1);
	accounts_finish(&h);
}

/* Of some bytes that are no lease of anybody's, over the control connection. */
static void access_control(struct peer *peer)
{
	struct raw *raw = &peer->control;
	struct ibv_sge sge = {
		.addr = (uintptr_t)raw->memory,
		.length = 8,
		.lkey = raw->mr->lkey,
	};
	struct ibv_send_wr wr = {
		.wr_id = UINT64_MAX,
		.sg_list = &sge,
		.num_sge = 1,
		.opcode = IBV_WR_RDMA_WRITE,
		.send_flags = IBV_SEND_SIGNALED,
		.wr.rdma = {.remote_addr = PAGE, .rkey = WRONG_KEY},
	};
	struct ibv_send_wr *bad;

	CHECK_INT(verbs_post_send(raw->id->qp, &wr, &bad), 0);
}

TEST(evade__control_connection_is_no_way_to_guess)
{
	HARNESS(h, .limits = NO_BANS, .extra = "\"strikes_max\": 3, \"orphan_grace\": \"1min\"");
	PEER(bystander, "bystander");

	for (int i = 1; i <= 3; i++) {
		PEER(guesser, "guesser");
		PEER_LANE(lane, &guesser);
		struct message_grant grant;

		CHECK_INT(peer_acquire(&guesser, &lane, PAGE, TTL_MS, 0, &grant), 0);
		CHECK(!test_has_failed());
		access_control(&guesser);
		CHECK(harness_wait_number(&h, "counters.strikes", i, LATE_MS));
		/* It is no loss that leases outlive. */
		CHECK(harness_wait_lease_gone(&h, grant.lease_id, LATE_MS));
		peer_lane_close(&lane);
		peer_close(&guesser);
		CHECK(harness_wait_number(&h, "sessions", 1, LATE_MS));
	}
	CHECK_INT(harness_count_log(&h, "event=tenant-banned tenant=guesser", NULL), 1);
	CHECK_INT(harness_number(&h, "counters.leases_orphaned"), 0);
	CHECK_INT(peer_look(&bystander), 0);
	peer_close(&bystander);
	accounts_finish(&h);
}

/* Who only goes, without a bye, has done nothing. */
TEST(evade__connection_that_is_cut_is_no_strike)
{
	HARNESS(h, .limits = NO_BANS);
	PEER(alpha, "alpha");

	peer_cut(&alpha);
	CHECK(harness_wait_number(&h, "sessions", 0, LATE_MS));
	CHECK_INT(harness_number(&h, "counters.strikes"), 0);
	peer_close(&alpha);
	accounts_finish(&h);
}

/* The QP breaks while binds are under way, so that what the daemon sees first is their failure. */
TEST(evade__behind_an_acquire_a_guess_counts)
{
	HARNESS(h, .limits = NO_BANS, .extra = NO_WAIT ", \"strikes_max\": 64");

	for (int i = 1; i <= TRIES; i++) {
		PEER(guesser, "guesser");
		PEER_LANE(lane, &guesser);
		uint64_t id = peer_ask(&guesser, &lane, PAGE, BINDS, 0);

		CHECK(id != 0);
		/* Now before, now during, now after the binds. */
		harness_sleep_ms((uint64_t)i);
		CHECK_INT(peer_access(&lane, IBV_WR_RDMA_WRITE, 8, PAGE, WRONG_KEY),
			  IBV_WC_REM_ACCESS_ERR);
		(void)peer_answer(&guesser, id, LATE_MS);
		peer_lane_close(&lane);
		CHECK(harness_wait_number(&h, "lanes", 0, LATE_MS));
		CHECK_INT(harness_number(&h, "counters.strikes"), i);
		peer_close(&guesser);
		CHECK(!test_has_failed());
	}
	CHECK_INT(harness_number(&h, "counters.strikes_pardoned"), 0);
	accounts_finish(&h);
}

/* A client that has found a fault of ours may say so; it is no fault of its own. */
TEST(evade__error_of_the_client_is_no_strike)
{
	HARNESS(h, .limits = NO_BANS);
	PEER(alpha, "alpha");
	struct message m = {.type = MESSAGE_ERROR, .u.error.code = ERROR_PROTOCOL};

	/* A request would get an id. */
	m.credits = alpha.owed;
	CHECK_INT(raw_send_message(&alpha.control, &m), 0);
	CHECK(harness_wait_number(&h, "sessions", 0, LATE_MS));
	CHECK_INT(harness_number(&h, "counters.protocol_errors"), 0);
	CHECK_INT(harness_number(&h, "counters.strikes"), 0);
	CHECK_INT(peer_take(&alpha, MESSAGE_ERROR, 0, SILENCE_MS, &m), -ENETRESET);
	peer_close(&alpha);
	accounts_finish(&h);
}
