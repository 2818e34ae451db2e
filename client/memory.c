/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Buffers: memory that is registered once and then used without a copy. Owns what it has
 * mapped; of the application's memory it owns nothing but the registration.
 *
 * Invariants: buffers do not overlap. One that an operation refers to is not given back. A
 * handle lives until the session is closed, so that one given back is told from one in use.
 *
 * Thread: any. Registering may block, and is done without the lock.
 */
#include "client/memory.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "client/error.h"
#include "client/guard.h"
#include "client/pool.h"
#include "common/checked.h"
#include "common/verbs.h"
#include "proto/error.h"

/* Whatever size of huge pages is the default. */
#define MEMORY_HUGE_SHIFT 21
#define MEMORY_HUGE_BYTES (UINT64_C(1) << MEMORY_HUGE_SHIFT)
#define MEMORY_HUGE_FLAGS (MAP_HUGETLB | (MEMORY_HUGE_SHIFT << MAP_HUGE_SHIFT))

int memory_init(struct memory *memory)
{
	int r;

	*memory = (struct memory){0};
	r = -pthread_mutex_init(&memory->lock, NULL);
	if (r < 0)
		return r;
	r = cache_init(&memory->cache);
	if (r < 0)
		(void)pthread_mutex_destroy(&memory->lock);
	return r;
}

/* Return: 0, or a negative errno: still registered, and mapped then. */
static int memory_undo(struct mempool_buf *buf)
{
	int r = verbs_dereg_mr(buf->mr);

	if (r == 0 && buf->mapped_bytes > 0)
		(void)munmap(buf->bytes, buf->mapped_bytes);
	return r;
}

void memory_deinit(struct memory *memory)
{
	while (memory->handles != NULL) {
		struct mempool_buf *buf = memory->handles;

		memory->handles = buf->next;
		if (buf->live)
			(void)memory_undo(buf);
		free(buf);
	}
	registry_deinit(&memory->registry);
	cache_deinit(&memory->cache);
	(void)pthread_mutex_destroy(&memory->lock);
}

/* Use. */

bool memory_find(struct memory *memory, struct ibv_pd *pd, const void *bytes, uint64_t len_bytes,
		 struct memory_hold *ret_hold)
{
	uint64_t start = (uintptr_t)bytes;
	struct cache_entry *cached;
	struct mempool_buf *buf;

	(void)pthread_mutex_lock(&memory->lock);
	buf = registry_find(&memory->registry, start, len_bytes);
	if (buf != NULL && buf->mr->pd != pd)
		buf = NULL;
	if (buf != NULL) {
		buf->users++;
		*ret_hold = (struct memory_hold){.lkey = buf->mr->lkey, .buf = buf};
	}
	(void)pthread_mutex_unlock(&memory->lock);
	if (buf != NULL)
		return true;
	cached = cache_get(&memory->cache, pd, start, len_bytes);
	if (cached != NULL)
		*ret_hold = (struct memory_hold){.lkey = cached->mr->lkey, .cached = cached};
	return cached != NULL;
}

static int memory_check(const struct mempool_buf *buf, const struct ibv_pd *pd, const void *bytes,
			uint64_t len_bytes)
{
	uintptr_t start = (uintptr_t)bytes;

	if (!buf->live || buf->mr->pd != pd)
		return MEMPOOL_E_STATE;
	if (start < (uintptr_t)buf->bytes ||
	    !checked_within(start - (uintptr_t)buf->bytes, len_bytes, buf->len_bytes))
		return MEMPOOL_E_INVALID;
	return 0;
}

int memory_hold(struct memory *memory, struct ibv_pd *pd, struct mempool_buf *buf,
		const void *bytes, uint64_t len_bytes, struct memory_hold *ret_hold)
{
	int r;

	if (&buf->pool->memory != memory)
		return MEMPOOL_E_INVALID;
	(void)pthread_mutex_lock(&memory->lock);
	r = memory_check(buf, pd, bytes, len_bytes);
	if (r == 0) {
		buf->users++;
		*ret_hold = (struct memory_hold){.lkey = buf->mr->lkey, .buf = buf};
	}
	(void)pthread_mutex_unlock(&memory->lock);
	return r;
}

