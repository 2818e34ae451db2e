/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Cases of daemon/admin.c: a real loop and real sockets in a directory of their own.
 * Clients share the thread, so whoever waits for something runs the loop meanwhile.
 */
#include "daemon/admin.h"

#include <errno.h>
#include <event2/event.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "common/clock.h"
#include "common/log.h"
#include "daemon/admin_socket.h"
#include "tests/unit/test.h"

#define WAIT_MS	 5000
#define TEXT_CAP (8u << 20)
#define HELD_MAX 64

#define REQUEST(id, method) "{\"jsonrpc\":\"2.0\",\"id\":" id ",\"method\":\"" method "\"}\n"
#define RESULT(id, result)  "{\"jsonrpc\":\"2.0\",\"result\":" result ",\"id\":" id "}"
#define FAILURE(id, code, text) \
	"{\"jsonrpc\":\"2.0\",\"error\":{\"code\":" code ",\"message\":\"" text "\"},\"id\":" id "}"

struct fixture {
	char dir[64];
	char path[96];
	struct event_base *base;
	struct admin *admin;
	unsigned int calls;
	struct admin_request *held[HELD_MAX];
	size_t held_count;
	char text[TEXT_CAP]; /* the last line received */
};

static int given_fd = -1; /* that somebody else listens on, for the next start */

static void call_echo(struct admin_request *request, json_t *params, void *context)
{
	struct fixture *f = context;

	f->calls++;
	admin_reply(request, json_incref(params));
}

static void call_fail(struct admin_request *request, json_t *params, void *context)
{
	(void)params;
	(void)context;
	admin_fail(request, 1030, "no \xff such lease");
}

static void call_hold(struct admin_request *request, json_t *params, void *context)
{
	struct fixture *f = context;

	(void)params;
	if (f->held_count == HELD_MAX)
		abort();
	f->held[f->held_count++] = request;
}

/* An answer of 2 MiB. */
static json_t *long_result(void)
{
	size_t len = 2u << 20;
	char *text = malloc(len);
	json_t *result;

	if (!text)
		abort();
	memset(text, 'x', len);
	result = json_stringn(text, len);
	free(text);
	return result;
}

static void call_long(struct admin_request *request, json_t *params, void *context)
{
	(void)params;
	(void)context;
	admin_reply(request, json_pack("[o, o, o]", long_result(), long_result(), long_result()));
}

/* Answers all that is held, at length, and itself. */
static void call_flush(struct admin_request *request, json_t *params, void *context)
{
	struct fixture *f = context;

	(void)params;
	f->calls++;
	while (f->held_count > 0)
		admin_reply(f->held[--f->held_count], long_result());
	admin_reply(request, json_true());
}

static const struct admin_method short_methods[] = {
	{"echo", call_echo},
	{"fail", call_fail},
	{"hold", call_hold},
	{NULL, NULL},
};

static void call_follow(struct admin_request *request, json_t *params, void *context)
{
	(void)params;
	(void)context;
	admin_follow(request, json_true());
}

/* Tells all who follow, the one who asks perhaps among them, and answers. */
static void call_tell(struct admin_request *request, json_t *params, void *context)
{
	struct fixture *f = context;

	admin_publish(f->admin, json_incref(params));
	admin_reply(request, json_true());
}

static const struct admin_method long_methods[] = {
	{"follow", call_follow}, {"tell", call_tell}, {"long", call_long},
	{"flush", call_flush},	 {NULL, NULL},
};

static const struct admin_method *const tables[] = {short_methods, long_methods, NULL};

static int start_at(struct fixture *f, const char *path, struct admin **ret_admin)
{
	struct admin_socket *door;
	int r = admin_socket_new(path, getegid(), &door);

	if (r < 0)
		return r;
	if (given_fd >= 0)
		r = admin_socket_adopt(door, given_fd);
	given_fd = -1;
	if (r == 0)
		r = admin_new(f->base, door, tables, f, ret_admin);
	if (r < 0)
		admin_socket_free(door);
	return r;
}

static int start(struct fixture *f)
{
	return start_at(f, f->path, &f->admin);
}

static struct fixture *fixture_new(void)
{
	struct fixture *f = calloc(1, sizeof(*f));

	if (!f)
		abort();
	signal(SIGPIPE, SIG_IGN);
	log_set_level(LOG_LEVEL_ERROR);
	strcpy(f->dir, "/tmp/test_admin.XXXXXX");
	if (!mkdtemp(f->dir))
		abort();
	snprintf(f->path, sizeof(f->path), "%s/admin.sock", f->dir);
	f->base = event_base_new();
	if (!f->base)
		abort();
	return f;
}

