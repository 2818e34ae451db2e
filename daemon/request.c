/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What a client may ask of its session, and when: one table, one function per message. Every
 * value that deserves an error code of its own is answered with it and the session lives on;
 * a message that is not allowed now ends it.
 *
 * Owns nothing. Thread: the loop.
 */
#include "daemon/request.h"

#include <inttypes.h>
#include <string.h>

#include "common/clock.h"
#include "daemon/acquire.h"
#include "daemon/modify.h"
#include "daemon/orphan.h"
#include "daemon/release.h"
#include "daemon/server.h"
#include "proto/error.h"

static void request_welcome(struct session *session, uint64_t request_id)
{
	const struct server *server = session->server;
	struct message m = {.type = MESSAGE_WELCOME};

	m.u.welcome = (struct message_welcome){
		.version = PROTO_VERSION,
		.receives = (uint16_t)server->config.control_receives,
		.session_id = session->id,
		.ttl_default_ms = server->config.ttl_default_ms,
		.ttl_max_ms = server->config.ttl_max_ms,
		.window_max_bytes = server->config.window_max_bytes,
		.page_bytes = (uint32_t)server->pool.page_bytes,
		.read_depth = (uint32_t)server->config.read_depth,
		.rights = server->isolation.rights,
		.heartbeat_ms = (uint32_t)session->heartbeat_ms,
		.isolation = server->isolation.mode,
		.enforced = server_enforced_bits(server),
	};
	session_reply(session, &m, request_id);
}

static int request_hello(struct session *session, const struct message *m)
{
	int code;

	if (m->u.hello.version != PROTO_VERSION)
		return ERROR_VERSION;
	if (drain_is_stopping(&session->server->drain))
		return ERROR_DRAINING;
	if (endpoint_peer_receives(&session->endpoint, m->u.hello.receives) < 0)
		return ERROR_PROTOCOL;
	code = session_greet(session, &m->u.hello);
	if (code == 0)
		request_welcome(session, m->request_id);
	return code;
}

static int request_ping(struct session *session, const struct message *m)
{
	struct message reply = {.type = MESSAGE_PONG};

	session_reply(session, &reply, m->request_id);
	return 0;
}

static int request_bye(struct session *session, const struct message *m)
{
	(void)m;
	session_end(session, 0, "bye");
	return 0;
}

static int request_lane_open(struct session *session, const struct message *m)
{
	struct lane *lane;
	struct lane *next;

	for (lane = TAILQ_FIRST(&session->lanes); lane != NULL; lane = next) {
		next = TAILQ_NEXT(lane, session_link);
		(void)lane_check(lane);
	}
	return lane_queue_open(&session->lane_queue, m->request_id);
}

static int request_lane_confirm(struct session *session, const struct message *m)
{
	const struct message_lane_confirm *confirm = &m->u.lane_confirm;
	struct message reply = {.type = MESSAGE_LANE_READY, .u.lane.lane = confirm->lane};
	struct lane *lane = session_lane(session, confirm->lane);
	int code;

	if (lane == NULL)
		return ERROR_LANE_STATE;
	code = lane_confirm(lane, confirm->daemon_qpn, confirm->client_qpn);
	if (code == 0)
		session_reply(session, &reply, m->request_id);
	return code;
}

/* A lane of the session that windows can be bound on, found alive just now. */
static struct lane *request_lane(struct session *session, uint32_t number)
{
	struct lane *lane = session_lane(session, number);

	return lane != NULL && lane->state == LANE_READY && lane_check(lane) ? lane : NULL;
}

static int request_acquire(struct session *session, const struct message *m)
{
	return acquire_begin(session, request_lane(session, m->u.acquire.lane), m->request_id,
			     &m->u.acquire);
}

static int request_attach(struct session *session, const struct message *m)
{
	struct lane *lane = request_lane(session, m->u.attach.lane);
	struct lease *lease = session_own_lease(session, m->u.attach.lease_id);

	if (lease == NULL)
		return notices_reason(&session->notices, m->u.attach.lease_id);
	return lease_attach(lease, lane, m->request_id);
}

static int request_reattach(struct session *session, const struct message *m)
{
	return orphan_reattach(session, request_lane(session, m->u.reattach.lane), m->request_id,
			       &m->u.reattach);
}

