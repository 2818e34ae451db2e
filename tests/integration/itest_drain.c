/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A daemon that empties itself: by order, with and without ending, and when it is told to stop.
 */
#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/clock.h"
#include "proto/error.h"
#include "tests/integration/accounts.h"
#include "tests/integration/harness.h"
#include "tests/integration/log_lines.h"
#include "tests/integration/peer.h"
#include "tests/integration/told.h"

#define PAGE	 4096
#define TTL_MS	 600000
#define LIMIT_MS 10000
#define LONG_MS	 60000
#define DRAIN_MS 1500
#define MANY	 (3 * PROTO_ACQUIRE_LEASES) /* more than a drain ends in one turn */

/* Return: as harness_order(). */
static int drain(struct harness *h, uint64_t limit_ms, bool exits)
{
	return harness_order(
		h, "drain",
		json_pack("{s:I,s:b}", "deadline_ms", (json_int_t)limit_ms, "exit", exits), NULL);
}

static bool is_drain_state(struct harness *h, const char *state)
{
	json_t *status = harness_call(h, "status", NULL);
	json_t *text = json_object_get(json_object_get(status, "drain"), "state");
	bool is = text != NULL && strcmp(json_string_value(text), state) == 0;

	if (!is)
		printf("# state is %s\n", text != NULL ? json_string_value(text) : "unknown");
	json_decref(status);
	return is;
}