static struct fixture *fixture_start(void)
{
	struct fixture *f = fixture_new();

	if (start(f) < 0)
		abort();
	return f;
}

static void fixture_free(struct fixture **f)
{
	char lock_path[128];

	admin_free((*f)->admin);
	event_base_free((*f)->base);
	snprintf(lock_path, sizeof(lock_path), "%s.lock", (*f)->path);
	unlink(lock_path);
	unlink((*f)->path);
	rmdir((*f)->dir);
	free(*f);
}

#define FIXTURE struct fixture *f __attribute__((cleanup(fixture_free)))

static void fd_close(const int *fd)
{
	if (*fd >= 0)
		close(*fd);
}

#define CLIENT int __attribute__((cleanup(fd_close)))

static void run_loop(struct fixture *f)
{
	struct pollfd nothing = {.fd = -1};

	event_base_loop(f->base, EVLOOP_NONBLOCK);
	poll(&nothing, 1, 1);
}

static void run_loop_ms(struct fixture *f, uint64_t ms)
{
	uint64_t until_ns = clock_add_ms(clock_now_ns(), ms);

	while (clock_now_ns() < until_ns)
		run_loop(f);
}

static int client_new(struct fixture *f)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0);

	strcpy(address.sun_path, f->path);
	if (connect(fd, (struct sockaddr *)&address, sizeof(address)) < 0)
		abort();
	return fd;
}

static void client_send(struct fixture *f, int fd, const char *bytes, size_t len)
{
	uint64_t until_ns = clock_add_ms(clock_now_ns(), WAIT_MS);

	while (len > 0 && clock_now_ns() < until_ns) {
		ssize_t n = send(fd, bytes, len, MSG_NOSIGNAL);

		if (n < 0 && errno != EAGAIN)
			return;
		if (n > 0) {
			bytes += n;
			len -= (size_t)n;
		}
		run_loop(f);
	}
}

/* The next line without its newline; "(closed)" or "(silent)" if there is none. */
static const char *client_line(struct fixture *f, int fd)
{
	uint64_t until_ns = clock_add_ms(clock_now_ns(), WAIT_MS);
	size_t used = 0;

	while (clock_now_ns() < until_ns && used < sizeof(f->text) - 1) {
		ssize_t room = (ssize_t)(sizeof(f->text) - 1 - used);
		ssize_t n = recv(fd, f->text + used, (size_t)room, MSG_PEEK);
		char *newline;

		if (n == 0 || (n < 0 && errno != EAGAIN))
			return "(closed)";
		if (n < 0) {
			run_loop(f);
			continue;
		}
		newline = memchr(f->text + used, '\n', (size_t)n);
		if (newline)
			n = newline + 1 - (f->text + used);
		if (recv(fd, f->text + used, (size_t)n, 0) != n)
			abort();
		used += (size_t)n;
		if (newline) {
			f->text[used - 1] = '\0';
			return f->text;
		}
	}
	return "(silent)";
}

/* Has the other side said nothing and not hung up? */
static bool client_is_quiet(struct fixture *f, int fd, uint64_t ms)
{
	char c;

	run_loop_ms(f, ms);
	return recv(fd, &c, 1, MSG_PEEK) < 0 && errno == EAGAIN;
}

static const char *ask(struct fixture *f, int fd, const char *line)
{
	client_send(f, fd, line, strlen(line));
	return client_line(f, fd);
}

/* The socket file */

TEST(admin_new__mode)
{
	FIXTURE = fixture_new();
	mode_t old = umask(0077);
	struct stat st;

	CHECK_INT(start(f), 0);
	CHECK_INT(stat(f->path, &st), 0);
	CHECK_INT(st.st_mode, S_IFSOCK | 0660);
	f->admin = admin_free(f->admin);
	umask(0);
	CHECK_INT(start(f), 0);
	CHECK_INT(stat(f->path, &st), 0);
	CHECK_INT(st.st_mode, S_IFSOCK | 0660);
	umask(old);
}

TEST(admin_new__live_daemon)
{
	FIXTURE = fixture_start();
	struct admin *second = NULL;

	CHECK_INT(start_at(f, f->path, &second), -EADDRINUSE);
	CHECK_INT(access(f->path, F_OK), 0);
	/* The lock alone must tell, too. */
	CHECK_INT(unlink(f->path), 0);
	CHECK_INT(start_at(f, f->path, &second), -EADDRINUSE);
	CHECK(!second);
	CHECK_INT(access(f->path, F_OK), -1);
}

