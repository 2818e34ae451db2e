/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef DAEMON_LANE_H
#define DAEMON_LANE_H

#include <rdma/rdma_cma.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/queue.h>

#include "daemon/attachment.h"
#include "daemon/deadline.h"
#include "daemon/strikes.h"
#include "daemon/window_set.h"
#include "daemon/worker.h"
#include "proto/limits.h"

struct server;
struct session;

/* What an rdma_cm id's context points at; the first member of each such object. */
enum cm_kind {
	CM_NONE, /* refused, being destroyed */
	CM_LISTENER,
	CM_SESSION,
	CM_LANE,
};

enum lane_state {
	LANE_OFFERED,	 /* the client has been told its number */
	LANE_CONNECTING, /* accepted, not yet confirmed by the client */
	LANE_READY,	 /* windows may be bound */
	LANE_CLOSING,	 /* windows are on their way behind the fence */
	LANE_REAPING,	 /* the verbs worker destroys what is left */
	LANE_STUCK,	 /* it could not; tried again later */
	LANE_GONE,	 /* about to be freed */
	LANE_STATES,
};

/* A data connection: one QP of one session, its windows, and what is posted on it. */
struct lane {
	enum cm_kind kind; /* CM_LANE; first, since rdma_cm's events find us by it */
	enum lane_state state;
	struct server *server;
	struct session *session; /* NULL in quarantine */
	TAILQ_ENTRY(lane) session_link;
	TAILQ_ENTRY(lane) server_link; /* of all lanes, for the sweep */
	TAILQ_ENTRY(lane) flush_link;  /* of lanes with something to post */
	bool in_flush;
	uint32_t number;
	struct deadline
		deadline; /* offer, confirmation, completion, closing, or next try to reap */
	struct rdma_cm_id *id;
	struct ibv_qp *qp; /* of the id, for the loop; NULL before the connect request */
	uint32_t qpn;
	uint32_t route;
	uint32_t cq_reserved;
	struct strike_grace grace;
	uint64_t alive_ns;  /* when its QP was last seen alive */
	bool violated;	    /* its QP was found in ERR, and it was not us */
	bool local_failure; /* but one of our own work requests had failed */
	bool lost;	    /* the QP is in ERR, or given up */
	bool wronged;	    /* it was somebody else who made it lost */
	bool disconnected;  /* the peer has gone */
	const char *why;    /* it is closing */

	struct window_set windows;
	TAILQ_HEAD(, attachment) attachments;
	uint32_t attachment_count;
	struct attachment *closing_next; /* to be told next that the lane closes */
	struct worker_job reap_job;
	int reap_result;
	uint64_t reap_wait_ms;
};

/**
 * lane_offer() - make a number for a lane that the client may connect
 *
 * Return: 0, or an error code: the tenant's quota, or no memory.
 */
int lane_offer(struct session *session, uint32_t number, struct lane **ret_lane);

/**
 * lane_accept() - the connection that the offer was for has come
 * @id: of the connect request; owned by the lane on success
 *
 * Return: 0, or an error code for the reject's private data.
 */
int lane_accept(struct lane *lane, struct rdma_cm_id *id, const struct rdma_conn_param *request);

/**
 * lane_confirm() - the client says which QP of ours it is connected to
 *
 * Return: 0, or an error code (the lane is closed then: somebody else is on it).
 */
int lane_confirm(struct lane *lane, uint32_t daemon_qpn, uint32_t client_qpn);

/** lane_disconnected() - the peer has left this connection */
void lane_disconnected(struct lane *lane);

/** lane_not_connected() - this connection never came to be */
void lane_not_connected(struct lane *lane);

/** lane_check() - look at the QP's state; a lane found dead is closed. Return: is it alive? */
bool lane_check(struct lane *lane);

/**
 * lane_close() - end a lane; begins once, later calls do nothing
 * @why: static text for the log
 *
 * Windows are invalidated while the QP is RTS, or deallocated if it is not; then the
 * connection is torn down. session_lane_gone() follows, perhaps before the return.
 */
void lane_close(struct lane *lane, const char *why);

/** lane_flush_all() - post what has been queued on any lane since the last call */
void lane_flush_all(struct server *server);

/** lane_poll() - digest completions of all lanes. Return: false if the budget ran out before the queue */
bool lane_poll(struct server *server);

/**
 * lane_key_invalidated() - a peer has sent a SEND with invalidate for a key
 *
 * Whether the device obeyed is not known, so the window with that key is never posted on
 * again: its lane is given up, and the owner may attach its leases on a new one.
 * Return: did the key belong to a window?
 */
bool lane_key_invalidated(struct server *server, uint32_t rkey);

/** lane_sweep() - look at the QP state of the next @count lanes, in turn; those found dead are closed */
void lane_sweep(struct server *server, uint64_t count);

const char *lane_state_name(enum lane_state state);
bool lane_can_go(enum lane_state from, enum lane_state to);

#endif
