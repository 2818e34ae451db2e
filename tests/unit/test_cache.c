/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The registration cache over a device that registers anything: hits, limits, what is used
 * and so stays, what is forgotten.
 */
#include "client/cache.h"

#include <errno.h>
#include <stdlib.h>

#include "common/verbs.h"
#include "tests/unit/test.h"

#define KIB UINT64_C(1024)

static uint32_t registered; /* now */
static uint32_t registrations;
static int refuse;		/* what the next registrations end with */
static int refuse_count;	/* so many of them; -1: all */
static int refuse_to_drop;	/* what unregistering ends with */
static struct ibv_mr *kept[16]; /* by the device, and so no leak of ours */
static uint32_t kept_count;
static struct ibv_pd pd;
static struct ibv_pd other_pd;

int __wrap_verbs_reg_mr(struct ibv_pd *on, void *addr, size_t len_bytes, int access,
			struct ibv_mr **ret_mr);
int __wrap_verbs_dereg_mr(struct ibv_mr *mr);

int __wrap_verbs_reg_mr(struct ibv_pd *on, void *addr, size_t len_bytes, int access,
			struct ibv_mr **ret_mr)
{
	(void)access;
	if (refuse < 0 && refuse_count != 0) {
		refuse_count -= refuse_count > 0;
		return refuse;
	}
	*ret_mr = calloc(1, sizeof(**ret_mr));
	if (*ret_mr == NULL)
		abort();
	**ret_mr = (struct ibv_mr){.pd = on, .addr = addr, .length = len_bytes};
	registered++;
	registrations++;
	return 0;
}

int __wrap_verbs_dereg_mr(struct ibv_mr *mr)
{
	if (mr == NULL)
		return 0;
	if (refuse_to_drop < 0) {
		kept[kept_count++ % 16] = mr;
		return refuse_to_drop;
	}
	registered--;
	free(mr);
	return 0;
}

static void make(struct cache *cache, uint64_t bytes_max, uint32_t entries_max,
		 uint64_t len_min_bytes)
{
	struct mempool_cache_opts limits = {
		.size = sizeof(limits),
		.bytes_max = bytes_max,
		.entries_max = entries_max,
		.len_min_bytes = len_min_bytes,
	};

	registered = 0;
	registrations = 0;
	refuse = 0;
	refuse_count = -1;
	refuse_to_drop = 0;
	(void)cache_init(cache);
	cache_limit(cache, &limits);
}

/* Return: was the memory registered? It is not in use afterwards. */
static bool touch(struct cache *cache, uint64_t start, uint64_t len_bytes)
{
	struct cache_entry *entry = cache_get(cache, &pd, start, len_bytes);

	if (entry == NULL)
		return false;
	cache_put(cache, entry);
	return true;
}

static void check_stats(struct cache *cache, uint64_t hits, uint64_t misses, uint64_t evictions,
			uint64_t failures, uint64_t entries, uint64_t bytes)
{
	struct mempool_cache_stats stats;

	cache_read_stats(cache, &stats);
	CHECK_INT(stats.hits, hits);
	CHECK_INT(stats.misses, misses);
	CHECK_INT(stats.evictions, evictions);
	CHECK_INT(stats.failures, failures);
	CHECK_INT(stats.entries, entries);
	CHECK_INT(stats.bytes, bytes);
	CHECK_INT(registered, entries);
}

static void finish(struct cache *cache)
{
	cache_deinit(cache);
	CHECK_INT(registered, 0);
}

TEST(cache__off_at_first)
{
	struct cache cache;

	registrations = 0;
	CHECK_INT(cache_init(&cache), 0);
	CHECK(!touch(&cache, 4096, 1024 * KIB));
	CHECK_INT(registrations, 0);
	check_stats(&cache, 0, 0, 0, 0, 0, 0);
	finish(&cache);
}

