/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Connections that are accepted and then say nothing. As many as the limits allow get in,
 * the next one is told why it does not, all are gone when their time is over, and meanwhile
 * the operator is served and the daemon opens no file for them.
 *
 * Thread: the test's.
 */
#include <arpa/inet.h>
#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <rdma/rdma_cma.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/clock.h"
#include "common/verbs.h"
#include "proto/error.h"
#include "proto/private_data.h"
#include "tests/integration/accounts.h"
#include "tests/integration/harness.h"
#include "tests/integration/raw.h"
#include "tests/redteam/figures.h"
#include "tests/redteam/worker.h"

#define SILENT_MAX  1000
#define RESOLVE_MS  30000
#define LATE_MS	    60000
#define ADMIN_MS    100
#define LOOK_MS	    20
#define FEW	    3
#define DEADLINE_MS 60000 /* of a thousand handshakes; connecting takes an emulator its time */
#define GOING_MS    30000 /* for the daemon to be done with a thousand of them at once */

#define NO_BAN "\"ban_after\": 0, \"ban_backoff_min\": \"0\", \"heartbeat\": \"0\", "
#define MANY                                                                  \
	"\"connections_max_per_address\": 65536, \"handshakes_max\": 65536, " \
	"\"handshakes_max_per_address\": 65536"

/* They share all that they can. */
struct silent {
	struct rdma_event_channel *channel;
	struct rdma_cm_id *ids[SILENT_MAX];
	uint64_t count;
	struct ibv_pd *pd;
	struct verbs_cq cq;
	struct ibv_mr *mr;
	uint8_t memory[PROTO_FRAME_MAX]; /* that all receives point to */
	uint64_t accepted;
	uint64_t refused;
	int code; /* of the last refusal */
	uint64_t gone;
	uint64_t other;
};

static void silent_close(struct silent *silent)
{
	for (uint64_t i = 0; i < silent->count; i++) {
		if (silent->ids[i]->qp != NULL) {
			(void)rdma_disconnect(silent->ids[i]);
			(void)verbs_destroy_qp(silent->ids[i]->qp);
			silent->ids[i]->qp = NULL;
		}
		(void)rdma_destroy_id(silent->ids[i]);
	}
	silent->count = 0;
	(void)verbs_cq_deinit(&silent->cq);
	(void)verbs_dereg_mr(silent->mr);
	silent->mr = NULL;
	if (silent->pd != NULL)
		(void)ibv_dealloc_pd(silent->pd);
	silent->pd = NULL;
	if (silent->channel != NULL)
		rdma_destroy_event_channel(silent->channel);
	silent->channel = NULL;
}

static void silent_close_at(struct silent **silent)
{
	silent_close(*silent);
}

/* With the first of them it is known which device there is. */
static int silent_prepare(struct silent *silent, struct ibv_context *context)
{
	int r;

	if (silent->pd != NULL)
		return 0;
	silent->pd = ibv_alloc_pd(context);
	if (silent->pd == NULL)
		return -ENOMEM;
	r = verbs_reg_mr(silent->pd, silent->memory, sizeof(silent->memory), IBV_ACCESS_LOCAL_WRITE,
			 &silent->mr);
	return r < 0 ? r : verbs_cq_init(&silent->cq, context, 2 * SILENT_MAX);
}

