/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Binds and local invalidates of one QP: what waits, what is posted, in order.
 *
 * Invariants: tail - head never exceeds the depth of the send queue; the last work request
 * of every chain is signalled, so that everything posted is completed by some completion; a
 * window is in the queue or in the ring, never in both.
 *
 * Thread: the loop.
 */
#include "daemon/posting.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>

#include "common/clock.h"
#include "common/route.h"
#include "common/verbs.h"
#include "daemon/server.h"
#include "daemon/window.h"

#define POSTING_CHAIN_MAX 64u

int posting_init(struct posting *posting, struct ibv_qp *qp, uint32_t route, uint32_t depth,
		 struct server_counters *counters)
{
	uint32_t size = 1;

	while (size < depth)
		size *= 2;
	*posting = (struct posting){
		.qp = qp,
		.route = route,
		.counters = counters,
		.depth = depth,
		.ring_mask = size - 1,
		.ring = calloc(size, sizeof(*posting->ring)),
		.ring_posted_ns = calloc(size, sizeof(*posting->ring_posted_ns)),
	};
	TAILQ_INIT(&posting->queue);
	if (posting->ring != NULL && posting->ring_posted_ns != NULL)
		return 0;
	posting_deinit(posting);
	return -ENOMEM;
}

void posting_deinit(struct posting *posting)
{
	assert(TAILQ_EMPTY(&posting->queue));
	free(posting->ring);
	free(posting->ring_posted_ns);
	*posting = (struct posting){0};
	TAILQ_INIT(&posting->queue);
}

void posting_add(struct posting *posting, struct window *window)
{
	assert(!window->queued && !window->posted);
	window->queued = true;
	TAILQ_INSERT_TAIL(&posting->queue, window, link);
}

void posting_remove(struct posting *posting, struct window *window)
{
	assert(window->queued);
	window->queued = false;
	TAILQ_REMOVE(&posting->queue, window, link);
}

static void posting_fill(const struct posting *posting, struct ibv_send_wr *wr, uint32_t sequence,
			 struct window *window)
{
	*wr = (struct ibv_send_wr){.wr_id = route_wr_id(posting->route, sequence)};
	if (window->state == WINDOW_BINDING) {
		wr->opcode = IBV_WR_BIND_MW;
		wr->bind_mw.mw = window->mw;
		wr->bind_mw.rkey = window->rkey;
		wr->bind_mw.bind_info = (struct ibv_mw_bind_info){
			.mr = window->mr,
			.addr = window->addr,
			.length = window->len_bytes,
			.mw_access_flags = window->access,
		};
	} else {
		assert(window->state == WINDOW_INVALIDATING);
		wr->opcode = IBV_WR_LOCAL_INV;
		wr->invalidate_rkey = window->rkey;
	}
}

/* Move what the device has taken from the queue to the ring. */
static void posting_taken(struct posting *posting, uint32_t count)
{
	uint64_t now_ns = clock_now_ns();

	for (; count > 0; count--) {
		struct window *window = TAILQ_FIRST(&posting->queue);

		posting_remove(posting, window);
		window->posted = true;
		posting->ring[posting->tail & posting->ring_mask] = window;
		posting->ring_posted_ns[posting->tail & posting->ring_mask] = now_ns;
		posting->tail++;
		if (window->state == WINDOW_BINDING)
			posting->counters->binds_posted++;
		else
			posting->counters->invalidates_posted++;
	}
}

static int posting_flush_chain(struct posting *posting, uint32_t room)
{
	struct ibv_send_wr chain[POSTING_CHAIN_MAX];
	struct ibv_send_wr *bad = NULL;
	struct window *window;
	uint32_t count = 0;
	int r;

	TAILQ_FOREACH (window, &posting->queue, link) {
		if (count == room || count == POSTING_CHAIN_MAX)
			break;
		posting_fill(posting, &chain[count], posting->tail + count, window);
		if (count > 0)
			chain[count - 1].next = &chain[count];
		count++;
	}
	chain[count - 1].send_flags = IBV_SEND_SIGNALED;
	r = verbs_post_send(posting->qp, chain, &bad);
	if (r < 0 && bad >= chain && bad < chain + count)
		count = (uint32_t)(bad - chain);
	posting_taken(posting, count);
	return r;
}

int posting_flush(struct posting *posting)
{
	int r = 0;

	while (r == 0 && !TAILQ_EMPTY(&posting->queue)) {
		uint32_t room = posting->depth - (posting->tail - posting->head);

		if (room == 0)
			break;
		r = posting_flush_chain(posting, room);
	}
	return r;
}

struct window *posting_pop_any(struct posting *posting)
{
	struct window *window;

	if (posting->head == posting->tail)
		return NULL;
	window = posting->ring[posting->head++ & posting->ring_mask];
	window->posted = false;
	return window;
}

struct window *posting_pop(struct posting *posting, uint32_t sequence)
{
	uint32_t posted = posting->tail - posting->head;
	uint32_t done = sequence - posting->head; /* wraps to a huge number if popped before */

	return done < posted ? posting_pop_any(posting) : NULL;
}

uint64_t posting_oldest_ns(const struct posting *posting)
{
	if (posting->head == posting->tail)
		return UINT64_MAX;
	return posting->ring_posted_ns[posting->head & posting->ring_mask];
}
