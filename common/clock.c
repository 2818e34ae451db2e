/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The one source of time. Owns the highest reading so far: every reading is held
 * against it, so that callers on different threads never see time go back, even
 * if the source does. Any thread; replacing the source is for single-threaded tests.
 */
#include "common/clock.h"

#include <assert.h>
#include <stdatomic.h>
#include <stddef.h>
#include <time.h>

#include "common/checked.h"

static _Atomic(clock_source_fn) current_source;
static _Atomic uint64_t highest_ns;

static uint64_t read_kernel_ns(void)
{
	struct timespec now;
	int r = clock_gettime(CLOCK_BOOTTIME, &now);

	assert(r == 0);
	(void)r;
	return (uint64_t)now.tv_sec * CLOCK_NS_PER_S + (uint64_t)now.tv_nsec;
}

uint64_t clock_now_ns(void)
{
	clock_source_fn source = atomic_load(&current_source);
	uint64_t now_ns = source ? source() : read_kernel_ns();
	uint64_t highest = atomic_load(&highest_ns);

	while (highest < now_ns) {
		if (atomic_compare_exchange_weak(&highest_ns, &highest, now_ns))
			return now_ns;
	}
	return highest;
}

void clock_set_source(clock_source_fn source)
{
	atomic_store(&current_source, source);
	atomic_store(&highest_ns, 0);
}

uint64_t clock_add_ms(uint64_t at_ns, uint64_t ms)
{
	uint64_t ns, sum;

	if (!checked_mul(ms, CLOCK_NS_PER_MS, &ns) || !checked_add(at_ns, ns, &sum))
		return UINT64_MAX;
	return sum;
}

uint64_t clock_left_ms(uint64_t until_ns, uint64_t now_ns)
{
	uint64_t left_ns;

	if (until_ns <= now_ns)
		return 0;
	left_ns = until_ns - now_ns;
	return left_ns / CLOCK_NS_PER_MS + (left_ns % CLOCK_NS_PER_MS != 0);
}
