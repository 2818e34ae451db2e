/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Answers that come too late, or not at all: memory is the caller's when an operation is over, and
 * nothing lands in it any more, though the daemon's answers do arrive; and of an atomic operation
 * that was under way on a lost lane it is not known whether it took place.
 */
#include <inttypes.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

#include "client/lane.h"
#include "client/pool.h"
#include "client/queue.h"
#include "common/clock.h"
#include "common/verbs.h"
#include "tests/integration/accounts.h"
#include "tests/integration/harness.h"
#include "tests/integration/queues.h"
#include "tests/integration/told.h"
#include "tests/integration/wire.h"

#define PAGE	 4096
#define TTL_MS	 600000
#define LIMIT_MS 30000

#define KEEPING "\"orphan_grace\": \"1min\", \"lane_wait_min\": \"0\""

static int connect_for_ever(uint32_t timeout_ms, mempool **ret_pool)
{
	struct mempool_connect_opts opts = {
		.timeout_ms = timeout_ms,
		.reconnect_ms = UINT32_MAX,
	};

	return told_connect("alpha", &opts, ret_pool);
}

/* Memory. */

#define READ_BYTES	((size_t)2 * MIB)
#define READ_TIMEOUT_MS 1000
#define READ_SLACK_MS	2000 /* of which 1000 for the device to give everything back */
#define ANSWER_MS	2500 /* how late answers are */
#define LATE_MIN_BYTES	(16 * 1024)
#define MARK		0x5a

enum memory_way {
	MEMORY_PLAIN,	   /* any memory: copied; freed at once */
	MEMORY_REGISTERED, /* straight into it; it stays registered */
	MEMORY_CACHED,	   /* likewise, registered by the call; freed at once */
	MEMORY_QUEUED,	   /* as an operation of a queue; it stays registered */
	MEMORY_GIVEN_BACK, /* the same, but freed at once */
	MEMORY_WAYS,
};

static const char *const memory_names[MEMORY_WAYS] = {"plain", "registered", "cached", "queued",
						      "queued and given back"};

static bool is_queued(enum memory_way way)
{
	return way == MEMORY_QUEUED || way == MEMORY_GIVEN_BACK;
}

static bool stays_registered(enum memory_way way)
{
	return way == MEMORY_REGISTERED || way == MEMORY_QUEUED;
}

struct reading {
	mempool *pool;
	mempool_lease *lease;
	mempool_queue *queue;
	mempool_buf *buf; /* of the memory, where it is registered */
	uint8_t *bytes;
};

static uint8_t *map(void *at)
{
	int flags = MAP_PRIVATE | MAP_ANONYMOUS | (at != NULL ? MAP_FIXED : 0);
	void *bytes = mmap(at, READ_BYTES, PROT_READ | PROT_WRITE, flags, -1, 0);

	return bytes == MAP_FAILED ? NULL : bytes;
}

static void set_cache(mempool *pool, bool on)
{
	struct mempool_cache_opts opts = {
		.size = sizeof(opts),
		.bytes_max = 16 * MIB,
		.len_min_bytes = PAGE,
		.entries_max = on ? 4 : 0,
	};

	CHECK_INT(mempool_cache_limit(pool, &opts), 0);
}

static int read_all(const struct reading *reading, enum memory_way way)
{
	struct mempool_op op = {
		.lease = reading->lease,
		.len_bytes = READ_BYTES,
		.bytes = reading->bytes,
		.buf = reading->buf,
		.kind = MEMPOOL_OP_READ,
	};
	int code = 0;
	size_t n = 0;
	int r;

	if (!is_queued(way))
		return mempool_read(reading->lease, 0, reading->bytes, READ_BYTES);
	r = mempool_submit(reading->queue, &op, 1, &n);
	/* That it is over at its deadline is not said by the time-out of the wait. */
	while (r == 0 && mempool_flush(reading->queue, LIMIT_MS) != 0)
		r = MEMPOOL_E_STATE;
	if (r == 0)
		r = queues_collect(reading->queue, 1, &code);
	return r < 0 ? r : code;
}

/*
 * The device would try again until it gives up before the deadline; with the system's own patience
 * it is the deadline that ends the read.
 */
