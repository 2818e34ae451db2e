/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Calls of all kinds at random.
 *
 * Invariants: bytes of a lease are written by one thread alone, which knows what is in them; the
 * words are touched by atomic operations alone. A thread stops at its first failure, and says
 * what it was.
 * Thread: each worker's own; a worker's codes and its pending count, any.
 */
#include "tests/integration/mixture.h"

#include <sched.h>
#include <stdio.h>
#include <string.h>

#include "common/clock.h"
#include "tests/integration/harness.h"

#define WAIT_MS	      10000 /* for memory */
#define SEGMENTS_MAX  8
#define SEGMENT_BYTES 3000 /* at most */
#define GUARD	      0xa5
#define GUARD_BYTES   8
#define NOT_YET	      1 /* no code of a completion */

/* How often in a hundred. */
static const struct {
	const char *name;
	uint32_t weight;
} kinds[MIXTURE_KINDS] = {
	[MIXTURE_READ] = {"read", 16},		 [MIXTURE_WRITE] = {"write", 16},
	[MIXTURE_READV] = {"readv", 3},		 [MIXTURE_WRITEV] = {"writev", 3},
	[MIXTURE_FETCH_ADD] = {"fetch_add", 8},	 [MIXTURE_COMPARE_SWAP] = {"compare_swap", 8},
	[MIXTURE_OWN_QUEUE] = {"own queue", 20}, [MIXTURE_SHARED_QUEUE] = {"shared queue", 20},
	[MIXTURE_RENEW] = {"renew", 1},		 [MIXTURE_LOOK] = {"look", 2},
	[MIXTURE_TURNOVER] = {"turnover", 1},	 [MIXTURE_BUF] = {"buf", 1},
	[MIXTURE_CACHE] = {"cache", 1},
};

/* Failures. */

static bool has_failed(const struct mixture_worker *worker)
{
	return worker->failure[0] != '\0';
}

static bool expect(struct mixture_worker *worker, int code, const char *what)
{
	if (code == 0)
		return true;
	snprintf(worker->failure, sizeof(worker->failure), "%s: %s (%s)", what,
		 mempool_error_text(code), mempool_last_error());
	return false;
}

static bool require(struct mixture_worker *worker, bool holds, const char *what)
{
	if (!holds)
		snprintf(worker->failure, sizeof(worker->failure), "%s", what);
	return holds;
}

/* Memory. */

static uint8_t *bytes_of(struct mixture_worker *worker)
{
	return mempool_buf_bytes(worker->buf);
}

static void fill(struct mixture_worker *worker, uint8_t *bytes, size_t len_bytes)
{
	harness_fill(bytes, len_bytes, (uint32_t)random_next(&worker->random));
}

/* Mostly short, so that threads meet often; now and then as long as can be. */
static uint64_t any_length(struct mixture_worker *worker, uint64_t max_bytes)
{
	uint64_t any = random_below(&worker->random, 64);
	uint64_t bound = any == 0 ? max_bytes : any < 8 ? 3000 : 200;

	return random_below(&worker->random, (bound < max_bytes ? bound : max_bytes) + 1);
}

static uint64_t any_offset(struct mixture_worker *worker, const struct mixture_area *area,
			   uint64_t len_bytes)
{
	return random_below(&worker->random, area->len_bytes - len_bytes + 1);
}

static struct mixture_area *any_area(struct mixture_worker *worker, uint64_t count)
{
	return &worker->areas[random_below(&worker->random, count)];
}

/* Calls that wait. */

static void do_write(struct mixture_worker *worker)
{
	struct mixture_area *area = any_area(worker, MIXTURE_AREAS);
	uint64_t len_bytes = any_length(worker, area->len_bytes);
	uint64_t at = any_offset(worker, area, len_bytes);
	uint8_t *local = random_below(&worker->random, 2) == 0 ? bytes_of(worker) : worker->plain;

	local += random_below(&worker->random, MIXTURE_LOCAL_BYTES - len_bytes + 1);
	fill(worker, local, len_bytes);
	if (expect(worker, mempool_write(area->lease, area->base_bytes + at, local, len_bytes),
		   "write"))
		memcpy(area->shadow + at, local, len_bytes);
}

