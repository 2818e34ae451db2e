/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * mempool-perf: how fast operations on leases are, and how near that comes to verbs alone.
 *
 * Here are the command line, and the order in which cases are measured.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/tools/perf.h"
#include "client/tools/perf_report.h"
#include "client/tools/perf_run.h"
#include "client/tools/stop.h"
#include "client/tools/tool.h"
#include "common/units.h"

#ifndef MEMPOOL_VERSION
#error "the build must define MEMPOOL_VERSION"
#endif

#define LIST_MAX	    32
#define WORD_MAX	    64
#define SIZE_MAX_BYTES	    (UINT64_C(1) << 30)
#define DEFAULT_DURATION_MS 1000
#define DEFAULT_SIZES	    "8,4KiB,64KiB,1MiB"
#define DEFAULT_OPS	    "read,write"

struct options {
	struct tool_session session;
	const struct perf_op *ops[LIST_MAX];
	size_t op_count;
	uint64_t sizes[LIST_MAX];
	size_t size_count;
	uint32_t depths[LIST_MAX];
	size_t depth_count;
	const struct perf_mode *modes[2]; /* the second is raw, to compare with */
	size_t mode_count;
	uint32_t threads;
	uint32_t duration_ms;
	bool json;
};

static void print_help(void)
{
	fputs("Usage: mempool-perf [OPTION...]\n"
	      "Measure how fast operations on leases of a mempoold are. Each thread has a "
	      "session,\n"
	      "a data connection and a lease of its own.\n\n"
	      "Options:\n" TOOL_OPTIONS_HELP
	      "  --op LIST            of read, write, fetch-add, compare-swap (" DEFAULT_OPS ")\n"
	      "  --size LIST          bytes of a read or write (" DEFAULT_SIZES ")\n"
	      "  --depth LIST         operations at a time in each thread (1)\n"
	      "  --threads N          threads (1)\n"
	      "  --mode MODE          sync: one call after the other; async: through a queue;\n"
	      "                       raw: verbs alone (sync)\n"
	      "  --raw                compare: measure each case with verbs alone, too, by turns\n"
	      "                       and on the session's connection, and print the ratio\n"
	      "  --duration DURATION  of a case in a mode (1s)\n"
	      "  --json               print one JSON object\n" TOOL_VERSION_HELP
	      "\n" TOOL_STATUS_HELP,
	      stdout);
}

/* Lists: words between commas. */

typedef enum tool_status (*take_fn)(struct options *options, const char *word);

static enum tool_status take_list(struct options *options, const char *list, take_fn take)
{
	enum tool_status status = TOOL_OK;
	char word[WORD_MAX];
	size_t len;

	do {
		len = strcspn(list, ",");
		if (len == 0 || len >= sizeof(word))
			return tool_usage("not a list of words between commas: %s", list);
		memcpy(word, list, len);
		word[len] = '\0';
		status = take(options, word);
		list += len + (list[len] == ',');
	} while (status == TOOL_OK && (*list != '\0' || list[-1] == ','));
	return status;
}

static enum tool_status take_op(struct options *options, const char *word)
{
	const struct perf_op *op = perf_op_find(word);

	if (op == NULL)
		return tool_usage("there is no such operation: %s", word);
	if (options->op_count == LIST_MAX)
		return tool_usage("--op takes %d words at most", LIST_MAX);
	options->ops[options->op_count++] = op;
	return TOOL_OK;
}

static enum tool_status take_size(struct options *options, const char *word)
{
	uint64_t size_bytes;

	if (units_parse_size(word, &size_bytes) < 0 || size_bytes == 0 ||
	    size_bytes > SIZE_MAX_BYTES)
		return tool_usage("--size takes 1B to 1GiB, not %s", word);
	if (options->size_count == LIST_MAX)
		return tool_usage("--size takes %d words at most", LIST_MAX);
	options->sizes[options->size_count++] = size_bytes;
	return TOOL_OK;
}

static enum tool_status take_number(const char *option, const char *word, uint32_t max,
				    uint32_t *ret_number)
{
	unsigned long number;

	errno = 0;
	number = strtoul(word, NULL, 10);
	if (word[0] == '\0' || word[strspn(word, "0123456789")] != '\0' || errno != 0 ||
	    number == 0 || number > max)
		return tool_usage("%s takes 1 to %u, not %s", option, max, word);
	*ret_number = (uint32_t)number;
	return TOOL_OK;
}

