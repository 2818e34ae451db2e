/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Where an operation is cut: at the end of the window, and where a message of the device, or
 * what we want to have in one, ends.
 *
 * Thread: any; there is no state.
 */
#include "client/split.h"

void split_next(const struct message_descriptor *descriptor, uint64_t offset_bytes,
		uint64_t left_bytes, uint32_t max_bytes, struct split_piece *ret_piece)
{
	uint64_t into_bytes = offset_bytes - descriptor->offset_bytes;
	uint64_t len_bytes = descriptor->len_bytes - into_bytes;

	if (len_bytes > left_bytes)
		len_bytes = left_bytes;
	if (len_bytes > max_bytes)
		len_bytes = max_bytes;
	*ret_piece = (struct split_piece){
		.remote_addr = descriptor->remote_addr + into_bytes,
		.rkey = descriptor->rkey,
		.len_bytes = (uint32_t)len_bytes,
	};
}

bool split_word(const struct message_descriptor *descriptor, uint64_t offset_bytes,
		struct split_piece *ret_piece)
{
	struct split_piece piece;

	split_next(descriptor, offset_bytes, SPLIT_WORD_BYTES, SPLIT_WORD_BYTES, &piece);
	if (offset_bytes % SPLIT_WORD_BYTES != 0 || piece.remote_addr % SPLIT_WORD_BYTES != 0 ||
	    piece.len_bytes != SPLIT_WORD_BYTES)
		return false;
	*ret_piece = piece;
	return true;
}
