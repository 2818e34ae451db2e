/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Clients whose packets are lost while they disconnect, or those of the daemon, or both. A
 * test guest is made to talk to itself over a wire: rxe0 on v0, where the daemon is, and rxe1
 * on v1, from where the clients come; whatever leaves one of the two can then be dropped.
 * The clients are in a process of their own, since a device that is open cannot be removed.
 */
#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/clock.h"
#include "tests/integration/accounts.h"
#include "tests/integration/harness.h"
#include "tests/integration/machine.h"
#include "tests/integration/peer.h"

#define PAGE	  4096
#define LIMIT_MS  30000
#define ASKING_MS 150000
#define INNER	  "ITEST_CUT" /* in the environment of the process with the clients */

static uint64_t since_ms(uint64_t begun_ns)
{
	return (clock_now_ns() - begun_ns) / CLOCK_NS_PER_MS;
}

/*
 * The local table is looked at only by what comes in from the wire, and behind our rules by
 * everything else. Neighbours are fixed, as nobody would answer for them.
 */
static const char wire_up[] =
	"set -e; modprobe sch_netem; cd /proc/sys/net/ipv4/conf; "
	"for f in v0 v1; do echo 1 >$f/accept_local; echo 0 >$f/rp_filter; done; "
	"echo 0 >all/rp_filter; "
	"ip addr add 10.77.0.2/24 dev v1; "
	"rdma link add rxe1 type rxe netdev v1; "
	"mac0=$(cat /sys/class/net/v0/address); mac1=$(cat /sys/class/net/v1/address); "
	"ip neigh replace 10.77.0.2 lladdr $mac1 dev v0 nud permanent; "
	"ip neigh replace 10.77.0.1 lladdr $mac0 dev v1 nud permanent; "
	"ip route add 10.77.0.2 dev v0 src 10.77.0.1 table 100; "
	"ip route add 10.77.0.1 dev v1 src 10.77.0.2 table 101; "
	"ip rule add pref 1 iif v0 to 10.77.0.1 lookup local; "
	"ip rule add pref 1 iif v1 to 10.77.0.2 lookup local; "
	"ip rule add pref 2 to 10.77.0.2 lookup 100; "
	"ip rule add pref 2 to 10.77.0.1 lookup 101; "
	"ip rule add pref 3 lookup local; "
	"ip rule del pref 0; "
	"i=0; until cat /sys/class/infiniband/rxe1/ports/1/gids/? 2>/dev/null | grep -q 0a4d:0002; "
	"do i=$((i + 1)); [ $i -lt 200 ] || exit 1; sleep 0.05; done";

static const char wire_down[] =
	"ip rule add pref 0 lookup local; "
	"ip rule del pref 3; ip rule del pref 2; ip rule del pref 2; ip rule del pref 1; "
	"ip rule del pref 1; ip route flush table 100; ip route flush table 101; "
	"ip neigh del 10.77.0.2 dev v0; ip neigh del 10.77.0.1 dev v1; "
	"tc qdisc del dev v0 root; tc qdisc del dev v1 root; "
	"rdma link delete rxe1; ip addr del 10.77.0.2/24 dev v1; true";

#define DROP "tc qdisc replace dev %s root netem loss 100%%"
#define PASS "tc qdisc replace dev %s root netem loss 0%%"

static bool is_full(void)
{
	const char *full = getenv("TEST_FULL");

	return full != NULL && strcmp(full, "1") == 0;
}

static void wire_remove(bool *there)
{
	if (*there)
		(void)machine_shell(wire_down);
}

/* @device: whose packets; all that leaves it is lost, or nothing */
static bool wire_set(const char *device, bool drop)
{
	char command[128];

	snprintf(command, sizeof(command), drop ? DROP : PASS, device);
	return machine_shell(command);
}

enum lost {
	LOST_CLIENTS, /* the daemon does not learn that the client disconnects */
	LOST_DAEMONS, /* the client gets no answer */
	LOST_BOTH,    /* the daemon disconnects and gets no answer */
	LOST_WAYS,
};

static bool lose(enum lost lost, bool drop)
{
	return (lost == LOST_DAEMONS || wire_set("v1", drop)) &&
	       (lost == LOST_CLIENTS || wire_set("v0", drop));
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
	printf("# the client has heard after %" PRIu64 " ms: %s, status %d\n", since_ms(begun_ns),
	       rdma_event_str(event->event), event->status);
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
	printf("# way %d: all is over after %" PRIu64 " ms\n", (int)lost, since_ms(begun_ns));
	CHECK(since_ms(begun_ns) < LIMIT_MS);
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
	printf("# the library has closed after %" PRIu64 " ms\n", since_ms(begun_ns));
	CHECK(since_ms(begun_ns) < 5000);
	CHECK(harness_wait_number(h, "leases.active", 0, LIMIT_MS));
	CHECK(harness_wait_number(h, "sessions", 0, LIMIT_MS));
	CHECK(harness_wait_number(h, "lanes", 0, LIMIT_MS));
	printf("# all is over after %" PRIu64 " ms\n", since_ms(begun_ns));
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

static void print_quoted(char *text)
{
	for (char *line = strtok(text, "\n"); line != NULL; line = strtok(NULL, "\n"))
		printf("# %s\n", line);
}

TEST(field_41_disconnect__packets_are_lost)
{
	static struct harness_output output;
	__attribute__((cleanup(wire_remove))) bool there = false;
	char program[PATH_MAX];
	const char *argv[] = {"env", INNER "=1", harness_program("itest_cut", program), NULL};

	if (getenv(INNER) != NULL) {
		lose_packets();
		return;
	}
	if (!machine_is_guest())
		SKIP("packets are dropped in test guests only");
	there = true;
	CHECK(machine_shell(wire_up));
	CHECK_INT(harness_run(argv, 5 * LIMIT_MS + ASKING_MS, &output), 0);
	print_quoted(output.out);
	CHECK_INT(output.status, 0);
}
