/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef DAEMON_JSON_RPC_H
#define DAEMON_JSON_RPC_H

#include <jansson.h>

/*
 * Messages of JSON-RPC 2.0. Those that are made are the caller's, NULL if there is no memory.
 */

/** json_rpc_wrong() - what is wrong with the form of a request; NULL: nothing */
const char *json_rpc_wrong(const json_t *root);

/** json_rpc_id() - the id that an answer to anything has; borrowed, never NULL */
json_t *json_rpc_id(const json_t *root);

/** json_rpc_result() - @result: consumed */
json_t *json_rpc_result(json_t *id, json_t *result);

/** json_rpc_error() - @text: any bytes */
json_t *json_rpc_error(json_t *id, int code, const char *text);

/** json_rpc_notification() - @params: consumed */
json_t *json_rpc_notification(const char *method, json_t *params);

#endif
