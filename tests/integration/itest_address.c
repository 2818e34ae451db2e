/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Wrong addresses and configurations, on both ends: a code or an exit status of its own, one
 * clear line, in time.
 */
#include <arpa/inet.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "common/clock.h"
#include "tests/integration/harness.h"
#include "tests/integration/machine.h"

#define CONNECT_MS	 3000
#define CONNECT_SLACK_MS 2000
#define START_LIMIT_MS	 30000

/* The client. */

/* @other: the code that it is with another kernel */
static void try_connect_or(const char *address, int code, int other)
{
	struct mempool_connect_opts opts = {.timeout_ms = CONNECT_MS};
	struct harness_keys keys;
	mempool *pool = NULL;
	uint64_t begun_ns;
	uint64_t took_ms;
	int r;

	harness_keys("alpha", &keys, &opts);
	begun_ns = clock_now_ns();
	r = mempool_connect(address, &opts, &pool);
	took_ms = harness_since_ms(begun_ns);
	printf("# %s: %d, %s (%" PRIu64 " ms)\n", address, r, mempool_last_error(), took_ms);
	CHECK_INT(r, r == other ? other : code);
	CHECK(pool == NULL);
	CHECK(strlen(mempool_last_error()) > 0);
	CHECK(strchr(mempool_last_error(), '\n') == NULL);
	CHECK(took_ms <= CONNECT_MS + CONNECT_SLACK_MS);
}

static void try_connect(const char *address, int code)
{
	try_connect_or(address, code, code);
}

TEST(connect__nobody_has_the_address)
{
	try_connect("10.77.0.99:7471", MEMPOOL_E_UNREACHABLE);
}

TEST(connect__no_route)
{
	try_connect("203.0.113.7:7471", MEMPOOL_E_UNREACHABLE);
}

TEST(connect__nobody_listens)
{
	char address[HARNESS_TEXT_MAX];

	snprintf(address, sizeof(address), "%s:7999", harness_address());
	try_connect(address, MEMPOOL_E_REJECTED);
}

TEST(connect__not_an_rdma_interface)
{
	try_connect("127.0.0.1:7471", MEMPOOL_E_NO_RDMA);
}

TEST(connect__no_such_host)
{
	try_connect("no.such.host.invalid:7471", MEMPOOL_E_RESOLVE);
}

TEST(connect__not_an_address)
{
	try_connect("", MEMPOOL_E_INVALID);
	try_connect("host:port", MEMPOOL_E_INVALID);
	try_connect("10.77.0.1:0", MEMPOOL_E_INVALID);
	try_connect("10.77.0.1:65536", MEMPOOL_E_INVALID);
	try_connect("fe80::1:7471", MEMPOOL_E_INVALID);
	try_connect("mempool://", MEMPOOL_E_INVALID);
	try_connect("mempool://10.77.0.1?", MEMPOOL_E_INVALID);
	try_connect("mempool://10.77.0.1?key=", MEMPOOL_E_INVALID);
	try_connect("mempool://10.77.0.1?key=AAAA", MEMPOOL_E_INVALID);
}

/* A host with several addresses. */

#define FILES	   "/etc/hosts /etc/nsswitch.conf /etc/host.conf"
#define SEVERAL_V6 "fd77::1"

/* Three: one where nobody listens, the daemon's, and one that nobody has. */
static const struct machine_change several = {
	.make = "set -e; for f in " FILES "; do [ ! -e $f ] || mv $f $f.kept; done; "
		"echo 'hosts: files' >/etc/nsswitch.conf; echo 'multi on' >/etc/host.conf; "
		"printf '%s several.test\\n' " SEVERAL_V6 " 10.77.0.1 10.77.0.99 >/etc/hosts; "
		"ip addr add " SEVERAL_V6 "/64 dev v0 nodad; "
		"i=0; until cat /sys/class/infiniband/rxe0/ports/1/gids/? 2>/dev/null | "
		"grep -q fd77:0000; do i=$((i + 1)); [ $i -lt 200 ] || exit 1; sleep 0.05; done",
	.undo = "for f in " FILES "; do rm -f $f; [ ! -e $f.kept ] || mv $f.kept $f; done; "
		"ip addr del " SEVERAL_V6 "/64 dev v0",
};

static int connect_by_name(mempool **ret_pool)
{
	struct mempool_connect_opts opts = {.timeout_ms = 3 * CONNECT_MS};
	struct harness_keys keys;
	int r;

	harness_keys("alpha", &keys, &opts);
	r = mempool_connect("several.test:7471", &opts, ret_pool);
	if (r < 0)
		printf("# several.test: %d, %s\n", r, mempool_last_error());
	return r;
}

