/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef TESTS_INTEGRATION_QUEUES_H
#define TESTS_INTEGRATION_QUEUES_H

#include <stddef.h>
#include <stdint.h>

#include "client/include/mempool.h"

#define QUEUES_OPS_MAX 32

/** queues_make() - a queue with room for QUEUES_OPS_MAX operations */
int queues_make(mempool *pool, mempool_queue **ret_queue);

/**
 * queues_collect() - wait until all operations are over, and poll until all are reported
 * @count: how many there are; their cookies are below that, each another one
 * @codes: by cookie
 *
 * Return: 0, a code, or -ENOENT: one was not reported, or not once.
 */
int queues_collect(mempool_queue *queue, size_t count, int *codes);

/** queues_run() - one operation, from the lease's beginning on; Return: its code, or of a call */
int queues_run(mempool_queue *queue, mempool_lease *lease, uint32_t kind, mempool_buf *buf,
	       uint64_t len_bytes);

#endif
