/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Sessions that come back: with their leases where the daemon has kept them, without where it
 * was started anew; those that do not come back; and that every call ends in time meanwhile.
 */
#include <inttypes.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/lane.h"
#include "client/lease.h"
#include "client/pool.h"
#include "common/clock.h"
#include "tests/integration/accounts.h"
#include "tests/integration/harness.h"
#include "tests/integration/machine.h"
#include "tests/integration/told.h"
#include "tests/integration/wire.h"

#define PAGE	 4096
#define BYTES	 (64 * 1024)
#define TTL_MS	 600000
#define LIMIT_MS 30000

static void check_pattern(mempool_lease *lease, uint32_t seed)
{
	static uint8_t sent[BYTES];
	static uint8_t got[BYTES];

	harness_fill(sent, BYTES, seed);
	CHECK_INT(mempool_read(lease, 0, got, BYTES), 0);
	CHECK_MEM(got, sent, BYTES);
}

static int write_pattern(mempool_lease *lease, uint32_t seed)
{
	static uint8_t sent[BYTES];

	harness_fill(sent, BYTES, seed);
	return mempool_write(lease, 0, sent, BYTES);
}

/* What was there is there again, under the same handles. */
TEST(reconnect__leases_are_kept)
{
	HARNESS(h, .extra = TOLD_KEEPING);
	TOLD_COMING_BACK(alpha, UINT32_MAX, 0);
	struct mempool_lease_info before = {.size = sizeof(before)};
	struct mempool_lease_info after = {.size = sizeof(after)};
	mempool_lease *leases[5];
	mempool_lease *fresh;
	uint64_t cut_ns;

	for (uint32_t i = 0; i < 5; i++) {
		CHECK_INT(harness_acquire(alpha, BYTES, TTL_MS, &leases[i]), 0);
		CHECK_INT(write_pattern(leases[i], i), 0);
	}
	CHECK_INT(mempool_lease_info(leases[4], &before), 0);
	for (int round = 0; round < 3; round++) {
		cut_ns = clock_now_ns();
		told_cut(alpha);
		CHECK(told_wait(alpha, MEMPOOL_EVENT_SESSION_LOST, LIMIT_MS, NULL));
		CHECK(told_wait(alpha, MEMPOOL_EVENT_SESSION_RESTORED, LIMIT_MS, NULL));
		printf("# back after %" PRIu64 " ms\n", harness_since_ms(cut_ns));
		for (uint32_t i = 0; i < 5; i++)
			check_pattern(leases[i], i);
		CHECK(!test_has_failed());
	}
	CHECK_INT(mempool_lease_info(leases[4], &after), 0);
	CHECK_INT(after.id, before.id);
	CHECK_INT(after.len_bytes, before.len_bytes);
	CHECK(after.generation >= before.generation + 3);
	CHECK(after.ttl_left_ms <= before.ttl_left_ms);
	CHECK_INT(mempool_renew(leases[4], TTL_MS), 0);
	CHECK_INT(mempool_modify(leases[4], PAGE, MEMPOOL_READ), 0);
	CHECK_INT(harness_acquire(alpha, PAGE, TTL_MS, &fresh), 0);
	CHECK_INT(mempool_release(fresh), 0);
	CHECK_INT(harness_number(&h, "sessions"), 1);
	CHECK_INT(harness_number(&h, "leases.active"), 5);
	for (int i = 0; i < 5; i++)
		CHECK_INT(mempool_release(leases[i]), 0);
	CHECK(told_nothing(alpha, 0));
	harness_close(&alpha);
	accounts_finish(&h);
}

