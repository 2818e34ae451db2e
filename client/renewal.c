/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The times of leases: until when they are used, when they are renewed by themselves, when the
 * application is told that one runs out.
 *
 * Invariants: one renewal of a lease is in flight at a time, and no thread waits for it. A
 * failed one is repeated when half of the time that is left has passed, and so on. The session's
 * renewal_due_ns is never later than what any lease of its list waits for.
 *
 * Thread: any that holds the lock; renewals on the service thread.
 */
#include "client/renewal.h"

#include <assert.h>
#include <errno.h>
#include <limits.h>

#include "client/events.h"
#include "client/guard.h"
#include "client/lease.h"
#include "client/pool.h"
#include "common/clock.h"
#include "common/secure.h"

#define RENEWAL_WAY_MS	    20 /* of the guard margin */
#define RENEWAL_WAY_SHARE   16
#define RENEWAL_CLOCK_SHARE 4096
#define RENEWAL_LEFT_MIN_MS 2 /* with less than that it is not tried */
#define RENEWAL_WARN_MS	    10000
#define RENEWAL_WARN_SHARE  4

static uint64_t renewal_min(uint64_t a, uint64_t b)
{
	return a < b ? a : b;
}

uint64_t renewal_deadline_ns(uint64_t sent_ns, uint64_t ttl_ms)
{
	uint64_t end_ns = clock_add_ms(sent_ns, ttl_ms);
	uint64_t ttl_ns = end_ns - sent_ns;
	uint64_t way_ns = renewal_min(ttl_ns / RENEWAL_WAY_SHARE, RENEWAL_WAY_MS * CLOCK_NS_PER_MS);

	return end_ns - way_ns - ttl_ns / RENEWAL_CLOCK_SHARE;
}

uint64_t renewal_try_ns(uint64_t now_ns, uint64_t deadline_ns, uint32_t random)
{
	uint64_t left_ns = deadline_ns > now_ns ? deadline_ns - now_ns : 0;

	if (left_ns < RENEWAL_LEFT_MIN_MS * CLOCK_NS_PER_MS)
		return RENEWAL_NEVER;
	return now_ns + left_ns / 8 * 3 + left_ns / 4 / 1024 * (random % 1024);
}

uint64_t renewal_warn_ns(uint64_t deadline_ns, uint64_t ttl_ms)
{
	uint64_t before_ns =
		renewal_min(ttl_ms / RENEWAL_WARN_SHARE, RENEWAL_WARN_MS) * CLOCK_NS_PER_MS;

	return deadline_ns > before_ns ? deadline_ns - before_ns : 0;
}

/* Something of a lease is due at that time. */
static void renewal_note_due(struct mempool *pool, uint64_t due_ns)
{
	if (due_ns >= pool->renewal_due_ns)
		return;
	pool->renewal_due_ns = due_ns;
	pool_wake(pool);
}

static void renewal_schedule(struct mempool_lease *lease)
{
	struct renewal *renewal = &lease->renewal;

	renewal->try_ns = renewal->ttl_ms == 0 ? RENEWAL_NEVER
					       : renewal_try_ns(clock_now_ns(), lease->deadline_ns,
								secure_uniform(1024));
	renewal_note_due(lease->pool, renewal->try_ns);
}

void renewal_start(struct mempool_lease *lease, uint64_t sent_ns, uint64_t ttl_ms)
{
	lease->deadline_ns = renewal_deadline_ns(sent_ns, ttl_ms);
	lease->renewal.warn_ns = renewal_warn_ns(lease->deadline_ns, ttl_ms);
	renewal_note_due(lease->pool, lease->renewal.warn_ns);
	renewal_schedule(lease);
}

void renewal_resume(struct mempool_lease *lease, uint64_t sent_ns, uint64_t ttl_ms)
{
	lease->deadline_ns = renewal_deadline_ns(sent_ns, ttl_ms);
	renewal_note_due(lease->pool, lease->renewal.warn_ns);
	renewal_schedule(lease);
}

void renewal_reveal(struct mempool_lease *lease)
{
	renewal_note_due(lease->pool, renewal_min(lease->renewal.warn_ns, lease->renewal.try_ns));
}

static int renewal_answered(struct request *request, const struct message *m)
{
	struct mempool_lease *lease = request->context;

	if (m->u.renew.lease_id != lease->id)
		return -EPROTO;
	renewal_start(lease, request->sent_ns,
		      renewal_min(m->u.renew.ttl_ms, lease->renewal.asked_ttl_ms));
	return 0;
}

