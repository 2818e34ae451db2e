/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef DAEMON_SESSION_H
#define DAEMON_SESSION_H

#include <rdma/rdma_cma.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/queue.h>

#include "common/endpoint.h"
#include "daemon/admission.h"
#include "daemon/deadline.h"
#include "daemon/lane.h"
#include "daemon/lane_queue.h"
#include "daemon/lease.h"
#include "daemon/listener.h"
#include "daemon/notices.h"
#include "daemon/worker.h"
#include "proto/message.h"
#include "proto/private_data.h"

struct server;
struct tenant;

enum session_state {
	SESSION_HELLO,	 /* accepted; hello has not come yet */
	SESSION_GREETED, /* welcome is out; only the next message proves who the client is */
	SESSION_OPEN,	 /* a tenant's */
	SESSION_CLOSING, /* leases and lanes are on their way out */
	SESSION_REAPING, /* the verbs worker destroys the connection */
	SESSION_GONE,	 /* about to be freed */
	SESSION_STATES,
};

/* A control connection and what its client owns. */
struct session {
	enum cm_kind kind; /* CM_SESSION; first, since rdma_cm's events find us by it */
	enum session_state state;
	struct server *server;
	TAILQ_ENTRY(session) server_link;
	TAILQ_ENTRY(session) notice_link;
	bool in_notices;
	uint64_t id;
	uint32_t route;
	struct rdma_cm_id *cm_id;
	struct ibv_qp *qp; /* of the id, also when the id has given it up to be destroyed */
	uint32_t cq_reserved;
	uint8_t *memory; /* of the endpoint; a slot of the device's control buffers */
	struct endpoint endpoint;
	struct channel *channel;		/* one of the daemon's identity */
	struct tenant *tenant;			/* NULL before hello */
	uint8_t instance[PROTO_INSTANCE_BYTES]; /* of the client, from hello */
	char peer[LISTENER_PEER_MAX];		/* address for the log */
	struct deadline deadline;		/* for hello; then looks after the peer's silence */
	TAILQ_HEAD(, lane) lanes;
	uint32_t lane_count;
	struct lane_queue lane_queue;
	TAILQ_HEAD(, lease) leases;
	uint64_t lease_count;
	struct lease *ending_next; /* to be ended next while the session closes */
	struct deadline ending_deadline;
	const char *why; /* it closes */
	struct notices notices;
	struct admission_ticket ticket;
	bool connected; /* the peer has answered: its address is its own */
	bool charged;	/* to the tenant */
	uint64_t opened_ns;
	uint64_t heartbeat_ms; /* as its welcome says, whatever the configuration says later */
	bool lost;	       /* it closes since it was lost: its leases may be kept ... */
	uint64_t lost_ns;      /* ... from then on */
	bool kicked;	       /* the operator has ended it: its leases end as revoked */
	bool peer_gone;
	bool unsendable;	 /* a message could not be queued: ends with the turn */
	uint64_t close_limit_ns; /* until then the last messages may still go out */
	struct worker_job reap_job;
	int reap_result;
	uint64_t reap_wait_ms;
};

/**
 * session_accept() - a client wants a control connection
 * @id: of the connect request; owned by the session on success
 * @data: its private data
 *
 * Return: 0, or an error code for the reject's private data.
 */
int session_accept(struct server *server, struct rdma_cm_id *id, const struct private_data *data);

/** session_set_state() - the only writer of the state; an illegal step is asserted */
void session_set_state(struct session *session, enum session_state state);

/** session_free() - the connection is gone, and so is all that was its client's */
void session_free(struct session *session);

/** session_connected() - the connection is there */
void session_connected(struct session *session);

/** session_disconnected() - the peer, which has had our answer, has left */
void session_disconnected(struct session *session);

/** session_not_connected() - the connection never came to be */
void session_not_connected(struct session *session);

/**
 * session_end() - end a session; begins once, later calls do nothing
 * @code: error code to tell the client, 0 if it left by itself
 * @why: static text for the log
 */
void session_end(struct session *session, int code, const char *why);

/**
 * session_lose() - end a session whose client is gone, or has been replaced
 *
 * As session_end(), but its leases become orphans if the configuration says so.
 */
void session_lose(struct session *session, int code, const char *why);

/** session_kick() - end a session that is not ending yet, as the operator wishes: its leases are revoked */
void session_kick(struct session *session);

/** session_may_lose_leases() - would its leases become orphans, or is that on the way? */
static inline bool session_may_lose_leases(const struct session *session)
{
	return session->state == SESSION_OPEN || session->lost;
}

/**
 * session_greet() - hello has come, perhaps from somebody who has recorded it
 *
 * Nothing is charged to the tenant yet. Return: 0 or an error code.
 */
int session_greet(struct session *session, const struct message_hello *hello);

/** session_end_tenant() - end all sessions of a tenant, and its orphans; as session_end() */
void session_end_tenant(struct server *server, const struct tenant *tenant, int code,
			const char *why);

/** session_find() - by id; Return: NULL if there is none */
struct session *session_find(const struct server *server, uint64_t id);

/** session_lane() - by number; Return: NULL if there is none */
struct lane *session_lane(const struct session *session, uint32_t number);

/** session_reply(), session_reply_error() - answer a request; nothing happens if the session is ending */
void session_reply(struct session *session, struct message *m, uint64_t request_id);
void session_reply_error(struct session *session, uint64_t request_id, int code);

/** session_want_flush() - notices have been collected, or messages wait: see to it with this turn's end */
void session_want_flush(struct session *session);

/** session_notice() - send a notice; nothing happens if the session is ending */
void session_notice(struct session *session, const struct message *m);

/** session_lane_closing() - a lane ends: tell the client, and make it wait for the next one */
void session_lane_closing(struct session *session, const struct lane *lane);

/** session_own_lease() - a lease of the session that is not ending; NULL if there is none, or it is another's */
struct lease *session_own_lease(const struct session *session, uint64_t lease_id);

/** session_lease_gone() - a lease has left the session's list */
void session_lease_gone(struct session *session, struct lease *lease);

/** session_lane_gone() - a lane has left the session's list */
void session_lane_gone(struct session *session);

/** session_flush_notices() - send what has been collected, and post what waits */
void session_flush_notices(struct server *server);

/** session_poll() - digest completions of all sessions. Return: false if the budget ran out first */
bool session_poll(struct server *server);

const char *session_state_name(enum session_state state);
bool session_can_go(enum session_state from, enum session_state to);

#endif