/* A call that begins while the session is away is done when it is back. */
TEST(reconnect__calls_wait)
{
	HARNESS(h, .extra = TOLD_KEEPING);
	TOLD_COMING_BACK(alpha, UINT32_MAX, 0);
	mempool_lease *first, *second, *third;
	uint8_t byte = 7;

	CHECK_INT(harness_acquire(alpha, PAGE, TTL_MS, &first), 0);
	CHECK_INT(harness_acquire(alpha, PAGE, TTL_MS, &second), 0);
	told_cut(alpha);
	CHECK(told_wait(alpha, MEMPOOL_EVENT_SESSION_LOST, LIMIT_MS, NULL));
	CHECK_INT(mempool_write(first, 0, &byte, 1), 0);
	told_cut(alpha);
	CHECK(told_wait(alpha, MEMPOOL_EVENT_SESSION_LOST, LIMIT_MS, NULL));
	CHECK_INT(mempool_renew(first, TTL_MS), 0);
	told_cut(alpha);
	CHECK(told_wait(alpha, MEMPOOL_EVENT_SESSION_LOST, LIMIT_MS, NULL));
	CHECK_INT(mempool_modify(first, PAGE, MEMPOOL_WRITE), 0);
	told_cut(alpha);
	CHECK(told_wait(alpha, MEMPOOL_EVENT_SESSION_LOST, LIMIT_MS, NULL));
	CHECK_INT(harness_acquire(alpha, PAGE, TTL_MS, &third), 0);
	told_cut(alpha);
	CHECK(told_wait(alpha, MEMPOOL_EVENT_SESSION_LOST, LIMIT_MS, NULL));
	CHECK_INT(mempool_release(second), 0);
	CHECK_INT(harness_number(&h, "leases.active"), 2);
	CHECK_INT(mempool_release(first), 0);
	CHECK_INT(mempool_release(third), 0);
	harness_close(&alpha);
	accounts_finish(&h);
}

/* Started anew the daemon knows of no lease; the session goes on with others. */
TEST(reconnect__daemon_is_started_anew)
{
	HARNESS(h, .extra = TOLD_KEEPING);
	TOLD_COMING_BACK(alpha, UINT32_MAX, 0);
	struct mempool_event event;
	mempool_lease *lease;
	uint8_t byte = 1;

	CHECK_INT(harness_acquire(alpha, PAGE, TTL_MS, &lease), 0);
	harness_kill(&h);
	CHECK(told_wait(alpha, MEMPOOL_EVENT_SESSION_LOST, LIMIT_MS, NULL));
	CHECK_INT(harness_restart(&h), 0);
	CHECK(told_wait(alpha, MEMPOOL_EVENT_LEASE_ENDED, LIMIT_MS, &event));
	CHECK(event.lease == lease);
	CHECK_INT(event.code, MEMPOOL_E_NO_LEASE);
	CHECK(told_wait(alpha, MEMPOOL_EVENT_SESSION_RESTORED, LIMIT_MS, NULL));
	CHECK_INT(mempool_write(lease, 0, &byte, 1), MEMPOOL_E_NO_LEASE);
	CHECK_INT(mempool_release(lease), MEMPOOL_E_NO_LEASE);
	CHECK_INT(harness_acquire(alpha, PAGE, TTL_MS, &lease), 0);
	CHECK_INT(mempool_write(lease, 0, &byte, 1), 0);
	CHECK_INT(mempool_release(lease), 0);
	harness_close(&alpha);
	accounts_finish(&h);
}

static uint32_t count_away(mempool *pool, mempool_lease **leases, uint32_t count)
{
	uint32_t away = 0;

	(void)pthread_mutex_lock(&pool->lock);
	for (uint32_t i = 0; i < count; i++)
		away += leases[i]->away ? 1 : 0;
	(void)pthread_mutex_unlock(&pool->lock);
	return away;
}

