/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Coming back to a session that was lost, on a thread of its own, since all the steps block:
 * the connection, the handshake, a lane, and the leases, each by its secret.
 *
 * Invariants: while the session is away no call of the application sends anything, and each
 * waits until its own deadline at most. A lease is away from the loss until it is reattached or
 * has ended. No handle is touched but under the lock, found anew by its id: it may be released
 * at any time.
 *
 * Thread: its own; what is marked so, any.
 */
#include "client/reconnect.h"

#include <stdio.h>
#include <string.h>

#include "client/backoff.h"
#include "client/control.h"
#include "client/error.h"
#include "client/events.h"
#include "client/lane.h"
#include "client/lease.h"
#include "client/pool.h"
#include "client/reattach.h"
#include "client/wait.h"
#include "common/clock.h"
#include "common/secure.h"

#define RECONNECT_MIN_MS 100
#define RECONNECT_MAX_MS 10000

#define RECONNECT_CLOSING "the session is being closed"

int reconnect_init(struct reconnect *reconnect, uint32_t limit_ms)
{
	*reconnect = (struct reconnect){.limit_ms = limit_ms};
	return wait_init(&reconnect->changed);
}

void reconnect_deinit(struct reconnect *reconnect)
{
	(void)pthread_cond_destroy(&reconnect->changed);
}

/* State; lock held. */

bool reconnect_is_away(const struct mempool *pool)
{
	return pool->reconnect.away;
}

static void reconnect_give_up(struct mempool *pool, int code, const char *text)
{
	struct reconnect *reconnect = &pool->reconnect;

	reconnect->given_up = true;
	/* Nothing may be open now, so nothing lost. */
	control_lose(pool, code, text);
	reconnect->away = false;
	client_error_set(&pool->control.loss, MEMPOOL_E_SESSION_LOST, "%s", text);
	for (struct mempool_lease *lease = pool->leases; lease != NULL; lease = lease->next)
		lease->away = false;
	events_tell(pool, MEMPOOL_EVENT_SESSION_GIVEN_UP, code);
	(void)pthread_cond_broadcast(&pool->leases_changed);
}

static bool reconnect_is_wanted(const struct reconnect *reconnect)
{
	return reconnect->limit_ms != 0 && !reconnect->given_up && !reconnect->stop;
}

void reconnect_lost_leases(struct mempool *pool)
{
	if (!reconnect_is_wanted(&pool->reconnect))
		return;
	for (struct mempool_lease *lease = pool->leases; lease != NULL; lease = lease->next)
		lease->away = !lease->unclaimed && lease->end_reason == 0;
	pool->renewal_due_ns = 0; /* the end of each is now for us to see */
	pool_wake(pool);
}

void reconnect_adopt(struct mempool_lease *lease, uint64_t session)
{
	struct mempool *pool = lease->pool;

	if (!reconnect_is_wanted(&pool->reconnect) || lease->end_reason != 0 ||
	    (session == pool->control.sessions && control_is_open(&pool->control)))
		return;
	lease->away = true;
	(void)pthread_cond_broadcast(&pool->reconnect.changed);
}

void reconnect_lost(struct mempool *pool)
{
	struct reconnect *reconnect = &pool->reconnect;
	char text[CLIENT_ERROR_TEXT_MAX];

	if (!reconnect_is_wanted(reconnect))
		return;
	if (!reconnect->away)
		reconnect->lost_ns = clock_now_ns();
	reconnect->away = true;
	reconnect_lost_leases(pool);
	(void)pthread_cond_broadcast(&reconnect->changed);
	/* Who took a lease over is not to be fought for it. */
	if (pool->control.cause == MEMPOOL_E_TAKEN_OVER) {
		memcpy(text, pool->control.loss.text, sizeof(text));
		reconnect_give_up(pool, MEMPOOL_E_TAKEN_OVER, text);
	}
}

static void reconnect_restored(struct mempool *pool)
{
	pool->reconnect.away = false;
	events_tell(pool, MEMPOOL_EVENT_SESSION_RESTORED, 0);
	(void)pthread_cond_broadcast(&pool->leases_changed);
}

/* Leases. */

struct reconnect_lease {
	uint64_t id;
	uint8_t secret[PROTO_SECRET_BYTES];
};

/* Lock held. Return: was there one that this pass has not come to? */
static bool reconnect_next_lease(struct mempool *pool, struct reconnect_lease *ret_next)
{
	struct mempool_lease *lease = pool->leases;
	uint64_t now_ns = clock_now_ns();

	while (lease != NULL && (!lease->away || lease->away_pass == pool->reconnect.pass ||
				 now_ns >= lease->deadline_ns))
		lease = lease->next;
	if (lease == NULL)
		return false;
	lease->away_pass = pool->reconnect.pass;
	ret_next->id = lease->id;
	memcpy(ret_next->secret, lease->secret, sizeof(ret_next->secret));
	return true;
}

/* Lock held. */
static void reconnect_lease_is_back(struct mempool *pool, uint64_t lease_id)
{
	struct mempool_lease *lease = lease_find(pool, lease_id);

	if (lease == NULL)
		return;
	lease->away = false;
	(void)pthread_cond_broadcast(&pool->leases_changed);
}

