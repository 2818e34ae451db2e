/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Data connections: how they are lost and made again, how many there may be, and who may not
 * have one.
 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "client/lane.h"
#include "client/pool.h"
#include "common/clock.h"
#include "proto/error.h"
#include "tests/integration/accounts.h"
#include "tests/integration/harness.h"
#include "tests/integration/order.h"
#include "tests/integration/peer.h"
#include "tests/integration/proof.h"

#define PAGE	      4096
#define TTL_MS	      600000
#define LEASES	      8
#define REBIND_MAX_MS 500

/* Death and rebind, as the library does it. */

static void revoke_now(const struct harness *h, uint64_t id)
{
	__attribute__((cleanup(order_close))) struct order order;
	json_t *result = NULL;
	int r;

	CHECK_INT(order_open(&order, h), 0);
	CHECK_INT(order_revoke(&order, id, true), 0);
	r = order_answer(&order, 10000, &result);
	json_decref(result);
	CHECK_INT(r, 0);
}

static void check_lives(mempool_lease *lease, uint32_t seed, uint32_t old_key)
{
	uint8_t sent[PAGE];
	uint8_t got[PAGE];

	harness_fill(sent, PAGE, seed);
	CHECK_INT(mempool_read(lease, 0, got, PAGE), 0);
	CHECK_MEM(got, sent, PAGE);
	CHECK(proof_descriptor(lease).rkey != old_key);
}

TEST(lane__seven_of_eight_leases_live_on)
{
	HARNESS(h, .pool_size = NULL);
	SESSION(alpha, "alpha");
	struct message_descriptor old[LEASES];
	mempool_lease *leases[LEASES];
	uint8_t bytes[PAGE];
	uint64_t begun_ns;
	double took_ms;

	for (uint32_t i = 0; i < LEASES; i++) {
		harness_fill(bytes, PAGE, i + 1);
		CHECK_INT(harness_acquire(alpha, PAGE, TTL_MS, &leases[i]), 0);
		CHECK_INT(mempool_write(leases[i], 0, bytes, PAGE), 0);
		old[i] = proof_descriptor(leases[i]);
	}
	revoke_now(&h, harness_lease_id(leases[7]));
	CHECK(!test_has_failed());
	begun_ns = clock_now_ns();
	CHECK_INT(proof_access(pool_lane(alpha), IBV_WR_RDMA_READ, 64, old[7].remote_addr,
			       old[7].rkey),
		  IBV_WC_REM_ACCESS_ERR);
	for (uint32_t i = 0; i < 7; i++) {
		check_lives(leases[i], i + 1, old[i].rkey);
		if (test_has_failed())
			return;
	}
	took_ms = (double)(clock_now_ns() - begun_ns) / 1e6;
	printf("# 7 leases work again %.1f ms after the refusal\n", took_ms);
	CHECK(took_ms < REBIND_MAX_MS);
	CHECK_INT(mempool_read(leases[7], 0, bytes, PAGE), MEMPOOL_E_REVOKED);
	CHECK_INT(harness_number(&h, "counters.lanes_lost"), 1);
	CHECK_INT(harness_number(&h, "lanes"), 1);
	harness_close(&alpha);
	accounts_check(&h);
	CHECK(!test_has_failed());
	CHECK_INT(harness_stop(&h), 0);
}

/*
 * The daemon gives a lane up while its client's QP is still good: a write on it that was held
 * up comes to a QP that takes nothing any more, whatever has been bound anew meanwhile.
 */
