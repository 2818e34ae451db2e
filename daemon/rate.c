/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A token bucket in integers. One request costs 1e9 units and a nanosecond brings per_s
 * units, so nothing is ever rounded. Invariant: level <= per_s * 1e9, which is below 2^62;
 * a rest of a second or more fills the bucket whatever it held, so no product overflows.
 *
 * Thread: that of the object which it is part of.
 */
#include "daemon/rate.h"

#include "common/clock.h"

#define RATE_REQUEST CLOCK_NS_PER_S /* units that a request costs */

static uint64_t rate_full(const struct rate *rate)
{
	return rate->per_s * RATE_REQUEST;
}

static void rate_fill(struct rate *rate, uint64_t now_ns)
{
	uint64_t full = rate_full(rate);
	uint64_t elapsed_ns, added;

	if (now_ns <= rate->at_ns)
		return;
	elapsed_ns = now_ns - rate->at_ns;
	rate->at_ns = now_ns;
	if (elapsed_ns >= CLOCK_NS_PER_S) {
		rate->level = full;
		return;
	}
	added = elapsed_ns * rate->per_s;
	rate->level = added > full - rate->level ? full : rate->level + added;
}

void rate_init(struct rate *rate, uint32_t per_s, uint64_t now_ns)
{
	*rate = (struct rate){.per_s = per_s, .at_ns = now_ns};
	rate->level = rate_full(rate);
}

void rate_set(struct rate *rate, uint32_t per_s, uint64_t now_ns)
{
	bool was_unlimited = rate->per_s == 0;

	rate_fill(rate, now_ns);
	rate->per_s = per_s;
	if (was_unlimited || rate->level > rate_full(rate))
		rate->level = rate_full(rate);
}

bool rate_take(struct rate *rate, uint64_t now_ns)
{
	if (rate->per_s == 0)
		return true;
	rate_fill(rate, now_ns);
	if (rate->level < RATE_REQUEST)
		return false;
	rate->level -= RATE_REQUEST;
	return true;
}
