/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A client that can say anything. Receives are posted again as messages come, and no
 * credits are counted: that is for the test to respect or not.
 *
 * Memory: RAW_RECEIVES receive buffers, then RAW_SENDS to send from, used in turn.
 * Thread: the test's.
 */
#include "tests/integration/raw.h"

#include <arpa/inet.h>
#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "common/clock.h"
#include "tests/integration/harness.h"
#include "tests/integration/keys.h"

#define RAW_SEND_ID    UINT64_MAX
#define RAW_BYTES      ((RAW_RECEIVES + RAW_SENDS) * (size_t)PROTO_FRAME_MAX)
#define RAW_CONNECT_MS 10000
#define RAW_READ_DEPTH 1 /* of reads on a lane; control connections have none */

/* The next event of the channel. Return: 0, or a negative errno. */
static int raw_event(struct raw *raw, uint64_t limit_ms, struct rdma_cm_event **ret_event)
{
	struct pollfd fd = {.fd = raw->channel->fd, .events = POLLIN};

	if (poll(&fd, 1, (int)limit_ms) <= 0)
		return -ETIMEDOUT;
	return rdma_get_cm_event(raw->channel, ret_event) == 0 ? 0 : -errno;
}

static void raw_keep_reply(struct raw *raw, const struct rdma_conn_param *param)
{
	uint8_t len_bytes = param->private_data == NULL ? 0 : param->private_data_len;

	raw->reply_bytes = len_bytes < sizeof(raw->reply) ? len_bytes : sizeof(raw->reply);
	if (raw->reply_bytes > 0)
		memcpy(raw->reply, param->private_data, raw->reply_bytes);
}

/* Return: 0 for the event that was expected; a reject's code; or a negative errno. */
static int raw_expect(struct raw *raw, enum rdma_cm_event_type type)
{
	struct rdma_cm_event *event;
	struct private_data data;
	int r = raw_event(raw, RAW_CONNECT_MS, &event);

	if (r < 0)
		return r;
	if (event->event == type) {
		r = 0;
		if (type == RDMA_CM_EVENT_ESTABLISHED)
			raw_keep_reply(raw, &event->param.conn);
	} else if (event->event == RDMA_CM_EVENT_REJECTED) {
		r = -ECONNREFUSED;
		if (private_data_decode(event->param.conn.private_data,
					event->param.conn.private_data_len, &data) == 0 &&
		    data.kind == PRIVATE_DATA_REJECT)
			r = (int)data.code;
	} else {
		r = -EIO;
	}
	(void)rdma_ack_cm_event(event);
	return r;
}

static int raw_post_receive(struct raw *raw, uint64_t index)
{
	struct ibv_sge sge = {
		.addr = (uintptr_t)raw->memory + index * PROTO_FRAME_MAX,
		.length = PROTO_FRAME_MAX,
		.lkey = raw->mr->lkey,
	};
	struct ibv_recv_wr wr = {.wr_id = index, .sg_list = &sge, .num_sge = 1};
	struct ibv_recv_wr *bad;

	return verbs_post_recv(raw->id->qp, &wr, &bad);
}

