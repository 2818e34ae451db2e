/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * daemon/extent.c: its rules one by one, then 100 000 random steps against a model
 * that keeps the state of each page in an array.
 */
#include "daemon/extent.h"

#include <errno.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/unit/random.h"
#include "tests/unit/test.h"

#define PAGE UINT64_C(4096)

static void give_back(struct extent_map *map, struct extent *extent)
{
	extent_set_state(map, extent, EXTENT_DIRTY);
	extent_set_state(map, extent, EXTENT_SCRUBBING);
	extent_clean(map, extent);
}

/* Take pages one by one: extents[i] is page i. */
static void take_each_page(struct extent_map *map, struct extent **extents, size_t count)
{
	for (size_t i = 0; i < count; i++) {
		CHECK_INT(extent_take(map, PAGE, &extents[i]), 0);
		CHECK_INT(extent_offset_bytes(extents[i]), i * PAGE);
	}
}

static void check_totals(const struct extent_map *map, uint64_t free_pages, uint64_t leased_pages,
			 uint64_t dirty_pages, uint64_t largest_pages)
{
	struct extent_totals totals;

	extent_map_totals(map, &totals);
	CHECK_INT(totals.free_bytes, free_pages * PAGE);
	CHECK_INT(totals.leased_bytes, leased_pages * PAGE);
	CHECK_INT(totals.dirty_bytes, dirty_pages * PAGE);
	CHECK_INT(totals.largest_free_bytes, largest_pages * PAGE);
}

TEST(extent_map_new__bad_sizes)
{
	struct extent_map *map = NULL;

	CHECK_INT(extent_map_new(0, PAGE, &map), -EINVAL);
	CHECK_INT(extent_map_new(PAGE, 0, &map), -EINVAL);
	CHECK_INT(extent_map_new(3 * 4095, 4095, &map), -EINVAL);
	CHECK_INT(extent_map_new(PAGE + 1, PAGE, &map), -EINVAL);
	CHECK_INT(extent_map_new(PAGE - 1, PAGE, &map), -EINVAL);
	CHECK(map == NULL);
}

TEST(extent_map_new__all_free)
{
	struct extent_map *map;

	CHECK_INT(extent_map_new(5 * PAGE, PAGE, &map), 0);
	extent_map_check(map);
	check_totals(map, 5, 0, 0, 5);
	CHECK(extent_map_free(map) == NULL);
}

TEST(extent_map_new__greatest_pool)
{
	struct extent_map *map;
	struct extent *extent;
	uint64_t size_bytes = UINT64_MAX - (PAGE - 1);

	CHECK_INT(extent_map_new(size_bytes, PAGE, &map), 0);
	CHECK_INT(extent_take(map, size_bytes, &extent), 0);
	CHECK_INT(extent_len_bytes(extent), size_bytes);
	give_back(map, extent);
	extent_map_check(map);
	extent_map_free(map);
}

TEST(extent_map_free__null)
{
	CHECK(extent_map_free(NULL) == NULL);
}

TEST(extent_map_free__extents_in_every_state)
{
	struct extent_map *map;
	struct extent *extents[4];

	CHECK_INT(extent_map_new(4 * PAGE, PAGE, &map), 0);
	take_each_page(map, extents, 3);
	extent_set_state(map, extents[1], EXTENT_DIRTY);
	extent_set_state(map, extents[2], EXTENT_DIRTY);
	extent_set_state(map, extents[2], EXTENT_SCRUBBING);
	check_totals(map, 1, 1, 2, 1);
	/* A leak here is found by the address sanitizer. */
	extent_map_free(map);
}

TEST(extent_take__rounds_up_to_pages)
{
	struct extent_map *map;
	struct extent *one;
	struct extent *page;
	struct extent *more;

	CHECK_INT(extent_map_new(10 * PAGE, PAGE, &map), 0);
	CHECK_INT(extent_take(map, 1, &one), 0);
	CHECK_INT(extent_take(map, PAGE, &page), 0);
	CHECK_INT(extent_take(map, PAGE + 1, &more), 0);
	CHECK_INT(extent_len_bytes(one), PAGE);
	CHECK_INT(extent_len_bytes(page), PAGE);
	CHECK_INT(extent_len_bytes(more), 2 * PAGE);
	CHECK_INT(extent_offset_bytes(one), 0);
	CHECK_INT(extent_offset_bytes(page), PAGE);
	CHECK_INT(extent_offset_bytes(more), 2 * PAGE);
	CHECK_INT(extent_state(more), EXTENT_LEASED);
	check_totals(map, 6, 4, 0, 6);
	extent_map_check(map);
	extent_map_free(map);
}

TEST(extent_take__impossible_lengths)
{
	struct extent_map *map;
	struct extent *extent = NULL;

	CHECK_INT(extent_map_new(3 * PAGE, PAGE, &map), 0);
	CHECK_INT(extent_take(map, 0, &extent), -EINVAL);
	CHECK_INT(extent_take(map, 3 * PAGE + 1, &extent), -E2BIG);
	CHECK_INT(extent_take(map, UINT64_MAX - PAGE, &extent), -E2BIG);
	CHECK_INT(extent_take(map, UINT64_MAX - PAGE + 2, &extent), -E2BIG);
	CHECK_INT(extent_take(map, UINT64_MAX, &extent), -E2BIG);
	CHECK(extent == NULL);
	check_totals(map, 3, 0, 0, 3);
	extent_map_free(map);
}

