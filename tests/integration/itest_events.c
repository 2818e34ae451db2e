/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What a session tells of: each kind of event, taken one by one, by way of a descriptor, or
 * handed to a callback; and what a callback may not do.
 */
#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include "client/event_ring.h"
#include "client/lease.h"
#include "client/pool.h"
#include "common/clock.h"
#include "tests/integration/accounts.h"
#include "tests/integration/harness.h"
#include "tests/integration/machine.h"
#include "tests/integration/order.h"
#include "tests/integration/proof.h"
#include "tests/integration/told.h"

#define PAGE	 4096
#define TTL_MS	 600000
#define LIMIT_MS 20000

#define ORDER(name, h)                                                        \
	__attribute__((cleanup(order_close))) struct order name = {.fd = -1}; \
	CHECK_INT(order_open(&name, h), 0)

static bool is_readable(int fd)
{
	struct pollfd poll_fd = {.fd = fd, .events = POLLIN};

	return poll(&poll_fd, 1, 0) == 1 && poll_fd.revents == POLLIN;
}

TEST(events__lease_is_revoked)
{
	HARNESS(h, .extra = "\"revoke_grace\": \"5s\"");
	ORDER(order, &h);
	SESSION(alpha, "alpha");
	struct mempool_event event;
	mempool_lease *lease;
	uint64_t id;

	CHECK_INT(harness_acquire(alpha, PAGE, TTL_MS, &lease), 0);
	id = harness_lease_id(lease);
	CHECK(told_nothing(alpha, 0));
	CHECK_INT(order_revoke(&order, id, false), 0);
	CHECK(told_wait(alpha, MEMPOOL_EVENT_LEASE_REVOKING, LIMIT_MS, &event));
	CHECK(event.lease == lease);
	CHECK_INT(event.lease_id, id);
	CHECK_INT(event.left_ms, 5000);
	/* Nothing is in flight, so it does not take that long. */
	CHECK(told_wait(alpha, MEMPOOL_EVENT_LEASE_ENDED, 4000, &event));
	CHECK(event.lease == lease);
	CHECK_INT(event.code, MEMPOOL_E_REVOKED);
	CHECK(told_nothing(alpha, 100));
	CHECK_INT(mempool_release(lease), MEMPOOL_E_REVOKED);
	harness_close(&alpha);
	accounts_finish(&h);
}

/*
 * An answer may overtake the notice of a revocation. The lease is not over before its grace is,
 * and the daemon is told when nothing is in flight any more.
 */
TEST(events__refused_before_it_is_known_to_be_revoked)
{
	HARNESS(h, .extra = "\"revoke_grace\": \"1min\"");
	ORDER(order, &h);
	SESSION(alpha, "alpha");
	struct mempool_event event = {.size = sizeof(event)};
	mempool_lease *lease;

	CHECK_INT(harness_acquire(alpha, PAGE, TTL_MS, &lease), 0);
	CHECK_INT(lease_use(lease, 0, 1, MEMPOOL_READ), 0);
	(void)pthread_mutex_lock(&alpha->lock);
	lease_refused(lease, MEMPOOL_E_REVOKED);
	(void)pthread_mutex_unlock(&alpha->lock);
	CHECK(told_nothing(alpha, 0));
	CHECK_INT(order_revoke(&order, harness_lease_id(lease), false), 0);
	CHECK_INT(mempool_next_event(alpha, &event, LIMIT_MS), 0);
	CHECK_INT(event.kind, MEMPOOL_EVENT_LEASE_REVOKING);
	CHECK(event.left_ms > 50000);
	CHECK(told_nothing(alpha, 200));
	lease_unuse(lease);
	CHECK(told_wait(alpha, MEMPOOL_EVENT_LEASE_ENDED, LIMIT_MS, &event));
	CHECK_INT(event.code, MEMPOOL_E_REVOKED);
	CHECK_INT(mempool_release(lease), MEMPOOL_E_REVOKED);
	harness_close(&alpha);
	accounts_finish(&h);
}

