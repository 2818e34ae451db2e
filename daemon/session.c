/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A control connection, what is sent over it, and the end of all that its client owns.
 *
 * Invariants: whatever is wrong with a message ends this session and touches no other; the
 * end begins once, and the connection is torn down after the last lane is gone. Leases that
 * are still being scrubbed outlive it.
 *
 * Thread: the loop, except session_reap_run(), which runs on the verbs worker.
 */
#include "daemon/session.h"

#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/clock.h"
#include "common/verbs.h"
#include "daemon/request.h"
#include "daemon/server.h"
#include "proto/error.h"
#include "proto/private_data.h"

#define SESSION_LOOK_MS		 500u /* how often the peer's silence is looked at */
#define SESSION_LAST_WORDS_MS	 500u /* for messages that are under way when it closes */
#define SESSION_END_STEP	 128  /* leases ended in one turn of the loop */
#define SESSION_REAP_WAIT_MIN_MS 100u
#define SESSION_REAP_WAIT_MAX_MS 10000u

#define GO(state) (1u << SESSION_##state)

static const uint32_t session_next[SESSION_STATES] = {
	[SESSION_HELLO] = GO(OPEN) | GO(CLOSING),
	[SESSION_OPEN] = GO(CLOSING),
	[SESSION_CLOSING] = GO(REAPING),
	[SESSION_REAPING] = GO(CLOSING) | GO(GONE), /* back: it could not be destroyed */
	[SESSION_GONE] = 0,
};

static const char *const session_names[SESSION_STATES] = {
	[SESSION_HELLO] = "hello",     [SESSION_OPEN] = "open", [SESSION_CLOSING] = "closing",
	[SESSION_REAPING] = "reaping", [SESSION_GONE] = "gone",
};

bool session_can_go(enum session_state from, enum session_state to)
{
	return from < SESSION_STATES && to < SESSION_STATES && (session_next[from] >> to & 1) != 0;
}

const char *session_state_name(enum session_state state)
{
	return state < SESSION_STATES ? session_names[state] : "invalid";
}

static void session_set_state(struct session *session, enum session_state state)
{
	assert(session_can_go(session->state, state));
	session->state = state;
}

struct session *session_find(const struct server *server, uint64_t id)
{
	struct session *session = route_find(&server->device.control_routes, (uint32_t)id);

	return session != NULL && session->id == id ? session : NULL;
}

struct lane *session_lane(const struct session *session, uint32_t number)
{
	struct lane *lane;

	TAILQ_FOREACH (lane, &session->lanes, session_link) {
		if (lane->number == number)
			return lane;
	}
	return NULL;
}

static void session_maybe_reap(struct session *session);
static void session_on_deadline(struct deadline *deadline, void *context);
static void session_on_lane_deadline(struct deadline *deadline, void *context);
static void session_end_leases(struct deadline *deadline, void *context);

/* The connection. */

static int session_create_qp(struct session *session, struct rdma_cm_id *id)
{
	struct server *server = session->server;
	uint32_t receives = (uint32_t)server->config.control_receives;
	struct ibv_qp_init_attr attr = {
		.qp_context = id, /* for rdma_notify() */
		.send_cq = server->device.control_cq.cq,
		.recv_cq = server->device.control_cq.cq,
		.cap = {.max_send_wr = ENDPOINT_SENDS,
			.max_recv_wr = receives,
			.max_send_sge = 1,
			.max_recv_sge = 1},
		.qp_type = IBV_QPT_RC,
	};

	if (rdma_create_qp(id, server->device.pd, &attr) != 0)
		return -errno;
	return endpoint_init(&session->endpoint, id->qp, session->memory,
			     server->device.control_mr->lkey, receives, session->route);
}

static int session_accept_connection(struct rdma_cm_id *id)
{
	struct private_data data = {.kind = PRIVATE_DATA_ACCEPT, .version = PROTO_VERSION};
	uint8_t bytes[PROTO_PRIVATE_DATA_MAX];
	struct rdma_conn_param param = {
		.private_data = bytes,
		.private_data_len = private_data_encode(&data, bytes),
		.rnr_retry_count = 6,
	};

	if (rdma_accept(id, &param) != 0)
		return -errno;
	return verbs_qp_set_min_rnr_timer(id->qp);
}

