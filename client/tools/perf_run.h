/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef CLIENT_TOOLS_PERF_RUN_H
#define CLIENT_TOOLS_PERF_RUN_H

#include <stdint.h>

#include "client/tools/perf.h"
#include "client/tools/tool.h"

/* Workers, and how they measure together. */

struct perf_run {
	struct perf_worker workers[PERF_THREADS_MAX];
	uint32_t threads;
	uint32_t duration_ms; /* of a case in a mode */
};

/**
 * perf_run_open() - sessions, leases, memory
 * @len_bytes: of each lease
 *
 * Return: TOOL_OK, or it has complained; perf_run_close() in any case.
 */
enum tool_status perf_run_open(struct perf_run *run, const struct tool_session *session,
			       uint64_t len_bytes, uint32_t rights);
void perf_run_close(struct perf_run *run);

/**
 * perf_run_case() - measure one case, in one mode or in two by turns
 * @modes: 1 or 2
 * @ret_tallies: one a mode: all threads together; the time is the slowest thread's
 *
 * Return: TOOL_OK, or it has complained.
 */
enum tool_status perf_run_case(struct perf_run *run, const struct perf_case *what,
			       const struct perf_mode *const *modes, size_t count,
			       struct perf_tally *ret_tallies);

#endif
