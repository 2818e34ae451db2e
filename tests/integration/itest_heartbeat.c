/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Heartbeats: who says nothing is taken for gone after three intervals, from either end, and
 * who has nothing to say but says so stays.
 */
#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "common/clock.h"
#include "proto/error.h"
#include "tests/integration/accounts.h"
#include "tests/integration/harness.h"
#include "tests/integration/peer.h"

#define PAGE	 4096
#define TTL_MS	 600000
#define LATE_MAX (100 * CLOCK_NS_PER_MS)
#define SLACK_MS 500 /* for a client that has to be scheduled, and a look at it */

#define HEARTBEAT(text)                                                                \
	.limits = "\"ban_after\": 0, \"ban_backoff_min\": \"0\", \"strikes_max\": 0, " \
		  "\"heartbeat\": \"" text "\""

static int ping(struct peer *peer)
{
	struct message m = {.type = MESSAGE_PING};

	return peer_call(peer, &m, &m);
}

/* The last message came between @from_ns and @to_ns. */
static void check_dropped(struct harness *h, uint64_t lease_id, uint64_t from_ns, uint64_t to_ns,
			  uint64_t after_ms)
{
	uint64_t alive_begun_ns = from_ns;
	uint64_t ended_end_ns = 0;
	char state[32];

	while (ended_end_ns == 0 && clock_now_ns() < clock_add_ms(from_ns, 3 * after_ms + 5000)) {
		uint64_t begun_ns = clock_now_ns();

		if (strcmp(harness_lease_state(h, lease_id, state), "active") == 0)
			alive_begun_ns = begun_ns;
		else
			ended_end_ns = clock_now_ns();
		harness_sleep_ms(1);
	}
	printf("# dropped between %.1f and %.1f ms after the last message\n",
	       (double)(alive_begun_ns - from_ns) / 1e6, (double)(ended_end_ns - from_ns) / 1e6);
	CHECK(ended_end_ns >= clock_add_ms(from_ns, after_ms));
	CHECK(alive_begun_ns <= clock_add_ms(to_ns, after_ms) + LATE_MAX);
}

static void drop_silent_peer(struct harness *h, uint64_t interval_ms)
{
	PEER(alpha, "alpha");
	PEER_LANE(lane, &alpha);
	struct message_grant grant;
	uint64_t from_ns, to_ns;

	CHECK_INT(alpha.welcome.heartbeat_ms, interval_ms);
	CHECK_INT(peer_acquire(&alpha, &lane, PAGE, TTL_MS, 5000, &grant), 0);
	from_ns = clock_now_ns();
	CHECK_INT(ping(&alpha), 0);
	to_ns = clock_now_ns();
	check_dropped(h, grant.lease_id, from_ns, to_ns, 3 * interval_ms);
	CHECK(harness_wait_number(h, "sessions", 0, 10000));
	CHECK_INT(harness_number(h, "counters.sessions_lost"), 1);
}

TEST(heartbeat__silent_peer_is_dropped)
{
	HARNESS(h, HEARTBEAT("400ms"));

	drop_silent_peer(&h, 400);
	CHECK(!test_has_failed());
	accounts_finish(&h);
}

/* Sooner than anything else makes the daemon look. */
TEST(heartbeat__short_interval)
{
	HARNESS(h, HEARTBEAT("100ms"));

	drop_silent_peer(&h, 100);
	CHECK(!test_has_failed());
	accounts_finish(&h);
}

/* One that says nothing after its first message, which opens the session. */
TEST(heartbeat__silent_from_the_beginning)
{
	HARNESS(h, HEARTBEAT("100ms"));
	PEER(alpha, "alpha");
	uint64_t from_ns = clock_now_ns();
	uint64_t gone_ns;
	struct message m;

	CHECK_INT(ping(&alpha), 0);
	CHECK_INT(harness_number(&h, "sessions"), 1);
	CHECK_INT(peer_take(&alpha, 0, 0, 10000, &m), -ENETRESET);
	gone_ns = clock_now_ns();
	printf("# disconnected after %.1f ms\n", (double)(gone_ns - from_ns) / 1e6);
	CHECK(gone_ns >= clock_add_ms(from_ns, 300));
	CHECK(gone_ns <= clock_add_ms(from_ns, 300 + SLACK_MS));
	peer_close(&alpha);
	accounts_finish(&h);
}

TEST(heartbeat__pinging_peer_stays)
{
	HARNESS(h, HEARTBEAT("200ms"));
	PEER(alpha, "alpha");
	PEER_LANE(lane, &alpha);
	struct message_grant grant;

	CHECK_INT(peer_acquire(&alpha, &lane, PAGE, TTL_MS, 0, &grant), 0);
	for (int i = 0; i < 20; i++) {
		harness_sleep_ms(200);
		CHECK_INT(ping(&alpha), 0);
	}
	CHECK_INT(peer_release(&alpha, grant.lease_id), 0);
	CHECK_INT(harness_number(&h, "counters.sessions_lost"), 0);
	peer_lane_close(&lane);
	peer_close(&alpha);
	accounts_finish(&h);
}

TEST(heartbeat__idle_client_stays)
{
	HARNESS(h, HEARTBEAT("200ms"));
	SESSION(alpha, "alpha");
	mempool_lease *lease;
	uint8_t byte = 7;

	CHECK_INT(harness_acquire(alpha, PAGE, TTL_MS, &lease), 0);
	harness_sleep_ms(20 * 200);
	CHECK_INT(mempool_write(lease, 0, &byte, 1), 0);
	CHECK_INT(mempool_renew(lease, TTL_MS), 0);
	CHECK_INT(harness_number(&h, "counters.sessions_lost"), 0);
	CHECK_INT(harness_number(&h, "counters.sessions_accepted"), 1);
	CHECK_INT(mempool_release(lease), 0);
	harness_close(&alpha);
	accounts_finish(&h);
}

/* Its device goes on to serve transfers, so only its silence tells. */
TEST(heartbeat__daemon_is_stopped)
{
	HARNESS(h, HEARTBEAT("400ms"));
	SESSION(alpha, "alpha");
	mempool_lease *lease;
	uint64_t stopped_ns;
	uint64_t took_ms;
	uint8_t byte;
	int r;

	CHECK_INT(harness_acquire(alpha, PAGE, TTL_MS, &lease), 0);
	stopped_ns = clock_now_ns();
	CHECK_INT(kill(h.pid, SIGSTOP), 0);
	do {
		harness_sleep_ms(1);
		r = mempool_read(lease, 0, &byte, 1);
		took_ms = harness_since_ms(stopped_ns);
	} while (r == 0 && took_ms < 10000);
	CHECK_INT(kill(h.pid, SIGCONT), 0);
	printf("# noticed %" PRIu64 " ms after the stop: %s\n", took_ms, mempool_last_error());
	CHECK_INT(r, MEMPOOL_E_SESSION_LOST);
	CHECK(strstr(mempool_last_error(), "silent") != NULL);
	/* The last answer came at most one interval before. */
	CHECK(took_ms >= 2 * 400);
	CHECK(took_ms <= 3 * 400 + SLACK_MS);
	harness_close(&alpha);
	accounts_finish(&h);
}

TEST(heartbeat__none)
{
	HARNESS(h, HEARTBEAT("0"));
	PEER(alpha, "alpha");

	CHECK_INT(alpha.welcome.heartbeat_ms, 0);
	CHECK_INT(ping(&alpha), 0);
	harness_sleep_ms(2000);
	CHECK_INT(ping(&alpha), 0);
	peer_close(&alpha);
	accounts_finish(&h);
}
