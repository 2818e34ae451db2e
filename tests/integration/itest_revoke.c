/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The operator takes leases back: notice, grace, acknowledgement; what a client may still do
 * meanwhile, and what becomes of one that does not listen.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "common/clock.h"
#include "proto/error.h"
#include "tests/integration/accounts.h"
#include "tests/integration/harness.h"
#include "tests/integration/order.h"
#include "tests/integration/peer.h"

#define PAGE	 4096
#define TTL_MS	 600000
#define GRACE_MS 600
#define GRACE	 "\"revoke_grace\": \"600ms\", \"lane_wait_min\": \"0\""
#define LATE_MS	 300

#define ORDER(name, h)                                                        \
	__attribute__((cleanup(order_close))) struct order name = {.fd = -1}; \
	CHECK_INT(order_open(&name, h), 0)

static int touch(struct peer_lane *lane, const struct message_grant *grant)
{
	return peer_access(lane, IBV_WR_RDMA_READ, 1, grant->descriptors[0].remote_addr,
			   grant->descriptors[0].rkey);
}

static void check_answer(struct order *order, uint64_t id)
{
	json_t *result = NULL;
	int64_t took_us;

	CHECK_INT(order_answer(order, 10000, &result), 0);
	took_us = json_integer_value(json_object_get(result, "took_us"));
	printf("# decision to fence %" PRId64 " us, order to answer %" PRId64 " us\n", took_us,
	       (int64_t)json_integer_value(json_object_get(result, "elapsed_us")));
	CHECK_INT(json_integer_value(json_object_get(result, "id")), id);
	CHECK_INT(json_integer_value(json_object_get(result, "leases")), 1);
	CHECK(took_us > 0);
	json_decref(result);
}

static void check_ended(struct peer *peer, uint64_t id, uint32_t reason)
{
	struct message m;

	CHECK_INT(peer_take(peer, MESSAGE_LEASES_ENDED, 0, 10000, &m), 1);
	CHECK_INT(m.u.leases_ended.count, 1);
	CHECK_INT(m.u.leases_ended.ended[0].lease_id, id);
	CHECK_INT(m.u.leases_ended.ended[0].reason, reason);
}

enum answer {
	ANSWER_NONE,
	ANSWER_LATER,
	ANSWER_AT_ONCE,
};

/* @at_least_ms, @at_most_ms: from the order to its end */
static void revoke(bool now, enum answer answer, uint64_t at_least_ms, uint64_t at_most_ms)
{
	HARNESS(h, .extra = GRACE);
	ORDER(order, &h);
	PEER(alpha, "alpha");
	PEER_LANE(lane, &alpha);
	struct message_grant grant;
	struct message m;
	uint64_t begun_ns;
	uint64_t took_ms;

	CHECK_INT(peer_acquire(&alpha, &lane, PAGE, TTL_MS, 0, &grant), 0);
	CHECK_INT(touch(&lane, &grant), IBV_WC_SUCCESS);
	begun_ns = clock_now_ns();
	CHECK_INT(order_revoke(&order, grant.lease_id, now), 0);
	if (!now) {
		CHECK_INT(peer_take(&alpha, MESSAGE_REVOKE, 0, 5000, &m), 1);
		CHECK_INT(m.u.revoke.count, 1);
		CHECK_INT(m.u.revoke.revoked[0].lease_id, grant.lease_id);
		CHECK_INT(m.u.revoke.revoked[0].grace_ms, GRACE_MS);
		CHECK_INT(touch(&lane, &grant), IBV_WC_SUCCESS);
	}
	if (answer == ANSWER_LATER)
		harness_sleep_ms(GRACE_MS / 3);
	if (answer != ANSWER_NONE)
		CHECK_INT(peer_say(&alpha, MESSAGE_REVOKED, grant.lease_id), 0);
	check_ended(&alpha, grant.lease_id, ERROR_REVOKED);
	check_answer(&order, grant.lease_id);
	CHECK(!test_has_failed());
	took_ms = harness_since_ms(begun_ns);
	printf("# over after %" PRIu64 " ms\n", took_ms);
	CHECK(took_ms >= at_least_ms);
	CHECK(took_ms < at_most_ms);
	/* No notice but those that are due. */
	CHECK_INT(peer_take(&alpha, MESSAGE_REVOKE, 0, 0, &m), 0);
	CHECK_INT(touch(&lane, &grant), IBV_WC_REM_ACCESS_ERR);
	CHECK_INT(peer_renew(&alpha, grant.lease_id, TTL_MS), ERROR_REVOKED);
	peer_lane_close(&lane);
	peer_close(&alpha);
	accounts_check(&h);
	CHECK(!test_has_failed());
	CHECK_INT(harness_stop(&h), 0);
}

