/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Reads and writes of a lease: cut into pieces that fit a staging buffer, a descriptor and a
 * message of the device, several of them in flight. Completions come in the order of posting,
 * so a transfer is three counters and a ring of pieces.
 *
 * Invariants: nothing is reported before all that was posted has completed. Before each piece
 * it is asked where it may go, and nothing that takes time comes between that and its posting; a
 * lease that is being taken back gets no further one, and there is none after the deadline, however
 * fast pieces complete. A failed piece costs the lane. Memory that is registered goes without a
 * staging buffer, and is held until the device is done with it.
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
#include "client/pool.h"
#include "client/split.h"
#include "client/turn.h"
#include "common/checked.h"
#include "common/clock.h"
#include "proto/error.h"

#define TRANSFER_SEGMENTS_MAX 1024

struct transfer_piece {
	uint8_t *user; /* the bytes of the caller's, if they are staged; else NULL */
	uint32_t len_bytes;
	struct memory_hold hold; /* to be dropped when it has completed */
	size_t segments_done;	 /* when it has completed */
};

struct transfer {
	struct turn turn;
	const struct mempool_segment *segments;
	size_t count;
	bool writes;
	size_t segment; /* where the next piece begins ... */
	uint64_t at_bytes;
	struct memory_hold hold; /* of that segment's memory, if it is registered */
	int stopped;		 /* 0, or the code for which no further piece may be posted */
	size_t segments_done;
	uint64_t pieces_posted;
	uint64_t pieces_done;
	struct transfer_piece pieces[LANE_SLOTS];
};

static struct transfer *transfer_of(struct turn *turn)
{
	return (struct transfer *)turn;
}

static void transfer_skip_empty(struct transfer *t)
{
	while (t->segment < t->count && t->segments[t->segment].len_bytes == 0)
		t->segment++;
}

static struct memory *transfer_memory(const struct transfer *t)
{
	return &t->turn.lease->pool->memory;
}

static bool transfer_is_direct(const struct transfer *t)
{
	return t->hold.lkey != 0 || t->hold.buf != NULL || t->hold.cached != NULL;
}

/* What the next piece says of our side; bytes that are staged are not there yet. */
static void transfer_local(const struct transfer *t, uint8_t *user, struct lane_work *work)
{
	bool is_direct = transfer_is_direct(t);

	work->local = is_direct ? user : lane_slot(t->turn.lane, t->pieces_posted);
	work->lkey = is_direct ? t->hold.lkey : lane_staging_key(t->turn.lane);
}

/* The piece that ends a segment takes the hold with it: those before it complete before it. */
static void transfer_posted(struct transfer *t, struct transfer_piece *piece)
{
	t->at_bytes += piece->len_bytes;
	if (t->at_bytes == t->segments[t->segment].len_bytes) {
		piece->hold = t->hold;
		t->hold = (struct memory_hold){0};
		t->at_bytes = 0;
		t->segment++;
		transfer_skip_empty(t);
	}
	piece->segments_done = t->segment;
	t->pieces[t->pieces_posted++ % LANE_SLOTS] = *piece;
}

static int transfer_post(struct transfer *t, const struct message_descriptor *descriptor)
{
	const struct mempool_segment *segment = &t->segments[t->segment];
	struct lane *lane = t->turn.lane;
	uint8_t *user = (uint8_t *)segment->buf + t->at_bytes;
	struct lane_work work = {.opcode = t->writes ? IBV_WR_RDMA_WRITE : IBV_WR_RDMA_READ};
	struct transfer_piece piece = {0};
	int r;

	transfer_local(t, user, &work);
	split_next(descriptor, segment->offset_bytes + t->at_bytes,
		   segment->len_bytes - t->at_bytes,
		   transfer_is_direct(t) ? lane->message_max_bytes : lane_staging_max(lane),
		   &work.remote);
	if (!transfer_is_direct(t))
		piece.user = user;
	if (t->writes && piece.user != NULL) {
		memcpy(work.local, user, work.remote.len_bytes);
		/* Memory that had to be read from a disk first takes its time. */
		t->stopped = lease_check_usable(t->turn.lease);
		if (t->stopped < 0)
			return 0;
	}
	r = lane_post(lane, &work);
	if (r < 0)
		return r;
	piece.len_bytes = work.remote.len_bytes;
	transfer_posted(t, &piece);
	return 0;
}

static int transfer_is_late(void)
{
	return client_error_raise(MEMPOOL_E_TIMEOUT, "the transfer did not complete in time");
}

/*
 * To register memory takes time: it is done before it is asked where the piece may go.
 * Return: 0, or the code for which the next piece may not be posted.
 */
static int transfer_next(struct transfer *t, struct message_descriptor *ret_descriptor)
{
	const struct mempool_segment *segment = &t->segments[t->segment];
	struct lane *lane = t->turn.lane;

	if (t->at_bytes == 0)
		(void)memory_find(transfer_memory(t), lane->pd, segment->buf, segment->len_bytes,
				  &t->hold);
	if (clock_now_ns() >= t->turn.deadline_ns)
		return transfer_is_late();
	return lease_window_at(t->turn.lease, lane, segment->offset_bytes + t->at_bytes,
			       ret_descriptor);
}