TEST(extent_take__whole_pool_then_no_room)
{
	struct extent_map *map;
	struct extent *all;
	struct extent *extent = NULL;

	CHECK_INT(extent_map_new(3 * PAGE, PAGE, &map), 0);
	CHECK_INT(extent_take(map, 2 * PAGE + 1, &all), 0);
	check_totals(map, 0, 3, 0, 0);
	CHECK_INT(extent_take(map, 1, &extent), -ENOSPC);
	CHECK_INT(extent_take(map, 3 * PAGE + 1, &extent), -E2BIG);
	CHECK(extent == NULL);
	give_back(map, all);
	CHECK_INT(extent_take(map, 3 * PAGE, &all), 0);
	extent_map_free(map);
}

TEST(extent_take__only_clean_bytes)
{
	struct extent_map *map;
	struct extent *all;
	struct extent *extent;

	CHECK_INT(extent_map_new(PAGE, PAGE, &map), 0);
	CHECK_INT(extent_take(map, PAGE, &all), 0);
	extent_set_state(map, all, EXTENT_DIRTY);
	CHECK_INT(extent_take(map, PAGE, &extent), -ENOSPC);
	extent_set_state(map, all, EXTENT_SCRUBBING);
	CHECK_INT(extent_take(map, PAGE, &extent), -ENOSPC);
	extent_clean(map, all);
	CHECK_INT(extent_take(map, PAGE, &extent), 0);
	extent_map_free(map);
}

/* Holes of 3 pages at 0, 2 at 4, 2 at 7 and 5 at 10, each behind a leased page. */
TEST(extent_take__best_fit_then_lowest)
{
	static const bool is_hole[15] = {1, 1, 1, 0, 1, 1, 0, 1, 1, 0, 1, 1, 1, 1, 1};
	struct extent_map *map;
	struct extent *extents[15];
	struct extent *extent;

	CHECK_INT(extent_map_new(15 * PAGE, PAGE, &map), 0);
	take_each_page(map, extents, 15);
	for (size_t i = 0; i < 15; i++) {
		if (is_hole[i])
			give_back(map, extents[i]);
	}
	check_totals(map, 12, 3, 0, 5);
	CHECK_INT(extent_take(map, 2 * PAGE, &extent), 0);
	CHECK_INT(extent_offset_bytes(extent), 4 * PAGE);
	CHECK_INT(extent_take(map, 2 * PAGE, &extent), 0);
	CHECK_INT(extent_offset_bytes(extent), 7 * PAGE);
	CHECK_INT(extent_take(map, 2 * PAGE, &extent), 0);
	CHECK_INT(extent_offset_bytes(extent), 0);
	CHECK_INT(extent_take(map, 2 * PAGE, &extent), 0);
	CHECK_INT(extent_offset_bytes(extent), 10 * PAGE);
	CHECK_INT(extent_take(map, 4 * PAGE, &extent), -ENOSPC);
	extent_map_check(map);
	extent_map_free(map);
}

TEST(extent_clean__coalesces_on_each_side)
{
	static const size_t orders[4][3] = {{0, 1, 2}, {2, 1, 0}, {0, 2, 1}, {1, 0, 2}};
	static const uint64_t largest_pages[4][3] = {{1, 2, 3}, {1, 2, 3}, {1, 1, 3}, {1, 2, 3}};

	for (size_t i = 0; i < 4; i++) {
		struct extent_map *map;
		struct extent *extents[3];

		CHECK_INT(extent_map_new(3 * PAGE, PAGE, &map), 0);
		take_each_page(map, extents, 3);
		for (size_t step = 0; step < 3; step++) {
			give_back(map, extents[orders[i][step]]);
			extent_map_check(map);
			check_totals(map, step + 1, 2 - step, 0, largest_pages[i][step]);
		}
		extent_map_free(map);
	}
}

TEST(extent_set_state__failed_scrub_is_dirty_again)
{
	struct extent_map *map;
	struct extent *extent;

	CHECK_INT(extent_map_new(2 * PAGE, PAGE, &map), 0);
	CHECK_INT(extent_take(map, PAGE, &extent), 0);
	extent_set_state(map, extent, EXTENT_DIRTY);
	extent_set_state(map, extent, EXTENT_SCRUBBING);
	check_totals(map, 1, 0, 1, 1);
	extent_set_state(map, extent, EXTENT_DIRTY);
	CHECK_INT(extent_state(extent), EXTENT_DIRTY);
	check_totals(map, 1, 0, 1, 1);
	extent_set_state(map, extent, EXTENT_SCRUBBING);
	extent_clean(map, extent);
	check_totals(map, 2, 0, 0, 2);
	extent_map_free(map);
}

/* Does an attempt in a child process end by an assertion? */
static bool aborts(void (*attempt)(struct extent_map *map, struct extent *extent, int step),
		   struct extent_map *map, struct extent *extent, int step)
{
	int status;
	pid_t child;

	fflush(stdout);
	child = fork();
	if (child == 0) {
		close(STDERR_FILENO);
		attempt(map, extent, step);
		_exit(0);
	}
	return child > 0 && waitpid(child, &status, 0) == child && WIFSIGNALED(status) &&
	       WTERMSIG(status) == SIGABRT;
}

