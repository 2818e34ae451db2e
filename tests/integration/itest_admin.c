/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The admin socket of a live daemon: what is wrong is answered with an error and costs it
 * nothing; and mempoolctl, its only client, with its exit codes.
 */
#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "proto/error.h"
#include "tests/integration/harness.h"

#define ANSWER_MS	    5000
#define RSS_TOLERANCE_BYTES (2 * (int64_t)MIB)

static int admin_open(const struct harness *h)
{
	struct sockaddr_un peer = {.sun_family = AF_UNIX};
	char path[HARNESS_TEXT_MAX];
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

	snprintf(peer.sun_path, sizeof(peer.sun_path), "%.100s", harness_socket(h, path));
	if (connect(fd, (struct sockaddr *)&peer, sizeof(peer)) == 0)
		return fd;
	close(fd);
	return -1;
}

/* Return: false if the daemon has hung up before it had all. */
static bool admin_send(int fd, const char *text, size_t len_bytes)
{
	while (len_bytes > 0) {
		ssize_t n = send(fd, text, len_bytes, MSG_NOSIGNAL);

		if (n <= 0)
			return false;
		text += n;
		len_bytes -= (size_t)n;
	}
	return true;
}

/* One line. Return: its length; 0 if the daemon has hung up or does not answer. */
static size_t admin_receive(int fd, char *buf, size_t cap_bytes)
{
	struct pollfd ready = {.fd = fd, .events = POLLIN};
	size_t used = 0;

	while (used + 1 < cap_bytes && poll(&ready, 1, ANSWER_MS) == 1) {
		if (recv(fd, buf + used, 1, 0) != 1)
			break;
		if (buf[used++] == '\n')
			break;
	}
	buf[used] = '\0';
	return used;
}

/* Return: the code of the error that answers a line; 0 for a result; 1 for no answer. */
static json_int_t admin_try(const struct harness *h, const char *line, size_t len_bytes)
{
	static char answer[65536];
	json_int_t code = 1;
	json_t *root = NULL;
	int fd = admin_open(h);

	if (fd < 0)
		return 1;
	(void)admin_send(fd, line, len_bytes);
	(void)admin_send(fd, "\n", 1);
	if (admin_receive(fd, answer, sizeof(answer)) > 0)
		root = json_loads(answer, 0, NULL);
	if (json_object_get(root, "result") != NULL)
		code = 0;
	else if (json_object_get(root, "error") != NULL)
		code = json_integer_value(json_object_get(json_object_get(root, "error"), "code"));
	json_decref(root);
	close(fd);
	return code;
}

TEST(admin__wrong_lines)
{
	static const struct {
		const char *line;
		json_int_t code;
	} cases[] = {
		{"", -32700},
		{"{", -32700},
		{"nonsense", -32700},
		{"\"status\"", -32700},
		{"{\"jsonrpc\": \"2.0\", \"id\": 1, \"id\": 2, \"method\": \"status\"}", -32700},
		{"{\"jsonrpc\": \"2.0\", \"id\": 1, \"method\": \"stat\\u0000us\"}", -32700},
		{"[]", -32600},
		{"[{\"jsonrpc\": \"2.0\", \"id\": 1, \"method\": \"status\"}]", -32600},
		{"{}", -32600},
		{"{\"id\": 1, \"method\": \"status\"}", -32600},
		{"{\"jsonrpc\": \"2.0\", \"id\": 1, \"method\": 7}", -32600},
		{"{\"jsonrpc\": \"2.0\", \"id\": 1, \"method\": \"nonesuch\"}", -32601},
		{"{\"jsonrpc\": \"2.0\", \"id\": 1, \"method\": \"lease.revoke\"}", -32602},
		{"{\"jsonrpc\": \"2.0\", \"id\": 1, \"method\": \"lease.revoke\", "
		 "\"params\": {\"id\": \"7\"}}",
		 -32602},
		{"{\"jsonrpc\": \"2.0\", \"id\": 1, \"method\": \"lease.revoke\", "
		 "\"params\": {\"id\": 7, \"later\": true}}",
		 -32602},
		{"{\"jsonrpc\": \"2.0\", \"id\": 1, \"method\": \"lease.revoke\", "
		 "\"params\": {\"id\": 7}}",
		 ERROR_NO_LEASE},
		{"{\"jsonrpc\": \"2.0\", \"id\": 1, \"method\": \"status\"}", 0},
	};
	HARNESS(h, .pool_size = NULL);

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		json_int_t code = admin_try(&h, cases[i].line, strlen(cases[i].line));

		if (code != cases[i].code)
			printf("# line: %s\n", cases[i].line);
		CHECK_INT(code, cases[i].code);
	}
	CHECK_INT(harness_number(&h, "pid"), h.pid);
	CHECK_INT(harness_stop(&h), 0);
}

