/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * mempoolctl log-level. Keeps nothing.
 */
#include "client/ctl/log_level.h"

#include <stdio.h>

#include "common/text.h"

#define LEVEL_TEXT_MAX 64

static void print_level(const json_t *result)
{
	char level[LEVEL_TEXT_MAX], was[LEVEL_TEXT_MAX];
	const char *now_text = json_string_value(json_object_get(result, "level"));
	const char *was_text = json_string_value(json_object_get(result, "was"));

	text_escape(now_text ? now_text : "?", level, sizeof(level));
	text_escape(was_text ? was_text : "?", was, sizeof(was));
	if (was_text != NULL)
		printf("log level %s, was %s\n", level, was);
	else
		printf("log level %s\n", level);
}

enum exit_status log_level_run(const struct options *options, int argc, char **argv)
{
	json_t *params = argc > 0 ? json_pack("{s:s}", "level", argv[0]) : NULL;
	enum exit_status status;
	json_t *result;

	if (argc > 0 && params == NULL)
		return command_fail_usage("there is no such level: ", argv[0]);
	status = command_call_once(options, "log-level", params, "", &result);
	if (status != STATUS_OK)
		return status;
	if (options->json)
		command_print_json(result);
	else
		print_level(result);
	json_decref(result);
	return STATUS_OK;
}