static int bind_foreign(struct fixture *f)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	int fd = socket(AF_UNIX, SOCK_STREAM, 0);

	strcpy(address.sun_path, f->path);
	if (bind(fd, (struct sockaddr *)&address, sizeof(address)) < 0)
		abort();
	return fd;
}

TEST(admin_new__stale_socket)
{
	FIXTURE = fixture_new();

	close(bind_foreign(f));
	CHECK_INT(start(f), 0);
	CLIENT fd = client_new(f);
	CHECK_STR(ask(f, fd, REQUEST("1", "echo")), RESULT("1", "{}"));
}

TEST(admin_new__live_stranger)
{
	FIXTURE = fixture_new();
	CLIENT stranger = bind_foreign(f);
	struct stat before, after;

	CHECK_INT(listen(stranger, 1), 0);
	CHECK_INT(stat(f->path, &before), 0);
	CHECK_INT(start(f), -EADDRINUSE);
	CHECK_INT(stat(f->path, &after), 0);
	CHECK_INT(after.st_ino, before.st_ino);
}

TEST(admin_new__not_a_socket)
{
	FIXTURE = fixture_new();
	CLIENT file = open(f->path, O_CREAT | O_WRONLY, 0600);
	struct stat st;

	CHECK(file >= 0);
	CHECK_INT(start(f), -ENOTSOCK);
	CHECK_INT(stat(f->path, &st), 0);
	CHECK_INT(st.st_mode, S_IFREG | 0600);
}

/* Its file is made by the service manager, and stays. */
TEST(admin_new__socket_of_the_service_manager)
{
	FIXTURE = fixture_new();
	struct stat before, after;

	given_fd = bind_foreign(f);
	CHECK_INT(listen(given_fd, 8), 0);
	CHECK_INT(fcntl(given_fd, F_SETFL, O_NONBLOCK), 0);
	CHECK_INT(stat(f->path, &before), 0);
	CHECK_INT(start(f), 0);
	CLIENT fd = client_new(f);
	CHECK_STR(ask(f, fd, REQUEST("1", "echo")), RESULT("1", "{}"));
	f->admin = admin_free(f->admin);
	CHECK_INT(stat(f->path, &after), 0);
	CHECK_INT(after.st_ino, before.st_ino);
}

TEST(admin_new__path_length)
{
	FIXTURE = fixture_new();
	char path[256];
	int used = snprintf(path, sizeof(path), "%s/", f->dir);
	char kept[sizeof(f->path)];

	strcpy(kept, f->path);
	memset(path + used, 'x', sizeof(path) - (size_t)used);
	path[108] = '\0';
	CHECK_INT(start_at(f, path, &f->admin), -ENAMETOOLONG);
	path[107] = '\0';
	CHECK_INT(start_at(f, path, &f->admin), 0);
	CHECK_INT(access(path, F_OK), 0);
	f->admin = admin_free(f->admin);
	CHECK_INT(access(path, F_OK), -1);
	strcpy(path + 107, ".lock");
	CHECK_INT(unlink(path), 0);
	CHECK_INT(start_at(f, "", &f->admin), -EINVAL);
	CHECK_INT(start_at(f, "/nonexistent/x", &f->admin), -ENOENT);
}

TEST(admin_free__removes_own_file)
{
	FIXTURE = fixture_start();

	f->admin = admin_free(f->admin);
	CHECK_INT(access(f->path, F_OK), -1);
	CHECK_INT(errno, ENOENT);
	CHECK(!admin_free(NULL));
}

/* What was said in the turn in which the daemon ends. */
TEST(admin_free__last_words)
{
	FIXTURE = fixture_start();
	CLIENT fd = client_new(f);
	char text[64] = "";

	CHECK_STR(ask(f, fd, REQUEST("1", "follow")), RESULT("1", "true"));
	admin_publish(f->admin, json_pack("{s:s}", "x", "bye"));
	f->admin = admin_free(f->admin);
	CHECK(recv(fd, text, sizeof(text) - 1, MSG_DONTWAIT) > 0);
	CHECK(strstr(text, "\"x\":\"bye\"") != NULL);
}

TEST(admin_free__leaves_foreign_file)
{
	FIXTURE = fixture_start();

	CHECK_INT(unlink(f->path), 0);
	CLIENT stranger = bind_foreign(f);
	CHECK(stranger >= 0);
	f->admin = admin_free(f->admin);
	CHECK_INT(access(f->path, F_OK), 0);
}

/* Requests */

