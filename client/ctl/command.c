/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Calling the daemon, and what comes of it on standard output and standard error. Keeps
 * nothing.
 */
#include "client/ctl/command.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/text.h"

void command_complain(const char *text)
{
	char shown[COMMAND_TEXT_MAX];

	text_escape(text, shown, sizeof(shown));
	fprintf(stderr, "mempoolctl: %s\n", shown);
}

enum exit_status command_connect(const struct options *options, struct rpc **ret_rpc)
{
	char text[COMMAND_TEXT_MAX];
	int r = rpc_new(options->socket_path, options->timeout_ms, ret_rpc);

	if (r == 0)
		return STATUS_OK;
	snprintf(text, sizeof(text), "no daemon at %s: %s", options->socket_path, strerror(-r));
	command_complain(text);
	return STATUS_UNREACHABLE;
}

enum exit_status command_call(struct rpc *rpc, const char *method, json_t *params,
			      const char *about, json_t **ret_result)
{
	struct rpc_failure failure;
	char text[COMMAND_TEXT_MAX];
	int r = rpc_call(rpc, method, params, ret_result, &failure);

	if (r == 0)
		return STATUS_OK;
	if (r != -EREMOTEIO) {
		command_complain(failure.text);
		return r == -ECONNRESET ? STATUS_UNREACHABLE : STATUS_PROTOCOL;
	}
	snprintf(text, sizeof(text), "%serror %" PRId64 ": %s", about, failure.code, failure.text);
	command_complain(text);
	return STATUS_REFUSED;
}

enum exit_status command_call_once(const struct options *options, const char *method,
				   json_t *params, const char *about, json_t **ret_result)
{
	enum exit_status status;
	struct rpc *rpc;

	status = command_connect(options, &rpc);
	if (status != STATUS_OK) {
		json_decref(params);
		return status;
	}
	status = command_call(rpc, method, params, about, ret_result);
	rpc_free(rpc);
	return status;
}

enum exit_status command_fail_usage(const char *text, const char *about)
{
	char line[COMMAND_TEXT_MAX];

	snprintf(line, sizeof(line), "%s%s; see mempoolctl --help", text, about);
	command_complain(line);
	return STATUS_USAGE;
}

bool command_parse_id(const char *text, json_int_t *ret_id)
{
	bool is_hex = text[0] == '0' && (text[1] == 'x' || text[1] == 'X');
	const char *digits = text + (is_hex ? 2 : 0);
	unsigned long long id;

	if (!*digits || digits[strspn(digits, is_hex ? "0123456789abcdefABCDEF" : "0123456789")])
		return false;
	errno = 0;
	id = strtoull(digits, NULL, is_hex ? 16 : 10);
	if (errno || id > INT64_MAX)
		return false;
	*ret_id = (json_int_t)id;
	return true;
}

void command_print_json(const json_t *result)
{
	/* jansson escapes C0 controls; the rest of what a terminal could mistake is not ASCII. */
	(void)json_dumpf(result, stdout, JSON_COMPACT | JSON_ENSURE_ASCII | JSON_ENCODE_ANY);
	putchar('\n');
}

enum exit_status command_print_table(const struct table_field *fields, const json_t *rows)
{
	if (table_print(stdout, fields, rows) == 0)
		return STATUS_OK;
	command_complain("not enough memory");
	return STATUS_PROTOCOL;
}
