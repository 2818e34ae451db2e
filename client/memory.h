/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef CLIENT_MEMORY_H
#define CLIENT_MEMORY_H

#include <infiniband/verbs.h>
#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "client/cache.h"
#include "client/include/mempool.h"
#include "client/registry.h"

/*
 * A buffer, guarded by the lock of the session's memory. A handle that was given back stays
 * allocated, and is used again as late as possible, so that a wrong use of it is noticed.
 */
struct mempool_buf {
	struct mempool_buf *next;      /* of all handles of the session */
	struct mempool_buf *next_free; /* of those that can be used again */
	struct mempool *pool;	       /* constant */
	bool live;
	uint8_t *bytes;
	size_t len_bytes;
	size_t mapped_bytes; /* by us; 0: the application's memory */
	struct ibv_mr *mr;
	uint32_t users; /* operations that refer to it */
};

/* The registered memory of a session. */
struct memory {
	pthread_mutex_t lock; /* no other lock is taken under it */
	struct registry registry;
	struct mempool_buf *handles;
	struct mempool_buf *free_first;
	struct mempool_buf *free_last;
	struct cache cache;
};

/* A hold of memory that a work request may name. All zero: none. */
struct memory_hold {
	uint32_t lkey;
	struct mempool_buf *buf;    /* either */
	struct cache_entry *cached; /* or */
};

/** memory_init() - Return: 0 or a negative errno */
int memory_init(struct memory *memory);

/** memory_deinit() - unregister all; no lane is open */
void memory_deinit(struct memory *memory);

/**
 * memory_find() - hold memory, if it is registered, or the cache registers it
 *
 * Return: true, and memory_drop() later; false if it is not registered for that domain.
 */
bool memory_find(struct memory *memory, struct ibv_pd *pd, const void *bytes, uint64_t len_bytes,
		 struct memory_hold *ret_hold);

/**
 * memory_hold() - hold a part of a buffer, without a word about it in the last error
 * @pd: the domain that it must be registered for
 *
 * Return: 0, and memory_drop() later; MEMPOOL_E_STATE (given back, or of another device) or
 * MEMPOOL_E_INVALID (of another session, or not within it).
 */
int memory_hold(struct memory *memory, struct ibv_pd *pd, struct mempool_buf *buf,
		const void *bytes, uint64_t len_bytes, struct memory_hold *ret_hold);

/** memory_drop() - none is allowed */
void memory_drop(struct memory *memory, struct memory_hold *hold);

#endif
