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
#include "tests/integration/calls.h"
#include "tests/integration/harness.h"
#include "tests/integration/resources.h"
#include "tests/integration/shadow.h"
#include "tests/integration/told.h"
#include "tests/integration/wire.h"
#include "tests/unit/random.h"

#define TTL_MS	    3600000
#define TIMEOUT_MS  3300 /* of calls and operations */
#define FLUSH_MS    1000 /* to collect what is posted, at most */
#define SLACK_MS    1500 /* on a machine that may be slow */
#define LIMIT_MS    (TIMEOUT_MS + FLUSH_MS + SLACK_MS)
#define RECOVERY_MS 45000
/*
 * Half of the time-out is how long devices try again. A wire that is healed before makes Soft-RoCE
 * stumble over its own retries of reads: its kernel warns, and the guest is lost to the tests.
 */
#define CUT_MIN_MS   2000
#define CUT_MAX_MS   3000
#define LEASE_BYTES  ((size_t)256 * 1024)
#define WORD_AT	     LEASE_BYTES /* a counter behind what the copy has */
#define CALLERS	     2
#define WORKERS	     (CALLERS + 1)
#define SEGMENTS     4
#define BATCH	     16
#define CHUNK	     (LEASE_BYTES / BATCH)
#define SEGMENT_PART (LEASE_BYTES / SEGMENTS)

#define LIMITS                                                                                  \
	"\"ban_after\": 0, \"ban_backoff_min\": \"0\", \"strikes_max\": 0, "                    \
	"\"heartbeat\": \"500ms\", \"connections_max_per_address\": 65536, "                    \
	"\"handshakes_max\": 65536, \"handshakes_max_per_address\": 65536, \"lane_wait_min\": " \
	"\"0\""

struct outage {
	mempool *pool;
	struct calls calls;
	uint32_t rights;
	atomic_bool stop;
	atomic_uint healed; /* so often was all well again */
};

/* One thread's. */
struct worker {
	struct outage *outage;
	pthread_t thread;
	struct random random;
	mempool_lease *lease;
	struct shadow shadow;
	uint8_t *bytes; /* LEASE_BYTES, and a word */
	uint64_t word;	/* at least */
	uint64_t added; /* it may be so much more */
	uint32_t seed;
	uint32_t acquired;
	atomic_uint seen; /* what was healed then, and all verified since */
	atomic_bool corrupt;
	/* Of the one with a queue. */
	mempool_queue *queue;
	mempool_buf *buf;
	bool attached;
	int codes[BATCH];
};

static bool worker_goes_on(const struct worker *worker)
{
	return !atomic_load(&worker->outage->stop) && !atomic_load(&worker->corrupt) &&
	       !atomic_load(&worker->outage->calls.wrong);
}

static int note(struct worker *worker, enum call call, uint64_t begun_ns, int r)
{
	return calls_note(&worker->outage->calls, call, begun_ns, r);
}

static bool is_over(const struct worker *worker)
{
	struct mempool_lease_info info = {.size = sizeof(info)};

	return mempool_lease_info(worker->lease, &info) < 0 || info.ttl_left_ms == 0;
}

static void check_read(struct worker *worker, size_t at, const uint8_t *bytes, size_t len_bytes)
{
	if (!shadow_read(&worker->shadow, at, bytes, len_bytes))
		atomic_store(&worker->corrupt, true);
}

static void check_word(struct worker *worker, uint64_t word)
{
	if (word < worker->word || word > worker->word + worker->added) {
		printf("# the counter is at %" PRIu64 " instead of %" PRIu64 " and up to %" PRIu64
		       " more\n",
		       word, worker->word, worker->added);
		atomic_store(&worker->corrupt, true);
	}
	worker->word = word;
	worker->added = 0;
}

/* Leases. */

/* Return: is there one? */
static bool worker_acquire(struct worker *worker)
{
	struct mempool_acquire_opts opts = {
		.size = sizeof(opts), .ttl_ms = TTL_MS, .rights = worker->outage->rights};
	uint64_t begun_ns = clock_now_ns();
	int r;

	if (worker->lease != NULL)
		return true;
	r = mempool_acquire(worker->outage->pool, LEASE_BYTES + sizeof(uint64_t), &opts,
			    &worker->lease);
	if (note(worker, CALL_ACQUIRE, begun_ns, r) < 0)
		return false;
	worker->acquired++;
	worker->word = worker->added = 0;
	worker->attached = false;
	shadow_reset(&worker->shadow);
	return true;
}

