/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef COMMON_CLOCK_H
#define COMMON_CLOCK_H

#include <stdint.h>

#define CLOCK_NS_PER_MS UINT64_C(1000000)
#define CLOCK_NS_PER_S	UINT64_C(1000000000)

/* A source of time, for tests. */
typedef uint64_t (*clock_source_fn)(void);

/**
 * clock_now_ns() - time since boot, suspend included (CLOCK_BOOTTIME)
 *
 * Never goes back within a process: an earlier reading of the source counts
 * as no time elapsed. Any thread.
 */
uint64_t clock_now_ns(void);

/**
 * clock_set_source() - replace the source of time
 * @source: called instead of the kernel; NULL restores the kernel's clock
 *
 * For tests; forgets the highest reading so far. Not while other threads read the clock.
 */
void clock_set_source(clock_source_fn source);

/**
 * clock_add_ms() - a time some milliseconds later, saturating at UINT64_MAX
 */
uint64_t clock_add_ms(uint64_t at_ns, uint64_t ms);

/**
 * clock_left_ms() - whole milliseconds until a time, rounded up; 0 if it has passed
 */
uint64_t clock_left_ms(uint64_t until_ns, uint64_t now_ns);

#endif