TEST(admin_request__answers)
{
	static const struct {
		const char *line, *answer;
	} cases[] = {
		{REQUEST("7", "echo"), RESULT("7", "{}")},
		{REQUEST("\"a\"", "echo"), RESULT("\"a\"", "{}")},
		{REQUEST("null", "echo"), RESULT("null", "{}")},
		{REQUEST("-9223372036854775808", "echo"), RESULT("-9223372036854775808", "{}")},
		{"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"echo\",\"params\":{\"x\":[1]}}\r\n",
		 RESULT("1", "{\"x\":[1]}")},
		{REQUEST("1", "fail"), FAILURE("1", "1030", "no \\\\xff such lease")},
		{REQUEST("1", "Echo"), FAILURE("1", "-32601", "there is no such method")},
		{REQUEST("1", ""), FAILURE("1", "-32601", "there is no such method")},
		{"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"echo\",\"params\":[]}\n",
		 FAILURE("1", "-32602", "params must be given by name")},
		{"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"echo\",\"params\":1}\n",
		 FAILURE("1", "-32600", "params is not structured")},
		{REQUEST("1.5", "echo"),
		 FAILURE("null", "-32600", "id is not a string, an integer or null")},
		{REQUEST("[]", "echo"),
		 FAILURE("null", "-32600", "id is not a string, an integer or null")},
		{"{\"jsonrpc\":\"1.0\",\"id\":1,\"method\":\"echo\"}\n",
		 FAILURE("1", "-32600", "jsonrpc is not \\\"2.0\\\"")},
		{"{\"id\":1,\"method\":\"echo\"}\n",
		 FAILURE("1", "-32600", "jsonrpc is not \\\"2.0\\\"")},
		{"{\"jsonrpc\":\"2.0\",\"id\":1}\n",
		 FAILURE("1", "-32600", "method is not a string")},
		{"{\"jsonrpc\":\"2.0\",\"method\":1}\n",
		 FAILURE("null", "-32600", "method is not a string")},
		{"[]\n", FAILURE("null", "-32600", "batches are not supported")},
		{"[{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"echo\"}]\n",
		 FAILURE("null", "-32600", "batches are not supported")},
		{"\n", FAILURE("null", "-32700", "line 1: '[' or '{' expected near end of file")},
		{"1\n", FAILURE("null", "-32700", "line 1: '[' or '{' expected near '1'")},
		{"{\"a\":1,\"a\":1}\n",
		 FAILURE("null", "-32700", "line 1: duplicate object key near '\\\"a\\\"'")},
		{"{} {}\n", FAILURE("null", "-32700", "line 1: end of file expected near '{'")},
	};
	FIXTURE = fixture_start();
	CLIENT fd = client_new(f);

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
		CHECK_STR(ask(f, fd, cases[i].line), cases[i].answer);
	CHECK_INT(f->calls, 5);
}

TEST(admin_request__nul_byte)
{
	FIXTURE = fixture_start();
	CLIENT fd = client_new(f);

	client_send(f, fd, "{}\0\n", 4);
	CHECK_STR(client_line(f, fd), FAILURE("null", "-32700", "there is a NUL byte in it"));
	CHECK_STR(ask(f, fd, REQUEST("1", "echo")), RESULT("1", "{}"));
}

TEST(admin_request__depth)
{
	FIXTURE = fixture_start();
	CLIENT fd = client_new(f);
	char line[128];

	snprintf(line, sizeof(line), "%.32s%.32s\n", "[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[",
		 "]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]");
	CHECK_STR(ask(f, fd, line), FAILURE("null", "-32600", "batches are not supported"));
	snprintf(line, sizeof(line), "[%.32s%.32s]\n", "[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[",
		 "]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]");
	CHECK_STR(ask(f, fd, line), FAILURE("null", "-32700", "nested deeper than 32 levels"));
}

TEST(admin_request__notification)
{
	FIXTURE = fixture_start();
	CLIENT fd = client_new(f);

	client_send(f, fd, "{\"jsonrpc\":\"2.0\",\"method\":\"echo\"}\n", 34);
	client_send(f, fd, "{\"jsonrpc\":\"2.0\",\"method\":\"fail\"}\n", 34);
	client_send(f, fd, "{\"jsonrpc\":\"2.0\",\"method\":\"none\"}\n", 34);
	CHECK_STR(ask(f, fd, REQUEST("1", "echo")), RESULT("1", "{}"));
	CHECK_INT(f->calls, 2);
}