/* Posts as many pieces as there is room for. Return: 0, or a negative errno. */
static int transfer_fill(struct transfer *t)
{
	struct message_descriptor descriptor;
	int r = 0;

	while (r == 0 && t->stopped == 0 && t->segment < t->count &&
	       t->pieces_posted - t->pieces_done < LANE_SLOTS) {
		t->stopped = transfer_next(t, &descriptor);
		if (t->stopped == 0)
			r = transfer_post(t, &descriptor);
	}
	return r;
}

static void transfer_finish_piece(struct transfer *t)
{
	struct transfer_piece *piece = &t->pieces[t->pieces_done % LANE_SLOTS];

	if (!t->writes && piece->user != NULL)
		memcpy(piece->user, lane_slot(t->turn.lane, t->pieces_done), piece->len_bytes);
	memory_drop(transfer_memory(t), &piece->hold);
	t->segments_done = piece->segments_done;
	t->pieces_done++;
}

/*
 * The lane is lost, and whatever was posted done with: not before that is memory let go. What a
 * device has for good stays held.
 */
static void transfer_abort(struct transfer *t)
{
	lane_abort(t->turn.lane);
	/* A device that does not give everything back is done with it when there is no QP. */
	if (t->turn.lane->posted > 0 && lane_close(t->turn.lane) < 0) {
		t->hold = (struct memory_hold){0};
		return;
	}
	while (t->pieces_done < t->pieces_posted)
		memory_drop(transfer_memory(t), &t->pieces[t->pieces_done++ % LANE_SLOTS].hold);
}

static int transfer_run(struct turn *turn)
{
	enum ibv_wc_status status = IBV_WC_GENERAL_ERR;
	struct transfer *t = transfer_of(turn);
	int r;

	transfer_skip_empty(t);
	for (;;) {
		r = transfer_fill(t);
		if (r == 0 && t->pieces_posted == t->pieces_done)
			return t->stopped;
		if (r == 0)
			r = lane_collect(turn->lane, turn->deadline_ns, &status);
		if (r <= 0 || status != IBV_WC_SUCCESS)
			break;
		transfer_finish_piece(t);
	}
	transfer_abort(t);
	if (r == 0)
		return transfer_is_late();
	turn->failure = r < 0 ? IBV_WC_GENERAL_ERR : status;
	return TURN_FAILED;
}

/* The range in which all segments lie. */
static int transfer_span(struct transfer *t)
{
	uint64_t from = UINT64_MAX;
	uint64_t to = 0;
	uint64_t end;

	for (size_t i = 0; i < t->count; i++) {
		const struct mempool_segment *segment = &t->segments[i];

		if (segment->buf == NULL && segment->len_bytes > 0)
			return client_error_raise(MEMPOOL_E_INVALID, "segment %zu has no memory",
						  i);
		if (!checked_add(segment->offset_bytes, segment->len_bytes, &end))
			return client_error_raise(MEMPOOL_E_RANGE, "%s",
						  error_text(MEMPOOL_E_RANGE));
		if (segment->offset_bytes < from)
			from = segment->offset_bytes;
		if (end > to)
			to = end;
	}
	t->turn.offset_bytes = from;
	t->turn.len_bytes = to - from;
	return 0;
}

static bool transfer_is_empty(const struct transfer *t)
{
	for (size_t i = 0; i < t->count; i++) {
		if (t->segments[i].len_bytes > 0)
			return false;
	}
	return true;
}

static int transfer_all(struct transfer *t)
{
	int r = transfer_span(t);

	if (r < 0)
		return r;
	r = transfer_is_empty(t) ? turn_begin(&t->turn) : turn_take(&t->turn);
	memory_drop(&t->turn.lease->pool->memory, &t->hold);
	if (r == 0)
		t->segments_done = t->count;
	return r;
}

static int transfer(mempool_lease *lease, const struct mempool_segment *segments, size_t count,
		    bool writes, size_t *ret_count)
{
	struct transfer t = {
		.turn =
			{
				.lease = lease,
				.right = writes ? MEMPOOL_WRITE : MEMPOOL_READ,
				.run = transfer_run,
			},
		.segments = segments,
		.count = count,
		.writes = writes,
	};
	int r = guard_call();

	if (r < 0)
		return r;
	if (lease == NULL || segments == NULL || count == 0 || count > TRANSFER_SEGMENTS_MAX)
		return client_error_raise(MEMPOOL_E_INVALID, "an argument is not valid");
	r = transfer_all(&t);
	if (ret_count != NULL)
		*ret_count = t.segments_done;
	return r;
}

int mempool_readv(mempool_lease *lease, const struct mempool_segment *segments, size_t count,
		  size_t *ret_count)
{
	return transfer(lease, segments, count, false, ret_count);
}

int mempool_writev(mempool_lease *lease, const struct mempool_segment *segments, size_t count,
		   size_t *ret_count)
{
	return transfer(lease, segments, count, true, ret_count);
}

int mempool_read(mempool_lease *lease, uint64_t offset_bytes, void *buf, size_t len_bytes)
{
	struct mempool_segment segment = {offset_bytes, buf, len_bytes};

	return transfer(lease, &segment, 1, false, NULL);
}

int mempool_write(mempool_lease *lease, uint64_t offset_bytes, const void *buf, size_t len_bytes)
{
	/* What is written is only read from. */
	struct mempool_segment segment = {offset_bytes, (void *)(uintptr_t)buf, len_bytes};

	return transfer(lease, &segment, 1, true, NULL);
}
