/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Many threads at everything at once: one session, leases that all of them share and leases of
 * each one's own, a queue for each and one for all. Each thread has bytes that only it writes,
 * and a copy of them, against which every read is held; two words are everybody's, and only
 * atomic operations touch them.
 */
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#include "common/clock.h"
#include "tests/integration/accounts.h"
#include "tests/integration/harness.h"
#include "tests/integration/mixture.h"

static int make_queue(mempool *pool, uint32_t depth, mempool_queue **ret_queue)
{
	struct mempool_queue_opts opts = {.size = sizeof(opts),
					  .depth = depth,
					  .capacity = MIXTURE_THREADS * MIXTURE_BATCH_MAX};

	return mempool_queue_create(pool, &opts, ret_queue);
}

static void set_up_board(struct mixture_board *board)
{
	int r;

	for (size_t i = 0; i < MIXTURE_SHARED; i++)
		CHECK_INT(mixture_acquire(board->pool, MIXTURE_THREADS * MIXTURE_SLICE_BYTES,
					  MEMPOOL_READ | MEMPOOL_WRITE, &board->shared[i]),
			  0);
	CHECK_INT(make_queue(board->pool, MIXTURE_BATCH_MAX, &board->queue), 0);
	r = mixture_acquire(board->pool, MIXTURE_WORDS_LEASE, MEMPOOL_READ | MEMPOOL_ATOMIC,
			    &board->words);
	if (r == MEMPOOL_E_RIGHTS_DEVICE)
		printf("# the device does not keep atomics inside their window: none are done\n");
	else
		CHECK_INT(r, 0);
	for (size_t i = 0; i < MIXTURE_SHARED; i++)
		CHECK_INT(mempool_queue_attach(board->queue, board->shared[i]), 0);
	if (board->words != NULL)
		CHECK_INT(mempool_queue_attach(board->queue, board->words), 0);
}

static bool take_memory(struct mixture_worker *worker)
{
	static const uint64_t shadows[MIXTURE_AREAS] = {
		[MIXTURE_AREA_OWN] = MIXTURE_OWN_BYTES,
		[MIXTURE_AREA_SHARED] = MIXTURE_SLICE_BYTES,
		[MIXTURE_AREA_SHARED + 1] = MIXTURE_SLICE_BYTES,
		[MIXTURE_AREA_SCRATCH] = MIXTURE_SCRATCH_BYTES,
	};
	bool all = true;

	for (size_t i = 0; i < MIXTURE_AREAS; i++) {
		worker->areas[i].shadow = calloc(1, shadows[i]);
		worker->areas[i].len_bytes = shadows[i];
		all = all && worker->areas[i].shadow != NULL;
	}
	worker->plain = calloc(1, MIXTURE_LOCAL_BYTES);
	worker->lent = calloc(1, MIXTURE_LOCAL_BYTES);
	return all && worker->plain != NULL && worker->lent != NULL;
}

static void set_up_worker(struct mixture_board *board, struct mixture_worker *worker)
{
	CHECK(take_memory(worker));
	CHECK_INT(harness_acquire(board->pool, MIXTURE_OWN_BYTES, MIXTURE_TTL_MS,
				  &worker->areas[MIXTURE_AREA_OWN].lease),
		  0);
	CHECK_INT(harness_acquire(board->pool, MIXTURE_SCRATCH_BYTES, MIXTURE_TTL_MS,
				  &worker->areas[MIXTURE_AREA_SCRATCH].lease),
		  0);
	CHECK_INT(mempool_buf_alloc(board->pool, MIXTURE_LOCAL_BYTES, 0, &worker->buf), 0);
	CHECK_INT(make_queue(board->pool, 4, &worker->queue), 0);
	CHECK_INT(mempool_queue_attach(worker->queue, worker->areas[MIXTURE_AREA_OWN].lease), 0);
	CHECK_INT(mempool_queue_attach(board->queue, worker->areas[MIXTURE_AREA_OWN].lease), 0);
	for (size_t i = 0; i < MIXTURE_SHARED; i++) {
		worker->areas[MIXTURE_AREA_SHARED + i].lease = board->shared[i];
		worker->areas[MIXTURE_AREA_SHARED + i].base_bytes =
			worker->number * MIXTURE_SLICE_BYTES;
		CHECK_INT(mempool_queue_attach(worker->queue, board->shared[i]), 0);
	}
	if (board->words != NULL)
		CHECK_INT(mempool_queue_attach(worker->queue, board->words), 0);
}

static void set_up(struct mixture_board *board, struct random *random, uint32_t operations)
{
	set_up_board(board);
	for (size_t i = 0; i < MIXTURE_THREADS && !test_has_failed(); i++) {
		struct mixture_worker *worker = &board->workers[i];

		worker->board = board;
		worker->number = i;
		worker->operations = operations;
		worker->random.state = random_next(random);
		set_up_worker(board, worker);
	}
}

