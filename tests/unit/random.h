/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef TESTS_UNIT_RANDOM_H
#define TESTS_UNIT_RANDOM_H

#include <inttypes.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

/*
 * Repeatable random numbers (splitmix64) for property tests. The seed is printed;
 * TEST_SEED in the environment sets it.
 */

struct random {
	uint64_t state;
};

static inline struct random random_start(void)
{
	const char *text = getenv("TEST_SEED");
	struct timespec now;
	struct random random;

	clock_gettime(CLOCK_REALTIME, &now);
	random.state = (uint64_t)now.tv_sec * UINT64_C(1000000000) + (uint64_t)now.tv_nsec;
	if (text != NULL)
		random.state = strtoull(text, NULL, 0);
	printf("# TEST_SEED=%" PRIu64 "\n", random.state);
	return random;
}

static inline uint64_t random_next(struct random *random)
{
	uint64_t x = random->state += UINT64_C(0x9e3779b97f4a7c15);

	x = (x ^ (x >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
	x = (x ^ (x >> 27)) * UINT64_C(0x94d049bb133111eb);
	return x ^ (x >> 31);
}

/* Below a bound that is small against 2^64, so that the bias does not matter. */
static inline uint64_t random_below(struct random *random, uint64_t bound)
{
	return random_next(random) % bound;
}

#endif
