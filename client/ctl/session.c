/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * mempoolctl session. Keeps nothing.
 */
#include "client/ctl/session.h"

#include <inttypes.h>
#include <stdio.h>

#include "client/ctl/list.h"
#include "common/text.h"

#define NAME_MAX_BYTES 300

static const struct table_field session_fields[] = {
	{"ID", "{id:hex}", true},
	{"TENANT", "{tenant}", false},
	{"CLIENT", "{peer}", false},
	{"STATE", "{state:state}", false},
	{"AGE", "{age_ms:duration}", true},
	{"SILENT", "{silent_ms:duration}", true},
	{"LANES", "{lanes}", true},
	{"LEASES", "{leases}", true},
	{NULL, NULL, false},
};

enum exit_status session_run_list(const struct options *options, int argc, char **argv)
{
	(void)argc;
	(void)argv;
	return list_run(options, "session.list", "sessions", session_fields);
}

static void print_kicked(const json_t *result, json_int_t id)
{
	const char *tenant = json_string_value(json_object_get(result, "tenant"));
	json_int_t leases = json_integer_value(json_object_get(result, "leases"));
	char shown[NAME_MAX_BYTES];

	text_escape(tenant ? tenant : "?", shown, sizeof(shown));
	printf("session 0x%" PRIx64 " of %s kicked: %" JSON_INTEGER_FORMAT " %s\n", (uint64_t)id,
	       *shown ? shown : "nobody", leases, leases == 1 ? "lease ends" : "leases end");
}

static enum exit_status kick(const struct options *options, struct rpc *rpc, const char *text)
{
	enum exit_status status;
	json_int_t id = 0;
	json_t *result;
	char about[64];

	(void)command_parse_id(text, &id); /* checked before the first call */
	snprintf(about, sizeof(about), "session 0x%" PRIx64 ": ", (uint64_t)id);
	status = command_call(rpc, "session.kick", json_pack("{s:I}", "id", id), about, &result);
	if (status != STATUS_OK)
		return status;
	if (options->json)
		command_print_json(result);
	else
		print_kicked(result, id);
	json_decref(result);
	return status;
}

/* All IDs are tried even if some are refused; a broken connection ends it. */
enum exit_status session_run_kick(const struct options *options, int argc, char **argv)
{
	enum exit_status worst = STATUS_OK;
	struct rpc *rpc;
	json_int_t id;

	for (int i = 0; i < argc; i++) {
		if (!command_parse_id(argv[i], &id))
			return command_fail_usage("a session ID is a number, not ", argv[i]);
	}
	worst = command_connect(options, &rpc);
	if (worst != STATUS_OK)
		return worst;
	for (int i = 0; i < argc && worst != STATUS_PROTOCOL && worst != STATUS_UNREACHABLE; i++) {
		enum exit_status status = kick(options, rpc, argv[i]);

		if (status != STATUS_OK)
			worst = status;
	}
	rpc_free(rpc);
	return worst;
}
