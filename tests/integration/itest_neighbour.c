/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The network changes under connections: neighbours are forgotten and learnt anew, interfaces
 * get other addresses. Since Linux 6.0 rdma_cm tells of it with an UNREACHABLE event, in
 * whatever state a connection is. All go on or come to their end in time, and both programs
 * live.
 */
#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "common/clock.h"
#include "tests/integration/accounts.h"
#include "tests/integration/harness.h"
#include "tests/integration/peer.h"
#include "tests/integration/wire.h"

#define PAGE	   4096
#define TTL_MS	   600000
#define LIMIT_MS   30000
#define CONNECT_MS 10000
#define TEST_MS	   300000
#define CHANGED	   3

/* As HARNESS_NO_LIMITS, but who is cut off is found to be gone after 6 s. */
#define LIMITS                                                                              \
	"\"ban_after\": 0, \"ban_backoff_min\": \"0\", \"strikes_max\": 0, \"heartbeat\": " \
	"\"2s\", \"connections_max_per_address\": 65536, \"handshakes_max\": 65536, "       \
	"\"handshakes_max_per_address\": 65536"

enum change {
	CHANGE_NEIGHBOURS, /* are wrong for a moment, forgotten, and right again */
	CHANGE_ADDRESSES,  /* of the interfaces, and their neighbours learn it */
	CHANGES,
};

static void change_now(enum change change)
{
	if (change == CHANGE_NEIGHBOURS) {
		CHECK(wire_wrong_neighbours());
		CHECK(wire_flush());
	} else {
		CHECK(wire_change_mac(WIRE_DAEMON));
		CHECK(wire_change_mac(WIRE_CLIENT));
	}
}

/* Events of a kind that have come; others are of no interest. */
static int take_events(struct raw *raw, enum rdma_cm_event_type type)
{
	struct pollfd fd = {.fd = raw->channel->fd, .events = POLLIN};
	struct rdma_cm_event *event;
	int count = 0;

	while (poll(&fd, 1, 0) == 1 && rdma_get_cm_event(raw->channel, &event) == 0) {
		count += event->event == type;
		(void)rdma_ack_cm_event(event);
	}
	return count;
}

/* A raw client, which counts what it is told, and the library, which does not mind. */
static void change_neighbours_connected(struct harness *h)
{
	SESSION(beta, "beta");
	PEER(alpha, "alpha");
	PEER_LANE(lane, &alpha);
	struct message_grant grant;
	mempool_lease *lease;
	uint64_t begun_ns;
	uint8_t byte = 0x3c;
	int told;

	CHECK_INT(peer_acquire(&alpha, &lane, PAGE, TTL_MS, 0, &grant), 0);
	CHECK_INT(harness_acquire(beta, PAGE, TTL_MS, &lease), 0);
	begun_ns = clock_now_ns();
	for (int i = 0; i < CHANGED; i++) {
		change_now(CHANGE_NEIGHBOURS);
		CHECK(!test_has_failed());
		CHECK_INT(peer_access(&lane, IBV_WR_RDMA_WRITE, PAGE,
				      grant.descriptors[0].remote_addr, grant.descriptors[0].rkey),
			  IBV_WC_SUCCESS);
		CHECK_INT(mempool_write(lease, 0, &byte, 1), 0);
		CHECK_INT(mempool_renew(lease, TTL_MS), 0);
	}
	told = take_events(&alpha.control, RDMA_CM_EVENT_UNREACHABLE);
	told += take_events(&lane.raw, RDMA_CM_EVENT_UNREACHABLE);
	printf("# connected, neighbours: all goes on, %" PRIu64 " ms for %d changes, %d events\n",
	       harness_since_ms(begun_ns), CHANGED, told);
	/* Else nothing has been shown: each connection is told of each change. */
	CHECK(told >= 2 * CHANGED);
	CHECK_INT(peer_renew(&alpha, grant.lease_id, TTL_MS), 0);
	CHECK_INT(harness_number(h, "sessions"), 2);
	CHECK_INT(harness_number(h, "lanes"), 2);
	CHECK_INT(harness_number(h, "leases.active"), 2);
}

/*
 * With a new address of its interface Soft-RoCE gives a new place to the addresses of the
 * device, and what was connected over them is at its end. That is told in time, too.
 */
