/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef TESTS_INTEGRATION_WORKERS_H
#define TESTS_INTEGRATION_WORKERS_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "client/include/mempool.h"
#include "tests/integration/calls.h"
#include "tests/integration/shadow.h"
#include "tests/unit/random.h"

/*
 * Threads that use a session all the time while it is broken. Two make calls, one has a queue;
 * each has a lease of its own, anew when it is lost, and a copy of what must be in it.
 */

#define WORKERS		   3
#define WORKERS_TIMEOUT_MS 3300				      /* of calls and operations */
#define WORKERS_LIMIT_MS   (WORKERS_TIMEOUT_MS + 1000 + 1500) /* to collect what is posted; slack */
#define WORKERS_TTL_MS	   3600000
#define WORKERS_BATCH	   16

struct outage {
	mempool *pool;
	struct calls calls;
	uint32_t rights;
	atomic_bool stop;
	atomic_uint healed; /* so often was all well again */
};

/* One thread's. */
struct worker {
	struct outage *outage;
	pthread_t thread;
	struct random random;
	mempool_lease *lease;
	struct shadow shadow;
	uint8_t *bytes; /* LEASE_BYTES, and a word */
	uint64_t word;	/* at least */
	uint64_t added; /* it may be so much more */
	uint32_t seed;
	uint32_t acquired;
	atomic_uint seen; /* what was healed then, and all verified since */
	atomic_bool corrupt;
	/* Of the one with a queue. */
	mempool_queue *queue;
	mempool_buf *buf;
	bool attached;
	int codes[WORKERS_BATCH];
};

/** workers_start() - @random: the seeds come from it; fails the running case if it cannot */
void workers_start(struct outage *outage, struct random *random, struct worker *workers);

/** workers_finish() - stop, and give back all but the session */
void workers_finish(struct outage *outage, struct worker *workers);

/** workers_queuer() - the one with a queue */
static inline struct worker *workers_queuer(struct worker *workers)
{
	return &workers[WORKERS - 1];
}

/** worker_goes_on() - has it found nothing wrong, and is it not to stop? */
bool worker_goes_on(const struct worker *worker);

#endif
