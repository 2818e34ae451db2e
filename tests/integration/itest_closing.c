/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Acquires that are under way when something closes: of several leases whose lane or session
 * goes, or that are revoked, while they bind or wait for bytes. All is taken back, and whoever
 * waits behind them gets on. A daemon that is slow makes these moments long enough to be met;
 * built with the address sanitizer it tells what it touches after it is freed.
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
#define WAIT_MS	 60000
#define LIMIT_MS 20000 /* for what comes at once, on a machine that may be slow */

/* Each of 16 KiB takes 10 ms to be zeroed, and so more than a second passes for 2 MiB. */
#define SLOW_SCRUB "slow-scrub:100"
#define EXTRA                                                  \
	"\"lane_wait_min\": \"0\", \"lane_sweep\": \"1min\", " \
	"\"scrub_chunk\": \"16KiB\", \"revoke_grace\": \"10s\""

#define SEAM(name, fault)                                                             \
	HARNESS(name, .program = "mempoold-seam", .seam = fault, .pool_size = "4MiB", \
		.extra = EXTRA)

#define ORDER(name, h)                                                        \
	__attribute__((cleanup(order_close))) struct order name = {.fd = -1}; \
	CHECK_INT(order_open(&name, h), 0)

/* How many leases are in a state. @ret_id: of the last of them, may be NULL */
static uint32_t count_in(struct harness *h, const char *state, uint64_t *ret_id)
{
	json_t *result = harness_call(h, "lease.list", NULL);
	uint32_t count = 0;
	json_t *row;
	size_t i;

	json_array_foreach(json_object_get(result, "leases"), i, row)
	{
		if (strcmp(json_string_value(json_object_get(row, "state")), state) != 0)
			continue;
		count++;
		if (ret_id != NULL)
			*ret_id = (uint64_t)json_integer_value(json_object_get(row, "id"));
	}
	json_decref(result);
	return count;
}

static bool wait_until_in(struct harness *h, const char *state, uint32_t count)
{
	for (int i = 0; i < 1000 && count_in(h, state, NULL) != count; i++)
		harness_sleep_ms(2);
	return count_in(h, state, NULL) == count;
}

/* Nothing is left. With the last lease its tenant goes, and asserts that nothing is charged. */
static void check_empty(struct harness *h)
{
	accounts_check(h);
	CHECK(!test_has_failed());
	CHECK_INT(harness_stop(h), 0);
}

/* An acquire of several, and what closes meanwhile. */

enum blow {
	BLOW_LANE_DIES,
	BLOW_LANE_LEAVES,
	BLOW_BYE,
	BLOW_PROTOCOL_ERROR,
	BLOW_SESSION_LEAVES,
};

static void strike(struct peer *peer, struct peer_lane *lane, enum blow blow)
{
	struct message m = {.type = MESSAGE_BYE};

	switch (blow) {
	case BLOW_LANE_DIES:
		/* Who asks for a lane makes the daemon look at those that there are. */
		CHECK_INT(peer_access(lane, IBV_WR_RDMA_READ, 1, 0, 1), IBV_WC_REM_ACCESS_ERR);
		m.type = MESSAGE_LANE_OPEN;
		CHECK_INT(peer_send(peer, &m), 0);
		break;
	case BLOW_LANE_LEAVES:
		CHECK_INT(rdma_disconnect(lane->raw.id), 0);
		break;
	case BLOW_PROTOCOL_ERROR:
		m = raw_hello_message();
		CHECK_INT(peer_send(peer, &m), 0);
		break;
	case BLOW_BYE:
		CHECK_INT(peer_send(peer, &m), 0);
		break;
	case BLOW_SESSION_LEAVES:
		raw_close(&peer->control);
		break;
	}
}

/* The session goes on with another lane, and has the whole pool. */
static void check_goes_on(struct harness *h, struct peer *peer, struct peer_lane *lane)
{
	struct message_grant grant;

	CHECK(harness_wait_number(h, "leases.active", 0, LIMIT_MS));
	peer_lane_close(lane);
	CHECK_INT(peer_lane_open(peer, lane), 0);
	CHECK_INT(peer_acquire(peer, lane, 4 * MIB, TTL_MS, WAIT_MS, &grant), 0);
	peer_lane_close(lane);
	peer_close(peer);
	check_empty(h);
}

/* All leases have bytes; some have windows, too, and the others wait for windows. */
static void lose_lane_while_binding(enum blow blow)
{
	SEAM(h, "slow-alloc");
	PEER(alpha, "alpha");
	PEER_LANE(lane, &alpha);
	uint64_t request_id = peer_ask(&alpha, &lane, PAGE, PROTO_ACQUIRE_LEASES, 0);

	CHECK(harness_wait_number(&h, "leases.active", PROTO_ACQUIRE_LEASES, LIMIT_MS));
	strike(&alpha, &lane, blow);
	CHECK(!test_has_failed());
	CHECK_INT(peer_answer(&alpha, request_id, LIMIT_MS), ERROR_LANE);
	check_goes_on(&h, &alpha, &lane);
}

