/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Thin, checked verbs calls. They turn the library's different ways of reporting failure
 * (-1 and errno, a positive errno, NULL) into 0 or a negative errno, and own nothing but
 * the completion queue with its channel.
 *
 * Thread: any; one object is used by one thread at a time.
 */
#include "common/verbs.h"

#include <errno.h>
#include <fcntl.h>

/* The library reports a positive errno or -1 with errno set, depending on the call and provider. */
static int verbs_result(int r)
{
	if (r == 0)
		return 0;
	if (r > 0)
		return -r;
	return errno != 0 ? -errno : -EIO;
}

int verbs_post_send(struct ibv_qp *qp, struct ibv_send_wr *wr, struct ibv_send_wr **ret_bad)
{
	return verbs_result(ibv_post_send(qp, wr, ret_bad));
}

int verbs_post_recv(struct ibv_qp *qp, struct ibv_recv_wr *wr, struct ibv_recv_wr **ret_bad)
{
	return verbs_result(ibv_post_recv(qp, wr, ret_bad));
}

int verbs_poll_cq(struct ibv_cq *cq, int cap, struct ibv_wc *ret_wc)
{
	int n = ibv_poll_cq(cq, cap, ret_wc);

	return n < 0 ? -EIO : n;
}

int verbs_reg_mr(struct ibv_pd *pd, void *addr, size_t len_bytes, int access,
		 struct ibv_mr **ret_mr)
{
	struct ibv_mr *mr;

	errno = 0;
	mr = ibv_reg_mr(pd, addr, len_bytes, (unsigned int)access);
	if (mr == NULL)
		return verbs_result(-1);
	*ret_mr = mr;
	return 0;
}

int verbs_dereg_mr(struct ibv_mr *mr)
{
	errno = 0;
	return mr == NULL ? 0 : verbs_result(ibv_dereg_mr(mr));
}

int verbs_alloc_mw(struct ibv_pd *pd, struct ibv_mw **ret_mw)
{
	struct ibv_mw *mw;

	errno = 0;
	mw = ibv_alloc_mw(pd, IBV_MW_TYPE_2);
	if (mw == NULL)
		return verbs_result(-1);
	*ret_mw = mw;
	return 0;
}

int verbs_dealloc_mw(struct ibv_mw *mw)
{
	errno = 0;
	return verbs_result(ibv_dealloc_mw(mw));
}

int verbs_qp_state(struct ibv_qp *qp)
{
	struct ibv_qp_init_attr init_attr;
	struct ibv_qp_attr attr;
	int r;

	errno = 0;
	r = verbs_result(ibv_query_qp(qp, &attr, IBV_QP_STATE, &init_attr));
	return r < 0 ? r : (int)attr.qp_state;
}

int verbs_qp_to_error(struct ibv_qp *qp)
{
	struct ibv_qp_attr attr = {.qp_state = IBV_QPS_ERR};

	errno = 0;
	return verbs_result(ibv_modify_qp(qp, &attr, IBV_QP_STATE));
}

int verbs_qp_set_min_rnr_timer(struct ibv_qp *qp)
{
	struct ibv_qp_attr attr = {.qp_state = IBV_QPS_RTS, .min_rnr_timer = 1};

	errno = 0;
	return verbs_result(ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_MIN_RNR_TIMER));
}

int verbs_modify_qp(struct ibv_qp *qp, struct ibv_qp_attr *attr, int mask)
{
	errno = 0;
	return verbs_result(ibv_modify_qp(qp, attr, mask));
}

int verbs_destroy_qp(struct ibv_qp *qp)
{
	errno = 0;
	return qp == NULL ? 0 : verbs_result(ibv_destroy_qp(qp));
}

int verbs_async_fd(const struct ibv_context *context)
{
	return context->async_fd;
}

int verbs_get_async_event(struct ibv_context *context, struct ibv_async_event *ret_event)
{
	errno = 0;
	return verbs_result(ibv_get_async_event(context, ret_event));
}

void verbs_ack_async_event(struct ibv_async_event *event)
{
	ibv_ack_async_event(event);
}

int verbs_set_nonblocking(int fd)
{
	int flags = fcntl(fd, F_GETFL);

	if (flags < 0 || fcntl(fd, F_SETFL, flags | O_NONBLOCK) < 0 ||
	    fcntl(fd, F_SETFD, FD_CLOEXEC) < 0)
		return -errno;
	return 0;
}

int verbs_cq_init(struct verbs_cq *cq, struct ibv_context *context, uint32_t entries)
{
	struct ibv_comp_channel *channel;
	struct ibv_cq *queue;
	int r;

	errno = 0;
	channel = ibv_create_comp_channel(context);
	if (channel == NULL)
		return verbs_result(-1);
	r = verbs_set_nonblocking(channel->fd);
	if (r < 0)
		goto err_destroy_channel;
	queue = ibv_create_cq(context, (int)entries, NULL, channel, 0);
	if (queue == NULL) {
		r = verbs_result(-1);
		goto err_destroy_channel;
	}
	r = verbs_result(ibv_req_notify_cq(queue, 0));
	if (r < 0)
		goto err_destroy_queue;
	*cq = (struct verbs_cq){
		.channel = channel,
		.cq = queue,
		.entries = queue->cqe > 0 ? (uint32_t)queue->cqe : entries,
	};
	return 0;

err_destroy_queue:
	(void)ibv_destroy_cq(queue);
err_destroy_channel:
	(void)ibv_destroy_comp_channel(channel);
	return r;
}

int verbs_cq_deinit(struct verbs_cq *cq)
{
	int first = 0;
	int r;

	if (cq->cq != NULL) {
		first = verbs_result(ibv_destroy_cq(cq->cq));
		if (first < 0)
			return first;
		cq->cq = NULL;
	}
	if (cq->channel != NULL) {
		r = verbs_result(ibv_destroy_comp_channel(cq->channel));
		if (r < 0)
			return r;
		cq->channel = NULL;
	}
	return 0;
}

bool verbs_cq_reserve(struct verbs_cq *cq, uint32_t entries)
{
	if (entries > cq->entries - cq->reserved)
		return false;
	cq->reserved += entries;
	return true;
}

void verbs_cq_unreserve(struct verbs_cq *cq, uint32_t entries)
{
	cq->reserved -= entries;
}

int verbs_cq_rearm(struct verbs_cq *cq)
{
	struct ibv_cq *which;
	unsigned int got = 0;
	void *context;

	while (ibv_get_cq_event(cq->channel, &which, &context) == 0)
		got++;
	if (got > 0)
		ibv_ack_cq_events(cq->cq, got);
	return verbs_result(ibv_req_notify_cq(cq->cq, 0));
}
