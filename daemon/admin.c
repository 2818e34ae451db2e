/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The admin socket. Owns the socket file (guarded by a lock file, so that two daemons
 * never serve one path), the connections and the requests that wait for an answer.
 *
 * A request points at its connection weakly: when the connection dies first, the
 * pointer is cleared and the answer goes nowhere. A method may answer within its own
 * call, and the answer may cost the connection its life; so while requests of a
 * connection are being called, its end is only marked and carried out afterwards.
 *
 * Everything a client can make us hold is bounded: connections, bytes of a line,
 * requests without an answer, bytes of answers it does not read. Loop thread only.
 */
#include "daemon/admin.h"

#include <assert.h>
#include <errno.h>
#include <event2/buffer.h>
#include <event2/bufferevent.h>
#include <event2/event.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/queue.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "common/log.h"
#include "common/strict_json.h"
#include "common/text.h"
#include "daemon/loop.h"
#include "daemon/notify.h"
#include "proto/error.h"

#define CONNECTIONS_MAX	   64
#define OUTSTANDING_MAX	   32
#define OUTPUT_MAX_BYTES   (4u << 20)
#define OUTPUT_PAUSE_BYTES (1u << 20) /* no further requests are called above this */
#define LINES_PER_WAKEUP   32
#define ACCEPTS_PER_WAKEUP 16
#define BACKLOG		   64
#define SOCKET_MODE	   0660
#define LINE_TIMEOUT_MS	   10000
#define WRITE_TIMEOUT_MS   10000
#define ACCEPT_PAUSE_MS	   1000
#define ERROR_TEXT_MAX	   512

struct admin_connection;

struct admin_request {
	struct admin_connection *connection; /* NULL once the connection is gone */
	LIST_ENTRY(admin_request) entry;     /* in connection->requests */
	json_t *id;			     /* NULL: a notification, which gets no answer */
};

LIST_HEAD(admin_request_list, admin_request);

struct admin_connection {
	struct admin *admin;
	LIST_ENTRY(admin_connection) entry; /* in admin->connections */
	struct bufferevent *bev;
	struct admin_request_list requests;
	size_t outstanding; /* requests in the list */
	bool is_calling;    /* methods run now: do not free */
	bool is_closing;    /* reads no more; ends when all read is called, answered and sent */
	bool is_dead;	    /* to be freed as soon as no method runs */
};

LIST_HEAD(admin_connection_list, admin_connection);

struct admin {
	struct event_base *base;
	const struct admin_method *const *tables;
	void *context;
	char path[sizeof(((struct sockaddr_un *)NULL)->sun_path)];
	int lock_fd;
	int listen_fd;
	dev_t socket_dev; /* with socket_ino: the file that we made; 0 if none */
	ino_t socket_ino;
	struct event *accept_event;
	struct event *resume_event; /* ends a pause in accepting */
	struct admin_connection_list connections;
	size_t connection_count;
	struct timeval line_timeout;
	struct log_limit log_limit;
};

static struct timeval timeval_ms(uint64_t ms)
{
	return (struct timeval){
		.tv_sec = (time_t)(ms / 1000),
		.tv_usec = (suseconds_t)(ms % 1000 * 1000),
	};
}

/* Connections */

static void request_detach(struct admin_request *request)
{
	if (!request->connection)
		return;
	LIST_REMOVE(request, entry);
	request->connection->outstanding--;
	request->connection = NULL;
}

/* A file has become free, perhaps the one that somebody waits for. */
static void resume_accepting(struct admin *admin)
{
	if (evtimer_pending(admin->resume_event, NULL))
		event_active(admin->resume_event, EV_TIMEOUT, 0);
}

static void connection_free(struct admin_connection *connection)
{
	struct admin *admin = connection->admin;
	struct admin_request *request;

	while ((request = LIST_FIRST(&connection->requests)))
		request_detach(request);
	assert(connection->outstanding == 0);
	LIST_REMOVE(connection, entry);
	admin->connection_count--;
	bufferevent_free(connection->bev);
	free(connection);
	resume_accepting(admin);
}

/* May free the connection. */
static void connection_kill(struct admin_connection *connection)
{
	connection->is_dead = true;
	if (!connection->is_calling)
		connection_free(connection);
}

static size_t output_bytes(const struct admin_connection *connection)
{
	return evbuffer_get_length(bufferevent_get_output(connection->bev));
}