/* Those that were back already when it was lost again are asked for again. */
TEST(reconnect__lost_again_while_leases_come_back)
{
	enum { COUNT = 64 };
	HARNESS(h, .extra = TOLD_KEEPING);
	TOLD_COMING_BACK(alpha, UINT32_MAX, 20000);
	mempool_lease *leases[COUNT];
	uint64_t begun_ns = clock_now_ns();
	uint32_t away = 0;
	uint8_t got;

	for (uint8_t i = 0; i < COUNT; i++) {
		CHECK_INT(harness_acquire(alpha, PAGE, TTL_MS, &leases[i]), 0);
		CHECK_INT(mempool_write(leases[i], 1, &i, 1), 0);
	}
	told_cut(alpha);
	CHECK(told_wait(alpha, MEMPOOL_EVENT_SESSION_LOST, LIMIT_MS, NULL));
	while ((away == 0 || away == COUNT) && harness_since_ms(begun_ns) < LIMIT_MS)
		away = count_away(alpha, leases, COUNT);
	printf("# lost again with %u of %d leases away\n", away, COUNT);
	CHECK(away > 0 && away < COUNT);
	told_cut(alpha);
	CHECK(told_wait(alpha, MEMPOOL_EVENT_SESSION_RESTORED, LIMIT_MS, NULL));
	for (uint8_t i = 0; i < COUNT; i++) {
		CHECK_INT(mempool_read(leases[i], 1, &got, 1), 0);
		CHECK_INT(got, i);
	}
	CHECK_INT(harness_number(&h, "leases.active"), COUNT);
	CHECK_INT(mempool_release_many(leases, COUNT), 0);
	CHECK(told_nothing(alpha, 0));
	harness_close(&alpha);
	accounts_finish(&h);
}

/* A limit that is shorter than any pause still allows one try. */
TEST(reconnect__one_try)
{
	HARNESS(h, .extra = TOLD_KEEPING);
	TOLD_COMING_BACK(alpha, 1, 10000);
	struct mempool_event event = {.size = sizeof(event)};

	told_cut(alpha);
	CHECK(told_wait(alpha, MEMPOOL_EVENT_SESSION_LOST, LIMIT_MS, NULL));
	/* There is hardly time for it, but it was tried. */
	CHECK_INT(mempool_next_event(alpha, &event, LIMIT_MS), 0);
	printf("# %s, code %d\n", told_name(event.kind), event.code);
	CHECK(event.kind == MEMPOOL_EVENT_SESSION_RESTORED ||
	      (event.kind == MEMPOOL_EVENT_SESSION_GIVEN_UP &&
	       event.code != MEMPOOL_E_SESSION_LOST)); /* as if nothing had been tried */
}

/* What has not come back is not given back, and holds up nothing of what has. */
TEST(reconnect__released_while_one_is_away)
{
	HARNESS(h, .extra = TOLD_KEEPING);
	TOLD_COMING_BACK(alpha, UINT32_MAX, 2000);
	mempool_lease *leases[3];
	uint64_t begun_ns;

	for (int i = 0; i < 3; i++)
		CHECK_INT(harness_acquire(alpha, PAGE, TTL_MS, &leases[i]), 0);
	told_cut(alpha);
	CHECK(told_wait(alpha, MEMPOOL_EVENT_SESSION_RESTORED, LIMIT_MS, NULL));
	/* Nobody wakes the thread that would fetch it. */
	(void)pthread_mutex_lock(&alpha->lock);
	leases[0]->away = true;
	(void)pthread_mutex_unlock(&alpha->lock);
	begun_ns = clock_now_ns();
	CHECK_INT(mempool_release_many(leases, 3), MEMPOOL_E_SESSION_LOST);
	printf("# released after %" PRIu64 " ms\n", harness_since_ms(begun_ns));
	CHECK(harness_since_ms(begun_ns) < 2000);
	CHECK_INT(harness_number(&h, "leases.active"), 1);
	harness_close(&alpha);
	CHECK(harness_wait_number(&h, "leases.active", 0, LIMIT_MS));
	accounts_finish(&h);
}

