/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef PROTO_PRIVATE_DATA_H
#define PROTO_PRIVATE_DATA_H

#include <stddef.h>
#include <stdint.h>

#include "proto/limits.h"

/*
 * What travels in the private data of rdma_cm's connect, accept and reject.
 * The receiver sees more bytes than were sent, with an undefined tail, so the
 * length is part of the data.
 */

enum private_data_kind {
	PRIVATE_DATA_CONTROL = 1, /* connect request of a control connection */
	PRIVATE_DATA_LANE = 2,	  /* connect request of a lane */
	PRIVATE_DATA_ACCEPT = 3,
	PRIVATE_DATA_REJECT = 4,
};

struct private_data {
	uint8_t kind;		      /* enum private_data_kind */
	uint16_t version;	      /* control: the client's; accept: the one that is used */
	uint16_t version_min;	      /* control: the lowest that the client speaks */
	uint64_t session_id;	      /* lane */
	uint32_t lane;		      /* lane */
	uint8_t mac[PROTO_MAC_BYTES]; /* lane; PROTOCOL.md says over what */
	uint32_t code;		      /* reject: an error code */
};

/**
 * private_data_encode() - write private data
 * @data: what; its kind decides which fields count
 * @buf: at least PROTO_PRIVATE_DATA_MAX bytes
 *
 * Return: the number of bytes written, PROTO_PRIVATE_DATA_MAX at most.
 */
uint8_t private_data_encode(const struct private_data *data, uint8_t *buf);

/**
 * private_data_decode() - read private data that a peer sent
 * @buf: may be NULL if @len_bytes is 0
 * @len_bytes: what rdma_cm says; the tail behind the encoded length is ignored
 * @ret_data: untouched on failure; fields that the kind does not have are 0
 *
 * Return: 0, or -EPROTO.
 */
int private_data_decode(const void *buf, size_t len_bytes, struct private_data *ret_data);

#endif
