/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * daemon/pool.c: the check of lockable memory, and the way of an extent back to free, with a
 * real loop and a real scrubber. worker_submit() is watched to see the chunks.
 */
#include "daemon/pool.h"

#include <errno.h>
#include <event2/event.h>
#include <string.h>
#include <unistd.h>

#include "tests/unit/abort.h"
#include "tests/unit/test.h"

#define MIB	   (UINT64_C(1) << 20)
#define CHUNKS_MAX 64
#define RETURNS	   4

void __real_worker_submit(struct worker *worker, struct worker_job *job);
void __wrap_worker_submit(struct worker *worker, struct worker_job *job);

TEST(pool_memlock_check__boundary)
{
	struct pool_memlock need = {.pool_bytes = 3 * MIB,
				    .guard_bytes = 2 * MIB,
				    .control_bytes = MIB,
				    .limit_bytes = 6 * MIB};
	char text[512] = "untouched";

	CHECK_INT(pool_memlock_check(&need, text), 0);
	CHECK_STR(text, "untouched");
	need.limit_bytes = 6 * MIB - 1;
	CHECK_INT(pool_memlock_check(&need, text), -ENOMEM);
	need.limit_bytes = 6 * MIB + 1;
	CHECK_INT(pool_memlock_check(&need, text), 0);
	/* Each part counts. */
	need.limit_bytes = 6 * MIB;
	need.pool_bytes++;
	CHECK_INT(pool_memlock_check(&need, text), -ENOMEM);
	need.pool_bytes--;
	need.guard_bytes++;
	CHECK_INT(pool_memlock_check(&need, text), -ENOMEM);
	need.guard_bytes--;
	need.control_bytes++;
	CHECK_INT(pool_memlock_check(&need, text), -ENOMEM);
}

TEST(pool_memlock_check__text)
{
	struct pool_memlock need = {.pool_bytes = 512 * MIB,
				    .guard_bytes = 256 * MIB,
				    .control_bytes = 16 * MIB,
				    .limit_bytes = 8 * MIB};
	char text[512];

	CHECK_INT(pool_memlock_check(&need, text), -ENOMEM);
	CHECK_STR(text, "not enough lockable memory: 784 MiB needed (pool 512 MiB, guard "
			"registrations 256 MiB, control buffers 16 MiB), 8 MiB allowed; raise "
			"LimitMEMLOCK= of the service or 'ulimit -l'");
	CHECK(strchr(text, '\n') == NULL);
}

TEST(pool_memlock_check__overflow)
{
	struct pool_memlock need = {
		.pool_bytes = UINT64_MAX, .guard_bytes = 1, .limit_bytes = UINT64_MAX - 1};
	char text[512];

	CHECK_INT(pool_memlock_check(&need, text), -ENOMEM);
	need = (struct pool_memlock){.pool_bytes = UINT64_MAX / 2,
				     .guard_bytes = UINT64_MAX / 2,
				     .control_bytes = 2,
				     .limit_bytes = UINT64_MAX - 1};
	CHECK_INT(pool_memlock_check(&need, text), -ENOMEM);
	need.control_bytes = 0;
	CHECK_INT(pool_memlock_check(&need, text), 0);
	need = (struct pool_memlock){.pool_bytes = UINT64_MAX,
				     .guard_bytes = UINT64_MAX,
				     .control_bytes = UINT64_MAX,
				     .limit_bytes = 0};
	CHECK_INT(pool_memlock_check(&need, text), -ENOMEM);
	CHECK(strlen(text) < sizeof(text) - 1);
}

TEST(pool_memlock_check__no_limit)
{
	struct pool_memlock need = {.pool_bytes = UINT64_C(1) << 46, .limit_bytes = UINT64_MAX};
	char text[512];

	CHECK_INT(pool_memlock_check(&need, text), 0);
	need = (struct pool_memlock){0};
	CHECK_INT(pool_memlock_check(&need, text), 0);
}

/* An extent on its way back, and what was seen when it had arrived. */
struct back {
	struct pool_return back; /* first, so that a return is its back */
	uint64_t offset_bytes;
	uint64_t len_bytes;
	bool was_zero;
	bool was_free;	   /* did its bytes count as free when cleaned() was called? */
	struct back *then; /* given back from within cleaned() */
};

static struct {
	struct event_base *base;
	struct worker *scrubber;
	struct pool pool;
	uint64_t page_bytes;
	uint64_t free_bytes; /* expected */
	struct back backs[RETURNS];
	struct back *cleaned[RETURNS];
	int cleaned_count;
	int awaited;
	int on_clean_count;
	int on_clean_at[RETURNS]; /* how many had been cleaned by then */
	struct {
		uint64_t offset_bytes;
		uint64_t len_bytes;
	} chunks[CHUNKS_MAX];
	int chunk_count;
	bool timed_out;
} t;

