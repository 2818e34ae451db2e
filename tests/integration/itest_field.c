/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Troubles that others have had with this kind of work, by the numbers of
 * tests/field-cases.txt, where those are named, too, that other programs test.
 *
 * What changes the machine itself is done in a test guest only.
 */
#include <errno.h>
#include <glob.h>
#include <inttypes.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "client/lane.h"
#include "client/pool.h"
#include "common/clock.h"
#include "proto/error.h"
#include "tests/integration/accounts.h"
#include "tests/integration/harness.h"
#include "tests/integration/machine.h"
#include "tests/integration/peer.h"
#include "tests/integration/proof.h"

#define PAGE	    4096
#define TTL_MS	    600000
#define STOP_MAX_MS 15000

/* A client in a process of its own. */
struct client {
	pid_t pid; /* 0: none */
	int out;
};

static void client_kill(struct client *client)
{
	int status;

	if (client->pid <= 0)
		return;
	(void)kill(client->pid, SIGKILL);
	(void)waitpid(client->pid, &status, 0);
	(void)close(client->out);
	client->pid = 0;
}

/* @does: "read" or "idle"; NULL: it writes. Return: has it got its leases? */
static bool client_start(struct client *client, const char *does)
{
	char program[PATH_MAX];
	const char *argv[] = {harness_program("itest_child", program),
			      harness_endpoint(),
			      "doomed",
			      "4",
			      "1048576",
			      does,
			      NULL};
	char line[16];

	client->pid = harness_spawn(argv, &client->out);
	return client->pid > 0 && read(client->out, line, sizeof(line)) > 0 &&
	       strncmp(line, "ready", 5) == 0;
}

/* Devices. */

#define SECOND_POOL_BYTES "1048576"

/*
 * A daemon that will not start. @seam: MEMPOOLD_SEAM=FAULT, @must_say: what its one line must
 * contain
 */
static void refuse_to_start(const char *seam, const char *listen, const char *device,
			    const char *must_say)
{
	static struct harness_output output;
	char path[] = "/tmp/itest.conf.XXXXXX";
	char program[PATH_MAX];
	const char *argv[] = {"env",	  seam, harness_program("mempoold-seam", program),
			      "--config", path, NULL};
	int fd = mkstemp(path);
	int r;

	CHECK(fd >= 0);
	r = dprintf(fd,
		    "{\"pool_size\": \"" SECOND_POOL_BYTES
		    "\", \"listen\": [\"%s\"], \"log_level\": \"error\", "
		    "\"admin_socket\": \"/tmp/itest.second.sock\", \"device\": \"%s\", "
		    "\"device_wait\": \"1s\", \"key_file\": \"/tmp/itest.second.key\"}",
		    listen, device);
	(void)close(fd);
	if (r > 0)
		r = harness_run(argv, 30000, &output);
	(void)unlink(path);
	(void)unlink("/tmp/itest.second.key");
	CHECK_INT(r, 0);
	printf("# %s", output.err);
	CHECK_INT(output.status, 1);
	CHECK_INT(harness_count_lines(output.err), 1);
	CHECK(strstr(output.err, must_say) != NULL);
}

#define NO_WINDOWS "MEMPOOLD_SEAM=no-windows"

TEST(field_05_start__device_without_windows)
{
	char listen[HARNESS_TEXT_MAX];

	snprintf(listen, sizeof(listen), "0.0.0.0:%d", HARNESS_PORT);
	refuse_to_start(NO_WINDOWS, harness_endpoint(), "", "has no Type 2B memory windows");
	if (!test_has_failed())
		refuse_to_start(NO_WINDOWS, listen, "",
				"no RDMA device with Type 2B memory windows");
	if (!test_has_failed() && machine_is_guest())
		refuse_to_start(NO_WINDOWS, listen, "rxe0",
				"device rxe0 has no Type 2B memory windows");
}

/* A byte less than the pool; the pool itself is enough for the daemon of field_61 below. */
TEST(field_61_start__device_registers_less_than_the_pool)
{
	refuse_to_start("MEMPOOLD_SEAM=small-mr:1048575", harness_endpoint(), "",
			"registers 1048575 bytes at a time (max_mr_size), and pool_size "
			"is " SECOND_POOL_BYTES);
}