TEST(closing__lane_dies_while_an_acquire_binds)
{
	lose_lane_while_binding(BLOW_LANE_DIES);
}

TEST(closing__lane_leaves_while_an_acquire_binds)
{
	lose_lane_while_binding(BLOW_LANE_LEAVES);
}

TEST(closing__sessions_end_while_acquires_bind)
{
	SEAM(h, "slow-alloc");
	PEER(alpha, "alpha");
	PEER(beta, "beta");
	PEER(gamma, "gamma");
	PEER_LANE(lane_a, &alpha);
	PEER_LANE(lane_b, &beta);
	PEER_LANE(lane_c, &gamma);

	CHECK(peer_ask(&alpha, &lane_a, PAGE, PROTO_ACQUIRE_LEASES, 0) != 0);
	CHECK(peer_ask(&beta, &lane_b, PAGE, PROTO_ACQUIRE_LEASES, 0) != 0);
	CHECK(peer_ask(&gamma, &lane_c, PAGE, PROTO_ACQUIRE_LEASES, 0) != 0);
	CHECK(harness_wait_number(&h, "leases.active", 3 * PROTO_ACQUIRE_LEASES, LIMIT_MS));
	strike(&alpha, &lane_a, BLOW_BYE);
	strike(&beta, &lane_b, BLOW_PROTOCOL_ERROR);
	strike(&gamma, &lane_c, BLOW_SESSION_LEAVES);
	CHECK(harness_wait_number(&h, "leases.active", 0, LIMIT_MS));
	CHECK(harness_number(&h, "counters.leases_granted") < PROTO_ACQUIRE_LEASES);
	peer_lane_close(&lane_c);
	peer_lane_close(&lane_b);
	peer_lane_close(&lane_a);
	peer_close(&gamma);
	peer_close(&beta);
	peer_close(&alpha);
	check_empty(&h);
}

/* Make so many bytes dirty, 2 MiB or more, which stay so for more than a second. */
static void make_dirty(struct harness *h, struct peer *peer, const struct peer_lane *lane,
		       uint64_t len_bytes)
{
	struct message_grant grant;

	CHECK_INT(peer_acquire(peer, lane, len_bytes, TTL_MS, 0, &grant), 0);
	CHECK_INT(peer_release(peer, grant.lease_id), 0);
	CHECK_INT(harness_number(h, "pool.dirty_bytes"), (int64_t)len_bytes);
}

/* One of four has its bytes and is bound, but not granted; the others wait for theirs. */
static uint64_t ask_for_four(struct harness *h, struct peer *peer, const struct peer_lane *lane,
			     uint32_t wait_ms)
{
	uint64_t request_id;

	make_dirty(h, peer, lane, 3 * MIB);
	if (test_has_failed())
		return 0;
	request_id = peer_ask(peer, lane, MIB, 4, wait_ms);
	return wait_until_in(h, "waiting", 3) && wait_until_in(h, "active", 1) ? request_id : 0;
}

static void lose_lane_while_waiting(enum blow blow)
{
	SEAM(h, SLOW_SCRUB);
	PEER(alpha, "alpha");
	PEER_LANE(lane, &alpha);
	uint64_t request_id = ask_for_four(&h, &alpha, &lane, WAIT_MS);

	CHECK(request_id != 0);
	strike(&alpha, &lane, blow);
	CHECK(!test_has_failed());
	CHECK_INT(peer_answer(&alpha, request_id, LIMIT_MS), ERROR_LANE_STATE);
	CHECK_INT(harness_number(&h, "counters.leases_granted"), 2);
	check_goes_on(&h, &alpha, &lane);
}

TEST(closing__lane_dies_while_an_acquire_waits)
{
	lose_lane_while_waiting(BLOW_LANE_DIES);
}

TEST(closing__lane_leaves_while_an_acquire_waits)
{
	lose_lane_while_waiting(BLOW_LANE_LEAVES);
}

