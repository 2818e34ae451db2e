/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef TESTS_REDTEAM_PLAN_H
#define TESTS_REDTEAM_PLAN_H

#include <stdbool.h>
#include <stdint.h>

#include "tests/redteam/relay.h"

#define PLAN_NUMBERS 10 /* SENDs of a direction, from the first on, that are changed */

enum plan_mutation {
	PLAN_FLIP,
	PLAN_CUT,
	PLAN_LENGTHEN,
	PLAN_GARBAGE,
	PLAN_DROP,
	PLAN_SWAP,
	PLAN_REPEAT,
	PLAN_EARLIER,  /* one of this session and direction in its place */
	PLAN_ANOTHERS, /* one of another session, same direction and number */
	PLAN_ANY_OF_ANOTHER,
	PLAN_REFLECT, /* one of the other direction */
	PLAN_MUTATIONS,
};

/* One change to one SEND of a session. */
struct plan {
	enum plan_mutation mutation;
	enum relay_side side;
	uint32_t number;
	unsigned int seed;
	bool done;
	bool holds;
	struct relay_record held; /* to be delivered after the next one */
};

/** plan_make() - a random one, of each kind in turn */
struct plan plan_make(unsigned int seed);

/** plan_pass() - a relay_pass_fn(); the relay's context is the plan, which may fall back to a flip */
void plan_pass(struct relay *relay, const struct relay_record *what);

/** plan_code() - with which the client's session must end, once the plan is carried out */
int plan_code(const struct plan *plan);

/** plan_text_is_right() - does the client's sentence say who has noticed what? */
bool plan_text_is_right(const struct plan *plan, const char *text);

/** plan_hits_daemon() - is it the daemon that finds something that it cannot open? */
bool plan_hits_daemon(const struct plan *plan);

/**
 * plan_may_greet() - may the daemon take it for a greeting, since it was one?
 *
 * Then it is the answer that the client cannot open.
 */
bool plan_may_greet(const struct plan *plan);

const char *plan_mutation_name(enum plan_mutation mutation);

#endif