/*
 * Asks once for each lease that is away; those that cannot be had for now, or for which there is
 * no time, stay away. Return: 0, or MEMPOOL_E_SESSION_LOST with the last error set.
 */
static int reconnect_pass(struct mempool *pool, uint64_t deadline_ns)
{
	struct reconnect_lease next;
	int r = 0;

	(void)pthread_mutex_lock(&pool->lock);
	pool->reconnect.pass++;
	while (r == 0 && !pool->reconnect.stop && clock_now_ns() < deadline_ns &&
	       reconnect_next_lease(pool, &next)) {
		(void)pthread_mutex_unlock(&pool->lock);
		r = reattach(pool, next.id, next.secret, deadline_ns);
		(void)pthread_mutex_lock(&pool->lock);
		/* One that is over is away no more by lease_end(); one may be lost again already. */
		if (r == 0 && control_is_open(&pool->control))
			reconnect_lease_is_back(pool, next.id);
		r = control_is_open(&pool->control) ? 0 : client_error_forward(&pool->control.loss);
	}
	(void)pthread_mutex_unlock(&pool->lock);
	secure_wipe(&next, sizeof(next));
	return r;
}

/* The session. */

/*
 * Lock held. Return: false if it is to stop, or there is no time for another try; for a first
 * one there is.
 */
static bool reconnect_pause(struct mempool *pool, struct backoff *backoff, uint64_t until_ns)
{
	bool is_first = backoff->tries == 0;
	uint64_t pause_ms = backoff_next_ms(backoff, secure_uniform(UINT32_MAX));
	uint64_t now_ns = clock_now_ns();
	uint64_t left_ms = clock_left_ms(until_ns, now_ns);
	uint64_t pause_ns;

	if (left_ms < RECONNECT_MIN_MS && !is_first)
		return false;
	/* The last tries come the sooner. */
	pause_ns = clock_add_ms(now_ns, pause_ms < left_ms / 2 ? pause_ms : left_ms / 2);
	while (!pool->reconnect.stop && wait_until(&pool->reconnect.changed, &pool->lock, pause_ns))
		;
	return !pool->reconnect.stop;
}

/* What is left of the last session, or try; whoever still waits for something of it is told. */
static void reconnect_close(struct mempool *pool)
{
	(void)pthread_mutex_lock(&pool->lock);
	if (control_is_open(&pool->control))
		control_lose(pool, MEMPOOL_E_SESSION_LOST, "no lane could be had after the loss");
	(void)pthread_mutex_unlock(&pool->lock);
	control_close(pool);
	(void)pthread_mutex_lock(&pool->lock);
	for (struct lane *lane = pool->lanes; lane != NULL; lane = lane->next)
		lane_forget_offer(lane);
	control_reset(&pool->control);
	pool->events.draining = false;
	(void)pthread_mutex_unlock(&pool->lock);
}

/* Return: 0, or the code of what has failed, last error set; why the session was lost tells more. */
static int reconnect_code(struct mempool *pool, int code)
{
	(void)pthread_mutex_lock(&pool->lock);
	if (pool->control.lost) {
		code = pool->control.cause;
		(void)client_error_forward(&pool->control.loss);
	}
	(void)pthread_mutex_unlock(&pool->lock);
	return code;
}

static int reconnect_try(struct mempool *pool, uint64_t deadline_ns)
{
	int r = control_open(pool, (struct sockaddr *)&pool->peer, deadline_ns);

	if (r == 0)
		r = control_hello(pool, deadline_ns);
	if (r == 0)
		r = lane_ensure(&pool->lane, deadline_ns);
	if (r == 0)
		r = reconnect_pass(pool, deadline_ns);
	if (r < 0)
		return reconnect_code(pool, r);
	(void)pthread_mutex_lock(&pool->lock);
	if (control_is_open(&pool->control)) {
		reconnect_restored(pool);
		r = 0;
	} else {
		r = client_error_forward(&pool->control.loss);
	}
	(void)pthread_mutex_unlock(&pool->lock);
	return r;
}

/* Will another try bring nothing else? */
static bool reconnect_is_final(int code)
{
	return code == MEMPOOL_E_AUTH || code == MEMPOOL_E_VERSION || code == MEMPOOL_E_TAKEN_OVER;
}

static uint64_t reconnect_until_ns(const struct mempool *pool)
{
	const struct reconnect *reconnect = &pool->reconnect;

	return reconnect->limit_ms == UINT32_MAX
		       ? UINT64_MAX
		       : clock_add_ms(reconnect->lost_ns, reconnect->limit_ms);
}

