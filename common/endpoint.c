/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * One end of a control connection. It owns the queue of encoded frames that wait and the
 * accounting of buffers and credits; the memory and the QP are borrowed.
 *
 * Invariants: a receive buffer is posted again before its credit is counted as owed; a send
 * is posted only against a credit; the last credit is spent only on a message that returns
 * one, so that the two ends can never both be left without (PROTOCOL.md, credits).
 *
 * Thread: that of the owner; no locking.
 */
#include "common/endpoint.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "common/clock.h"
#include "common/route.h"
#include "common/secure.h"
#include "common/verbs.h"

#define ENDPOINT_WAITING_MAX	   4096
#define ENDPOINT_WAITING_MAX_BYTES (1024u * 1024)
#define ENDPOINT_SEND_INDEX	   0x80000000u /* marks the index half of a send's work request id */

/*
 * Soft-RoCE hands on the kernel's number for this flag, which is that of IP_CSUM_OK here. A
 * receive of a reliable connection has no IP checksum to be OK.
 */
#define ENDPOINT_WITH_INV (IBV_WC_WITH_INV | IBV_WC_IP_CSUM_OK)

struct endpoint_frame {
	struct endpoint_frame *next;
	enum endpoint_class class;
	size_t len_bytes;
	uint8_t bytes[];
};

static_assert(ENDPOINT_SENDS <= 32, "the mask of free send buffers has 32 bits");

size_t endpoint_memory_bytes(uint32_t receives)
{
	return ((size_t)receives + ENDPOINT_SENDS) * PROTO_FRAME_MAX;
}

static int endpoint_post_receive(struct endpoint *ep, uint32_t index)
{
	struct ibv_sge sge = {
		.addr = (uintptr_t)(ep->memory + (size_t)index * PROTO_FRAME_MAX),
		.length = PROTO_FRAME_MAX,
		.lkey = ep->lkey,
	};
	struct ibv_recv_wr wr = {
		.wr_id = route_wr_id(ep->route, index),
		.sg_list = &sge,
		.num_sge = 1,
	};
	struct ibv_recv_wr *bad;
	int r = verbs_post_recv(ep->qp, &wr, &bad);

	if (r == 0)
		ep->receives_posted++;
	return r;
}

int endpoint_init(struct endpoint *ep, struct ibv_qp *qp, void *memory, uint32_t lkey,
		  uint32_t receives, uint32_t route, struct channel *channel)
{
	int r;

	assert(receives >= PROTO_CREDITS_MIN && receives <= PROTO_CREDITS_MAX);
	*ep = (struct endpoint){
		.qp = qp,
		.memory = memory,
		.lkey = lkey,
		.route = route,
		.channel = channel,
		.receives = receives,
		.sends_free_mask = (uint32_t)((UINT64_C(1) << ENDPOINT_SENDS) - 1),
		.credits = PROTO_CREDITS_MIN,
		.peer_receives = PROTO_CREDITS_MIN,
	};
	ep->last = &ep->first;
	ep->spoke_ns = ep->heard_ns = clock_now_ns();
	for (uint32_t i = 0; i < receives; i++) {
		r = endpoint_post_receive(ep, i);
		if (r < 0)
			return r;
	}
	return 0;
}

static void endpoint_pop(struct endpoint *ep)
{
	struct endpoint_frame *frame = ep->first;

	ep->first = frame->next;
	if (ep->first == NULL)
		ep->last = &ep->first;
	ep->waiting--;
	ep->waiting_bytes -= frame->len_bytes;
	secure_wipe(frame->bytes, frame->len_bytes); /* a grant has keys in it */
	free(frame);
}

void endpoint_dead(struct endpoint *ep)
{
	ep->dead = true;
	while (ep->first != NULL)
		endpoint_pop(ep);
	ep->blocked_since_ns = 0;
}

void endpoint_deinit(struct endpoint *ep)
{
	endpoint_dead(ep);
	*ep = (struct endpoint){.dead = true};
}

int endpoint_peer_receives(struct endpoint *ep, uint32_t receives)
{
	if (ep->peer_receives_known)
		return -EPROTO;
	assert(receives >= PROTO_CREDITS_MIN && receives <= PROTO_CREDITS_MAX);
	ep->peer_receives_known = true;
	ep->peer_receives = receives;
	ep->credits += receives - PROTO_CREDITS_MIN;
	return 0;
}