/* Of the first two leases one has its bytes, of the others none. */
TEST(closing__sessions_end_while_acquires_wait)
{
	SEAM(h, SLOW_SCRUB);
	PEER(alpha, "alpha");
	PEER(beta, "beta");
	PEER(gamma, "gamma");
	PEER_LANE(lane_a, &alpha);
	PEER_LANE(lane_b, &beta);
	PEER_LANE(lane_c, &gamma);

	make_dirty(&h, &alpha, &lane_a, 3 * MIB);
	CHECK(!test_has_failed());
	CHECK(peer_ask(&alpha, &lane_a, MIB, 2, WAIT_MS) != 0);
	CHECK(wait_until_in(&h, "waiting", 1) && wait_until_in(&h, "active", 1));
	CHECK(peer_ask(&beta, &lane_b, MIB, 2, WAIT_MS) != 0);
	CHECK(peer_ask(&gamma, &lane_c, MIB, 2, WAIT_MS) != 0);
	CHECK(wait_until_in(&h, "waiting", 5));
	strike(&alpha, &lane_a, BLOW_BYE);
	CHECK(harness_wait_number(&h, "leases.active", 4, LIMIT_MS));
	strike(&beta, &lane_b, BLOW_PROTOCOL_ERROR);
	CHECK(harness_wait_number(&h, "leases.active", 2, LIMIT_MS));
	strike(&gamma, &lane_c, BLOW_SESSION_LEAVES);
	CHECK(harness_wait_number(&h, "leases.active", 0, LIMIT_MS));
	CHECK_INT(harness_number(&h, "pool.dirty_bytes"), (int64_t)(4 * MIB));
	CHECK_INT(harness_number(&h, "counters.leases_granted"), 2);
	peer_lane_close(&lane_c);
	peer_lane_close(&lane_b);
	peer_lane_close(&lane_a);
	peer_close(&gamma);
	peer_close(&beta);
	peer_close(&alpha);
	check_empty(&h);
}

TEST(closing__wait_of_several_is_over)
{
	SEAM(h, SLOW_SCRUB);
	PEER(alpha, "alpha");
	PEER_LANE(lane, &alpha);
	uint64_t request_id = ask_for_four(&h, &alpha, &lane, 500);

	CHECK(request_id != 0);
	CHECK_INT(peer_answer(&alpha, request_id, LIMIT_MS), ERROR_TIMEOUT);
	CHECK(harness_number(&h, "pool.dirty_bytes") >= (int64_t)(3 * MIB));
	peer_lane_close(&lane);
	peer_close(&alpha);
	check_empty(&h);
}

/* Leases that have not been granted are revoked. */

/* The operator sees them and names one: all of the acquire are refused. */
static void revoke_one_of_four(const char *state)
{
	SEAM(h, SLOW_SCRUB);
	PEER(alpha, "alpha");
	PEER_LANE(lane, &alpha);
	ORDER(order, &h);
	uint64_t request_id = ask_for_four(&h, &alpha, &lane, WAIT_MS);
	json_t *result;
	uint64_t id = 0;

	CHECK(request_id != 0);
	CHECK(count_in(&h, state, &id) > 0);
	CHECK_INT(order_revoke(&order, id, true), 0);
	CHECK_INT(peer_answer(&alpha, request_id, LIMIT_MS), ERROR_REVOKED);
	CHECK_INT(order_answer(&order, LIMIT_MS, &result), 0);
	json_decref(result);
	CHECK(harness_number(&h, "pool.dirty_bytes") >= (int64_t)(3 * MIB));
	CHECK(harness_wait_number(&h, "leases.active", 0, LIMIT_MS));
	peer_lane_close(&lane);
	peer_close(&alpha);
	check_empty(&h);
}

TEST(closing__revoked_while_it_waits_with_others)
{
	revoke_one_of_four("waiting");
}

TEST(closing__revoked_while_others_wait)
{
	revoke_one_of_four("active");
}

/* The grace is for those who have something to write back. */
TEST(closing__revoked_with_grace_while_it_waits)
{
	SEAM(h, SLOW_SCRUB);
	PEER(alpha, "alpha");
	PEER_LANE(lane, &alpha);
	ORDER(order, &h);
	uint64_t request_id, id;
	json_t *result;

	make_dirty(&h, &alpha, &lane, 2 * MIB);
	CHECK(!test_has_failed());
	request_id = peer_ask(&alpha, &lane, 3 * MIB, 1, WAIT_MS);
	CHECK(wait_until_in(&h, "waiting", 1));
	CHECK_INT(count_in(&h, "waiting", &id), 1);
	CHECK_INT(order_revoke(&order, id, false), 0);
	CHECK_INT(peer_answer(&alpha, request_id, LIMIT_MS), ERROR_REVOKED);
	CHECK_INT(harness_number(&h, "pool.dirty_bytes"), (int64_t)(2 * MIB));
	CHECK_INT(order_answer(&order, LIMIT_MS, &result), 0);
	json_decref(result);
	CHECK_INT(harness_number(&h, "counters.leases_granted"), 1);
	peer_lane_close(&lane);
	peer_close(&alpha);
	check_empty(&h);
}

/* Who waits in front of others goes. */