/* The time of a lease runs on, and nobody but us can say so. */
TEST(reconnect__lease_expires_meanwhile)
{
	HARNESS(h, .extra = TOLD_KEEPING);
	TOLD_COMING_BACK(alpha, UINT32_MAX, 10000);
	struct mempool_event event;
	mempool_lease *lease;
	uint64_t begun_ns = clock_now_ns();
	uint8_t byte;

	CHECK_INT(told_acquire(alpha, PAGE, 1500, MEMPOOL_AUTO_RENEW, &lease), 0);
	harness_kill(&h);
	CHECK(told_wait(alpha, MEMPOOL_EVENT_SESSION_LOST, LIMIT_MS, NULL));
	/* It waits for the session, but not longer than there is something to be had. */
	CHECK_INT(mempool_read(lease, 0, &byte, 1), MEMPOOL_E_EXPIRED);
	printf("# expired after %" PRIu64 " ms\n", harness_since_ms(begun_ns));
	CHECK(harness_since_ms(begun_ns) < 5000);
	CHECK(told_wait(alpha, MEMPOOL_EVENT_LEASE_EXPIRING, 0, NULL));
	CHECK(told_wait(alpha, MEMPOOL_EVENT_LEASE_ENDED, 0, &event));
	CHECK_INT(event.code, MEMPOOL_E_EXPIRED);
	CHECK_INT(mempool_release(lease), MEMPOOL_E_EXPIRED);
}

/* Without it a session is lost once and for good, and all calls say so at once. */
TEST(reconnect__not_asked_for)
{
	HARNESS(h, .extra = TOLD_KEEPING);
	TOLD_COMING_BACK(alpha, 0, 10000);
	struct mempool_lease_token token;
	mempool_lease *lease, *other;
	uint64_t lost_ns;
	uint8_t byte;

	CHECK_INT(harness_acquire(alpha, PAGE, TTL_MS, &lease), 0);
	CHECK_INT(mempool_lease_token(lease, &token), 0);
	told_cut(alpha);
	CHECK(told_wait(alpha, MEMPOOL_EVENT_SESSION_LOST, LIMIT_MS, NULL));
	lost_ns = clock_now_ns();
	CHECK_INT(mempool_read(lease, 0, &byte, 1), MEMPOOL_E_SESSION_LOST);
	CHECK_INT(mempool_renew(lease, TTL_MS), MEMPOOL_E_SESSION_LOST);
	CHECK_INT(mempool_modify(lease, PAGE, MEMPOOL_READ), MEMPOOL_E_SESSION_LOST);
	CHECK_INT(mempool_auto_renew(lease, TTL_MS), MEMPOOL_E_SESSION_LOST);
	CHECK_INT(harness_acquire(alpha, PAGE, TTL_MS, &other), MEMPOOL_E_SESSION_LOST);
	token.lease_id++;
	CHECK_INT(mempool_reattach(alpha, &token, &other), MEMPOOL_E_SESSION_LOST);
	CHECK_INT(mempool_release(lease), MEMPOOL_E_SESSION_LOST);
	CHECK(harness_since_ms(lost_ns) < 1000);
	CHECK(told_nothing(alpha, 500));
}

