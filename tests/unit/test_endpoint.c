/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * common/endpoint.c over a simulated wire: the posts are replaced, completions are made up.
 * First each rule of the credits by itself, then pairs of endpoints that exchange thousands
 * of random messages: nothing is sent without a receive, lost or reordered, and neither end
 * is ever stuck.
 */
#include "common/endpoint.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/clock.h"
#include "common/route.h"
#include "tests/unit/abort.h"
#include "tests/unit/random.h"
#include "tests/unit/test.h"

#define ROUTE	    0x00100005u
#define LKEY	    0x1234u
#define WAITING_MAX 4096
#define MS	    CLOCK_NS_PER_MS

int __wrap_verbs_post_send(struct ibv_qp *qp, struct ibv_send_wr *wr, struct ibv_send_wr **ret_bad);
int __wrap_verbs_post_recv(struct ibv_qp *qp, struct ibv_recv_wr *wr, struct ibv_recv_wr **ret_bad);

struct posted_receive {
	uint64_t wr_id;
	uint8_t *buffer;
};

struct posted_send {
	uint64_t wr_id;
	uint8_t *buffer;
	uint32_t len_bytes;
};

/* One end: the endpoint, and the queue pair as the device would hold it. */
struct end {
	struct ibv_qp qp; /* first, so that a queue pair is its end */
	struct endpoint ep;
	uint8_t *memory;
	struct posted_receive receives[PROTO_CREDITS_MAX]; /* ring, by number modulo the size */
	uint32_t receives_head;
	uint32_t receives_tail;
	struct posted_send sends[ENDPOINT_SENDS]; /* ring */
	uint32_t sends_head;
	uint32_t sends_tail;
	int post_error; /* what the next posts return */
	bool overrun;	/* more posted than the queues hold, or not as it must be */
};

int __wrap_verbs_post_send(struct ibv_qp *qp, struct ibv_send_wr *wr, struct ibv_send_wr **ret_bad)
{
	struct end *end = (struct end *)qp;
	struct posted_send *send = &end->sends[end->sends_tail % ENDPOINT_SENDS];

	if (end->post_error < 0) {
		*ret_bad = wr;
		return end->post_error;
	}
	if (end->sends_tail - end->sends_head == ENDPOINT_SENDS || wr->next != NULL ||
	    wr->opcode != IBV_WR_SEND || wr->send_flags != IBV_SEND_SIGNALED || wr->num_sge != 1 ||
	    wr->sg_list->lkey != LKEY)
		end->overrun = true;
	*send = (struct posted_send){
		.wr_id = wr->wr_id,
		.buffer = (uint8_t *)(uintptr_t)wr->sg_list->addr,
		.len_bytes = wr->sg_list->length,
	};
	end->sends_tail++;
	return 0;
}

int __wrap_verbs_post_recv(struct ibv_qp *qp, struct ibv_recv_wr *wr, struct ibv_recv_wr **ret_bad)
{
	struct end *end = (struct end *)qp;
	struct posted_receive *receive = &end->receives[end->receives_tail % PROTO_CREDITS_MAX];

	if (end->post_error < 0) {
		*ret_bad = wr;
		return end->post_error;
	}
	if (end->receives_tail - end->receives_head == PROTO_CREDITS_MAX || wr->next != NULL ||
	    wr->num_sge != 1 || wr->sg_list->lkey != LKEY || wr->sg_list->length != PROTO_FRAME_MAX)
		end->overrun = true;
	*receive = (struct posted_receive){
		.wr_id = wr->wr_id,
		.buffer = (uint8_t *)(uintptr_t)wr->sg_list->addr,
	};
	end->receives_tail++;
	return 0;
}

static uint64_t fake_now_ns;

static uint64_t read_fake_clock(void)
{
	return fake_now_ns;
}

static void open_end(struct end *end, uint32_t receives)
{
	memset(end, 0, sizeof(*end));
	/* Without what was there before, so that the sanitizers see what is read too early. */
	end->memory = malloc(endpoint_memory_bytes(receives));
	CHECK(end->memory != NULL);
	CHECK_INT(endpoint_init(&end->ep, &end->qp, end->memory, LKEY, receives, ROUTE, NULL), 0);
}

static void close_end(struct end *end)
{
	endpoint_deinit(&end->ep);
	free(end->memory);
	end->memory = NULL;
}

static struct end *new_end(uint32_t receives)
{
	struct end *end = malloc(sizeof(*end));

	fake_now_ns = 1000 * MS;
	clock_set_source(read_fake_clock);
	if (end != NULL)
		open_end(end, receives);
	return end;
}

static void free_end(struct end *end)
{
	close_end(end);
	free(end);
	clock_set_source(NULL);
}

/* A message is told by its number: request id of a ping, or lane of a notice. */
static int send_ping(struct end *end, uint64_t number)
{
	struct message m = {.type = MESSAGE_PING, .request_id = number};

	return endpoint_send(&end->ep, ENDPOINT_ORDINARY, &m);
}

static int send_notice(struct end *end, uint32_t number)
{
	struct message m = {.type = MESSAGE_LANE_LOST, .u.lane.lane = number};

	return endpoint_send(&end->ep, ENDPOINT_NOTICE, &m);
}

static uint32_t in_flight(const struct end *end)
{
	return end->sends_tail - end->sends_head;
}

/* The message that was posted as the n-th of those in flight. */
static struct message posted(const struct end *end, uint32_t n)
{
	const struct posted_send *send = &end->sends[(end->sends_head + n) % ENDPOINT_SENDS];
	struct message m = {0};

	if (n >= in_flight(end) || message_decode(send->buffer, send->len_bytes, &m) < 0)
		m.type = 0;
	return m;
}

