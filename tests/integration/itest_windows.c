/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Leases that are longer than one memory window may be.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/lease.h"
#include "client/pool.h"
#include "tests/integration/accounts.h"
#include "tests/integration/harness.h"
#include "tests/integration/proof.h"

#define WINDOW_BYTES  (64 * UINT64_C(1024))
#define PAGE	      4096
#define TTL_MS	      600000
#define SMALL_WINDOWS "\"window_max\": \"64KiB\", \"lane_wait_min\": \"0\""

static uint32_t windows_of(mempool_lease *lease)
{
	uint32_t count;

	(void)lease_descriptors(lease, &count);
	return count;
}

TEST(windows__as_many_as_the_length_needs)
{
	HARNESS(h, .extra = SMALL_WINDOWS);
	SESSION(alpha, "alpha");
	static const struct {
		uint64_t len_bytes;
		uint32_t windows;
	} cases[] = {
		{1, 1},
		{WINDOW_BYTES, 1},
		{WINDOW_BYTES + 1, 2},
		{2 * WINDOW_BYTES, 2},
		{63 * WINDOW_BYTES + 1, 64},
		{64 * WINDOW_BYTES, 64},
	};
	mempool_lease *lease;

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		CHECK_INT(harness_acquire(alpha, cases[i].len_bytes, TTL_MS, &lease), 0);
		CHECK_INT(windows_of(lease), cases[i].windows);
		CHECK_INT(mempool_release(lease), 0);
	}
	CHECK_INT(harness_acquire(alpha, 64 * WINDOW_BYTES + 1, TTL_MS, &lease),
		  MEMPOOL_E_WINDOWS_MAX);
	harness_close(&alpha);
	accounts_check(&h);
	CHECK(!test_has_failed());
	CHECK_INT(harness_stop(&h), 0);
}

struct content {
	uint8_t *expected;
	uint8_t *got;
};

static void content_free(struct content *content)
{
	free(content->expected);
	free(content->got);
}

/* Transfers that begin and end around every border, held against a copy. */
TEST(windows__transfers_across_borders)
{
	HARNESS(h, .extra = SMALL_WINDOWS);
	SESSION(alpha, "alpha");
	const uint64_t len_bytes = 5 * WINDOW_BYTES + 17;
	__attribute__((cleanup(content_free))) struct content content = {
		.expected = calloc(1, len_bytes),
		.got = malloc(len_bytes),
	};
	mempool_lease *lease;

	CHECK(content.expected != NULL && content.got != NULL);
	CHECK_INT(harness_acquire(alpha, len_bytes, TTL_MS, &lease), 0);
	CHECK_INT(windows_of(lease), 6);
	for (uint32_t border = 1; border <= 5; border++) {
		uint64_t from = border * WINDOW_BYTES - border * 3;
		uint64_t more = border == 3 ? WINDOW_BYTES + 100 : border * 3 + border;

		harness_fill(content.expected + from, more, border);
		CHECK_INT(mempool_write(lease, from, content.expected + from, more), 0);
	}
	CHECK_INT(mempool_read(lease, 0, content.got, len_bytes), 0);
	CHECK_INT(memcmp(content.got, content.expected, len_bytes), 0);
	for (uint32_t border = 1; border <= 5; border++) {
		uint64_t from = border * WINDOW_BYTES - 7;

		CHECK_INT(mempool_read(lease, from, content.got, 14), 0);
		CHECK_MEM(content.got, content.expected + from, 14);
	}
	harness_fill(content.expected, len_bytes, 99);
	CHECK_INT(mempool_write(lease, 0, content.expected, len_bytes), 0);
	CHECK_INT(mempool_read(lease, 0, content.got, len_bytes), 0);
	CHECK_INT(memcmp(content.got, content.expected, len_bytes), 0);
}

/* The device sees each window by itself. */
TEST(windows__one_access_does_not_cross)
{
	HARNESS(h, .extra = SMALL_WINDOWS);
	SESSION(alpha, "alpha");
	const struct message_descriptor *at;
	struct lane *lane = pool_lane(alpha);
	mempool_lease *lease;
	uint32_t count;

	if (harness_is_unverified())
		SKIP("bounds are not enforced in this mode");
	CHECK_INT(harness_acquire(alpha, 2 * WINDOW_BYTES, TTL_MS, &lease), 0);
	at = lease_descriptors(lease, &count);
	CHECK_INT(at[0].remote_addr + WINDOW_BYTES, at[1].remote_addr);
	CHECK(at[0].rkey != at[1].rkey);
	CHECK_INT(proof_access(lane, IBV_WR_RDMA_READ, 1, at[1].remote_addr, at[1].rkey),
		  IBV_WC_SUCCESS);
	CHECK_INT(proof_access(lane, IBV_WR_RDMA_READ, 2, at[1].remote_addr - 1, at[0].rkey),
		  IBV_WC_REM_ACCESS_ERR);
}

/* All windows of a lease are behind the fence when it has been released. */
TEST(windows__all_keys_end)
{
	HARNESS(h, .extra = SMALL_WINDOWS);
	SESSION(alpha, "alpha");
	struct message_descriptor old[4];
	mempool_lease *lease;
	mempool_lease *other;
	uint32_t count;

	for (int i = 0; i < 4; i++) {
		CHECK_INT(harness_acquire(alpha, 4 * WINDOW_BYTES, TTL_MS, &lease), 0);
		CHECK_INT(harness_acquire(alpha, 1, TTL_MS, &other), 0);
		memcpy(old, lease_descriptors(lease, &count), sizeof(old));
		CHECK_INT(count, 4);
		CHECK_INT(proof_access(pool_lane(alpha), IBV_WR_RDMA_READ, 1, old[i].remote_addr,
				       old[i].rkey),
			  IBV_WC_SUCCESS);
		CHECK_INT(mempool_release(lease), 0);
		CHECK_INT(proof_access(pool_lane(alpha), IBV_WR_RDMA_READ, 1, old[i].remote_addr,
				       old[i].rkey),
			  IBV_WC_REM_ACCESS_ERR);
		CHECK_INT(mempool_release(other), 0);
	}
	harness_close(&alpha);
	accounts_check(&h);
	CHECK(!test_has_failed());
	CHECK_INT(harness_stop(&h), 0);
}