/* Of a lease that nobody has yet nothing is told; who gets it is told all, in order. */
TEST(events__wait_for_who_asked_for_the_lease)
{
	HARNESS(h, .extra = "\"revoke_grace\": \"300ms\"");
	ORDER(order, &h);
	SESSION(alpha, "alpha");
	struct mempool_event event = {.size = sizeof(event)};
	mempool_lease *lease, *other;

	CHECK_INT(told_acquire(alpha, PAGE, 4000, 0, &lease), 0);
	CHECK_INT(told_acquire(alpha, PAGE, TTL_MS, 0, &other), 0);
	(void)pthread_mutex_lock(&alpha->lock);
	lease->hidden = true;
	other->hidden = true;
	(void)pthread_mutex_unlock(&alpha->lock);
	CHECK_INT(order_revoke(&order, harness_lease_id(other), false), 0);
	CHECK(told_nothing(alpha, 3500)); /* a quarter is left, and less */
	CHECK(harness_wait_lease_gone(&h, harness_lease_id(other), LIMIT_MS));
	(void)pthread_mutex_lock(&alpha->lock);
	lease_reveal(lease);
	(void)pthread_mutex_unlock(&alpha->lock);
	CHECK_INT(mempool_next_event(alpha, &event, LIMIT_MS), 0);
	CHECK_INT(event.kind, MEMPOOL_EVENT_LEASE_EXPIRING);
	CHECK(event.lease == lease);
	(void)pthread_mutex_lock(&alpha->lock);
	lease_reveal(other);
	(void)pthread_mutex_unlock(&alpha->lock);
	CHECK_INT(mempool_next_event(alpha, &event, LIMIT_MS), 0);
	CHECK_INT(event.kind, MEMPOOL_EVENT_LEASE_REVOKING);
	CHECK(event.lease == other);
	CHECK_INT(mempool_next_event(alpha, &event, LIMIT_MS), 0);
	CHECK_INT(event.kind, MEMPOOL_EVENT_LEASE_ENDED);
	CHECK_INT(event.code, MEMPOOL_E_REVOKED);
	CHECK_INT(mempool_release(other), MEMPOOL_E_REVOKED);
	harness_close(&alpha);
	accounts_finish(&h);
}

/* Return: how many there was room for. */
static uint32_t fill_with_pings(mempool *pool)
{
	struct message m = {.type = MESSAGE_PING};
	uint32_t sent = 0;
	int r;

	(void)pthread_mutex_lock(&pool->lock);
	do {
		m.request_id = ++pool->control.requests.last_id;
		r = endpoint_send(&pool->control.ep, ENDPOINT_ORDINARY, &m);
		sent += r == 0 ? 1 : 0;
	} while (r == 0);
	(void)pthread_mutex_unlock(&pool->lock);
	return r == -ENOBUFS ? sent : UINT32_MAX;
}

/* A release that cannot be sent has not been done. */
TEST(release__no_room_for_the_message)
{
	HARNESS(h, .pool_size = NULL);
	SESSION(alpha, "alpha");
	__attribute__((cleanup(machine_resume))) pid_t pid = h.pid;
	mempool_lease *lease;
	uint8_t byte = 1;
	uint32_t sent;
	int r;

	CHECK_INT(harness_acquire(alpha, PAGE, TTL_MS, &lease), 0);
	CHECK_INT(kill(pid, SIGSTOP), 0);
	do {
		sent = fill_with_pings(alpha);
		CHECK(sent != UINT32_MAX);
		harness_sleep_ms(50);
	} while (sent > 0);
	CHECK_INT(mempool_release(lease), MEMPOOL_E_BUSY);
	CHECK_INT(mempool_write(lease, 0, &byte, 1), 0);
	CHECK_INT(kill(pid, SIGCONT), 0);
	do
		r = mempool_release(lease);
	while (r == MEMPOOL_E_BUSY);
	CHECK_INT(r, 0);
	CHECK_INT(harness_number(&h, "leases.active"), 0);
	harness_close(&alpha);
	accounts_finish(&h);
}

