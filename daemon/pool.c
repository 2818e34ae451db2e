/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The pool's mapping and the way of its bytes back to free: given back (dirty), zeroed by
 * the scrubber in chunks, free. One extent is scrubbed at a time, in order of return, so
 * that a large one delays others by one chunk at most per job but never overtakes.
 *
 * The mapping is a memfd, prefaulted before it is registered and never touched by fork,
 * madvise or a hole afterwards.
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
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "common/checked.h"
#include "common/units.h"
#include "daemon/service.h"
#include "daemon/zero.h"

#define POOL_POPULATE_STEP_BYTES (UINT64_C(256) << 20)

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

/* In steps: a shortage comes back as an error here, never as SIGBUS later. */
static int pool_populate(uint8_t *memory, uint64_t len_bytes)
{
	for (uint64_t done = 0; done < len_bytes; done += POOL_POPULATE_STEP_BYTES) {
		uint64_t left = len_bytes - done;
		uint64_t step = left < POOL_POPULATE_STEP_BYTES ? left : POOL_POPULATE_STEP_BYTES;

		service_progress("getting memory for the pool", done, len_bytes,
				 service_bytes_ms(step));
		if (madvise(memory + done, step, MADV_POPULATE_WRITE) < 0)
			return errno == EFAULT ? -ENOMEM : -errno;
	}
	return 0;
}

static void pool_scrub_run(struct worker_job *job)
{
	struct pool *pool = (struct pool *)((char *)job - offsetof(struct pool, job));

	zero_pages(pool->memory + pool->scrub_offset_bytes, pool->scrub_len_bytes);
}

/* In the place of a chunk: the way back to free is the same, without the work. */
static void pool_skip_run(struct worker_job *job)
{
	(void)job;
}

static void pool_scrub_next(struct pool *pool)
{
	struct pool_return *back = TAILQ_FIRST(&pool->returns);
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
	worker_submit(pool->scrubber, &pool->job);
}

static void pool_scrub_done(struct worker_job *job)
{
	struct pool *pool = (struct pool *)((char *)job - offsetof(struct pool, job));
	struct pool_return *back = TAILQ_FIRST(&pool->returns);

	pool->scrub_done_bytes += pool->scrub_len_bytes;
	if (pool->scrub_done_bytes < extent_len_bytes(back->extent)) {
		pool_scrub_next(pool);
		return;
	}
	TAILQ_REMOVE(&pool->returns, back, link);
	extent_clean(pool->extents, back->extent);
	back->extent = NULL;
	back->cleaned(back);
	pool_scrub_next(pool);
	if (pool->on_clean != NULL)
		pool->on_clean(pool->on_clean_context);
}

int pool_init(struct pool *pool, uint64_t len_bytes, uint64_t chunk_bytes, struct worker *scrubber)
{
	uint64_t page_bytes = (uint64_t)sysconf(_SC_PAGESIZE);
	struct extent_map *extents;
	void *memory;
	int fd;
	int r;

	/* Whole pages are zeroed at a time. */
	if (!checked_round_up(chunk_bytes, page_bytes, &chunk_bytes))
		chunk_bytes = len_bytes;
	r = extent_map_new(len_bytes, page_bytes, &extents);
	if (r < 0)
		return r;
	fd = memfd_create("mempool", MFD_CLOEXEC);
	if (fd < 0) {
		r = -errno;
		goto err_free_map;
	}
	if (ftruncate(fd, (off_t)len_bytes) < 0) {
		r = -errno;
		goto err_close;
	}
	memory = mmap(NULL, len_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (memory == MAP_FAILED) {
		r = -errno;
		goto err_close;
	}
	r = pool_populate(memory, len_bytes);
	if (r < 0)
		goto err_unmap;
	if (madvise(memory, len_bytes, MADV_DONTDUMP) < 0) {
		r = -errno;
		goto err_unmap;
	}
	*pool = (struct pool){
		.memory = memory,
		.len_bytes = len_bytes,
		.page_bytes = page_bytes,
		.fd = fd,
		.extents = extents,
		.scrubber = scrubber,
		.chunk_bytes = chunk_bytes,
		.job = {.done = pool_scrub_done},
	};
	TAILQ_INIT(&pool->returns);
	return 0;

err_unmap:
	munmap(memory, len_bytes);
err_close:
	close(fd);
err_free_map:
	extent_map_free(extents);
	return r;
}

void pool_deinit(struct pool *pool)
{
	if (pool->memory == NULL)
		return;
	assert(TAILQ_EMPTY(&pool->returns));
	munmap(pool->memory, pool->len_bytes);
	close(pool->fd);
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
