/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Clients whose packets are lost on the wire while they disconnect, or those of the daemon, or
 * both.
 */
#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/clock.h"
#include "tests/integration/accounts.h"
#include "tests/integration/harness.h"
#include "tests/integration/peer.h"
#include "tests/integration/wire.h"

#define PAGE	  4096
#define LIMIT_MS  30000
#define ASKING_MS 150000

static bool is_full(void)
{
	const char *full = getenv("TEST_FULL");

	return full != NULL && strcmp(full, "1") == 0;
}

enum lost {
	LOST_CLIENTS, /* the daemon does not learn that the client disconnects */
	LOST_DAEMONS, /* the client gets no answer */
	LOST_BOTH,    /* the daemon disconnects and gets no answer */
	LOST_WAYS,
};

static bool lose(enum lost lost, bool drop)
{
	return (lost == LOST_DAEMONS || wire_drop(WIRE_CLIENT, drop)) &&
	       (lost == LOST_CLIENTS || wire_drop(WIRE_DAEMON, drop));
}

/* The client's end of it: the event says whether there was an answer. */
static void expect_disconnected(struct raw *raw, uint64_t limit_ms, int status)
{
	struct pollfd fd = {.fd = raw->channel->fd, .events = POLLIN};
	struct rdma_cm_event *event;
	uint64_t begun_ns = clock_now_ns();
	bool is_right;

	CHECK_INT(poll(&fd, 1, (int)limit_ms), 1);
	CHECK_INT(rdma_get_cm_event(raw->channel, &event), 0);
	printf("# the client has heard after %" PRIu64 " ms: %s, status %d\n",
	       harness_since_ms(begun_ns), rdma_event_str(event->event), event->status);
	is_right = event->event == RDMA_CM_EVENT_DISCONNECTED && event->status == status;
	CHECK_INT(rdma_ack_cm_event(event), 0);
	CHECK(is_right);
}

/* The daemon hears of the client's end in time, or when the lease ends and nobody answers. */
static void disconnect(struct harness *h, enum lost lost)
{
	PEER(alpha, "alpha");
	PEER_LANE(lane, &alpha);
	struct message bye = {.type = MESSAGE_BYE};
	uint64_t ttl_ms = lost == LOST_CLIENTS ? 2000 : 600000;
	struct message_grant grant;
	uint64_t begun_ns;

	CHECK_INT(peer_acquire(&alpha, &lane, PAGE, ttl_ms, 0, &grant), 0);
	begun_ns = clock_now_ns();
	CHECK_INT(peer_access(&lane, IBV_WR_RDMA_WRITE, 1, grant.descriptors[0].remote_addr,
			      grant.descriptors[0].rkey),
		  IBV_WC_SUCCESS);
	CHECK_INT(kill(h->pid, SIGSTOP), 0);
	if (lost == LOST_BOTH)
		CHECK_INT(peer_send(&alpha, &bye), 0);
	while (alpha.control.sends_posted > 0)
		CHECK_INT(peer_look(&alpha), 0);
	CHECK(lose(lost, true));
	if (lost != LOST_BOTH)
		CHECK_INT(rdma_disconnect(alpha.control.id), 0);
	CHECK_INT(kill(h->pid, SIGCONT), 0);
	CHECK(harness_wait_number(h, "leases.active", 0, LIMIT_MS));
	CHECK(harness_wait_number(h, "pool.leased_bytes", 0, LIMIT_MS));
	CHECK(harness_wait_number(h, "sessions", 0, LIMIT_MS));
	CHECK(harness_wait_number(h, "lanes", 0, LIMIT_MS));
	printf("# way %d: all is over after %" PRIu64 " ms\n", (int)lost,
	       harness_since_ms(begun_ns));
	CHECK(harness_since_ms(begun_ns) < LIMIT_MS);
	/* The kernel asks for an answer for more than a minute; the daemon does not wait for that. */
	if (lost == LOST_CLIENTS)
		expect_disconnected(&alpha.control, 5000, 0);
	else if (lost == LOST_DAEMONS && is_full())
		expect_disconnected(&alpha.control, ASKING_MS, -ETIMEDOUT);
	CHECK(lose(lost, false));
}

/* The library does not wait for it either. */
static void close_library(struct harness *h)
{
	SESSION(alpha, "alpha");
	mempool_lease *lease;
	uint64_t begun_ns;
	uint8_t byte = 1;

	CHECK_INT(harness_acquire(alpha, PAGE, 2000, &lease), 0);
	CHECK_INT(mempool_write(lease, 0, &byte, 1), 0);
	CHECK(lose(LOST_BOTH, true));
	begun_ns = clock_now_ns();
	harness_close(&alpha);
	printf("# the library has closed after %" PRIu64 " ms\n", harness_since_ms(begun_ns));
	CHECK(harness_since_ms(begun_ns) < 5000);
	CHECK(harness_wait_number(h, "leases.active", 0, LIMIT_MS));
	CHECK(harness_wait_number(h, "sessions", 0, LIMIT_MS));
	CHECK(harness_wait_number(h, "lanes", 0, LIMIT_MS));
	printf("# all is over after %" PRIu64 " ms\n", harness_since_ms(begun_ns));
	CHECK(lose(LOST_BOTH, false));
}

static void lose_packets(void)
{
	HARNESS(h, .pool_size = NULL);

	for (enum lost lost = 0; lost < LOST_WAYS; lost++) {
		disconnect(&h, lost);
		CHECK(!test_has_failed());
	}
	close_library(&h);
	CHECK(!test_has_failed());
	accounts_check(&h);
	CHECK(!test_has_failed());
	CHECK_INT(harness_number(&h, "counters.destroy_failures"), 0);
	CHECK_INT(harness_stop(&h), 0);
}

TEST(field_41_disconnect__packets_are_lost)
{
	wire_test("field_41_disconnect__packets_are_lost", 5 * LIMIT_MS + ASKING_MS, lose_packets);
}
