/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A control connection and lanes without the library. Owns the connections and the messages
 * that have come and not been asked for. Credits are returned as they should be.
 *
 * Thread: one at a time for a peer and its lanes.
 */
#include "tests/integration/peer.h"

#include <errno.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/clock.h"
#include "common/secure.h"
#include "tests/integration/harness.h"

#define PEER_CALL_MS	20000
#define PEER_ACCESS_MS	10000
#define PEER_ASK_TTL_MS 600000
#define PEER_OWED_MAX	(RAW_RECEIVES / 2)

static bool peer_is_request(uint16_t type)
{
	switch (type) {
	case MESSAGE_BYE:
	case MESSAGE_CREDIT:
	case MESSAGE_REVOKED:
	case MESSAGE_QUIESCED:
		return false;
	default:
		return true;
	}
}

static int peer_pump(struct peer *peer, uint64_t limit_ms);

int peer_send(struct peer *peer, struct message *m)
{
	int r = 0;

	while (peer->control.sends_posted == RAW_SENDS && r >= 0)
		r = peer_pump(peer, 1);
	if (r < 0)
		return r;
	if (m->request_id == 0 && peer_is_request(m->type))
		m->request_id = ++peer->last_id;
	m->credits = peer->owed;
	r = raw_send_message(&peer->control, m);
	if (r == 0)
		peer->owed = 0;
	return r;
}

static int peer_keep(struct peer *peer, const struct message *m)
{
	struct message back = {.type = MESSAGE_CREDIT};

	if (m->type == MESSAGE_PING) {
		back.type = MESSAGE_PONG;
		back.request_id = m->request_id;
	} else if (m->type != MESSAGE_CREDIT) {
		if (peer->kept_count == PEER_KEPT_MAX)
			return -ENOBUFS;
		peer->kept[peer->kept_count++] = *m;
	}
	peer->owed++;
	return m->type == MESSAGE_PING || peer->owed >= PEER_OWED_MAX ? peer_send(peer, &back) : 0;
}

static int peer_pump(struct peer *peer, uint64_t limit_ms)
{
	struct message m;
	int r = raw_wait(&peer->control, limit_ms, &m);

	if (r <= 0)
		return r;
	r = peer_keep(peer, &m);
	return r < 0 ? r : 1;
}

int peer_look(struct peer *peer)
{
	int r;

	do
		r = peer_pump(peer, 0);
	while (r > 0);
	return r;
}

static bool peer_find(struct peer *peer, uint16_t type, uint64_t request_id, struct message *ret_m)
{
	for (uint32_t i = 0; i < peer->kept_count; i++) {
		if (peer->kept[i].request_id != request_id ||
		    (type != 0 && peer->kept[i].type != type))
			continue;
		*ret_m = peer->kept[i];
		peer->kept_count--;
		memmove(&peer->kept[i], &peer->kept[i + 1],
			(peer->kept_count - i) * sizeof(peer->kept[0]));
		return true;
	}
	return false;
}

int peer_take(struct peer *peer, uint16_t type, uint64_t request_id, uint64_t limit_ms,
	      struct message *ret_m)
{
	uint64_t until_ns = clock_add_ms(clock_now_ns(), limit_ms);
	int r = 1;

	while (!peer_find(peer, type, request_id, ret_m)) {
		uint64_t left_ms = clock_left_ms(until_ns, clock_now_ns());

		if (r <= 0)
			return r;
		r = peer_pump(peer, left_ms);
	}
	return 1;
}

int peer_call(struct peer *peer, struct message *m, struct message *ret_answer)
{
	int r = peer_send(peer, m);

	if (r < 0)
		return r;
	r = peer_take(peer, 0, m->request_id, PEER_CALL_MS, ret_answer);
	if (r != 1)
		return r == 0 ? -ETIMEDOUT : r;
	return ret_answer->type == MESSAGE_ERROR ? (int)ret_answer->u.error.code : 0;
}

/* Opening and closing. */

static int peer_hello(struct peer *peer)
{
	struct message m = raw_hello_message();
	int r;

	memcpy(m.u.hello.instance, peer->instance, sizeof(peer->instance));
	m.request_id = 0;
	r = peer_call(peer, &m, &m);
	if (r == 0)
		peer->welcome = m.u.welcome;
	return r > 0 ? -EPROTO : r;
}

int peer_open(struct peer *peer, const char *tenant, const uint8_t *instance)
{
	int r;

	*peer = (struct peer){.kept = calloc(PEER_KEPT_MAX, sizeof(struct message))};
	if (peer->kept == NULL)
		return -ENOMEM;
	if (instance != NULL)
		memcpy(peer->instance, instance, sizeof(peer->instance));
	else
		secure_random(peer->instance, sizeof(peer->instance));
	r = raw_open(&peer->control, tenant);
	return r == 0 ? peer_hello(peer) : r;
}

