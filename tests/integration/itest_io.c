/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What is written is what is read, whatever its size and place; a window ends where its lease
 * ends; tenants neither see nor reach each other's bytes.
 */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/lane.h"
#include "client/pool.h"
#include "tests/integration/harness.h"
#include "tests/integration/proof.h"
#include "tests/integration/verify.h"

#define PAGE   4096
#define TTL_MS 600000

static void verify_size(size_t len_bytes, const size_t *offsets, size_t count)
{
	HARNESS(h, .pool_size = "256MiB");
	SESSION(alpha, "alpha");

	for (size_t i = 0; i < count; i++) {
		verify_transfer(alpha, len_bytes, offsets[i]);
		if (test_has_failed())
			return;
	}
	harness_close(&alpha);
	CHECK_INT(harness_stop(&h), 0);
}

static const size_t offsets[] = {0, 1, 4095, 4097, 262143, 1048577};

TEST(io__one_byte)
{
	verify_size(1, offsets, 6);
}

TEST(io__one_page)
{
	verify_size(PAGE, offsets, 6);
}

TEST(io__one_mib)
{
	verify_size(MIB, offsets, 6);
}

/* 64 MiB in a full run. */
TEST(io__large)
{
	verify_size(harness_figure(FIGURE_LARGE_MIB) * (size_t)MIB, offsets + 3, 1);
}

TEST(io__outside_of_the_lease_is_refused_by_the_library)
{
	HARNESS(h, .pool_size = NULL);
	SESSION(alpha, "alpha");
	mempool_lease *lease;
	uint8_t bytes[2] = {0};

	CHECK_INT(harness_acquire(alpha, PAGE + 1, TTL_MS, &lease), 0);
	CHECK_INT(mempool_write(lease, PAGE, bytes, 1), 0);
	CHECK_INT(mempool_write(lease, PAGE, bytes, 2), MEMPOOL_E_RANGE);
	CHECK_INT(mempool_write(lease, PAGE + 1, bytes, 1), MEMPOOL_E_RANGE);
	CHECK_INT(mempool_read(lease, UINT64_MAX, bytes, 2), MEMPOOL_E_RANGE);
	CHECK_INT(mempool_read(lease, PAGE, bytes, 1), 0);
}

/* The device's part: no byte before or behind the lease, be it of the same page. */

struct outside {
	const char *what;
	enum ibv_wr_opcode opcode;
	int64_t from_bytes; /* negative: before the start; else behind the end */
	uint32_t len_bytes;
};

static const struct outside outsides[] = {
	{"read the byte behind the end", IBV_WR_RDMA_READ, 0, 1},
	{"write the byte behind the end", IBV_WR_RDMA_WRITE, 0, 1},
	{"read across the end", IBV_WR_RDMA_READ, -1, 2},
	{"write across the end", IBV_WR_RDMA_WRITE, -1, 2},
	{"read the next page", IBV_WR_RDMA_READ, PAGE, 1},
	{"write the next page", IBV_WR_RDMA_WRITE, PAGE, 1},
};

/* Over windows that nobody enforces, a write would spoil bytes that are clean. */
static void try_unverified(mempool *pool, struct message_descriptor at,
			   const struct outside *outside)
{
	uint64_t addr = at.remote_addr + at.len_bytes + (uint64_t)outside->from_bytes;
	int status;

	if (outside->opcode == IBV_WR_RDMA_WRITE)
		return;
	status = proof_access(pool_lane(pool), outside->opcode, outside->len_bytes, addr, at.rkey);
	printf("# unverified: %s, lease of %llu bytes: %s\n", outside->what,
	       (unsigned long long)at.len_bytes, ibv_wc_status_str((enum ibv_wc_status)status));
}

