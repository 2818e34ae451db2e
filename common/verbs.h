/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef COMMON_VERBS_H
#define COMMON_VERBS_H

#include <infiniband/verbs.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/*
 * The verbs calls of both sides. Thin on purpose: this is the boundary at which tests
 * inject faults, by linking other functions in the place of these.
 */

int verbs_post_send(struct ibv_qp *qp, struct ibv_send_wr *wr, struct ibv_send_wr **ret_bad);
int verbs_post_recv(struct ibv_qp *qp, struct ibv_recv_wr *wr, struct ibv_recv_wr **ret_bad);

/** verbs_poll_cq() - Return: number of completions, or -EIO */
int verbs_poll_cq(struct ibv_cq *cq, int cap, struct ibv_wc *ret_wc);

/** verbs_reg_mr() - may block; Return: 0 or a negative errno */
int verbs_reg_mr(struct ibv_pd *pd, void *addr, size_t len_bytes, int access,
		 struct ibv_mr **ret_mr);

/** verbs_dereg_mr() - may block; NULL is allowed; Return: 0 or a negative errno (the MR lives on) */
int verbs_dereg_mr(struct ibv_mr *mr);

/** verbs_alloc_mw() - a Type 2 window; Return: 0 or a negative errno */
int verbs_alloc_mw(struct ibv_pd *pd, struct ibv_mw **ret_mw);

/** verbs_dealloc_mw() - bound or not; Return: 0 or a negative errno (the window lives on) */
int verbs_dealloc_mw(struct ibv_mw *mw);

/** verbs_qp_state() - ask the device; Return: an enum ibv_qp_state, or a negative errno */
int verbs_qp_state(struct ibv_qp *qp);

/** verbs_qp_to_error() - flush a QP; Return: 0 or a negative errno */
int verbs_qp_to_error(struct ibv_qp *qp);

/**
 * verbs_qp_set_min_rnr_timer() - let the peer retry after 0.01 ms
 *
 * rdma_cm leaves the value at 0, which means 655 ms (InfiniBand, table "RNR NAK timer field").
 * Only in RTR or RTS. Return: 0 or a negative errno.
 */
int verbs_qp_set_min_rnr_timer(struct ibv_qp *qp);

/** verbs_modify_qp() - Return: 0 or a negative errno */
int verbs_modify_qp(struct ibv_qp *qp, struct ibv_qp_attr *attr, int mask);

/** verbs_destroy_qp() - may block; NULL is allowed; Return: 0 or a negative errno (the QP lives on) */
int verbs_destroy_qp(struct ibv_qp *qp);

/** verbs_async_fd() - readable when verbs_get_async_event() has something */
int verbs_async_fd(const struct ibv_context *context);

/** verbs_get_async_event() - each event got is acknowledged once; Return: 0 or a negative errno */
int verbs_get_async_event(struct ibv_context *context, struct ibv_async_event *ret_event);
void verbs_ack_async_event(struct ibv_async_event *event);

/* A completion queue with a channel of its own. */
struct verbs_cq {
	struct ibv_comp_channel *channel;
	struct ibv_cq *cq;
	uint32_t entries;  /* that the device gave */
	uint32_t reserved; /* by QPs that use the queue */
};

/** verbs_cq_init() - non-blocking channel, armed; Return: 0 or a negative errno */
int verbs_cq_init(struct verbs_cq *cq, struct ibv_context *context, uint32_t entries);

/** verbs_cq_deinit() - all zero is allowed; Return: 0, or the first negative errno of a destroy call */
int verbs_cq_deinit(struct verbs_cq *cq);

/** verbs_cq_reserve() - claim entries for a QP; Return: false if there are not enough left */
bool verbs_cq_reserve(struct verbs_cq *cq, uint32_t entries);
void verbs_cq_unreserve(struct verbs_cq *cq, uint32_t entries);

/**
 * verbs_cq_rearm() - take all events of the channel, acknowledge them, ask for the next
 *
 * The caller polls afterwards, so that nothing that came before the request is missed.
 * Return: 0 or a negative errno.
 */
int verbs_cq_rearm(struct verbs_cq *cq);

/** verbs_set_nonblocking() - and close-on-exec; Return: 0 or a negative errno */
int verbs_set_nonblocking(int fd);

#endif
