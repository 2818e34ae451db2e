/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Where operations are cut: windows, the greatest message, words in one window or two.
 */
#include "client/split.h"

#include <string.h>

#include "tests/unit/test.h"

#define BASE UINT64_C(0x7f0000001000)
#define KEY  0x1234u

/* The second window of a lease. */
static const struct message_descriptor window = {
	.offset_bytes = 65536,
	.len_bytes = 65536,
	.remote_addr = BASE,
	.rkey = KEY,
};

static void check_piece(uint64_t offset_bytes, uint64_t left_bytes, uint32_t max_bytes,
			uint32_t expected_bytes)
{
	struct split_piece piece;

	split_next(&window, offset_bytes, left_bytes, max_bytes, &piece);
	CHECK_INT(piece.len_bytes, expected_bytes);
	CHECK_INT(piece.remote_addr, BASE + offset_bytes - 65536);
	CHECK_INT(piece.rkey, KEY);
}

TEST(split_next__what_ends_first)
{
	check_piece(65536, 1, 4096, 1);
	check_piece(65536, 4096, 4096, 4096);
	check_piece(65536, 4097, 4096, 4096);
	check_piece(65536, 65536, UINT32_MAX, 65536);
	check_piece(65536, 65537, UINT32_MAX, 65536);
	check_piece(131071, 1, 4096, 1);
	check_piece(131071, 2, 4096, 1);
	check_piece(131071, UINT64_MAX, UINT32_MAX, 1);
	check_piece(126976, 8192, 4096, 4096);
	check_piece(126977, 8192, 4096, 4095);
	check_piece(65537, UINT64_MAX, 1, 1);
}

/* A window may be longer than what the length of a work request can say. */
TEST(split_next__window_of_8_gib)
{
	struct message_descriptor big = {.len_bytes = UINT64_C(8) << 30, .remote_addr = BASE};
	struct split_piece piece;

	split_next(&big, 0, UINT64_C(8) << 30, UINT32_MAX, &piece);
	CHECK_INT(piece.len_bytes, UINT32_MAX);
	split_next(&big, (UINT64_C(8) << 30) - 3, UINT64_C(8) << 30, UINT32_MAX, &piece);
	CHECK_INT(piece.len_bytes, 3);
	CHECK_INT(piece.remote_addr, BASE + (UINT64_C(8) << 30) - 3);
}

/* All pieces of an operation together are the operation. */
TEST(split_next__pieces_add_up)
{
	uint64_t offset_bytes = 65536 + 17;
	uint64_t left_bytes = 65536 - 17;
	struct split_piece piece;
	uint32_t pieces = 0;

	while (left_bytes > 0) {
		split_next(&window, offset_bytes, left_bytes, 1000, &piece);
		CHECK(piece.len_bytes > 0 && piece.len_bytes <= left_bytes);
		CHECK_INT(piece.remote_addr - BASE, offset_bytes - 65536);
		offset_bytes += piece.len_bytes;
		left_bytes -= piece.len_bytes;
		pieces++;
	}
	CHECK_INT(offset_bytes, 131072);
	CHECK_INT(pieces, 66);
}

TEST(split_word__aligned_and_in_one_window)
{
	struct split_piece piece;

	CHECK(split_word(&window, 65536, &piece));
	CHECK_INT(piece.remote_addr, BASE);
	CHECK_INT(piece.len_bytes, 8);
	CHECK(split_word(&window, 131064, &piece));
	CHECK_INT(piece.remote_addr, BASE + 65528);
	for (uint64_t i = 1; i < 8; i++)
		CHECK(!split_word(&window, 65536 + i, &piece));
}

/* A lease of 12 bytes that grew: its second word lies in two windows. */
TEST(split_word__in_two_windows)
{
	struct message_descriptor first = {.len_bytes = 12, .remote_addr = BASE};
	struct message_descriptor second = {
		.offset_bytes = 12, .len_bytes = 20, .remote_addr = BASE + 12};
	struct split_piece before;
	struct split_piece piece;

	CHECK(split_word(&first, 0, &piece));
	memset(&piece, 0x5a, sizeof(piece));
	before = piece;
	CHECK(!split_word(&first, 8, &piece));
	CHECK_MEM(&piece, &before, sizeof(piece));
	CHECK(split_word(&second, 16, &piece));
	CHECK_INT(piece.remote_addr, BASE + 16);
	CHECK(split_word(&second, 24, &piece));
}