static void complete_send(struct end *end, enum ibv_wc_status status, int expected)
{
	struct ibv_wc wc = {.status = status};
	struct message m;

	CHECK(in_flight(end) > 0);
	wc.wr_id = end->sends[end->sends_head++ % ENDPOINT_SENDS].wr_id;
	CHECK_INT(endpoint_complete(&end->ep, &wc, &m), expected);
}

static void complete_all_sends(struct end *end)
{
	while (in_flight(end) > 0)
		complete_send(end, IBV_WC_SUCCESS, 0);
}

/* Bytes arrive in the oldest receive. Return: what endpoint_complete() says. */
static int arrive(struct end *end, const void *bytes, uint32_t len_bytes, struct message *ret_m)
{
	struct posted_receive *receive = &end->receives[end->receives_head++ % PROTO_CREDITS_MAX];
	struct ibv_wc wc = {
		.wr_id = receive->wr_id,
		.status = IBV_WC_SUCCESS,
		.opcode = IBV_WC_RECV,
		.byte_len = len_bytes,
	};

	memcpy(receive->buffer, bytes, len_bytes);
	return endpoint_complete(&end->ep, &wc, ret_m);
}

static int arrive_message(struct end *end, struct message m)
{
	uint8_t bytes[PROTO_MESSAGE_MAX];
	size_t len_bytes;
	int r = message_encode(&m, bytes, sizeof(bytes), &len_bytes);

	return r < 0 ? r : arrive(end, bytes, (uint32_t)len_bytes, &m);
}

static int arrive_ping(struct end *end, uint16_t credits)
{
	return arrive_message(
		end, (struct message){.type = MESSAGE_PING, .request_id = 1, .credits = credits});
}

static int arrive_credit(struct end *end, uint16_t credits)
{
	return arrive_message(end, (struct message){.type = MESSAGE_CREDIT, .credits = credits});
}

/* Buffers. */

static void check_init(uint32_t receives)
{
	struct end *end = new_end(receives);

	CHECK(end != NULL);
	CHECK_INT(endpoint_memory_bytes(receives),
		  (uint64_t)(receives + ENDPOINT_SENDS) * PROTO_FRAME_MAX);
	CHECK_INT(end->receives_tail, receives);
	CHECK_INT(end->ep.receives_posted, receives);
	for (uint32_t i = 0; i < receives; i++) {
		CHECK_INT(end->receives[i].wr_id, route_wr_id(ROUTE, i));
		CHECK(end->receives[i].buffer == end->memory + (size_t)i * PROTO_FRAME_MAX);
	}
	CHECK_INT(in_flight(end), 0);
	CHECK(!end->overrun);
	CHECK(!endpoint_drained(&end->ep));
	free_end(end);
}

TEST(endpoint_init__posts_all_receives)
{
	check_init(PROTO_CREDITS_MIN);
	check_init(32);
	check_init(PROTO_CREDITS_MAX);
}

TEST(endpoint_init__post_fails)
{
	struct end *end = calloc(1, sizeof(*end));

	CHECK(end != NULL);
	end->post_error = -ENOMEM;
	CHECK_INT(endpoint_init(&end->ep, &end->qp, NULL, LKEY, 4, ROUTE, NULL), -ENOMEM);
	CHECK_INT(end->ep.receives_posted, 0);
	endpoint_deinit(&end->ep);
	free(end);
}

TEST(endpoint_deinit__all_zero)
{
	struct endpoint ep = {0};

	endpoint_deinit(&ep);
	CHECK_INT(endpoint_flush(&ep), 0);
	endpoint_deinit(&ep);
}

TEST(endpoint_send__message_as_given)
{
	struct end *end = new_end(4);
	struct message m = {.type = MESSAGE_RENEW,
			    .request_id = 77,
			    .u.renew = {.lease_id = 5, .ttl_ms = 6000}};

	CHECK_INT(endpoint_send(&end->ep, ENDPOINT_ORDINARY, &m), 0);
	CHECK_INT(in_flight(end), 1);
	m = posted(end, 0);
	CHECK_INT(m.type, MESSAGE_RENEW);
	CHECK_INT(m.request_id, 77);
	CHECK_INT(m.credits, 0);
	CHECK_INT(m.u.renew.lease_id, 5);
	CHECK_INT(m.u.renew.ttl_ms, 6000);
	CHECK_INT(route_of(end->sends[0].wr_id), ROUTE);
	/* Behind the receives, and not mistaken for one of them. */
	CHECK(end->sends[0].buffer == end->memory + (size_t)4 * PROTO_FRAME_MAX);
	CHECK(route_index(end->sends[0].wr_id) >= PROTO_CREDITS_MAX);
	free_end(end);
}

/* Eight send buffers, whatever the credits; each is used again when its completion has come. */
TEST(endpoint_send__buffers)
{
	struct end *end = new_end(4);

	CHECK_INT(endpoint_peer_receives(&end->ep, 64), 0);
	for (uint64_t i = 1; i <= ENDPOINT_SENDS + 3; i++)
		CHECK_INT(send_ping(end, i), 0);
	CHECK_INT(in_flight(end), ENDPOINT_SENDS);
	CHECK_INT(end->ep.waiting, 3);
	for (uint32_t i = 0; i < ENDPOINT_SENDS; i++) {
		CHECK_INT(posted(end, i).request_id, i + 1);
		for (uint32_t k = 0; k < i; k++)
			CHECK(end->sends[i].buffer != end->sends[k].buffer);
	}
	complete_send(end, IBV_WC_SUCCESS, 0);
	CHECK_INT(endpoint_flush(&end->ep), 0);
	CHECK_INT(in_flight(end), ENDPOINT_SENDS);
	CHECK_INT(posted(end, ENDPOINT_SENDS - 1).request_id, ENDPOINT_SENDS + 1);
	complete_all_sends(end);
	CHECK_INT(endpoint_flush(&end->ep), 0);
	CHECK_INT(in_flight(end), 2);
	CHECK_INT(end->ep.waiting, 0);
	CHECK(!end->overrun);
	free_end(end);
}