TEST(cache_get__hit_within_what_is_there)
{
	struct cache cache;

	make(&cache, 1024 * KIB, 4, 64 * KIB);
	CHECK(!touch(&cache, 0x10001, 64 * KIB - 1));
	CHECK(touch(&cache, 0x10001, 64 * KIB));
	CHECK(touch(&cache, 0x10001, 64 * KIB));
	CHECK_INT(registrations, 1);
	check_stats(&cache, 1, 1, 0, 0, 1, 64 * KIB);
	/* Longer, so that the old one must go. */
	CHECK(touch(&cache, 0x10001, 128 * KIB));
	CHECK(touch(&cache, 0x10001 + 32 * KIB, 96 * KIB));
	check_stats(&cache, 2, 2, 0, 0, 1, 128 * KIB);
	finish(&cache);
}

TEST(cache_get__what_was_used_longest_ago_goes)
{
	struct cache cache;

	make(&cache, 1024 * KIB, 3, 1);
	CHECK(touch(&cache, 1000, 10));
	CHECK(touch(&cache, 2000, 10));
	CHECK(touch(&cache, 3000, 10));
	CHECK(touch(&cache, 1000, 10));
	CHECK(touch(&cache, 4000, 10));
	check_stats(&cache, 1, 4, 1, 0, 3, 30);
	CHECK(touch(&cache, 1000, 10));
	CHECK(touch(&cache, 3000, 10));
	check_stats(&cache, 3, 4, 1, 0, 3, 30);
	CHECK(touch(&cache, 2000, 10));
	check_stats(&cache, 3, 5, 2, 0, 3, 30);
	finish(&cache);
}

TEST(cache_get__limit_of_bytes)
{
	struct cache cache;

	make(&cache, 100, 10, 1);
	CHECK(!touch(&cache, 1000, 101));
	check_stats(&cache, 0, 1, 0, 1, 0, 0);
	CHECK(touch(&cache, 1000, 100));
	CHECK(touch(&cache, 2000, 1));
	check_stats(&cache, 0, 3, 1, 1, 1, 1);
	CHECK(touch(&cache, 3000, 99));
	check_stats(&cache, 0, 4, 1, 1, 2, 100);
	finish(&cache);
}

/* What is in use is neither pushed out nor forgotten; then it is done without. */
TEST(cache_get__in_use)
{
	struct cache_entry *one, *two;
	struct cache cache;

	make(&cache, 1000, 2, 1);
	one = cache_get(&cache, &pd, 1000, 10);
	two = cache_get(&cache, &pd, 2000, 10);
	CHECK(one != NULL && two != NULL);
	CHECK(cache_get(&cache, &pd, 3000, 10) == NULL);
	CHECK(cache_get(&cache, &pd, 1005, 10) == NULL);
	CHECK_INT(cache_forget(&cache, 0, 5000), -EBUSY);
	check_stats(&cache, 0, 4, 0, 2, 2, 20);
	cache_put(&cache, one);
	CHECK(touch(&cache, 3000, 10));
	check_stats(&cache, 0, 5, 1, 2, 2, 20);
	cache_put(&cache, two);
	CHECK_INT(cache_forget(&cache, 0, 5000), 0);
	check_stats(&cache, 0, 5, 1, 2, 0, 0);
	finish(&cache);
}

TEST(cache_forget__what_has_a_part_of_it)
{
	struct cache cache;

	make(&cache, 1000, 10, 1);
	CHECK(touch(&cache, 1000, 10));
	CHECK(touch(&cache, 1010, 10));
	CHECK(touch(&cache, 1020, 10));
	CHECK_INT(cache_forget(&cache, 1009, 2), 0);
	check_stats(&cache, 0, 3, 0, 0, 1, 10);
	CHECK_INT(cache_forget(&cache, 1030, 100), 0);
	CHECK_INT(cache_forget(&cache, 1020, 0), 0);
	check_stats(&cache, 0, 3, 0, 0, 1, 10);
	finish(&cache);
}

/* Refused by the system, or of another device. */
TEST(cache_get__not_to_be_had)
{
	struct cache_entry *entry;
	struct cache cache;

	make(&cache, 1000, 10, 1);
	refuse = -EFAULT;
	CHECK(!touch(&cache, 1000, 10));
	refuse = 0;
	check_stats(&cache, 0, 1, 0, 1, 0, 0);
	CHECK(touch(&cache, 1000, 10));
	entry = cache_get(&cache, &other_pd, 1000, 10);
	CHECK(entry != NULL && entry->mr->pd == &other_pd);
	cache_put(&cache, entry);
	check_stats(&cache, 0, 3, 0, 1, 1, 10);
	finish(&cache);
}

