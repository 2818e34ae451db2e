/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Accepting connections. What the requester says of the path holds for both ends, so the path
 * MTU can only be taken or refused; the traffic class of what this end sends, and how long it
 * waits for acknowledgements, are its own affair.
 *
 * rdma_accept() moves the QP by itself, as the request says. So if the configuration says
 * otherwise the QP is moved here, and rdma_accept() does not get to see it.
 *
 * Owns nothing. Thread: the loop.
 */
#include "daemon/accept.h"

#include <errno.h>
#include <stdbool.h>

#include "common/log.h"
#include "common/verbs.h"
#include "daemon/config.h"
#include "proto/error.h"

#define ACCEPT_TIMEOUT_UNIT_NS 4096u
#define ACCEPT_TIMEOUT_MAX     31u
#define ACCEPT_NOT_OURS	       0xe00000 /* bits that old kernels add and no library takes */

static struct log_limit accept_limit;

uint8_t accept_timeout_exponent(uint64_t timeout_ms)
{
	uint8_t exponent = 1;

	while (exponent < ACCEPT_TIMEOUT_MAX &&
	       ((uint64_t)ACCEPT_TIMEOUT_UNIT_NS << exponent) / 1000000 < timeout_ms)
		exponent++;
	return exponent;
}

int accept_prepare(struct rdma_cm_id *id, const struct config *config)
{
	uint8_t traffic_class = (uint8_t)config->traffic_class;

	if (traffic_class == 0)
		return 0;
	return rdma_set_option(id, RDMA_OPTION_ID, RDMA_OPTION_ID_TOS, &traffic_class,
			       sizeof(traffic_class)) == 0
		       ? 0
		       : -errno;
}

/* What the QP of a connection is to be given for its next state. */
static int accept_attributes(struct rdma_cm_id *id, enum ibv_qp_state state,
			     struct ibv_qp_attr *ret_attr, int *ret_mask)
{
	*ret_attr = (struct ibv_qp_attr){.qp_state = state};
	if (rdma_init_qp_attr(id, ret_attr, ret_mask) != 0)
		return -errno;
	*ret_mask &= ~ACCEPT_NOT_OURS;
	return 0;
}

int accept_check(struct rdma_cm_id *id, const struct config *config)
{
	struct ibv_qp_attr attr;
	int mask;

	if (config->path_mtu_min == CONFIG_MTU_ANY)
		return 0;
	if (accept_attributes(id, IBV_QPS_RTR, &attr, &mask) < 0)
		return ERROR_INTERNAL;
	if (attr.path_mtu >= config_mtu(config))
		return 0;
	log_limited(LOG_LEVEL_WARN, &accept_limit,
		    "connection refused: its path MTU is too small; see the MTU of the interfaces, "
		    "and the key path_mtu_min mtu_bytes=%d",
		    128 << attr.path_mtu);
	return ERROR_PORT;
}

static int accept_move_qp(struct rdma_cm_id *id, const struct rdma_conn_param *param,
			  const struct config *config)
{
	struct ibv_qp_attr attr;
	int mask;
	int r;

	r = accept_attributes(id, IBV_QPS_INIT, &attr, &mask);
	if (r == 0)
		r = verbs_modify_qp(id->qp, &attr, mask);
	if (r == 0)
		r = accept_attributes(id, IBV_QPS_RTR, &attr, &mask);
	if (r < 0)
		return r;
	attr.max_dest_rd_atomic = param->responder_resources;
	if (config->traffic_class != 0)
		attr.ah_attr.grh.traffic_class = (uint8_t)config->traffic_class;
	r = verbs_modify_qp(id->qp, &attr, mask);
	if (r == 0)
		r = accept_attributes(id, IBV_QPS_RTS, &attr, &mask);
	if (r < 0)
		return r;
	attr.max_rd_atomic = param->initiator_depth;
	if (config->ack_timeout_ms != 0)
		attr.timeout = accept_timeout_exponent(config->ack_timeout_ms);
	return verbs_modify_qp(id->qp, &attr, mask);
}

static void accept_log(const struct rdma_cm_id *id)
{
	const int wanted = IBV_QP_PATH_MTU | IBV_QP_TIMEOUT | IBV_QP_AV;
	struct ibv_qp_init_attr init;
	struct ibv_qp_attr attr;

	if (log_get_level() < LOG_LEVEL_DEBUG || ibv_query_qp(id->qp, &attr, wanted, &init) != 0)
		return;
	log_debug("connection accepted qpn=0x%x path_mtu=%d traffic_class=%u ack_timeout=%u",
		  id->qp->qp_num, 128 << attr.path_mtu, attr.ah_attr.grh.traffic_class,
		  attr.timeout);
}

static int accept_moved(struct rdma_cm_id *id, struct rdma_conn_param *param)
{
	struct ibv_qp *qp = id->qp;
	int r;

	param->qp_num = qp->qp_num;
	id->qp = NULL;
	r = rdma_accept(id, param) == 0 ? 0 : -errno;
	id->qp = qp;
	return r;
}

int accept_connection(struct rdma_cm_id *id, struct rdma_conn_param *param,
		      const struct config *config)
{
	int r;

	if (config->traffic_class == 0 && config->ack_timeout_ms == 0) {
		r = rdma_accept(id, param) == 0 ? 0 : -errno;
	} else {
		r = accept_move_qp(id, param, config);
		if (r == 0)
			r = accept_moved(id, param);
	}
	if (r == 0)
		accept_log(id);
	return r;
}