static int request_renew(struct session *session, const struct message *m)
{
	struct message reply = {.type = MESSAGE_RENEWED, .u.renew = m->u.renew};
	struct lease *lease = session_own_lease(session, m->u.renew.lease_id);
	int code;

	if (lease == NULL)
		return notices_reason(&session->notices, m->u.renew.lease_id);
	code = lease_renew(lease, m->u.renew.ttl_ms, &reply.u.renew.ttl_ms);
	if (code == 0)
		session_reply(session, &reply, m->request_id);
	return code;
}

static int request_release(struct session *session, const struct message *m)
{
	return release_begin(session, m->request_id, &m->u.leases);
}

static int request_modify(struct session *session, const struct message *m)
{
	struct lease *lease = session_own_lease(session, m->u.modify.lease_id);

	if (lease == NULL)
		return notices_reason(&session->notices, m->u.modify.lease_id);
	return modify_begin(lease, m->request_id, &m->u.modify);
}

/* What the next two name may have ended meanwhile, which is no mistake of the client's. */
static int request_quiesced(struct session *session, const struct message *m)
{
	struct lease *lease = session_own_lease(session, m->u.lease.lease_id);

	if (lease != NULL)
		modify_quiesced(lease);
	return 0;
}

/* The client has found a fault of ours, and goes. */
static int request_error(struct session *session, const struct message *m)
{
	(void)m;
	session_end(session, 0, "the client has found a fault");
	return 0;
}

static int request_revoked(struct session *session, const struct message *m)
{
	for (uint16_t i = 0; i < m->u.leases.count; i++) {
		struct lease *lease = session_own_lease(session, m->u.leases.lease_ids[i]);

		if (lease != NULL)
			lease_revoke_now(lease);
	}
	return 0;
}

/*
 * What a client may say, and when. A handler answers by itself and returns 0, or returns the
 * error code that is the answer.
 */
static const struct {
	enum session_state state;
	int (*handle)(struct session *session, const struct message *m);
	bool counts; /* against the tenant's requests per second */
} request_table[MESSAGE_TYPE_END] = {
	[MESSAGE_HELLO] = {SESSION_HELLO, request_hello, false},
	[MESSAGE_BYE] = {SESSION_OPEN, request_bye, false},
	[MESSAGE_PING] = {SESSION_OPEN, request_ping, false},
	[MESSAGE_LANE_OPEN] = {SESSION_OPEN, request_lane_open, true},
	[MESSAGE_LANE_CONFIRM] = {SESSION_OPEN, request_lane_confirm, true},
	[MESSAGE_ACQUIRE] = {SESSION_OPEN, request_acquire, true},
	[MESSAGE_ATTACH] = {SESSION_OPEN, request_attach, true},
	[MESSAGE_REATTACH] = {SESSION_OPEN, request_reattach, true},
	[MESSAGE_RENEW] = {SESSION_OPEN, request_renew, true},
	[MESSAGE_RELEASE] = {SESSION_OPEN, request_release, false},
	[MESSAGE_MODIFY] = {SESSION_OPEN, request_modify, true},
	[MESSAGE_QUIESCED] = {SESSION_OPEN, request_quiesced, false},
	[MESSAGE_REVOKED] = {SESSION_OPEN, request_revoked, false},
	[MESSAGE_ERROR] = {SESSION_OPEN, request_error, false},
};

static bool request_is_allowed(const struct session *session, const struct message *m)
{
	/* With an id it would be an answer, but the daemon asks for nothing. */
	if (m->type == MESSAGE_ERROR && m->request_id != 0)
		return false;
	return request_table[m->type].handle != NULL &&
	       request_table[m->type].state == session->state;
}

int request_handle(struct session *session, const struct message *m)
{
	bool handshake = session->state == SESSION_HELLO;
	int code;

	if (!request_is_allowed(session, m)) {
		log_debug("message not allowed session=0x%" PRIx64 " type=%s state=%s", session->id,
			  message_type_name(m->type), session_state_name(session->state));
		return ERROR_PROTOCOL;
	}
	code = request_table[m->type].counts ? tenant_try_request(session->tenant, clock_now_ns())
					     : 0;
	if (code == 0)
		code = request_table[m->type].handle(session, m);
	if (code == 0 || handshake)
		return code;
	session_reply_error(session, m->request_id, code);
	return 0;
}
