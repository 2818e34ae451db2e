/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Many come at once, more than the kernel keeps in its backlog: each is served in the end or
 * told why not, and none is left with a connection that is none. And they come while the
 * daemon is told to stop.
 */
#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include "common/clock.h"
#include "proto/error.h"
#include "tests/integration/accounts.h"
#include "tests/integration/harness.h"
#include "tests/integration/peer.h"

#define PAGE	      4096
#define TTL_MS	      600000
#define VISITORS_MAX  200
#define TRIES_MAX     200
#define RETRY_MS      20
#define CONNECT_MS    20000
#define BACKLOG	      "\"backlog\": 8"
#define BACKLOG_COUNT 8
#define DESCRIPTORS   10 /* of a visitor, at most */
#define CALLERS	      6
#define STOP_LIMIT_MS 5000

/* Many at once. */

struct visitor {
	const atomic_bool *go;
	pthread_t thread;
	bool runs;
	unsigned int seed;
	mempool *pool;
	mempool_lease *lease;
	uint32_t tries_max;
	uint32_t tries;
	int code;
	atomic_bool done;
};

struct crowd {
	atomic_bool go;
	uint32_t count;
	struct visitor all[VISITORS_MAX];
};

static int visitor_connect(struct visitor *visitor, const char *tenant)
{
	struct mempool_connect_opts opts = {.timeout_ms = CONNECT_MS};
	struct harness_keys keys;

	harness_keys(tenant, &keys, &opts);
	return mempool_connect(harness_endpoint(), &opts, &visitor->pool);
}

/* Of the refusals, those that are over in a moment: by the kernel, and by the daemon. */
static bool may_retry(int code)
{
	return code == MEMPOOL_E_REJECTED || code == MEMPOOL_E_UNREACHABLE ||
	       code == MEMPOOL_E_TIMEOUT || code == MEMPOOL_E_HANDSHAKES_MAX ||
	       code == MEMPOOL_E_BUSY;
}

static void *visitor_thread(void *arg)
{
	struct visitor *visitor = arg;
	uint8_t byte = 1;

	while (!atomic_load(visitor->go))
		harness_sleep_ms(1);
	do {
		if (visitor->tries > 0)
			harness_sleep_ms(RETRY_MS + (uint64_t)rand_r(&visitor->seed) % RETRY_MS);
		visitor->code = visitor_connect(visitor, "alpha");
		visitor->tries++;
	} while (may_retry(visitor->code) && visitor->tries < visitor->tries_max);
	if (visitor->code == 0)
		visitor->code = harness_acquire(visitor->pool, PAGE, TTL_MS, &visitor->lease);
	if (visitor->code == 0)
		visitor->code = mempool_write(visitor->lease, 0, &byte, 1);
	atomic_store(&visitor->done, true);
	return NULL;
}

static void crowd_join(struct crowd *crowd)
{
	atomic_store(&crowd->go, true);
	for (uint32_t i = 0; i < crowd->count; i++) {
		if (crowd->all[i].runs)
			(void)pthread_join(crowd->all[i].thread, NULL);
		crowd->all[i].runs = false;
	}
}

static void crowd_close(struct crowd **crowd)
{
	if (*crowd == NULL)
		return;
	crowd_join(*crowd);
	for (uint32_t i = 0; i < (*crowd)->count; i++)
		harness_close(&(*crowd)->all[i].pool);
	free(*crowd);
	*crowd = NULL;
}

static bool allow_descriptors(uint32_t visitors)
{
	struct rlimit limit = {
		.rlim_cur = DESCRIPTORS * visitors + 200,
		.rlim_max = DESCRIPTORS * visitors + 200,
	};
	struct rlimit now;

	return getrlimit(RLIMIT_NOFILE, &now) == 0 &&
	       (now.rlim_cur >= limit.rlim_cur || setrlimit(RLIMIT_NOFILE, &limit) == 0);
}