void peer_cut(struct peer *peer)
{
	(void)rdma_disconnect(peer->control.id);
}

void peer_close(struct peer *peer)
{
	raw_close(&peer->control);
	free(peer->kept);
	*peer = (struct peer){0};
}

/* Requests. */

uint64_t peer_ask(struct peer *peer, const struct peer_lane *lane, uint64_t len_bytes,
		  uint16_t count, uint32_t wait_ms)
{
	struct message m = {
		.type = MESSAGE_ACQUIRE,
		.u.acquire =
			{
				.len_bytes = len_bytes,
				.ttl_ms = PEER_ASK_TTL_MS,
				.rights = MESSAGE_RIGHT_READ | MESSAGE_RIGHT_WRITE,
				.lane = lane->number,
				.wait_ms = wait_ms,
				.count = count,
			},
	};

	return peer_send(peer, &m) == 0 ? m.request_id : 0;
}

int peer_answer(struct peer *peer, uint64_t request_id, uint64_t limit_ms)
{
	struct message m;
	int r = peer_take(peer, 0, request_id, limit_ms, &m);

	if (r != 1)
		return r == 0 ? -ETIMEDOUT : r;
	return m.type == MESSAGE_ERROR ? (int)m.u.error.code : 0;
}

int peer_acquire(struct peer *peer, const struct peer_lane *lane, uint64_t len_bytes,
		 uint64_t ttl_ms, uint32_t wait_ms, struct message_grant *ret_grant)
{
	struct message m = {
		.type = MESSAGE_ACQUIRE,
		.u.acquire =
			{
				.len_bytes = len_bytes,
				.ttl_ms = ttl_ms,
				.rights = MESSAGE_RIGHT_READ | MESSAGE_RIGHT_WRITE,
				.lane = lane->number,
				.wait_ms = wait_ms,
				.count = 1,
			},
	};
	int r = peer_call(peer, &m, &m);

	if (r == 0)
		*ret_grant = m.u.grant;
	return r;
}

int peer_attach(struct peer *peer, const struct peer_lane *lane, uint64_t lease_id,
		struct message_grant *ret_grant)
{
	struct message m = {
		.type = MESSAGE_ATTACH,
		.u.attach = {.lease_id = lease_id, .lane = lane->number},
	};
	int r = peer_call(peer, &m, &m);

	if (r == 0)
		*ret_grant = m.u.grant;
	return r;
}

int peer_reattach(struct peer *peer, const struct peer_lane *lane,
		  const struct message_grant *granted, struct message_grant *ret_grant)
{
	struct message m = {
		.type = MESSAGE_REATTACH,
		.u.reattach = {.lease_id = granted->lease_id, .lane = lane->number},
	};
	int r;

	memcpy(m.u.reattach.secret, granted->secret, sizeof(granted->secret));
	r = peer_call(peer, &m, &m);
	if (r == 0)
		*ret_grant = m.u.grant;
	return r;
}

int peer_renew(struct peer *peer, uint64_t lease_id, uint64_t ttl_ms)
{
	struct message m = {
		.type = MESSAGE_RENEW,
		.u.renew = {.lease_id = lease_id, .ttl_ms = ttl_ms},
	};

	return peer_call(peer, &m, &m);
}

int peer_release(struct peer *peer, uint64_t lease_id)
{
	struct message m = {
		.type = MESSAGE_RELEASE,
		.u.leases = {.count = 1, .lease_ids = {lease_id}},
	};
	int r = peer_call(peer, &m, &m);

	return r == 0 ? (int)m.u.released.released[0].code : r;
}

int peer_say(struct peer *peer, uint16_t type, uint64_t lease_id)
{
	struct message m = {.type = type};

	if (type == MESSAGE_REVOKED)
		m.u.leases = (struct message_leases){.count = 1, .lease_ids = {lease_id}};
	else
		m.u.lease.lease_id = lease_id;
	return peer_send(peer, &m);
}

/* Lanes. */

int peer_offer(struct peer *peer, struct message_lane_offer *ret_offer)
{
	struct message m = {.type = MESSAGE_LANE_OPEN};
	int r = peer_call(peer, &m, &m);

	if (r == 0)
		*ret_offer = m.u.lane_offer;
	return r;
}

