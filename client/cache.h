/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef CLIENT_CACHE_H
#define CLIENT_CACHE_H

#include <infiniband/verbs.h>
#include <pthread.h>
#include <stdint.h>

#include "client/include/mempool.h"
#include "client/registry.h"

/* Memory of the application's that is registered although nobody said so. */
struct cache_entry {
	struct cache_entry *next; /* used longer ago */
	struct cache_entry *prev;
	uint64_t start;
	uint64_t len_bytes;
	struct ibv_mr *mr;
	uint32_t users;
};

/* All zero but for the lock: off. */
struct cache {
	pthread_mutex_t lock; /* held while memory is registered; no other lock is taken under it */
	struct mempool_cache_opts limits;
	struct registry registry;
	struct cache_entry *newest;
	struct cache_entry *oldest;
	struct mempool_cache_stats stats;
};

/** cache_init() - Return: 0 or a negative errno */
int cache_init(struct cache *cache);

/** cache_deinit() - nothing is in use */
void cache_deinit(struct cache *cache);

/** cache_limit() - what is beyond the new limits and not in use goes at once */
void cache_limit(struct cache *cache, const struct mempool_cache_opts *limits);

/**
 * cache_get() - have memory registered; may block
 *
 * Return: for cache_put(); NULL if it is to be done without.
 */
struct cache_entry *cache_get(struct cache *cache, struct ibv_pd *pd, uint64_t start,
			      uint64_t len_bytes);
void cache_put(struct cache *cache, struct cache_entry *entry);

/**
 * cache_forget() - what has a part of a range goes
 *
 * Return: 0, -EBUSY (some of it is in use, and stays), or another negative errno (some of it could
 * not be unregistered; the cache does not have it any more, but the device does).
 */
int cache_forget(struct cache *cache, uint64_t start, uint64_t len_bytes);

/** cache_read_stats() - a copy */
void cache_read_stats(struct cache *cache, struct mempool_cache_stats *ret_stats);

#endif