TEST(admin_request__in_pieces)
{
	FIXTURE = fixture_start();
	CLIENT fd = client_new(f);
	const char *line = REQUEST("1", "echo");

	for (size_t i = 0; line[i + 1]; i++)
		client_send(f, fd, line + i, 1);
	CHECK(client_is_quiet(f, fd, 10));
	CHECK_STR(ask(f, fd, "\n"), RESULT("1", "{}"));
}

TEST(admin_request__many_at_once)
{
	FIXTURE = fixture_start();
	CLIENT fd = client_new(f);
	char lines[200 * 64], answer[64];
	size_t used = 0;

	for (int i = 0; i < 200; i++)
		used += (size_t)snprintf(lines + used, sizeof(lines) - used, REQUEST("%d", "echo"),
					 i);
	client_send(f, fd, lines, used);
	for (int i = 0; i < 200; i++) {
		snprintf(answer, sizeof(answer), RESULT("%d", "{}"), i);
		CHECK_STR(client_line(f, fd), answer);
	}
	CHECK_INT(f->calls, 200);
}

/* A request of @len bytes, newline included. */
static char *padded_request(size_t len)
{
	const char *request = REQUEST("1", "echo");
	char *line = malloc(len + 1);

	if (!line)
		abort();
	memset(line, ' ', len);
	memcpy(line + len - strlen(request), request, strlen(request) + 1);
	return line;
}

TEST(admin_request__longest)
{
	FIXTURE = fixture_start();
	CLIENT fd = client_new(f);
	char *line = padded_request(ADMIN_LINE_MAX);

	client_send(f, fd, line, ADMIN_LINE_MAX);
	free(line);
	CHECK_STR(client_line(f, fd), RESULT("1", "{}"));
}

TEST(admin_request__too_long)
{
	FIXTURE = fixture_start();
	CLIENT fd = client_new(f);
	char *line = padded_request(ADMIN_LINE_MAX + 1);

	client_send(f, fd, line, ADMIN_LINE_MAX + 1);
	free(line);
	CHECK_STR(client_line(f, fd), FAILURE("null", "-32600", "the request is too long"));
	CHECK_STR(client_line(f, fd), "(closed)");
	CHECK_INT(f->calls, 0);
}

TEST(admin_request__too_many_outstanding)
{
	FIXTURE = fixture_start();
	CLIENT fd = client_new(f);

	for (int i = 0; i < 32; i++)
		client_send(f, fd, REQUEST("1", "hold"), strlen(REQUEST("1", "hold")));
	CHECK_STR(ask(f, fd, REQUEST("2", "hold")),
		  FAILURE("2", "1003", "too many requests are in flight, or the object is busy"));
	CHECK_INT(f->held_count, 32);
	admin_reply(f->held[--f->held_count], json_true());
	CHECK_STR(client_line(f, fd), RESULT("1", "true"));
	client_send(f, fd, REQUEST("3", "hold"), strlen(REQUEST("3", "hold")));
	CHECK(client_is_quiet(f, fd, 10));
	CHECK_INT(f->held_count, 32);
	while (f->held_count > 0)
		admin_fail(f->held[--f->held_count], 1005, "x");
	CHECK_STR(client_line(f, fd), FAILURE("3", "1005", "x"));
}

TEST(admin_reply__connection_gone)
{
	FIXTURE = fixture_start();
	int fd = client_new(f);

	client_send(f, fd, REQUEST("1", "hold"), strlen(REQUEST("1", "hold")));
	client_send(f, fd, REQUEST("2", "hold"), strlen(REQUEST("2", "hold")));
	client_send(f, fd, REQUEST("3", "hold"), strlen(REQUEST("3", "hold")));
	CHECK_INT(f->held_count, 3);
	close(fd);
	run_loop_ms(f, 10);
	admin_reply(f->held[0], json_true());
	run_loop_ms(f, 10); /* the write fails, the connection goes */
	admin_reply(f->held[1], json_true());
	admin_fail(f->held[2], 1005, "x");
	CLIENT other = client_new(f);
	CHECK_STR(ask(f, other, REQUEST("1", "echo")), RESULT("1", "{}"));
}

TEST(admin_reply__admin_gone)
{
	FIXTURE = fixture_start();
	CLIENT fd = client_new(f);

	client_send(f, fd, REQUEST("1", "hold"), strlen(REQUEST("1", "hold")));
	client_send(f, fd, REQUEST("2", "hold"), strlen(REQUEST("2", "hold")));
	CHECK_INT(f->held_count, 2);
	f->admin = admin_free(f->admin);
	admin_reply(f->held[0], json_true());
	admin_fail(f->held[1], 1005, "x");
	CHECK_STR(client_line(f, fd), "(closed)");
}

