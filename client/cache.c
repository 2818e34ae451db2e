/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The registration cache: memory that calls were given is registered at its first use and
 * stays so until there is no room for it. Whoever turns it on promises to say when memory is
 * unmapped; what the library cannot know it does not guess.
 *
 * Invariants: ranges do not overlap; what is in use stays. Neither bytes nor entries are
 * beyond their limits, except while what is in use does not fit new ones.
 *
 * Thread: any; the lock is the object's own.
 */
#include "client/cache.h"

#include <errno.h>
#include <stdlib.h>

#include "common/verbs.h"

int cache_init(struct cache *cache)
{
	*cache = (struct cache){0};
	return -pthread_mutex_init(&cache->lock, NULL);
}

static void cache_unlink(struct cache *cache, struct cache_entry *entry)
{
	if (entry->prev != NULL)
		entry->prev->next = entry->next;
	else
		cache->newest = entry->next;
	if (entry->next != NULL)
		entry->next->prev = entry->prev;
	else
		cache->oldest = entry->prev;
}

static void cache_link(struct cache *cache, struct cache_entry *entry)
{
	entry->prev = NULL;
	entry->next = cache->newest;
	if (entry->next != NULL)
		entry->next->prev = entry;
	else
		cache->oldest = entry;
	cache->newest = entry;
}

/* Return: 0 or a negative errno: what cannot be unregistered stays so until the process ends. */
static int cache_drop(struct cache *cache, struct cache_entry *entry)
{
	int r;

	registry_remove(&cache->registry, entry->start);
	cache_unlink(cache, entry);
	cache->stats.entries--;
	cache->stats.bytes -= entry->len_bytes;
	r = verbs_dereg_mr(entry->mr);
	if (r < 0)
		cache->stats.failures++;
	free(entry);
	return r;
}

/* Return: is there room for so many bytes of one entry more? */
static bool cache_has_room(const struct cache *cache, uint64_t len_bytes)
{
	return cache->stats.entries < cache->limits.entries_max &&
	       len_bytes <= cache->limits.bytes_max &&
	       cache->stats.bytes <= cache->limits.bytes_max - len_bytes;
}

static bool cache_make_room(struct cache *cache, uint64_t len_bytes)
{
	struct cache_entry *at = cache->oldest;

	if (len_bytes > cache->limits.bytes_max)
		return false;
	while (at != NULL && !cache_has_room(cache, len_bytes)) {
		struct cache_entry *newer = at->prev;

		if (at->users == 0) {
			(void)cache_drop(cache, at);
			cache->stats.evictions++;
		}
		at = newer;
	}
	return cache_has_room(cache, len_bytes);
}

/* Return: 0; -EBUSY if some of it is in use, and stays; or how unregistering some of it failed. */
static int cache_drop_range(struct cache *cache, uint64_t start, uint64_t len_bytes)
{
	struct cache_entry *entry = registry_overlap(&cache->registry, start, len_bytes);
	int first = 0;
	int r;

	while (entry != NULL && entry->users == 0) {
		r = cache_drop(cache, entry);
		if (first == 0)
			first = r;
		entry = registry_overlap(&cache->registry, start, len_bytes);
	}
	return entry == NULL ? first : -EBUSY;
}

static bool cache_is_beyond(const struct cache *cache)
{
	return cache->stats.entries > cache->limits.entries_max ||
	       cache->stats.bytes > cache->limits.bytes_max;
}

void cache_limit(struct cache *cache, const struct mempool_cache_opts *limits)
{
	struct cache_entry *at;

	(void)pthread_mutex_lock(&cache->lock);
	cache->limits = *limits;
	at = cache->oldest;
	while (at != NULL && cache_is_beyond(cache)) {
		struct cache_entry *newer = at->prev;

		if (at->users == 0)
			(void)cache_drop(cache, at);
		at = newer;
	}
	(void)pthread_mutex_unlock(&cache->lock);
}

/* Return: can there be room, if all goes that is not in use? Nothing has gone yet. */
static bool cache_may_fit(const struct cache *cache, uint64_t start, uint64_t len_bytes)
{
	uint64_t used_bytes = 0;
	uint32_t used = 0;

	for (const struct cache_entry *at = cache->newest; at != NULL; at = at->next) {
		if (at->users == 0)
			continue;
		if (start - at->start < at->len_bytes || at->start - start < len_bytes)
			return false;
		used++;
		used_bytes += at->len_bytes;
	}
	return used < cache->limits.entries_max && used_bytes <= cache->limits.bytes_max &&
	       len_bytes <= cache->limits.bytes_max - used_bytes;
}

