/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A control connection, what is sent over it, and the end of all that its client owns.
 *
 * Invariants: whatever is wrong with a message ends this session and touches no other; the
 * end begins once, and the connection is torn down after the last lane is gone. Leases that
 * are still being scrubbed outlive it.
 *
 * Thread: the loop.
 */
#include "daemon/session.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/clock.h"
#include "common/secure.h"
#include "common/verbs.h"
#include "daemon/accept.h"
#include "daemon/orphan.h"
#include "daemon/penalty.h"
#include "daemon/request.h"
#include "daemon/server.h"
#include "daemon/session_reap.h"
#include "daemon/session_report.h"
#include "proto/error.h"
#include "proto/private_data.h"

#define SESSION_LOOK_MS	      500u /* how often the peer's silence is looked at */
#define SESSION_POLL_BATCH    8	   /* of which each may be a handshake, which takes long */
#define SESSION_POLL_ROUNDS   32   /* in one turn, if there is none ... */
#define SESSION_POLL_MS	      5	   /* ... and it does not take longer */
#define SESSION_HEARTBEATS    3u   /* that may fail to come before the peer counts as gone */
#define SESSION_LAST_WORDS_MS 500u /* for messages that are under way when it closes */
#define SESSION_END_STEP      128  /* leases ended in one turn of the loop, of all sessions */

#define GO(state) (1u << SESSION_##state)

static const uint32_t session_next[SESSION_STATES] = {
	[SESSION_HELLO] = GO(GREETED) | GO(CLOSING),
	[SESSION_GREETED] = GO(OPEN) | GO(CLOSING),
	[SESSION_OPEN] = GO(CLOSING),
	[SESSION_CLOSING] = GO(REAPING),
	[SESSION_REAPING] = GO(CLOSING) | GO(GONE), /* back: it could not be destroyed */
	[SESSION_GONE] = 0,
};

static const char *const session_names[SESSION_STATES] = {
	[SESSION_HELLO] = "hello",     [SESSION_GREETED] = "greeted", [SESSION_OPEN] = "open",
	[SESSION_CLOSING] = "closing", [SESSION_REAPING] = "reaping", [SESSION_GONE] = "gone",
};

static struct log_limit session_accept_limit;

bool session_can_go(enum session_state from, enum session_state to)
{
	return from < SESSION_STATES && to < SESSION_STATES && (session_next[from] >> to & 1) != 0;
}

const char *session_state_name(enum session_state state)
{
	return state < SESSION_STATES ? session_names[state] : "invalid";
}

void session_set_state(struct session *session, enum session_state state)
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

static void session_on_deadline(struct deadline *deadline, void *context);
static void session_end_leases(struct deadline *deadline, void *context);
static uint64_t session_next_look(const struct session *session);

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
			     server->device.control_mr->lkey, receives, session->route,
			     session->channel);
}

static int session_accept_connection(struct rdma_cm_id *id, const struct config *config)
{
	struct private_data data = {.kind = PRIVATE_DATA_ACCEPT, .version = PROTO_VERSION};
	uint8_t bytes[PROTO_PRIVATE_DATA_MAX];
	struct rdma_conn_param param = {
		.private_data = bytes,
		.private_data_len = private_data_encode(&data, bytes),
		.rnr_retry_count = 6,
	};
	int r;

	r = accept_connection(id, &param, config);
	if (r < 0)
		return r;
	return verbs_qp_set_min_rnr_timer(id->qp);
}