static void be_patient(const struct reading *reading)
{
	struct mempool *pool = reading->pool;

	(void)pthread_mutex_lock(&pool->lock);
	pool->lane.cm.patience_ms = 0;
	reading->queue->lane.cm.patience_ms = 0;
	lane_lose(&pool->lane, MEMPOOL_E_LANE, "lost by the test");
	lane_lose(&reading->queue->lane, MEMPOOL_E_LANE, "lost by the test");
	(void)pthread_mutex_unlock(&pool->lock);
}

static int restore(const struct reading *reading)
{
	uint64_t until_ns = clock_add_ms(clock_now_ns(), LIMIT_MS);
	uint8_t byte;
	int r;

	do {
		r = mempool_read(reading->lease, 0, &byte, 1);
		if (r == 0)
			r = mempool_queue_restore(reading->queue);
	} while (r != 0 && clock_now_ns() < until_ns);
	return r;
}

static void give_back(struct reading *reading)
{
	if (reading->buf != NULL)
		CHECK_INT(mempool_buf_free(reading->buf), 0);
	reading->buf = NULL;
}

/* What the caller does with memory that is its own again. The pages are the same, or others. */
static void reuse(struct reading *reading, enum memory_way way)
{
	if (way == MEMORY_CACHED)
		CHECK_INT(mempool_cache_forget(reading->pool, reading->bytes, READ_BYTES), 0);
	if (!stays_registered(way)) {
		give_back(reading);
		CHECK(map(reading->bytes) == reading->bytes);
	}
	memset(reading->bytes, MARK, READ_BYTES);
}

static void check_mark(const uint8_t *bytes)
{
	/* All are as the first is. */
	CHECK_INT(bytes[0], MARK);
	CHECK_MEM(bytes + 1, bytes, READ_BYTES - 1);
}

/* Other transfers go on, and the memory stays as it is. */
static void go_on(const struct reading *reading)
{
	static uint8_t sent[64 * 1024], got[64 * 1024];

	CHECK_INT(restore(reading), 0);
	for (uint32_t i = 0; i < 20; i++) {
		harness_fill(sent, sizeof(sent), i + 1);
		CHECK_INT(mempool_write(reading->lease, READ_BYTES, sent, sizeof(sent)), 0);
		CHECK_INT(mempool_read(reading->lease, READ_BYTES, got, sizeof(got)), 0);
		CHECK_MEM(got, sent, sizeof(got));
		check_mark(reading->bytes);
		CHECK(!test_has_failed());
	}
}

static void read_too_late(struct reading *reading, enum memory_way way)
{
	uint64_t begun_ns, received;
	int r;

	if (way == MEMORY_REGISTERED || is_queued(way))
		CHECK_INT(mempool_buf_register(reading->pool, reading->bytes, READ_BYTES,
					       &reading->buf),
			  0);
	set_cache(reading->pool, way == MEMORY_CACHED);
	be_patient(reading);
	CHECK_INT(restore(reading), 0);
	CHECK(wire_delay(WIRE_DAEMON, ANSWER_MS));
	begun_ns = clock_now_ns();
	r = read_all(reading, way);
	printf("# %s: %s after %" PRIu64 " ms\n", memory_names[way], mempool_error_text(r),
	       harness_since_ms(begun_ns));
	received = wire_received(WIRE_CLIENT);
	reuse(reading, way);
	CHECK_INT(r, MEMPOOL_E_TIMEOUT);
	CHECK(harness_since_ms(begun_ns) < READ_TIMEOUT_MS + READ_SLACK_MS);
	CHECK(wire_drop(WIRE_DAEMON, false));
	/* The answers do come, and find nothing. */
	while (harness_since_ms(begun_ns) < ANSWER_MS + READ_TIMEOUT_MS) {
		check_mark(reading->bytes);
		CHECK(!test_has_failed());
		harness_sleep_ms(100);
	}
	printf("# %" PRIu64 " bytes have come since\n", wire_received(WIRE_CLIENT) - received);
	CHECK(wire_received(WIRE_CLIENT) - received >= LATE_MIN_BYTES);
	go_on(reading);
	give_back(reading);
}