/* Wait for a daemon that ends by itself. Return: its exit status, or -ETIMEDOUT. */
static int wait_exit(struct harness *h, uint64_t limit_ms)
{
	uint64_t until_ns = clock_add_ms(clock_now_ns(), limit_ms);
	int status;

	while (waitpid(h->pid, &status, WNOHANG) != h->pid) {
		if (clock_now_ns() >= until_ns)
			return -ETIMEDOUT;
		harness_sleep_ms(10);
	}
	h->pid = 0;
	return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

static int touch(struct peer_lane *lane, const struct message_grant *grant)
{
	return peer_access(lane, IBV_WR_RDMA_READ, 1, grant->descriptors[0].remote_addr,
			   grant->descriptors[0].rkey);
}

static void check_told(struct peer *peer, uint32_t draining, uint64_t most_ms)
{
	struct message m;

	CHECK_INT(peer_take(peer, MESSAGE_DRAIN, 0, LIMIT_MS, &m), 1);
	CHECK_INT(m.u.drain.draining, draining);
	CHECK(m.u.drain.left_ms <= most_ms);
}

static void check_ended(struct peer *peer, uint64_t lease_id)
{
	struct message m;

	CHECK_INT(peer_take(peer, MESSAGE_LEASES_ENDED, 0, LIMIT_MS, &m), 1);
	CHECK_INT(m.u.leases_ended.count, 1);
	CHECK_INT(m.u.leases_ended.ended[0].lease_id, lease_id);
	CHECK_INT(m.u.leases_ended.ended[0].reason, ERROR_DRAINED);
}

/* Renewed to the end of the drain, and used until then; then the device refuses the key. */
static void live_until(struct peer *peer, struct peer_lane *lane, const struct message_grant *grant,
		       uint64_t until_ns)
{
	struct message m = {.type = MESSAGE_RENEW};
	struct message answer;

	m.u.renew.lease_id = grant->lease_id;
	m.u.renew.ttl_ms = TTL_MS;
	CHECK_INT(peer_call(peer, &m, &answer), 0);
	CHECK(answer.u.renew.ttl_ms > 0);
	CHECK(answer.u.renew.ttl_ms <= DRAIN_MS);
	/* A shorter time is what was asked for. */
	m.request_id = 0;
	m.u.renew.ttl_ms = DRAIN_MS / 2;
	if (clock_now_ns() < until_ns - DRAIN_MS * CLOCK_NS_PER_MS * 3 / 4) {
		CHECK_INT(peer_call(peer, &m, &answer), 0);
		CHECK_INT(answer.u.renew.ttl_ms, DRAIN_MS / 2);
		m.request_id = 0;
		m.u.renew.ttl_ms = TTL_MS;
		CHECK_INT(peer_call(peer, &m, &answer), 0);
	}
	CHECK_INT(touch(lane, grant), IBV_WC_SUCCESS);
	check_ended(peer, grant->lease_id);
	CHECK(!test_has_failed());
	CHECK(clock_now_ns() >= until_ns);
	CHECK_INT(touch(lane, grant), IBV_WC_REM_ACCESS_ERR);
	CHECK_INT(peer_renew(peer, grant->lease_id, TTL_MS), ERROR_DRAINED);
}

TEST(drain__deadline_and_undrain)
{
	HARNESS(h, .pool_size = NULL);
	PEER(alpha, "alpha");
	PEER_LANE(lane, &alpha);
	PEER_LANE(other, &alpha);
	struct message_grant grant;
	struct message_grant further;
	uint64_t until_ns;

	CHECK_INT(peer_acquire(&alpha, &lane, PAGE, TTL_MS, 0, &grant), 0);
	until_ns = clock_add_ms(clock_now_ns(), DRAIN_MS);
	CHECK_INT(drain(&h, DRAIN_MS, false), 0);
	CHECK(is_drain_state(&h, "draining"));
	CHECK_INT(harness_number(&h, "drain.leases_left"), 1);
	CHECK(harness_number(&h, "drain.deadline_left_ms") > 0);
	check_told(&alpha, 1, DRAIN_MS);
	CHECK_INT(peer_acquire(&alpha, &lane, PAGE, TTL_MS, 0, &further), ERROR_DRAINING);
	live_until(&alpha, &lane, &grant, until_ns);
	CHECK(harness_wait_number(&h, "drain.leases_left", 0, LIMIT_MS));
	CHECK_INT(harness_number(&h, "leases.active"), 0);
	CHECK(log_lines_wait(&h, "drained", 1, LIMIT_MS));
	CHECK(is_drain_state(&h, "drained"));
	CHECK_INT(peer_acquire(&alpha, &other, PAGE, TTL_MS, 0, &further), ERROR_DRAINING);
	CHECK_INT(harness_order(&h, "undrain", NULL, NULL), 0);
	CHECK(is_drain_state(&h, "serving"));
	check_told(&alpha, 0, 0);
	CHECK_INT(peer_acquire(&alpha, &other, PAGE, TTL_MS, 0, &further), 0);
	CHECK_INT(touch(&other, &further), IBV_WC_SUCCESS);
	CHECK_INT(peer_release(&alpha, further.lease_id), 0);
	peer_lane_close(&other);
	peer_lane_close(&lane);
	peer_close(&alpha);
	accounts_check(&h);
	CHECK_INT(harness_stop(&h), 0);
}

/* Who comes meanwhile is told; who lost the connection gets at its bytes; nothing gets longer. */
TEST(drain__sessions_that_open_meanwhile)
{
	HARNESS(h, .extra = "\"orphan_grace\": \"1min\"");
	PEER(alpha, "alpha");
	PEER_LANE(lane, &alpha);
	struct message_grant grant;
	struct message_grant again;
	struct message m = {.type = MESSAGE_MODIFY};
	struct message answer;

	CHECK_INT(peer_acquire(&alpha, &lane, PAGE, TTL_MS, 0, &grant), 0);
	peer_buffer(&lane)[0] = 0x5a;
	CHECK_INT(peer_access(&lane, IBV_WR_RDMA_WRITE, 1, grant.descriptors[0].remote_addr,
			      grant.descriptors[0].rkey),
		  IBV_WC_SUCCESS);
	CHECK_INT(drain(&h, LONG_MS, false), 0);
	peer_cut(&alpha);
	CHECK(log_lines_wait(&h, "lease orphaned", 1, LIMIT_MS));
	PEER(later, "alpha");
	PEER_LANE(new_lane, &later);
	check_told(&later, 1, LONG_MS);
	CHECK_INT(peer_reattach(&later, &new_lane, &grant, &again), 0);
	peer_buffer(&new_lane)[0] = 0;
	CHECK_INT(touch(&new_lane, &again), IBV_WC_SUCCESS);
	CHECK_INT(peer_buffer(&new_lane)[0], 0x5a);
	m.u.modify.lease_id = grant.lease_id;
	m.u.modify.len_bytes = 2 * PAGE;
	m.u.modify.rights = MESSAGE_RIGHT_READ | MESSAGE_RIGHT_WRITE;
	CHECK_INT(peer_call(&later, &m, &answer), ERROR_DRAINING);
	/* The time is cut short, and everybody is told so. */
	CHECK_INT(drain(&h, 0, false), 0);
	check_told(&later, 1, 0);
	check_ended(&later, grant.lease_id);
	CHECK(harness_wait_number(&h, "drain.leases_left", 0, LIMIT_MS));
	peer_lane_close(&new_lane);
	peer_close(&later);
	peer_lane_close(&lane);
	peer_close(&alpha);
	CHECK_INT(harness_stop(&h), 0);
}

/* What waits for bytes is a new lease, too. Its page-wise scrub takes two seconds. */
TEST(drain__waiting_acquire)
{
	HARNESS(h, .program = "mempoold-seam", .seam = "slow-scrub", .pool_size = "1MiB",
		.extra = "\"scrub_chunk\": \"4KiB\"");
	PEER(alpha, "alpha");
	PEER_LANE(lane, &alpha);
	struct message_grant grant;
	uint64_t id;

	CHECK_INT(peer_acquire(&alpha, &lane, MIB, TTL_MS, 0, &grant), 0);
	CHECK_INT(peer_release(&alpha, grant.lease_id), 0);
	id = peer_ask(&alpha, &lane, MIB, 1, LONG_MS);
	CHECK(id != 0);
	CHECK(harness_wait_number(&h, "leases.active", 1, LIMIT_MS));
	CHECK_INT(drain(&h, LONG_MS, false), 0);
	CHECK_INT(peer_answer(&alpha, id, LIMIT_MS), ERROR_DRAINING);
	CHECK(log_lines_wait(&h, "drained", 1, LIMIT_MS));
	peer_lane_close(&lane);
	peer_close(&alpha);
	CHECK_INT(harness_stop(&h), 0);
}

/* More than one turn's worth, of which some end by themselves. */
TEST(drain__many)
{
	HARNESS(h, .pool_size = NULL);
	PEER(alpha, "alpha");
	PEER_LANE(lane, &alpha);
	struct message m;
	uint32_t ended = 0;
	uint64_t id = 0;

	for (int i = 0; i < MANY / PROTO_ACQUIRE_LEASES; i++) {
		id = peer_ask(&alpha, &lane, PAGE, PROTO_ACQUIRE_LEASES, 0);
		CHECK_INT(peer_answer(&alpha, id, HARNESS_TIMEOUT_MS), 0);
	}
	CHECK(harness_wait_number(&h, "leases.active", MANY, LIMIT_MS));
	CHECK_INT(harness_number(&h, "drain.leases_left"), MANY);
	CHECK_INT(drain(&h, 0, false), 0);
	while (ended < MANY && peer_take(&alpha, MESSAGE_LEASES_ENDED, 0, LIMIT_MS, &m) == 1) {
		for (uint16_t i = 0; i < m.u.leases_ended.count; i++)
			CHECK_INT(m.u.leases_ended.ended[i].reason, ERROR_DRAINED);
		ended += m.u.leases_ended.count;
	}
	CHECK_INT(ended, MANY);
	CHECK(harness_wait_number(&h, "drain.leases_left", 0, LIMIT_MS));
	peer_lane_close(&lane);
	peer_close(&alpha);
	accounts_check(&h);
	CHECK_INT(harness_stop(&h), 0);
}

TEST(drain__orders)
{
	HARNESS(h, .pool_size = NULL);
	static const char *const wrong[] = {
		"{\"deadline_ms\": -1}",	  "{\"deadline_ms\": 2592000001}",
		"{\"deadline_ms\": \"1s\"}",	  "{\"exit\": 1}",
		"{\"deadline_ms\": 1, \"x\": 1}", "{\"deadline_ms\": 1.5}",
	};

	CHECK_INT(harness_order(&h, "undrain", NULL, NULL), 0);
	for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
		char text[HARNESS_TEXT_MAX];

		CHECK_INT(harness_order(&h, "drain", json_loads(wrong[i], 0, NULL), text), -32602);
		CHECK(strstr(text, "deadline_ms") != NULL);
	}
	CHECK(is_drain_state(&h, "serving"));
	CHECK_INT(harness_order(&h, "drain", json_object(), NULL), 0);
	CHECK(log_lines_wait(&h, "limit_ms=3600000", 1, LIMIT_MS));
	CHECK(log_lines_wait(&h, "drained", 1, LIMIT_MS));
	/* With nothing left, and now told to end, it ends. */
	CHECK_INT(drain(&h, LONG_MS, true), 0);
	CHECK_INT(wait_exit(&h, LIMIT_MS), 0);
}