/* The daemon's last word finds a receive: nothing that is silent here is so by accident. */
static int silent_connect(struct silent *silent, struct rdma_cm_id *id)
{
	struct private_data data = {
		.kind = PRIVATE_DATA_CONTROL,
		.version = PROTO_VERSION,
		.version_min = PROTO_VERSION_MIN,
	};
	uint8_t bytes[PROTO_PRIVATE_DATA_MAX];
	struct ibv_qp_init_attr attr = {
		.qp_type = IBV_QPT_RC,
		.cap = {.max_send_wr = 1, .max_recv_wr = 1, .max_send_sge = 1, .max_recv_sge = 1},
	};
	struct rdma_conn_param param = {
		.private_data = bytes,
		.private_data_len = private_data_encode(&data, bytes),
		.retry_count = 5,
		.rnr_retry_count = 6,
	};
	struct ibv_sge sge = {.addr = (uintptr_t)silent->memory, .length = PROTO_FRAME_MAX};
	struct ibv_recv_wr wr = {.sg_list = &sge, .num_sge = 1};
	struct ibv_recv_wr *bad;
	int r = silent_prepare(silent, id->verbs);

	if (r < 0)
		return r;
	attr.send_cq = silent->cq.cq;
	attr.recv_cq = silent->cq.cq;
	sge.lkey = silent->mr->lkey;
	if (rdma_create_qp(id, silent->pd, &attr) != 0 || verbs_post_recv(id->qp, &wr, &bad) < 0 ||
	    rdma_connect(id, &param) != 0)
		return -errno;
	return 0;
}

static void silent_rejected(struct silent *silent, const struct rdma_conn_param *param)
{
	struct private_data data;

	silent->refused++;
	silent->code = 0;
	if (private_data_decode(param->private_data, param->private_data_len, &data) == 0 &&
	    data.kind == PRIVATE_DATA_REJECT)
		silent->code = (int)data.code;
}

static void silent_event(struct silent *silent, struct rdma_cm_event *event)
{
	switch (event->event) {
	case RDMA_CM_EVENT_ADDR_RESOLVED:
		silent->other += rdma_resolve_route(event->id, RESOLVE_MS) != 0;
		break;
	case RDMA_CM_EVENT_ROUTE_RESOLVED:
		silent->other += silent_connect(silent, event->id) != 0;
		break;
	case RDMA_CM_EVENT_ESTABLISHED:
		silent->accepted++;
		break;
	case RDMA_CM_EVENT_REJECTED:
		silent_rejected(silent, &event->param.conn);
		break;
	case RDMA_CM_EVENT_DISCONNECTED:
		silent->gone++;
		break;
	default:
		silent->other++;
	}
}

/* Return: was there an event within the time? */
static bool silent_take(struct silent *silent, int limit_ms)
{
	struct pollfd fd = {.fd = silent->channel->fd, .events = POLLIN};
	struct rdma_cm_event *event;

	if (poll(&fd, 1, limit_ms) <= 0 || rdma_get_cm_event(silent->channel, &event) != 0)
		return false;
	silent_event(silent, event);
	(void)rdma_ack_cm_event(event);
	return true;
}

/* One more that wants in; silent_take() has to be called then. */
static int silent_begin(struct silent *silent)
{
	struct sockaddr_in peer = {.sin_family = AF_INET, .sin_port = htons(HARNESS_PORT)};

	if (silent->channel == NULL)
		silent->channel = rdma_create_event_channel();
	if (silent->channel == NULL || silent->count == SILENT_MAX ||
	    inet_pton(AF_INET, harness_address(), &peer.sin_addr) != 1)
		return -EINVAL;
	if (rdma_create_id(silent->channel, &silent->ids[silent->count], NULL, RDMA_PS_TCP) != 0)
		return -errno;
	silent->count++;
	return rdma_resolve_addr(silent->ids[silent->count - 1], NULL, (struct sockaddr *)&peer,
				 RESOLVE_MS) == 0
		       ? 0
		       : -errno;
}

/* Return: 0 = accepted, the code of a refusal, or a negative errno. */
static int silent_add(struct silent *silent)
{
	uint64_t accepted = silent->accepted;
	uint64_t refused = silent->refused;
	int r = silent_begin(silent);

	while (r == 0 && silent->accepted == accepted && silent->refused == refused) {
		if (!silent_take(silent, RESOLVE_MS) || silent->other > 0)
			r = -ETIMEDOUT;
	}
	if (r != 0)
		return r;
	return silent->accepted > accepted ? 0 : silent->code;
}

