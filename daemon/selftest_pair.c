/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A pair of queue pairs connected to itself. Both have every remote right and a read
 * depth of 1, so that a refusal can only come from the key. They share a completion
 * queue of their own: what is left of a pair that broke never reaches the next one.
 * The starting sequence numbers are random, because a device may give a number
 * of an old QP, with packets still under way, to a new one.
 *
 * Thread: any, one at a time. Waits are bounded by SELFTEST_WAIT_MS.
 */
#include "daemon/selftest_pair.h"

#include <errno.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "common/clock.h"
#include "common/secure.h"

#define CQ_ENTRIES  (2 * (SELFTEST_CHAIN_MAX + 1))
#define PSN_MASK    0xffffffu
#define ACK_TIMEOUT 14 /* 4.096 us * 2^14 = 67 ms */
#define RETRIES	    7
#define HOP_LIMIT   64

/* For calls that return NULL or -1 and set errno. */
static int from_errno(void)
{
	return errno != 0 ? -errno : -EIO;
}

/* For calls that return an errno of either sign. */
static int from_result(int r)
{
	return r > 0 ? -r : r;
}

static bool is_v4_mapped(const union ibv_gid *gid)
{
	struct in6_addr address;

	memcpy(&address, gid->raw, sizeof(address));
	return IN6_IS_ADDR_V4MAPPED(&address);
}

/* The port's first IPv4 address for RoCE v2, or else its first of any kind. */
static const struct ibv_gid_entry *choose_gid(const struct ibv_gid_entry *entries, size_t count,
					      uint8_t port)
{
	const struct ibv_gid_entry *best = NULL;
	size_t i;

	for (i = 0; i < count; i++) {
		if (entries[i].port_num != port || entries[i].gid_type != IBV_GID_TYPE_ROCE_V2 ||
		    entries[i].gid_index > UINT8_MAX)
			continue;
		if (is_v4_mapped(&entries[i].gid))
			return &entries[i];
		if (best == NULL)
			best = &entries[i];
	}
	return best;
}

static int find_gid(struct ibv_context *context, uint8_t port, int table_len,
		    struct selftest_route *ret_route)
{
	const struct ibv_gid_entry *best;
	struct ibv_gid_entry *entries;
	size_t cap = table_len > 0 ? (size_t)table_len : 1;
	ssize_t count;
	int r = -EADDRNOTAVAIL;

	entries = calloc(cap, sizeof(*entries));
	if (entries == NULL)
		return -ENOMEM;
	count = ibv_query_gid_table(context, entries, cap, 0);
	if (count < 0) {
		r = (int)count;
		goto out;
	}
	best = choose_gid(entries, (size_t)count, port);
	if (best == NULL)
		goto out;
	ret_route->gid = best->gid;
	ret_route->gid_index = (uint8_t)best->gid_index;
	r = 0;
out:
	free(entries);
	return r;
}

/* The table that is read whole has the entries of all ports. */
static int gid_table_len(struct ibv_context *context, uint8_t ports)
{
	struct ibv_port_attr attr;
	int sum = 0;
	uint8_t port;

	for (port = 1; port <= ports; port++)
		if (ibv_query_port(context, port, &attr) == 0)
			sum += attr.gid_tbl_len;
	return sum;
}

static int try_port(struct ibv_context *context, uint8_t port, int table_len,
		    struct selftest_route *ret_route)
{
	struct selftest_route route = {.port = port};
	struct ibv_port_attr attr;
	int r;

	r = from_result(ibv_query_port(context, port, &attr));
	if (r < 0)
		return r;
	if (attr.state != IBV_PORT_ACTIVE)
		return -ENETDOWN;
	route.mtu = attr.active_mtu;
	if (attr.link_layer == IBV_LINK_LAYER_ETHERNET) {
		r = find_gid(context, port, table_len, &route);
		if (r < 0)
			return r;
	} else if (attr.lid != 0) {
		route.lid = attr.lid;
	} else {
		return -EADDRNOTAVAIL;
	}
	*ret_route = route;
	return 0;
}

int selftest_route_find(struct ibv_context *context, struct selftest_route *ret_route)
{
	struct ibv_device_attr attr;
	int table_len, port;
	int worst = -ENETDOWN;
	int r;

	r = from_result(ibv_query_device(context, &attr));
	if (r < 0)
		return r;
	table_len = gid_table_len(context, attr.phys_port_cnt);
	for (port = 1; port <= attr.phys_port_cnt; port++) {
		r = try_port(context, (uint8_t)port, table_len, ret_route);
		if (r == 0)
			break;
		if (r != -ENETDOWN)
			worst = r;
	}
	if (port > attr.phys_port_cnt)
		return worst;
	ret_route->qp_access =
		IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE;
	/* Where there are no atomics, mlx5 refuses a QP that asks for the right. */
	if (attr.atomic_cap != IBV_ATOMIC_NONE)
		ret_route->qp_access |= IBV_ACCESS_REMOTE_ATOMIC;
	return 0;
}

static int create_qp(struct selftest_pair *pair, struct ibv_pd *pd, struct ibv_qp **ret_qp)
{
	struct ibv_qp_init_attr attr = {
		.send_cq = pair->cq.cq,
		.recv_cq = pair->cq.cq,
		.qp_type = IBV_QPT_RC,
		.cap =
			{
				.max_send_wr = SELFTEST_CHAIN_MAX,
				.max_recv_wr = 1,
				.max_send_sge = 1,
				.max_recv_sge = 1,
			},
	};
	struct ibv_qp *qp;

	errno = 0;
	qp = ibv_create_qp(pd, &attr);
	if (qp == NULL)
		return from_errno();
	*ret_qp = qp;
	return 0;
}