/* The library: told, and free to give back; then there is nothing left to wait for. */
TEST(drain__exits_when_all_is_given_back)
{
	HARNESS(h, .pool_size = NULL);
	SESSION(alpha, "alpha");
	struct mempool_event event;
	mempool_lease *leases[2];
	mempool_lease *none;

	CHECK_INT(harness_acquire(alpha, PAGE, TTL_MS, &leases[0]), 0);
	CHECK_INT(harness_acquire(alpha, PAGE, TTL_MS, &leases[1]), 0);
	CHECK_INT(drain(&h, LONG_MS, true), 0);
	CHECK(told_wait(alpha, MEMPOOL_EVENT_DRAINING, LIMIT_MS, &event));
	CHECK(event.left_ms > 0 && event.left_ms <= LONG_MS);
	CHECK_INT(harness_acquire(alpha, PAGE, TTL_MS, &none), MEMPOOL_E_DRAINING);
	CHECK(told_nothing(alpha, 100)); /* it has been told */
	CHECK_INT(mempool_renew(leases[1], TTL_MS), 0);
	CHECK_INT(mempool_release(leases[0]), 0);
	CHECK(is_drain_state(&h, "draining"));
	CHECK_INT(mempool_release(leases[1]), 0);
	CHECK_INT(wait_exit(&h, LIMIT_MS), 0);
	CHECK(told_wait(alpha, MEMPOOL_EVENT_SESSION_LOST, LIMIT_MS, &event));
	CHECK_INT(event.code, MEMPOOL_E_DRAINED);
}