static int raw_create_qp(struct raw *raw)
{
	struct ibv_qp_init_attr attr = {
		.qp_type = IBV_QPT_RC,
		.cap = {.max_send_wr = RAW_SENDS,
			.max_recv_wr = RAW_RECEIVES,
			.max_send_sge = 1,
			.max_recv_sge = 1},
	};
	int r;

	raw->pd = ibv_alloc_pd(raw->id->verbs);
	raw->memory =
		mmap(NULL, RAW_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (raw->pd == NULL || raw->memory == MAP_FAILED)
		return -ENOMEM;
	r = verbs_reg_mr(raw->pd, raw->memory, RAW_BYTES, IBV_ACCESS_LOCAL_WRITE, &raw->mr);
	if (r == 0)
		r = verbs_cq_init(&raw->cq, raw->id->verbs, RAW_RECEIVES + RAW_SENDS);
	if (r < 0)
		return r;
	attr.send_cq = raw->cq.cq;
	attr.recv_cq = raw->cq.cq;
	if (rdma_create_qp(raw->id, raw->pd, &attr) != 0)
		return -errno;
	for (uint64_t i = 0; i < RAW_RECEIVES && r == 0; i++)
		r = raw_post_receive(raw, i);
	return r;
}

static int raw_resolve(struct raw *raw, uint16_t port)
{
	struct sockaddr_in peer = {.sin_family = AF_INET, .sin_port = htons(port)};
	int r;

	if (inet_pton(AF_INET, harness_address(), &peer.sin_addr) != 1)
		return -EINVAL;
	raw->channel = rdma_create_event_channel();
	if (raw->channel == NULL || rdma_create_id(raw->channel, &raw->id, raw, RDMA_PS_TCP) != 0)
		return -errno;
	if (rdma_resolve_addr(raw->id, NULL, (struct sockaddr *)&peer, RAW_CONNECT_MS) != 0)
		return -errno;
	r = raw_expect(raw, RDMA_CM_EVENT_ADDR_RESOLVED);
	if (r != 0)
		return r;
	if (rdma_resolve_route(raw->id, RAW_CONNECT_MS) != 0)
		return -errno;
	return raw_expect(raw, RDMA_CM_EVENT_ROUTE_RESOLVED);
}

int raw_prepare_for(struct raw *raw, uint16_t port)
{
	int r;

	*raw = (struct raw){0};
	r = raw_resolve(raw, port);
	return r == 0 ? raw_create_qp(raw) : r;
}

int raw_prepare(struct raw *raw)
{
	return raw_prepare_for(raw, HARNESS_PORT);
}

static int raw_ask(struct raw *raw, const void *data, uint8_t len_bytes, uint32_t qpn)
{
	struct rdma_conn_param param = {
		.private_data = len_bytes > 0 ? data : NULL,
		.private_data_len = len_bytes,
		.initiator_depth = RAW_READ_DEPTH,
		.retry_count = 5,
		.rnr_retry_count = 6,
		.qp_num = qpn,
	};

	return rdma_connect(raw->id, &param) == 0 ? 0 : -errno;
}

int raw_request(struct raw *raw, const void *data, uint8_t len_bytes)
{
	int r = raw_ask(raw, data, len_bytes, raw->id->qp->qp_num);

	return r == 0 ? raw_expect(raw, RDMA_CM_EVENT_ESTABLISHED) : r;
}

int raw_give_up(struct raw *raw, const void *data, uint8_t len_bytes)
{
	struct ibv_qp *qp = raw->id->qp;
	int r;

	/* Without a QP it is the user's to answer the accept, and not librdmacm's. */
	raw->id->qp = NULL;
	r = raw_ask(raw, data, len_bytes, qp->qp_num);
	if (r == 0)
		r = raw_expect(raw, RDMA_CM_EVENT_CONNECT_RESPONSE);
	(void)rdma_destroy_id(raw->id);
	raw->id = NULL;
	(void)verbs_destroy_qp(qp);
	raw_close(raw);
	return r;
}

int raw_adopt(struct raw *raw, struct rdma_cm_id *id)
{
	*raw = (struct raw){.id = id, .channel = rdma_create_event_channel()};
	if (raw->channel == NULL || rdma_migrate_id(id, raw->channel) != 0)
		return -errno;
	return raw_create_qp(raw);
}

int raw_connect(struct raw *raw, const void *data, uint8_t len_bytes)
{
	int r = raw_prepare(raw);

	return r == 0 ? raw_request(raw, data, len_bytes) : r;
}

int raw_connect_as(struct raw *raw, const struct private_data *data)
{
	uint8_t bytes[PROTO_PRIVATE_DATA_MAX];

	return raw_connect(raw, bytes, private_data_encode(data, bytes));
}

int raw_open(struct raw *raw, const char *tenant)
{
	struct private_data data = {
		.kind = PRIVATE_DATA_CONTROL,
		.version = PROTO_VERSION,
		.version_min = PROTO_VERSION_MIN,
	};

	struct secure_key_pair daemon;
	int r = raw_connect_as(raw, &data);

	if (r != 0)
		return r;
	keys_of("daemon", &daemon);
	keys_of(tenant, &raw->own);
	channel_init_client(&raw->secrets, &data, PROTO_VERSION, &raw->own, daemon.public_key);
	raw->sealing = true;
	return 0;
}

void raw_close(struct raw *raw)
{
	if (raw->id != NULL) {
		if (raw->id->qp != NULL) {
			(void)rdma_disconnect(raw->id);
			(void)verbs_destroy_qp(raw->id->qp);
			raw->id->qp = NULL;
		}
		(void)rdma_destroy_id(raw->id);
	}
	(void)verbs_cq_deinit(&raw->cq);
	(void)verbs_dereg_mr(raw->mr);
	if (raw->memory != NULL && raw->memory != MAP_FAILED)
		(void)munmap(raw->memory, RAW_BYTES);
	if (raw->pd != NULL)
		(void)ibv_dealloc_pd(raw->pd);
	if (raw->channel != NULL)
		rdma_destroy_event_channel(raw->channel);
	*raw = (struct raw){0};
}

int raw_send(struct raw *raw, const void *bytes, uint32_t len_bytes)
{
	uint8_t *buf = raw->memory + (RAW_RECEIVES + raw->next_send) * (size_t)PROTO_FRAME_MAX;
	struct ibv_sge sge = {.addr = (uintptr_t)buf, .length = len_bytes, .lkey = raw->mr->lkey};
	struct ibv_send_wr wr = {
		.wr_id = RAW_SEND_ID,
		.sg_list = &sge,
		.num_sge = 1,
		.opcode = IBV_WR_SEND,
		.send_flags = IBV_SEND_SIGNALED,
	};
	struct ibv_send_wr *bad;

	int r;

	if (len_bytes > PROTO_FRAME_MAX)
		return -EMSGSIZE;
	if (raw->sends_posted == RAW_SENDS)
		return -EAGAIN;
	memcpy(buf, bytes, len_bytes);
	r = verbs_post_send(raw->id->qp, &wr, &bad);
	if (r < 0)
		return r;
	raw->sends_posted++;
	raw->next_send = (raw->next_send + 1) % RAW_SENDS;
	return 0;
}

int raw_send_sealed(struct raw *raw, const void *bytes, uint32_t len_bytes)
{
	uint8_t sealed[PROTO_FRAME_MAX];
	size_t sealed_bytes;
	int r;

	if (!raw->sealing)
		return raw_send(raw, bytes, len_bytes);
	r = channel_seal(&raw->secrets, bytes, len_bytes, sealed, sizeof(sealed), &sealed_bytes);
	return r < 0 ? r : raw_send(raw, sealed, (uint32_t)sealed_bytes);
}

int raw_send_message(struct raw *raw, const struct message *m)
{
	uint8_t buf[PROTO_MESSAGE_MAX];
	size_t len_bytes;
	int r = message_encode(m, buf, sizeof(buf), &len_bytes);

	return r < 0 ? r : raw_send_sealed(raw, buf, (uint32_t)len_bytes);
}

static void raw_look_at_events(struct raw *raw)
{
	struct rdma_cm_event *event;

	while (raw_event(raw, 0, &event) == 0) {
		raw->gone |= event->event == RDMA_CM_EVENT_DISCONNECTED;
		(void)rdma_ack_cm_event(event);
	}
}

static int raw_decode(struct raw *raw, const uint8_t *bytes, uint32_t len_bytes,
		      struct message *ret_m)
{
	uint8_t opened[PROTO_FRAME_MAX];
	size_t opened_bytes;
	int r;

	if (!raw->sealing)
		return message_decode(bytes, len_bytes, ret_m);
	/* That is how a daemon refuses what it cannot read. */
	if (!raw->secrets.sealed && message_decode(bytes, len_bytes, ret_m) == 0 &&
	    ret_m->type == MESSAGE_ERROR)
		return 0;
	r = channel_open(&raw->secrets, bytes, len_bytes, opened, sizeof(opened), &opened_bytes);
	return r < 0 ? r : message_decode(opened, opened_bytes, ret_m);
}

int raw_take(struct raw *raw, uint8_t *bytes, uint32_t *ret_len_bytes)
{
	struct ibv_wc wc;

	raw_look_at_events(raw);
	while (verbs_poll_cq(raw->cq.cq, 1, &wc) == 1) {
		if (wc.status != IBV_WC_SUCCESS) {
			raw->gone = true;
			continue;
		}
		if (wc.wr_id == RAW_SEND_ID) {
			raw->sends_posted--;
			continue;
		}
		memcpy(bytes, raw->memory + wc.wr_id * PROTO_FRAME_MAX, wc.byte_len);
		(void)raw_post_receive(raw, wc.wr_id);
		*ret_len_bytes = wc.byte_len;
		return 1;
	}
	return raw->gone ? -ENETRESET : 0;
}

int raw_wait(struct raw *raw, uint64_t limit_ms, struct message *ret_m)
{
	uint64_t until_ns = clock_add_ms(clock_now_ns(), limit_ms);
	uint8_t bytes[PROTO_FRAME_MAX];
	uint32_t len_bytes;
	int r;

	for (;;) {
		r = raw_take(raw, bytes, &len_bytes);
		if (r == 1 && raw_decode(raw, bytes, len_bytes, ret_m) == 0)
			return 1;
		if (r < 0)
			return r;
		if (r == 1)
			continue;
		if (clock_now_ns() >= until_ns)
			return 0;
		harness_sleep_ms(1);
	}
}

struct message raw_hello_message(void)
{
	struct message m = {.type = MESSAGE_HELLO, .request_id = 1};

	m.u.hello.version = PROTO_VERSION;
	m.u.hello.receives = RAW_RECEIVES;
	memset(m.u.hello.instance, 0x33, sizeof(m.u.hello.instance));
	return m;
}

int raw_hello(struct raw *raw, struct message_welcome *ret_welcome)
{
	struct message m = raw_hello_message();
	int r = raw_send_message(raw, &m);

	if (r < 0)
		return r;
	r = raw_wait(raw, RAW_LATE_MS, &m);
	if (r != 1)
		return r == 0 ? -ETIMEDOUT : r;
	if (m.type != MESSAGE_WELCOME)
		return -EPROTO;
	*ret_welcome = m.u.welcome;
	return 0;
}