/* Make of a message what goes into a send buffer. */
static int endpoint_seal(struct endpoint *ep, void *bytes, size_t len_bytes, uint8_t *buffer,
			 size_t *ret_len_bytes)
{
	message_set_credits(bytes, (uint16_t)ep->owed);
	if (ep->channel != NULL)
		return channel_seal(ep->channel, bytes, len_bytes, buffer, PROTO_FRAME_MAX,
				    ret_len_bytes);
	memcpy(buffer, bytes, len_bytes);
	*ret_len_bytes = len_bytes;
	return 0;
}

static int endpoint_post_send(struct endpoint *ep, void *bytes, size_t len_bytes)
{
	uint32_t index = (uint32_t)__builtin_ctz(ep->sends_free_mask);
	uint8_t *buffer = ep->memory + ((size_t)ep->receives + index) * PROTO_FRAME_MAX;
	struct ibv_sge sge = {
		.addr = (uintptr_t)buffer,
		.lkey = ep->lkey,
	};
	struct ibv_send_wr wr = {
		.wr_id = route_wr_id(ep->route, ENDPOINT_SEND_INDEX | index),
		.sg_list = &sge,
		.num_sge = 1,
		.opcode = IBV_WR_SEND,
		.send_flags = IBV_SEND_SIGNALED,
	};
	struct ibv_send_wr *bad;
	size_t sealed_bytes;
	int r;

	r = endpoint_seal(ep, bytes, len_bytes, buffer, &sealed_bytes);
	if (r < 0)
		return r;
	sge.length = (uint32_t)sealed_bytes;
	r = verbs_post_send(ep->qp, &wr, &bad);
	if (r < 0)
		return r;
	ep->owed = 0;
	ep->credits--;
	ep->sends_free_mask &= ~(UINT32_C(1) << index);
	ep->spoke_ns = ep->sent_ns[index] = clock_now_ns();
	if (ep->sends_posted++ == 0)
		ep->send_since_ns = ep->sent_ns[index];
	return 0;
}

/* May a message of this class be sent with the credits that are left? */
static bool endpoint_may_send(const struct endpoint *ep, enum endpoint_class class)
{
	uint32_t kept = class == ENDPOINT_NOTICE ? 1 : 2;

	return ep->credits > kept || (ep->credits > 0 && ep->owed > 0);
}

static int endpoint_send_credits(struct endpoint *ep)
{
	struct message m = {.type = MESSAGE_CREDIT};
	uint8_t bytes[MESSAGE_HEADER_BYTES];
	size_t len_bytes;
	int r = message_encode(&m, bytes, sizeof(bytes), &len_bytes);

	assert(r == 0);
	return endpoint_post_send(ep, bytes, len_bytes);
}

int endpoint_flush(struct endpoint *ep)
{
	struct endpoint_frame *frame;
	int r;

	if (ep->dead)
		return 0;
	while ((frame = ep->first) != NULL && ep->sends_free_mask != 0 &&
	       endpoint_may_send(ep, frame->class)) {
		r = endpoint_post_send(ep, frame->bytes, frame->len_bytes);
		if (r < 0)
			return r;
		endpoint_pop(ep);
		ep->blocked_since_ns = 0; /* the next one's wait begins now */
	}
	if (frame == NULL || endpoint_may_send(ep, frame->class))
		ep->blocked_since_ns = 0;
	else if (ep->blocked_since_ns == 0)
		ep->blocked_since_ns = clock_now_ns();
	if (ep->owed >= ep->receives / 2 && ep->credits > 0 && ep->sends_free_mask != 0)
		return endpoint_send_credits(ep);
	return 0;
}

int endpoint_send(struct endpoint *ep, enum endpoint_class class, const struct message *m)
{
	uint8_t bytes[PROTO_MESSAGE_MAX];
	struct endpoint_frame *frame;
	size_t len_bytes;
	int r;

	if (ep->dead)
		return -ENOTCONN;
	if (ep->waiting >= ENDPOINT_WAITING_MAX || ep->waiting_bytes >= ENDPOINT_WAITING_MAX_BYTES)
		return -ENOBUFS;
	r = message_encode(m, bytes, sizeof(bytes), &len_bytes);
	assert(r == 0);
	frame = malloc(sizeof(*frame) + len_bytes);
	if (frame == NULL)
		return -ENOMEM;
	frame->next = NULL;
	frame->class = class;
	frame->len_bytes = len_bytes;
	memcpy(frame->bytes, bytes, len_bytes);
	*ep->last = frame;
	ep->last = &frame->next;
	ep->waiting++;
	ep->waiting_bytes += len_bytes;
	return endpoint_flush(ep);
}

