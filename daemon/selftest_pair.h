/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef DAEMON_SELFTEST_PAIR_H
#define DAEMON_SELFTEST_PAIR_H

#include <infiniband/verbs.h>
#include <stdint.h>

#include "common/verbs.h"

/* Two RC queue pairs of this process that are connected to each other through a port. */

#define SELFTEST_WAIT_MS   2000 /* for the completions of one post */
#define SELFTEST_CHAIN_MAX 4	/* work requests in one post */

/* How the device reaches itself. */
struct selftest_route {
	uint8_t port;
	enum ibv_mtu mtu;
	uint16_t lid;	   /* InfiniBand; 0 on Ethernet */
	uint8_t gid_index; /* Ethernet: a RoCE v2 address */
	union ibv_gid gid;
	unsigned int qp_access; /* all the remote rights that the device knows */
};

struct selftest_pair {
	struct verbs_cq cq; /* of both */
	struct ibv_qp *requester;
	struct ibv_qp *responder;
};

/**
 * selftest_route_find() - the first active port with an address
 *
 * Return: 0, -ENETDOWN if no port is active, -EADDRNOTAVAIL if none that is has an address that
 * serves, or another negative errno.
 */
int selftest_route_find(struct ibv_context *context, struct selftest_route *ret_route);

/** selftest_pair_init() - create and connect; Return: 0 or a negative errno */
int selftest_pair_init(struct selftest_pair *pair, struct ibv_pd *pd,
		       const struct selftest_route *route);

/**
 * selftest_pair_deinit() - after the windows of both are gone; all zero is allowed
 *
 * Return: 0, or the negative errno of the destroy call that failed (what is left lives on).
 */
int selftest_pair_deinit(struct selftest_pair *pair);

/**
 * selftest_pair_execute() - post a chain on one of the two and wait for it
 * @wr: SELFTEST_CHAIN_MAX at most, all signalled
 * @ret_status: of the first that did not succeed, or IBV_WC_SUCCESS
 *
 * After anything but 0 and IBV_WC_SUCCESS the pair can only be destroyed.
 * Return: 0, -ETIMEDOUT or another negative errno.
 */
int selftest_pair_execute(struct selftest_pair *pair, struct ibv_qp *qp, struct ibv_send_wr *wr,
			  enum ibv_wc_status *ret_status);

#endif