static bool has_line(const struct admin_connection *connection)
{
	struct evbuffer *input = bufferevent_get_input(connection->bev);

	return evbuffer_search_eol(input, NULL, NULL, EVBUFFER_EOL_LF).pos >= 0;
}

/* May free the connection. */
static void connection_close_if_done(struct admin_connection *connection)
{
	if (connection->is_closing && connection->outstanding == 0 &&
	    output_bytes(connection) == 0 && !has_line(connection))
		connection_kill(connection);
}

static void connection_stop_reading(struct admin_connection *connection)
{
	connection->is_closing = true;
	(void)bufferevent_disable(connection->bev, EV_READ);
}

/*
 * The limit is held against what was waiting before: one long answer may pass it, a
 * client that does not read its answers may not. May free the connection.
 */
static void connection_send(struct admin_connection *connection, const json_t *message)
{
	struct evbuffer *output = bufferevent_get_output(connection->bev);
	char *text;

	if (connection->is_dead)
		return;
	if (evbuffer_get_length(output) > OUTPUT_MAX_BYTES) {
		log_limited(LOG_LEVEL_WARN, &connection->admin->log_limit,
			    "admin client does not read its answers, connection closed");
		connection_kill(connection);
		return;
	}
	text = json_dumps(message, JSON_COMPACT);
	if (!text || evbuffer_add_printf(output, "%s\n", text) < 0)
		connection_kill(connection);
	free(text);
}

/* Answers */

/* Any text as a JSON string, even if it is not UTF-8. */
static json_t *text_to_json(const char *text)
{
	char escaped[ERROR_TEXT_MAX];
	json_t *string = json_string(text);

	if (string)
		return string;
	text_escape(text, escaped, sizeof(escaped));
	return json_string(escaped);
}

/* May free the connection. @member is consumed. */
static void send_answer(struct admin_connection *connection, const json_t *id, const char *name,
			json_t *member)
{
	json_t *message = json_pack("{s:s, s:o, s:O}", "jsonrpc", "2.0", name, member, "id", id);

	if (message)
		connection_send(connection, message);
	else
		connection_kill(connection);
	json_decref(message);
}

/* May free the connection. */
static void send_error(struct admin_connection *connection, const json_t *id, int code,
		       const char *text)
{
	send_answer(connection, id, "error",
		    json_pack("{s:i, s:o}", "code", code, "message", text_to_json(text)));
}

static void request_free(struct admin_request *request)
{
	request_detach(request);
	json_decref(request->id);
	free(request);
}

void admin_reply(struct admin_request *request, json_t *result)
{
	struct admin_connection *connection = request->connection;
	json_t *id = json_incref(request->id);

	/* The request goes first, so that the answer may take the connection with it. */
	request_free(request);
	if (connection && id)
		send_answer(connection, id, "result", json_incref(result));
	else if (connection)
		connection_close_if_done(connection);
	json_decref(id);
	json_decref(result);
}

void admin_fail(struct admin_request *request, int code, const char *text)
{
	struct admin_connection *connection = request->connection;
	json_t *id = json_incref(request->id);

	request_free(request);
	if (connection && id)
		send_error(connection, id, code, text);
	else if (connection)
		connection_close_if_done(connection);
	json_decref(id);
}

/* Requests */

static bool is_valid_id(const json_t *id)
{
	return json_is_string(id) || json_is_integer(id) || json_is_null(id);
}

static const char *check_request(const json_t *root)
{
	const json_t *id = json_object_get(root, "id");
	const json_t *params = json_object_get(root, "params");
	const char *version = json_string_value(json_object_get(root, "jsonrpc"));

	if (json_is_array(root))
		return "batches are not supported";
	if (id && !is_valid_id(id))
		return "id is not a string, an integer or null";
	if (!version || strcmp(version, "2.0") != 0)
		return "jsonrpc is not \"2.0\"";
	if (!json_is_string(json_object_get(root, "method")))
		return "method is not a string";
	if (params && !json_is_object(params) && !json_is_array(params))
		return "params is not structured";
	return NULL;
}

static const struct admin_method *find_method(const struct admin *admin, const char *name)
{
	for (const struct admin_method *const *table = admin->tables; *table; table++) {
		for (const struct admin_method *method = *table; method->name; method++) {
			if (!strcmp(method->name, name))
				return method;
		}
	}
	return NULL;
}

static struct admin_request *request_new(struct admin_connection *connection, json_t *id)
{
	struct admin_request *request = calloc(1, sizeof(*request));

