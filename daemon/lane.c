/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A data connection of a session: offer, connection, confirmation, its end.
 *
 * Invariants:
 * - nothing is bound before the client has confirmed over the control channel the QP that
 *   it is connected to;
 * - the end begins once. While the QP is RTS windows are invalidated; once it is lost they
 *   are UNKNOWN and only deallocated. rdma_disconnect comes after that, since it moves the
 *   QP to ERR before anything else;
 * - while the verbs worker reaps the lane the loop touches nothing of it.
 *
 * Thread: the loop, except lane_reap_run(), which runs on the verbs worker.
 */
#include "daemon/lane.h"

#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "common/clock.h"
#include "common/secure.h"
#include "common/verbs.h"
#include "daemon/accept.h"
#include "daemon/penalty.h"
#include "daemon/server.h"
#include "proto/error.h"
#include "proto/private_data.h"

#define LANE_POLL_BATCH	      32
#define LANE_POLL_ROUNDS      16
#define LANE_REAP_WAIT_MIN_MS 100u
#define LANE_REAP_WAIT_MAX_MS 10000u

static struct log_limit lane_accept_limit;

#define GO(state) (1u << LANE_##state)

static const uint32_t lane_next[LANE_STATES] = {
	[LANE_OFFERED] = GO(CONNECTING) | GO(GONE),
	[LANE_CONNECTING] = GO(READY) | GO(CLOSING),
	[LANE_READY] = GO(CLOSING),
	[LANE_CLOSING] = GO(REAPING),
	[LANE_REAPING] = GO(STUCK) | GO(GONE),
	[LANE_STUCK] = GO(REAPING),
	[LANE_GONE] = 0,
};

static const char *const lane_names[LANE_STATES] = {
	[LANE_OFFERED] = "offered", [LANE_CONNECTING] = "connecting", [LANE_READY] = "ready",
	[LANE_CLOSING] = "closing", [LANE_REAPING] = "reaping",	      [LANE_STUCK] = "stuck",
	[LANE_GONE] = "gone",
};

bool lane_can_go(enum lane_state from, enum lane_state to)
{
	return from < LANE_STATES && to < LANE_STATES && (lane_next[from] >> to & 1) != 0;
}

const char *lane_state_name(enum lane_state state)
{
	return state < LANE_STATES ? lane_names[state] : "invalid";
}

static void lane_set_state(struct lane *lane, enum lane_state state)
{
	assert(lane_can_go(lane->state, state));
	lane->state = state;
}

static void lane_maybe_reap(struct lane *lane);
static void lane_on_deadline(struct deadline *deadline, void *context);

/* The windows report. */

static struct lane *lane_of(struct window_set *set)
{
	return (struct lane *)((char *)set - offsetof(struct lane, windows));
}

static void lane_want_flush(struct window_set *set)
{
	struct lane *lane = lane_of(set);

	if (!lane->in_flush) {
		lane->in_flush = true;
		TAILQ_INSERT_TAIL(&lane->server->flush, lane, flush_link);
		server_end_turn(lane->server);
	}
}

static void lane_windows_idle(struct window_set *set)
{
	lane_maybe_reap(lane_of(set));
}

static void lane_windows_failed(struct window_set *set, const char *why)
{
	lane_close(lane_of(set), why);
}

static const struct window_set_ops lane_window_ops = {
	.queued = lane_want_flush,
	.idle = lane_windows_idle,
	.failed = lane_windows_failed,
};

/* Offer, connection, confirmation. */

int lane_offer(struct session *session, uint32_t number, struct lane **ret_lane)
{
	struct server *server = session->server;
	struct lane *lane = calloc(1, sizeof(*lane));
	int r;

	if (lane == NULL)
		return ERROR_INTERNAL;
	lane->kind = CM_LANE;
	lane->state = LANE_OFFERED;
	lane->server = server;
	lane->session = session;
	lane->number = number;
	lane->deadline = (struct deadline){.fire = lane_on_deadline, .context = lane};
	lane->reap_wait_ms = LANE_REAP_WAIT_MIN_MS;
	TAILQ_INIT(&lane->attachments);
	r = tenant_try_charge(session->tenant, TENANT_LANES, 1);
	if (r != 0)
		goto err_free;
	if (deadline_set(server->deadlines, &lane->deadline,
			 clock_add_ms(clock_now_ns(), server->config.lane_offer_ms)) < 0) {
		r = ERROR_INTERNAL;
		goto err_uncharge;
	}
	TAILQ_INSERT_TAIL(&session->lanes, lane, session_link);
	session->lane_count++;
	TAILQ_INSERT_TAIL(&server->lanes, lane, server_link);
	server->lane_count++;
	*ret_lane = lane;
	return 0;

err_uncharge:
	tenant_uncharge(session->tenant, TENANT_LANES, 1);
err_free:
	free(lane);
	return r;
}

