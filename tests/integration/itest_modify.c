/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Leases that are changed while they live: which keys work before and after, what becomes of
 * the bytes, and what is refused without touching anything.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "common/clock.h"
#include "proto/error.h"
#include "tests/integration/accounts.h"
#include "tests/integration/harness.h"
#include "tests/integration/peer.h"

#define PAGE	     4096
#define TTL_MS	     600000
#define R	     MESSAGE_RIGHT_READ
#define RW	     (MESSAGE_RIGHT_READ | MESSAGE_RIGHT_WRITE)
#define WINDOW_MAX   "\"window_max\": \"64KiB\""
#define WINDOW_BYTES (64u * 1024)

static struct message modify_message(uint64_t lease_id, uint64_t len_bytes, uint32_t rights)
{
	return (struct message){
		.type = MESSAGE_MODIFY,
		.u.modify = {.lease_id = lease_id, .len_bytes = len_bytes, .rights = rights},
	};
}

/* With the acknowledgement, if the daemon asks for one. Return: as peer_call() */
static int modify(struct peer *peer, uint64_t lease_id, uint64_t len_bytes, uint32_t rights,
		  struct message_grant *ret_grant)
{
	struct message m = modify_message(lease_id, len_bytes, rights);
	uint64_t request_id;
	struct message notice;
	int r = peer_send(peer, &m);

	request_id = m.request_id;
	for (int i = 0; i < 100 && r == 0; i++) {
		if (peer_take(peer, MESSAGE_QUIESCE, 0, 0, &notice) == 1)
			(void)peer_say(peer, MESSAGE_QUIESCED, notice.u.lease.lease_id);
		r = peer_take(peer, 0, request_id, 100, &m);
	}
	if (r != 1)
		return r == 0 ? -ETIMEDOUT : r;
	if (m.type == MESSAGE_ERROR)
		return (int)m.u.error.code;
	*ret_grant = m.u.grant;
	return 0;
}

static int access_at(struct peer_lane *lane, enum ibv_wr_opcode opcode,
		     const struct message_grant *grant, uint64_t offset_bytes, uint32_t len_bytes)
{
	const struct message_descriptor *at = &grant->descriptors[0];

	while (offset_bytes >= at->offset_bytes + at->len_bytes)
		at++;
	return peer_access(lane, opcode, len_bytes,
			   at->remote_addr + offset_bytes - at->offset_bytes, at->rkey);
}

/* A key that must not work; each try costs its lane. */
static void check_dead(struct peer *peer, struct peer_lane *lane, enum ibv_wr_opcode opcode,
		       const struct message_grant *grant, uint64_t offset_bytes)
{
	CHECK_INT(access_at(lane, opcode, grant, offset_bytes, 1), IBV_WC_REM_ACCESS_ERR);
	peer_lane_close(lane);
	CHECK_INT(peer_lane_open(peer, lane), 0);
}

static bool all_are(const uint8_t *bytes, uint8_t value, uint32_t len_bytes)
{
	for (uint32_t i = 0; i < len_bytes; i++) {
		if (bytes[i] != value)
			return false;
	}
	return true;
}

