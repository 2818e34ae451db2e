/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What a man in the middle does to one SEND, and what must come of it. Owns nothing; what is
 * replayed stays in the relay's records.
 *
 * Thread: plan_pass() on the relay's; the rest on the test's while no session goes on.
 */
#include "tests/redteam/plan.h"

#include <stdlib.h>
#include <string.h>

#include "client/include/mempool.h"
#include "common/secure.h"
#include "proto/error.h"

#define PLAN_ADDED_MAX 64

static const char *const plan_names[PLAN_MUTATIONS] = {
	[PLAN_FLIP] = "flip",
	[PLAN_CUT] = "cut",
	[PLAN_LENGTHEN] = "lengthen",
	[PLAN_GARBAGE] = "garbage",
	[PLAN_DROP] = "drop",
	[PLAN_SWAP] = "swap",
	[PLAN_REPEAT] = "repeat",
	[PLAN_EARLIER] = "replay an earlier one",
	[PLAN_ANOTHERS] = "replay the same of another session",
	[PLAN_ANY_OF_ANOTHER] = "replay any of another session",
	[PLAN_REFLECT] = "reflect",
};

const char *plan_mutation_name(enum plan_mutation mutation)
{
	return plan_names[mutation];
}

static uint32_t plan_random(struct plan *plan, uint32_t end)
{
	return (uint32_t)rand_r(&plan->seed) % end;
}

/* An answer in clear is a refusal that anybody can make; what comes of that is tested apart. */
static bool plan_is_clear(const struct relay_record *record)
{
	struct message m;

	return message_decode(record->bytes, record->len_bytes, &m) == 0;
}

/* One that is not what should come: recorded earlier, of this direction or the other. */
static const struct relay_record *plan_choose(const struct relay *relay, struct plan *plan,
					      const struct relay_record *what)
{
	size_t from = plan_random(plan, (uint32_t)relay->count);

	for (size_t i = 0; i < relay->count; i++) {
		const struct relay_record *other = &relay->records[(from + i) % relay->count];
		bool same_session = other->session == what->session;
		bool same_side = other->side == what->side;

		if (other == what || other->number == RELAY_PRIVATE_DATA || other->session == 0 ||
		    plan_is_clear(other))
			continue;
		if (plan->mutation == PLAN_EARLIER && same_session && same_side)
			return other;
		if (plan->mutation == PLAN_ANOTHERS && !same_session && same_side &&
		    other->number == what->number)
			return other;
		if (plan->mutation == PLAN_ANY_OF_ANOTHER && !same_session && same_side)
			return other;
		if (plan->mutation == PLAN_REFLECT && same_session && !same_side)
			return other;
	}
	return NULL;
}

static void plan_change(struct relay *relay, struct plan *plan, const struct relay_record *what)
{
	uint8_t bytes[PROTO_FRAME_MAX];
	uint32_t len_bytes = what->len_bytes;
	uint32_t at = plan_random(plan, len_bytes);
	uint32_t added = 1 + plan_random(plan, PLAN_ADDED_MAX);

	memcpy(bytes, what->bytes, len_bytes);
	switch (plan->mutation) {
	case PLAN_CUT:
		len_bytes = at;
		break;
	case PLAN_LENGTHEN:
		secure_random(bytes + len_bytes, added);
		len_bytes += added;
		break;
	case PLAN_GARBAGE:
		len_bytes = 1 + plan_random(plan, PROTO_FRAME_MAX);
		secure_random(bytes, len_bytes);
		break;
	default:
		bytes[at] ^= (uint8_t)(1u << plan_random(plan, 8));
	}
	relay_deliver(relay, what->side, bytes, len_bytes);
}

static void plan_replace(struct relay *relay, struct plan *plan, const struct relay_record *what)
{
	const struct relay_record *other = plan_choose(relay, plan, what);

	if (other != NULL) {
		relay_deliver(relay, what->side, other->bytes, other->len_bytes);
		return;
	}
	/* At first there is nothing yet that could come in its place. */
	plan->mutation = PLAN_FLIP;
	plan_change(relay, plan, what);
}

static void plan_carry_out(struct relay *relay, struct plan *plan, const struct relay_record *what)
{
	plan->done = true;
	switch (plan->mutation) {
	case PLAN_DROP:
		break;
	case PLAN_SWAP:
		plan->holds = true;
		plan->held = *what;
		break;
	case PLAN_REPEAT:
		relay_deliver(relay, what->side, what->bytes, what->len_bytes);
		relay_deliver(relay, what->side, what->bytes, what->len_bytes);
		break;
	case PLAN_EARLIER:
	case PLAN_ANOTHERS:
	case PLAN_ANY_OF_ANOTHER:
	case PLAN_REFLECT:
		plan_replace(relay, plan, what);
		break;
	default:
		plan_change(relay, plan, what);
	}
}

void plan_pass(struct relay *relay, const struct relay_record *what)
{
	struct plan *plan = relay->context;

	if (!plan->done && what->side == plan->side && what->number == plan->number) {
		plan_carry_out(relay, plan, what);
		return;
	}
	relay_deliver(relay, what->side, what->bytes, what->len_bytes);
	if (plan->holds && what->side == plan->side) {
		plan->holds = false;
		relay_deliver(relay, plan->held.side, plan->held.bytes, plan->held.len_bytes);
	}
}

struct plan plan_make(unsigned int seed)
{
	struct plan plan = {.seed = seed};

	plan.mutation = (enum plan_mutation)(seed % PLAN_MUTATIONS);
	plan.side = (enum relay_side)plan_random(&plan, RELAY_SIDES);
	/* The handshake more often than what follows. */
	plan.number = plan_random(&plan, 4) == 0 ? 0 : plan_random(&plan, PLAN_NUMBERS);
	return plan;
}

int plan_code(const struct plan *plan)
{
	bool absent = plan->mutation == PLAN_DROP || plan->mutation == PLAN_SWAP;

	if (plan->number > 0 || plan->mutation == PLAN_REPEAT)
		return MEMPOOL_E_SESSION_LOST;
	/* In clear, since the daemon has no key yet. */
	if (absent && plan->side == RELAY_TO_DAEMON)
		return MEMPOOL_E_TIMEOUT;
	return MEMPOOL_E_AUTH;
}

bool plan_hits_daemon(const struct plan *plan)
{
	return plan->side == RELAY_TO_DAEMON && plan_code(plan) != MEMPOOL_E_TIMEOUT;
}

bool plan_may_greet(const struct plan *plan)
{
	return plan->number == 0 && plan->side == RELAY_TO_DAEMON &&
	       (plan->mutation == PLAN_ANOTHERS || plan->mutation == PLAN_ANY_OF_ANOTHER);
}

bool plan_text_is_right(const struct plan *plan, const char *text)
{
	bool opened = strstr(text, "cannot be opened") != NULL;
	bool told = strstr(text, error_text(ERROR_AUTH)) != NULL;

	if (plan_code(plan) == MEMPOOL_E_AUTH)
		told = strstr(text, "cannot read our greeting") != NULL;
	if (plan_code(plan) == MEMPOOL_E_TIMEOUT)
		return strstr(text, error_text(ERROR_TIMEOUT)) != NULL;
	return plan_may_greet(plan) ? opened || told : plan_hits_daemon(plan) ? told : opened;
}
