/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * mempool-perf with a real daemon: measurements have all figures, and a ratio to verbs alone.
 */
#include <jansson.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/integration/harness.h"
#include "tests/integration/place.h"
#include "tests/integration/programs.h"

#define LIMIT_MS 90000
#define STOP_MS	 10000 /* from a signal to the end */

static struct harness_output output;

#define RUN(place, name, ...) programs_run(place, name, PROGRAMS_ARGS(__VA_ARGS__), &output)

TEST(perf__wrong_use)
{
	PLACE(place, "alpha");

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
}

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

/* Figures of the last run; NULL: there are none. */
static const json_t *measure(const struct place *place, const char *const *args)
{
	static json_t *all; /* of the run before */

	json_decref(all);
	all = NULL;
	if (programs_run(place, "mempool-perf", args, &output) == 0 && output.err[0] == '\0')
		all = json_loads(output.out, 0, NULL);
	if (all == NULL)
		printf("# status %d\n# %s\n", output.status, output.err);
	return json_object_get(all, "results");
}

/* For each case; more of it makes the ratios better, but no test. */
static const char *duration(void)
{
	static char text[32];

	snprintf(text, sizeof(text), "%ums", harness_figure(FIGURE_MEASURE_MS));
	return text;
}

#define MEASURE(place, ...) \
	measure(place, PROGRAMS_ARGS("--json", "--duration", duration(), __VA_ARGS__))

/* Every size and operation has a ratio to verbs alone. */
static void check_ratios(const struct place *place)
{
	static const char *const operations[] = {"read", "write"};
	static const uint64_t sizes[] = {1, 8, 4096, 65536, MIB};
	const json_t *results = MEASURE(place, "--raw", "--size", "1,8,4KiB,64KiB,1MiB");
	size_t at = 0;

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
}

/*
 * Verbs alone do one operation after the other, and nothing else is in their time: not what must
 * be done once, such as the registration of all the memory that the longest case needs.
 */
static void check_raw_is_fair(const struct place *place)
{
	const json_t *results =
		measure(place, PROGRAMS_ARGS("--json", "--duration", "50ms", "--mode", "raw",
					     "--op", "write", "--size", "8,8MiB"));

	CHECK_INT(json_array_size(results), 2);
	for (size_t i = 0; i < 2; i++) {
		const json_t *row = json_array_get(results, i);
		double busy_ns = number_of(row, "operations") *
				 number_of(json_object_get(row, "latency_ns"), "mean");

		printf("# write of %.0f bytes: %.3f of the time\n", number_of(row, "size_bytes"),
		       busy_ns / number_of(row, "elapsed_ns"));
		CHECK(busy_ns >= 0.9 * number_of(row, "elapsed_ns"));
	}
}

static void check_raw_depths(const struct place *place)
{
	const json_t *results = MEASURE(place, "--mode", "raw", "--op", "write,read", "--size",
					"4KiB", "--depth", "1,16,64", "--threads", "3");

	CHECK_INT(json_array_size(results), 6);
	for (size_t i = 0; i < 6; i++) {
		const json_t *row = json_array_get(results, i);

		check_mode(row, i < 3 ? "write" : "read", 4096, "raw");
		CHECK_INT(number_of(row, "threads"), 3);
		CHECK_INT(number_of(row, "depth"), i % 3 == 0 ? 1 : i % 3 == 1 ? 16 : 64);
	}
	results = MEASURE(place, "--raw", "--size", "8", "--threads", "3");
	CHECK_INT(json_array_size(results), 4);
}

/* Into a table there go a head and a line for each case and mode. */
static void check_table(const struct place *place)
{
	CHECK_INT(RUN(place, "mempool-perf", "--raw", "--duration", "50ms", "--size", "8"), 0);
	CHECK_INT(harness_count_lines(output.out), 5);
	CHECK(strstr(output.out, "OPERATION") == output.out);
	CHECK(strstr(output.out, "RATIO") != NULL);
	printf("# %s\n", strchr(output.out, '\n') + 1);
}

/* What cannot be printed is no lack of memory. */
static void check_full_output(const struct place *place)
{
	char program[PATH_MAX];
	const char *argv[] = {"sh",
			      "-c",
			      "exec \"$0\" --daemon \"$1\" --key-file \"$2\" --timeout 60s --json"
			      " --duration 50ms --op read --size 8 >/dev/full",
			      harness_program("mempool-perf", program),
			      place->address,
			      place->key,
			      NULL};

	CHECK_INT(harness_run(argv, LIMIT_MS, &output), 0);
	CHECK_INT(output.status, 1);
	CHECK_STR(output.err, "mempool-perf: standard output cannot be written\n");
}

static void check_refused(const struct place *place)
{
	CHECK_INT(RUN(place, "mempool-perf", "--size", "128MiB"), 1);
	CHECK(strstr(output.err, "error -1011") != NULL);
}

#define MEASURED .pool_size = "64MiB", .extra = "\"orphan_grace\": \"1min\""

TEST(perf__calls_and_verbs_alone)
{
	HARNESS(h, MEASURED);
	PLACE(place, "alpha");

	check_ratios(&place);
	check_raw_is_fair(&place);
	check_raw_depths(&place);
	check_table(&place);
	check_full_output(&place);
	check_refused(&place);
	CHECK(harness_wait_number(&h, "sessions", 0, 10000));
	CHECK_INT(harness_number(&h, "pool.leased_bytes"), 0);
	CHECK_INT(harness_stop(&h), 0);
}

