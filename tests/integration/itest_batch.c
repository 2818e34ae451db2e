/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Several leases in one message, the same message twice, and who gets memory first when it
 * is short.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "common/clock.h"
#include "proto/error.h"
#include "tests/integration/accounts.h"
#include "tests/integration/harness.h"
#include "tests/integration/peer.h"

#define PAGE   4096
#define TTL_MS 600000

struct batch {
	uint16_t count;
	struct message_grant grants[PROTO_ACQUIRE_LEASES];
};

static struct message acquire_message(const struct peer_lane *lane, uint64_t len_bytes,
				      uint16_t count, uint32_t wait_ms)
{
	return (struct message){
		.type = MESSAGE_ACQUIRE,
		.u.acquire =
			{
				.len_bytes = len_bytes,
				.ttl_ms = TTL_MS,
				.rights = MESSAGE_RIGHT_READ | MESSAGE_RIGHT_WRITE,
				.lane = lane->number,
				.wait_ms = wait_ms,
				.count = count,
			},
	};
}

/* Return: as peer_call() */
static int collect(struct peer *peer, uint64_t request_id, struct batch *ret_batch)
{
	struct message m;
	int r;

	ret_batch->count = 0;
	do {
		r = peer_take(peer, 0, request_id, 20000, &m);
		if (r != 1)
			return r == 0 ? -ETIMEDOUT : r;
		if (m.type == MESSAGE_ERROR)
			return (int)m.u.error.code;
		if (m.type != MESSAGE_GRANT || ret_batch->count == PROTO_ACQUIRE_LEASES)
			return -EPROTO;
		ret_batch->grants[ret_batch->count++] = m.u.grant;
	} while ((m.flags & MESSAGE_FLAG_MORE) != 0);
	return 0;
}

static int acquire_many(struct peer *peer, const struct peer_lane *lane, uint64_t len_bytes,
			uint16_t count, struct batch *ret_batch)
{
	struct message m = acquire_message(lane, len_bytes, count, 0);
	int r = peer_send(peer, &m);

	return r < 0 ? r : collect(peer, m.request_id, ret_batch);
}

static void check_usable(struct peer_lane *lane, const struct batch *batch)
{
	for (uint16_t i = 0; i < batch->count; i++) {
		CHECK_INT(peer_access(lane, IBV_WR_RDMA_WRITE, 1,
				      batch->grants[i].descriptors[0].remote_addr,
				      batch->grants[i].descriptors[0].rkey),
			  IBV_WC_SUCCESS);
		for (uint16_t j = 0; j < i; j++)
			CHECK(batch->grants[j].lease_id != batch->grants[i].lease_id);
	}
}

TEST(batch__all_or_none)
{
	HARNESS(h, .pool_size = "1MiB", .extra = "\"lane_leases_max\": 64");
	PEER(alpha, "alpha");
	PEER_LANE(lane, &alpha);
	static struct batch batch;
	const uint64_t part_bytes = MIB / 16;

	CHECK_INT(acquire_many(&alpha, &lane, part_bytes, 17, &batch), ERROR_LENGTH_EXTENT);
	CHECK(harness_wait_number(&h, "leases.ending", 0, 10000));
	CHECK_INT(harness_number(&h, "leases.active"), 0);
	CHECK(harness_wait_number(&h, "pool.free_bytes", (int64_t)MIB, 5000));
	CHECK_INT(acquire_many(&alpha, &lane, part_bytes, 16, &batch), 0);
	CHECK_INT(batch.count, 16);
	check_usable(&lane, &batch);
	CHECK(!test_has_failed());
	CHECK_INT(acquire_many(&alpha, &lane, 1, 49, &batch), ERROR_LANE_LEASES_MAX);
	CHECK_INT(acquire_many(&alpha, &lane, 1, 48, &batch), ERROR_LENGTH_EXTENT);
	CHECK_INT(harness_number(&h, "leases.active"), 16);
	peer_lane_close(&lane);
	peer_close(&alpha);
	accounts_check(&h);
	CHECK(!test_has_failed());
	CHECK_INT(harness_stop(&h), 0);
}

