/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Somebody sends hundreds of connect requests at once, all of which are refused. Each gets an
 * answer, the operator and other tenants are served meanwhile, and nothing is left of it.
 *
 * Thread: the test's.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <rdma/rdma_cma.h>
#include <stdio.h>

#include "common/clock.h"
#include "proto/error.h"
#include "proto/private_data.h"
#include "tests/integration/accounts.h"
#include "tests/integration/harness.h"
#include "tests/integration/peer.h"
#include "tests/redteam/figures.h"

#define PAGE	     4096
#define TTL_MS	     600000
#define REQUESTS_MAX 1000
/* No QP has such a number: for one that is connected the kernel would end its connection. */
#define FIRST_QPN  0xe00000u
#define RESOLVE_MS 20000
#define LIMIT_MS   120000
#define ADMIN_MS   100
#define LOOK_MS	   20 /* how often the operator and the other tenant are looked after */

/* What has become of the requests. */
struct flood {
	struct rdma_event_channel *channel;
	struct rdma_cm_id *ids[REQUESTS_MAX];
	uint64_t count;
	uint64_t ready;	      /* have a route */
	uint64_t refused;     /* by the daemon, with a code */
	uint64_t turned_away; /* by the kernel, whose backlog is full */
	uint64_t no_answer;   /* within the connection manager's own retries */
	uint64_t other;
};

static void flood_close(struct flood *flood)
{
	for (uint64_t i = 0; i < flood->count; i++)
		(void)rdma_destroy_id(flood->ids[i]);
	if (flood->channel != NULL)
		rdma_destroy_event_channel(flood->channel);
}

static void flood_rejected(struct flood *flood, const struct rdma_conn_param *param)
{
	struct private_data data;

	if (private_data_decode(param->private_data, param->private_data_len, &data) == 0 &&
	    data.kind == PRIVATE_DATA_REJECT)
		flood->refused++;
	else
		flood->turned_away++;
}

static void flood_event(struct flood *flood, struct rdma_cm_event *event)
{
	switch (event->event) {
	case RDMA_CM_EVENT_ADDR_RESOLVED:
		if (rdma_resolve_route(event->id, RESOLVE_MS) != 0)
			flood->other++;
		break;
	case RDMA_CM_EVENT_ROUTE_RESOLVED:
		flood->ready++;
		break;
	case RDMA_CM_EVENT_REJECTED:
		flood_rejected(flood, &event->param.conn);
		break;
	case RDMA_CM_EVENT_UNREACHABLE:
		flood->no_answer++;
		break;
	default:
		flood->other++;
	}
}

/* Return: was there an event within the time? */
static bool flood_take(struct flood *flood, int limit_ms)
{
	struct pollfd fd = {.fd = flood->channel->fd, .events = POLLIN};
	struct rdma_cm_event *event;

	if (poll(&fd, 1, limit_ms) <= 0 || rdma_get_cm_event(flood->channel, &event) != 0)
		return false;
	flood_event(flood, event);
	(void)rdma_ack_cm_event(event);
	return true;
}

static int flood_prepare(struct flood *flood, uint64_t count)
{
	struct sockaddr_in peer = {.sin_family = AF_INET, .sin_port = htons(HARNESS_PORT)};

	if (inet_pton(AF_INET, harness_address(), &peer.sin_addr) != 1)
		return -EINVAL;
	flood->channel = rdma_create_event_channel();
	if (flood->channel == NULL)
		return -errno;
	while (flood->count < count) {
		if (rdma_create_id(flood->channel, &flood->ids[flood->count], NULL, RDMA_PS_TCP) !=
		    0)
			return -errno;
		flood->count++;
		if (rdma_resolve_addr(flood->ids[flood->count - 1], NULL, (struct sockaddr *)&peer,
				      RESOLVE_MS) != 0)
			return -errno;
	}
	while (flood->ready < count && flood->other == 0) {
		if (!flood_take(flood, RESOLVE_MS))
			return -ETIMEDOUT;
	}
	return flood->other == 0 ? 0 : -EIO;
}

/* The daemon looks at private data only; no QP is needed to be refused. */
static int flood_connect(const struct flood *flood)
{
	static const uint8_t garbage[12] = {1, 2, 3};

	for (uint64_t i = 0; i < flood->count; i++) {
		struct rdma_conn_param param = {
			.private_data = garbage,
			.private_data_len = sizeof(garbage),
			.qp_num = (uint32_t)(FIRST_QPN + i),
			.retry_count = 5,
			.rnr_retry_count = 6,
		};

		if (rdma_connect(flood->ids[i], &param) != 0)
			return -errno;
	}
	return 0;
}

static uint64_t flood_answered(const struct flood *flood)
{
	return flood->refused + flood->turned_away + flood->no_answer + flood->other;
}

static void longest(uint64_t *most_ns, uint64_t since_ns)
{
	uint64_t took_ns = clock_now_ns() - since_ns;

	if (took_ns > *most_ns)
		*most_ns = took_ns;
}

TEST(flood__requests_that_are_refused)
{
	HARNESS(h, .extra = "\"backlog\": 64");
	PEER(other, "other");
	PEER_LANE(lane, &other);
	__attribute__((cleanup(flood_close))) struct flood flood = {0};
	struct message_grant grant;
	uint64_t admin_ns = 0;
	uint64_t tenant_ns = 0;
	uint64_t served = 0;
	uint64_t rejected;
	uint64_t begun_ns;
	uint64_t looked_ns;

	CHECK_INT(flood_prepare(&flood, figure(REQUESTS_MAX)), 0);
	begun_ns = clock_now_ns();
	CHECK_INT(flood_connect(&flood), 0);
	looked_ns = 0;
	while (flood_answered(&flood) < flood.count) {
		CHECK(clock_now_ns() - begun_ns < LIMIT_MS * CLOCK_NS_PER_MS);
		(void)flood_take(&flood, 5);
		if (clock_now_ns() < looked_ns + LOOK_MS * CLOCK_NS_PER_MS)
			continue;
		looked_ns = clock_now_ns();
		CHECK_INT(harness_number(&h, "sessions"), 1);
		longest(&admin_ns, looked_ns);
		looked_ns = clock_now_ns();
		CHECK_INT(peer_acquire(&other, &lane, PAGE, TTL_MS, 5000, &grant), 0);
		CHECK_INT(peer_release(&other, grant.lease_id), 0);
		longest(&tenant_ns, looked_ns);
		served++;
	}
	printf("# S5 %" PRIu64 " requests: %" PRIu64 " refused with a code, %" PRIu64
	       " turned away by the kernel, %" PRIu64 " without an answer, in %.1f s; meanwhile "
	       "%" PRIu64 " leases of another tenant, longest %.1f ms, status %.1f ms\n",
	       flood.count, flood.refused, flood.turned_away, flood.no_answer,
	       (double)(clock_now_ns() - begun_ns) / 1e9, served, (double)tenant_ns / 1e6,
	       (double)admin_ns / 1e6);
	CHECK_INT(flood.other, 0);
	CHECK(flood.refused > 0);
	rejected = (uint64_t)harness_number(&h, "counters.sessions_rejected");
	CHECK(rejected >= flood.refused && rejected <= flood.refused + flood.no_answer);
	CHECK(served > 0);
	CHECK(admin_ns < ADMIN_MS * CLOCK_NS_PER_MS);
	peer_lane_close(&lane);
	peer_close(&other);
	accounts_check(&h);
	CHECK(!test_has_failed());
	CHECK_INT(harness_stop(&h), 0);
}