	if (!request)
		return NULL;
	request->connection = connection;
	request->id = json_incref(id);
	LIST_INSERT_HEAD(&connection->requests, request, entry);
	connection->outstanding++;
	return request;
}

static void call_method(struct admin *admin, const struct admin_method *method,
			struct admin_request *request, json_t *params)
{
	json_t *by_name = params ? json_incref(params) : json_object();

	if (by_name)
		method->call(request, by_name, admin->context);
	else
		admin_fail(request, ERROR_INTERNAL, error_text(ERROR_INTERNAL));
	json_decref(by_name);
}

/* A well-formed request: find and call its method. */
static void dispatch(struct admin_connection *connection, json_t *root)
{
	const struct admin_method *method;
	struct admin_request *request;
	json_t *params = json_object_get(root, "params");
	bool is_busy = connection->outstanding >= OUTSTANDING_MAX;

	request = request_new(connection, json_object_get(root, "id"));
	if (!request) {
		connection_kill(connection);
		return;
	}
	method = find_method(connection->admin, json_string_value(json_object_get(root, "method")));
	if (is_busy)
		admin_fail(request, ERROR_BUSY, error_text(ERROR_BUSY));
	else if (!method)
		admin_fail(request, ADMIN_ERROR_METHOD, "there is no such method");
	else if (json_is_array(params))
		admin_fail(request, ADMIN_ERROR_PARAMS, "params must be given by name");
	else
		call_method(connection->admin, method, request, params);
}

static void handle_line(struct admin_connection *connection, const char *line, size_t len_bytes)
{
	char why[STRICT_JSON_ERROR_MAX];
	const char *wrong;
	json_t *root;

	if (strict_json_parse(line, len_bytes, why, &root) < 0) {
		send_error(connection, json_null(), ADMIN_ERROR_PARSE, why);
		return;
	}
	wrong = check_request(root);
	if (wrong) {
		json_t *id = json_object_get(root, "id");

		send_error(connection, id && is_valid_id(id) ? id : json_null(),
			   ADMIN_ERROR_REQUEST, wrong);
	} else {
		dispatch(connection, root);
	}
	json_decref(root);
}

static bool may_call(const struct admin_connection *connection)
{
	return !connection->is_dead && output_bytes(connection) <= OUTPUT_PAUSE_BYTES;
}

static void call_lines(struct admin_connection *connection)
{
	struct evbuffer *input = bufferevent_get_input(connection->bev);
	size_t len_bytes;

	for (unsigned int i = 0; i < LINES_PER_WAKEUP && may_call(connection); i++) {
		char *line = evbuffer_readln(input, &len_bytes, EVBUFFER_EOL_LF);

		if (!line)
			return;
		handle_line(connection, line, len_bytes);
		free(line);
	}
}

/* Only half a line is waited for with a limit; between requests a client may rest. */
static void set_timeouts(struct admin_connection *connection, bool is_half_line)
{
	struct timeval write_timeout = timeval_ms(WRITE_TIMEOUT_MS);

	(void)bufferevent_set_timeouts(connection->bev,
				       is_half_line ? &connection->admin->line_timeout : NULL,
				       &write_timeout);
}

static void refuse_long_line(struct admin_connection *connection)
{
	struct evbuffer *input = bufferevent_get_input(connection->bev);

	connection_stop_reading(connection);
	(void)evbuffer_drain(input, evbuffer_get_length(input));
	send_error(connection, json_null(), ADMIN_ERROR_REQUEST, "the request is too long");
}

/* What is left of the input after a round of calls. May free the connection. */
static void arrange_rest(struct admin_connection *connection)
{
	size_t rest_bytes = evbuffer_get_length(bufferevent_get_input(connection->bev));
	bool is_half_line = rest_bytes > 0 && !has_line(connection);

	set_timeouts(connection, is_half_line);
	if (connection->is_closing && (rest_bytes == 0 || is_half_line))
		connection_close_if_done(connection);
	else if (is_half_line && rest_bytes >= ADMIN_LINE_MAX)
		refuse_long_line(connection);
	else if (rest_bytes > 0 && !is_half_line && may_call(connection))
		bufferevent_trigger(connection->bev, EV_READ,
				    BEV_TRIG_IGNORE_WATERMARKS | BEV_TRIG_DEFER_CALLBACKS);
	/* Lines that may not be called now are called by on_written(). */
}

/* May free the connection. */
static void connection_run(struct admin_connection *connection)
{
	connection->is_calling = true;
	call_lines(connection);
	connection->is_calling = false;
	if (connection->is_dead)
		connection_free(connection);
	else
		arrange_rest(connection);
}