TEST(modify__rights)
{
	HARNESS(h, .extra = "\"lane_wait_min\": \"0\"");
	PEER(alpha, "alpha");
	PEER_LANE(lane, &alpha);
	struct message_grant before, less, more;

	CHECK_INT(peer_acquire(&alpha, &lane, PAGE, TTL_MS, 0, &before), 0);
	memset(peer_buffer(&lane), 0x66, PAGE);
	CHECK_INT(access_at(&lane, IBV_WR_RDMA_WRITE, &before, 0, PAGE), IBV_WC_SUCCESS);
	CHECK_INT(modify(&alpha, before.lease_id, PAGE, R, &less), 0);
	CHECK_INT(less.rights, R);
	CHECK(less.generation > before.generation);
	CHECK(less.descriptors[0].rkey != before.descriptors[0].rkey);
	CHECK_INT(access_at(&lane, IBV_WR_RDMA_READ, &less, 0, PAGE), IBV_WC_SUCCESS);
	CHECK(all_are(peer_buffer(&lane), 0x66, PAGE));
	check_dead(&alpha, &lane, IBV_WR_RDMA_WRITE, &less, 0);
	CHECK(!test_has_failed());
	CHECK_INT(peer_attach(&alpha, &lane, before.lease_id, &less), 0);
	CHECK_INT(less.rights, R);
	CHECK_INT(modify(&alpha, before.lease_id, PAGE, RW, &more), 0);
	CHECK_INT(access_at(&lane, IBV_WR_RDMA_WRITE, &more, 0, 1), IBV_WC_SUCCESS);
	check_dead(&alpha, &lane, IBV_WR_RDMA_READ, &less, 0);
	CHECK(!test_has_failed());
	peer_lane_close(&lane);
	peer_close(&alpha);
	accounts_check(&h);
	CHECK(!test_has_failed());
	CHECK_INT(harness_stop(&h), 0);
}

/* What is cut off is refused to the old key and the new one, and zero for its next owner. */
static void shrink(uint64_t from_bytes, uint64_t to_bytes)
{
	HARNESS(h, .pool_size = "1MiB", .extra = "\"lane_wait_min\": \"0\", " WINDOW_MAX);
	PEER(alpha, "alpha");
	PEER(beta, "beta");
	PEER_LANE(lane, &alpha);
	PEER_LANE(other, &beta);
	uint64_t kept_bytes = (to_bytes + PAGE - 1) / PAGE * PAGE;
	uint64_t cut_bytes = (from_bytes + PAGE - 1) / PAGE * PAGE - kept_bytes;
	struct message_grant before, after, next;
	struct message_descriptor last;

	CHECK_INT(peer_acquire(&alpha, &lane, from_bytes, TTL_MS, 0, &before), 0);
	memset(peer_buffer(&lane), 0x77, PEER_BUFFER_BYTES);
	for (uint16_t i = 0; i < before.descriptor_count; i++)
		CHECK_INT(peer_access(&lane, IBV_WR_RDMA_WRITE,
				      (uint32_t)before.descriptors[i].len_bytes,
				      before.descriptors[i].remote_addr,
				      before.descriptors[i].rkey),
			  IBV_WC_SUCCESS);
	CHECK_INT(modify(&alpha, before.lease_id, to_bytes, RW, &after), 0);
	CHECK_INT(after.len_bytes, to_bytes);
	CHECK_INT(access_at(&lane, IBV_WR_RDMA_READ, &after, to_bytes - 1, 1), IBV_WC_SUCCESS);
	CHECK_INT(peer_buffer(&lane)[0], 0x77);
	CHECK(harness_wait_number(&h, "pool.leased_bytes", (int64_t)kept_bytes, 5000));
	CHECK(harness_wait_number(&h, "pool.dirty_bytes", 0, 5000));
	check_dead(&alpha, &lane, IBV_WR_RDMA_WRITE, &before, from_bytes - 1);
	CHECK(!test_has_failed());
	CHECK_INT(peer_attach(&alpha, &lane, before.lease_id, &after), 0);
	CHECK_INT(access_at(&lane, IBV_WR_RDMA_READ, &after, 0, 1), IBV_WC_SUCCESS);
	last = after.descriptors[after.descriptor_count - 1];
	if (!harness_is_unverified())
		CHECK_INT(peer_access(&lane, IBV_WR_RDMA_READ, 1, last.remote_addr + last.len_bytes,
				      last.rkey),
			  IBV_WC_REM_ACCESS_ERR);
	/* All that is free now, the cut pages among it. */
	if (cut_bytes > 0) {
		CHECK_INT(peer_acquire(&beta, &other, MIB - kept_bytes, TTL_MS, 0, &next), 0);
		for (uint16_t i = 0; i < next.descriptor_count; i++) {
			CHECK_INT(peer_access(&other, IBV_WR_RDMA_READ,
					      (uint32_t)next.descriptors[i].len_bytes,
					      next.descriptors[i].remote_addr,
					      next.descriptors[i].rkey),
				  IBV_WC_SUCCESS);
			CHECK(all_are(peer_buffer(&other), 0,
				      (uint32_t)next.descriptors[i].len_bytes));
		}
	}
}

