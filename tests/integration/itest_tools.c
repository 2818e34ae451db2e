/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * mempool-cp and mempool-perf with a real daemon: what is copied in comes out again, what cannot
 * be leaves nothing behind; measurements have all figures, and a ratio to verbs alone.
 */
#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <limits.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/integration/harness.h"
#include "tests/integration/place.h"

#define LIMIT_MS    90000
#define ARGS_MAX    24
#define ODD_BYTES   (9 * MIB + 12345) /* no multiple of anything that a copy is cut into */
#define GRACE	    "\"orphan_grace\": \"1min\""
#define COMMAND_MAX 2048

extern char **environ;

static struct harness_output output;

/* @args: NULL-terminated, behind the options that say who we are. Return: the exit status. */
static int run(const struct place *place, const char *name, const char *const *args)
{
	char program[PATH_MAX];
	const char *argv[ARGS_MAX] = {harness_program(name, program),
				      "--daemon",
				      place->address,
				      "--key-file",
				      place->key,
				      "--timeout",
				      "60s"};
	size_t count = 7;

	while (*args != NULL && count < ARGS_MAX - 1)
		argv[count++] = *args++;
	(void)harness_run(argv, LIMIT_MS, &output);
	return output.status;
}

#define RUN(place, name, ...) run(place, name, (const char *const[]){__VA_ARGS__, NULL})

static char *lease_name(const struct place *place, char *buf)
{
	snprintf(buf, PLACE_TEXT_MAX, "lease:%s/token", place->dir);
	return buf;
}

static bool has_token(const struct place *place)
{
	char path[PLACE_TEXT_MAX];

	return access(place_path(place, "token", path), F_OK) == 0;
}

/* mempool-cp */

static void check_kept(struct harness *h, uint64_t len_bytes)
{
	json_t *result;
	const json_t *lease;

	CHECK(harness_wait_number(h, "leases.orphaned", 1, 10000));
	result = harness_call(h, "lease.list", NULL);
	lease = json_array_get(json_object_get(result, "leases"), 0);
	CHECK_INT(json_integer_value(json_object_get(lease, "len_bytes")), len_bytes);
	json_decref(result);
}

TEST(cp__a_file_there_and_back)
{
	HARNESS(h, .pool_size = "32MiB", .extra = GRACE);
	PLACE(place, "alpha");
	char lease[PLACE_TEXT_MAX], in[PLACE_TEXT_MAX], out[PLACE_TEXT_MAX];
	struct stat st;

	lease_name(&place, lease);
	CHECK_INT(place_write(&place, "in", ODD_BYTES, 1), 0);
	place_path(&place, "in", in);
	CHECK_INT(RUN(&place, "mempool-cp", in, lease), 0);
	CHECK_STR(output.err, "");
	CHECK_INT(stat(lease + strlen("lease:"), &st), 0);
	CHECK_INT(st.st_mode & 0777, 0600);
	check_kept(&h, ODD_BYTES);
	/* It can be had more than once. */
	place_path(&place, "out1", out);
	CHECK_INT(RUN(&place, "mempool-cp", lease, out), 0);
	CHECK_INT(place_holds(&place, "out1", ODD_BYTES, 1), 1);
	check_kept(&h, ODD_BYTES);
	place_path(&place, "out2", out);
	CHECK_INT(RUN(&place, "mempool-cp", "--release", lease, out), 0);
	CHECK_INT(place_holds(&place, "out2", ODD_BYTES, 1), 1);
	CHECK(!has_token(&place));
	CHECK(harness_wait_number(&h, "pool.leased_bytes", 0, 10000));
	CHECK_INT(harness_stop(&h), 0);
}