static void on_read(struct bufferevent *bev, void *arg)
{
	loop_mark();
	(void)bev;
	connection_run(arg);
}

static void on_written(struct bufferevent *bev, void *arg)
{
	struct admin_connection *connection = arg;

	loop_mark();
	(void)bev;
	if (has_line(connection))
		connection_run(connection);
	else
		connection_close_if_done(connection);
}

static void on_event(struct bufferevent *bev, short events, void *arg)
{
	struct admin_connection *connection = arg;

	loop_mark();
	(void)bev;
	if (!(events & BEV_EVENT_EOF)) {
		connection_kill(connection);
		return;
	}
	/* A client may close its sending side and wait for the answers. */
	connection_stop_reading(connection);
	connection_run(connection);
}

/* @fd is consumed on success only. */
static int connection_new(struct admin *admin, int fd)
{
	struct admin_connection *connection = calloc(1, sizeof(*connection));

	if (!connection)
		return -ENOMEM;
	connection->bev = bufferevent_socket_new(admin->base, fd, BEV_OPT_CLOSE_ON_FREE);
	if (!connection->bev) {
		free(connection);
		return -ENOMEM;
	}
	connection->admin = admin;
	LIST_INIT(&connection->requests);
	LIST_INSERT_HEAD(&admin->connections, connection, entry);
	admin->connection_count++;
	bufferevent_setcb(connection->bev, on_read, on_written, on_event, connection);
	bufferevent_setwatermark(connection->bev, EV_READ, 0, ADMIN_LINE_MAX);
	set_timeouts(connection, false);
	(void)bufferevent_enable(connection->bev, EV_READ | EV_WRITE);
	return 0;
}

/* Accepting */

static bool is_shortage(int error)
{
	return error == EMFILE || error == ENFILE || error == ENOBUFS || error == ENOMEM;
}

/* The socket stays readable while nothing can be accepted: wait instead of spinning. */
static void pause_accepting(struct admin *admin, int error)
{
	struct timeval pause = timeval_ms(ACCEPT_PAUSE_MS);

	log_limited(LOG_LEVEL_WARN, &admin->log_limit,
		    "admin connection not accepted, will try again error=\"%s\"", strerror(error));
	(void)event_del(admin->accept_event);
	(void)evtimer_add(admin->resume_event, &pause);
}

static void admit(struct admin *admin, int fd)
{
	if (admin->connection_count >= CONNECTIONS_MAX) {
		log_limited(LOG_LEVEL_WARN, &admin->log_limit,
			    "admin connection refused, there are %d already", CONNECTIONS_MAX);
		(void)close(fd);
		return;
	}
	if (connection_new(admin, fd) < 0)
		(void)close(fd);
}

static void on_accept(evutil_socket_t listen_fd, short events, void *arg)
{
	struct admin *admin = arg;

	loop_mark();
	(void)events;
	for (unsigned int i = 0; i < ACCEPTS_PER_WAKEUP; i++) {
		int fd = accept4(listen_fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);

		if (fd >= 0) {
			admit(admin, fd);
			continue;
		}
		if (is_shortage(errno)) {
			pause_accepting(admin, errno);
			return;
		}
		if (errno != EINTR && errno != ECONNABORTED)
			return;
	}
}

static void on_resume(evutil_socket_t fd, short events, void *arg)
{
	struct admin *admin = arg;

	loop_mark();
	(void)fd;
	(void)events;
	(void)evtimer_del(admin->resume_event);
	(void)event_add(admin->accept_event, NULL);
}

/* The socket and its files */

static int take_lock(const char *path, int *ret_fd)
{
	char lock_path[sizeof(((struct admin *)NULL)->path) + sizeof(".lock")];
	int fd, r;

	snprintf(lock_path, sizeof(lock_path), "%s.lock", path);
	fd = open(lock_path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0600);
	if (fd < 0)
		return -errno;
	if (flock(fd, LOCK_EX | LOCK_NB) < 0) {
		r = errno == EWOULDBLOCK ? -EADDRINUSE : -errno;
		(void)close(fd);
		return r;
	}
	*ret_fd = fd;
	return 0;
}

/* Does anybody accept connections there, perhaps a program that does not know our lock? */
static bool is_served(const struct sockaddr_un *address)
{
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	bool served;

	if (fd < 0)
		return true;
	served = connect(fd, (const struct sockaddr *)address, sizeof(*address)) == 0 ||
		 errno != ECONNREFUSED;
	(void)close(fd);
	return served;
}

