/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef TESTS_INTEGRATION_MIXTURE_H
#define TESTS_INTEGRATION_MIXTURE_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>

#include "client/include/mempool.h"
#include "tests/unit/random.h"

/*
 * What one of many threads does: calls of all kinds, at random, on leases of its own and on its
 * slices of those that it shares with the others. Each read is held against a copy.
 */

#define MIXTURE_THREADS	      8
#define MIXTURE_TTL_MS	      3600000
#define MIXTURE_OWN_BYTES     150001 /* windows of 64 KiB: three */
#define MIXTURE_SLICE_BYTES   30011  /* of a shared lease: no window and no page begins with one */
#define MIXTURE_SHARED	      2
#define MIXTURE_SCRATCH_BYTES 20000 /* at most */
#define MIXTURE_BATCH_MAX     16
#define MIXTURE_WORDS_BYTES   (MIXTURE_BATCH_MAX * sizeof(uint64_t))
#define MIXTURE_LOCAL_BYTES \
	(MIXTURE_WORDS_BYTES + MIXTURE_OWN_BYTES / MIXTURE_BATCH_MAX * MIXTURE_BATCH_MAX)

#define MIXTURE_SUM_OFFSET     0 /* in the lease of words */
#define MIXTURE_TICKETS_OFFSET 8
#define MIXTURE_WORDS_LEASE    16

enum mixture_kind {
	MIXTURE_READ,
	MIXTURE_WRITE,
	MIXTURE_READV,
	MIXTURE_WRITEV,
	MIXTURE_FETCH_ADD,
	MIXTURE_COMPARE_SWAP,
	MIXTURE_OWN_QUEUE,    /* one operation each */
	MIXTURE_SHARED_QUEUE, /* likewise */
	MIXTURE_RENEW,
	MIXTURE_LOOK,	  /* calls that only look */
	MIXTURE_TURNOVER, /* a lease given back, and another one */
	MIXTURE_BUF,	  /* a buffer given back, and another one */
	MIXTURE_CACHE,	  /* other limits for the registration cache */
	MIXTURE_KINDS,
};

/* Bytes of a lease that one thread alone writes, and what is in them. */
struct mixture_area {
	mempool_lease *lease;
	uint64_t base_bytes;
	uint64_t len_bytes;
	uint8_t *shadow;
};

enum {
	MIXTURE_AREA_OWN,
	MIXTURE_AREA_SHARED,
	MIXTURE_AREA_SCRATCH = MIXTURE_AREA_SHARED + MIXTURE_SHARED, /* not for queues */
	MIXTURE_AREAS,
};

struct mixture_board;

struct mixture_worker {
	struct mixture_board *board;
	pthread_t thread;
	uint64_t number;
	struct random random;
	uint32_t operations; /* to be done */
	struct mixture_area areas[MIXTURE_AREAS];
	mempool_queue *queue;
	mempool_buf *buf;
	uint8_t *plain;			     /* MIXTURE_LOCAL_BYTES, not registered */
	uint8_t *lent;			     /* MIXTURE_LOCAL_BYTES, registered now and then */
	atomic_int codes[MIXTURE_BATCH_MAX]; /* of the batch on the shared queue */
	atomic_uint pending;		     /* of it that nobody has reported */
	struct mempool_op ops[MIXTURE_BATCH_MAX];
	uint64_t sum;	  /* what it has added */
	uint64_t seen;	  /* of the sum, last */
	uint64_t tickets; /* that it has got */
	uint64_t next;	  /* that it believes to be next */
	uint64_t counts[MIXTURE_KINDS];
	uint64_t done;	   /* their sum, counted one by one */
	char failure[256]; /* "": none */
};

/* What all share. */
struct mixture_board {
	mempool *pool;
	mempool_lease *shared[MIXTURE_SHARED];
	mempool_lease *words; /* NULL: the device has no atomic operations for leases */
	mempool_queue *queue;
	struct mixture_worker workers[MIXTURE_THREADS];
};

/** mixture_acquire() - waits for memory */
int mixture_acquire(mempool *pool, uint64_t len_bytes, uint32_t rights, mempool_lease **ret_lease);

/** mixture_run() - of a thread; @arg: its struct mixture_worker */
void *mixture_run(void *arg);

/** mixture_kind_name() - for people */
const char *mixture_kind_name(enum mixture_kind kind);

#endif