TEST(cp__one_byte)
{
	HARNESS(h, .extra = GRACE);
	PLACE(place, "alpha");
	char lease[PLACE_TEXT_MAX], in[PLACE_TEXT_MAX], out[PLACE_TEXT_MAX];

	lease_name(&place, lease);
	CHECK_INT(place_write(&place, "in", 1, 2), 0);
	CHECK_INT(RUN(&place, "mempool-cp", place_path(&place, "in", in), lease), 0);
	check_kept(&h, 1);
	CHECK_INT(RUN(&place, "mempool-cp", lease, place_path(&place, "out", out)), 0);
	CHECK_INT(place_holds(&place, "out", 1, 2), 1);
	CHECK_INT(harness_stop(&h), 0);
}

static int run_shell(const struct place *place, const char *format)
{
	char program[PATH_MAX], command[COMMAND_MAX];
	const char *argv[] = {
		"sh",		"-c",	    command,	harness_program("mempool-cp", program),
		place->address, place->key, place->dir, NULL};

	snprintf(command, sizeof(command), "cd \"$3\" && %s", format);
	(void)harness_run(argv, LIMIT_MS, &output);
	return output.status;
}

#define CP "\"$0\" --daemon \"$1\" --key-file \"$2\" --timeout 60s "

/* Its length is not known, so the lease grows; then it is as long as what came. */
TEST(cp__through_pipes)
{
	HARNESS(h, .pool_size = "32MiB", .extra = GRACE);
	PLACE(place, "alpha");

	CHECK_INT(place_write(&place, "in", ODD_BYTES, 3), 0);
	CHECK_INT(run_shell(&place, "cat in | " CP "- lease:token"), 0);
	CHECK_STR(output.err, "");
	check_kept(&h, ODD_BYTES);
	CHECK_INT(run_shell(&place, CP "lease:token - | cat >out"), 0);
	CHECK_STR(output.err, "");
	CHECK_INT(place_holds(&place, "out", ODD_BYTES, 3), 1);
	CHECK_INT(harness_stop(&h), 0);
}

/* Exactly what was asked for goes, one byte more does not, and leaves nothing behind. */
TEST(cp__through_a_pipe_of_a_size)
{
	HARNESS(h, .extra = GRACE);
	PLACE(place, "alpha");

	CHECK_INT(place_write(&place, "in", MIB + 1, 4), 0);
	CHECK_INT(run_shell(&place, "cat in | " CP "--size 1MiB - lease:token"), 1);
	CHECK(strstr(output.err, "- is longer than the lease") != NULL);
	CHECK(!has_token(&place));
	CHECK(harness_wait_number(&h, "pool.leased_bytes", 0, 10000));
	CHECK_INT(run_shell(&place, "head -c 1048576 in | " CP "--size 1MiB - lease:token"), 0);
	check_kept(&h, MIB);
	CHECK_INT(harness_stop(&h), 0);
}

TEST(cp__what_is_longer_than_the_pool_is_refused)
{
	HARNESS(h, .pool_size = "8MiB", .extra = GRACE);
	PLACE(place, "alpha");
	char lease[PLACE_TEXT_MAX], in[PLACE_TEXT_MAX];

	lease_name(&place, lease);
	CHECK_INT(place_write(&place, "in", ODD_BYTES, 5), 0);
	CHECK_INT(RUN(&place, "mempool-cp", place_path(&place, "in", in), lease), 1);
	CHECK(strstr(output.err, "error -1011") != NULL);
	CHECK(!has_token(&place));
	CHECK_INT(run_shell(&place, "cat in | " CP "- lease:token"), 1);
	CHECK(strstr(output.err, "the lease cannot get the length that is needed") != NULL);
	CHECK(!has_token(&place));
	CHECK(harness_wait_number(&h, "pool.leased_bytes", 0, 10000));
	CHECK_INT(harness_stop(&h), 0);
}