/* Gives back what session_new() has taken; the id stays the caller's. */
static void session_discard(struct session *session)
{
	struct server *server = session->server;

	(void)admission_leave(&session->ticket, clock_now_ns(), false);
	endpoint_deinit(&session->endpoint);
	channel_wipe(session->channel);
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
	session->channel =
		&server->identity.channels[device_control_slot(&server->device, session->memory)];
	session->kind = CM_SESSION;
	session->server = server;
	session->id = server_random_id(session->route);
	session->cq_reserved = entries;
	session_reap_init(session);
	session->deadline = (struct deadline){.fire = session_on_deadline, .context = session};
	session->ending_deadline =
		(struct deadline){.fire = session_end_leases, .context = session};
	lane_queue_init(&session->lane_queue, session);
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

int session_accept(struct server *server, struct rdma_cm_id *id, const struct private_data *data)
{
	struct session *session;
	int r;

	r = session_new(server, &session);
	if (r != 0)
		return r;
	r = admission_enter(server->admission, rdma_get_peer_addr(id), clock_now_ns(),
			    &session->ticket);
	if (r != 0) {
		session_discard(session);
		return r;
	}
	channel_init_daemon(session->channel, data, PROTO_VERSION, server->identity.own);
	listener_name_peer(id, session->peer);
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
	r = session_accept_connection(id, &server->config);
	if (r < 0)
		goto err_clear_deadline;
	TAILQ_INSERT_TAIL(&server->sessions, session, server_link);
	server->session_count++;
	server->counters.sessions_accepted++;
	return 0;

err_clear_deadline:
	deadline_clear(server->deadlines, &session->deadline);
err_destroy_qp:
	log_limited(LOG_LEVEL_WARN, &session_accept_limit,
		    "session not accepted peer=%s error=\"%s\"", session->peer, strerror(-r));
	if (id->qp != NULL)
		rdma_destroy_qp(id);
	session_discard(session);
	return ERROR_INTERNAL;
}

void session_connected(struct session *session)
{
	session->connected = true;
}

void session_disconnected(struct session *session)
{
	/* Only who has had our answer can take it back. */
	session->connected = true;
	session_not_connected(session);
}

void session_not_connected(struct session *session)
{
	session->peer_gone = true;
	session_lose(session, 0, "peer left");
	session_reap_maybe(session);
}

/* Sending. */

void session_want_flush(struct session *session)
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
	if (session->state != SESSION_GREETED && session->state != SESSION_OPEN)
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

int session_greet(struct session *session, const struct message_hello *hello)
{
	struct tenant *tenant =
		tenant_find_by_key(&session->server->tenants, channel_peer(session->channel));

	if (tenant == NULL)
		return ERROR_AUTH;
	if (penalty_is_banned(tenant))
		return ERROR_BANNED;
	session->tenant = tenant_ref(tenant);
	session->heartbeat_ms = session->server->config.heartbeat_ms;
	memcpy(session->instance, hello->instance, sizeof(session->instance));
	session_set_state(session, SESSION_GREETED);
	return 0;
}

/* The first sealed message: only who holds the tenant's key can have made it. */
static int session_open(struct session *session)
{
	struct server *server = session->server;
	int code = tenant_try_charge(session->tenant, TENANT_SESSIONS, 1);

	if (code != 0)
		return code;
	session->charged = true;
	session->opened_ns = clock_now_ns();
	admission_established(&session->ticket);
	session_report_opened(session);
	session_set_state(session, SESSION_OPEN);
	(void)deadline_set(server->deadlines, &session->deadline, session_next_look(session));
	drain_greet(&server->drain, session);
	return 0;
}

void session_notice(struct session *session, const struct message *m)
{
	if (session->state == SESSION_OPEN)
		session_send(session, ENDPOINT_NOTICE, m);
}

void session_flush_notices(struct server *server)
{
	struct session *session;

	while ((session = TAILQ_FIRST(&server->notices)) != NULL) {
		TAILQ_REMOVE(&server->notices, session, notice_link);
		session->in_notices = false;
		notices_send(session);
		if (session->unsendable)
			session_end(session, ERROR_BUSY, "too much waits to be sent");
		else if (endpoint_flush(&session->endpoint) < 0)
			session_lose(session, 0, "a message could not be posted");
	}
}

void session_lane_closing(struct session *session, const struct lane *lane)
{
	struct message m = {.type = MESSAGE_LANE_LOST, .u.lane.lane = lane->number};

	if (lane->lost && !lane->wronged)
		lane_queue_note_lost(&session->lane_queue);
	if (!lane->disconnected)
		session_notice(session, &m);
}

struct lease *session_own_lease(const struct session *session, uint64_t lease_id)
{
	struct lease *lease = lease_find(session->server, lease_id);

	return lease != NULL && lease->session == session && !lease_is_ending(lease) ? lease : NULL;
}

/* Messages. */

static void session_on_message(struct session *session, const struct message *m)
{
	int code = 0;

	if (session->state > SESSION_OPEN)
		return;
	if (session->state == SESSION_GREETED) {
		code = session_open(session);
		if (code != 0 && m->request_id != 0)
			session_reply_error(session, m->request_id, code);
	}
	if (code == 0)
		code = request_handle(session, m);
	if (code != 0)
		session_end(session, code, error_text(code));
}

/*
 * The first work request has failed. One of ours that got no answer says so by its status; the
 * peer's wrong accesses, and messages that fit no receive, break the connection without that.
 */
static void session_broken(struct session *session, const struct ibv_wc *wc)
{
	bool violated = session->state == SESSION_OPEN && !session->peer_gone &&
			endpoint_was_peer(wc) && verbs_qp_state(session->qp) == IBV_QPS_ERR;

	session->peer_gone = true;
	if (!violated) {
		session_lose(session, 0, "connection broken");
		return;
	}
	session_end(session, 0, "an access or a message that was not allowed");
	penalty_session(session, STRIKE_ACCESS);
}

static void session_complete(struct session *session, const struct ibv_wc *wc)
{
	struct message m;
	int r = endpoint_complete(&session->endpoint, wc, &m);

	/* Only who has had our answer can send or acknowledge; rdma_cm's event may come later. */
	if (wc->status == IBV_WC_SUCCESS)
		session->connected = true;
	if (r == 1) {
		session_on_message(session, &m);
		secure_wipe(&m, sizeof(m)); /* a reattach has a lease's secret */
	} else if (r == -EBADMSG) {
		(void)lane_key_invalidated(session->server, wc->invalidated_rkey);
		session_end(session, ERROR_PROTOCOL, "a message with invalidate");
	} else if (r == -EPROTO) {
		session_end(session, ERROR_PROTOCOL, "a malformed message");
	} else if (r == -EKEYREJECTED) {
		session->server->counters.messages_unopened += session->state <= SESSION_OPEN;
		session_end(session, ERROR_AUTH, "a message that cannot be opened");
	} else if (r == -EOVERFLOW) {
		session_end(session, ERROR_AUTH, "the keys are used up");
	} else if (r < 0) {
		session_broken(session, wc);
	}
	if (session->state == SESSION_CLOSING)
		session_reap_maybe(session);
	else
		session_want_flush(session);
}

/* Its session is over, but what the device did for it is not undone. */
static void session_missed(struct server *server, const struct ibv_wc *wc)
{
	uint32_t rkey;

	if (endpoint_has_invalidated(wc, &rkey))
		(void)lane_key_invalidated(server, rkey);
}

bool session_poll(struct server *server)
{
	uint64_t until_ns = clock_add_ms(clock_now_ns(), SESSION_POLL_MS);
	struct ibv_wc wc[SESSION_POLL_BATCH];
	int handshakes = 0;
	int n;

	for (int rounds = 0; rounds < SESSION_POLL_ROUNDS && handshakes == 0; rounds++) {
		if (rounds > 0 && clock_now_ns() >= until_ns)
			return false;
		n = verbs_poll_cq(server->device.control_cq.cq, SESSION_POLL_BATCH, wc);
		if (n <= 0)
			return true;
		for (int i = 0; i < n; i++) {
			struct session *session =
				route_find(&server->device.control_routes, route_of(wc[i].wr_id));

			if (session == NULL) {
				session_missed(server, &wc[i]);
				continue;
			}
			handshakes += session->state == SESSION_HELLO;
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

static int session_lease_reason(const struct session *session)
{
	if (drain_is_stopping(&session->server->drain))
		return ERROR_DRAINED;
	return session->kicked || session->tenant->removed ? ERROR_REVOKED : ERROR_SESSION_ENDED;
}

static void session_end_lease(struct session *session, struct lease *lease)
{
	if (!session->lost || !orphan_keep(lease, session->lost_ns))
		lease_end(lease, session_lease_reason(session));
}

/* A bounded number of leases ends in each turn of the loop; the lanes close after the last. */
static void session_end_leases(struct deadline *deadline, void *context)
{
	struct session *session = context;
	struct server *server = session->server;
	struct lease *lease;

	/* Ending one lease may end others of the same acquire, and free what is next. */
	while (server->turn_endings < SESSION_END_STEP && (lease = session->ending_next) != NULL) {
		server->turn_endings++;
		session->ending_next = TAILQ_NEXT(lease, session_link);
		session_end_lease(session, lease);
	}
	if (session->ending_next != NULL &&
	    deadline_set(server->deadlines, deadline, clock_now_ns()) == 0)
		return;
	while ((lease = session->ending_next) != NULL) {
		session->ending_next = TAILQ_NEXT(lease, session_link);
		session_end_lease(session, lease);
	}
	session_close_lanes(session, session->why);
	session_reap_maybe(session);
}

/* Of a handshake that came to nothing; whoever leaves without a word is no better. */
static bool session_is_own_fault(int code)
{
	return code == 0 || code == ERROR_AUTH || code == ERROR_PROTOCOL || code == ERROR_TIMEOUT ||
	       code == ERROR_VERSION;
}

void session_end(struct session *session, int code, const char *why)
{
	struct server *server = session->server;
	bool was_open = session->state == SESSION_OPEN;

	if (session->state > SESSION_OPEN)
		return;
	session_set_state(session, SESSION_CLOSING);
	/* Now, and not with the end of the teardown: the next attempt may come before that. */
	if (!was_open && session->connected && session_is_own_fault(code) &&
	    admission_failed(&session->ticket, clock_now_ns()))
		session_report_banned(session);
	if (code == ERROR_PROTOCOL)
		server->counters.protocol_errors++;
	session_report_end(session, why);
	if (code != 0 && !session->peer_gone)
		session_say_why(session, code);
	lane_queue_close(&session->lane_queue);
	session->close_limit_ns = clock_add_ms(clock_now_ns(), SESSION_LAST_WORDS_MS);
	(void)deadline_set(server->deadlines, &session->deadline, session->close_limit_ns);
	session->why = why;
	session->ending_next = TAILQ_FIRST(&session->leases);
	session_end_leases(&session->ending_deadline, session);
	if (code == ERROR_PROTOCOL && was_open)
		penalty_session(session, STRIKE_PROTOCOL);
}

void session_kick(struct session *session)
{
	session->kicked = true;
	session_end(session, ERROR_REVOKED, "kicked by the operator");
}

void session_lose(struct session *session, int code, const char *why)
{
	if (session->state == SESSION_OPEN) {
		session->lost = true;
		session->lost_ns = clock_now_ns();
		session->server->counters.sessions_lost++;
	}
	session_end(session, code, why);
}

void session_end_tenant(struct server *server, const struct tenant *tenant, int code,
			const char *why)
{
	struct session *session;
	struct session *next;

	for (session = TAILQ_FIRST(&server->sessions); session != NULL; session = next) {
		next = TAILQ_NEXT(session, server_link);
		if (session->tenant != tenant)
			continue;
		session->lost = false; /* one that is closing keeps nothing more */
		session_end(session, code, why);
	}
	orphan_end_all(server, tenant, tenant->removed ? ERROR_REVOKED : ERROR_SESSION_ENDED);
}

void session_free(struct session *session)
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
	drain_session_gone(&server->drain, session);
	TAILQ_REMOVE(&server->sessions, session, server_link);
	server->session_count--;
	if (session->tenant != NULL) {
		if (session->charged)
			tenant_uncharge(session->tenant, TENANT_SESSIONS, 1);
		session->tenant = tenant_unref(session->tenant);
	}
	session_discard(session);
	server_maybe_stopped(server);
}

/* From when on the peer has been silent for too long; never without heartbeats. */
static uint64_t session_silent_ns(const struct session *session)
{
	if (session->heartbeat_ms == 0)
		return UINT64_MAX;
	return clock_add_ms(session->endpoint.heard_ns, SESSION_HEARTBEATS * session->heartbeat_ms);
}

static uint64_t session_next_look(const struct session *session)
{
	uint64_t look_ns = clock_add_ms(clock_now_ns(), SESSION_LOOK_MS);
	uint64_t silent_ns = session_silent_ns(session);

	return silent_ns < look_ns ? silent_ns : look_ns;
}

static void session_on_deadline(struct deadline *deadline, void *context)
{
	struct session *session = context;
	struct server *server = session->server;
	uint64_t now_ns = clock_now_ns();

	(void)deadline;
	if (session->state == SESSION_HELLO || session->state == SESSION_GREETED) {
		session_end(session, ERROR_TIMEOUT, "no introduction in time");
		return;
	}
	if (session->state == SESSION_CLOSING) {
		session_reap_maybe(session);
		return;
	}
	if (endpoint_stalled(&session->endpoint, now_ns, server->config.credit_timeout_ms)) {
		session->peer_gone = true;
		session_lose(session, 0, "the peer takes no messages");
		return;
	}
	if (session_silent_ns(session) <= now_ns) {
		session->peer_gone = true;
		session_lose(session, 0, "the peer is silent");
		return;
	}
	(void)deadline_set(server->deadlines, &session->deadline, session_next_look(session));
}

void session_lane_gone(struct session *session)
{
	session_reap_maybe(session);
}

void session_lease_gone(struct session *session, struct lease *lease)
{
	if (session->ending_next == lease)
		session->ending_next = TAILQ_NEXT(lease, session_link);
	TAILQ_REMOVE(&session->leases, lease, session_link);
	session->lease_count--;
}
