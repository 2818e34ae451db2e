/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What is said on the admin socket. Owns the socket, the connections and the requests that
 * wait for an answer.
 *
 * A request points at its connection weakly: when the connection dies first, the
 * pointer is cleared and the answer goes nowhere. A method may answer within its own
 * call, and the answer may cost the connection its life; so while requests of a
 * connection are being called, its end is only marked and carried out afterwards.
 *
 * Everything a client can make us hold is bounded: connections, bytes of a line,
 * requests without an answer, bytes of answers and events it does not read. Who follows
 * events and does not keep up gets a last line that says so, for which it has a while.
 * Loop thread only.
 */
#include "daemon/admin.h"

#include <assert.h>
#include <errno.h>
#include <event2/buffer.h>
#include <event2/bufferevent.h>
#include <event2/event.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/queue.h>
#include <sys/socket.h>
#include <unistd.h>

#include "common/log.h"
#include "common/strict_json.h"
#include "daemon/admin_socket.h"
#include "daemon/json_rpc.h"
#include "daemon/loop.h"
#include "proto/error.h"

#define CONNECTIONS_MAX	   64
#define OUTSTANDING_MAX	   32
#define OUTPUT_MAX_BYTES   (4u << 20)
#define OUTPUT_PAUSE_BYTES (1u << 20) /* no further requests are called above this */
#define LINES_PER_WAKEUP   32
#define ACCEPTS_PER_WAKEUP 16
#define FOLLOW_MAX_BYTES   (256u << 10)
#define LINE_TIMEOUT_MS	   10000
#define WRITE_TIMEOUT_MS   10000
#define CUT_TIMEOUT_MS	   60000 /* to read what there is, and the last line */
#define ACCEPT_PAUSE_MS	   1000

#define CUT_LINE                                                                   \
	"{\"jsonrpc\":\"2.0\",\"method\":\"event\",\"params\":{\"event\":\"cut\"," \
	"\"reason\":\"events came faster than they were read\"}}\n"

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
	bool is_following;
	uint64_t write_timeout_ms;
};

LIST_HEAD(admin_connection_list, admin_connection);

struct admin {
	struct event_base *base;
	const struct admin_method *const *tables;
	void *context;
	struct admin_socket *door;
	struct event *accept_event;
	struct event *resume_event; /* ends a pause in accepting */
	struct admin_connection_list connections;
	size_t connection_count;
	size_t follower_count;
	struct timeval line_timeout;
	uint64_t write_timeout_ms;
};

static struct log_limit answers_limit;
static struct log_limit events_limit;
static struct log_limit accept_limit;
static struct log_limit refuse_limit;

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

static void stop_following(struct admin_connection *connection)
{
	connection->admin->follower_count -= connection->is_following;
	connection->is_following = false;
}

static void connection_free(struct admin_connection *connection)
{
	struct admin *admin = connection->admin;
	struct admin_request *request;

	while ((request = LIST_FIRST(&connection->requests)))
		request_detach(request);
	assert(connection->outstanding == 0);
	stop_following(connection);
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
		log_limited(LOG_LEVEL_WARN, &answers_limit,
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

/* May free the connection. @message: consumed; NULL: there was no memory for it */
static void send_message(struct admin_connection *connection, json_t *message)
{
	if (message)
		connection_send(connection, message);
	else
		connection_kill(connection);
	json_decref(message);
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
		send_message(connection, json_rpc_result(id, json_incref(result)));
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
		send_message(connection, json_rpc_error(id, code, text));
	else if (connection)
		connection_close_if_done(connection);
	json_decref(id);
}

/* Requests */

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
		send_message(connection, json_rpc_error(json_null(), ADMIN_ERROR_PARSE, why));
		return;
	}
	wrong = json_rpc_wrong(root);
	if (wrong)
		send_message(connection,
			     json_rpc_error(json_rpc_id(root), ADMIN_ERROR_REQUEST, wrong));
	else
		dispatch(connection, root);
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
	struct timeval write_timeout = timeval_ms(connection->write_timeout_ms);

	(void)bufferevent_set_timeouts(connection->bev,
				       is_half_line ? &connection->admin->line_timeout : NULL,
				       &write_timeout);
}