void memory_drop(struct memory *memory, struct memory_hold *hold)
{
	if (hold->buf != NULL) {
		(void)pthread_mutex_lock(&memory->lock);
		hold->buf->users--;
		(void)pthread_mutex_unlock(&memory->lock);
	}
	if (hold->cached != NULL)
		cache_put(&memory->cache, hold->cached);
	*hold = (struct memory_hold){0};
}

/* Making and giving back. */

/* Lock held. A handle that is not live, in no list of free ones. */
static struct mempool_buf *memory_take_handle(struct mempool *pool)
{
	struct memory *memory = &pool->memory;
	struct mempool_buf *buf = memory->free_first;

	if (buf != NULL) {
		memory->free_first = buf->next_free;
		if (memory->free_first == NULL)
			memory->free_last = NULL;
		buf->next_free = NULL;
		return buf;
	}
	buf = calloc(1, sizeof(*buf));
	if (buf == NULL)
		return NULL;
	buf->pool = pool;
	buf->next = memory->handles;
	memory->handles = buf;
	return buf;
}

/* Lock held. */
static void memory_give_handle(struct memory *memory, struct mempool_buf *buf)
{
	if (memory->free_last != NULL)
		memory->free_last->next_free = buf;
	else
		memory->free_first = buf;
	memory->free_last = buf;
}

/* Lock held. Return: 0 or a negative errno. */
static int memory_enter(struct mempool *pool, const struct mempool_buf *made,
			struct mempool_buf **ret_buf)
{
	struct memory *memory = &pool->memory;
	struct mempool_buf *buf = memory_take_handle(pool);
	int r;

	if (buf == NULL)
		return -ENOMEM;
	r = registry_insert(&memory->registry, (uintptr_t)made->bytes, made->len_bytes, buf);
	if (r < 0) {
		memory_give_handle(memory, buf);
		return r;
	}
	buf->bytes = made->bytes;
	buf->len_bytes = made->len_bytes;
	buf->mapped_bytes = made->mapped_bytes;
	buf->mr = made->mr;
	buf->users = 0;
	buf->live = true;
	*ret_buf = buf;
	return 0;
}

/* Registers what @made says, but for the handle, and enters it. */
static int memory_register(struct mempool *pool, struct mempool_buf *made, mempool_buf **ret_buf)
{
	struct mempool_buf *buf = NULL;
	struct ibv_pd *pd;
	int r;

	(void)pthread_mutex_lock(&pool->lock);
	pd = pool_current_pd(pool);
	(void)pthread_mutex_unlock(&pool->lock);
	if (pd == NULL)
		return client_error_raise(MEMPOOL_E_STATE, "the session has no device");
	r = verbs_reg_mr(pd, made->bytes, made->len_bytes, IBV_ACCESS_LOCAL_WRITE, &made->mr);
	if (r < 0)
		return client_error_raise(client_error_errno(r), "cannot register %zu bytes: %s%s",
					  made->len_bytes, strerrordesc_np(-r),
					  r == -ENOMEM ? "; more than may be locked (ulimit -l)?"
						       : "");
	(void)pthread_mutex_lock(&pool->memory.lock);
	r = memory_enter(pool, made, &buf);
	(void)pthread_mutex_unlock(&pool->memory.lock);
	if (r == 0) {
		*ret_buf = buf;
		return 0;
	}
	(void)verbs_dereg_mr(made->mr);
	if (r == -EEXIST)
		return client_error_raise(MEMPOOL_E_STATE,
					  "a part of that memory is a buffer already");
	return client_error_raise(client_error_errno(r), "%s", strerrordesc_np(-r));
}

static void *memory_map(size_t len_bytes, int flags)
{
	void *bytes = mmap(NULL, len_bytes, PROT_READ | PROT_WRITE,
			   MAP_PRIVATE | MAP_ANONYMOUS | flags, -1, 0);

	return bytes == MAP_FAILED ? NULL : bytes;
}