/* Lets go of what is in the way. */
static bool cache_clear(struct cache *cache, uint64_t start, uint64_t len_bytes)
{
	return cache_drop_range(cache, start, len_bytes) != -EBUSY &&
	       cache_make_room(cache, len_bytes);
}

/*
 * Refused for memory that is only to be read, say: nothing else goes for that. If it is refused
 * since too much is locked it may be had when others have gone.
 */
static int cache_register(struct cache *cache, struct ibv_pd *pd, struct cache_entry *entry)
{
	void *bytes = (void *)(uintptr_t)entry->start;
	int r;

	if (!cache_may_fit(cache, entry->start, entry->len_bytes))
		return -ENOSPC;
	r = verbs_reg_mr(pd, bytes, entry->len_bytes, IBV_ACCESS_LOCAL_WRITE, &entry->mr);
	if (r < 0 && r != -ENOMEM)
		return r;
	if (!cache_clear(cache, entry->start, entry->len_bytes))
		return -ENOSPC;
	return r == 0 ? 0
		      : verbs_reg_mr(pd, bytes, entry->len_bytes, IBV_ACCESS_LOCAL_WRITE,
				     &entry->mr);
}

static struct cache_entry *cache_add(struct cache *cache, struct ibv_pd *pd, uint64_t start,
				     uint64_t len_bytes)
{
	struct cache_entry *entry = calloc(1, sizeof(*entry));

	if (entry == NULL)
		return NULL;
	entry->start = start;
	entry->len_bytes = len_bytes;
	if (cache_register(cache, pd, entry) < 0 ||
	    registry_insert(&cache->registry, start, len_bytes, entry) < 0)
		goto err_free;
	cache_link(cache, entry);
	cache->stats.entries++;
	cache->stats.bytes += len_bytes;
	return entry;

err_free:
	(void)verbs_dereg_mr(entry->mr);
	free(entry);
	return NULL;
}

static struct cache_entry *cache_look(struct cache *cache, struct ibv_pd *pd, uint64_t start,
				      uint64_t len_bytes)
{
	struct cache_entry *entry = registry_find(&cache->registry, start, len_bytes);

	if (entry != NULL && entry->mr->pd == pd) {
		cache->stats.hits++;
		cache_unlink(cache, entry);
		cache_link(cache, entry);
		return entry;
	}
	cache->stats.misses++;
	entry = cache_add(cache, pd, start, len_bytes);
	if (entry == NULL)
		cache->stats.failures++;
	return entry;
}

struct cache_entry *cache_get(struct cache *cache, struct ibv_pd *pd, uint64_t start,
			      uint64_t len_bytes)
{
	struct cache_entry *entry = NULL;

	(void)pthread_mutex_lock(&cache->lock);
	if (cache->limits.entries_max > 0 && len_bytes >= cache->limits.len_min_bytes)
		entry = cache_look(cache, pd, start, len_bytes);
	if (entry != NULL)
		entry->users++;
	(void)pthread_mutex_unlock(&cache->lock);
	return entry;
}

void cache_put(struct cache *cache, struct cache_entry *entry)
{
	(void)pthread_mutex_lock(&cache->lock);
	entry->users--;
	/* The limits have become lower, or the cache was turned off, since it was taken. */
	if (entry->users == 0 && cache_is_beyond(cache))
		(void)cache_drop(cache, entry);
	(void)pthread_mutex_unlock(&cache->lock);
}

int cache_forget(struct cache *cache, uint64_t start, uint64_t len_bytes)
{
	int r;

	(void)pthread_mutex_lock(&cache->lock);
	r = cache_drop_range(cache, start, len_bytes);
	(void)pthread_mutex_unlock(&cache->lock);
	return r;
}

void cache_read_stats(struct cache *cache, struct mempool_cache_stats *ret_stats)
{
	(void)pthread_mutex_lock(&cache->lock);
	*ret_stats = cache->stats;
	(void)pthread_mutex_unlock(&cache->lock);
}

void cache_deinit(struct cache *cache)
{
	while (cache->oldest != NULL)
		(void)cache_drop(cache, cache->oldest);
	registry_deinit(&cache->registry);
	(void)pthread_mutex_destroy(&cache->lock);
}