TEST(field_61_start__device_registers_just_the_pool)
{
	HARNESS(h, .program = "mempoold-seam", .seam = "small-mr:1048576",
		.pool_size = SECOND_POOL_BYTES);
	uint8_t sent = 0x61;
	uint8_t got = 0;
	mempool_lease *lease = NULL;
	mempool *pool = NULL;

	CHECK_INT(harness_connect("alpha", &pool), 0);
	CHECK_INT(harness_acquire(pool, 1048576, 60000, &lease), 0);
	CHECK_INT(mempool_write(lease, 1048575, &sent, 1), 0);
	CHECK_INT(mempool_read(lease, 1048575, &got, 1), 0);
	CHECK_INT(got, 0x61);
	harness_close(&pool);
	CHECK_INT(harness_stop(&h), 0);
}

#define SECOND_ADDRESS "10.78.0.1"
#define SECOND_GID     "0a4e:0001"

/* Another device, for as long as a test lasts. Nobody may have it open at the end. */
static void second_device_remove(bool *there)
{
	if (*there)
		(void)machine_shell("rdma link delete rxe1; ip link del v2");
}

static bool second_device_add(void)
{
	return machine_shell("ip link add v2 type veth peer name v3 && "
			     "ip addr add " SECOND_ADDRESS "/24 dev v2 && "
			     "ip link set v3 up && ip link set v2 up && "
			     "rdma link add rxe1 type rxe netdev v2") &&
	       machine_shell(
		       "i=0; until cat /sys/class/infiniband/rxe1/ports/1/gids/? 2>/dev/null | "
		       "grep -q " SECOND_GID "; do i=$((i + 1)); [ $i -lt 200 ] || exit 1; "
		       "sleep 0.05; done");
}

static int start_on_all_addresses(struct harness *h, const char *device)
{
	struct harness_options options = {.extra = device};
	char address[HARNESS_TEXT_MAX];
	int r;

	snprintf(address, sizeof(address), "%s", harness_address());
	(void)setenv("MEMPOOL_ADDRESS", "0.0.0.0", 1);
	r = harness_start(h, &options);
	(void)setenv("MEMPOOL_ADDRESS", address, 1);
	return r;
}

/* All that uses the second device is in processes that end, so that it can be removed. */
TEST(field_30_connect__comes_in_on_another_device)
{
	static struct harness_output output;
	__attribute__((cleanup(second_device_remove))) bool there = false;
	__attribute__((cleanup(harness_cleanup))) struct harness h = {0};
	__attribute__((cleanup(client_kill))) struct client client = {0};
	char program[PATH_MAX];
	const char *argv[] = {harness_program("itest_child", program),
			      SECOND_ADDRESS ":7471",
			      "alpha",
			      "1",
			      "4096",
			      "idle",
			      NULL};

	if (!machine_is_guest())
		SKIP("a second device is made in test guests only");
	there = true;
	CHECK(second_device_add());
	CHECK_INT(start_on_all_addresses(&h, "\"device\": \"rxe0\""), 0);
	CHECK_INT(harness_run(argv, 60000, &output), 0);
	printf("# %s", output.err);
	CHECK_INT(output.status, 1);
	CHECK(strstr(output.err, error_text(ERROR_DEVICE)) != NULL);
	CHECK_INT(harness_number(&h, "counters.sessions_rejected"), 1);
	CHECK_INT(harness_number(&h, "counters.sessions_accepted"), 0);
	CHECK(client_start(&client, "idle"));
	CHECK_INT(harness_number(&h, "leases.active"), 4);
	client_kill(&client);
	CHECK(harness_wait_number(&h, "sessions", 0, 10000));
	CHECK_INT(harness_stop(&h), 0);
}

/* Keys. */

