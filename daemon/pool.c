/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The pool's extents and the way of its bytes back to free: given back (dirty), zeroed by
 * the scrubber in chunks, free. One extent is scrubbed at a time, in order of return, so
 * that a large one delays others by one chunk at most per job but never overtakes.
 *
 * Thread: the loop; only pool_scrub_run() runs on the scrubber and touches nothing but the
 * bytes of its chunk, which nobody else can reach.
 */
#include "daemon/pool.h"

#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <linux/capability.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "common/checked.h"
#include "common/units.h"
#include "daemon/zero.h"

static bool pool_has_ipc_lock(void)
{
	struct __user_cap_header_struct header = {.version = _LINUX_CAPABILITY_VERSION_3};
	struct __user_cap_data_struct data[2] = {{0}};

	if (syscall(SYS_capget, &header, data) < 0)
		return false;
	return (data[CAP_IPC_LOCK / 32].effective >> (CAP_IPC_LOCK % 32) & 1) != 0;
}

uint64_t pool_memlock_limit(void)
{
	struct rlimit limit;

	if (pool_has_ipc_lock() || getrlimit(RLIMIT_MEMLOCK, &limit) < 0 ||
	    limit.rlim_cur == RLIM_INFINITY)
		return UINT64_MAX;
	return limit.rlim_cur;
}

int pool_memlock_check(const struct pool_memlock *need, char *text)
{
	char pool[UNITS_TEXT_MAX], guard[UNITS_TEXT_MAX], control[UNITS_TEXT_MAX];
	char sum[UNITS_TEXT_MAX], limit[UNITS_TEXT_MAX];
	uint64_t total;

	if (!checked_add(need->pool_bytes, need->guard_bytes, &total) ||
	    !checked_add(total, need->control_bytes, &total))
		total = UINT64_MAX;
	if (total <= need->limit_bytes)
		return 0;
	snprintf(text, 512,
		 "not enough lockable memory: %s needed (pool %s, guard registrations %s, control "
		 "buffers %s), %s allowed; raise LimitMEMLOCK= of the service or 'ulimit -l'",
		 units_format_size(total, sum), units_format_size(need->pool_bytes, pool),
		 units_format_size(need->guard_bytes, guard),
		 units_format_size(need->control_bytes, control),
		 units_format_size(need->limit_bytes, limit));
	return -ENOMEM;
}

static void pool_scrub_run(struct worker_job *job)
{
	struct pool *pool = (struct pool *)((char *)job - offsetof(struct pool, job));

	pool->scrub_bad_count = damage_zero(pool->memory + pool->scrub_offset_bytes,
					    pool->scrub_len_bytes, pool->scrub_bad, POOL_SCRUB_BAD);
}

/* In the place of a chunk: the way back to free is the same, without the work. */
static void pool_skip_run(struct worker_job *job)
{
	struct pool *pool = (struct pool *)((char *)job - offsetof(struct pool, job));

	pool->scrub_bad_count = 0;
}

/* Bytes from an offset on that are not known to be damaged; 0: those there are. */
static uint64_t pool_sound_bytes(const struct pool *pool, uint64_t offset_bytes,
				 uint64_t most_bytes)
{
	for (size_t i = 0; i < pool->damage_count; i++) {
		const struct damage *bad = &pool->damages[i];

		if (bad->addr + bad->len_bytes <= offset_bytes)
			continue;
		if (bad->addr <= offset_bytes)
			return 0;
		if (bad->addr - offset_bytes < most_bytes)
			most_bytes = bad->addr - offset_bytes;
	}
	return most_bytes;
}

static void pool_scrub_next(struct pool *pool)
{
	struct pool_return *back = TAILQ_FIRST(&pool->returns);
	uint64_t sound_bytes;
	uint64_t left;

	if (back == NULL || pool->job.submitted)
		return;
	if (extent_state(back->extent) == EXTENT_DIRTY) {
		extent_set_state(pool->extents, back->extent, EXTENT_SCRUBBING);
		pool->scrub_done_bytes = 0;
	}
	left = extent_len_bytes(back->extent) - pool->scrub_done_bytes;
	pool->scrub_offset_bytes = extent_offset_bytes(back->extent) + pool->scrub_done_bytes;
	pool->scrub_len_bytes =
		left < pool->chunk_bytes || pool->discard ? left : pool->chunk_bytes;
	pool->job.run = pool->discard ? pool_skip_run : pool_scrub_run;
	if (!pool->discard && pool->damage_count > 0) {
		sound_bytes =
			pool_sound_bytes(pool, pool->scrub_offset_bytes, pool->scrub_len_bytes);
		pool->scrub_len_bytes = sound_bytes > 0 ? sound_bytes : pool->page_bytes;
		pool->job.run = sound_bytes > 0 ? pool_scrub_run : pool_skip_run;
	}
	worker_submit(pool->scrubber, &pool->job);
}

/* Not lent before this, but other leases may share a large page that is broken. */
static void pool_take_bad(struct pool *pool)
{
	for (size_t i = 0; i < pool->scrub_bad_count; i++) {
		uint64_t offset_bytes = pool->scrub_bad[i].addr - (uint64_t)(uintptr_t)pool->memory;

		pool_damage(pool, offset_bytes, pool->scrub_bad[i].len_bytes);
		if (pool->on_damage != NULL)
			pool->on_damage(pool->on_clean_context, offset_bytes,
					pool->scrub_bad[i].len_bytes);
	}
	pool->scrub_bad_count = 0;
}

