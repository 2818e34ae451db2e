/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * An rdma_cm connection being made: address, route, QP, connect, established. It owns the id
 * and the QP on it; what the QP stands on (PD, CQ, memory) belongs to the owner, who provides
 * it in ops->prepare when the device is known.
 *
 * Invariants: an event is copied and acknowledged before anything is done about it, so that
 * destroying an id never waits for us. An event that does not fit the state is ignored.
 *
 * Thread: any that holds the lock of the session; events only on the service thread.
 */
#include "client/cm.h"

#include <assert.h>
#include <errno.h>
#include <limits.h>
#include <string.h>

#include "client/wait.h"
#include "common/clock.h"
#include "common/verbs.h"
#include "proto/error.h"

#define CM_RETRY_COUNT	   5 /* of a packet that is not acknowledged */
#define CM_RNR_RETRY_COUNT 6 /* 7 would mean for ever */

/* Reasons of a reject (InfiniBand, table "REJ reasons"). */
#define CM_REJECT_TIMEOUT    4
#define CM_REJECT_SERVICE_ID 8
#define CM_REJECT_CONSUMER   28

struct cm_event {
	enum rdma_cm_event_type type;
	int status;
	uint8_t private_data_len_bytes;
	uint8_t private_data[UINT8_MAX];
};

int cm_init(struct cm *cm, const struct cm_ops *ops, void *owner)
{
	*cm = (struct cm){.ops = ops, .owner = owner};
	return wait_init(&cm->changed);
}

void cm_deinit(struct cm *cm)
{
	assert(cm->state == CM_CLOSED);
	(void)pthread_cond_destroy(&cm->changed);
}

static void cm_set_state(struct cm *cm, enum cm_state state)
{
	cm->state = state;
	if (state == CM_ESTABLISHED || state == CM_GONE)
		(void)pthread_cond_broadcast(&cm->changed);
}

void cm_fail(struct cm *cm, int code, const char *text)
{
	if (cm->state == CM_CLOSED || cm->state == CM_GONE)
		return;
	client_error_set(&cm->error, code, "%s", text);
	cm_set_state(cm, CM_GONE);
}

/* A call of librdmacm has failed while connecting. */
static void cm_fail_errno(struct cm *cm, const char *what, int error)
{
	switch (error) {
	case ENODEV:
		client_error_set(&cm->error, MEMPOOL_E_NO_RDMA, "%s",
				 error_text(MEMPOOL_E_NO_RDMA));
		break;
	case ENETUNREACH:
	case EHOSTUNREACH:
	case EADDRNOTAVAIL:
	case ETIMEDOUT:
		client_error_set(&cm->error, MEMPOOL_E_UNREACHABLE, "%s: %s", what,
				 strerrordesc_np(error));
		break;
	default:
		client_error_set(&cm->error, client_error_errno(-error), "%s: %s", what,
				 strerrordesc_np(error));
	}
	cm_set_state(cm, CM_GONE);
}

static int cm_left_ms(const struct cm *cm)
{
	uint64_t left_ms = clock_left_ms(cm->deadline_ns, clock_now_ns());

	if (left_ms == 0)
		return 1;
	return left_ms > INT_MAX ? INT_MAX : (int)left_ms;
}

uint8_t cm_ack_timeout(uint32_t patience_ms)
{
	uint64_t tries_ns = (uint64_t)patience_ms * CLOCK_NS_PER_MS / (CM_RETRY_COUNT + 1);
	uint8_t n = CM_ACK_TIMEOUT_MIN;

	while (n < CM_ACK_TIMEOUT_MAX && (UINT64_C(4096) << (n + 1)) <= tries_ns)
		n++;
	return n;
}

/* Costs time, not correctness, if the system refuses. */
static void cm_set_patience(struct cm *cm)
{
	uint8_t timeout = cm_ack_timeout(cm->patience_ms);

	if (cm->patience_ms != 0 && timeout < CM_ACK_TIMEOUT_MAX)
		(void)rdma_set_option(cm->id, RDMA_OPTION_ID, RDMA_OPTION_ID_ACK_TIMEOUT, &timeout,
				      sizeof(timeout));
}

