/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef DAEMON_BACK_OFF_H
#define DAEMON_BACK_OFF_H

#include <stdint.h>

/**
 * back_off_ms() - how long to make somebody wait after so many failures
 * @min_ms: after the first failure; each further one doubles it
 * @max_ms: never longer than this
 *
 * 0 failures: no wait.
 */
static inline uint64_t back_off_ms(uint64_t min_ms, uint64_t max_ms, uint64_t failures)
{
	if (failures == 0 || min_ms == 0)
		return 0;
	/* Is min_ms * 2^(failures - 1) more than max_ms? Asked without the product. */
	if (failures > 64 || min_ms > max_ms >> (failures - 1))
		return max_ms;
	return min_ms << (failures - 1);
}

#endif