TEST(lane__a_delayed_write_does_not_land)
{
	HARNESS(h, .program = "mempoold-seam", .seam = "flush-invalidate:1");
	PEER(alpha, "alpha");
	PEER_LANE(old, &alpha);
	PEER_LANE(fresh, &alpha);
	struct message_grant grant, other, again;
	struct message m;
	int status;

	CHECK_INT(peer_acquire(&alpha, &old, PAGE, TTL_MS, 0, &grant), 0);
	CHECK_INT(peer_acquire(&alpha, &old, PAGE, TTL_MS, 0, &other), 0);
	CHECK_INT(peer_access(&old, IBV_WR_RDMA_WRITE, PAGE, grant.descriptors[0].remote_addr,
			      grant.descriptors[0].rkey),
		  IBV_WC_SUCCESS);
	CHECK_INT(peer_release(&alpha, other.lease_id), 0);
	CHECK_INT(peer_take(&alpha, MESSAGE_LANE_LOST, 0, 5000, &m), 1);
	CHECK_INT(peer_attach(&alpha, &fresh, grant.lease_id, &again), 0);
	memset(peer_buffer(&fresh), 0x11, PAGE);
	CHECK_INT(peer_access(&fresh, IBV_WR_RDMA_WRITE, PAGE, again.descriptors[0].remote_addr,
			      again.descriptors[0].rkey),
		  IBV_WC_SUCCESS);
	CHECK_INT(verbs_qp_state(old.raw.id->qp), IBV_QPS_RTS);
	memset(peer_buffer(&old), 0x22, PAGE);
	status = peer_access(&old, IBV_WR_RDMA_WRITE, PAGE, grant.descriptors[0].remote_addr,
			     grant.descriptors[0].rkey);
	printf("# the delayed write: %s\n",
	       status < 0 ? "no completion" : ibv_wc_status_str((enum ibv_wc_status)status));
	CHECK(status != IBV_WC_SUCCESS);
	CHECK_INT(peer_access(&fresh, IBV_WR_RDMA_READ, PAGE, again.descriptors[0].remote_addr,
			      again.descriptors[0].rkey),
		  IBV_WC_SUCCESS);
	for (int i = 0; i < PAGE; i++)
		CHECK_INT(peer_buffer(&fresh)[i], 0x11);
	peer_lane_close(&fresh);
	peer_lane_close(&old);
	peer_close(&alpha);
	accounts_check(&h);
	CHECK(!test_has_failed());
	CHECK_INT(harness_stop(&h), 0);
}

static void lose_lane(struct peer *peer, struct peer_lane *lane)
{
	struct message m;

	CHECK_INT(peer_access(lane, IBV_WR_RDMA_READ, 1, 0, 1), IBV_WC_REM_ACCESS_ERR);
	(void)peer_take(peer, MESSAGE_LANE_LOST, 0, 0, &m);
	peer_lane_close(lane);
}

/* The first replacement at once, then with a doubling wait up to its limit. */
TEST(lane__replaced_with_a_doubling_wait)
{
	static const uint64_t waits_ms[] = {0, 100, 200, 400, 400};
	HARNESS(h, .extra = "\"lane_wait_min\": \"100ms\", \"lane_wait_max\": \"400ms\"");
	PEER(alpha, "alpha");
	PEER_LANE(lane, &alpha);

	for (size_t i = 0; i < sizeof(waits_ms) / sizeof(waits_ms[0]); i++) {
		struct message_lane_offer offer;
		uint64_t begun_ns = clock_now_ns();
		uint64_t took_ms;

		lose_lane(&alpha, &lane);
		CHECK(!test_has_failed());
		CHECK_INT(peer_offer(&alpha, &offer), 0);
		took_ms = harness_since_ms(begun_ns);
		printf("# loss %zu: offer after %" PRIu64 " ms\n", i + 1, took_ms);
		CHECK(took_ms >= waits_ms[i]);
		CHECK(took_ms < waits_ms[i] + (i == 0 ? 100 : waits_ms[i]));
		CHECK_INT(peer_connect(&alpha, &offer, &lane), 0);
		CHECK_INT(peer_confirm(&alpha, &lane), 0);
	}
}

TEST(lane__peace_ends_the_wait)
{
	HARNESS(h, .extra = "\"lane_wait_min\": \"1min\", \"lane_wait_max\": \"10min\", "
			    "\"lane_peace\": \"300ms\", \"strike_decay\": \"300ms\"");
	PEER(alpha, "alpha");
	PEER_LANE(lane, &alpha);

	for (int i = 0; i < 3; i++) {
		lose_lane(&alpha, &lane);
		CHECK(!test_has_failed());
		CHECK_INT(peer_lane_open(&alpha, &lane), 0);
		harness_sleep_ms(400);
	}
}

/* Limits. */

