/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Leases that end while one call, a list, or a batch is under way that takes longer than they
 * last: what has been reported as done is, the rest has the right code, each operation is reported
 * once, and nothing is posted when the time is over by our own count.
 *
 * How long a transfer would take is measured first, and the lease lives a quarter as long.
 */
#include <inttypes.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/lane.h"
#include "client/lease.h"
#include "client/pool.h"
#include "common/clock.h"
#include "common/verbs.h"
#include "tests/integration/accounts.h"
#include "tests/integration/harness.h"
#include "tests/integration/told.h"

#define TTL_MS	      600000
#define LEASE_BYTES   ((size_t)64 * MIB)
#define FILLED_BYTES  (LEASE_BYTES / 8)		/* the rest is zero, as it was acquired */
#define PIECE_BYTES   ((size_t)LANE_SLOT_BYTES) /* the smallest that a long read is cut into */
#define SEGMENTS      1024
#define BATCH	      64
#define END_SLACK_MS  1500 /* from the end of a lease to that of a call */
#define POST_SLACK_MS 250  /* between the look at the clock and the doorbell */
#define MARK	      0xee
#define NOT_YET	      1

#define NO_WAIT "\"lane_wait_min\": \"0\""

/* What reaches the wire. Reads and writes are of lanes alone. */

static atomic_uint posts;
static atomic_uint_fast64_t last_post_ns;
static atomic_uint post_takes_ms; /* as if the processor were slower than the device */

int __real_verbs_post_send(struct ibv_qp *qp, struct ibv_send_wr *wr, struct ibv_send_wr **ret_bad);
int __wrap_verbs_post_send(struct ibv_qp *qp, struct ibv_send_wr *wr, struct ibv_send_wr **ret_bad);

int __wrap_verbs_post_send(struct ibv_qp *qp, struct ibv_send_wr *wr, struct ibv_send_wr **ret_bad)
{
	if (wr->opcode != IBV_WR_SEND) {
		harness_sleep_ms(atomic_load(&post_takes_ms));
		atomic_fetch_add(&posts, 1);
		atomic_store(&last_post_ns, clock_now_ns());
	}
	return __real_verbs_post_send(qp, wr, ret_bad);
}

static uint64_t deadline_ns(mempool_lease *lease)
{
	uint64_t at_ns;

	(void)pthread_mutex_lock(&lease->pool->lock);
	at_ns = lease->deadline_ns;
	(void)pthread_mutex_unlock(&lease->pool->lock);
	return at_ns;
}

/* Of a lease that has run out. */
static void check_posts(uint64_t lease_deadline_ns)
{
	uint64_t last_ns = atomic_load(&last_post_ns);

	printf("# %u posts, the last one %.1f ms before the end\n", atomic_load(&posts),
	       ((double)lease_deadline_ns - (double)last_ns) / 1e6);
	CHECK(last_ns < clock_add_ms(lease_deadline_ns, POST_SLACK_MS));
}

/* A session with a lease, and a copy of what is in it. */

struct expiry {
	mempool *pool;
	mempool_lease *lease;
	uint64_t id;
	atomic_uint ended; /* how often it was told */
	atomic_int reason;
	uint8_t *sent;
	uint8_t *got; /* registered or not */
	mempool_buf *buf;
	uint64_t took_ms; /* to read all, if it goes on as it began */
};

static void expiry_told(const struct mempool_event *event, void *context)
{
	struct expiry *expiry = context;

	if (event->kind != MEMPOOL_EVENT_LEASE_ENDED)
		return;
	atomic_fetch_add(&expiry->ended, 1);
	atomic_store(&expiry->reason, event->code);
}

static void expiry_free(struct expiry *expiry)
{
	harness_close(&expiry->pool);
	free(expiry->sent);
	if (expiry->buf == NULL)
		free(expiry->got);
}

