/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What the daemon is about, and how it empties itself. Sessions are told and leases ended some
 * at a time, in turns of the loop, so an order that concerns ten thousand holds up nothing else.
 *
 * Invariants:
 * - outside of serving there are no new leases, and no lease is renewed beyond the deadline;
 * - `leases` counts those that some device may still reach and that are not in quarantine;
 *   when it is 0 nothing is left to wait for;
 * - the deadline's own function is the only place that goes on to the next state, so nobody
 *   who ends a lease finds sessions ended underneath.
 *
 * Owns its deadline. Thread: the loop.
 */
#include "daemon/drain.h"

#include <assert.h>
#include <inttypes.h>
#include <sys/queue.h>

#include "common/clock.h"
#include "common/log.h"
#include "daemon/events.h"
#include "daemon/server.h"
#include "proto/error.h"

#define DRAIN_STEP	 128  /* sessions told, and leases looked at, in one turn of the loop */
#define DRAIN_LOOK_MS	 1000 /* while leases that were ended are not behind the fence */
#define DRAIN_FENCE_MS	 3000 /* after which a daemon that is to end does not wait for it */
#define DRAIN_NOTHING_NS UINT64_MAX

#define GO(state) (1u << DRAIN_##state)

static const uint32_t drain_next[DRAIN_STATES] = {
	[DRAIN_SERVING] = GO(DRAINING) | GO(STOPPING),
	[DRAIN_DRAINING] = GO(SERVING) | GO(ENDING) | GO(DRAINED) | GO(STOPPING),
	[DRAIN_ENDING] = GO(DRAINED) | GO(STOPPING),
	[DRAIN_DRAINED] = GO(SERVING) | GO(STOPPING),
	[DRAIN_STOPPING] = 0,
};

static const char *const drain_names[DRAIN_STATES] = {
	[DRAIN_SERVING] = "serving", [DRAIN_DRAINING] = "draining", [DRAIN_ENDING] = "ending",
	[DRAIN_DRAINED] = "drained", [DRAIN_STOPPING] = "stopping",
};

bool drain_can_go(enum drain_state from, enum drain_state to)
{
	return from < DRAIN_STATES && to < DRAIN_STATES && (drain_next[from] >> to & 1) != 0;
}

const char *drain_state_name(enum drain_state state)
{
	return state < DRAIN_STATES ? drain_names[state] : "invalid";
}

static void drain_set_state(struct drain *drain, enum drain_state state)
{
	assert(drain_can_go(drain->state, state));
	drain->state = state;
	events_tell(drain->server->admin, "drain", NULL, drain_state_name(state));
}

static void drain_on_deadline(struct deadline *deadline, void *context);

void drain_init(struct drain *drain, struct server *server)
{
	*drain = (struct drain){
		.server = server,
		.deadline = {.fire = drain_on_deadline, .context = drain},
	};
}

void drain_deinit(struct drain *drain)
{
	deadline_clear(drain->server->deadlines, &drain->deadline);
}

uint64_t drain_limit_ns(const struct drain *drain)
{
	return drain_is_serving(drain) ? UINT64_MAX : drain->until_ns;
}

uint64_t drain_left_ms(const struct drain *drain, uint64_t now_ns)
{
	return drain->state == DRAIN_DRAINING ? clock_left_ms(drain->until_ns, now_ns) : 0;
}

/* Telling. */

static void drain_tell(const struct drain *drain, struct session *session)
{
	struct message m = {.type = MESSAGE_DRAIN};

	m.u.drain.draining = !drain_is_serving(drain);
	m.u.drain.left_ms = drain_left_ms(drain, clock_now_ns());
	session_notice(session, &m);
	session_want_flush(session);
}

void drain_greet(const struct drain *drain, struct session *session)
{
	if (!drain_is_serving(drain))
		drain_tell(drain, session);
}

static void drain_tell_some(struct drain *drain)
{
	struct session *session;

	for (int i = 0; i < DRAIN_STEP && (session = drain->next_session) != NULL; i++) {
		drain->next_session = TAILQ_NEXT(session, server_link);
		if (session->state == SESSION_OPEN)
			drain_tell(drain, session);
	}
}

/* What has not been granted is a new lease; all others have until the deadline. */
static void drain_end_some(struct drain *drain)
{
	struct lease *lease;

	/* Ending one lease may end others of the same acquire, and free what is next. */
	for (int i = 0; i < DRAIN_STEP && (lease = drain->next_lease) != NULL; i++) {
		drain->next_lease = TAILQ_NEXT(lease, server_link);
		if (drain->state == DRAIN_ENDING)
			lease_end(lease, ERROR_DRAINED);
		else if (!lease->granted)
			lease_end(lease, ERROR_DRAINING);
	}
}

static bool drain_is_walking(const struct drain *drain)
{
	return drain->next_session != NULL || drain->next_lease != NULL;
}

/* Going on. */

static void drain_finish(struct drain *drain)
{
	if (drain->exits) {
		log_info("drained, stopping");
		server_stop(drain->server);
		return;
	}
	if (drain->state != DRAIN_DRAINED) {
		drain_set_state(drain, DRAIN_DRAINED);
		log_info("drained");
	}
}