TEST(events__lane_is_lost_and_restored)
{
	HARNESS(h, .pool_size = NULL);
	SESSION(alpha, "alpha");
	struct message_descriptor at;
	mempool_lease *lease;
	uint8_t byte = 1;

	CHECK_INT(harness_acquire(alpha, PAGE, TTL_MS, &lease), 0);
	at = proof_descriptor(lease);
	CHECK_INT(proof_access(pool_lane(alpha), IBV_WR_RDMA_READ, 1, at.remote_addr, ~at.rkey),
		  IBV_WC_REM_ACCESS_ERR);
	CHECK(told_wait(alpha, MEMPOOL_EVENT_LANE_LOST, LIMIT_MS, NULL));
	CHECK(told_nothing(alpha, 100));
	CHECK_INT(mempool_write(lease, 0, &byte, 1), 0);
	CHECK(told_wait(alpha, MEMPOOL_EVENT_LANE_RESTORED, LIMIT_MS, NULL));
	CHECK(told_nothing(alpha, 100));
	CHECK_INT(mempool_release(lease), 0);
	harness_close(&alpha);
	accounts_finish(&h);
}

TEST(events__daemon_stops)
{
	HARNESS(h, .pool_size = NULL);
	SESSION(alpha, "alpha");
	struct mempool_event event;
	mempool_lease *lease;

	CHECK_INT(harness_acquire(alpha, PAGE, TTL_MS, &lease), 0);
	CHECK_INT(harness_stop(&h), 0);
	CHECK(told_wait(alpha, MEMPOOL_EVENT_DRAINING, LIMIT_MS, NULL));
	CHECK(told_wait(alpha, MEMPOOL_EVENT_SESSION_LOST, LIMIT_MS, &event));
	CHECK_INT(event.code, MEMPOOL_E_DRAINED);
	CHECK(told_nothing(alpha, 100));
	CHECK_INT(mempool_renew(lease, TTL_MS), MEMPOOL_E_DRAINED);
}

TEST(events__daemon_is_killed)
{
	HARNESS(h, .pool_size = NULL);
	SESSION(alpha, "alpha");
	struct mempool_event event;
	int fd = mempool_event_fd(alpha);

	CHECK(fd >= 0);
	CHECK(!is_readable(fd));
	harness_kill(&h);
	CHECK(told_wait(alpha, MEMPOOL_EVENT_SESSION_LOST, LIMIT_MS, &event));
	CHECK_INT(event.code, 0);
	CHECK(event.lease == NULL);
	CHECK_INT(event.lease_id, 0);
	CHECK(told_nothing(alpha, 100));
	CHECK(!is_readable(fd));
}

/* The descriptor is readable exactly as long as there is something. */
TEST(events__descriptor)
{
	HARNESS(h, .pool_size = NULL);
	SESSION(alpha, "alpha");
	struct mempool_event event = {.size = sizeof(event)};
	struct pollfd fd = {.fd = mempool_event_fd(alpha), .events = POLLIN};
	mempool_lease *leases[3];

	for (int i = 0; i < 3; i++)
		CHECK_INT(harness_acquire(alpha, PAGE, 500, &leases[i]), 0);
	for (int ended = 0; ended < 3;) {
		CHECK_INT(poll(&fd, 1, LIMIT_MS), 1);
		CHECK_INT(fd.revents, POLLIN);
		CHECK_INT(mempool_next_event(alpha, &event, 0), 0);
		ended += event.kind == MEMPOOL_EVENT_LEASE_ENDED;
	}
	CHECK_INT(mempool_next_event(alpha, &event, 0), MEMPOOL_E_TIMEOUT);
	CHECK(!is_readable(fd.fd));
	harness_close(&alpha);
	accounts_finish(&h);
}

/* Who takes none is told how many are missing. */
TEST(events__nobody_takes_them)
{
	HARNESS(h, .pool_size = NULL);
	SESSION(alpha, "alpha");
	struct mempool_event event = {.size = sizeof(event)};
	uint64_t taken = 0, lost = 0;
	mempool_lease *leases[64];

	/* Each is told of twice: that it expires, and that it has ended. */
	for (int i = 0; i < 3; i++)
		CHECK_INT(mempool_acquire_many(alpha, 64,
					       &(struct mempool_acquire_opts){
						       .size = sizeof(struct mempool_acquire_opts),
						       .ttl_ms = 1500,
						       .rights = MEMPOOL_READ,
					       },
					       64, leases),
			  0);
	CHECK(harness_wait_number(&h, "leases.active", 0, LIMIT_MS));
	harness_sleep_ms(500);
	while (mempool_next_event(alpha, &event, 0) == 0) {
		if (event.kind == MEMPOOL_EVENT_EVENTS_LOST)
			lost += event.count;
		else
			taken++;
	}
	printf("# %" PRIu64 " events taken, %" PRIu64 " lost\n", taken, lost);
	CHECK_INT(taken, EVENT_RING_MAX);
	CHECK_INT(taken + lost, 2 * 3 * 64);
	harness_close(&alpha);
	accounts_finish(&h);
}