/* From an eighth; registered memory is touched here for the first time. */
static void expiry_measure(struct expiry *expiry)
{
	uint64_t begun_ns = clock_now_ns();

	CHECK_INT(mempool_read(expiry->lease, 0, expiry->got, FILLED_BYTES), 0);
	expiry->took_ms = harness_since_ms(begun_ns) * (LEASE_BYTES / FILLED_BYTES);
	CHECK_MEM(expiry->got, expiry->sent, FILLED_BYTES);
	printf("# reading all would take %" PRIu64 " ms\n", expiry->took_ms);
	CHECK(expiry->took_ms >= 100);
}

static void expiry_make(struct expiry *expiry, bool registered)
{
	struct mempool_connect_opts opts = {
		.on_event = expiry_told,
		.on_event_context = expiry,
	};

	CHECK_INT(told_connect("alpha", &opts, &expiry->pool), 0);
	CHECK_INT(harness_acquire(expiry->pool, LEASE_BYTES, TTL_MS, &expiry->lease), 0);
	expiry->id = harness_lease_id(expiry->lease);
	expiry->sent = calloc(1, LEASE_BYTES);
	CHECK(expiry->sent != NULL);
	if (registered)
		CHECK_INT(mempool_buf_alloc(expiry->pool, LEASE_BYTES, 0, &expiry->buf), 0);
	expiry->got = registered ? mempool_buf_bytes(expiry->buf) : malloc(LEASE_BYTES);
	CHECK(expiry->got != NULL);
	harness_fill(expiry->sent, FILLED_BYTES, 64);
	CHECK_INT(mempool_write(expiry->lease, 0, expiry->sent, FILLED_BYTES), 0);
	expiry_measure(expiry);
	memset(expiry->got, MARK, LEASE_BYTES);
}

/* The daemon says that it is over, once, and its bytes are lent again. */
static void expiry_end(struct expiry *expiry, struct harness *h, int reason)
{
	CHECK(harness_wait_lease_gone(h, expiry->id, 10000));
	harness_sleep_ms(300);
	CHECK_INT(atomic_load(&expiry->ended), 1);
	CHECK_INT(atomic_load(&expiry->reason), reason);
	CHECK_INT(mempool_release(expiry->lease), reason);
	harness_close(&expiry->pool);
	accounts_check(h);
	CHECK(!test_has_failed());
	CHECK_INT(harness_stop(h), 0);
}

#define EXPIRY(name, registered)                                        \
	__attribute__((cleanup(expiry_free))) struct expiry name = {0}; \
	expiry_make(&name, registered);                                 \
	CHECK(!test_has_failed())

/* What is there is what was sent; behind that nothing was touched. */
static bool is_sent(const struct expiry *expiry, size_t at, size_t len_bytes)
{
	return memcmp(expiry->got + at, expiry->sent + at, len_bytes) == 0;
}

static bool is_marked(const struct expiry *expiry, size_t at, size_t len_bytes)
{
	for (size_t i = at; i < at + len_bytes; i++) {
		if (expiry->got[i] != MARK)
			return false;
	}
	return true;
}

/* The lease is over: nothing begins any more. */
static void check_over(struct expiry *expiry, int code)
{
	struct mempool_segment segment = {0, expiry->got, 1};
	unsigned int before = atomic_load(&posts);
	uint64_t begun_ns = clock_now_ns();
	size_t done = 9;

	CHECK_INT(mempool_read(expiry->lease, 0, expiry->got, LEASE_BYTES), code);
	CHECK_INT(mempool_write(expiry->lease, 0, expiry->sent, 1), code);
	CHECK_INT(mempool_readv(expiry->lease, &segment, 1, &done), code);
	CHECK_INT(done, 0);
	CHECK_INT(atomic_load(&posts), before);
	CHECK(harness_since_ms(begun_ns) < END_SLACK_MS);
}

/* One call. */

/* From the first piece on, up to some piece; @slop: pieces that were under way. */
static void check_prefix(const struct expiry *expiry, size_t slop)
{
	size_t pieces = LEASE_BYTES / PIECE_BYTES;
	size_t done = 0;

	while (done < pieces && is_sent(expiry, done * PIECE_BYTES, PIECE_BYTES))
		done++;
	printf("# %zu of %zu pieces have come\n", done, pieces);
	CHECK(done > 0 && done < pieces);
	for (size_t i = done + slop; i < pieces; i++)
		CHECK(is_marked(expiry, i * PIECE_BYTES, PIECE_BYTES));
}

