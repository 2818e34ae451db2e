/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Clients that leave without a word: hundreds at once, and some before their connection is
 * made. All of it is cleared away in time, and nothing holds the daemon up.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include "common/clock.h"
#include "proto/error.h"
#include "tests/integration/accounts.h"
#include "tests/integration/harness.h"
#include "tests/integration/log_lines.h"
#include "tests/integration/peer.h"
#include "tests/integration/resources.h"

#define PAGE	 4096
#define TTL_MS	 600000
#define LIMIT_MS 60000

/* Many at once. */

#define LEAVING_MAX 500

struct tenants {
	uint32_t count;
	struct {
		struct peer peer;
		struct peer_lane lane;
	} all[LEAVING_MAX];
};

static void tenants_close(struct tenants **tenants)
{
	for (uint32_t i = 0; *tenants != NULL && i < (*tenants)->count; i++) {
		peer_lane_close(&(*tenants)->all[i].lane);
		peer_close(&(*tenants)->all[i].peer);
	}
	free(*tenants);
	*tenants = NULL;
}

static void tenants_open(struct tenants *tenants, uint32_t count)
{
	while (tenants->count < count) {
		struct peer *peer = &tenants->all[tenants->count].peer;
		struct peer_lane *lane = &tenants->all[tenants->count].lane;
		struct message_grant grant;

		tenants->count++;
		CHECK_INT(peer_open(peer, "storm", NULL), 0);
		CHECK_INT(peer_lane_open(peer, lane), 0);
		CHECK_INT(peer_acquire(peer, lane, PAGE, TTL_MS, 0, &grant), 0);
	}
}

/* Four descriptors for each, and some for everything else. */
static bool allow_descriptors(uint32_t tenants)
{
	struct rlimit limit = {.rlim_cur = 4 * tenants + 200, .rlim_max = 4 * tenants + 200};
	struct rlimit now;

	return getrlimit(RLIMIT_NOFILE, &now) == 0 &&
	       (now.rlim_cur >= limit.rlim_cur || setrlimit(RLIMIT_NOFILE, &limit) == 0);
}

/* @ret_longest_us: that an answer of the daemon took meanwhile; it comes between two turns */
static void wait_until_gone(struct harness *h, uint64_t *ret_longest_us)
{
	uint64_t until_ns = clock_add_ms(clock_now_ns(), LIMIT_MS);
	int64_t left = 1;

	*ret_longest_us = 0;
	while (left != 0) {
		uint64_t asked_ns = clock_now_ns();
		uint64_t took_us;

		left = harness_number(h, "sessions");
		took_us = (clock_now_ns() - asked_ns) / 1000;
		if (took_us > *ret_longest_us)
			*ret_longest_us = took_us;
		CHECK(clock_now_ns() < until_ns);
	}
}

/* The longest turn is of the daemon's whole life, so another may have been longer before. */
TEST(field_12_disconnect__hundreds_at_once)
{
	HARNESS(h, .sessions_max = LEAVING_MAX,
		.extra = "\"control_receives\": 8, \"lane_send_queue\": 16");
	__attribute__((cleanup(tenants_close))) struct tenants *tenants = NULL;
	uint32_t count = harness_figure(FIGURE_LEAVING_SESSIONS);
	uint64_t begun_ns = clock_now_ns();
	int64_t limit_us = 1000 * (int64_t)harness_figure(FIGURE_LEAVING_MS);
	uint64_t answer_us;
	int64_t before_us, turn_us;

	if (!allow_descriptors(count))
		SKIP("not enough descriptors are allowed");
	tenants = calloc(1, sizeof(*tenants));
	CHECK(tenants != NULL);
	tenants_open(tenants, count);
	CHECK(!test_has_failed());
	CHECK_INT(harness_number(&h, "sessions"), count);
	CHECK_INT(harness_number(&h, "leases.active"), count);
	before_us = harness_number(&h, "longest_turn_us");
	printf("# %u tenants came in %" PRIu64 " ms; longest turn so far %" PRId64 " us\n", count,
	       harness_since_ms(begun_ns), before_us);
	begun_ns = clock_now_ns();
	for (uint32_t i = 0; i < count; i++)
		CHECK_INT(rdma_disconnect(tenants->all[i].peer.control.id), 0);
	printf("# and left in %" PRIu64 " ms\n", harness_since_ms(begun_ns));
	wait_until_gone(&h, &answer_us);
	CHECK(!test_has_failed());
	CHECK(harness_wait_number(&h, "lanes", 0, LIMIT_MS));
	turn_us = harness_number(&h, "longest_turn_us");
	printf("# all is over after %" PRIu64 " ms; longest turn %" PRId64
	       " us, longest answer %" PRIu64 " us\n",
	       harness_since_ms(begun_ns), turn_us, answer_us);
	CHECK(turn_us == before_us || turn_us < limit_us);
	CHECK(answer_us < (uint64_t)limit_us);
	tenants_close(&tenants);
	accounts_check(&h);
	CHECK(!test_has_failed());
	CHECK_INT(harness_number(&h, "counters.destroy_failures"), 0);
	CHECK_INT(harness_stop(&h), 0);
}

