/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef CLIENT_SPLIT_H
#define CLIENT_SPLIT_H

#include <stdbool.h>
#include <stdint.h>

#include "proto/message.h"

/* What one work request can carry of an operation. Pure. */
struct split_piece {
	uint64_t remote_addr;
	uint32_t rkey;
	uint32_t len_bytes;
};

/**
 * split_next() - the piece that begins at an offset
 * @descriptor: covers @offset_bytes
 * @left_bytes: of the operation, from there; not 0
 * @max_bytes: of one work request; not 0
 */
void split_next(const struct message_descriptor *descriptor, uint64_t offset_bytes,
		uint64_t left_bytes, uint32_t max_bytes, struct split_piece *ret_piece);

#define SPLIT_WORD_BYTES 8u /* of an atomic operation */

/**
 * split_word() - the piece of an atomic operation
 * @descriptor: covers @offset_bytes
 *
 * Return: false if the word is not aligned, or lies in two windows: no operation is atomic then.
 */
bool split_word(const struct message_descriptor *descriptor, uint64_t offset_bytes,
		struct split_piece *ret_piece);

#endif