static int memory_map_buf(struct mempool_buf *made, uint32_t flags)
{
	bool huge = (flags & MEMPOOL_BUF_HUGE) != 0;
	uint64_t page_bytes = huge ? MEMORY_HUGE_BYTES : (uint64_t)sysconf(_SC_PAGESIZE);
	uint64_t mapped_bytes;

	if (!checked_round_up(made->len_bytes, page_bytes, &mapped_bytes))
		return client_error_raise(MEMPOOL_E_NO_MEMORY, "not enough memory");
	made->mapped_bytes = mapped_bytes;
	if (huge)
		made->bytes = memory_map(mapped_bytes, MEMORY_HUGE_FLAGS);
	if (made->bytes == NULL && (flags & MEMPOOL_BUF_HUGE_ONLY) != 0)
		return client_error_raise(MEMPOOL_E_NO_MEMORY, "not enough huge pages of 2 MiB");
	if (made->bytes == NULL)
		made->bytes = memory_map(mapped_bytes, 0);
	if (made->bytes == NULL)
		return client_error_raise(MEMPOOL_E_NO_MEMORY, "cannot map %zu bytes: %s",
					  made->len_bytes, strerrordesc_np(errno));
	/* A device that writes here must go on to meet our pages, not the copy of a child. */
	(void)madvise(made->bytes, mapped_bytes, MADV_DONTFORK);
	/* Transparent ones may do as well; that there are none is no error. */
	if (huge)
		(void)madvise(made->bytes, mapped_bytes, MADV_HUGEPAGE);
	return 0;
}

int mempool_buf_alloc(mempool *pool, size_t len_bytes, uint32_t flags, mempool_buf **ret_buf)
{
	struct mempool_buf made = {.len_bytes = len_bytes};
	int r = guard_call();

	if (r < 0)
		return r;
	if (pool == NULL || ret_buf == NULL || len_bytes == 0 ||
	    (flags & ~(MEMPOOL_BUF_HUGE | MEMPOOL_BUF_HUGE_ONLY)) != 0 ||
	    flags == MEMPOOL_BUF_HUGE_ONLY)
		return client_error_raise(MEMPOOL_E_INVALID, "an argument is not valid");
	r = memory_map_buf(&made, flags);
	if (r < 0)
		return r;
	r = memory_register(pool, &made, ret_buf);
	if (r < 0)
		(void)munmap(made.bytes, made.mapped_bytes);
	return r;
}

int mempool_buf_register(mempool *pool, void *bytes, size_t len_bytes, mempool_buf **ret_buf)
{
	struct mempool_buf made = {.bytes = bytes, .len_bytes = len_bytes};
	uint64_t last;
	int r = guard_call();

	if (r < 0)
		return r;
	if (pool == NULL || ret_buf == NULL || bytes == NULL || len_bytes == 0 ||
	    !checked_add((uintptr_t)bytes, len_bytes - 1, &last))
		return client_error_raise(MEMPOOL_E_INVALID, "an argument is not valid");
	return memory_register(pool, &made, ret_buf);
}

static int memory_stays(int r)
{
	return client_error_raise(MEMPOOL_E_SYSTEM, "the memory could not be unregistered: %s",
				  strerrordesc_np(-r));
}

/* Lock held. */
static int memory_check_free(const struct mempool_buf *buf)
{
	if (!buf->live)
		return client_error_raise(MEMPOOL_E_STATE, "the buffer has been given back");
	if (buf->users > 0)
		return client_error_raise(MEMPOOL_E_BUSY, "%" PRIu32 " operations use the buffer",
					  buf->users);
	return 0;
}

/*
 * What a lane on another device than the buffer's has used of it, the cache has registered.
 * Return: 0, or a code; MEMPOOL_E_SYSTEM: the device has some of it for good.
 */