static void worker_release(struct worker *worker)
{
	uint64_t begun_ns = clock_now_ns();

	if (worker->lease != NULL)
		(void)note(worker, CALL_RELEASE, begun_ns, mempool_release(worker->lease));
	worker->lease = NULL;
}

/* Calls. */

/* Tries until all is read, and so known again, or the lease is over. */
static void caller_verify(struct worker *worker)
{
	uint64_t begun_ns;
	int r = MEMPOOL_E_LANE;

	while (r != 0 && worker_goes_on(worker) && !is_over(worker)) {
		begun_ns = clock_now_ns();
		r = mempool_read(worker->lease, 0, worker->bytes, LEASE_BYTES + sizeof(uint64_t));
		(void)note(worker, CALL_TRANSFER, begun_ns, r);
	}
	if (r == 0) {
		uint64_t word;

		memcpy(&word, worker->bytes + WORD_AT, sizeof(word));
		check_read(worker, 0, worker->bytes, LEASE_BYTES);
		check_word(worker, word);
	} else if (worker_goes_on(worker)) {
		worker_release(worker);
	}
}

static void wrote(struct worker *worker, int r, size_t at, size_t len_bytes)
{
	if (r == 0)
		shadow_wrote(&worker->shadow, at, worker->bytes + at, len_bytes);
	else
		shadow_tried(&worker->shadow, at, worker->bytes + at, len_bytes);
}

static int caller_one(struct worker *worker, bool writes)
{
	size_t len_bytes = 1 + (size_t)random_below(&worker->random, LEASE_BYTES);
	size_t at = (size_t)random_below(&worker->random, LEASE_BYTES - len_bytes + 1);
	uint64_t begun_ns = clock_now_ns();
	int r;

	if (writes)
		harness_fill(worker->bytes + at, len_bytes, ++worker->seed);
	r = writes ? mempool_write(worker->lease, at, worker->bytes + at, len_bytes)
		   : mempool_read(worker->lease, at, worker->bytes + at, len_bytes);
	(void)note(worker, CALL_TRANSFER, begun_ns, r);
	if (writes)
		wrote(worker, r, at, len_bytes);
	else if (r == 0)
		check_read(worker, at, worker->bytes + at, len_bytes);
	return r;
}

static int caller_list(struct worker *worker, bool writes)
{
	struct mempool_segment list[SEGMENTS];
	size_t done = 0;
	uint64_t begun_ns;
	int r;

	for (size_t i = 0; i < SEGMENTS; i++) {
		size_t len_bytes = 1 + (size_t)random_below(&worker->random, SEGMENT_PART);
		size_t at = i * SEGMENT_PART;

		list[i] = (struct mempool_segment){at, worker->bytes + at, len_bytes};
		if (writes)
			harness_fill(list[i].buf, len_bytes, ++worker->seed);
	}
	begun_ns = clock_now_ns();
	r = writes ? mempool_writev(worker->lease, list, SEGMENTS, &done)
		   : mempool_readv(worker->lease, list, SEGMENTS, &done);
	(void)note(worker, CALL_TRANSFER, begun_ns, r);
	if ((r == 0) != (done == SEGMENTS))
		printf("# %d with %zu of %d segments done\n", r, done, SEGMENTS);
	for (size_t i = 0; i < SEGMENTS; i++) {
		if (writes)
			wrote(worker, i < done ? 0 : r, list[i].offset_bytes, list[i].len_bytes);
		else if (i < done)
			check_read(worker, list[i].offset_bytes, list[i].buf, list[i].len_bytes);
	}
	return r;
}

static int caller_add(struct worker *worker)
{
	uint64_t begun_ns = clock_now_ns();
	uint64_t old = 0;
	int r;

	if ((worker->outage->rights & MEMPOOL_ATOMIC) == 0)
		return 0;
	r = mempool_fetch_add(worker->lease, WORD_AT, 1, &old);
	(void)note(worker, CALL_ATOMIC, begun_ns, r);
	if (r == 0) {
		check_word(worker, old);
		worker->word++;
	}
	worker->added += r == MEMPOOL_E_UNKNOWN;
	return r;
}

static int caller_turn(struct worker *worker)
{
	uint64_t which = random_below(&worker->random, 16);
	uint64_t begun_ns = clock_now_ns();

	if (which < 5)
		return caller_one(worker, true);
	if (which < 8)
		return caller_one(worker, false);
	if (which < 11)
		return caller_list(worker, which < 10);
	if (which < 14)
		return caller_add(worker);
	if (which < 15)
		return note(worker, CALL_RENEW, begun_ns, mempool_renew(worker->lease, TTL_MS));
	return note(worker, CALL_MODIFY, begun_ns,
		    mempool_modify(worker->lease, LEASE_BYTES + sizeof(uint64_t),
				   worker->outage->rights));
}