static void attempt_state(struct extent_map *map, struct extent *extent, int step)
{
	extent_set_state(map, extent, (enum extent_state)step);
}

static void attempt_clean(struct extent_map *map, struct extent *extent, int step)
{
	(void)step;
	extent_clean(map, extent);
}

TEST(extent_set_state__illegal_steps_are_asserted)
{
	static const bool is_legal[4][4] = {
		[EXTENT_LEASED] = {[EXTENT_DIRTY] = true},
		[EXTENT_DIRTY] = {[EXTENT_SCRUBBING] = true},
		[EXTENT_SCRUBBING] = {[EXTENT_DIRTY] = true},
	};
	struct extent_map *map;
	struct extent *extent;

	CHECK_INT(extent_map_new(PAGE, PAGE, &map), 0);
	CHECK_INT(extent_take(map, PAGE, &extent), 0);
	for (int from = EXTENT_LEASED; from <= EXTENT_SCRUBBING; from++) {
		if (from != EXTENT_LEASED)
			extent_set_state(map, extent, (enum extent_state)from);
		for (int to = EXTENT_FREE; to <= EXTENT_SCRUBBING; to++)
			CHECK_INT(aborts(attempt_state, map, extent, to), !is_legal[from][to]);
		CHECK_INT(aborts(attempt_clean, map, extent, 0), from != EXTENT_SCRUBBING);
	}
	extent_map_free(map);
}

TEST(extent_map_could_fit__counts_all_but_leased)
{
	struct extent_map *map;
	struct extent *extents[6];

	/* free 0, dirty 1, scrubbing 2, leased 3, dirty 4, free 5 */
	CHECK_INT(extent_map_new(6 * PAGE, PAGE, &map), 0);
	take_each_page(map, extents, 6);
	give_back(map, extents[0]);
	give_back(map, extents[5]);
	extent_set_state(map, extents[1], EXTENT_DIRTY);
	extent_set_state(map, extents[2], EXTENT_DIRTY);
	extent_set_state(map, extents[2], EXTENT_SCRUBBING);
	extent_set_state(map, extents[4], EXTENT_DIRTY);
	CHECK(!extent_map_could_fit(map, 0));
	CHECK(extent_map_could_fit(map, 1));
	CHECK(extent_map_could_fit(map, 3 * PAGE));
	CHECK(!extent_map_could_fit(map, 3 * PAGE + 1));
	CHECK(!extent_map_could_fit(map, UINT64_MAX));
	extent_set_state(map, extents[3], EXTENT_DIRTY);
	CHECK(extent_map_could_fit(map, 6 * PAGE));
	CHECK(!extent_map_could_fit(map, 6 * PAGE + 1));
	extent_map_free(map);
}

TEST(extent_map_could_fit__all_leased)
{
	struct extent_map *map;
	struct extent *extent;

	CHECK_INT(extent_map_new(PAGE, PAGE, &map), 0);
	CHECK_INT(extent_take(map, PAGE, &extent), 0);
	CHECK(!extent_map_could_fit(map, 1));
	extent_map_free(map);
}

TEST(extent_grow__into_the_free_bytes_behind)
{
	struct extent_map *map;
	struct extent *extent;

	CHECK_INT(extent_map_new(10 * PAGE, PAGE, &map), 0);
	CHECK_INT(extent_take(map, 2 * PAGE, &extent), 0);
	CHECK_INT(extent_grow(map, extent, 2 * PAGE + 1), 0);
	CHECK_INT(extent_offset_bytes(extent), 0);
	CHECK_INT(extent_len_bytes(extent), 3 * PAGE);
	check_totals(map, 7, 3, 0, 7);
	extent_map_check(map);
	CHECK_INT(extent_grow(map, extent, 9 * PAGE), 0);
	CHECK_INT(extent_len_bytes(extent), 9 * PAGE);
	check_totals(map, 1, 9, 0, 1);
	extent_map_check(map);
	/* The free range behind it is used up. */
	CHECK_INT(extent_grow(map, extent, 9 * PAGE + 1), 0);
	CHECK_INT(extent_len_bytes(extent), 10 * PAGE);
	CHECK_INT(extent_state(extent), EXTENT_LEASED);
	check_totals(map, 0, 10, 0, 0);
	extent_map_check(map);
	give_back(map, extent);
	check_totals(map, 10, 0, 0, 10);
	extent_map_check(map);
	extent_map_free(map);
}

TEST(extent_grow__within_its_last_page)
{
	struct extent_map *map;
	struct extent *extents[3];

	CHECK_INT(extent_map_new(3 * PAGE, PAGE, &map), 0);
	take_each_page(map, extents, 3);
	CHECK_INT(extent_grow(map, extents[0], 1), 0);
	CHECK_INT(extent_grow(map, extents[0], PAGE), 0);
	CHECK_INT(extent_grow(map, extents[0], PAGE + 1), -ENOSPC);
	CHECK_INT(extent_grow(map, extents[2], PAGE), 0);
	CHECK_INT(extent_len_bytes(extents[0]), PAGE);
	CHECK_INT(extent_len_bytes(extents[2]), PAGE);
	check_totals(map, 0, 3, 0, 0);
	extent_map_check(map);
	extent_map_free(map);
}