TEST(batch__as_many_as_one_message_may_ask_for)
{
	HARNESS(h, .pool_size = NULL);
	PEER(alpha, "alpha");
	PEER_LANE(lane, &alpha);
	static struct batch batch;

	CHECK_INT(acquire_many(&alpha, &lane, PAGE + 1, PROTO_ACQUIRE_LEASES, &batch), 0);
	CHECK_INT(batch.count, PROTO_ACQUIRE_LEASES);
	check_usable(&lane, &batch);
}

/* Each lease of a release has a code of its own, in the order in which they were named. */
TEST(batch__release_with_mixed_codes)
{
	HARNESS(h, .pool_size = NULL);
	PEER(alpha, "alpha");
	PEER(beta, "beta");
	PEER_LANE(lane, &alpha);
	PEER_LANE(other, &beta);
	static struct batch batch;
	struct message_grant foreign, expired;
	struct message m = {.type = MESSAGE_RELEASE, .u.leases.count = 7};
	struct message notice;
	uint64_t *ids = m.u.leases.lease_ids;
	static const uint32_t codes[7] = {
		0, ERROR_NO_LEASE, ERROR_EXPIRED, 0, ERROR_RELEASED, ERROR_NO_LEASE, 0};

	CHECK_INT(acquire_many(&alpha, &lane, PAGE, 4, &batch), 0);
	CHECK_INT(peer_acquire(&alpha, &lane, PAGE, 30, 0, &expired), 0);
	CHECK_INT(peer_take(&alpha, MESSAGE_LEASES_ENDED, 0, 5000, &notice), 1);
	CHECK_INT(peer_acquire(&beta, &other, PAGE, TTL_MS, 0, &foreign), 0);
	ids[0] = batch.grants[0].lease_id;
	ids[1] = foreign.lease_id;
	ids[2] = expired.lease_id;
	ids[3] = batch.grants[2].lease_id;
	ids[4] = batch.grants[0].lease_id;
	ids[5] = 99;
	ids[6] = batch.grants[3].lease_id;
	CHECK_INT(peer_call(&alpha, &m, &m), 0);
	CHECK_INT(m.type, MESSAGE_RELEASED);
	CHECK_INT(m.u.released.count, 7);
	for (int i = 0; i < 7; i++)
		CHECK_INT(m.u.released.released[i].code, codes[i]);
	CHECK_INT(harness_number(&h, "leases.active"), 2);
	CHECK_INT(peer_access(&lane, IBV_WR_RDMA_READ, 1,
			      batch.grants[1].descriptors[0].remote_addr,
			      batch.grants[1].descriptors[0].rkey),
		  IBV_WC_SUCCESS);
	CHECK_INT(peer_access(&other, IBV_WR_RDMA_READ, 1, foreign.descriptors[0].remote_addr,
			      foreign.descriptors[0].rkey),
		  IBV_WC_SUCCESS);
	CHECK_INT(peer_access(&lane, IBV_WR_RDMA_READ, 1,
			      batch.grants[3].descriptors[0].remote_addr,
			      batch.grants[3].descriptors[0].rkey),
		  IBV_WC_REM_ACCESS_ERR);
}

/* The same request again. */

static bool same_ids(const struct batch *a, const struct batch *b)
{
	for (uint16_t i = 0; i < a->count; i++) {
		bool found = false;

		for (uint16_t j = 0; j < b->count; j++)
			found |= a->grants[i].lease_id == b->grants[j].lease_id &&
				 a->grants[i].descriptors[0].rkey ==
					 b->grants[j].descriptors[0].rkey;
		if (!found)
			return false;
	}
	return a->count == b->count;
}

