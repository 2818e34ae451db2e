/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef TESTS_INTEGRATION_RAW_H
#define TESTS_INTEGRATION_RAW_H

#include <rdma/rdma_cma.h>
#include <stdbool.h>
#include <stdint.h>

#include "common/channel.h"
#include "common/verbs.h"
#include "proto/message.h"
#include "proto/private_data.h"

#define RAW_RECEIVES 8
#define RAW_SENDS    16 /* that may be under way */
#define RAW_LATE_MS  5000

/* A connection to the daemon that follows no protocol but rdma_cm's. All zero: none. */
struct raw {
	struct rdma_event_channel *channel;
	struct rdma_cm_id *id;
	struct ibv_pd *pd;
	struct verbs_cq cq;
	struct ibv_mr *mr;
	uint8_t *memory;
	uint32_t sends_posted;
	uint32_t next_send; /* buffer */
	bool sealing;	    /* messages go through the channel */
	struct secure_key_pair own;
	struct channel secrets;
	bool gone;			       /* disconnected, or a work request has failed */
	uint8_t reply[PROTO_PRIVATE_DATA_MAX]; /* private data of the accept */
	uint8_t reply_bytes;
};

/**
 * raw_connect() - connect with any private data
 * @data: @len_bytes of it
 *
 * Return: 0; the code with which the daemon rejects; or a negative errno (-ECONNREFUSED:
 * rejected without a code). raw_close() in any case.
 */
int raw_connect(struct raw *raw, const void *data, uint8_t len_bytes);

/** raw_prepare(), raw_request() - the two halves of raw_connect(): the QP exists in between */
int raw_prepare(struct raw *raw);
int raw_prepare_for(struct raw *raw, uint16_t port);
int raw_request(struct raw *raw, const void *data, uint8_t len_bytes);

/**
 * raw_give_up() - ask for the connection that was prepared, and go when the daemon has accepted
 *
 * The daemon gets a rejection in answer to its accept. Return: as raw_connect(); there is no
 * connection in any case.
 */
int raw_give_up(struct raw *raw, const void *data, uint8_t len_bytes);

/**
 * raw_adopt() - be the passive end: a QP with receives on the id of a connect request
 * @id: owned by @raw in any case, and moved to an event channel of its own
 *
 * Then rdma_accept() or rdma_reject(). Return: 0 or a negative errno; raw_close() in any case.
 */
int raw_adopt(struct raw *raw, struct rdma_cm_id *id);

/** raw_connect_as() - with proper private data */
int raw_connect_as(struct raw *raw, const struct private_data *data);

/** raw_open() - connect as a control connection of a tenant (keys.h) should */
int raw_open(struct raw *raw, const char *tenant);

void raw_close(struct raw *raw);

/** raw_send() - any bytes as one SEND; Return: 0 or a negative errno (-EAGAIN: call raw_wait()) */
int raw_send(struct raw *raw, const void *bytes, uint32_t len_bytes);

/** raw_send_sealed() - any bytes as if they were a message */
int raw_send_sealed(struct raw *raw, const void *bytes, uint32_t len_bytes);

/** raw_send_message() - a proper message; Return: 0 or a negative errno */
int raw_send_message(struct raw *raw, const struct message *m);

/** raw_wait() - Return: 1 = a message; 0 = none in time; -ENETRESET = the connection is over */
int raw_wait(struct raw *raw, uint64_t limit_ms, struct message *ret_m);

/**
 * raw_take() - the next SEND that has come, as it is, without waiting
 * @bytes: room for PROTO_FRAME_MAX
 *
 * Return: 1; 0 = none; -ENETRESET = none, and the connection is over.
 */
int raw_take(struct raw *raw, uint8_t *bytes, uint32_t *ret_len_bytes);

/** raw_hello() - say hello and wait for the welcome; Return: 0 or a negative errno */
int raw_hello(struct raw *raw, struct message_welcome *ret_welcome);

/** raw_hello_message() - a hello as it should be */
struct message raw_hello_message(void);

#endif
