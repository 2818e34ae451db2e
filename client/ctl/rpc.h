/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef CLIENT_CTL_RPC_H
#define CLIENT_CTL_RPC_H

#include <jansson.h>
#include <stdint.h>

#define RPC_TEXT_MAX 512

/* JSON-RPC 2.0 with the daemon over its admin socket, one call at a time. One thread. */
struct rpc;

/* What the daemon, or the way to it, says is wrong. */
struct rpc_failure {
	int64_t code; /* of a refusal, else 0 */
	char text[RPC_TEXT_MAX];
};

/**
 * rpc_new() - connect
 * @path: the daemon's admin socket
 * @timeout_ms: for connecting, and for each call
 * @ret_rpc: the connection
 *
 * Return: 0 or a negative errno.
 */
int rpc_new(const char *path, uint64_t timeout_ms, struct rpc **ret_rpc);

/**
 * rpc_free() - hang up
 * @rpc: may be NULL
 *
 * Return: NULL.
 */
struct rpc *rpc_free(struct rpc *rpc);

/**
 * rpc_call() - call a method and wait for its answer
 * @params: an object, or NULL for none; consumed
 * @ret_result: the caller's reference; set on success only
 * @failure: filled unless the call succeeds
 *
 * Return: 0; -EREMOTEIO: the daemon refused; -ETIMEDOUT, -EPROTO (the answer makes no
 * sense) or another negative errno, after all of which the connection is of no more use.
 */
int rpc_call(struct rpc *rpc, const char *method, json_t *params, json_t **ret_result,
	     struct rpc_failure *failure);

/**
 * rpc_next() - wait, without a limit, for what the daemon tells without being asked again
 * @ret_params: of its notification; the caller's reference; set on success only
 * @failure: filled otherwise
 *
 * After the call of a method that asks for notifications; no other call may follow.
 * Return: 0; -ECONNRESET: the daemon has hung up; -EPROTO or another negative errno.
 */
int rpc_next(struct rpc *rpc, json_t **ret_params, struct rpc_failure *failure);

#endif
