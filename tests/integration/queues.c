/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Short cuts for tests with queues. Thread: any.
 */
#include "tests/integration/queues.h"

#include <errno.h>
#include <stdbool.h>

int queues_make(mempool *pool, mempool_queue **ret_queue)
{
	struct mempool_queue_opts opts = {.size = sizeof(opts), .capacity = QUEUES_OPS_MAX};

	return mempool_queue_create(pool, &opts, ret_queue);
}

int queues_collect(mempool_queue *queue, size_t count, int *codes)
{
	struct mempool_completion done;
	bool reported[QUEUES_OPS_MAX] = {false};
	size_t n = 0;
	int r = mempool_flush(queue, 0);

	for (size_t i = 0; i < count && r == 0; i++) {
		r = mempool_poll(queue, &done, 1, &n);
		if (r == 0 && (n != 1 || done.cookie >= count || reported[done.cookie]))
			return -ENOENT;
		if (r == 0) {
			reported[done.cookie] = true;
			codes[done.cookie] = done.code;
		}
	}
	return r;
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
	int code = 0;
	size_t n = 0;
	int r = mempool_submit(queue, &op, 1, &n);

	if (r == 0)
		r = queues_collect(queue, 1, &code);
	return r < 0 ? r : code;
}
