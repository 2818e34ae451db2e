/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * mempoolctl lease. Keeps nothing.
 */
#include "client/ctl/lease.h"

#include <inttypes.h>
#include <stdio.h>

#include "client/ctl/list.h"
#include "common/text.h"

static const struct table_field lease_fields[] = {
	{"ID", "{id:hex}", true},
	{"TENANT", "{tenant}", false},
	{"SESSION", "{session:hex}", true},
	{"STATE", "{state:state}", false},
	{"GEN", "{generation}", true},
	{"OFFSET", "{offset_bytes:hex}", true},
	{"LENGTH", "{len_bytes:size}", true},
	{"EXTENT", "{extent_bytes:size}", true},
	{"RIGHTS", "{rights}", false},
	{"TTL LEFT", "{ttl_left_ms:duration}", true},
	{"KEPT", "{orphan_left_ms:duration}", true},
	{"WINDOWS", "{windows}", true},
	{"LANES", "{lanes}", false},
	{NULL, NULL, false},
};

static const struct table_field show_fields[] = {
	{"lease", "{id:hex}", false},
	{"tenant", "{tenant}", false},
	{"session", "{session:hex}", false},
	{"client", "{peer}", false},
	{"state", "{state:state}", false},
	{"reason", "{reason}", false},
	{"rights", "{rights}", false},
	{"length", "{len_bytes:size} ({len_bytes} bytes)", false},
	{"extent", "{extent_bytes:size} at {offset_bytes:hex}", false},
	{"generation", "{generation}", false},
	{"age", "{age_ms:duration}", false},
	{"ttl", "{ttl_ms:duration}, {ttl_left_ms:duration} left", false},
	{"kept", "{orphan_left_ms:duration}", false},
	{"lanes", "{lanes}", false},
	{"windows", "{windows}", false},
	{NULL, NULL, false},
};

enum exit_status lease_run_list(const struct options *options, int argc, char **argv)
{
	(void)argc;
	(void)argv;
	return list_run(options, "lease.list", "leases", lease_fields);
}

enum exit_status lease_run_show(const struct options *options, int argc, char **argv)
{
	enum exit_status status;
	char about[64];
	json_int_t id;
	json_t *result;

	(void)argc;
	if (!command_parse_id(argv[0], &id))
		return command_fail_usage("a lease ID is a number, not ", argv[0]);
	snprintf(about, sizeof(about), "lease 0x%" PRIx64 ": ", (uint64_t)id);
	status = command_call_once(options, "lease.show", json_pack("{s:I}", "id", id), about,
				   &result);
	if (status != STATUS_OK)
		return status;
	if (options->json)
		command_print_json(result);
	else
		table_print_record(stdout, show_fields, result);
	json_decref(result);
	return STATUS_OK;
}

/* @whose: "lease 0x1f", "tenant alice" */
static enum exit_status print_revoked(const char *whose, json_t *result)
{
	json_int_t leases, stuck, took_us, elapsed_us;

	if (json_unpack(result, "{s:I, s:I, s:I, s:I}", "leases", &leases, "stuck", &stuck,
			"took_us", &took_us, "elapsed_us", &elapsed_us) < 0) {
		command_complain("the daemon's answer does not say what was revoked");
		return STATUS_PROTOCOL;
	}
	printf("%s revoked: %" JSON_INTEGER_FORMAT " %s, fence in %" JSON_INTEGER_FORMAT
	       " us, %" JSON_INTEGER_FORMAT " ms in all\n",
	       whose, leases, leases == 1 ? "lease" : "leases", took_us, elapsed_us / 1000);
	if (stuck > 0)
		printf("%" JSON_INTEGER_FORMAT " of them in quarantine: not behind a fence yet\n",
		       stuck);
	return STATUS_OK;
}

/* @params: stolen */
static enum exit_status revoke(const struct options *options, struct rpc *rpc, json_t *params,
			       const char *whose)
{
	char shown[COMMAND_TEXT_MAX], about[COMMAND_TEXT_MAX + 2];
	enum exit_status status;
	json_t *result;

	text_escape(whose, shown, sizeof(shown));
	snprintf(about, sizeof(about), "%s: ", whose);
	if (options->now)
		(void)json_object_set_new(params, "now", json_true());
	status = command_call(rpc, "lease.revoke", params, about, &result);
	if (status != STATUS_OK)
		return status;
	if (options->json)
		command_print_json(result);
	else
		status = print_revoked(shown, result);
	json_decref(result);
	return status;
}

static enum exit_status revoke_tenant(const struct options *options, struct rpc *rpc)
{
	json_t *params = json_pack("{s:s}", "tenant", options->tenant);
	char whose[COMMAND_TEXT_MAX];

	if (!params) {
		command_complain("a tenant's name is text in UTF-8");
		return STATUS_USAGE;
	}
	snprintf(whose, sizeof(whose), "tenant %s", options->tenant);
	return revoke(options, rpc, params, whose);
}

/* All IDs are tried even if some are refused; a broken connection ends it. */
static enum exit_status revoke_leases(const struct options *options, struct rpc *rpc, int argc,
				      char **argv)
{
	enum exit_status worst = STATUS_OK;

	for (int i = 0; i < argc; i++) {
		enum exit_status status;
		json_int_t id = 0;
		char whose[64];

		(void)command_parse_id(argv[i], &id); /* checked before the first call */
		snprintf(whose, sizeof(whose), "lease 0x%" PRIx64, (uint64_t)id);
		status = revoke(options, rpc, json_pack("{s:I}", "id", id), whose);
		if (status == STATUS_PROTOCOL || status == STATUS_UNREACHABLE)
			return status;
		if (status != STATUS_OK)
			worst = status;
	}
	return worst;
}

enum exit_status lease_run_revoke(const struct options *options, int argc, char **argv)
{
	enum exit_status status;
	struct rpc *rpc;
	json_int_t id;

	if ((argc > 0) == (options->tenant != NULL)) {
		command_complain("lease revoke takes either lease IDs or --tenant NAME");
		return STATUS_USAGE;
	}
	for (int i = 0; i < argc; i++) {
		if (!command_parse_id(argv[i], &id)) {
			command_complain(
				"a lease ID is a decimal or 0x hexadecimal number of 63 bits");
			return STATUS_USAGE;
		}
	}
	status = command_connect(options, &rpc);
	if (status != STATUS_OK)
		return status;
	if (options->tenant)
		status = revoke_tenant(options, rpc);
	else
		status = revoke_leases(options, rpc, argc, argv);
	rpc_free(rpc);
	return status;
}
