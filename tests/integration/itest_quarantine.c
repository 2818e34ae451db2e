/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Leases with windows that cannot be freed for a while: what may be done with them then and
 * later, how they end, and that nothing stays charged to their tenant.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "proto/error.h"
#include "tests/integration/accounts.h"
#include "tests/integration/harness.h"
#include "tests/integration/order.h"
#include "tests/integration/peer.h"

#define PAGE	 4096
#define TTL_MS	 600000
#define WAIT_MS	 60000
#define LIMIT_MS 20000 /* for what comes at once, on a machine that may be slow */
#define R	 MESSAGE_RIGHT_READ
#define RW	 (MESSAGE_RIGHT_READ | MESSAGE_RIGHT_WRITE)

/* Three times the eight windows of a lane, so for 700 ms. A lane is looked at when asked. */
#define SEAM(name)                                                           \
	HARNESS(name, .program = "mempoold-seam", .seam = "fail-dealloc:24", \
		.extra = "\"lane_wait_min\": \"0\", \"lane_sweep\": \"1min\"")

/* A number of the row of the only lease that there is; -1 if there is none or more. */
static int64_t lease_number(struct harness *h, const char *name)
{
	json_t *result = harness_call(h, "lease.list", NULL);
	json_t *leases = json_object_get(result, "leases");
	int64_t value = -1;

	if (json_array_size(leases) == 1)
		value = json_integer_value(json_object_get(json_array_get(leases, 0), name));
	json_decref(result);
	return value;
}

/* Nothing is left. With the last lease its tenant goes, and asserts that nothing is charged. */
static void check_empty(struct harness *h)
{
	accounts_check(h);
	CHECK(!test_has_failed());
	CHECK_INT(harness_stop(h), 0);
}

/* The lane dies, and the daemon is made to look: a lane is asked for. */
static void lose_lane(struct peer *peer, struct peer_lane *lane)
{
	struct message m = {.type = MESSAGE_LANE_OPEN};

	CHECK_INT(peer_access(lane, IBV_WR_RDMA_READ, 1, 0, 1), IBV_WC_REM_ACCESS_ERR);
	CHECK_INT(peer_send(peer, &m), 0);
}

static struct message modify_message(uint64_t lease_id, uint64_t len_bytes, uint32_t rights)
{
	return (struct message){
		.type = MESSAGE_MODIFY,
		.u.modify = {.lease_id = lease_id, .len_bytes = len_bytes, .rights = rights},
	};
}

/* With the acknowledgement, if the daemon asks for one. Return: as peer_answer() */
static int change(struct peer *peer, uint64_t lease_id, uint64_t len_bytes, uint32_t rights)
{
	struct message m = modify_message(lease_id, len_bytes, rights);
	uint64_t request_id;
	struct message notice;
	int r = peer_send(peer, &m);

	request_id = m.request_id;
	for (int i = 0; i < LIMIT_MS / 10 && r == 0; i++) {
		if (peer_take(peer, MESSAGE_QUIESCE, 0, 0, &notice) == 1)
			(void)peer_say(peer, MESSAGE_QUIESCED, lease_id);
		r = peer_take(peer, 0, request_id, 10, &m);
	}
	if (r != 1)
		return r == 0 ? -ETIMEDOUT : r;
	return m.type == MESSAGE_ERROR ? (int)m.u.error.code : 0;
}

/* A lease on two lanes, of which the first is lost and its windows are stuck. */
static void lose_one_of_two(struct harness *h, struct peer *peer, struct peer_lane *lane,
			    struct peer_lane *other, struct message_grant *ret_grant)
{
	CHECK_INT(peer_acquire(peer, lane, 4 * PAGE, TTL_MS, 0, ret_grant), 0);
	CHECK_INT(peer_attach(peer, other, ret_grant->lease_id, ret_grant), 0);
	CHECK_INT(lease_number(h, "windows"), 2);
	lose_lane(peer, lane);
	CHECK(!test_has_failed());
	for (int i = 0; i < 1000 && harness_number(h, "stuck.windows") <= 0; i++)
		harness_sleep_ms(2);
	CHECK(harness_number(h, "stuck.windows") > 0);
	CHECK_INT(harness_number(h, "stuck.bytes"), 4 * PAGE);
	CHECK_INT(lease_number(h, "windows"), 0);
}

static void check_change(struct harness *h, struct peer *peer, uint64_t lease_id,
			 uint64_t len_bytes, uint32_t rights)
{
	CHECK_INT(change(peer, lease_id, len_bytes, rights), 0);
	CHECK_INT(lease_number(h, "len_bytes"), (int64_t)len_bytes);
	CHECK_INT(lease_number(h, "extent_bytes"), (int64_t)(len_bytes + PAGE - 1) / PAGE * PAGE);
	CHECK_INT(lease_number(h, "windows"), 0);
}

