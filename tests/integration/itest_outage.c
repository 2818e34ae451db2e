/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The daemon is killed, the wire is cut, lanes and sessions are lost, at random moments of a loop
 * of operations. Two threads call, one has a queue; each has a lease of its own and a copy of what
 * must be in it. Every call returns in time with a code that is documented; what was said to be
 * written is there as long as the lease is; nothing is left behind.
 *
 * The main thread alone breaks things and talks to the daemon's admin socket.
 */
#include <dirent.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/lane.h"
#include "client/pool.h"
#include "client/queue.h"
#include "common/clock.h"
#include "common/verbs.h"
#include "tests/integration/accounts.h"
#include "tests/integration/harness.h"
#include "tests/integration/resources.h"
#include "tests/integration/told.h"
#include "tests/integration/wire.h"
#include "tests/integration/workers.h"
#include "tests/unit/random.h"

#define RECOVERY_MS 45000
/*
 * Half of the time-out is how long devices try again. A wire that is healed before makes Soft-RoCE
 * stumble over its own retries of reads: its kernel warns, and the guest is lost to the tests.
 */
#define CUT_MIN_MS 2000
#define CUT_MAX_MS 3000

#define LIMITS                                                                                  \
	"\"ban_after\": 0, \"ban_backoff_min\": \"0\", \"strikes_max\": 0, "                    \
	"\"heartbeat\": \"500ms\", \"connections_max_per_address\": 65536, "                    \
	"\"handshakes_max\": 65536, \"handshakes_max_per_address\": 65536, \"lane_wait_min\": " \
	"\"0\""

/* Breaking. */

enum way {
	WAY_DAEMON, /* killed, and started again */
	WAY_WIRE,   /* one direction, or both */
	WAY_LANE,   /* our end of the session's own */
	WAY_QUEUE,  /* ... and of the queue's */
	WAY_ACCESS, /* the daemon's device kills it */
	WAY_SESSION,
	WAYS,
};

static const char *const way_names[WAYS] = {"daemon",	    "wire",   "lane",
					    "queue's lane", "access", "session"};

static void cut_queue(mempool *pool, mempool_queue *queue)
{
	(void)pthread_mutex_lock(&pool->lock);
	if (queue->lane.state == LANE_UP)
		(void)verbs_qp_to_error(lane_qp(&queue->lane));
	(void)pthread_mutex_unlock(&pool->lock);
}

/* With a key that nobody has. */
static void access_wrongly(mempool *pool)
{
	struct lane *lane = pool_lane(pool);
	enum ibv_wc_status status;

	(void)lane_raw(lane, IBV_WR_RDMA_READ, lane_slot(lane, 0), 1, 0, 0, WORKERS_TIMEOUT_MS,
		       &status);
}

static void cut_wire(struct random *random)
{
	uint64_t ends = 1 + random_below(random, 3);

	CHECK((ends & 1) == 0 || wire_drop(WIRE_DAEMON, true));
	CHECK((ends & 2) == 0 || wire_drop(WIRE_CLIENT, true));
	harness_sleep_ms(CUT_MIN_MS + random_below(random, CUT_MAX_MS - CUT_MIN_MS));
	CHECK(wire_drop(WIRE_DAEMON, false) && wire_drop(WIRE_CLIENT, false));
}

static void break_it(struct harness *h, const struct worker *queuer, struct random *random,
		     enum way way)
{
	mempool *pool = queuer->outage->pool;

	harness_sleep_ms(random_below(random, 100));
	switch (way) {
	case WAY_DAEMON:
		harness_kill(h);
		harness_sleep_ms(random_below(random, 500));
		CHECK_INT(harness_restart(h), 0);
		break;
	case WAY_WIRE:
		cut_wire(random);
		break;
	case WAY_LANE:
		told_cut_lane(pool);
		break;
	case WAY_QUEUE:
		cut_queue(pool, queuer->queue);
		break;
	case WAY_ACCESS:
		access_wrongly(pool);
		break;
	default:
		told_cut(pool);
	}
}

/* What is to be broken in a round: all of it in turn at first, then at random. */
static enum way choose(struct random *random, uint32_t round)
{
	static const enum way ways[] = {WAY_DAEMON, WAY_WIRE,	 WAY_QUEUE,  WAY_WIRE,
					WAY_LANE,   WAY_SESSION, WAY_ACCESS, WAY_DAEMON};
	size_t count = sizeof(ways) / sizeof(ways[0]);

	return ways[round < count ? round : random_below(random, count)];
}

/* Return: has each worker verified all of its lease again, in time? */
static bool recover(struct outage *outage, const struct worker *workers)
{
	unsigned int healed = atomic_fetch_add(&outage->healed, 1) + 1;
	uint64_t until_ns = clock_add_ms(clock_now_ns(), RECOVERY_MS);

	for (size_t i = 0; i < WORKERS; i++) {
		while (atomic_load(&workers[i].seen) != healed) {
			if (clock_now_ns() >= until_ns || !worker_goes_on(&workers[i]))
				return false;
			harness_sleep_ms(2);
		}
	}
	return true;
}

/* After each round: only so many events are kept. */
static uint32_t count_lost_sessions(mempool *pool)
{
	struct mempool_event event = {.size = sizeof(event)};
	uint32_t lost = 0;

	while (mempool_next_event(pool, &event, 0) == 0)
		lost += event.kind == MEMPOOL_EVENT_SESSION_LOST;
	return lost;
}

/* The test. */

/* What this process has, beside memory. */
struct process {
	uint32_t fds;
	uint32_t threads;
};