static void try_outside(uint64_t len_bytes, const struct outside *outside)
{
	SESSION(alpha, "alpha");
	struct message_descriptor at;
	mempool_lease *lease;
	uint8_t byte = 0x77;
	uint64_t addr;

	CHECK_INT(harness_acquire(alpha, len_bytes, TTL_MS, &lease), 0);
	CHECK_INT(mempool_write(lease, len_bytes - 1, &byte, 1), 0);
	at = proof_descriptor(lease);
	CHECK_INT(at.len_bytes, len_bytes);
	CHECK_INT(proof_access(pool_lane(alpha), outside->opcode, 1, at.remote_addr + len_bytes - 1,
			       at.rkey),
		  IBV_WC_SUCCESS);
	if (harness_is_unverified()) {
		try_unverified(alpha, at, outside);
		return;
	}
	addr = at.remote_addr + len_bytes + (uint64_t)outside->from_bytes;
	memset(lane_slot(pool_lane(alpha), 0), 0x5a, 2);
	CHECK_INT(
		proof_access(pool_lane(alpha), outside->opcode, outside->len_bytes, addr, at.rkey),
		IBV_WC_REM_ACCESS_ERR);
	CHECK_INT(lane_slot(pool_lane(alpha), 0)[0], 0x5a);
	CHECK_INT(lane_slot(pool_lane(alpha), 0)[1], 0x5a);
}

static void verify_bounds(uint64_t len_bytes)
{
	HARNESS(h, .pool_size = NULL);
	uint64_t nonzero = 1;

	for (size_t i = 0; i < sizeof(outsides) / sizeof(outsides[0]); i++) {
		try_outside(len_bytes, &outsides[i]);
		if (test_has_failed()) {
			printf("# %s\n", outsides[i].what);
			return;
		}
	}
	CHECK_INT(harness_count_nonzero(&h, &nonzero), 0);
	if (!harness_is_unverified())
		CHECK_INT(nonzero, 0);
	CHECK_INT(harness_stop(&h), 0);
}

TEST(io__a_window_covers_one_byte)
{
	verify_bounds(1);
}

TEST(io__a_window_covers_a_page_and_one_byte)
{
	verify_bounds(PAGE + 1);
}

/* Before the start: the lease in front belongs to somebody who would see it. */
TEST(io__a_window_begins_at_its_lease)
{
	HARNESS(h, .pool_size = NULL);
	SESSION(alpha, "alpha");
	SESSION(beta, "beta");
	struct message_descriptor before;
	struct message_descriptor at;
	mempool_lease *leases[2];
	uint8_t sent[PAGE];
	uint8_t got[PAGE];

	if (harness_is_unverified())
		SKIP("bounds are not enforced in this mode");
	harness_fill(sent, sizeof(sent), 3);
	CHECK_INT(harness_acquire(alpha, PAGE, TTL_MS, &leases[0]), 0);
	CHECK_INT(harness_acquire(beta, PAGE, TTL_MS, &leases[1]), 0);
	CHECK_INT(mempool_write(leases[0], 0, sent, PAGE), 0);
	before = proof_descriptor(leases[0]);
	at = proof_descriptor(leases[1]);
	CHECK_INT(before.remote_addr + PAGE, at.remote_addr);
	CHECK_INT(proof_access(pool_lane(beta), IBV_WR_RDMA_WRITE, 1, at.remote_addr, at.rkey),
		  IBV_WC_SUCCESS);
	CHECK_INT(proof_access(pool_lane(beta), IBV_WR_RDMA_WRITE, 1, at.remote_addr - 1, at.rkey),
		  IBV_WC_REM_ACCESS_ERR);
	CHECK_INT(mempool_read(leases[0], 0, got, PAGE), 0);
	CHECK_MEM(got, sent, PAGE);
}

/* Two tenants. */

struct tenant_run {
	const char *name;
	uint32_t seed;
	uint32_t rounds;
	uint32_t wrong;
	int code;
};

static int tenant_rounds(struct tenant_run *run, mempool *pool, uint8_t *sent, uint8_t *got)
{
	mempool_lease *lease;
	int r = harness_acquire(pool, MIB, TTL_MS, &lease);

	for (uint32_t i = 0; r == 0 && i < run->rounds; i++) {
		harness_fill(sent, MIB, run->seed + i);
		r = mempool_write(lease, 0, sent, MIB);
		if (r == 0)
			r = mempool_read(lease, 0, got, MIB);
		if (r == 0)
			run->wrong += memcmp(sent, got, MIB) != 0;
	}
	return r;
}

