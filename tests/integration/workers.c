/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What threads do with a session that is lost and comes back. Each owns its lease and its copy;
 * what a call has said is checked at once, and all bytes after each time that all is well again.
 *
 * Thread: a worker's own, but for workers_start() and workers_finish().
 */
#include "tests/integration/workers.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/clock.h"
#include "tests/integration/harness.h"

#define LEASE_BYTES  ((size_t)256 * 1024)
#define WORD_AT	     LEASE_BYTES /* a counter behind what the copy has */
#define CALLERS	     (WORKERS - 1)
#define SEGMENTS     4
#define CHUNK	     (LEASE_BYTES / WORKERS_BATCH)
#define SEGMENT_PART (LEASE_BYTES / SEGMENTS)

bool worker_goes_on(const struct worker *worker)
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
		.size = sizeof(opts), .ttl_ms = WORKERS_TTL_MS, .rights = worker->outage->rights};
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
	int r;

	if (worker->lease == NULL)
		return;
	r = note(worker, CALL_RELEASE, begun_ns, mempool_release(worker->lease));
	if (r < 0)
		printf("# a lease is over: %s\n", mempool_error_text(r));
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
		return note(worker, CALL_RENEW, begun_ns,
			    mempool_renew(worker->lease, WORKERS_TTL_MS));
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
	for (size_t i = 0; i < WORKERS_BATCH; i++) {
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
	struct mempool_completion done[WORKERS_BATCH];
	size_t reported = 0;
	size_t n;

	/* Not noted: operations are, and this ends with the last of them. */
	if (mempool_flush(worker->queue, WORKERS_LIMIT_MS) < 0) {
		printf("# operations are not over after %d ms\n", WORKERS_LIMIT_MS);
		atomic_store(&worker->corrupt, true);
		return;
	}
	while (mempool_poll(worker->queue, done, WORKERS_BATCH, &n) == 0 && n > 0) {
		for (size_t i = 0; i < n; i++) {
			if (done[i].cookie >= WORKERS_BATCH || worker->codes[done[i].cookie] != 1)
				atomic_store(&worker->corrupt, true);
			else
				worker->codes[done[i].cookie] =
					note(worker, CALL_OPERATION, begun_ns, done[i].code);
		}
		reported += n;
	}
	if (reported != WORKERS_BATCH || atomic_load(&worker->corrupt)) {
		printf("# %zu of %zu operations were reported, or one twice\n", reported,
		       (size_t)WORKERS_BATCH);
		atomic_store(&worker->corrupt, true);
	}
}

/* Return: were all successful? */
static bool queuer_batch(struct worker *worker, bool reads_only)
{
	struct mempool_op ops[WORKERS_BATCH];
	uint64_t begun_ns;
	bool all = true;
	size_t n = 0;

	queuer_fill(worker, reads_only, ops);
	begun_ns = clock_now_ns();
	if (mempool_submit(worker->queue, ops, WORKERS_BATCH, &n) < 0 || n != WORKERS_BATCH)
		atomic_store(&worker->corrupt, true);
	queuer_collect(worker, begun_ns);
	for (size_t i = 0; i < WORKERS_BATCH && worker_goes_on(worker); i++) {
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

/* All of them. */

void workers_start(struct outage *outage, struct random *random, struct worker *workers)
{
	struct mempool_queue_opts opts = {
		.size = sizeof(opts), .depth = WORKERS_BATCH / 2, .capacity = WORKERS_BATCH};
	struct worker *queuer = workers_queuer(workers);

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

void workers_finish(struct outage *outage, struct worker *workers)
{
	struct worker *queuer = workers_queuer(workers);

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
