/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Starts that fail, at each of their calls, and starts on a device that has less than the
 * configuration asks for. Whatever fails: one line that says what, the documented status,
 * and every object destroyed, which the status would belie.
 */
#include <inttypes.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/clock.h"
#include "common/endpoint.h"
#include "proto/error.h"
#include "tests/integration/accounts.h"
#include "tests/integration/harness.h"
#include "tests/integration/peer.h"
#include "tests/integration/resources.h"

#define LIMIT_MS 15000
#define SEAM_MAX 64

#define SELFTEST_STEP 7

/* A daemon with a fault that is expected to end by itself. @extra: members of its configuration */
static int run(const char *seam, const char *extra, struct harness_output *ret_output)
{
	char environment[SEAM_MAX + 16];
	char path[] = "/tmp/itest.conf.XXXXXX";
	char program[PATH_MAX];
	const char *argv[] = {"env",	  environment, harness_program("mempoold-seam", program),
			      "--config", path,	       NULL};
	int fd = mkstemp(path);
	int r = keys_write("daemon", "/tmp/itest.start.key");

	if (r < 0)
		return r;
	snprintf(environment, sizeof(environment), "MEMPOOLD_SEAM=%s", seam);
	r = dprintf(fd,
		    "{\"pool_size\": \"1MiB\", \"listen\": [\"%s\"], \"log_level\": \"error\", "
		    "\"admin_socket\": \"/tmp/itest.start.sock\", \"sessions_max\": 8, "
		    "\"state_dir\": \"/tmp\", \"key_file\": \"/tmp/itest.start.key\"%s}",
		    harness_endpoint(), extra);
	(void)close(fd);
	if (r > 0)
		r = harness_run(argv, LIMIT_MS, ret_output);
	(void)unlink(path);
	(void)unlink("/tmp/itest.start.sock.lock");
	(void)unlink("/tmp/itest.start.key");
	return r;
}

/* What the daemon says when a call fails, by the steps in which it is made. */
#define SAYS_MAX 9
#define LOOP	 "cannot set up the event loop"
#define LISTEN	 "cannot listen on '"
#define CONTROL	 "cannot register control buffers"
#define QUEUE	 "cannot create completion queue"
#define POOL	 "of memory for the pool"
#define PAIR	 "no queue pair can be connected to itself"
#define ROUTE	 "no port reaches itself"
#define ADMIN	 "cannot listen on admin socket"
#define KEYS	 "cannot lock memory for keys"
#define DAMAGE	 "cannot watch for damaged memory"
#define GATE	 "cannot set up admission: not enough memory"
#define TENANTS	 "configuration with what was saved: Cannot allocate memory"

static const struct {
	const char *call;
	const char *says[SAYS_MAX];
} calls[] = {
	{"sodium_init", {"no random numbers"}},
	{"event_base_new", {LOOP}},
	{"timerfd_create", {LOOP}},
	{"eventfd", {LOOP}},
	{"pthread_create", {LOOP}},
	{"event_new", {LOOP, DAMAGE, ADMIN, "cannot listen for connections"}},
	{"event_add", {LOOP, DAMAGE, ADMIN, "cannot listen for connections"}},
	{"calloc",
	 {LOOP, CONTROL, POOL, ROUTE, ADMIN, GATE, TENANTS, "cannot write the audit log"}},
	{"reallocarray", {LOOP, TENANTS}},
	{"rdma_create_event_channel", {"cannot use rdma_cm"}},
	{"verbs_set_nonblocking", {"cannot listen for connections", "query device"}},
	{"getaddrinfo", {LISTEN}},
	{"rdma_create_id", {LISTEN}},
	{"rdma_bind_addr", {LISTEN}},
	{"rdma_get_devices", {"no RDMA device"}},
	{"ibv_query_device", {"query device", ROUTE}},
	{"ibv_alloc_pd", {"allocate protection domain"}},
	{"ibv_create_comp_channel", {QUEUE, PAIR}},
	{"ibv_create_cq", {QUEUE, PAIR}},
	{"mmap64", {CONTROL, POOL}},
	{"madvise", {CONTROL, POOL}},
	{"verbs_reg_mr", {CONTROL, "cannot register the pool", "region cannot be registered"}},
	{"memfd_create", {POOL}},
	{"ftruncate64", {POOL}},
	{"_ibv_query_gid_table", {ROUTE}},
	{"ibv_create_qp", {PAIR}},
	{"ibv_modify_qp", {PAIR}},
	{"verbs_alloc_mw", {"memory window cannot be allocated"}},
	{"socket", {ADMIN}},
	{"bind", {ADMIN}},
	{"listen", {ADMIN}},
	{"rdma_listen", {LISTEN}},
};