/* Lock held, but not all the time. */
static void reconnect_session(struct mempool *pool)
{
	struct backoff backoff = {.min_ms = RECONNECT_MIN_MS, .max_ms = RECONNECT_MAX_MS};
	uint64_t until_ns = reconnect_until_ns(pool);
	char text[CLIENT_ERROR_TEXT_MAX];
	uint64_t deadline_ns;
	int r = MEMPOOL_E_SESSION_LOST;

	while (pool->reconnect.away && reconnect_pause(pool, &backoff, until_ns)) {
		deadline_ns = pool_deadline(pool);
		if (deadline_ns > until_ns)
			deadline_ns = until_ns;
		(void)pthread_mutex_unlock(&pool->lock);
		reconnect_close(pool);
		r = reconnect_try(pool, deadline_ns);
		(void)pthread_mutex_lock(&pool->lock);
		/* If it is away nevertheless it has been lost again since, which is another time. */
		if (r == 0)
			return;
		if (reconnect_is_final(r))
			break;
	}
	if (!pool->reconnect.away || pool->reconnect.stop)
		return;
	(void)snprintf(text, sizeof(text), "the session is lost and does not come back: %.400s",
		       r == MEMPOOL_E_SESSION_LOST ? pool->control.loss.text
						   : mempool_last_error());
	reconnect_give_up(pool, r, text);
}

/* Lock held. */
static bool reconnect_has_leases_away(const struct mempool *pool)
{
	const struct mempool_lease *lease = pool->leases;

	while (lease != NULL && !lease->away)
		lease = lease->next;
	return lease != NULL;
}

/* Lock held, but not all the time. The session is back, but not all of its leases. */
static void reconnect_rest(struct mempool *pool)
{
	struct backoff backoff = {.min_ms = RECONNECT_MIN_MS, .max_ms = RECONNECT_MAX_MS};
	uint64_t deadline_ns;

	while (!pool->reconnect.away && reconnect_has_leases_away(pool) &&
	       reconnect_pause(pool, &backoff, UINT64_MAX)) {
		deadline_ns = pool_deadline(pool);
		pool->reconnect.resting = true;
		(void)pthread_mutex_unlock(&pool->lock);
		(void)reconnect_pass(pool, deadline_ns);
		(void)pthread_mutex_lock(&pool->lock);
		pool->reconnect.resting = false;
	}
}

static void *reconnect_thread(void *arg)
{
	struct mempool *pool = arg;
	struct reconnect *reconnect = &pool->reconnect;

	(void)pthread_mutex_lock(&pool->lock);
	while (!reconnect->stop) {
		if (reconnect->away)
			reconnect_session(pool);
		else if (reconnect_has_leases_away(pool))
			reconnect_rest(pool);
		else
			(void)wait_until(&reconnect->changed, &pool->lock, UINT64_MAX);
	}
	(void)pthread_mutex_unlock(&pool->lock);
	return NULL;
}

int reconnect_start(struct mempool *pool)
{
	struct reconnect *reconnect = &pool->reconnect;
	int r;

	if (reconnect->limit_ms == 0)
		return 0;
	r = pool_spawn(pool, reconnect_thread, "mempool-back", &reconnect->thread);
	reconnect->thread_runs = r == 0;
	return r;
}

void reconnect_stop(struct mempool *pool)
{
	struct reconnect *reconnect = &pool->reconnect;

	if (!reconnect->thread_runs)
		return;
	(void)pthread_mutex_lock(&pool->lock);
	reconnect->stop = true;
	(void)pthread_cond_broadcast(&reconnect->changed);
	/* Its steps wait for these. A session that is back is ended in order. */
	if (reconnect->away) {
		control_lose(pool, MEMPOOL_E_SESSION_LOST, RECONNECT_CLOSING);
		cm_fail(&pool->control.cm, MEMPOOL_E_SESSION_LOST, RECONNECT_CLOSING);
	} else if (reconnect->resting) {
		lane_lose(&pool->lane, MEMPOOL_E_LANE, RECONNECT_CLOSING);
		control_give_up_requests(pool, MEMPOOL_E_SESSION_LOST, RECONNECT_CLOSING);
	}
	(void)pthread_mutex_unlock(&pool->lock);
	(void)pthread_join(reconnect->thread, NULL);
	reconnect->thread_runs = false;
}

/* Calls. */

static int reconnect_raise(const struct mempool *pool)
{
	return client_error_raise(MEMPOOL_E_SESSION_LOST, "not restored in time: %.400s",
				  pool->control.loss.text);
}

int reconnect_await(struct mempool *pool, uint64_t deadline_ns)
{
	int r = 0;

	(void)pthread_mutex_lock(&pool->lock);
	while (r == 0 && pool->reconnect.away) {
		if (!wait_until(&pool->leases_changed, &pool->lock, deadline_ns))
			r = reconnect_raise(pool);
	}
	(void)pthread_mutex_unlock(&pool->lock);
	return r;
}

int reconnect_await_lease(struct mempool_lease *lease, uint64_t deadline_ns)
{
	struct mempool *pool = lease->pool;
	int r = 0;

	(void)pthread_mutex_lock(&pool->lock);
	while (r == 0 && (lease->away || pool->reconnect.away) && lease->end_reason == 0) {
		if (!wait_until(&pool->leases_changed, &pool->lock, deadline_ns))
			r = reconnect_raise(pool);
	}
	(void)pthread_mutex_unlock(&pool->lock);
	return r;
}
