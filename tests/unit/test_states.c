/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The tables of transitions of lanes, leases, sessions and the daemon, held against complete matrices
 * written here, and what must be true of any such table: no state that nothing leads to,
 * none that the end cannot be reached from, names that tell them apart.
 */
#include <stdio.h>
#include <string.h>

#include "daemon/drain.h"
#include "daemon/lane.h"
#include "daemon/lease.h"
#include "daemon/session.h"
#include "tests/unit/test.h"

#define STATES_MAX 16

struct machine {
	int states;
	int first;
	int final;
	bool (*can_go)(int from, int to);
	const char *(*name)(int state);
	/* One line per state: an x where a step to the state of that column is allowed. */
	const char *const *matrix;
	const char *const *names;
};

static bool lane_step(int from, int to)
{
	return lane_can_go((enum lane_state)from, (enum lane_state)to);
}

static const char *lane_name(int state)
{
	return lane_state_name((enum lane_state)state);
}

static const struct machine lane_machine = {
	.states = LANE_STATES,
	.first = LANE_OFFERED,
	.final = LANE_GONE,
	.can_go = lane_step,
	.name = lane_name,
	.matrix =
		(const char *const[]){
			/* offered, connecting, ready, closing, reaping, stuck, gone */
			".x....x", /* offered: connected, or the offer expires */
			"..xx...", /* connecting */
			"...x...", /* ready */
			"....x..", /* closing */
			".....xx", /* reaping */
			"....x..", /* stuck: tried again */
			".......", /* gone */
		},
	.names = (const char *const[]){"offered", "connecting", "ready", "closing", "reaping",
				       "stuck", "gone"},
};

static bool lease_step(int from, int to)
{
	return lease_can_go((enum lease_state)from, (enum lease_state)to);
}

static const char *lease_name(int state)
{
	return lease_state_name((enum lease_state)state);
}

static const struct machine lease_machine = {
	.states = LEASE_STATES,
	.first = LEASE_REQUESTED,
	.final = LEASE_GONE,
	.can_go = lease_step,
	.name = lease_name,
	.matrix =
		(const char *const[]){
			/* requested, waiting, binding, active, detached, quiescing, rebinding,
			 * ending, fencing, scrubbing, gone */
			".xx........", /* requested */
			"..x....x...", /* waiting */
			"...x...x...", /* binding */
			"....xxxx...", /* active: grows by rebinding without quiescing */
			"...x...x...", /* detached: attached again, or its time is over */
			"...xx.xx...", /* quiescing: back to active if its owner does not stop */
			"...xx..x...", /* rebinding: detached if its lanes are lost meanwhile */
			"........x..", /* ending */
			".........xx", /* fencing: gone at once if it never had bytes */
			"..........x", /* scrubbing */
			"...........", /* gone */
		},
	.names = (const char *const[]){"requested", "waiting", "binding", "active", "detached",
				       "quiescing", "rebinding", "ending", "fencing", "scrubbing",
				       "gone"},
};

static bool session_step(int from, int to)
{
	return session_can_go((enum session_state)from, (enum session_state)to);
}

static const char *session_name(int state)
{
	return session_state_name((enum session_state)state);
}

static const struct machine session_machine = {
	.states = SESSION_STATES,
	.first = SESSION_HELLO,
	.final = SESSION_GONE,
	.can_go = session_step,
	.name = session_name,
	.matrix =
		(const char *const[]){
			/* hello, greeted, open, closing, reaping, gone */
			".x.x..", /* hello */
			"..xx..", /* greeted */
			"...x..", /* open */
			"....x.", /* closing */
			"...x.x", /* reaping: back if it could not be destroyed */
			"......", /* gone */
		},
	.names = (const char *const[]){"hello", "greeted", "open", "closing", "reaping", "gone"},
};

static bool drain_step(int from, int to)
{
	return drain_can_go((enum drain_state)from, (enum drain_state)to);
}

static const char *drain_name(int state)
{
	return drain_state_name((enum drain_state)state);
}

static const struct machine drain_machine = {
	.states = DRAIN_STATES,
	.first = DRAIN_SERVING,
	.final = DRAIN_STOPPING,
	.can_go = drain_step,
	.name = drain_name,
	.matrix =
		(const char *const[]){
			/* serving, draining, ending, drained, stopping */
			".x..x", /* serving */
			"x.xxx", /* draining: undone, the time is over, or nothing is left before */
			"...xx", /* ending: nothing undoes it */
			"x...x", /* drained */
			".....", /* stopping */
		},
	.names = (const char *const[]){"serving", "draining", "ending", "drained", "stopping"},
};