static uint32_t count_entries(const char *path)
{
	DIR *dir = opendir(path);
	uint32_t count = 0;

	while (dir != NULL && readdir(dir) != NULL)
		count++;
	if (dir != NULL)
		(void)closedir(dir);
	return count;
}

static struct process process_now(void)
{
	return (struct process){
		.fds = count_entries("/proc/self/fd"),
		.threads = count_entries("/proc/self/task"),
	};
}

static int connect_for_ever(mempool **ret_pool)
{
	struct mempool_connect_opts opts = {
		.timeout_ms = WORKERS_TIMEOUT_MS,
		.reconnect_ms = UINT32_MAX,
	};

	return told_connect("alpha", &opts, ret_pool);
}

static void find_rights(struct outage *outage)
{
	struct mempool_acquire_opts opts = {
		.size = sizeof(opts), .ttl_ms = WORKERS_TTL_MS, .rights = MEMPOOL_ATOMIC};
	mempool_lease *lease = NULL;
	int r = mempool_acquire(outage->pool, sizeof(uint64_t), &opts, &lease);

	outage->rights = MEMPOOL_READ | MEMPOOL_WRITE;
	if (r == 0)
		outage->rights |= MEMPOOL_ATOMIC;
	else
		CHECK_INT(r, MEMPOOL_E_RIGHTS_DEVICE);
	CHECK_INT(mempool_release(lease), 0);
}

static void check_left(const struct process *before, const struct resources *before_kernel)
{
	uint64_t until_ns = clock_add_ms(clock_now_ns(), 10000);
	struct resources after_kernel;
	struct process after = process_now();

	/* What the kernel still takes down is not left behind. */
	do
		CHECK(resources_read(&after_kernel));
	while (!resources_equal(before_kernel, &after_kernel) && clock_now_ns() < until_ns);
	resources_print("before", before_kernel);
	resources_print("after", &after_kernel);
	CHECK(resources_equal(before_kernel, &after_kernel));
	printf("# descriptors %u and %u, threads %u and %u\n", before->fds, after.fds,
	       before->threads, after.threads);
	CHECK_INT(after.fds, before->fds);
	CHECK_INT(after.threads, before->threads);
}

static void break_again_and_again(struct harness *h, struct outage *outage, uint32_t rounds,
				  bool is_kept)
{
	static struct worker workers[WORKERS];
	struct random random = random_start();
	uint32_t broken[WAYS] = {0};
	uint32_t lost = 0;
	uint64_t begun_ns = clock_now_ns();

	workers_start(outage, &random, workers);
	CHECK(recover(outage, workers));
	for (uint32_t i = 0; i < rounds && !test_has_failed(); i++) {
		enum way way = choose(&random, i);

		break_it(h, workers_queuer(workers), &random, way);
		broken[way]++;
		if (!recover(outage, workers)) {
			test_fail(__FILE__, __LINE__, "no recovery");
			printf("# in round %u: %s\n", i, way_names[way]);
		}
		lost += count_lost_sessions(outage->pool);
	}
	lost += count_lost_sessions(outage->pool);
	workers_finish(outage, workers);
	printf("# %u rounds in %" PRIu64 " ms, %u sessions lost;", rounds,
	       harness_since_ms(begun_ns), lost);
	for (size_t i = 0; i < WAYS; i++)
		printf(" %s %u", way_names[i], broken[i]);
	printf("\n");
	calls_print(&outage->calls);
	for (size_t i = 0; i < WORKERS; i++) {
		printf("# worker %zu had %u leases\n", i, workers[i].acquired);
		CHECK(!atomic_load(&workers[i].corrupt));
		/* A lease is lost with the daemon only; or, where none is kept, with its session. */
		CHECK(workers[i].acquired <= 1 + (is_kept ? broken[WAY_DAEMON] : lost));
		CHECK(workers[i].acquired > 1);
	}
	CHECK(!atomic_load(&outage->calls.wrong));
	CHECK(!test_has_failed());
}

static void live_through(const char *extra, uint32_t rounds, bool is_kept)
{
	HARNESS(h, .pool_size = "64MiB", .limits = LIMITS, .extra = extra);
	__attribute__((cleanup(harness_close))) mempool *alpha = NULL;
	static struct outage outage;
	struct resources before_kernel;
	struct process before;

	/* What the libraries keep for ever is there after the first session. */
	CHECK_INT(connect_for_ever(&alpha), 0);
	harness_close(&alpha);
	accounts_check(&h);
	CHECK(!test_has_failed());
	CHECK(resources_read(&before_kernel));
	before = process_now();
	CHECK_INT(connect_for_ever(&alpha), 0);
	outage = (struct outage){.pool = alpha, .calls = {.limit_ms = WORKERS_LIMIT_MS}};
	find_rights(&outage);
	CHECK(!test_has_failed());
	break_again_and_again(&h, &outage, rounds, is_kept);
	harness_close(&alpha);
	CHECK(!test_has_failed());
	accounts_check(&h);
	CHECK(!test_has_failed());
	check_left(&before, &before_kernel);
	CHECK(!test_has_failed());
	CHECK_INT(harness_stop(&h), 0);
}

/* The daemon keeps the leases of a session that is lost; with itself it loses them. */
static void leases_are_kept(void)
{
	live_through("\"orphan_grace\": \"2min\"", harness_figure(FIGURE_OUTAGES), true);
}

TEST(outage__leases_are_kept)
{
	wire_test("outage__leases_are_kept", 1100000, leases_are_kept);
}

/* It keeps none: they are lost with the session. */
static void leases_are_lost(void)
{
	live_through(NULL, harness_figure(FIGURE_OUTAGES_OF_SESSIONS), false);
}

TEST(outage__leases_are_lost)
{
	wire_test("outage__leases_are_lost", 600000, leases_are_lost);
}