static void session_name_peer(struct session *session, struct rdma_cm_id *id)
{
	char host[48];
	char port[8];

	if (getnameinfo(rdma_get_peer_addr(id), sizeof(struct sockaddr_in6), host, sizeof(host),
			port, sizeof(port), NI_NUMERICHOST | NI_NUMERICSERV) == 0)
		snprintf(session->peer, sizeof(session->peer), "%s:%s", host, port);
	else
		snprintf(session->peer, sizeof(session->peer), "unknown");
}

/* Gives back what session_new() has taken; the id stays the caller's. */
static void session_discard(struct session *session)
{
	struct server *server = session->server;

	endpoint_deinit(&session->endpoint);
	route_remove(&server->device.control_routes, session->route);
	device_give_control_slot(&server->device, session->memory);
	verbs_cq_unreserve(&server->device.control_cq, session->cq_reserved);
	free(session);
}

static int session_new(struct server *server, struct session **ret_session)
{
	uint32_t entries = (uint32_t)server->config.control_receives + ENDPOINT_SENDS;
	struct session *session = calloc(1, sizeof(*session));
	int r;

	if (session == NULL)
		return ERROR_INTERNAL;
	r = ERROR_SESSIONS_MAX;
	if (!verbs_cq_reserve(&server->device.control_cq, entries))
		goto err_free;
	session->memory = device_take_control_slot(&server->device);
	if (session->memory == NULL)
		goto err_unreserve;
	r = ERROR_INTERNAL;
	if (route_add(&server->device.control_routes, session, &session->route) < 0)
		goto err_give_slot;
	session->kind = CM_SESSION;
	session->server = server;
	session->id = server_random_id(session->route);
	session->cq_reserved = entries;
	session->reap_wait_ms = SESSION_REAP_WAIT_MIN_MS;
	session->deadline = (struct deadline){.fire = session_on_deadline, .context = session};
	session->ending_deadline =
		(struct deadline){.fire = session_end_leases, .context = session};
	session->lane_deadline =
		(struct deadline){.fire = session_on_lane_deadline, .context = session};
	TAILQ_INIT(&session->lanes);
	TAILQ_INIT(&session->leases);
	*ret_session = session;
	return 0;

err_give_slot:
	device_give_control_slot(&server->device, session->memory);
err_unreserve:
	verbs_cq_unreserve(&server->device.control_cq, entries);
err_free:
	free(session);
	return r;
}

int session_accept(struct server *server, struct rdma_cm_id *id,
		   const struct rdma_conn_param *request)
{
	struct session *session;
	int r;

	(void)request;
	r = session_new(server, &session);
	if (r != 0)
		return r;
	session_name_peer(session, id);
	r = session_create_qp(session, id);
	if (r < 0)
		goto err_destroy_qp;
	r = deadline_set(server->deadlines, &session->deadline,
			 clock_add_ms(clock_now_ns(), server->config.handshake_timeout_ms));
	if (r < 0)
		goto err_destroy_qp;
	id->context = session;
	session->cm_id = id;
	session->qp = id->qp;
	r = session_accept_connection(id);
	if (r < 0)
		goto err_clear_deadline;
	TAILQ_INSERT_TAIL(&server->sessions, session, server_link);
	server->session_count++;
	server->counters.sessions_accepted++;
	return 0;

err_clear_deadline:
	deadline_clear(server->deadlines, &session->deadline);
err_destroy_qp:
	log_warn("session not accepted peer=%s error=\"%s\"", session->peer, strerror(-r));
	if (id->qp != NULL)
		rdma_destroy_qp(id);
	session_discard(session);
	return ERROR_INTERNAL;
}

void session_disconnected(struct session *session)
{
	session->peer_gone = true;
	session_end(session, 0, "peer left");
	session_maybe_reap(session);
}

/* Sending. */

static void session_want_flush(struct session *session)
{
	if (!session->in_notices) {
		session->in_notices = true;
		TAILQ_INSERT_TAIL(&session->server->notices, session, notice_link);
		server_end_turn(session->server);
	}
}