/* Its events stay, but not its handle. */
TEST(events__lease_is_released)
{
	HARNESS(h, .pool_size = NULL);
	SESSION(alpha, "alpha");
	struct mempool_event event;
	mempool_lease *lease;
	uint64_t id;

	CHECK_INT(harness_acquire(alpha, PAGE, 800, &lease), 0);
	id = harness_lease_id(lease);
	CHECK(harness_wait_lease_gone(&h, id, LIMIT_MS));
	harness_sleep_ms(200);
	CHECK_INT(mempool_release(lease), MEMPOOL_E_EXPIRED);
	CHECK(told_wait(alpha, MEMPOOL_EVENT_LEASE_ENDED, 0, &event));
	CHECK(event.lease == NULL);
	CHECK_INT(event.lease_id, id);
	harness_close(&alpha);
	accounts_finish(&h);
}

TEST(events__time_out)
{
	HARNESS(h, .pool_size = NULL);
	SESSION(alpha, "alpha");
	struct mempool_event event = {.size = sizeof(event), .kind = 77};
	uint64_t begun_ns = clock_now_ns();

	CHECK_INT(mempool_next_event(alpha, &event, 200), MEMPOOL_E_TIMEOUT);
	CHECK(clock_now_ns() - begun_ns >= 200 * CLOCK_NS_PER_MS);
	CHECK_INT(event.kind, 77);
	CHECK_INT(mempool_next_event(NULL, &event, 0), MEMPOOL_E_INVALID);
	CHECK_INT(mempool_next_event(alpha, NULL, 0), MEMPOOL_E_INVALID);
	event.size--;
	CHECK_INT(mempool_next_event(alpha, &event, 0), MEMPOOL_E_INVALID);
	CHECK_INT(mempool_event_fd(NULL), MEMPOOL_E_INVALID);
	harness_close(&alpha);
	accounts_finish(&h);
}

/* Callbacks. */

#define HEARD_MAX 64

struct heard {
	mempool *_Atomic pool; /* stored when connected: the callback may run before that */
	atomic_int count;
	atomic_int wrong; /* calls that did not do what they must */
	pthread_t thread;
	uint32_t kinds[HEARD_MAX];
	int32_t codes[HEARD_MAX];
	bool calls_back;
};

/* None of these may do anything, and none may wait. */
static int call_back(struct heard *heard, mempool_lease *lease)
{
	struct mempool_acquire_opts acquire = {
		.size = sizeof(acquire),
		.ttl_ms = 1000,
		.rights = MEMPOOL_READ,
	};
	struct mempool_connect_opts connect = {.size = sizeof(connect)};
	struct mempool_event event = {.size = sizeof(event)};
	struct mempool_lease_token token = {.version = MEMPOOL_LEASE_TOKEN_VERSION};
	struct mempool_lease_info info = {.size = sizeof(info)};
	mempool_lease *leases[2] = {lease, lease};
	mempool *pool = atomic_load(&heard->pool);
	uint8_t byte = 0;
	int wrong = 0;

	wrong += mempool_connect(harness_endpoint(), &connect, &pool) != MEMPOOL_E_STATE;
	wrong += mempool_acquire(pool, 64, &acquire, &leases[1]) != MEMPOOL_E_STATE;
	wrong += mempool_acquire_many(pool, 64, &acquire, 1, &leases[1]) != MEMPOOL_E_STATE;
	wrong += mempool_reattach(pool, &token, &leases[1]) != MEMPOOL_E_STATE;
	wrong += mempool_next_event(pool, &event, 10) != MEMPOOL_E_STATE;
	wrong += mempool_event_fd(pool) != MEMPOOL_E_STATE;
	mempool_close(pool);
	wrong += strcmp(mempool_last_error(), "the call is not allowed in a callback") != 0;
	if (lease == NULL)
		return wrong;
	wrong += mempool_read(lease, 0, &byte, 1) != MEMPOOL_E_STATE;
	wrong += mempool_write(lease, 0, &byte, 1) != MEMPOOL_E_STATE;
	wrong += mempool_renew(lease, 1000) != MEMPOOL_E_STATE;
	wrong += mempool_modify(lease, 64, MEMPOOL_READ) != MEMPOOL_E_STATE;
	wrong += mempool_release(lease) != MEMPOOL_E_STATE;
	wrong += mempool_release_many(leases, 1) != MEMPOOL_E_STATE;
	wrong += mempool_lease_info(lease, &info) != 0;
	wrong += mempool_lease_token(lease, &token) != 0;
	wrong += token.lease_id != info.id;
	return wrong;
}