static void expire_in_a_read(bool registered)
{
	HARNESS(h, .pool_size = "64MiB", .extra = NO_WAIT);
	EXPIRY(expiry, registered);
	uint64_t ttl_ms = expiry.took_ms / 4;
	uint64_t begun_ns, took_ms;
	int r;

	CHECK_INT(mempool_renew(expiry.lease, ttl_ms), 0);
	begun_ns = clock_now_ns();
	r = mempool_read(expiry.lease, 0, expiry.got, LEASE_BYTES);
	took_ms = harness_since_ms(begun_ns);
	printf("# %" PRIu64 " ms to live: %s after %" PRIu64 " ms\n", ttl_ms, mempool_error_text(r),
	       took_ms);
	CHECK_INT(r, MEMPOOL_E_EXPIRED);
	CHECK(took_ms < ttl_ms + END_SLACK_MS);
	/* Without a copy pieces are larger, and a part of one may have come. */
	check_prefix(&expiry, registered ? LANE_SLOTS * (LANE_PIECE_BYTES / PIECE_BYTES) : 0);
	CHECK(!test_has_failed());
	check_posts(deadline_ns(expiry.lease));
	CHECK(!test_has_failed());
	check_over(&expiry, MEMPOOL_E_EXPIRED);
	CHECK(!test_has_failed());
	expiry_end(&expiry, &h, MEMPOOL_E_EXPIRED);
}

TEST(expiry__in_a_read_of_64_mib)
{
	expire_in_a_read(false);
}

TEST(expiry__in_a_read_of_64_mib_without_a_copy)
{
	expire_in_a_read(true);
}

struct reader {
	struct expiry *expiry;
	int code;
	uint64_t ended_ns;
};

static void *read_all(void *arg)
{
	struct reader *reader = arg;

	reader->code = mempool_read(reader->expiry->lease, 0, reader->expiry->got, LEASE_BYTES);
	reader->ended_ns = clock_now_ns();
	return NULL;
}

/* With a grace the read ends by itself, and the lane goes on; without, the device refuses it. */
static void revoke_in_a_read(bool now)
{
	HARNESS(h, .pool_size = "96MiB", .extra = NO_WAIT ", \"revoke_grace\": \"20s\"");
	EXPIRY(expiry, false);
	struct reader reader = {.expiry = &expiry};
	int64_t lost = harness_number(&h, "counters.lanes_lost");
	uint64_t revoked_ns, took_ms;
	mempool_lease *other;
	pthread_t thread;
	int r;

	CHECK_INT(pthread_create(&thread, NULL, read_all, &reader), 0);
	harness_sleep_ms(expiry.took_ms / 8);
	revoked_ns = clock_now_ns();
	r = harness_order(&h, "lease.revoke",
			  json_pack("{s:I, s:b}", "id", (json_int_t)expiry.id, "now", now), NULL);
	CHECK_INT(pthread_join(thread, NULL), 0);
	CHECK_INT(r, 0);
	took_ms = (reader.ended_ns - revoked_ns) / CLOCK_NS_PER_MS;
	printf("# %s: %s, %" PRIu64 " ms after the order\n", now ? "now" : "with a grace",
	       mempool_error_text(reader.code), took_ms);
	CHECK_INT(reader.code, MEMPOOL_E_REVOKED);
	CHECK(reader.ended_ns >= revoked_ns && took_ms < END_SLACK_MS);
	check_prefix(&expiry, 0);
	CHECK(!test_has_failed());
	check_over(&expiry, MEMPOOL_E_REVOKED);
	CHECK(!test_has_failed());
	/* The session goes on. */
	CHECK_INT(harness_acquire(expiry.pool, MIB, TTL_MS, &other), 0);
	CHECK_INT(mempool_write(other, 0, expiry.sent, MIB), 0);
	CHECK_INT(mempool_release(other), 0);
	if (!now)
		CHECK_INT(harness_number(&h, "counters.lanes_lost"), lost);
	expiry_end(&expiry, &h, MEMPOOL_E_REVOKED);
}