TEST(cp__files_that_are_of_no_use)
{
	HARNESS(h, .extra = GRACE);
	PLACE(place, "alpha");
	char lease[PLACE_TEXT_MAX], in[PLACE_TEXT_MAX], out[PLACE_TEXT_MAX];

	lease_name(&place, lease);
	place_path(&place, "in", in);
	CHECK_INT(RUN(&place, "mempool-cp", in, lease), 1);
	CHECK(strstr(output.err, "No such file") != NULL);
	CHECK(!has_token(&place));
	CHECK_INT(place_write(&place, "in", 0, 6), 0);
	CHECK_INT(RUN(&place, "mempool-cp", in, lease), 1);
	CHECK(strstr(output.err, "is empty") != NULL);
	CHECK(!has_token(&place));
	/* A token is never written over. */
	CHECK_INT(place_write(&place, "in", 10, 6), 0);
	CHECK_INT(place_write(&place, "token", 10, 7), 0);
	CHECK_INT(RUN(&place, "mempool-cp", in, lease), 1);
	CHECK(strstr(output.err, "File exists") != NULL);
	CHECK_INT(place_holds(&place, "token", 10, 7), 1);
	CHECK_INT(RUN(&place, "mempool-cp", lease, place_path(&place, "out", out)), 1);
	CHECK(strstr(output.err, "not the token of a lease") != NULL);
	CHECK_INT(harness_stop(&h), 0);
}

/* A lease that has ended: the file that was to be written is not touched. */
TEST(cp__back_from_a_lease_that_is_gone)
{
	HARNESS(h, .extra = GRACE);
	PLACE(place, "alpha");
	char lease[PLACE_TEXT_MAX], in[PLACE_TEXT_MAX];

	lease_name(&place, lease);
	CHECK_INT(place_write(&place, "in", 10, 8), 0);
	place_path(&place, "in", in);
	CHECK_INT(RUN(&place, "mempool-cp", "--ttl", "1s", in, lease), 0);
	CHECK(harness_wait_number(&h, "pool.leased_bytes", 0, 10000));
	CHECK_INT(RUN(&place, "mempool-cp", lease, in), 1);
	CHECK(strstr(output.err, "the lease cannot be had: error -103") != NULL);
	CHECK_INT(place_holds(&place, "in", 10, 8), 1);
	CHECK_INT(harness_stop(&h), 0);
}

TEST(cp__another_tenant_does_not_get_it)
{
	HARNESS(h, .extra = GRACE);
	PLACE(place, "alpha");
	PLACE(other, "beta");
	char lease[PLACE_TEXT_MAX], in[PLACE_TEXT_MAX], out[PLACE_TEXT_MAX];

	lease_name(&place, lease);
	place_path(&place, "out", out);
	CHECK_INT(place_write(&place, "in", 10, 9), 0);
	CHECK_INT(RUN(&place, "mempool-cp", place_path(&place, "in", in), lease), 0);
	CHECK_INT(RUN(&other, "mempool-cp", lease, out), 1);
	CHECK(strstr(output.err, "error -1030") != NULL);
	CHECK(access(out, F_OK) < 0);
	CHECK_INT(RUN(&place, "mempool-cp", lease, out), 0);
	CHECK_INT(place_holds(&place, "out", 10, 9), 1);
	CHECK_INT(harness_stop(&h), 0);
}

/* It is renewed while nothing comes; its time runs from the end of the copy. */
TEST(cp__a_source_that_pauses_for_longer_than_the_lease_lasts)
{
	HARNESS(h, .extra = GRACE);
	PLACE(place, "alpha");

	CHECK_INT(place_write(&place, "in", 2 * MIB, 10), 0);
	CHECK_INT(run_shell(&place, "(head -c 1000000 in; sleep 4; tail -c +1000001 in) | " CP
				    "--ttl 3s - lease:token"),
		  0);
	CHECK_STR(output.err, "");
	CHECK_INT(run_shell(&place, CP "lease:token out"), 0);
	CHECK_INT(place_holds(&place, "out", 2 * MIB, 10), 1);
	CHECK_INT(harness_stop(&h), 0);
}

