/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef DAEMON_STRIKES_H
#define DAEMON_STRIKES_H

#include <stdbool.h>
#include <stdint.h>

/*
 * What a tenant has done against the rules, and what follows from it: a wait before it may
 * have a new lane, doubled by each further strike, then a ban. Embedded in the tenant.
 * Times are clock_now_ns()'s; a time before that of an earlier call counts as the same time.
 */

enum strike_kind {
	STRIKE_ACCESS,	 /* one of its connections died of an access that it had no right to */
	STRIKE_PROTOCOL, /* it broke the protocol on a session that was its own for certain */
	STRIKE_KINDS,
};

enum strike_outcome {
	STRIKE_COUNTED,
	STRIKE_PARDONED,   /* the daemon may have caused it itself: no strike */
	STRIKE_BAN,	   /* counted, and the ban begins with it */
	STRIKE_BANNED_YET, /* the tenant is banned: changes nothing */
};

/* The same for all tenants; may change between calls. */
struct strike_limits {
	uint32_t strikes_max; /* as many within decay_ms are a ban; 0: never; at most STRIKES_CAP */
	uint64_t decay_ms;    /* a strike is forgotten so long after it was made */
	uint64_t back_off_min_ms; /* the second strike's wait for a new lane; the first has none */
	uint64_t back_off_max_ms;
	uint64_t ban_ms;
	uint64_t grace_ms;    /* an access this soon after the end of a window may be no ill will */
	uint32_t pardons_max; /* such accesses pardoned within a minute; at most STRIKES_CAP. Not
				 counted are those after the operator's doing, see below */
};

#define STRIKES_CAP 64 /* times of strikes, and of pardons, that are kept */

/* Times that something happened, oldest first, in a ring. */
struct strike_times {
	uint64_t at_ns[STRIKES_CAP];
	uint32_t first;
	uint32_t count;
};

/* All zero at first. */
struct strikes {
	struct strike_times strikes;
	struct strike_times pardons;
	uint64_t banned_until_ns;
	uint64_t lane_from_ns;
	uint64_t latest_ns;	      /* highest time of any call */
	uint64_t total[STRIKE_KINDS]; /* ever, those during a ban included */
	uint64_t pardons_total;
	uint64_t bans_total;
};

/* Of a lane; all zero at first. */
struct strike_grace {
	bool noted;
	bool noted_operator;
	uint64_t ended_ns;	    /* when the daemon last ended a window of the lane */
	uint64_t operator_ended_ns; /* when it last did so because the operator wished it */
};

/**
 * strike_grace_note() - the daemon itself ends a window of that lane, from now on
 *
 * Not for windows that end because the tenant wished it.
 */
void strike_grace_note(struct strike_grace *grace, uint64_t now_ns);

/**
 * strike_grace_note_operator() - the same, because the operator wished it
 *
 * A tenant can bring about that its leases expire as often as it likes, but not this: so what
 * follows from it is pardoned however often it happens.
 */
void strike_grace_note_operator(struct strike_grace *grace, uint64_t now_ns);

/**
 * strikes_add() - count a strike
 *
 * A strike that is made at t is forgotten at t + decay_ms, not before. When strikes_max are
 * remembered the ban begins and they are forgotten: after the ban one begins anew. What
 * happens during a ban does not make it longer.
 * Return: STRIKE_COUNTED, STRIKE_BAN or STRIKE_BANNED_YET.
 */
enum strike_outcome strikes_add(struct strikes *strikes, const struct strike_limits *limits,
				enum strike_kind kind, uint64_t now_ns);

/**
 * strikes_access_error() - a lane has died of an access error: pardon it or count a strike
 * @grace: of that lane
 * @alive_ns: when the lane was last seen alive, so the earliest time that the access can have
 *	been; @now_ns if there is no telling
 *
 * The death of a lane may be found seconds late. It is pardoned if the access can have been
 * before ended_ns + grace_ms; but not if pardons_max were pardoned within the last minute.
 * Before operator_ended_ns + grace_ms it is pardoned in any case, and not counted.
 * Return: any outcome.
 */
enum strike_outcome strikes_access_error(struct strikes *strikes,
					 const struct strike_limits *limits,
					 const struct strike_grace *grace, uint64_t alive_ns,
					 uint64_t now_ns);

/** strikes_banned_until_ns() - the first time after the ban; 0: not banned */
uint64_t strikes_banned_until_ns(const struct strikes *strikes, uint64_t now_ns);

/**
 * strikes_lane_from_ns() - the first time that the tenant may have a new lane; 0: now
 *
 * Says nothing of a ban.
 */
uint64_t strikes_lane_from_ns(const struct strikes *strikes, uint64_t now_ns);

/** strikes_count() - strikes that are not forgotten */
uint32_t strikes_count(const struct strikes *strikes, const struct strike_limits *limits,
		       uint64_t now_ns);

/**
 * strikes_unban() - end the ban, forget the strikes and the wait for lanes
 *
 * Return: was the tenant banned?
 */
bool strikes_unban(struct strikes *strikes, uint64_t now_ns);

#endif