TEST(admin__bytes_that_are_no_text)
{
	HARNESS(h, .pool_size = NULL);
	static const char nul[] = "{\"jsonrpc\": \"2.0\", \"id\": 1,\0 \"method\": \"status\"}";
	char high[64];

	CHECK_INT(admin_try(&h, nul, sizeof(nul) - 1), -32700);
	memset(high, 0xfe, sizeof(high));
	CHECK_INT(admin_try(&h, high, sizeof(high)), -32700);
	CHECK_INT(harness_number(&h, "pid"), h.pid);
}

TEST(admin__too_deep)
{
	HARNESS(h, .pool_size = NULL);
	static char line[60000];

	memset(line, '[', sizeof(line));
	CHECK_INT(admin_try(&h, line, 40), -32700);
	CHECK_INT(admin_try(&h, line, sizeof(line)), -32700);
	CHECK_INT(harness_number(&h, "pid"), h.pid);
}

/* A line of 1 MiB, and one that never ends: an error, the end of that connection, no memory. */
TEST(admin__long_lines_cost_nothing)
{
	HARNESS(h, .pool_size = NULL);
	int64_t before_bytes = harness_rss_bytes(h.pid);
	char *line = malloc(MIB);
	int64_t worst_bytes = 0;

	CHECK(line != NULL && before_bytes > 0);
	memset(line, 'x', MIB);
	for (int i = 0; i < 20; i++) {
		json_int_t code = admin_try(&h, line, MIB);
		int64_t now_bytes = harness_rss_bytes(h.pid);

		if (code != -32700 && code != -32600)
			printf("# answer to a long line: %" JSON_INTEGER_FORMAT "\n", code);
		if (now_bytes > worst_bytes)
			worst_bytes = now_bytes;
		if (code >= 0)
			break;
	}
	CHECK(admin_try(&h, line, MIB) < 0);
	free(line);
	printf("# the daemon's memory: %" PRId64 " KiB, at most %" PRId64 " KiB\n",
	       before_bytes / 1024, worst_bytes / 1024);
	CHECK(worst_bytes - before_bytes <= RSS_TOLERANCE_BYTES);
	CHECK_INT(harness_number(&h, "pid"), h.pid);
	CHECK_INT(harness_stop(&h), 0);
}

/* mempoolctl */

static struct harness_output ctl_output;

/* Return: its exit status. */
static int ctl(const struct harness *h, const char *a, const char *b, const char *c)
{
	char path[HARNESS_TEXT_MAX];
	char program[PATH_MAX];
	const char *argv[] = {harness_program("mempoolctl", program),
			      "--socket",
			      harness_socket(h, path),
			      a,
			      b,
			      c,
			      NULL};

	if (harness_run(argv, 20000, &ctl_output) < 0)
		return -1;
	return ctl_output.status;
}

static bool says(const char *text)
{
	if (strstr(ctl_output.out, text) != NULL)
		return true;
	printf("# \"%s\" is not in:\n%s", text, ctl_output.out);
	return false;
}

