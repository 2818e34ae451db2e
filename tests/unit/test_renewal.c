/* SPDX-License-Identifier: BSD-3-Clause */
/* The times of leases: guard margin, next renewal, warning. */
#include "client/renewal.h"

#include "common/clock.h"
#include "tests/unit/test.h"

#define MS(n) ((uint64_t)(n)*CLOCK_NS_PER_MS)

TEST(renewal_deadline__margin)
{
	/* A sixteenth, and one part in 4096. */
	CHECK_INT(renewal_deadline_ns(MS(1000), 160), MS(1160) - MS(10) - MS(160) / 4096);
	/* 20 ms at most: 320 ms is where that begins. */
	CHECK_INT(renewal_deadline_ns(0, 320), MS(300) - MS(320) / 4096);
	CHECK_INT(renewal_deadline_ns(0, 321), MS(301) - MS(321) / 4096);
	CHECK_INT(renewal_deadline_ns(0, 3600000), MS(3600000) - MS(20) - MS(3600000) / 4096);
}

TEST(renewal_deadline__never_late_and_never_before_the_request)
{
	static const uint64_t ttls_ms[] = {1, 2, 3, 15, 16, 17, 1000, 86400000, UINT64_MAX};

	CHECK_INT(renewal_deadline_ns(MS(5), 0), MS(5));
	for (size_t i = 0; i < sizeof(ttls_ms) / sizeof(ttls_ms[0]); i++) {
		uint64_t deadline_ns = renewal_deadline_ns(MS(77), ttls_ms[i]);

		CHECK(deadline_ns > MS(77));
		CHECK(deadline_ns < clock_add_ms(MS(77), ttls_ms[i]));
	}
}

TEST(renewal_try__between_three_and_five_eighths)
{
	CHECK_INT(renewal_try_ns(MS(100), MS(900), 0), MS(400));
	for (uint32_t random = 0; random < 5000; random++) {
		uint64_t at_ns = renewal_try_ns(MS(100), MS(900), random);

		CHECK(at_ns >= MS(400));
		CHECK(at_ns < MS(600));
	}
	CHECK(renewal_try_ns(MS(100), MS(900), 1023) > MS(599));
	CHECK_INT(renewal_try_ns(MS(100), MS(900), 1024), MS(400));
}

/* It is tried a bounded number of times, always in time, and then no more. */
TEST(renewal_try__comes_to_an_end)
{
	uint64_t now_ns = MS(1000);
	uint64_t deadline_ns = MS(3601000);
	int tries = 0;

	for (;;) {
		uint64_t next_ns = renewal_try_ns(now_ns, deadline_ns, 0);

		if (next_ns == RENEWAL_NEVER)
			break;
		CHECK(next_ns > now_ns);
		CHECK(next_ns < deadline_ns);
		now_ns = next_ns;
		tries++;
	}
	CHECK(tries > 20 && tries < 40);
	CHECK(deadline_ns - now_ns < MS(2));
}

TEST(renewal_try__too_late)
{
	CHECK_INT(renewal_try_ns(MS(10), MS(10), 0), RENEWAL_NEVER);
	CHECK_INT(renewal_try_ns(MS(11), MS(10), 0), RENEWAL_NEVER);
	CHECK_INT(renewal_try_ns(MS(10), MS(12) - 1, 0), RENEWAL_NEVER);
	CHECK_INT(renewal_try_ns(MS(10), MS(18), 0), MS(13));
	/* A lease that lasts for ever. */
	CHECK(renewal_try_ns(MS(10), UINT64_MAX, 1023) < UINT64_MAX);
}

TEST(renewal_warn__a_quarter_but_ten_seconds_at_most)
{
	CHECK_INT(renewal_warn_ns(MS(1000), 400), MS(900));
	CHECK_INT(renewal_warn_ns(MS(100000), 40000), MS(90000));
	CHECK_INT(renewal_warn_ns(MS(100000), 40004), MS(90000));
	CHECK_INT(renewal_warn_ns(MS(1000), 3), MS(1000));
	CHECK_INT(renewal_warn_ns(MS(5), UINT64_MAX), 0);
}
