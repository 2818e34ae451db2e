/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Many whole lives of a client, one after the other: nothing is left in the kernel, the pool
 * or the daemon's memory, and the last ones take no longer than the first.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "common/clock.h"
#include "tests/integration/harness.h"
#include "tests/integration/resources.h"

#define WARM_UP		    20
#define CYCLES_MAX	    5000
#define SLOWER_MAX	    1.5 /* the last ones as against the first, by their medians */
#define LEASE_BYTES	    70001
#define RSS_TOLERANCE_BYTES (2 * (int64_t)MIB) /* malloc's own needs, after the warm-up */

static int cycle(void)
{
	uint8_t bytes[4096];
	mempool_lease *lease;
	mempool *pool;
	int r;

	r = harness_connect("cyclist", &pool);
	if (r < 0)
		return r;
	harness_fill(bytes, sizeof(bytes), 5);
	r = harness_acquire(pool, LEASE_BYTES, 600000, &lease);
	if (r == 0)
		r = mempool_write(lease, LEASE_BYTES - sizeof(bytes), bytes, sizeof(bytes));
	if (r == 0)
		r = mempool_release(lease);
	mempool_close(pool);
	return r;
}

static double median_ms(uint64_t *times_ns, size_t count)
{
	harness_sort(times_ns, count);
	return (double)times_ns[count / 2] / 1e6;
}

static void wait_quiet(struct harness *h)
{
	CHECK(harness_wait_number(h, "sessions", 0, 10000));
	CHECK(harness_wait_number(h, "lanes", 0, 10000));
	CHECK(harness_wait_number(h, "pool.free_bytes", 16 * (int64_t)MIB, 10000));
}

TEST(field_51_cycles__leave_nothing_behind)
{
	HARNESS(h, .pool_size = NULL);
	static uint64_t times_ns[CYCLES_MAX];
	uint32_t cycles = harness_figure(FIGURE_LIVES);
	struct resources before = {0};
	struct resources after = {0};
	bool countable = false;
	int64_t rss_before = 0;
	int64_t rss_after;
	double first_ms, last_ms;

	CHECK(cycles >= 2 * WARM_UP && cycles <= CYCLES_MAX);
	for (uint32_t i = 0; i < cycles; i++) {
		uint64_t begun_ns = clock_now_ns();

		CHECK_INT(cycle(), 0);
		times_ns[i] = clock_now_ns() - begun_ns;
		if (i + 1 != WARM_UP)
			continue;
		wait_quiet(&h);
		rss_before = harness_rss_bytes(h.pid);
		countable = resources_read(&before);
	}
	wait_quiet(&h);
	CHECK(!test_has_failed());
	rss_after = harness_rss_bytes(h.pid);
	CHECK_INT(harness_number(&h, "counters.sessions_accepted"), cycles);
	first_ms = median_ms(times_ns, cycles / 4);
	last_ms = median_ms(times_ns + cycles - cycles / 4, cycles / 4);
	printf("# %u cycles; half of the first quarter took %.1f ms or less, of the last %.1f ms\n",
	       cycles, first_ms, last_ms);
	CHECK(last_ms <= SLOWER_MAX * first_ms);
	printf("# the daemon's memory: %" PRId64 " KiB, then %" PRId64 " KiB\n", rss_before / 1024,
	       rss_after / 1024);
	CHECK(rss_before > 0);
	CHECK(rss_after - rss_before <= RSS_TOLERANCE_BYTES);
	CHECK_INT(harness_number(&h, "counters.destroy_failures"), 0);
	if (countable) {
		CHECK(resources_read(&after));
		resources_print("before", &before);
		resources_print("after", &after);
		CHECK(resources_equal(&before, &after));
	}
	CHECK_INT(harness_stop(&h), 0);
}
