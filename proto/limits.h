/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef PROTO_LIMITS_H
#define PROTO_LIMITS_H

/* Limits that both ends rely on; a change here is a change of the protocol. */

#define PROTO_VERSION		1
#define PROTO_VERSION_MIN	1
#define PROTO_FRAME_MAX		8192 /* bytes of one SEND, and of the buffer of each receive */
#define PROTO_SEAL_BYTES	16   /* that sealing adds to a message */
#define PROTO_MESSAGE_MAX	(PROTO_FRAME_MAX - PROTO_SEAL_BYTES) /* header included */
#define PROTO_PRIVATE_DATA_MAX	56  /* bytes that RDMA_PS_TCP leaves us on InfiniBand */
#define PROTO_TENANT_NAME_MAX	64  /* bytes, without the terminating NUL */
#define PROTO_TEXT_MAX		256 /* bytes of an error text */
#define PROTO_INSTANCE_BYTES	16  /* of a client instance id */
#define PROTO_MAC_BYTES		16  /* of a lane's private data */
#define PROTO_SECRET_BYTES	16  /* of a lease's secret */
#define PROTO_LEASE_WINDOWS_MAX 64  /* windows of one lease on one lane */
#define PROTO_GRANT_DESCRIPTORS 64  /* descriptors in one grant message */
#define PROTO_NOTICE_LEASES	128 /* leases in one notice, release or released */
#define PROTO_ACQUIRE_LEASES	64  /* leases in one acquire */
#define PROTO_CREDITS_MIN	4   /* receives each end must post at least */
#define PROTO_CREDITS_MAX	4096

#endif