/* Nobody is there: calls end by their time-outs, the attempts by their limit. */
TEST(reconnect__given_up)
{
	HARNESS(h, .extra = TOLD_KEEPING);
	TOLD_COMING_BACK(alpha, 4000, 1000);
	struct mempool_event event;
	mempool_lease *lease;
	uint64_t lost_ns, call_ns;
	uint8_t byte;

	CHECK_INT(harness_acquire(alpha, PAGE, TTL_MS, &lease), 0);
	harness_kill(&h);
	CHECK(told_wait(alpha, MEMPOOL_EVENT_SESSION_LOST, LIMIT_MS, NULL));
	lost_ns = clock_now_ns();
	CHECK_INT(mempool_read(lease, 0, &byte, 1), MEMPOOL_E_SESSION_LOST);
	printf("# a call failed after %" PRIu64 " ms: %s\n", harness_since_ms(lost_ns),
	       mempool_last_error());
	CHECK(harness_since_ms(lost_ns) >= 1000 && harness_since_ms(lost_ns) < 2000);
	CHECK(told_wait(alpha, MEMPOOL_EVENT_SESSION_GIVEN_UP, LIMIT_MS, &event));
	printf("# given up after %" PRIu64 " ms, code %d\n", harness_since_ms(lost_ns), event.code);
	CHECK(harness_since_ms(lost_ns) < 6000);
	CHECK(event.code == MEMPOOL_E_REJECTED || event.code == MEMPOOL_E_UNREACHABLE ||
	      event.code == MEMPOOL_E_TIMEOUT);
	call_ns = clock_now_ns();
	CHECK_INT(mempool_read(lease, 0, &byte, 1), MEMPOOL_E_SESSION_LOST);
	printf("# %s\n", mempool_last_error());
	CHECK_INT(mempool_release(lease), MEMPOOL_E_SESSION_LOST);
	CHECK(harness_since_ms(call_ns) < 500);
	CHECK(told_nothing(alpha, 500));
}

/* Who has taken a lease over keeps it: two clients would take it from each other for ever. */
TEST(reconnect__taken_over)
{
	HARNESS(h, .extra = TOLD_KEEPING);
	TOLD_COMING_BACK(alpha, UINT32_MAX, 10000);
	TOLD_COMING_BACK(other, UINT32_MAX, 10000);
	struct mempool_lease_token token;
	struct mempool_event event;
	mempool_lease *lease, *taken;

	CHECK_INT(harness_acquire(alpha, BYTES, TTL_MS, &lease), 0);
	CHECK_INT(write_pattern(lease, 9), 0);
	CHECK_INT(mempool_lease_token(lease, &token), 0);
	CHECK_INT(mempool_reattach(other, &token, &taken), 0);
	CHECK(told_wait(alpha, MEMPOOL_EVENT_SESSION_LOST, LIMIT_MS, &event));
	CHECK_INT(event.code, MEMPOOL_E_TAKEN_OVER);
	CHECK(told_wait(alpha, MEMPOOL_EVENT_SESSION_GIVEN_UP, LIMIT_MS, &event));
	CHECK_INT(event.code, MEMPOOL_E_TAKEN_OVER);
	harness_sleep_ms(1000);
	check_pattern(taken, 9);
	CHECK(told_nothing(other, 0));
	CHECK_INT(mempool_release(lease), MEMPOOL_E_SESSION_LOST);
	CHECK_INT(mempool_release(taken), 0);
	harness_close(&alpha);
	harness_close(&other);
	accounts_finish(&h);
}

/* Closing while it is away takes no longer than any call. */
TEST(reconnect__closed_while_away)
{
	HARNESS(h, .extra = TOLD_KEEPING);
	uint64_t begun_ns;

	for (uint64_t i = 0; i < 6; i++) {
		TOLD_COMING_BACK(alpha, UINT32_MAX, 5000);
		mempool_lease *lease;

		CHECK_INT(harness_acquire(alpha, PAGE, TTL_MS, &lease), 0);
		told_cut(alpha);
		harness_sleep_ms(i * 30);
		begun_ns = clock_now_ns();
		harness_close(&alpha);
		printf("# closed after %" PRIu64 " ms\n", harness_since_ms(begun_ns));
		CHECK(harness_since_ms(begun_ns) < 5000);
	}
	CHECK(harness_wait_number(&h, "sessions", 0, LIMIT_MS));
}