TEST(modify__shrink_by_a_byte)
{
	shrink(2 * PAGE + 1, 2 * PAGE);
}

TEST(modify__shrink_within_a_page)
{
	shrink(PAGE, 1);
}

TEST(modify__shrink_by_windows)
{
	shrink(4 * WINDOW_BYTES, WINDOW_BYTES + 1);
}

/* The keys so far stay good; what is added is zero and has a key of its own. */
TEST(modify__grow)
{
	HARNESS(h, .extra = "\"lane_wait_min\": \"0\"");
	PEER(alpha, "alpha");
	PEER_LANE(lane, &alpha);
	struct message_grant before, after;

	CHECK_INT(peer_acquire(&alpha, &lane, PAGE, TTL_MS, 0, &before), 0);
	memset(peer_buffer(&lane), 0x12, PAGE);
	CHECK_INT(access_at(&lane, IBV_WR_RDMA_WRITE, &before, 0, PAGE), IBV_WC_SUCCESS);
	CHECK_INT(modify(&alpha, before.lease_id, 2 * PAGE + 1, RW, &after), 0);
	CHECK_INT(after.len_bytes, 2 * PAGE + 1);
	CHECK_INT(after.descriptor_count, 2);
	CHECK_INT(after.descriptors[0].rkey, before.descriptors[0].rkey);
	CHECK_INT(access_at(&lane, IBV_WR_RDMA_READ, &before, 0, PAGE), IBV_WC_SUCCESS);
	CHECK(all_are(peer_buffer(&lane), 0x12, PAGE));
	CHECK_INT(access_at(&lane, IBV_WR_RDMA_READ, &after, PAGE, PAGE + 1), IBV_WC_SUCCESS);
	CHECK(all_are(peer_buffer(&lane), 0, PAGE + 1));
	CHECK_INT(access_at(&lane, IBV_WR_RDMA_WRITE, &after, 2 * PAGE, 1), IBV_WC_SUCCESS);
	/* On the next lane it is one piece. */
	peer_lane_close(&lane);
	CHECK_INT(peer_lane_open(&alpha, &lane), 0);
	CHECK_INT(peer_attach(&alpha, &lane, before.lease_id, &after), 0);
	CHECK_INT(after.len_bytes, 2 * PAGE + 1);
	CHECK_INT(access_at(&lane, IBV_WR_RDMA_READ, &after, 0, PAGE), IBV_WC_SUCCESS);
	CHECK(all_are(peer_buffer(&lane), 0x12, PAGE));
	CHECK_INT(peer_release(&alpha, before.lease_id), 0);
}

TEST(modify__grow_into_a_neighbour_is_refused)
{
	HARNESS(h, .pool_size = "1MiB", .extra = "\"lane_wait_min\": \"0\"");
	PEER(alpha, "alpha");
	PEER_LANE(lane, &alpha);
	struct message_grant before, after, neighbour;

	CHECK_INT(peer_acquire(&alpha, &lane, PAGE, TTL_MS, 0, &before), 0);
	CHECK_INT(peer_acquire(&alpha, &lane, PAGE, TTL_MS, 0, &neighbour), 0);
	CHECK_INT(modify(&alpha, before.lease_id, PAGE + 1, RW, &after), ERROR_LENGTH_EXTENT);
	CHECK_INT(modify(&alpha, before.lease_id, PAGE + 1, R, &after), ERROR_LENGTH_EXTENT);
	CHECK_INT(access_at(&lane, IBV_WR_RDMA_WRITE, &before, PAGE - 1, 1), IBV_WC_SUCCESS);
	/* The last one may have all that is behind it, and not a byte more. */
	CHECK_INT(modify(&alpha, neighbour.lease_id, MIB - PAGE + 1, RW, &after),
		  ERROR_LENGTH_EXTENT);
	CHECK_INT(modify(&alpha, neighbour.lease_id, MIB - PAGE, RW, &after), 0);
	CHECK_INT(access_at(&lane, IBV_WR_RDMA_WRITE, &after, MIB - PAGE - 1, 1), IBV_WC_SUCCESS);
	CHECK_INT(access_at(&lane, IBV_WR_RDMA_WRITE, &before, 0, 1), IBV_WC_SUCCESS);
	CHECK_INT(harness_number(&h, "pool.free_bytes"), 0);
}

