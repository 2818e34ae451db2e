/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Somebody guesses keys, one after the other, with a new lane after each wrong guess and a new
 * session now and then. Others do their work meanwhile and are none the worse for it.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/integration/accounts.h"
#include "tests/integration/harness.h"
#include "tests/integration/peer.h"
#include "tests/integration/proof.h"
#include "tests/redteam/figures.h"
#include "tests/redteam/worker.h"

#define PAGE		  4096
#define LANES_PER_SESSION 10
#define RUNS_ALONE	  200

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
	WORKER(worker, "alpha");
	__attribute__((cleanup(guesser_end))) struct guesser guesser = {0};
	uint64_t guesses = figure(500);
	struct message_descriptor at = proof_descriptor(worker->lease);

	worker_run(worker, RUNS_ALONE);
	CHECK_INT(atomic_load(&worker->code), 0);
	worker_print(worker, "alone");
	CHECK(!test_has_failed());
	CHECK_INT(worker_start(worker), 0);
	while (guesser.tried < guesses && !test_has_failed())
		guess(&guesser, &at);
	worker_stop(worker);
	printf("# S3 guessing: %" PRIu64 " tried, %" PRIu64 " refused, %" PRIu64 " hit\n",
	       guesser.tried, guesser.refused, guesser.hit);
	worker_print(worker, "meanwhile");
	CHECK(!test_has_failed());
	CHECK_INT(guesser.refused, guesser.tried);
	CHECK_INT(atomic_load(&worker->code), 0);
	CHECK_INT(atomic_load(&worker->wrong), 0);
	guesser_end(&guesser);
	worker_close(worker);
	accounts_check(&h);
	CHECK(!test_has_failed());
	CHECK_INT(harness_stop(&h), 0);
}