static void hear(const struct mempool_event *event, void *context)
{
	struct heard *heard = context;
	int count = atomic_load(&heard->count);

	heard->thread = pthread_self();
	if (event->size != sizeof(*event))
		atomic_fetch_add(&heard->wrong, 1);
	if (heard->calls_back)
		atomic_fetch_add(&heard->wrong, call_back(heard, event->lease));
	if (count < HEARD_MAX) {
		heard->kinds[count] = event->kind;
		heard->codes[count] = event->code;
		atomic_store(&heard->count, count + 1);
	}
}

static bool wait_heard(struct heard *heard, int count)
{
	for (int i = 0; i < LIMIT_MS / 5; i++) {
		if (atomic_load(&heard->count) >= count)
			return true;
		harness_sleep_ms(5);
	}
	printf("# heard %d of %d\n", atomic_load(&heard->count), count);
	return false;
}

static int connect_hearing(struct heard *heard)
{
	struct mempool_connect_opts opts = {.on_event = hear, .on_event_context = heard};

	mempool *pool;
	int r = told_connect("alpha", &opts, &pool);

	if (r == 0)
		atomic_store(&heard->pool, pool);
	return r;
}

TEST(callback__calls_back_in)
{
	HARNESS(h, .extra = "\"revoke_grace\": \"5s\"");
	ORDER(order, &h);
	struct heard heard = {.calls_back = true};
	struct mempool_event event = {.size = sizeof(event)};
	mempool_lease *lease;
	uint8_t byte = 1;

	CHECK_INT(connect_hearing(&heard), 0);
	CHECK_INT(mempool_next_event(heard.pool, &event, 0), MEMPOOL_E_STATE);
	CHECK_INT(mempool_event_fd(heard.pool), MEMPOOL_E_STATE);
	CHECK_INT(harness_acquire(heard.pool, PAGE, TTL_MS, &lease), 0);
	CHECK_INT(mempool_write(lease, 0, &byte, 1), 0);
	CHECK_INT(order_revoke(&order, harness_lease_id(lease), false), 0);
	CHECK(wait_heard(&heard, 2));
	CHECK_INT(heard.kinds[0], MEMPOOL_EVENT_LEASE_REVOKING);
	CHECK_INT(heard.kinds[1], MEMPOOL_EVENT_LEASE_ENDED);
	CHECK_INT(heard.codes[1], MEMPOOL_E_REVOKED);
	CHECK_INT(atomic_load(&heard.wrong), 0);
	CHECK(!pthread_equal(heard.thread, pthread_self()));
	/* All goes on: the calls did nothing. */
	CHECK_INT(mempool_release(lease), MEMPOOL_E_REVOKED);
	CHECK_INT(harness_acquire(heard.pool, PAGE, TTL_MS, &lease), 0);
	CHECK_INT(mempool_release(lease), 0);
	CHECK_INT(atomic_load(&heard.count), 2);
	mempool_close(heard.pool);
	CHECK_INT(atomic_load(&heard.count), 2);
	accounts_finish(&h);
}

TEST(callback__session_is_lost)
{
	HARNESS(h, .pool_size = NULL);
	struct heard heard = {.calls_back = true};

	CHECK_INT(connect_hearing(&heard), 0);
	harness_kill(&h);
	/* The lane and the session, in whatever order they are found out. */
	CHECK(wait_heard(&heard, 2));
	CHECK_INT(heard.kinds[1], MEMPOOL_EVENT_SESSION_LOST);
	CHECK_INT(atomic_load(&heard.wrong), 0);
	mempool_close(heard.pool);
	CHECK_INT(atomic_load(&heard.count), 2);
}
