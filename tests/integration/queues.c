/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Short cuts for tests with queues. Thread: any.
 */
#include "tests/integration/queues.h"

#include <errno.h>
#include <stdio.h>

#define QUEUES_REPORTS 7 /* at once */

int queues_acquire(mempool *pool, uint64_t len_bytes, uint32_t rights, uint64_t ttl_ms,
		   mempool_lease **ret_lease)
{
	struct mempool_acquire_opts opts = {
		.size = sizeof(opts), .ttl_ms = ttl_ms, .rights = rights};

	return mempool_acquire(pool, len_bytes, &opts, ret_lease);
}

int queues_make_sized(mempool *pool, uint32_t depth, uint32_t capacity, mempool_queue **ret_queue)
{
	struct mempool_queue_opts opts = {
		.size = sizeof(opts), .depth = depth, .capacity = capacity};

	return mempool_queue_create(pool, &opts, ret_queue);
}

int queues_make(mempool *pool, mempool_queue **ret_queue)
{
	return queues_make_sized(pool, 0, QUEUES_OPS_MAX, ret_queue);
}

int queues_submit(mempool_queue *queue, const struct mempool_op *ops, size_t count)
{
	size_t taken = 0;
	int r = mempool_submit(queue, ops, count, &taken);

	return r < 0 ? r : taken == count ? 0 : -ENOBUFS;
}

int queues_drain(mempool_queue *queue, int *codes, size_t count, size_t expected)
{
	struct mempool_completion completions[QUEUES_REPORTS];
	size_t reported = 0;
	size_t n = 0;
	int r;

	r = mempool_flush(queue, 0);
	if (r < 0)
		return r;
	do {
		r = mempool_poll(queue, completions, QUEUES_REPORTS, &n);
		for (size_t i = 0; i < n && r == 0; i++) {
			if (completions[i].cookie >= count ||
			    codes[completions[i].cookie] != QUEUES_NOT_YET)
				return -ENOENT;
			codes[completions[i].cookie] = completions[i].code;
			reported++;
		}
	} while (r == 0 && n > 0);
	if (r == 0 && reported != expected)
		printf("# %zu operations reported instead of %zu\n", reported, expected);
	return r < 0 ? r : reported == expected ? 0 : -EBADE;
}

int queues_collect(mempool_queue *queue, size_t count, int *codes)
{
	for (size_t i = 0; i < count; i++)
		codes[i] = QUEUES_NOT_YET;
	return queues_drain(queue, codes, count, count);
}

int queues_run_op(mempool_queue *queue, const struct mempool_op *op)
{
	struct mempool_op one = *op;
	int code;
	int r;

	one.cookie = 0;
	r = queues_submit(queue, &one, 1);
	if (r == 0)
		r = queues_collect(queue, 1, &code);
	return r < 0 ? r : code;
}

int queues_run(mempool_queue *queue, mempool_lease *lease, uint32_t kind, mempool_buf *buf,
	       uint64_t len_bytes)
{
	struct mempool_op op = {
		.lease = lease,
		.len_bytes = len_bytes,
		.bytes = mempool_buf_bytes(buf),
		.buf = buf,
		.kind = kind,
		.operand = 1,
	};

	return queues_run_op(queue, &op);
}
