/* SPDX-License-Identifier: BSD-3-Clause */
/* Structs of options that callers of other versions of the library pass. */
#include "client/pool.h"

#include <string.h>

#include "tests/unit/test.h"

struct options_1 {
	size_t size;
	uint64_t first;
};

struct options_2 {
	size_t size;
	uint64_t first;
	uint64_t second;
};

struct options_3 {
	size_t size;
	uint64_t first;
	uint64_t second;
	uint64_t third;
};

static bool take(const void *options, struct options_2 *ret_options)
{
	return pool_options_take(options, sizeof(struct options_1), sizeof(struct options_2),
				 ret_options);
}

TEST(options_take__our_version)
{
	struct options_2 given = {.size = sizeof(given), .first = 1, .second = 2};
	struct options_2 got;

	CHECK(take(&given, &got));
	CHECK_MEM(&got, &given, sizeof(got));
}

TEST(options_take__earlier_version)
{
	struct options_1 given = {.size = sizeof(given), .first = 1};
	struct options_2 got = {.second = 77};

	CHECK(take(&given, &got));
	CHECK_INT(got.first, 1);
	CHECK_INT(got.second, 0);
}

TEST(options_take__later_version)
{
	struct options_3 given = {.size = sizeof(given), .first = 1, .second = 2};
	struct options_2 got;

	CHECK(take(&given, &got));
	CHECK_INT(got.first, 1);
	CHECK_INT(got.second, 2);
	given.third = 3;
	CHECK(!take(&given, &got));
}

/* No version had such a size: the caller is mistaken, or has not set it. */
TEST(options_take__other_sizes)
{
	struct options_3 given = {.first = 1};
	struct options_2 got = {.first = 77};

	for (given.size = 0; given.size < sizeof(struct options_2); given.size++) {
		if (given.size != sizeof(struct options_1))
			CHECK(!take(&given, &got));
	}
	CHECK(!take(NULL, &got));
	CHECK_INT(got.first, 77);
}

/* A size that was never set may say anything: what it claims is not read beyond a page. */
TEST(options_take__no_longer_than_any_version_will_be)
{
	static uint8_t given[POOL_OPTIONS_MAX + 8];
	struct options_2 got = {.first = 77};
	size_t size = POOL_OPTIONS_MAX;

	CHECK_INT(POOL_OPTIONS_MAX, 4096);
	memcpy(given, &size, sizeof(size));
	CHECK(take(given, &got));
	given[POOL_OPTIONS_MAX] = 1; /* does not belong to it */
	CHECK(take(given, &got));
	given[POOL_OPTIONS_MAX - 1] = 1;
	CHECK(!take(given, &got));
	memset(given, 0, sizeof(given));
	size++;
	memcpy(given, &size, sizeof(size));
	CHECK(!take(given, &got));
	size = SIZE_MAX;
	memcpy(given, &size, sizeof(size));
	CHECK(!take(given, &got));
}

/* Programs that were built before there were events. */
TEST(options_take__connect_of_the_first_version)
{
	struct mempool_connect_opts opts = {0};
	mempool *pool = NULL;

	CHECK_INT(offsetof(struct mempool_connect_opts, on_event), 40);
	opts.size = 39;
	CHECK_INT(mempool_connect("127.0.0.1", &opts, &pool), MEMPOOL_E_INVALID);
	CHECK_STR(mempool_last_error(), "the options are not valid");
	opts.size = 40;
	opts.reconnect_ms = 77; /* was nobody's then */
	CHECK_INT(mempool_connect("127.0.0.1", &opts, &pool), MEMPOOL_E_INVALID);
	CHECK(strstr(mempool_last_error(), "key_file") != NULL);
	opts.size = 48;
	CHECK_INT(mempool_connect("127.0.0.1", &opts, &pool), MEMPOOL_E_INVALID);
	CHECK_STR(mempool_last_error(), "the options are not valid");
	CHECK(pool == NULL);
}