void cm_set_private_data(struct cm *cm, const struct private_data *data)
{
	cm->private_data_len_bytes = private_data_encode(data, cm->private_data);
}

void cm_open(struct cm *cm, struct rdma_event_channel *channel, struct sockaddr *peer,
	     const struct private_data *data, uint64_t deadline_ns)
{
	assert(cm->state == CM_CLOSED);
	cm_set_private_data(cm, data);
	cm->deadline_ns = deadline_ns;
	cm->error = (struct client_error){0};
	cm->accepted = (struct private_data){0};
	if (rdma_create_id(channel, &cm->id, cm, RDMA_PS_TCP) != 0) {
		cm->id = NULL;
		cm_fail_errno(cm, "rdma_create_id", errno);
		return;
	}
	cm_set_patience(cm);
	cm_set_state(cm, CM_ADDRESS);
	if (rdma_resolve_addr(cm->id, NULL, peer, cm_left_ms(cm)) != 0)
		cm_fail_errno(cm, "rdma_resolve_addr", errno);
}

int cm_wait(struct cm *cm, pthread_mutex_t *lock)
{
	while (cm->state < CM_ESTABLISHED && wait_until(&cm->changed, lock, cm->deadline_ns))
		;
	switch (cm->state) {
	case CM_ESTABLISHED:
		return 0;
	case CM_GONE:
		return client_error_forward(&cm->error);
	case CM_CONNECTING:
		return client_error_raise(MEMPOOL_E_TIMEOUT, "no answer to the connect request");
	default:
		return client_error_raise(MEMPOOL_E_UNREACHABLE, "nobody answers for that address");
	}
}

int cm_close(struct cm *cm)
{
	int r = 0;

	if (cm->id != NULL) {
		/* Refused where there is no connection, which is as good. */
		if (cm->id->qp != NULL)
			(void)rdma_disconnect(cm->id);
		/* A QP that cannot be destroyed is left to the end of the process. */
		r = verbs_destroy_qp(cm->id->qp);
		cm->id->qp = NULL;
		(void)rdma_destroy_id(cm->id);
		cm->id = NULL;
	}
	cm_set_state(cm, CM_CLOSED);
	return r;
}

static void cm_resolve_route(struct cm *cm)
{
	if (cm->id->verbs == NULL) {
		cm_fail(cm, MEMPOOL_E_NO_RDMA, error_text(MEMPOOL_E_NO_RDMA));
		return;
	}
	cm_set_state(cm, CM_ROUTE);
	if (rdma_resolve_route(cm->id, cm_left_ms(cm)) != 0)
		cm_fail_errno(cm, "rdma_resolve_route", errno);
}

static void cm_connect(struct cm *cm)
{
	struct rdma_conn_param param = {
		.private_data = cm->private_data,
		.private_data_len = cm->private_data_len_bytes,
		.retry_count = CM_RETRY_COUNT,
		.rnr_retry_count = CM_RNR_RETRY_COUNT,
	};

	if (cm->ops->prepare(cm) < 0) {
		cm_set_state(cm, CM_GONE);
		return;
	}
	param.initiator_depth = cm->initiator_depth;
	cm_set_state(cm, CM_CONNECTING);
	if (rdma_connect(cm->id, &param) != 0)
		cm_fail_errno(cm, "rdma_connect", errno);
}