/* Nothing beside the bytes is touched. */
static void do_read(struct mixture_worker *worker)
{
	struct mixture_area *area = any_area(worker, MIXTURE_AREAS);
	uint64_t len_bytes = any_length(worker, area->len_bytes);
	uint64_t at = any_offset(worker, area, len_bytes);
	uint8_t *local = random_below(&worker->random, 2) == 0 ? bytes_of(worker) : worker->plain;
	uint8_t guard[GUARD_BYTES];

	memset(guard, GUARD, sizeof(guard));
	local += GUARD_BYTES + random_below(&worker->random,
					    MIXTURE_LOCAL_BYTES - len_bytes - 2 * GUARD_BYTES + 1);
	memset(local - GUARD_BYTES, GUARD, len_bytes + 2 * GUARD_BYTES);
	if (expect(worker, mempool_read(area->lease, area->base_bytes + at, local, len_bytes),
		   "read"))
		require(worker,
			memcmp(local, area->shadow + at, len_bytes) == 0 &&
				memcmp(local - GUARD_BYTES, guard, GUARD_BYTES) == 0 &&
				memcmp(local + len_bytes, guard, GUARD_BYTES) == 0,
			"read: other bytes than were written");
}

static size_t make_segments(struct mixture_worker *worker, const struct mixture_area *area,
			    struct mempool_segment *segments)
{
	size_t count = 1 + random_below(&worker->random, SEGMENTS_MAX);
	uint8_t *local = random_below(&worker->random, 2) == 0 ? bytes_of(worker) : worker->plain;

	for (size_t i = 0; i < count; i++) {
		uint64_t max_bytes =
			area->len_bytes < SEGMENT_BYTES ? area->len_bytes : SEGMENT_BYTES;
		uint64_t len_bytes = any_length(worker, max_bytes);

		segments[i] = (struct mempool_segment){
			.offset_bytes = any_offset(worker, area, len_bytes),
			.buf = local,
			.len_bytes = len_bytes,
		};
		local += len_bytes;
	}
	return count;
}

static void move_segments(struct mempool_segment *segments, size_t count, uint64_t by_bytes)
{
	for (size_t i = 0; i < count; i++)
		segments[i].offset_bytes += by_bytes;
}

/* They may overlap: the later one stays. */
static void do_writev(struct mixture_worker *worker)
{
	struct mixture_area *area = any_area(worker, MIXTURE_AREAS);
	struct mempool_segment segments[SEGMENTS_MAX];
	size_t count = make_segments(worker, area, segments);
	size_t done = 0;

	for (size_t i = 0; i < count; i++) {
		fill(worker, segments[i].buf, segments[i].len_bytes);
		memcpy(area->shadow + segments[i].offset_bytes, segments[i].buf,
		       segments[i].len_bytes);
	}
	move_segments(segments, count, area->base_bytes);
	expect(worker, mempool_writev(area->lease, segments, count, &done), "writev");
	require(worker, has_failed(worker) || done == count, "writev: not all segments");
}

static void do_readv(struct mixture_worker *worker)
{
	struct mixture_area *area = any_area(worker, MIXTURE_AREAS);
	struct mempool_segment segments[SEGMENTS_MAX];
	size_t count = make_segments(worker, area, segments);
	size_t done = 0;

	for (size_t i = 0; i < count; i++)
		memset(segments[i].buf, GUARD, segments[i].len_bytes);
	move_segments(segments, count, area->base_bytes);
	if (!expect(worker, mempool_readv(area->lease, segments, count, &done), "readv") ||
	    !require(worker, done == count, "readv: not all segments"))
		return;
	for (size_t i = 0; i < count; i++)
		require(worker,
			memcmp(segments[i].buf,
			       area->shadow + segments[i].offset_bytes - area->base_bytes,
			       segments[i].len_bytes) == 0,
			"readv: other bytes than were written");
}

/* Words. */

static void take_sum(struct mixture_worker *worker, uint64_t old, uint64_t add)
{
	require(worker, old >= worker->seen, "fetch_add: the sum has become less");
	worker->sum += add;
	worker->seen = old + add;
}

/* @old: what was there when it was expected to be @worker->next */
static void take_ticket(struct mixture_worker *worker, uint64_t old)
{
	require(worker, old >= worker->next, "compare_swap: the word has become less");
	worker->tickets += old == worker->next;
	worker->next = old == worker->next ? old + 1 : old;
}

