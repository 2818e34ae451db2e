/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * mempoolctl drain, undrain. Whoever waits asks for the status again and again: a drain may
 * last for hours, an answer may not. Keeps nothing.
 */
#include "client/ctl/drain.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "common/clock.h"
#include "common/text.h"

#define LOOK_MS 200

static const struct table_field drain_fields[] = {
	{"state", "{state:state}", false},
	{"leases left", "{leases_left}", false},
	{"time left", "{deadline_left_ms:duration}", false},
	{"then exit", "{exit}", false},
	{NULL, NULL, false},
};

static void sleep_ms(uint64_t ms)
{
	struct timespec time = {
		.tv_sec = (time_t)(ms / 1000),
		.tv_nsec = (long)(ms % 1000 * CLOCK_NS_PER_MS),
	};

	while (nanosleep(&time, &time) != 0 && errno == EINTR)
		;
}

static void print_drain(const struct options *options, const json_t *drain)
{
	if (options->json)
		command_print_json(drain);
	else
		table_print_record(stdout, drain_fields, drain);
}

/* @ret_drain: what the status says of it; the caller's reference */
static enum exit_status look(struct rpc *rpc, json_t **ret_drain)
{
	enum exit_status status;
	json_t *result;

	status = command_call(rpc, "status", NULL, "", &result);
	if (status != STATUS_OK)
		return status;
	*ret_drain = json_incref(json_object_get(result, "drain"));
	json_decref(result);
	if (*ret_drain != NULL)
		return STATUS_OK;
	command_complain("the daemon's status says nothing of a drain");
	return STATUS_PROTOCOL;
}

static bool is_in(const json_t *drain, const char *state)
{
	const char *text = json_string_value(json_object_get(drain, "state"));

	return text != NULL && !strcmp(text, state);
}

static enum exit_status complain_of_undrain(void)
{
	command_complain("the daemon was told to serve again: it is not drained");
	return STATUS_REFUSED;
}

/* A daemon that ends has done what it was told; one that is silent has not ended. */
static enum exit_status wait_for_exit(const struct options *options, struct rpc *rpc)
{
	struct rpc_failure failure;
	json_t *drain;
	json_t *result;
	bool serves;
	int r;

	while ((r = rpc_call(rpc, "status", NULL, &result, &failure)) == 0) {
		serves = is_in(json_object_get(result, "drain"), "serving");
		json_decref(result);
		if (serves)
			return complain_of_undrain();
		sleep_ms(LOOK_MS);
	}
	if (r != -ECONNRESET) {
		command_complain(failure.text);
		return STATUS_PROTOCOL;
	}
	if (options->json) {
		drain = json_pack("{s:s}", "state", "ended");
		command_print_json(drain);
		json_decref(drain);
	}
	return STATUS_OK;
}

static enum exit_status wait_until_drained(const struct options *options, struct rpc *rpc)
{
	enum exit_status status;
	bool over = false;
	json_t *drain;

	while (!over) {
		status = look(rpc, &drain);
		if (status != STATUS_OK)
			return status;
		over = is_in(drain, "drained");
		if (over)
			print_drain(options, drain);
		else if (is_in(drain, "serving"))
			status = complain_of_undrain();
		json_decref(drain);
		if (status != STATUS_OK)
			return status;
		if (!over)
			sleep_ms(LOOK_MS);
	}
	return STATUS_OK;
}

static enum exit_status order(const struct options *options, struct rpc *rpc)
{
	json_t *params = json_pack("{s:b}", "exit", options->exit);
	enum exit_status status;
	json_t *result;

	if ((options->given & TAKES_DEADLINE) != 0)
		(void)json_object_set_new(params, "deadline_ms",
					  json_integer((json_int_t)options->deadline_ms));
	status = command_call(rpc, "drain", params, "", &result);
	if (status != STATUS_OK)
		return status;
	if (!options->wait)
		print_drain(options, result);
	json_decref(result);
	return STATUS_OK;
}

enum exit_status drain_run(const struct options *options, int argc, char **argv)
{
	enum exit_status status;
	struct rpc *rpc;

	(void)argc;
	(void)argv;
	status = command_connect(options, &rpc);
	if (status != STATUS_OK)
		return status;
	status = order(options, rpc);
	if (status == STATUS_OK && options->wait)
		status = options->exit ? wait_for_exit(options, rpc)
				       : wait_until_drained(options, rpc);
	rpc_free(rpc);
	return status;
}

enum exit_status drain_run_undrain(const struct options *options, int argc, char **argv)
{
	enum exit_status status;
	json_t *result;

	(void)argc;
	(void)argv;
	status = command_call_once(options, "undrain", NULL, "", &result);
	if (status != STATUS_OK)
		return status;
	print_drain(options, result);
	json_decref(result);
	return STATUS_OK;
}
