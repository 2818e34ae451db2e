/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * How leases end: by their deadline, given back, taken back. Each end is proved on the device,
 * and the bytes of an ended lease are zero for whoever gets them next.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/lane.h"
#include "client/pool.h"
#include "common/clock.h"
#include "proto/error.h"
#include "tests/integration/harness.h"
#include "tests/integration/proof.h"

#define PAGE	    4096
#define TTL_LONG_MS 600000
#define LATE_MAX_NS (100 * CLOCK_NS_PER_MS)

/* Expiry, to the millisecond. */

struct expiry {
	mempool *pool;
	struct proof proof;
	uint64_t sent_ns;
	uint64_t granted_ns;
	uint64_t ttl_ns;
	uint64_t posted_ns;  /* the first access that was refused */
	uint64_t refused_ns; /* its completion */
	int status;	     /* of it; 0: not yet */
};

struct expiries {
	struct expiry *all;
	uint32_t count;
};

static void expiries_free(struct expiries *expiries)
{
	for (uint32_t i = 0; expiries->all != NULL && i < expiries->count; i++)
		mempool_close(expiries->all[i].pool);
	free(expiries->all);
}

/* The lease under test is acquired first, so that the proof's preparation is in its time. */
static void expiry_begin(struct expiry *expiry, uint64_t ttl_ms)
{
	mempool_lease *lease;

	expiry->ttl_ns = ttl_ms * CLOCK_NS_PER_MS;
	expiry->sent_ns = clock_now_ns();
	CHECK_INT(harness_acquire(expiry->pool, 64, ttl_ms, &lease), 0);
	expiry->granted_ns = clock_now_ns();
	CHECK(proof_begin(&expiry->proof, expiry->pool, lease, IBV_WR_RDMA_READ));
}

/* Touch those that are still open, again and again, until none is. */
static void expiries_watch(struct expiries *expiries)
{
	uint64_t until_ns = clock_add_ms(clock_now_ns(), 60000);
	uint32_t open = expiries->count;

	while (open > 0 && clock_now_ns() < until_ns) {
		for (uint32_t i = 0; i < expiries->count; i++) {
			struct expiry *expiry = &expiries->all[i];
			uint64_t now_ns = clock_now_ns();
			int status;

			if (expiry->refused_ns != 0)
				continue;
			status = proof_touch(&expiry->proof);
			if (status == IBV_WC_SUCCESS)
				continue;
			expiry->posted_ns = now_ns;
			expiry->refused_ns = clock_now_ns();
			expiry->status = status;
			open--;
		}
	}
}

/* How much later than the deadline, whose earliest possible moment is request + ttl. */
static void expiries_print(const struct expiries *expiries)
{
	uint64_t *late_ns = calloc(expiries->count, sizeof(*late_ns));

	if (late_ns == NULL)
		return;
	for (uint32_t i = 0; i < expiries->count; i++) {
		const struct expiry *expiry = &expiries->all[i];

		late_ns[i] = expiry->refused_ns - expiry->sent_ns - expiry->ttl_ns;
	}
	harness_sort(late_ns, expiries->count);
	printf("# %u expiries, seen refused after request + ttl: first %.1f ms, half %.1f ms, last "
	       "%.1f "
	       "ms\n",
	       expiries->count, (double)late_ns[0] / 1e6,
	       (double)late_ns[expiries->count / 2] / 1e6,
	       (double)late_ns[expiries->count - 1] / 1e6);
	free(late_ns);
}

static void expiry_check(const struct expiry *expiry)
{
	CHECK_INT(expiry->status, IBV_WC_REM_ACCESS_ERR);
	CHECK(expiry->refused_ns >= expiry->sent_ns + expiry->ttl_ns);
	CHECK(expiry->refused_ns <= expiry->granted_ns + expiry->ttl_ns + LATE_MAX_NS);
}

TEST(expiry__never_early_and_at_most_100_ms_late)
{
	HARNESS(h, .pool_size = NULL);
	__attribute__((cleanup(expiries_free))) struct expiries expiries = {
		.count = harness_figure(FIGURE_EXPIRY_LEASES),
	};

	expiries.all = calloc(expiries.count, sizeof(*expiries.all));
	CHECK(expiries.all != NULL);
	for (uint32_t i = 0; i < expiries.count; i++)
		CHECK_INT(harness_connect("alpha", &expiries.all[i].pool), 0);
	for (uint32_t i = 0; i < expiries.count && !test_has_failed(); i++)
		expiry_begin(&expiries.all[i], 4000 + i * 7);
	CHECK(!test_has_failed());
	expiries_watch(&expiries);
	expiries_print(&expiries);
	for (uint32_t i = 0; i < expiries.count && !test_has_failed(); i++)
		expiry_check(&expiries.all[i]);
	CHECK(!test_has_failed());
	expiries_free(&expiries);
	expiries.all = NULL;
	CHECK_INT(harness_stop(&h), 0);
}

/* The other ways. Each is tried with a read, at once, and with a write, behind the scrubbing. */

enum end {
	END_EXPIRY,
	END_RELEASE,
	END_REVOKE,
};

#define END_TTL_MS 1500

static void end_lease(struct harness *h, enum end end, mempool_lease *lease, uint64_t id)
{
	switch (end) {
	case END_EXPIRY:
		harness_sleep_ms(END_TTL_MS + 100);
		break;
	case END_RELEASE:
		CHECK_INT(mempool_release(lease), 0);
		break;
	case END_REVOKE:
		CHECK_INT(harness_revoke(h, id), 0);
		break;
	}
}

