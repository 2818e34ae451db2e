/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Somebody sits between a client and the daemon. What he records tells him nothing, and
 * whatever he does to the messages ends that session, with the right code at the end that is
 * hit, and nothing else.
 */
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/clock.h"
#include "proto/error.h"
#include "tests/integration/accounts.h"
#include "tests/integration/harness.h"
#include "tests/integration/keys.h"
#include "tests/integration/peer.h"
#include "tests/integration/proof.h"
#include "tests/redteam/figures.h"
#include "tests/redteam/plan.h"
#include "tests/redteam/relay.h"
#include "tests/redteam/worker.h"

#define VICTIM	      "victim"
#define LEASE_BYTES   6000
#define TTL_MS	      600000
#define ROUNDS_MAX    24 /* each with three requests */
#define CALL_MS	      8000
#define DIVERTED_MS   2000
#define IDLE_MS	      10000
#define LEASES_LOOKED 8

/* All clients of a test share one address; else as by default, but quicker. */
#define LIMITS                                                                     \
	"\"ban_after\": 0, \"ban_backoff_min\": \"0\", \"heartbeat\": \"500ms\", " \
	"\"handshake_timeout\": \"1s\", \"connections_max_per_address\": 65536, "  \
	"\"handshakes_max\": 65536, \"handshakes_max_per_address\": 65536"

#define RELAY(name, pass, context)                                     \
	__attribute__((cleanup(relay_close))) struct relay name = {0}; \
	CHECK_INT(relay_open(&name, pass, context), 0)

/* A client that does not know that it has been diverted. */
struct victim {
	mempool *pool;
	uint32_t tried;	  /* acquires */
	uint32_t granted; /* of these */
	uint32_t wrong;	  /* what was not as the daemon must have said it */
	struct message_descriptor seen[LEASES_LOOKED];
	int code; /* with which it ended; 0: it did all its rounds */
	char text[512];
};

static bool victim_failed(struct victim *victim, int r)
{
	/* The lane has been lost on the way: that may be tried again. */
	if (r == 0 || r == MEMPOOL_E_LANE)
		return false;
	victim->code = r;
	(void)snprintf(victim->text, sizeof(victim->text), "%s", mempool_last_error());
	return true;
}

static bool victim_use(struct victim *victim, mempool_lease *lease, uint8_t mark)
{
	uint8_t sent[LEASE_BYTES];
	uint8_t got[LEASE_BYTES];
	int r;

	memset(sent, mark, sizeof(sent));
	r = mempool_write(lease, 0, sent, sizeof(sent));
	if (r == 0)
		r = mempool_read(lease, 0, got, sizeof(got));
	if (r == 0)
		victim->wrong += memcmp(sent, got, sizeof(sent)) != 0;
	return !victim_failed(victim, r);
}

static void victim_look(struct victim *victim, mempool_lease *lease)
{
	struct mempool_lease_info info = {.size = sizeof(info)};

	(void)mempool_lease_info(lease, &info);
	victim->wrong += info.len_bytes != LEASE_BYTES || info.ttl_left_ms > TTL_MS ||
			 info.ttl_left_ms < TTL_MS / 2 ||
			 info.rights != (MEMPOOL_READ | MEMPOOL_WRITE);
	victim->seen[victim->granted++ % LEASES_LOOKED] = proof_descriptor(lease);
}

/* Return: does the session go on? */
static bool victim_round(struct victim *victim, uint8_t mark)
{
	mempool_lease *lease;

	victim->tried++;
	if (victim_failed(victim, harness_acquire(victim->pool, LEASE_BYTES, TTL_MS, &lease)))
		return false;
	victim_look(victim, lease);
	if (!victim_use(victim, lease, mark) || victim_failed(victim, mempool_renew(lease, TTL_MS)))
		return false;
	return !victim_failed(victim, mempool_release(lease));
}

static int victim_connect(struct victim *victim)
{
	struct mempool_connect_opts opts = {.timeout_ms = CALL_MS};
	struct harness_keys keys;

	harness_keys(VICTIM, &keys, &opts);
	relay_divert(1);
	return mempool_connect(harness_endpoint(), &opts, &victim->pool);
}

static void victim_run(struct victim *victim, int rounds)
{
	if (victim_failed(victim, victim_connect(victim)))
		return;
	for (int i = 0; i < rounds && victim_round(victim, (uint8_t)(i + 1)); i++)
		;
	mempool_close(victim->pool);
}

/* What is recorded. */

/* The numbers as they are sent, and as a big-endian machine would have them. */
static unsigned int count_number(const struct relay *relay, uint32_t session, uint64_t value,
				 size_t len_bytes)
{
	uint8_t little[8];
	uint8_t big[8];

	for (size_t i = 0; i < len_bytes; i++) {
		little[i] = (uint8_t)(value >> 8 * i);
		big[len_bytes - 1 - i] = little[i];
	}
	return relay_count(relay, session, little, len_bytes) +
	       relay_count(relay, session, big, len_bytes);
}

