/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Somebody has recorded a tenant's greeting and sends it again and again. The daemon cannot
 * know it from a fresh one and answers; but nothing is the tenant's doing before the first
 * message that only the tenant can have made. Until then only the address pays.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "common/clock.h"
#include "proto/error.h"
#include "tests/integration/accounts.h"
#include "tests/integration/harness.h"
#include "tests/integration/peer.h"
#include "tests/integration/tenants.h"
#include "tests/redteam/relay.h"

#define VICTIM	  "victim"
#define REPLAYS	  50
#define CALL_MS	  20000
#define ANSWER_MS 5000
#define LATE_MS	  20000

/* The ban of the address is the test's to choose. */
#define LIMITS                                                                      \
	"\"ban_backoff_min\": \"0\", \"heartbeat\": \"0\", \"ban_time\": \"2s\", "  \
	"\"handshake_timeout\": \"1min\", \"connections_max_per_address\": 65536, " \
	"\"handshakes_max\": 65536, \"handshakes_max_per_address\": 65536, "

/* What he has seen of one session. */
struct loot {
	uint8_t request[PROTO_PRIVATE_DATA_MAX];
	uint8_t request_bytes;
	uint8_t hello[PROTO_FRAME_MAX];
	uint32_t hello_bytes;
	uint8_t next[PROTO_FRAME_MAX]; /* the client's first request */
	uint32_t next_bytes;
};

static int connect_victim(mempool **ret_pool)
{
	struct mempool_connect_opts opts = {.timeout_ms = CALL_MS};
	struct harness_keys keys;

	harness_keys(VICTIM, &keys, &opts);
	return mempool_connect(harness_endpoint(), &opts, ret_pool);
}

static void take(const struct relay *relay, uint32_t number, uint8_t *buf, uint32_t cap_bytes,
		 uint32_t *ret_len_bytes)
{
	const struct relay_record *record = relay_find(relay, 1, RELAY_TO_DAEMON, number);

	CHECK(record != NULL);
	CHECK(record->len_bytes <= cap_bytes);
	memcpy(buf, record->bytes, record->len_bytes);
	*ret_len_bytes = record->len_bytes;
}

static void record_session(struct loot *loot)
{
	__attribute__((cleanup(relay_close))) struct relay relay = {0};
	mempool *pool = NULL;
	uint32_t len_bytes = 0;

	CHECK_INT(relay_open(&relay, NULL, NULL), 0);
	relay_divert(1);
	CHECK_INT(connect_victim(&pool), 0);
	mempool_close(pool);
	CHECK(relay_wait_idle(&relay, LATE_MS));
	CHECK(!relay.failed);
	take(&relay, RELAY_PRIVATE_DATA, loot->request, sizeof(loot->request), &len_bytes);
	loot->request_bytes = (uint8_t)len_bytes;
	take(&relay, 0, loot->hello, sizeof(loot->hello), &loot->hello_bytes);
	take(&relay, 1, loot->next, sizeof(loot->next), &loot->next_bytes);
}

/* Return: bytes of the answer that has come; 0: none in time; or a negative errno */
static int wait_answer(struct raw *raw)
{
	uint64_t until_ns = clock_add_ms(clock_now_ns(), ANSWER_MS);
	uint8_t bytes[PROTO_FRAME_MAX];
	uint32_t len_bytes = 0;
	int r = 0;

	while (r == 0 && clock_now_ns() < until_ns) {
		r = raw_take(raw, bytes, &len_bytes);
		if (r == 0)
			harness_sleep_ms(1);
	}
	return r == 1 ? (int)len_bytes : r;
}

/* @raw: stays open, greeted and no further; Return: 0, the code of a reject, or negative errno */
static int replay(struct raw *raw, const struct loot *loot)
{
	int r = raw_connect(raw, loot->request, loot->request_bytes);

	if (r == 0)
		r = raw_send(raw, loot->hello, loot->hello_bytes);
	if (r != 0)
		return r;
	r = wait_answer(raw);
	/* A welcome that he cannot read; an error in clear would be shorter. */
	return r >= 48 + (int)MESSAGE_HEADER_BYTES + 60 ? 0 : r < 0 ? r : -EPROTO;
}

static void use(mempool *pool)
{
	mempool_lease *lease;
	uint8_t byte = 1;

	CHECK_INT(harness_acquire(pool, 1, 60000, &lease), 0);
	CHECK_INT(mempool_write(lease, 0, &byte, 1), 0);
	CHECK_INT(mempool_release(lease), 0);
}

static void close_all(struct raw (*raws)[REPLAYS])
{
	for (int i = 0; i < REPLAYS; i++)
		raw_close(&(*raws)[i]);
}

