/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The operator of the pool. What it knows of the daemon it has from mempoolctl's output, its
 * log and its exit status, like any operator.
 */
#include "tests/story/operator.h"

#include <errno.h>
#include <inttypes.h>
#include <jansson.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "common/clock.h"
#include "tests/story/command.h"
#include "tests/story/tell.h"
#include "tests/story/unit.h"

#define OPERATOR_START_MS    90000
#define OPERATOR_STOP_MS     60000
#define OPERATOR_POLL_NS     100000000
#define OPERATOR_UNREACHABLE 3 /* mempoolctl: no daemon can be reached */
#define OPERATOR_LOG_LINES   "40"
#define OPERATOR_ARGS_MAX    10
#define OPERATOR_SOCKET	     "/run/mempoold/admin.sock"
#define OPERATOR_STATE	     "/var/lib/mempoold"

static uint64_t operator_ms_since(uint64_t since_ns)
{
	return (clock_now_ns() - since_ns) / CLOCK_NS_PER_MS;
}

/* mempoolctl with up to three words, NULL for none. */
static int operator_ctl(const struct operator* op, const char *option, const char *const words[3],
			char **ret_output, int *ret_status)
{
	const char *argv[OPERATOR_ARGS_MAX] = {"mempoolctl", "--socket", op->socket};
	int count = 3;
	int r;

	if (option != NULL)
		argv[count++] = option;
	for (int i = 0; i < 3 && words[i] != NULL; i++)
		argv[count++] = words[i];
	r = command_run(argv, ret_output, ret_status);
	if (r < 0)
		return tell_failure("cannot run mempoolctl: %s", strerrordesc_np(-r));
	return 0;
}

/* The result of a command that must succeed. */
static int operator_ask(const struct operator* op, const char *const words[3], json_t **ret_json)
{
	char *output = NULL;
	json_t *json;
	int status;

	if (operator_ctl(op, "--json", words, &output, &status) < 0)
		return -1;
	json = status == 0 ? json_loads(output, 0, NULL) : NULL;
	free(output);
	if (status != 0)
		return tell_failure("mempoolctl %s %s: exit status %d", words[0],
				    words[1] != NULL ? words[1] : "", status);
	if (json == NULL)
		return tell_failure("mempoolctl %s: what it printed is not JSON", words[0]);
	*ret_json = json;
	return 0;
}

/* Return: 0 with the public key, or -1. */
static int operator_make_key(const struct operator* op, const char *tenant, char *ret_public,
			     size_t cap_bytes)
{
	char path[2 * OPERATOR_PATH_MAX];
	const char *argv[] = {"mempoolctl", "keygen", "--out", path, NULL};
	char *output;
	int status;
	int r;

	(void)snprintf(path, sizeof(path), "%s/%s.key", op->folder, tenant);
	r = command_run(argv, &output, &status);
	if (r < 0)
		return tell_failure("cannot run mempoolctl: %s", strerrordesc_np(-r));
	output[strcspn(output, "\n")] = '\0';
	(void)snprintf(ret_public, cap_bytes, "%s", output);
	free(output);
	if (status != 0)
		return tell_failure("mempoolctl keygen: exit status %d", status);
	tell("%s has a key: %s", tenant, ret_public);
	return 0;
}

static json_t *operator_make_tenants(const struct operator* op, const char *const *tenants)
{
	json_t *list = json_array();
	char key[OPERATOR_PATH_MAX];

	for (; *tenants != NULL; tenants++) {
		if (operator_make_key(op, *tenants, key, sizeof(key)) < 0) {
			json_decref(list);
			return NULL;
		}
		(void)json_array_append_new(
			list, json_pack("{s:s,s:[s]}", "name", *tenants, "keys", key));
	}
	return list;
}

