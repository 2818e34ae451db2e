/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A tenant takes of each resource all that it can get. It is refused with a reason, others
 * who have something keep it, and when it leaves the next one gets just as much.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "proto/error.h"
#include "tests/integration/accounts.h"
#include "tests/integration/harness.h"
#include "tests/integration/peer.h"

#define PAGE	     4096
#define TTL_MS	     600000
#define SESSIONS_MAX 24
#define LANES_MAX    6

/* What one ramp has reached, and how it was refused. */
struct reached {
	uint64_t number;
	int code;
};

static void ramp_leases(uint64_t len_bytes, struct reached *ret_reached)
{
	PEER(greedy, "greedy");
	PEER_LANE(lane, &greedy);
	struct message_grant grant;
	uint64_t number = 0;
	int r;

	while ((r = peer_acquire(&greedy, &lane, len_bytes, TTL_MS, 5000, &grant)) == 0)
		number++;
	*ret_reached = (struct reached){.number = number, .code = r};
	/* It still may do what needs nothing new. */
	CHECK_INT(peer_renew(&greedy, grant.lease_id, TTL_MS), 0);
}

static void ramp_lanes(uint64_t unused, struct reached *ret_reached)
{
	static struct peer_lane lanes[LANES_MAX + 1];
	PEER(greedy, "greedy");
	uint64_t number = 0;
	int r = 0;

	(void)unused;
	while (number <= LANES_MAX && (r = peer_lane_open(&greedy, &lanes[number])) == 0)
		number++;
	*ret_reached = (struct reached){.number = number, .code = r};
	for (uint64_t i = 0; i < number; i++)
		peer_lane_close(&lanes[i]);
}

static void ramp_sessions(uint64_t unused, struct reached *ret_reached)
{
	static struct peer peers[SESSIONS_MAX + 2];
	uint64_t number = 0;
	int r = 0;

	(void)unused;
	while (number < SESSIONS_MAX + 2 && (r = peer_open(&peers[number], "greedy", NULL)) == 0)
		number++;
	*ret_reached = (struct reached){.number = number, .code = r};
	for (uint64_t i = 0; i <= number && i < SESSIONS_MAX + 2; i++)
		peer_close(&peers[i]);
}

static void exhaust(const char *what, const char *extra,
		    void (*ramp)(uint64_t how, struct reached *ret_reached), uint64_t how, int code)
{
	HARNESS(h, .pool_size = "4MiB", .sessions_max = SESSIONS_MAX, .extra = extra);
	PEER(other, "other");
	PEER_LANE(lane, &other);
	struct reached first, second;
	struct message_grant grant;

	CHECK_INT(peer_acquire(&other, &lane, PAGE, TTL_MS, 0, &grant), 0);
	ramp(how, &first);
	CHECK(!test_has_failed());
	CHECK(harness_wait_number(&h, "sessions", 1, 20000));
	CHECK(harness_wait_number(&h, "lanes", 1, 20000));
	CHECK(harness_wait_number(&h, "pool.free_bytes", (int64_t)(4 * MIB - PAGE), 20000));
	ramp(how, &second);
	CHECK(!test_has_failed());
	printf("# S13 %s: %" PRIu64 " and then %s; after leaving again %" PRIu64 " and %s\n", what,
	       first.number, error_name(first.code), second.number, error_name(second.code));
	CHECK_INT(first.code, code);
	CHECK_INT(second.code, code);
	CHECK(first.number > 0);
	CHECK_INT(first.number, second.number);
	CHECK_INT(peer_access(&lane, IBV_WR_RDMA_WRITE, 1, grant.descriptors[0].remote_addr,
			      grant.descriptors[0].rkey),
		  IBV_WC_SUCCESS);
	peer_lane_close(&lane);
	peer_close(&other);
	accounts_check(&h);
	CHECK(!test_has_failed());
	CHECK_INT(harness_stop(&h), 0);
}

TEST(exhaust__bytes)
{
	exhaust("bytes", NULL, ramp_leases, 64 * 1024, ERROR_LENGTH_EXTENT);
}

TEST(exhaust__leases)
{
	exhaust("leases", "\"leases_max\": 300", ramp_leases, 1, ERROR_LEASES_MAX);
}

TEST(exhaust__leases_of_a_lane)
{
	exhaust("leases of a lane", "\"lane_leases_max\": 200", ramp_leases, 1,
		ERROR_LANE_LEASES_MAX);
}

/* Each lease needs many windows: the pool is gone before they are. */
TEST(exhaust__windows)
{
	exhaust("windows", "\"window_max\": \"4KiB\"", ramp_leases, 64 * PAGE, ERROR_LENGTH_EXTENT);
}

TEST(exhaust__lanes)
{
	exhaust("lanes", "\"lanes_max\": 6", ramp_lanes, 0, ERROR_LANES_MAX);
}

TEST(exhaust__sessions)
{
	exhaust("sessions", NULL, ramp_sessions, 0, ERROR_SESSIONS_MAX);
}
