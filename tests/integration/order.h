/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef TESTS_INTEGRATION_ORDER_H
#define TESTS_INTEGRATION_ORDER_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct harness;

/* A connection to the admin socket on which orders are given without waiting for answers. */
struct order {
	int fd; /* -1: none */
	uint64_t given;
	size_t used_bytes; /* of an answer that has not come to its end */
	char line[8192];
};

/** order_open() - Return: 0 or a negative errno; order_close() in any case */
int order_open(struct order *order, const struct harness *h);
void order_close(struct order *order);

/** order_revoke() - a lease; Return: 0 or a negative errno */
int order_revoke(struct order *order, uint64_t lease_id, bool now);

/** order_revoke_tenant() - all of a tenant; Return: 0 or a negative errno */
int order_revoke_tenant(struct order *order, const char *tenant, bool now);

/**
 * order_answer() - the next answer, whichever order it belongs to
 * @ret_result: what it says, NULL if it was refused; json_decref() it
 *
 * Return: 0, the code of a refusal, or a negative errno (-ETIMEDOUT).
 */
int order_answer(struct order *order, uint64_t limit_ms, json_t **ret_result);

/** order_forget() - drop the answers that have come */
void order_forget(struct order *order);

#endif