static void lane_leave_session(struct lane *lane)
{
	struct session *session = lane->session;

	TAILQ_REMOVE(&session->lanes, lane, session_link);
	session->lane_count--;
	tenant_uncharge(session->tenant, TENANT_LANES, 1);
	lane->session = NULL;
	session_lane_gone(session);
}

static void lane_free(struct lane *lane)
{
	struct server *server = lane->server;

	assert(TAILQ_EMPTY(&lane->attachments));
	deadline_clear(server->deadlines, &lane->deadline);
	if (lane->in_flush)
		TAILQ_REMOVE(&server->flush, lane, flush_link);
	route_remove(&server->device.lane_routes, lane->route);
	verbs_cq_unreserve(&server->device.lane_cq, lane->cq_reserved);
	window_set_deinit(&lane->windows);
	TAILQ_REMOVE(&server->lanes, lane, server_link);
	server->lane_count--;
	if (lane->session != NULL)
		lane_leave_session(lane);
	free(lane);
	server_maybe_stopped(server);
}

/* What cannot be freed is charged to nobody, and does not hold up its session. */
static void lane_quarantine(struct lane *lane)
{
	struct attachment *attachment;

	TAILQ_FOREACH (attachment, &lane->attachments, lane_link)
		lease_quarantine(attachment->lease);
	lane_leave_session(lane);
}

static int lane_create_qp(struct lane *lane, struct rdma_cm_id *id)
{
	struct server *server = lane->server;
	uint32_t depth = (uint32_t)server->config.lane_send_queue;
	struct ibv_qp_init_attr attr = {
		.qp_context = id, /* for rdma_notify() */
		.send_cq = server->device.lane_cq.cq,
		.recv_cq = server->device.lane_cq.cq,
		.cap = {.max_send_wr = depth,
			.max_recv_wr = 1,
			.max_send_sge = 1,
			.max_recv_sge = 1},
		.qp_type = IBV_QPT_RC,
	};
	int r;

	r = route_add(&server->device.lane_routes, lane, &lane->route);
	if (r < 0)
		return r;
	if (rdma_create_qp(id, server->device.pd, &attr) != 0) {
		r = -errno;
		goto err_remove_route;
	}
	r = window_set_init(&lane->windows, server, id->qp, lane->route, depth, &lane_window_ops);
	if (r < 0)
		goto err_destroy_qp;
	return 0;

err_destroy_qp:
	rdma_destroy_qp(id);
err_remove_route:
	route_remove(&server->device.lane_routes, lane->route);
	lane->route = 0;
	return r;
}

static uint8_t lane_read_depth(const struct server *server, const struct rdma_conn_param *request)
{
	uint64_t wanted = request->initiator_depth > request->responder_resources
				  ? request->initiator_depth
				  : request->responder_resources;
	uint64_t max = (uint64_t)server->device.attr.max_qp_rd_atom;

	if (max > server->config.read_depth)
		max = server->config.read_depth;
	return (uint8_t)(wanted < max ? wanted : max);
}

static int lane_accept_connection(struct lane *lane, struct rdma_cm_id *id,
				  const struct rdma_conn_param *request)
{
	struct private_data data = {.kind = PRIVATE_DATA_ACCEPT, .version = PROTO_VERSION};
	uint8_t bytes[PROTO_PRIVATE_DATA_MAX];
	struct rdma_conn_param param = {
		.private_data = bytes,
		.private_data_len = private_data_encode(&data, bytes),
		.responder_resources = lane_read_depth(lane->server, request),
		.initiator_depth = 0,
		.rnr_retry_count = 6,
	};

	return accept_connection(id, &param, &lane->server->config);
}

