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
	TAKES_SESSION = 1u << 6,
	TAKES_STATE = 1u << 7,
	TAKES_SORT = 1u << 8,
	TAKES_REVERSE = 1u << 9,
	TAKES_WAIT = 1u << 10,
	TAKES_DEADLINE = 1u << 11,
	TAKES_EXIT = 1u << 12,
	TAKES_FOLLOW = 1u << 13,
	TAKES_LIST = TAKES_STATE | TAKES_SORT | TAKES_REVERSE, /* of all lists */
};

struct options {
	unsigned int given; /* TAKES_* of those that were given */
	const char *socket_path;
	uint64_t timeout_ms;
	bool json;
	bool now;
	bool save;
	bool reverse;
	bool wait;
	bool exit;
	bool follow;
	bool help;
	bool version;
	const char *tenant; /* NULL: not given */
	const char *out;    /* likewise */
	const char *state;
	const char *sort;
	const char *completion; /* name of a shell */
	uint64_t session;	/* 0: not given */
	uint64_t deadline_ms;
	json_t *keys;	/* list of texts in the order given; NULL: none */
	json_t *quotas; /* likewise */
};

/* A command's arguments, behind its name. */
typedef enum exit_status (*command_fn)(const struct options *options, int argc, char **argv);

/* A row of the table of commands, which ends with a NULL name. */
struct command {
	const char *name;
	const char *subname; /* second word, or NULL */
	const char *args;    /* for help */
	int args_min;
	int args_max;
	unsigned int takes; /* TAKES_*, beside the options of all commands */
	const char *words;  /* that an argument may be, between blanks; NULL: anything */
	const char *help;
	command_fn run;
};

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

/** command_fail_usage() - complain of the command line, @text and @about; Return: STATUS_USAGE */
enum exit_status command_fail_usage(const char *text, const char *about);

/**
 * command_parse_id() - the number of a lease or session: decimal or 0x hexadecimal, 63 bits
 *
 * Return: is it one?
 */
bool command_parse_id(const char *text, json_int_t *ret_id);

/** command_print_json() - one line */
void command_print_json(const json_t *result);

/** command_print_table() - STATUS_OK, or it has complained */
enum exit_status command_print_table(const struct table_field *fields, const json_t *rows);

#endif
