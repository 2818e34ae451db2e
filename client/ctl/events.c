/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * mempoolctl events: one line of JSON for each event, as it comes. Keeps nothing.
 */
#include "client/ctl/events.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

static bool is_wanted(const struct options *options, const json_t *event)
{
	const char *tenant = json_string_value(json_object_get(event, "tenant"));

	return options->tenant == NULL || (tenant != NULL && !strcmp(tenant, options->tenant));
}

/* The daemon's last word to somebody who does not keep up. */
static bool is_cut(const json_t *event)
{
	const char *name = json_string_value(json_object_get(event, "event"));

	return name != NULL && !strcmp(name, "cut");
}

/* Return: false if nobody takes it. */
static bool print_event(const struct options *options, const json_t *event)
{
	if (!is_cut(event) && !is_wanted(options, event))
		return true;
	command_print_json(event);
	return fflush(stdout) == 0 && !ferror(stdout);
}

static enum exit_status print_events(const struct options *options, struct rpc *rpc)
{
	struct rpc_failure failure;
	json_t *event;
	int r;

	while ((r = rpc_next(rpc, &event, &failure)) == 0) {
		bool cut = is_cut(event);
		bool printed = print_event(options, event);

		json_decref(event);
		if (!printed)
			return STATUS_PROTOCOL;
		if (cut) {
			command_complain(
				"events came faster than they were read: some are missing");
			return STATUS_REFUSED;
		}
	}
	command_complain(failure.text);
	return r == -ECONNRESET ? STATUS_UNREACHABLE : STATUS_PROTOCOL;
}

enum exit_status events_run(const struct options *options, int argc, char **argv)
{
	enum exit_status status;
	struct rpc *rpc;
	json_t *result;

	(void)argc;
	(void)argv;
	if (!options->follow)
		return command_fail_usage("events needs --follow", "");
	status = command_connect(options, &rpc);
	if (status != STATUS_OK)
		return status;
	status = command_call(rpc, "events.follow", NULL, "", &result);
	if (status == STATUS_OK) {
		json_decref(result);
		status = print_events(options, rpc);
	}
	rpc_free(rpc);
	return status;
}
