/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef DAEMON_POOL_H
#define DAEMON_POOL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/queue.h>

#include "daemon/damage.h"
#include "daemon/extent.h"
#include "daemon/mapping.h"
#include "daemon/worker.h"

/*
 * The memory that is lent: one mapping, cut into extents, scrubbed by a worker before it is
 * lent again.
 */

#define POOL_DAMAGES_MAX 256
#define POOL_SCRUB_BAD	 16 /* ranges found at once; further ones are taken together */

/* An extent on its way back; embedded in its lease. */
struct pool_return {
	TAILQ_ENTRY(pool_return) link;
	struct extent *extent;
	void (*cleaned)(struct pool_return *back); /* the extent is free again */
};

struct pool {
	struct mapping mapping;
	uint8_t *memory; /* of the mapping */
	uint64_t len_bytes;
	uint64_t page_bytes; /* leases are cut in multiples of it, whatever the mapping's pages */
	struct extent_map *extents;
	struct worker *scrubber;
	uint64_t chunk_bytes;
	struct worker_job job; /* the chunk that is being zeroed */
	uint64_t scrub_offset_bytes;
	uint64_t scrub_len_bytes;
	uint64_t scrub_done_bytes;		 /* of the extent at the head of the queue */
	struct damage scrub_bad[POOL_SCRUB_BAD]; /* what a chunk has met; addresses */
	size_t scrub_bad_count;
	struct damage damages[POOL_DAMAGES_MAX]; /* all that is known; offsets in the pool */
	size_t damage_count;
	TAILQ_HEAD(pool_returns, pool_return) returns;
	bool discard;			 /* nothing is lent any more: do not zero */
	void (*on_clean)(void *context); /* bytes have become free */
	/* Damage was found, and noted, while scrubbing. */
	void (*on_damage)(void *context, uint64_t offset_bytes, uint64_t len_bytes);
	void *on_clean_context; /* of both */
};

/* What the daemon wants to lock, in parts. */
struct pool_memlock {
	uint64_t pool_bytes;
	uint64_t guard_bytes; /* guarded mode: the same pages again */
	uint64_t control_bytes;
	uint64_t limit_bytes; /* UINT64_MAX: none */
};

/** pool_memlock_limit() - this process's limit; UINT64_MAX if it may lock without one */
uint64_t pool_memlock_limit(void);

/**
 * pool_memlock_check() - is the limit enough?
 * @text: 512 bytes; on failure one line with what is needed, in parts, what is allowed, and the remedy
 *
 * Return: 0 or -ENOMEM.
 */
int pool_memlock_check(const struct pool_memlock *need, char *text);

/**
 * pool_init() - get the memory, all of it
 * @chunk_bytes: zeroed per job; rounded up to whole pages
 * @scrubber: for zeroing; outlives the pool
 * @error: MAPPING_ERROR_MAX bytes; on failure one line with what is missing and the remedy
 *
 * Return: 0 or a negative errno, as mapping_open().
 */
int pool_init(struct pool *pool, const struct mapping_request *request, uint64_t chunk_bytes,
	      struct worker *scrubber, char *error);

/** pool_deinit() - no extent may be on its way back; all zero is allowed */
void pool_deinit(struct pool *pool);

/**
 * pool_give_back() - scrub an extent, then free it
 * @back: embedded in the owner; cleaned() is called from the loop when the bytes are zero
 *
 * Only behind the fence: no device can reach the bytes any more.
 */
void pool_give_back(struct pool *pool, struct pool_return *back);

/**
 * pool_discard() - nothing will be lent any more: what is given back need not be zeroed
 *
 * The memory goes back to the kernel, which zeroes it before anybody else sees it.
 */
void pool_discard(struct pool *pool);

/** pool_is_damaged() - has a range a page that is known to be broken? */
bool pool_is_damaged(const struct pool *pool, uint64_t offset_bytes, uint64_t len_bytes);

/**
 * pool_damage() - a range of the pool is broken: it is never lent again
 *
 * What of it is free goes out of use now, all else when it would become free. It is not zeroed,
 * nor touched at all.
 */
void pool_damage(struct pool *pool, uint64_t offset_bytes, uint64_t len_bytes);

#endif
