/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef TESTS_INTEGRATION_QUEUES_H
#define TESTS_INTEGRATION_QUEUES_H

#include <stddef.h>
#include <stdint.h>

#include "client/include/mempool.h"

#define QUEUES_OPS_MAX 32
#define QUEUES_NOT_YET 1 /* the code of what was not reported */

/** queues_acquire() - a lease that is there at once or not */
int queues_acquire(mempool *pool, uint64_t len_bytes, uint32_t rights, uint64_t ttl_ms,
		   mempool_lease **ret_lease);

/** queues_make_sized() - 0: as the library has it */
int queues_make_sized(mempool *pool, uint32_t depth, uint32_t capacity, mempool_queue **ret_queue);

/** queues_make() - a queue with room for QUEUES_OPS_MAX operations */
int queues_make(mempool *pool, mempool_queue **ret_queue);

/** queues_submit() - Return: 0, a code, or -ENOBUFS: not all of them were taken */
int queues_submit(mempool_queue *queue, const struct mempool_op *ops, size_t count);

/**
 * queues_drain() - wait until all operations are over, and poll until all are reported
 * @codes: by cookie, which are below @count; each is QUEUES_NOT_YET at first and written once
 * @expected: so many reports
 *
 * Return: 0, a code, -ENOENT: an unknown cookie, or one that is reported twice, or -EBADE: other
 * than so many reports.
 */
int queues_drain(mempool_queue *queue, int *codes, size_t count, size_t expected);

/** queues_collect() - the same, for as many as there are cookies; @codes: anything at first */
int queues_collect(mempool_queue *queue, size_t count, int *codes);

/** queues_run_op() - one operation; Return: its code, or of a call */
int queues_run_op(mempool_queue *queue, const struct mempool_op *op);

/** queues_run() - one operation, from the lease's beginning on; Return: its code, or of a call */
int queues_run(mempool_queue *queue, mempool_lease *lease, uint32_t kind, mempool_buf *buf,
	       uint64_t len_bytes);

#endif