static void do_fetch_add(struct mixture_worker *worker)
{
	uint64_t add = random_below(&worker->random, 1000);
	uint64_t old = 0;

	if (expect(worker, mempool_fetch_add(worker->board->words, MIXTURE_SUM_OFFSET, add, &old),
		   "fetch_add"))
		take_sum(worker, old, add);
}

static void do_compare_swap(struct mixture_worker *worker)
{
	uint64_t old = 0;

	if (expect(worker,
		   mempool_compare_swap(worker->board->words, MIXTURE_TICKETS_OFFSET, worker->next,
					worker->next + 1, &old),
		   "compare_swap"))
		take_ticket(worker, old);
}

/* Queues. A batch has a strip of an area for each operation, as they may take place in any order. */

static void make_transfer(struct mixture_worker *worker, const struct mixture_area *area,
			  size_t index, struct mempool_op *op)
{
	uint64_t strip_bytes = area->len_bytes / MIXTURE_BATCH_MAX;
	uint64_t len_bytes = any_length(worker, strip_bytes);
	uint64_t skip_bytes = random_below(&worker->random, strip_bytes - len_bytes + 1);
	uint64_t at = index * strip_bytes + skip_bytes;

	op->lease = area->lease;
	op->offset_bytes = area->base_bytes + at;
	op->len_bytes = len_bytes;
	op->bytes = bytes_of(worker) + MIXTURE_WORDS_BYTES + at;
	op->kind = random_below(&worker->random, 2) == 0 ? MEMPOOL_OP_READ : MEMPOOL_OP_WRITE;
	if (op->kind == MEMPOOL_OP_WRITE) {
		fill(worker, op->bytes, len_bytes);
		memcpy(area->shadow + at, op->bytes, len_bytes);
	} else {
		memset(op->bytes, GUARD, len_bytes);
	}
}

static void make_atomic(struct mixture_worker *worker, size_t index, struct mempool_op *op)
{
	op->lease = worker->board->words;
	op->len_bytes = sizeof(uint64_t);
	op->bytes = bytes_of(worker) + index * sizeof(uint64_t);
	/* Two tickets at a time would not know of each other. */
	op->kind = index == 0 ? MEMPOOL_OP_COMPARE_SWAP : MEMPOOL_OP_FETCH_ADD;
	op->offset_bytes = index == 0 ? MIXTURE_TICKETS_OFFSET : MIXTURE_SUM_OFFSET;
	op->operand = index == 0 ? worker->next : random_below(&worker->random, 1000);
	op->swap = index == 0 ? worker->next + 1 : 0;
}

static void make_batch(struct mixture_worker *worker, const struct mixture_area *area, size_t count)
{
	for (size_t i = 0; i < count; i++) {
		struct mempool_op *op = &worker->ops[i];

		*op = (struct mempool_op){
			.cookie = worker->number * MIXTURE_BATCH_MAX + i,
			.buf = worker->buf,
		};
		if (worker->board->words != NULL && random_below(&worker->random, 5) == 0)
			make_atomic(worker, i, op);
		else
			make_transfer(worker, area, i, op);
		atomic_store(&worker->codes[i], NOT_YET);
	}
	atomic_store(&worker->pending, (unsigned int)count);
}

static void verify_op(struct mixture_worker *worker, const struct mixture_area *area,
		      const struct mempool_op *op)
{
	uint64_t old;

	switch (op->kind) {
	case MEMPOOL_OP_FETCH_ADD:
		/* Those of a batch may have been done in another order. */
		worker->sum += op->operand;
		break;
	case MEMPOOL_OP_COMPARE_SWAP:
		memcpy(&old, op->bytes, sizeof(old));
		take_ticket(worker, old);
		break;
	default:
		require(worker,
			memcmp(op->bytes, area->shadow + op->offset_bytes - area->base_bytes,
			       op->len_bytes) == 0,
			"queue: other bytes than were written");
	}
}

/* Reports come to whoever polls, and are handed to whose they are; each comes once. */
static void hand_over(struct mixture_worker *worker, const struct mempool_completion *completion)
{
	struct mixture_worker *owner;

	if (!require(worker, completion->cookie < MIXTURE_THREADS * MIXTURE_BATCH_MAX,
		     "poll: unknown cookie"))
		return;
	owner = &worker->board->workers[completion->cookie / MIXTURE_BATCH_MAX];
	if (!require(worker,
		     atomic_exchange(&owner->codes[completion->cookie % MIXTURE_BATCH_MAX],
				     completion->code) == NOT_YET,
		     "poll: reported twice, or never submitted"))
		return;
	atomic_fetch_sub(&owner->pending, 1);
}

