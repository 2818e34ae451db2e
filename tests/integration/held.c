/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Completions that are held back. What is held stays in the device's queue, and the device has
 * told of it.
 *
 * Thread: any; one queue at a time.
 */
#include "tests/integration/held.h"

#include <stdatomic.h>
#include <stddef.h>

static _Atomic(struct ibv_cq *) held_cq;
static atomic_int held_count;

int __real_verbs_poll_cq(struct ibv_cq *cq, int cap, struct ibv_wc *ret_wc);
int __wrap_verbs_poll_cq(struct ibv_cq *cq, int cap, struct ibv_wc *ret_wc);

int __wrap_verbs_poll_cq(struct ibv_cq *cq, int cap, struct ibv_wc *ret_wc)
{
	int n;

	if (cq != atomic_load(&held_cq))
		return __real_verbs_poll_cq(cq, cap, ret_wc);
	if (cap > atomic_load(&held_count))
		cap = atomic_load(&held_count);
	n = cap > 0 ? __real_verbs_poll_cq(cq, cap, ret_wc) : 0;
	if (n > 0)
		(void)atomic_fetch_sub(&held_count, n);
	return n;
}

void held_begin(struct ibv_cq *cq, int count)
{
	atomic_store(&held_count, count);
	atomic_store(&held_cq, cq);
}

void held_let(int count)
{
	(void)atomic_fetch_add(&held_count, count);
}

int held_left(void)
{
	return atomic_load(&held_count);
}

void held_end(void)
{
	atomic_store(&held_cq, NULL);
}