int lane_accept(struct lane *lane, struct rdma_cm_id *id, const struct rdma_conn_param *request)
{
	struct server *server = lane->server;
	uint32_t entries = (uint32_t)server->config.lane_send_queue + 1;
	int r;

	if (lane->state != LANE_OFFERED)
		return ERROR_LANE_OFFER;
	if (!verbs_cq_reserve(&server->device.lane_cq, entries))
		return ERROR_LANES_MAX;
	r = lane_create_qp(lane, id);
	if (r < 0)
		goto err_unreserve;
	id->context = lane;
	r = lane_accept_connection(lane, id, request);
	if (r < 0)
		goto err_destroy_qp;
	lane->cq_reserved = entries;
	lane->id = id;
	lane->qp = id->qp;
	lane->qpn = id->qp->qp_num;
	lane_set_state(lane, LANE_CONNECTING);
	(void)deadline_set(server->deadlines, &lane->deadline,
			   clock_add_ms(clock_now_ns(), server->config.handshake_timeout_ms));
	return 0;

err_destroy_qp:
	rdma_destroy_qp(id);
	window_set_deinit(&lane->windows);
	route_remove(&server->device.lane_routes, lane->route);
	lane->route = 0;
err_unreserve:
	verbs_cq_unreserve(&server->device.lane_cq, entries);
	log_limited(LOG_LEVEL_WARN, &lane_accept_limit,
		    "lane not accepted session=0x%" PRIx64 " lane=%u error=\"%s\"",
		    lane->session->id, lane->number, strerror(-r));
	return ERROR_INTERNAL;
}

static int lane_peer_qpn(struct lane *lane, uint32_t *ret_qpn)
{
	struct ibv_qp_init_attr init_attr;
	struct ibv_qp_attr attr;
	int r = ibv_query_qp(lane->qp, &attr, IBV_QP_DEST_QPN | IBV_QP_STATE, &init_attr);

	if (r != 0)
		return -EIO;
	if (attr.qp_state != IBV_QPS_RTS)
		return -ENOTCONN;
	*ret_qpn = attr.dest_qp_num;
	return 0;
}

int lane_confirm(struct lane *lane, uint32_t daemon_qpn, uint32_t client_qpn)
{
	uint32_t peer_qpn;

	if (lane->state != LANE_CONNECTING)
		return ERROR_LANE_STATE;
	if (lane_peer_qpn(lane, &peer_qpn) < 0 || daemon_qpn != lane->qp->qp_num ||
	    client_qpn != peer_qpn) {
		lane_close(lane, "confirmation does not match the connection");
		return ERROR_LANE_OFFER;
	}
	deadline_clear(lane->server->deadlines, &lane->deadline);
	lane_set_state(lane, LANE_READY);
	lane->server->counters.lanes_connected++;
	log_debug("lane ready session=0x%" PRIx64 " lane=%u qp=0x%x", lane->session->id,
		  lane->number, lane->qp->qp_num);
	lane->alive_ns = clock_now_ns();
	window_set_open(&lane->windows);
	return 0;
}

void lane_disconnected(struct lane *lane)
{
	lane->disconnected = true;
	lane_close(lane, "peer left");
}

void lane_not_connected(struct lane *lane)
{
	/* librdmacm has moved the QP to ERR with the event: that says nothing of the peer. */
	lane->lost = true;
	lane_disconnected(lane);
}

/* Posting and completions. */

/*
 * Return: is its QP alive? Only the peer's accesses, and failures of our own work requests, put
 * one into ERR that has not been given up. One that cannot be asked is not alive, but proves
 * nothing against the peer.
 */
static bool lane_look(struct lane *lane)
{
	int state = verbs_qp_state(lane->qp);

	if (state < 0)
		return false;
	if (state == IBV_QPS_ERR || state == IBV_QPS_SQE) {
		lane->violated |= !lane->lost;
		return false;
	}
	lane->alive_ns = clock_now_ns();
	return true;
}

static void lane_watch_completions(struct lane *lane)
{
	uint64_t oldest_ns = posting_oldest_ns(&lane->windows.posting);
	struct server *server = lane->server;

	if (lane->state != LANE_READY)
		return;
	if (oldest_ns == UINT64_MAX)
		deadline_clear(server->deadlines, &lane->deadline);
	else
		(void)deadline_set(server->deadlines, &lane->deadline,
				   clock_add_ms(oldest_ns, server->config.completion_timeout_ms));
}