void __wrap_worker_submit(struct worker *worker, struct worker_job *job)
{
	if (job == &t.pool.job && t.chunk_count < CHUNKS_MAX) {
		t.chunks[t.chunk_count].offset_bytes = t.pool.scrub_offset_bytes;
		t.chunks[t.chunk_count].len_bytes = t.pool.scrub_len_bytes;
		t.chunk_count++;
	}
	__real_worker_submit(worker, job);
}

static struct damage found[8]; /* that damage_zero() is to meet, if the bytes are in its range */
static size_t found_count;

size_t __real_damage_zero(void *memory, size_t len_bytes, struct damage *ret_list, size_t cap);
size_t __wrap_damage_zero(void *memory, size_t len_bytes, struct damage *ret_list, size_t cap);

size_t __wrap_damage_zero(void *memory, size_t len_bytes, struct damage *ret_list, size_t cap)
{
	uint64_t begin = (uint64_t)(uintptr_t)memory;
	size_t count = 0;

	for (size_t i = 0; i < found_count; i++) {
		if (found[i].addr >= begin && found[i].addr < begin + len_bytes)
			ret_list[count++] = found[i];
	}
	(void)__real_damage_zero(memory, len_bytes, ret_list + count, cap - count);
	return count;
}

static bool is_all(const uint8_t *bytes, uint64_t len_bytes, uint8_t value)
{
	for (uint64_t i = 0; i < len_bytes; i++) {
		if (bytes[i] != value)
			return false;
	}
	return true;
}

static void on_cleaned(struct pool_return *pool_return)
{
	struct back *back = (struct back *)pool_return;
	struct extent_totals totals;

	extent_map_totals(t.pool.extents, &totals);
	back->was_zero = is_all(t.pool.memory + back->offset_bytes, back->len_bytes, 0);
	t.free_bytes += back->len_bytes;
	back->was_free = totals.free_bytes == t.free_bytes;
	t.cleaned[t.cleaned_count++] = back;
	if (back->then != NULL)
		pool_give_back(&t.pool, &back->then->back);
}

static void on_clean(void *context)
{
	if (context != &t)
		return;
	t.on_clean_at[t.on_clean_count++] = t.cleaned_count;
	if (t.cleaned_count == t.awaited)
		event_base_loopbreak(t.base);
}

static void on_timeout(evutil_socket_t fd, short what, void *arg)
{
	(void)fd;
	(void)what;
	(void)arg;
	t.timed_out = true;
	event_base_loopbreak(t.base);
}

static int init(struct pool *pool, uint64_t len_bytes, uint64_t chunk_bytes,
		struct worker *scrubber)
{
	struct mapping_request request = {.len_bytes = len_bytes, .numa_node = MAPPING_ANY_NODE};
	char error[MAPPING_ERROR_MAX];

	return pool_init(pool, &request, chunk_bytes, scrubber, error);
}

static void start(uint64_t pages, uint64_t chunk_bytes)
{
	memset(&t, 0, sizeof(t));
	t.page_bytes = (uint64_t)sysconf(_SC_PAGESIZE);
	t.base = event_base_new();
	CHECK(t.base != NULL);
	CHECK_INT(worker_new(t.base, "scrubber", &t.scrubber), 0);
	CHECK_INT(init(&t.pool, pages * t.page_bytes, chunk_bytes, t.scrubber), 0);
	t.pool.on_clean = on_clean;
	t.pool.on_clean_context = &t;
}

static void finish(void)
{
	t.scrubber = worker_free(t.scrubber);
	pool_deinit(&t.pool);
	event_base_free(t.base);
}

static void take(int index, uint64_t pages)
{
	struct back *back = &t.backs[index];
	struct extent_totals totals;

	CHECK_INT(extent_take(t.pool.extents, pages * t.page_bytes, &back->back.extent), 0);
	back->back.cleaned = on_cleaned;
	back->offset_bytes = extent_offset_bytes(back->back.extent);
	back->len_bytes = extent_len_bytes(back->back.extent);
	extent_map_totals(t.pool.extents, &totals);
	t.free_bytes = totals.free_bytes;
}

/* Run the loop until so many extents are clean. */
static void await(int count)
{
	const struct timeval limit = {.tv_sec = 20};
	struct event *timeout = event_new(t.base, -1, 0, on_timeout, NULL);

	t.awaited = count;
	event_add(timeout, &limit);
	event_base_dispatch(t.base);
	event_free(timeout);
	CHECK(!t.timed_out);
	CHECK_INT(t.cleaned_count, count);
}

