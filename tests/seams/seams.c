/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Faults for mempoold-seam: the daemon as it is, but with some of the thin calls of
 * common/verbs.h led through here by the linker (--wrap). MEMPOOLD_SEAM names the fault;
 * without it nothing is changed.
 *
 *	skip-invalidate  a local invalidate completes with success, in its turn, and has
 *			 invalidated nothing; a guard is said to be deregistered and is not,
 *			 since the device would refuse that while its window is bound
 *
 * The self-test of the start is left alone: the fault begins with the first connection, which
 * is the first QP that rdma_cm makes.
 *
 * Thread: the loop, and the verbs worker for deregistration.
 */
#include <rdma/rdma_cma.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "common/verbs.h"

int __real_rdma_create_qp(struct rdma_cm_id *id, struct ibv_pd *pd, struct ibv_qp_init_attr *attr);
int __wrap_rdma_create_qp(struct rdma_cm_id *id, struct ibv_pd *pd, struct ibv_qp_init_attr *attr);
int __real_verbs_post_send(struct ibv_qp *qp, struct ibv_send_wr *wr, struct ibv_send_wr **ret_bad);
int __wrap_verbs_post_send(struct ibv_qp *qp, struct ibv_send_wr *wr, struct ibv_send_wr **ret_bad);
int __real_verbs_dereg_mr(struct ibv_mr *mr);
int __wrap_verbs_dereg_mr(struct ibv_mr *mr);

static atomic_bool seam_armed;

static bool seam_is(const char *name)
{
	const char *seam = getenv("MEMPOOLD_SEAM");

	return seam != NULL && strcmp(seam, name) == 0 && atomic_load(&seam_armed);
}

int __wrap_rdma_create_qp(struct rdma_cm_id *id, struct ibv_pd *pd, struct ibv_qp_init_attr *attr)
{
	atomic_store(&seam_armed, true);
	return __real_rdma_create_qp(id, pd, attr);
}

int __wrap_verbs_post_send(struct ibv_qp *qp, struct ibv_send_wr *wr, struct ibv_send_wr **ret_bad)
{
	/* A write of no bytes needs no key and reaches no memory. */
	for (struct ibv_send_wr *at = wr; at != NULL && seam_is("skip-invalidate"); at = at->next) {
		if (at->opcode != IBV_WR_LOCAL_INV)
			continue;
		at->opcode = IBV_WR_RDMA_WRITE;
		at->sg_list = NULL;
		at->num_sge = 0;
		at->wr.rdma.remote_addr = 0;
		at->wr.rdma.rkey = 0;
	}
	return __real_verbs_post_send(qp, wr, ret_bad);
}

int __wrap_verbs_dereg_mr(struct ibv_mr *mr)
{
	return seam_is("skip-invalidate") ? 0 : __real_verbs_dereg_mr(mr);
}
