/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A device of ours that takes its time, or fails: nothing is posted too late, nothing is let go
 * too early, and nobody waits for ever.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "client/lane.h"
#include "client/pool.h"
#include "client/queue.h"
#include "common/clock.h"
#include "tests/integration/harness.h"
#include "tests/integration/held.h"
#include "tests/integration/queues.h"

#define PAGE	4096
#define TTL_MS	600000
#define ALL	(MEMPOOL_READ | MEMPOOL_WRITE | MEMPOOL_ATOMIC)
#define NO_WAIT "\"lane_wait_min\": \"0\""

/* Registers memory slowly, and posts what it is told to in its own way. */

static void *slow_bytes; /* takes slow_ms */
static uint64_t slow_ms;
static atomic_uint posts;

int __real_verbs_reg_mr(struct ibv_pd *pd, void *addr, size_t len_bytes, int access,
			struct ibv_mr **ret_mr);
int __wrap_verbs_reg_mr(struct ibv_pd *pd, void *addr, size_t len_bytes, int access,
			struct ibv_mr **ret_mr);
int __real_verbs_post_send(struct ibv_qp *qp, struct ibv_send_wr *wr, struct ibv_send_wr **ret_bad);
int __wrap_verbs_post_send(struct ibv_qp *qp, struct ibv_send_wr *wr, struct ibv_send_wr **ret_bad);

int __wrap_verbs_reg_mr(struct ibv_pd *pd, void *addr, size_t len_bytes, int access,
			struct ibv_mr **ret_mr)
{
	if (addr == slow_bytes)
		harness_sleep_ms(slow_ms);
	return __real_verbs_reg_mr(pd, addr, len_bytes, access, ret_mr);
}

int __wrap_verbs_post_send(struct ibv_qp *qp, struct ibv_send_wr *wr, struct ibv_send_wr **ret_bad)
{
	if (wr->opcode == IBV_WR_RDMA_WRITE || wr->opcode == IBV_WR_RDMA_READ)
		(void)atomic_fetch_add(&posts, 1);
	return __real_verbs_post_send(qp, wr, ret_bad);
}

/* The cache registers memory for longer than the lease lasts by our count. */
TEST(device__lease_expires_while_memory_is_registered)
{
	HARNESS(h, .extra = NO_WAIT);
	SESSION(alpha, "alpha");
	struct mempool_cache_opts limits = {
		.size = sizeof(limits), .bytes_max = MIB, .entries_max = 4};
	struct mempool_cache_stats stats = {.size = sizeof(stats)};
	uint8_t *bytes = aligned_alloc(PAGE, 4 * PAGE);
	unsigned int before;
	mempool_lease *lease;
	int r;

	CHECK(bytes != NULL);
	memset(bytes, 1, 4 * PAGE);
	CHECK_INT(mempool_cache_limit(alpha, &limits), 0);
	/* The lane is opened, and the lease used, before the time begins to matter. */
	CHECK_INT(harness_acquire(alpha, 4 * PAGE, 300, &lease), 0);
	slow_bytes = bytes;
	slow_ms = 1000;
	before = atomic_load(&posts);
	r = mempool_write(lease, 0, bytes, 4 * PAGE);
	slow_bytes = NULL;
	CHECK_INT(atomic_load(&posts), before);
	CHECK_INT(r, MEMPOOL_E_EXPIRED);
	/* What was registered is not in use, and the lane has not been lost. */
	CHECK_INT(mempool_cache_forget(alpha, bytes, 4 * PAGE), 0);
	CHECK_INT(mempool_cache_stats(alpha, &stats), 0);
	CHECK_INT(stats.entries, 0);
	CHECK(lane_is_up(pool_lane(alpha)));
	CHECK_INT(harness_number(&h, "counters.lanes_lost"), 0);
	CHECK_INT(harness_number(&h, "counters.strikes"), 0);
	(void)mempool_release(lease);
	free(bytes);
	harness_close(&alpha);
	CHECK_INT(harness_stop(&h), 0);
}