/* Another key of the same window, as it may have had before, is refused: one bit is enough. */
TEST(field_06_key__is_the_one_that_was_bound)
{
	HARNESS(h, .extra = "\"lane_wait_min\": \"0\"");
	PEER(alpha, "alpha");
	PEER_LANE(lane, &alpha);
	struct message_grant grant;
	const struct message_descriptor *at = &grant.descriptors[0];

	CHECK_INT(peer_acquire(&alpha, &lane, PAGE, TTL_MS, 0, &grant), 0);
	for (uint32_t bit = 0; bit < 8; bit++) {
		CHECK_INT(peer_access(&lane, IBV_WR_RDMA_READ, 1, at->remote_addr, at->rkey),
			  IBV_WC_SUCCESS);
		CHECK_INT(peer_access(&lane, IBV_WR_RDMA_READ, 1, at->remote_addr,
				      at->rkey ^ 1u << bit),
			  IBV_WC_REM_ACCESS_ERR);
		peer_lane_close(&lane);
		CHECK_INT(peer_lane_open(&alpha, &lane), 0);
		CHECK_INT(peer_attach(&alpha, &lane, grant.lease_id, &grant), 0);
	}
}

#define REGISTRATIONS 0x10100

/* So many registrations on the device that their numbers would be those of windows. */
TEST(field_14_lease__after_many_registrations)
{
	HARNESS(h, .pool_size = NULL);
	PEER(alpha, "alpha");
	PEER_LANE(lane, &alpha);
	uint64_t begun_ns = clock_now_ns();
	struct message_grant grant;
	struct ibv_mr *mr;
	uint32_t highest = 0;

	for (uint32_t i = 0; i < REGISTRATIONS; i++) {
		CHECK_INT(verbs_reg_mr(lane.raw.pd, peer_buffer(&lane), PAGE,
				       IBV_ACCESS_LOCAL_WRITE, &mr),
			  0);
		if (mr->lkey >> 8 > highest)
			highest = mr->lkey >> 8;
		CHECK_INT(verbs_dereg_mr(mr), 0);
	}
	printf("# %d registrations in %" PRIu64 " ms, the highest number was 0x%x\n", REGISTRATIONS,
	       harness_since_ms(begun_ns), highest);
	CHECK(highest > 0x10000 || !machine_is_guest());
	CHECK_INT(peer_acquire(&alpha, &lane, PAGE, TTL_MS, 0, &grant), 0);
	CHECK_INT(peer_access(&lane, IBV_WR_RDMA_WRITE, PAGE, grant.descriptors[0].remote_addr,
			      grant.descriptors[0].rkey),
		  IBV_WC_SUCCESS);
	CHECK_INT(peer_release(&alpha, grant.lease_id), 0);
	CHECK_INT(peer_access(&lane, IBV_WR_RDMA_READ, 1, grant.descriptors[0].remote_addr,
			      grant.descriptors[0].rkey),
		  IBV_WC_REM_ACCESS_ERR);
}

/* Ends of the daemon. */

#define MANY	  1000
#define AT_A_TIME 50

TEST(field_10_stop__with_1000_leases)
{
	HARNESS(h, .pool_size = NULL);
	SESSION(alpha, "alpha");
	struct mempool_acquire_opts opts = {
		.size = sizeof(opts), .ttl_ms = TTL_MS, .rights = MEMPOOL_READ | MEMPOOL_WRITE};
	mempool_lease *leases[AT_A_TIME];
	uint64_t begun_ns;

	for (int i = 0; i < MANY; i += AT_A_TIME)
		CHECK_INT(mempool_acquire_many(alpha, 1, &opts, AT_A_TIME, leases), 0);
	CHECK_INT(harness_number(&h, "leases.active"), MANY);
	begun_ns = clock_now_ns();
	/* Not 0 if any registration or window could not be taken down. */
	CHECK_INT(harness_stop(&h), 0);
	printf("# stopped with %d leases in %" PRIu64 " ms\n", MANY, harness_since_ms(begun_ns));
	CHECK(harness_since_ms(begun_ns) < STOP_MAX_MS);
}

TEST(field_32_stop__under_load)
{
	static const char *const load[] = {NULL, "read"};

	for (size_t i = 0; i < sizeof(load) / sizeof(load[0]); i++) {
		HARNESS(h, .pool_size = NULL);
		__attribute__((cleanup(client_kill))) struct client client = {0};
		uint64_t begun_ns;

		CHECK(client_start(&client, load[i]));
		harness_sleep_ms(100);
		begun_ns = clock_now_ns();
		CHECK_INT(harness_stop(&h), 0);
		CHECK(harness_since_ms(begun_ns) < STOP_MAX_MS);
	}
}