static int operator_write_config(const struct operator* op, const char *address,
				 const char *const *tenants)
{
	json_t *list = operator_make_tenants(op, tenants);
	char pool_size[32];
	json_t *config;
	int r;

	(void)snprintf(pool_size, sizeof(pool_size), "%" PRIu64 "MiB", op->pool_bytes >> 20);
	if (list == NULL)
		return -1;
	config = json_pack("{s:s,s:[s],s:s,s:s,s:s,s:o}", "pool_size", pool_size, "listen", address,
			   "admin_socket", op->socket, "state_dir",
			   op->service != NULL ? OPERATOR_STATE : op->folder, "log_level", "debug",
			   "tenants", list);
	r = config == NULL ? -1 : json_dump_file(config, op->config, JSON_INDENT(4));
	json_decref(config);
	return r < 0 ? tell_failure("cannot write %s", op->config) : 0;
}

int operator_init(struct operator* op, const char *address, uint64_t pool_bytes,
		  const char *const *tenants)
{
	*op = (struct operator){.folder = "/tmp/mempool-story.XXXXXX", .pool_bytes = pool_bytes};
	if (mkdtemp(op->folder) == NULL)
		return tell_failure("cannot make %s: %s", op->folder, strerrordesc_np(errno));
	(void)snprintf(op->config, sizeof(op->config), "%.100s/mempoold.conf", op->folder);
	(void)snprintf(op->log, sizeof(op->log), "%.100s/mempoold.log", op->folder);
	(void)snprintf(op->socket, sizeof(op->socket), "%.90s/admin.sock", op->folder);
	op->service = getenv("MEMPOOL_SERVICE");
	if (op->service != NULL) {
		(void)snprintf(op->config, sizeof(op->config), "%s", MEMPOOL_CONFIG);
		(void)snprintf(op->socket, sizeof(op->socket), "%s", OPERATOR_SOCKET);
	}
	return operator_write_config(op, address, tenants);
}

/* Waits for an answer; until there is one mempoolctl's complaints are of no interest. */
static int operator_wait_ready(struct operator* op, uint64_t until_ns)
{
	static const char script[] = "exec mempoolctl --socket \"$1\" status >/dev/null 2>&1";
	const char *argv[] = {"sh", "-c", script, "sh", op->socket, NULL};
	const struct timespec pause = {.tv_nsec = OPERATOR_POLL_NS};
	char *output;
	int status;
	int r;

	for (;;) {
		r = command_run(argv, &output, &status);
		if (r < 0)
			return tell_failure("cannot run mempoolctl: %s", strerrordesc_np(-r));
		free(output);
		if (status == 0)
			return 0;
		if (command_wait(op->daemon, 0, &status) == 0) {
			op->daemon = 0;
			return tell_failure("the daemon has ended with exit status %d", status);
		}
		if (clock_now_ns() >= until_ns)
			return tell_failure("the daemon is not ready after %d ms",
					    OPERATOR_START_MS);
		(void)nanosleep(&pause, NULL);
	}
}

struct operator_view {
	const char *device;
	const char *mode;
	const char *why;
	json_int_t pool_bytes;
	json_int_t free_bytes;
	json_int_t leased_bytes;
	json_int_t dirty_bytes;
};

static int operator_parse(json_t *status, struct operator_view *ret_view)
{
	struct operator_view v;
	json_error_t error;

	if (json_unpack_ex(status, &error, 0, "{s:{s:s},s:{s:I,s:I,s:I,s:I},s:{s:s,s:s}}", "device",
			   "name", &v.device, "pool", "bytes", &v.pool_bytes, "free_bytes",
			   &v.free_bytes, "leased_bytes", &v.leased_bytes, "dirty_bytes",
			   &v.dirty_bytes, "isolation", "mode", &v.mode, "why", &v.why) < 0)
		return tell_failure("mempoolctl status: %s", error.text);
	*ret_view = v;
	return 0;
}