TEST(expiry__revoked_in_a_read_of_64_mib)
{
	revoke_in_a_read(false);
}

TEST(expiry__revoked_at_once_in_a_read_of_64_mib)
{
	revoke_in_a_read(true);
}

/* Its own deadline, in the middle of a call that makes good progress. */
TEST(deadline__of_a_read_of_64_mib)
{
	HARNESS(h, .pool_size = "64MiB", .extra = NO_WAIT);
	EXPIRY(expiry, false);
	uint32_t timeout_ms = (uint32_t)expiry.took_ms / 4;
	uint64_t begun_ns, took_ms;
	int r;

	expiry.pool->timeout_ms = timeout_ms;
	begun_ns = clock_now_ns();
	r = mempool_read(expiry.lease, 0, expiry.got, LEASE_BYTES);
	took_ms = harness_since_ms(begun_ns);
	printf("# time-out of %u ms: %s after %" PRIu64 " ms\n", timeout_ms, mempool_error_text(r),
	       took_ms);
	expiry.pool->timeout_ms = HARNESS_TIMEOUT_MS;
	CHECK_INT(r, MEMPOOL_E_TIMEOUT);
	CHECK(took_ms >= timeout_ms);
	check_prefix(&expiry, 0);
	CHECK(!test_has_failed());
	printf("# the last post came %" PRId64 " ms after the deadline\n",
	       (int64_t)(atomic_load(&last_post_ns) - clock_add_ms(begun_ns, timeout_ms)) /
		       (int64_t)CLOCK_NS_PER_MS);
	CHECK(atomic_load(&last_post_ns) < clock_add_ms(begun_ns, timeout_ms + POST_SLACK_MS));
	CHECK_INT(mempool_read(expiry.lease, 0, expiry.got, MIB), 0);
	CHECK_MEM(expiry.got, expiry.sent, MIB);
	CHECK_INT(mempool_release(expiry.lease), 0);
	harness_close(&expiry.pool);
	CHECK_INT(harness_stop(&h), 0);
}

#define SLOW_BYTES	((size_t)16 * MIB)
#define SLOW_POST_MS	50
#define SLOW_TIMEOUT_MS 1000

/* Whenever the call looks the next piece is there already, so that it never waits for one. */
TEST(deadline__of_a_read_that_never_waits)
{
	HARNESS(h, .pool_size = NULL, .extra = NO_WAIT);
	struct mempool_connect_opts opts = {.timeout_ms = SLOW_TIMEOUT_MS};
	__attribute__((cleanup(harness_close))) mempool *alpha = NULL;
	static uint8_t got[SLOW_BYTES];
	mempool_lease *lease;
	uint64_t begun_ns, took_ms;
	int r;

	CHECK_INT(told_connect("alpha", &opts, &alpha), 0);
	CHECK_INT(harness_acquire(alpha, SLOW_BYTES, TTL_MS, &lease), 0);
	atomic_store(&post_takes_ms, SLOW_POST_MS);
	begun_ns = clock_now_ns();
	r = mempool_read(lease, 0, got, SLOW_BYTES);
	took_ms = harness_since_ms(begun_ns);
	atomic_store(&post_takes_ms, 0);
	printf("# %s after %" PRIu64 " ms\n", mempool_error_text(r), took_ms);
	CHECK_INT(r, MEMPOOL_E_TIMEOUT);
	CHECK(took_ms >= SLOW_TIMEOUT_MS && took_ms < SLOW_TIMEOUT_MS + END_SLACK_MS);
	CHECK_INT(mempool_release(lease), 0);
	harness_close(&alpha);
	CHECK_INT(harness_stop(&h), 0);
}

/* A list. */

