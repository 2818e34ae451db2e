/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What devices do once in a blue moon, put into the daemon at its verbs calls: each leads to
 * its defined end, harms nobody else, and leaves nothing behind.
 */
#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/clock.h"
#include "proto/error.h"
#include "tests/integration/accounts.h"
#include "tests/integration/harness.h"
#include "tests/integration/peer.h"

#define PAGE   4096
#define TTL_MS 600000
#define EXTRA  "\"completion_timeout\": \"300ms\", \"lane_wait_min\": \"0\""

#define SEAM(name, fault) HARNESS(name, .program = "mempoold-seam", .seam = fault, .extra = EXTRA)

/* Guards are registered only where the device needs them. */
static bool is_guarded(struct peer *peer)
{
	return peer->welcome.isolation == MESSAGE_ISOLATION_GUARDED;
}

/* All is as it should be for a client that comes now, and nothing is left when it goes. */
static void check_recovered(struct harness *h)
{
	SESSION(gamma, "gamma");
	mempool_lease *lease;
	uint8_t byte = 1;

	CHECK_INT(harness_acquire(gamma, PAGE, TTL_MS, &lease), 0);
	CHECK_INT(mempool_write(lease, 0, &byte, 1), 0);
	CHECK_INT(mempool_release(lease), 0);
	harness_close(&gamma);
	accounts_check(h);
	CHECK(!test_has_failed());
	CHECK_INT(harness_stop(h), 0);
}

/* An invalidate of unknown outcome: the lane is lost, the window deallocated, the lease over. */
static void lose_lane_at_release(const char *fault, uint64_t at_least_ms)
{
	SEAM(h, fault);
	PEER(alpha, "alpha");
	PEER(beta, "beta");
	PEER_LANE(lane, &alpha);
	PEER_LANE(other, &beta);
	struct message_grant doomed, grant;
	struct message m;
	uint64_t begun_ns;

	CHECK_INT(peer_acquire(&alpha, &lane, PAGE, TTL_MS, 0, &grant), 0);
	CHECK_INT(peer_acquire(&alpha, &lane, PAGE, TTL_MS, 0, &doomed), 0);
	begun_ns = clock_now_ns();
	CHECK_INT(peer_release(&alpha, doomed.lease_id), 0);
	printf("# %s: behind the fence after %.1f ms\n", fault,
	       (double)(clock_now_ns() - begun_ns) / 1e6);
	CHECK(clock_now_ns() - begun_ns >= at_least_ms * CLOCK_NS_PER_MS);
	CHECK_INT(peer_take(&alpha, MESSAGE_LANE_LOST, 0, 5000, &m), 1);
	CHECK_INT(m.u.lane.lane, lane.number);
	CHECK_INT(harness_number(&h, "counters.lanes_lost"), 1);
	CHECK(harness_number(&h, "counters.windows_unknown") >= 1);
	/* The QP was put into ERR before the window was deallocated. */
	CHECK(peer_access(&lane, IBV_WR_RDMA_READ, 1, doomed.descriptors[0].remote_addr,
			  doomed.descriptors[0].rkey) != IBV_WC_SUCCESS);
	/* The other lease lives and is had on a new lane; the other session has lost nothing. */
	peer_lane_close(&lane);
	CHECK_INT(peer_lane_open(&alpha, &lane), 0);
	CHECK_INT(peer_attach(&alpha, &lane, grant.lease_id, &grant), 0);
	CHECK_INT(peer_access(&lane, IBV_WR_RDMA_WRITE, 1, grant.descriptors[0].remote_addr,
			      grant.descriptors[0].rkey),
		  IBV_WC_SUCCESS);
	CHECK_INT(peer_acquire(&beta, &other, PAGE, TTL_MS, 0, &grant), 0);
	peer_lane_close(&other);
	peer_lane_close(&lane);
	peer_close(&beta);
	peer_close(&alpha);
	check_recovered(&h);
}

TEST(inject__completion_of_an_invalidate_is_missing)
{
	lose_lane_at_release("lose-invalidate:1", 300);
}

TEST(inject__invalidate_is_flushed)
{
	lose_lane_at_release("flush-invalidate:1", 0);
}

TEST(inject__invalidate_cannot_be_posted)
{
	lose_lane_at_release("fail-post-invalidate:1", 0);
}

