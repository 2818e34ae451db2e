/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * mempoolctl: what an operator asks and tells a running daemon. One table has all commands,
 * another (options.c) all options; the parser, --help and the completion of shells derive from
 * them. Commands only translate: arguments into a call, the result into text. Single-threaded.
 *
 * Here are the table of commands and the choice of one.
 */
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "client/ctl/command.h"
#include "client/ctl/completion.h"
#include "client/ctl/drain.h"
#include "client/ctl/events.h"
#include "client/ctl/keygen.h"
#include "client/ctl/lease.h"
#include "client/ctl/log_level.h"
#include "client/ctl/options.h"
#include "client/ctl/session.h"
#include "client/ctl/status.h"
#include "client/ctl/tenant.h"

#ifndef MEMPOOL_VERSION
#error "the build must define MEMPOOL_VERSION"
#endif

#define ARGS_ANY	1000000
#define HELP_LINE_BYTES 100

static enum exit_status run_keygen(const struct options *options, int argc, char **argv)
{
	(void)argc;
	(void)argv;
	if (!options->out) {
		command_complain("keygen needs --out FILE");
		return STATUS_USAGE;
	}
	return keygen(options->out, options->json) == 0 ? STATUS_OK : STATUS_REFUSED;
}

static const struct command commands[] = {
	{"status", NULL, "", 0, 0, 0, NULL, "the daemon, its device, pool and isolation",
	 status_run},
	{"lease", "list", "", 0, 0, TAKES_TENANT | TAKES_SESSION | TAKES_LIST, NULL, "all leases",
	 lease_run_list},
	{"lease", "show", "ID", 1, 1, 0, NULL, "one lease", lease_run_show},
	{"lease", "revoke", "ID... | --tenant NAME", 0, ARGS_ANY, TAKES_NOW | TAKES_TENANT, NULL,
	 "take leases back; returns when their memory can no longer be reached", lease_run_revoke},
	{"session", "list", "", 0, 0, TAKES_TENANT | TAKES_LIST, NULL, "all sessions",
	 session_run_list},
	{"session", "kick", "ID...", 1, ARGS_ANY, 0, NULL,
	 "end sessions; their leases end as revoked", session_run_kick},
	{"tenant", "list", "", 0, 0, TAKES_LIST, NULL, "all tenants, and what they have",
	 tenant_run_list},
	{"tenant", "show", "NAME", 1, 1, 0, NULL, "one tenant: keys, quota, what was denied",
	 tenant_run_show},
	{"tenant", "add", "NAME --key KEY...", 1, 1, TAKES_KEY | TAKES_QUOTA | TAKES_SAVE, NULL,
	 "let a tenant in", tenant_run_add},
	{"tenant", "set", "NAME", 1, 1, TAKES_KEY | TAKES_QUOTA | TAKES_SAVE, NULL,
	 "change a tenant's keys or quota", tenant_run_set},
	{"tenant", "remove", "NAME", 1, 1, TAKES_SAVE, NULL,
	 "end a tenant's sessions, revoke its leases, let it in no more", tenant_run_remove},
	{"tenant", "unban", "NAME", 1, 1, 0, NULL, "end a tenant's ban, forget its strikes",
	 tenant_run_unban},
	{"drain", NULL, "", 0, 0, TAKES_WAIT | TAKES_DEADLINE | TAKES_EXIT, NULL,
	 "grant no new leases, and wait until those that there are have ended", drain_run},
	{"undrain", NULL, "", 0, 0, 0, NULL, "grant leases again", drain_run_undrain},
	{"reload", NULL, "", 0, 0, 0, NULL, "read the configuration and the saved tenants again",
	 tenant_run_reload},
	{"log-level", NULL, "[LEVEL]", 0, 1, 0, "error warn info debug",
	 "show or set the least important lines that are logged, until the next reload",
	 log_level_run},
	{"events", NULL, "--follow", 0, 0, TAKES_FOLLOW | TAKES_TENANT, NULL,
	 "what happens to sessions, leases and tenants", events_run},
	{"keygen", NULL, "--out FILE", 0, 0, TAKES_OUT, NULL,
	 "make a private key for a tenant, print its public key", run_keygen},
	{NULL, NULL, NULL, 0, 0, 0, NULL, NULL, NULL},
};

/* Help */

