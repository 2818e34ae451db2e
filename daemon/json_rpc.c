/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The form of JSON-RPC 2.0: what requests must be, what answers and notifications are. Pure
 * code, any thread.
 */
#include "daemon/json_rpc.h"

#include <stdbool.h>
#include <string.h>

#include "common/text.h"

#define ERROR_TEXT_MAX 512

static bool is_valid_id(const json_t *id)
{
	return json_is_string(id) || json_is_integer(id) || json_is_null(id);
}

const char *json_rpc_wrong(const json_t *root)
{
	const json_t *id = json_object_get(root, "id");
	const json_t *params = json_object_get(root, "params");
	const char *version = json_string_value(json_object_get(root, "jsonrpc"));

	if (json_is_array(root))
		return "batches are not supported";
	if (id && !is_valid_id(id))
		return "id is not a string, an integer or null";
	if (!version || strcmp(version, "2.0") != 0)
		return "jsonrpc is not \"2.0\"";
	if (!json_is_string(json_object_get(root, "method")))
		return "method is not a string";
	if (params && !json_is_object(params) && !json_is_array(params))
		return "params is not structured";
	return NULL;
}

json_t *json_rpc_id(const json_t *root)
{
	json_t *id = json_object_get(root, "id");

	return id && is_valid_id(id) ? id : json_null();
}

/* Any text as a JSON string, even if it is not UTF-8. */
static json_t *text_to_json(const char *text)
{
	char escaped[ERROR_TEXT_MAX];
	json_t *string = json_string(text);

	if (string)
		return string;
	text_escape(text, escaped, sizeof(escaped));
	return json_string(escaped);
}

/* @member: consumed */
static json_t *answer(json_t *id, const char *name, json_t *member)
{
	return json_pack("{s:s, s:o, s:O}", "jsonrpc", "2.0", name, member, "id", id);
}

json_t *json_rpc_result(json_t *id, json_t *result)
{
	return answer(id, "result", result);
}

json_t *json_rpc_error(json_t *id, int code, const char *text)
{
	return answer(id, "error",
		      json_pack("{s:i, s:o}", "code", code, "message", text_to_json(text)));
}

json_t *json_rpc_notification(const char *method, json_t *params)
{
	return json_pack("{s:s, s:s, s:o}", "jsonrpc", "2.0", "method", method, "params", params);
}
