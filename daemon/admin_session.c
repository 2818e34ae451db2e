/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The admin socket's methods about sessions. Owns nothing.
 *
 * Thread: the loop.
 */
#include "daemon/admin_session.h"

#include "common/clock.h"
#include "daemon/server.h"
#include "proto/error.h"

#define NUMBER(value) ((json_int_t)(value))

static void set_number(json_t *row, const char *name, uint64_t value)
{
	(void)json_object_set_new(row, name, json_integer(NUMBER(value)));
}

static json_t *show_session(const struct session *session, uint64_t now_ns)
{
	json_t *row =
		json_pack("{s:I,s:s,s:s,s:I,s:I}", "id", NUMBER(session->id), "peer", session->peer,
			  "state", session_state_name(session->state), "lanes",
			  NUMBER(session->lane_count), "leases", NUMBER(session->lease_count));

	/* Who has not introduced itself is nobody's yet. */
	if (!session->charged)
		return row;
	(void)json_object_set_new(row, "tenant", json_string(session->tenant->name));
	set_number(row, "age_ms", (now_ns - session->opened_ns) / CLOCK_NS_PER_MS);
	set_number(row, "silent_ms", (now_ns - session->endpoint.heard_ns) / CLOCK_NS_PER_MS);
	return row;
}

static void session_list(struct admin_request *request, json_t *params, void *context)
{
	const struct server *server = context;
	uint64_t now_ns = clock_now_ns();
	const struct session *session;
	json_t *list;

	if (json_object_size(params) > 0) {
		admin_fail(request, ADMIN_ERROR_PARAMS, "session.list takes no params");
		return;
	}
	list = json_array();
	TAILQ_FOREACH (session, &server->sessions, server_link)
		(void)json_array_append_new(list, show_session(session, now_ns));
	admin_reply(request, json_pack("{s:o}", "sessions", list));
}

static void kick(struct admin_request *request, struct server *server, struct session *session)
{
	json_t *answer = json_pack("{s:I,s:s,s:s,s:I}", "id", NUMBER(session->id), "tenant",
				   session->charged ? session->tenant->name : "", "peer",
				   session->peer, "leases", NUMBER(session->lease_count));

	if (answer == NULL) {
		admin_fail(request, ERROR_NO_MEMORY, error_text(ERROR_NO_MEMORY));
		return;
	}
	server_audit(server, &(struct audit_record){
				     .event = AUDIT_ADMIN,
				     .tenant = session->charged ? session->tenant->name : NULL,
				     .session_id = session->id,
				     .reason = "session-kick",
			     });
	session_kick(session);
	admin_reply(request, answer);
}

static void session_kick_order(struct admin_request *request, json_t *params, void *context)
{
	struct server *server = context;
	struct session *session;
	json_int_t id = 0;

	if (json_unpack(params, "{s:I!}", "id", &id) < 0 || id <= 0) {
		admin_fail(request, ADMIN_ERROR_PARAMS,
			   "params must be {\"id\": a session's number}");
		return;
	}
	session = session_find(server, (uint64_t)id);
	if (session == NULL || session->state > SESSION_OPEN)
		admin_fail(request, ERROR_NO_SESSION, error_text(ERROR_NO_SESSION));
	else
		kick(request, server, session);
}

const struct admin_method admin_session_methods[] = {
	{"session.list", session_list},
	{"session.kick", session_kick_order},
	{NULL, NULL},
};