static void pool_retire(struct pool *pool)
{
	for (size_t i = 0; i < pool->damage_count; i++)
		(void)extent_retire(pool->extents, pool->damages[i].addr,
				    pool->damages[i].len_bytes);
}

static void pool_scrub_done(struct worker_job *job)
{
	struct pool *pool = (struct pool *)((char *)job - offsetof(struct pool, job));
	struct pool_return *back = TAILQ_FIRST(&pool->returns);

	pool_take_bad(pool);
	pool->scrub_done_bytes += pool->scrub_len_bytes;
	if (pool->scrub_done_bytes < extent_len_bytes(back->extent)) {
		pool_scrub_next(pool);
		return;
	}
	TAILQ_REMOVE(&pool->returns, back, link);
	extent_clean(pool->extents, back->extent);
	pool_retire(pool);
	back->extent = NULL;
	back->cleaned(back);
	pool_scrub_next(pool);
	if (pool->on_clean != NULL)
		pool->on_clean(pool->on_clean_context);
}

/* Without room for one more the last grows, and what is sound in between is lost, too. */
static void pool_note(struct pool *pool, uint64_t begin, uint64_t end)
{
	struct damage *last = &pool->damages[POOL_DAMAGES_MAX - 1];
	uint64_t last_end = last->addr + last->len_bytes;

	if (pool->damage_count < POOL_DAMAGES_MAX) {
		pool->damages[pool->damage_count++] =
			(struct damage){.addr = begin, .len_bytes = end - begin};
		return;
	}
	last->addr = begin < last->addr ? begin : last->addr;
	last->len_bytes = (end > last_end ? end : last_end) - last->addr;
}

static bool pool_knows(const struct pool *pool, uint64_t begin, uint64_t end)
{
	for (size_t i = 0; i < pool->damage_count; i++) {
		const struct damage *bad = &pool->damages[i];

		if (bad->addr <= begin && bad->addr + bad->len_bytes >= end)
			return true;
	}
	return false;
}

bool pool_is_damaged(const struct pool *pool, uint64_t offset_bytes, uint64_t len_bytes)
{
	for (size_t i = 0; i < pool->damage_count; i++) {
		const struct damage *bad = &pool->damages[i];

		if (bad->addr < offset_bytes + len_bytes &&
		    bad->addr + bad->len_bytes > offset_bytes)
			return true;
	}
	return false;
}

void pool_damage(struct pool *pool, uint64_t offset_bytes, uint64_t len_bytes)
{
	uint64_t begin = offset_bytes & ~(pool->page_bytes - 1);
	uint64_t end;

	if (!checked_add(offset_bytes, len_bytes, &end) ||
	    !checked_round_up(end, pool->page_bytes, &end) || end > pool->len_bytes)
		end = pool->len_bytes;
	if (begin >= end)
		return;
	if (!pool_knows(pool, begin, end))
		pool_note(pool, begin, end);
	(void)extent_retire(pool->extents, begin, end - begin);
}

static int pool_map(const struct mapping_request *request, struct extent_map **ret_extents,
		    struct mapping *ret_mapping, char *error)
{
	char size[UNITS_TEXT_MAX];
	int r;

	r = extent_map_new(request->len_bytes, (uint64_t)sysconf(_SC_PAGESIZE), ret_extents);
	if (r < 0) {
		snprintf(error, MAPPING_ERROR_MAX, "cannot get %s of memory for the pool: %s",
			 units_format_size(request->len_bytes, size), strerror(-r));
		return r;
	}
	r = mapping_open(request, ret_mapping, error);
	if (r < 0)
		*ret_extents = extent_map_free(*ret_extents);
	return r;
}

int pool_init(struct pool *pool, const struct mapping_request *request, uint64_t chunk_bytes,
	      struct worker *scrubber, char *error)
{
	uint64_t page_bytes = (uint64_t)sysconf(_SC_PAGESIZE);
	struct extent_map *extents;
	struct mapping mapping;
	int r;

	r = pool_map(request, &extents, &mapping, error);
	if (r < 0)
		return r;
	/* Whole pages are zeroed at a time. */
	if (!checked_round_up(chunk_bytes, page_bytes, &chunk_bytes))
		chunk_bytes = request->len_bytes;
	*pool = (struct pool){
		.mapping = mapping,
		.memory = mapping.memory,
		.len_bytes = mapping.len_bytes,
		.page_bytes = page_bytes,
		.extents = extents,
		.scrubber = scrubber,
		.chunk_bytes = chunk_bytes,
		.job = {.done = pool_scrub_done},
	};
	TAILQ_INIT(&pool->returns);
	return 0;
}

void pool_deinit(struct pool *pool)
{
	if (pool->memory == NULL)
		return;
	assert(TAILQ_EMPTY(&pool->returns));
	mapping_close(&pool->mapping);
	pool->extents = extent_map_free(pool->extents);
	pool->memory = NULL;
}

void pool_give_back(struct pool *pool, struct pool_return *back)
{
	assert(extent_state(back->extent) == EXTENT_LEASED);
	extent_set_state(pool->extents, back->extent, EXTENT_DIRTY);
	TAILQ_INSERT_TAIL(&pool->returns, back, link);
	pool_scrub_next(pool);
}

void pool_discard(struct pool *pool)
{
	pool->discard = true;
}