/* Page 0 is leased, 1 to 3 are free, 4 is leased, 5 and 6 are free. */
TEST(extent_grow__exactly_as_far_as_the_next)
{
	struct extent_map *map;
	struct extent *extents[7];

	CHECK_INT(extent_map_new(7 * PAGE, PAGE, &map), 0);
	take_each_page(map, extents, 7);
	for (size_t i = 1; i < 7; i++) {
		if (i != 4)
			give_back(map, extents[i]);
	}
	CHECK_INT(extent_grow(map, extents[0], 4 * PAGE + 1), -ENOSPC);
	CHECK_INT(extent_grow(map, extents[0], 7 * PAGE), -ENOSPC);
	CHECK_INT(extent_len_bytes(extents[0]), PAGE);
	check_totals(map, 5, 2, 0, 3);
	extent_map_check(map);
	CHECK_INT(extent_grow(map, extents[0], 4 * PAGE), 0);
	CHECK_INT(extent_len_bytes(extents[0]), 4 * PAGE);
	check_totals(map, 2, 5, 0, 2);
	extent_map_check(map);
	CHECK_INT(extent_grow(map, extents[0], 4 * PAGE + 1), -ENOSPC);
	extent_map_free(map);
}

TEST(extent_grow__only_over_clean_bytes)
{
	struct extent_map *map;
	struct extent *extents[2];

	CHECK_INT(extent_map_new(2 * PAGE, PAGE, &map), 0);
	take_each_page(map, extents, 2);
	CHECK_INT(extent_grow(map, extents[0], 2 * PAGE), -ENOSPC);
	extent_set_state(map, extents[1], EXTENT_DIRTY);
	CHECK_INT(extent_grow(map, extents[0], 2 * PAGE), -ENOSPC);
	extent_set_state(map, extents[1], EXTENT_SCRUBBING);
	CHECK_INT(extent_grow(map, extents[0], 2 * PAGE), -ENOSPC);
	check_totals(map, 0, 1, 1, 0);
	extent_clean(map, extents[1]);
	CHECK_INT(extent_grow(map, extents[0], 2 * PAGE), 0);
	check_totals(map, 0, 2, 0, 0);
	extent_map_check(map);
	extent_map_free(map);
}

TEST(extent_grow__free_bytes_before_do_not_count)
{
	struct extent_map *map;
	struct extent *extents[3];

	CHECK_INT(extent_map_new(3 * PAGE, PAGE, &map), 0);
	take_each_page(map, extents, 3);
	give_back(map, extents[0]);
	CHECK_INT(extent_grow(map, extents[1], 2 * PAGE), -ENOSPC);
	give_back(map, extents[1]);
	CHECK_INT(extent_grow(map, extents[2], PAGE + 1), -ENOSPC);
	CHECK_INT(extent_len_bytes(extents[2]), PAGE);
	check_totals(map, 2, 1, 0, 2);
	extent_map_check(map);
	extent_map_free(map);
}

TEST(extent_grow__impossible_lengths)
{
	struct extent_map *map;
	struct extent *extents[3];

	CHECK_INT(extent_map_new(4 * PAGE, PAGE, &map), 0);
	take_each_page(map, extents, 3);
	/* Whatever is behind it: free (2) or leased (0). */
	for (size_t i = 0; i < 3; i += 2) {
		CHECK_INT(extent_grow(map, extents[i], 4 * PAGE), -ENOSPC);
		CHECK_INT(extent_grow(map, extents[i], 4 * PAGE + 1), -E2BIG);
		CHECK_INT(extent_grow(map, extents[i], UINT64_MAX - PAGE), -E2BIG);
		CHECK_INT(extent_grow(map, extents[i], UINT64_MAX - PAGE + 2), -E2BIG);
		CHECK_INT(extent_grow(map, extents[i], UINT64_MAX), -E2BIG);
		CHECK_INT(extent_len_bytes(extents[i]), PAGE);
	}
	check_totals(map, 1, 3, 0, 1);
	extent_map_check(map);
	extent_map_free(map);
}

TEST(extent_grow__greatest_pool)
{
	struct extent_map *map;
	struct extent *extent;
	uint64_t size_bytes = UINT64_MAX - (PAGE - 1);

	CHECK_INT(extent_map_new(size_bytes, PAGE, &map), 0);
	CHECK_INT(extent_take(map, 1, &extent), 0);
	CHECK_INT(extent_grow(map, extent, size_bytes + 1), -E2BIG);
	CHECK_INT(extent_grow(map, extent, size_bytes), 0);
	CHECK_INT(extent_len_bytes(extent), size_bytes);
	extent_map_check(map);
	extent_map_free(map);
}

/* Holes of 4 pages at 1 and of 3 pages at 6: what is left of the first fits best afterwards. */
TEST(extent_grow__rest_is_found_by_best_fit)
{
	struct extent_map *map;
	struct extent *extents[10];
	struct extent *extent;

	CHECK_INT(extent_map_new(10 * PAGE, PAGE, &map), 0);
	take_each_page(map, extents, 10);
	for (size_t i = 1; i < 9; i++) {
		if (i != 5)
			give_back(map, extents[i]);
	}
	CHECK_INT(extent_grow(map, extents[0], 3 * PAGE), 0);
	check_totals(map, 5, 5, 0, 3);
	CHECK_INT(extent_take(map, 2 * PAGE, &extent), 0);
	CHECK_INT(extent_offset_bytes(extent), 3 * PAGE);
	CHECK_INT(extent_take(map, 2 * PAGE, &extent), 0);
	CHECK_INT(extent_offset_bytes(extent), 6 * PAGE);
	extent_map_check(map);
	extent_map_free(map);
}

