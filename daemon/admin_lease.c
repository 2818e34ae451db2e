/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The admin socket's methods about leases. Owns nothing.
 *
 * Thread: the loop.
 */
#include "daemon/admin_lease.h"

#include "common/clock.h"
#include "daemon/orphan.h"
#include "daemon/revocation.h"
#include "daemon/server.h"
#include "proto/error.h"

#define NUMBER(value) ((json_int_t)(value))

/* A lease without a session is shown as such, whatever else is the matter with it. */
static const char *state_of(const struct lease *lease)
{
	return orphan_is(lease) ? "orphaned" : lease_state_name(lease->state);
}

static json_t *show_lease(const struct lease *lease, uint64_t now_ns)
{
	char rights[AUDIT_RIGHTS_MAX];
	const struct attachment *attachment;
	json_t *lanes = json_array();
	json_t *row;

	audit_rights(lease->rights, rights);
	LIST_FOREACH (attachment, &lease->attachments, lease_link)
		json_array_append_new(lanes, json_integer(attachment->lane->number));
	row = json_pack("{s:I,s:s,s:s,s:I,s:I,s:I,s:s,s:I,s:o,s:I}", "id", NUMBER(lease->id),
			"tenant", lease->tenant->name, "state", state_of(lease), "generation",
			NUMBER(lease->generation), "len_bytes", NUMBER(lease->len_bytes),
			"extent_bytes", NUMBER(lease->extent_bytes), "rights", rights,
			"ttl_left_ms", NUMBER(clock_left_ms(lease->deadline.at_ns, now_ns)),
			"lanes", lanes, "windows", NUMBER(lease->charged_windows));
	if (lease->session != NULL)
		json_object_set_new(row, "session", json_integer(NUMBER(lease->session->id)));
	if (orphan_is(lease))
		json_object_set_new(
			row, "orphan_left_ms",
			json_integer(NUMBER(clock_left_ms(lease->orphan_deadline.at_ns, now_ns))));
	if (lease->back.extent != NULL)
		json_object_set_new(row, "offset_bytes",
				    json_integer(NUMBER(extent_offset_bytes(lease->back.extent))));
	if (lease_is_ending(lease))
		json_object_set_new(row, "reason", json_string(error_name(lease->reason)));
	return row;
}

/* What is of interest about one: who has it from where, since when, for how long. */
static void show_more(const struct lease *lease, uint64_t now_ns, json_t *row)
{
	(void)json_object_set_new(row, "ttl_ms", json_integer(NUMBER(lease->ttl_ms)));
	if (lease->granted)
		(void)json_object_set_new(
			row, "age_ms",
			json_integer(NUMBER((now_ns - lease->granted_ns) / CLOCK_NS_PER_MS)));
	if (lease->session != NULL)
		(void)json_object_set_new(row, "peer", json_string(lease->session->peer));
	(void)json_object_set_new(row, "revoking", json_boolean(lease->revoking));
	(void)json_object_set_new(row, "quarantined", json_boolean(lease->quarantined));
}

static void lease_show(struct admin_request *request, json_t *params, void *context)
{
	const struct server *server = context;
	uint64_t now_ns = clock_now_ns();
	const struct lease *lease;
	json_int_t id = 0;
	json_t *row;

	if (json_unpack(params, "{s:I!}", "id", &id) < 0 || id <= 0) {
		admin_fail(request, ADMIN_ERROR_PARAMS,
			   "params must be {\"id\": a lease's number}");
		return;
	}
	lease = lease_find(server, (uint64_t)id);
	if (lease == NULL) {
		admin_fail(request, ERROR_NO_LEASE, error_text(ERROR_NO_LEASE));
		return;
	}
	row = show_lease(lease, now_ns);
	show_more(lease, now_ns, row);
	admin_reply(request, row);
}

static void lease_list(struct admin_request *request, json_t *params, void *context)
{
	const struct server *server = context;
	uint64_t now_ns = clock_now_ns();
	const struct lease *lease;
	json_t *list = json_array();

	(void)params;
	TAILQ_FOREACH (lease, &server->leases, server_link)
		json_array_append_new(list, show_lease(lease, now_ns));
	admin_reply(request, json_pack("{s:o}", "leases", list));
}

static void lease_revoke_order(struct admin_request *request, json_t *params, void *context)
{
	struct server *server = context;
	const char *tenant = NULL;
	json_int_t id = 0;
	int now = 0;
	uint64_t grace_ms;
	int code;

	if (json_unpack(params, "{s?I,s?s,s?b!}", "id", &id, "tenant", &tenant, "now", &now) < 0 ||
	    (id > 0) == (tenant != NULL)) {
		admin_fail(request, ADMIN_ERROR_PARAMS,
			   "params must be {\"id\": a lease's number} or {\"tenant\": a name}, and "
			   "may "
			   "have \"now\": true");
		return;
	}
	grace_ms = now ? 0 : server->config.revoke_grace_ms;
	code = tenant != NULL ? revocation_tenant(server, tenant, grace_ms, request)
			      : revocation_lease(server, (uint64_t)id, grace_ms, request);
	if (code != 0)
		admin_fail(request, code, error_text(code));
}

const struct admin_method admin_lease_methods[] = {
	{"lease.list", lease_list},
	{"lease.show", lease_show},
	{"lease.revoke", lease_revoke_order},
	{NULL, NULL},
};
