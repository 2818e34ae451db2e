/* SPDX-License-Identifier: BSD-3-Clause */
/* Waiting longer each time, and not all equally long. */
#include "client/backoff.h"

#include "tests/unit/test.h"

TEST(backoff__doubles_up_to_the_limit)
{
	static const uint64_t whole_ms[] = {100, 200, 400, 800, 1000, 1000, 1000};
	struct backoff backoff = {.min_ms = 100, .max_ms = 1000};

	for (size_t i = 0; i < sizeof(whole_ms) / sizeof(whole_ms[0]); i++)
		CHECK_INT(backoff_next_ms(&backoff, 0), whole_ms[i]);
	CHECK_INT(backoff.tries, 7);
}

TEST(backoff__from_a_half_to_the_whole)
{
	uint64_t least_ms = UINT64_MAX, most_ms = 0;

	for (uint32_t random = 0; random < 1000; random++) {
		struct backoff backoff = {.min_ms = 100, .max_ms = 1000, .tries = 2};
		uint64_t ms = backoff_next_ms(&backoff, random);

		least_ms = ms < least_ms ? ms : least_ms;
		most_ms = ms > most_ms ? ms : most_ms;
	}
	CHECK_INT(least_ms, 200);
	CHECK_INT(most_ms, 400);
}

TEST(backoff__never_overflows)
{
	struct backoff backoff = {.min_ms = 1, .max_ms = UINT64_MAX / 2, .tries = 4000000000u};

	CHECK_INT(backoff_next_ms(&backoff, 0), UINT64_MAX / 2);
	backoff = (struct backoff){.min_ms = 1, .max_ms = 1};
	CHECK_INT(backoff_next_ms(&backoff, 1), 1);
	CHECK_INT(backoff_next_ms(&backoff, UINT32_MAX), 1);
}