/* A bind that fails costs the lane and the acquire; another lane serves. */
static void fail_bind(const char *fault)
{
	SEAM(h, fault);
	PEER(alpha, "alpha");
	PEER_LANE(lane, &alpha);
	struct message_grant grant;

	CHECK_INT(peer_acquire(&alpha, &lane, PAGE, TTL_MS, 0, &grant), ERROR_LANE);
	CHECK_INT(harness_number(&h, "counters.lanes_lost"), 1);
	peer_lane_close(&lane);
	CHECK_INT(peer_lane_open(&alpha, &lane), 0);
	CHECK_INT(peer_acquire(&alpha, &lane, PAGE, TTL_MS, 5000, &grant), 0);
	CHECK_INT(harness_number(&h, "leases.active"), 1);
	peer_lane_close(&lane);
	peer_close(&alpha);
	check_recovered(&h);
}

TEST(inject__bind_fails)
{
	fail_bind("fail-bind:1");
}

TEST(inject__bind_cannot_be_posted)
{
	fail_bind("fail-post-bind:1");
}

/* A guard that cannot be registered costs the acquire only. */
TEST(inject__guard_cannot_be_registered)
{
	SEAM(h, "fail-reg:1");
	PEER(alpha, "alpha");
	PEER_LANE(lane, &alpha);
	struct message_grant grant;

	if (!is_guarded(&alpha))
		SKIP("there are no guards in this mode");
	CHECK_INT(peer_acquire(&alpha, &lane, PAGE, TTL_MS, 0, &grant), ERROR_NO_MEMORY);
	CHECK_INT(harness_number(&h, "counters.lanes_lost"), 0);
	CHECK_INT(peer_acquire(&alpha, &lane, PAGE, TTL_MS, 5000, &grant), 0);
	peer_lane_close(&lane);
	peer_close(&alpha);
	check_recovered(&h);
}

/*
 * A window that cannot be freed. Its lane is lost, so nothing but deallocation is left for it:
 * until then its bytes are nobody's, its lease is not over, and the operator is told.
 */
static void get_stuck(struct harness *h, struct peer *peer, struct peer_lane *lane,
		      struct message_grant *ret_grant)
{
	struct message m;

	CHECK_INT(peer_acquire(peer, lane, PAGE, TTL_MS, 0, ret_grant), 0);
	CHECK_INT(peer_access(lane, IBV_WR_RDMA_READ, 1, 0, 1), IBV_WC_REM_ACCESS_ERR);
	peer_lane_close(lane);
	for (int i = 0; i < 400 && harness_number(h, "stuck.windows") <= 0; i++)
		harness_sleep_ms(2);
	printf("# stuck: %" PRId64 " windows, %" PRId64 " bytes\n",
	       harness_number(h, "stuck.windows"), harness_number(h, "stuck.bytes"));
	CHECK(harness_number(h, "stuck.windows") >= 1);
	m = (struct message){
		.type = MESSAGE_RELEASE,
		.u.leases = {.count = 1, .lease_ids = {ret_grant->lease_id}},
	};
	CHECK_INT(peer_send(peer, &m), 0);
	/* The session goes on meanwhile, with another lane and other bytes. */
	CHECK_INT(peer_lane_open(peer, lane), 0);
	CHECK_INT(peer_take(peer, MESSAGE_RELEASED, m.request_id, 50, &m), 0);
}

TEST(field_08_inject__window_is_stuck_for_a_while)
{
	SEAM(h, "fail-dealloc:30");
	PEER(alpha, "alpha");
	PEER_LANE(lane, &alpha);
	struct message_grant grant, other;
	struct message m;
	char state[32];

	get_stuck(&h, &alpha, &lane, &grant);
	CHECK(!test_has_failed());
	CHECK_STR(harness_lease_state(&h, grant.lease_id, state), "fencing");
	CHECK_INT(harness_number(&h, "stuck.bytes"), PAGE);
	CHECK_INT(peer_acquire(&alpha, &lane, PAGE, TTL_MS, 0, &other), 0);
	CHECK(other.descriptors[0].remote_addr != grant.descriptors[0].remote_addr);
	CHECK_INT(peer_take(&alpha, MESSAGE_RELEASED, 0, 0, &m), 0);
	CHECK(harness_wait_number(&h, "stuck.windows", 0, 60000));
	CHECK(harness_wait_lease_gone(&h, grant.lease_id, 5000));
	CHECK(harness_number(&h, "counters.destroy_failures") >= 1);
	peer_lane_close(&lane);
	peer_close(&alpha);
	check_recovered(&h);
}

