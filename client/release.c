/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Giving leases back, one or many in one message.
 *
 * Invariants: once the message is on its way the handles are in no list, and are freed whatever
 * the daemon says; a release that could not begin has left everything as it was.
 *
 * Thread: any; the answer on the service thread.
 */
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>

#include "client/guard.h"
#include "client/lease.h"
#include "client/pool.h"
#include "client/reconnect.h"
#include "common/clock.h"

struct release {
	struct message m;
	mempool_lease *asked[PROTO_ACQUIRE_LEASES]; /* those that it names, in its order */
};

/* A lease that was not released has the code as its end reason from now on. */
static int release_answered(struct request *request, const struct message *m)
{
	struct release *release = request->context;
	const struct message_leases *asked = &release->m.u.leases;
	const struct message_released *answer = &m->u.released;

	if (answer->count != asked->count)
		return -EPROTO;
	for (uint16_t i = 0; i < asked->count; i++) {
		if (answer->released[i].lease_id != asked->lease_ids[i])
			return -EPROTO;
	}
	for (uint16_t i = 0; i < asked->count; i++) {
		if (answer->released[i].code != 0)
			release->asked[i]->end_reason = client_error_code(answer->released[i].code);
	}
	return 0;
}

/*
 * What has ended need not be given back. The daemon takes back only what the session has: a lease
 * that has not come back to it stays there until its time is over.
 */
static void release_collect(struct release *release, mempool_lease **leases, size_t count)
{
	struct message_leases *asked = &release->m.u.leases;

	for (size_t i = 0; i < count; i++) {
		if (leases[i]->end_reason != 0 || leases[i]->away)
			continue;
		release->asked[asked->count] = leases[i];
		asked->lease_ids[asked->count++] = leases[i]->id;
	}
}

/* Those whose operations wait in a queue are still needed. */
static int release_check_idle(mempool_lease *const *leases, size_t count)
{
	for (size_t i = 0; i < count; i++) {
		if (leases[i]->queued > 0)
			return client_error_raise(MEMPOOL_E_BUSY,
						  "operations on the lease are in a queue");
	}
	return 0;
}

/* Lock held. Return: 0, why it was not sent, or MEMPOOL_E_BUSY if it had better be tried again. */
static int release_begin(struct release *release, mempool_lease **leases, size_t count,
			 struct request *request)
{
	int r = release_check_idle(leases, count);

	if (r < 0)
		return r;
	release_collect(release, leases, count);
	if (release->m.u.leases.count == 0)
		return 0;
	r = control_begin(leases[0]->pool, &release->m, request);
	if (r == MEMPOOL_E_NO_MEMORY)
		return client_error_raise(MEMPOOL_E_BUSY, "no memory for a message to the daemon");
	return r;
}

/* Return: 0, or the code of the first that was not released; last error set. */
static int release_code(mempool_lease **leases, size_t count, int r)
{
	for (size_t i = 0; i < count; i++) {
		if (leases[i]->end_reason != 0)
			return lease_raise(leases[i], leases[i]->end_reason);
		if (leases[i]->away)
			return client_error_forward(&leases[i]->pool->control.loss);
	}
	return r;
}

/* Return: as release_code(); MEMPOOL_E_BUSY: nothing was done, which no answer means. */
static int release_call(struct release *release, mempool_lease **leases, size_t count,
			struct request *request, uint64_t deadline_ns)
{
	struct mempool *pool = leases[0]->pool;
	int r;

	(void)pthread_mutex_lock(&pool->lock);
	r = release_begin(release, leases, count, request);
	if (r == MEMPOOL_E_BUSY) {
		(void)pthread_mutex_unlock(&pool->lock);
		return r;
	}
	for (size_t i = 0; i < count; i++)
		lease_unlink(leases[i]);
	if (r == 0 && release->m.u.leases.count > 0) {
		r = control_await(pool, request, MESSAGE_RELEASE, deadline_ns);
		request_remove(&pool->control.requests, request);
	}
	r = release_code(leases, count, r);
	(void)pthread_mutex_unlock(&pool->lock);
	return r == MEMPOOL_E_BUSY ? MEMPOOL_E_INTERNAL : r;
}

/* Leases that have yet to come back may use half of the time. */
static void release_await(mempool_lease **leases, size_t count, uint64_t deadline_ns)
{
	struct mempool *pool = leases[0]->pool;
	uint64_t now_ns = clock_now_ns();
	uint64_t until_ns;

	if (reconnect_await(pool, deadline_ns) < 0)
		return;
	until_ns = deadline_ns > now_ns ? now_ns + (deadline_ns - now_ns) / 2 : now_ns;
	for (size_t i = 0; i < count; i++)
		(void)reconnect_await_lease(leases[i], until_ns);
}

static int release_all(mempool_lease **leases, size_t count)
{
	struct release release = {.m = {.type = MESSAGE_RELEASE}};
	uint64_t deadline_ns = pool_deadline(leases[0]->pool);
	struct request request;
	int r;

	release_await(leases, count, deadline_ns);
	if (request_init(&request, MESSAGE_RELEASED, release_answered, &release) < 0)
		return client_error_raise(MEMPOOL_E_BUSY, "cannot wait for an answer");
	r = release_call(&release, leases, count, &request, deadline_ns);
	request_deinit(&request);
	return r;
}

static bool release_is_valid(mempool_lease *const *leases, size_t count)
{
	if (leases == NULL || count == 0 || count > PROTO_ACQUIRE_LEASES)
		return false;
	for (size_t i = 0; i < count; i++) {
		if (leases[i] == NULL || leases[i]->pool != leases[0]->pool)
			return false;
		for (size_t j = 0; j < i; j++) {
			if (leases[j] == leases[i])
				return false;
		}
	}
	return true;
}

int mempool_release_many(mempool_lease **leases, size_t count)
{
	int r = guard_call();

	if (r < 0)
		return r;
	if (!release_is_valid(leases, count))
		return client_error_raise(MEMPOOL_E_INVALID, "an argument is not valid");
	r = release_all(leases, count);
	for (size_t i = 0; i < count && r != MEMPOOL_E_BUSY; i++)
		lease_free(leases[i]);
	return r;
}

int mempool_release(mempool_lease *lease)
{
	return lease == NULL ? 0 : mempool_release_many(&lease, 1);
}