/* Waits for a program that was started. Return: the exit status, or -1. */
static int end_of(pid_t pid, int out)
{
	int status = -1;

	(void)waitpid(pid, &status, 0);
	close(out);
	return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

/* Half of it has come, and no more will: it gives back what it has. */
TEST(cp__stopped_by_a_signal)
{
	HARNESS(h, .extra = GRACE);
	PLACE(place, "alpha");
	char program[PATH_MAX], lease[PLACE_TEXT_MAX], in[PLACE_TEXT_MAX];
	const char *argv[] = {harness_program("mempool-cp", program),
			      "--daemon",
			      place.address,
			      "--key-file",
			      place.key,
			      place_path(&place, "in", in),
			      lease_name(&place, lease),
			      NULL};
	int fifo, out;
	pid_t pid;

	CHECK_INT(mkfifo(in, 0600), 0);
	fifo = open(in, O_RDWR | O_CLOEXEC);
	CHECK(fifo >= 0);
	CHECK_INT(write(fifo, "some bytes", 10), 10);
	pid = harness_spawn(argv, &out);
	CHECK(pid > 0);
	CHECK(harness_wait_number(&h, "leases.active", 1, 30000));
	CHECK(has_token(&place));
	CHECK_INT(kill(pid, SIGTERM), 0);
	CHECK_INT(end_of(pid, out), 1);
	close(fifo);
	CHECK(!has_token(&place));
	CHECK(harness_wait_number(&h, "pool.leased_bytes", 0, 10000));
	CHECK_INT(harness_stop(&h), 0);
}

/* Runs it with a terminal as standard error; what it wrote there is in output.err. */
static int run_on_terminal(const char *const *argv)
{
	int terminal = posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC);
	posix_spawn_file_actions_t actions;
	size_t used = 0;
	int status = -1;
	ssize_t n;
	pid_t pid;

	if (terminal < 0 || grantpt(terminal) != 0 || unlockpt(terminal) != 0)
		return -1;
	posix_spawn_file_actions_init(&actions);
	posix_spawn_file_actions_addopen(&actions, STDERR_FILENO, ptsname(terminal),
					 O_RDWR | O_NOCTTY, 0);
	if (posix_spawnp(&pid, argv[0], &actions, NULL, (char *const *)argv, environ) == 0) {
		/* Ends with EIO when the last one that has it open is gone. */
		while (used < sizeof(output.err) - 1 &&
		       (n = read(terminal, output.err + used, sizeof(output.err) - 1 - used)) > 0)
			used += (size_t)n;
		(void)waitpid(pid, &status, 0);
	}
	output.err[used] = '\0';
	posix_spawn_file_actions_destroy(&actions);
	close(terminal);
	return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

TEST(cp__shows_progress_on_a_terminal_only)
{
	HARNESS(h, .pool_size = "32MiB", .extra = GRACE);
	PLACE(place, "alpha");
	char program[PATH_MAX], lease[PLACE_TEXT_MAX], in[PLACE_TEXT_MAX], out[PLACE_TEXT_MAX];
	const char *argv[] = {harness_program("mempool-cp", program),
			      "--daemon",
			      place.address,
			      "--key-file",
			      place.key,
			      place_path(&place, "in", in),
			      lease_name(&place, lease),
			      NULL};

	CHECK_INT(place_write(&place, "in", ODD_BYTES, 11), 0);
	CHECK_INT(run_on_terminal(argv), 0);
	CHECK(strstr(output.err, "100 %  9.01 MiB of 9.01 MiB") != NULL);
	CHECK(strchr(output.err, '=') != NULL);
	place_path(&place, "out", out);
	CHECK_INT(RUN(&place, "mempool-cp", lease, out), 0);
	CHECK_STR(output.err, "");
	CHECK_INT(RUN(&place, "mempool-cp", "--progress", lease, out), 0);
	CHECK(strstr(output.err, "100 %") != NULL);
	CHECK_INT(RUN(&place, "mempool-cp", "--progress", "--quiet", lease, out), 0);
	CHECK_STR(output.err, "");
	CHECK_INT(harness_stop(&h), 0);
}

TEST(tools__wrong_use)
{
	PLACE(place, "alpha");

	CHECK_INT(RUN(&place, "mempool-cp", "a"), 2);
	CHECK_INT(RUN(&place, "mempool-cp", "a", "b"), 2);
	CHECK_INT(RUN(&place, "mempool-cp", "lease:a", "lease:b"), 2);
	CHECK_INT(RUN(&place, "mempool-cp", "lease:", "b"), 2);
	CHECK_INT(RUN(&place, "mempool-cp", "--release", "a", "lease:b"), 2);
	CHECK_INT(RUN(&place, "mempool-cp", "--size", "1MiB", "lease:a", "b"), 2);
	CHECK_INT(RUN(&place, "mempool-cp", "--size", "0", "a", "lease:b"), 2);
	CHECK_INT(RUN(&place, "mempool-cp", "--ttl", "1", "a", "lease:b"), 2);
	CHECK_INT(RUN(&place, "mempool-perf", "--op", "jump"), 2);
	CHECK_INT(RUN(&place, "mempool-perf", "--size", "2GiB"), 2);
	CHECK_INT(RUN(&place, "mempool-perf", "--size", "0"), 2);
	CHECK_INT(RUN(&place, "mempool-perf", "--size", "4,"), 2);
	CHECK_INT(RUN(&place, "mempool-perf", "--depth", "2"), 2);
	CHECK_INT(RUN(&place, "mempool-perf", "--mode", "raw", "--depth", "65"), 2);
	CHECK_INT(RUN(&place, "mempool-perf", "--mode", "async", "--depth", "4097"), 2);
	CHECK_INT(RUN(&place, "mempool-perf", "--mode", "async", "--depth", "64,0"), 2);
	/* As deep as the one mode goes, but not the other. */
	CHECK_INT(RUN(&place, "mempool-perf", "--mode", "async", "--depth", "65", "--raw"), 2);
	CHECK_INT(RUN(&place, "mempool-perf", "--op", "fetch-add", "--depth", "2"), 2);
	CHECK_INT(RUN(&place, "mempool-perf", "--threads", "65"), 2);
	CHECK_INT(RUN(&place, "mempool-perf", "--mode", "raw", "--raw"), 2);
	CHECK_INT(RUN(&place, "mempool-perf", "--nonsense"), 2);
	CHECK_INT(RUN(&place, "mempool-perf", "nonsense"), 2);
	CHECK_INT(RUN(&place, "mempool-perf", "--daemon-key", "nonsense", "--daemon", "127.0.0.1"),
		  2);
	CHECK_INT(RUN(&place, "mempool-perf", "--help"), 0);
	CHECK_INT(RUN(&place, "mempool-cp", "--version"), 0);
	CHECK(strncmp(output.out, "mempool-cp ", 11) == 0);
}

TEST(tools__without_a_daemon)
{
	PLACE(place, "alpha");
	char lease[PLACE_TEXT_MAX], in[PLACE_TEXT_MAX];

	CHECK_INT(place_write(&place, "in", 10, 12), 0);
	CHECK_INT(
		RUN(&place, "mempool-cp", place_path(&place, "in", in), lease_name(&place, lease)),
		3);
	CHECK(!has_token(&place));
	CHECK_INT(RUN(&place, "mempool-perf", "--duration", "100ms"), 3);
}

/* mempool-perf */

static double number_of(const json_t *object, const char *name)
{
	return json_number_value(json_object_get(object, name));
}

/* Figures that fit together. */
static void check_row(const json_t *row)
{
	const json_t *latency = json_object_get(row, "latency_ns");
	double rate = number_of(row, "operations_per_s");

	CHECK(number_of(row, "operations") >= 5);
	CHECK(number_of(row, "elapsed_ns") > 0);
	CHECK(rate > 0);
	CHECK(number_of(row, "bytes_per_s") > rate * number_of(row, "size_bytes") * 0.999);
	CHECK(number_of(row, "bytes_per_s") < rate * number_of(row, "size_bytes") * 1.001);
	CHECK(number_of(latency, "min") > 0);
	CHECK(number_of(latency, "min") <= number_of(latency, "mean"));
	CHECK(number_of(latency, "mean") <= number_of(latency, "max"));
	CHECK(number_of(latency, "min") <= number_of(latency, "p50"));
	CHECK(number_of(latency, "p50") <= number_of(latency, "p99"));
	CHECK(number_of(latency, "p99") <= number_of(latency, "max"));
}

static void check_mode(const json_t *row, const char *operation, uint64_t size_bytes,
		       const char *mode)
{
	CHECK_STR(json_string_value(json_object_get(row, "operation")), operation);
	CHECK_STR(json_string_value(json_object_get(row, "mode")), mode);
	CHECK_INT(json_integer_value(json_object_get(row, "size_bytes")), size_bytes);
	check_row(row);
}

static void print_ratio(const json_t *row)
{
	printf("# %s of %lld bytes: library / raw = %.3f (%.0f operations/s)\n",
	       json_string_value(json_object_get(row, "operation")),
	       (long long)json_integer_value(json_object_get(row, "size_bytes")),
	       number_of(row, "ratio"), number_of(row, "operations_per_s"));
}

/* Every size and operation has a ratio to verbs alone. */
TEST(perf__compares_with_verbs_alone)
{
	static const char *const operations[] = {"read", "write"};
	static const uint64_t sizes[] = {1, 8, 4096, 65536, MIB};
	HARNESS(h, .pool_size = NULL);
	PLACE(place, "alpha");
	json_t *all, *results;
	size_t at = 0;

	CHECK_INT(RUN(&place, "mempool-perf", "--raw", "--json", "--duration", "300ms", "--size",
		      "1,8,4KiB,64KiB,1MiB"),
		  0);
	CHECK_STR(output.err, "");
	all = json_loads(output.out, 0, NULL);
	results = json_object_get(all, "results");
	CHECK_INT(json_array_size(results), 20);
	for (size_t i = 0; i < 10; i++) {
		const char *operation = operations[i / 5];
		const json_t *library = json_array_get(results, at++);
		const json_t *raw = json_array_get(results, at++);

		check_mode(library, operation, sizes[i % 5], "sync");
		check_mode(raw, operation, sizes[i % 5], "raw");
		CHECK(number_of(library, "ratio") > 0.01);
		CHECK(json_object_get(raw, "ratio") == NULL);
		print_ratio(library);
	}
	json_decref(all);
	CHECK(harness_wait_number(&h, "sessions", 0, 10000));
	CHECK_INT(harness_stop(&h), 0);
}

TEST(perf__threads_and_depths)
{
	HARNESS(h, .pool_size = "64MiB");
	PLACE(place, "alpha");
	json_t *all, *results;

	CHECK_INT(RUN(&place, "mempool-perf", "--mode", "raw", "--json", "--duration", "200ms",
		      "--op", "write,read", "--size", "4KiB", "--depth", "1,16,64", "--threads",
		      "3"),
		  0);
	all = json_loads(output.out, 0, NULL);
	results = json_object_get(all, "results");
	CHECK_INT(json_array_size(results), 6);
	for (size_t i = 0; i < 6; i++) {
		const json_t *row = json_array_get(results, i);

		check_mode(row, i < 3 ? "write" : "read", 4096, "raw");
		CHECK_INT(number_of(row, "threads"), 3);
		CHECK_INT(number_of(row, "depth"), i % 3 == 0 ? 1 : i % 3 == 1 ? 16 : 64);
	}
	json_decref(all);
	CHECK_INT(RUN(&place, "mempool-perf", "--json", "--raw", "--duration", "200ms", "--size",
		      "8", "--threads", "3"),
		  0);
	CHECK_INT(harness_stop(&h), 0);
}

/* Figures of a run with one operation for each of the depths; the size is always the same. */
static void check_depths(const char *const *operations, size_t operation_count,
			 const uint32_t *depths, size_t depth_count, uint64_t size_bytes)
{
	json_t *all = json_loads(output.out, 0, NULL);
	const json_t *results = json_object_get(all, "results");

	CHECK_INT(json_array_size(results), operation_count * depth_count);
	for (size_t i = 0; i < operation_count * depth_count; i++) {
		const json_t *row = json_array_get(results, i);

		check_mode(row, operations[i / depth_count], size_bytes, "async");
		CHECK_INT(number_of(row, "depth"), depths[i % depth_count]);
		printf("# %s, depth %u: %.0f operations/s\n", operations[i / depth_count],
		       depths[i % depth_count], number_of(row, "operations_per_s"));
	}
	json_decref(all);
}

/* More than a batch of the tool's, and more than the depth that a queue has by default. */
TEST(perf__queues_of_threads)
{
	static const char *const operations[] = {"write", "read"};
	static const uint32_t depths[] = {1, 16, 64, 65, 256};
	HARNESS(h, .pool_size = "64MiB");
	PLACE(place, "alpha");

	CHECK_INT(RUN(&place, "mempool-perf", "--mode", "async", "--json", "--duration", "200ms",
		      "--op", "write,read", "--size", "4KiB", "--depth", "1,16,64,65,256",
		      "--threads", "3"),
		  0);
	CHECK_STR(output.err, "");
	check_depths(operations, 2, depths, 5, 4096);
	CHECK(harness_wait_number(&h, "sessions", 0, 10000));
	printf("# %lld data connections were lost\n",
	       (long long)harness_number(&h, "counters.lanes_lost"));
	CHECK_INT(harness_stop(&h), 0);
}

/* Each takes five work requests at least, which is more than the queue has under way. */
TEST(perf__long_operations_in_a_queue)
{
	static const char *const operations[] = {"read", "write"};
	static const uint32_t depths[] = {2};
	HARNESS(h, .pool_size = "64MiB");
	PLACE(place, "alpha");

	CHECK_INT(RUN(&place, "mempool-perf", "--mode", "async", "--json", "--duration", "200ms",
		      "--size", "5MiB", "--depth", "2"),
		  0);
	CHECK_STR(output.err, "");
	check_depths(operations, 2, depths, 1, 5 * MIB);
	CHECK_INT(harness_stop(&h), 0);
}

/* Two data connections of one session, by turns. */
TEST(perf__compares_a_queue_with_verbs_alone)
{
	HARNESS(h, .pool_size = NULL);
	PLACE(place, "alpha");
	json_t *all, *results;

	CHECK_INT(RUN(&place, "mempool-perf", "--mode", "async", "--raw", "--json", "--duration",
		      "300ms", "--size", "8,4KiB,64KiB", "--depth", "1,64"),
		  0);
	CHECK_STR(output.err, "");
	all = json_loads(output.out, 0, NULL);
	results = json_object_get(all, "results");
	CHECK_INT(json_array_size(results), 24);
	for (size_t i = 0; i < 24; i += 2) {
		const json_t *library = json_array_get(results, i);
		const json_t *raw = json_array_get(results, i + 1);

		CHECK_STR(json_string_value(json_object_get(library, "mode")), "async");
		CHECK_STR(json_string_value(json_object_get(raw, "mode")), "raw");
		CHECK_INT(number_of(raw, "depth"), number_of(library, "depth"));
		check_row(library);
		check_row(raw);
		CHECK(number_of(library, "ratio") > 0.01);
		print_ratio(library);
	}
	json_decref(all);
	CHECK_INT(harness_stop(&h), 0);
}

/* They have one size, whatever is asked for, and the lease is no longer than that. */
TEST(perf__atomic_operations)
{
	static const char *const operations[] = {"fetch-add", "compare-swap"};
	static const uint32_t depths[] = {1, 32};
	HARNESS(h, .pool_size = NULL);
	PLACE(place, "alpha");
	json_t *all, *results;
	int status;

	status = RUN(&place, "mempool-perf", "--op", "fetch-add,compare-swap", "--raw", "--json",
		     "--duration", "200ms", "--size", "1,1GiB");
	if (status == 1 && strstr(output.err, "error -1016") != NULL) {
		CHECK_INT(harness_stop(&h), 0);
		SKIP("the device does not keep atomics inside their window");
	}
	CHECK_INT(status, 0);
	CHECK_STR(output.err, "");
	all = json_loads(output.out, 0, NULL);
	results = json_object_get(all, "results");
	CHECK_INT(json_array_size(results), 4);
	for (size_t i = 0; i < 2; i++) {
		check_mode(json_array_get(results, 2 * i), operations[i], 8, "sync");
		check_mode(json_array_get(results, 2 * i + 1), operations[i], 8, "raw");
		print_ratio(json_array_get(results, 2 * i));
	}
	json_decref(all);
	CHECK_INT(RUN(&place, "mempool-perf", "--op", "fetch-add,compare-swap", "--mode", "async",
		      "--json", "--duration", "200ms", "--depth", "1,32"),
		  0);
	CHECK_STR(output.err, "");
	check_depths(operations, 2, depths, 2, 8);
	CHECK_INT(harness_stop(&h), 0);
}

TEST(perf__a_table_for_people)
{
	HARNESS(h, .pool_size = NULL);
	PLACE(place, "alpha");

	CHECK_INT(RUN(&place, "mempool-perf", "--raw", "--duration", "100ms", "--size", "8"), 0);
	CHECK_INT(harness_count_lines(output.out), 5);
	CHECK(strstr(output.out, "OPERATION") == output.out);
	CHECK(strstr(output.out, "RATIO") != NULL);
	printf("# %s\n", strchr(output.out, '\n') + 1);
	CHECK_INT(harness_stop(&h), 0);
}

/* The loop with verbs alone learns it from the device, and its memory is safe then. */
static void check_taken_back(const char *mode)
{
	HARNESS(h, .pool_size = NULL);
	PLACE(place, "alpha");
	char program[PATH_MAX];
	const char *argv[] = {harness_program("mempool-perf", program),
			      "--daemon",
			      place.address,
			      "--key-file",
			      place.key,
			      "--mode",
			      mode,
			      "--op",
			      "read",
			      "--size",
			      "4KiB",
			      "--duration",
			      "5min",
			      NULL};
	int out;
	pid_t pid;

	pid = harness_spawn(argv, &out);
	CHECK(pid > 0);
	CHECK(harness_wait_number(&h, "leases.active", 1, 30000));
	harness_sleep_ms(500);
	CHECK_INT(harness_order(&h, "lease.revoke",
				json_pack("{s:s, s:b}", "tenant", "alpha", "now", 1), NULL),
		  0);
	CHECK_INT(end_of(pid, out), 1);
	CHECK(harness_wait_number(&h, "sessions", 0, 10000));
	CHECK_INT(harness_stop(&h), 0);
}

TEST(perf__a_lease_that_is_taken_back)
{
	check_taken_back("sync");
}

TEST(perf__a_lease_that_is_taken_back_from_a_queue)
{
	check_taken_back("async");
}

TEST(perf__a_lease_that_is_taken_back_from_verbs_alone)
{
	check_taken_back("raw");
}

TEST(perf__what_the_daemon_refuses)
{
	HARNESS(h, .pool_size = "8MiB");
	PLACE(place, "alpha");

	CHECK_INT(RUN(&place, "mempool-perf", "--size", "16MiB"), 1);
	CHECK(strstr(output.err, "error -1011") != NULL);
	CHECK(harness_wait_number(&h, "sessions", 0, 10000));
	CHECK_INT(harness_stop(&h), 0);
}