static void run_all(struct mixture_board *board)
{
	uint64_t begun_ns = clock_now_ns();
	size_t started = 0;

	while (started < MIXTURE_THREADS &&
	       pthread_create(&board->workers[started].thread, NULL, mixture_run,
			      &board->workers[started]) == 0)
		started++;
	for (size_t i = 0; i < started; i++)
		(void)pthread_join(board->workers[i].thread, NULL);
	CHECK_INT(started, MIXTURE_THREADS);
	for (size_t i = 0; i < MIXTURE_THREADS; i++) {
		if (board->workers[i].failure[0] != '\0')
			printf("# thread %zu, after %" PRIu64 " operations: %s\n", i,
			       board->workers[i].done, board->workers[i].failure);
	}
	printf("# %" PRIu64 " ms\n", harness_since_ms(begun_ns));
	for (size_t i = 0; i < MIXTURE_THREADS; i++)
		CHECK_STR(board->workers[i].failure, "");
}

/* All of what is there at last, read in one piece. */
static void verify_contents(const struct mixture_board *board)
{
	static uint8_t bytes[MIXTURE_THREADS * MIXTURE_SLICE_BYTES];

	for (size_t s = 0; s < MIXTURE_SHARED; s++) {
		CHECK_INT(mempool_read(board->shared[s], 0, bytes, sizeof(bytes)), 0);
		for (size_t i = 0; i < MIXTURE_THREADS; i++)
			CHECK_MEM(bytes + i * MIXTURE_SLICE_BYTES,
				  board->workers[i].areas[MIXTURE_AREA_SHARED + s].shadow,
				  MIXTURE_SLICE_BYTES);
	}
	for (size_t i = 0; i < MIXTURE_THREADS; i++) {
		const struct mixture_area *area = &board->workers[i].areas[MIXTURE_AREA_OWN];

		CHECK_INT(mempool_read(area->lease, 0, bytes, MIXTURE_OWN_BYTES), 0);
		CHECK_MEM(bytes, area->shadow, MIXTURE_OWN_BYTES);
	}
}

static void verify_words(const struct mixture_board *board)
{
	uint64_t words[2];
	uint64_t sum = 0;
	uint64_t tickets = 0;

	if (board->words == NULL)
		return;
	for (size_t i = 0; i < MIXTURE_THREADS; i++) {
		sum += board->workers[i].sum;
		tickets += board->workers[i].tickets;
	}
	CHECK_INT(mempool_read(board->words, 0, words, sizeof(words)), 0);
	printf("# sum %" PRIu64 ", tickets %" PRIu64 "\n", words[0], words[1]);
	CHECK_INT(words[MIXTURE_SUM_OFFSET / 8], sum);
	CHECK_INT(words[MIXTURE_TICKETS_OFFSET / 8], tickets);
	CHECK(sum > 0 && tickets > 0);
}

static void verify_counts(const struct mixture_board *board, uint64_t operations)
{
	uint64_t total = 0;

	for (size_t k = 0; k < MIXTURE_KINDS; k++) {
		uint64_t count = 0;

		for (size_t i = 0; i < MIXTURE_THREADS; i++)
			count += board->workers[i].counts[k];
		printf("# %s: %" PRIu64 "\n", mixture_kind_name((enum mixture_kind)k), count);
		CHECK(count > 0 || board->words == NULL);
		total += count;
	}
	CHECK_INT(total, MIXTURE_THREADS * operations);
}

static void free_memory(struct mixture_board *board)
{
	for (size_t i = 0; i < MIXTURE_THREADS; i++) {
		for (size_t k = 0; k < MIXTURE_AREAS; k++)
			free(board->workers[i].areas[k].shadow);
		free(board->workers[i].plain);
		free(board->workers[i].lent);
	}
}

TEST(threads__mixed_operations_of_all_on_everything)
{
	HARNESS(h, .pool_size = NULL, .extra = "\"window_max\": \"64KiB\"");
	SESSION(alpha, "alpha");
	struct random random = random_start();
	uint32_t operations = harness_figure(FIGURE_THREAD_OPERATIONS);
	static struct mixture_board board;

	board.pool = alpha;
	set_up(&board, &random, operations);
	if (!test_has_failed())
		run_all(&board);
	CHECK(!test_has_failed());
	verify_contents(&board);
	CHECK(!test_has_failed());
	verify_words(&board);
	CHECK(!test_has_failed());
	verify_counts(&board, operations);
	CHECK(!test_has_failed());
	CHECK_INT(harness_number(&h, "counters.lanes_lost"), 0);
	harness_close(&alpha);
	free_memory(&board);
	accounts_check(&h);
	CHECK(!test_has_failed());
	CHECK_INT(harness_stop(&h), 0);
}
