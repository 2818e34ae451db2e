/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Results as text and as JSON. Keeps nothing.
 */
#include "client/tools/perf_report.h"

#include <stdio.h>

#include "common/units.h"

#define NS_PER_S  1e9
#define NS_PER_US 1e3

double perf_rate(const struct perf_tally *tally)
{
	if (tally->elapsed_ns == 0)
		return 0;
	return (double)tally->operations * NS_PER_S / (double)tally->elapsed_ns;
}

static double ratio_of(const struct perf_tally *tally, const struct perf_tally *raw)
{
	return perf_rate(raw) > 0 ? perf_rate(tally) / perf_rate(raw) : 0;
}

static double mean_of(const struct histogram *histogram)
{
	return histogram->count == 0 ? 0 : (double)histogram->sum / (double)histogram->count;
}

void perf_report_print_head(void)
{
	printf("%-12s %9s %5s %7s %-5s %11s %14s %9s %9s %9s %9s %6s\n", "OPERATION", "SIZE",
	       "DEPTH", "THREADS", "MODE", "OPS/S", "BANDWIDTH", "MIN us", "50% us", "99% us",
	       "MAX us", "RATIO");
	(void)fflush(stdout);
}

static double percentile_us(const struct histogram *histogram, uint32_t permille)
{
	return (double)histogram_percentile(histogram, permille) / NS_PER_US;
}

void perf_report_print(const struct perf_case *what, const struct perf_mode *mode, uint32_t threads,
		       const struct perf_tally *tally, const struct perf_tally *raw)
{
	const struct histogram *latency = &tally->latency_ns;
	double bytes_per_s = perf_rate(tally) * (double)what->size_bytes;
	char bandwidth[UNITS_TEXT_MAX];
	char size[UNITS_TEXT_MAX];

	printf("%-12s %9s %5u %7u %-5s %11.0f %12s/s %9.1f %9.1f %9.1f %9.1f", what->op->name,
	       units_format_size(what->size_bytes, size), what->depth, threads, mode->name,
	       perf_rate(tally), units_format_size((uint64_t)bytes_per_s, bandwidth),
	       (double)latency->min / NS_PER_US, percentile_us(latency, 500),
	       percentile_us(latency, 990), (double)latency->max / NS_PER_US);
	if (raw != NULL)
		printf(" %6.3f", ratio_of(tally, raw));
	putchar('\n');
	(void)fflush(stdout);
}

static json_t *latency_json(const struct histogram *histogram)
{
	return json_pack("{s:I, s:f, s:I, s:I, s:I}", "min", (json_int_t)histogram->min, "mean",
			 mean_of(histogram), "p50",
			 (json_int_t)histogram_percentile(histogram, 500), "p99",
			 (json_int_t)histogram_percentile(histogram, 990), "max",
			 (json_int_t)histogram->max);
}

json_t *perf_report_json(const struct perf_case *what, const struct perf_mode *mode,
			 uint32_t threads, const struct perf_tally *tally,
			 const struct perf_tally *raw)
{
	json_t *row =
		json_pack("{s:s, s:I, s:I, s:I, s:s, s:I, s:I, s:f, s:f, s:o}", "operation",
			  what->op->name, "size_bytes", (json_int_t)what->size_bytes, "depth",
			  (json_int_t)what->depth, "threads", (json_int_t)threads, "mode",
			  mode->name, "operations", (json_int_t)tally->operations, "elapsed_ns",
			  (json_int_t)tally->elapsed_ns, "operations_per_s", perf_rate(tally),
			  "bytes_per_s", perf_rate(tally) * (double)what->size_bytes, "latency_ns",
			  latency_json(&tally->latency_ns));

	if (row != NULL && raw != NULL)
		(void)json_object_set_new(row, "ratio", json_real(ratio_of(tally, raw)));
	return row;
}