TEST(revoke__grace_without_acknowledgement)
{
	revoke(false, ANSWER_NONE, GRACE_MS, GRACE_MS + LATE_MS);
}

TEST(revoke__acknowledged_at_once)
{
	revoke(false, ANSWER_AT_ONCE, 0, GRACE_MS);
}

TEST(revoke__acknowledged_later)
{
	revoke(false, ANSWER_LATER, GRACE_MS / 3, GRACE_MS);
}

TEST(revoke__now)
{
	revoke(true, ANSWER_NONE, 0, LATE_MS);
}

/* What the client asks for in its grace: nothing that lets it keep the lease. */
TEST(revoke__nothing_but_release_in_the_grace)
{
	HARNESS(h, .extra = "\"revoke_grace\": \"10s\"");
	ORDER(order, &h);
	PEER(alpha, "alpha");
	PEER_LANE(lane, &alpha);
	PEER_LANE(other, &alpha);
	struct message_grant grant, changed;
	struct message m;

	CHECK_INT(peer_acquire(&alpha, &lane, PAGE, TTL_MS, 0, &grant), 0);
	CHECK_INT(order_revoke(&order, grant.lease_id, false), 0);
	CHECK_INT(peer_take(&alpha, MESSAGE_REVOKE, 0, 5000, &m), 1);
	CHECK_INT(peer_renew(&alpha, grant.lease_id, TTL_MS), ERROR_REVOKED);
	CHECK_INT(peer_attach(&alpha, &other, grant.lease_id, &changed), ERROR_REVOKED);
	m = (struct message){
		.type = MESSAGE_MODIFY,
		.u.modify = {.lease_id = grant.lease_id,
			     .len_bytes = 2 * PAGE,
			     .rights = MESSAGE_RIGHT_READ},
	};
	CHECK_INT(peer_call(&alpha, &m, &m), ERROR_REVOKED);
	CHECK_INT(harness_revoke(&h, grant.lease_id), ERROR_REVOKED);
	CHECK_INT(touch(&lane, &grant), IBV_WC_SUCCESS);
	CHECK_INT(peer_release(&alpha, grant.lease_id), 0);
	CHECK_INT(touch(&lane, &grant), IBV_WC_REM_ACCESS_ERR);
	check_answer(&order, grant.lease_id);
}

/* The deadline stays, so a lease that is about to expire does not live longer. */
TEST(revoke__does_not_prolong)
{
	HARNESS(h, .extra = "\"revoke_grace\": \"30s\"");
	ORDER(order, &h);
	PEER(alpha, "alpha");
	PEER_LANE(lane, &alpha);
	struct message_grant grant;

	CHECK_INT(peer_acquire(&alpha, &lane, PAGE, 700, 0, &grant), 0);
	CHECK_INT(order_revoke(&order, grant.lease_id, false), 0);
	CHECK(harness_wait_lease_gone(&h, grant.lease_id, 3000));
	CHECK_INT(touch(&lane, &grant), IBV_WC_REM_ACCESS_ERR);
	check_answer(&order, grant.lease_id);
}