static enum tool_status take_depth(struct options *options, const char *word)
{
	if (options->depth_count == LIST_MAX)
		return tool_usage("--depth takes %d words at most", LIST_MAX);
	return take_number("--depth", word, PERF_DEPTH_MAX,
			   &options->depths[options->depth_count++]);
}

static enum tool_status take_mode(struct options *options, const char *word)
{
	options->modes[0] = perf_mode_find(word);
	if (options->modes[0] == NULL)
		return tool_usage("there is no such mode: %s", word);
	return TOOL_OK;
}

/* Cases. */

static size_t size_count_of(const struct options *options, const struct perf_op *op)
{
	return op->size_bytes != 0 ? 1 : options->size_count;
}

static uint64_t size_of(const struct options *options, const struct perf_op *op, size_t index)
{
	return op->size_bytes != 0 ? op->size_bytes : options->sizes[index];
}

static uint64_t longest_of(const struct options *options, const struct perf_op *op)
{
	uint64_t longest_bytes = 0;

	for (size_t i = 0; i < size_count_of(options, op); i++) {
		if (size_of(options, op, i) > longest_bytes)
			longest_bytes = size_of(options, op, i);
	}
	return longest_bytes;
}

static uint64_t lease_bytes(const struct options *options)
{
	uint64_t size_bytes = 0;
	uint32_t depth = 0;

	for (size_t i = 0; i < options->op_count; i++) {
		if (longest_of(options, options->ops[i]) > size_bytes)
			size_bytes = longest_of(options, options->ops[i]);
	}
	for (size_t i = 0; i < options->depth_count; i++)
		depth = options->depths[i] > depth ? options->depths[i] : depth;
	return size_bytes * depth; /* both are limited */
}

static uint32_t rights_of(const struct options *options)
{
	uint32_t rights = 0;

	for (size_t i = 0; i < options->op_count; i++)
		rights |= options->ops[i]->right;
	return rights;
}

static void report(const struct options *options, const struct perf_case *what,
		   const struct perf_tally *tallies, json_t *results)
{
	for (size_t i = 0; i < options->mode_count; i++) {
		const struct perf_tally *raw =
			i == 0 && options->mode_count == 2 ? &tallies[1] : NULL;

		if (options->json)
			(void)json_array_append_new(
				results, perf_report_json(what, options->modes[i], options->threads,
							  &tallies[i], raw));
		else
			perf_report_print(what, options->modes[i], options->threads, &tallies[i],
					  raw);
	}
}

static enum tool_status run_op(const struct options *options, const struct perf_op *op,
			       struct perf_run *run, json_t *results)
{
	size_t count = size_count_of(options, op) * options->depth_count;
	static struct perf_tally tallies[2];
	enum tool_status status = TOOL_OK;

	for (size_t i = 0; i < count && status == TOOL_OK; i++) {
		struct perf_case what = {
			.op = op,
			.size_bytes = size_of(options, op, i / options->depth_count),
			.depth = options->depths[i % options->depth_count],
		};

		status = perf_run_case(run, &what, options->modes, options->mode_count, tallies);
		if (status == TOOL_OK)
			report(options, &what, tallies, results);
	}
	return status;
}

static enum tool_status run_cases(const struct options *options, struct perf_run *run,
				  json_t *results)
{
	enum tool_status status = TOOL_OK;

	for (size_t i = 0; i < options->op_count && status == TOOL_OK; i++)
		status = run_op(options, options->ops[i], run, results);
	return status;
}

static enum tool_status print_json(const struct options *options, json_t *results)
{
	json_t *all = json_pack("{s:s, s:I, s:O}", "version", MEMPOOL_VERSION, "duration_ms",
				(json_int_t)options->duration_ms, "results", results);
	char *text = json_dumps(all, JSON_COMPACT | JSON_ENSURE_ASCII | JSON_REAL_PRECISION(6));

	json_decref(all);
	if (text == NULL) {
		tool_complain("not enough memory");
		return TOOL_FAILED;
	}
	(void)puts(text); /* tool_finish() looks at it */
	free(text);
	return TOOL_OK;
}

static enum tool_status measure(const struct options *options)
{
	static struct perf_run run;
	json_t *results = json_array();
	enum tool_status status;

