/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef TESTS_STORY_TENANT_H
#define TESTS_STORY_TENANT_H

#include <infiniband/verbs.h>
#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "client/include/mempool.h"
#include "proto/message.h"
#include "tests/story/operator.h"

/*
 * A tenant: a session and one lease. Functions return 0, or -1 having told what failed.
 *
 * What is called raw goes around all checks of the library: any address and key is posted on
 * the tenant's own data connection, and the answer is the device's.
 */

#define TENANT_RAW_BYTES 4096u /* of each raw access */

struct tenant {
	const char *name;
	mempool *pool;
	mempool_lease *lease;
	uint64_t id; /* of the lease */
	uint64_t len_bytes;
	uint64_t ttl_ms;
	uint64_t renewed_ns;  /* just before the last tenant_renew() or tenant_acquire() ... */
	uint64_t answered_ns; /* ... and just after */
	bool held;	      /* the keeper runs */
	pthread_t keeper;
	int stop_fd;
	unsigned int renewals; /* by the keeper; valid when it has ended */
};

/** tenant_connect() - open a session with the operator's daemon, with the key that he has made */
int tenant_connect(struct tenant *tenant, const char *name, const struct operator* op);

/** tenant_acquire() - a lease for reading and writing */
int tenant_acquire(struct tenant *tenant, uint64_t len_bytes, uint64_t ttl_ms, uint32_t wait_ms);

/** tenant_hold() - have a thread renew the lease over and over, until it ends */
int tenant_hold(struct tenant *tenant);

/** tenant_let_go() - end that thread; not having one is allowed */
void tenant_let_go(struct tenant *tenant);

/** tenant_renew() - renew the lease once */
int tenant_renew(struct tenant *tenant);

/** tenant_write() - from the start of the lease */
int tenant_write(struct tenant *tenant, const uint8_t *bytes, size_t len_bytes);

/** tenant_read() - from the start of the lease */
int tenant_read(struct tenant *tenant, uint8_t *bytes, size_t len_bytes);

/** tenant_check_ended() - the library, too, must say that the lease is over, and why */
int tenant_check_ended(struct tenant *tenant, int expected_code);

/** tenant_descriptor() - address and key of the lease's first bytes */
const struct message_descriptor *tenant_descriptor(const struct tenant *tenant);

/**
 * tenant_raw() - one raw access of TENANT_RAW_BYTES
 * @opcode: IBV_WR_RDMA_READ or IBV_WR_RDMA_WRITE
 * @bytes: written from here, or read to here
 * @ret_status: what the device said
 */
int tenant_raw(struct tenant *tenant, enum ibv_wr_opcode opcode,
	       const struct message_descriptor *descriptor, uint8_t *bytes,
	       enum ibv_wc_status *ret_status);

/** tenant_close() - end the session; not being open is allowed */
void tenant_close(struct tenant *tenant);

#endif