/*
 * On two lanes, with windows or registrations that run out at some point: both have the keys
 * that they had, the bytes go back, and the next try succeeds.
 */
static void grow_fails(const char *fault, int code, bool *ret_struck)
{
	HARNESS(h, .program = "mempoold-seam", .seam = fault, .extra = WINDOW_MAX);
	PEER(alpha, "alpha");
	PEER_LANE(lane, &alpha);
	PEER_LANE(other, &alpha);
	struct message_grant mine, others, after;
	int r;

	CHECK_INT(peer_acquire(&alpha, &lane, PAGE, TTL_MS, 0, &mine), 0);
	CHECK_INT(peer_attach(&alpha, &other, mine.lease_id, &others), 0);
	memset(peer_buffer(&lane), 0x3c, PAGE);
	r = access_at(&lane, IBV_WR_RDMA_WRITE, &mine, 0, PAGE);
	CHECK_INT(r, IBV_WC_SUCCESS);
	r = modify(&alpha, mine.lease_id, 12 * WINDOW_BYTES, RW, &after);
	*ret_struck = r != 0;
	if (r == 0)
		return;
	CHECK_INT(r, code);
	CHECK(harness_wait_number(&h, "pool.leased_bytes", PAGE, 5000));
	CHECK(harness_wait_number(&h, "pool.dirty_bytes", 0, 5000));
	CHECK_INT(access_at(&other, IBV_WR_RDMA_READ, &others, 0, PAGE), IBV_WC_SUCCESS);
	CHECK(all_are(peer_buffer(&other), 0x3c, PAGE));
	CHECK_INT(access_at(&lane, IBV_WR_RDMA_READ, &mine, PAGE - 1, 1), IBV_WC_SUCCESS);
	CHECK_INT(modify(&alpha, mine.lease_id, PAGE, RW, &after), 0);
	CHECK_INT((long long)after.generation, (long long)others.generation);
	CHECK_INT(after.descriptor_count, 1);
	CHECK_INT(harness_number(&h, "counters.lanes_lost"), 0);
	CHECK_INT(modify(&alpha, mine.lease_id, 2 * PAGE, RW, &after), 0);
	CHECK_INT(access_at(&lane, IBV_WR_RDMA_READ, &mine, 0, 1), IBV_WC_SUCCESS);
	peer_lane_close(&lane);
	peer_lane_close(&other);
	peer_close(&alpha);
	accounts_check(&h);
	CHECK(!test_has_failed());
	CHECK_INT(harness_stop(&h), 0);
}

/* The acquire and the attach have taken 2 registrations; 24 more are wanted. */
TEST(modify__grow_without_registrations)
{
	static const char *const faults[] = {"fail-reg:1@2", "fail-reg:1@9", "fail-reg:1@25",
					     "fail-reg:24@2"};

	bool struck = false;

	for (size_t i = 0; i < sizeof(faults) / sizeof(faults[0]); i++) {
		grow_fails(faults[i], ERROR_NO_MEMORY, &struck);
		CHECK(!test_has_failed());
		if (!struck)
			SKIP("there are no guards in this mode");
	}
	grow_fails("fail-reg:1@26", ERROR_NO_MEMORY, &struck);
	CHECK(!struck);
}

