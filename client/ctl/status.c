/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * mempoolctl status. Keeps nothing.
 */
#include "client/ctl/status.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>

static const struct table_field status_fields[] = {
	{"daemon", "mempoold {version}, pid {pid}, up {uptime_ms:duration}", false},
	{"public key", "{public_key}", false},
	{"state", "{drain.state:state}", false},
	{"device", "{device.name} port {device.port}, {device.state}, {device.link}", false},
	{"listen", "{listen}", false},
	{"pool",
	 "{pool.bytes:size} in pages of {pool.page_bytes:size}: {pool.leased_bytes:size} leased, "
	 "{pool.dirty_bytes:size} dirty, {pool.free_bytes:size} free "
	 "(largest extent {pool.largest_free_bytes:size})",
	 false},
	{"  pages", "{pool.page_bytes:size}, hugepages: {pool.hugepages}", false},
	{"  damaged", "{pool.damaged_bytes:size}", false},
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

/* Of a daemon that does not serve as ever. */
static const struct table_field drain_fields[] = {
	{"draining",
	 "{drain.leases_left} leases left, {drain.deadline_left_ms:duration} to the deadline, "
	 "then exit: {drain.exit}",
	 false},
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

static bool is_draining(const json_t *result)
{
	const char *state = json_string_value(table_look_up(result, "drain.state"));

	return state != NULL && strcmp(state, "serving") != 0;
}

static enum exit_status print_status(json_t *result)
{
	const json_t *isolation = json_object_get(result, "isolation");
	json_t *counters = members_as_rows(json_object_get(result, "counters"));
	enum exit_status status;

	table_print_record(stdout, status_fields, result);
	if (is_draining(result))
		table_print_record(stdout, drain_fields, result);
	putchar('\n');
	status = command_print_table(property_fields, json_object_get(isolation, "properties"));
	if (status == STATUS_OK && json_array_size(counters) > 0) {
		putchar('\n');
		status = command_print_table(counter_fields, counters);
	}
	json_decref(counters);
	return status;
}

enum exit_status status_run(const struct options *options, int argc, char **argv)
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
