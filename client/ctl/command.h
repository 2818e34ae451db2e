/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef CLIENT_CTL_COMMAND_H
#define CLIENT_CTL_COMMAND_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "client/ctl/rpc.h"
#include "client/ctl/table.h"

/* What the commands of mempoolctl have in common. */

#define COMMAND_TEXT_MAX 600 /* bytes of a line to complain with */

enum exit_status {
	STATUS_OK = 0,
	STATUS_REFUSED = 1,
	STATUS_USAGE = 2,
	STATUS_UNREACHABLE = 3,
	STATUS_PROTOCOL = 4,
};

/* Options that only some commands take. */
enum {
	TAKES_NOW = 1u << 0,
	TAKES_TENANT = 1u << 1,
	TAKES_OUT = 1u << 2,
	TAKES_KEY = 1u << 3,
	TAKES_QUOTA = 1u << 4,
	TAKES_SAVE = 1u << 5,
};

struct options {
	const char *socket_path;
	uint64_t timeout_ms;
	bool json;
	bool now;
	bool save;
	const char *tenant; /* NULL: not given */
	const char *out;    /* likewise */
	json_t *keys;	    /* list of texts in the order given; NULL: none */
	json_t *quotas;	    /* likewise */
};

/* A command's arguments, behind its name. */
typedef enum exit_status (*command_fn)(const struct options *options, int argc, char **argv);

/** command_complain() - a line on standard error; it may hold what the daemon or the user said */
void command_complain(const char *text);

/** command_connect() - STATUS_OK, or it has complained */
enum exit_status command_connect(const struct options *options, struct rpc **ret_rpc);

/**
 * command_call() - one call
 * @params: consumed; NULL: none
 * @about: put before a refusal
 * @ret_result: the caller's reference
 *
 * Return: STATUS_OK, or it has complained.
 */
enum exit_status command_call(struct rpc *rpc, const char *method, json_t *params,
			      const char *about, json_t **ret_result);

/** command_call_once() - connect, one call, hang up; as command_call() */
enum exit_status command_call_once(const struct options *options, const char *method,
				   json_t *params, const char *about, json_t **ret_result);

/** command_print_json() - one line */
void command_print_json(const json_t *result);

/** command_print_table() - STATUS_OK, or it has complained */
enum exit_status command_print_table(const struct table_field *fields, const json_t *rows);

#endif
