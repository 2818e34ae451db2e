/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The keys of one memory window, on queue pairs of this process and without a daemon: a window
 * opens for the key that it was bound with and for no other of its 256, the one that the
 * driver gave it before included. Each refusal breaks its pair, so each has its own.
 */
#include <rdma/rdma_cma.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "common/secure.h"
#include "daemon/selftest_pair.h"
#include "tests/unit/test.h"

#define PAGE	 4096
#define BYTES	 64u
#define POOL	 0x5a /* what the window covers is filled with */
#define LOCAL	 0xc3 /* and the buffer */
#define BENCH(b) __attribute__((cleanup(bench_close))) struct bench b = {0}

/* A device, memory on it, and the window of one pair. All zero: none. */
struct bench {
	struct ibv_context **devices;
	struct selftest_route route;
	struct ibv_pd *pd;
	struct ibv_mr *mr;
	uint8_t *memory; /* a page for the window, a page to read to and write from */
	struct selftest_pair pair;
	struct ibv_mw *mw;
};

static int bench_clear(struct bench *bench)
{
	int r = bench->mw == NULL ? 0 : verbs_dealloc_mw(bench->mw);

	bench->mw = NULL;
	return r < 0 ? r : selftest_pair_deinit(&bench->pair);
}

static void bench_close(struct bench *bench)
{
	(void)bench_clear(bench);
	(void)verbs_dereg_mr(bench->mr);
	if (bench->pd != NULL)
		(void)ibv_dealloc_pd(bench->pd);
	if (bench->memory != NULL)
		(void)munmap(bench->memory, 2 * PAGE);
	if (bench->devices != NULL)
		rdma_free_devices(bench->devices);
}

/* Return: is there a device that reaches itself? */
static bool bench_find(struct bench *bench)
{
	bench->devices = rdma_get_devices(NULL);
	for (int i = 0; bench->devices != NULL && bench->devices[i] != NULL; i++) {
		if (selftest_route_find(bench->devices[i], &bench->route) == 0) {
			bench->pd = ibv_alloc_pd(bench->devices[i]);
			return true;
		}
	}
	return false;
}

static void bench_open(struct bench *bench)
{
	void *memory =
		mmap(NULL, 2 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	CHECK(memory != MAP_FAILED);
	bench->memory = memory;
	CHECK_INT(secure_init(), 0);
	CHECK(bench->pd != NULL);
	CHECK_INT(verbs_reg_mr(bench->pd, memory, 2 * PAGE,
			       IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_MW_BIND, &bench->mr),
		  0);
}

/* A new window with another key than the driver's: the low byte differs by the bits in @by. */
static void bind_window(struct bench *bench, uint32_t by, uint32_t *ret_key)
{
	struct ibv_send_wr wr = {
		.opcode = IBV_WR_BIND_MW,
		.bind_mw = {.bind_info = {.mr = bench->mr,
					  .addr = (uintptr_t)bench->memory,
					  .length = BYTES,
					  .mw_access_flags = IBV_ACCESS_REMOTE_READ |
							     IBV_ACCESS_REMOTE_WRITE}},
	};
	enum ibv_wc_status status;

	CHECK_INT(selftest_pair_init(&bench->pair, bench->pd, &bench->route), 0);
	CHECK_INT(verbs_alloc_mw(bench->pd, &bench->mw), 0);
	wr.bind_mw.mw = bench->mw;
	wr.bind_mw.rkey = bench->mw->rkey ^ by;
	CHECK_INT(selftest_pair_execute(&bench->pair, bench->pair.responder, &wr, &status), 0);
	CHECK_INT(status, IBV_WC_SUCCESS);
	*ret_key = wr.bind_mw.rkey;
}

static void try_access(struct bench *bench, enum ibv_wr_opcode opcode, uint32_t key,
		       enum ibv_wc_status expected)
{
	uint8_t *local = bench->memory + PAGE;
	struct ibv_sge sge = {.addr = (uintptr_t)local, .length = BYTES, .lkey = bench->mr->lkey};
	struct ibv_send_wr wr = {
		.opcode = opcode,
		.sg_list = &sge,
		.num_sge = 1,
		.wr.rdma = {.remote_addr = (uintptr_t)bench->memory, .rkey = key},
	};
	bool reads = opcode == IBV_WR_RDMA_READ;
	uint8_t pool_bytes[BYTES], local_bytes[BYTES];
	enum ibv_wc_status status;

	memset(bench->memory, POOL, BYTES);
	memset(local, LOCAL, BYTES);
	CHECK_INT(selftest_pair_execute(&bench->pair, bench->pair.requester, &wr, &status), 0);
	CHECK_INT(status, expected);
	memset(pool_bytes, expected == IBV_WC_SUCCESS && !reads ? LOCAL : POOL, BYTES);
	memset(local_bytes, expected == IBV_WC_SUCCESS && reads ? POOL : LOCAL, BYTES);
	CHECK_MEM(bench->memory, pool_bytes, BYTES);
	CHECK_MEM(local, local_bytes, BYTES);
}

/* @bound_by: bits in which the key differs from the driver's; @tried_by: the one tried from it */
static void refuse_key(struct bench *bench, enum ibv_wr_opcode opcode, uint32_t bound_by,
		       uint32_t tried_by)
{
	uint32_t key = 0;

	bind_window(bench, bound_by, &key);
	CHECK(!test_has_failed());
	try_access(bench, opcode, key, IBV_WC_SUCCESS);
	CHECK(!test_has_failed());
	try_access(bench, opcode, key ^ tried_by, IBV_WC_REM_ACCESS_ERR);
	CHECK(!test_has_failed());
	CHECK_INT(bench_clear(bench), 0);
}

TEST(field_06_key__from_before_the_bind)
{
	BENCH(bench);

	if (!bench_find(&bench))
		SKIP("no RDMA device");
	bench_open(&bench);
	/* Each bit of the byte, and all of them. */
	for (uint32_t by = 1; by <= 256 && !test_has_failed(); by *= 2) {
		refuse_key(&bench, IBV_WR_RDMA_READ, by == 256 ? 255 : by, by == 256 ? 255 : by);
		CHECK(!test_has_failed());
		refuse_key(&bench, IBV_WR_RDMA_WRITE, by == 256 ? 255 : by, by == 256 ? 255 : by);
	}
}

TEST(field_06_key__all_other_low_bytes)
{
	BENCH(bench);

	if (!bench_find(&bench))
		SKIP("no RDMA device");
	bench_open(&bench);
	for (uint32_t by = 1; by <= 255 && !test_has_failed(); by++)
		refuse_key(&bench, IBV_WR_RDMA_READ, secure_uniform(255) + 1, by);
}