/* Ends of clients. */

TEST(field_13_38_disconnect__killed_while_reading)
{
	HARNESS(h, .pool_size = NULL);
	int64_t free_bytes = harness_number(&h, "pool.free_bytes");
	uint32_t rounds = 2 * harness_figure(FIGURE_KILL_ROUNDS);

	CHECK(free_bytes > 0);
	srand(38);
	for (uint32_t i = 0; i < rounds; i++) {
		__attribute__((cleanup(client_kill))) struct client client = {0};

		CHECK(client_start(&client, "read"));
		CHECK_INT(harness_number(&h, "leases.active"), 4);
		harness_sleep_ms((uint64_t)rand() % 200);
		client_kill(&client);
		CHECK(harness_wait_number(&h, "sessions", 0, 10000));
		CHECK(harness_wait_number(&h, "pool.free_bytes", free_bytes, 10000));
	}
	printf("# killed %u times\n", rounds);
	CHECK_INT(harness_number(&h, "pid"), h.pid);
	CHECK_INT(harness_number(&h, "counters.destroy_failures"), 0);
	accounts_check(&h);
	CHECK(!test_has_failed());
	CHECK_INT(harness_stop(&h), 0);
}

/* Lines of a level behind an offset of the daemon's log. @ret_end: where it ends */
static int count_log(const struct harness *h, const char *level, long from, long *ret_end)
{
	char path[HARNESS_TEXT_MAX];
	char line[1024];
	FILE *file;
	int count = 0;

	snprintf(path, sizeof(path), "%s/log", h->dir);
	file = fopen(path, "re");
	if (file == NULL)
		return -1;
	if (fseek(file, from, SEEK_SET) < 0)
		count = -1;
	while (count >= 0 && fgets(line, sizeof(line), file) != NULL)
		count += strstr(line, level) != NULL;
	*ret_end = ftell(file);
	fclose(file);
	return count;
}

/* All receives come back as flushed: that is how things end, and nobody need know. */
TEST(field_20_disconnect__in_order_is_no_error)
{
	long before = 0;
	long end = 0;

	(void)unsetenv("JOURNAL_STREAM");
	HARNESS(h, .extra = "\"control_receives\": 128");
	SESSION(alpha, "alpha");
	mempool_lease *lease;
	uint8_t byte = 1;

	CHECK_INT(harness_acquire(alpha, PAGE, TTL_MS, &lease), 0);
	CHECK_INT(mempool_write(lease, 0, &byte, 1), 0);
	CHECK_INT(mempool_release(lease), 0);
	CHECK(count_log(&h, " info: ", 0, &before) > 0);
	harness_close(&alpha);
	CHECK(harness_wait_number(&h, "sessions", 0, 10000));
	CHECK(harness_wait_number(&h, "lanes", 0, 10000));
	CHECK_INT(count_log(&h, " error: ", before, &end), 0);
	CHECK_INT(count_log(&h, " warn: ", before, &end), 0);
	/* One line says it, and one of the audit log. */
	CHECK_INT(count_log(&h, " info: ", before, &end), 2);
	CHECK_INT(count_log(&h, " info: session ends ", before, &end), 1);
	CHECK_INT(count_log(&h, " info: audit: event=session-ended ", before, &end), 1);
	CHECK(end > before);
}

enum ending {
	ENDING_CLIENT,	  /* only the client disconnects */
	ENDING_BOTH,	  /* the daemon and the client at the same time */
	ENDING_NO_ANSWER, /* the daemon, and the client does not answer it */
};