/* The same while leases are being asked for, of a daemon that does not answer. */
TEST(reconnect__closed_while_leases_are_asked_for)
{
	HARNESS(h, .extra = TOLD_KEEPING);
	TOLD_COMING_BACK(alpha, UINT32_MAX, 5000);
	__attribute__((cleanup(machine_resume))) pid_t pid = h.pid;
	mempool_lease *lease;
	uint64_t begun_ns;
	bool asks = false;

	CHECK_INT(harness_acquire(alpha, PAGE, TTL_MS, &lease), 0);
	CHECK_INT(kill(pid, SIGSTOP), 0);
	begun_ns = clock_now_ns();
	(void)pthread_mutex_lock(&alpha->lock);
	lease->away = true;
	(void)pthread_cond_broadcast(&alpha->reconnect.changed);
	(void)pthread_mutex_unlock(&alpha->lock);
	while (!asks && harness_since_ms(begun_ns) < LIMIT_MS) {
		(void)pthread_mutex_lock(&alpha->lock);
		asks = alpha->reconnect.resting && alpha->control.requests.first != NULL;
		(void)pthread_mutex_unlock(&alpha->lock);
	}
	CHECK(asks);
	begun_ns = clock_now_ns();
	harness_close(&alpha);
	printf("# closed after %" PRIu64 " ms\n", harness_since_ms(begun_ns));
	CHECK(harness_since_ms(begun_ns) < 5000);
}

/* An offer that was used up by a connection that did not come about: another is asked for. */
TEST(lane__offer_is_used_up)
{
	HARNESS(h, .extra = TOLD_KEEPING);
	TOLD_COMING_BACK(alpha, 0, 0);
	struct lane *lane = pool_lane(alpha);
	mempool_lease *lease;
	uint8_t byte = 1;

	CHECK_INT(harness_acquire(alpha, PAGE, TTL_MS, &lease), 0);
	told_cut_lane(alpha);
	(void)pthread_mutex_lock(&alpha->lock);
	lane->asked = true;
	lane->asking.done = true;
	lane->asking.error.code = 0;
	lane->offer_until_ns = clock_add_ms(clock_now_ns(), TTL_MS); /* as that of the first */
	(void)pthread_mutex_unlock(&alpha->lock);
	/* The lane is found lost, and the offer refused. */
	CHECK_INT(mempool_write(lease, 0, &byte, 1), MEMPOOL_E_LANE);
	printf("# %s\n", mempool_last_error());
	CHECK(strstr(mempool_last_error(), "has been restored") != NULL);
	CHECK_INT(mempool_write(lease, 0, &byte, 1), 0);
	CHECK_INT(mempool_release(lease), 0);
	harness_close(&alpha);
	accounts_finish(&h);
}

/* Rounds. */

#define ROUND_TIMEOUT_MS 8000
#define ROUND_SLACK_MS	 3000 /* to collect what is posted, on a machine that may be slow */

struct rounds {
	mempool *pool;
	atomic_bool stop;
	atomic_uint done;      /* operations that succeeded and were verified */
	atomic_uint failed;    /* with a code that may be */
	atomic_uint acquired;  /* a lease anew, since the last one had ended */
	atomic_int unexpected; /* the first code that must not be */
	atomic_bool corrupt;
	uint64_t longest_ms; /* call; the thread's until it has ended */
};

static int rounds_note(struct rounds *rounds, uint64_t begun_ns, int r)
{
	uint64_t took_ms = harness_since_ms(begun_ns);
	int expected = 0;

	if (took_ms > rounds->longest_ms)
		rounds->longest_ms = took_ms;
	switch (r) {
	case 0:
		break;
	case MEMPOOL_E_LANE:
	case MEMPOOL_E_TIMEOUT:
	case MEMPOOL_E_SESSION_LOST:
	case MEMPOOL_E_NO_LEASE:
	case MEMPOOL_E_EXPIRED:
		atomic_fetch_add(&rounds->failed, 1);
		break;
	default:
		printf("# unexpected: %d: %s\n", r, mempool_last_error());
		(void)atomic_compare_exchange_strong(&rounds->unexpected, &expected, r);
	}
	return r;
}