TEST(pool_init__mapped_and_zero)
{
	struct extent_totals totals;
	uint8_t byte = 0;

	start(20, 4096);
	CHECK_INT(t.pool.len_bytes, 20 * t.page_bytes);
	CHECK_INT(t.pool.page_bytes, t.page_bytes);
	CHECK(is_all(t.pool.memory, t.pool.len_bytes, 0));
	extent_map_totals(t.pool.extents, &totals);
	CHECK_INT(totals.free_bytes, t.pool.len_bytes);
	CHECK_INT(totals.largest_free_bytes, t.pool.len_bytes);
	/* Not a private mapping: the file holds the same bytes. */
	t.pool.memory[t.page_bytes] = 0x77;
	CHECK_INT(pread(t.pool.mapping.fd, &byte, 1, (off_t)t.page_bytes), 1);
	CHECK_INT(byte, 0x77);
	finish();
}

TEST(pool_init__bad_length)
{
	struct pool pool = {0};

	CHECK_INT(init(&pool, 0, 4096, NULL), -EINVAL);
	CHECK_INT(init(&pool, (uint64_t)sysconf(_SC_PAGESIZE) + 1, 4096, NULL), -EINVAL);
	CHECK(pool.memory == NULL);
	pool_deinit(&pool);
}

static void check_chunks(uint64_t offset_bytes, uint64_t len_bytes, uint64_t chunk_bytes, int first)
{
	int i = first;

	while (len_bytes > 0) {
		uint64_t step_bytes = len_bytes < chunk_bytes ? len_bytes : chunk_bytes;

		CHECK(i < t.chunk_count);
		CHECK_INT(t.chunks[i].offset_bytes, offset_bytes);
		CHECK_INT(t.chunks[i].len_bytes, step_bytes);
		offset_bytes += step_bytes;
		len_bytes -= step_bytes;
		i++;
	}
}

static uint64_t whole_pages(uint64_t chunk_bytes)
{
	uint64_t pages = chunk_bytes / t.page_bytes + (chunk_bytes % t.page_bytes != 0);

	return chunk_bytes > UINT64_MAX / 2 ? chunk_bytes : pages * t.page_bytes;
}

static void check_one(uint64_t pages, uint64_t chunk_bytes, int chunks)
{
	struct extent_totals totals;
	struct back *back = &t.backs[1];

	start(40, chunk_bytes);
	take(0, 3);
	take(1, pages);
	take(2, 5);
	memset(t.pool.memory, 0xab, t.pool.len_bytes);
	pool_give_back(&t.pool, &back->back);
	CHECK_INT(t.cleaned_count, 0); /* never from within the call */
	extent_map_totals(t.pool.extents, &totals);
	CHECK_INT(totals.dirty_bytes, back->len_bytes);
	await(1);
	CHECK(back->was_zero && back->was_free);
	CHECK(back->back.extent == NULL);
	CHECK_INT(t.on_clean_count, 1);
	CHECK_INT(t.on_clean_at[0], 1);
	CHECK_INT(t.chunk_count, chunks);
	check_chunks(back->offset_bytes, back->len_bytes, whole_pages(chunk_bytes), 0);
	extent_map_totals(t.pool.extents, &totals);
	CHECK_INT(totals.dirty_bytes, 0);
	CHECK_INT(totals.free_bytes, (40 - 3 - 5) * t.page_bytes);
	extent_map_check(t.pool.extents);
	/* No byte of the neighbours has changed. */
	CHECK(is_all(t.pool.memory, back->offset_bytes, 0xab));
	CHECK(is_all(t.pool.memory + back->offset_bytes + back->len_bytes,
		     t.pool.len_bytes - back->offset_bytes - back->len_bytes, 0xab));
	finish();
}

TEST(pool_give_back__one_chunk)
{
	uint64_t page_bytes = (uint64_t)sysconf(_SC_PAGESIZE);

	check_one(10, 10 * page_bytes, 1);
	check_one(10, 10 * page_bytes + 1, 1);
	check_one(10, UINT64_MAX, 1);
}

TEST(pool_give_back__many_chunks)
{
	uint64_t page_bytes = (uint64_t)sysconf(_SC_PAGESIZE);

	check_one(10, 5 * page_bytes, 2);
	check_one(10, 4 * page_bytes, 3);     /* the last one is half full */
	check_one(10, 9 * page_bytes, 2);     /* the last one is one page */
	check_one(10, 9 * page_bytes - 1, 2); /* whole pages are zeroed at a time */
	check_one(4, 1, 4);
}

