/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef CLIENT_OPERATION_H
#define CLIENT_OPERATION_H

#include <stdbool.h>
#include <stdint.h>

#include "client/include/mempool.h"
#include "client/memory.h"

/* The operations of a queue: where each is on its way. Pure: no verbs, no clock, no lock. */

enum operation_state {
	OPERATION_FREE,	   /* no operation */
	OPERATION_WAITING, /* nothing of it is posted */
	OPERATION_POSTED,  /* a part of it is, or was */
	OPERATION_DONE,	   /* its code is known, and nothing of it is posted; to be reported */
	OPERATION_STATES,
};

struct operation {
	struct operation *next; /* in the list of its state; POSTED has none */
	struct operation *prev;
	enum operation_state state;
	struct mempool_op op;
	struct memory_hold hold;
	uint64_t deadline_ns;
	uint64_t at_bytes;  /* posted so far */
	uint32_t in_flight; /* pieces */
	bool counted;	    /* among those that keep the lease */
	bool using;	    /* among those that use the lease */
	bool timed_out;
	int code; /* 0 so far; the first one is kept */
};

struct operation_list {
	struct operation *first;
	struct operation *last;
	uint32_t count;
};

struct operations {
	struct operation *slots;
	uint32_t room;
	struct operation_list free;
	struct operation_list waiting;
	struct operation_list done;
	uint32_t posted;
	struct operation *current; /* of which a part is to be posted yet; NULL: none */
};

/** operations_init() - @room: how many, not 0; Return: 0 or -ENOMEM */
int operations_init(struct operations *operations, uint32_t room);
void operations_deinit(struct operations *operations);

/** operations_take() - Return: a WAITING one, behind all others, or NULL if there is no room */
struct operation *operations_take(struct operations *operations, const struct mempool_op *op);

/** operations_next() - Return: the one of which the next piece is to be posted, or NULL */
struct operation *operations_next(const struct operations *operations);

/**
 * operations_posted() - a piece of the next one goes to the device
 * @len_bytes: of it; it is the last one if nothing is left
 */
void operations_posted(struct operations *operations, struct operation *operation,
		       uint64_t len_bytes);

/** operations_completed() - a piece has come back; @code: 0, or how it failed */
void operations_completed(struct operations *operations, struct operation *operation, int code);

/** operations_fail() - nothing more of it is to be posted; DONE when nothing is in flight */
void operations_fail(struct operations *operations, struct operation *operation, int code);

/** operations_report() - Return: the one that was done first, which is free now; NULL: none */
struct operation *operations_report(struct operations *operations);

/** operations_outstanding() - how many are not done */
static inline uint32_t operations_outstanding(const struct operations *operations)
{
	return operations->waiting.count + operations->posted;
}

/** operation_is_atomic() - must it never be repeated? */
static inline bool operation_is_atomic(const struct operation *operation)
{
	return operation->op.kind == MEMPOOL_OP_FETCH_ADD ||
	       operation->op.kind == MEMPOOL_OP_COMPARE_SWAP;
}

/** operation_is_legal() - the table of transitions, for tests, too */
bool operation_is_legal(enum operation_state from, enum operation_state to);

#endif
