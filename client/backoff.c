/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Waiting between tries. Pure code.
 *
 * Thread: the owner's.
 */
#include "client/backoff.h"

uint64_t backoff_next_ms(struct backoff *backoff, uint32_t random)
{
	uint64_t whole_ms = backoff->min_ms;

	for (uint32_t i = 0; i < backoff->tries && whole_ms < backoff->max_ms; i++)
		whole_ms *= 2;
	if (whole_ms > backoff->max_ms)
		whole_ms = backoff->max_ms;
	backoff->tries++;
	return whole_ms - random % (whole_ms / 2 + 1);
}