TEST(extent_cut__whole_pages_only)
{
	static const struct {
		uint64_t len_bytes;
		uint64_t kept_pages;
	} cases[] = {
		{5 * PAGE, 5},	   {5 * PAGE - 1, 5}, {4 * PAGE + 1, 5}, {4 * PAGE, 4},
		{4 * PAGE - 1, 4}, {PAGE + 1, 2},     {PAGE, 1},	 {1, 1},
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		uint64_t kept_pages = cases[i].kept_pages;
		struct extent_map *map;
		struct extent *extent;
		struct extent *tail;

		CHECK_INT(extent_map_new(7 * PAGE, PAGE, &map), 0);
		CHECK_INT(extent_take(map, 5 * PAGE, &extent), 0);
		tail = extent;
		CHECK_INT(extent_cut(map, extent, cases[i].len_bytes, &tail), 0);
		CHECK_INT(extent_offset_bytes(extent), 0);
		CHECK_INT(extent_len_bytes(extent), kept_pages * PAGE);
		CHECK_INT(extent_state(extent), EXTENT_LEASED);
		CHECK_INT(tail == NULL, kept_pages == 5);
		if (tail != NULL) {
			CHECK_INT(extent_offset_bytes(tail), kept_pages * PAGE);
			CHECK_INT(extent_len_bytes(tail), (5 - kept_pages) * PAGE);
			CHECK_INT(extent_state(tail), EXTENT_LEASED);
		}
		check_totals(map, 2, 5, 0, 2);
		extent_map_check(map);
		extent_map_free(map);
	}
}

TEST(extent_cut__tail_goes_its_own_way)
{
	struct extent_map *map;
	struct extent *extent;
	struct extent *tail;
	struct extent *last;

	CHECK_INT(extent_map_new(6 * PAGE, PAGE, &map), 0);
	CHECK_INT(extent_take(map, 4 * PAGE, &extent), 0);
	CHECK_INT(extent_cut(map, extent, 2 * PAGE, &tail), 0);
	CHECK_INT(extent_cut(map, tail, PAGE, &last), 0);
	CHECK_INT(extent_offset_bytes(last), 3 * PAGE);
	/* It is not the head's any more, though nobody else's either. */
	CHECK_INT(extent_grow(map, extent, 3 * PAGE), -ENOSPC);
	give_back(map, last);
	check_totals(map, 3, 3, 0, 3);
	extent_map_check(map);
	extent_set_state(map, tail, EXTENT_DIRTY);
	check_totals(map, 3, 2, 1, 3);
	CHECK_INT(extent_grow(map, extent, 3 * PAGE), -ENOSPC);
	extent_set_state(map, tail, EXTENT_SCRUBBING);
	extent_clean(map, tail);
	check_totals(map, 4, 2, 0, 4);
	extent_map_check(map);
	CHECK_INT(extent_grow(map, extent, 6 * PAGE), 0);
	check_totals(map, 0, 6, 0, 0);
	extent_map_check(map);
	extent_map_free(map);
}

TEST(extent_cut__between_leased_neighbours)
{
	struct extent_map *map;
	struct extent *first;
	struct extent *middle;
	struct extent *last;
	struct extent *tail;

	CHECK_INT(extent_map_new(5 * PAGE, PAGE, &map), 0);
	CHECK_INT(extent_take(map, PAGE, &first), 0);
	CHECK_INT(extent_take(map, 3 * PAGE, &middle), 0);
	CHECK_INT(extent_take(map, PAGE, &last), 0);
	CHECK_INT(extent_cut(map, middle, PAGE, &tail), 0);
	extent_map_check(map);
	give_back(map, tail);
	check_totals(map, 2, 3, 0, 2);
	CHECK_INT(extent_grow(map, middle, 3 * PAGE), 0);
	CHECK_INT(extent_offset_bytes(middle), PAGE);
	CHECK_INT(extent_offset_bytes(last), 4 * PAGE);
	extent_map_check(map);
	extent_map_free(map);
}

static void attempt_grow(struct extent_map *map, struct extent *extent, int pages)
{
	(void)extent_grow(map, extent, (uint64_t)pages * PAGE);
}

static void attempt_cut(struct extent_map *map, struct extent *extent, int pages)
{
	struct extent *tail;

	(void)extent_cut(map, extent, (uint64_t)pages * PAGE, &tail);
}

TEST(extent_grow__and_cut_assert_length_and_state)
{
	struct extent_map *map;
	struct extent *extent;

	CHECK_INT(extent_map_new(4 * PAGE, PAGE, &map), 0);
	CHECK_INT(extent_take(map, 2 * PAGE, &extent), 0);
	CHECK(aborts(attempt_grow, map, extent, 0));
	CHECK(aborts(attempt_grow, map, extent, 1));
	CHECK(!aborts(attempt_grow, map, extent, 2));
	CHECK(!aborts(attempt_grow, map, extent, 5));
	CHECK(aborts(attempt_cut, map, extent, 0));
	CHECK(!aborts(attempt_cut, map, extent, 1));
	CHECK(!aborts(attempt_cut, map, extent, 2));
	CHECK(aborts(attempt_cut, map, extent, 3));
	extent_set_state(map, extent, EXTENT_DIRTY);
	CHECK(aborts(attempt_grow, map, extent, 2));
	CHECK(aborts(attempt_cut, map, extent, 2));
	extent_set_state(map, extent, EXTENT_SCRUBBING);
	CHECK(aborts(attempt_grow, map, extent, 2));
	CHECK(aborts(attempt_cut, map, extent, 2));
	extent_map_free(map);
}