/* Return: were there any? */
static bool take_reports(struct mixture_worker *worker, mempool_queue *queue)
{
	struct mempool_completion completions[5];
	size_t n = 0;

	if (!expect(worker, mempool_poll(queue, completions, 5, &n), "poll"))
		return false;
	for (size_t i = 0; i < n && !has_failed(worker); i++)
		hand_over(worker, &completions[i]);
	return n > 0;
}

/* What is missing may be on its way through another thread. */
static void collect(struct mixture_worker *worker, mempool_queue *queue)
{
	uint64_t until_ns = clock_add_ms(clock_now_ns(), HARNESS_TIMEOUT_MS);
	int r;

	while (!has_failed(worker) && atomic_load(&worker->pending) > 0) {
		if (take_reports(worker, queue) || has_failed(worker))
			continue;
		/* It may never be empty where others go on. */
		r = mempool_flush(queue, 5);
		if (r == 0)
			sched_yield();
		else if (r != MEMPOOL_E_TIMEOUT)
			expect(worker, r, "flush");
		require(worker, has_failed(worker) || clock_now_ns() < until_ns,
			"poll: operations are missing");
	}
}

static uint64_t do_batch(struct mixture_worker *worker, mempool_queue *queue)
{
	const struct mixture_area *area = any_area(worker, MIXTURE_AREA_SCRATCH);
	uint64_t left = worker->operations - worker->done;
	size_t count = 1 + random_below(&worker->random,
					left < MIXTURE_BATCH_MAX ? left : MIXTURE_BATCH_MAX);
	size_t taken = 0;

	make_batch(worker, area, count);
	if (!expect(worker, mempool_submit(queue, worker->ops, count, &taken), "submit") ||
	    !require(worker, taken == count, "submit: not all were taken"))
		return count;
	collect(worker, queue);
	for (size_t i = 0; i < count && !has_failed(worker); i++) {
		if (expect(worker, atomic_load(&worker->codes[i]), "queue"))
			verify_op(worker, area, &worker->ops[i]);
	}
	return count;
}

/* All else. */

static void do_renew(struct mixture_worker *worker)
{
	const struct mixture_area *area = any_area(worker, MIXTURE_AREAS);

	if (random_below(&worker->random, 2) == 0)
		expect(worker, mempool_renew(area->lease, MIXTURE_TTL_MS), "renew");
	else
		expect(worker, mempool_auto_renew(area->lease, MIXTURE_TTL_MS), "auto_renew");
}

static void do_look(struct mixture_worker *worker)
{
	struct mempool_lease_info lease_info = {.size = sizeof(lease_info)};
	struct mempool_queue_info queue_info = {.size = sizeof(queue_info)};
	struct mempool_cache_stats stats = {.size = sizeof(stats)};
	struct mempool_event event = {.size = sizeof(event)};
	struct mempool_lease_token token;
	const struct mixture_area *area = any_area(worker, MIXTURE_AREAS);
	size_t cancelled = 0;

	expect(worker, mempool_lease_info(area->lease, &lease_info), "lease_info");
	expect(worker, mempool_lease_token(area->lease, &token), "lease_token");
	expect(worker, mempool_queue_info(worker->board->queue, &queue_info), "queue_info");
	expect(worker, mempool_queue_arm(worker->board->queue), "queue_arm");
	expect(worker, mempool_cancel(worker->board->queue, UINT64_MAX, &cancelled), "cancel");
	expect(worker, mempool_cache_stats(worker->board->pool, &stats), "cache_stats");
	if (has_failed(worker))
		return;
	require(worker,
		token.lease_id == lease_info.id && queue_info.lane_up == 1 && cancelled == 0 &&
			lease_info.len_bytes >= area->base_bytes + area->len_bytes &&
			lease_info.ttl_left_ms > MIXTURE_TTL_MS / 2,
		"look: not what it should be");
	require(worker, mempool_next_event(worker->board->pool, &event, 0) == MEMPOOL_E_TIMEOUT,
		"next_event: something has happened");
}