TEST(lane__limits)
{
	HARNESS(h, .extra = "\"lanes_max\": 2, \"lane_leases_max\": 3");
	PEER(alpha, "alpha");
	PEER_LANE(one, &alpha);
	PEER_LANE(two, &alpha);
	struct message_lane_offer offer;
	struct message_grant grants[4];

	CHECK_INT(peer_offer(&alpha, &offer), ERROR_LANES_MAX);
	for (int i = 0; i < 3; i++)
		CHECK_INT(peer_acquire(&alpha, &one, PAGE, TTL_MS, 0, &grants[i]), 0);
	CHECK_INT(peer_acquire(&alpha, &one, PAGE, TTL_MS, 0, &grants[3]), ERROR_LANE_LEASES_MAX);
	CHECK_INT(peer_acquire(&alpha, &two, PAGE, TTL_MS, 0, &grants[3]), 0);
	CHECK_INT(peer_attach(&alpha, &one, grants[3].lease_id, &grants[3]), ERROR_LANE_LEASES_MAX);
	CHECK_INT(peer_release(&alpha, grants[0].lease_id), 0);
	CHECK_INT(peer_attach(&alpha, &one, grants[3].lease_id, &grants[3]), 0);
	peer_lane_close(&two);
	CHECK(harness_wait_number(&h, "lanes", 1, 5000));
	CHECK_INT(peer_lane_open(&alpha, &two), 0);
}

/* Several lanes for one lease, each with keys of its own. */
TEST(lane__a_lease_on_two_lanes)
{
	HARNESS(h, .pool_size = NULL);
	PEER(alpha, "alpha");
	PEER_LANE(one, &alpha);
	PEER_LANE(two, &alpha);
	struct message_grant first, second;
	const struct message_descriptor *a = &first.descriptors[0];
	const struct message_descriptor *b = &second.descriptors[0];

	CHECK_INT(peer_acquire(&alpha, &one, PAGE, TTL_MS, 0, &first), 0);
	CHECK_INT(peer_attach(&alpha, &two, first.lease_id, &second), 0);
	CHECK_INT(second.lease_id, first.lease_id);
	CHECK(a->rkey != b->rkey);
	CHECK_INT(a->remote_addr, b->remote_addr);
	CHECK_INT(peer_attach(&alpha, &two, first.lease_id, &second), ERROR_BUSY);
	memset(peer_buffer(&one), 0x44, PAGE);
	CHECK_INT(peer_access(&one, IBV_WR_RDMA_WRITE, PAGE, a->remote_addr, a->rkey),
		  IBV_WC_SUCCESS);
	CHECK_INT(peer_access(&two, IBV_WR_RDMA_READ, PAGE, b->remote_addr, b->rkey),
		  IBV_WC_SUCCESS);
	CHECK_INT(memcmp(peer_buffer(&one), peer_buffer(&two), PAGE), 0);
	/* A lane's end leaves the other one alone; the lease's end closes both. */
	peer_lane_close(&one);
	CHECK(harness_wait_number(&h, "lanes", 1, 5000));
	CHECK_INT(peer_access(&two, IBV_WR_RDMA_READ, 1, b->remote_addr, b->rkey), IBV_WC_SUCCESS);
	CHECK_INT(peer_lane_open(&alpha, &one), 0);
	CHECK_INT(peer_attach(&alpha, &one, first.lease_id, &first), 0);
	CHECK_INT(peer_access(&one, IBV_WR_RDMA_READ, 1, a->remote_addr, a->rkey), IBV_WC_SUCCESS);
	CHECK_INT(peer_release(&alpha, first.lease_id), 0);
	CHECK_INT(peer_access(&one, IBV_WR_RDMA_READ, 1, a->remote_addr, a->rkey),
		  IBV_WC_REM_ACCESS_ERR);
	CHECK_INT(peer_access(&two, IBV_WR_RDMA_READ, 1, b->remote_addr, b->rkey),
		  IBV_WC_REM_ACCESS_ERR);
}