static int to_init(struct ibv_qp *qp, const struct selftest_route *route)
{
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_INIT,
		.port_num = route->port,
		.qp_access_flags = route->qp_access,
	};
	int mask = IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS;

	return from_result(ibv_modify_qp(qp, &attr, mask));
}

static int to_rtr(struct ibv_qp *qp, const struct ibv_qp *peer, uint32_t psn,
		  const struct selftest_route *route)
{
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_RTR,
		.path_mtu = route->mtu,
		.dest_qp_num = peer->qp_num,
		.rq_psn = psn,
		.max_dest_rd_atomic = 1,
		.ah_attr = {.port_num = route->port, .dlid = route->lid},
	};
	int mask = IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
		   IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;

	if (route->lid == 0) {
		attr.ah_attr.is_global = 1;
		attr.ah_attr.grh.dgid = route->gid;
		attr.ah_attr.grh.sgid_index = route->gid_index;
		attr.ah_attr.grh.hop_limit = HOP_LIMIT;
	}
	return from_result(ibv_modify_qp(qp, &attr, mask));
}

static int to_rts(struct ibv_qp *qp, uint32_t psn)
{
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_RTS,
		.sq_psn = psn,
		.timeout = ACK_TIMEOUT,
		.retry_cnt = RETRIES,
		.max_rd_atomic = 1,
	};
	int mask = IBV_QP_STATE | IBV_QP_SQ_PSN | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT |
		   IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC;

	return from_result(ibv_modify_qp(qp, &attr, mask));
}

static int connect_pair(struct selftest_pair *pair, const struct selftest_route *route)
{
	uint32_t psn;
	int r;

	secure_random(&psn, sizeof(psn));
	psn &= PSN_MASK;
	r = to_init(pair->requester, route);
	if (r == 0)
		r = to_init(pair->responder, route);
	if (r == 0)
		r = to_rtr(pair->requester, pair->responder, psn, route);
	if (r == 0)
		r = to_rtr(pair->responder, pair->requester, psn, route);
	if (r == 0)
		r = to_rts(pair->requester, psn);
	if (r == 0)
		r = to_rts(pair->responder, psn);
	return r;
}

int selftest_pair_init(struct selftest_pair *pair, struct ibv_pd *pd,
		       const struct selftest_route *route)
{
	int r;

	*pair = (struct selftest_pair){0};
	r = verbs_cq_init(&pair->cq, pd->context, CQ_ENTRIES);
	if (r == 0)
		r = create_qp(pair, pd, &pair->requester);
	if (r == 0)
		r = create_qp(pair, pd, &pair->responder);
	if (r == 0)
		r = connect_pair(pair, route);
	/* If this fails too, the caller gets an error all the same. */
	if (r < 0)
		(void)selftest_pair_deinit(pair);
	return r;
}

static int destroy_qp(struct ibv_qp **qp)
{
	int r;

	if (*qp == NULL)
		return 0;
	r = from_result(ibv_destroy_qp(*qp));
	if (r == 0)
		*qp = NULL;
	return r;
}

int selftest_pair_deinit(struct selftest_pair *pair)
{
	int r;

	r = destroy_qp(&pair->requester);
	if (r == 0)
		r = destroy_qp(&pair->responder);
	if (r == 0)
		r = verbs_cq_deinit(&pair->cq);
	return r;
}

/* Return: how many completions came (at least 1), -ETIMEDOUT or another negative errno. */
static int wait_completions(struct verbs_cq *cq, int cap, uint64_t until_ns, struct ibv_wc *ret_wc)
{
	struct pollfd pollfd = {.fd = cq->channel->fd, .events = POLLIN};
	uint64_t left_ms;
	int r;

	for (;;) {
		r = verbs_poll_cq(cq->cq, cap, ret_wc);
		if (r != 0)
			return r;
		left_ms = clock_left_ms(until_ns, clock_now_ns());
		if (left_ms == 0)
			return -ETIMEDOUT;
		if (poll(&pollfd, 1, (int)left_ms) < 0 && errno != EINTR)
			return -errno;
		r = verbs_cq_rearm(cq);
		if (r < 0)
			return r;
	}
}

int selftest_pair_execute(struct selftest_pair *pair, struct ibv_qp *qp, struct ibv_send_wr *wr,
			  enum ibv_wc_status *ret_status)
{
	enum ibv_wc_status status = IBV_WC_SUCCESS;
	struct ibv_wc wc[SELFTEST_CHAIN_MAX];
	struct ibv_send_wr *each, *bad;
	uint64_t until_ns;
	int left = 0;
	int i, r;

	for (each = wr; each != NULL; each = each->next) {
		each->send_flags |= IBV_SEND_SIGNALED;
		left++;
	}
	r = verbs_post_send(qp, wr, &bad);
	if (r < 0)
		return r;
	until_ns = clock_add_ms(clock_now_ns(), SELFTEST_WAIT_MS);
	for (; left > 0; left -= r) {
		r = wait_completions(&pair->cq, left, until_ns, wc);
		if (r < 0)
			return r;
		for (i = 0; i < r; i++)
			if (status == IBV_WC_SUCCESS)
				status = wc[i].status;
	}
	*ret_status = status;
	return 0;
}