static void read_in_all_ways(void)
{
	HARNESS(h, .pool_size = NULL, .extra = KEEPING);
	__attribute__((cleanup(harness_close))) mempool *alpha = NULL;
	static uint8_t sent[READ_BYTES];
	struct reading reading = {0};

	CHECK_INT(connect_for_ever(READ_TIMEOUT_MS, &alpha), 0);
	reading.pool = alpha;
	reading.bytes = map(NULL);
	CHECK(reading.bytes != NULL);
	harness_fill(sent, sizeof(sent), 9);
	CHECK_INT(harness_acquire(alpha, READ_BYTES + 64 * 1024, TTL_MS, &reading.lease), 0);
	CHECK_INT(mempool_write(reading.lease, 0, sent, READ_BYTES), 0);
	CHECK_INT(queues_make(alpha, &reading.queue), 0);
	CHECK_INT(mempool_queue_attach(reading.queue, reading.lease), 0);
	for (enum memory_way way = 0; way < MEMORY_WAYS && !test_has_failed(); way++)
		read_too_late(&reading, way);
	CHECK(wire_drop(WIRE_DAEMON, false));
	CHECK(!test_has_failed());
	mempool_queue_destroy(reading.queue);
	CHECK_INT(mempool_release(reading.lease), 0);
	harness_close(&alpha);
	CHECK_INT(munmap(reading.bytes, READ_BYTES), 0);
	accounts_check(&h);
	CHECK(!test_has_failed());
	CHECK_INT(harness_stop(&h), 0);
}

TEST(late__answers_of_a_read_find_nothing)
{
	wire_test("late__answers_of_a_read_find_nothing", 180000, read_in_all_ways);
}

/* Atomic operations. */

#define ADD_TIMEOUT_MS 20000
#define ADD_SLACK_MS   2500 /* of which 1000 for the device to give everything back */
#define ADD_WAY_MS     300  /* for a packet to come to the daemon's device, if it is not lost */

struct adding {
	mempool *pool;
	mempool_lease *lease;
	mempool_queue *queue;
	mempool_buf *buf;
	int code;
	atomic_uint_fast64_t ended_ns;
};

/* @device: what leaves it is lost; so the daemon carries it out, or not. @by: breaks it */
struct adding_way {
	const char *device;
	void (*by)(const struct adding *adding);
};

static void lose_lane(const struct adding *adding)
{
	told_cut_lane(adding->pool);
}

static void lose_queue(const struct adding *adding)
{
	struct lane *lane = &adding->queue->lane;

	(void)pthread_mutex_lock(&adding->pool->lock);
	if (lane->state == LANE_UP)
		(void)verbs_qp_to_error(lane_qp(lane));
	(void)pthread_mutex_unlock(&adding->pool->lock);
}

static void lose_session(const struct adding *adding)
{
	told_cut(adding->pool);
}

static void *add(void *arg)
{
	struct adding *adding = arg;
	uint64_t old;

	adding->code = mempool_fetch_add(adding->lease, 0, 1, &old);
	atomic_store(&adding->ended_ns, clock_now_ns());
	return NULL;
}

static void *add_in_queue(void *arg)
{
	struct adding *adding = arg;

	adding->code = mempool_flush(adding->queue, LIMIT_MS);
	atomic_store(&adding->ended_ns, clock_now_ns());
	return NULL;
}

/* Of three that are submitted only the first has a place on the wire. */
static void submit_three(const struct adding *adding)
{
	struct mempool_op ops[3];
	size_t n = 0;

	for (size_t i = 0; i < 3; i++)
		ops[i] = (struct mempool_op){
			.cookie = i,
			.lease = adding->lease,
			.len_bytes = sizeof(uint64_t),
			.bytes = mempool_buf_bytes(adding->buf),
			.buf = adding->buf,
			.kind = i < 2 ? MEMPOOL_OP_FETCH_ADD : MEMPOOL_OP_READ,
			.operand = 1,
		};
	CHECK_INT(mempool_submit(adding->queue, ops, 3, &n), 0);
	CHECK_INT(n, 3);
}

static void check_three(const struct adding *adding)
{
	int codes[3] = {0};

	CHECK_INT(adding->code, 0);
	CHECK_INT(queues_collect(adding->queue, 3, codes), 0);
	CHECK_INT(codes[0], MEMPOOL_E_UNKNOWN);
	for (size_t i = 1; i < 3; i++)
		CHECK(codes[i] == MEMPOOL_E_LANE || codes[i] == MEMPOOL_E_SESSION_LOST);
}

static uint64_t value_now(const struct adding *adding)
{
	uint64_t until_ns = clock_add_ms(clock_now_ns(), LIMIT_MS);
	uint64_t value = UINT64_MAX;
	int r;

	do
		r = mempool_read(adding->lease, 0, &value, sizeof(value));
	while (r != 0 && clock_now_ns() < until_ns);
	return r == 0 ? value : UINT64_MAX;
}