static void session_send(struct session *session, enum endpoint_class class,
			 const struct message *m)
{
	int r = endpoint_send(&session->endpoint, class, m);

	/* Ended with the turn, since ending it here would pull the rug from under the caller. */
	if (r < 0 && r != -ENOTCONN) {
		session->unsendable = true;
		session_want_flush(session);
	}
}

void session_reply(struct session *session, struct message *m, uint64_t request_id)
{
	if (session->state != SESSION_OPEN)
		return;
	m->request_id = request_id;
	session_send(session, ENDPOINT_ORDINARY, m);
}

void session_reply_error(struct session *session, uint64_t request_id, int code)
{
	struct message m = {.type = MESSAGE_ERROR};

	m.u.error.code = (uint32_t)code;
	snprintf(m.u.error.text, sizeof(m.u.error.text), "%s", error_text(code));
	session_reply(session, &m, request_id);
}

int session_open(struct session *session, const struct message_hello *hello)
{
	struct server *server = session->server;

	if (tenant_get(&server->tenants, hello->tenant, &session->tenant) < 0)
		return ERROR_INTERNAL;
	memcpy(session->instance, hello->instance, sizeof(session->instance));
	tenant_charge(session->tenant, TENANT_SESSIONS, 1);
	session_set_state(session, SESSION_OPEN);
	(void)deadline_set(server->deadlines, &session->deadline,
			   clock_add_ms(clock_now_ns(), SESSION_LOOK_MS));
	log_info("session opened id=0x%" PRIx64 " tenant=%s peer=%s", session->id,
		 session->tenant->name, session->peer);
	return 0;
}

int session_ended_reason(const struct session *session, uint64_t lease_id)
{
	for (int i = 0; i < SESSION_ENDED_MAX; i++) {
		if (session->ended[i].lease_id == lease_id && lease_id != 0)
			return session->ended[i].reason;
	}
	return ERROR_NO_LEASE;
}

void session_notice(struct session *session, const struct message *m)
{
	if (session->state == SESSION_OPEN)
		session_send(session, ENDPOINT_NOTICE, m);
}

static void session_send_ended_notice(struct session *session)
{
	struct message m = {.type = MESSAGE_LEASES_ENDED};

	if (session->ended_notice.count == 0)
		return;
	m.u.leases_ended = session->ended_notice;
	session->ended_notice.count = 0;
	session_notice(session, &m);
}

static void session_send_revoke_notice(struct session *session)
{
	struct message m = {.type = MESSAGE_REVOKE};

	if (session->revoke_notice.count == 0)
		return;
	m.u.revoke = session->revoke_notice;
	session->revoke_notice.count = 0;
	session_notice(session, &m);
}

void session_lease_revoked(struct session *session, const struct lease *lease, uint64_t grace_ms)
{
	struct message_revoke *notice = &session->revoke_notice;

	if (notice->count == PROTO_NOTICE_LEASES)
		session_send_revoke_notice(session);
	notice->revoked[notice->count].lease_id = lease->id;
	notice->revoked[notice->count].grace_ms = (uint32_t)grace_ms;
	notice->count++;
	session_want_flush(session);
}

void session_lease_ended(struct session *session, const struct lease *lease, bool tell)
{
	struct message_leases_ended *notice = &session->ended_notice;

	session->ended[session->ended_next].lease_id = lease->id;
	session->ended[session->ended_next].reason = lease->reason;
	session->ended_next = (session->ended_next + 1) % SESSION_ENDED_MAX;
	if (!tell || session->state != SESSION_OPEN)
		return;
	if (notice->count == PROTO_NOTICE_LEASES)
		session_send_ended_notice(session);
	notice->ended[notice->count].lease_id = lease->id;
	notice->ended[notice->count].reason = (uint32_t)lease->reason;
	notice->count++;
	session_want_flush(session);
}

void session_flush_notices(struct server *server)
{
	struct session *session;

	while ((session = TAILQ_FIRST(&server->notices)) != NULL) {
		TAILQ_REMOVE(&server->notices, session, notice_link);
		session->in_notices = false;
		session_send_revoke_notice(session);
		session_send_ended_notice(session);
		if (session->unsendable)
			session_end(session, ERROR_BUSY, "too much waits to be sent");
		else if (endpoint_flush(&session->endpoint) < 0)
			session_end(session, 0, "a message could not be posted");
	}
}

