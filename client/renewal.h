/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef CLIENT_RENEWAL_H
#define CLIENT_RENEWAL_H

#include <stdbool.h>
#include <stdint.h>

#include "client/request.h"

struct mempool;
struct mempool_lease;

#define RENEWAL_NEVER UINT64_MAX

/* The times of a lease; guarded by the session's lock. */
struct renewal {
	uint64_t ttl_ms;       /* that the lease is renewed for by itself; 0: it is not */
	uint64_t try_ns;       /* when it is renewed next */
	uint64_t warn_ns;      /* when the application is told that it is about to expire */
	bool asked;	       /* a renewal of ours waits for its answer ... */
	uint64_t asked_ttl_ms; /* ... for this time */
	struct request request;
};

/** renewal_init() - Return: 0 or a negative errno */
int renewal_init(struct renewal *renewal, struct mempool_lease *lease);
void renewal_deinit(struct renewal *renewal);

/** renewal_start() - the lease lasts @ttl_ms from @sent_ns, when that was asked for; lock held */
void renewal_start(struct mempool_lease *lease, uint64_t sent_ns, uint64_t ttl_ms);

/** renewal_resume() - the same of one that lasts on, and is not told of anew; lock held */
void renewal_resume(struct mempool_lease *lease, uint64_t sent_ns, uint64_t ttl_ms);

/** renewal_reveal() - lock held: from now on there is somebody to tell; see to what is due */
void renewal_reveal(struct mempool_lease *lease);

/** renewal_forget() - lock held: the lease is given up; no answer of ours is waited for */
void renewal_forget(struct mempool_lease *lease);

/** renewal_step() - lock held: renew and tell what is due, without blocking */
void renewal_step(struct mempool *pool);

/** renewal_next_ms() - lock held: when renewal_step() is due; milliseconds for poll(), or -1 */
int renewal_next_ms(const struct mempool *pool);

/* How times are reckoned. Pure. */

/**
 * renewal_deadline_ns() - when we stop using a lease of @ttl_ms
 *
 * Earlier than it ends: by what an operation that has just been posted may be on its way
 * (a sixteenth of the time, 20 ms at most), and by what two clocks may differ over that time
 * (1 in 4096).
 */
uint64_t renewal_deadline_ns(uint64_t sent_ns, uint64_t ttl_ms);

/**
 * renewal_try_ns() - when to renew a lease, for the first time or after that has failed
 * @random: any number; the leases of many clients are not to be renewed at one moment
 *
 * After three to five eighths of what is left. RENEWAL_NEVER if that is hardly anything.
 */
uint64_t renewal_try_ns(uint64_t now_ns, uint64_t deadline_ns, uint32_t random);

/** renewal_warn_ns() - when a quarter of @ttl_ms is left, but 10 s at most */
uint64_t renewal_warn_ns(uint64_t deadline_ns, uint64_t ttl_ms);

#endif
