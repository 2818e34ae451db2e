/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef DAEMON_DRAIN_H
#define DAEMON_DRAIN_H

#include <stdbool.h>
#include <stdint.h>

#include "daemon/deadline.h"

struct lease;
struct server;
struct session;

/* What the daemon is about: serving, emptying itself, or ending. */

enum drain_state {
	DRAIN_SERVING,	/* as ever */
	DRAIN_DRAINING, /* no new leases; those that there are have until the deadline */
	DRAIN_ENDING,	/* the deadline is over: leases are being ended */
	DRAIN_DRAINED,	/* no lease is left, and the daemon stays */
	DRAIN_STOPPING, /* sessions are being ended; the process ends */
	DRAIN_STATES,
};

struct drain {
	enum drain_state state;
	struct server *server;
	uint64_t leases;	      /* not yet behind the fence, and not in quarantine */
	uint64_t until_ns;	      /* when all leases end; while draining or later */
	bool exits;		      /* ends the daemon when no lease is left */
	bool signalled;		      /* a signal to stop has come */
	struct deadline deadline;     /* set while there is something to do or to wait for */
	struct lease *next_lease;     /* to be looked at next */
	struct session *next_session; /* to be told next */
};

void drain_init(struct drain *drain, struct server *server);

/** drain_deinit() - before the queue of deadlines goes */
void drain_deinit(struct drain *drain);

/**
 * drain_begin() - give no new leases, and let all end at a time; once more: move that time
 * @limit_ms: until then clients have time
 * @exits: end the daemon when no lease is left
 *
 * All sessions are told. Return: 0, ERROR_DRAINING (the daemon stops already) or
 * ERROR_NO_MEMORY.
 */
int drain_begin(struct drain *drain, uint64_t limit_ms, bool exits);

/**
 * drain_undo() - serve again
 *
 * Return: 0 (also if there was no drain), ERROR_BUSY (leases are being ended just now) or
 * ERROR_DRAINING (the daemon stops).
 */
int drain_undo(struct drain *drain);

/** drain_on_signal() - told to stop: drain for the configured time; the second time stop at once */
void drain_on_signal(struct drain *drain, uint64_t limit_ms);

/** drain_stop() - sessions are about to be ended. Return: true if this call decided it */
bool drain_stop(struct drain *drain);

/** drain_limit_ns() - no lease may last longer; UINT64_MAX if there is no drain */
uint64_t drain_limit_ns(const struct drain *drain);

/** drain_left_ms() - of the time until all leases end; 0 if there is no drain */
uint64_t drain_left_ms(const struct drain *drain, uint64_t now_ns);

/** drain_greet() - a session has opened: tell it if there is something to tell */
void drain_greet(const struct drain *drain, struct session *session);

/** drain_lease_made(), drain_lease_fenced() - one more lease, one less to wait for */
void drain_lease_made(struct drain *drain);
void drain_lease_fenced(struct drain *drain);

/** drain_lease_gone(), drain_session_gone() - about to leave the server's list */
void drain_lease_gone(struct drain *drain, const struct lease *lease);
void drain_session_gone(struct drain *drain, const struct session *session);

static inline bool drain_is_serving(const struct drain *drain)
{
	return drain->state == DRAIN_SERVING;
}

static inline bool drain_is_stopping(const struct drain *drain)
{
	return drain->state == DRAIN_STOPPING;
}

const char *drain_state_name(enum drain_state state);
bool drain_can_go(enum drain_state from, enum drain_state to);

#endif
