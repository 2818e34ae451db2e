/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A tenant's leases, thousands of them, are taken back by one order while others connect:
 * none of the daemon's turns may be long enough for them to notice.
 */
#include <inttypes.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

#include "common/clock.h"
#include "tests/integration/accounts.h"
#include "tests/integration/harness.h"
#include "tests/integration/order.h"
#include "tests/integration/peer.h"

#define SESSIONS 10
#define BATCH	 50
#define PAGE	 4096
#define LIMIT_MS 120000

struct victim {
	struct peer peer;
	struct peer_lane lane;
	uint64_t ended;
};

struct victims {
	struct victim all[SESSIONS];
};

static void victims_close(struct victims *victims)
{
	for (int i = 0; i < SESSIONS; i++) {
		peer_lane_close(&victims->all[i].lane);
		peer_close(&victims->all[i].peer);
	}
}

static void victim_acquire(struct victim *victim)
{
	struct message m = {
		.type = MESSAGE_ACQUIRE,
		.u.acquire =
			{
				.len_bytes = PAGE,
				.ttl_ms = 600000,
				.rights = MESSAGE_RIGHT_READ,
				.lane = victim->lane.number,
				.count = BATCH,
			},
	};

	CHECK_INT(peer_send(&victim->peer, &m), 0);
	for (int i = 0; i < BATCH; i++) {
		CHECK_INT(peer_take(&victim->peer, MESSAGE_GRANT, m.request_id, 30000, &m), 1);
	}
}

static void victim_open(struct victim *victim, uint32_t leases)
{
	CHECK_INT(peer_open(&victim->peer, "storm", NULL), 0);
	CHECK_INT(peer_lane_open(&victim->peer, &victim->lane), 0);
	for (uint32_t i = 0; i < leases && !test_has_failed(); i += BATCH)
		victim_acquire(victim);
}

/* Somebody else, who connects all the time. */
struct visitor {
	atomic_bool stop;
	pthread_t thread;
	uint64_t visits;
	uint64_t longest_ns;
	int code;
};

static void *visitor_thread(void *arg)
{
	struct visitor *visitor = arg;

	while (!atomic_load(&visitor->stop) && visitor->code == 0) {
		struct raw raw = {0};
		uint64_t begun_ns = clock_now_ns();
		uint64_t took_ns;

		visitor->code = raw_open(&raw, "other");
		took_ns = clock_now_ns() - begun_ns;
		raw_close(&raw);
		visitor->visits++;
		if (took_ns > visitor->longest_ns)
			visitor->longest_ns = took_ns;
	}
	return NULL;
}

static void visitor_end(struct visitor *visitor)
{
	atomic_store(&visitor->stop, true);
	if (visitor->thread != 0)
		(void)pthread_join(visitor->thread, NULL);
	visitor->thread = 0;
}

/* Take what comes, so that nobody waits for our credits. */
static void victims_look(struct victims *victims)
{
	for (int i = 0; i < SESSIONS; i++) {
		struct victim *victim = &victims->all[i];
		struct message m;

		CHECK_INT(peer_look(&victim->peer), 0);
		while (peer_take(&victim->peer, MESSAGE_LEASES_ENDED, 0, 0, &m) == 1)
			victim->ended += m.u.leases_ended.count;
	}
}

static uint64_t victims_ended(const struct victims *victims)
{
	uint64_t sum = 0;

	for (int i = 0; i < SESSIONS; i++)
		sum += victims->all[i].ended;
	return sum;
}

static void storm(struct harness *h, struct victims *victims, uint64_t leases)
{
	__attribute__((cleanup(order_close))) struct order order;
	uint64_t begun_ns = clock_now_ns();
	json_t *result = NULL;
	int r = -1;

	CHECK_INT(order_open(&order, h), 0);
	CHECK_INT(order_revoke_tenant(&order, "storm", true), 0);
	while (clock_now_ns() < clock_add_ms(begun_ns, LIMIT_MS) && !test_has_failed() &&
	       (r < 0 || victims_ended(victims) < leases)) {
		victims_look(victims);
		/* The daemon has no CPU of its own, so we leave it what we do not need. */
		if (r < 0)
			r = order_answer(&order, 5, &result);
		else
			harness_sleep_ms(5);
	}
	CHECK(!test_has_failed());
	CHECK_INT(r, 0);
	CHECK_INT(json_integer_value(json_object_get(result, "leases")), leases);
	CHECK_INT(victims_ended(victims), leases);
	printf("# %" PRIu64 " leases behind the fence %.1f ms after the order: %.0f a second; the "
	       "longest took %.1f ms from its own decision\n",
	       leases, (double)json_integer_value(json_object_get(result, "elapsed_us")) / 1e3,
	       (double)leases * 1e6 /
		       (double)json_integer_value(json_object_get(result, "elapsed_us")),
	       (double)json_integer_value(json_object_get(result, "took_us")) / 1e3);
	json_decref(result);
}

TEST(storm__a_tenant_is_revoked)
{
	HARNESS(h, .pool_size = "64MiB", .extra = "\"lane_leases_max\": 16384");
	__attribute__((cleanup(victims_close))) struct victims victims = {0};
	__attribute__((cleanup(visitor_end))) struct visitor visitor = {0};
	uint32_t leases = harness_figure(FIGURE_STORM_LEASES);
	uint64_t begun_ns = clock_now_ns();
	int64_t before_us;
	int64_t turn_us;

	for (int i = 0; i < SESSIONS && !test_has_failed(); i++)
		victim_open(&victims.all[i], leases / SESSIONS);
	CHECK(!test_has_failed());
	CHECK_INT(harness_number(&h, "leases.active"), leases);
	before_us = harness_number(&h, "longest_turn_us");
	printf("# %u leases acquired in %.1f s; longest turn so far %" PRId64 " us\n", leases,
	       (double)(clock_now_ns() - begun_ns) / 1e9, before_us);
	CHECK_INT(pthread_create(&visitor.thread, NULL, visitor_thread, &visitor), 0);
	storm(&h, &victims, leases);
	visitor_end(&visitor);
	CHECK(!test_has_failed());
	turn_us = harness_number(&h, "longest_turn_us");
	printf("# meanwhile %" PRIu64
	       " connections, the longest took %.1f ms; longest turn %" PRId64 " us\n",
	       visitor.visits, (double)visitor.longest_ns / 1e6, turn_us);
	CHECK_INT(visitor.code, 0);
	CHECK(visitor.visits > 0);
	CHECK(turn_us < 1000 * (int64_t)harness_figure(FIGURE_STORM_TURN_MS));
	victims_close(&victims);
	accounts_check(&h);
	CHECK(!test_has_failed());
	CHECK_INT(harness_stop(&h), 0);
}