TEST(inject__window_is_stuck_for_ever)
{
	SEAM(h, "fail-dealloc");
	PEER(alpha, "alpha");
	PEER_LANE(lane, &alpha);
	struct message_grant grant, other;

	get_stuck(&h, &alpha, &lane, &grant);
	CHECK(!test_has_failed());
	CHECK_INT(peer_acquire(&alpha, &lane, PAGE, TTL_MS, 0, &other), 0);
	CHECK(other.descriptors[0].remote_addr != grant.descriptors[0].remote_addr);
	peer_lane_close(&lane);
	peer_close(&alpha);
	CHECK_INT(harness_stop(&h), 75);
}

static void check_stuck_answer(const json_t *answer)
{
	CHECK_INT(json_integer_value(json_object_get(answer, "leases")), 1);
	CHECK_INT(json_integer_value(json_object_get(answer, "stuck")), 1);
}

/* Whoever revokes what is stuck, or gets stuck meanwhile, is answered, and told so. */
TEST(inject__revocation_of_what_is_stuck)
{
	SEAM(h, "fail-dealloc");
	PEER(alpha, "alpha");
	PEER_LANE(lane, &alpha);
	struct message_grant grant;
	json_t *answer;

	CHECK_INT(peer_acquire(&alpha, &lane, PAGE, TTL_MS, 0, &grant), 0);
	CHECK_INT(peer_access(&lane, IBV_WR_RDMA_READ, 1, 0, 1), IBV_WC_REM_ACCESS_ERR);
	peer_lane_close(&lane);
	CHECK(harness_wait_number(&h, "stuck.bytes", PAGE, 5000));
	answer = harness_call(&h, "lease.revoke",
			      json_pack("{s:I, s:b}", "id", (json_int_t)grant.lease_id, "now", 1));
	check_stuck_answer(answer);
	json_decref(answer);
	CHECK_INT(harness_revoke(&h, grant.lease_id), ERROR_REVOKED);
	peer_close(&alpha);
	CHECK_INT(harness_stop(&h), 75);
}

TEST(inject__revocation_of_what_gets_stuck)
{
	HARNESS(h, .program = "mempoold-seam", .seam = "fail-dealloc",
		.extra = "\"revoke_grace\": \"1min\"");
	PEER(alpha, "alpha");
	PEER_LANE(lane, &alpha);
	char path[PATH_MAX], socket[HARNESS_TEXT_MAX], id[32];
	const char *argv[] = {harness_program("mempoolctl", path),
			      "--socket",
			      harness_socket(&h, socket),
			      "--timeout",
			      "30s",
			      "--json",
			      "lease",
			      "revoke",
			      id,
			      NULL};
	struct message_grant grant;
	char text[512] = "";
	json_t *answer;
	struct message m;
	pid_t pid;
	int fd;

	CHECK_INT(peer_acquire(&alpha, &lane, PAGE, TTL_MS, 0, &grant), 0);
	snprintf(id, sizeof(id), "%" PRIu64, grant.lease_id);
	pid = harness_spawn(argv, &fd);
	CHECK(pid > 0);
	CHECK_INT(peer_take(&alpha, MESSAGE_REVOKE, 0, 5000, &m), 1);
	CHECK_INT(peer_access(&lane, IBV_WR_RDMA_READ, 1, 0, 1), IBV_WC_REM_ACCESS_ERR);
	peer_lane_close(&lane);
	CHECK(read(fd, text, sizeof(text) - 1) > 0);
	(void)close(fd);
	CHECK_INT(waitpid(pid, NULL, 0), pid);
	answer = json_loads(text, 0, NULL);
	check_stuck_answer(answer);
	json_decref(answer);
	peer_close(&alpha);
	CHECK_INT(harness_stop(&h), 75);
}

/* Asynchronous events. */

static void raise_event(const struct harness *h, enum ibv_event_type type)
{
	CHECK_INT(kill(h->pid, SIGRTMIN + (int)type), 0);
}

static int wait_for_exit(struct harness *h)
{
	int status = -1;

	for (int i = 0; i < 500; i++) {
		if (waitpid(h->pid, &status, WNOHANG) == h->pid) {
			h->pid = 0;
			return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
		}
		harness_sleep_ms(10);
	}
	return -ETIMEDOUT;
}