/* Lanes. */

static uint64_t session_lane_allowed_ns(const struct session *session)
{
	return session->lane_lost_ns == 0
		       ? 0
		       : clock_add_ms(session->lane_lost_ns, session->lane_wait_ms);
}

/* The first lost lane is replaced at once, each further one after twice the time. */
static void session_note_lane_lost(struct session *session)
{
	const struct config *config = &session->server->config;
	uint64_t now_ns = clock_now_ns();

	if (session->lane_lost_ns == 0 ||
	    clock_add_ms(session->lane_lost_ns, config->lane_peace_ms) <= now_ns)
		session->lane_wait_ms = 0;
	else if (session->lane_wait_ms == 0)
		session->lane_wait_ms = config->lane_wait_min_ms;
	else
		session->lane_wait_ms *= 2;
	if (session->lane_wait_ms > config->lane_wait_max_ms)
		session->lane_wait_ms = config->lane_wait_max_ms;
	session->lane_lost_ns = now_ns;
}

void session_lane_closing(struct session *session, const struct lane *lane)
{
	struct message m = {.type = MESSAGE_LANE_LOST, .u.lane.lane = lane->number};

	if (lane->lost)
		session_note_lane_lost(session);
	if (!lane->disconnected)
		session_notice(session, &m);
}

static int session_offer_lane(struct session *session, uint64_t request_id)
{
	struct message m = {.type = MESSAGE_LANE_OFFER};
	struct lane *lane;

	if (lane_offer(session, session->next_lane, &lane) < 0)
		return ERROR_INTERNAL;
	session->next_lane++;
	m.u.lane_offer.lane = lane->number;
	m.u.lane_offer.expires_ms = (uint32_t)session->server->config.lane_offer_ms;
	memcpy(m.u.lane_offer.token, lane->token, sizeof(lane->token));
	session_reply(session, &m, request_id);
	return 0;
}

/* One that has waited; with a further loss since then, the others go on waiting. */
static void session_on_lane_deadline(struct deadline *deadline, void *context)
{
	struct session *session = context;
	struct server *server = session->server;
	uint64_t allowed_ns = session_lane_allowed_ns(session);
	uint64_t request_id = session->lane_opens[0];
	int code;

	if (allowed_ns > clock_now_ns()) {
		(void)deadline_set(server->deadlines, deadline, allowed_ns);
		return;
	}
	session->lane_open_count--;
	memmove(session->lane_opens, session->lane_opens + 1,
		session->lane_open_count * sizeof(session->lane_opens[0]));
	code = session_offer_lane(session, request_id);
	if (code != 0)
		session_reply_error(session, request_id, code);
	if (session->lane_open_count > 0)
		(void)deadline_set(server->deadlines, deadline, clock_now_ns());
}

int session_open_lane(struct session *session, uint64_t request_id)
{
	struct server *server = session->server;
	uint64_t allowed_ns = session_lane_allowed_ns(session);

	if (session->lane_count + session->lane_open_count >= server->config.lanes_max)
		return ERROR_LANES_MAX;
	if (session->lane_open_count == 0 && allowed_ns <= clock_now_ns())
		return session_offer_lane(session, request_id);
	if (session->lane_open_count == SESSION_LANE_OPENS_MAX ||
	    deadline_set(server->deadlines, &session->lane_deadline, allowed_ns) < 0)
		return ERROR_BUSY;
	session->lane_opens[session->lane_open_count++] = request_id;
	return 0;
}

struct lease *session_own_lease(const struct session *session, uint64_t lease_id)
{
	struct lease *lease = lease_find(session->server, lease_id);

	return lease != NULL && lease->session == session && !lease_is_ending(lease) ? lease : NULL;
}

/* Messages. */

static void session_on_message(struct session *session, const struct message *m)
{
	int code;

	if (session->state != SESSION_HELLO && session->state != SESSION_OPEN)
		return;
	code = request_handle(session, m);
	if (code != 0)
		session_end(session, code, error_text(code));
}

