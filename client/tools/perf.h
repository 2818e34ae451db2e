/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef CLIENT_TOOLS_PERF_H
#define CLIENT_TOOLS_PERF_H

#include <infiniband/verbs.h>
#include <stddef.h>
#include <stdint.h>
#include <time.h>

#include "client/include/mempool.h"
#include "common/histogram.h"

/*
 * What is measured: an operation of a size, so many of them at a time, in a mode. Operations
 * and modes are tables; a further one is a further row.
 */

#define PERF_THREADS_MAX 64
#define PERF_DEPTH_MAX	 4096 /* of all modes */

/* A thread and what is its own: a session, so a data connection, a lease, and memory. */
struct perf_worker {
	mempool *pool;
	mempool_lease *lease;
	uint64_t lease_bytes;
	uint8_t *buf; /* as long as the lease; whole pages */
	uint32_t timeout_ms;
	/* Of mode async, made by its preparation; the session's end ends them, too. */
	mempool_buf *registered; /* buf; NULL: not yet */
	mempool_queue *queue;	 /* likewise */
	uint32_t queue_depth;
	/* Of mode raw: buf, registered by its preparation for the data connection; NULL: not yet */
	struct ibv_mr *raw_mr;
};

struct perf_op {
	const char *name;
	uint32_t right;		   /* that the lease must have */
	uint32_t size_bytes;	   /* the only size that it has; 0: any */
	enum ibv_wr_opcode opcode; /* on the wire */
	uint32_t kind;		   /* in a queue */
	uint64_t operand;	   /* of an atomic one: what is added, or expected; it swaps in 0 */
	/* The library's call; Return: 0 or a code, last error set. */
	int (*call)(struct perf_worker *worker, uint64_t offset_bytes, void *buf, size_t len_bytes);
};

struct perf_case {
	const struct perf_op *op;
	uint64_t size_bytes;
	uint32_t depth; /* operations at a time in each thread */
};

struct perf_tally {
	uint64_t operations;
	uint64_t elapsed_ns;
	struct histogram latency_ns; /* each from its call or posting to its end */
};

struct perf_mode {
	const char *name;
	uint32_t depth_max;
	/* Before each run, not measured; NULL: nothing to do. Return: as run. */
	int (*prepare)(struct perf_worker *worker, const struct perf_case *what);
	/*
	 * Carries out operations until a time, or until we are asked to stop, at least one; adds
	 * to the tally all but the time elapsed. Return: 0 or a code, last error set; nothing is in flight then.
	 */
	int (*run)(struct perf_worker *worker, const struct perf_case *what, uint64_t until_ns,
		   struct perf_tally *tally);
};

/* Both end with a row without a name. */
extern const struct perf_op perf_ops[];
extern const struct perf_mode perf_modes[];

/** perf_op_find(), perf_mode_find() - by name; Return: NULL if there is none */
const struct perf_op *perf_op_find(const char *name);
const struct perf_mode *perf_mode_find(const char *name);

/* A loop of its own on the worker's data connection, with verbs only; a row of perf_modes. */
int perf_raw_prepare(struct perf_worker *worker, const struct perf_case *what);
int perf_raw_run(struct perf_worker *worker, const struct perf_case *what, uint64_t until_ns,
		 struct perf_tally *tally);
#define PERF_RAW_DEPTH_MAX 64

/** perf_raw_unprepare() - unregister before the session ends; Return: 0 or a code */
int perf_raw_unprepare(struct perf_worker *worker);

/* Through a queue of the worker's, with all of its memory registered; likewise. */
int perf_async_prepare(struct perf_worker *worker, const struct perf_case *what);
int perf_async_run(struct perf_worker *worker, const struct perf_case *what, uint64_t until_ns,
		   struct perf_tally *tally);

/** perf_offset() - where the operation of a number goes in lease and memory: they go round */
static inline uint64_t perf_offset(const struct perf_case *what, uint64_t number)
{
	return number % what->depth * what->size_bytes;
}

static inline uint64_t perf_now_ns(void)
{
	struct timespec now;

	(void)clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

#endif