/* Writes until all is written, then reads it back. Return: 0, or why not: the lease is over. */
static int rounds_turn(struct rounds *rounds, mempool_lease *lease, uint32_t seed)
{
	static uint8_t sent[BYTES];
	static uint8_t got[BYTES];
	struct mempool_lease_info info = {.size = sizeof(info)};
	uint64_t begun_ns;
	int r;

	harness_fill(sent, BYTES, seed);
	for (int i = 0; i < 2; i++) {
		do {
			begun_ns = clock_now_ns();
			r = i == 0 ? mempool_write(lease, 0, sent, BYTES)
				   : mempool_read(lease, 0, got, BYTES);
			(void)rounds_note(rounds, begun_ns, r);
			if (r != 0 && mempool_lease_info(lease, &info) == 0 &&
			    info.ttl_left_ms == 0)
				return r;
		} while (r != 0 && atomic_load(&rounds->unexpected) == 0);
	}
	if (memcmp(sent, got, BYTES) != 0)
		atomic_store(&rounds->corrupt, true);
	atomic_fetch_add(&rounds->done, 1);
	return 0;
}

static void *rounds_run(void *arg)
{
	struct rounds *rounds = arg;
	mempool_lease *lease = NULL;
	uint64_t begun_ns;
	uint32_t seed = 0;
	int r;

	while (!atomic_load(&rounds->stop) && atomic_load(&rounds->unexpected) == 0) {
		if (lease == NULL) {
			begun_ns = clock_now_ns();
			r = told_acquire(rounds->pool, BYTES, TTL_MS, MEMPOOL_AUTO_RENEW, &lease);
			if (rounds_note(rounds, begun_ns, r) < 0)
				continue;
			atomic_fetch_add(&rounds->acquired, 1);
		}
		r = rounds_turn(rounds, lease, ++seed);
		if (r != 0) {
			begun_ns = clock_now_ns();
			(void)rounds_note(rounds, begun_ns, mempool_release(lease));
			lease = NULL;
		}
	}
	if (lease != NULL)
		(void)rounds_note(rounds, clock_now_ns(), mempool_release(lease));
	return NULL;
}

/* The next operations are verified again, in time. */
static bool rounds_recover(struct rounds *rounds)
{
	unsigned int done = atomic_load(&rounds->done);
	uint64_t begun_ns = clock_now_ns();

	while (atomic_load(&rounds->done) < done + 2) {
		if (harness_since_ms(begun_ns) > LIMIT_MS || atomic_load(&rounds->unexpected) != 0)
			return false;
		harness_sleep_ms(2);
	}
	return true;
}

static void rounds_break(struct harness *h, struct rounds *rounds, uint32_t kills[3])
{
	uint32_t which = (uint32_t)random() % 8;

	harness_sleep_ms((uint64_t)random() % 40);
	if (which < 4) {
		told_cut_lane(rounds->pool);
		kills[0]++;
	} else if (which < 6) {
		told_cut(rounds->pool);
		kills[1]++;
	} else {
		harness_kill(h);
		CHECK_INT(harness_restart(h), 0);
		kills[2]++;
	}
}

TEST(reconnect__again_and_again_at_any_moment)
{
	HARNESS(h, .extra = TOLD_KEEPING);
	TOLD_COMING_BACK(alpha, UINT32_MAX, ROUND_TIMEOUT_MS);
	static struct rounds rounds;
	uint32_t count = harness_figure(FIGURE_BREAKS);
	uint32_t kills[3] = {0};
	pthread_t thread;

	srandom(5);
	rounds = (struct rounds){.pool = alpha};
	CHECK_INT(pthread_create(&thread, NULL, rounds_run, &rounds), 0);
	for (uint32_t i = 0; i < count && !test_has_failed(); i++) {
		rounds_break(&h, &rounds, kills);
		if (!rounds_recover(&rounds)) {
			test_fail(__FILE__, __LINE__, "no recovery");
			printf("# in round %u\n", i);
		}
	}
	atomic_store(&rounds.stop, true);
	CHECK_INT(pthread_join(thread, NULL), 0);
	printf("# broken: lane %u times, session %u times, daemon %u times; %u operations "
	       "verified, "
	       "%u failed, %u leases, longest call %" PRIu64 " ms\n",
	       kills[0], kills[1], kills[2], atomic_load(&rounds.done), atomic_load(&rounds.failed),
	       atomic_load(&rounds.acquired), rounds.longest_ms);
	CHECK(!test_has_failed());
	CHECK_INT(atomic_load(&rounds.unexpected), 0);
	CHECK(!atomic_load(&rounds.corrupt));
	CHECK(rounds.longest_ms <= ROUND_TIMEOUT_MS + ROUND_SLACK_MS);
	/* Only a daemon's death costs the lease. */
	CHECK(atomic_load(&rounds.acquired) <= kills[2] + 1);
	harness_close(&alpha);
	accounts_finish(&h);
}

