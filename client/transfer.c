/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Reads and writes of a lease: cut into pieces that fit a staging buffer, a descriptor and a
 * message of the device, several of them in flight. Completions come in the order of posting,
 * so a transfer is three counters and a ring of pieces.
 *
 * Invariants: nothing is reported before all that was posted has completed. A failed piece
 * costs the lane; a new one is made at once, and the daemon says by the answer to "attach"
 * whether the lease was the reason.
 *
 * Thread: any; the caller's thread is the holder of the lane meanwhile.
 */
#include <assert.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include "client/error.h"
#include "client/include/mempool.h"
#include "client/lane.h"
#include "client/lease.h"
#include "client/pool.h"
#include "common/checked.h"
#include "proto/error.h"

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
	uint64_t posted_bytes;
	uint32_t descriptor; /* that the next piece lies in, or a later one */
	uint64_t pieces_posted;
	uint64_t pieces_done;
	struct transfer_piece pieces[LANE_SLOTS];
};

static const struct message_descriptor *transfer_next_descriptor(struct transfer *t)
{
	uint64_t at_bytes = t->offset_bytes + t->posted_bytes;
	const struct message_descriptor *descriptor = &t->lease->descriptors[t->descriptor];

	while (at_bytes - descriptor->offset_bytes >= descriptor->len_bytes)
		descriptor = &t->lease->descriptors[++t->descriptor];
	assert(t->descriptor < t->lease->descriptor_count);
	return descriptor;
}

static int transfer_post(struct transfer *t)
{
	const struct message_descriptor *descriptor = transfer_next_descriptor(t);
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

static void transfer_finish_piece(struct transfer *t)
{
	const struct transfer_piece *piece = &t->pieces[t->pieces_done % LANE_SLOTS];

	if (t->read_buf != NULL)
		memcpy((uint8_t *)t->read_buf + piece->at_bytes,
		       lane_slot(t->lane, t->pieces_done), piece->len_bytes);
	t->pieces_done++;
}

/* A lane that works and descriptors that are good on it. What is in order is left alone. */
static int transfer_restore(struct transfer *t)
{
	int r = 0;

	if (!lane_is_up(t->lane))
		r = lane_open(t->lane, t->deadline_ns);
	if (r < 0 || lease_is_attached(t->lease, t->lane))
		return r;
	return lease_attach(t->lease, t->lane, t->deadline_ns);
}

/* A piece has failed and the lane with it. The caller may try again, unless the lease is over. */
static int transfer_recover(struct transfer *t, enum ibv_wc_status status)
{
	int r;

	r = lease_check_usable(t->lease);
	if (r == MEMPOOL_E_SESSION_LOST)
		return r;
	if (r < 0) {
		/* The lane serves other leases, too. */
		(void)lane_open(t->lane, t->deadline_ns);
		return lease_check_usable(t->lease);
	}
	r = transfer_restore(t);
	if (lease_check_usable(t->lease) < 0)
		return lease_check_usable(t->lease);
	if (r < 0)
		return client_error_raise(MEMPOOL_E_LANE,
					  "the data connection was lost (%s) and not restored yet",
					  ibv_wc_status_str(status));
	return client_error_raise(MEMPOOL_E_LANE,
				  "the data connection was lost (%s) and has been restored",
				  ibv_wc_status_str(status));
}

/* Return: 0, or a code. When it returns nothing is in flight. */
static int transfer_run(struct transfer *t)
{
	enum ibv_wc_status status = IBV_WC_SUCCESS;
	int r = 0;

	while (t->pieces_posted > t->pieces_done || t->posted_bytes < t->len_bytes) {
		while (r == 0 && t->posted_bytes < t->len_bytes &&
		       t->pieces_posted - t->pieces_done < LANE_SLOTS)
			r = transfer_post(t);
		if (r < 0)
			break;
		r = lane_collect(t->lane, t->deadline_ns, &status);
		if (r <= 0 || status != IBV_WC_SUCCESS)
			break;
		r = 0;
		transfer_finish_piece(t);
	}
	if (t->pieces_done == t->pieces_posted && t->posted_bytes == t->len_bytes)
		return 0;
	lane_abort(t->lane);
	if (r == 0)
		return client_error_raise(MEMPOOL_E_TIMEOUT,
					  "the transfer did not complete in time");
	return transfer_recover(t, r < 0 ? IBV_WC_GENERAL_ERR : status);
}

/* The lane has been entered; it may be lost, and the lease attached to an earlier one. */
static int transfer_begin(struct transfer *t)
{
	int r;

	r = lease_check_usable(t->lease);
	if (r < 0)
		return r;
	r = transfer_restore(t);
	if (r == 0)
		return transfer_run(t);
	if (lease_check_usable(t->lease) < 0)
		return lease_check_usable(t->lease);
	if (r == MEMPOOL_E_TIMEOUT)
		return r;
	return client_error_raise(MEMPOOL_E_LANE, "the data connection is not restored: %s",
				  mempool_last_error());
}

static int transfer_check(const struct transfer *t, uint32_t right)
{
	const struct mempool_lease *lease = t->lease;

	if (!checked_within(t->offset_bytes, t->len_bytes, lease->len_bytes))
		return client_error_raise(MEMPOOL_E_RANGE, "%s", error_text(MEMPOOL_E_RANGE));
	if ((lease->rights & right) == 0)
		return client_error_raise(MEMPOOL_E_ACCESS, "the lease lacks the right to %s",
					  right == MEMPOOL_READ ? "read" : "write");
	return 0;
}

static int transfer(struct transfer *t, uint32_t right)
{
	struct mempool_lease *lease = t->lease;
	int r;

	r = transfer_check(t, right);
	if (r < 0)
		return r;
	r = lease_check_usable(lease);
	if (r < 0 || t->len_bytes == 0)
		return r;
	t->lane = &lease->pool->lane;
	t->deadline_ns = pool_deadline(lease->pool);
	r = lane_enter(t->lane, t->deadline_ns);
	if (r < 0)
		return r;
	r = transfer_begin(t);
	lane_leave(t->lane);
	return r;
}

int mempool_read(mempool_lease *lease, uint64_t offset_bytes, void *buf, size_t len_bytes)
{
	struct transfer t = {
		.lease = lease,
		.offset_bytes = offset_bytes,
		.len_bytes = len_bytes,
		.read_buf = buf,
	};

	if (lease == NULL || (buf == NULL && len_bytes > 0))
		return client_error_raise(MEMPOOL_E_INVALID, "an argument is not valid");
	return transfer(&t, MEMPOOL_READ);
}

int mempool_write(mempool_lease *lease, uint64_t offset_bytes, const void *buf, size_t len_bytes)
{
	struct transfer t = {
		.lease = lease,
		.offset_bytes = offset_bytes,
		.len_bytes = len_bytes,
		.write_buf = buf,
	};

	if (lease == NULL || (buf == NULL && len_bytes > 0))
		return client_error_raise(MEMPOOL_E_INVALID, "an argument is not valid");
	return transfer(&t, MEMPOOL_WRITE);
}
