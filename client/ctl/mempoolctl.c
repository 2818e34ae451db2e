/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * mempoolctl: what an operator asks and tells a running daemon. One table has all
 * commands; the parser and --help derive from it. Commands only translate: arguments
 * into a call, the result into text. Single-threaded.
 *
 * Here are the table, the command line, and what is about the daemon and its leases.
 */
#include <errno.h>
#include <getopt.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/ctl/command.h"
#include "client/ctl/keygen.h"
#include "client/ctl/tenant.h"
#include "common/text.h"
#include "common/units.h"

#ifndef MEMPOOL_VERSION
#error "the build must define MEMPOOL_VERSION"
#endif

#define DEFAULT_SOCKET	"/run/mempoold/admin.sock"
#define DEFAULT_TIMEOUT "5s"
#define TIMEOUT_MAX_MS	(UINT64_C(24) * 60 * 60 * 1000)
#define ARGS_ANY	1000000

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
	{"  detached", "{leases.detached}, of these {leases.orphaned} without a session", false},
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
	{"KEPT", "{orphan_left_ms:duration}", true},
	{"WINDOWS", "{windows}", true},
	{"LANES", "{lanes}", false},
	{NULL, NULL, false},
};

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
	status = command_print_table(property_fields, json_object_get(isolation, "properties"));
	if (status == STATUS_OK && json_array_size(counters) > 0) {
		putchar('\n');
		status = command_print_table(counter_fields, counters);
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
	status = command_call_once(options, "status", NULL, "", &result);
	if (status != STATUS_OK)
		return status;
	if (options->json)
		command_print_json(result);
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
	status = command_call_once(options, "lease.list", NULL, "", &result);
	if (status != STATUS_OK)
		return status;
	if (options->json)
		command_print_json(result);
	else
		status = command_print_table(lease_fields, json_object_get(result, "leases"));
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
		command_complain("the daemon's answer does not say what was revoked");
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
		command_complain("lease revoke takes either lease IDs or --tenant NAME");
		return STATUS_USAGE;
	}
	for (int i = 0; i < argc; i++) {
		if (!parse_id(argv[i], &id)) {
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

static enum exit_status run_keygen(const struct options *options, int argc, char **argv)
{
	(void)argc;
	(void)argv;
	if (!options->out) {
		command_complain("keygen needs --out FILE");
		return STATUS_USAGE;
	}
	return keygen(options->out) == 0 ? STATUS_OK : STATUS_REFUSED;
}

static const struct command commands[] = {
	{"status", NULL, "", 0, 0, 0, "the daemon, its device, pool and isolation", run_status},
	{"lease", "list", "", 0, 0, 0, "all leases", run_lease_list},
	{"lease", "revoke", "ID... | --tenant NAME", 0, ARGS_ANY, TAKES_NOW | TAKES_TENANT,
	 "take leases back; returns when their memory can no longer be reached", run_lease_revoke},
	{"tenant", "list", "", 0, 0, 0, "all tenants, and what they have", tenant_run_list},
	{"tenant", "show", "NAME", 1, 1, 0, "one tenant: keys, quota, what was denied",
	 tenant_run_show},
	{"tenant", "add", "NAME --key KEY...", 1, 1, TAKES_KEY | TAKES_QUOTA | TAKES_SAVE,
	 "let a tenant in", tenant_run_add},
	{"tenant", "set", "NAME", 1, 1, TAKES_KEY | TAKES_QUOTA | TAKES_SAVE,
	 "change a tenant's keys or quota", tenant_run_set},
	{"tenant", "remove", "NAME", 1, 1, TAKES_SAVE,
	 "end a tenant's sessions, revoke its leases, let it in no more", tenant_run_remove},
	{"tenant", "unban", "NAME", 1, 1, 0, "end a tenant's ban, forget its strikes",
	 tenant_run_unban},
	{"reload", NULL, "", 0, 0, 0, "read the configuration and the saved tenants again",
	 tenant_run_reload},
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
	       "  --key KEY            tenant add, set: a public key; several: each of them is "
	       "good;\n"
	       "                       set: in place of those that it has\n"
	       "  --quota NAME=VALUE   tenant add, set: what it may take, as in the "
	       "configuration;\n"
	       "                       several: --quota bytes=1GiB --quota rights=read,write\n"
	       "  --save               tenant add, set, remove: also after a reload or restart\n"
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
	char shown[COMMAND_TEXT_MAX];

	snprintf(shown, sizeof(shown), "%s%s; see mempoolctl --help", text, about);
	command_complain(shown);
	return STATUS_USAGE;
}

static bool matches(const struct command *command, int argc, char **argv)
{
	if (strcmp(command->name, argv[0]) != 0)
		return false;
	return !command->subname || (argc > 1 && !strcmp(command->subname, argv[1]));
}

/* The name of an option that was given and that a command does not take; NULL: there is none. */
static const char *stray_option(const struct options *options, unsigned int takes)
{
	const struct {
		bool given;
		unsigned int takes;
		const char *name;
	} specials[] = {
		{options->now, TAKES_NOW, "--now"},
		{options->tenant != NULL, TAKES_TENANT, "--tenant"},
		{options->out != NULL, TAKES_OUT, "--out"},
		{options->keys != NULL, TAKES_KEY, "--key"},
		{options->quotas != NULL, TAKES_QUOTA, "--quota"},
		{options->save, TAKES_SAVE, "--save"},
	};

	for (size_t i = 0; i < sizeof(specials) / sizeof(specials[0]); i++) {
		if (specials[i].given && (specials[i].takes & takes) == 0)
			return specials[i].name;
	}
	return NULL;
}

static enum exit_status run_command(const struct options *options, int argc, char **argv)
{
	if (argc == 0)
		return fail_usage("no command", "");
	for (size_t i = 0; i < COMMAND_COUNT; i++) {
		const struct command *command = &commands[i];
		int words = command->subname ? 2 : 1;
		const char *stray;

		if (!matches(command, argc, argv))
			continue;
		if (argc - words < command->args_min)
			return fail_usage("arguments are missing: ", command->args);
		stray = stray_option(options, command->takes);
		if (stray != NULL)
			return fail_usage("this command does not take ", stray);
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
	command_complain("standard output cannot be written");
	return status == STATUS_OK ? STATUS_PROTOCOL : status;
}

/* An option that may be given several times. Return: false if it is no text. */
static bool collect(json_t **list, const char *text)
{
	if (*list == NULL)
		*list = json_array();
	return json_array_append_new(*list, json_string(text)) == 0;
}

static enum exit_status run(struct options *options, int argc, char **argv)
{
	enum {
		OPTION_SOCKET = 1,
		OPTION_JSON,
		OPTION_TIMEOUT,
		OPTION_NOW,
		OPTION_TENANT,
		OPTION_OUT,
		OPTION_KEY,
		OPTION_QUOTA,
		OPTION_SAVE,
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
		{"key", required_argument, NULL, OPTION_KEY},
		{"quota", required_argument, NULL, OPTION_QUOTA},
		{"save", no_argument, NULL, OPTION_SAVE},
		{"help", no_argument, NULL, OPTION_HELP},
		{"version", no_argument, NULL, OPTION_VERSION},
		{NULL, 0, NULL, 0},
	};
	int option;

	(void)parse_timeout(DEFAULT_TIMEOUT, &options->timeout_ms);
	while ((option = getopt_long(argc, argv, "", long_options, NULL)) != -1) {
		switch (option) {
		case OPTION_SOCKET:
			options->socket_path = optarg;
			break;
		case OPTION_JSON:
			options->json = true;
			break;
		case OPTION_TIMEOUT:
			if (!parse_timeout(optarg, &options->timeout_ms))
				return fail_usage("--timeout takes 1ms..24h, not ", optarg);
			break;
		case OPTION_NOW:
			options->now = true;
			break;
		case OPTION_TENANT:
			options->tenant = optarg;
			break;
		case OPTION_OUT:
			options->out = optarg;
			break;
		case OPTION_KEY:
			if (!collect(&options->keys, optarg))
				return fail_usage("--key takes a public key", "");
			break;
		case OPTION_QUOTA:
			if (!collect(&options->quotas, optarg))
				return fail_usage("--quota takes NAME=VALUE", "");
			break;
		case OPTION_SAVE:
			options->save = true;
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
	return finish(run_command(options, argc - optind, argv + optind));
}

int main(int argc, char **argv)
{
	struct options options = {.socket_path = DEFAULT_SOCKET};
	enum exit_status status = run(&options, argc, argv);

	json_decref(options.keys);
	json_decref(options.quotas);
	return (int)status;
}