/* A lease that was in quarantine is charged to nobody, whatever it becomes. */
TEST(quarantine__leases_are_changed_after_it)
{
	SEAM(h);
	PEER(alpha, "alpha");
	PEER_LANE(lane, &alpha);
	PEER_LANE(other, &alpha);
	struct message_grant grant;

	lose_one_of_two(&h, &alpha, &lane, &other, &grant);
	CHECK(!test_has_failed());
	CHECK_INT(change(&alpha, grant.lease_id, 9 * PAGE, RW), ERROR_BUSY);
	CHECK(harness_wait_number(&h, "stuck.windows", 0, WAIT_MS));
	check_change(&h, &alpha, grant.lease_id, 9 * PAGE, RW);
	check_change(&h, &alpha, grant.lease_id, PAGE + 1, RW);
	check_change(&h, &alpha, grant.lease_id, PAGE + 1, R);
	check_change(&h, &alpha, grant.lease_id, 12 * PAGE, RW);
	CHECK(!test_has_failed());
	CHECK_INT(peer_release(&alpha, grant.lease_id), 0);
	peer_lane_close(&other);
	peer_lane_close(&lane);
	peer_close(&alpha);
	check_empty(&h);
}

/* The owner is asked to stop, and one of the lanes is lost and stuck before it answers. */
TEST(quarantine__while_a_change_is_made)
{
	SEAM(h);
	PEER(alpha, "alpha");
	PEER_LANE(lane, &alpha);
	PEER_LANE(other, &alpha);
	struct message_grant grant;
	struct message m, notice;

	CHECK_INT(peer_acquire(&alpha, &lane, 4 * PAGE, TTL_MS, 0, &grant), 0);
	CHECK_INT(peer_attach(&alpha, &other, grant.lease_id, &grant), 0);
	m = modify_message(grant.lease_id, 9 * PAGE, R);
	CHECK_INT(peer_send(&alpha, &m), 0);
	CHECK_INT(peer_take(&alpha, MESSAGE_QUIESCE, 0, LIMIT_MS, &notice), 1);
	/* The daemon finds the lane dead when it posts on it, with the change under way. */
	CHECK_INT(peer_access(&lane, IBV_WR_RDMA_READ, 1, 0, 1), IBV_WC_REM_ACCESS_ERR);
	CHECK_INT(peer_say(&alpha, MESSAGE_QUIESCED, grant.lease_id), 0);
	/* Not when the windows can be freed, which may be never. */
	CHECK_INT(peer_answer(&alpha, m.request_id, LIMIT_MS), ERROR_LANE);
	CHECK(harness_number(&h, "stuck.windows") > 0);
	CHECK(harness_wait_lease_gone(&h, grant.lease_id, WAIT_MS));
	peer_lane_close(&other);
	peer_lane_close(&lane);
	peer_close(&alpha);
	check_empty(&h);
}

/* The same before the owner has answered: the change is off, the other lane goes on. */
TEST(quarantine__before_the_owner_has_stopped)
{
	SEAM(h);
	PEER(alpha, "alpha");
	PEER_LANE(lane, &alpha);
	PEER_LANE(other, &alpha);
	struct message_grant grant;
	struct message m, notice;

	CHECK_INT(peer_acquire(&alpha, &lane, 4 * PAGE, TTL_MS, 0, &grant), 0);
	CHECK_INT(peer_attach(&alpha, &other, grant.lease_id, &grant), 0);
	m = modify_message(grant.lease_id, PAGE, R);
	CHECK_INT(peer_send(&alpha, &m), 0);
	CHECK_INT(peer_take(&alpha, MESSAGE_QUIESCE, 0, LIMIT_MS, &notice), 1);
	lose_lane(&alpha, &lane);
	CHECK(!test_has_failed());
	CHECK_INT(peer_answer(&alpha, m.request_id, LIMIT_MS), ERROR_LANE);
	CHECK_INT(peer_say(&alpha, MESSAGE_QUIESCED, grant.lease_id), 0);
	CHECK_INT(peer_access(&other, IBV_WR_RDMA_WRITE, 1, grant.descriptors[0].remote_addr,
			      grant.descriptors[0].rkey),
		  IBV_WC_SUCCESS);
	CHECK(harness_number(&h, "stuck.windows") > 0);
	CHECK_INT(lease_number(&h, "len_bytes"), 4 * PAGE);
	CHECK(harness_wait_number(&h, "stuck.windows", 0, WAIT_MS));
	CHECK_INT(change(&alpha, grant.lease_id, PAGE, R), 0);
	peer_lane_close(&other);
	peer_lane_close(&lane);
	peer_close(&alpha);
	check_empty(&h);
}

/*
 * An attach that waits for the fence of the windows that are stuck is answered, and so is one
 * that comes later; when they are free, the lease can be had again.
 */