static int operator_check_status(const struct operator* op, json_t *status)
{
	struct operator_view v;

	if (operator_parse(status, &v) < 0)
		return -1;
	tell("mempoolctl status: device %s, pool %" JSON_INTEGER_FORMAT
	     " bytes, free %" JSON_INTEGER_FORMAT " bytes",
	     v.device, v.pool_bytes, v.free_bytes);
	tell("isolation between tenants: %s", v.mode);
	tell("because %s", v.why);
	if (v.pool_bytes < 0 || (uint64_t)v.pool_bytes != op->pool_bytes ||
	    v.free_bytes != v.pool_bytes)
		return tell_failure("the pool should have %" PRIu64 " bytes, all free",
				    op->pool_bytes);
	if (strcmp(v.mode, "windows") != 0 && strcmp(v.mode, "guarded") != 0)
		return tell_failure("the isolation should be \"windows\" or \"guarded\"");
	return 0;
}

/* A service serves when systemctl returns. */
static int operator_start_daemon(struct operator* op)
{
	const char *argv[] = {"mempoold", "--config", op->config, NULL};
	uint64_t started_ns = clock_now_ns();
	int r;

	if (op->service != NULL) {
		if (unit_start(op->service, &op->daemon) < 0)
			return -1;
	} else {
		r = command_start(argv, op->log, &op->daemon);
		if (r < 0)
			return tell_failure("cannot start mempoold: %s", strerrordesc_np(-r));
	}
	tell("mempoold runs as process %d, configured by %s", (int)op->daemon, op->config);
	return op->service != NULL
		       ? 0
		       : operator_wait_ready(op, clock_add_ms(started_ns, OPERATOR_START_MS));
}

int operator_start(struct operator* op, const char *address)
{
	const char *const words[3] = {"status", NULL, NULL};
	uint64_t started_ns = clock_now_ns();
	json_t *status;
	int r;

	if (operator_start_daemon(op) < 0)
		return -1;
	tell("it serves after %" PRIu64 " ms", operator_ms_since(started_ns));
	if (operator_ask(op, words, &status) < 0)
		return -1;
	r = operator_check_status(op, status);
	(void)snprintf(op->uri, sizeof(op->uri), "mempool://%s?key=%s", address,
		       json_string_value(json_object_get(status, "public_key")));
	json_decref(status);
	return r;
}

static bool operator_has_lease(const json_t *list, uint64_t id, uint64_t len_bytes)
{
	const json_t *lease;
	const char *state;
	size_t i;

	json_array_foreach(list, i, lease)
	{
		if ((uint64_t)json_integer_value(json_object_get(lease, "id")) != id)
			continue;
		state = json_string_value(json_object_get(lease, "state"));
		return state != NULL && strcmp(state, "active") == 0 &&
		       (uint64_t)json_integer_value(json_object_get(lease, "len_bytes")) ==
			       len_bytes;
	}
	return false;
}

int operator_show_leases(const struct operator* op, uint64_t first_id, uint64_t first_bytes,
			 uint64_t second_id, uint64_t second_bytes)
{
	const char *const words[3] = {"lease", "list", NULL};
	char *table = NULL;
	const json_t *list;
	json_t *result;
	bool both;
	int status;

	if (operator_ask(op, words, &result) < 0)
		return -1;
	list = json_object_get(result, "leases");
	both = operator_has_lease(list, first_id, first_bytes) &&
	       operator_has_lease(list, second_id, second_bytes);
	json_decref(result);
	if (operator_ctl(op, NULL, words, &table, &status) < 0)
		return -1;
	tell_block(table);
	free(table);
	if (status != 0)
		return tell_failure("mempoolctl lease list: exit status %d", status);
	if (!both)
		return tell_failure("leases 0x%" PRIx64 " and 0x%" PRIx64
				    " should both be listed as active",
				    first_id, second_id);
	return 0;
}