#define MODEL_PAGES 211
#define MODEL_STEPS 100000

/* What the map should say: the state of each page, and the extents that are taken. */
struct model {
	struct extent_map *map;
	enum extent_state pages[MODEL_PAGES];
	struct extent *taken[MODEL_PAGES];
	size_t taken_count;
	struct random random;
	unsigned int taken_steps;
	unsigned int no_room_steps;
	unsigned int grown_steps;
	unsigned int blocked_steps; /* growing found no room */
	unsigned int cut_steps;
};

static uint64_t random_len_bytes(struct random *random)
{
	uint64_t pages = random_below(random, 8);

	switch (random_below(random, 10)) {
	case 0:
		return 1;
	case 1:
		return PAGE;
	case 2:
		return PAGE + 1;
	case 3:
		return random_below(random, (MODEL_PAGES + 20) * PAGE);
	case 4:
		return random_next(random);
	case 5:
		return MODEL_PAGES * PAGE + random_below(random, 3) - 1;
	default:
		return pages * PAGE + random_below(random, PAGE);
	}
}

/* The best fit by looking at every run of free pages; MODEL_PAGES if there is none. */
static size_t model_best_fit(const struct model *model, uint64_t need_pages)
{
	size_t best = MODEL_PAGES;
	size_t best_pages = MODEL_PAGES + 1;
	size_t run_pages = 0;

	for (size_t i = 0; i <= MODEL_PAGES; i++) {
		if (i < MODEL_PAGES && model->pages[i] == EXTENT_FREE) {
			run_pages++;
			continue;
		}
		if (run_pages >= need_pages && run_pages < best_pages) {
			best = i - run_pages;
			best_pages = run_pages;
		}
		run_pages = 0;
	}
	return best;
}

static size_t model_longest(const struct model *model, bool with_dirty)
{
	size_t longest = 0;
	size_t run_pages = 0;

	for (size_t i = 0; i < MODEL_PAGES; i++) {
		enum extent_state state = model->pages[i];

		if (state == EXTENT_FREE ||
		    (with_dirty && (state == EXTENT_DIRTY || state == EXTENT_SCRUBBING)))
			run_pages++;
		else
			run_pages = 0;
		longest = run_pages > longest ? run_pages : longest;
	}
	return longest;
}

static void model_mark_pages(struct model *model, uint64_t first, uint64_t count,
			     enum extent_state from, enum extent_state to)
{
	CHECK(first + count <= MODEL_PAGES);
	for (uint64_t i = first; i < first + count; i++) {
		CHECK_INT(model->pages[i], from);
		model->pages[i] = to;
	}
}

static void model_mark(struct model *model, const struct extent *extent, enum extent_state from,
		       enum extent_state to)
{
	CHECK_INT(extent_offset_bytes(extent) % PAGE, 0);
	CHECK_INT(extent_len_bytes(extent) % PAGE, 0);
	CHECK(extent_len_bytes(extent) > 0);
	model_mark_pages(model, extent_offset_bytes(extent) / PAGE, extent_len_bytes(extent) / PAGE,
			 from, to);
}

static uint64_t pages_of(uint64_t len_bytes)
{
	return len_bytes / PAGE + (len_bytes % PAGE != 0);
}

static void model_take(struct model *model)
{
	uint64_t len_bytes = random_len_bytes(&model->random);
	uint64_t need_pages = pages_of(len_bytes);
	size_t longest = model_longest(model, true);
	struct extent *extent = NULL;
	size_t fit;
	int r;

	CHECK_INT(extent_map_could_fit(model->map, len_bytes),
		  need_pages != 0 && need_pages <= longest);
	r = extent_take(model->map, len_bytes, &extent);
	if (need_pages == 0 || need_pages > MODEL_PAGES) {
		CHECK_INT(r, need_pages == 0 ? -EINVAL : -E2BIG);
		return;
	}
	fit = model_best_fit(model, need_pages);
	if (fit == MODEL_PAGES) {
		CHECK_INT(r, -ENOSPC);
		CHECK(extent == NULL);
		model->no_room_steps++;
		return;
	}
	CHECK_INT(r, 0);
	CHECK_INT(extent_state(extent), EXTENT_LEASED);
	CHECK_INT(extent_offset_bytes(extent), fit * PAGE);
	CHECK_INT(extent_len_bytes(extent), need_pages * PAGE);
	model_mark(model, extent, EXTENT_FREE, EXTENT_LEASED);
	model->taken[model->taken_count++] = extent;
	model->taken_steps++;
}

static void model_set_state(struct model *model, struct extent *extent, enum extent_state state)
{
	model_mark(model, extent, extent_state(extent), state);
	extent_set_state(model->map, extent, state);
	CHECK_INT(extent_state(extent), state);
}

