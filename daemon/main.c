/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * mempoold: options, nothing else.
 */
#include <getopt.h>
#include <signal.h>
#include <stdio.h>

#include "common/log.h"
#include "daemon/config.h"
#include "daemon/journal.h"
#include "daemon/server.h"

static const char main_usage[] =
	"usage: mempoold [--config FILE] [--check-config] [--help] [--help-config] [--version]\n"
	"\n"
	"Lends this machine's memory over RDMA.\n"
	"\n"
	"  --config FILE    configuration, default " MEMPOOL_CONFIG "\n"
	"  --check-config   check the configuration and exit\n"
	"  --help-config    list the keys of the configuration\n"
	"  --version        print the version\n"
	"\n"
	"Exit status: 0 stopped as told, 1 could not start, 2 options or configuration,\n"
	"3 another daemon has the admin socket, 74 the device was lost, 75 something was left\n"
	"to the kernel at stop, 76 the daemon's own memory was damaged.\n";

enum {
	MAIN_OPTION_CONFIG = 'c',
	MAIN_OPTION_HELP = 'h',
	MAIN_OPTION_CHECK = 256,
	MAIN_OPTION_HELP_CONFIG,
	MAIN_OPTION_VERSION,
};

static const struct option main_options[] = {
	{"config", required_argument, NULL, MAIN_OPTION_CONFIG},
	{"check-config", no_argument, NULL, MAIN_OPTION_CHECK},
	{"help", no_argument, NULL, MAIN_OPTION_HELP},
	{"help-config", no_argument, NULL, MAIN_OPTION_HELP_CONFIG},
	{"version", no_argument, NULL, MAIN_OPTION_VERSION},
	{NULL, 0, NULL, 0},
};

int main(int argc, char **argv)
{
	const char *path = MEMPOOL_CONFIG;
	bool check_only = false;
	struct config config;
	char error[CONFIG_ERROR_MAX];
	int option;

	while ((option = getopt_long(argc, argv, "c:h", main_options, NULL)) != -1) {
		switch (option) {
		case MAIN_OPTION_CONFIG:
			path = optarg;
			break;
		case MAIN_OPTION_CHECK:
			check_only = true;
			break;
		case MAIN_OPTION_HELP:
			fputs(main_usage, stdout);
			return SERVER_EXIT_OK;
		case MAIN_OPTION_HELP_CONFIG:
			config_print_schema(stdout);
			return SERVER_EXIT_OK;
		case MAIN_OPTION_VERSION:
			puts("mempoold " MEMPOOL_VERSION);
			return SERVER_EXIT_OK;
		default:
			fputs(main_usage, stderr);
			return SERVER_EXIT_USAGE;
		}
	}
	if (optind < argc) {
		fprintf(stderr, "mempoold: unexpected argument '%s'\n", argv[optind]);
		return SERVER_EXIT_USAGE;
	}
	if (config_load(path, &config, error) < 0) {
		fprintf(stderr, "mempoold: %s\n", error);
		return SERVER_EXIT_USAGE;
	}
	if (check_only) {
		config_free(&config);
		return SERVER_EXIT_OK;
	}
	(void)journal_open();
	log_set_level((enum log_level)config.log_level);
	(void)signal(SIGPIPE, SIG_IGN);
	(void)signal(SIGHUP, SIG_IGN);
	return server_run(&config, path);
}
