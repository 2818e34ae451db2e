/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef CLIENT_CTL_OPTIONS_H
#define CLIENT_CTL_OPTIONS_H

#include <stdbool.h>
#include <stddef.h>

#include "client/ctl/command.h"

#define OPTIONS_SOCKET	"/run/mempoold/admin.sock"
#define OPTIONS_TIMEOUT "5s"

enum option_kind {
	OPTION_FLAG,	 /* bool */
	OPTION_TEXT,	 /* const char *, of the command line */
	OPTION_TEXTS,	 /* json_t *, a list: the option may be given several times */
	OPTION_ID,	 /* uint64_t */
	OPTION_DURATION, /* uint64_t, in milliseconds: 0..30d */
	OPTION_TIMEOUT,	 /* likewise, but 1ms..24h */
};

/* What shells complete an option's argument with, if it is not a word of a list. */
#define OPTIONS_FILES "<file>"

/* A row of the table of options, which ends with a NULL name. */
struct option_row {
	const char *name;     /* without the dashes */
	const char *argument; /* for help; NULL: it takes none */
	unsigned int takes;   /* TAKES_*; 0: all commands take it */
	enum option_kind kind;
	size_t offset;	   /* of the value in struct options */
	const char *words; /* that the argument may be, OPTIONS_FILES, or NULL: anything */
	const char *help;
};

extern const struct option_row options_table[];

/**
 * options_parse() - read the options of a command line
 * @options: all zero; gets what was given and the defaults; for options_deinit() in any case
 * @ret_first: the first argument that is no option
 *
 * Return: STATUS_OK, or it has complained.
 */
enum exit_status options_parse(struct options *options, int argc, char **argv, int *ret_first);

/** options_deinit() - give back what the options own */
void options_deinit(struct options *options);

#endif