TEST(quarantine__attach_is_answered)
{
	SEAM(h);
	PEER(alpha, "alpha");
	PEER_LANE(lane, &alpha);
	PEER_LANE(other, &alpha);
	struct message_grant grant;

	CHECK_INT(peer_acquire(&alpha, &lane, 4 * PAGE, TTL_MS, 0, &grant), 0);
	lose_lane(&alpha, &lane);
	CHECK(!test_has_failed());
	CHECK_INT(peer_attach(&alpha, &other, grant.lease_id, &grant), ERROR_LANE);
	CHECK(harness_number(&h, "stuck.windows") > 0);
	CHECK_INT(peer_attach(&alpha, &other, grant.lease_id, &grant), ERROR_LANE);
	CHECK(harness_number(&h, "stuck.windows") > 0);
	CHECK(harness_wait_number(&h, "stuck.windows", 0, WAIT_MS));
	CHECK_INT(peer_attach(&alpha, &other, grant.lease_id, &grant), 0);
	CHECK_INT(peer_access(&other, IBV_WR_RDMA_WRITE, 1, grant.descriptors[0].remote_addr,
			      grant.descriptors[0].rkey),
		  IBV_WC_SUCCESS);
	CHECK_INT(lease_number(&h, "windows"), 0);
	peer_lane_close(&other);
	peer_lane_close(&lane);
	peer_close(&alpha);
	check_empty(&h);
}

/* A lease whose first windows are stuck never came to be, and who asked for it is told. */
TEST(quarantine__acquire_is_answered)
{
	HARNESS(h, .program = "mempoold-seam", .seam = "stuck-bind:24",
		.extra = "\"lane_wait_min\": \"0\", \"lane_sweep\": \"1min\"");
	PEER(alpha, "alpha");
	PEER_LANE(lane, &alpha);
	uint64_t id = peer_ask(&alpha, &lane, PAGE, 1, 0);

	CHECK(id != 0);
	CHECK_INT(peer_answer(&alpha, id, LIMIT_MS), ERROR_LANE);
	CHECK(harness_number(&h, "stuck.windows") > 0);
	CHECK_INT(lease_number(&h, "windows"), 0);
	CHECK(harness_wait_number(&h, "stuck.windows", 0, WAIT_MS));
	CHECK(harness_wait_number(&h, "leases.ending", 0, WAIT_MS));
	peer_lane_close(&lane);
	peer_close(&alpha);
	check_empty(&h);
}

/* A lease ends while a window of it is stuck: it is over, and its bytes come when it is freed. */

enum ending {
	ENDING_RELEASE,
	ENDING_REVOKE,
	ENDING_SESSION,
};

static void end_in_quarantine(enum ending ending)
{
	SEAM(h);
	PEER(alpha, "alpha");
	PEER_LANE(lane, &alpha);
	PEER_LANE(other, &alpha);
	__attribute__((cleanup(order_close))) struct order order = {.fd = -1};
	struct message_grant grant;
	struct message m;
	json_t *result;
	char state[32];

	CHECK_INT(order_open(&order, &h), 0);
	lose_one_of_two(&h, &alpha, &lane, &other, &grant);
	CHECK(!test_has_failed());
	m = (struct message){
		.type = MESSAGE_RELEASE,
		.u.leases = {.count = 1, .lease_ids = {grant.lease_id}},
	};
	if (ending == ENDING_RELEASE)
		CHECK_INT(peer_send(&alpha, &m), 0);
	else if (ending == ENDING_REVOKE)
		CHECK_INT(order_revoke(&order, grant.lease_id, true), 0);
	else
		raw_close(&alpha.control);
	CHECK(harness_wait_number(&h, "leases.ending", 1, LIMIT_MS));
	CHECK_STR(harness_lease_state(&h, grant.lease_id, state), "fencing");
	CHECK_INT(harness_number(&h, "pool.leased_bytes"), 4 * PAGE);
	CHECK(harness_number(&h, "stuck.windows") > 0);
	CHECK(harness_wait_lease_gone(&h, grant.lease_id, WAIT_MS));
	if (ending == ENDING_RELEASE)
		CHECK_INT(peer_take(&alpha, MESSAGE_RELEASED, m.request_id, LIMIT_MS, &m), 1);
	if (ending == ENDING_REVOKE) {
		CHECK_INT(order_answer(&order, LIMIT_MS, &result), 0);
		json_decref(result);
	}
	peer_lane_close(&other);
	peer_lane_close(&lane);
	peer_close(&alpha);
	check_empty(&h);
}

TEST(quarantine__release)
{
	end_in_quarantine(ENDING_RELEASE);
}

TEST(quarantine__revoke)
{
	end_in_quarantine(ENDING_REVOKE);
}

TEST(quarantine__end_of_the_session)
{
	end_in_quarantine(ENDING_SESSION);
}