/* The QP is of no use any more, whatever its state says. */
static void lane_lose(struct lane *lane, const char *why)
{
	lane->lost = true;
	lane_close(lane, why);
}

void lane_flush_all(struct server *server)
{
	struct lane *lane;

	while ((lane = TAILQ_FIRST(&server->flush)) != NULL) {
		TAILQ_REMOVE(&server->flush, lane, flush_link);
		lane->in_flush = false;
		if (!lane_check(lane))
			continue;
		if (window_set_flush(&lane->windows) < 0)
			lane_lose(lane, "a work request could not be posted");
		else
			lane_watch_completions(lane);
	}
}

static void lane_complete(struct lane *lane, const struct ibv_wc *wc)
{
	if (wc->status != IBV_WC_SUCCESS && wc->status != IBV_WC_WR_FLUSH_ERR)
		lane->local_failure = true;
	if (lane->lost)
		return;
	if (wc->status != IBV_WC_SUCCESS) {
		/* An access of the peer's while something was under way shows by its flush. */
		if (lane->state == LANE_READY)
			(void)lane_look(lane);
		log_debug("lane completion failed session=0x%" PRIx64 " lane=%u status=\"%s\"",
			  lane->session->id, lane->number, ibv_wc_status_str(wc->status));
		lane_lose(lane, "a bind or invalidate failed");
		return;
	}
	window_set_completed(&lane->windows, route_index(wc->wr_id));
	lane_watch_completions(lane);
}

bool lane_poll(struct server *server)
{
	struct ibv_wc wc[LANE_POLL_BATCH];

	for (int rounds = 0; rounds < LANE_POLL_ROUNDS; rounds++) {
		int n = verbs_poll_cq(server->device.lane_cq.cq, LANE_POLL_BATCH, wc);

		if (n <= 0)
			return true;
		for (int i = 0; i < n; i++) {
			struct lane *lane =
				route_find(&server->device.lane_routes, route_of(wc[i].wr_id));

			if (lane != NULL)
				lane_complete(lane, &wc[i]);
		}
	}
	return false;
}

/* The end. */

static void lane_end_attachments(struct lane *lane)
{
	struct attachment *attachment = TAILQ_FIRST(&lane->attachments);

	/* Ending one lease may end others of the same acquire, and free what is next. */
	for (; attachment != NULL; attachment = lane->closing_next) {
		lane->closing_next = TAILQ_NEXT(attachment, lane_link);
		lease_lane_closing(attachment->lease, attachment);
	}
}

static void lane_give_up(struct lane *lane)
{
	lane->lost = true;
	(void)verbs_qp_to_error(lane->qp);
	window_set_give_up(&lane->windows);
	lane_maybe_reap(lane);
}

void lane_close(struct lane *lane, const char *why)
{
	bool was_ready = lane->state == LANE_READY;
	struct server *server = lane->server;

	if (lane->state == LANE_OFFERED) {
		lane_set_state(lane, LANE_GONE);
		lane_free(lane);
		return;
	}
	if (lane->state != LANE_CONNECTING && lane->state != LANE_READY) {
		/* Closing already; what has been learnt since may be that no completion will come. */
		if (lane->state == LANE_CLOSING && lane->lost)
			lane_give_up(lane);
		return;
	}
	lane->why = why;
	lane_set_state(lane, LANE_CLOSING);
	window_set_close(&lane->windows);
	lane->windows.busy++; /* not to be reaped while the windows are being told */
	if (lane->lost || !lane_look(lane) || verbs_qp_state(lane->qp) != IBV_QPS_RTS) {
		server->counters.lanes_lost++;
		lane_give_up(lane);
	}
	log_debug("lane closing session=0x%" PRIx64 " lane=%u lost=%d why=\"%s\"",
		  lane->session->id, lane->number, lane->lost, why);
	if (was_ready)
		session_lane_closing(lane->session, lane);
	lane_end_attachments(lane);
	(void)deadline_set(server->deadlines, &lane->deadline,
			   clock_add_ms(clock_now_ns(), server->config.completion_timeout_ms));
	lane->windows.busy--;
	lane_maybe_reap(lane);
}