/* Credits. */

/* Of n credits without any owed, n - 2 go to ordinary messages and one more to a notice. */
static void check_credits(uint32_t peer_receives)
{
	struct end *end = new_end(4);
	uint32_t ordinary = peer_receives - 2;

	if (peer_receives > PROTO_CREDITS_MIN)
		CHECK_INT(endpoint_peer_receives(&end->ep, peer_receives), 0);
	for (uint32_t i = 1; i <= ordinary; i++) {
		CHECK_INT(send_ping(end, i), 0);
		CHECK_INT(in_flight(end), 1);
		complete_all_sends(end);
	}
	CHECK_INT(end->ep.waiting, 0);
	CHECK_INT(send_ping(end, ordinary + 1), 0);
	CHECK_INT(in_flight(end), 0);
	CHECK_INT(end->ep.waiting, 1);
	free_end(end);
}

static void check_notice_credits(uint32_t peer_receives)
{
	struct end *end = new_end(4);
	uint32_t notices = peer_receives - 1;

	if (peer_receives > PROTO_CREDITS_MIN)
		CHECK_INT(endpoint_peer_receives(&end->ep, peer_receives), 0);
	for (uint32_t i = 1; i <= notices; i++) {
		CHECK_INT(send_notice(end, i), 0);
		CHECK_INT(in_flight(end), 1);
		complete_all_sends(end);
	}
	CHECK_INT(end->ep.waiting, 0);
	CHECK_INT(send_notice(end, notices + 1), 0);
	CHECK_INT(in_flight(end), 0);
	CHECK_INT(end->ep.waiting, 1);
	free_end(end);
}

TEST(endpoint_send__credits_n_and_one_more)
{
	check_credits(PROTO_CREDITS_MIN);
	check_credits(5);
	check_credits(32);
	check_credits(PROTO_CREDITS_MAX);
	check_notice_credits(PROTO_CREDITS_MIN);
	check_notice_credits(5);
	check_notice_credits(32);
	check_notice_credits(PROTO_CREDITS_MAX);
}

/* A notice does not overtake: messages arrive in the order in which they were given. */
TEST(endpoint_send__notice_behind_blocked)
{
	struct end *end = new_end(4);

	for (uint64_t i = 1; i <= 3; i++)
		CHECK_INT(send_ping(end, i), 0);
	CHECK_INT(send_notice(end, 4), 0);
	CHECK_INT(in_flight(end), 2);
	CHECK_INT(end->ep.waiting, 2);
	complete_all_sends(end);
	CHECK_INT(arrive_credit(end, 2), 0);
	CHECK_INT(endpoint_flush(&end->ep), 0);
	CHECK_INT(in_flight(end), 2);
	CHECK_INT(posted(end, 0).type, MESSAGE_PING);
	CHECK_INT(posted(end, 0).request_id, 3);
	CHECK_INT(posted(end, 1).type, MESSAGE_LANE_LOST);
	CHECK_INT(posted(end, 1).u.lane.lane, 4);
	free_end(end);
}

TEST(endpoint_send__last_credits_return_one)
{
	struct end *end = new_end(32);

	for (uint64_t i = 1; i <= 2; i++)
		CHECK_INT(send_ping(end, i), 0);
	CHECK_INT(in_flight(end), 2);
	CHECK_INT(send_ping(end, 3), 0);
	CHECK_INT(in_flight(end), 2);
	/* Something to return: the second last goes to an ordinary message, and one only. */
	CHECK_INT(arrive_ping(end, 0), 1);
	CHECK_INT(send_ping(end, 4), 0);
	CHECK_INT(in_flight(end), 3);
	CHECK_INT(posted(end, 2).request_id, 3);
	CHECK_INT(posted(end, 2).credits, 1);
	CHECK_INT(end->ep.waiting, 1);
	/* So does the last. */
	CHECK_INT(arrive_ping(end, 0), 1);
	CHECK_INT(endpoint_flush(&end->ep), 0);
	CHECK_INT(in_flight(end), 4);
	CHECK_INT(posted(end, 3).request_id, 4);
	CHECK_INT(posted(end, 3).credits, 1);
	/* Then nothing is sent, whatever is owed. */
	for (int i = 0; i < 20; i++)
		CHECK_INT(arrive_ping(end, 0), 1);
	CHECK_INT(send_ping(end, 5), 0);
	CHECK_INT(in_flight(end), 4);
	CHECK_INT(end->ep.waiting, 1);
	CHECK_INT(arrive_ping(end, 1), 1);
	CHECK_INT(endpoint_flush(&end->ep), 0);
	CHECK_INT(in_flight(end), 5);
	CHECK_INT(posted(end, 4).credits, 21);
	CHECK(!end->overrun);
	free_end(end);
}

TEST(endpoint_send__returns_what_is_owed)
{
	struct end *end = new_end(32);

	for (int i = 0; i < 5; i++)
		CHECK_INT(arrive_ping(end, 0), 1);
	CHECK_INT(send_ping(end, 1), 0);
	CHECK_INT(posted(end, 0).credits, 5);
	CHECK_INT(send_ping(end, 2), 0);
	CHECK_INT(posted(end, 1).credits, 0);
	CHECK_INT(arrive_ping(end, 0), 1);
	CHECK_INT(send_ping(end, 3), 0);
	CHECK_INT(posted(end, 2).credits, 1);
	free_end(end);
}

/* What waits does not carry the credits of when it was queued, but of when it is posted. */
TEST(endpoint_flush__credits_at_the_time_of_posting)
{
	struct end *end = new_end(32);

	for (uint64_t i = 1; i <= 3; i++)
		CHECK_INT(send_ping(end, i), 0);
	CHECK_INT(end->ep.waiting, 1);
	for (int i = 0; i < 7; i++)
		CHECK_INT(arrive_ping(end, 0), 1);
	CHECK_INT(endpoint_flush(&end->ep), 0);
	CHECK_INT(posted(end, 2).request_id, 3);
	CHECK_INT(posted(end, 2).credits, 7);
	free_end(end);
}

