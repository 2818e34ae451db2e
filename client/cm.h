/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef CLIENT_CM_H
#define CLIENT_CM_H

#include <pthread.h>
#include <rdma/rdma_cma.h>
#include <stdbool.h>
#include <stdint.h>

#include "client/error.h"
#include "proto/private_data.h"

/*
 * An rdma_cm connection that we make: control connection and lanes alike. All functions are
 * called with the lock of the session held; so an event is fetched, acknowledged and acted
 * upon, and an id destroyed, without the other in between.
 */

enum cm_state {
	CM_CLOSED,     /* no id */
	CM_ADDRESS,    /* the address is being resolved */
	CM_ROUTE,      /* the route is being resolved */
	CM_CONNECTING, /* the request is on its way; the QP exists */
	CM_ESTABLISHED,
	CM_GONE, /* failed, refused or disconnected; error says why; id and QP still exist */
};

struct cm;

struct cm_ops {
	/* The device is known: make the QP (and post receives), set cm->initiator_depth.
	 * Return: 0, or a code with cm->error set; the owner undoes after cm_close(). */
	int (*prepare)(struct cm *cm);
	void (*established)(struct cm *cm);
	/* An established connection is gone. */
	void (*gone)(struct cm *cm);
};

struct cm {
	enum cm_state state;
	const struct cm_ops *ops;
	void *owner;
	struct rdma_cm_id *id;
	uint64_t deadline_ns;
	/* How long the peer may fail to acknowledge before the connection counts as broken; the
	 * owner sets it once. 0, or more than the system's own: that. */
	uint32_t patience_ms;
	uint8_t initiator_depth; /* reads that we may have outstanding */
	uint8_t private_data_len_bytes;
	uint8_t private_data[PROTO_PRIVATE_DATA_MAX];
	struct private_data accepted; /* of the accept; its kind is 0 if it could not be read */
	pthread_cond_t changed;	      /* signalled when the state becomes ESTABLISHED or GONE */
	struct client_error error;    /* in CM_GONE */
};

/** cm_init() - Return: 0 or a negative errno */
int cm_init(struct cm *cm, const struct cm_ops *ops, void *owner);

/** cm_deinit() - must be closed */
void cm_deinit(struct cm *cm);

/**
 * cm_open() - begin to connect; events do the rest
 * @data: goes with the request
 *
 * Never fails: if nothing could be begun the state is CM_GONE.
 */
void cm_open(struct cm *cm, struct rdma_event_channel *channel, struct sockaddr *peer,
	     const struct private_data *data, uint64_t deadline_ns);

/** cm_set_private_data() - to go with the request instead of that of cm_open(); from ops->prepare */
void cm_set_private_data(struct cm *cm, const struct private_data *data);

/**
 * cm_wait() - until the connection is established
 *
 * Return: 0, the code of what went wrong, or MEMPOOL_E_TIMEOUT; the thread's last error is set.
 */
int cm_wait(struct cm *cm, pthread_mutex_t *lock);

/** cm_fail() - give up a connection that is not gone; wakes who waits; calls no operation */
void cm_fail(struct cm *cm, int code, const char *text);

/**
 * cm_close() - disconnect, destroy QP and id
 *
 * Waits for no event. Whoever has work requests posted collects their flushes first.
 * Return: 0, or a negative errno: the QP lives on, and what was posted may be carried out.
 */
int cm_close(struct cm *cm);

/**
 * cm_step() - take one event off the channel, acknowledge it, act on it
 *
 * Return: true if there was one.
 */
bool cm_step(struct rdma_event_channel *channel);

/**
 * cm_ack_timeout() - the exponent of the time-out of one packet (4.096 us * 2^n)
 *
 * The largest for which all tries of a packet are over within @patience_ms, but
 * CM_ACK_TIMEOUT_MIN at least; pure.
 */
uint8_t cm_ack_timeout(uint32_t patience_ms);

#define CM_ACK_TIMEOUT_MIN 14 /* 67 ms: what a busy host may take */
#define CM_ACK_TIMEOUT_MAX 17 /* 0.5 s; a connection has about that if nothing is said */

static inline struct ibv_qp *cm_qp(const struct cm *cm)
{
	return cm->id != NULL ? cm->id->qp : NULL;
}

#endif