static void expire_in_a_list(bool registered)
{
	HARNESS(h, .pool_size = "64MiB", .extra = NO_WAIT);
	EXPIRY(expiry, registered);
	static struct mempool_segment list[SEGMENTS];
	size_t part = LEASE_BYTES / SEGMENTS;
	uint64_t ttl_ms = expiry.took_ms / 4;
	uint64_t begun_ns, took_ms;
	size_t done = 0;
	int r;

	/* Not in their order, so that each is by itself. */
	for (size_t i = 0; i < SEGMENTS; i++) {
		size_t at = (i ^ 1) * part;

		list[i] = (struct mempool_segment){at, expiry.got + at, part};
	}
	CHECK_INT(mempool_renew(expiry.lease, ttl_ms), 0);
	begun_ns = clock_now_ns();
	r = mempool_readv(expiry.lease, list, SEGMENTS, &done);
	took_ms = harness_since_ms(begun_ns);
	printf("# %" PRIu64 " ms to live: %s after %" PRIu64 " ms and %zu segments\n", ttl_ms,
	       mempool_error_text(r), took_ms, done);
	CHECK_INT(r, MEMPOOL_E_EXPIRED);
	CHECK(took_ms < ttl_ms + END_SLACK_MS);
	CHECK(done > 0 && done < SEGMENTS);
	for (size_t i = 0; i < done; i++)
		CHECK(is_sent(&expiry, list[i].offset_bytes, part));
	/* Of those behind at most as many as are in flight at a time may have begun. */
	for (size_t i = done + (registered ? LANE_SLOTS : 0); i < SEGMENTS; i++)
		CHECK(is_marked(&expiry, list[i].offset_bytes, part));
	check_posts(deadline_ns(expiry.lease));
	CHECK(!test_has_failed());
	check_over(&expiry, MEMPOOL_E_EXPIRED);
	CHECK(!test_has_failed());
	expiry_end(&expiry, &h, MEMPOOL_E_EXPIRED);
}

TEST(expiry__in_a_list_of_1024)
{
	expire_in_a_list(false);
}

TEST(expiry__in_a_list_of_1024_without_a_copy)
{
	expire_in_a_list(true);
}

/* A batch. */

struct batch {
	struct mempool_op ops[BATCH];
	int codes[BATCH];
	uint32_t done;
	uint32_t failed; /* with the code that is right */
	uint32_t others;
};

static void batch_submit(struct batch *batch, mempool_queue *queue, const struct expiry *expiry,
			 uint32_t kind)
{
	size_t part = LEASE_BYTES / BATCH;
	size_t n = 0;

	for (size_t i = 0; i < BATCH; i++) {
		batch->ops[i] = (struct mempool_op){
			.cookie = i,
			.lease = expiry->lease,
			.offset_bytes = i * part,
			.len_bytes = part,
			.bytes = expiry->got + i * part,
			.buf = expiry->buf,
			.kind = kind,
		};
		batch->codes[i] = NOT_YET;
	}
	CHECK_INT(mempool_submit(queue, batch->ops, BATCH, &n), 0);
	CHECK_INT(n, BATCH);
}

/* Each cookie once, and none afterwards. */
static void batch_collect(struct batch *batch, mempool_queue *queue, int code)
{
	struct mempool_completion done[7];
	size_t reported = 0;
	size_t n;

	batch->done = batch->failed = batch->others = 0;
	while (reported < BATCH) {
		CHECK_INT(mempool_flush(queue, 0), 0);
		CHECK_INT(mempool_poll(queue, done, 7, &n), 0);
		CHECK(n > 0);
		for (size_t i = 0; i < n; i++) {
			CHECK(done[i].cookie < BATCH);
			CHECK_INT(batch->codes[done[i].cookie], NOT_YET);
			batch->codes[done[i].cookie] = done[i].code;
			batch->done += done[i].code == 0;
			batch->failed += done[i].code == code;
			batch->others += done[i].code != 0 && done[i].code != code;
		}
		reported += n;
	}
	CHECK_INT(mempool_poll(queue, done, 7, &n), 0);
	CHECK_INT(n, 0);
}