/* At half of what was posted, not before, a message of its own returns them. */
static void check_threshold(uint32_t receives)
{
	struct end *end = new_end(receives);
	struct message m;

	for (uint32_t i = 1; i < receives / 2; i++) {
		CHECK_INT(arrive_ping(end, 0), 1);
		CHECK_INT(endpoint_flush(&end->ep), 0);
		CHECK_INT(in_flight(end), 0);
	}
	CHECK_INT(arrive_ping(end, 0), 1);
	CHECK_INT(in_flight(end), 0); /* the owner flushes after a batch */
	CHECK_INT(endpoint_flush(&end->ep), 0);
	CHECK_INT(in_flight(end), 1);
	m = posted(end, 0);
	CHECK_INT(m.type, MESSAGE_CREDIT);
	CHECK_INT(m.request_id, 0);
	CHECK_INT(m.credits, receives / 2);
	CHECK_INT(end->sends[0].len_bytes, MESSAGE_HEADER_BYTES);
	CHECK_INT(endpoint_flush(&end->ep), 0);
	CHECK_INT(in_flight(end), 1);
	free_end(end);
}

TEST(endpoint_flush__credit_threshold)
{
	check_threshold(4);
	check_threshold(32);
	check_threshold(PROTO_CREDITS_MAX);
}

/* A message that is sent anyway returns them, and no further one is needed. */
TEST(endpoint_flush__no_credit_message_beside_another)
{
	struct end *end = new_end(4);

	CHECK_INT(arrive_ping(end, 0), 1);
	CHECK_INT(arrive_ping(end, 0), 1);
	CHECK_INT(send_ping(end, 9), 0);
	CHECK_INT(in_flight(end), 1);
	CHECK_INT(posted(end, 0).request_id, 9);
	CHECK_INT(posted(end, 0).credits, 2);
	free_end(end);
}

/* The last credit may be spent on returning credits: that is what it is kept for. */
TEST(endpoint_flush__credit_message_on_the_last)
{
	struct end *end = new_end(4);

	for (uint32_t i = 1; i <= 3; i++)
		CHECK_INT(send_notice(end, i), 0);
	CHECK_INT(end->ep.credits, 1);
	complete_all_sends(end);
	CHECK_INT(arrive_ping(end, 0), 1);
	CHECK_INT(arrive_ping(end, 0), 1);
	CHECK_INT(endpoint_flush(&end->ep), 0);
	CHECK_INT(in_flight(end), 1);
	CHECK_INT(posted(end, 0).type, MESSAGE_CREDIT);
	CHECK_INT(posted(end, 0).credits, 2);
	CHECK_INT(end->ep.credits, 0);
	/* Without any credit they stay owed. */
	CHECK_INT(arrive_ping(end, 0), 1);
	CHECK_INT(arrive_ping(end, 0), 1);
	CHECK_INT(endpoint_flush(&end->ep), 0);
	CHECK_INT(in_flight(end), 1);
	CHECK_INT(end->ep.owed, 2);
	free_end(end);
}

TEST(endpoint_complete__more_credits_than_receives)
{
	struct end *end = new_end(8);

	/* Nothing was sent: nothing can be returned. */
	CHECK_INT(arrive_ping(end, 1), -EPROTO);
	free_end(end);
	end = new_end(8);
	CHECK_INT(send_ping(end, 1), 0);
	CHECK_INT(send_ping(end, 2), 0);
	CHECK_INT(arrive_ping(end, 2), 1);
	CHECK_INT(end->ep.credits, 4);
	CHECK_INT(arrive_ping(end, 1), -EPROTO);
	CHECK_INT(end->ep.credits, 4);
	free_end(end);
	end = new_end(8);
	CHECK_INT(send_ping(end, 1), 0);
	CHECK_INT(send_ping(end, 2), 0);
	CHECK_INT(arrive_credit(end, 3), -EPROTO);
	free_end(end);
	end = new_end(8);
	CHECK_INT(endpoint_peer_receives(&end->ep, 6), 0);
	CHECK_INT(arrive_credit(end, PROTO_CREDITS_MAX), -EPROTO);
	CHECK_INT(end->ep.credits, 6);
	free_end(end);
}

/* A peer that never returns a credit may send as many messages as there are receives. */
TEST(endpoint_complete__more_messages_than_credits)
{
	struct end *end = new_end(4);
	int r = 1;
	uint32_t taken;

	CHECK(end != NULL);
	end->ep.credits = 0; /* so that nothing is told of what is owed */
	for (taken = 0; taken < 100 && r == 1; taken += r == 1)
		r = arrive_ping(end, 0);
	CHECK_INT(taken, 4);
	CHECK_INT(r, -EPROTO);
	CHECK_INT(end->ep.owed, 4);
	free_end(end);
}

TEST(endpoint_complete__credit_message_without_credits)
{
	struct end *end = new_end(4);

	CHECK(end != NULL);
	CHECK_INT(arrive_credit(end, 0), -EPROTO);
	free_end(end);
}