void peer_prove(const struct peer *peer, const struct peer_lane *lane, struct private_data *data)
{
	struct channel_lane bound = {
		.session_id = data->session_id,
		.lane = data->lane,
		.client_qpn = lane->raw.id->qp->qp_num,
	};

	channel_lane_address(rdma_get_local_addr(lane->raw.id), &bound);
	channel_lane_mac(&peer->control.secrets, &bound, data->mac);
}

static int peer_prepare(struct peer *peer, const struct message_lane_offer *offer,
			struct peer_lane *ret_lane, struct private_data *ret_data)
{
	int r;

	*ret_data = (struct private_data){
		.kind = PRIVATE_DATA_LANE,
		.session_id = peer->welcome.session_id,
		.lane = offer->lane,
	};
	ret_lane->number = offer->lane;
	r = raw_prepare(&ret_lane->raw);
	if (r == 0)
		peer_prove(peer, ret_lane, ret_data);
	return r;
}

int peer_connect_with(struct peer *peer, const struct message_lane_offer *offer,
		      void (*change)(struct private_data *data), struct peer_lane *ret_lane)
{
	uint8_t bytes[PROTO_PRIVATE_DATA_MAX];
	struct private_data data;
	int r = peer_prepare(peer, offer, ret_lane, &data);

	if (r != 0)
		return r;
	if (change != NULL)
		change(&data);
	return raw_request(&ret_lane->raw, bytes, private_data_encode(&data, bytes));
}

int peer_give_up(struct peer *peer, const struct message_lane_offer *offer)
{
	__attribute__((cleanup(peer_lane_close))) struct peer_lane lane = {0};
	uint8_t bytes[PROTO_PRIVATE_DATA_MAX];
	struct private_data data;
	int r = peer_prepare(peer, offer, &lane, &data);

	return r == 0 ? raw_give_up(&lane.raw, bytes, private_data_encode(&data, bytes)) : r;
}

int peer_connect(struct peer *peer, const struct message_lane_offer *offer,
		 struct peer_lane *ret_lane)
{
	return peer_connect_with(peer, offer, NULL, ret_lane);
}

int peer_confirm(struct peer *peer, struct peer_lane *lane)
{
	struct message m = {.type = MESSAGE_LANE_CONFIRM};
	struct ibv_qp *qp = lane->raw.id->qp;
	struct ibv_qp_init_attr init_attr;
	struct ibv_qp_attr attr;

	if (ibv_query_qp(qp, &attr, IBV_QP_DEST_QPN, &init_attr) != 0)
		return -EIO;
	m.u.lane_confirm = (struct message_lane_confirm){
		.lane = lane->number,
		.daemon_qpn = attr.dest_qp_num,
		.client_qpn = qp->qp_num,
	};
	return peer_call(peer, &m, &m);
}

int peer_lane_open(struct peer *peer, struct peer_lane *ret_lane)
{
	struct message_lane_offer offer;
	int r = peer_offer(peer, &offer);

	if (r == 0)
		r = peer_connect(peer, &offer, ret_lane);
	if (r == 0)
		r = peer_confirm(peer, ret_lane);
	return r;
}

void peer_lane_close(struct peer_lane *lane)
{
	raw_close(&lane->raw);
	*lane = (struct peer_lane){0};
}

static int peer_completion(struct peer_lane *lane, struct ibv_wc *ret_wc)
{
	uint64_t until_ns = clock_add_ms(clock_now_ns(), PEER_ACCESS_MS);
	int n;

	/* The first polls are for nothing more often than not, and time is dear on few CPUs. */
	while ((n = verbs_poll_cq(lane->raw.cq.cq, 1, ret_wc)) == 0) {
		if (clock_now_ns() >= until_ns)
			break;
		sched_yield();
	}
	return n;
}

int peer_access(struct peer_lane *lane, enum ibv_wr_opcode opcode, uint32_t len_bytes,
		uint64_t remote_addr, uint32_t rkey)
{
	struct ibv_sge sge = {
		.addr = (uintptr_t)lane->raw.memory,
		.length = len_bytes,
		.lkey = lane->raw.mr->lkey,
	};
	struct ibv_send_wr wr = {
		.wr_id = UINT64_MAX,
		.sg_list = &sge,
		.num_sge = 1,
		.opcode = opcode,
		.send_flags = IBV_SEND_SIGNALED,
		.wr.rdma = {.remote_addr = remote_addr, .rkey = rkey},
	};
	struct ibv_send_wr *bad;
	struct ibv_wc wc;

	if (verbs_post_send(lane->raw.id->qp, &wr, &bad) < 0)
		return -1;
	/* A QP in ERR gives the receives back as well, which are of no interest. */
	do {
		if (peer_completion(lane, &wc) != 1)
			return -1;
	} while (wc.wr_id != UINT64_MAX);
	return (int)wc.status;
}
