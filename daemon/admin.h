/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef DAEMON_ADMIN_H
#define DAEMON_ADMIN_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct event_base;
struct admin;
struct admin_request;
struct admin_socket;

/*
 * JSON-RPC 2.0 over a unix stream socket, one object per line in both directions.
 * Batches are refused; params are given by name. The process must ignore SIGPIPE.
 */

#define ADMIN_LINE_MAX 65536 /* bytes of one request, newline included */

/* JSON-RPC error numbers: these are the protocol's own, mempoold's are in proto/error.h. */
enum {
	ADMIN_ERROR_PARSE = -32700,
	ADMIN_ERROR_REQUEST = -32600,
	ADMIN_ERROR_METHOD = -32601,
	ADMIN_ERROR_PARAMS = -32602,
};

/**
 * A method: answers at once or later, exactly once, with admin_reply() or admin_fail().
 * @params: an object (empty if the request had none); borrowed until the function returns
 * @context: of the table
 */
typedef void (*admin_method_fn)(struct admin_request *request, json_t *params, void *context);

struct admin_method {
	const char *name; /* "lease.list" */
	admin_method_fn call;
};

/**
 * admin_new() - let clients connect, and serve them
 * @base: the loop; everything happens on its thread
 * @door: the socket; the admin object's from now on, if all goes well
 * @tables: tables of methods, each of which ends with a NULL name, and a NULL behind the last;
 *	all of it must outlive the admin object
 * @context: handed to each method
 * @ret_admin: the object
 *
 * Return: 0, what admin_socket_listen() returns, or -ENOMEM.
 */
int admin_new(struct event_base *base, struct admin_socket *door,
	      const struct admin_method *const *tables, void *context, struct admin **ret_admin);

/**
 * admin_free() - close all connections and the socket
 * @admin: may be NULL
 *
 * Not from within a method. Requests that wait for an answer stay valid: answering them
 * then does nothing but free them. Return: NULL.
 */
struct admin *admin_free(struct admin *admin);

/**
 * admin_set_line_timeout() - how long the rest of a request may take to arrive
 * @timeout_ms: since its last byte so far; 10 s unless set; counts from the next byte on
 */
void admin_set_line_timeout(struct admin *admin, uint64_t timeout_ms);

/**
 * admin_set_write_timeout() - how long a client may not read what there is for it
 * @timeout_ms: 10 s unless set; of connections that are made from now on
 */
void admin_set_write_timeout(struct admin *admin, uint64_t timeout_ms);

/**
 * admin_reply() - answer a request with a result
 * @request: consumed
 * @result: consumed (a reference is taken over); not NULL
 */
void admin_reply(struct admin_request *request, json_t *result);

/**
 * admin_fail() - answer a request with an error
 * @request: consumed
 * @code: one of ADMIN_ERROR_* or a code of proto/error.h
 * @text: for people
 */
void admin_fail(struct admin_request *request, int code, const char *text);

/**
 * admin_follow() - answer a request, and from now on tell its client what admin_publish() says
 * @request: consumed
 * @result: consumed, as admin_reply()
 *
 * Until the client hangs up. One that does not keep up is cut off: the last line that it gets
 * is a notification whose params are {"event": "cut", "reason": text}.
 */
void admin_follow(struct admin_request *request, json_t *result);

/** admin_has_followers() - is anybody told what admin_publish() says? */
bool admin_has_followers(const struct admin *admin);

/**
 * admin_publish() - send a notification of the method "event" to all that follow
 * @params: an object; consumed; NULL is allowed: nothing is sent
 */
void admin_publish(struct admin *admin, json_t *params);

#endif
