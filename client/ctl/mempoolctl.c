/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * mempoolctl: what an operator asks and tells a running daemon. One table has all
 * commands; the parser and --help derive from it. Commands only translate: arguments
 * into a call, the result into text. Single-threaded.
 */
#include <errno.h>
#include <getopt.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/ctl/keygen.h"
#include "client/ctl/rpc.h"
#include "client/ctl/table.h"
#include "common/text.h"
#include "common/units.h"

#ifndef MEMPOOL_VERSION
#error "the build must define MEMPOOL_VERSION"
#endif

#define DEFAULT_SOCKET	"/run/mempoold/admin.sock"
#define DEFAULT_TIMEOUT "5s"
#define TIMEOUT_MAX_MS	(UINT64_C(24) * 60 * 60 * 1000)
#define ARGS_ANY	1000000
#define SHOWN_MAX	600

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
};

struct options {
	const char *socket_path;
	uint64_t timeout_ms;
	bool json;
	bool now;
	const char *tenant; /* NULL: not given */
	const char *out;    /* likewise */
};

/* A command's arguments, behind its name. */
typedef enum exit_status (*command_fn)(const struct options *options, int argc, char **argv);

struct command {
	const char *name;
	const char *subname; /* second word, or NULL */
	const char *args;    /* for help */
	int args_min;
	int args_max;
	unsigned int takes; /* TAKES_*, beside the options of all commands */
	const char *help;
	command_fn run;
};

static const struct table_field status_fields[] = {
	{"daemon", "mempoold {version}, pid {pid}, up {uptime_ms:duration}", false},
	{"public key", "{public_key}", false},
	{"device", "{device.name} port {device.port}, {device.state}, {device.link}", false},
	{"listen", "{listen}", false},
	{"pool",
	 "{pool.bytes:size} in pages of {pool.page_bytes:size}: {pool.leased_bytes:size} leased, "
	 "{pool.dirty_bytes:size} dirty, {pool.free_bytes:size} free "
	 "(largest extent {pool.largest_free_bytes:size})",
	 false},
	{"isolation", "{isolation.mode} (configured: {isolation.configured})", false},
	{"  because", "{isolation.why}", false},
	{"  fence", "{isolation.fence}", false},
	{"sessions", "{sessions}", false},
	{"lanes", "{lanes}", false},
	{"leases", "{leases.active} active, {leases.ending} ending", false},
	{"revocations",
	 "{revocation.count}, took {revocation.p50_us} us (half), {revocation.p99_us} us (99 %), "
	 "{revocation.max_us} us (longest)",
	 false},
	{"stuck", "{stuck.windows} windows, {stuck.bytes:size}", false},
	{NULL, NULL, false},
};

static const struct table_field property_fields[] = {
	{"PROPERTY", "{name}", false},
	{"WINDOWS", "{windows}", false},
	{"GUARDED", "{guarded}", false},
	{NULL, NULL, false},
};

static const struct table_field counter_fields[] = {
	{"COUNTER", "{name}", false},
	{"VALUE", "{value}", true},
	{NULL, NULL, false},
};

static const struct table_field lease_fields[] = {
	{"ID", "{id:hex}", true},
	{"TENANT", "{tenant}", false},
	{"SESSION", "{session:hex}", true},
	{"STATE", "{state}", false},
	{"GEN", "{generation}", true},
	{"OFFSET", "{offset_bytes:hex}", true},
	{"LENGTH", "{len_bytes:size}", true},
	{"EXTENT", "{extent_bytes:size}", true},
	{"RIGHTS", "{rights}", false},
	{"TTL LEFT", "{ttl_left_ms:duration}", true},
	{"WINDOWS", "{windows}", true},
	{"LANES", "{lanes}", false},
	{NULL, NULL, false},
};

/* Texts may hold what the daemon or the command line said. */
static void complain(const char *text)
{
	char shown[SHOWN_MAX];

	text_escape(text, shown, sizeof(shown));
	fprintf(stderr, "mempoolctl: %s\n", shown);
}

/* Calling the daemon */

static enum exit_status connect_daemon(const struct options *options, struct rpc **ret_rpc)
{
	char text[SHOWN_MAX];
	int r = rpc_new(options->socket_path, options->timeout_ms, ret_rpc);

	if (r == 0)
		return STATUS_OK;
	snprintf(text, sizeof(text), "no daemon at %s: %s", options->socket_path, strerror(-r));
	complain(text);
	return STATUS_UNREACHABLE;
}