/* "lease list, tenant list": the commands that take an option. */
static void print_takers(unsigned int takes)
{
	const char *before = "";
	size_t used = 0;

	for (const struct command *command = commands; command->name != NULL; command++) {
		if ((command->takes & takes) == 0)
			continue;
		used += strlen(before) + strlen(command->name) + 8;
		printf("%s%s%s%s", used > HELP_LINE_BYTES ? ",\n      " : before, command->name,
		       command->subname ? " " : "", command->subname ? command->subname : "");
		if (used > HELP_LINE_BYTES)
			used = 0;
		before = ", ";
	}
	fputs(": ", stdout);
}

static void print_options(void)
{
	char name[64];

	for (const struct option_row *row = options_table; row->name != NULL; row++) {
		snprintf(name, sizeof(name), "--%s%s%s", row->name, row->argument ? " " : "",
			 row->argument ? row->argument : "");
		printf("  %s\n      ", name);
		if (row->takes != 0)
			print_takers(row->takes);
		puts(row->help);
	}
}

static void print_help(void)
{
	char name[64];

	printf("Usage: mempoolctl [OPTION...] COMMAND\n"
	       "Ask and tell a running mempoold.\n\n"
	       "Commands:\n");
	for (const struct command *command = commands; command->name != NULL; command++) {
		snprintf(name, sizeof(name), "%s%s%s %s", command->name,
			 command->subname ? " " : "", command->subname ? command->subname : "",
			 command->args);
		printf("  %-34s %s\n", name, command->help);
	}
	puts("\nOptions:");
	print_options();
	puts("\nExit status:\n"
	     "  0  done\n"
	     "  1  refused by the daemon (code and text are on standard error), or impossible\n"
	     "  2  wrong usage\n"
	     "  3  no daemon can be reached, or it has gone\n"
	     "  4  no answer in time, or one that makes no sense");
}

/* The choice of a command */

static bool matches(const struct command *command, int argc, char **argv)
{
	if (strcmp(command->name, argv[0]) != 0)
		return false;
	return !command->subname || (argc > 1 && !strcmp(command->subname, argv[1]));
}

/* The name of an option that was given and that a command does not take; NULL: there is none. */
static const char *stray_option(const struct options *options, unsigned int takes)
{
	const struct option_row *row = options_table;

	while (row->name != NULL && (row->takes & options->given & ~takes) == 0)
		row++;
	return row->name;
}

static enum exit_status run_command(const struct options *options, int argc, char **argv)
{
	if (argc == 0)
		return command_fail_usage("no command", "");
	for (const struct command *command = commands; command->name != NULL; command++) {
		int words = command->subname ? 2 : 1;
		const char *stray;

		if (!matches(command, argc, argv))
			continue;
		stray = stray_option(options, command->takes);
		if (stray != NULL)
			return command_fail_usage("this command does not take --", stray);
		if (argc - words < command->args_min)
			return command_fail_usage("arguments are missing: ", command->args);
		if (argc - words > command->args_max)
			return command_fail_usage("too many arguments: ",
						  argv[words + command->args_max]);
		return command->run(options, argc - words, argv + words);
	}
	return command_fail_usage("unknown or incomplete command: ", argv[0]);
}

/* What was printed counts only if it arrived. */
static enum exit_status finish(enum exit_status status)
{
	if (fflush(stdout) == 0 && !ferror(stdout))
		return status;
	command_complain("standard output cannot be written");
	return status == STATUS_OK ? STATUS_PROTOCOL : status;
}

/* https://no-color.org: set to anything but nothing. */
static bool wants_colours(void)
{
	const char *never = getenv("NO_COLOR");
	const char *terminal = getenv("TERM");

	return isatty(STDOUT_FILENO) == 1 && (never == NULL || *never == '\0') &&
	       (terminal == NULL || strcmp(terminal, "dumb") != 0);
}

static enum exit_status run(struct options *options, int argc, char **argv)
{
	int first;
	enum exit_status status = options_parse(options, argc, argv, &first);

	if (status != STATUS_OK)
		return status;
	if (options->help) {
		print_help();
		return STATUS_OK;
	}
	if (options->version) {
		printf("mempoolctl %s\n", MEMPOOL_VERSION);
		return STATUS_OK;
	}
	if (options->completion != NULL) {
		if (completion_print(options->completion, commands, stdout))
			return STATUS_OK;
		return command_fail_usage("no completion for that shell: ", options->completion);
	}
	table_set_colours(wants_colours());
	return run_command(options, argc - first, argv + first);
}

int main(int argc, char **argv)
{
	struct options options = {0};
	enum exit_status status = finish(run(&options, argc, argv));

	options_deinit(&options);
	return (int)status;
}