/* Before the connection is made. */

#define EVENT_MS 10000

/* A connection that nobody waits for. All zero: none. */
struct attempt {
	struct rdma_event_channel *channel;
	struct rdma_cm_id *id;
	struct ibv_pd *pd;
	struct verbs_cq cq;
};

static void attempt_close(struct attempt *attempt)
{
	if (attempt->id != NULL) {
		if (attempt->id->qp != NULL)
			rdma_destroy_qp(attempt->id);
		(void)rdma_destroy_id(attempt->id);
	}
	(void)verbs_cq_deinit(&attempt->cq);
	if (attempt->pd != NULL)
		(void)ibv_dealloc_pd(attempt->pd);
	if (attempt->channel != NULL)
		rdma_destroy_event_channel(attempt->channel);
	*attempt = (struct attempt){0};
}

static bool attempt_wait(struct attempt *attempt)
{
	struct pollfd fd = {.fd = attempt->channel->fd, .events = POLLIN};

	return poll(&fd, 1, EVENT_MS) == 1;
}

static bool attempt_expect(struct attempt *attempt, enum rdma_cm_event_type type)
{
	struct rdma_cm_event *event;
	bool came;

	if (!attempt_wait(attempt) || rdma_get_cm_event(attempt->channel, &event) != 0)
		return false;
	came = event->event == type;
	return rdma_ack_cm_event(event) == 0 && came;
}

static void attempt_resolve(struct attempt *attempt)
{
	struct sockaddr_in peer = {.sin_family = AF_INET, .sin_port = htons(HARNESS_PORT)};

	CHECK_INT(inet_pton(AF_INET, harness_address(), &peer.sin_addr), 1);
	attempt->channel = rdma_create_event_channel();
	CHECK(attempt->channel != NULL);
	CHECK_INT(rdma_create_id(attempt->channel, &attempt->id, attempt, RDMA_PS_TCP), 0);
	CHECK_INT(rdma_resolve_addr(attempt->id, NULL, (struct sockaddr *)&peer, EVENT_MS), 0);
	CHECK(attempt_expect(attempt, RDMA_CM_EVENT_ADDR_RESOLVED));
	CHECK_INT(rdma_resolve_route(attempt->id, EVENT_MS), 0);
	CHECK(attempt_expect(attempt, RDMA_CM_EVENT_ROUTE_RESOLVED));
}

/* A connect request as it should be; whether an answer comes is not looked at. */
static void attempt_connect(struct attempt *attempt)
{
	struct private_data data = {
		.kind = PRIVATE_DATA_CONTROL,
		.version = PROTO_VERSION,
		.version_min = PROTO_VERSION_MIN,
	};
	struct ibv_qp_init_attr attr = {
		.qp_type = IBV_QPT_RC,
		.cap = {.max_send_wr = 1, .max_recv_wr = 1, .max_send_sge = 1, .max_recv_sge = 1},
	};
	uint8_t bytes[PROTO_PRIVATE_DATA_MAX];
	struct rdma_conn_param param = {
		.private_data = bytes,
		.private_data_len = private_data_encode(&data, bytes),
		.retry_count = 5,
		.rnr_retry_count = 6,
	};

	attempt_resolve(attempt);
	CHECK(!test_has_failed());
	attempt->pd = ibv_alloc_pd(attempt->id->verbs);
	CHECK(attempt->pd != NULL);
	CHECK_INT(verbs_cq_init(&attempt->cq, attempt->id->verbs, 2), 0);
	attr.send_cq = attempt->cq.cq;
	attr.recv_cq = attempt->cq.cq;
	CHECK_INT(rdma_create_qp(attempt->id, attempt->pd, &attr), 0);
	CHECK_INT(rdma_connect(attempt->id, &param), 0);
}

enum vanishing {
	VANISH_AT_ONCE,	      /* right after the request */
	VANISH_UNSEEN,	      /* before the daemon has looked at the request */
	VANISH_WHEN_ACCEPTED, /* when the daemon has accepted and waits for our last word */
	VANISH_WAYS,
};