/* Move one taken extent a step on. */
static void model_advance(struct model *model)
{
	size_t i;
	struct extent *extent;

	if (model->taken_count == 0)
		return;
	i = random_below(&model->random, model->taken_count);
	extent = model->taken[i];
	if (extent_state(extent) == EXTENT_LEASED) {
		model_set_state(model, extent, EXTENT_DIRTY);
	} else if (extent_state(extent) == EXTENT_DIRTY) {
		model_set_state(model, extent, EXTENT_SCRUBBING);
	} else if (random_below(&model->random, 8) == 0) {
		model_set_state(model, extent, EXTENT_DIRTY);
	} else {
		model_mark(model, extent, EXTENT_SCRUBBING, EXTENT_FREE);
		extent_clean(model->map, extent);
		model->taken[i] = model->taken[--model->taken_count];
	}
}

/* The first leased extent from a random place on; NULL if there is none. */
static struct extent *model_leased(struct model *model)
{
	size_t start;

	if (model->taken_count == 0)
		return NULL;
	start = random_below(&model->random, model->taken_count);
	for (size_t i = 0; i < model->taken_count; i++) {
		struct extent *extent = model->taken[(start + i) % model->taken_count];

		if (extent_state(extent) == EXTENT_LEASED)
			return extent;
	}
	return NULL;
}

/* Lengths that an extent may be asked to grow to; free_bytes are free behind it. */
static uint64_t random_grown_bytes(struct random *random, uint64_t len_bytes, uint64_t free_bytes)
{
	switch (random_below(random, 8)) {
	case 0:
		return len_bytes - random_below(random, PAGE);
	case 1:
		return len_bytes + free_bytes;
	case 2:
		return len_bytes + free_bytes + 1;
	case 3:
		return MODEL_PAGES * PAGE + random_below(random, 3) - 1;
	case 4:
		return UINT64_MAX - random_below(random, 2 * PAGE);
	default:
		return len_bytes + random_below(random, 3 * PAGE);
	}
}

static void model_grow(struct model *model)
{
	struct extent *extent = model_leased(model);
	uint64_t free_pages = 0;
	uint64_t offset_bytes;
	uint64_t len_bytes;
	uint64_t want_bytes;
	uint64_t end;
	int r;

	if (extent == NULL)
		return;
	offset_bytes = extent_offset_bytes(extent);
	len_bytes = extent_len_bytes(extent);
	end = (offset_bytes + len_bytes) / PAGE;
	while (end + free_pages < MODEL_PAGES && model->pages[end + free_pages] == EXTENT_FREE)
		free_pages++;
	want_bytes = random_grown_bytes(&model->random, len_bytes, free_pages * PAGE);
	r = extent_grow(model->map, extent, want_bytes);
	CHECK_INT(extent_offset_bytes(extent), offset_bytes);
	if (pages_of(want_bytes) > MODEL_PAGES) {
		CHECK_INT(r, -E2BIG);
	} else if (pages_of(want_bytes) > len_bytes / PAGE + free_pages) {
		CHECK_INT(r, -ENOSPC);
		model->blocked_steps++;
	} else {
		CHECK_INT(r, 0);
		model_mark_pages(model, end, pages_of(want_bytes) - len_bytes / PAGE, EXTENT_FREE,
				 EXTENT_LEASED);
		model->grown_steps += pages_of(want_bytes) > len_bytes / PAGE;
		len_bytes = pages_of(want_bytes) * PAGE;
	}
	CHECK_INT(extent_len_bytes(extent), len_bytes);
}

static void model_cut(struct model *model)
{
	struct extent *extent = model_leased(model);
	struct extent *tail;
	uint64_t offset_bytes;
	uint64_t len_bytes;
	uint64_t keep_bytes;
	uint64_t kept_bytes;

	if (extent == NULL)
		return;
	offset_bytes = extent_offset_bytes(extent);
	len_bytes = extent_len_bytes(extent);
	keep_bytes = len_bytes - random_below(&model->random, len_bytes);
	kept_bytes = pages_of(keep_bytes) * PAGE;
	CHECK_INT(extent_cut(model->map, extent, keep_bytes, &tail), 0);
	CHECK_INT(extent_offset_bytes(extent), offset_bytes);
	CHECK_INT(extent_len_bytes(extent), kept_bytes);
	CHECK_INT(tail == NULL, kept_bytes == len_bytes);
	if (tail == NULL)
		return;
	CHECK_INT(extent_offset_bytes(tail), offset_bytes + kept_bytes);
	CHECK_INT(extent_len_bytes(tail), len_bytes - kept_bytes);
	CHECK_INT(extent_state(tail), EXTENT_LEASED);
	model->taken[model->taken_count++] = tail;
	model->cut_steps++;
}

/* One step; so many of a hundred take. */
static void model_step(struct model *model, uint64_t take_share)
{
	uint64_t choice = random_below(&model->random, 100);

	if (choice < take_share)
		model_take(model);
	else if (choice < take_share + 10)
		model_grow(model);
	else if (choice < take_share + 15)
		model_cut(model);
	else
		model_advance(model);
}

static void model_check_totals(const struct model *model)
{
	uint64_t pages[EXTENT_RETIRED + 1] = {0};

	for (size_t i = 0; i < MODEL_PAGES; i++)
		pages[model->pages[i]]++;
	check_totals(model->map, pages[EXTENT_FREE], pages[EXTENT_LEASED],
		     pages[EXTENT_DIRTY] + pages[EXTENT_SCRUBBING], model_longest(model, false));
}