TEST(admin_reply__out_of_order)
{
	FIXTURE = fixture_start();
	CLIENT fd = client_new(f);

	client_send(f, fd, REQUEST("1", "hold"), strlen(REQUEST("1", "hold")));
	client_send(f, fd, REQUEST("2", "hold"), strlen(REQUEST("2", "hold")));
	CHECK_INT(f->held_count, 2);
	admin_reply(f->held[1], json_true());
	admin_reply(f->held[0], json_false());
	CHECK_STR(client_line(f, fd), RESULT("2", "true"));
	CHECK_STR(client_line(f, fd), RESULT("1", "false"));
}

/* Connections */

TEST(admin_connection__half_closed)
{
	FIXTURE = fixture_start();
	CLIENT fd = client_new(f);
	char lines[4096] = "";

	for (int i = 0; i < 50; i++)
		strcat(lines, REQUEST("1", "echo"));
	strcat(lines, REQUEST("2", "hold"));
	strcat(lines, "half a line");
	if (send(fd, lines, strlen(lines), 0) != (ssize_t)strlen(lines))
		abort();
	shutdown(fd, SHUT_WR);
	for (int i = 0; i < 50; i++)
		CHECK_STR(client_line(f, fd), RESULT("1", "{}"));
	CHECK(client_is_quiet(f, fd, 10));
	CHECK_INT(f->held_count, 1);
	admin_reply(f->held[0], json_true());
	CHECK_STR(client_line(f, fd), RESULT("2", "true"));
	CHECK_STR(client_line(f, fd), "(closed)");
}

TEST(admin_connection__half_closed_notification)
{
	FIXTURE = fixture_start();
	CLIENT fd = client_new(f);

	client_send(f, fd, "{\"jsonrpc\":\"2.0\",\"method\":\"hold\"}\n", 34);
	shutdown(fd, SHUT_WR);
	CHECK(client_is_quiet(f, fd, 10));
	CHECK_INT(f->held_count, 1);
	admin_reply(f->held[0], json_true());
	CHECK_STR(client_line(f, fd), "(closed)");
}

TEST(admin_connection__too_many)
{
	FIXTURE = fixture_start();
	int fds[64];

	for (size_t i = 0; i < 64; i++) {
		fds[i] = client_new(f);
		run_loop(f);
	}
	CLIENT extra = client_new(f);
	CHECK_STR(client_line(f, extra), "(closed)");
	CHECK_STR(ask(f, fds[0], REQUEST("1", "echo")), RESULT("1", "{}"));
	CHECK_STR(ask(f, fds[63], REQUEST("2", "echo")), RESULT("2", "{}"));
	close(fds[63]);
	run_loop_ms(f, 10);
	CLIENT next = client_new(f);
	CHECK_STR(ask(f, next, REQUEST("3", "echo")), RESULT("3", "{}"));
	for (size_t i = 0; i < 63; i++)
		close(fds[i]);
}

TEST(admin_connection__half_line_timeout)
{
	FIXTURE = fixture_start();
	CLIENT idle = client_new(f);
	CLIENT half = client_new(f);

	admin_set_line_timeout(f->admin, 50);
	CHECK_STR(ask(f, idle, REQUEST("1", "echo")), RESULT("1", "{}"));
	client_send(f, half, "{", 1);
	CHECK(client_is_quiet(f, half, 20));
	CHECK_STR(client_line(f, half), "(closed)");
	CHECK(client_is_quiet(f, idle, 100));
	CHECK_STR(ask(f, idle, REQUEST("2", "echo")), RESULT("2", "{}"));
}

TEST(admin_connection__long_answer)
{
	FIXTURE = fixture_start();
	CLIENT fd = client_new(f);
	size_t expected = strlen(RESULT("1", "[\"\",\"\",\"\"]")) + 3 * (2u << 20);

	CHECK_INT(strlen(ask(f, fd, REQUEST("1", "long"))), expected);
	/* The second is not called before the first has been read. */
	client_send(f, fd, REQUEST("2", "long") REQUEST("3", "echo"),
		    strlen(REQUEST("2", "long") REQUEST("3", "echo")));
	CHECK_INT(f->calls, 0);
	CHECK_INT(strlen(client_line(f, fd)), expected);
	CHECK_STR(client_line(f, fd), RESULT("3", "{}"));
}