/* The daemon's host is gone: nothing comes back from it, and nothing says so. */

#define GONE_TIMEOUT_MS 2000
#define GONE_SLACK_MS	2000

static void check_in_time(const char *what, uint64_t begun_ns, int r)
{
	printf("# %s: %d after %" PRIu64 " ms: %s\n", what, r, harness_since_ms(begun_ns),
	       mempool_last_error());
	CHECK(r < 0);
	CHECK(harness_since_ms(begun_ns) <= GONE_TIMEOUT_MS + GONE_SLACK_MS);
}

static void calls_end(uint32_t reconnect_ms)
{
	HARNESS(h, .extra = TOLD_KEEPING);
	TOLD_COMING_BACK(alpha, reconnect_ms, GONE_TIMEOUT_MS);
	static uint8_t buf[4 * MIB];
	mempool_lease *lease, *other, *third;
	uint64_t begun_ns;

	CHECK_INT(harness_acquire(alpha, sizeof(buf), TTL_MS, &lease), 0);
	CHECK_INT(harness_acquire(alpha, PAGE, TTL_MS, &other), 0);
	CHECK_INT(mempool_write(lease, 0, buf, sizeof(buf)), 0);
	CHECK(wire_drop(WIRE_DAEMON, true) && wire_drop(WIRE_CLIENT, true));
	begun_ns = clock_now_ns();
	check_in_time("read", begun_ns, mempool_read(lease, 0, buf, sizeof(buf)));
	begun_ns = clock_now_ns();
	check_in_time("write", begun_ns, mempool_write(lease, 0, buf, sizeof(buf)));
	begun_ns = clock_now_ns();
	check_in_time("renew", begun_ns, mempool_renew(lease, TTL_MS));
	begun_ns = clock_now_ns();
	check_in_time("modify", begun_ns, mempool_modify(other, 2 * PAGE, MEMPOOL_READ));
	begun_ns = clock_now_ns();
	check_in_time("acquire", begun_ns, told_acquire(alpha, PAGE, TTL_MS, 0, &third));
	begun_ns = clock_now_ns();
	check_in_time("release", begun_ns, mempool_release(other));
	CHECK(!test_has_failed());
	begun_ns = clock_now_ns();
	harness_close(&alpha);
	printf("# closed after %" PRIu64 " ms\n", harness_since_ms(begun_ns));
	CHECK(harness_since_ms(begun_ns) <= GONE_TIMEOUT_MS + GONE_SLACK_MS);
	CHECK(wire_drop(WIRE_DAEMON, false) && wire_drop(WIRE_CLIENT, false));
}

static void run_calls_end(void)
{
	calls_end(0);
}

TEST(gone__calls_end_in_time)
{
	wire_test("gone__calls_end_in_time", 120000, run_calls_end);
}

static void run_calls_end_coming_back(void)
{
	calls_end(UINT32_MAX);
}

TEST(gone__coming_back)
{
	wire_test("gone__coming_back", 120000, run_calls_end_coming_back);
}