TEST(cache_limit__lower_and_off)
{
	struct mempool_cache_opts limits = {.size = sizeof(limits)};
	struct cache cache;

	make(&cache, 1000, 10, 1);
	for (uint64_t i = 1; i <= 5; i++)
		CHECK(touch(&cache, i * 1000, 10));
	limits.entries_max = 4;
	limits.bytes_max = 1000;
	cache_limit(&cache, &limits);
	check_stats(&cache, 0, 5, 0, 0, 4, 40);
	limits.bytes_max = 29;
	cache_limit(&cache, &limits);
	check_stats(&cache, 0, 5, 0, 0, 2, 20);
	limits.entries_max = 0;
	cache_limit(&cache, &limits);
	check_stats(&cache, 0, 5, 0, 0, 0, 0);
	CHECK(!touch(&cache, 1000, 10));
	finish(&cache);
}

/* What was in use when the limits were lowered goes when it is not any more. */
TEST(cache_put__beyond_limits_that_are_lower_now)
{
	struct mempool_cache_opts limits = {.size = sizeof(limits), .len_min_bytes = 1};
	struct cache_entry *one, *two, *three;
	struct cache cache;

	make(&cache, 1000, 10, 1);
	one = cache_get(&cache, &pd, 1000, 10);
	two = cache_get(&cache, &pd, 2000, 20);
	three = cache_get(&cache, &pd, 3000, 30);
	CHECK(one != NULL && two != NULL && three != NULL);
	CHECK(cache_get(&cache, &pd, 1000, 10) == one);
	limits.entries_max = 10;
	limits.bytes_max = 50;
	cache_limit(&cache, &limits);
	check_stats(&cache, 1, 3, 0, 0, 3, 60);
	cache_put(&cache, one);
	check_stats(&cache, 1, 3, 0, 0, 3, 60);
	cache_put(&cache, one);
	check_stats(&cache, 1, 3, 0, 0, 2, 50);
	/* It fits now. */
	cache_put(&cache, two);
	check_stats(&cache, 1, 3, 0, 0, 2, 50);
	limits.entries_max = 0;
	cache_limit(&cache, &limits);
	check_stats(&cache, 1, 3, 0, 0, 1, 30);
	cache_put(&cache, three);
	check_stats(&cache, 1, 3, 0, 0, 0, 0);
	finish(&cache);
}

/* Memory that cannot be registered anyway pushes nothing out. */
TEST(cache_get__refused_with_the_cache_full)
{
	struct cache cache;

	make(&cache, 1000, 2, 1);
	CHECK(touch(&cache, 1000, 10));
	CHECK(touch(&cache, 2000, 10));
	refuse = -EFAULT;
	CHECK(!touch(&cache, 3000, 10));
	CHECK(!touch(&cache, 1000, 11));
	check_stats(&cache, 0, 4, 0, 2, 2, 20);
	/* Unless it is refused because too much is locked. */
	refuse = -ENOMEM;
	refuse_count = 1;
	CHECK(touch(&cache, 3000, 10));
	check_stats(&cache, 0, 5, 1, 2, 2, 20);
	refuse_count = -1;
	CHECK(!touch(&cache, 4000, 10));
	refuse = 0;
	check_stats(&cache, 0, 6, 2, 3, 1, 10);
	finish(&cache);
}

/* What the device keeps is told, and not found any more. */
TEST(cache_forget__cannot_be_unregistered)
{
	struct mempool_cache_stats stats;
	struct cache cache;

	make(&cache, 1000, 10, 1);
	CHECK(touch(&cache, 1000, 10));
	CHECK(touch(&cache, 2000, 10));
	refuse_to_drop = -EIO;
	CHECK_INT(cache_forget(&cache, 1000, 2000), -EIO);
	refuse_to_drop = 0;
	CHECK_INT(registered, 2);
	cache_read_stats(&cache, &stats);
	CHECK_INT(stats.entries, 0);
	CHECK_INT(stats.bytes, 0);
	CHECK_INT(cache_forget(&cache, 1000, 2000), 0);
	CHECK(touch(&cache, 1000, 10));
	cache_deinit(&cache);
	CHECK_INT(registered, 2);
}
