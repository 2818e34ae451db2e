/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The orders to drain and to serve again. Both are answered at once, with what the state is
 * then; how far it has come is in `status`.
 *
 * Owns nothing. Thread: the loop.
 */
#include "daemon/admin_drain.h"

#include "common/clock.h"
#include "daemon/server.h"
#include "proto/error.h"

#define ADMIN_DRAIN_MAX_MS (UINT64_C(30) * 24 * 60 * 60 * 1000) /* as the schema's durations */

json_t *admin_drain_show(const struct drain *drain)
{
	return json_pack("{s:s,s:I,s:I,s:b}", "state", drain_state_name(drain->state),
			 "leases_left", (json_int_t)drain->leases, "deadline_left_ms",
			 (json_int_t)drain_left_ms(drain, clock_now_ns()), "exit", drain->exits);
}

static void answer(struct admin_request *request, struct server *server, const char *order,
		   int code)
{
	if (code != 0) {
		admin_fail(request, code, error_text(code));
		return;
	}
	server_audit(server, &(struct audit_record){.event = AUDIT_ADMIN, .reason = order});
	admin_reply(request, admin_drain_show(&server->drain));
}

/* Without a time: until the last lease would have run out, if nobody gave it back. */
static void drain(struct admin_request *request, json_t *params, void *context)
{
	struct server *server = context;
	json_int_t deadline_ms = (json_int_t)server->config.ttl_max_ms;
	int exits = 0;

	if (json_unpack(params, "{s?I,s?b!}", "deadline_ms", &deadline_ms, "exit", &exits) < 0 ||
	    deadline_ms < 0 || (uint64_t)deadline_ms > ADMIN_DRAIN_MAX_MS) {
		admin_fail(request, ADMIN_ERROR_PARAMS,
			   "params may be \"deadline_ms\": 0..2592000000 and \"exit\": true or "
			   "false");
		return;
	}
	answer(request, server, "drain",
	       drain_begin(&server->drain, (uint64_t)deadline_ms, exits != 0));
}

static void undrain(struct admin_request *request, json_t *params, void *context)
{
	struct server *server = context;

	if (json_object_size(params) > 0) {
		admin_fail(request, ADMIN_ERROR_PARAMS, "undrain takes no params");
		return;
	}
	answer(request, server, "undrain", drain_undo(&server->drain));
}

const struct admin_method admin_drain_methods[] = {
	{"drain", drain},
	{"undrain", undrain},
	{NULL, NULL},
};
