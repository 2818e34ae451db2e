/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef CLIENT_BUFFER_H
#define CLIENT_BUFFER_H

#include <infiniband/verbs.h>
#include <stddef.h>
#include <stdint.h>

/* Pages of our own that a device may read and write locally. All zero: none. */
struct buffer {
	uint8_t *bytes;
	size_t len_bytes;
	struct ibv_mr *mr;
};

/** buffer_init() - map and register; Return: 0 or a negative errno */
int buffer_init(struct buffer *buffer, struct ibv_pd *pd, size_t len_bytes);

/** buffer_deinit() - no work request refers to it; what cannot be unregistered stays mapped */
void buffer_deinit(struct buffer *buffer);

#endif