static void cm_rejected(struct cm *cm, const struct cm_event *event)
{
	struct private_data data;
	int code;

	if (private_data_decode(event->private_data, event->private_data_len_bytes, &data) == 0 &&
	    data.kind == PRIVATE_DATA_REJECT) {
		code = client_error_code(data.code);
		client_error_set(&cm->error, code, "the daemon refuses the connection: %s",
				 error_text(code));
	} else if (event->status == CM_REJECT_TIMEOUT) {
		client_error_set(&cm->error, MEMPOOL_E_UNREACHABLE, "%s",
				 error_text(MEMPOOL_E_UNREACHABLE));
	} else if (event->status == CM_REJECT_SERVICE_ID || event->status == CM_REJECT_CONSUMER) {
		client_error_set(&cm->error, MEMPOOL_E_REJECTED, "nobody listens there");
	} else {
		client_error_set(&cm->error, MEMPOOL_E_REJECTED,
				 "the connection was refused (reason %d)", event->status);
	}
	cm_set_state(cm, CM_GONE);
}

/* The connection cannot be made. The status is an errno, negative or not, or a CM's number. */
static void cm_refused(struct cm *cm, const struct cm_event *event)
{
	if (event->status == -ENODEV)
		cm_fail(cm, MEMPOOL_E_NO_RDMA, error_text(MEMPOOL_E_NO_RDMA));
	if (cm->state == CM_GONE)
		return;
	client_error_set(&cm->error, MEMPOOL_E_UNREACHABLE, "%s (%s, status %d)",
			 error_text(MEMPOOL_E_UNREACHABLE), rdma_event_str(event->type),
			 event->status);
	cm_set_state(cm, CM_GONE);
}

static void cm_gone(struct cm *cm, const struct cm_event *event)
{
	bool was_established = cm->state == CM_ESTABLISHED;

	cm_fail(cm, MEMPOOL_E_UNREACHABLE,
		event->type == RDMA_CM_EVENT_DEVICE_REMOVAL ? "our RDMA device was removed"
							    : "the daemon disconnected");
	if (was_established)
		cm->ops->gone(cm);
}

static void cm_handle(struct cm *cm, const struct cm_event *event)
{
	bool connecting = cm->state > CM_CLOSED && cm->state < CM_ESTABLISHED;

	switch (event->type) {
	case RDMA_CM_EVENT_ADDR_RESOLVED:
		if (cm->state == CM_ADDRESS)
			cm_resolve_route(cm);
		break;
	case RDMA_CM_EVENT_ROUTE_RESOLVED:
		if (cm->state == CM_ROUTE)
			cm_connect(cm);
		break;
	case RDMA_CM_EVENT_ESTABLISHED:
		if (cm->state != CM_CONNECTING)
			break;
		(void)private_data_decode(event->private_data, event->private_data_len_bytes,
					  &cm->accepted);
		cm_set_state(cm, CM_ESTABLISHED);
		cm->ops->established(cm);
		break;
	case RDMA_CM_EVENT_ADDR_ERROR:
	case RDMA_CM_EVENT_ROUTE_ERROR:
	case RDMA_CM_EVENT_CONNECT_ERROR:
	case RDMA_CM_EVENT_UNREACHABLE:
		if (connecting)
			cm_refused(cm, event);
		break;
	case RDMA_CM_EVENT_REJECTED:
		if (connecting)
			cm_rejected(cm, event);
		break;
	case RDMA_CM_EVENT_DISCONNECTED:
	case RDMA_CM_EVENT_DEVICE_REMOVAL:
		if (connecting || cm->state == CM_ESTABLISHED)
			cm_gone(cm, event);
		break;
	default:
		break;
	}
}

bool cm_step(struct rdma_event_channel *channel)
{
	struct rdma_cm_event *got;
	struct cm_event event;
	struct cm *cm;

	if (rdma_get_cm_event(channel, &got) != 0)
		return false;
	event = (struct cm_event){.type = got->event, .status = got->status};
	if (got->param.conn.private_data != NULL) {
		event.private_data_len_bytes = got->param.conn.private_data_len;
		memcpy(event.private_data, got->param.conn.private_data,
		       event.private_data_len_bytes);
	}
	cm = got->id->context;
	(void)rdma_ack_cm_event(got);
	cm_handle(cm, &event);
	return true;
}