static void refuse_long_line(struct admin_connection *connection)
{
	struct evbuffer *input = bufferevent_get_input(connection->bev);

	connection_stop_reading(connection);
	(void)evbuffer_drain(input, evbuffer_get_length(input));
	send_message(connection,
		     json_rpc_error(json_null(), ADMIN_ERROR_REQUEST, "the request is too long"));
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

/* It will not get all of what is said, and is told so. The longer wait is for that. */
static void cut(struct admin_connection *connection)
{
	log_limited(LOG_LEVEL_WARN, &events_limit,
		    "admin client does not read its events, cut off");
	stop_following(connection);
	connection_stop_reading(connection);
	connection->write_timeout_ms = CUT_TIMEOUT_MS;
	set_timeouts(connection, false);
	(void)bufferevent_enable(connection->bev, EV_WRITE);
	if (evbuffer_add(bufferevent_get_output(connection->bev), CUT_LINE, sizeof(CUT_LINE) - 1) <
	    0)
		connection_kill(connection);
}

static void on_event(struct bufferevent *bev, short events, void *arg)
{
	struct admin_connection *connection = arg;

	loop_mark();
	(void)bev;
	if (events & BEV_EVENT_TIMEOUT && events & BEV_EVENT_WRITING && connection->is_following) {
		cut(connection);
		return;
	}
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
	connection->write_timeout_ms = admin->write_timeout_ms;
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

	log_limited(LOG_LEVEL_WARN, &accept_limit,
		    "admin connection not accepted, will try again error=\"%s\"", strerror(error));
	(void)event_del(admin->accept_event);
	(void)evtimer_add(admin->resume_event, &pause);
}

static void admit(struct admin *admin, int fd)
{
	if (admin->connection_count >= CONNECTIONS_MAX) {
		log_limited(LOG_LEVEL_WARN, &refuse_limit,
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
	(void)listen_fd;
	(void)events;
	for (unsigned int i = 0; i < ACCEPTS_PER_WAKEUP; i++) {
		int fd = admin_socket_accept(admin->door);

		if (fd >= 0) {
			admit(admin, fd);
			continue;
		}
		if (is_shortage(-fd)) {
			pause_accepting(admin, -fd);
			return;
		}
		if (fd != -EINTR && fd != -ECONNABORTED && fd != -EACCES)
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

static int open_events(struct admin *admin)
{
	admin->accept_event = event_new(admin->base, admin_socket_fd(admin->door),
					EV_READ | EV_PERSIST, on_accept, admin);
	admin->resume_event = evtimer_new(admin->base, on_resume, admin);
	if (!admin->accept_event || !admin->resume_event)
		return -ENOMEM;
	return event_add(admin->accept_event, NULL) < 0 ? -ENOMEM : 0;
}

int admin_new(struct event_base *base, struct admin_socket *door,
	      const struct admin_method *const *tables, void *context, struct admin **ret_admin)
{
	struct admin *admin = calloc(1, sizeof(*admin));
	int r;

	if (!admin)
		return -ENOMEM;
	admin->base = base;
	admin->tables = tables;
	admin->context = context;
	admin->door = door;
	admin->line_timeout = timeval_ms(LINE_TIMEOUT_MS);
	admin->write_timeout_ms = WRITE_TIMEOUT_MS;
	LIST_INIT(&admin->connections);
	r = admin_socket_listen(door);
	if (r == 0)
		r = open_events(admin);
	if (r < 0) {
		admin->door = NULL;
		admin_free(admin);
		return r;
	}
	*ret_admin = admin;
	return 0;
}

/* Answers and events of this turn, as far as the socket takes them at once. */
static void say_last_words(struct admin_connection *connection)
{
	struct evbuffer *output = bufferevent_get_output(connection->bev);

	/* A bufferevent keeps it for itself. */
	(void)evbuffer_unfreeze(output, 1);
	if (evbuffer_get_length(output) > 0)
		(void)evbuffer_write(output, bufferevent_getfd(connection->bev));
}

struct admin *admin_free(struct admin *admin)
{
	struct admin_connection *connection;

	if (!admin)
		return NULL;
	while ((connection = LIST_FIRST(&admin->connections))) {
		assert(!connection->is_calling);
		say_last_words(connection);
		connection_free(connection);
	}
	assert(admin->connection_count == 0);
	if (admin->accept_event)
		event_free(admin->accept_event);
	if (admin->resume_event)
		event_free(admin->resume_event);
	admin->door = admin_socket_free(admin->door);
	free(admin);
	return NULL;
}

void admin_set_line_timeout(struct admin *admin, uint64_t timeout_ms)
{
	admin->line_timeout = timeval_ms(timeout_ms);
}

void admin_set_write_timeout(struct admin *admin, uint64_t timeout_ms)
{
	admin->write_timeout_ms = timeout_ms;
}

/* Following */

void admin_follow(struct admin_request *request, json_t *result)
{
	struct admin_connection *connection = request->connection;

	if (connection && !connection->is_following && !connection->is_closing) {
		connection->is_following = true;
		connection->admin->follower_count++;
	}
	admin_reply(request, result);
}

bool admin_has_followers(const struct admin *admin)
{
	return admin->follower_count > 0;
}

/* May free the connection. */
static void tell(struct admin_connection *connection, const char *line)
{
	struct evbuffer *output = bufferevent_get_output(connection->bev);

	if (!connection->is_following || connection->is_dead || connection->is_closing)
		return;
	if (evbuffer_get_length(output) > FOLLOW_MAX_BYTES)
		cut(connection);
	else if (evbuffer_add_printf(output, "%s\n", line) < 0)
		connection_kill(connection);
}

void admin_publish(struct admin *admin, json_t *params)
{
	json_t *message = json_rpc_notification("event", params);
	char *line = message ? json_dumps(message, JSON_COMPACT) : NULL;
	struct admin_connection *connection, *next;

	for (connection = LIST_FIRST(&admin->connections); line && connection; connection = next) {
		next = LIST_NEXT(connection, entry);
		tell(connection, line);
	}
	free(line);
	json_decref(message);
}