static void lane_reap_run(struct worker_job *job)
{
	struct lane *lane = (struct lane *)((char *)job - offsetof(struct lane, reap_job));
	int r = window_set_destroy(&lane->windows);

	if (r == 0)
		r = verbs_destroy_qp(lane->qp);
	if (r == 0)
		lane->qp = NULL;
	if (r == 0 && rdma_destroy_id(lane->id) != 0)
		r = -errno;
	lane->reap_result = r;
}

static void lane_reap_done(struct worker_job *job)
{
	struct lane *lane = (struct lane *)((char *)job - offsetof(struct lane, reap_job));
	struct server *server = lane->server;

	window_set_destroyed(&lane->windows);
	if (lane->reap_result == 0) {
		(void)lane_poll(server); /* completions that the QP has left behind */
		lane_set_state(lane, LANE_GONE);
		if (lane->violated && !lane->local_failure && lane->session != NULL)
			penalty_lane_died(lane);
		lane_free(lane);
		return;
	}
	server->counters.destroy_failures++;
	log_error("lane not destroyed, trying again qp=0x%x wait_ms=%" PRIu64 " error=\"%s\"",
		  lane->qpn, lane->reap_wait_ms, strerror(-lane->reap_result));
	lane_set_state(lane, LANE_STUCK);
	if (lane->session != NULL)
		lane_quarantine(lane);
	(void)deadline_set(server->deadlines, &lane->deadline,
			   clock_add_ms(clock_now_ns(), lane->reap_wait_ms));
	if (lane->reap_wait_ms < LANE_REAP_WAIT_MAX_MS)
		lane->reap_wait_ms *= 2;
}

static void lane_reap(struct lane *lane)
{
	lane_set_state(lane, LANE_REAPING);
	lane->reap_job.run = lane_reap_run;
	lane->reap_job.done = lane_reap_done;
	worker_submit(lane->server->verbs_worker, &lane->reap_job);
}

static void lane_maybe_reap(struct lane *lane)
{
	if (lane->state != LANE_CLOSING || !window_set_is_idle(&lane->windows))
		return;
	assert(posting_is_empty(&lane->windows.posting));
	deadline_clear(lane->server->deadlines, &lane->deadline);
	lane->lost = true;
	route_remove(&lane->server->device.lane_routes, lane->route);
	lane->route = 0;
	(void)rdma_disconnect(lane->id);
	(void)verbs_qp_to_error(lane->qp);
	/* Taking a late event for the id, librdmacm would touch the QP that the worker destroys. */
	lane->id->qp = NULL;
	lane_reap(lane);
}

static void lane_on_deadline(struct deadline *deadline, void *context)
{
	struct lane *lane = context;

	(void)deadline;
	if (lane->state == LANE_OFFERED) {
		lane_close(lane, "offer expired");
	} else if (lane->state == LANE_CONNECTING) {
		lane_close(lane, "not confirmed in time");
	} else if (lane->state == LANE_READY) {
		lane_lose(lane, "a completion did not come in time");
	} else if (lane->state == LANE_STUCK) {
		lane_reap(lane);
	} else if (lane->state == LANE_CLOSING) {
		lane_give_up(lane);
	}
}

bool lane_check(struct lane *lane)
{
	if (lane->state != LANE_CONNECTING && lane->state != LANE_READY &&
	    lane->state != LANE_CLOSING)
		return false;
	if (lane_look(lane))
		return true;
	lane_lose(lane, "its QP is in the error state");
	return false;
}

bool lane_key_invalidated(struct server *server, uint32_t rkey)
{
	struct lane *lane;

	TAILQ_FOREACH (lane, &server->lanes, server_link) {
		if (window_set_has_key(&lane->windows, rkey)) {
			lane->wronged = true;
			lane_lose(lane, "one of its keys was invalidated by somebody else");
			return true;
		}
	}
	return false;
}

void lane_sweep(struct server *server, uint64_t count)
{
	struct lane *last = TAILQ_LAST(&server->lanes, lane_list);
	struct lane *lane;

	/* Those that have been looked at go to the end; the last one ends the round at the latest. */
	for (; count > 0 && (lane = TAILQ_FIRST(&server->lanes)) != NULL; count--) {
		TAILQ_REMOVE(&server->lanes, lane, server_link);
		TAILQ_INSERT_TAIL(&server->lanes, lane, server_link);
		if (lane->state == LANE_READY)
			(void)lane_check(lane);
		if (lane == last)
			break;
	}
}
