/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The calling side of the admin socket. The daemon is held to the protocol as it holds
 * us to it: an answer that does not fit the call, is too long or comes too late is an
 * error. One call at a time, so anything behind an answer's newline is one as well, unless
 * the daemon was asked to go on telling: then it is kept for the next look.
 */
#include "client/ctl/rpc.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

#include "common/clock.h"
#include "common/strict_json.h"

#define ANSWER_MAX_BYTES   (512u << 20)
#define ANSWER_FIRST_BYTES 65536
#define POLL_MAX_MS	   60000

struct rpc {
	int fd;
	uint64_t timeout_ms;
	json_int_t last_id;
	char *buf; /* of what has come: a line that was looked at, then more */
	size_t cap_bytes;
	size_t used_bytes;
	size_t line_bytes; /* of the line that was looked at, newline included */
};

/* connect() on a unix socket waits for room in the backlog no longer than SO_SNDTIMEO. */
static int connect_within(int fd, const struct sockaddr_un *address, uint64_t timeout_ms)
{
	struct timeval timeout = {
		.tv_sec = (time_t)(timeout_ms / 1000),
		.tv_usec = (suseconds_t)(timeout_ms % 1000 * 1000),
	};

	if (setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &timeout, sizeof(timeout)) < 0)
		return -errno;
	if (connect(fd, (const struct sockaddr *)address, sizeof(*address)) < 0)
		return errno == EAGAIN ? -ETIMEDOUT : -errno;
	return fcntl(fd, F_SETFL, O_NONBLOCK) < 0 ? -errno : 0;
}

int rpc_new(const char *path, uint64_t timeout_ms, struct rpc **ret_rpc)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	struct rpc *rpc;
	int r;

	if (strlen(path) >= sizeof(address.sun_path))
		return -ENAMETOOLONG;
	memcpy(address.sun_path, path, strlen(path) + 1);
	rpc = calloc(1, sizeof(*rpc));
	if (!rpc)
		return -ENOMEM;
	rpc->timeout_ms = timeout_ms;
	rpc->fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	r = rpc->fd < 0 ? -errno : connect_within(rpc->fd, &address, timeout_ms);
	if (r < 0) {
		rpc_free(rpc);
		return r;
	}
	*ret_rpc = rpc;
	return 0;
}

struct rpc *rpc_free(struct rpc *rpc)
{
	if (!rpc)
		return NULL;
	if (rpc->fd >= 0)
		(void)close(rpc->fd);
	free(rpc->buf);
	free(rpc);
	return NULL;
}

static int wait_for(const struct rpc *rpc, short events, uint64_t until_ns)
{
	struct pollfd pollfd = {.fd = rpc->fd, .events = events};
	uint64_t left_ms =
		until_ns == UINT64_MAX ? POLL_MAX_MS : clock_left_ms(until_ns, clock_now_ns());

	if (left_ms == 0)
		return -ETIMEDOUT;
	if (poll(&pollfd, 1, (int)(left_ms < POLL_MAX_MS ? left_ms : POLL_MAX_MS)) < 0)
		return errno == EINTR ? 0 : -errno;
	return 0;
}

static int send_all(const struct rpc *rpc, const char *bytes, size_t len_bytes, uint64_t until_ns)
{
	while (len_bytes > 0) {
		ssize_t n = send(rpc->fd, bytes, len_bytes, MSG_NOSIGNAL);
		int r;

		if (n >= 0) {
			bytes += n;
			len_bytes -= (size_t)n;
			continue;
		}
		/* The daemon may have said why before it hung up: read that first. */
		if (errno == EPIPE)
			return 0;
		if (errno != EAGAIN && errno != EINTR)
			return -errno;
		r = wait_for(rpc, POLLOUT, until_ns);
		if (r < 0)
			return r;
	}
	return 0;
}

static int grow_buffer(struct rpc *rpc)
{
	size_t cap_bytes = rpc->cap_bytes ? rpc->cap_bytes * 2 : ANSWER_FIRST_BYTES;
	char *buf;

	if (cap_bytes > ANSWER_MAX_BYTES)
		return -EMSGSIZE;
	buf = realloc(rpc->buf, cap_bytes);
	if (!buf)
		return -ENOMEM;
	rpc->buf = buf;
	rpc->cap_bytes = cap_bytes;
	return 0;
}

static int receive_some(struct rpc *rpc, uint64_t until_ns)
{
	ssize_t n;
	int r = rpc->used_bytes == rpc->cap_bytes ? grow_buffer(rpc) : 0;

	if (r < 0)
		return r;
	n = recv(rpc->fd, rpc->buf + rpc->used_bytes, rpc->cap_bytes - rpc->used_bytes, 0);
	if (n == 0)
		return -ECONNRESET;
	if (n > 0)
		rpc->used_bytes += (size_t)n;
	else if (errno != EAGAIN && errno != EINTR)
		return -errno;
	else
		return wait_for(rpc, POLLIN, until_ns);
	return 0;
}

/* Drop the line that was looked at; what is behind it moves to the front. */
static void forget_line(struct rpc *rpc)
{
	if (rpc->line_bytes == 0)
		return;
	rpc->used_bytes -= rpc->line_bytes;
	memmove(rpc->buf, rpc->buf + rpc->line_bytes, rpc->used_bytes);
	rpc->line_bytes = 0;
}

