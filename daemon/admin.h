/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef DAEMON_ADMIN_H
#define DAEMON_ADMIN_H

#include <jansson.h>
#include <stddef.h>
#include <stdint.h>

struct event_base;
struct admin;
struct admin_request;

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
 * admin_new() - listen on a unix socket
 * @base: the loop; everything happens on its thread
 * @path: where; a stale socket of a dead daemon is replaced, anything else refused. If the
 *	service manager listens there for us its socket is taken, and its file left there
 * @tables: tables of methods, each of which ends with a NULL name, and a NULL behind the last;
 *	all of it must outlive the admin object
 * @context: handed to each method
 * @ret_admin: the object
 *
 * The file has mode 0660. Beside it a lock file "@path.lock" is made, which stays.
 * Return: 0, -EADDRINUSE (a live daemon listens there), -ENOTSOCK (the path is
 * something else: left alone), -ENAMETOOLONG, or another negative errno.
 */
int admin_new(struct event_base *base, const char *path, const struct admin_method *const *tables,
	      void *context, struct admin **ret_admin);

/**
 * admin_free() - close all connections and the socket, and remove its file if it is still ours
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

#endif