static void batch_check_reads(const struct batch *batch, const struct expiry *expiry)
{
	for (size_t i = 0; i < BATCH; i++) {
		if (batch->codes[i] == 0)
			CHECK(is_sent(expiry, (size_t)batch->ops[i].offset_bytes,
				      (size_t)batch->ops[i].len_bytes));
	}
}

/* Behind the first that failed nothing has begun that was not on its way with it. */
static void batch_check_untouched(const struct batch *batch, const struct expiry *expiry,
				  uint32_t depth)
{
	size_t first = 0;

	while (first < BATCH && batch->codes[first] == 0)
		first++;
	for (size_t i = first + depth; i < BATCH; i++) {
		CHECK(batch->codes[i] != 0);
		CHECK(is_marked(expiry, (size_t)batch->ops[i].offset_bytes,
				(size_t)batch->ops[i].len_bytes));
	}
}

/*
 * @depth: so many are with the device at a time; the rest waits and fails by our own count
 * @code: how the lease ends: by its time, or by the operator
 */
static void end_in_a_batch(uint32_t depth, uint32_t kind, int code)
{
	HARNESS(h, .pool_size = "96MiB", .extra = NO_WAIT);
	EXPIRY(expiry, true);
	struct mempool_queue_opts opts = {.size = sizeof(opts), .depth = depth, .capacity = BATCH};
	static struct batch batch;
	uint64_t ttl_ms = expiry.took_ms / 4;
	mempool_queue *queue;
	uint64_t begun_ns;
	unsigned int before;

	CHECK_INT(mempool_queue_create(expiry.pool, &opts, &queue), 0);
	CHECK_INT(mempool_queue_attach(queue, expiry.lease), 0);
	if (code == MEMPOOL_E_EXPIRED)
		CHECK_INT(mempool_renew(expiry.lease, ttl_ms), 0);
	begun_ns = clock_now_ns();
	batch_submit(&batch, queue, &expiry, kind);
	CHECK(!test_has_failed());
	if (code == MEMPOOL_E_REVOKED)
		CHECK_INT(harness_revoke(&h, expiry.id), 0);
	batch_collect(&batch, queue, code);
	CHECK(!test_has_failed());
	printf("# depth %u: %u done, %u failed, %u with another code, after %" PRIu64 " ms\n",
	       depth, batch.done, batch.failed, batch.others, harness_since_ms(begun_ns));
	CHECK_INT(batch.others, 0);
	CHECK(batch.done > 0 && batch.failed > 0);
	CHECK(harness_since_ms(begun_ns) < ttl_ms + END_SLACK_MS);
	if (kind == MEMPOOL_OP_READ) {
		batch_check_reads(&batch, &expiry);
		batch_check_untouched(&batch, &expiry, depth);
	}
	CHECK(!test_has_failed());
	if (code == MEMPOOL_E_EXPIRED)
		check_posts(deadline_ns(expiry.lease));
	CHECK(!test_has_failed());
	/* What begins now fails without a post. */
	before = atomic_load(&posts);
	batch_submit(&batch, queue, &expiry, kind);
	CHECK(!test_has_failed());
	batch_collect(&batch, queue, code);
	CHECK_INT(batch.failed, BATCH);
	CHECK_INT(atomic_load(&posts), before);
	mempool_queue_destroy(queue);
	expiry_end(&expiry, &h, code);
}

TEST(expiry__in_a_batch_of_64_with_the_device)
{
	end_in_a_batch(BATCH, MEMPOOL_OP_READ, MEMPOOL_E_EXPIRED);
}

TEST(expiry__in_a_batch_of_64_that_waits)
{
	end_in_a_batch(4, MEMPOOL_OP_READ, MEMPOOL_E_EXPIRED);
}

TEST(expiry__in_a_batch_of_64_writes)
{
	end_in_a_batch(8, MEMPOOL_OP_WRITE, MEMPOOL_E_EXPIRED);
}

TEST(expiry__revoked_in_a_batch_of_64)
{
	end_in_a_batch(2, MEMPOOL_OP_READ, MEMPOOL_E_REVOKED);
}
