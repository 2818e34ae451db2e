/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Atomic operations on a word of a lease, one at a time.
 *
 * Invariants: an operation is posted once. Unless the daemon's device has refused it, or it
 * has completed, nobody can tell whether it took place; that is what is reported then.
 *
 * Thread: any; the caller's thread is the holder of the lane meanwhile.
 */
#include <stdint.h>
#include <string.h>

#include "client/error.h"
#include "client/guard.h"
#include "client/include/mempool.h"
#include "client/lane.h"
#include "client/lease.h"
#include "client/split.h"
#include "client/turn.h"

struct atomic {
	struct turn turn;
	enum ibv_wr_opcode opcode;
	uint64_t compare_add;
	uint64_t swap;
	uint64_t old;
};

static int atomic_misaligned(void)
{
	return client_error_raise(MEMPOOL_E_ALIGN, "an atomic operation needs 8 aligned bytes of "
						   "one window");
}

static int atomic_unknown(const char *why)
{
	return client_error_raise(MEMPOOL_E_UNKNOWN,
				  "it is not known whether the operation took place (%s)", why);
}

static int atomic_post(struct atomic *a, void *word)
{
	struct lane_work work = {
		.opcode = a->opcode,
		.local = word,
		.lkey = lane_staging_key(a->turn.lane),
		.compare_add = a->compare_add,
		.swap = a->swap,
	};
	struct message_descriptor descriptor;
	bool may_be_posted;
	int r;

	r = lease_window_at(a->turn.lease, a->turn.lane, a->turn.offset_bytes, &descriptor);
	if (r < 0)
		return r;
	if (!split_word(&descriptor, a->turn.offset_bytes, &work.remote))
		return atomic_misaligned();
	if (lane_post(a->turn.lane, &work) == 0)
		return 0;
	may_be_posted = a->turn.lane->posted > 0;
	lane_abort(a->turn.lane);
	if (may_be_posted)
		return atomic_unknown("it could not be posted");
	a->turn.failure = IBV_WC_GENERAL_ERR;
	return TURN_FAILED;
}

static int atomic_run(struct turn *turn)
{
	struct atomic *a = (struct atomic *)turn;
	void *word = lane_slot(turn->lane, 0);
	enum ibv_wc_status status;
	int r;

	r = atomic_post(a, word);
	if (r != 0)
		return r;
	r = lane_collect(turn->lane, turn->deadline_ns, &status);
	if (r > 0 && status == IBV_WC_SUCCESS) {
		memcpy(&a->old, word, sizeof(a->old));
		return 0;
	}
	lane_abort(turn->lane);
	if (r <= 0)
		return atomic_unknown(r == 0 ? "no completion in time" : "the queue is broken");
	if (!lane_is_refusal(status))
		return atomic_unknown(ibv_wc_status_str(status));
	turn->failure = status;
	return TURN_FAILED;
}

static int atomic(struct atomic *a, uint64_t *ret_old)
{
	int r = guard_call();

	if (r < 0)
		return r;
	if (a->turn.lease == NULL || ret_old == NULL)
		return client_error_raise(MEMPOOL_E_INVALID, "an argument is not valid");
	if (a->turn.offset_bytes % SPLIT_WORD_BYTES != 0)
		return atomic_misaligned();
	a->turn.len_bytes = SPLIT_WORD_BYTES;
	a->turn.right = MEMPOOL_ATOMIC;
	a->turn.run = atomic_run;
	r = turn_take(&a->turn);
	if (r == 0)
		*ret_old = a->old;
	return r;
}

int mempool_fetch_add(mempool_lease *lease, uint64_t offset_bytes, uint64_t add, uint64_t *ret_old)
{
	struct atomic a = {
		.turn = {.lease = lease, .offset_bytes = offset_bytes},
		.opcode = IBV_WR_ATOMIC_FETCH_AND_ADD,
		.compare_add = add,
	};

	return atomic(&a, ret_old);
}

int mempool_compare_swap(mempool_lease *lease, uint64_t offset_bytes, uint64_t expected,
			 uint64_t desired, uint64_t *ret_old)
{
	struct atomic a = {
		.turn = {.lease = lease, .offset_bytes = offset_bytes},
		.opcode = IBV_WR_ATOMIC_CMP_AND_SWP,
		.compare_add = expected,
		.swap = desired,
	};

	return atomic(&a, ret_old);
}