static unsigned int count_descriptor(const struct relay *relay, uint32_t session,
				     const struct message_descriptor *at)
{
	return count_number(relay, session, at->remote_addr, 8) +
	       count_number(relay, session, at->rkey, 4);
}

/* Would it be found, if a grant went in clear? */
static void check_search(const struct message_descriptor *at)
{
	struct message m = {.type = MESSAGE_GRANT, .request_id = 7};
	uint8_t bytes[PROTO_MESSAGE_MAX];
	struct relay_record record = {.session = 1, .bytes = bytes};
	struct relay relay = {.records = &record, .count = 1};
	size_t len_bytes;

	m.u.grant = (struct message_grant){
		.lease_id = 1,
		.len_bytes = at->len_bytes,
		.ttl_ms = 1,
		.generation = 1,
		.rights = MESSAGE_RIGHT_READ,
		.descriptor_count = 1,
		.descriptors = {*at},
	};
	CHECK_INT(message_encode(&m, bytes, sizeof(bytes), &len_bytes), 0);
	record.len_bytes = (uint32_t)len_bytes;
	CHECK_INT(count_descriptor(&relay, 1, at), 2);
}

TEST(middle__learns_nothing)
{
	HARNESS(h, .limits = LIMITS);
	RELAY(relay, NULL, NULL);
	struct victim victim = {0};
	struct secure_key_pair key;
	uint64_t bytes = 0;

	victim_run(&victim, LEASES_LOOKED);
	CHECK(relay_wait_idle(&relay, IDLE_MS));
	CHECK_INT(victim.code, 0);
	CHECK_INT(victim.granted, LEASES_LOOKED);
	CHECK_INT(victim.wrong, 0);
	for (size_t i = 0; i < relay.count; i++)
		bytes += relay.records[i].len_bytes;
	printf("# S6 recorded: %zu pieces, %" PRIu64 " bytes\n", relay.count, bytes);
	CHECK(relay.count > 2 * 3 * LEASES_LOOKED);
	CHECK(relay_count(&relay, 1, "mpld", 4) == 2);
	check_search(&victim.seen[0]);
	for (int i = 0; i < LEASES_LOOKED; i++) {
		CHECK(victim.seen[i].remote_addr != 0 && victim.seen[i].rkey != 0);
		CHECK_INT(count_descriptor(&relay, 1, &victim.seen[i]), 0);
	}
	keys_of(VICTIM, &key);
	CHECK_INT(relay_count(&relay, 0, VICTIM, strlen(VICTIM)), 0);
	CHECK_INT(relay_count(&relay, 0, key.public_key, sizeof(key.public_key)), 0);
	CHECK(!relay.failed);
	accounts_check(&h);
	CHECK(!test_has_failed());
	CHECK_INT(harness_stop(&h), 0);
}

/* One after the other. */

struct tally {
	uint64_t mutations[PLAN_MUTATIONS];
	uint64_t tried; /* acquires */
	uint64_t granted;
	uint64_t
		daemon_hit; /* sessions that the daemon must have ended for what it could not open */
	uint64_t may_greet;
};

static void mutate_once(struct relay *relay, struct plan *plan, struct tally *tally)
{
	struct victim victim = {0};
	uint64_t begun_ns = clock_now_ns();

	(void)pthread_mutex_lock(&relay->lock);
	relay->context = plan;
	(void)pthread_mutex_unlock(&relay->lock);
	victim_run(&victim, ROUNDS_MAX);
	CHECK(relay_wait_idle(relay, IDLE_MS));
	if (victim.code != plan_code(plan) || !plan_text_is_right(plan, victim.text) ||
	    clock_now_ns() - begun_ns > CALL_MS * CLOCK_NS_PER_MS)
		printf("# %s SEND %u to the %s: %d, %s (%.1f s)\n",
		       plan_mutation_name(plan->mutation), plan->number,
		       plan->side == RELAY_TO_DAEMON ? "daemon" : "client", victim.code,
		       victim.text, (double)(clock_now_ns() - begun_ns) / 1e9);
	CHECK(plan->done);
	CHECK_INT(victim.code, plan_code(plan));
	CHECK(plan_text_is_right(plan, victim.text));
	CHECK_INT(victim.wrong, 0);
	CHECK(!relay->failed);
	tally->mutations[plan->mutation]++;
	tally->tried += victim.tried;
	tally->granted += victim.granted;
	tally->daemon_hit += plan_hits_daemon(plan) && !plan_may_greet(plan);
	tally->may_greet += plan_may_greet(plan);
	if (getenv("TEST_LOG") != NULL)
		printf("# %s SEND %u to the %s\n", plan_mutation_name(plan->mutation), plan->number,
		       plan->side == RELAY_TO_DAEMON ? "daemon" : "client");
}