TEST(extent_map__random_steps_against_model)
{
	static struct model model;

	model = (struct model){.random = random_start()};
	CHECK_INT(extent_map_new(MODEL_PAGES * PAGE, PAGE, &model.map), 0);
	for (unsigned int step = 0; step < MODEL_STEPS; step++) {
		/* Spells in which the pool fills up, and spells in which it empties. */
		model_step(&model, step / 500 % 2 == 0 ? 45 : 12);
		model_check_totals(&model);
		extent_map_check(model.map);
	}
	/* The steps must have met every outcome often enough to mean something. */
	CHECK(model.taken_steps > MODEL_STEPS / 50);
	CHECK(model.no_room_steps > MODEL_STEPS / 100);
	CHECK(model.grown_steps > MODEL_STEPS / 400);
	CHECK(model.blocked_steps > MODEL_STEPS / 100);
	CHECK(model.cut_steps > MODEL_STEPS / 100);
	while (model.taken_count > 0)
		model_advance(&model);
	extent_map_check(model.map);
	check_totals(model.map, MODEL_PAGES, 0, 0, MODEL_PAGES);
	extent_map_free(model.map);
}

static uint64_t retired_pages(const struct extent_map *map)
{
	struct extent_totals totals;

	extent_map_totals(map, &totals);
	return totals.retired_bytes / PAGE;
}

/* Only what is free, whole pages, and what is left on both sides is free still. */
TEST(extent_retire__parts)
{
	struct extent *extents[4];
	struct extent *taken;
	struct extent_map *map;

	CHECK_INT(extent_map_new(20 * PAGE, PAGE, &map), 0);
	take_each_page(map, extents, 4);
	/* In the middle of the free range; a byte is a page. */
	CHECK_INT(extent_retire(map, 10 * PAGE + 5, 1), PAGE);
	check_totals(map, 15, 4, 0, 9);
	extent_map_check(map);
	/* Again: nothing of it is free any more. */
	CHECK_INT(extent_retire(map, 10 * PAGE, PAGE), 0);
	/* At its ends. */
	CHECK_INT(extent_retire(map, 4 * PAGE, PAGE), PAGE);
	CHECK_INT(extent_retire(map, 19 * PAGE, PAGE), PAGE);
	check_totals(map, 13, 4, 0, 8);
	/* Leased pages stay; the free one behind them goes. */
	CHECK_INT(extent_retire(map, 2 * PAGE, 4 * PAGE), PAGE);
	check_totals(map, 12, 4, 0, 8);
	extent_map_check(map);
	/* Nothing that is retired is lent or grown into. */
	CHECK_INT(extent_take(map, 9 * PAGE, &taken), -ENOSPC);
	CHECK_INT(extent_grow(map, extents[3], 2 * PAGE), -ENOSPC);
	CHECK_INT(extent_map_could_fit(map, 9 * PAGE), false);
	CHECK_INT(extent_map_could_fit(map, 8 * PAGE), true);
	CHECK_INT(extent_take(map, 8 * PAGE, &taken), 0);
	CHECK_INT(extent_offset_bytes(taken), 11 * PAGE);
	CHECK_INT(retired_pages(map), 4);
	extent_map_free(map);
}

TEST(extent_retire__beyond_the_pool)
{
	struct extent_map *map;

	CHECK_INT(extent_map_new(4 * PAGE, PAGE, &map), 0);
	CHECK_INT(extent_retire(map, 4 * PAGE, PAGE), 0);
	CHECK_INT(extent_retire(map, UINT64_MAX - PAGE, 2 * PAGE), 0);
	CHECK_INT(extent_retire(map, 3 * PAGE, UINT64_MAX), PAGE);
	extent_map_check(map);
	CHECK_INT(extent_retire(map, 0, 100 * PAGE), 3 * PAGE);
	check_totals(map, 0, 0, 0, 0);
	extent_map_check(map);
	CHECK_INT(extent_retire(map, 0, 100 * PAGE), 0);
	extent_map_free(map);
}

static void model_retire(struct model *model)
{
	uint64_t first = random_below(&model->random, MODEL_PAGES);
	uint64_t count = random_below(&model->random, 3) + 1;
	uint64_t bytes = 0;

	for (uint64_t i = first; i < first + count && i < MODEL_PAGES; i++) {
		if (model->pages[i] != EXTENT_FREE)
			continue;
		model->pages[i] = EXTENT_RETIRED;
		bytes += PAGE;
	}
	CHECK_INT(extent_retire(model->map, first * PAGE, count * PAGE), bytes);
}

TEST(extent_map__random_steps_with_damage)
{
	static struct model model;

	model = (struct model){.random = random_start()};
	CHECK_INT(extent_map_new(MODEL_PAGES * PAGE, PAGE, &model.map), 0);
	for (unsigned int step = 0; step < MODEL_STEPS; step++) {
		if (random_below(&model.random, 100) == 0 &&
		    retired_pages(model.map) < MODEL_PAGES / 4)
			model_retire(&model);
		model_step(&model, step / 500 % 2 == 0 ? 45 : 12);
		model_check_totals(&model);
		extent_map_check(model.map);
	}
	CHECK(retired_pages(model.map) >= MODEL_PAGES / 4);
	while (model.taken_count > 0)
		model_advance(&model);
	extent_map_check(model.map);
	model_check_totals(&model);
	extent_map_free(model.map);
}