static void *tenant_thread(void *arg)
{
	struct tenant_run *run = arg;
	uint8_t *sent = malloc(MIB);
	uint8_t *got = malloc(MIB);
	mempool *pool = NULL;

	run->code = harness_connect(run->name, &pool);
	if (run->code == 0 && sent != NULL && got != NULL)
		run->code = tenant_rounds(run, pool, sent, got);
	mempool_close(pool);
	free(sent);
	free(got);
	return NULL;
}

TEST(io__two_tenants_at_once)
{
	HARNESS(h, .pool_size = NULL);
	uint32_t rounds = harness_figure(FIGURE_TENANT_ROUNDS);
	struct tenant_run runs[2] = {
		{.name = "alpha", .seed = 100000, .rounds = rounds, .code = 1},
		{.name = "beta", .seed = 200000, .rounds = rounds, .code = 1},
	};
	pthread_t threads[2];

	for (int i = 0; i < 2; i++)
		CHECK_INT(pthread_create(&threads[i], NULL, tenant_thread, &runs[i]), 0);
	for (int i = 0; i < 2; i++)
		CHECK_INT(pthread_join(threads[i], NULL), 0);
	for (int i = 0; i < 2; i++) {
		CHECK_INT(runs[i].code, 0);
		CHECK_INT(runs[i].wrong, 0);
	}
	CHECK_INT(harness_stop(&h), 0);
}

static void try_foreign(enum ibv_wr_opcode opcode)
{
	HARNESS(h, .pool_size = NULL);
	SESSION(alpha, "alpha");
	SESSION(beta, "beta");
	struct message_descriptor of_alpha;
	struct message_descriptor of_beta;
	mempool_lease *leases[2];
	uint8_t sent[PAGE];
	uint8_t got[PAGE];

	harness_fill(sent, sizeof(sent), 7);
	CHECK_INT(harness_acquire(alpha, PAGE, TTL_MS, &leases[0]), 0);
	CHECK_INT(harness_acquire(beta, PAGE, TTL_MS, &leases[1]), 0);
	CHECK_INT(mempool_write(leases[0], 0, sent, PAGE), 0);
	of_alpha = proof_descriptor(leases[0]);
	of_beta = proof_descriptor(leases[1]);
	CHECK_INT(proof_access(pool_lane(alpha), opcode, 64, of_alpha.remote_addr, of_alpha.rkey),
		  IBV_WC_SUCCESS);
	CHECK_INT(mempool_write(leases[0], 0, sent, PAGE), 0);
	CHECK_INT(proof_access(pool_lane(beta), opcode, 64, of_beta.remote_addr, of_beta.rkey),
		  IBV_WC_SUCCESS);
	memset(lane_slot(pool_lane(beta), 0), 0x5a, 64);
	memset(got, 0x5a, sizeof(got));
	CHECK_INT(proof_access(pool_lane(beta), opcode, 64, of_alpha.remote_addr, of_alpha.rkey),
		  IBV_WC_REM_ACCESS_ERR);
	CHECK_MEM(lane_slot(pool_lane(beta), 0), got, 64);
	/* Alpha does not notice, and beta gets its lease back on a new lane. */
	CHECK(lane_is_up(pool_lane(alpha)));
	CHECK_INT(mempool_read(leases[0], 0, got, PAGE), 0);
	CHECK_MEM(got, sent, PAGE);
	CHECK_INT(mempool_read(leases[1], 0, got, PAGE), 0);
}

TEST(io__a_tenant_cannot_read_with_the_key_of_another)
{
	try_foreign(IBV_WR_RDMA_READ);
}

TEST(io__a_tenant_cannot_write_with_the_key_of_another)
{
	try_foreign(IBV_WR_RDMA_WRITE);
}
