/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Judges calls of the library by what mempool.h says of them. Owns the numbers; any thread.
 */
#include "tests/integration/calls.h"

#include <inttypes.h>
#include <stddef.h>
#include <stdio.h>

#include "client/include/mempool.h"
#include "common/clock.h"

#define CALLS_CODES_MAX 8

static const struct {
	const char *name;
	int codes[CALLS_CODES_MAX]; /* that may be returned beside 0 */
} calls_known[CALLS] = {
	[CALL_ACQUIRE] = {"acquire", {MEMPOOL_E_LANE, MEMPOOL_E_TIMEOUT, MEMPOOL_E_SESSION_LOST}},
	[CALL_TRANSFER] = {"transfer",
			   {MEMPOOL_E_LANE, MEMPOOL_E_TIMEOUT, MEMPOOL_E_SESSION_LOST,
			    MEMPOOL_E_NO_LEASE}},
	[CALL_ATOMIC] = {"atomic",
			 {MEMPOOL_E_LANE, MEMPOOL_E_TIMEOUT, MEMPOOL_E_SESSION_LOST,
			  MEMPOOL_E_NO_LEASE, MEMPOOL_E_UNKNOWN}},
	[CALL_RENEW] = {"renew", {MEMPOOL_E_TIMEOUT, MEMPOOL_E_SESSION_LOST, MEMPOOL_E_NO_LEASE}},
	[CALL_MODIFY] = {"modify",
			 {MEMPOOL_E_LANE, MEMPOOL_E_TIMEOUT, MEMPOOL_E_SESSION_LOST,
			  MEMPOOL_E_NO_LEASE, MEMPOOL_E_BUSY}},
	[CALL_RELEASE] = {"release",
			  {MEMPOOL_E_TIMEOUT, MEMPOOL_E_SESSION_LOST, MEMPOOL_E_NO_LEASE}},
	[CALL_QUEUE] = {"queue",
			{MEMPOOL_E_LANE, MEMPOOL_E_LANE_OFFER, MEMPOOL_E_TIMEOUT,
			 MEMPOOL_E_SESSION_LOST, MEMPOOL_E_NO_LEASE}},
	[CALL_OPERATION] = {"operation",
			    {MEMPOOL_E_LANE, MEMPOOL_E_TIMEOUT, MEMPOOL_E_SESSION_LOST,
			     MEMPOOL_E_NO_LEASE, MEMPOOL_E_UNKNOWN}},
	[CALL_REATTACH] = {"reattach",
			   {MEMPOOL_E_LANE, MEMPOOL_E_TIMEOUT, MEMPOOL_E_SESSION_LOST,
			    MEMPOOL_E_NO_LEASE}},
	[CALL_CONNECT] = {"connect",
			  {MEMPOOL_E_UNREACHABLE, MEMPOOL_E_REJECTED, MEMPOOL_E_TIMEOUT,
			   MEMPOOL_E_SESSION_LOST, MEMPOOL_E_LANE, MEMPOOL_E_LANE_OFFER}},
	[CALL_CLOSE] = {"close", {0}},
};

static bool calls_may_return(enum call call, int r)
{
	for (size_t i = 0; i < CALLS_CODES_MAX; i++) {
		if (r == calls_known[call].codes[i])
			return true; /* the rest of the codes is 0, as success is */
	}
	return r == 0;
}

static void calls_keep_longest(atomic_uint *longest_ms, unsigned int took_ms)
{
	unsigned int longest = atomic_load(longest_ms);

	while (took_ms > longest && !atomic_compare_exchange_weak(longest_ms, &longest, took_ms))
		;
}

int calls_note(struct calls *calls, enum call call, uint64_t begun_ns, int r)
{
	uint64_t took_ms = (clock_now_ns() - begun_ns) / CLOCK_NS_PER_MS;
	bool is_wrong = !calls_may_return(call, r) || took_ms > calls->limit_ms;

	calls_keep_longest(&calls->longest_ms[call], (unsigned int)took_ms);
	atomic_fetch_add(r == 0 ? &calls->done[call] : &calls->failed[call], 1);
	if (is_wrong) {
		printf("# %s returned %d after %" PRIu64 " ms: %s\n", calls_known[call].name, r,
		       took_ms, r == 0 ? "" : mempool_last_error());
		atomic_store(&calls->wrong, true);
	}
	return r;
}

void calls_print(const struct calls *calls)
{
	for (size_t i = 0; i < CALLS; i++) {
		unsigned int done = atomic_load(&calls->done[i]);
		unsigned int failed = atomic_load(&calls->failed[i]);

		if (done + failed > 0)
			printf("# %s: %u done, %u failed, %u ms at most\n", calls_known[i].name,
			       done, failed, atomic_load(&calls->longest_ms[i]));
	}
}
