/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Taking turns on the session's own lane, for calls that wait for their operations. What is
 * posted is the operation's; here is what comes before and after it.
 *
 * Invariants: the lane is not held while the lease is waited for: others may go on. A lane
 * that was lost is made anew at once, unless the lease is known to be over, and the daemon
 * says by the answer to "attach" whether the lease was the reason.
 *
 * Thread: any; the caller's thread is the holder of the lane meanwhile.
 */
#include "client/turn.h"

#include "client/error.h"
#include "client/lane.h"
#include "client/lease.h"
#include "client/pool.h"
#include "client/reconnect.h"

/* The caller may try again, unless the lease is over. */
static int turn_recover(struct turn *turn)
{
	int r;

	r = lease_check_usable(turn->lease);
	if (r < 0)
		return r;
	r = lease_restore(turn->lease, turn->lane, turn->deadline_ns);
	if (lease_check_usable(turn->lease) < 0)
		return lease_check_usable(turn->lease);
	if (r < 0)
		return client_error_raise(MEMPOOL_E_LANE,
					  "the data connection was lost (%s) and not restored yet",
					  ibv_wc_status_str(turn->failure));
	return client_error_raise(MEMPOOL_E_LANE,
				  "the data connection was lost (%s) and has been restored",
				  ibv_wc_status_str(turn->failure));
}

static int turn_not_restored(struct turn *turn, int code)
{
	int r = lease_check_usable(turn->lease);

	if (r < 0 || code == MEMPOOL_E_TIMEOUT)
		return r < 0 ? r : code;
	return client_error_raise(MEMPOOL_E_LANE, "the data connection is not restored: %s",
				  mempool_last_error());
}

static int turn_check(struct turn *turn)
{
	return lease_check_access(turn->lease, turn->offset_bytes, turn->len_bytes, turn->right);
}

/*
 * The lane has been entered; it may be lost, and the lease attached to an earlier one.
 * Return: 0, a code, or LEASE_CHANGING.
 */
static int turn_hold(struct turn *turn)
{
	int r;

	r = turn_check(turn);
	if (r < 0)
		return r;
	r = lease_restore(turn->lease, turn->lane, turn->deadline_ns);
	if (r < 0)
		return turn_not_restored(turn, r);
	r = lease_use(turn->lease, turn->offset_bytes, turn->len_bytes, turn->right);
	if (r != 0)
		return r;
	r = turn->run(turn);
	lease_unuse(turn->lease);
	return r == TURN_FAILED ? turn_recover(turn) : r;
}

int turn_begin(struct turn *turn)
{
	int r;

	turn->deadline_ns = pool_deadline(turn->lease->pool);
	r = reconnect_await_lease(turn->lease, turn->deadline_ns);
	return r < 0 ? r : turn_check(turn);
}

int turn_take(struct turn *turn)
{
	int r;

	r = turn_begin(turn);
	if (r < 0 || turn->len_bytes == 0)
		return r;
	turn->lane = &turn->lease->pool->lane;
	do {
		r = lease_settle(turn->lease, turn->deadline_ns);
		if (r == 0)
			r = lane_enter(turn->lane, turn->deadline_ns);
		if (r < 0)
			return r;
		r = turn_hold(turn);
		lane_leave(turn->lane);
	} while (r == LEASE_CHANGING);
	return r;
}