static void endpoint_send_done(struct endpoint *ep, uint32_t index)
{
	assert(index < ENDPOINT_SENDS && ep->sends_posted > 0);
	ep->sends_free_mask |= UINT32_C(1) << index;
	ep->sends_posted--;
	ep->send_since_ns = 0;
	for (uint32_t i = 0; i < ENDPOINT_SENDS; i++) {
		if ((ep->sends_free_mask >> i & 1) != 0)
			continue;
		if (ep->send_since_ns == 0 || ep->sent_ns[i] < ep->send_since_ns)
			ep->send_since_ns = ep->sent_ns[i];
	}
}

/* Return: 0, -EPROTO, or as channel_open(). */
static int endpoint_open(struct endpoint *ep, const uint8_t *buffer, uint32_t len_bytes,
			 struct message *ret_m)
{
	uint8_t bytes[PROTO_FRAME_MAX];
	size_t opened_bytes;
	int r;

	if (ep->channel == NULL)
		return message_decode(buffer, len_bytes, ret_m);
	r = channel_open(ep->channel, buffer, len_bytes, bytes, sizeof(bytes), &opened_bytes);
	if (r < 0)
		return r;
	r = message_decode(bytes, opened_bytes, ret_m);
	secure_wipe(bytes, opened_bytes);
	return r;
}

static bool endpoint_is_send(const struct ibv_wc *wc)
{
	return (route_index(wc->wr_id) & ENDPOINT_SEND_INDEX) != 0;
}

bool endpoint_has_invalidated(const struct ibv_wc *wc, uint32_t *ret_rkey)
{
	if (endpoint_is_send(wc) || wc->status != IBV_WC_SUCCESS ||
	    (wc->wc_flags & ENDPOINT_WITH_INV) == 0)
		return false;
	*ret_rkey = wc->invalidated_rkey;
	return true;
}

bool endpoint_was_peer(const struct ibv_wc *wc)
{
	return wc->status == IBV_WC_WR_FLUSH_ERR || !endpoint_is_send(wc);
}

/* A receive is taken out, digested and posted again; only then is its credit owed to the peer. */
static int endpoint_received(struct endpoint *ep, const struct ibv_wc *wc, struct message *ret_m)
{
	uint32_t index = route_index(wc->wr_id);
	uint32_t rkey;
	int r;

	assert(index < ep->receives && ep->receives_posted > 0);
	ep->receives_posted--;
	if (wc->status != IBV_WC_SUCCESS)
		return -ENETRESET;
	if (endpoint_has_invalidated(wc, &rkey))
		return -EBADMSG;
	if ((wc->wc_flags & IBV_WC_WITH_IMM) != 0)
		return -EPROTO;
	if (ep->dead)
		return 0;
	r = endpoint_open(ep, ep->memory + (size_t)index * PROTO_FRAME_MAX, wc->byte_len, ret_m);
	if (r < 0)
		return r;
	if (ret_m->credits > ep->peer_receives - ep->credits)
		return -EPROTO;
	/* More messages than credits, or one that spends a credit for nothing. */
	if (ep->owed >= ep->receives || (ret_m->type == MESSAGE_CREDIT && ret_m->credits == 0))
		return -EPROTO;
	ep->credits += ret_m->credits;
	ep->heard_ns = clock_now_ns();
	r = endpoint_post_receive(ep, index);
	if (r < 0)
		return -ENETRESET;
	ep->owed++;
	return ret_m->type == MESSAGE_CREDIT ? 0 : 1;
}

int endpoint_complete(struct endpoint *ep, const struct ibv_wc *wc, struct message *ret_m)
{
	if (!endpoint_is_send(wc))
		return endpoint_received(ep, wc, ret_m);
	endpoint_send_done(ep, route_index(wc->wr_id) & ~ENDPOINT_SEND_INDEX);
	return wc->status == IBV_WC_SUCCESS ? 0 : -ENETRESET;
}

static bool endpoint_older(uint64_t since_ns, uint64_t now_ns, uint64_t limit_ms)
{
	return since_ns != 0 && clock_add_ms(since_ns, limit_ms) <= now_ns;
}

bool endpoint_stalled(const struct endpoint *ep, uint64_t now_ns, uint64_t limit_ms)
{
	return endpoint_older(ep->blocked_since_ns, now_ns, limit_ms) ||
	       endpoint_older(ep->send_since_ns, now_ns, limit_ms);
}