#define CALLS (sizeof(calls) / sizeof(calls[0]))

static bool is_said(const char *call, const char *line)
{
	size_t len = strcspn(call, "\n");

	for (size_t i = 0; i < CALLS; i++) {
		if (strlen(calls[i].call) != len || strncmp(calls[i].call, call, len) != 0)
			continue;
		for (size_t j = 0; j < SAYS_MAX && calls[i].says[j] != NULL; j++) {
			if (strstr(line, calls[i].says[j]) != NULL)
				return true;
		}
	}
	return false;
}

/*
 * One start. @before: NULL: there is nothing to count with; @ret_failed: was there such a call?
 * @ret_in_selftest: and was it one of those that connect its pairs?
 */
static void start(const char *seam, const struct resources *before, bool *ret_failed,
		  bool *ret_in_selftest)
{
	static struct harness_output output;
	struct resources after;
	int r = run(seam, "", &output);

	*ret_failed = output.out[0] != '\0';
	if (r != 0 || output.status != *ret_failed ||
	    harness_count_lines(output.err) != *ret_failed ||
	    (*ret_failed && !is_said(output.out, output.err)))
		printf("# %s: status %d, %s# %s", seam, output.status, output.out, output.err);
	CHECK_INT(r, 0);
	CHECK_INT(output.status, *ret_failed ? 1 : 0);
	CHECK_INT(harness_count_lines(output.err), *ret_failed ? 1 : 0);
	CHECK(!*ret_failed || is_said(output.out, output.err));
	*ret_in_selftest = strstr(output.err, PAIR) != NULL;
	if (before == NULL)
		return;
	CHECK(resources_read(&after));
	if (!resources_equal(before, &after))
		resources_print(seam, &after);
	CHECK(resources_equal(before, &after));
}

/*
 * The self-test makes the same calls hundreds of times, of which every SELFTEST_STEP-th fails:
 * for each of its probes another one.
 */
static void fail_each_call(const struct resources *before)
{
	bool failed = true;
	uint32_t starts = 0;
	uint32_t n = 1;

	while (failed) {
		bool in_selftest = false;
		char seam[SEAM_MAX];

		snprintf(seam, sizeof(seam), "start:%u", n);
		start(seam, before, &failed, &in_selftest);
		CHECK(!test_has_failed());
		n += in_selftest ? SELFTEST_STEP : 1;
		starts++;
	}
	printf("# %u starts, about %u calls\n", starts, n - 1);
	CHECK(starts > CALLS);
}

/* A name's first ones stand for the rest. */
static void fail_some_calls(const struct resources *before)
{
	uint32_t starts = 0;

	for (size_t i = 0; i < CALLS; i++) {
		bool in_selftest, failed = true;

		for (uint32_t n = 1; n <= 2 && failed; n++) {
			char seam[SEAM_MAX];

			snprintf(seam, sizeof(seam), "start:%u:%s", n, calls[i].call);
			start(seam, before, &failed, &in_selftest);
			CHECK(!test_has_failed());
			CHECK(failed || n > 1);
			starts++;
		}
	}
	printf("# %u starts\n", starts);
}

TEST(field_11_start__each_call_fails)
{
	struct resources before;
	bool can_count = resources_read(&before);
	const char *full = getenv("TEST_FULL");

	if (full != NULL && strcmp(full, "1") == 0)
		fail_each_call(can_count ? &before : NULL);
	else
		fail_some_calls(can_count ? &before : NULL);
}

/* Completion queues that are smaller than all sessions and lanes would need. */

/* Devices give one entry less than a power of two, and never less than what was asked for. */
_Static_assert(ENDPOINT_SENDS == 8, "the figures below are made for this");

/* 32 entries for a session, 16 for a lane: of 127, one is missing for each further one. */
#define SMALL	 "\"control_receives\": 24, \"lane_send_queue\": 15"
#define SESSIONS 3
#define LANES	 7

/* 63 entries for a session, 21 for a lane: of 63, nothing is left. */
#define TIGHT	    "\"control_receives\": 55, \"lane_send_queue\": 20"
#define TIGHT_LANES 3