/* Each lane begins with 8 windows, and has 7 left. */
TEST(modify__grow_without_windows)
{
	bool struck;

	grow_fails("fail-alloc:1@16", ERROR_WINDOWS_MAX, &struck);
	CHECK(!test_has_failed() && struck);
	grow_fails("fail-alloc:1@24", ERROR_WINDOWS_MAX, &struck);
	CHECK(!test_has_failed() && struck);
}

/* Nobody says that he is quiet: busy, and the lease is as it was. */
TEST(modify__without_acknowledgement)
{
	HARNESS(h, .extra = "\"quiesce_timeout\": \"300ms\"");
	PEER(alpha, "alpha");
	PEER_LANE(lane, &alpha);
	struct message_grant grant, again;
	struct message m;
	uint64_t begun_ns;
	uint64_t took_ms;

	CHECK_INT(peer_acquire(&alpha, &lane, PAGE, TTL_MS, 0, &grant), 0);
	begun_ns = clock_now_ns();
	m = modify_message(grant.lease_id, PAGE, R);
	CHECK_INT(peer_call(&alpha, &m, &m), ERROR_BUSY);
	took_ms = harness_since_ms(begun_ns);
	printf("# busy after %llu ms\n", (unsigned long long)took_ms);
	CHECK(took_ms >= 300 && took_ms < 1500);
	CHECK_INT(peer_take(&alpha, MESSAGE_QUIESCE, 0, 0, &m), 1);
	CHECK_INT(access_at(&lane, IBV_WR_RDMA_WRITE, &grant, 0, 1), IBV_WC_SUCCESS);
	/* Too late, and for a lease that is not asked about. */
	CHECK_INT(peer_say(&alpha, MESSAGE_QUIESCED, grant.lease_id), 0);
	CHECK_INT(peer_say(&alpha, MESSAGE_QUIESCED, 12345), 0);
	CHECK_INT(peer_renew(&alpha, grant.lease_id, TTL_MS), 0);
	CHECK_INT(access_at(&lane, IBV_WR_RDMA_WRITE, &grant, 0, 1), IBV_WC_SUCCESS);
	CHECK_INT(modify(&alpha, grant.lease_id, PAGE, RW, &again), 0);
	CHECK_INT(again.generation, grant.generation);
	CHECK_INT(again.descriptors[0].rkey, grant.descriptors[0].rkey);
}

TEST(modify__one_at_a_time)
{
	HARNESS(h, .extra = "\"quiesce_timeout\": \"10s\"");
	PEER(alpha, "alpha");
	PEER_LANE(lane, &alpha);
	PEER_LANE(other, &alpha);
	struct message_grant grant;
	struct message m, first;

	CHECK_INT(peer_acquire(&alpha, &lane, PAGE, TTL_MS, 0, &grant), 0);
	first = modify_message(grant.lease_id, PAGE, R);
	CHECK_INT(peer_send(&alpha, &first), 0);
	CHECK_INT(peer_take(&alpha, MESSAGE_QUIESCE, 0, 5000, &m), 1);
	m = modify_message(grant.lease_id, 2 * PAGE, RW);
	CHECK_INT(peer_call(&alpha, &m, &m), ERROR_BUSY);
	CHECK_INT(peer_attach(&alpha, &other, grant.lease_id, &grant), ERROR_BUSY);
	/* It can be renewed, and it can end. */
	CHECK_INT(peer_renew(&alpha, grant.lease_id, TTL_MS), 0);
	CHECK_INT(peer_release(&alpha, grant.lease_id), 0);
	CHECK_INT(peer_take(&alpha, MESSAGE_ERROR, first.request_id, 5000, &m), 1);
	CHECK_INT(m.u.error.code, ERROR_RELEASED);
}

