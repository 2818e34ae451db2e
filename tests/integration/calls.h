/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef TESTS_INTEGRATION_CALLS_H
#define TESTS_INTEGRATION_CALLS_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

/*
 * Calls of the library while connections and daemons are lost: each must return in time, with a
 * code that mempool.h names for it and that such a loss can be the cause of.
 */

enum call {
	CALL_ACQUIRE,
	CALL_TRANSFER, /* mempool_read() and its like */
	CALL_ATOMIC,
	CALL_RENEW,
	CALL_MODIFY,
	CALL_RELEASE,
	CALL_QUEUE,	/* mempool_queue_restore() and its like */
	CALL_OPERATION, /* of a queue, from mempool_submit() to mempool_poll() */
	CALL_REATTACH,
	CALL_CONNECT,
	CALL_CLOSE,
	CALLS,
};

struct calls {
	uint32_t limit_ms; /* for each: its time-out, and what may come on top of it */
	atomic_uint done[CALLS];
	atomic_uint failed[CALLS];
	atomic_uint longest_ms[CALLS];
	atomic_bool wrong; /* one was late or has returned what it must not; told at once */
};

/**
 * calls_note() - a call has returned; any thread, the one that has called
 * @begun_ns: clock_now_ns() when it was made
 *
 * Return: @r
 */
int calls_note(struct calls *calls, enum call call, uint64_t begun_ns, int r);

/** calls_print() - how many there were, and how long they took */
void calls_print(const struct calls *calls);

#endif