static void session_complete(struct session *session, const struct ibv_wc *wc)
{
	struct message m;
	int r = endpoint_complete(&session->endpoint, wc, &m);

	if (r == 1) {
		session_on_message(session, &m);
	} else if (r == -EBADMSG) {
		(void)lane_key_invalidated(session->server, wc->invalidated_rkey);
		session_end(session, ERROR_PROTOCOL, "a message with invalidate");
	} else if (r == -EPROTO) {
		session_end(session, ERROR_PROTOCOL, "a malformed message");
	} else if (r < 0) {
		session->peer_gone = true;
		session_end(session, 0, "connection broken");
	}
	if (session->state == SESSION_CLOSING)
		session_maybe_reap(session);
	else
		session_want_flush(session);
}

bool session_poll(struct server *server)
{
	struct ibv_wc wc[32];
	int rounds;
	int n;

	for (rounds = 0; rounds < 8; rounds++) {
		n = verbs_poll_cq(server->device.control_cq.cq, 32, wc);
		if (n <= 0)
			return true;
		for (int i = 0; i < n; i++) {
			struct session *session =
				route_find(&server->device.control_routes, route_of(wc[i].wr_id));

			if (session != NULL)
				session_complete(session, &wc[i]);
		}
	}
	return false;
}

/* The end. */

static void session_say_why(struct session *session, int code)
{
	struct message m = {.type = MESSAGE_ERROR};

	m.u.error.code = (uint32_t)code;
	snprintf(m.u.error.text, sizeof(m.u.error.text), "%s", error_text(code));
	(void)endpoint_send(&session->endpoint, ENDPOINT_NOTICE, &m);
}

static void session_close_lanes(struct session *session, const char *why)
{
	struct lane *lane;
	struct lane *next;

	for (lane = TAILQ_FIRST(&session->lanes); lane != NULL; lane = next) {
		next = TAILQ_NEXT(lane, session_link);
		lane_close(lane, why);
	}
}

/* A bounded number of leases ends in each turn of the loop; the lanes close after the last. */
static void session_end_leases(struct deadline *deadline, void *context)
{
	struct session *session = context;
	struct server *server = session->server;
	struct lease *lease;

	/* Ending one lease may end others of the same acquire, and free what is next. */
	for (int i = 0; i < SESSION_END_STEP && (lease = session->ending_next) != NULL; i++) {
		session->ending_next = TAILQ_NEXT(lease, session_link);
		lease_end(lease, server->stopping ? ERROR_DRAINED : ERROR_SESSION_ENDED);
	}
	if (session->ending_next != NULL &&
	    deadline_set(server->deadlines, deadline, clock_now_ns()) == 0)
		return;
	while ((lease = session->ending_next) != NULL) {
		session->ending_next = TAILQ_NEXT(lease, session_link);
		lease_end(lease, server->stopping ? ERROR_DRAINED : ERROR_SESSION_ENDED);
	}
	session_close_lanes(session, session->why);
	session_maybe_reap(session);
}

void session_end(struct session *session, int code, const char *why)
{
	struct server *server = session->server;

	if (session->state != SESSION_HELLO && session->state != SESSION_OPEN)
		return;
	session_set_state(session, SESSION_CLOSING);
	if (code == ERROR_PROTOCOL)
		server->counters.protocol_errors++;
	log_info("session ends id=0x%" PRIx64 " tenant=%s peer=%s leases=%" PRIu64 " why=\"%s\"",
		 session->id, session->tenant != NULL ? session->tenant->name : "-", session->peer,
		 session->lease_count, why);
	if (code != 0 && !session->peer_gone)
		session_say_why(session, code);
	deadline_clear(server->deadlines, &session->lane_deadline);
	session->close_limit_ns = clock_add_ms(clock_now_ns(), SESSION_LAST_WORDS_MS);
	(void)deadline_set(server->deadlines, &session->deadline, session->close_limit_ns);
	session->why = why;
	session->ending_next = TAILQ_FIRST(&session->leases);
	session_end_leases(&session->ending_deadline, session);
}

