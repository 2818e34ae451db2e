/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Reads and writes of a lease: cut into pieces that fit a staging buffer, a descriptor and a
 * message of the device, several of them in flight. Completions come in the order of posting,
 * so a transfer is three counters and a ring of pieces.
 *
 * Invariants: nothing is reported before all that was posted has completed. Before each piece
 * it is asked where it may go; a lease that is being taken back gets no further one. A failed
 * piece costs the lane; a new one is made at once, unless the lease is known to be over, and
 * the daemon says by the answer to "attach" whether the lease was the reason.
 *
 * Thread: any; the caller's thread is the holder of the lane meanwhile.
 */
#include <stdint.h>
#include <string.h>

#include "client/error.h"
#include "client/include/mempool.h"
#include "client/lane.h"
#include "client/lease.h"
#include "client/pool.h"
#include "proto/message.h"

struct transfer_piece {
	uint64_t at_bytes; /* in the user's buffer */
	uint32_t len_bytes;
};

struct transfer {
	struct mempool_lease *lease;
	struct lane *lane;
	uint64_t deadline_ns;
	uint64_t offset_bytes;
	uint64_t len_bytes;
	void *read_buf;	       /* either */
	const void *write_buf; /* or */
	uint32_t right;
	int stopped;		    /* 0, or the code for which no further piece may be posted */
	enum ibv_wc_status failure; /* of the piece that has cost the lane */
	uint64_t posted_bytes;
	uint64_t pieces_posted;
	uint64_t pieces_done;
	struct transfer_piece pieces[LANE_SLOTS];
};

static int transfer_post(struct transfer *t, const struct message_descriptor *descriptor)
{
	uint64_t into_bytes = t->offset_bytes + t->posted_bytes - descriptor->offset_bytes;
	struct transfer_piece *piece = &t->pieces[t->pieces_posted % LANE_SLOTS];
	uint8_t *local = lane_slot(t->lane, t->pieces_posted);
	uint64_t len_bytes = t->len_bytes - t->posted_bytes;
	int r;

	if (len_bytes > descriptor->len_bytes - into_bytes)
		len_bytes = descriptor->len_bytes - into_bytes;
	if (len_bytes > t->lane->message_max_bytes)
		len_bytes = t->lane->message_max_bytes;
	if (t->write_buf != NULL)
		memcpy(local, (const uint8_t *)t->write_buf + t->posted_bytes, len_bytes);
	r = lane_post(t->lane, t->write_buf != NULL ? IBV_WR_RDMA_WRITE : IBV_WR_RDMA_READ, local,
		      (uint32_t)len_bytes, descriptor->remote_addr + into_bytes, descriptor->rkey);
	if (r < 0)
		return r;
	*piece = (struct transfer_piece){
		.at_bytes = t->posted_bytes,
		.len_bytes = (uint32_t)len_bytes,
	};
	t->posted_bytes += len_bytes;
	t->pieces_posted++;
	return 0;
}

/* Posts as many pieces as there is room for. Return: 0, or a negative errno. */
static int transfer_fill(struct transfer *t)
{
	struct message_descriptor descriptor;
	int r = 0;

	while (r == 0 && t->stopped == 0 && t->posted_bytes < t->len_bytes &&
	       t->pieces_posted - t->pieces_done < LANE_SLOTS) {
		t->stopped = lease_window_at(t->lease, t->lane, t->offset_bytes + t->posted_bytes,
					     &descriptor);
		if (t->stopped == 0)
			r = transfer_post(t, &descriptor);
	}
	return r;
}

static void transfer_finish_piece(struct transfer *t)
{
	const struct transfer_piece *piece = &t->pieces[t->pieces_done % LANE_SLOTS];

	if (t->read_buf != NULL)
		memcpy((uint8_t *)t->read_buf + piece->at_bytes, lane_slot(t->lane, t->pieces_done),
		       piece->len_bytes);
	t->pieces_done++;
}

