/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef CLIENT_TOOLS_TOOL_H
#define CLIENT_TOOLS_TOOL_H

#include <getopt.h>
#include <stdbool.h>
#include <stdint.h>

#include "client/include/mempool.h"

/* What the tools for tenants have in common: how they are told of a daemon, how they complain. */

enum tool_status {
	TOOL_OK = 0,
	TOOL_FAILED = 1, /* refused, or something went wrong on the way */
	TOOL_USAGE = 2,
	TOOL_UNREACHABLE = 3, /* no session with the daemon */
};

/* Options of every tool; those of one tool have numbers below. */
enum {
	TOOL_OPTION_DAEMON = 1000,
	TOOL_OPTION_DAEMON_KEY,
	TOOL_OPTION_KEY_FILE,
	TOOL_OPTION_TIMEOUT,
	TOOL_OPTION_HELP,
	TOOL_OPTION_VERSION,
};

/* For the table of getopt_long(). */
#define TOOL_LONG_OPTIONS                                                        \
	{"daemon", required_argument, NULL, TOOL_OPTION_DAEMON},                 \
		{"daemon-key", required_argument, NULL, TOOL_OPTION_DAEMON_KEY}, \
		{"key-file", required_argument, NULL, TOOL_OPTION_KEY_FILE},     \
		{"timeout", required_argument, NULL, TOOL_OPTION_TIMEOUT},       \
		{"help", no_argument, NULL, TOOL_OPTION_HELP},                   \
	{                                                                        \
		"version", no_argument, NULL, TOOL_OPTION_VERSION                \
	}

#define TOOL_OPTIONS_HELP                                                           \
	"  --daemon ADDRESS     HOST[:PORT] or mempool://HOST[:PORT]?key=KEY\n"     \
	"  --daemon-key KEY     the daemon's public key, if the address has none\n" \
	"  --key-file FILE      our private key (mempoolctl keygen makes one)\n"    \
	"  --timeout DURATION   for connecting and for each operation (5s)\n"

#define TOOL_VERSION_HELP                    \
	"  --help               this text\n" \
	"  --version            the version\n"

#define TOOL_STATUS_HELP                                     \
	"Exit status:\n"                                     \
	"  0  done\n"                                        \
	"  1  refused by the daemon, or failed on the way\n" \
	"  2  wrong usage\n"                                 \
	"  3  no session with the daemon\n"

struct tool_session {
	const char *daemon;	/* NULL: not given */
	const char *daemon_key; /* likewise */
	const char *key_file;	/* likewise */
	uint32_t timeout_ms;	/* 0: the library's */
};

/**
 * tool_init() - whoever complains says so under this name
 *
 * First of all, as nothing may be open yet: it makes sure that the standard descriptors are.
 */
void tool_init(const char *name);

/**
 * tool_begin_line(), tool_end_line() - standard error has an unfinished line, is to have none
 *
 * A complaint ends it first.
 */
void tool_begin_line(void);
void tool_end_line(void);

/** tool_complain() - a line on standard error; what is not printable is escaped */
void tool_complain(const char *format, ...) __attribute__((format(printf, 1, 2)));

/** tool_usage() - the same about wrong usage; Return: TOOL_USAGE */
enum tool_status tool_usage(const char *format, ...) __attribute__((format(printf, 1, 2)));

/** tool_refused() - the same about the library's last error; Return: TOOL_FAILED */
enum tool_status tool_refused(const char *what, int code);

/* What is a tool's own about its command line. */
struct tool_line {
	const struct option *long_options; /* with TOOL_LONG_OPTIONS */
	void (*print_help)(void);
	/* Takes an option that is none of every tool's, or that is not known: then getopt_long()
	 * has complained. Return: TOOL_OK, or it has complained. */
	enum tool_status (*take_option)(void *options, int option, const char *arg);
};

/**
 * tool_parse() - take the options; what is behind them begins at optind
 * @options: for take_option()
 * @ret_done: help or version was asked for, and printed: nothing is left to do
 *
 * Return: TOOL_OK, or it has complained.
 */
enum tool_status tool_parse(const struct tool_line *line, int argc, char **argv,
			    struct tool_session *session, void *options, bool *ret_done);

/** tool_duration() - at least 1 ms, fits 32 bits; Return: TOOL_OK, or it has complained */
enum tool_status tool_duration(const char *option, const char *text, uint32_t *ret_ms);

/** tool_connect() - Return: TOOL_OK, or it has complained */
enum tool_status tool_connect(const struct tool_session *session, mempool **ret_pool);

/** tool_finish() - what was printed counts only if it arrived */
enum tool_status tool_finish(enum tool_status status);

#endif
