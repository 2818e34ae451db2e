/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The clock of the event loop's turns. Process-wide, since there is one loop.
 *
 * Thread: the loop.
 */
#include "daemon/loop.h"

#include <time.h>

static uint64_t loop_started_ns; /* 0: no callback has run in this turn */
static uint64_t loop_longest_ns;

static uint64_t loop_now_ns(void)
{
	struct timespec now;

	(void)clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

void loop_mark(void)
{
	if (loop_started_ns == 0)
		loop_started_ns = loop_now_ns();
}

void loop_turn_over(void)
{
	uint64_t took_ns;

	if (loop_started_ns == 0)
		return;
	took_ns = loop_now_ns() - loop_started_ns;
	loop_started_ns = 0;
	if (took_ns > loop_longest_ns)
		loop_longest_ns = took_ns;
}

uint64_t loop_longest_us(void)
{
	return loop_longest_ns / 1000;
}