static int memory_uncache(struct mempool_buf *buf)
{
	struct memory *memory = &buf->pool->memory;
	uint64_t len_bytes;
	uint8_t *bytes;
	int r;

	(void)pthread_mutex_lock(&memory->lock);
	r = memory_check_free(buf);
	bytes = buf->bytes;
	len_bytes = buf->mapped_bytes > 0 ? buf->mapped_bytes : buf->len_bytes;
	(void)pthread_mutex_unlock(&memory->lock);
	if (r < 0)
		return r;
	r = cache_forget(&memory->cache, (uintptr_t)bytes, len_bytes);
	if (r == -EBUSY)
		return client_error_raise(MEMPOOL_E_BUSY, "a transfer uses the buffer");
	return r < 0 ? memory_stays(r) : 0;
}

/* Lock held. What is to be undone comes into @ret_was. */
static int memory_leave(struct mempool_buf *buf, struct mempool_buf *ret_was)
{
	int r = memory_check_free(buf);

	if (r < 0)
		return r;
	*ret_was = *buf;
	buf->live = false;
	registry_remove(&buf->pool->memory.registry, (uintptr_t)buf->bytes);
	return 0;
}

int mempool_buf_free(mempool_buf *buf)
{
	struct mempool_buf was = {0};
	struct memory *memory;
	int kept;
	int r = guard_call();

	if (r < 0)
		return r;
	if (buf == NULL)
		return 0;
	memory = &buf->pool->memory;
	kept = memory_uncache(buf);
	if (kept < 0 && kept != MEMPOOL_E_SYSTEM)
		return kept;
	(void)pthread_mutex_lock(&memory->lock);
	r = memory_leave(buf, &was);
	(void)pthread_mutex_unlock(&memory->lock);
	if (r < 0)
		return r;
	if (kept < 0)
		was.mapped_bytes = 0;
	r = memory_undo(&was);
	(void)pthread_mutex_lock(&memory->lock);
	memory_give_handle(memory, buf);
	(void)pthread_mutex_unlock(&memory->lock);
	return r < 0 ? memory_stays(r) : kept;
}

void *mempool_buf_bytes(mempool_buf *buf)
{
	void *bytes = NULL;

	if (buf == NULL || guard_look() < 0)
		return NULL;
	(void)pthread_mutex_lock(&buf->pool->memory.lock);
	if (buf->live)
		bytes = buf->bytes;
	(void)pthread_mutex_unlock(&buf->pool->memory.lock);
	return bytes;
}

size_t mempool_buf_length(mempool_buf *buf)
{
	size_t len_bytes = 0;

	if (buf == NULL || guard_look() < 0)
		return 0;
	(void)pthread_mutex_lock(&buf->pool->memory.lock);
	if (buf->live)
		len_bytes = buf->len_bytes;
	(void)pthread_mutex_unlock(&buf->pool->memory.lock);
	return len_bytes;
}

/* The cache. */

int mempool_cache_limit(mempool *pool, const struct mempool_cache_opts *opts)
{
	int r = guard_call();

	if (r < 0)
		return r;
	if (pool == NULL || !pool_options_known(opts, sizeof(*opts)) || opts->reserved != 0)
		return client_error_raise(MEMPOOL_E_INVALID, "an argument is not valid");
	cache_limit(&pool->memory.cache, opts);
	return 0;
}

int mempool_cache_forget(mempool *pool, const void *bytes, size_t len_bytes)
{
	int r = guard_call();

	if (r < 0)
		return r;
	if (pool == NULL || bytes == NULL)
		return client_error_raise(MEMPOOL_E_INVALID, "an argument is not valid");
	r = cache_forget(&pool->memory.cache, (uintptr_t)bytes, len_bytes);
	if (r == -EBUSY)
		return client_error_raise(MEMPOOL_E_BUSY, "a transfer uses that memory");
	return r < 0 ? memory_stays(r) : 0;
}

int mempool_cache_stats(mempool *pool, struct mempool_cache_stats *ret_stats)
{
	struct mempool_cache_stats stats;
	int r = guard_call();

	if (r < 0)
		return r;
	if (pool == NULL || ret_stats == NULL || ret_stats->size < sizeof(*ret_stats))
		return client_error_raise(MEMPOOL_E_INVALID, "an argument is not valid");
	cache_read_stats(&pool->memory.cache, &stats);
	stats.size = ret_stats->size;
	*ret_stats = stats;
	return 0;
}
