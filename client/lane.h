/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef CLIENT_LANE_H
#define CLIENT_LANE_H

#include <infiniband/verbs.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "client/buffer.h"
#include "client/cm.h"
#include "client/request.h"
#include "client/split.h"
#include "common/verbs.h"
#include "proto/message.h"

/*
 * A data connection. The object lives as long as the session; the connection in it may be
 * lost and made again, each time as a new incarnation, with another number.
 *
 * One thread at a time is a lane's holder, from lane_enter() to lane_leave(): it alone posts,
 * polls, opens and closes, without the session's lock. Under the lock, anybody may declare
 * the lane lost; the QP is then in ERR and the holder gets its flushes.
 */

#define LANE_SLOTS	8 /* staging buffers, and so pieces in flight */
#define LANE_SLOT_BYTES (256u * 1024)
#define LANE_SENDS	64 /* work requests that the QP has room for */
#define LANE_PIECE_BYTES \
	(1024u * 1024)	      /* in one work request at most: then deadlines are looked at */
#define LANE_INLINE_BYTES 128 /* writes up to that go with the work request, if the device can */

enum lane_state {
	LANE_CLOSED,
	LANE_OPENING,
	LANE_UP,
	LANE_LOST, /* the QP is in ERR or gone wrong; to be closed by the next holder */
};

struct mempool;

struct lane {
	/* Under the session's lock. */
	struct lane *next;
	struct mempool *pool;
	enum lane_state state;
	bool busy;  /* has a holder */
	bool quiet; /* its owner ends it: nobody is told */
	pthread_cond_t freed;
	uint32_t number;      /* the daemon's, valid while OPENING and UP */
	uint64_t incarnation; /* unique in the session; 0: never up */
	struct cm cm;
	struct request asking; /* for a lane; outlives the call that asked */
	bool asked;	       /* it waits, or has an answer that nobody has looked at */
	struct message_lane_offer offer;
	uint64_t offer_until_ns; /* the offer may be used until then */
	uint64_t flush_until_ns; /* of a lost one: what is posted comes back until then, or never */
	/* The holder's. */
	uint32_t sends; /* as LANE_SENDS; constant */
	bool staged;	/* has staging buffers; constant */
	struct ibv_pd *pd;
	struct verbs_cq cq;
	struct buffer staging;
	uint32_t message_max_bytes; /* of one work request */
	uint32_t inline_max_bytes;  /* that may go with it; 0: none */
	uint32_t posted;	    /* work requests that have not completed */
};

/* A work request: between memory of ours and a piece of a lease. */
struct lane_work {
	enum ibv_wr_opcode opcode;
	void *local;
	uint32_t lkey;
	struct split_piece remote;
	uint64_t compare_add; /* of an atomic operation */
	uint64_t swap;
};

/** lane_init() - with staging buffers and LANE_SENDS; Return: 0 or a negative errno */
int lane_init(struct lane *lane, struct mempool *pool);

/** lane_deinit() - must be closed */
void lane_deinit(struct lane *lane);

/** lane_enter() - become the holder; Return: 0, or MEMPOOL_E_TIMEOUT with the last error set */
int lane_enter(struct lane *lane, uint64_t deadline_ns);
void lane_leave(struct lane *lane);

/**
 * lane_open() - holder: close what there is, connect
 *
 * The daemon may take its time to offer a lane. An offer that comes too late for this call is
 * kept for the next. One that turns out to be used up or expired is replaced by another as long
 * as there is time. Return: 0 or a code, last error set.
 */
int lane_open(struct lane *lane, uint64_t deadline_ns);

/**
 * lane_close() - holder: collect flushes (bounded), disconnect, destroy; closed is allowed
 *
 * Return: 0, or a negative errno: the QP lives on, and what did not come back may yet be carried
 * out. The object may be opened again in any case.
 */
int lane_close(struct lane *lane);

/** lane_ensure() - enter, open if not up, leave; Return: 0 or a code, last error set */
int lane_ensure(struct lane *lane, uint64_t deadline_ns);

/** lane_is_up() - takes the lock; an answer that may be out of date */
bool lane_is_up(struct lane *lane);

/** lane_lose() - lock held: the connection is of no use any more; not being up is allowed */
void lane_lose(struct lane *lane, int code, const char *text);

/** lane_forget_offer() - lock held: an offer that was asked for belongs to a lost session */
void lane_forget_offer(struct lane *lane);

/** lane_lost() - lock held: the daemon says that a lane is lost; unknown numbers are ignored */
void lane_lost(struct mempool *pool, uint32_t number);

/** lane_slot() - holder: staging buffer @index modulo LANE_SLOTS, LANE_SLOT_BYTES long */
static inline uint8_t *lane_slot(const struct lane *lane, uint64_t index)
{
	return lane->staging.bytes + index % LANE_SLOTS * LANE_SLOT_BYTES;
}

static inline uint32_t lane_staging_key(const struct lane *lane)
{
	return lane->staging.mr->lkey;
}

/** lane_staging_max() - of one work request from or to a staging buffer */
static inline uint32_t lane_staging_max(const struct lane *lane)
{
	return lane->message_max_bytes < LANE_SLOT_BYTES ? lane->message_max_bytes
							 : LANE_SLOT_BYTES;
}

/** lane_is_refusal() - has the daemon's device not carried out what completed so? */
static inline bool lane_is_refusal(enum ibv_wc_status status)
{
	return status == IBV_WC_REM_ACCESS_ERR || status == IBV_WC_REM_INV_REQ_ERR;
}

/**
 * lane_fill() - holder: make a signalled work request
 * @sge: stays as long as @ret_wr is used
 */
void lane_fill(const struct lane *lane, const struct lane_work *work, struct ibv_sge *sge,
	       struct ibv_send_wr *ret_wr);

/**
 * lane_post() - holder: post one
 *
 * At most LANE_SENDS at a time. Return: 0, or a negative errno: to be aborted; if @lane->posted has
 * grown nevertheless, the device may have taken it.
 */
int lane_post(struct lane *lane, const struct lane_work *work);

/**
 * lane_collect() - holder: wait for the oldest work request to complete
 *
 * Return: 1, 0 if the deadline has passed, or a negative errno (the queue is broken).
 */
int lane_collect(struct lane *lane, uint64_t deadline_ns, enum ibv_wc_status *ret_status);

/** lane_abort() - holder: declare the lane lost and collect all that is posted (bounded) */
void lane_abort(struct lane *lane);

/** lane_qp() - for tests: the QP, NULL if there is none */
static inline struct ibv_qp *lane_qp(const struct lane *lane)
{
	return cm_qp(&lane->cm);
}

/**
 * lane_raw() - for tests: one read or write with any address and key, without any check
 * @local: within the staging buffers (lane_slot())
 * @ret_status: how it completed; if not with success, the lane is lost
 *
 * Does not open the lane. Not to be called by the holder. Return: 0; or a code, and if it is
 * neither MEMPOOL_E_TIMEOUT nor MEMPOOL_E_SYSTEM nothing was posted.
 */
int lane_raw(struct lane *lane, enum ibv_wr_opcode opcode, void *local, uint32_t len_bytes,
	     uint64_t remote_addr, uint32_t rkey, uint32_t timeout_ms,
	     enum ibv_wc_status *ret_status);

#endif
