/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef TESTS_REDTEAM_WORKER_H
#define TESTS_REDTEAM_WORKER_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "client/include/mempool.h"

#define WORKER_BYTES	   4096
#define WORKER_SAMPLES_MAX 65536

/*
 * A tenant that writes its lease and reads it back without end, and how long each pair of
 * transfers takes. All zero at first.
 */
struct worker {
	mempool *pool;
	mempool_lease *lease;
	atomic_bool stop;
	pthread_t thread;
	uint64_t took_ns[WORKER_SAMPLES_MAX];
	atomic_size_t count;	     /* of all samples; the last WORKER_SAMPLES_MAX are kept */
	atomic_uint_least64_t wrong; /* reads that did not bring what was written */
	atomic_int code;	     /* of the call that failed, and ended the work; 0: none */
};

/** worker_open() - connect and acquire; Return: 0 or a code */
int worker_open(struct worker *worker, const char *tenant);

/** worker_start() - work in a thread of its own; Return: 0 or an errno */
int worker_start(struct worker *worker);

/** worker_run() - so many pairs of transfers, on this thread */
void worker_run(struct worker *worker, unsigned int count);

/** worker_stop() - end the thread; samples and session stay */
void worker_stop(struct worker *worker);

/** worker_close() - end the thread and the session */
void worker_close(struct worker *worker);

/**
 * worker_percentile() - of the samples so far, in nanoseconds; not while the thread runs
 * @permille: 500: half of them were no longer
 *
 * Return: 0 if there are no samples.
 */
uint64_t worker_percentile(struct worker *worker, unsigned int permille);

/** worker_print() - fails the running case if there are no samples; forgets them */
void worker_print(struct worker *worker, const char *when);

/* A working tenant in a variable of the test case; too large for the stack. */
#define WORKER(name, tenant)                                                            \
	static struct worker name##_memory;                                             \
	__attribute__((cleanup(worker_close_at))) struct worker *name = &name##_memory; \
	CHECK_INT(worker_open(name, tenant), 0)

static inline void worker_close_at(struct worker **worker)
{
	worker_close(*worker);
}

#endif