/* They all begin at the same moment. */
static void crowd_come(struct crowd *crowd, uint32_t count, uint32_t tries_max)
{
	for (uint32_t i = 0; i < count; i++) {
		struct visitor *visitor = &crowd->all[i];

		visitor->go = &crowd->go;
		visitor->seed = i;
		visitor->tries_max = tries_max;
		visitor->code = 1;
		crowd->count++;
		CHECK_INT(pthread_create(&visitor->thread, NULL, visitor_thread, visitor), 0);
		visitor->runs = true;
	}
	atomic_store(&crowd->go, true);
}

/* Whoever was let in is alive; whoever was not has been told @code. Return: how many are in. */
static uint32_t count_served(struct crowd *crowd, int code)
{
	uint32_t served = 0;
	uint32_t tries = 0;
	uint32_t most = 0;
	uint8_t byte;

	for (uint32_t i = 0; i < crowd->count; i++) {
		struct visitor *visitor = &crowd->all[i];

		tries += visitor->tries;
		most = visitor->tries > most ? visitor->tries : most;
		if (visitor->code != 0 && visitor->code != code)
			printf("# visitor %u: %d after %u tries\n", i, visitor->code,
			       visitor->tries);
		if (visitor->code == 0 && mempool_read(visitor->lease, 0, &byte, 1) == 0 &&
		    byte == 1 && mempool_renew(visitor->lease, TTL_MS) == 0)
			served++;
		else if (visitor->code != code)
			return 0;
	}
	printf("# %u of %u are in after %u tries in all, at most %u of one\n", served, crowd->count,
	       tries, most);
	return served;
}

/* @room: for so many; @code: what the others are told */
static void come_at_once(uint32_t count, uint32_t room, int code)
{
	HARNESS(h, .sessions_max = room, .extra = BACKLOG);
	__attribute__((cleanup(crowd_close))) struct crowd *crowd = NULL;
	uint64_t begun_ns = clock_now_ns();

	if (!allow_descriptors(count))
		SKIP("not enough descriptors are allowed");
	crowd = calloc(1, sizeof(*crowd));
	CHECK(crowd != NULL);
	crowd_come(crowd, count, TRIES_MAX);
	crowd_join(crowd);
	CHECK(!test_has_failed());
	printf("# %u have come and been answered in %" PRIu64 " ms\n", count,
	       harness_since_ms(begun_ns));
	CHECK_INT(count_served(crowd, code), room < count ? room : count);
	CHECK(harness_wait_number(&h, "sessions", room < count ? room : count, 10000));
	printf("# %" PRId64 " accepted in all, %" PRId64 " refused by the daemon\n",
	       harness_number(&h, "counters.sessions_accepted"),
	       harness_number(&h, "counters.sessions_rejected"));
	crowd_close(&crowd);
	accounts_check(&h);
	CHECK(!test_has_failed());
	CHECK_INT(harness_number(&h, "counters.destroy_failures"), 0);
	CHECK_INT(harness_stop(&h), 0);
}

TEST(field_55_crowd__all_are_served)
{
	come_at_once(harness_figure(FIGURE_CROWD), VISITORS_MAX, 0);
}

TEST(field_55_crowd__some_are_refused)
{
	uint32_t count = harness_figure(FIGURE_CROWD);

	come_at_once(count, count / 2, MEMPOOL_E_SESSIONS_MAX);
}

static uint32_t count_done(struct crowd *crowd)
{
	uint32_t done = 0;

	for (uint32_t i = 0; i < crowd->count; i++)
		done += atomic_load(&crowd->all[i].done);
	return done;
}

/*
 * The daemon takes no requests for a while. The kernel keeps as many as there is room for and
 * drops the others, whose senders try again: none is refused, and all are served then.
 */