int mixture_acquire(mempool *pool, uint64_t len_bytes, uint32_t rights, mempool_lease **ret_lease)
{
	struct mempool_acquire_opts opts = {.size = sizeof(opts),
					    .ttl_ms = MIXTURE_TTL_MS,
					    .rights = rights,
					    .wait_ms = WAIT_MS};

	return mempool_acquire(pool, len_bytes, &opts, ret_lease);
}

/* The new one is zero, whoever had its bytes before. */
static void do_turnover(struct mixture_worker *worker)
{
	struct mixture_area *area = &worker->areas[MIXTURE_AREA_SCRATCH];

	if (!expect(worker, mempool_release(area->lease), "release"))
		return;
	area->lease = NULL;
	area->len_bytes = 1 + random_below(&worker->random, MIXTURE_SCRATCH_BYTES);
	memset(area->shadow, 0, MIXTURE_SCRATCH_BYTES);
	if (expect(worker,
		   mixture_acquire(worker->board->pool, area->len_bytes,
				   MEMPOOL_READ | MEMPOOL_WRITE, &area->lease),
		   "acquire") &&
	    expect(worker, mempool_read(area->lease, 0, worker->plain, area->len_bytes), "read"))
		require(worker, memcmp(worker->plain, area->shadow, area->len_bytes) == 0,
			"acquire: bytes that are not zero");
}

static void do_buf(struct mixture_worker *worker)
{
	bool registers = bytes_of(worker) != worker->lent;
	int r;

	if (!expect(worker, mempool_buf_free(worker->buf), "buf_free"))
		return;
	worker->buf = NULL;
	r = registers
		    ? mempool_buf_register(worker->board->pool, worker->lent, MIXTURE_LOCAL_BYTES,
					   &worker->buf)
		    : mempool_buf_alloc(worker->board->pool, MIXTURE_LOCAL_BYTES, 0, &worker->buf);
	expect(worker, r, registers ? "buf_register" : "buf_alloc");
}

static void do_cache(struct mixture_worker *worker)
{
	struct mempool_cache_opts opts = {
		.size = sizeof(opts),
		.bytes_max = MIB,
		.len_min_bytes = 512,
		.entries_max = (uint32_t)random_below(&worker->random, 4),
	};

	expect(worker, mempool_cache_limit(worker->board->pool, &opts), "cache_limit");
}

/* The mixture. */

static enum mixture_kind any_kind(struct mixture_worker *worker)
{
	uint64_t at = random_below(&worker->random, 100);
	enum mixture_kind kind = 0;

	while (at >= kinds[kind].weight)
		at -= kinds[kind++].weight;
	/* In place of what the device has not. */
	if (worker->board->words == NULL && kind == MIXTURE_FETCH_ADD)
		kind = MIXTURE_READ;
	if (worker->board->words == NULL && kind == MIXTURE_COMPARE_SWAP)
		kind = MIXTURE_WRITE;
	return kind;
}

static void step(struct mixture_worker *worker)
{
	static void (*const calls[MIXTURE_KINDS])(struct mixture_worker *) = {
		[MIXTURE_READ] = do_read,	    [MIXTURE_WRITE] = do_write,
		[MIXTURE_READV] = do_readv,	    [MIXTURE_WRITEV] = do_writev,
		[MIXTURE_FETCH_ADD] = do_fetch_add, [MIXTURE_COMPARE_SWAP] = do_compare_swap,
		[MIXTURE_RENEW] = do_renew,	    [MIXTURE_LOOK] = do_look,
		[MIXTURE_TURNOVER] = do_turnover,   [MIXTURE_BUF] = do_buf,
		[MIXTURE_CACHE] = do_cache,
	};
	enum mixture_kind kind = any_kind(worker);
	uint64_t count = 1;

	if (kind == MIXTURE_OWN_QUEUE)
		count = do_batch(worker, worker->queue);
	else if (kind == MIXTURE_SHARED_QUEUE)
		count = do_batch(worker, worker->board->queue);
	else
		calls[kind](worker);
	worker->counts[kind] += count;
	worker->done += count;
}

void *mixture_run(void *arg)
{
	struct mixture_worker *worker = arg;

	while (worker->done < worker->operations && !has_failed(worker))
		step(worker);
	return NULL;
}

const char *mixture_kind_name(enum mixture_kind kind)
{
	return kinds[kind].name;
}