static void connect_to_several(void)
{
	__attribute__((cleanup(harness_close))) mempool *pool = NULL;
	uint64_t begun_ns = clock_now_ns();
	uint64_t took_ms;

	CHECK(connect_by_name(&pool) < 0);
	took_ms = harness_since_ms(begun_ns);
	CHECK(took_ms <= 3 * CONNECT_MS + CONNECT_SLACK_MS);
	CHECK(pool == NULL);
	CHECK(strstr(mempool_last_error(), "[" SEVERAL_V6 "]:7471: ") != NULL);
	CHECK(strstr(mempool_last_error(), "10.77.0.1:7471: ") != NULL);
	CHECK(strstr(mempool_last_error(), "10.77.0.99:7471: ") != NULL);

	HARNESS(h, .pool_size = NULL);
	mempool_lease *lease;
	uint8_t byte = 1;

	/* Again and again: what the refused ones leave behind may come late. */
	for (int i = 0; i < 20; i++) {
		harness_close(&pool);
		CHECK_INT(connect_by_name(&pool), 0);
	}
	CHECK_INT(harness_acquire(pool, 1, 60000, &lease), 0);
	CHECK_INT(mempool_write(lease, 0, &byte, 1), 0);
}

/* Each is tried until one answers; if none does, the error tells of each. */
TEST(field_49_connect__host_with_several_addresses)
{
	machine_test(&several, "field_49_connect__host_with_several_addresses", 60000,
		     connect_to_several);
}

/* The daemon. */

static void write_config(const char *path, const char *text)
{
	FILE *file = fopen(path, "we");

	CHECK(file != NULL);
	CHECK(fputs(text, file) >= 0);
	CHECK_INT(fclose(file), 0);
}

/* What each configuration needs that does not fail before. */
#define KEY_FILE "/tmp/itest.key"
#define IDENTITY "\"key_file\": \"" KEY_FILE "\", \"state_dir\": \"/tmp\", "

/* @must_say: what its one line must contain */
static void try_config(const char *text, int status, const char *must_say)
{
	static struct harness_output output;
	char path[] = "/tmp/itest.conf.XXXXXX";
	char program[PATH_MAX];
	const char *argv[] = {harness_program("mempoold", program), "--config", path, NULL};
	int fd = mkstemp(path);

	CHECK(fd >= 0);
	close(fd);
	write_config(path, text);
	CHECK_INT(keys_write("daemon", KEY_FILE), 0);
	if (!test_has_failed())
		(void)harness_run(argv, START_LIMIT_MS, &output);
	(void)unlink(path);
	(void)unlink(KEY_FILE);
	CHECK(!test_has_failed());
	printf("# %s", output.err);
	CHECK_INT(output.status, status);
	CHECK_INT(harness_count_lines(output.err), 1);
	CHECK(strstr(output.err, must_say) != NULL);
	CHECK_STR(output.out, "");
}

static void try_listen(const char *listen, const char *must_say)
{
	char text[512];

	snprintf(text, sizeof(text),
		 "{" IDENTITY
		 "\"pool_size\": \"1MiB\", \"listen\": [\"%s\"], \"log_level\": \"error\", "
		 "\"admin_socket\": \"/tmp/itest.second.sock\", \"device_wait\": \"1s\"}",
		 listen);
	try_config(text, 1, must_say);
}

TEST(listen__another_daemon_has_the_port)
{
	HARNESS(h, .pool_size = NULL);
	uint8_t byte = 1;

	try_listen(harness_endpoint(), harness_endpoint());
	CHECK(!test_has_failed());

	SESSION(alpha, "alpha");
	mempool_lease *lease;

	CHECK_INT(harness_acquire(alpha, 1, 60000, &lease), 0);
	CHECK_INT(mempool_write(lease, 0, &byte, 1), 0);
}

static void close_fd(int *fd)
{
	if (*fd >= 0)
		close(*fd);
}