/* Makes it sooner that a lane is found dead, and does no harm to those that live. */
static void lose_lane_by_event(enum ibv_event_type type)
{
	HARNESS(h, .program = "mempoold-seam", .seam = "async",
		.extra = "\"lane_sweep\": \"1min\"");
	PEER(alpha, "alpha");
	PEER_LANE(lane, &alpha);
	PEER_LANE(living, &alpha);
	struct message m;

	CHECK_INT(peer_access(&lane, IBV_WR_RDMA_READ, 1, 0, 1), IBV_WC_REM_ACCESS_ERR);
	CHECK_INT(peer_take(&alpha, MESSAGE_LANE_LOST, 0, 500, &m), 0);
	raise_event(&h, type);
	CHECK_INT(peer_take(&alpha, MESSAGE_LANE_LOST, 0, 1000, &m), 1);
	CHECK_INT(m.u.lane.lane, lane.number);
	CHECK_INT(peer_take(&alpha, MESSAGE_LANE_LOST, 0, 200, &m), 0);
	CHECK(harness_wait_number(&h, "lanes", 1, 5000));
	peer_lane_close(&living);
	peer_lane_close(&lane);
	peer_close(&alpha);
	check_recovered(&h);
}

TEST(inject__qp_access_error)
{
	lose_lane_by_event(IBV_EVENT_QP_ACCESS_ERR);
}

TEST(inject__qp_fatal)
{
	lose_lane_by_event(IBV_EVENT_QP_FATAL);
}

static void end_by_event(enum ibv_event_type type)
{
	SEAM(h, "async");
	PEER(alpha, "alpha");
	PEER_LANE(lane, &alpha);
	struct message_grant grant;

	CHECK_INT(peer_acquire(&alpha, &lane, PAGE, TTL_MS, 0, &grant), 0);
	raise_event(&h, type);
	CHECK_INT(wait_for_exit(&h), 74);
	CHECK(peer_access(&lane, IBV_WR_RDMA_READ, 1, grant.descriptors[0].remote_addr,
			  grant.descriptors[0].rkey) != IBV_WC_SUCCESS);
}

TEST(inject__cq_error)
{
	end_by_event(IBV_EVENT_CQ_ERR);
}

TEST(inject__device_fatal)
{
	end_by_event(IBV_EVENT_DEVICE_FATAL);
}

/* Whoever keeps a queue from being empty does not keep the daemon from all else that it does. */
TEST(inject__completions_without_end)
{
	SEAM(h, "busy-cq");
	PEER(alpha, "alpha");
	PEER_LANE(lane, &alpha);
	struct message_grant grant;
	struct message m;

	CHECK_INT(peer_acquire(&alpha, &lane, PAGE, 500, 0, &grant), 0);
	CHECK_INT(peer_take(&alpha, MESSAGE_LEASES_ENDED, 0, 5000, &m), 1);
	CHECK_INT(m.u.leases_ended.ended[0].reason, ERROR_EXPIRED);
	CHECK(harness_wait_number(&h, "pool.free_bytes", 16 * 1048576, 5000));
	peer_lane_close(&lane);
	peer_close(&alpha);
	check_recovered(&h);
}

static bool is_degraded(struct harness *h)
{
	json_t *status = harness_call(h, "status", NULL);
	json_t *device = json_object_get(status, "device");
	bool degraded = json_is_true(json_object_get(device, "degraded"));

	json_decref(status);
	return degraded;
}

static void wait_degraded(struct harness *h, bool wanted)
{
	for (int i = 0; i < 200 && is_degraded(h) != wanted; i++)
		harness_sleep_ms(5);
	CHECK_INT(is_degraded(h), wanted);
}

/* No new leases; those that there are go on. */
TEST(inject__port_down_and_up)
{
	SEAM(h, "async");
	PEER(alpha, "alpha");
	PEER_LANE(lane, &alpha);
	struct message_grant grant, refused;

	CHECK_INT(peer_acquire(&alpha, &lane, PAGE, TTL_MS, 0, &grant), 0);
	wait_degraded(&h, false);
	raise_event(&h, IBV_EVENT_PORT_ERR);
	wait_degraded(&h, true);
	CHECK(!test_has_failed());
	CHECK_INT(peer_acquire(&alpha, &lane, PAGE, TTL_MS, 0, &refused), ERROR_PORT);
	CHECK_INT(peer_access(&lane, IBV_WR_RDMA_WRITE, 1, grant.descriptors[0].remote_addr,
			      grant.descriptors[0].rkey),
		  IBV_WC_SUCCESS);
	CHECK_INT(peer_renew(&alpha, grant.lease_id, TTL_MS), 0);
	raise_event(&h, IBV_EVENT_PORT_ACTIVE);
	wait_degraded(&h, false);
	CHECK(!test_has_failed());
	CHECK_INT(peer_acquire(&alpha, &lane, PAGE, TTL_MS, 0, &grant), 0);
	peer_lane_close(&lane);
	peer_close(&alpha);
	check_recovered(&h);
}