enum leaving {
	LEAVING_TIMEOUT,
	LEAVING_REVOKED,
	LEAVING_BYE,
	LEAVING_SESSION,
};

static void leave(struct harness *h, struct peer *peer, uint64_t request_id, uint64_t lease_id,
		  enum leaving leaving)
{
	struct message m = {.type = MESSAGE_BYE};
	ORDER(order, h);

	switch (leaving) {
	case LEAVING_TIMEOUT:
		CHECK_INT(peer_answer(peer, request_id, LIMIT_MS), ERROR_TIMEOUT);
		break;
	case LEAVING_REVOKED:
		CHECK_INT(order_revoke(&order, lease_id, true), 0);
		CHECK_INT(peer_answer(peer, request_id, LIMIT_MS), ERROR_REVOKED);
		break;
	case LEAVING_BYE:
		CHECK_INT(peer_send(peer, &m), 0);
		break;
	case LEAVING_SESSION:
		raw_close(&peer->control);
		break;
	}
}

/*
 * 2 MiB are free and 2 dirty; the first wants 3, and two others of the same tenant want a page
 * each and the rest of the free bytes. They are served when the first goes, not when bytes come.
 */
static void leave_in_front(enum leaving leaving)
{
	SEAM(h, SLOW_SCRUB);
	PEER(first, "alpha");
	PEER(others, "alpha");
	PEER_LANE(lane, &first);
	PEER_LANE(other, &others);
	uint64_t request_id, page, rest, lease_id, begun_ns;

	make_dirty(&h, &first, &lane, 2 * MIB);
	CHECK(!test_has_failed());
	request_id =
		peer_ask(&first, &lane, 3 * MIB, 1, leaving == LEAVING_TIMEOUT ? 400 : WAIT_MS);
	CHECK(wait_until_in(&h, "waiting", 1));
	CHECK_INT(count_in(&h, "waiting", &lease_id), 1);
	page = peer_ask(&others, &other, PAGE, 1, WAIT_MS);
	rest = peer_ask(&others, &other, 2 * MIB - PAGE, 1, WAIT_MS);
	CHECK(wait_until_in(&h, "waiting", 3));
	leave(&h, &first, request_id, lease_id, leaving);
	CHECK(!test_has_failed());
	begun_ns = clock_now_ns();
	CHECK_INT(peer_answer(&others, page, LIMIT_MS), 0);
	CHECK_INT(peer_answer(&others, rest, LIMIT_MS), 0);
	printf("# the first has gone, %.1f ms later the others are served\n",
	       (double)(clock_now_ns() - begun_ns) / 1e6);
	CHECK_INT(harness_number(&h, "pool.dirty_bytes"), (int64_t)(2 * MIB));
	CHECK_INT(harness_number(&h, "pool.free_bytes"), 0);
	peer_lane_close(&other);
	peer_lane_close(&lane);
	peer_close(&others);
	peer_close(&first);
	check_empty(&h);
}

TEST(closing__first_that_waits_is_over_its_time)
{
	leave_in_front(LEAVING_TIMEOUT);
}

TEST(closing__first_that_waits_is_revoked)
{
	leave_in_front(LEAVING_REVOKED);
}

TEST(closing__first_that_waits_says_bye)
{
	leave_in_front(LEAVING_BYE);
}

TEST(closing__first_that_waits_is_dropped)
{
	leave_in_front(LEAVING_SESSION);
}

/* The next one does not fit either, by a page; nobody of the same tenant overtakes it. */
TEST(closing__next_that_waits_does_not_fit)
{
	SEAM(h, SLOW_SCRUB);
	PEER(alpha, "alpha");
	PEER_LANE(lane, &alpha);
	uint64_t first, next, last;

	make_dirty(&h, &alpha, &lane, 2 * MIB);
	CHECK(!test_has_failed());
	first = peer_ask(&alpha, &lane, 3 * MIB, 1, 400);
	next = peer_ask(&alpha, &lane, 2 * MIB + PAGE, 1, WAIT_MS);
	last = peer_ask(&alpha, &lane, PAGE, 1, WAIT_MS);
	CHECK(wait_until_in(&h, "waiting", 3));
	CHECK_INT(peer_answer(&alpha, first, LIMIT_MS), ERROR_TIMEOUT);
	CHECK_INT(count_in(&h, "waiting", NULL), 2);
	CHECK_INT(harness_number(&h, "pool.free_bytes"), (int64_t)(2 * MIB));
	CHECK_INT(peer_answer(&alpha, next, LIMIT_MS), 0);
	CHECK_INT(peer_answer(&alpha, last, LIMIT_MS), 0);
	peer_lane_close(&lane);
	peer_close(&alpha);
	check_empty(&h);
}
