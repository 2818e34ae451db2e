/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Operations of a queue, from when they are taken to when they are reported. They are posted in
 * the order in which they came, piece by piece; one at most has pieces that are not posted yet.
 *
 * Invariants: an operation is DONE when nothing of it is in flight, never before, and is
 * reported once. It has succeeded if all its bytes were posted and every piece has come back
 * well, whatever its deadline says. No memory is allocated after operations_init().
 *
 * Thread: any; the caller guards the object.
 */
#include "client/operation.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>

static const bool operation_legal[OPERATION_STATES][OPERATION_STATES] = {
	[OPERATION_FREE] = {[OPERATION_WAITING] = true},
	[OPERATION_WAITING] = {[OPERATION_POSTED] = true, [OPERATION_DONE] = true},
	[OPERATION_POSTED] = {[OPERATION_DONE] = true},
	[OPERATION_DONE] = {[OPERATION_FREE] = true},
};

bool operation_is_legal(enum operation_state from, enum operation_state to)
{
	return operation_legal[from][to];
}

static struct operation_list *operation_list(struct operations *operations,
					     enum operation_state state)
{
	switch (state) {
	case OPERATION_FREE:
		return &operations->free;
	case OPERATION_WAITING:
		return &operations->waiting;
	case OPERATION_DONE:
		return &operations->done;
	default:
		return NULL;
	}
}

static void operation_append(struct operation_list *list, struct operation *operation)
{
	operation->next = NULL;
	operation->prev = list->last;
	if (list->last != NULL)
		list->last->next = operation;
	else
		list->first = operation;
	list->last = operation;
	list->count++;
}

/* From anywhere at the same cost: a wave of deadlines, or a cancel, takes thousands of them out. */
static void operation_remove(struct operation_list *list, struct operation *operation)
{
	if (operation->prev != NULL)
		operation->prev->next = operation->next;
	else
		list->first = operation->next;
	if (operation->next != NULL)
		operation->next->prev = operation->prev;
	else
		list->last = operation->prev;
	list->count--;
}

static void operation_set_state(struct operations *operations, struct operation *operation,
				enum operation_state state)
{
	struct operation_list *from = operation_list(operations, operation->state);
	struct operation_list *to = operation_list(operations, state);

	assert(operation_is_legal(operation->state, state));
	if (from != NULL)
		operation_remove(from, operation);
	else
		operations->posted--;
	operation->state = state;
	if (to != NULL)
		operation_append(to, operation);
	else
		operations->posted++;
}

int operations_init(struct operations *operations, uint32_t room)
{
	*operations = (struct operations){.room = room};
	operations->slots = calloc(room, sizeof(operations->slots[0]));
	if (operations->slots == NULL)
		return -ENOMEM;
	for (uint32_t i = 0; i < room; i++)
		operation_append(&operations->free, &operations->slots[i]);
	return 0;
}

void operations_deinit(struct operations *operations)
{
	free(operations->slots);
	*operations = (struct operations){0};
}

struct operation *operations_take(struct operations *operations, const struct mempool_op *op)
{
	struct operation *operation = operations->free.first;

	if (operation == NULL)
		return NULL;
	operation->op = *op;
	operation->hold = (struct memory_hold){0};
	operation->deadline_ns = UINT64_MAX;
	operation->at_bytes = 0;
	operation->in_flight = 0;
	operation->counted = false;
	operation->using = false;
	operation->timed_out = false;
	operation->code = 0;
	operation_set_state(operations, operation, OPERATION_WAITING);
	return operation;
}

struct operation *operations_next(const struct operations *operations)
{
	return operations->current != NULL ? operations->current : operations->waiting.first;
}

void operations_posted(struct operations *operations, struct operation *operation,
		       uint64_t len_bytes)
{
	assert(operation == operations_next(operations));
	if (operation->state == OPERATION_WAITING)
		operation_set_state(operations, operation, OPERATION_POSTED);
	operation->at_bytes += len_bytes;
	assert(operation->at_bytes <= operation->op.len_bytes);
	operation->in_flight++;
	operations->current = operation->at_bytes < operation->op.len_bytes ? operation : NULL;
}

static void operation_end(struct operations *operations, struct operation *operation)
{
	bool is_whole = operation->at_bytes == operation->op.len_bytes;

	if (operation->in_flight == 0 && (operation->code != 0 || is_whole))
		operation_set_state(operations, operation, OPERATION_DONE);
}

void operations_completed(struct operations *operations, struct operation *operation, int code)
{
	assert(operation->state == OPERATION_POSTED && operation->in_flight > 0);
	operation->in_flight--;
	if (code != 0)
		operations_fail(operations, operation, code);
	else
		operation_end(operations, operation);
}

void operations_fail(struct operations *operations, struct operation *operation, int code)
{
	if (operation->code == 0)
		operation->code = code;
	if (operations->current == operation)
		operations->current = NULL;
	operation_end(operations, operation);
}

struct operation *operations_report(struct operations *operations)
{
	struct operation *operation = operations->done.first;

	if (operation != NULL)
		operation_set_state(operations, operation, OPERATION_FREE);
	return operation;
}
