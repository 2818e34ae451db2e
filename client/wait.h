/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef CLIENT_WAIT_H
#define CLIENT_WAIT_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

/** wait_init() - a condition for wait_until(); Return: 0 or a negative errno */
int wait_init(pthread_cond_t *cond);

/**
 * wait_until() - wait for a signal, or wake up for no reason
 * @deadline_ns: by clock_now_ns()
 *
 * Return: false if the deadline has passed (nothing was waited for then).
 */
bool wait_until(pthread_cond_t *cond, pthread_mutex_t *lock, uint64_t deadline_ns);

#endif
