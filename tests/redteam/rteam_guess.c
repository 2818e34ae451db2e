/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Somebody guesses keys, one after the other, with a new lane after each wrong guess and a new
 * session now and then. Others do their work meanwhile and are none the worse for it.
 */
#include <inttypes.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/clock.h"
#include "tests/integration/accounts.h"
#include "tests/integration/harness.h"
#include "tests/integration/peer.h"
#include "tests/integration/proof.h"
#include "tests/redteam/figures.h"

#define PAGE		  4096
#define TTL_MS		  3600000
#define LANES_PER_SESSION 10
#define SAMPLES_MAX	  65536

/* A tenant that works, and how long its transfers take. */
struct worker {
	atomic_bool stop;
	pthread_t thread;
	mempool *pool;
	mempool_lease *lease;
	uint64_t took_ns[SAMPLES_MAX];
	size_t count;
	uint64_t wrong;
	int code;
};

static void worker_once(struct worker *worker, uint8_t mark)
{
	uint64_t begun_ns = clock_now_ns();
	uint8_t sent[PAGE];
	uint8_t got[PAGE];

	memset(sent, mark, PAGE);
	worker->code = mempool_write(worker->lease, 0, sent, PAGE);
	if (worker->code == 0)
		worker->code = mempool_read(worker->lease, 0, got, PAGE);
	worker->took_ns[worker->count++ % SAMPLES_MAX] = clock_now_ns() - begun_ns;
	worker->wrong += worker->code == 0 && memcmp(sent, got, PAGE) != 0;
}

static void *worker_thread(void *arg)
{
	struct worker *worker = arg;
	uint8_t mark = 1;

	while (!atomic_load(&worker->stop) && worker->code == 0) {
		worker_once(worker, mark++);
		harness_sleep_ms(1);
	}
	return NULL;
}

static void worker_end(struct worker *worker)
{
	atomic_store(&worker->stop, true);
	if (worker->thread != 0)
		(void)pthread_join(worker->thread, NULL);
	worker->thread = 0;
}

static void worker_end_at(struct worker **worker)
{
	worker_end(*worker);
}

static void worker_print(struct worker *worker, const char *when)
{
	size_t count = worker->count < SAMPLES_MAX ? worker->count : SAMPLES_MAX;

	CHECK(count > 0);
	harness_sort(worker->took_ns, count);
	printf("# %s: %zu writes and reads of 4 KiB, half within %.2f ms, 99 %% within %.2f ms, "
	       "all within %.2f ms\n",
	       when, count, (double)worker->took_ns[count / 2] / 1e6,
	       (double)worker->took_ns[count * 99 / 100] / 1e6,
	       (double)worker->took_ns[count - 1] / 1e6);
	worker->count = 0;
}

static void worker_run_alone(struct worker *worker)
{
	for (int i = 0; i < 200 && worker->code == 0; i++) {
		worker_once(worker, (uint8_t)i);
		harness_sleep_ms(1);
	}
	CHECK_INT(worker->code, 0);
	worker_print(worker, "alone");
}

struct guesser {
	struct peer peer;
	struct peer_lane lane;
	uint32_t lanes;
	bool open;
	uint64_t tried;
	uint64_t refused;
	uint64_t hit;
};

static void guesser_end(struct guesser *guesser)
{
	peer_lane_close(&guesser->lane);
	peer_close(&guesser->peer);
	guesser->open = false;
}

static void guesser_lane(struct guesser *guesser)
{
	peer_lane_close(&guesser->lane);
	if (guesser->open && guesser->lanes++ % LANES_PER_SESSION == LANES_PER_SESSION - 1)
		guesser_end(guesser);
	if (!guesser->open) {
		CHECK_INT(peer_open(&guesser->peer, "guesser", NULL), 0);
		guesser->open = true;
	}
	CHECK_INT(peer_lane_open(&guesser->peer, &guesser->lane), 0);
}

/* An address that is right, and a key that is nearly so. */
static void guess(struct guesser *guesser, const struct message_descriptor *at)
{
	uint32_t rkey = at->rkey;
	int status;

	guesser_lane(guesser);
	CHECK(!test_has_failed());
	if (guesser->tried % 4 != 0) /* the right key, too, which is good on another QP only */
		rkey ^= (uint32_t)rand() % 2 == 0 ? 1 + (uint32_t)rand() % 255
						  : (uint32_t)(1 + rand() % 64) << 8;
	memset(peer_buffer(&guesser->lane), 0x66, PAGE);
	status = peer_access(&guesser->lane,
			     guesser->tried % 2 == 0 ? IBV_WR_RDMA_WRITE : IBV_WR_RDMA_READ, PAGE,
			     at->remote_addr, rkey);
	guesser->tried++;
	guesser->refused += status == IBV_WC_REM_ACCESS_ERR;
	guesser->hit += status == IBV_WC_SUCCESS;
}

TEST(guess__others_are_not_affected)
{
	HARNESS(h, .extra = "\"lane_wait_min\": \"0\"");
	SESSION(alpha, "alpha");
	__attribute__((cleanup(guesser_end))) struct guesser guesser = {0};
	static struct worker worker;
	__attribute__((cleanup(worker_end_at))) struct worker *work = &worker;
	uint64_t guesses = figure(500);
	struct message_descriptor at;

	worker.pool = alpha;
	CHECK_INT(harness_acquire(alpha, PAGE, TTL_MS, &worker.lease), 0);
	at = proof_descriptor(worker.lease);
	worker_run_alone(&worker);
	CHECK(!test_has_failed());
	CHECK_INT(pthread_create(&worker.thread, NULL, worker_thread, &worker), 0);
	while (guesser.tried < guesses && !test_has_failed())
		guess(&guesser, &at);
	worker_end(work);
	printf("# S3 guessing: %" PRIu64 " tried, %" PRIu64 " refused, %" PRIu64 " hit\n",
	       guesser.tried, guesser.refused, guesser.hit);
	worker_print(&worker, "meanwhile");
	CHECK(!test_has_failed());
	CHECK_INT(guesser.refused, guesser.tried);
	CHECK_INT(worker.code, 0);
	CHECK_INT(worker.wrong, 0);
	guesser_end(&guesser);
	harness_close(&alpha);
	accounts_check(&h);
	CHECK(!test_has_failed());
	CHECK_INT(harness_stop(&h), 0);
}
