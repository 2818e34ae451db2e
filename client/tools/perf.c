/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The tables of operations and modes, and the mode in which each thread makes one call after
 * the other.
 *
 * Thread: each worker's own.
 */
#include "client/tools/perf.h"

#include <string.h>

#include "client/tools/stop.h"

static int call_read(struct perf_worker *worker, uint64_t offset_bytes, void *buf, size_t len_bytes)
{
	return mempool_read(worker->lease, offset_bytes, buf, len_bytes);
}

static int call_write(struct perf_worker *worker, uint64_t offset_bytes, void *buf,
		      size_t len_bytes)
{
	return mempool_write(worker->lease, offset_bytes, buf, len_bytes);
}

/* Of the word's 8 bytes; its old value comes into the memory. */

static int call_fetch_add(struct perf_worker *worker, uint64_t offset_bytes, void *buf,
			  size_t len_bytes)
{
	(void)len_bytes;
	return mempool_fetch_add(worker->lease, offset_bytes, 1, buf);
}

static int call_compare_swap(struct perf_worker *worker, uint64_t offset_bytes, void *buf,
			     size_t len_bytes)
{
	(void)len_bytes;
	return mempool_compare_swap(worker->lease, offset_bytes, 0, 0, buf);
}

const struct perf_op perf_ops[] = {
	{"read", MEMPOOL_READ, 0, IBV_WR_RDMA_READ, MEMPOOL_OP_READ, 0, call_read},
	{"write", MEMPOOL_WRITE, 0, IBV_WR_RDMA_WRITE, MEMPOOL_OP_WRITE, 0, call_write},
	{"fetch-add", MEMPOOL_ATOMIC, 8, IBV_WR_ATOMIC_FETCH_AND_ADD, MEMPOOL_OP_FETCH_ADD, 1,
	 call_fetch_add},
	{"compare-swap", MEMPOOL_ATOMIC, 8, IBV_WR_ATOMIC_CMP_AND_SWP, MEMPOOL_OP_COMPARE_SWAP, 0,
	 call_compare_swap},
	{0},
};

static int sync_run(struct perf_worker *worker, const struct perf_case *what, uint64_t until_ns,
		    struct perf_tally *tally)
{
	uint64_t now_ns = perf_now_ns();
	uint64_t begun_ns;
	int r;

	do {
		begun_ns = now_ns;
		r = what->op->call(worker, 0, worker->buf, what->size_bytes);
		if (r < 0)
			return r;
		now_ns = perf_now_ns();
		histogram_add(&tally->latency_ns, now_ns - begun_ns);
		tally->operations++;
	} while (now_ns < until_ns && !stop_asked());
	return 0;
}

const struct perf_mode perf_modes[] = {
	{"sync", 1, NULL, sync_run},
	{"async", PERF_DEPTH_MAX, perf_async_prepare, perf_async_run},
	{"raw", PERF_RAW_DEPTH_MAX, perf_raw_prepare, perf_raw_run},
	{0},
};

const struct perf_op *perf_op_find(const char *name)
{
	for (const struct perf_op *op = perf_ops; op->name != NULL; op++) {
		if (strcmp(op->name, name) == 0)
			return op;
	}
	return NULL;
}

const struct perf_mode *perf_mode_find(const char *name)
{
	for (const struct perf_mode *mode = perf_modes; mode->name != NULL; mode++) {
		if (strcmp(mode->name, name) == 0)
			return mode;
	}
	return NULL;
}
