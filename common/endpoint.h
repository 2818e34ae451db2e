/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef COMMON_ENDPOINT_H
#define COMMON_ENDPOINT_H

#include <infiniband/verbs.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/channel.h"
#include "proto/message.h"

/*
 * One end of a control connection: its receive and send buffers, its credits, and what
 * waits to be sent. Knows nothing of connection management and nothing of what messages mean.
 */

#define ENDPOINT_SENDS 8 /* send buffers; further messages wait in a queue */

/* What a message may spend a credit on (PROTOCOL.md, credits). */
enum endpoint_class {
	ENDPOINT_ORDINARY,
	ENDPOINT_NOTICE,
};

struct endpoint_frame;

struct endpoint {
	struct ibv_qp *qp;
	uint8_t *memory; /* receives, then sends, PROTO_FRAME_MAX bytes each; borrowed */
	uint32_t lkey;
	struct channel *channel;  /* NULL: messages pass in clear; borrowed */
	uint32_t route;		  /* upper half of the work requests' ids */
	uint32_t receives;	  /* buffers that are posted in all */
	uint32_t receives_posted; /* in the device's hands now */
	uint32_t sends_posted;
	uint32_t sends_free_mask;
	uint32_t credits;	/* sends that the peer has room for */
	uint32_t peer_receives; /* that the peer has posted in all, as far as it has said */
	uint32_t owed;		/* receives posted again that the peer does not know of */
	bool dead;		/* nothing is posted any more */
	bool peer_receives_known;
	struct endpoint_frame *first; /* waiting, oldest first */
	struct endpoint_frame **last;
	size_t waiting; /* frames in that queue */
	size_t waiting_bytes;
	uint64_t blocked_since_ns; /* 0: not waiting for a credit */
	uint64_t send_since_ns;	   /* 0: no send in flight; else when the oldest was posted */
	uint64_t sent_ns[ENDPOINT_SENDS];
	uint64_t spoke_ns; /* when a message was last posted; at first when the endpoint was made */
	uint64_t heard_ns; /* likewise, when one came that was in order */
};

/** endpoint_memory_bytes() - how many bytes of registered memory an endpoint needs */
size_t endpoint_memory_bytes(uint32_t receives);

/**
 * endpoint_init() - post all receives; before connect or accept, QP in INIT
 * @memory: endpoint_memory_bytes(@receives), registered with LOCAL_WRITE; borrowed until deinit
 * @route: upper 32 bits of the ids of all work requests posted here
 * @channel: that seals all messages; borrowed until deinit; NULL, for tests only: in clear
 *
 * The QP needs room for @receives receives and ENDPOINT_SENDS sends.
 * Return: 0 or a negative errno.
 */
int endpoint_init(struct endpoint *ep, struct ibv_qp *qp, void *memory, uint32_t lkey,
		  uint32_t receives, uint32_t route, struct channel *channel);

/** endpoint_deinit() - drop what waits; the QP must be gone or in ERR; all zero is allowed */
void endpoint_deinit(struct endpoint *ep);

/** endpoint_dead() - post nothing any more (QP in ERR, or about to be) */
void endpoint_dead(struct endpoint *ep);

/**
 * endpoint_peer_receives() - hello or welcome told how many receives the peer has posted
 *
 * Once per endpoint. Return: 0, or -EPROTO if it was told before.
 */
int endpoint_peer_receives(struct endpoint *ep, uint32_t receives);

/**
 * endpoint_send() - send a message, now or when there are credits and buffers
 *
 * Encoded at once; the credits field is filled in when it is posted. Messages arrive in the
 * order of these calls.
 * Return: 0, -ENOMEM, -ENOTCONN (dead), -ENOBUFS (4096 messages or 1 MiB wait already), a negative
 * errno of the post, or an error of channel_seal().
 */
int endpoint_send(struct endpoint *ep, enum endpoint_class class, const struct message *m);

/**
 * endpoint_flush() - post what can be posted, and a CREDIT message if enough is owed
 *
 * Called by endpoint_send(); the owner calls it after a batch of completions.
 * Return: 0 or a negative errno of the post.
 */
int endpoint_flush(struct endpoint *ep);

/**
 * endpoint_complete() - digest a completion of this endpoint
 * @wc: its wr_id has this endpoint's route
 * @ret_m: filled in if 1 is returned
 *
 * Return: 1 = a message has come; 0 = nothing to tell; -EPROTO = the peer broke the
 * protocol; -ENETRESET = the connection is broken (flushed or failed work request);
 * -EBADMSG = a receive whose sender invalidated a key (wc->wc_flags has IBV_WC_WITH_INV);
 * -EKEYREJECTED, -EOVERFLOW = it cannot be opened (channel_open()).
 */
int endpoint_complete(struct endpoint *ep, const struct ibv_wc *wc, struct message *ret_m);

/**
 * endpoint_has_invalidated() - has the peer invalidated one of our keys with a SEND?
 * @wc: of any endpoint, also one that is no more
 */
bool endpoint_has_invalidated(const struct ibv_wc *wc, uint32_t *ret_rkey);

/**
 * endpoint_was_peer() - was it the peer's doing that the connection broke?
 * @wc: the first that did not succeed since the connection was made
 *
 * A connection over which the peer cannot be reached breaks with a send of ours that was not
 * answered; one that was closed or destroyed by us is not meant.
 */
bool endpoint_was_peer(const struct ibv_wc *wc);

/**
 * endpoint_stalled() - has the peer been silent where it must not be?
 *
 * True if something has waited for a credit, or a send for its completion, longer than @limit_ms.
 */
bool endpoint_stalled(const struct endpoint *ep, uint64_t now_ns, uint64_t limit_ms);

/** endpoint_drained() - has the device given back every work request? */
static inline bool endpoint_drained(const struct endpoint *ep)
{
	return ep->receives_posted == 0 && ep->sends_posted == 0;
}

#endif