/* @about: put before a refusal */
static enum exit_status call(struct rpc *rpc, const char *method, json_t *params, const char *about,
			     json_t **ret_result)
{
	struct rpc_failure failure;
	char text[SHOWN_MAX];
	int r = rpc_call(rpc, method, params, ret_result, &failure);

	if (r == 0)
		return STATUS_OK;
	if (r != -EREMOTEIO) {
		complain(failure.text);
		return STATUS_PROTOCOL;
	}
	snprintf(text, sizeof(text), "%serror %" PRId64 ": %s", about, failure.code, failure.text);
	complain(text);
	return STATUS_REFUSED;
}

/* For commands that need one call without parameters. */
static enum exit_status call_once(const struct options *options, const char *method,
				  json_t **ret_result)
{
	enum exit_status status;
	struct rpc *rpc;

	status = connect_daemon(options, &rpc);
	if (status != STATUS_OK)
		return status;
	status = call(rpc, method, NULL, "", ret_result);
	rpc_free(rpc);
	return status;
}

static void print_json(const json_t *result)
{
	/* jansson escapes C0 controls; the rest of what a terminal could mistake is not ASCII. */
	(void)json_dumpf(result, stdout, JSON_COMPACT | JSON_ENSURE_ASCII | JSON_ENCODE_ANY);
	putchar('\n');
}

static enum exit_status print_table(const struct table_field *fields, const json_t *rows)
{
	if (table_print(stdout, fields, rows) == 0)
		return STATUS_OK;
	complain("not enough memory");
	return STATUS_PROTOCOL;
}

/* Commands */

/* An object's members as rows of name and value. */
static json_t *members_as_rows(json_t *object)
{
	json_t *rows = json_array();
	const char *name;
	json_t *value;

	json_object_foreach(object, name, value)(void)
		json_array_append_new(rows, json_pack("{s:s, s:O}", "name", name, "value", value));
	return rows;
}

static enum exit_status print_status(json_t *result)
{
	const json_t *isolation = json_object_get(result, "isolation");
	json_t *counters = members_as_rows(json_object_get(result, "counters"));
	enum exit_status status;

	table_print_record(stdout, status_fields, result);
	putchar('\n');
	status = print_table(property_fields, json_object_get(isolation, "properties"));
	if (status == STATUS_OK && json_array_size(counters) > 0) {
		putchar('\n');
		status = print_table(counter_fields, counters);
	}
	json_decref(counters);
	return status;
}

static enum exit_status run_status(const struct options *options, int argc, char **argv)
{
	enum exit_status status;
	json_t *result;

	(void)argc;
	(void)argv;
	status = call_once(options, "status", &result);
	if (status != STATUS_OK)
		return status;
	if (options->json)
		print_json(result);
	else
		status = print_status(result);
	json_decref(result);
	return status;
}

static enum exit_status run_lease_list(const struct options *options, int argc, char **argv)
{
	enum exit_status status;
	json_t *result;

	(void)argc;
	(void)argv;
	status = call_once(options, "lease.list", &result);
	if (status != STATUS_OK)
		return status;
	if (options->json)
		print_json(result);
	else
		status = print_table(lease_fields, json_object_get(result, "leases"));
	json_decref(result);
	return status;
}

/* Decimal or 0x hex, 63 bits. */
static bool parse_id(const char *text, json_int_t *ret_id)
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

/* @whose: "lease 0x1f", "tenant alice" */
static enum exit_status print_revoked(const char *whose, json_t *result)
{
	json_int_t leases, took_us, elapsed_us;

	if (json_unpack(result, "{s:I, s:I, s:I}", "leases", &leases, "took_us", &took_us,
			"elapsed_us", &elapsed_us) < 0) {
		complain("the daemon's answer does not say what was revoked");
		return STATUS_PROTOCOL;
	}
	printf("%s revoked: %" JSON_INTEGER_FORMAT " %s, fence in %" JSON_INTEGER_FORMAT
	       " us, %" JSON_INTEGER_FORMAT " ms in all\n",
	       whose, leases, leases == 1 ? "lease" : "leases", took_us, elapsed_us / 1000);
	return STATUS_OK;
}

