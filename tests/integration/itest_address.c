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

#define CONNECT_MS	 3000
#define CONNECT_SLACK_MS 2000
#define START_LIMIT_MS	 30000

/* The client. */

static void try_connect(const char *address, int code)
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
	took_ms = (clock_now_ns() - begun_ns) / CLOCK_NS_PER_MS;
	printf("# %s: %d, %s (%" PRIu64 " ms)\n", address, r, mempool_last_error(), took_ms);
	CHECK_INT(r, code);
	CHECK(pool == NULL);
	CHECK(strlen(mempool_last_error()) > 0);
	CHECK(strchr(mempool_last_error(), '\n') == NULL);
	CHECK(took_ms <= CONNECT_MS + CONNECT_SLACK_MS);
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

/* The daemon. */

static void write_config(const char *path, const char *text)
{
	FILE *file = fopen(path, "we");

	CHECK(file != NULL);
	CHECK(fputs(text, file) >= 0);
	CHECK_INT(fclose(file), 0);
}

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
	if (!test_has_failed())
		(void)harness_run(argv, START_LIMIT_MS, &output);
	(void)unlink(path);
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
		 "{\"pool_size\": \"1MiB\", \"listen\": [\"%s\"], \"log_level\": \"error\", "
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

TEST(device__no_such_device)
{
	char text[512];

	snprintf(text, sizeof(text),
		 "{\"pool_size\": \"1MiB\", \"listen\": [\"%s\"], \"log_level\": \"error\", "
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
		 "{\"pool_size\": \"1MiB\", \"listen\": [\"%s:7476\"], \"log_level\": \"error\", "
		 "\"admin_socket\": \"%s\"}",
		 harness_address(), path);
	try_config(text, 1, path);
	CHECK(harness_number(&h, "pid") > 0);
}

TEST(admin_socket__no_such_folder)
{
	char text[512];

	snprintf(text, sizeof(text),
		 "{\"pool_size\": \"1MiB\", \"listen\": [\"%s\"], \"log_level\": \"error\", "
		 "\"admin_socket\": \"/nonesuch/admin.sock\"}",
		 harness_endpoint());
	try_config(text, 1, "/nonesuch/admin.sock");
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