/* One line to the front of the buffer. @until_ns: UINT64_MAX: without a limit */
static int receive_line(struct rpc *rpc, uint64_t until_ns)
{
	size_t seen_bytes = 0;

	forget_line(rpc);
	for (;;) {
		char *newline = NULL;
		int r;

		if (rpc->used_bytes > seen_bytes)
			newline = memchr(rpc->buf + seen_bytes, '\n', rpc->used_bytes - seen_bytes);
		if (newline) {
			rpc->line_bytes = (size_t)(newline - rpc->buf) + 1;
			return 0;
		}
		seen_bytes = rpc->used_bytes;
		r = receive_some(rpc, until_ns);
		if (r < 0)
			return r;
	}
}

static int __attribute__((format(printf, 3, 4)))
fail(struct rpc_failure *failure, int r, const char *format, ...)
{
	va_list ap;

	failure->code = 0;
	va_start(ap, format);
	(void)vsnprintf(failure->text, sizeof(failure->text), format, ap);
	va_end(ap);
	return r;
}

static int read_refusal(const json_t *error, struct rpc_failure *failure)
{
	const json_t *code = json_object_get(error, "code");
	const char *text = json_string_value(json_object_get(error, "message"));

	if (!json_is_integer(code) || !text)
		return fail(failure, -EPROTO, "the daemon's error has no code or no text");
	failure->code = json_integer_value(code);
	(void)snprintf(failure->text, sizeof(failure->text), "%s", text);
	return -EREMOTEIO;
}

/* An error with id null is an answer too: the daemon could not read our request. */
static int read_answer(const struct rpc *rpc, const json_t *answer, json_t **ret_result,
		       struct rpc_failure *failure)
{
	const char *version = json_string_value(json_object_get(answer, "jsonrpc"));
	const json_t *id = json_object_get(answer, "id");
	const json_t *error = json_object_get(answer, "error");
	json_t *result = json_object_get(answer, "result");
	bool is_ours = json_is_integer(id) && json_integer_value(id) == rpc->last_id;

	if (!version || strcmp(version, "2.0") != 0 || !error == !result)
		return fail(failure, -EPROTO, "the daemon's answer is not JSON-RPC 2.0");
	if (!is_ours && !(error && json_is_null(id)))
		return fail(failure, -EPROTO, "the daemon's answer belongs to another request");
	if (error)
		return read_refusal(error, failure);
	*ret_result = json_incref(result);
	return 0;
}

/* The line at the front of the buffer. */
static int read_line(const struct rpc *rpc, json_t **ret_root, struct rpc_failure *failure)
{
	char why[STRICT_JSON_ERROR_MAX];

	if (strict_json_parse(rpc->buf, rpc->line_bytes - 1, why, ret_root) < 0)
		return fail(failure, -EPROTO, "the daemon's answer is not JSON: %s", why);
	return 0;
}

static int fail_receive(struct rpc_failure *failure, int r)
{
	if (r == -ETIMEDOUT)
		return fail(failure, r, "the daemon did not answer in time");
	if (r == -ECONNRESET)
		return fail(failure, r, "the daemon closed the connection");
	return fail(failure, r, "the daemon's answer could not be received: %s", strerror(-r));
}

static int exchange(struct rpc *rpc, const char *line, json_t **ret_answer,
		    struct rpc_failure *failure)
{
	uint64_t until_ns = clock_add_ms(clock_now_ns(), rpc->timeout_ms);
	int r;

	forget_line(rpc);
	/* What is there before we ask, and has not been asked for, answers nothing. */
	if (rpc->used_bytes > 0)
		return fail(failure, -EPROTO, "the daemon said more than it was asked for");
	r = send_all(rpc, line, strlen(line), until_ns);
	if (r == 0)
		r = send_all(rpc, "\n", 1, until_ns);
	if (r == 0)
		r = receive_line(rpc, until_ns);
	if (r < 0)
		return fail_receive(failure, r);
	return read_line(rpc, ret_answer, failure);
}

int rpc_call(struct rpc *rpc, const char *method, json_t *params, json_t **ret_result,
	     struct rpc_failure *failure)
{
	json_t *request, *answer;
	char *line;
	int r;

	request = json_pack("{s:s, s:I, s:s, s:o*}", "jsonrpc", "2.0", "id", ++rpc->last_id,
			    "method", method, "params", params);
	line = request ? json_dumps(request, JSON_COMPACT) : NULL;
	json_decref(request);
	if (!line)
		return fail(failure, -ENOMEM, "the request could not be made");
	r = exchange(rpc, line, &answer, failure);
	free(line);
	if (r < 0)
		return r;
	r = read_answer(rpc, answer, ret_result, failure);
	json_decref(answer);
	return r;
}

int rpc_next(struct rpc *rpc, json_t **ret_params, struct rpc_failure *failure)
{
	json_t *root, *params;
	int r = receive_line(rpc, UINT64_MAX);

	if (r < 0)
		return fail_receive(failure, r);
	r = read_line(rpc, &root, failure);
	if (r < 0)
		return r;
	params = json_object_get(root, "params");
	if (!json_is_string(json_object_get(root, "method")) || !json_is_object(params))
		r = fail(failure, -EPROTO, "the daemon's notification is not JSON-RPC 2.0");
	else
		*ret_params = json_incref(params);
	json_decref(root);
	return r;
}