/* @params: stolen */
static enum exit_status revoke(const struct options *options, struct rpc *rpc, json_t *params,
			       const char *whose)
{
	char shown[SHOWN_MAX], about[SHOWN_MAX + 2];
	enum exit_status status;
	json_t *result;

	text_escape(whose, shown, sizeof(shown));
	snprintf(about, sizeof(about), "%s: ", whose);
	if (options->now)
		(void)json_object_set_new(params, "now", json_true());
	status = call(rpc, "lease.revoke", params, about, &result);
	if (status != STATUS_OK)
		return status;
	if (options->json)
		print_json(result);
	else
		status = print_revoked(shown, result);
	json_decref(result);
	return status;
}

static enum exit_status revoke_tenant(const struct options *options, struct rpc *rpc)
{
	json_t *params = json_pack("{s:s}", "tenant", options->tenant);
	char whose[SHOWN_MAX];

	if (!params) {
		complain("a tenant's name is text in UTF-8");
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

		(void)parse_id(argv[i], &id); /* checked before the first call */
		snprintf(whose, sizeof(whose), "lease 0x%" PRIx64, (uint64_t)id);
		status = revoke(options, rpc, json_pack("{s:I}", "id", id), whose);
		if (status == STATUS_PROTOCOL)
			return status;
		if (status != STATUS_OK)
			worst = status;
	}
	return worst;
}

static enum exit_status run_lease_revoke(const struct options *options, int argc, char **argv)
{
	enum exit_status status;
	struct rpc *rpc;
	json_int_t id;

	if ((argc > 0) == (options->tenant != NULL)) {
		complain("lease revoke takes either lease IDs or --tenant NAME");
		return STATUS_USAGE;
	}
	for (int i = 0; i < argc; i++) {
		if (!parse_id(argv[i], &id)) {
			complain("a lease ID is a decimal or 0x hexadecimal number of 63 bits");
			return STATUS_USAGE;
		}
	}
	status = connect_daemon(options, &rpc);
	if (status != STATUS_OK)
		return status;
	if (options->tenant)
		status = revoke_tenant(options, rpc);
	else
		status = revoke_leases(options, rpc, argc, argv);
	rpc_free(rpc);
	return status;
}

static enum exit_status run_keygen(const struct options *options, int argc, char **argv)
{
	(void)argc;
	(void)argv;
	if (!options->out) {
		complain("keygen needs --out FILE");
		return STATUS_USAGE;
	}
	return keygen(options->out) == 0 ? STATUS_OK : STATUS_REFUSED;
}

static const struct command commands[] = {
	{"status", NULL, "", 0, 0, 0, "the daemon, its device, pool and isolation", run_status},
	{"lease", "list", "", 0, 0, 0, "all leases", run_lease_list},
	{"lease", "revoke", "ID... | --tenant NAME", 0, ARGS_ANY, TAKES_NOW | TAKES_TENANT,
	 "take leases back; returns when their memory can no longer be reached", run_lease_revoke},
	{"keygen", NULL, "--out FILE", 0, 0, TAKES_OUT,
	 "make a private key for a tenant, print its public key", run_keygen},
};

#define COMMAND_COUNT (sizeof(commands) / sizeof(commands[0]))

/* The command line */

static void print_help(void)
{
	char name[64];

	printf("Usage: mempoolctl [OPTION...] COMMAND\n"
	       "Ask and tell a running mempoold.\n\n"
	       "Commands:\n");
	for (size_t i = 0; i < COMMAND_COUNT; i++) {
		const struct command *command = &commands[i];

		snprintf(name, sizeof(name), "%s %s %s", command->name,
			 command->subname ? command->subname : "", command->args);
		printf("  %-34s %s\n", name, command->help);
	}
	printf("\nOptions:\n"
	       "  --socket PATH        the daemon's admin socket (%s)\n"
	       "  --json               print the daemon's result as JSON, one line per call\n"
	       "  --timeout DURATION   for connecting and for each call (%s)\n"
	       "  --now                lease revoke: without the notice and time to finish that\n"
	       "                       clients get otherwise\n"
	       "  --tenant NAME        lease revoke: all leases of that tenant\n"
	       "  --out FILE           keygen: the private key goes there; the file must not "
	       "exist\n"
	       "  --help               this text\n"
	       "  --version            the version\n\n"
	       "Exit status:\n"
	       "  0  done\n"
	       "  1  refused by the daemon (code and text are on standard error), or impossible\n"
	       "  2  wrong usage\n"
	       "  3  no daemon can be reached\n"
	       "  4  no answer in time, or one that makes no sense\n",
	       DEFAULT_SOCKET, DEFAULT_TIMEOUT);
}