	stop_catch();
	run.threads = options->threads;
	run.duration_ms = options->duration_ms;
	status = perf_run_open(&run, &options->session, lease_bytes(options), rights_of(options));
	if (status == TOOL_OK && !options->json)
		perf_report_print_head();
	if (status == TOOL_OK)
		status = run_cases(options, &run, results);
	if (status == TOOL_OK && options->json)
		status = print_json(options, results);
	perf_run_close(&run);
	json_decref(results);
	return status;
}

/* The command line. */

enum {
	OPTION_OP = 1,
	OPTION_SIZE,
	OPTION_DEPTH,
	OPTION_THREADS,
	OPTION_MODE,
	OPTION_RAW,
	OPTION_DURATION,
	OPTION_JSON,
};

static enum tool_status take_option(void *context, int option, const char *arg)
{
	struct options *options = context;

	switch (option) {
	case OPTION_OP:
		return take_list(options, arg, take_op);
	case OPTION_SIZE:
		return take_list(options, arg, take_size);
	case OPTION_DEPTH:
		return take_list(options, arg, take_depth);
	case OPTION_THREADS:
		return take_number("--threads", arg, PERF_THREADS_MAX, &options->threads);
	case OPTION_MODE:
		return take_mode(options, arg);
	case OPTION_RAW:
		options->mode_count = 2;
		return TOOL_OK;
	case OPTION_DURATION:
		return tool_duration("--duration", arg, &options->duration_ms);
	case OPTION_JSON:
		options->json = true;
		return TOOL_OK;
	default:
		return TOOL_USAGE; /* getopt_long() has complained */
	}
}

static enum tool_status check_depths(const struct options *options, const struct perf_mode *mode)
{
	for (size_t i = 0; i < options->depth_count; i++) {
		if (options->depths[i] > mode->depth_max)
			return tool_usage("mode %s does %u at a time at most", mode->name,
					  mode->depth_max);
	}
	return TOOL_OK;
}

/* What was not given is as the help says; what was must fit together. */
static enum tool_status complete(struct options *options)
{
	enum tool_status status = TOOL_OK;

	if (options->op_count == 0)
		(void)take_list(options, DEFAULT_OPS, take_op);
	if (options->size_count == 0)
		(void)take_list(options, DEFAULT_SIZES, take_size);
	if (options->depth_count == 0)
		options->depths[options->depth_count++] = 1;
	if (options->mode_count == 2 && options->modes[0] == options->modes[1])
		return tool_usage("--raw compares with raw, and the mode is raw already");
	for (size_t i = 0; i < options->mode_count && status == TOOL_OK; i++)
		status = check_depths(options, options->modes[i]);
	return status;
}

/* @ret_done: there is nothing left to do */
static enum tool_status parse(int argc, char **argv, struct options *options, bool *ret_done)
{
	static const struct option long_options[] = {
		TOOL_LONG_OPTIONS,
		{"op", required_argument, NULL, OPTION_OP},
		{"size", required_argument, NULL, OPTION_SIZE},
		{"depth", required_argument, NULL, OPTION_DEPTH},
		{"threads", required_argument, NULL, OPTION_THREADS},
		{"mode", required_argument, NULL, OPTION_MODE},
		{"raw", no_argument, NULL, OPTION_RAW},
		{"duration", required_argument, NULL, OPTION_DURATION},
		{"json", no_argument, NULL, OPTION_JSON},
		{NULL, 0, NULL, 0},
	};
	static const struct tool_line line = {long_options, print_help, take_option};
	enum tool_status status;

	status = tool_parse(&line, argc, argv, &options->session, options, ret_done);
	if (status != TOOL_OK || *ret_done)
		return status;
	if (optind < argc)
		return tool_usage("what is that for: %s", argv[optind]);
	return complete(options);
}

int main(int argc, char **argv)
{
	struct options options = {
		.modes = {perf_mode_find("sync"), perf_mode_find("raw")},
		.mode_count = 1,
		.threads = 1,
		.duration_ms = DEFAULT_DURATION_MS,
	};
	enum tool_status status;
	bool done;

	tool_init("mempool-perf");
	status = parse(argc, argv, &options, &done);
	if (status == TOOL_OK && !done)
		status = measure(&options);
	return (int)tool_finish(status);
}