static void tally_check(struct harness *h, const struct tally *tally)
{
	uint64_t hit = (uint64_t)harness_number(h, "counters.messages_unopened");
	uint64_t granted = (uint64_t)harness_number(h, "counters.leases_granted");

	for (int i = 0; i < PLAN_MUTATIONS; i++)
		printf("#   %s: %" PRIu64 "\n", plan_mutation_name((enum plan_mutation)i),
		       tally->mutations[i]);
	printf("# S6 the daemon has ended %" PRIu64
	       " sessions for what it could not open, of %" PRIu64 " to %" PRIu64
	       " that it should; %" PRIu64 " leases asked for, %" PRIu64 " granted, %" PRIu64
	       " of these told\n",
	       hit, tally->daemon_hit, tally->daemon_hit + tally->may_greet, tally->tried,
	       granted - 1, tally->granted);
	CHECK(hit >= tally->daemon_hit && hit <= tally->daemon_hit + tally->may_greet);
	/* The one of the tenant at work comes on top. */
	CHECK(granted >= tally->granted + 1 && granted <= tally->tried + 1);
	/* A message that is not the client's own would have made no sense now and then. */
	CHECK_INT(harness_number(h, "counters.protocol_errors"), 0);
	CHECK_INT(harness_number(h, "counters.strikes"), 0);
}

TEST(middle__every_change_ends_the_session)
{
	HARNESS(h, .limits = LIMITS);
	WORKER(worker, "bystander");
	struct plan plan = {.done = true};
	RELAY(relay, plan_pass, &plan);
	struct victim undisturbed = {0};
	struct tally tally = {0};
	uint64_t count = figure(1000);
	uint64_t begun_ns = clock_now_ns();

	CHECK_INT(worker_start(worker), 0);
	victim_run(&undisturbed, PLAN_NUMBERS);
	CHECK_INT(undisturbed.code, 0);
	tally.tried = tally.granted = PLAN_NUMBERS;
	for (uint64_t i = 0; i < count; i++) {
		plan = plan_make((unsigned int)i);
		mutate_once(&relay, &plan, &tally);
		CHECK(!test_has_failed());
		CHECK_INT(atomic_load(&worker->code), 0);
	}
	worker_stop(worker);
	printf("# S6 %" PRIu64 " mutations in %.0f s; meanwhile %zu writes and reads of another\n",
	       count, (double)(clock_now_ns() - begun_ns) / 1e9, atomic_load(&worker->count));
	CHECK_INT(harness_number(&h, "pid"), h.pid);
	CHECK_INT(atomic_load(&worker->wrong), 0);
	tally_check(&h, &tally);
	CHECK(!test_has_failed());
	worker_close(worker);
	accounts_check(&h);
	CHECK(!test_has_failed());
	CHECK_INT(harness_stop(&h), 0);
}

/* What anybody on the way can make: a refusal in clear, in place of the daemon's answer. */

static void pass_forged(struct relay *relay, const struct relay_record *what)
{
	const uint32_t *number = relay->context;
	struct message m = {.type = MESSAGE_ERROR, .u.error.code = ERROR_BUSY};
	uint8_t bytes[PROTO_MESSAGE_MAX];
	size_t len_bytes;

	if (what->side == RELAY_TO_CLIENT && what->number == *number &&
	    message_encode(&m, bytes, sizeof(bytes), &len_bytes) == 0)
		relay_deliver(relay, what->side, bytes, (uint32_t)len_bytes);
	else
		relay_deliver(relay, what->side, what->bytes, what->len_bytes);
}

static void forge(uint32_t number, int code, const char *text)
{
	HARNESS(h, .limits = LIMITS);
	RELAY(relay, pass_forged, &number);
	struct victim victim = {0};

	victim_run(&victim, 3);
	CHECK(relay_wait_idle(&relay, IDLE_MS));
	printf("# in place of answer %u: %d, %s\n", number, victim.code, victim.text);
	CHECK_INT(victim.code, code);
	CHECK(strstr(victim.text, text) != NULL);
	CHECK(!relay.failed);
	accounts_check(&h);
	CHECK(!test_has_failed());
	CHECK_INT(harness_stop(&h), 0);
}

TEST(middle__refusal_in_clear_in_place_of_the_welcome)
{
	forge(0, MEMPOOL_E_BUSY, error_text(ERROR_BUSY));
}

TEST(middle__refusal_in_clear_later)
{
	forge(1, MEMPOOL_E_SESSION_LOST, "cannot be opened");
	forge(3, MEMPOOL_E_SESSION_LOST, "cannot be opened");
}

