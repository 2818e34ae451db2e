/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The teardown of a control connection, after the last lane and the last words: it begins once,
 * and is tried again until the device has let the connection go.
 *
 * Thread: the loop, except session_reap_run(), which runs on the verbs worker.
 */
#include "daemon/session_reap.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>

#include "common/clock.h"
#include "common/verbs.h"
#include "daemon/server.h"
#include "daemon/session.h"

#define WAIT_MIN_MS 100u
#define WAIT_MAX_MS 10000u

void session_reap_init(struct session *session)
{
	session->reap_wait_ms = WAIT_MIN_MS;
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
	if (session->reap_wait_ms < WAIT_MAX_MS)
		session->reap_wait_ms *= 2;
}

static bool session_has_last_words(const struct session *session)
{
	return !session->peer_gone &&
	       (session->endpoint.sends_posted > 0 || session->endpoint.waiting > 0) &&
	       clock_now_ns() < session->close_limit_ns;
}

void session_reap_maybe(struct session *session)
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