/* The answer has been digested, or there will be none. */
static void renewal_finished(struct request *request)
{
	struct mempool_lease *lease = request->context;

	lease->renewal.asked = false;
	if (request->error.code == 0)
		return;
	if (lease_is_end(request->error.code))
		lease_refused(lease, request->error.code);
	renewal_schedule(lease);
}

int renewal_init(struct renewal *renewal, struct mempool_lease *lease)
{
	int r;

	*renewal = (struct renewal){.try_ns = RENEWAL_NEVER, .warn_ns = RENEWAL_NEVER};
	r = request_init(&renewal->request, MESSAGE_RENEWED, renewal_answered, lease);
	renewal->request.finished = renewal_finished;
	return r;
}

void renewal_deinit(struct renewal *renewal)
{
	assert(!renewal->asked);
	request_deinit(&renewal->request);
}

void renewal_forget(struct mempool_lease *lease)
{
	struct renewal *renewal = &lease->renewal;

	request_remove(&lease->pool->control.requests, &renewal->request);
	renewal->asked = false;
	renewal->ttl_ms = 0;
}

/* Nothing can be said of it if it fails: that is what the warning is for. */
static void renewal_ask(struct mempool_lease *lease)
{
	struct renewal *renewal = &lease->renewal;
	struct message m = {
		.type = MESSAGE_RENEW,
		.u.renew = {.lease_id = lease->id, .ttl_ms = renewal->ttl_ms},
	};

	renewal_schedule(lease);
	if (renewal->asked || lease->revoking || lease_check_open(lease) < 0 ||
	    clock_now_ns() >= lease->deadline_ns)
		return;
	renewal->request.id = 0;
	renewal->asked_ttl_ms = renewal->ttl_ms;
	renewal->asked = control_begin(lease->pool, &m, &renewal->request) == 0;
}

static void renewal_warn(struct mempool_lease *lease, uint64_t now_ns)
{
	lease->renewal.warn_ns = RENEWAL_NEVER;
	if (now_ns < lease->deadline_ns && !lease->revoking)
		events_tell_lease(lease, MEMPOOL_EVENT_LEASE_EXPIRING, 0,
				  clock_left_ms(lease->deadline_ns, now_ns));
}

/* Return: when it is to be visited again. */
static uint64_t renewal_visit(struct mempool_lease *lease, uint64_t now_ns)
{
	struct renewal *renewal = &lease->renewal;
	uint64_t due_ns;

	if (lease->end_reason != 0 || lease->unclaimed)
		return RENEWAL_NEVER;
	if (renewal->try_ns <= now_ns)
		renewal_ask(lease);
	if (renewal->warn_ns <= now_ns && !lease->hidden)
		renewal_warn(lease, now_ns);
	/* The daemon would say so, but not to a session that is lost. */
	if (lease->away && lease->deadline_ns <= now_ns)
		lease_end(lease, MEMPOOL_E_EXPIRED);
	due_ns = lease->hidden ? renewal->try_ns : renewal_min(renewal->try_ns, renewal->warn_ns);
	return lease->away ? renewal_min(due_ns, lease->deadline_ns) : due_ns;
}

void renewal_step(struct mempool *pool)
{
	uint64_t now_ns = clock_now_ns();
	uint64_t due_ns;

	if (now_ns < pool->renewal_due_ns)
		return;
	pool->renewal_due_ns = RENEWAL_NEVER;
	for (struct mempool_lease *lease = pool->leases; lease != NULL; lease = lease->next) {
		/* Which may itself find that something is due. */
		due_ns = renewal_visit(lease, now_ns);
		pool->renewal_due_ns = renewal_min(pool->renewal_due_ns, due_ns);
	}
}

int renewal_next_ms(const struct mempool *pool)
{
	uint64_t left_ms;

	if (pool->renewal_due_ns == RENEWAL_NEVER)
		return -1;
	left_ms = clock_left_ms(pool->renewal_due_ns, clock_now_ns());
	return left_ms > INT_MAX ? INT_MAX : (int)left_ms;
}

int mempool_auto_renew(mempool_lease *lease, uint64_t ttl_ms)
{
	int r = guard_look();

	if (r < 0)
		return r;
	if (lease == NULL)
		return client_error_raise(MEMPOOL_E_INVALID, "no lease was given");
	(void)pthread_mutex_lock(&lease->pool->lock);
	r = lease_check_usable_held(lease);
	if (r == 0) {
		lease->renewal.ttl_ms = ttl_ms;
		renewal_schedule(lease);
	}
	(void)pthread_mutex_unlock(&lease->pool->lock);
	return r;
}
