/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The line of a progress bar: what it says, and that it keeps to the width.
 */
#include "client/tools/progress.h"

#include <string.h>

#include "tests/unit/test.h"

#define MIB (UINT64_C(1) << 20)

static char line[512];

TEST(progress_format__begins_empty)
{
	CHECK_STR(progress_format(0, 100 * MIB, 0, 60, line),
		  "[>                                   ]   0 %  0 B of 100 MiB");
}

TEST(progress_format__half_way)
{
	CHECK_STR(
		progress_format(50 * MIB, 100 * MIB, 5000, 79, line),
		"[================>               ]  50 %  50 MiB of 100 MiB, 10 MiB/s, 6 s left");
}

TEST(progress_format__full)
{
	CHECK_STR(progress_format(100 * MIB, 100 * MIB, 10000, 60, line),
		  "[======================] 100 %  100 MiB of 100 MiB, 10 MiB/s");
}

/* A source that has grown meanwhile. */
TEST(progress_format__more_than_all)
{
	CHECK(strstr(progress_format(101 * MIB, 100 * MIB, 10000, 60, line), "100 %") != NULL);
	CHECK(strstr(line, "left") == NULL);
}

TEST(progress_format__without_a_total)
{
	CHECK_STR(progress_format(50 * MIB, 0, 5000, 79, line), "50 MiB, 10 MiB/s");
	CHECK_STR(progress_format(0, 0, 0, 79, line), "0 B");
}

TEST(progress_format__without_room_for_the_bar)
{
	CHECK_STR(progress_format(50 * MIB, 100 * MIB, 5000, 50, line),
		  " 50 %  50 MiB of 100 MiB, 10 MiB/s, 6 s left");
	CHECK_STR(progress_format(50 * MIB, 100 * MIB, 5000, 10, line), " 50 %  50 ");
	CHECK_STR(progress_format(50 * MIB, 100 * MIB, 5000, 0, line), "");
}

TEST(progress_format__never_wider)
{
	for (size_t columns = 0; columns < 300; columns++) {
		for (uint64_t done = 0; done <= 100; done += 7) {
			memset(line, 'x', sizeof(line));
			progress_format(done * MIB, 100 * MIB, done * 1001, columns, line);
			CHECK(strlen(line) <= columns);
			CHECK_INT(line[columns + 1], 'x');
		}
	}
}

TEST(progress_format__huge_numbers)
{
	CHECK(strstr(progress_format(UINT64_MAX / 2, UINT64_MAX, 1, 100, line), " 50 %") != NULL);
	CHECK(strstr(progress_format(UINT64_MAX, UINT64_MAX, UINT64_MAX, 100, line), "100 %") !=
	      NULL);
}
