/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef DAEMON_RATE_H
#define DAEMON_RATE_H

#include <stdbool.h>
#include <stdint.h>

/*
 * How many requests a second somebody may make: a bucket that holds one second's worth and
 * fills evenly. Embedded in the object whose requests it counts.
 */

struct rate {
	uint32_t per_s; /* 0: unlimited */
	uint64_t level; /* in units of 1e-9 request, so that filling is exact */
	uint64_t at_ns; /* when the level was that */
};

/**
 * rate_init() - a full bucket
 * @per_s: requests a second, and as many at once after a second of rest; 0: unlimited
 */
void rate_init(struct rate *rate, uint32_t per_s, uint64_t now_ns);

/**
 * rate_set() - change the rate
 *
 * What the bucket holds stays, as far as it fits the new size; one that was unlimited is full.
 */
void rate_set(struct rate *rate, uint32_t per_s, uint64_t now_ns);

/**
 * rate_take() - may a request be made now? If so it is counted.
 *
 * A time before that of an earlier call counts as the same time.
 */
bool rate_take(struct rate *rate, uint64_t now_ns);

#endif