/* Acknowledgements of what is not being revoked, whoever it belongs to, do nothing. */
TEST(revoke__acknowledgement_of_something_else)
{
	HARNESS(h, .extra = "\"revoke_grace\": \"3s\"");
	ORDER(order, &h);
	PEER(alpha, "alpha");
	PEER(beta, "beta");
	PEER_LANE(lane, &alpha);
	struct message_grant grant, own;
	uint64_t begun_ns = clock_now_ns();

	CHECK_INT(peer_acquire(&alpha, &lane, PAGE, TTL_MS, 0, &grant), 0);
	CHECK_INT(peer_acquire(&alpha, &lane, PAGE, TTL_MS, 0, &own), 0);
	CHECK_INT(order_revoke(&order, grant.lease_id, false), 0);
	CHECK_INT(peer_say(&beta, MESSAGE_REVOKED, grant.lease_id), 0);
	CHECK_INT(peer_say(&beta, MESSAGE_REVOKED, 1), 0);
	CHECK_INT(peer_say(&alpha, MESSAGE_REVOKED, own.lease_id), 0);
	CHECK_INT(peer_say(&alpha, MESSAGE_REVOKED, 77), 0);
	CHECK_INT(peer_renew(&beta, grant.lease_id, TTL_MS), ERROR_NO_LEASE);
	CHECK_INT(peer_renew(&alpha, own.lease_id, TTL_MS), 0);
	CHECK_INT(touch(&lane, &own), IBV_WC_SUCCESS);
	CHECK_INT(touch(&lane, &grant), IBV_WC_SUCCESS);
	CHECK(harness_since_ms(begun_ns) < 3000);
	CHECK_INT(harness_number(&h, "leases.active"), 2);
	CHECK_INT(harness_number(&h, "sessions"), 2);
}

/* A lease that is not there any more: each of its ends has a code, foreign is as never was. */

static void check_gone(struct peer *peer, struct peer_lane *lane, uint64_t id, int code)
{
	struct message_grant grant;
	struct message m = {
		.type = MESSAGE_MODIFY,
		.u.modify = {.lease_id = id, .len_bytes = 1, .rights = MESSAGE_RIGHT_READ},
	};

	CHECK_INT(peer_renew(peer, id, TTL_MS), code);
	CHECK_INT(peer_renew(peer, id, 0), code);
	CHECK_INT(peer_attach(peer, lane, id, &grant), code);
	CHECK_INT(peer_call(peer, &m, &m), code);
	CHECK_INT(peer_release(peer, id), code);
}

TEST(revoke__codes_of_ended_and_foreign_leases)
{
	HARNESS(h, .extra = GRACE);
	ORDER(order, &h);
	PEER(alpha, "alpha");
	PEER(beta, "beta");
	PEER_LANE(lane, &alpha);
	PEER_LANE(other, &beta);
	struct message_grant expired, revoked, released, foreign;

	CHECK_INT(peer_acquire(&alpha, &lane, PAGE, 50, 0, &expired), 0);
	check_ended(&alpha, expired.lease_id, ERROR_EXPIRED);
	CHECK_INT(peer_acquire(&alpha, &lane, PAGE, TTL_MS, 5000, &revoked), 0);
	CHECK_INT(order_revoke(&order, revoked.lease_id, true), 0);
	check_ended(&alpha, revoked.lease_id, ERROR_REVOKED);
	CHECK_INT(peer_acquire(&alpha, &lane, PAGE, TTL_MS, 5000, &released), 0);
	CHECK_INT(peer_release(&alpha, released.lease_id), 0);
	CHECK_INT(peer_acquire(&beta, &other, PAGE, TTL_MS, 5000, &foreign), 0);
	check_gone(&alpha, &lane, expired.lease_id, ERROR_EXPIRED);
	check_gone(&alpha, &lane, revoked.lease_id, ERROR_REVOKED);
	check_gone(&alpha, &lane, released.lease_id, ERROR_RELEASED);
	check_gone(&alpha, &lane, foreign.lease_id, ERROR_NO_LEASE);
	check_gone(&alpha, &lane, foreign.lease_id ^ 1, ERROR_NO_LEASE);
	check_gone(&alpha, &lane, 1, ERROR_NO_LEASE);
	check_gone(&alpha, &lane, UINT64_MAX, ERROR_NO_LEASE);
	CHECK(!test_has_failed());
	/* To its owner the foreign one is as good as ever. */
	CHECK_INT(touch(&other, &foreign), IBV_WC_SUCCESS);
	/* And to others those that ended never were. */
	check_gone(&beta, &other, expired.lease_id, ERROR_NO_LEASE);
	CHECK_INT(harness_number(&h, "sessions"), 2);
}

