/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Field case 1. Expiry, an operator's revocation, release and, one time in ten, disconnect of
 * the same lease come within a millisecond of each other, in any order. Whatever wins, each
 * bind is invalidated once at most, every window is accounted for and the kernel survives.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "common/clock.h"
#include "proto/error.h"
#include "tests/integration/accounts.h"
#include "tests/integration/harness.h"
#include "tests/integration/order.h"
#include "tests/integration/peer.h"

#define BATCH	    4 /* leases that end at the same time */
#define TTL_MS	    25
#define STEP_NS	    ((int64_t)CLOCK_NS_PER_MS / 5)
#define LEAD_MAX_NS (20 * (int64_t)CLOCK_NS_PER_MS)
#define SPREAD_NS   (1 * CLOCK_NS_PER_MS)
#define ANSWER_MS   20000

enum winner {
	WINNER_EXPIRY,
	WINNER_REVOKE,
	WINNER_RELEASE,
	WINNER_UNSEEN, /* the session has gone */
	WINNERS,
};

static const char *const winner_names[WINNERS] = {
	[WINNER_EXPIRY] = "expiry",
	[WINNER_REVOKE] = "revoke",
	[WINNER_RELEASE] = "release",
	[WINNER_UNSEEN] = "unseen, for the session had gone",
};

struct race {
	struct peer peer;
	struct peer_lane lane;
	struct order order;
	bool open;
	uint64_t ids[BATCH];
	uint64_t due_ns; /* when they expire, more or less */
	/* How much sooner or later we fire: found by trying, so that nobody always wins. */
	int64_t lead_ns;
	uint64_t won[WINNERS];
	uint64_t disconnects;
};

static void race_close(struct race *race)
{
	peer_lane_close(&race->lane);
	peer_close(&race->peer);
	race->open = false;
}

static void race_end(struct race *race)
{
	race_close(race);
	order_close(&race->order);
}

static void race_open(struct race *race)
{
	if (race->open)
		return;
	CHECK_INT(peer_open(&race->peer, "racer", NULL), 0);
	CHECK_INT(peer_lane_open(&race->peer, &race->lane), 0);
	race->open = true;
}

static void race_acquire(struct race *race)
{
	struct message m = {
		.type = MESSAGE_ACQUIRE,
		.u.acquire =
			{
				.len_bytes = 4096,
				.ttl_ms = TTL_MS,
				.rights = MESSAGE_RIGHT_READ,
				.lane = race->lane.number,
				.wait_ms = 5000,
				.count = BATCH,
			},
	};
	uint64_t sent_ns = clock_now_ns();

	CHECK_INT(peer_send(&race->peer, &m), 0);
	for (int i = 0; i < BATCH; i++) {
		CHECK_INT(peer_take(&race->peer, 0, m.request_id, ANSWER_MS, &m), 1);
		/* On a machine that is slow enough they are over before all are granted. */
		CHECK(m.type == MESSAGE_GRANT || m.u.error.code == ERROR_EXPIRED);
		if (m.type == MESSAGE_ERROR) {
			race->ids[0] = 0;
			return;
		}
		race->ids[i] = m.u.grant.lease_id;
	}
	race->due_ns = (uint64_t)((int64_t)clock_add_ms(sent_ns, TTL_MS + 1) - race->lead_ns);
}

static void wait_until_ns(uint64_t at_ns)
{
	while (clock_now_ns() < at_ns)
		;
}

static uint64_t race_release(struct race *race)
{
	struct message m = {.type = MESSAGE_RELEASE, .u.leases.count = BATCH};

	for (int i = 0; i < BATCH; i++)
		m.u.leases.lease_ids[i] = race->ids[i];
	return peer_send(&race->peer, &m) == 0 ? m.request_id : 0;
}