#define SILENT(name)                                                                    \
	static struct silent name##_memory;                                             \
	__attribute__((cleanup(silent_close_at))) struct silent *name = &name##_memory; \
	memset(name, 0, sizeof(*name))

/* A few. */

/* So many get in, and the next one when all are gone. */
static void at_the_limit(const char *limits, uint64_t limit, int code)
{
	HARNESS(h, .limits = limits);
	SILENT(silent);

	for (int round = 0; round < 2; round++) {
		for (uint64_t i = 0; i < limit; i++)
			CHECK_INT(silent_add(silent), 0);
		CHECK_INT(harness_number(&h, "sessions"), limit);
		for (int i = 0; i < FEW; i++)
			CHECK_INT(silent_add(silent), code);
		CHECK_INT(harness_number(&h, "sessions"), limit);
		CHECK(harness_wait_number(&h, "sessions", 0, LATE_MS));
	}
	CHECK_INT(harness_number(&h, "counters.sessions_rejected"), 2 * FEW);
	silent_close(silent);
	accounts_check(&h);
	CHECK(!test_has_failed());
	CHECK_INT(harness_stop(&h), 0);
}

TEST(silent__handshakes_of_an_address)
{
	at_the_limit(NO_BAN "\"handshake_timeout\": \"6s\"", 16, ERROR_HANDSHAKES_MAX);
}

TEST(silent__handshakes_in_all)
{
	at_the_limit(NO_BAN "\"handshake_timeout\": \"3s\", \"handshakes_max\": 5", 5,
		     ERROR_HANDSHAKES_MAX);
}

TEST(silent__connections_of_an_address)
{
	at_the_limit(NO_BAN "\"handshake_timeout\": \"3s\", \"connections_max_per_address\": 4", 4,
		     ERROR_ADDRESS_MAX);
}

/* Those who have introduced themselves do not stand in the way of others who will. */
TEST(silent__sessions_are_no_handshakes)
{
	HARNESS(h, .limits = NO_BAN "\"handshake_timeout\": \"1min\", "
				    "\"handshakes_max_per_address\": 2");
	SILENT(silent);
	mempool *pools[4];

	for (int i = 0; i < 4; i++)
		CHECK_INT(harness_connect("alpha", &pools[i]), 0);
	CHECK_INT(silent_add(silent), 0);
	CHECK_INT(silent_add(silent), 0);
	CHECK_INT(silent_add(silent), ERROR_HANDSHAKES_MAX);
	for (int i = 0; i < 4; i++)
		mempool_close(pools[i]);
	CHECK(harness_wait_number(&h, "sessions", 2, LATE_MS));
	silent_close(silent);
	accounts_check(&h);
	CHECK(!test_has_failed());
	CHECK_INT(harness_stop(&h), 0);
}

/* Silence is a failure of the address: it has to wait, and at last is banned. */
TEST(silent__address_has_to_wait_and_is_banned)
{
	HARNESS(h, .limits = "\"heartbeat\": \"0\", \"handshake_timeout\": \"200ms\", "
			     "\"ban_after\": 3, \"ban_backoff_min\": \"500ms\", "
			     "\"ban_time\": \"1min\"");
	SILENT(silent);
	uint64_t wait_ms = 500;

	for (int i = 0; i < 3; i++) {
		CHECK_INT(silent_add(silent), 0);
		CHECK(harness_wait_number(&h, "sessions", 0, LATE_MS));
		if (i < 2) {
			CHECK_INT(silent_add(silent), ERROR_BACK_OFF);
			harness_sleep_ms(wait_ms + 50);
			wait_ms *= 2;
		}
	}
	CHECK_INT(silent_add(silent), ERROR_BANNED);
	harness_sleep_ms(wait_ms);
	CHECK_INT(silent_add(silent), ERROR_BANNED);
	silent_close(silent);
	accounts_check(&h);
	CHECK(!test_has_failed());
	CHECK_INT(harness_stop(&h), 0);
}

/* A thousand. */

