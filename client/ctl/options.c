/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The options of mempoolctl: one table, from which parser, help and completion derive. Keeps
 * nothing but what getopt keeps.
 */
#include "client/ctl/options.h"

#include <assert.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/units.h"

#define TIMEOUT_MAX_MS	(UINT64_C(24) * 60 * 60 * 1000)
#define DURATION_MAX_MS (30 * TIMEOUT_MAX_MS)
#define OPTION_ROWS_MAX 32
#define OPTION_BASE	256 /* number of the first row, for getopt */

#define FIELD(name) offsetof(struct options, name)

const struct option_row options_table[] = {
	{"socket", "PATH", 0, OPTION_TEXT, FIELD(socket_path), OPTIONS_FILES,
	 "the daemon's admin socket (" OPTIONS_SOCKET ")"},
	{"json", NULL, 0, OPTION_FLAG, FIELD(json), NULL,
	 "print the daemon's result as JSON, one line per call"},
	{"timeout", "DURATION", 0, OPTION_TIMEOUT, FIELD(timeout_ms), NULL,
	 "for connecting and for each call (" OPTIONS_TIMEOUT ")"},
	{"tenant", "NAME", TAKES_TENANT, OPTION_TEXT, FIELD(tenant), NULL, "only that tenant's"},
	{"session", "ID", TAKES_SESSION, OPTION_ID, FIELD(session), NULL, "only that session's"},
	{"state", "STATE", TAKES_STATE, OPTION_TEXT, FIELD(state),
	 "requested waiting binding active quiescing rebinding detached orphaned ending fencing "
	 "scrubbing hello greeted open closing reaping ok banned removed",
	 "only what is in that state"},
	{"sort", "COLUMN", TAKES_SORT, OPTION_TEXT, FIELD(sort), NULL,
	 "in the order of a column, which is named as in the list (ttl-left, say)"},
	{"reverse", NULL, TAKES_REVERSE, OPTION_FLAG, FIELD(reverse), NULL, "in the reverse order"},
	{"now", NULL, TAKES_NOW, OPTION_FLAG, FIELD(now), NULL,
	 "without the notice and time to finish that clients get otherwise"},
	{"wait", NULL, TAKES_WAIT, OPTION_FLAG, FIELD(wait), NULL, "return when nothing is left"},
	{"deadline", "DURATION", TAKES_DEADLINE, OPTION_DURATION, FIELD(deadline_ms), NULL,
	 "what is not given back by then is taken back"},
	{"exit", NULL, TAKES_EXIT, OPTION_FLAG, FIELD(exit), NULL,
	 "the daemon stops when nothing is left"},
	{"follow", NULL, TAKES_FOLLOW, OPTION_FLAG, FIELD(follow), NULL,
	 "print what happens as it happens, one line of JSON for each event"},
	{"key", "KEY", TAKES_KEY, OPTION_TEXTS, FIELD(keys), NULL,
	 "a public key; several: each of them is good; set: in place of those that it has"},
	{"quota", "NAME=VALUE", TAKES_QUOTA, OPTION_TEXTS, FIELD(quotas),
	 "bytes= leases= windows= sessions= lanes= requests_per_second= lease_max= ttl_max= "
	 "rights=",
	 "what it may take, as in the configuration; several: --quota bytes=1GiB "
	 "--quota rights=read,write"},
	{"save", NULL, TAKES_SAVE, OPTION_FLAG, FIELD(save), NULL,
	 "also after a reload or restart"},
	{"out", "FILE", TAKES_OUT, OPTION_TEXT, FIELD(out), OPTIONS_FILES,
	 "the private key goes there; the file must not exist"},
	{"completion", "SHELL", 0, OPTION_TEXT, FIELD(completion), "bash",
	 "print a script that completes command lines in that shell: bash"},
	{"help", NULL, 0, OPTION_FLAG, FIELD(help), NULL, "this text"},
	{"version", NULL, 0, OPTION_FLAG, FIELD(version), NULL, "the version"},
	{NULL, NULL, 0, OPTION_FLAG, 0, NULL, NULL},
};

static enum exit_status fail_value(const struct option_row *row, const char *wanted,
				   const char *text)
{
	char about[COMMAND_TEXT_MAX];

	snprintf(about, sizeof(about), "--%s takes %s, not ", row->name, wanted);
	return command_fail_usage(about, text);
}

/* Return: false if it is no text. */
static bool collect(json_t **list, const char *text)
{
	if (*list == NULL)
		*list = json_array();
	return json_array_append_new(*list, json_string(text)) == 0;
}

static enum exit_status take_duration(const struct option_row *row, const char *text,
				      uint64_t *ret_ms)
{
	bool is_timeout = row->kind == OPTION_TIMEOUT;
	uint64_t ms;

	if (units_parse_duration(text, &ms) < 0 || (is_timeout && ms == 0) ||
	    ms > (is_timeout ? TIMEOUT_MAX_MS : DURATION_MAX_MS))
		return fail_value(row, is_timeout ? "1ms..24h" : "0..30d", text);
	*ret_ms = ms;
	return STATUS_OK;
}

static enum exit_status take(const struct option_row *row, const char *text,
			     struct options *options)
{
	void *field = (char *)options + row->offset;
	json_int_t id;

	options->given |= row->takes;
	switch (row->kind) {
	case OPTION_FLAG:
		*(bool *)field = true;
		return STATUS_OK;
	case OPTION_TEXT:
		*(const char **)field = text;
		return STATUS_OK;
	case OPTION_TEXTS:
		return collect(field, text) ? STATUS_OK : fail_value(row, "text in UTF-8", text);
	case OPTION_ID:
		if (!command_parse_id(text, &id))
			return fail_value(row, "a decimal or 0x hexadecimal number", text);
		*(uint64_t *)field = (uint64_t)id;
		return STATUS_OK;
	case OPTION_DURATION:
	case OPTION_TIMEOUT:
		return take_duration(row, text, field);
	}
	return STATUS_USAGE;
}

/* As getopt_long() wants it. */
static void fill_in(struct option rows[OPTION_ROWS_MAX])
{
	size_t i;

	for (i = 0; options_table[i].name != NULL && i < OPTION_ROWS_MAX - 1; i++)
		rows[i] = (struct option){
			.name = options_table[i].name,
			.has_arg =
				options_table[i].argument != NULL ? required_argument : no_argument,
			.val = OPTION_BASE + (int)i,
		};
	rows[i] = (struct option){0};
}

enum exit_status options_parse(struct options *options, int argc, char **argv, int *ret_first)
{
	struct option rows[OPTION_ROWS_MAX];
	enum exit_status status;
	int number;

	static_assert(sizeof(options_table) / sizeof(options_table[0]) <= OPTION_ROWS_MAX,
		      "there is room for all options");
	options->socket_path = OPTIONS_SOCKET;
	(void)units_parse_duration(OPTIONS_TIMEOUT, &options->timeout_ms);
	fill_in(rows);
	while ((number = getopt_long(argc, argv, "", rows, NULL)) != -1) {
		if (number < OPTION_BASE)
			return STATUS_USAGE; /* getopt has complained */
		status = take(&options_table[number - OPTION_BASE], optarg, options);
		if (status != STATUS_OK)
			return status;
	}
	*ret_first = optind;
	return STATUS_OK;
}

void options_deinit(struct options *options)
{
	json_decref(options->keys);
	json_decref(options->quotas);
}
