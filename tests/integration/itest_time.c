/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Leases on a machine whose clock is set, or that sleeps. Both are done to test guests only.
 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "common/clock.h"
#include "tests/integration/harness.h"
#include "tests/integration/machine.h"
#include "tests/integration/proof.h"

#define PAGE   4096
#define TTL_MS 600000

#define DAY_S (24 * 3600)

/* @by_s: that the wall clock is off; set right again */
static void clock_restore(time_t *by_s)
{
	struct timespec now;

	(void)clock_gettime(CLOCK_REALTIME, &now);
	now.tv_sec -= *by_s;
	if (*by_s != 0)
		(void)clock_settime(CLOCK_REALTIME, &now);
	*by_s = 0;
}

static void clock_shift(time_t by_s, time_t *off_s)
{
	struct timespec now;

	CHECK_INT(clock_gettime(CLOCK_REALTIME, &now), 0);
	now.tv_sec += by_s;
	CHECK_INT(clock_settime(CLOCK_REALTIME, &now), 0);
	*off_s += by_s;
}

static void check_all_live(struct harness *h, mempool_lease **leases, int count)
{
	uint8_t byte = 1;

	harness_sleep_ms(500);
	CHECK_INT(harness_number(h, "leases.active"), count);
	for (int i = 0; i < count; i++)
		CHECK_INT(mempool_write(leases[i], 0, &byte, 1), 0);
}

/* Only what has no other deadline than its own ends, and that one in time. */
TEST(field_94_clock__set_by_a_day)
{
	HARNESS(h, .pool_size = NULL);
	SESSION(alpha, "alpha");
	__attribute__((cleanup(clock_restore))) time_t off_s = 0;
	mempool_lease *leases[3];
	uint64_t begun_ns;
	uint64_t id;

	if (!machine_is_guest())
		SKIP("the clock is set in test guests only");
	for (int i = 0; i < 3; i++)
		CHECK_INT(harness_acquire(alpha, PAGE, i == 2 ? 6000 : TTL_MS, &leases[i]), 0);
	begun_ns = clock_now_ns();
	id = harness_lease_id(leases[2]);
	clock_shift(DAY_S, &off_s);
	check_all_live(&h, leases, 3);
	clock_shift(-2 * DAY_S, &off_s);
	check_all_live(&h, leases, 3);
	CHECK(!test_has_failed());
	CHECK(harness_wait_lease_gone(&h, id, 10000));
	printf("# a lease of 6000 ms was gone %" PRIu64 " ms after its grant\n",
	       harness_since_ms(begun_ns));
	CHECK(harness_since_ms(begun_ns) > 5500 && harness_since_ms(begun_ns) < 7500);
	clock_restore(&off_s);
	check_all_live(&h, leases, 2);
}

/* Sleep. */

#define SHORT_TTL_MS 3000
#define LONG_TTL_MS  12000
#define LATE_MS	     2000

static uint64_t monotonic_ns(void)
{
	struct timespec now;

	(void)clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * CLOCK_NS_PER_S + (uint64_t)now.tv_nsec;
}

/*
 * The kernel's own test of suspend: it goes all the way but for the last step, which is the
 * firmware's, and waits there with its clocks stopped.
 */
static bool sleep_for_a_while(void)
{
	return machine_shell("echo deep >/sys/power/mem_sleep && echo core >/sys/power/pm_test && "
			     "echo 5 >/sys/module/suspend/parameters/pm_test_delay && "
			     "echo mem >/sys/power/state && echo none >/sys/power/pm_test");
}

/* The one lease has ended in its sleep, the other lives for the rest of its time. */
TEST(field_97_clock__machine_sleeps)
{
	HARNESS(h, .pool_size = NULL);
	SESSION(alpha, "alpha");
	mempool_lease *shorter, *longer;
	uint64_t begun_ns, awake_ns, stood_ns, woke_ns;
	uint8_t byte = 1;

	if (!machine_is_guest())
		SKIP("only test guests are sent to sleep");
	CHECK_INT(harness_acquire(alpha, PAGE, LONG_TTL_MS, &longer), 0);
	begun_ns = clock_now_ns();
	CHECK_INT(harness_acquire(alpha, PAGE, SHORT_TTL_MS, &shorter), 0);
	CHECK_INT(mempool_write(shorter, 0, &byte, 1), 0);
	awake_ns = monotonic_ns();
	CHECK(sleep_for_a_while());
	woke_ns = clock_now_ns();
	stood_ns = woke_ns - begun_ns - (monotonic_ns() - awake_ns);
	printf("# the clock of the processes stood still for %.1f s\n", (double)stood_ns / 1e9);
	/* It is set by the battery-backed clock, which counts seconds. */
	CHECK(stood_ns > SHORT_TTL_MS * CLOCK_NS_PER_MS);
	CHECK_INT(mempool_read(shorter, 0, &byte, 1), MEMPOOL_E_EXPIRED);
	CHECK(harness_wait_number(&h, "leases.active", 1, LATE_MS));
	CHECK(harness_since_ms(woke_ns) < LATE_MS);
	CHECK(harness_since_ms(begun_ns) < LONG_TTL_MS);
	CHECK_INT(mempool_write(longer, 0, &byte, 1), 0);
	CHECK(harness_wait_number(&h, "leases.active", 0, LONG_TTL_MS));
	printf("# a lease of %d ms was gone %" PRIu64 " ms after its grant\n", LONG_TTL_MS,
	       harness_since_ms(begun_ns));
	CHECK(harness_since_ms(begun_ns) > LONG_TTL_MS - 500 &&
	      harness_since_ms(begun_ns) < LONG_TTL_MS + LATE_MS);
	CHECK_INT(mempool_write(longer, 0, &byte, 1), MEMPOOL_E_EXPIRED);
	CHECK_INT(harness_stop(&h), 0);
}