TEST(admin_connection__answers_not_read)
{
	FIXTURE = fixture_start();
	CLIENT fd = client_new(f);
	size_t answer_bytes = strlen(RESULT("1", "\"\"")) + (2u << 20);

	for (int i = 0; i < 4; i++)
		client_send(f, fd, REQUEST("1", "hold"), strlen(REQUEST("1", "hold")));
	CHECK_INT(f->held_count, 4);
	/* Before the fourth more than 4 MiB wait, before the third less. */
	for (int i = 0; i < 3; i++)
		admin_reply(f->held[i], long_result());
	run_loop(f);
	admin_reply(f->held[3], long_result());
	run_loop_ms(f, 10);
	CHECK_STR(client_line(f, fd), "(closed)");
	CHECK(strlen(f->text) < answer_bytes);
}

TEST(admin_connection__dies_within_a_call)
{
	FIXTURE = fixture_start();
	CLIENT fd = client_new(f);
	const char *lines = REQUEST("2", "flush") REQUEST("3", "echo");

	for (int i = 0; i < 5; i++)
		client_send(f, fd, REQUEST("1", "hold"), strlen(REQUEST("1", "hold")));
	CHECK_INT(f->held_count, 5);
	client_send(f, fd, lines, strlen(lines));
	run_loop_ms(f, 10);
	CHECK_STR(client_line(f, fd), "(closed)");
	CHECK_INT(f->held_count, 0);
	CHECK_INT(f->calls, 1);
}

TEST(admin_connection__no_descriptors)
{
	FIXTURE = fixture_start();
	CLIENT first = client_new(f);
	struct rlimit old, none;
	uint64_t before_ns;

	run_loop(f);
	CLIENT second = client_new(f);
	CHECK_INT(getrlimit(RLIMIT_NOFILE, &old), 0);
	none = old;
	none.rlim_cur = 0;
	CHECK_INT(setrlimit(RLIMIT_NOFILE, &none), 0);
	event_base_loop(f->base, EVLOOP_NONBLOCK);
	setrlimit(RLIMIT_NOFILE, &old);
	/* Nothing to do for the loop until the pause is over. */
	before_ns = clock_now_ns();
	event_base_loop(f->base, EVLOOP_ONCE);
	CHECK(clock_now_ns() - before_ns >= 900 * CLOCK_NS_PER_MS);
	CHECK_STR(ask(f, second, REQUEST("1", "echo")), RESULT("1", "{}"));
	CHECK_STR(ask(f, first, REQUEST("2", "echo")), RESULT("2", "{}"));
}

/* The one who leaves makes room for the one who waits, at once. */
TEST(admin_connection__descriptor_becomes_free)
{
	FIXTURE = fixture_start();
	int first = client_new(f);
	struct rlimit old, none;
	uint64_t before_ns;

	run_loop(f);
	CLIENT second = client_new(f);
	CHECK_INT(getrlimit(RLIMIT_NOFILE, &old), 0);
	none = old;
	none.rlim_cur = 0;
	CHECK_INT(setrlimit(RLIMIT_NOFILE, &none), 0);
	event_base_loop(f->base, EVLOOP_NONBLOCK);
	setrlimit(RLIMIT_NOFILE, &old);
	before_ns = clock_now_ns();
	close(first);
	CHECK_STR(ask(f, second, REQUEST("1", "echo")), RESULT("1", "{}"));
	CHECK(clock_now_ns() - before_ns < 500 * CLOCK_NS_PER_MS);
}

/* Following */

#define EVENT(params) "{\"jsonrpc\":\"2.0\",\"method\":\"event\",\"params\":" params "}"
#define CUT	      EVENT("{\"event\":\"cut\",\"reason\":\"events came faster than they were read\"}")

TEST(admin_follow__told_from_then_on)
{
	FIXTURE = fixture_start();
	CLIENT fd = client_new(f);
	CLIENT other = client_new(f);

	CHECK(!admin_has_followers(f->admin));
	admin_publish(f->admin, json_pack("{s:i}", "n", 1));
	CHECK_STR(ask(f, fd, REQUEST("1", "follow")), RESULT("1", "true"));
	CHECK_STR(ask(f, other, REQUEST("1", "echo")), RESULT("1", "{}"));
	CHECK(admin_has_followers(f->admin));
	admin_publish(f->admin, json_pack("{s:i}", "n", 2));
	admin_publish(f->admin, NULL);
	admin_publish(f->admin, json_pack("{s:i}", "n", 3));
	CHECK_STR(client_line(f, fd), EVENT("{\"n\":2}"));
	CHECK_STR(client_line(f, fd), EVENT("{\"n\":3}"));
	CHECK(client_is_quiet(f, other, 20));
	/* Who follows may still ask; twice is as good as once. */
	CHECK_STR(ask(f, fd, REQUEST("2", "follow")), RESULT("2", "true"));
	CHECK_STR(ask(f, fd, REQUEST("3", "tell")), EVENT("{}"));
	CHECK_STR(client_line(f, fd), RESULT("3", "true"));
	CHECK(client_is_quiet(f, fd, 20));
}