/* Under the lock. */
static int remove_stale(const struct sockaddr_un *address)
{
	struct stat st;

	if (lstat(address->sun_path, &st) < 0)
		return errno == ENOENT ? 0 : -errno;
	if (!S_ISSOCK(st.st_mode))
		return -ENOTSOCK;
	if (is_served(address))
		return -EADDRINUSE;
	return unlink(address->sun_path) < 0 ? -errno : 0;
}

/*
 * Nobody can connect before listen(), and by then the mode is right: fchmod() before
 * bind() lets the file be born with no more than it, chmod() undoes a stricter umask.
 */
static int bind_and_listen(struct admin *admin, const struct sockaddr_un *address)
{
	struct stat st;

	if (fchmod(admin->listen_fd, SOCKET_MODE) < 0 ||
	    bind(admin->listen_fd, (const struct sockaddr *)address, sizeof(*address)) < 0)
		return -errno;
	if (lstat(admin->path, &st) < 0)
		return -errno;
	admin->socket_dev = st.st_dev;
	admin->socket_ino = st.st_ino;
	if (chmod(admin->path, SOCKET_MODE) < 0 || listen(admin->listen_fd, BACKLOG) < 0)
		return -errno;
	return 0;
}

static int open_socket(struct admin *admin)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	int r;

	memcpy(address.sun_path, admin->path, sizeof(address.sun_path));
	r = take_lock(admin->path, &admin->lock_fd);
	if (r < 0)
		return r;
	/* One that the service manager holds has its file made, and keeps it. */
	admin->listen_fd = notify_take_listener(admin->path);
	if (admin->listen_fd >= 0)
		return 0;
	r = remove_stale(&address);
	if (r < 0)
		return r;
	admin->listen_fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (admin->listen_fd < 0)
		return -errno;
	return bind_and_listen(admin, &address);
}

static void remove_own_file(const struct admin *admin)
{
	struct stat st;

	if (admin->socket_ino == 0 || lstat(admin->path, &st) < 0)
		return;
	if (st.st_dev == admin->socket_dev && st.st_ino == admin->socket_ino)
		(void)unlink(admin->path);
}

static int open_events(struct admin *admin)
{
	admin->accept_event =
		event_new(admin->base, admin->listen_fd, EV_READ | EV_PERSIST, on_accept, admin);
	admin->resume_event = evtimer_new(admin->base, on_resume, admin);
	if (!admin->accept_event || !admin->resume_event)
		return -ENOMEM;
	return event_add(admin->accept_event, NULL) < 0 ? -ENOMEM : 0;
}

int admin_new(struct event_base *base, const char *path, const struct admin_method *const *tables,
	      void *context, struct admin **ret_admin)
{
	struct admin *admin;
	int r;

	if (strlen(path) >= sizeof(admin->path))
		return -ENAMETOOLONG;
	if (!*path)
		return -EINVAL;
	admin = calloc(1, sizeof(*admin));
	if (!admin)
		return -ENOMEM;
	admin->base = base;
	admin->tables = tables;
	admin->context = context;
	admin->lock_fd = -1;
	admin->listen_fd = -1;
	admin->line_timeout = timeval_ms(LINE_TIMEOUT_MS);
	LIST_INIT(&admin->connections);
	memcpy(admin->path, path, strlen(path) + 1);
	r = open_socket(admin);
	if (r == 0)
		r = open_events(admin);
	if (r < 0) {
		admin_free(admin);
		return r;
	}
	*ret_admin = admin;
	return 0;
}

struct admin *admin_free(struct admin *admin)
{
	struct admin_connection *connection;

	if (!admin)
		return NULL;
	while ((connection = LIST_FIRST(&admin->connections))) {
		assert(!connection->is_calling);
		connection_free(connection);
	}
	assert(admin->connection_count == 0);
	if (admin->accept_event)
		event_free(admin->accept_event);
	if (admin->resume_event)
		event_free(admin->resume_event);
	remove_own_file(admin);
	if (admin->listen_fd >= 0)
		(void)close(admin->listen_fd);
	/* Last: whoever takes the lock next finds no file of ours. */
	if (admin->lock_fd >= 0)
		(void)close(admin->lock_fd);
	free(admin);
	return NULL;
}

void admin_set_line_timeout(struct admin *admin, uint64_t timeout_ms)
{
	admin->line_timeout = timeval_ms(timeout_ms);
}
