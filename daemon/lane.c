/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A data connection of a session: offer, connection, confirmation, its windows, its end.
 *
 * Invariants:
 * - nothing is bound before the client has confirmed over the control channel the QP that
 *   it is connected to;
 * - windows are allocated after the QP and deallocated before it is destroyed;
 * - the end begins once. While the QP is RTS windows are invalidated; once it is lost they
 *   are UNKNOWN and only deallocated. rdma_disconnect comes after that, since it moves the
 *   QP to ERR before anything else;
 * - while the verbs worker has a job of the lane (guard, allocation, reaping) the loop
 *   touches nothing that the job uses; `busy` counts what must come back first.
 *
 * Thread: the loop, except the *_run functions, which run on the verbs worker.
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
#include "daemon/server.h"
#include "proto/error.h"
#include "proto/private_data.h"

#define LANE_ALLOC_STEP 8u
#define LANE_REAP_WAIT_MIN_MS 100u
#define LANE_REAP_WAIT_MAX_MS 10000u

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
static void lane_alloc_windows(struct lane *lane, uint32_t wanted);
static void lane_on_deadline(struct deadline *deadline, void *context);

/* Offer, connection, confirmation. */

int lane_offer(struct session *session, uint32_t number, struct lane **ret_lane)
{
	struct server *server = session->server;
	struct lane *lane = calloc(1, sizeof(*lane));
	int r;

	if (lane == NULL)
		return -ENOMEM;
	lane->kind = CM_LANE;
	lane->state = LANE_OFFERED;
	lane->server = server;
	lane->session = session;
	lane->number = number;
	lane->deadline = (struct deadline){.fire = lane_on_deadline, .context = lane};
	lane->reap_wait_ms = LANE_REAP_WAIT_MIN_MS;
	TAILQ_INIT(&lane->attachments);
	TAILQ_INIT(&lane->waiting);
	TAILQ_INIT(&lane->posting.queue);
	secure_random(lane->token, sizeof(lane->token));
	r = deadline_set(server->deadlines, &lane->deadline,
			 clock_add_ms(clock_now_ns(), server->config.lane_offer_ms));
	if (r < 0) {
		free(lane);
		return r;
	}
	TAILQ_INSERT_TAIL(&session->lanes, lane, session_link);
	session->lane_count++;
	TAILQ_INSERT_TAIL(&server->lanes, lane, server_link);
	server->lane_count++;
	tenant_charge(session->tenant, TENANT_LANES, 1);
	*ret_lane = lane;
	return 0;
}

static void lane_free(struct lane *lane)
{
	struct server *server = lane->server;
	struct session *session = lane->session;

	assert(TAILQ_EMPTY(&lane->attachments) && TAILQ_EMPTY(&lane->waiting));
	deadline_clear(server->deadlines, &lane->deadline);
	if (lane->in_flush)
		TAILQ_REMOVE(&server->flush, lane, flush_link);
	route_remove(&server->device.lane_routes, lane->route);
	verbs_cq_unreserve(&server->device.lane_cq, lane->cq_reserved);
	posting_deinit(&lane->posting);
	for (uint32_t i = 0; i < lane->window_count; i++)
		free(lane->windows[i]);
	free(lane->windows);
	free(lane->free);
	TAILQ_REMOVE(&session->lanes, lane, session_link);
	session->lane_count--;
	TAILQ_REMOVE(&server->lanes, lane, server_link);
	server->lane_count--;
	tenant_uncharge(session->tenant, TENANT_LANES, 1);
	session_lane_gone(session, lane);
	free(lane);
}