static void prove_end(enum end end, enum ibv_wr_opcode opcode)
{
	HARNESS(h, .pool_size = NULL);
	SESSION(alpha, "alpha");
	mempool_lease *lease;
	struct proof proof;
	enum proof_result result;
	uint64_t nonzero = 1;
	uint64_t id;
	uint8_t byte;

	CHECK_INT(
		harness_acquire(alpha, PAGE, end == END_EXPIRY ? END_TTL_MS : TTL_LONG_MS, &lease),
		0);
	id = harness_lease_id(lease);
	CHECK(proof_begin(&proof, alpha, lease, opcode));
	end_lease(&h, end, lease, id);
	CHECK(!test_has_failed());
	if (opcode == IBV_WR_RDMA_WRITE)
		CHECK(harness_wait_lease_gone(&h, id, 5000));
	result = proof_end(&proof);
	CHECK_STR(proof_result_name(result), proof_result_name(PROOF_REFUSED));
	if (end == END_EXPIRY)
		CHECK_INT(mempool_read(lease, 0, &byte, 1), MEMPOOL_E_EXPIRED);
	if (end == END_REVOKE)
		CHECK_INT(mempool_read(lease, 0, &byte, 1), MEMPOOL_E_REVOKED);
	harness_close(&alpha);
	CHECK_INT(harness_count_nonzero(&h, &nonzero), 0);
	CHECK_INT(nonzero, 0);
	CHECK_INT(harness_stop(&h), 0);
}

TEST(expiry__reads_are_refused)
{
	prove_end(END_EXPIRY, IBV_WR_RDMA_READ);
}

TEST(expiry__writes_are_refused)
{
	prove_end(END_EXPIRY, IBV_WR_RDMA_WRITE);
}

TEST(release__reads_are_refused)
{
	prove_end(END_RELEASE, IBV_WR_RDMA_READ);
}

TEST(release__writes_are_refused)
{
	prove_end(END_RELEASE, IBV_WR_RDMA_WRITE);
}

TEST(revoke__reads_are_refused)
{
	prove_end(END_REVOKE, IBV_WR_RDMA_READ);
}

TEST(revoke__writes_are_refused)
{
	prove_end(END_REVOKE, IBV_WR_RDMA_WRITE);
}

TEST(revoke__once_and_only_what_there_is)
{
	HARNESS(h, .pool_size = NULL);
	SESSION(alpha, "alpha");
	mempool_lease *lease;
	uint64_t id;
	int code;

	CHECK_INT(harness_acquire(alpha, 16 * MIB, TTL_LONG_MS, &lease), 0);
	id = harness_lease_id(lease);
	CHECK_INT(harness_revoke(&h, id + 1), ERROR_NO_LEASE);
	CHECK_INT(harness_revoke(&h, id), 0);
	code = harness_revoke(&h, id);
	CHECK(code == ERROR_REVOKED || code == ERROR_NO_LEASE); /* its bytes may be zeroed yet */
	CHECK_INT(harness_number(&h, "revocation.count"), 1);
}

/* Renewal moves the deadline and nothing else. */
static void prove_renewal(uint64_t ttl_ms, uint64_t renew_after_ms, uint64_t renew_ms)
{
	HARNESS(h, .pool_size = NULL);
	SESSION(alpha, "alpha");
	struct expiry expiry = {.pool = alpha, .ttl_ns = renew_ms * CLOCK_NS_PER_MS};
	struct expiries one = {.all = &expiry, .count = 1};
	struct message_descriptor before;
	mempool_lease *lease;

	CHECK_INT(harness_acquire(alpha, PAGE, ttl_ms, &lease), 0);
	before = proof_descriptor(lease);
	CHECK(proof_begin(&expiry.proof, alpha, lease, IBV_WR_RDMA_READ));
	harness_sleep_ms(renew_after_ms);
	expiry.sent_ns = clock_now_ns();
	CHECK_INT(mempool_renew(lease, renew_ms), 0);
	expiry.granted_ns = clock_now_ns();
	CHECK_INT(proof_descriptor(lease).rkey, before.rkey);
	expiries_watch(&one);
	expiries_print(&one);
	expiry_check(&expiry);
}

TEST(renew__later)
{
	prove_renewal(1500, 500, 2500);
}

TEST(renew__sooner)
{
	prove_renewal(60000, 0, 700);
}

TEST(renew__limits)
{
	HARNESS(h, .ttl_max = "40s");
	SESSION(alpha, "alpha");
	mempool_lease *lease;
	uint8_t byte = 1;

	CHECK_INT(harness_acquire(alpha, PAGE, 40000, &lease), 0);
	CHECK_INT(mempool_renew(lease, 0), MEMPOOL_E_TTL_ZERO);
	CHECK_INT(mempool_renew(lease, 40001), MEMPOOL_E_TTL_MAX);
	CHECK_INT(mempool_renew(lease, 40000), 0);
	CHECK_INT(mempool_write(lease, 0, &byte, 1), 0);
}

/* The bytes. */
TEST(release__the_next_owner_reads_zeros)
{
	HARNESS(h, .pool_size = NULL);
	SESSION(alpha, "alpha");
	uint64_t pool_bytes = (uint64_t)harness_number(&h, "pool.bytes");
	uint8_t *buf = malloc(pool_bytes);
	mempool_lease *lease;
	uint64_t nonzero = 1;
	int r;

	CHECK(buf != NULL);
	harness_fill(buf, pool_bytes, 11);
	r = harness_acquire(alpha, pool_bytes, TTL_LONG_MS, &lease);
	if (r == 0)
		r = mempool_write(lease, 0, buf, pool_bytes);
	free(buf);
	CHECK_INT(r, 0);
	CHECK_INT(mempool_release(lease), 0);
	CHECK_INT(harness_count_nonzero(&h, &nonzero), 0);
	CHECK_INT(nonzero, 0);
}