TEST(endpoint_peer_receives__once)
{
	struct end *end = new_end(4);

	CHECK_INT(end->ep.credits, PROTO_CREDITS_MIN);
	CHECK_INT(send_ping(end, 1), 0); /* hello itself */
	CHECK_INT(endpoint_peer_receives(&end->ep, 32), 0);
	CHECK_INT(end->ep.credits, 31);
	CHECK_INT(endpoint_peer_receives(&end->ep, 64), -EPROTO);
	CHECK_INT(end->ep.credits, 31);
	CHECK_INT(arrive_credit(end, 1), 0);
	CHECK_INT(end->ep.credits, 32);
	CHECK_INT(arrive_credit(end, 1), -EPROTO);
	free_end(end);
	end = new_end(4);
	CHECK_INT(endpoint_peer_receives(&end->ep, PROTO_CREDITS_MIN), 0);
	CHECK_INT(end->ep.credits, PROTO_CREDITS_MIN);
	CHECK_INT(endpoint_peer_receives(&end->ep, PROTO_CREDITS_MIN), -EPROTO);
	free_end(end);
}

/* Completions. */

TEST(endpoint_complete__message)
{
	struct end *end = new_end(4);
	struct message m = {.type = MESSAGE_RELEASE, .request_id = 9, .u.lease.lease_id = 42};
	uint8_t bytes[PROTO_MESSAGE_MAX];
	size_t len_bytes;

	CHECK_INT(message_encode(&m, bytes, sizeof(bytes), &len_bytes), 0);
	memset(&m, 0, sizeof(m));
	CHECK_INT(arrive(end, bytes, (uint32_t)len_bytes, &m), 1);
	CHECK_INT(m.type, MESSAGE_RELEASE);
	CHECK_INT(m.request_id, 9);
	CHECK_INT(m.u.lease.lease_id, 42);
	CHECK_INT(end->ep.receives_posted, 4);
	CHECK_INT(end->receives_tail, 5);
	/* The same buffer, behind the others. */
	CHECK(end->receives[4].buffer == end->receives[0].buffer);
	CHECK_INT(end->receives[4].wr_id, end->receives[0].wr_id);
	CHECK_INT(end->ep.owed, 1);
	free_end(end);
}

TEST(endpoint_complete__malformed)
{
	uint8_t bytes[PROTO_MESSAGE_MAX] = {0};
	struct message ping = {.type = MESSAGE_PING, .request_id = 1};
	size_t len_bytes;
	struct message m;

	CHECK_INT(message_encode(&ping, bytes, sizeof(bytes), &len_bytes), 0);
	for (uint32_t wrong = 0; wrong <= len_bytes + 1; wrong++) {
		struct end *end = new_end(4);

		CHECK_INT(arrive(end, bytes, wrong, &m), wrong == len_bytes ? 1 : -EPROTO);
		/* Nothing is returned for it. */
		CHECK_INT(end->ep.owed, wrong == len_bytes);
		CHECK_INT(end->ep.receives_posted, wrong == len_bytes ? 4 : 3);
		free_end(end);
	}
}

TEST(endpoint_complete__with_invalidate)
{
	struct end *end = new_end(4);
	struct ibv_wc wc = {.status = IBV_WC_SUCCESS,
			    .wc_flags = IBV_WC_WITH_INV,
			    .byte_len = MESSAGE_HEADER_BYTES};
	struct message m;

	wc.wr_id = end->receives[0].wr_id;
	CHECK_INT(endpoint_complete(&end->ep, &wc, &m), -EBADMSG);
	CHECK_INT(end->ep.owed, 0);
	/* Also when we are about to close: the key may be gone all the same. */
	endpoint_dead(&end->ep);
	wc.wr_id = end->receives[1].wr_id;
	CHECK_INT(endpoint_complete(&end->ep, &wc, &m), -EBADMSG);
	/* As Soft-RoCE says it. */
	wc.wr_id = end->receives[2].wr_id;
	wc.wc_flags = IBV_WC_GRH | IBV_WC_IP_CSUM_OK;
	CHECK_INT(endpoint_complete(&end->ep, &wc, &m), -EBADMSG);
	free_end(end);
}

TEST(endpoint_complete__with_immediate)
{
	struct end *end = new_end(4);
	struct ibv_wc wc = {.wr_id = end->receives[0].wr_id,
			    .status = IBV_WC_SUCCESS,
			    .wc_flags = IBV_WC_WITH_IMM,
			    .byte_len = MESSAGE_HEADER_BYTES};
	struct message m;

	CHECK_INT(endpoint_complete(&end->ep, &wc, &m), -EPROTO);
	CHECK_INT(end->ep.owed, 0);
	free_end(end);
}

TEST(endpoint_has_invalidated)
{
	uint64_t receive = route_wr_id(ROUTE, 3);
	uint64_t send = route_wr_id(ROUTE, 0x80000003);
	struct ibv_wc wc = {.wr_id = receive,
			    .status = IBV_WC_SUCCESS,
			    .wc_flags = IBV_WC_WITH_INV,
			    .invalidated_rkey = 0x1234};
	uint32_t rkey = 0;

	CHECK(endpoint_has_invalidated(&wc, &rkey));
	CHECK_INT(rkey, 0x1234);
	rkey = 0;
	wc.wr_id = send;
	CHECK(!endpoint_has_invalidated(&wc, &rkey));
	wc.wr_id = receive;
	wc.status = IBV_WC_WR_FLUSH_ERR;
	CHECK(!endpoint_has_invalidated(&wc, &rkey));
	wc.status = IBV_WC_SUCCESS;
	wc.wc_flags = IBV_WC_GRH;
	CHECK(!endpoint_has_invalidated(&wc, &rkey));
	CHECK_INT(rkey, 0);
}

TEST(endpoint_was_peer)
{
	struct ibv_wc wc = {.wr_id = route_wr_id(ROUTE, 0x80000000),
			    .status = IBV_WC_RETRY_EXC_ERR};

	CHECK(!endpoint_was_peer(&wc));
	wc.status = IBV_WC_RNR_RETRY_EXC_ERR;
	CHECK(!endpoint_was_peer(&wc));
	wc.status = IBV_WC_WR_FLUSH_ERR;
	CHECK(endpoint_was_peer(&wc));
	wc.wr_id = route_wr_id(ROUTE, 0);
	CHECK(endpoint_was_peer(&wc));
	wc.status = IBV_WC_LOC_LEN_ERR;
	CHECK(endpoint_was_peer(&wc));
}