static void change_addresses_connected(struct harness *h)
{
	SESSION(beta, "beta");
	mempool_lease *lease;
	uint64_t begun_ns;
	uint8_t byte = 0x3c;
	int written, renewed;

	CHECK_INT(harness_acquire(beta, PAGE, TTL_MS, &lease), 0);
	change_now(CHANGE_ADDRESSES);
	CHECK(!test_has_failed());
	begun_ns = clock_now_ns();
	written = mempool_write(lease, 0, &byte, 1);
	renewed = mempool_renew(lease, TTL_MS);
	printf("# connected, addresses: write %d, renew %d, after %" PRIu64 " ms\n", written,
	       renewed, harness_since_ms(begun_ns));
	CHECK(harness_since_ms(begun_ns) < LIMIT_MS);
	CHECK_INT(harness_number(h, "pid"), h->pid);
	begun_ns = clock_now_ns();
	harness_close(&beta);
	CHECK(harness_since_ms(begun_ns) < LIMIT_MS);
	CHECK(harness_wait_number(h, "sessions", 0, LIMIT_MS));
	CHECK(harness_wait_number(h, "lanes", 0, LIMIT_MS));
	printf("# connected, addresses: all is over %" PRIu64 " ms after the client's end\n",
	       harness_since_ms(begun_ns));
}

struct attempt {
	pthread_t thread;
	mempool *pool;
	uint64_t took_ms;
	int code;
};

static void *attempt_thread(void *arg)
{
	struct mempool_connect_opts opts = {.timeout_ms = CONNECT_MS};
	struct attempt *attempt = arg;
	uint64_t begun_ns = clock_now_ns();
	struct harness_keys keys;

	harness_keys("gamma", &keys, &opts);
	attempt->code = mempool_connect(harness_endpoint(), &opts, &attempt->pool);
	attempt->took_ms = harness_since_ms(begun_ns);
	printf("# connecting: %d after %" PRIu64 " ms%s%s\n", attempt->code, attempt->took_ms,
	       attempt->code < 0 ? ", " : "", attempt->code < 0 ? mempool_last_error() : "");
	return NULL;
}

/* The request waits at the daemon, which does not look at it, when the change comes. */
static void change_connecting(struct harness *h, enum change change)
{
	struct attempt attempt = {.code = 1};

	CHECK_INT(kill(h->pid, SIGSTOP), 0);
	CHECK_INT(pthread_create(&attempt.thread, NULL, attempt_thread, &attempt), 0);
	harness_sleep_ms(500);
	change_now(change);
	CHECK_INT(kill(h->pid, SIGCONT), 0);
	CHECK_INT(pthread_join(attempt.thread, NULL), 0);
	mempool_close(attempt.pool);
	CHECK(attempt.code == 0 || attempt.code == MEMPOOL_E_UNREACHABLE);
	CHECK(attempt.took_ms < CONNECT_MS + 2000);
	CHECK(harness_wait_number(h, "sessions", 0, LIMIT_MS));
	/* Whatever became of it, the next one comes in. */
	SESSION(gamma, "gamma");
}

/* One side has disconnected and the other one does not know yet when the change comes. */
static void change_closing(struct harness *h, enum change change, bool daemon_first)
{
	PEER(alpha, "alpha");
	PEER_LANE(lane, &alpha);
	struct message bye = {.type = MESSAGE_BYE};
	struct message_grant grant;
	uint64_t begun_ns;

	CHECK_INT(peer_acquire(&alpha, &lane, PAGE, TTL_MS, 0, &grant), 0);
	begun_ns = clock_now_ns();
	if (!daemon_first)
		CHECK_INT(kill(h->pid, SIGSTOP), 0);
	if (daemon_first)
		CHECK_INT(peer_send(&alpha, &bye), 0);
	else
		CHECK_INT(rdma_disconnect(alpha.control.id), 0);
	change_now(change);
	if (!daemon_first)
		CHECK_INT(kill(h->pid, SIGCONT), 0);
	CHECK(harness_wait_number(h, "sessions", 0, LIMIT_MS));
	CHECK(harness_wait_number(h, "lanes", 0, LIMIT_MS));
	printf("# closing, %s first: all is over after %" PRIu64 " ms\n",
	       daemon_first ? "the daemon" : "the client", harness_since_ms(begun_ns));
	CHECK(harness_since_ms(begun_ns) < LIMIT_MS);
}

static void change_in_each_state(void)
{
	HARNESS(h, .limits = LIMITS);

	change_neighbours_connected(&h);
	CHECK(!test_has_failed());
	CHECK(harness_wait_number(&h, "sessions", 0, LIMIT_MS));
	change_addresses_connected(&h);
	CHECK(!test_has_failed());
	for (enum change change = 0; change < CHANGES; change++) {
		change_connecting(&h, change);
		CHECK(!test_has_failed());
		CHECK(harness_wait_number(&h, "sessions", 0, LIMIT_MS));
		change_closing(&h, change, false);
		CHECK(!test_has_failed());
		change_closing(&h, change, true);
		CHECK(!test_has_failed());
	}
	accounts_check(&h);
	CHECK(!test_has_failed());
	CHECK_INT(harness_number(&h, "counters.destroy_failures"), 0);
	CHECK_INT(harness_stop(&h), 0);
}

TEST(field_39_neighbour__changes_in_each_state)
{
	wire_test("field_39_neighbour__changes_in_each_state", TEST_MS, change_in_each_state);
}