static void *caller_run(void *arg)
{
	struct worker *worker = arg;
	unsigned int healed;

	while (worker_goes_on(worker)) {
		healed = atomic_load(&worker->outage->healed);
		if (!worker_acquire(worker))
			continue;
		if (caller_turn(worker) != 0 || healed != atomic_load(&worker->seen))
			caller_verify(worker);
		if (worker->lease != NULL)
			atomic_store(&worker->seen, healed);
	}
	worker_release(worker);
	return NULL;
}

/* The queue. */

/* Return: are the lane and the lease ready? */
static bool queuer_is_ready(struct worker *worker)
{
	struct mempool_queue_info info = {.size = sizeof(info)};
	uint64_t begun_ns;
	int r;

	if (!worker_acquire(worker))
		return false;
	if (!worker->attached) {
		begun_ns = clock_now_ns();
		r = mempool_queue_attach(worker->queue, worker->lease);
		worker->attached = note(worker, CALL_QUEUE, begun_ns, r) == 0;
	}
	if (worker->attached && mempool_queue_info(worker->queue, &info) == 0 &&
	    info.lane_up == 0) {
		begun_ns = clock_now_ns();
		(void)note(worker, CALL_QUEUE, begun_ns, mempool_queue_restore(worker->queue));
	}
	if (worker->attached && !is_over(worker))
		return true;
	if (is_over(worker))
		worker_release(worker);
	return false;
}

static void queuer_fill(struct worker *worker, bool reads_only, struct mempool_op *ops)
{
	for (size_t i = 0; i < BATCH; i++) {
		size_t at = i * CHUNK;
		bool writes = !reads_only && random_below(&worker->random, 2) == 0;

		ops[i] = (struct mempool_op){
			.cookie = i,
			.lease = worker->lease,
			.offset_bytes = at,
			.len_bytes = CHUNK,
			.bytes = worker->bytes + at,
			.buf = worker->buf,
			.kind = writes ? MEMPOOL_OP_WRITE : MEMPOOL_OP_READ,
		};
		worker->codes[i] = 1; /* not reported yet */
		if (writes)
			harness_fill(worker->bytes + at, CHUNK, ++worker->seed);
	}
}

/* Each cookie comes once. */
static void queuer_collect(struct worker *worker, uint64_t begun_ns)
{
	struct mempool_completion done[BATCH];
	size_t reported = 0;
	size_t n;

	/* Not noted: operations are, and this ends with the last of them. */
	if (mempool_flush(worker->queue, LIMIT_MS) < 0) {
		printf("# operations are not over after %d ms\n", LIMIT_MS);
		atomic_store(&worker->corrupt, true);
		return;
	}
	while (mempool_poll(worker->queue, done, BATCH, &n) == 0 && n > 0) {
		for (size_t i = 0; i < n; i++) {
			if (done[i].cookie >= BATCH || worker->codes[done[i].cookie] != 1)
				atomic_store(&worker->corrupt, true);
			else
				worker->codes[done[i].cookie] =
					note(worker, CALL_OPERATION, begun_ns, done[i].code);
		}
		reported += n;
	}
	if (reported != BATCH || atomic_load(&worker->corrupt)) {
		printf("# %zu of %zu operations were reported, or one twice\n", reported,
		       (size_t)BATCH);
		atomic_store(&worker->corrupt, true);
	}
}

/* Return: were all successful? */
static bool queuer_batch(struct worker *worker, bool reads_only)
{
	struct mempool_op ops[BATCH];
	uint64_t begun_ns;
	bool all = true;
	size_t n = 0;

	queuer_fill(worker, reads_only, ops);
	begun_ns = clock_now_ns();
	if (mempool_submit(worker->queue, ops, BATCH, &n) < 0 || n != BATCH)
		atomic_store(&worker->corrupt, true);
	queuer_collect(worker, begun_ns);
	for (size_t i = 0; i < BATCH && worker_goes_on(worker); i++) {
		size_t at = (size_t)ops[i].offset_bytes;

		all = all && worker->codes[i] == 0;
		if (ops[i].kind == MEMPOOL_OP_WRITE)
			wrote(worker, worker->codes[i], at, CHUNK);
		else if (worker->codes[i] == 0)
			check_read(worker, at, worker->bytes + at, CHUNK);
	}
	return all;
}