TEST(endpoint_complete__flushed)
{
	struct end *end = new_end(4);
	struct message m;

	CHECK_INT(send_ping(end, 1), 0);
	CHECK_INT(send_ping(end, 2), 0);
	for (uint32_t i = 0; i < 4; i++) {
		/* The rest of a failed completion means nothing. */
		struct ibv_wc wc = {.wr_id = end->receives[i].wr_id,
				    .status = IBV_WC_WR_FLUSH_ERR,
				    .wc_flags = IBV_WC_WITH_INV,
				    .byte_len = UINT32_MAX};

		CHECK(!endpoint_drained(&end->ep));
		CHECK_INT(endpoint_complete(&end->ep, &wc, &m), -ENETRESET);
	}
	CHECK_INT(end->receives_tail, 4);
	CHECK_INT(end->ep.receives_posted, 0);
	CHECK(!endpoint_drained(&end->ep));
	complete_send(end, IBV_WC_RNR_RETRY_EXC_ERR, -ENETRESET);
	CHECK(!endpoint_drained(&end->ep));
	complete_send(end, IBV_WC_WR_FLUSH_ERR, -ENETRESET);
	CHECK(endpoint_drained(&end->ep));
	CHECK_INT(end->ep.sends_free_mask, (1u << ENDPOINT_SENDS) - 1);
	free_end(end);
}

TEST(endpoint_complete__receive_cannot_be_posted)
{
	struct end *end = new_end(4);

	end->post_error = -ENOMEM;
	CHECK_INT(arrive_ping(end, 0), -ENETRESET);
	CHECK_INT(end->ep.owed, 0);
	free_end(end);
}

TEST(endpoint_send__post_fails)
{
	struct end *end = new_end(4);

	end->post_error = -EIO;
	CHECK_INT(send_ping(end, 1), -EIO);
	CHECK_INT(end->ep.credits, 4);
	CHECK_INT(end->ep.sends_posted, 0);
	CHECK_INT(endpoint_flush(&end->ep), -EIO);
	free_end(end);
}

TEST(endpoint_dead__posts_nothing)
{
	struct end *end = new_end(4);
	struct message m;
	struct ibv_wc wc = {.status = IBV_WC_SUCCESS, .byte_len = MESSAGE_HEADER_BYTES};

	for (uint64_t i = 1; i <= 5; i++)
		CHECK_INT(send_ping(end, i), 0);
	CHECK_INT(end->ep.waiting, 3);
	endpoint_dead(&end->ep);
	CHECK_INT(end->ep.waiting, 0);
	CHECK_INT(send_ping(end, 6), -ENOTCONN);
	CHECK_INT(endpoint_flush(&end->ep), 0);
	complete_all_sends(end);
	CHECK_INT(in_flight(end), 0);
	/* A message that comes nevertheless is not looked at. */
	wc.wr_id = end->receives[0].wr_id;
	memset(end->receives[0].buffer, 0xff, MESSAGE_HEADER_BYTES);
	CHECK_INT(endpoint_complete(&end->ep, &wc, &m), 0);
	CHECK_INT(end->receives_tail, 4);
	CHECK_INT(end->ep.receives_posted, 3);
	free_end(end);
}

TEST(endpoint_send__waiting_limit)
{
	struct end *end = new_end(4);

	for (uint64_t i = 1; i <= WAITING_MAX + 2; i++)
		CHECK_INT(send_ping(end, i), 0);
	CHECK_INT(end->ep.waiting, WAITING_MAX);
	CHECK_INT(send_ping(end, WAITING_MAX + 3), -ENOBUFS);
	CHECK_INT(send_notice(end, 1), -ENOBUFS);
	CHECK_INT(end->ep.waiting, WAITING_MAX);
	complete_all_sends(end);
	CHECK_INT(arrive_credit(end, 1), 0);
	CHECK_INT(endpoint_flush(&end->ep), 0);
	CHECK_INT(posted(end, 0).request_id, 3);
	CHECK_INT(send_ping(end, WAITING_MAX + 4), 0);
	CHECK_INT(end->ep.waiting, WAITING_MAX);
	free_end(end); /* with all that waits: the leak sanitizer would tell */
}

static void complete_unknown(void *arg)
{
	struct end *end = arg;
	struct ibv_wc wc = {.wr_id = route_wr_id(ROUTE, 4), .status = IBV_WC_SUCCESS};
	struct message m;

	(void)endpoint_complete(&end->ep, &wc, &m);
}

TEST(endpoint_complete__not_ours)
{
	struct end *end = new_end(4);

	CHECK(test_aborts(complete_unknown, end));
	free_end(end);
}

/* Silence. */

TEST(endpoint_stalled__send_without_completion)
{
	struct end *end = new_end(4);
	uint64_t posted_ns;

	CHECK(!endpoint_stalled(&end->ep, UINT64_MAX, 0));
	posted_ns = fake_now_ns;
	CHECK_INT(send_ping(end, 1), 0);
	CHECK(!endpoint_stalled(&end->ep, posted_ns + 2000 * MS - 1, 2000));
	CHECK(endpoint_stalled(&end->ep, posted_ns + 2000 * MS, 2000));
	fake_now_ns += 500 * MS;
	CHECK_INT(send_ping(end, 2), 0);
	CHECK(endpoint_stalled(&end->ep, posted_ns + 2000 * MS, 2000));
	/* The older one is done: from the younger one on. */
	complete_send(end, IBV_WC_SUCCESS, 0);
	CHECK(!endpoint_stalled(&end->ep, posted_ns + 2500 * MS - 1, 2000));
	CHECK(endpoint_stalled(&end->ep, posted_ns + 2500 * MS, 2000));
	complete_send(end, IBV_WC_SUCCESS, 0);
	CHECK(!endpoint_stalled(&end->ep, UINT64_MAX, 2000));
	free_end(end);
}

