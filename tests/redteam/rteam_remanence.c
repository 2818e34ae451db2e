/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What a tenant has written is not there for the next one: leases of every size are filled,
 * with the pages' slack as far as the device lets us reach it, given back in every way, and
 * all of the pool is looked at by somebody else.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/pool.h"
#include "tests/integration/accounts.h"
#include "tests/integration/harness.h"
#include "tests/integration/order.h"
#include "tests/integration/proof.h"

#define TTL_MS	   600000
#define POOL_BYTES (16 * MIB)

enum end {
	END_RELEASE,
	END_REVOKE,
	END_SESSION,
	ENDS,
};

static const char *const end_names[ENDS] = {"release", "revoke", "session end"};

/* Bytes behind the lease in its last page: nobody's, but scrubbed with it. */
static void write_slack(mempool *pool, mempool_lease *lease, uint64_t *ret_reached)
{
	struct message_descriptor at = proof_descriptor(lease);

	/* Only where that is known to be let through: elsewhere it would cost the lane. */
	if (!harness_is_unverified() || at.len_bytes % 4096 == 0)
		return;
	memset(lane_slot(pool_lane(pool), 0), 0xcd, 1);
	*ret_reached += proof_access(pool_lane(pool), IBV_WR_RDMA_WRITE, 1,
				     at.remote_addr + at.len_bytes, at.rkey) == IBV_WC_SUCCESS;
}

static void fill(mempool_lease *lease, uint64_t len_bytes)
{
	uint8_t *bytes = malloc(len_bytes);
	int r;

	CHECK(bytes != NULL);
	harness_fill(bytes, len_bytes, (uint32_t)len_bytes);
	r = mempool_write(lease, 0, bytes, len_bytes);
	free(bytes);
	CHECK_INT(r, 0);
}

static void remain(struct harness *h, uint64_t len_bytes, enum end end, uint64_t *ret_reached)
{
	SESSION(alpha, "alpha");
	mempool_lease *lease;
	uint64_t nonzero = 1;
	uint64_t id;

	CHECK_INT(harness_acquire(alpha, len_bytes, TTL_MS, &lease), 0);
	id = harness_lease_id(lease);
	fill(lease, len_bytes);
	CHECK(!test_has_failed());
	write_slack(alpha, lease, ret_reached);
	if (end == END_RELEASE)
		CHECK_INT(mempool_release(lease), 0);
	else if (end == END_REVOKE)
		CHECK_INT(harness_revoke(h, id), 0);
	else
		harness_close(&alpha);
	CHECK(harness_wait_lease_gone(h, id, 10000));
	CHECK_INT(harness_count_nonzero(h, &nonzero), 0);
	CHECK_INT(nonzero, 0);
	harness_close(&alpha);
	CHECK(harness_wait_number(h, "pool.free_bytes", (int64_t)POOL_BYTES, 10000));
}

TEST(remanence__every_size)
{
	HARNESS(h, .pool_size = "16MiB", .extra = "\"revoke_grace\": \"0\"");
	uint64_t leases = 0;
	uint64_t reached = 0;

	for (uint64_t size = 1; size <= POOL_BYTES && !test_has_failed(); size *= 4) {
		enum end end = (enum end)(leases % ENDS);

		/* A size class, and a byte more, where there is room for it. */
		for (uint64_t len = size; len <= size + 1 && len <= POOL_BYTES; len++) {
			if (test_has_failed())
				break;
			remain(&h, len, end, &reached);
			leases++;
			if (test_has_failed())
				printf("# %" PRIu64 " bytes, %s\n", len, end_names[end]);
		}
	}
	CHECK(!test_has_failed());
	printf("# S8 remanence: %" PRIu64 " leases of 1 byte to the whole pool, 0 bytes left; "
	       "bytes behind a lease reached: %" PRIu64 "\n",
	       leases, reached);
	accounts_check(&h);
	CHECK(!test_has_failed());
	CHECK_INT(harness_stop(&h), 0);
}