TEST(mempoolctl__status)
{
	HARNESS(h, .pool_size = "16MiB");
	json_t *status = harness_call(&h, "status", NULL);
	const json_t *isolation = json_object_get(status, "isolation");
	char device[64];
	char mode[64];
	char why[512];

	CHECK(status != NULL);
	snprintf(device, sizeof(device), "%s",
		 json_string_value(json_object_get(json_object_get(status, "device"), "name")));
	snprintf(mode, sizeof(mode), "%s", json_string_value(json_object_get(isolation, "mode")));
	snprintf(why, sizeof(why), "%s", json_string_value(json_object_get(isolation, "why")));
	json_decref(status);
	CHECK(strlen(device) > 0 && strlen(mode) > 0 && strlen(why) > 0);
	CHECK_INT(ctl(&h, "status", NULL, NULL), 0);
	CHECK(says(device));
	CHECK(says(mode));
	CHECK(says(why));
	CHECK(says("16 MiB"));
	CHECK(says(harness_endpoint()));
	CHECK(says("0 active, 0 ending"));
	CHECK(says("bounds"));
	CHECK_STR(ctl_output.err, "");
	if (strncmp(device, "rxe", 3) == 0)
		CHECK_STR(mode, harness_is_unverified() ? "unverified" : "guarded");
	CHECK_INT(ctl(&h, "--json", "status", NULL), 0);
	CHECK_INT(harness_count_lines(ctl_output.out), 1);
	CHECK(says("\"mode\":"));
}

TEST(mempoolctl__leases)
{
	HARNESS(h, .pool_size = "16MiB");
	SESSION(alpha, "alpha");
	mempool_lease *lease;
	char id[32];

	CHECK_INT(ctl(&h, "lease", "list", NULL), 0);
	CHECK_INT(harness_count_lines(ctl_output.out), 1);
	CHECK_INT(harness_acquire(alpha, 4097, 60000, &lease), 0);
	snprintf(id, sizeof(id), "0x%" PRIx64, harness_lease_id(lease));
	CHECK_INT(ctl(&h, "lease", "list", NULL), 0);
	CHECK_INT(harness_count_lines(ctl_output.out), 2);
	CHECK(says(id));
	CHECK(says("alpha"));
	CHECK(says("active"));
	CHECK(says("8 KiB"));
	CHECK(says("rw-"));
	CHECK_INT(ctl(&h, "lease", "revoke", id), 0);
	CHECK(says(id));
	CHECK(says("revoked: 1 lease, fence in "));
	CHECK(harness_wait_lease_gone(&h, harness_lease_id(lease), 5000));
	CHECK_INT(ctl(&h, "lease", "revoke", id), 1);
	CHECK_STR(ctl_output.out, "");
	CHECK_INT(harness_count_lines(ctl_output.err), 1);
	CHECK(strstr(ctl_output.err, id) != NULL);
	CHECK(strstr(ctl_output.err, "no such lease") != NULL);
}

TEST(mempoolctl__wrong_usage)
{
	HARNESS(h, .pool_size = NULL);

	CHECK_INT(ctl(&h, NULL, NULL, NULL), 2);
	CHECK_INT(ctl(&h, "nonesuch", NULL, NULL), 2);
	CHECK_INT(ctl(&h, "lease", NULL, NULL), 2);
	CHECK_INT(ctl(&h, "lease", "revoke", NULL), 2);
	CHECK_INT(ctl(&h, "lease", "revoke", "seven"), 2);
	CHECK_INT(ctl(&h, "status", "now", NULL), 2);
	CHECK_INT(ctl(&h, "--nonesuch", "status", NULL), 2);
}

TEST(mempoolctl__nobody_there)
{
	const struct harness none = {.dir = "/nonesuch"};

	CHECK_INT(ctl(&none, "status", NULL, NULL), 3);
	CHECK_STR(ctl_output.out, "");
	CHECK_INT(harness_count_lines(ctl_output.err), 1);
	CHECK(strstr(ctl_output.err, "/nonesuch/admin.sock") != NULL);
}