TEST(endpoint_stalled__no_credit)
{
	struct end *end = new_end(4);
	uint64_t blocked_ns;

	CHECK_INT(send_ping(end, 1), 0);
	CHECK_INT(send_ping(end, 2), 0);
	complete_all_sends(end);
	fake_now_ns += 100 * MS;
	CHECK_INT(endpoint_flush(&end->ep), 0);
	CHECK(!endpoint_stalled(&end->ep, UINT64_MAX, 2000)); /* nothing to send */
	blocked_ns = fake_now_ns;
	CHECK_INT(send_ping(end, 3), 0);
	fake_now_ns += 300 * MS;
	CHECK_INT(send_ping(end, 4), 0);
	CHECK_INT(endpoint_flush(&end->ep), 0);
	CHECK(!endpoint_stalled(&end->ep, blocked_ns + 2000 * MS - 1, 2000));
	CHECK(endpoint_stalled(&end->ep, blocked_ns + 2000 * MS, 2000));
	CHECK_INT(arrive_credit(end, 2), 0);
	CHECK_INT(endpoint_flush(&end->ep), 0);
	complete_all_sends(end);
	CHECK(!endpoint_stalled(&end->ep, UINT64_MAX, 2000));
	free_end(end);
}

/* A slow peer is not a silent one: each credit that comes in starts the wait anew. */
TEST(endpoint_stalled__slow_but_not_silent)
{
	struct end *end = new_end(4);

	for (uint64_t i = 1; i <= 20; i++)
		CHECK_INT(send_ping(end, i), 0);
	complete_all_sends(end);
	for (int i = 0; i < 10; i++) {
		fake_now_ns += 500 * MS;
		CHECK(!endpoint_stalled(&end->ep, fake_now_ns, 2000));
		CHECK_INT(arrive_credit(end, 1), 0);
		CHECK_INT(endpoint_flush(&end->ep), 0);
		CHECK_INT(in_flight(end), 1);
		complete_all_sends(end);
		CHECK(!endpoint_stalled(&end->ep, fake_now_ns, 2000));
	}
	CHECK(end->ep.waiting > 0);
	CHECK(!endpoint_stalled(&end->ep, fake_now_ns + 2000 * MS - 1, 2000));
	CHECK(endpoint_stalled(&end->ep, fake_now_ns + 2000 * MS, 2000));
	free_end(end);
}

/* Pairs. */

/* A completion that the device has made and the owner has not polled yet. */
struct completion {
	struct ibv_wc wc;
};

#define COMPLETIONS_MAX 8192u

struct side {
	struct end end;
	struct completion *completions; /* ring */
	uint32_t completions_head;
	uint32_t completions_tail;
	uint64_t sent;
	uint64_t to_send;
	uint64_t received;
	uint32_t notice_percent;
	bool greeted;
	const char *wrong;
};

static void side_open(struct side *side, uint32_t receives, uint64_t to_send)
{
	side->completions = calloc(COMPLETIONS_MAX, sizeof(*side->completions));
	CHECK(side->completions != NULL);
	open_end(&side->end, receives);
	side->to_send = to_send;
}

static void side_close(struct side *side)
{
	close_end(&side->end);
	free(side->completions);
}

static void side_complete(struct side *side, struct ibv_wc wc)
{
	if (side->completions_tail - side->completions_head == COMPLETIONS_MAX)
		side->wrong = "more completions than work requests";
	side->completions[side->completions_tail++ % COMPLETIONS_MAX].wc = wc;
}

/* The oldest send of one side arrives in the oldest receive of the other. */
static bool wire_step(struct side *from, struct side *to)
{
	struct end *source = &from->end;
	struct end *target = &to->end;
	struct posted_receive *receive;
	struct posted_send *send;

	if (in_flight(source) == 0)
		return false;
	send = &source->sends[source->sends_head % ENDPOINT_SENDS];
	if (target->receives_head == target->receives_tail) {
		from->wrong = "a message found no receive";
		return false;
	}
	receive = &target->receives[target->receives_head++ % PROTO_CREDITS_MAX];
	memcpy(receive->buffer, send->buffer, send->len_bytes);
	memset(send->buffer, 0xee, send->len_bytes); /* it is the device's until completed */
	source->sends_head++;
	side_complete(to, (struct ibv_wc){.wr_id = receive->wr_id,
					  .status = IBV_WC_SUCCESS,
					  .opcode = IBV_WC_RECV,
					  .byte_len = send->len_bytes});
	side_complete(from, (struct ibv_wc){.wr_id = send->wr_id,
					    .status = IBV_WC_SUCCESS,
					    .opcode = IBV_WC_SEND});
	return true;
}

/* hello and welcome tell the receives; they are messages like any other to the endpoint. */
static void side_greet(struct side *side, bool is_client)
{
	struct message m = {.request_id = UINT64_MAX};

	if (is_client) {
		m.type = MESSAGE_HELLO;
		m.u.hello.version = PROTO_VERSION;
		m.u.hello.receives = (uint16_t)side->end.ep.receives;
	} else {
		m.type = MESSAGE_WELCOME;
		m.u.welcome.version = PROTO_VERSION;
		m.u.welcome.receives = (uint16_t)side->end.ep.receives;
		m.u.welcome.session_id = 1;
		m.u.welcome.ttl_default_ms = 1;
		m.u.welcome.ttl_max_ms = 1;
		m.u.welcome.window_max_bytes = 1;
		m.u.welcome.page_bytes = 4096;
		m.u.welcome.read_depth = 1;
		m.u.welcome.rights = MESSAGE_RIGHT_READ;
		m.u.welcome.isolation = MESSAGE_ISOLATION_WINDOWS;
	}
	if (endpoint_send(&side->end.ep, ENDPOINT_ORDINARY, &m) != 0)
		side->wrong = "no greeting";
}