static void check_matrix(const struct machine *machine)
{
	for (int from = 0; from < machine->states; from++) {
		CHECK_INT(strlen(machine->matrix[from]), machine->states);
		for (int to = 0; to < machine->states; to++) {
			bool can_go = machine->can_go(from, to);
			bool expected = machine->matrix[from][to] == 'x';

			if (can_go != expected)
				printf("# %s -> %s\n", machine->name(from), machine->name(to));
			CHECK_INT(can_go, expected);
		}
	}
}

static void check_outside(const struct machine *machine)
{
	for (int state = 0; state <= machine->states; state++) {
		CHECK(!machine->can_go(machine->states, state));
		CHECK(!machine->can_go(state, machine->states));
		CHECK(!machine->can_go(state, machine->states + 31));
	}
	CHECK_STR(machine->name(machine->states), "invalid");
}

static void mark_reachable(const struct machine *machine, int from, bool *reached)
{
	if (reached[from])
		return;
	reached[from] = true;
	for (int to = 0; to < machine->states; to++) {
		if (machine->can_go(from, to))
			mark_reachable(machine, to, reached);
	}
}

static void check_reachable(const struct machine *machine)
{
	bool from_first[STATES_MAX] = {false};

	CHECK(machine->states <= STATES_MAX);
	mark_reachable(machine, machine->first, from_first);
	for (int state = 0; state < machine->states; state++) {
		bool from_here[STATES_MAX] = {false};

		CHECK(from_first[state]);
		mark_reachable(machine, state, from_here);
		CHECK(from_here[machine->final]);
	}
}

/* The final state is the only one without an exit, and none leads back to the first. */
static void check_exits(const struct machine *machine)
{
	for (int from = 0; from < machine->states; from++) {
		int exits = 0;

		for (int to = 0; to < machine->states; to++)
			exits += machine->can_go(from, to);
		CHECK_INT(exits == 0, from == machine->final);
		CHECK(!machine->can_go(from, from));
		CHECK(!machine->can_go(from, machine->first));
	}
}

static void check_names(const struct machine *machine)
{
	for (int i = 0; i < machine->states; i++) {
		CHECK_STR(machine->name(i), machine->names[i]);
		for (int k = 0; k < i; k++)
			CHECK(strcmp(machine->name(i), machine->name(k)) != 0);
	}
}

TEST(lane_can_go__matrix)
{
	check_matrix(&lane_machine);
}

TEST(lane_can_go__no_state)
{
	check_outside(&lane_machine);
}

TEST(lane_can_go__reachable)
{
	check_reachable(&lane_machine);
}

TEST(lane_can_go__exits)
{
	check_exits(&lane_machine);
}

TEST(lane_state_name__all)
{
	check_names(&lane_machine);
}

TEST(lease_can_go__matrix)
{
	check_matrix(&lease_machine);
}

TEST(lease_can_go__no_state)
{
	check_outside(&lease_machine);
}

TEST(lease_can_go__reachable)
{
	check_reachable(&lease_machine);
}

TEST(lease_can_go__exits)
{
	check_exits(&lease_machine);
}

TEST(lease_state_name__all)
{
	check_names(&lease_machine);
}

/* What lease_is_ending() says by comparison must be what the table says: no way back. */
TEST(lease_is_ending__no_way_back)
{
	for (int from = 0; from < LEASE_STATES; from++) {
		struct lease a = {.state = (enum lease_state)from};

		for (int to = 0; to < LEASE_STATES; to++) {
			struct lease b = {.state = (enum lease_state)to};

			if (lease_is_ending(&a) && lease_step(from, to))
				CHECK(lease_is_ending(&b));
		}
	}
	CHECK(!lease_is_ending(&(struct lease){.state = LEASE_DETACHED}));
	CHECK(lease_is_ending(&(struct lease){.state = LEASE_ENDING}));
	CHECK(lease_is_ending(&(struct lease){.state = LEASE_GONE}));
}

TEST(session_can_go__matrix)
{
	check_matrix(&session_machine);
}

TEST(session_can_go__no_state)
{
	check_outside(&session_machine);
}

TEST(session_can_go__reachable)
{
	check_reachable(&session_machine);
}

TEST(session_can_go__exits)
{
	check_exits(&session_machine);
}

TEST(session_state_name__all)
{
	check_names(&session_machine);
}

TEST(drain_can_go__matrix)
{
	check_matrix(&drain_machine);
}

TEST(drain_can_go__no_state)
{
	check_outside(&drain_machine);
}

TEST(drain_can_go__reachable)
{
	check_reachable(&drain_machine);
}

TEST(drain_state_name__all)
{
	check_names(&drain_machine);
}