static int lane_create_qp(struct lane *lane, struct rdma_cm_id *id)
{
	struct server *server = lane->server;
	uint32_t depth = (uint32_t)server->config.lane_send_queue;
	struct ibv_qp_init_attr attr = {
		.send_cq = server->device.lane_cq.cq,
		.recv_cq = server->device.lane_cq.cq,
		.cap = {.max_send_wr = depth, .max_recv_wr = 1, .max_send_sge = 1, .max_recv_sge = 1},
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
	r = posting_init(&lane->posting, id->qp, lane->route, depth, &server->counters);
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

	return rdma_accept(id, &param) == 0 ? 0 : -errno;
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
	lane_set_state(lane, LANE_CONNECTING);
	(void)deadline_set(server->deadlines, &lane->deadline,
			   clock_add_ms(clock_now_ns(), server->config.handshake_timeout_ms));
	return 0;

err_destroy_qp:
	rdma_destroy_qp(id);
	posting_deinit(&lane->posting);
	route_remove(&server->device.lane_routes, lane->route);
	lane->route = 0;
err_unreserve:
	verbs_cq_unreserve(&server->device.lane_cq, entries);
	log_warn("lane not accepted session=%" PRIx64 " lane=%u error=\"%s\"", lane->session->id,
		 lane->number, strerror(-r));
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
	log_debug("lane ready session=%" PRIx64 " lane=%u qp=0x%x", lane->session->id,
		  lane->number, lane->qp->qp_num);
	lane_alloc_windows(lane, LANE_ALLOC_STEP);
	return 0;
}

void lane_disconnected(struct lane *lane)
{
	lane->disconnected = true;
	lane_close(lane, "peer left");
}

/* Windows: allocation. */

static void lane_alloc_run(struct worker_job *job)
{
	struct lane *lane = (struct lane *)((char *)job - offsetof(struct lane, alloc_job));

	for (lane->alloc_got = 0; lane->alloc_got < lane->alloc_wanted; lane->alloc_got++) {
		if (verbs_alloc_mw(lane->server->device.pd, &lane->alloc_mws[lane->alloc_got]) < 0)
			break;
	}
}

static void lane_serve_waiting(struct lane *lane)
{
	struct attachment *attachment;

	while ((attachment = TAILQ_FIRST(&lane->waiting)) != NULL && lane->state == LANE_READY) {
		if (attachment->window_count > lane->free_count) {
			lane_alloc_windows(lane, attachment->window_count - lane->free_count);
			return;
		}
		TAILQ_REMOVE(&lane->waiting, attachment, waiting_link);
		attachment->in_waiting = false;
		attachment_windows_ready(attachment);
	}
}

static void lane_alloc_done(struct worker_job *job)
{
	struct lane *lane = (struct lane *)((char *)job - offsetof(struct lane, alloc_job));
	struct attachment *first = TAILQ_FIRST(&lane->waiting);

	lane->server->counters.windows_allocated += lane->alloc_got;
	for (uint32_t i = 0; i < lane->alloc_got; i++) {
		struct window *window = lane->windows[lane->window_count++];

		window_init(window, lane, lane->alloc_mws[i]);
		lane->free[lane->free_count++] = window;
	}
	for (uint32_t i = lane->alloc_got; i < lane->alloc_wanted; i++) {
		free(lane->windows[lane->window_count + i - lane->alloc_got]);
		lane->windows[lane->window_count + i - lane->alloc_got] = NULL;
	}
	if (lane->alloc_got == 0 && first != NULL)
		attachment_fail(first, ERROR_WINDOWS_MAX);
	lane_serve_waiting(lane);
	lane_maybe_reap(lane);
}

/* Room for the new windows is made before the job, so that nothing can fail after it. */
static bool lane_make_room(struct lane *lane, uint32_t more)
{
	uint32_t capacity = lane->window_count + more;
	struct window **windows;
	struct window **free_stack;

	windows = realloc(lane->windows, capacity * sizeof(*windows));
	if (windows == NULL)
		return false;
	lane->windows = windows;
	free_stack = realloc(lane->free, capacity * sizeof(*free_stack));
	if (free_stack == NULL)
		return false;
	lane->free = free_stack;
	for (uint32_t i = lane->window_count; i < capacity; i++) {
		windows[i] = calloc(1, sizeof(**windows));
		if (windows[i] == NULL) {
			while (i-- > lane->window_count)
				free(windows[i]);
			return false;
		}
	}
	return true;
}

static void lane_alloc_windows(struct lane *lane, uint32_t wanted)
{
	struct attachment *first = TAILQ_FIRST(&lane->waiting);

	if (lane->alloc_job.submitted)
		return;
	if (wanted < LANE_ALLOC_STEP)
		wanted = LANE_ALLOC_STEP;
	if (wanted > LANE_ALLOC_MAX)
		wanted = LANE_ALLOC_MAX;
	if (!lane_make_room(lane, wanted)) {
		if (first != NULL)
			attachment_fail(first, ERROR_WINDOWS_MAX);
		return;
	}
	lane->alloc_wanted = wanted;
	lane->alloc_job.run = lane_alloc_run;
	lane->alloc_job.done = lane_alloc_done;
	worker_submit(lane->server->verbs_worker, &lane->alloc_job);
}

void lane_need_windows(struct lane *lane, struct attachment *attachment)
{
	assert(lane->state == LANE_READY);
	TAILQ_INSERT_TAIL(&lane->waiting, attachment, waiting_link);
	attachment->in_waiting = true;
	lane_serve_waiting(lane);
}

struct window *lane_take_window(struct lane *lane, struct attachment *attachment)
{
	struct window *window;
	uint32_t index;

	assert(lane->free_count > 0);
	index = secure_uniform(lane->free_count);
	window = lane->free[index];
	lane->free[index] = lane->free[--lane->free_count];
	window->attachment = attachment;
	return window;
}

/* Windows: binding and the way behind the fence. */

static void lane_want_flush(struct lane *lane)
{
	if (!lane->in_flush) {
		lane->in_flush = true;
		TAILQ_INSERT_TAIL(&lane->server->flush, lane, flush_link);
		server_end_turn(lane->server);
	}
}

static void lane_window_set_state(struct window *window, enum window_state state)
{
	struct lane *lane = window->lane;

	lane->busy -= window_is_busy(window->state);
	lane->busy += window_is_busy(state);
	window_set_state(window, state);
	if (state == WINDOW_UNKNOWN)
		lane->server->counters.windows_unknown++;
}

/* The window opens nothing any more: it may be bound again, and its user may go on. */
static void lane_window_fenced(struct window *window)
{
	struct attachment *attachment = window->attachment;
	struct lane *lane = window->lane;

	if (window_exhausted(window)) {
		lane_window_set_state(window, WINDOW_RETIRED);
	} else {
		lane_window_set_state(window, WINDOW_FREE);
		lane->free[lane->free_count++] = window;
	}
	if (attachment != NULL)
		attachment_window_fenced(attachment, window);
	lane_serve_waiting(lane);
	lane_maybe_reap(lane);
}

static void lane_dereg_guard_run(struct worker_job *job)
{
	struct window *window = (struct window *)((char *)job - offsetof(struct window, job));

	window->job_result = verbs_dereg_mr(window->guard);
}

static void lane_dereg_guard_done(struct worker_job *job)
{
	struct window *window = (struct window *)((char *)job - offsetof(struct window, job));
	struct lane *lane = window->lane;

	if (window->job_result < 0) {
		lane->server->counters.destroy_failures++;
		log_error("guard not deregistered session=%" PRIx64 " lane=%u error=\"%s\"",
			  lane->session->id, lane->number, strerror(-window->job_result));
		lane_window_set_state(window, WINDOW_UNKNOWN);
		lane_close(lane, "a guard registration could not be removed");
		lane_maybe_reap(lane);
		return;
	}
	lane->server->counters.guards_deregistered++;
	window->guard = NULL;
	lane_window_fenced(window);
}

/* The window is bound to nothing; on Soft-RoCE only removing the guard waits for what is under way. */
static void lane_unguard(struct window *window)
{
	if (window->guard == NULL) {
		lane_window_fenced(window);
		return;
	}
	lane_window_set_state(window, WINDOW_UNGUARDING);
	window->job.run = lane_dereg_guard_run;
	window->job.done = lane_dereg_guard_done;
	worker_submit(window->lane->server->verbs_worker, &window->job);
}

static void lane_queue(struct window *window, enum window_state state)
{
	lane_window_set_state(window, state);
	posting_add(&window->lane->posting, window);
	lane_want_flush(window->lane);
}

static void lane_reg_guard_run(struct worker_job *job)
{
	struct window *window = (struct window *)((char *)job - offsetof(struct window, job));

	window->job_result = verbs_reg_mr(window->job_pd, (void *)(uintptr_t)window->addr,
					  window->len_bytes,
					  IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_MW_BIND, &window->guard);
}

static void lane_reg_guard_done(struct worker_job *job)
{
	struct window *window = (struct window *)((char *)job - offsetof(struct window, job));
	struct attachment *attachment = window->attachment;
	struct lane *lane = window->lane;

	if (window->job_result < 0) {
		log_warn("guard not registered session=%" PRIx64 " lane=%u error=\"%s\"",
			 lane->session->id, lane->number, strerror(-window->job_result));
		attachment_fail(attachment, ERROR_NO_MEMORY);
		lane_window_fenced(window);
		return;
	}
	lane->server->counters.guards_registered++;
	window->mr = window->guard;
	if (attachment_is_ending(attachment) || lane->lost)
		lane_unguard(window);
	else
		lane_queue(window, WINDOW_BINDING);
}

void lane_bind(struct window *window)
{
	struct lane *lane = window->lane;
	struct server *server = lane->server;

	/* Not every device checks that a bind stays within the MR. */
	assert(window->len_bytes > 0 && window->addr >= (uintptr_t)server->pool.memory &&
	       window->addr - (uintptr_t)server->pool.memory <=
		       server->pool.len_bytes - window->len_bytes);
	window_new_key(window);
	if (!server->isolation.guarded) {
		window->mr = server->device.pool_mr;
		lane_queue(window, WINDOW_BINDING);
		return;
	}
	lane_window_set_state(window, WINDOW_GUARDING);
	window->job_pd = server->device.pd;
	window->job.run = lane_reg_guard_run;
	window->job.done = lane_reg_guard_done;
	worker_submit(server->verbs_worker, &window->job);
}

void lane_unbind(struct window *window)
{
	struct lane *lane = window->lane;

	if (window->state == WINDOW_BOUND && lane->lost) {
		lane_window_set_state(window, WINDOW_UNKNOWN);
	} else if (window->state == WINDOW_BOUND) {
		lane_queue(window, WINDOW_INVALIDATING);
	} else if (window->state == WINDOW_BINDING && window->queued) {
		posting_remove(&lane->posting, window);
		lane_unguard(window);
	}
	/* In every other state it is on its way already, or a completion or job will see that it must go. */
}

/* Posting and completions. */

static void lane_watch_completions(struct lane *lane)
{
	uint64_t oldest_ns = posting_oldest_ns(&lane->posting);
	struct server *server = lane->server;

	if (lane->state != LANE_READY)
		return;
	if (oldest_ns == UINT64_MAX)
		deadline_clear(server->deadlines, &lane->deadline);
	else
		(void)deadline_set(server->deadlines, &lane->deadline,
				   clock_add_ms(oldest_ns, server->config.completion_timeout_ms));
}

void lane_flush_all(struct server *server)
{
	struct lane *lane;

	while ((lane = TAILQ_FIRST(&server->flush)) != NULL) {
		TAILQ_REMOVE(&server->flush, lane, flush_link);
		lane->in_flush = false;
		if (lane->lost || !lane_check(lane))
			continue;
		if (posting_flush(&lane->posting) < 0) {
			lane->lost = true;
			lane_close(lane, "a work request could not be posted");
			continue;
		}
		lane_watch_completions(lane);
	}
}

static void lane_window_completed(struct window *window)
{
	struct lane *lane = window->lane;

	if (window->state == WINDOW_INVALIDATING) {
		lane->server->counters.invalidates_succeeded++;
		lane_unguard(window);
		return;
	}
	assert(window->state == WINDOW_BINDING);
	lane->server->counters.binds_succeeded++;
	window->mw->rkey = window->rkey;
	lane_window_set_state(window, WINDOW_BOUND);
	if (attachment_is_ending(window->attachment))
		lane_unbind(window);
	else
		attachment_window_bound(window->attachment, window);
}

static void lane_complete(struct lane *lane, const struct ibv_wc *wc)
{
	struct window *window;

	if (lane->lost)
		return;
	if (wc->status != IBV_WC_SUCCESS) {
		log_debug("lane completion failed session=%" PRIx64 " lane=%u status=\"%s\"",
			  lane->session->id, lane->number, ibv_wc_status_str(wc->status));
		lane->lost = true;
		lane_close(lane, "a bind or invalidate failed");
		return;
	}
	while ((window = posting_pop(&lane->posting, route_index(wc->wr_id))) != NULL)
		lane_window_completed(window);
	if (!TAILQ_EMPTY(&lane->posting.queue))
		lane_want_flush(lane);
	lane_watch_completions(lane);
}

bool lane_poll(struct server *server)
{
	struct ibv_wc wc[32];
	int rounds;
	int n;

	for (rounds = 0; rounds < 16; rounds++) {
		n = verbs_poll_cq(server->device.lane_cq.cq, 32, wc);
		if (n <= 0)
			return true;
		for (int i = 0; i < n; i++) {
			struct lane *lane = route_find(&server->device.lane_routes, route_of(wc[i].wr_id));

			if (lane != NULL)
				lane_complete(lane, &wc[i]);
		}
	}
	return false;
}

/* The end. */

/* Nothing can be posted any more: what was on its way has an unknown outcome. */
static void lane_give_up(struct lane *lane)
{
	struct window *window;
	struct window *next;

	lane->lost = true;
	while ((window = posting_pop_any(&lane->posting)) != NULL)
		lane_window_set_state(window, WINDOW_UNKNOWN);
	for (window = TAILQ_FIRST(&lane->posting.queue); window != NULL; window = next) {
		next = TAILQ_NEXT(window, link);
		posting_remove(&lane->posting, window);
		if (window->state == WINDOW_INVALIDATING)
			lane_window_set_state(window, WINDOW_UNKNOWN);
		else
			lane_unguard(window);
	}
}

static void lane_end_attachments(struct lane *lane)
{
	struct attachment *attachment;
	struct attachment *next;

	for (attachment = TAILQ_FIRST(&lane->attachments); attachment != NULL; attachment = next) {
		next = TAILQ_NEXT(attachment, lane_link);
		lease_lane_closing(attachment->lease, attachment);
	}
}

static bool lane_qp_is_rts(struct lane *lane)
{
	return verbs_qp_state(lane->qp) == IBV_QPS_RTS;
}

void lane_close(struct lane *lane, const char *why)
{
	struct server *server = lane->server;

	if (lane->state == LANE_OFFERED) {
		lane_set_state(lane, LANE_GONE);
		lane_free(lane);
		return;
	}
	if (lane->state != LANE_CONNECTING && lane->state != LANE_READY) {
		/* Closing already; what has been learnt since may be that no completion will come. */
		if (lane->state == LANE_CLOSING && lane->lost) {
			lane_give_up(lane);
			lane_maybe_reap(lane);
		}
		return;
	}
	lane->why = why;
	lane_set_state(lane, LANE_CLOSING);
	lane->busy++; /* not to be reaped while the windows are being told */
	if (lane->lost || !lane_qp_is_rts(lane)) {
		server->counters.lanes_lost++;
		(void)verbs_qp_to_error(lane->qp);
		lane_give_up(lane);
	}
	log_debug("lane closing session=%" PRIx64 " lane=%u lost=%d why=\"%s\"", lane->session->id,
		  lane->number, lane->lost, why);
	if (!lane->disconnected)
		session_lane_lost(lane->session, lane->number);
	lane_end_attachments(lane);
	(void)deadline_set(server->deadlines, &lane->deadline,
			   clock_add_ms(clock_now_ns(), server->config.completion_timeout_ms));
	lane->busy--;
	lane_maybe_reap(lane);
}

static void lane_reap_run(struct worker_job *job)
{
	struct lane *lane = (struct lane *)((char *)job - offsetof(struct lane, reap_job));
	int first = 0;

	for (uint32_t i = 0; i < lane->window_count; i++) {
		struct window *window = lane->windows[i];
		int r = 0;

		if (window->mw != NULL) {
			r = verbs_dealloc_mw(window->mw);
			if (r == 0)
				window->mw = NULL;
		}
		if (r == 0 && window->guard != NULL) {
			r = verbs_dereg_mr(window->guard);
			if (r == 0)
				window->guard = NULL;
		}
		if (first == 0)
			first = r;
	}
	if (first == 0)
		first = verbs_destroy_qp_of(lane->id);
	if (first == 0 && rdma_destroy_id(lane->id) != 0)
		first = -errno;
	lane->reap_result = first;
}

/* Deallocating a window is a fence as good as an invalidate. */
static void lane_reaped_windows(struct lane *lane)
{
	for (uint32_t i = 0; i < lane->window_count; i++) {
		struct window *window = lane->windows[i];
		struct attachment *attachment = window->attachment;

		if (window->state == WINDOW_GONE || window->mw != NULL || window->guard != NULL)
			continue;
		lane->server->counters.windows_deallocated++;
		lane_window_set_state(window, WINDOW_GONE);
		if (attachment != NULL)
			attachment_window_fenced(attachment, window);
	}
}

static void lane_reap_done(struct worker_job *job)
{
	struct lane *lane = (struct lane *)((char *)job - offsetof(struct lane, reap_job));
	struct server *server = lane->server;

	lane_reaped_windows(lane);
	if (lane->reap_result == 0) {
		(void)lane_poll(server); /* completions that the QP has left behind */
		lane_set_state(lane, LANE_GONE);
		lane_free(lane);
		return;
	}
	server->counters.destroy_failures++;
	log_error("lane not destroyed, trying again session=%" PRIx64
		  " lane=%u wait_ms=%" PRIu64 " error=\"%s\"",
		  lane->session->id, lane->number, lane->reap_wait_ms, strerror(-lane->reap_result));
	lane_set_state(lane, LANE_STUCK);
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
	if (lane->state != LANE_CLOSING || lane->busy > 0 || lane->alloc_job.submitted)
		return;
	assert(posting_is_empty(&lane->posting));
	deadline_clear(lane->server->deadlines, &lane->deadline);
	lane->lost = true;
	route_remove(&lane->server->device.lane_routes, lane->route);
	lane->route = 0;
	(void)rdma_disconnect(lane->id);
	(void)verbs_qp_to_error(lane->qp);
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
		lane->lost = true;
		lane_close(lane, "a completion did not come in time");
	} else if (lane->state == LANE_STUCK) {
		lane_reap(lane);
	} else if (lane->state == LANE_CLOSING) {
		(void)verbs_qp_to_error(lane->qp);
		lane_give_up(lane);
		lane_maybe_reap(lane);
	}
}

bool lane_check(struct lane *lane)
{
	int state;

	if (lane->state != LANE_CONNECTING && lane->state != LANE_READY &&
	    lane->state != LANE_CLOSING)
		return false;
	state = verbs_qp_state(lane->qp);
	if (state >= 0 && state != IBV_QPS_ERR && state != IBV_QPS_SQE)
		return true;
	lane->lost = true;
	lane_close(lane, "its QP is in the error state");
	return false;
}

bool lane_key_invalidated(struct server *server, uint32_t rkey)
{
	struct lane *lane;

	TAILQ_FOREACH (lane, &server->lanes, server_link) {
		for (uint32_t i = 0; i < lane->window_count; i++) {
			struct window *window = lane->windows[i];

			if (window->rkey != rkey || window->state == WINDOW_FREE)
				continue;
			lane->lost = true;
			lane_close(lane, "one of its keys was invalidated by somebody else");
			return true;
		}
	}
	return false;
}

void lane_sweep(struct server *server)
{
	struct lane *lane;
	struct lane *next;

	for (lane = TAILQ_FIRST(&server->lanes); lane != NULL; lane = next) {
		next = TAILQ_NEXT(lane, server_link);
		if (lane->state == LANE_READY)
			(void)lane_check(lane);
	}
}