static void side_take(struct side *side, const struct message *m)
{
	switch (m->type) {
	case MESSAGE_HELLO:
	case MESSAGE_WELCOME:
		if (endpoint_peer_receives(&side->end.ep, m->type == MESSAGE_HELLO
								  ? m->u.hello.receives
								  : m->u.welcome.receives) != 0)
			side->wrong = "greeted twice";
		side->greeted = true;
		if (m->type == MESSAGE_HELLO)
			side_greet(side, false);
		return;
	case MESSAGE_PING:
		if (m->request_id != ++side->received)
			side->wrong = "lost or out of order";
		return;
	case MESSAGE_LANE_LOST:
		if (m->u.lane.lane != ++side->received)
			side->wrong = "lost or out of order";
		return;
	default:
		side->wrong = "not what was sent";
	}
}

static bool side_poll(struct side *side, uint64_t batch)
{
	bool any = false;

	for (; batch > 0 && side->completions_head != side->completions_tail; batch--) {
		struct ibv_wc wc = side->completions[side->completions_head++ % COMPLETIONS_MAX].wc;
		struct message m;
		int r = endpoint_complete(&side->end.ep, &wc, &m);

		any = true;
		if (r == 1)
			side_take(side, &m);
		else if (r < 0)
			side->wrong = "a completion was refused";
	}
	if (endpoint_flush(&side->end.ep) != 0)
		side->wrong = "flush failed";
	return any;
}

static bool side_send(struct side *side, struct random *random, uint64_t count)
{
	bool any = false;

	for (; count > 0 && side->greeted && side->sent < side->to_send &&
	       side->end.ep.waiting < WAITING_MAX;
	     count--) {
		int r = random_below(random, 100) < side->notice_percent
				? send_notice(&side->end, (uint32_t)++side->sent)
				: send_ping(&side->end, ++side->sent);

		any = true;
		if (r != 0)
			side->wrong = "send failed";
	}
	return any;
}

/* What must be true at any time of two ends and the wire between them. */
static void check_account(const struct side *from, const struct side *to)
{
	const struct endpoint *ep = &from->end.ep;
	uint32_t free_receives = to->end.receives_tail - to->end.receives_head;

	CHECK(!from->end.overrun);
	CHECK_STR(from->wrong, NULL);
	CHECK(ep->credits + in_flight(&from->end) <= free_receives);
	CHECK(ep->credits <= ep->peer_receives);
	CHECK(ep->owed <= ep->receives);
}

static bool pair_step(struct side *sides, struct random *random, uint64_t what)
{
	struct side *side = &sides[what & 1];
	struct side *other = &sides[~what & 1];

	switch (what >> 1) {
	case 0:
		return side_send(side, random, 1 + random_below(random, 20));
	case 1:
		return wire_step(side, other);
	default:
		return side_poll(side, 1 + random_below(random, 12));
	}
}

/*
 * Random steps until all has arrived. If no kind of step does anything any more although
 * something is left, the two are stuck.
 */
static void exchange(struct random *random, const uint32_t *receives, const uint64_t *to_send,
		     uint32_t notice_percent)
{
	struct side *sides = calloc(2, sizeof(*sides));

	CHECK(sides != NULL);
	clock_set_source(NULL);
	for (int i = 0; i < 2; i++) {
		side_open(&sides[i], receives[i], to_send[i]);
		sides[i].notice_percent = notice_percent;
	}
	side_greet(&sides[0], true);
	while (sides[0].received < to_send[1] || sides[1].received < to_send[0]) {
		bool any = pair_step(sides, random, random_below(random, 6));

		for (uint64_t what = 0; !any && what < 6; what++)
			any = pair_step(sides, random, what);
		if (!any)
			printf("# stuck: receives %u %u, credits %u %u, waiting %zu %zu\n",
			       receives[0], receives[1], sides[0].end.ep.credits,
			       sides[1].end.ep.credits, sides[0].end.ep.waiting,
			       sides[1].end.ep.waiting);
		CHECK(any);
		check_account(&sides[0], &sides[1]);
		check_account(&sides[1], &sides[0]);
		if (test_has_failed())
			return;
	}
	CHECK_INT(sides[0].received, to_send[1]);
	CHECK_INT(sides[1].received, to_send[0]);
	CHECK_INT(sides[0].end.ep.waiting, 0);
	CHECK_INT(sides[1].end.ep.waiting, 0);
	side_close(&sides[0]);
	side_close(&sides[1]);
	free(sides);
}

static void exchange_all(struct random *random, uint32_t a, uint32_t b)
{
	static const uint32_t percents[] = {0, 30, 100};
	static const uint64_t counts[][2] = {{4000, 4000}, {4000, 0}, {0, 4000}, {4000, 100}};

	for (size_t i = 0; i < sizeof(percents) / sizeof(percents[0]); i++) {
		for (size_t k = 0; k < sizeof(counts) / sizeof(counts[0]); k++) {
			exchange(random, (uint32_t[]){a, b}, counts[k], percents[i]);
			if (test_has_failed())
				return;
		}
	}
}

TEST(endpoint_pair__both_4)
{
	struct random random = random_start();

	exchange_all(&random, 4, 4);
}

TEST(endpoint_pair__both_32)
{
	struct random random = random_start();

	exchange_all(&random, 32, 32);
}

TEST(endpoint_pair__4_and_32)
{
	struct random random = random_start();

	exchange_all(&random, 4, 32);
	exchange_all(&random, 32, 4);
}

TEST(endpoint_pair__odd_and_large)
{
	struct random random = random_start();

	exchange_all(&random, 5, 7);
	exchange_all(&random, 4, PROTO_CREDITS_MAX);
}