TEST(field_23_start__no_room_for_a_single_one)
{
	static struct harness_output output;
	static const struct {
		const char *seam;
		const char *extra;
		const char *says;
	} cases[] = {
		{"small-cq:62", ", " TIGHT, "62 entries at most, and one session needs 63"},
		{"small-cq:32", ", \"control_receives\": 24, \"lane_send_queue\": 32",
		 "32 entries at most, and one data connection needs 33"},
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		CHECK_INT(run(cases[i].seam, cases[i].extra, &output), 0);
		printf("# %s", output.err);
		CHECK_INT(output.status, 1);
		CHECK_INT(harness_count_lines(output.err), 1);
		CHECK(strstr(output.err, cases[i].says) != NULL);
	}
}

struct lanes {
	struct peer_lane all[TIGHT_LANES + 1];
};

static void lanes_close(struct lanes *lanes)
{
	for (int i = 0; i <= TIGHT_LANES; i++)
		peer_lane_close(&lanes->all[i]);
}

TEST(field_23_start__room_for_a_single_one)
{
	HARNESS(h, .program = "mempoold-seam", .seam = "small-cq:63", .extra = TIGHT);
	PEER(alpha, "alpha");
	__attribute__((cleanup(raw_close))) struct raw second = {0};
	__attribute__((cleanup(lanes_close))) struct lanes lanes = {0};
	struct message_lane_offer offer;

	CHECK_INT(raw_open(&second, "beta"), ERROR_SESSIONS_MAX);
	for (int i = 0; i < TIGHT_LANES; i++)
		CHECK_INT(peer_lane_open(&alpha, &lanes.all[i]), 0);
	CHECK_INT(peer_offer(&alpha, &offer), 0);
	CHECK_INT(peer_connect(&alpha, &offer, &lanes.all[TIGHT_LANES]), ERROR_LANES_MAX);
	CHECK_INT(harness_number(&h, "sessions"), 1);
	lanes_close(&lanes);
	peer_close(&alpha);
	CHECK(harness_wait_number(&h, "sessions", 0, 10000));
	raw_close(&second);
	CHECK_INT(raw_open(&second, "beta"), 0);
}

struct crowd {
	struct peer peers[SESSIONS];
	struct peer_lane lanes[LANES];
};

static void crowd_close(struct crowd *crowd)
{
	for (int i = 0; i < LANES; i++)
		peer_lane_close(&crowd->lanes[i]);
	for (int i = 0; i < SESSIONS; i++)
		peer_close(&crowd->peers[i]);
}

static void crowd_open(struct crowd *crowd)
{
	for (int i = 0; i < SESSIONS; i++)
		CHECK_INT(peer_open(&crowd->peers[i], "alpha", NULL), 0);
	for (int i = 0; i < LANES; i++) {
		struct message_grant grant;
		struct peer *peer = &crowd->peers[i % SESSIONS];

		CHECK_INT(peer_lane_open(peer, &crowd->lanes[i]), 0);
		CHECK_INT(peer_acquire(peer, &crowd->lanes[i], 4096, 600000, 0, &grant), 0);
	}
}

/* One more than there is room for is refused with its code, and takes nothing from the others. */
static void crowd_one_more(struct crowd *crowd)
{
	__attribute__((cleanup(raw_close))) struct raw session = {0};
	__attribute__((cleanup(peer_lane_close))) struct peer_lane lane = {0};
	struct message_lane_offer offer;

	CHECK_INT(raw_open(&session, "beta"), ERROR_SESSIONS_MAX);
	CHECK_INT(peer_offer(&crowd->peers[0], &offer), 0);
	CHECK_INT(peer_connect(&crowd->peers[0], &offer, &lane), ERROR_LANES_MAX);
}

/* At the end all that is posted comes back at the same time: it is what the room is for. */
TEST(field_23_start__as_many_as_there_is_room_for)
{
	HARNESS(h, .program = "mempoold-seam", .seam = "small-cq:127", .extra = SMALL);
	__attribute__((cleanup(crowd_close))) struct crowd crowd = {0};

	for (int round = 1; round <= 2; round++) {
		crowd_open(&crowd);
		CHECK(!test_has_failed());
		CHECK_INT(harness_number(&h, "sessions"), SESSIONS);
		CHECK_INT(harness_number(&h, "leases.active"), LANES);
		crowd_one_more(&crowd);
		CHECK(!test_has_failed());
		CHECK_INT(harness_number(&h, "counters.sessions_rejected"), 2 * round);
		CHECK_INT(kill(h.pid, SIGSTOP), 0);
		crowd_close(&crowd);
		CHECK_INT(kill(h.pid, SIGCONT), 0);
		CHECK(harness_wait_number(&h, "sessions", 0, 20000));
		CHECK(harness_wait_number(&h, "lanes", 0, 20000));
	}
	accounts_check(&h);
	CHECK(!test_has_failed());
	CHECK_INT(harness_stop(&h), 0);
}