/* The ports of rdma_cm are not those of TCP: they are handed out apart. */
TEST(listen__a_tcp_server_has_the_port)
{
	__attribute__((cleanup(close_fd))) int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	struct sockaddr_in here = {.sin_family = AF_INET, .sin_port = htons(HARNESS_PORT)};

	CHECK_INT(inet_pton(AF_INET, harness_address(), &here.sin_addr), 1);
	CHECK_INT(bind(fd, (struct sockaddr *)&here, sizeof(here)), 0);
	CHECK_INT(listen(fd, 1), 0);

	HARNESS(h, .pool_size = NULL);
	SESSION(alpha, "alpha");
	mempool_lease *lease;
	uint8_t byte = 1;

	CHECK_INT(harness_acquire(alpha, 1, 60000, &lease), 0);
	CHECK_INT(mempool_write(lease, 0, &byte, 1), 0);
}

TEST(listen__not_an_rdma_interface)
{
	try_listen("127.0.0.1:7471", "127.0.0.1:7471");
}

TEST(listen__not_an_address_of_this_machine)
{
	try_listen("10.77.0.200:7471", "10.77.0.200:7471");
}

TEST(listen__no_such_host)
{
	try_listen("no.such.host.invalid:7471", "no.such.host.invalid:7471");
}

static void use_interface_that_is_down(void)
{
	/* The machine's own address, where nothing gets through. */
	try_connect_or("10.79.0.1:7471", MEMPOOL_E_TIMEOUT, MEMPOOL_E_UNREACHABLE);
	CHECK(!test_has_failed());
	try_connect("10.79.0.2:7471", MEMPOOL_E_UNREACHABLE);
	CHECK(!test_has_failed());
	try_listen("10.79.0.1:7471", "rxe9");
}

/* With an RDMA device, but down: both ends say that it cannot be used. */
TEST(field_53_connect__interface_is_down)
{
	static const struct machine_change down = {
		.make = "set -e; ip link add w0 type veth peer name w1; "
			"ip addr add 10.79.0.1/24 dev w0; rdma link add rxe9 type rxe netdev w0",
		.undo = "rdma link delete rxe9; ip link del w0",
	};

	machine_test(&down, "field_53_connect__interface_is_down", 60000,
		     use_interface_that_is_down);
}

TEST(device__no_such_device)
{
	char text[512];

	snprintf(text, sizeof(text),
		 "{" IDENTITY
		 "\"pool_size\": \"1MiB\", \"listen\": [\"%s\"], \"log_level\": \"error\", "
		 "\"admin_socket\": \"/tmp/itest.second.sock\", "
		 "\"device\": \"nonesuch0\", \"device_wait\": \"1s\"}",
		 harness_endpoint());
	try_config(text, 1, "nonesuch0");
}

TEST(admin_socket__another_daemon_has_it)
{
	HARNESS(h, .pool_size = NULL);
	char path[HARNESS_TEXT_MAX];
	char text[1024];

	harness_socket(&h, path);
	snprintf(text, sizeof(text),
		 "{" IDENTITY
		 "\"pool_size\": \"1MiB\", \"listen\": [\"%s:7476\"], \"log_level\": \"error\", "
		 "\"admin_socket\": \"%s\"}",
		 harness_address(), path);
	try_config(text, 3, path);
	CHECK(harness_number(&h, "pid") > 0);
}

TEST(admin_socket__no_such_folder)
{
	char text[512];

	snprintf(text, sizeof(text),
		 "{" IDENTITY
		 "\"pool_size\": \"1MiB\", \"listen\": [\"%s\"], \"log_level\": \"error\", "
		 "\"admin_socket\": \"/nonesuch/admin.sock\"}",
		 harness_endpoint());
	try_config(text, 1, "/nonesuch/admin.sock");
}

TEST(admin_group__no_such_group)
{
	char text[512];

	snprintf(text, sizeof(text),
		 "{" IDENTITY
		 "\"pool_size\": \"1MiB\", \"listen\": [\"%s\"], \"log_level\": \"error\", "
		 "\"admin_group\": \"nonesuch-group\"}",
		 harness_endpoint());
	try_config(text, 1,
		   "admin_group 'nonesuch-group' cannot be used: there is no such group; make it");
}

TEST(config__errors)
{
	try_config("", 2, "itest.conf");
	try_config("{\"pool_size\": \"1MiB\"}", 2, "listen");
	try_config("{\"pool_size\": \"1MiB\", \"listen\": [\"10.77.0.1:7471\"], \"colour\": 1}", 2,
		   "colour");
	try_config("{\"pool_size\": \"1MiB\", \"pool_size\": \"2MiB\"}", 2, "pool_size");
	try_config("{\"pool_size\": 1048576, \"listen\": [\"10.77.0.1:7471\"]}", 2, "pool_size");
}
