/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef DAEMON_ACCEPT_H
#define DAEMON_ACCEPT_H

#include <infiniband/verbs.h>
#include <rdma/rdma_cma.h>
#include <stdint.h>

struct config;

/* What the daemon's end of a connection has a say in, control connections and lanes alike. */

/**
 * accept_prepare() - options of an id that is to listen
 *
 * Return: 0 or a negative errno.
 */
int accept_prepare(struct rdma_cm_id *id, const struct config *config);

/**
 * accept_check() - is the path of a connect request as good as the configuration wants it?
 *
 * Return: 0 or an error code.
 */
int accept_check(struct rdma_cm_id *id, const struct config *config);

/**
 * accept_connection() - accept a connect request
 * @id: has its QP
 * @param: qp_num is filled in if need be
 *
 * Return: 0 or a negative errno.
 */
int accept_connection(struct rdma_cm_id *id, struct rdma_conn_param *param,
		      const struct config *config);

/**
 * accept_timeout_exponent() - the shortest time-out of a QP, 4.096 us * 2^n, that is not below one
 *
 * Return: n, 1 to 31.
 */
uint8_t accept_timeout_exponent(uint64_t timeout_ms);

#endif