static unsigned int count_files(pid_t pid)
{
	char path[64];
	unsigned int count = 0;
	DIR *dir;

	snprintf(path, sizeof(path), "/proc/%d/fd", (int)pid);
	dir = opendir(path);
	if (dir == NULL)
		return 0;
	while (readdir(dir) != NULL)
		count++;
	(void)closedir(dir);
	return count;
}

/* What is asked all the time. */
struct look {
	uint64_t last_ns;
	uint64_t longest_ns;
	uint64_t count;
	int64_t sessions;
	int64_t most_sessions;
	unsigned int most_files;
};

static void look(struct look *look, struct harness *h)
{
	uint64_t begun_ns = clock_now_ns();
	uint64_t took_ns;
	unsigned int files;

	if (begun_ns < look->last_ns + LOOK_MS * CLOCK_NS_PER_MS)
		return;
	look->sessions = harness_number(h, "sessions");
	took_ns = clock_now_ns() - begun_ns;
	if (took_ns > look->longest_ns)
		look->longest_ns = took_ns;
	if (look->sessions > look->most_sessions)
		look->most_sessions = look->sessions;
	files = count_files(h->pid);
	if (files > look->most_files)
		look->most_files = files;
	look->count++;
	look->last_ns = clock_now_ns();
}

TEST(silent__a_thousand)
{
	uint64_t count = figure(SILENT_MAX);
	uint64_t deadline_ms = count == SILENT_MAX ? DEADLINE_MS : DEADLINE_MS / 4;
	char limits[512];

	snprintf(limits, sizeof(limits),
		 NO_BAN MANY ", \"handshake_timeout\": \"%" PRIu64
			     "ms\", \"control_receives\": 4, \"backlog\": 64",
		 deadline_ms);
	HARNESS(h, .limits = limits, .sessions_max = SILENT_MAX + 8);
	WORKER(worker, "bystander");
	SILENT(silent);
	struct look looks = {0};
	unsigned int files;
	uint64_t begun_ns = clock_now_ns();
	uint64_t in_ns;

	files = count_files(h.pid);
	CHECK_INT(worker_start(worker), 0);
	for (uint64_t i = 0; i < count; i++)
		CHECK_INT(silent_begin(silent), 0);
	while (silent->accepted < count) {
		CHECK_INT(silent->other, 0);
		CHECK_INT(silent->refused, 0);
		CHECK(clock_now_ns() < clock_add_ms(begun_ns, 2 * DEADLINE_MS));
		(void)silent_take(silent, 5);
		look(&looks, &h);
	}
	in_ns = clock_now_ns();
	while (looks.sessions != 1) {
		CHECK(clock_now_ns() < clock_add_ms(in_ns, deadline_ms + GOING_MS));
		(void)silent_take(silent, 5);
		look(&looks, &h);
	}
	printf("# S5 %" PRIu64 " accepted in %.1f s, %" PRId64
	       " at a time; the last was gone %.1f s after it came, the time being %" PRIu64
	       " s; status %" PRIu64 " times, at most %.1f ms; %u files before, %u at most\n",
	       silent->accepted, (double)(in_ns - begun_ns) / 1e9, looks.most_sessions - 1,
	       (double)(clock_now_ns() - in_ns) / 1e9, deadline_ms / 1000, looks.count,
	       (double)looks.longest_ns / 1e6, files, looks.most_files);
	printf("# longest turn %" PRId64 " us\n", harness_number(&h, "longest_turn_us"));
	CHECK(looks.longest_ns < ADMIN_MS * CLOCK_NS_PER_MS);
	CHECK(files > 0);
	CHECK_INT(looks.most_files, files);
	worker_stop(worker);
	CHECK_INT(atomic_load(&worker->code), 0);
	CHECK_INT(atomic_load(&worker->wrong), 0);
	worker_print(worker, "meanwhile");
	worker_close(worker);
	silent_close(silent);
	accounts_check(&h);
	CHECK(!test_has_failed());
	CHECK_INT(harness_stop(&h), 0);
}