/* The key of one lane is nothing on the other lane of the same lease. */
TEST(lane__keys_are_good_for_their_lane_only)
{
	HARNESS(h, .pool_size = NULL);
	PEER(alpha, "alpha");
	PEER_LANE(one, &alpha);
	PEER_LANE(two, &alpha);
	struct message_grant first, second;

	CHECK_INT(peer_acquire(&alpha, &one, PAGE, TTL_MS, 0, &first), 0);
	CHECK_INT(peer_attach(&alpha, &two, first.lease_id, &second), 0);
	CHECK_INT(peer_access(&two, IBV_WR_RDMA_READ, 1, second.descriptors[0].remote_addr,
			      second.descriptors[0].rkey),
		  IBV_WC_SUCCESS);
	CHECK_INT(peer_access(&two, IBV_WR_RDMA_READ, 1, first.descriptors[0].remote_addr,
			      first.descriptors[0].rkey),
		  IBV_WC_REM_ACCESS_ERR);
	CHECK_INT(peer_access(&one, IBV_WR_RDMA_READ, 1, first.descriptors[0].remote_addr,
			      first.descriptors[0].rkey),
		  IBV_WC_SUCCESS);
}

/* Offers. */

/* Return: how the daemon takes it; the connection is closed again. */
static int try_offer(struct peer *peer, const struct message_lane_offer *offer)
{
	struct peer_lane lane = {0};
	int r = peer_connect(peer, offer, &lane);

	peer_lane_close(&lane);
	return r;
}

TEST(lane__offers_are_good_once_and_for_their_session)
{
	HARNESS(h, .extra = "\"lane_offer\": \"400ms\"");
	PEER(alpha, "alpha");
	PEER(beta, "beta");
	struct message_lane_offer offer, changed;

	CHECK_INT(peer_offer(&alpha, &offer), 0);
	changed = offer;
	changed.lane += 7;
	CHECK_INT(try_offer(&alpha, &changed), ERROR_LANE_OFFER);
	CHECK_INT(try_offer(&beta, &offer), ERROR_LANE_OFFER);
	/* None of these has used it up. */
	CHECK_INT(try_offer(&alpha, &offer), 0);
	CHECK_INT(try_offer(&alpha, &offer), ERROR_LANE_OFFER);
	CHECK_INT(peer_offer(&alpha, &offer), 0);
	harness_sleep_ms(600);
	CHECK_INT(try_offer(&alpha, &offer), ERROR_LANE_OFFER);
	CHECK(harness_wait_number(&h, "lanes", 0, 10000));
	CHECK_INT(harness_number(&h, "sessions"), 2);
}

TEST(lane__must_be_confirmed_by_its_own_qp)
{
	HARNESS(h, .pool_size = NULL);
	PEER(alpha, "alpha");
	__attribute__((cleanup(peer_lane_close))) struct peer_lane lane = {0};
	struct message_lane_offer offer;
	struct message_grant grant;
	struct message m = {.type = MESSAGE_LANE_CONFIRM};

	CHECK_INT(peer_offer(&alpha, &offer), 0);
	CHECK_INT(peer_connect(&alpha, &offer, &lane), 0);
	CHECK_INT(peer_acquire(&alpha, &lane, PAGE, TTL_MS, 0, &grant), ERROR_LANE_STATE);
	m.u.lane_confirm = (struct message_lane_confirm){
		.lane = lane.number,
		.daemon_qpn = 1,
		.client_qpn = lane.raw.id->qp->qp_num,
	};
	CHECK_INT(peer_call(&alpha, &m, &m), ERROR_LANE_OFFER);
	CHECK_INT(peer_confirm(&alpha, &lane), ERROR_LANE_STATE);
	CHECK(harness_wait_number(&h, "lanes", 0, 10000));
	CHECK_INT(harness_number(&h, "sessions"), 1);
}

TEST(lane__of_another_session)
{
	HARNESS(h, .pool_size = NULL);
	PEER(alpha, "alpha");
	PEER(beta, "beta");
	struct peer_lane foreign = {0};
	struct message_grant grant;
	PEER_LANE(lane, &alpha);
	PEER_LANE(second, &alpha);

	foreign.number = second.number;
	CHECK_INT(peer_acquire(&beta, &foreign, PAGE, TTL_MS, 0, &grant), ERROR_LANE_STATE);
	CHECK_INT(peer_acquire(&alpha, &lane, PAGE, TTL_MS, 0, &grant), 0);
	CHECK_INT(peer_attach(&beta, &foreign, grant.lease_id, &grant), ERROR_NO_LEASE);
	foreign.number = 1000;
	CHECK_INT(peer_attach(&alpha, &foreign, grant.lease_id, &grant), ERROR_LANE_STATE);
	CHECK_INT(peer_acquire(&alpha, &second, PAGE, TTL_MS, 0, &grant), 0);
}