TEST(drain__exits_at_the_deadline)
{
	HARNESS(h, .pool_size = NULL);
	SESSION(alpha, "alpha");
	struct mempool_event event;
	mempool_lease *lease;
	uint64_t until_ns;
	uint8_t byte;

	CHECK_INT(harness_acquire(alpha, PAGE, TTL_MS, &lease), 0);
	until_ns = clock_add_ms(clock_now_ns(), DRAIN_MS / 3);
	CHECK_INT(drain(&h, DRAIN_MS / 3, true), 0);
	CHECK(told_wait(alpha, MEMPOOL_EVENT_LEASE_ENDED, LIMIT_MS, &event));
	CHECK_INT(event.code, MEMPOOL_E_DRAINED);
	CHECK(clock_now_ns() >= until_ns);
	CHECK_INT(mempool_read(lease, 0, &byte, 1), MEMPOOL_E_DRAINED);
	CHECK_INT(wait_exit(&h, LIMIT_MS), 0);
}

/* Told to stop: leases have the configured time, but no longer. */
TEST(stop__drains_first)
{
	HARNESS(h, .extra = "\"stop_drain\": \"1s\"");
	PEER(alpha, "alpha");
	PEER_LANE(lane, &alpha);
	struct message_grant grant;
	uint64_t until_ns;

	CHECK_INT(peer_acquire(&alpha, &lane, PAGE, TTL_MS, 0, &grant), 0);
	until_ns = clock_add_ms(clock_now_ns(), 1000);
	CHECK_INT(kill(h.pid, SIGTERM), 0);
	check_told(&alpha, 1, 1000);
	CHECK_INT(touch(&lane, &grant), IBV_WC_SUCCESS);
	/* What is told to stop does not go back to serving. */
	CHECK_INT(harness_order(&h, "undrain", NULL, NULL), ERROR_DRAINING);
	/* Nor does it stay, or get more time than the service manager was asked for. */
	CHECK_INT(drain(&h, LONG_MS, false), ERROR_DRAINING);
	CHECK_INT(drain(&h, LONG_MS, true), ERROR_DRAINING);
	check_ended(&alpha, grant.lease_id);
	CHECK(clock_now_ns() >= until_ns);
	CHECK_INT(wait_exit(&h, LIMIT_MS), 0);
}

TEST(stop__second_signal_ends_at_once)
{
	HARNESS(h, .extra = "\"stop_drain\": \"1h\"");
	PEER(alpha, "alpha");
	PEER_LANE(lane, &alpha);
	struct message_grant grant;

	CHECK_INT(peer_acquire(&alpha, &lane, PAGE, TTL_MS, 0, &grant), 0);
	CHECK_INT(kill(h.pid, SIGTERM), 0);
	check_told(&alpha, 1, 3600000);
	CHECK_INT(peer_renew(&alpha, grant.lease_id, TTL_MS), 0);
	CHECK(is_drain_state(&h, "draining"));
	CHECK_INT(kill(h.pid, SIGTERM), 0);
	CHECK_INT(wait_exit(&h, LIMIT_MS), 0);
}

/* A drain by order gives way to the shorter time of a stop, and a time of 0 is none. */
TEST(stop__without_a_drain)
{
	HARNESS(h, .extra = "\"stop_drain\": \"0\"");
	PEER(alpha, "alpha");
	PEER_LANE(lane, &alpha);
	struct message_grant grant;

	CHECK_INT(peer_acquire(&alpha, &lane, PAGE, TTL_MS, 0, &grant), 0);
	CHECK_INT(drain(&h, LONG_MS, false), 0);
	check_told(&alpha, 1, LONG_MS);
	CHECK_INT(kill(h.pid, SIGTERM), 0);
	CHECK_INT(wait_exit(&h, LIMIT_MS), 0);
	CHECK(harness_log_says(&h, "reason=drained"));
}