static void disconnect(struct harness *h, enum ending ending)
{
	PEER(alpha, "alpha");
	PEER_LANE(lane, &alpha);
	struct message m = {.type = MESSAGE_BYE};
	struct message_grant grant;
	uint64_t begun_ns;

	CHECK_INT(peer_acquire(&alpha, &lane, PAGE, TTL_MS, 0, &grant), 0);
	begun_ns = clock_now_ns();
	if (ending != ENDING_CLIENT)
		CHECK_INT(peer_send(&alpha, &m), 0);
	if (ending != ENDING_NO_ANSWER)
		CHECK_INT(rdma_disconnect(alpha.control.id), 0);
	CHECK(harness_wait_number(h, "leases.active", 0, 5000));
	CHECK(harness_wait_number(h, "pool.leased_bytes", 0, 5000));
	CHECK(harness_wait_number(h, "sessions", 0, 20000));
	CHECK(harness_wait_number(h, "lanes", 0, 20000));
	printf("# ending %d: all is over after %" PRIu64 " ms\n", (int)ending,
	       harness_since_ms(begun_ns));
}

TEST(field_41_disconnect__from_either_side)
{
	HARNESS(h, .pool_size = NULL);

	for (enum ending ending = ENDING_CLIENT; ending <= ENDING_NO_ANSWER; ending++) {
		disconnect(&h, ending);
		CHECK(!test_has_failed());
	}
	accounts_check(&h);
	CHECK(!test_has_failed());
	CHECK_INT(harness_number(&h, "counters.destroy_failures"), 0);
	CHECK_INT(harness_stop(&h), 0);
}

/* Connections. */

/* What devices count of receivers that were not ready; -1 if they do not. */
static int64_t rnr_count(void)
{
	glob_t found;
	int64_t sum = -1;
	uint64_t count;
	FILE *file;

	if (glob("/sys/class/infiniband/*/ports/*/hw_counters/*rnr*", 0, NULL, &found) != 0)
		return -1;
	for (size_t i = 0; i < found.gl_pathc; i++) {
		file = fopen(found.gl_pathv[i], "re");
		if (file == NULL)
			continue;
		if (fscanf(file, "%" SCNu64, &count) == 1)
			sum = (sum < 0 ? 0 : sum) + (int64_t)count;
		fclose(file);
	}
	globfree(&found);
	return sum;
}

/* What a client says while the daemon sleeps finds a receive, or it would not complete. */
TEST(field_25_connect__first_message_before_the_daemon_looks)
{
	HARNESS(h, .pool_size = NULL);
	int64_t rnr = rnr_count();

	printf("# receivers not ready so far: %" PRId64 "\n", rnr);
	for (int i = 0; i < 3; i++) {
		__attribute__((cleanup(raw_close))) struct raw raw = {0};
		struct message m = raw_hello_message();

		CHECK_INT(raw_open(&raw, "alpha"), 0);
		CHECK_INT(kill(h.pid, SIGSTOP), 0);
		CHECK_INT(raw_send_message(&raw, &m), 0);
		CHECK_INT(raw_wait(&raw, 500, &m), 0);
		CHECK_INT(raw.sends_posted, 0);
		CHECK_INT(kill(h.pid, SIGCONT), 0);
		CHECK_INT(raw_wait(&raw, RAW_LATE_MS, &m), 1);
		CHECK_INT(m.type, MESSAGE_WELCOME);
	}
	CHECK_INT(rnr_count(), rnr);
}

static int send_nothing(struct raw *raw)
{
	struct ibv_send_wr wr = {
		.wr_id = UINT64_MAX,
		.opcode = IBV_WR_SEND,
		.send_flags = IBV_SEND_SIGNALED,
	};
	struct ibv_send_wr *bad;

	raw->sends_posted++;
	return verbs_post_send(raw->id->qp, &wr, &bad);
}

/* A message of no bytes is none: it ends its session, and is nothing to wait for. */
TEST(field_27_message__of_no_bytes)
{
	HARNESS(h, .pool_size = NULL);

	for (int welcomed = 0; welcomed <= 1; welcomed++) {
		__attribute__((cleanup(raw_close))) struct raw raw = {0};
		struct message_welcome welcome;
		struct message m;

		CHECK_INT(raw_open(&raw, "alpha"), 0);
		if (welcomed == 1)
			CHECK_INT(raw_hello(&raw, &welcome), 0);
		CHECK_INT(send_nothing(&raw), 0);
		CHECK_INT(raw_wait(&raw, RAW_LATE_MS, &m), 1);
		CHECK_INT(m.type, MESSAGE_ERROR);
		CHECK_INT(m.u.error.code, ERROR_AUTH);
	}
	CHECK(harness_wait_number(&h, "sessions", 0, 10000));
}