/* A piece has failed and the lane with it. The caller may try again, unless the lease is over. */
static int transfer_recover(struct transfer *t)
{
	int r;

	r = lease_check_usable(t->lease);
	if (r < 0)
		return r;
	r = lease_restore(t->lease, t->lane, t->deadline_ns);
	if (lease_check_usable(t->lease) < 0)
		return lease_check_usable(t->lease);
	if (r < 0)
		return client_error_raise(MEMPOOL_E_LANE,
					  "the data connection was lost (%s) and not restored yet",
					  ibv_wc_status_str(t->failure));
	return client_error_raise(MEMPOOL_E_LANE,
				  "the data connection was lost (%s) and has been restored",
				  ibv_wc_status_str(t->failure));
}

/* Return: 0, a code, or 1 (the lane has failed). When it returns nothing is in flight. */
static int transfer_run(struct transfer *t)
{
	enum ibv_wc_status status = IBV_WC_GENERAL_ERR;
	int r;

	for (;;) {
		r = transfer_fill(t);
		if (r == 0 && t->pieces_posted == t->pieces_done)
			return t->stopped;
		if (r == 0)
			r = lane_collect(t->lane, t->deadline_ns, &status);
		if (r <= 0 || status != IBV_WC_SUCCESS)
			break;
		transfer_finish_piece(t);
	}
	lane_abort(t->lane);
	if (r == 0)
		return client_error_raise(MEMPOOL_E_TIMEOUT,
					  "the transfer did not complete in time");
	t->failure = r < 0 ? IBV_WC_GENERAL_ERR : status;
	return 1;
}

static int transfer_not_restored(struct transfer *t, int code)
{
	int r = lease_check_usable(t->lease);

	if (r < 0 || code == MEMPOOL_E_TIMEOUT)
		return r < 0 ? r : code;
	return client_error_raise(MEMPOOL_E_LANE, "the data connection is not restored: %s",
				  mempool_last_error());
}

/*
 * The lane has been entered; it may be lost, and the lease attached to an earlier one.
 * Return: 0, a code, or LEASE_CHANGING.
 */
static int transfer_hold(struct transfer *t)
{
	int r;

	r = lease_check_access(t->lease, t->offset_bytes, t->len_bytes, t->right);
	if (r < 0)
		return r;
	r = lease_restore(t->lease, t->lane, t->deadline_ns);
	if (r < 0)
		return transfer_not_restored(t, r);
	r = lease_use(t->lease, t->offset_bytes, t->len_bytes, t->right);
	if (r != 0)
		return r;
	r = transfer_run(t);
	lease_unuse(t->lease);
	return r > 0 ? transfer_recover(t) : r;
}

/* Does not hold the lane while it waits for the lease: others may go on. */
static int transfer(struct transfer *t)
{
	int r;

	r = lease_check_access(t->lease, t->offset_bytes, t->len_bytes, t->right);
	if (r < 0 || t->len_bytes == 0)
		return r;
	t->lane = &t->lease->pool->lane;
	t->deadline_ns = pool_deadline(t->lease->pool);
	do {
		r = lease_settle(t->lease, t->deadline_ns);
		if (r == 0)
			r = lane_enter(t->lane, t->deadline_ns);
		if (r < 0)
			return r;
		r = transfer_hold(t);
		lane_leave(t->lane);
	} while (r == LEASE_CHANGING);
	return r;
}

int mempool_read(mempool_lease *lease, uint64_t offset_bytes, void *buf, size_t len_bytes)
{
	struct transfer t = {
		.lease = lease,
		.offset_bytes = offset_bytes,
		.len_bytes = len_bytes,
		.read_buf = buf,
		.right = MEMPOOL_READ,
	};

	if (lease == NULL || (buf == NULL && len_bytes > 0))
		return client_error_raise(MEMPOOL_E_INVALID, "an argument is not valid");
	return transfer(&t);
}

int mempool_write(mempool_lease *lease, uint64_t offset_bytes, const void *buf, size_t len_bytes)
{
	struct transfer t = {
		.lease = lease,
		.offset_bytes = offset_bytes,
		.len_bytes = len_bytes,
		.write_buf = buf,
		.right = MEMPOOL_WRITE,
	};

	if (lease == NULL || (buf == NULL && len_bytes > 0))
		return client_error_raise(MEMPOOL_E_INVALID, "an argument is not valid");
	return transfer(&t);
}