/* Return: when to look again. */
static uint64_t drain_go_on(struct drain *drain, uint64_t now_ns)
{
	if (drain->state == DRAIN_DRAINING && now_ns >= drain->until_ns && drain->leases > 0) {
		drain_set_state(drain, DRAIN_ENDING);
		log_info("drain deadline reached leases=%" PRIu64, drain->leases);
		drain->next_lease = TAILQ_FIRST(&drain->server->leases);
	}
	drain_tell_some(drain);
	drain_end_some(drain);
	if (drain_is_walking(drain))
		return now_ns;
	if (drain_is_serving(drain))
		return DRAIN_NOTHING_NS;
	if (drain->leases == 0 ||
	    (drain->exits && now_ns >= clock_add_ms(drain->until_ns, DRAIN_FENCE_MS))) {
		drain_finish(drain);
		return DRAIN_NOTHING_NS;
	}
	return drain->state == DRAIN_DRAINING ? drain->until_ns
					      : clock_add_ms(now_ns, DRAIN_LOOK_MS);
}

static void drain_on_deadline(struct deadline *deadline, void *context)
{
	struct drain *drain = context;
	uint64_t again_ns = drain_go_on(drain, clock_now_ns());

	/* It was in the queue just now, so there is room for it. */
	if (again_ns != DRAIN_NOTHING_NS && !drain_is_stopping(drain))
		(void)deadline_set(drain->server->deadlines, deadline, again_ns);
}

/* Not from where the callers are, which may be deep in the end of a lease. */
static int drain_look_now(struct drain *drain)
{
	return deadline_set(drain->server->deadlines, &drain->deadline, clock_now_ns());
}

/* Orders. */

static int drain_start(struct drain *drain, uint64_t limit_ms, bool exits)
{
	struct server *server = drain->server;

	if (drain_is_stopping(drain))
		return ERROR_DRAINING;
	if (drain_look_now(drain) < 0)
		return ERROR_NO_MEMORY;
	if (drain_is_serving(drain))
		drain_set_state(drain, DRAIN_DRAINING);
	drain->exits = exits;
	/* What has been ended already gets no more time. */
	if (drain->state == DRAIN_DRAINING)
		drain->until_ns = clock_add_ms(clock_now_ns(), limit_ms);
	drain->next_session = TAILQ_FIRST(&server->sessions);
	drain->next_lease = TAILQ_FIRST(&server->leases);
	log_info("draining limit_ms=%" PRIu64 " leases=%" PRIu64 " exit=%s", limit_ms,
		 drain->leases, exits ? "yes" : "no");
	return 0;
}

/* What a signal has begun goes on as the service manager was told. */
int drain_begin(struct drain *drain, uint64_t limit_ms, bool exits)
{
	return drain->signalled ? ERROR_DRAINING : drain_start(drain, limit_ms, exits);
}

int drain_undo(struct drain *drain)
{
	if (drain_is_serving(drain))
		return 0;
	if (drain_is_stopping(drain) || drain->signalled)
		return ERROR_DRAINING;
	if (drain->state == DRAIN_ENDING)
		return ERROR_BUSY;
	if (drain_look_now(drain) < 0)
		return ERROR_NO_MEMORY;
	drain_set_state(drain, DRAIN_SERVING);
	drain->exits = false;
	drain->next_lease = NULL;
	drain->next_session = TAILQ_FIRST(&drain->server->sessions);
	log_info("serving again");
	return 0;
}

/* An operator's order that gives less time than this one stays. */
static uint64_t drain_signal_limit_ms(const struct drain *drain, uint64_t limit_ms)
{
	uint64_t left_ms = drain_left_ms(drain, clock_now_ns());

	return drain->state == DRAIN_DRAINING && left_ms < limit_ms ? left_ms : limit_ms;
}

void drain_on_signal(struct drain *drain, uint64_t limit_ms)
{
	bool again = drain->signalled;

	drain->signalled = true;
	if (again || limit_ms == 0 || drain->leases == 0 ||
	    drain_start(drain, drain_signal_limit_ms(drain, limit_ms), true) != 0)
		server_stop(drain->server);
}

bool drain_stop(struct drain *drain)
{
	if (drain_is_stopping(drain))
		return false;
	if (drain_is_serving(drain))
		drain->until_ns = clock_now_ns();
	drain_set_state(drain, DRAIN_STOPPING);
	drain->next_session = NULL;
	drain->next_lease = NULL;
	deadline_clear(drain->server->deadlines, &drain->deadline);
	return true;
}

/* Others report. */

void drain_lease_made(struct drain *drain)
{
	drain->leases++;
}

void drain_lease_fenced(struct drain *drain)
{
	assert(drain->leases > 0);
	drain->leases--;
	/* Fails only from within its own function, which looks again by itself. */
	if (drain->leases == 0 && (drain->state == DRAIN_DRAINING || drain->state == DRAIN_ENDING))
		(void)drain_look_now(drain);
}

void drain_lease_gone(struct drain *drain, const struct lease *lease)
{
	if (drain->next_lease == lease)
		drain->next_lease = TAILQ_NEXT(lease, server_link);
}

void drain_session_gone(struct drain *drain, const struct session *session)
{
	if (drain->next_session == session)
		drain->next_session = TAILQ_NEXT(session, server_link);
}