TEST(pool_give_back__in_order_of_return)
{
	uint64_t chunk_bytes = 2 * (uint64_t)sysconf(_SC_PAGESIZE);
	struct extent_totals totals;

	start(30, chunk_bytes);
	take(0, 2);
	take(1, 9);
	take(2, 1);
	memset(t.pool.memory, 0xab, t.pool.len_bytes);
	pool_give_back(&t.pool, &t.backs[1].back);
	pool_give_back(&t.pool, &t.backs[2].back);
	pool_give_back(&t.pool, &t.backs[0].back);
	CHECK_INT(extent_state(t.backs[1].back.extent), EXTENT_SCRUBBING);
	CHECK_INT(extent_state(t.backs[2].back.extent), EXTENT_DIRTY);
	CHECK_INT(t.chunk_count, 1); /* one job at a time */
	await(3);
	CHECK(t.cleaned[0] == &t.backs[1]);
	CHECK(t.cleaned[1] == &t.backs[2]);
	CHECK(t.cleaned[2] == &t.backs[0]);
	for (int i = 0; i < 3; i++)
		CHECK(t.backs[i].was_zero && t.backs[i].was_free);
	CHECK_INT(t.on_clean_count, 3);
	CHECK_INT(t.on_clean_at[0], 1);
	CHECK_INT(t.on_clean_at[1], 2);
	CHECK_INT(t.on_clean_at[2], 3);
	CHECK_INT(t.chunk_count, 5 + 1 + 1);
	check_chunks(t.backs[1].offset_bytes, t.backs[1].len_bytes, chunk_bytes, 0);
	check_chunks(t.backs[2].offset_bytes, t.backs[2].len_bytes, chunk_bytes, 5);
	check_chunks(t.backs[0].offset_bytes, t.backs[0].len_bytes, chunk_bytes, 6);
	extent_map_totals(t.pool.extents, &totals);
	CHECK_INT(totals.largest_free_bytes, t.pool.len_bytes);
	finish();
}

TEST(pool_give_back__from_within_cleaned)
{
	start(30, (uint64_t)sysconf(_SC_PAGESIZE));
	take(0, 2);
	take(1, 3);
	take(2, 4);
	memset(t.pool.memory, 0xab, t.pool.len_bytes);
	t.backs[0].then = &t.backs[2];
	pool_give_back(&t.pool, &t.backs[0].back);
	pool_give_back(&t.pool, &t.backs[1].back);
	await(3);
	CHECK(t.cleaned[0] == &t.backs[0]);
	CHECK(t.cleaned[1] == &t.backs[1]);
	CHECK(t.cleaned[2] == &t.backs[2]);
	for (int i = 0; i < 3; i++)
		CHECK(t.backs[i].was_zero && t.backs[i].was_free);
	CHECK_INT(t.chunk_count, 2 + 3 + 4);
	/* The same bytes can be lent and returned again. */
	t.cleaned_count = 0;
	take(3, 30);
	memset(t.pool.memory, 0xcd, t.pool.len_bytes);
	pool_give_back(&t.pool, &t.backs[3].back);
	await(1);
	CHECK(t.backs[3].was_zero && t.backs[3].was_free);
	finish();
}

static void give_back(void *arg)
{
	pool_give_back(&t.pool, arg);
}

static void deinit(void *arg)
{
	(void)arg;
	pool_deinit(&t.pool);
}

TEST(pool_give_back__twice)
{
	start(30, MIB);
	take(0, 1);
	take(1, 1);
	pool_give_back(&t.pool, &t.backs[0].back);
	pool_give_back(&t.pool, &t.backs[1].back);
	CHECK(test_aborts(give_back, &t.backs[1].back));
	CHECK(test_aborts(deinit, NULL));
	await(2);
	finish();
}

TEST(pool_give_back__nobody_to_tell)
{
	start(30, MIB);
	t.pool.on_clean = NULL;
	take(0, 3);
	memset(t.pool.memory, 0xab, t.pool.len_bytes);
	pool_give_back(&t.pool, &t.backs[0].back);
	t.scrubber = worker_free(t.scrubber); /* finishes what it has begun */
	CHECK_INT(t.cleaned_count, 1);
	CHECK(t.backs[0].was_zero);
	finish();
}

/* What is known before. */