TEST(batch__repeated_request)
{
	HARNESS(h, .pool_size = NULL);
	PEER(alpha, "alpha");
	PEER_LANE(lane, &alpha);
	static struct batch first, second;
	struct message m = acquire_message(&lane, PAGE, 3, 0);
	uint64_t request_id;

	CHECK_INT(peer_send(&alpha, &m), 0);
	request_id = m.request_id;
	CHECK_INT(collect(&alpha, request_id, &first), 0);
	CHECK_INT(peer_send(&alpha, &m), 0);
	CHECK_INT(collect(&alpha, request_id, &second), 0);
	CHECK(same_ids(&first, &second));
	CHECK_INT(harness_number(&h, "leases.active"), 3);
	/* Twice while the daemon still works on it: one answer. */
	m = acquire_message(&lane, 64 * PAGE, 2, 0);
	CHECK_INT(peer_send(&alpha, &m), 0);
	CHECK_INT(peer_send(&alpha, &m), 0);
	CHECK_INT(collect(&alpha, m.request_id, &second), 0);
	CHECK_INT(harness_number(&h, "leases.active"), 5);
	/* Something else under the same id. */
	m = acquire_message(&lane, PAGE, 2, 0);
	m.request_id = request_id;
	CHECK_INT(peer_call(&alpha, &m, &m), ERROR_INVALID);
	m = acquire_message(&lane, PAGE + 1, 3, 0);
	m.request_id = request_id;
	CHECK_INT(peer_call(&alpha, &m, &m), ERROR_INVALID);
	CHECK_INT(harness_number(&h, "leases.active"), 5);
	/* Of those that live only what lives. */
	CHECK_INT(peer_release(&alpha, first.grants[1].lease_id), 0);
	m = acquire_message(&lane, PAGE, 3, 0);
	m.request_id = request_id;
	CHECK_INT(peer_send(&alpha, &m), 0);
	CHECK_INT(collect(&alpha, request_id, &second), 0);
	CHECK_INT(second.count, 2);
}

TEST(batch__the_same_id_of_somebody_else)
{
	HARNESS(h, .pool_size = NULL);
	__attribute__((cleanup(peer_close))) struct peer alpha = {0};
	__attribute__((cleanup(peer_close))) struct peer twin = {0};
	__attribute__((cleanup(peer_close))) struct peer beta = {0};
	static const uint8_t instance[PROTO_INSTANCE_BYTES] = {1, 2, 3};
	struct message m;
	static struct batch of_alpha, of_beta;

	CHECK_INT(peer_open(&alpha, "alpha", instance), 0);
	CHECK_INT(peer_open(&twin, "alpha", instance), 0);
	CHECK_INT(peer_open(&beta, "beta", instance), 0);
	PEER_LANE(lane, &alpha);
	PEER_LANE(of_twin, &twin);
	PEER_LANE(other, &beta);
	m = acquire_message(&lane, PAGE, 1, 0);
	m.request_id = 5000;
	CHECK_INT(peer_send(&alpha, &m), 0);
	CHECK_INT(collect(&alpha, 5000, &of_alpha), 0);
	m = acquire_message(&other, 2 * PAGE, 1, 0);
	m.request_id = 5000;
	CHECK_INT(peer_send(&beta, &m), 0);
	CHECK_INT(collect(&beta, 5000, &of_beta), 0);
	CHECK(of_alpha.grants[0].lease_id != of_beta.grants[0].lease_id);
	/* Another session of the same run of the same client: the lease belongs to the first. */
	m = acquire_message(&of_twin, PAGE, 1, 0);
	m.request_id = 5000;
	CHECK_INT(peer_call(&twin, &m, &m), ERROR_BUSY);
	CHECK_INT(harness_number(&h, "leases.active"), 2);
}

/* Who waits for memory. */

struct waiter {
	struct peer *peer;
	uint64_t request_id;
	int answered; /* the how manieth */
	struct message_grant grant;
};

static void wait_begin(struct waiter *waiter, struct peer *peer, const struct peer_lane *lane,
		       uint64_t len_bytes, uint32_t wait_ms)
{
	struct message m = acquire_message(lane, len_bytes, 1, wait_ms);

	*waiter = (struct waiter){.peer = peer};
	CHECK_INT(peer_send(peer, &m), 0);
	waiter->request_id = m.request_id;
}

