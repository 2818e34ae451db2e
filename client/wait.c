/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Conditions with a deadline. Deadlines are by clock_now_ns(), which counts the time that a
 * machine was suspended; conditions cannot wait by that clock, so what is left is waited for
 * by CLOCK_MONOTONIC and the deadline looked at again.
 *
 * Thread: any.
 */
#include "client/wait.h"

#include <time.h>

#include "common/clock.h"

#define WAIT_MAX_NS (60 * CLOCK_NS_PER_S) /* at a time */

int wait_init(pthread_cond_t *cond)
{
	pthread_condattr_t attr;
	int r;

	r = pthread_condattr_init(&attr);
	if (r != 0)
		return -r;
	r = pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
	if (r == 0)
		r = pthread_cond_init(cond, &attr);
	(void)pthread_condattr_destroy(&attr);
	return -r;
}

bool wait_until(pthread_cond_t *cond, pthread_mutex_t *lock, uint64_t deadline_ns)
{
	uint64_t now_ns = clock_now_ns();
	struct timespec until;
	uint64_t left_ns;

	if (deadline_ns <= now_ns)
		return false;
	left_ns = deadline_ns - now_ns;
	if (left_ns > WAIT_MAX_NS)
		left_ns = WAIT_MAX_NS;
	(void)clock_gettime(CLOCK_MONOTONIC, &until);
	left_ns += (uint64_t)until.tv_nsec;
	until.tv_sec += (time_t)(left_ns / CLOCK_NS_PER_S);
	until.tv_nsec = (long)(left_ns % CLOCK_NS_PER_S);
	(void)pthread_cond_timedwait(cond, lock, &until);
	return true;
}