static void vanish(const struct harness *h, enum vanishing way)
{
	__attribute__((cleanup(attempt_close))) struct attempt attempt = {0};

	if (way == VANISH_UNSEEN)
		CHECK_INT(kill(h->pid, SIGSTOP), 0);
	attempt_connect(&attempt);
	if (!test_has_failed() && way == VANISH_WHEN_ACCEPTED)
		CHECK(attempt_wait(&attempt));
	attempt_close(&attempt);
	if (way == VANISH_UNSEEN)
		CHECK_INT(kill(h->pid, SIGCONT), 0);
}

static void vanish_often(struct harness *h, const struct resources *before, enum vanishing way,
			 uint32_t rounds)
{
	int64_t errors = harness_number(h, "counters.connections_failed");
	uint64_t begun_ns = clock_now_ns();
	struct resources after;

	for (uint32_t i = 0; i < rounds && !test_has_failed(); i++)
		vanish(h, way);
	CHECK(!test_has_failed());
	printf("# way %d: %u clients in %" PRIu64 " ms", (int)way, rounds,
	       harness_since_ms(begun_ns));
	begun_ns = clock_now_ns();
	CHECK(harness_wait_number(h, "sessions", 0, LIMIT_MS));
	errors = harness_number(h, "counters.connections_failed") - errors;
	printf(", gone %" PRIu64 " ms later, with %" PRId64 " errors\n", harness_since_ms(begun_ns),
	       errors);
	/* Those that the daemon has accepted all end in one, in whichever way that comes. */
	CHECK(way != VANISH_WHEN_ACCEPTED || errors == (int64_t)rounds);
	CHECK_INT(harness_number(h, "counters.destroy_failures"), 0);
	if (before == NULL)
		return;
	/* Ids can be destroyed only when each of their events has been acknowledged. */
	begun_ns = clock_now_ns();
	do
		CHECK(resources_read(&after));
	while (!resources_equal(before, &after) && harness_since_ms(begun_ns) < 10000);
	resources_print("after", &after);
	CHECK(resources_equal(before, &after));
}

TEST(field_33_disconnect__before_it_is_connected)
{
	HARNESS(h, .pool_size = NULL);
	uint32_t rounds = harness_figure(FIGURE_CYCLES);
	struct resources before;
	uint64_t begun_ns;
	bool can_count;

	/* Once before, for what this process opens and keeps open. */
	vanish(&h, VANISH_AT_ONCE);
	CHECK(harness_wait_number(&h, "sessions", 0, LIMIT_MS));
	can_count = resources_read(&before);
	for (enum vanishing way = 0; way < VANISH_WAYS && !test_has_failed(); way++)
		vanish_often(&h, can_count ? &before : NULL, way, rounds);
	CHECK(!test_has_failed());
	begun_ns = clock_now_ns();
	CHECK_INT(harness_stop(&h), 0);
	printf("# stopped in %" PRIu64 " ms\n", harness_since_ms(begun_ns));
	CHECK(harness_since_ms(begun_ns) < 1000);
}

/* Which, how it went wrong, and with whom: one line for each connection. */
TEST(field_54_log__connection_that_is_not_made)
{
	HARNESS(h, .sessions_max = 1);
	char line[HARNESS_TEXT_MAX];
	char peer[HARNESS_TEXT_MAX];
	struct private_data data = {
		.kind = PRIVATE_DATA_CONTROL,
		.version = PROTO_VERSION + 1,
		.version_min = PROTO_VERSION + 1,
	};
	struct raw raw;
	int r;

	snprintf(peer, sizeof(peer), " peer=%s:", harness_address());
	CHECK_INT(log_lines_count(&h, "connection not made"), 0);
	vanish(&h, VANISH_WHEN_ACCEPTED);
	CHECK(!test_has_failed());
	CHECK(log_lines_wait(&h, "connection not made", 1, LIMIT_MS));
	CHECK(log_lines_last(&h, "connection not made", line, sizeof(line)));
	printf("# %s", line);
	CHECK(strstr(line, peer) != NULL);
	CHECK(strstr(line, " event=RDMA_CM_EVENT_") != NULL);
	CHECK(strstr(line, " status=") != NULL);
	CHECK(strstr(line, " info: ") != NULL || strstr(line, "<6>") != NULL);
	CHECK_INT(log_lines_count(&h, "connection rejected"), 0);
	r = raw_connect_as(&raw, &data);
	raw_close(&raw);
	CHECK_INT(r, ERROR_VERSION);
	CHECK(log_lines_last(&h, "connection rejected", line, sizeof(line)));
	printf("# %s", line);
	CHECK(strstr(line, peer) != NULL);
	CHECK(strstr(line, " reason=version") != NULL);
}