/* Note the order of the answers, and give back at once what is granted. */
static void wait_all(struct waiter *waiters, int count)
{
	uint64_t until_ns = clock_add_ms(clock_now_ns(), 30000);
	int answered = 0;
	struct message m;

	while (answered < count && clock_now_ns() < until_ns) {
		for (int i = 0; i < count; i++) {
			struct waiter *waiter = &waiters[i];

			if (waiter->answered != 0 ||
			    peer_take(waiter->peer, 0, waiter->request_id, 0, &m) != 1)
				continue;
			CHECK_INT(m.type, MESSAGE_GRANT);
			waiter->answered = ++answered;
			CHECK_INT(peer_release(waiter->peer, m.u.grant.lease_id), 0);
		}
	}
	CHECK_INT(answered, count);
}

/*
 * All bytes are dirty for as long as their scrubbing takes, which is longer than it takes to
 * ask; each waiter wants all of them, so one is served after the other.
 */
TEST(batch__waiting_is_in_order_and_fair)
{
	HARNESS(h, .pool_size = "64MiB");
	PEER(alpha, "alpha");
	PEER(beta, "beta");
	PEER_LANE(lane, &alpha);
	PEER_LANE(other, &beta);
	struct message_grant all;
	struct message m;
	struct waiter w[6];

	CHECK_INT(peer_acquire(&alpha, &lane, 64 * MIB, TTL_MS, 0, &all), 0);
	m = (struct message){
		.type = MESSAGE_RELEASE,
		.u.leases = {.count = 1, .lease_ids = {all.lease_id}},
	};
	CHECK_INT(peer_send(&alpha, &m), 0);
	CHECK_INT(peer_take(&alpha, MESSAGE_RELEASED, m.request_id, 10000, &m), 1);
	for (int i = 0; i < 4; i++)
		wait_begin(&w[i], &alpha, &lane, 64 * MIB, 60000);
	for (int i = 4; i < 6; i++)
		wait_begin(&w[i], &beta, &other, 64 * MIB, 60000);
	CHECK(!test_has_failed());
	wait_all(w, 6);
	printf("# alpha was served as number %d, %d, %d, %d, beta as %d, %d\n", w[0].answered,
	       w[1].answered, w[2].answered, w[3].answered, w[4].answered, w[5].answered);
	CHECK(!test_has_failed());
	for (int i = 1; i < 4; i++)
		CHECK(w[i - 1].answered < w[i].answered);
	CHECK(w[4].answered < w[5].answered);
	/* In turn: neither is served a second time while the other waits for the first. */
	CHECK(w[4].answered <= 2);
	CHECK(w[5].answered <= 4);
	CHECK(w[0].answered <= 2);
	CHECK(w[1].answered <= 4);
}

TEST(batch__waiting_has_an_end)
{
	HARNESS(h, .pool_size = "256MiB", .extra = "\"scrub_chunk\": \"64KiB\"");
	PEER(alpha, "alpha");
	PEER_LANE(lane, &alpha);
	struct message_grant all, grant;
	uint64_t begun_ns;
	int r;

	CHECK_INT(peer_acquire(&alpha, &lane, 256 * MIB, TTL_MS, 0, &all), 0);
	/* Leased bytes are not waited for. */
	CHECK_INT(peer_acquire(&alpha, &lane, PAGE, TTL_MS, 60000, &grant), ERROR_LENGTH_EXTENT);
	CHECK_INT(peer_release(&alpha, all.lease_id), 0);
	begun_ns = clock_now_ns();
	r = peer_acquire(&alpha, &lane, 256 * MIB, TTL_MS, 20, &grant);
	printf("# %s after %.1f ms\n", error_name(r), (double)(clock_now_ns() - begun_ns) / 1e6);
	CHECK_INT(r, ERROR_TIMEOUT);
	CHECK(clock_now_ns() - begun_ns >= 20 * CLOCK_NS_PER_MS);
	CHECK_INT(peer_acquire(&alpha, &lane, 256 * MIB, TTL_MS, 60000, &grant), 0);
}
