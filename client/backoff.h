/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef CLIENT_BACKOFF_H
#define CLIENT_BACKOFF_H

#include <stdint.h>

/* Waiting longer each time, and not all clients equally long. */
struct backoff {
	uint64_t min_ms; /* before the first try at most; not 0 */
	uint64_t max_ms;
	uint32_t tries; /* so far */
};

/**
 * backoff_next_ms() - how long to wait before the next try
 * @random: any number
 *
 * Between a half of and the whole of a time that begins with min_ms and doubles up to max_ms.
 * Pure.
 */
uint64_t backoff_next_ms(struct backoff *backoff, uint32_t random);

#endif