TEST(modify__each_refusal_has_its_code)
{
	HARNESS(h, .pool_size = "8MiB", .extra = WINDOW_MAX);
	PEER(alpha, "alpha");
	PEER(beta, "beta");
	PEER_LANE(lane, &alpha);
	struct message_grant grant, after;
	static const struct {
		uint64_t len_bytes;
		uint32_t rights;
		int code;
	} cases[] = {
		{0, RW, ERROR_LENGTH_ZERO},
		{8 * MIB + 1, RW, ERROR_LENGTH_POOL},
		{UINT64_MAX, RW, ERROR_LENGTH_POOL},
		{PAGE, 0, ERROR_RIGHTS},
		{PAGE, 8, ERROR_RIGHTS},
		{64 * WINDOW_BYTES + 1, RW, ERROR_WINDOWS_MAX},
		{63 * WINDOW_BYTES + PAGE + 1, RW, ERROR_WINDOWS_MAX},
	};

	CHECK_INT(peer_acquire(&alpha, &lane, PAGE, TTL_MS, 0, &grant), 0);
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
		CHECK_INT(
			modify(&alpha, grant.lease_id, cases[i].len_bytes, cases[i].rights, &after),
			cases[i].code);
	CHECK_INT(modify(&beta, grant.lease_id, PAGE, R, &after), ERROR_NO_LEASE);
	CHECK_INT(modify(&alpha, grant.lease_id + 1, PAGE, R, &after), ERROR_NO_LEASE);
	CHECK_INT(access_at(&lane, IBV_WR_RDMA_WRITE, &grant, PAGE - 1, 1), IBV_WC_SUCCESS);
	/* One page in a window of its own, and 63 more. */
	CHECK_INT(modify(&alpha, grant.lease_id, 63 * WINDOW_BYTES + PAGE, RW, &after), 0);
	CHECK_INT(after.descriptor_count, 64);
	CHECK_INT(access_at(&lane, IBV_WR_RDMA_WRITE, &after, 63 * WINDOW_BYTES + PAGE - 1, 1),
		  IBV_WC_SUCCESS);
	/* Bound anew it needs as many as its length asks for, so it may be longer. */
	CHECK_INT(modify(&alpha, grant.lease_id, 64 * WINDOW_BYTES, R, &after), 0);
	CHECK_INT(after.descriptor_count, 64);
	CHECK_INT(access_at(&lane, IBV_WR_RDMA_READ, &after, 64 * WINDOW_BYTES - 1, 1),
		  IBV_WC_SUCCESS);
}

/* Through the library, with transfers of other threads held up meanwhile. */
TEST(modify__by_the_library)
{
	HARNESS(h, .pool_size = NULL);
	SESSION(alpha, "alpha");
	mempool_lease *lease;
	uint8_t sent[PAGE];
	uint8_t got[PAGE];

	harness_fill(sent, PAGE, 5);
	CHECK_INT(harness_acquire(alpha, PAGE, TTL_MS, &lease), 0);
	CHECK_INT(mempool_write(lease, 0, sent, PAGE), 0);
	CHECK_INT(mempool_modify(lease, PAGE, MEMPOOL_READ), 0);
	CHECK_INT(mempool_write(lease, 0, sent, PAGE), MEMPOOL_E_ACCESS);
	CHECK_INT(mempool_read(lease, 0, got, PAGE), 0);
	CHECK_MEM(got, sent, PAGE);
	CHECK_INT(mempool_modify(lease, 3 * PAGE, MEMPOOL_READ | MEMPOOL_WRITE), 0);
	CHECK_INT(mempool_write(lease, 2 * PAGE, sent, PAGE), 0);
	CHECK_INT(mempool_modify(lease, PAGE - 1, MEMPOOL_READ | MEMPOOL_WRITE), 0);
	CHECK_INT(mempool_read(lease, 0, got, PAGE), MEMPOOL_E_RANGE);
	CHECK_INT(mempool_read(lease, 0, got, PAGE - 1), 0);
	CHECK_MEM(got, sent, PAGE - 1);
	CHECK_INT(mempool_release(lease), 0);
}
