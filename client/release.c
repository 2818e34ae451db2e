/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Giving leases back, one or many in one message. The handles are freed whatever the daemon
 * says, and are in no list from the beginning.
 *
 * Thread: any; the answer on the service thread.
 */
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>

#include "client/guard.h"
#include "client/lease.h"
#include "client/pool.h"

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

/* What has ended need not be given back. */
static void release_collect(struct release *release, mempool_lease **leases, size_t count)
{
	struct message_leases *asked = &release->m.u.leases;

	for (size_t i = 0; i < count; i++) {
		lease_unlink(leases[i]);
		if (leases[i]->end_reason != 0)
			continue;
		release->asked[asked->count] = leases[i];
		asked->lease_ids[asked->count++] = leases[i]->id;
	}
}

/* Return: 0, or the code of the first that was not released; last error set. */
static int release_all(mempool_lease **leases, size_t count)
{
	struct release release = {.m = {.type = MESSAGE_RELEASE}};
	struct mempool *pool = leases[0]->pool;
	uint64_t deadline_ns = pool_deadline(pool);
	int r = 0;

	/* The daemon takes back only what the session has; what is not back in time is left. */
	for (size_t i = 0; i < count; i++)
		(void)reconnect_await_lease(leases[i], deadline_ns);
	(void)pthread_mutex_lock(&pool->lock);
	release_collect(&release, leases, count);
	(void)pthread_mutex_unlock(&pool->lock);
	if (release.m.u.leases.count > 0)
		r = control_request(pool, &release.m, MESSAGE_RELEASED, release_answered, &release,
				    deadline_ns);
	for (size_t i = 0; i < count; i++) {
		if (leases[i]->end_reason != 0)
			return lease_raise(leases[i], leases[i]->end_reason);
	}
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

/* Those whose operations wait in a queue are still needed. */
static int release_check_idle(mempool_lease *const *leases, size_t count)
{
	struct mempool *pool = leases[0]->pool;
	int r = 0;

	(void)pthread_mutex_lock(&pool->lock);
	for (size_t i = 0; i < count && r == 0; i++) {
		if (leases[i]->queued > 0)
			r = client_error_raise(MEMPOOL_E_BUSY,
					       "operations on the lease are in a queue");
	}
	(void)pthread_mutex_unlock(&pool->lock);
	return r;
}

int mempool_release_many(mempool_lease **leases, size_t count)
{
	int r = guard_call();

	if (r < 0)
		return r;
	if (!release_is_valid(leases, count))
		return client_error_raise(MEMPOOL_E_INVALID, "an argument is not valid");
	r = release_check_idle(leases, count);
	if (r < 0)
		return r;
	r = release_all(leases, count);
	for (size_t i = 0; i < count; i++)
		lease_free(leases[i]);
	return r;
}

int mempool_release(mempool_lease *lease)
{
	return lease == NULL ? 0 : mempool_release_many(&lease, 1);
}