/* Stops receiving: no message is taken, so no credit comes back. */
TEST(revoke__a_peer_that_takes_no_messages_is_dropped)
{
	HARNESS(h, .extra = GRACE ", \"credit_timeout\": \"2s\"");
	ORDER(order, &h);
	PEER(alpha, "alpha");
	PEER(beta, "beta");
	PEER_LANE(lane, &alpha);
	PEER_LANE(other, &beta);
	struct message_grant grants[RAW_RECEIVES + 2];
	struct message_grant grant;
	uint64_t begun_ns;
	uint64_t took_ms;

	for (int i = 0; i < RAW_RECEIVES + 2; i++)
		CHECK_INT(peer_acquire(&alpha, &lane, PAGE, TTL_MS, 0, &grants[i]), 0);
	CHECK_INT(peer_acquire(&beta, &other, PAGE, TTL_MS, 0, &grant), 0);
	/* One notice for each, and alpha looks at none. */
	begun_ns = clock_now_ns();
	for (int i = 0; i < RAW_RECEIVES + 2; i++) {
		CHECK_INT(order_revoke(&order, grants[i].lease_id, true), 0);
		check_answer(&order, grants[i].lease_id);
	}
	CHECK(!test_has_failed());
	CHECK(harness_wait_number(&h, "sessions", 1, 10000));
	took_ms = harness_since_ms(begun_ns);
	printf("# dropped after %" PRIu64 " ms\n", took_ms);
	CHECK(took_ms >= 2000 && took_ms < 4500);
	CHECK_INT(touch(&other, &grant), IBV_WC_SUCCESS);
	CHECK_INT(peer_renew(&beta, grant.lease_id, TTL_MS), 0);
}

/* Of several at once: one notice, and all end when the tenant's only order says so. */
TEST(revoke__all_of_a_tenant)
{
	HARNESS(h, .extra = GRACE);
	ORDER(order, &h);
	PEER(alpha, "alpha");
	PEER(again, "alpha");
	PEER(beta, "beta");
	PEER_LANE(lane, &alpha);
	PEER_LANE(second, &again);
	PEER_LANE(other, &beta);
	struct message_grant a, b, c, foreign;
	json_t *result = NULL;
	struct message m;

	CHECK_INT(peer_acquire(&alpha, &lane, PAGE, TTL_MS, 0, &a), 0);
	CHECK_INT(peer_acquire(&alpha, &lane, PAGE, TTL_MS, 0, &b), 0);
	CHECK_INT(peer_acquire(&again, &second, PAGE, TTL_MS, 0, &c), 0);
	CHECK_INT(peer_acquire(&beta, &other, PAGE, TTL_MS, 0, &foreign), 0);
	CHECK_INT(order_revoke_tenant(&order, "alpha", false), 0);
	CHECK_INT(peer_take(&alpha, MESSAGE_REVOKE, 0, 5000, &m), 1);
	CHECK_INT(m.u.revoke.count, 2);
	CHECK_INT(peer_take(&again, MESSAGE_REVOKE, 0, 5000, &m), 1);
	CHECK_INT(m.u.revoke.count, 1);
	CHECK_INT(order_answer(&order, 10000, &result), 0);
	CHECK_INT(json_integer_value(json_object_get(result, "leases")), 3);
	json_decref(result);
	CHECK_INT(touch(&other, &foreign), IBV_WC_SUCCESS);
	CHECK_INT(touch(&lane, &a), IBV_WC_REM_ACCESS_ERR);
	CHECK_INT(touch(&second, &c), IBV_WC_REM_ACCESS_ERR);
	CHECK_INT(order_revoke_tenant(&order, "nobody", false), 0);
	CHECK_INT(order_answer(&order, 10000, &result), 0);
	CHECK_INT(json_integer_value(json_object_get(result, "leases")), 0);
	json_decref(result);
	CHECK_INT(harness_number(&h, "leases.active"), 1);
}