static void session_free(struct session *session)
{
	struct server *server = session->server;
	struct lease *lease;

	assert(TAILQ_EMPTY(&session->lanes));
	while ((lease = TAILQ_FIRST(&session->leases)) != NULL)
		lease_forget_session(lease);
	deadline_clear(server->deadlines, &session->deadline);
	deadline_clear(server->deadlines, &session->ending_deadline);
	if (session->in_notices)
		TAILQ_REMOVE(&server->notices, session, notice_link);
	TAILQ_REMOVE(&server->sessions, session, server_link);
	server->session_count--;
	if (session->tenant != NULL) {
		tenant_uncharge(session->tenant, TENANT_SESSIONS, 1);
		session->tenant = tenant_unref(session->tenant);
	}
	session_discard(session);
	server_maybe_stopped(server);
}

static void session_reap_run(struct worker_job *job)
{
	struct session *session =
		(struct session *)((char *)job - offsetof(struct session, reap_job));

	session->reap_result = verbs_destroy_qp(session->qp);
	if (session->reap_result == 0)
		session->qp = NULL;
	if (session->reap_result == 0 && rdma_destroy_id(session->cm_id) != 0)
		session->reap_result = -errno;
}

static void session_reap_done(struct worker_job *job)
{
	struct session *session =
		(struct session *)((char *)job - offsetof(struct session, reap_job));
	struct server *server = session->server;

	if (session->reap_result == 0) {
		session_set_state(session, SESSION_GONE);
		(void)session_poll(server); /* completions that the QP has left behind */
		session_free(session);
		return;
	}
	server->counters.destroy_failures++;
	log_error("session not destroyed, trying again id=0x%" PRIx64 " wait_ms=%" PRIu64
		  " error=\"%s\"",
		  session->id, session->reap_wait_ms, strerror(-session->reap_result));
	session_set_state(session, SESSION_CLOSING);
	(void)deadline_set(server->deadlines, &session->deadline,
			   clock_add_ms(clock_now_ns(), session->reap_wait_ms));
	if (session->reap_wait_ms < SESSION_REAP_WAIT_MAX_MS)
		session->reap_wait_ms *= 2;
}

static bool session_has_last_words(const struct session *session)
{
	return !session->peer_gone &&
	       (session->endpoint.sends_posted > 0 || session->endpoint.waiting > 0) &&
	       clock_now_ns() < session->close_limit_ns;
}

static void session_maybe_reap(struct session *session)
{
	struct server *server = session->server;

	if (session->state != SESSION_CLOSING || !TAILQ_EMPTY(&session->lanes) ||
	    session->ending_next != NULL || session_has_last_words(session))
		return;
	session_set_state(session, SESSION_REAPING);
	deadline_clear(server->deadlines, &session->deadline);
	endpoint_dead(&session->endpoint);
	route_remove(&server->device.control_routes, session->route);
	session->route = 0;
	(void)rdma_disconnect(session->cm_id);
	if (session->qp != NULL)
		(void)verbs_qp_to_error(session->qp);
	/* Taking a late event for the id, librdmacm would touch the QP that the worker destroys. */
	session->cm_id->qp = NULL;
	session->reap_job.run = session_reap_run;
	session->reap_job.done = session_reap_done;
	worker_submit_later(server->verbs_worker, &session->reap_job);
}

static void session_on_deadline(struct deadline *deadline, void *context)
{
	struct session *session = context;
	struct server *server = session->server;
	uint64_t now_ns = clock_now_ns();

	(void)deadline;
	if (session->state == SESSION_HELLO) {
		session_end(session, ERROR_TIMEOUT, "no hello in time");
		return;
	}
	if (session->state == SESSION_CLOSING) {
		session_maybe_reap(session);
		return;
	}
	if (endpoint_stalled(&session->endpoint, now_ns, server->config.credit_timeout_ms)) {
		session->peer_gone = true;
		session_end(session, 0, "the peer takes no messages");
		return;
	}
	(void)deadline_set(server->deadlines, &session->deadline,
			   clock_add_ms(now_ns, SESSION_LOOK_MS));
}

void session_lane_gone(struct session *session)
{
	session_maybe_reap(session);
}

void session_lease_gone(struct session *session, struct lease *lease)
{
	if (session->ending_next == lease)
		session->ending_next = TAILQ_NEXT(lease, session_link);
	TAILQ_REMOVE(&session->leases, lease, session_link);
	session->lease_count--;
}
