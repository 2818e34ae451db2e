/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef CLIENT_TOOLS_PERF_REPORT_H
#define CLIENT_TOOLS_PERF_REPORT_H

#include <jansson.h>
#include <stdint.h>

#include "client/tools/perf.h"

/* What was measured, for people line by line, or as one JSON object. */

/** perf_rate() - operations per second; bandwidth is that times the size */
double perf_rate(const struct perf_tally *tally);

void perf_report_print_head(void);

/**
 * perf_report_print() - a line
 * @raw: of the same case, to compare with; NULL: none
 */
void perf_report_print(const struct perf_case *what, const struct perf_mode *mode, uint32_t threads,
		       const struct perf_tally *tally, const struct perf_tally *raw);

/** perf_report_json() - the same as an object; Return: NULL if there is no memory */
json_t *perf_report_json(const struct perf_case *what, const struct perf_mode *mode,
			 uint32_t threads, const struct perf_tally *tally,
			 const struct perf_tally *raw);

#endif