/* All of them at the same time, beside the one session that the tenant may have. */
TEST(replay__of_a_greeting_costs_the_tenant_nothing)
{
	HARNESS(h, .limits = LIMITS "\"ban_after\": 0", .sessions_max = REPLAYS + 10);
	__attribute__((cleanup(close_all))) struct raw raws[REPLAYS] = {0};
	struct loot loot = {0};
	mempool *pool = NULL;
	mempool *second = NULL;

	record_session(&loot);
	CHECK(!test_has_failed());
	CHECK(harness_wait_number(&h, "sessions", 0, LATE_MS));
	for (int i = 0; i < REPLAYS; i++)
		CHECK_INT(replay(&raws[i], &loot), 0);
	CHECK_INT(harness_number(&h, "sessions"), REPLAYS);
	CHECK_INT(tenants_number(&h, VICTIM, "charged.sessions"), 0);
	CHECK_INT(tenants_quota(&h, VICTIM, "{\"sessions\": 1}"), 0);
	CHECK_INT(connect_victim(&pool), 0);
	use(pool);
	CHECK_INT(connect_victim(&second), MEMPOOL_E_QUOTA_SESSIONS);
	/* What he has recorded of the rest is of no more use, and costs the tenant nothing. */
	for (int i = 0; i < REPLAYS; i++)
		CHECK_INT(raw_send(&raws[i], loot.next, loot.next_bytes), 0);
	CHECK(harness_wait_number(&h, "sessions", 1, LATE_MS));
	use(pool);
	CHECK(!test_has_failed());
	CHECK_INT(tenants_number(&h, VICTIM, "strikes"), 0);
	CHECK_INT(harness_number(&h, "counters.strikes"), 0);
	CHECK_INT(harness_number(&h, "counters.protocol_errors"), 0);
	/* The first, which was recorded, and the one that works. */
	CHECK_INT(harness_count_log(&h, "event=session-opened tenant=" VICTIM, NULL), 2);
	mempool_close(pool);
	CHECK(harness_wait_number(&h, "sessions", 0, LATE_MS));
	CHECK_INT(connect_victim(&pool), 0);
	mempool_close(pool);
	accounts_check(&h);
	CHECK(!test_has_failed());
	CHECK_INT(harness_stop(&h), 0);
}

static void replay_and_leave(struct harness *h, const struct loot *loot)
{
	__attribute__((cleanup(raw_close))) struct raw raw = {0};

	CHECK_INT(replay(&raw, loot), 0);
	raw_close(&raw);
	CHECK(harness_wait_number(h, "sessions", 0, LATE_MS));
}

/* One success takes one failure back: that of the recorded session comes before the failures. */
TEST(replay__of_a_greeting_costs_the_address)
{
	HARNESS(h, .limits = LIMITS "\"ban_after\": 50");
	__attribute__((cleanup(raw_close))) struct raw raw = {0};
	struct loot loot = {0};
	mempool *pool = NULL;
	uint64_t begun_ns;
	int r;

	record_session(&loot);
	CHECK(!test_has_failed());
	CHECK(harness_wait_number(&h, "sessions", 0, LATE_MS));
	for (int i = 0; i < REPLAYS; i++) {
		CHECK_INT(harness_count_log(&h, "event=address-banned", NULL), 0);
		replay_and_leave(&h, &loot);
		CHECK(!test_has_failed());
	}
	begun_ns = clock_now_ns();
	CHECK_INT(harness_count_log(&h, "event=address-banned", NULL), 1);
	CHECK_INT(raw_connect(&raw, loot.request, loot.request_bytes), ERROR_BANNED);
	raw_close(&raw);
	/* Banned for as long as was configured, and then it begins anew. */
	do {
		harness_sleep_ms(20);
		r = raw_connect(&raw, loot.request, loot.request_bytes);
		raw_close(&raw);
	} while (r == ERROR_BANNED && clock_now_ns() < begun_ns + LATE_MS * CLOCK_NS_PER_MS);
	printf("# S6 the address was banned for %.2f s\n",
	       (double)(clock_now_ns() - begun_ns) / 1e9);
	CHECK_INT(r, 0);
	CHECK(clock_now_ns() - begun_ns > 1900 * CLOCK_NS_PER_MS);
	CHECK(clock_now_ns() - begun_ns < 4000 * CLOCK_NS_PER_MS);
	CHECK_INT(connect_victim(&pool), 0);
	use(pool);
	mempool_close(pool);
	CHECK_INT(harness_number(&h, "counters.strikes"), 0);
	CHECK_INT(harness_count_log(&h, "event=tenant-banned", NULL), 0);
	accounts_check(&h);
	CHECK(!test_has_failed());
	CHECK_INT(harness_stop(&h), 0);
}
