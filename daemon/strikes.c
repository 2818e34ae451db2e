/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Strikes of one tenant. Owns the times of those strikes and pardons that may still matter.
 *
 * Invariants: the times in a ring do not go back, because each is at least latest_ns; while
 * a ban lasts no strike is in the ring. Time spans are half open: what lasts n ms from t is
 * true at t and no more at t + n ms.
 *
 * Thread: the loop.
 */
#include "daemon/strikes.h"

#include <assert.h>

#include "common/clock.h"
#include "daemon/back_off.h"

#define STRIKES_PARDON_WINDOW_MS 60000

static uint64_t strikes_forward(struct strikes *strikes, uint64_t now_ns)
{
	if (now_ns > strikes->latest_ns)
		strikes->latest_ns = now_ns;
	return strikes->latest_ns;
}

static uint64_t strikes_not_before(const struct strikes *strikes, uint64_t now_ns)
{
	return now_ns > strikes->latest_ns ? now_ns : strikes->latest_ns;
}

static uint64_t strike_times_get(const struct strike_times *times, uint32_t i)
{
	return times->at_ns[(times->first + i) % STRIKES_CAP];
}

/* How many, from the oldest on, lie keep_ms back or more. */
static uint32_t strike_times_old(const struct strike_times *times, uint64_t keep_ms,
				 uint64_t now_ns)
{
	uint32_t old = 0;

	while (old < times->count && clock_add_ms(strike_times_get(times, old), keep_ms) <= now_ns)
		old++;
	return old;
}

static void strike_times_drop(struct strike_times *times, uint32_t count)
{
	times->first = (times->first + count) % STRIKES_CAP;
	times->count -= count;
}

/* The oldest makes room if all are kept. */
static void strike_times_push(struct strike_times *times, uint64_t at_ns)
{
	if (times->count == STRIKES_CAP)
		strike_times_drop(times, 1);
	times->at_ns[(times->first + times->count) % STRIKES_CAP] = at_ns;
	times->count++;
}

void strike_grace_note(struct strike_grace *grace, uint64_t now_ns)
{
	if (!grace->noted || now_ns > grace->ended_ns)
		grace->ended_ns = now_ns;
	grace->noted = true;
}

void strike_grace_note_operator(struct strike_grace *grace, uint64_t now_ns)
{
	if (!grace->noted_operator || now_ns > grace->operator_ended_ns)
		grace->operator_ended_ns = now_ns;
	grace->noted_operator = true;
}

static void strikes_ban(struct strikes *strikes, const struct strike_limits *limits,
			uint64_t now_ns)
{
	strikes->banned_until_ns = clock_add_ms(now_ns, limits->ban_ms);
	strikes->bans_total++;
	strikes->lane_from_ns = 0;
	strike_times_drop(&strikes->strikes, strikes->strikes.count);
}

static void strikes_back_off(struct strikes *strikes, const struct strike_limits *limits,
			     uint64_t now_ns)
{
	/* The first lane after a strike comes at once: anybody may err once. */
	uint64_t wait_ms = back_off_ms(limits->back_off_min_ms, limits->back_off_max_ms,
				       strikes->strikes.count - 1);
	uint64_t from_ns = clock_add_ms(now_ns, wait_ms);

	if (from_ns > strikes->lane_from_ns)
		strikes->lane_from_ns = from_ns;
}

enum strike_outcome strikes_add(struct strikes *strikes, const struct strike_limits *limits,
				enum strike_kind kind, uint64_t now_ns)
{
	struct strike_times *times = &strikes->strikes;

	assert(kind < STRIKE_KINDS && limits->strikes_max <= STRIKES_CAP);
	now_ns = strikes_forward(strikes, now_ns);
	strikes->total[kind]++;
	if (strikes_banned_until_ns(strikes, now_ns) != 0)
		return STRIKE_BANNED_YET;
	strike_times_drop(times, strike_times_old(times, limits->decay_ms, now_ns));
	strike_times_push(times, now_ns);
	if (limits->strikes_max > 0 && times->count >= limits->strikes_max) {
		strikes_ban(strikes, limits, now_ns);
		return STRIKE_BAN;
	}
	strikes_back_off(strikes, limits, now_ns);
	return STRIKE_COUNTED;
}

static bool strikes_pardon(struct strikes *strikes, const struct strike_limits *limits,
			   const struct strike_grace *grace, uint64_t alive_ns, uint64_t now_ns)
{
	struct strike_times *pardons = &strikes->pardons;

	assert(limits->pardons_max <= STRIKES_CAP);
	if (grace->noted_operator &&
	    alive_ns < clock_add_ms(grace->operator_ended_ns, limits->grace_ms)) {
		strikes->pardons_total++;
		return true;
	}
	if (!grace->noted || alive_ns >= clock_add_ms(grace->ended_ns, limits->grace_ms))
		return false;
	strike_times_drop(pardons, strike_times_old(pardons, STRIKES_PARDON_WINDOW_MS, now_ns));
	if (pardons->count >= limits->pardons_max)
		return false;
	strike_times_push(pardons, now_ns);
	strikes->pardons_total++;
	return true;
}

enum strike_outcome strikes_access_error(struct strikes *strikes,
					 const struct strike_limits *limits,
					 const struct strike_grace *grace, uint64_t alive_ns,
					 uint64_t now_ns)
{
	now_ns = strikes_forward(strikes, now_ns);
	if (strikes_banned_until_ns(strikes, now_ns) == 0 &&
	    strikes_pardon(strikes, limits, grace, alive_ns, now_ns))
		return STRIKE_PARDONED;
	return strikes_add(strikes, limits, STRIKE_ACCESS, now_ns);
}

uint64_t strikes_banned_until_ns(const struct strikes *strikes, uint64_t now_ns)
{
	if (strikes_not_before(strikes, now_ns) >= strikes->banned_until_ns)
		return 0;
	return strikes->banned_until_ns;
}

uint64_t strikes_lane_from_ns(const struct strikes *strikes, uint64_t now_ns)
{
	if (strikes_not_before(strikes, now_ns) >= strikes->lane_from_ns)
		return 0;
	return strikes->lane_from_ns;
}

uint32_t strikes_count(const struct strikes *strikes, const struct strike_limits *limits,
		       uint64_t now_ns)
{
	const struct strike_times *times = &strikes->strikes;

	now_ns = strikes_not_before(strikes, now_ns);
	return times->count - strike_times_old(times, limits->decay_ms, now_ns);
}

bool strikes_unban(struct strikes *strikes, uint64_t now_ns)
{
	bool was_banned;

	now_ns = strikes_forward(strikes, now_ns);
	was_banned = strikes_banned_until_ns(strikes, now_ns) != 0;
	strikes->banned_until_ns = 0;
	strikes->lane_from_ns = 0;
	strike_times_drop(&strikes->strikes, strikes->strikes.count);
	return was_banned;
}