static void cut_off(struct adding *adding, const struct adding_way *way, bool queued)
{
	bool executes = strcmp(way->device, WIRE_DAEMON) == 0;
	uint64_t before = value_now(adding);
	uint64_t broken_ns, now;
	pthread_t thread;

	if (queued)
		CHECK_INT(mempool_queue_restore(adding->queue), 0);
	atomic_store(&adding->ended_ns, 0);
	CHECK(wire_drop(way->device, true));
	if (queued)
		submit_three(adding);
	CHECK_INT(pthread_create(&thread, NULL, queued ? add_in_queue : add, adding), 0);
	harness_sleep_ms(ADD_WAY_MS);
	/* It waits: nothing has come back, and nothing was given up. */
	CHECK_INT(atomic_load(&adding->ended_ns), 0);
	broken_ns = clock_now_ns();
	way->by(adding);
	CHECK_INT(pthread_join(thread, NULL), 0);
	CHECK(wire_drop(way->device, false));
	printf("# %s, %s: over after %" PRIu64 " ms\n", queued ? "queued" : "called",
	       executes ? "answers lost" : "requests lost",
	       (atomic_load(&adding->ended_ns) - broken_ns) / CLOCK_NS_PER_MS);
	CHECK((atomic_load(&adding->ended_ns) - broken_ns) / CLOCK_NS_PER_MS < ADD_SLACK_MS);
	if (queued)
		check_three(adding);
	else
		CHECK_INT(adding->code, MEMPOOL_E_UNKNOWN);
	CHECK(!test_has_failed());
	now = value_now(adding);
	printf("# the counter was at %" PRIu64 ", and is at %" PRIu64 "\n", before, now);
	CHECK_INT(now, before + (executes ? 1 : 0));
}

static void add_in_all_ways(void)
{
	static const struct adding_way called[] = {
		{WIRE_DAEMON, lose_lane},
		{WIRE_CLIENT, lose_lane},
		{WIRE_DAEMON, lose_session},
	};
	static const struct adding_way queued[] = {
		{WIRE_DAEMON, lose_queue},
		{WIRE_CLIENT, lose_queue},
		{WIRE_DAEMON, lose_session},
	};
	HARNESS(h, .pool_size = NULL, .extra = KEEPING);
	__attribute__((cleanup(harness_close))) mempool *alpha = NULL;
	struct mempool_acquire_opts opts = {
		.size = sizeof(opts),
		.ttl_ms = TTL_MS,
		.rights = MEMPOOL_READ | MEMPOOL_WRITE | MEMPOOL_ATOMIC,
	};
	struct mempool_queue_opts one = {.size = sizeof(one), .depth = 1, .capacity = 4};
	struct adding adding = {0};
	int r;

	CHECK_INT(connect_for_ever(ADD_TIMEOUT_MS, &alpha), 0);
	adding.pool = alpha;
	r = mempool_acquire(alpha, PAGE, &opts, &adding.lease);
	if (r == MEMPOOL_E_RIGHTS_DEVICE)
		SKIP("the device does not keep atomics inside their window");
	CHECK_INT(r, 0);
	CHECK_INT(mempool_queue_create(alpha, &one, &adding.queue), 0);
	CHECK_INT(mempool_buf_alloc(alpha, PAGE, 0, &adding.buf), 0);
	CHECK_INT(mempool_queue_attach(adding.queue, adding.lease), 0);
	for (size_t i = 0; i < 3 && !test_has_failed(); i++)
		cut_off(&adding, &called[i], false);
	for (size_t i = 0; i < 3 && !test_has_failed(); i++)
		cut_off(&adding, &queued[i], true);
	CHECK(!test_has_failed());
	mempool_queue_destroy(adding.queue);
	CHECK_INT(mempool_buf_free(adding.buf), 0);
	CHECK_INT(mempool_release(adding.lease), 0);
	harness_close(&alpha);
	accounts_check(&h);
	CHECK(!test_has_failed());
	CHECK_INT(harness_stop(&h), 0);
}

TEST(late__fetch_and_add_is_cut_off_with_its_lane)
{
	wire_test("late__fetch_and_add_is_cut_off_with_its_lane", 180000, add_in_all_ways);
}