int operator_revoke(const struct operator* op, uint64_t id)
{
	char text[24];
	const char *const words[3] = {"lease", "revoke", text};
	json_int_t took_us = -1;
	json_t *result;

	(void)snprintf(text, sizeof(text), "0x%" PRIx64, id);
	if (operator_ask(op, words, &result) < 0)
		return -1;
	(void)json_unpack(result, "{s:I}", "took_us", &took_us);
	json_decref(result);
	if (took_us < 0)
		return tell_failure("mempoolctl lease revoke does not say how long it took");
	tell("mempoolctl lease revoke %s: done, the device refuses the key after "
	     "%" JSON_INTEGER_FORMAT " us",
	     text, took_us);
	return 0;
}

int operator_show_pool(const struct operator* op)
{
	const char *const words[3] = {"status", NULL, NULL};
	struct operator_view v;
	json_t *status;
	int r;

	if (operator_ask(op, words, &status) < 0)
		return -1;
	r = operator_parse(status, &v);
	if (r == 0)
		tell("mempoolctl status: %" JSON_INTEGER_FORMAT " bytes lent, "
		     "%" JSON_INTEGER_FORMAT " to be zeroed, %" JSON_INTEGER_FORMAT " free",
		     v.leased_bytes, v.dirty_bytes, v.free_bytes);
	json_decref(status);
	return r;
}

static int operator_check_gone(const struct operator* op)
{
	const char *const words[3] = {"status", NULL, NULL};
	char *output = NULL;
	int status;

	if (operator_ctl(op, NULL, words, &output, &status) < 0)
		return -1;
	free(output);
	if (status != OPERATOR_UNREACHABLE)
		return tell_failure("mempoolctl status: exit status %d, expected %d", status,
				    OPERATOR_UNREACHABLE);
	tell("mempoolctl status: exit status %d, nobody there", status);
	return 0;
}

static int operator_stop_daemon(struct operator* op, int *ret_status)
{
	if (op->service != NULL)
		return unit_stop(op->service, ret_status);
	if (kill(op->daemon, SIGTERM) < 0)
		return tell_failure("cannot signal the daemon: %s", strerrordesc_np(errno));
	if (command_wait(op->daemon, OPERATOR_STOP_MS, ret_status) < 0)
		return tell_failure("the daemon has not ended %d ms after SIGTERM",
				    OPERATOR_STOP_MS);
	return 0;
}

int operator_stop(struct operator* op)
{
	uint64_t since_ns = clock_now_ns();
	int status = -1;

	if (operator_stop_daemon(op, &status) < 0)
		return -1;
	op->daemon = 0;
	tell("exit status %d, %" PRIu64 " ms after SIGTERM", status, operator_ms_since(since_ns));
	if (status != 0)
		return tell_failure("the daemon should exit with 0");
	return operator_check_gone(op);
}

static void operator_print_log(const struct operator* op)
{
	const char *argv[] = {"tail", "-n", OPERATOR_LOG_LINES, op->log, NULL};
	char *text = NULL;
	int status;

	tell_chapter("The end of the daemon's log");
	if (op->service != NULL) {
		unit_print_log(op->service);
		return;
	}
	if (command_run(argv, &text, &status) < 0)
		return;
	tell_block(text);
	free(text);
}

static void operator_remove_folder(const struct operator* op)
{
	const char *argv[] = {"rm", "-rf", op->folder, NULL};
	char *text = NULL;
	int status;

	if (command_run(argv, &text, &status) == 0)
		free(text);
}

void operator_deinit(struct operator* op, int passed)
{
	int status;

	if (op->daemon != 0 && op->service != NULL) {
		(void)unit_stop(op->service, &status);
	} else if (op->daemon != 0) {
		(void)kill(op->daemon, SIGKILL);
		(void)waitpid(op->daemon, NULL, 0);
	}
	op->daemon = 0;
	if (op->log[0] == '\0')
		return;
	if (!passed)
		operator_print_log(op);
	operator_remove_folder(op);
}