/* Figures of a run with one operation for each of the depths; the size is always the same. */
static void check_depths(const json_t *results, const char *const *operations,
			 size_t operation_count, const uint32_t *depths, size_t depth_count,
			 uint64_t size_bytes)
{
	CHECK_INT(json_array_size(results), operation_count * depth_count);
	for (size_t i = 0; i < operation_count * depth_count; i++) {
		const json_t *row = json_array_get(results, i);

		check_mode(row, operations[i / depth_count], size_bytes, "async");
		CHECK_INT(number_of(row, "depth"), depths[i % depth_count]);
		printf("# %s, depth %u: %.0f operations/s\n", operations[i / depth_count],
		       depths[i % depth_count], number_of(row, "operations_per_s"));
	}
}

/* More than a batch of the tool's, and more than the depth that a queue has by default. */
static void check_queue_depths(const struct place *place)
{
	static const char *const operations[] = {"write", "read"};
	static const uint32_t depths[] = {1, 16, 64, 65, 256};

	check_depths(MEASURE(place, "--mode", "async", "--op", "write,read", "--size", "4KiB",
			     "--depth", "1,16,64,65,256", "--threads", "3"),
		     operations, 2, depths, 5, 4096);
}

/* Each takes five work requests at least, which is more than the queue has under way. */
static void check_long_operations(const struct place *place)
{
	static const char *const operations[] = {"read", "write"};
	static const uint32_t depths[] = {2};

	check_depths(MEASURE(place, "--mode", "async", "--size", "5MiB", "--depth", "2"),
		     operations, 2, depths, 1, 5 * MIB);
}

/* Two data connections of one session, by turns. */
static void check_queue_ratios(const struct place *place)
{
	const json_t *results = MEASURE(place, "--mode", "async", "--raw", "--size", "8,4KiB,64KiB",
					"--depth", "1,64");

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
}

/* Leases may not last longer than those of the tool. */
TEST(perf__queues)
{
	HARNESS(h, MEASURED, .ttl_max = "1min");
	PLACE(place, "alpha");

	check_queue_depths(&place);
	check_long_operations(&place);
	check_queue_ratios(&place);
	CHECK(harness_wait_number(&h, "sessions", 0, 10000));
	printf("# %lld data connections were lost\n",
	       (long long)harness_number(&h, "counters.lanes_lost"));
	CHECK_INT(harness_stop(&h), 0);
}

/* They have one size, whatever is asked for, and the lease is no longer than that. */
TEST(perf__atomic_operations)
{
	static const char *const operations[] = {"fetch-add", "compare-swap"};
	static const uint32_t depths[] = {1, 32};
	HARNESS(h, .pool_size = NULL);
	PLACE(place, "alpha");
	const json_t *results =
		MEASURE(&place, "--op", "fetch-add,compare-swap", "--raw", "--size", "1,1GiB");

	if (output.status == 1 && strstr(output.err, "error -1016") != NULL) {
		CHECK_INT(harness_stop(&h), 0);
		SKIP("the device does not keep atomics inside their window");
	}
	CHECK_INT(json_array_size(results), 4);
	for (size_t i = 0; i < 2; i++) {
		check_mode(json_array_get(results, 2 * i), operations[i], 8, "sync");
		check_mode(json_array_get(results, 2 * i + 1), operations[i], 8, "raw");
		print_ratio(json_array_get(results, 2 * i));
	}
	check_depths(MEASURE(&place, "--op", "fetch-add,compare-swap", "--mode", "async", "--depth",
			     "1,32"),
		     operations, 2, depths, 2, 8);
	CHECK_INT(harness_stop(&h), 0);
}

/* It measures for minutes. Return: pid or -errno. */
static pid_t spawn_perf(const struct place *place, const char *mode, int *ret_out)
{
	return programs_spawn(place, "mempool-perf",
			      PROGRAMS_ARGS("--mode", mode, "--op", "read", "--size", "4KiB",
					    "--duration", "5min"),
			      ret_out);
}

/* The loop with verbs alone learns it from the device, and its memory is safe then. */
static void check_taken_back(struct harness *h, const struct place *place, const char *mode)
{
	int out;
	pid_t pid = spawn_perf(place, mode, &out);

	CHECK(pid > 0);
	CHECK(harness_wait_number(h, "leases.active", 1, 30000));
	harness_sleep_ms(500);
	CHECK_INT(harness_order(h, "lease.revoke",
				json_pack("{s:s, s:b}", "tenant", "alpha", "now", 1), NULL),
		  0);
	CHECK_INT(programs_end(pid, out, LIMIT_MS), 1);
	CHECK(harness_wait_number(h, "sessions", 0, 10000));
}

/* The lease is given back, not left to those who might come back for it. */
static void check_stopped(struct harness *h, const struct place *place, const char *mode)
{
	int out;
	pid_t pid = spawn_perf(place, mode, &out);

	CHECK(pid > 0);
	CHECK(harness_wait_number(h, "leases.active", 1, 30000));
	harness_sleep_ms(300);
	CHECK_INT(kill(pid, SIGTERM), 0);
	CHECK_INT(programs_end(pid, out, STOP_MS), 1);
	CHECK(harness_wait_number(h, "sessions", 0, 10000));
	CHECK_INT(harness_number(h, "leases.orphaned"), 0);
	CHECK(harness_wait_number(h, "pool.leased_bytes", 0, 10000));
}

TEST(perf__ended_early)
{
	static const char *const modes[] = {"sync", "async", "raw"};
	HARNESS(h, MEASURED);
	PLACE(place, "alpha");

	for (size_t i = 0; i < 3; i++) {
		check_taken_back(&h, &place, modes[i]);
		check_stopped(&h, &place, modes[i]);
	}
	CHECK_INT(harness_stop(&h), 0);
}

TEST(perf__without_a_daemon)
{
	PLACE(place, "alpha");

	CHECK_INT(RUN(&place, "mempool-perf", "--duration", "100ms"), 3);
}