TEST(field_55_crowd__more_than_the_backlog)
{
	HARNESS(h, .extra = BACKLOG);
	__attribute__((cleanup(crowd_close))) struct crowd *crowd = calloc(1, sizeof(*crowd));
	uint64_t begun_ns;
	uint32_t done;

	CHECK(crowd != NULL);
	CHECK_INT(kill(h.pid, SIGSTOP), 0);
	crowd_come(crowd, 2 * BACKLOG_COUNT, 1);
	harness_sleep_ms(3000);
	done = count_done(crowd);
	begun_ns = clock_now_ns();
	CHECK_INT(kill(h.pid, SIGCONT), 0);
	crowd_join(crowd);
	printf("# the last one is in %" PRIu64 " ms after the daemon goes on\n",
	       harness_since_ms(begun_ns));
	CHECK_INT(done, 0);
	CHECK_INT(count_served(crowd, 0), 2 * BACKLOG_COUNT);
	CHECK_INT(harness_number(&h, "counters.sessions_accepted"), 2 * BACKLOG_COUNT);
	CHECK_INT(harness_number(&h, "counters.sessions_rejected"), 0);
	crowd_close(&crowd);
	accounts_check(&h);
	CHECK(!test_has_failed());
	CHECK_INT(harness_stop(&h), 0);
}

/* The daemon stops meanwhile. */

/* Comes again and again, as it should or with what is refused. */
struct caller {
	const atomic_bool *stop;
	pthread_t thread;
	bool runs;
	bool is_good;
	uint32_t accepted;
	uint32_t refused;
};

static void caller_call(struct caller *caller)
{
	static const uint8_t garbage[12] = {1, 2, 3};
	struct visitor visitor = {0};
	struct raw raw;
	int r;

	if (caller->is_good) {
		r = visitor_connect(&visitor, "beta");
		harness_close(&visitor.pool);
	} else {
		r = raw_connect(&raw, garbage, sizeof(garbage));
		raw_close(&raw);
	}
	caller->accepted += r == 0;
	caller->refused += r != 0;
}

static void *caller_thread(void *arg)
{
	struct caller *caller = arg;

	while (!atomic_load(caller->stop))
		caller_call(caller);
	return NULL;
}

struct callers {
	atomic_bool stop;
	struct caller all[CALLERS];
};

static void callers_join(struct callers *callers)
{
	atomic_store(&callers->stop, true);
	for (int i = 0; i < CALLERS; i++) {
		if (callers->all[i].runs)
			(void)pthread_join(callers->all[i].thread, NULL);
		callers->all[i].runs = false;
	}
}

static void stop_meanwhile(uint64_t after_ms, uint64_t *longest_ms)
{
	__attribute__((cleanup(callers_join))) struct callers callers = {0};
	HARNESS(h, .pool_size = NULL);
	uint64_t told_ns;
	uint64_t took_ms;
	int64_t accepted, rejected;

	for (int i = 0; i < CALLERS; i++) {
		struct caller *caller = &callers.all[i];

		*caller = (struct caller){.stop = &callers.stop, .is_good = i % 2 == 0};
		CHECK_INT(pthread_create(&caller->thread, NULL, caller_thread, caller), 0);
		caller->runs = true;
	}
	harness_sleep_ms(after_ms);
	accepted = harness_number(&h, "counters.sessions_accepted");
	rejected = harness_number(&h, "counters.sessions_rejected");
	told_ns = clock_now_ns();
	CHECK_INT(harness_stop(&h), 0);
	took_ms = harness_since_ms(told_ns);
	printf("# told after %" PRIu64 " ms, %" PRId64 " accepted and %" PRId64
	       " refused; stopped within %" PRIu64 " ms\n",
	       after_ms, accepted, rejected, took_ms);
	CHECK(took_ms < STOP_LIMIT_MS);
	*longest_ms = took_ms > *longest_ms ? took_ms : *longest_ms;
}

TEST(field_56_stop__while_requests_come)
{
	uint32_t rounds = harness_figure(FIGURE_STOPS);
	uint64_t longest_ms = 0;

	for (uint32_t i = 0; i < rounds; i++) {
		stop_meanwhile(50 + clock_now_ns() / 1000 % 500, &longest_ms);
		CHECK(!test_has_failed());
	}
	printf("# stopped %u times, within %" PRIu64 " ms\n", rounds, longest_ms);
}
