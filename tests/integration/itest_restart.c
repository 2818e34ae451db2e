/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The daemon's own end with many leases alive: killed and started again it serves at once, and
 * nothing of its former life works; told to stop it leaves nothing behind in the kernel.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/lane.h"
#include "client/lease.h"
#include "client/pool.h"
#include "common/clock.h"
#include "tests/integration/harness.h"
#include "tests/integration/proof.h"
#include "tests/integration/resources.h"

#define LEASES_MAX     50
#define LEASE_BYTES    8193
#define TTL_MS	       600000
#define SERVING_MAX_NS (5 * CLOCK_NS_PER_S)

static void lease_many(mempool *pool, uint32_t count, mempool_lease **ret_leases)
{
	uint8_t byte = 0x99;

	for (uint32_t i = 0; i < count; i++) {
		CHECK_INT(harness_acquire(pool, LEASE_BYTES, TTL_MS, &ret_leases[i]), 0);
		CHECK_INT(mempool_write(ret_leases[i], LEASE_BYTES - 1, &byte, 1), 0);
	}
}

/* The old key on a new lane that works: each refusal costs its lane. */
static void try_stale(struct message_descriptor old)
{
	SESSION(beta, "beta");
	struct message_descriptor own;
	mempool_lease *lease;
	uint8_t sentinel[8];

	CHECK_INT(harness_acquire(beta, 64, TTL_MS, &lease), 0);
	own = proof_descriptor(lease);
	CHECK_INT(proof_access(pool_lane(beta), IBV_WR_RDMA_READ, 8, own.remote_addr, own.rkey),
		  IBV_WC_SUCCESS);
	memset(lane_slot(pool_lane(beta), 0), 0x5a, 8);
	memset(sentinel, 0x5a, 8);
	CHECK_INT(proof_access(pool_lane(beta), IBV_WR_RDMA_READ, 8, old.remote_addr, old.rkey),
		  IBV_WC_REM_ACCESS_ERR);
	CHECK_MEM(lane_slot(pool_lane(beta), 0), sentinel, 8);
}

TEST(restart__killed_with_live_leases)
{
	HARNESS(h, .pool_size = "64MiB", .sessions_max = 256);
	SESSION(alpha, "alpha");
	uint32_t count = harness_figure(FIGURE_RESTART_LEASES);
	uint32_t stale = harness_figure(FIGURE_STALE_DESCRIPTORS);
	struct message_descriptor old[LEASES_MAX];
	mempool_lease *leases[LEASES_MAX];
	uint64_t killed_ns;
	uint8_t byte;

	lease_many(alpha, count, leases);
	CHECK(!test_has_failed());
	for (uint32_t i = 0; i < count; i++)
		old[i] = proof_descriptor(leases[i]);
	CHECK_INT(harness_number(&h, "leases.active"), count);
	killed_ns = clock_now_ns();
	harness_kill(&h);
	printf("# killed with %u leases, gone after %.0f ms\n", count,
	       (double)(clock_now_ns() - killed_ns) / 1e6);
	CHECK_INT(harness_restart(&h), 0);
	printf("# started again, answers after %.0f ms\n", (double)h.start_ns / 1e6);
	CHECK(h.start_ns <= SERVING_MAX_NS);
	CHECK_INT(harness_number(&h, "leases.active"), 0);
	CHECK_INT(mempool_read(leases[0], 0, &byte, 1), MEMPOOL_E_SESSION_LOST);
	for (uint32_t i = 0; i < stale && !test_has_failed(); i++)
		try_stale(old[i]);
	CHECK(!test_has_failed());
	harness_close(&alpha);
	CHECK_INT(harness_stop(&h), 0);
}

/* Neither the port nor the socket is in the way of the next one, however the last one went. */
TEST(field_50_restart__at_once_again_and_again)
{
	HARNESS(h, .pool_size = NULL);
	uint32_t rounds = harness_figure(FIGURE_RESTARTS);
	uint64_t longest_ns = 0;

	for (uint32_t i = 0; i < rounds; i++) {
		SESSION(alpha, "alpha");
		mempool_lease *lease;
		uint8_t byte = 1;

		CHECK_INT(harness_acquire(alpha, LEASE_BYTES, TTL_MS, &lease), 0);
		CHECK_INT(mempool_write(lease, 0, &byte, 1), 0);
		if (i % 2 == 0)
			harness_kill(&h);
		else
			CHECK_INT(harness_stop(&h), 0);
		CHECK_INT(harness_restart(&h), 0);
		longest_ns = h.start_ns > longest_ns ? h.start_ns : longest_ns;
	}
	printf("# started again %u times, answers within %.0f ms\n", rounds,
	       (double)longest_ns / 1e6);
	CHECK(longest_ns <= SERVING_MAX_NS);
	CHECK_INT(harness_stop(&h), 0);
}

static void stop_with_leases(const struct resources *before)
{
	HARNESS(h, .pool_size = "64MiB");
	SESSION(alpha, "alpha");
	uint32_t count = harness_figure(FIGURE_RESTART_LEASES);
	mempool_lease *leases[LEASES_MAX];
	struct resources after;
	uint64_t told_ns;
	uint8_t byte;
	int r;

	lease_many(alpha, count, leases);
	CHECK(!test_has_failed());
	CHECK_INT(harness_number(&h, "leases.active"), count);
	told_ns = clock_now_ns();
	CHECK_INT(harness_stop(&h), 0);
	printf("# stopped with %u leases in %.0f ms\n", count,
	       (double)(clock_now_ns() - told_ns) / 1e6);
	r = mempool_read(leases[0], 0, &byte, 1);
	CHECK(r == MEMPOOL_E_DRAINED || r == MEMPOOL_E_SESSION_LOST);
	harness_close(&alpha);
	if (before == NULL)
		return;
	CHECK(resources_read(&after));
	resources_print("before", before);
	resources_print("after", &after);
	CHECK(resources_equal(before, &after));
}

/* Once before, for what this process opens and keeps open. */
TEST(stop__with_live_leases)
{
	struct resources before;

	stop_with_leases(NULL);
	CHECK(!test_has_failed());
	if (!resources_read(&before))
		SKIP("there is no rdma tool");
	stop_with_leases(&before);
}
