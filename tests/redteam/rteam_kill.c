/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The daemon is killed at any point of its work, again and again: the next one serves within
 * seconds, old descriptors open nothing, and the kernel keeps nothing of the dead.
 */
#include <inttypes.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/clock.h"
#include "tests/integration/harness.h"
#include "tests/integration/peer.h"
#include "tests/integration/resources.h"
#include "tests/redteam/figures.h"

#define LEASES	       16
#define PAGE	       4096
#define TTL_MS	       600000
#define TOUCH_EVERY    5
#define SERVING_MAX_NS (5 * CLOCK_NS_PER_S)

/* Keeps the daemon busy with all that it does, until it is gone. */
struct churn {
	atomic_bool stop;
	pthread_t thread;
	uint64_t rounds;
};

static void *churn_thread(void *arg)
{
	struct churn *churn = arg;

	while (!atomic_load(&churn->stop)) {
		struct peer peer = {0};
		struct peer_lane lane = {0};
		struct message_grant grant;
		int r = peer_open(&peer, "churn", NULL);

		if (r == 0)
			r = peer_lane_open(&peer, &lane);
		for (int i = 0; i < 20 && r == 0 && !atomic_load(&churn->stop); i++) {
			r = peer_acquire(&peer, &lane, PAGE, TTL_MS, 0, &grant);
			if (r == 0)
				r = peer_release(&peer, grant.lease_id);
			churn->rounds++;
		}
		peer_lane_close(&lane);
		peer_close(&peer);
	}
	return NULL;
}

static void churn_end(struct churn *churn)
{
	atomic_store(&churn->stop, true);
	if (churn->thread != 0)
		(void)pthread_join(churn->thread, NULL);
	churn->thread = 0;
}

/* The descriptors of a life that is over, on a lane of the next one. */
static void try_stale(const struct message_grant *old, uint64_t *refused)
{
	PEER(beta, "beta");
	PEER_LANE(lane, &beta);
	const struct message_descriptor *at = &old->descriptors[0];
	struct message_grant own;

	CHECK_INT(peer_acquire(&beta, &lane, PAGE, TTL_MS, 0, &own), 0);
	CHECK_INT(peer_access(&lane, IBV_WR_RDMA_READ, 1, own.descriptors[0].remote_addr,
			      own.descriptors[0].rkey),
		  IBV_WC_SUCCESS);
	CHECK_INT(peer_access(&lane, IBV_WR_RDMA_READ, 8, at->remote_addr, at->rkey),
		  IBV_WC_REM_ACCESS_ERR);
	*refused += 1;
}

/* @touch: use the old lane, too, which takes as long as the device tries */
static void kill_once(struct harness *h, bool touch, uint64_t *refused, uint64_t *longest_ns)
{
	__attribute__((cleanup(churn_end))) struct churn churn = {0};
	PEER(alpha, "alpha");
	PEER_LANE(lane, &alpha);
	struct message_grant old[LEASES];

	for (int i = 0; i < LEASES; i++)
		CHECK_INT(peer_acquire(&alpha, &lane, PAGE, TTL_MS, 0, &old[i]), 0);
	CHECK_INT(pthread_create(&churn.thread, NULL, churn_thread, &churn), 0);
	harness_sleep_ms((uint64_t)rand() % 120);
	harness_kill(h);
	if (touch)
		CHECK(peer_access(&lane, IBV_WR_RDMA_READ, 8, old[0].descriptors[0].remote_addr,
				  old[0].descriptors[0].rkey) != IBV_WC_SUCCESS);
	churn_end(&churn);
	CHECK_INT(harness_restart(h), 0);
	if (h->start_ns > *longest_ns)
		*longest_ns = h->start_ns;
	CHECK_INT(harness_number(h, "leases.active"), 0);
	try_stale(&old[rand() % LEASES], refused);
}

static void kill_rounds(uint64_t rounds)
{
	HARNESS(h, .extra = "\"lane_wait_min\": \"0\"");
	uint64_t refused = 0;
	uint64_t longest_ns = 0;

	for (uint64_t i = 0; i < rounds && !test_has_failed(); i++)
		kill_once(&h, i % TOUCH_EVERY == 0, &refused, &longest_ns);
	CHECK(!test_has_failed());
	CHECK_INT(harness_stop(&h), 0);
	printf("# S12 killed %" PRIu64 " times: %" PRIu64 " old descriptors tried, %" PRIu64
	       " refused; the longest start took %.0f ms\n",
	       rounds, rounds, refused, (double)longest_ns / 1e6);
	CHECK_INT(refused, rounds);
	CHECK(longest_ns <= SERVING_MAX_NS);
}

/* Once before, for what this process opens and keeps open. */
TEST(kill__at_any_point)
{
	struct resources before, after;

	srand(11);
	kill_rounds(1);
	CHECK(!test_has_failed());
	if (!resources_read(&before))
		SKIP("there is no rdma tool");
	kill_rounds(figure(50));
	CHECK(!test_has_failed());
	CHECK(resources_read(&after));
	resources_print("before", &before);
	resources_print("after", &after);
	CHECK(resources_equal(&before, &after));
}