/* Three shots in any order, each at its own moment of the same millisecond. */
static uint64_t race_fire(struct race *race, bool disconnect)
{
	uint64_t request_id = 0;
	int first = rand() % 2;

	for (int shot = 0; shot < 3; shot++) {
		wait_until_ns(race->due_ns - SPREAD_NS / 2 +
			      (uint64_t)rand() % SPREAD_NS * (uint64_t)(shot + 1) / 3);
		if (shot == 2 && disconnect) {
			(void)rdma_disconnect(race->peer.control.id);
		} else if (shot == first) {
			request_id = race_release(race);
		} else if (shot == 1 - first) {
			for (int i = 0; i < BATCH; i++)
				(void)order_revoke(&race->order, race->ids[i], rand() % 2 == 0);
		}
	}
	return request_id;
}

static void race_collect(struct race *race, uint64_t request_id)
{
	uint32_t expired = 0;
	struct message m;

	CHECK_INT(peer_take(&race->peer, MESSAGE_RELEASED, request_id, ANSWER_MS, &m), 1);
	for (int i = 0; i < BATCH; i++) {
		uint32_t code = m.u.released.released[i].code;

		CHECK(code == 0 || code == ERROR_EXPIRED || code == ERROR_REVOKED);
		expired += code == ERROR_EXPIRED;
		race->won[code == 0		  ? WINNER_RELEASE
			  : code == ERROR_EXPIRED ? WINNER_EXPIRY
						  : WINNER_REVOKE]++;
	}
	race->peer.kept_count = 0;
	if (expired >= BATCH / 2 && race->lead_ns < LEAD_MAX_NS)
		race->lead_ns += STEP_NS;
	else if (expired < BATCH / 2 && race->lead_ns > -LEAD_MAX_NS)
		race->lead_ns -= STEP_NS;
}

static void race_collect_orders(struct race *race)
{
	json_t *result;

	for (int i = 0; i < BATCH; i++) {
		int code = order_answer(&race->order, ANSWER_MS, &result);

		json_decref(result);
		CHECK(code == 0 || code == ERROR_EXPIRED || code == ERROR_REVOKED ||
		      code == ERROR_RELEASED || code == ERROR_SESSION_ENDED ||
		      code == ERROR_NO_LEASE);
	}
}

static void race_round(struct race *race, bool disconnect)
{
	uint64_t request_id;

	race_open(race);
	if (!test_has_failed())
		race_acquire(race);
	if (test_has_failed() || race->ids[0] == 0)
		return;
	request_id = race_fire(race, disconnect);
	race_collect_orders(race);
	if (test_has_failed())
		return;
	if (disconnect) {
		race->won[WINNER_UNSEEN] += BATCH;
		race->disconnects++;
		race_close(race);
	} else {
		race_collect(race, request_id);
	}
}

TEST(field_01_race__exactly_one_invalidate_per_bind)
{
	HARNESS(h, .extra = "\"revoke_grace\": \"1ms\", \"lane_wait_min\": \"0\"");
	__attribute__((cleanup(race_end))) struct race race = {0};
	uint32_t rounds = harness_figure(FIGURE_RACE_ROUNDS);
	uint64_t begun_ns = clock_now_ns();

	srand(3);
	CHECK_INT(order_open(&race.order, &h), 0);
	for (uint32_t i = 0; i < rounds && !test_has_failed(); i += BATCH)
		race_round(&race, i / BATCH % 10 == 9);
	CHECK(!test_has_failed());
	printf("# %u rounds in %.1f s; won by", rounds, (double)(clock_now_ns() - begun_ns) / 1e9);
	for (int i = 0; i < WINNERS; i++)
		printf(" %s: %" PRIu64, winner_names[i], race.won[i]);
	printf("\n");
	/* If one of them always won there was no race. */
	for (int i = 0; i < WINNERS; i++)
		CHECK(race.won[i] > 0);
	race_close(&race);
	accounts_check(&h);
	CHECK(!test_has_failed());
	CHECK_INT(harness_number(&h, "counters.destroy_failures"), 0);
	CHECK_INT(harness_stop(&h), 0);
}