static void lose_lane(mempool *pool)
{
	CHECK_INT(proof_access(pool_lane(pool), IBV_WR_RDMA_READ, 1, 0, 1), IBV_WC_REM_ACCESS_ERR);
	CHECK(!lane_is_up(pool_lane(pool)));
}

/* The lane is lost for good, as far as this client can know: each call ends, and in time. */
TEST(field_16_lane__cannot_be_restored)
{
	HARNESS(h, .extra = "\"lane_wait_min\": \"1min\"");
	struct mempool_connect_opts opts = {.timeout_ms = 1500};
	struct harness_keys keys;
	__attribute__((cleanup(harness_close))) mempool *alpha = NULL;
	mempool_lease *lease;
	uint8_t byte = 1;

	harness_keys("alpha", &keys, &opts);
	CHECK_INT(mempool_connect(harness_endpoint(), &opts, &alpha), 0);
	CHECK_INT(harness_acquire(alpha, PAGE, TTL_MS, &lease), 0);
	lose_lane(alpha);
	CHECK(!test_has_failed());
	/* The first one is replaced at once. */
	CHECK_INT(mempool_write(lease, 0, &byte, 1), 0);
	lose_lane(alpha);
	CHECK(!test_has_failed());
	for (int i = 0; i < 3; i++) {
		uint64_t begun_ns = clock_now_ns();
		int r = mempool_read(lease, 0, &byte, 1);

		printf("# %s, after %" PRIu64 " ms\n", mempool_last_error(),
		       harness_since_ms(begun_ns));
		CHECK(r == MEMPOOL_E_LANE || r == MEMPOOL_E_TIMEOUT);
		CHECK(harness_since_ms(begun_ns) < 3000);
	}
	/* It is the lane alone. */
	CHECK_INT(mempool_renew(lease, TTL_MS), 0);
	CHECK_INT(mempool_release(lease), 0);
}

/* Transfers of no bytes. */

static void transfer_nothing(mempool_lease *lease, uint64_t offset_bytes, int code)
{
	uint8_t byte = 0x77;

	CHECK_INT(mempool_read(lease, offset_bytes, &byte, 0), code);
	CHECK_INT(mempool_write(lease, offset_bytes, &byte, 0), code);
	CHECK_INT(mempool_read(lease, offset_bytes, NULL, 0), code);
	CHECK_INT(mempool_write(lease, offset_bytes, NULL, 0), code);
	CHECK_INT(byte, 0x77);
}

TEST(field_26_transfer__of_no_bytes)
{
	HARNESS(h, .extra = "\"revoke_grace\": \"0\"");
	SESSION(alpha, "alpha");
	mempool_lease *lease, *revoked, *expired;
	uint8_t byte = 1;

	CHECK_INT(harness_acquire(alpha, PAGE, 2000, &expired), 0);
	CHECK_INT(harness_acquire(alpha, PAGE, TTL_MS, &revoked), 0);
	CHECK_INT(harness_acquire(alpha, PAGE, TTL_MS, &lease), 0);
	transfer_nothing(lease, 0, 0);
	transfer_nothing(lease, PAGE, 0);
	transfer_nothing(lease, PAGE + 1, MEMPOOL_E_RANGE);
	transfer_nothing(lease, UINT64_MAX, MEMPOOL_E_RANGE);
	CHECK(!test_has_failed());
	/* It neither needs the lane nor shows that there is one. */
	lose_lane(alpha);
	transfer_nothing(lease, 0, 0);
	CHECK(!test_has_failed());
	CHECK(!lane_is_up(pool_lane(alpha)));
	CHECK_INT(mempool_write(lease, 0, &byte, 1), 0);
	/* What has ended has ended for these as well. */
	CHECK_INT(harness_revoke(&h, harness_lease_id(revoked)), 0);
	harness_sleep_ms(2200);
	transfer_nothing(revoked, 0, MEMPOOL_E_REVOKED);
	transfer_nothing(expired, 0, MEMPOOL_E_EXPIRED);
	CHECK(!test_has_failed());
	CHECK_INT(harness_number(&h, "counters.lanes_lost"), 1);
}