static enum exit_status fail_usage(const char *text, const char *about)
{
	char shown[SHOWN_MAX];

	snprintf(shown, sizeof(shown), "%s%s; see mempoolctl --help", text, about);
	complain(shown);
	return STATUS_USAGE;
}

static bool matches(const struct command *command, int argc, char **argv)
{
	if (strcmp(command->name, argv[0]) != 0)
		return false;
	return !command->subname || (argc > 1 && !strcmp(command->subname, argv[1]));
}

static unsigned int special_options(const struct options *options)
{
	return (options->now ? (unsigned int)TAKES_NOW : 0) |
	       (options->tenant ? (unsigned int)TAKES_TENANT : 0) |
	       (options->out ? (unsigned int)TAKES_OUT : 0);
}

static enum exit_status run_command(const struct options *options, int argc, char **argv)
{
	if (argc == 0)
		return fail_usage("no command", "");
	for (size_t i = 0; i < COMMAND_COUNT; i++) {
		const struct command *command = &commands[i];
		int words = command->subname ? 2 : 1;

		if (!matches(command, argc, argv))
			continue;
		if (argc - words < command->args_min)
			return fail_usage("arguments are missing: ", command->args);
		if ((special_options(options) & ~command->takes) != 0)
			return fail_usage("--now, --tenant and --out are not all for ",
					  command->name);
		if (argc - words > command->args_max)
			return fail_usage("too many arguments: ", argv[words + command->args_max]);
		return command->run(options, argc - words, argv + words);
	}
	return fail_usage("unknown or incomplete command: ", argv[0]);
}

static bool parse_timeout(const char *text, uint64_t *ret_timeout_ms)
{
	uint64_t timeout_ms;

	if (units_parse_duration(text, &timeout_ms) < 0 || timeout_ms == 0 ||
	    timeout_ms > TIMEOUT_MAX_MS)
		return false;
	*ret_timeout_ms = timeout_ms;
	return true;
}

/* What was printed counts only if it arrived. */
static enum exit_status finish(enum exit_status status)
{
	if (fflush(stdout) == 0 && !ferror(stdout))
		return status;
	complain("standard output cannot be written");
	return status == STATUS_OK ? STATUS_PROTOCOL : status;
}

static enum exit_status run(int argc, char **argv)
{
	enum {
		OPTION_SOCKET = 1,
		OPTION_JSON,
		OPTION_TIMEOUT,
		OPTION_NOW,
		OPTION_TENANT,
		OPTION_OUT,
		OPTION_HELP,
		OPTION_VERSION
	};
	static const struct option long_options[] = {
		{"socket", required_argument, NULL, OPTION_SOCKET},
		{"json", no_argument, NULL, OPTION_JSON},
		{"timeout", required_argument, NULL, OPTION_TIMEOUT},
		{"now", no_argument, NULL, OPTION_NOW},
		{"tenant", required_argument, NULL, OPTION_TENANT},
		{"out", required_argument, NULL, OPTION_OUT},
		{"help", no_argument, NULL, OPTION_HELP},
		{"version", no_argument, NULL, OPTION_VERSION},
		{NULL, 0, NULL, 0},
	};
	struct options options = {.socket_path = DEFAULT_SOCKET};
	int option;

	(void)parse_timeout(DEFAULT_TIMEOUT, &options.timeout_ms);
	while ((option = getopt_long(argc, argv, "", long_options, NULL)) != -1) {
		switch (option) {
		case OPTION_SOCKET:
			options.socket_path = optarg;
			break;
		case OPTION_JSON:
			options.json = true;
			break;
		case OPTION_TIMEOUT:
			if (!parse_timeout(optarg, &options.timeout_ms))
				return fail_usage("--timeout takes 1ms..24h, not ", optarg);
			break;
		case OPTION_NOW:
			options.now = true;
			break;
		case OPTION_TENANT:
			options.tenant = optarg;
			break;
		case OPTION_OUT:
			options.out = optarg;
			break;
		case OPTION_HELP:
			print_help();
			return finish(STATUS_OK);
		case OPTION_VERSION:
			printf("mempoolctl %s\n", MEMPOOL_VERSION);
			return finish(STATUS_OK);
		default:
			return STATUS_USAGE;
		}
	}
	return finish(run_command(&options, argc - optind, argv + optind));
}

int main(int argc, char **argv)
{
	return (int)run(argc, argv);
}