static void *queuer_run(void *arg)
{
	struct worker *worker = arg;
	unsigned int healed;
	bool is_known = true;

	while (worker_goes_on(worker)) {
		healed = atomic_load(&worker->outage->healed);
		if (!queuer_is_ready(worker))
			continue;
		if (!is_known || healed != atomic_load(&worker->seen))
			is_known = queuer_batch(worker, true);
		if (is_known) {
			atomic_store(&worker->seen, healed);
			is_known = queuer_batch(worker, false);
		}
	}
	worker_release(worker);
	return NULL;
}

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

	(void)lane_raw(lane, IBV_WR_RDMA_READ, lane_slot(lane, 0), 1, 0, 0, TIMEOUT_MS, &status);
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
		.timeout_ms = TIMEOUT_MS,
		.reconnect_ms = UINT32_MAX,
	};

	return told_connect("alpha", &opts, ret_pool);
}

static void find_rights(struct outage *outage)
{
	struct mempool_acquire_opts opts = {
		.size = sizeof(opts), .ttl_ms = TTL_MS, .rights = MEMPOOL_ATOMIC};
	mempool_lease *lease = NULL;
	int r = mempool_acquire(outage->pool, sizeof(uint64_t), &opts, &lease);

	outage->rights = MEMPOOL_READ | MEMPOOL_WRITE;
	if (r == 0)
		outage->rights |= MEMPOOL_ATOMIC;
	else
		CHECK_INT(r, MEMPOOL_E_RIGHTS_DEVICE);
	CHECK_INT(mempool_release(lease), 0);
}

static void start(struct outage *outage, struct random *random, struct worker *workers)
{
	struct mempool_queue_opts opts = {
		.size = sizeof(opts), .depth = BATCH / 2, .capacity = BATCH};
	struct worker *queuer = &workers[CALLERS];

	for (size_t i = 0; i < WORKERS; i++) {
		workers[i] = (struct worker){
			.outage = outage,
			.random = {random_next(random)},
			.seed = (uint32_t)i << 24,
		};
		CHECK_INT(shadow_init(&workers[i].shadow, LEASE_BYTES), 0);
	}
	CHECK_INT(mempool_queue_create(outage->pool, &opts, &queuer->queue), 0);
	CHECK_INT(mempool_buf_alloc(outage->pool, LEASE_BYTES, 0, &queuer->buf), 0);
	queuer->bytes = mempool_buf_bytes(queuer->buf);
	for (size_t i = 0; i < CALLERS; i++) {
		workers[i].bytes = calloc(1, LEASE_BYTES + sizeof(uint64_t));
		CHECK(workers[i].bytes != NULL);
		CHECK_INT(pthread_create(&workers[i].thread, NULL, caller_run, &workers[i]), 0);
	}
	CHECK_INT(pthread_create(&queuer->thread, NULL, queuer_run, queuer), 0);
}

static void finish(struct outage *outage, struct worker *workers)
{
	struct worker *queuer = &workers[CALLERS];

	atomic_store(&outage->stop, true);
	for (size_t i = 0; i < WORKERS; i++) {
		CHECK_INT(pthread_join(workers[i].thread, NULL), 0);
		shadow_deinit(&workers[i].shadow);
	}
	for (size_t i = 0; i < CALLERS; i++)
		free(workers[i].bytes);
	mempool_queue_destroy(queuer->queue);
	CHECK_INT(mempool_buf_free(queuer->buf), 0);
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
	uint32_t lost;
	uint64_t begun_ns = clock_now_ns();

	start(outage, &random, workers);
	CHECK(recover(outage, workers));
	for (uint32_t i = 0; i < rounds && !test_has_failed(); i++) {
		enum way way = choose(&random, i);

		break_it(h, &workers[CALLERS], &random, way);
		broken[way]++;
		if (!recover(outage, workers)) {
			test_fail(__FILE__, __LINE__, "no recovery");
			printf("# in round %u: %s\n", i, way_names[way]);
		}
	}
	lost = count_lost_sessions(outage->pool);
	finish(outage, workers);
	printf("# %u rounds in %" PRIu64 " ms, %u sessions lost;", rounds,
	       (clock_now_ns() - begun_ns) / CLOCK_NS_PER_MS, lost);
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
	outage = (struct outage){.pool = alpha, .calls = {.limit_ms = LIMIT_MS}};
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
	wire_test("itest_outage", "outage__leases_are_kept", 1100000, leases_are_kept);
}

/* It keeps none: they are lost with the session. */
static void leases_are_lost(void)
{
	live_through(NULL, harness_figure(FIGURE_OUTAGES_OF_SESSIONS), false);
}

TEST(outage__leases_are_lost)
{
	wire_test("itest_outage", "outage__leases_are_lost", 600000, leases_are_lost);
}