static void check_pool_totals(uint64_t free_pages, uint64_t retired_pages)
{
	struct extent_totals totals;

	extent_map_totals(t.pool.extents, &totals);
	CHECK_INT(totals.free_bytes, free_pages * t.page_bytes);
	CHECK_INT(totals.retired_bytes, retired_pages * t.page_bytes);
	extent_map_check(t.pool.extents);
}

TEST(pool_damage__free)
{
	start(20, 4096);
	pool_damage(&t.pool, 7 * t.page_bytes + 1, 1);
	check_pool_totals(19, 1);
	/* Told of once more, and as a part of something larger. */
	pool_damage(&t.pool, 7 * t.page_bytes, t.page_bytes);
	check_pool_totals(19, 1);
	pool_damage(&t.pool, 6 * t.page_bytes, 4 * t.page_bytes);
	check_pool_totals(16, 4);
	pool_damage(&t.pool, 19 * t.page_bytes, UINT64_MAX);
	check_pool_totals(15, 5);
	pool_damage(&t.pool, 20 * t.page_bytes, t.page_bytes);
	check_pool_totals(15, 5);
	finish();
}

/* The way back: the damaged pages are passed by, all others zeroed and free. */
static void check_damaged(uint64_t chunk_pages, uint64_t first, uint64_t count)
{
	struct back *back = &t.backs[0];

	start(20, chunk_pages * (uint64_t)sysconf(_SC_PAGESIZE));
	take(0, 10);
	memset(t.pool.memory, 0xab, t.pool.len_bytes);
	pool_damage(&t.pool, first * t.page_bytes, count * t.page_bytes);
	check_pool_totals(first + count > 10 ? 20 - first - count : 10,
			  first + count > 10 ? first + count - 10 : 0);
	pool_give_back(&t.pool, &back->back);
	await(1);
	check_pool_totals(20 - count, count);
	CHECK(is_all(t.pool.memory, first * t.page_bytes, 0));
	CHECK(is_all(t.pool.memory + first * t.page_bytes, count * t.page_bytes, 0xab));
	if (first + count < 10)
		CHECK(is_all(t.pool.memory + (first + count) * t.page_bytes,
			     (10 - first - count) * t.page_bytes, 0));
	finish();
}

TEST(pool_damage__leased)
{
	for (uint64_t chunk_pages = 1; chunk_pages <= 10; chunk_pages += 3) {
		check_damaged(chunk_pages, 0, 1);
		check_damaged(chunk_pages, 4, 2);
		check_damaged(chunk_pages, 9, 1);
		check_damaged(chunk_pages, 8, 4); /* reaches into free pages */
		check_damaged(chunk_pages, 0, 10);
	}
}

/* What the scrubber meets is retired before anybody is told that the bytes are free. */

static uint64_t told_offset_bytes;
static uint64_t told_len_bytes;

static void on_damage(void *context, uint64_t offset_bytes, uint64_t len_bytes)
{
	CHECK(context == &t);
	told_offset_bytes = offset_bytes;
	told_len_bytes = len_bytes;
}

TEST(pool_damage__met_by_the_scrubber)
{
	struct back *back = &t.backs[0];

	start(20, 4 * (uint64_t)sysconf(_SC_PAGESIZE));
	t.pool.on_damage = on_damage;
	take(0, 10);
	found[0].addr = (uint64_t)(uintptr_t)t.pool.memory + 6 * t.page_bytes;
	found[0].len_bytes = t.page_bytes;
	found_count = 1;
	pool_give_back(&t.pool, &back->back);
	await(1);
	found_count = 0;
	CHECK_INT(told_offset_bytes, 6 * t.page_bytes);
	CHECK_INT(told_len_bytes, t.page_bytes);
	check_pool_totals(19, 1);
	CHECK(!back->was_free); /* all of it, that is */
	finish();
}

/* More than there is room for: what lies between the last two goes, too. */
TEST(pool_damage__more_than_are_kept)
{
	start(2 * (POOL_DAMAGES_MAX + 2), 4096);
	for (uint64_t i = 0; i < POOL_DAMAGES_MAX + 2; i++)
		pool_damage(&t.pool, 2 * i * t.page_bytes, t.page_bytes);
	CHECK_INT(t.pool.damage_count, POOL_DAMAGES_MAX);
	check_pool_totals(POOL_DAMAGES_MAX + 2, POOL_DAMAGES_MAX + 2);
	CHECK_INT(t.pool.damages[POOL_DAMAGES_MAX - 1].addr,
		  2 * (POOL_DAMAGES_MAX - 1) * t.page_bytes);
	CHECK_INT(t.pool.damages[POOL_DAMAGES_MAX - 1].len_bytes, 5 * t.page_bytes);
	finish();
}