TEST(admin_follow__hang_up)
{
	FIXTURE = fixture_start();
	int fd = client_new(f);

	CHECK_STR(ask(f, fd, REQUEST("1", "follow")), RESULT("1", "true"));
	close(fd);
	run_loop_ms(f, 20);
	CHECK(!admin_has_followers(f->admin));
	admin_publish(f->admin, json_pack("{s:i}", "n", 1));
}

static char *long_text(size_t len)
{
	char *text = malloc(len + 1);

	if (!text)
		abort();
	memset(text, 'x', len);
	text[len] = '\0';
	return text;
}

/* Publishes until somebody is cut off. Return: how many events. */
static unsigned int publish_until_cut(struct fixture *f)
{
	char *text = long_text(1000);
	unsigned int count = 0;

	while (admin_has_followers(f->admin) && count < 100000) {
		admin_publish(f->admin, json_pack("{s:i,s:s}", "n", count++, "x", text));
		run_loop(f);
	}
	free(text);
	return count;
}

/* How many events come, in order, before the last line, which says why it ends. */
static void count_until_cut(struct fixture *f, int fd, unsigned int *ret_count)
{
	unsigned int count = 0;
	const char *line;

	for (;;) {
		char start[96];

		line = client_line(f, fd);
		snprintf(start, sizeof(start),
			 "{\"jsonrpc\":\"2.0\",\"method\":\"event\",\"params\":{\"n\":%u,", count);
		if (strncmp(line, start, strlen(start)) != 0)
			break;
		count++;
	}
	CHECK_STR(line, CUT);
	CHECK_STR(client_line(f, fd), "(closed)");
	*ret_count = count;
}

TEST(admin_follow__slow_reader_is_cut)
{
	FIXTURE = fixture_start();
	CLIENT slow = client_new(f);
	CLIENT asking = client_new(f);
	unsigned int published, received = 0;

	CHECK_STR(ask(f, slow, REQUEST("1", "follow")), RESULT("1", "true"));
	published = publish_until_cut(f);
	/* A quarter of a MiB here, and what the kernel takes. */
	CHECK(published > 250);
	CHECK(published < 1000);
	CHECK_STR(ask(f, asking, REQUEST("1", "echo")), RESULT("1", "{}"));
	count_until_cut(f, slow, &received);
	CHECK_INT(received, published - 1);
}

/* A reader that stops for longer than answers may wait has its last line, too. */
TEST(admin_follow__stalled_reader_is_cut)
{
	FIXTURE = fixture_start();
	char *text = long_text(1000);
	unsigned int published = 0, received = 0;
	uint64_t until_ns;

	admin_set_write_timeout(f->admin, 500);
	CLIENT slow = client_new(f);
	CHECK_STR(ask(f, slow, REQUEST("1", "follow")), RESULT("1", "true"));
	/* More than the kernel takes, less than would be cut at once. */
	while (published < 270) {
		admin_publish(f->admin, json_pack("{s:i,s:s}", "n", published++, "x", text));
		if (published % 50 == 0)
			run_loop(f);
	}
	free(text);
	CHECK(admin_has_followers(f->admin));
	until_ns = clock_add_ms(clock_now_ns(), WAIT_MS);
	while (admin_has_followers(f->admin) && clock_now_ns() < until_ns)
		run_loop(f);
	CHECK(!admin_has_followers(f->admin));
	run_loop_ms(f, 300);
	count_until_cut(f, slow, &received);
	CHECK_INT(received, published);
}

/* A reader that keeps up is never cut, however much there is. */
TEST(admin_follow__fast_reader)
{
	FIXTURE = fixture_start();
	CLIENT fd = client_new(f);
	char *text = long_text(1000);
	unsigned int right = 0;

	CHECK_STR(ask(f, fd, REQUEST("1", "follow")), RESULT("1", "true"));
	for (unsigned int i = 0; i < 3000; i++) {
		admin_publish(f->admin, json_pack("{s:s}", "x", text));
		right += strlen(client_line(f, fd)) > 1000;
	}
	free(text);
	CHECK_INT(right, 3000);
	CHECK(admin_has_followers(f->admin));
}