/* The versions are in clear, and both ends must have seen the same. */
static void raise_version(uint8_t *bytes, uint8_t len_bytes)
{
	(void)len_bytes;
	bytes[8]++;
}

static void other_kind(uint8_t *bytes, uint8_t len_bytes)
{
	(void)len_bytes;
	bytes[5] ^= 0x40;
}

static void change_private_data(relay_change_fn request, relay_change_fn accept, int code)
{
	HARNESS(h, .limits = LIMITS);
	RELAY(relay, NULL, NULL);
	struct victim victim = {0};

	relay.change_request = request;
	relay.change_accept = accept;
	victim_run(&victim, 1);
	CHECK(relay_wait_idle(&relay, IDLE_MS));
	printf("# %d, %s\n", victim.code, victim.text);
	CHECK_INT(victim.code, code);
	CHECK(!relay.failed);
	accounts_check(&h);
	CHECK(!test_has_failed());
	CHECK_INT(harness_stop(&h), 0);
}

/* The daemon takes what it can of the range that it sees; the greeting then does not fit. */
TEST(middle__other_versions_in_the_request)
{
	change_private_data(raise_version, NULL, MEMPOOL_E_AUTH);
}

TEST(middle__other_version_in_the_accept)
{
	change_private_data(NULL, raise_version, MEMPOOL_E_VERSION);
}

TEST(middle__accept_of_something_else)
{
	change_private_data(NULL, other_kind, MEMPOOL_E_PROTOCOL);
}

/* Lanes. */

TEST(middle__private_data_of_a_lane_is_of_no_use)
{
	HARNESS(h, .limits = LIMITS ", \"lane_offer\": \"1min\"");
	RELAY(relay, NULL, NULL);
	PEER(alpha, "alpha");
	__attribute__((cleanup(peer_lane_close))) struct peer_lane diverted = {0};
	__attribute__((cleanup(peer_lane_close))) struct peer_lane lane = {0};
	__attribute__((cleanup(raw_close))) struct raw later = {0};
	struct message_lane_offer offer;
	const struct relay_record *seen;
	struct message_grant grant;

	CHECK_INT(peer_offer(&alpha, &offer), 0);
	relay_divert(1);
	CHECK_INT(peer_connect(&alpha, &offer, &diverted), ERROR_LANE_OFFER);
	CHECK_INT(relay.lanes_tried, 1);
	CHECK_INT(relay.lanes_opened, 0);
	CHECK_INT(relay.lane_code, ERROR_LANE_OFFER);
	/* That has not used the offer up. */
	CHECK_INT(peer_connect(&alpha, &offer, &lane), 0);
	CHECK_INT(peer_confirm(&alpha, &lane), 0);
	CHECK_INT(peer_acquire(&alpha, &lane, LEASE_BYTES, TTL_MS, 0, &grant), 0);
	CHECK_INT(peer_access(&lane, IBV_WR_RDMA_WRITE, 64, grant.descriptors[0].remote_addr,
			      grant.descriptors[0].rkey),
		  IBV_WC_SUCCESS);
	seen = relay_find(&relay, 0, RELAY_TO_DAEMON, RELAY_PRIVATE_DATA);
	CHECK(seen != NULL);
	CHECK_INT(raw_connect(&later, seen->bytes, (uint8_t)seen->len_bytes), ERROR_LANE_OFFER);
	CHECK(!relay.failed);
	peer_lane_close(&lane);
	peer_lane_close(&diverted);
	peer_close(&alpha);
	accounts_check(&h);
	CHECK(!test_has_failed());
	CHECK_INT(harness_stop(&h), 0);
}

TEST(middle__lane_of_the_library_through_him)
{
	HARNESS(h, .limits = LIMITS);
	RELAY(relay, NULL, NULL);
	struct mempool_connect_opts opts = {.timeout_ms = DIVERTED_MS};
	struct harness_keys keys;
	mempool *pool = NULL;
	int r;

	harness_keys(VICTIM, &keys, &opts);
	relay_divert(INT_MAX); /* it tries for as long as it has time */
	r = mempool_connect(harness_endpoint(), &opts, &pool);
	/* The time may be over between two tries or within one. */
	CHECK(r == MEMPOOL_E_LANE_OFFER || r == MEMPOOL_E_TIMEOUT);
	CHECK(pool == NULL);
	CHECK(relay_wait_idle(&relay, IDLE_MS));
	printf("# %u lanes tried\n", relay.lanes_tried);
	CHECK(relay.lanes_tried >= 2);
	CHECK_INT(relay.lanes_opened, 0);
	CHECK(!relay.failed);
	accounts_check(&h);
	CHECK(!test_has_failed());
	CHECK_INT(harness_stop(&h), 0);
}
