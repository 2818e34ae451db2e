/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Bounded reader and writer: byte order, every bound to the byte, latched failure.
 * Buffers come from malloc with their exact length, so that an address sanitizer
 * sees an access one byte outside.
 */
#include "proto/cursor.h"

#include <stdlib.h>
#include <string.h>

#include "tests/unit/test.h"

static const uint8_t counting[15] = {0x01, 0x02, 0x03, 0x04, 0x05, 0x06, 0x07, 0x08,
				     0x09, 0x0a, 0x0b, 0x0c, 0x0d, 0x0e, 0x0f};

static uint8_t *exact_copy(const void *bytes, size_t len_bytes)
{
	uint8_t *copy = malloc(len_bytes == 0 ? 1 : len_bytes);

	if (copy == NULL)
		abort();
	memcpy(copy, bytes, len_bytes);
	return copy;
}

TEST(cursor_read__little_endian)
{
	struct cursor_reader reader;

	cursor_reader_init(&reader, counting, sizeof(counting));
	CHECK_INT(cursor_read_u8(&reader), 0x01);
	CHECK_INT(cursor_read_u16(&reader), 0x0302);
	CHECK_INT(cursor_read_u32(&reader), 0x07060504);
	CHECK(!cursor_reader_is_done(&reader));
	CHECK_INT(cursor_read_u64(&reader), UINT64_C(0x0f0e0d0c0b0a0908));
	CHECK(cursor_reader_is_done(&reader));
	CHECK(!reader.failed);
}

TEST(cursor_read__highest_values)
{
	uint8_t ones[15];
	struct cursor_reader reader;

	memset(ones, 0xff, sizeof(ones));
	cursor_reader_init(&reader, ones, sizeof(ones));
	CHECK_INT(cursor_read_u8(&reader), UINT8_MAX);
	CHECK_INT(cursor_read_u16(&reader), UINT16_MAX);
	CHECK_INT(cursor_read_u32(&reader), UINT32_MAX);
	CHECK_INT(cursor_read_u64(&reader), UINT64_MAX);
	CHECK(cursor_reader_is_done(&reader));
}

static uint64_t read_width(struct cursor_reader *reader, size_t width)
{
	switch (width) {
	case 1:
		return cursor_read_u8(reader);
	case 2:
		return cursor_read_u16(reader);
	case 4:
		return cursor_read_u32(reader);
	default:
		return cursor_read_u64(reader);
	}
}

TEST(cursor_read__every_width_in_every_length)
{
	static const size_t widths[] = {1, 2, 4, 8};

	for (size_t i = 0; i < sizeof(widths) / sizeof(widths[0]); i++) {
		for (size_t len_bytes = 0; len_bytes <= 9; len_bytes++) {
			bool fits = len_bytes >= widths[i];
			uint8_t *buf = exact_copy(counting, len_bytes);
			struct cursor_reader reader;
			uint64_t value;

			cursor_reader_init(&reader, buf, len_bytes);
			value = read_width(&reader, widths[i]);
			free(buf);
			CHECK_INT(reader.failed, !fits);
			CHECK_INT(value != 0, fits);
			CHECK_INT(cursor_reader_is_done(&reader), len_bytes == widths[i]);
		}
	}
}

TEST(cursor_read__failure_is_latched)
{
	struct cursor_reader reader;
	uint8_t bytes[2] = {0xaa, 0xaa};

	cursor_reader_init(&reader, counting, 3);
	CHECK_INT(cursor_read_u32(&reader), 0);
	CHECK(reader.failed);
	CHECK_INT(cursor_read_u8(&reader), 0);
	CHECK_INT(cursor_read_u16(&reader), 0);
	cursor_read_bytes(&reader, bytes, 2);
	CHECK_INT(bytes[0], 0xaa);
	CHECK_INT(reader.left_bytes, 3);
	CHECK(!cursor_reader_is_done(&reader));
}

TEST(cursor_read__empty_buffer)
{
	struct cursor_reader reader;
	uint8_t byte = 0xaa;

	cursor_reader_init(&reader, NULL, 0);
	CHECK(cursor_reader_is_done(&reader));
	cursor_read_bytes(&reader, &byte, 0);
	CHECK(cursor_reader_is_done(&reader));
	CHECK_INT(cursor_read_u8(&reader), 0);
	CHECK(reader.failed);
	CHECK_INT(byte, 0xaa);
}

TEST(cursor_read_bytes__exact_and_one_more)
{
	uint8_t *buf = exact_copy(counting, 4);
	uint8_t exact[4] = {0};
	uint8_t longer[5] = {0};
	struct cursor_reader exact_reader;
	struct cursor_reader longer_reader;

	cursor_reader_init(&exact_reader, buf, 4);
	cursor_read_bytes(&exact_reader, exact, 4);
	cursor_reader_init(&longer_reader, buf, 4);
	cursor_read_bytes(&longer_reader, longer, 5);
	free(buf);
	CHECK(cursor_reader_is_done(&exact_reader));
	CHECK_MEM(exact, counting, 4);
	CHECK(longer_reader.failed);
	CHECK_MEM(longer, "\0\0\0\0\0", 5);
}

TEST(cursor_read_bytes__length_that_would_wrap)
{
	struct cursor_reader reader;
	uint8_t out = 0x77;

	cursor_reader_init(&reader, counting, sizeof(counting));
	cursor_read_bytes(&reader, &out, SIZE_MAX);
	CHECK(reader.failed);
	CHECK_INT(out, 0x77);
}

TEST(cursor_fail__stops_reading)
{
	struct cursor_reader reader;

	cursor_reader_init(&reader, counting, 1);
	cursor_fail(&reader);
	CHECK_INT(cursor_read_u8(&reader), 0);
	CHECK(!cursor_reader_is_done(&reader));
}

/* Reads a string from exactly these bytes into room for 3 bytes and a NUL. */
static bool read_string(const char *bytes, size_t len_bytes, char *ret_text)
{
	uint8_t *buf = exact_copy(bytes, len_bytes);
	char *text = malloc(4);
	struct cursor_reader reader;

	if (text == NULL)
		abort();
	memset(text, 'x', 4);
	cursor_reader_init(&reader, buf, len_bytes);
	cursor_read_string(&reader, text, 3);
	memcpy(ret_text, text, 4);
	free(text);
	free(buf);
	return cursor_reader_is_done(&reader);
}

TEST(cursor_read_string__lengths)
{
	char text[4];

	CHECK(read_string("\0\0", 2, text));
	CHECK_STR(text, "");
	CHECK(read_string("\1\0a", 3, text));
	CHECK_STR(text, "a");
	CHECK(read_string("\3\0abc", 5, text));
	CHECK_STR(text, "abc");
	CHECK(!read_string("\4\0abcd", 6, text));
	CHECK_STR(text, "");
	CHECK(!read_string("\xff\xff"
			   "abc",
			   5, text));
	CHECK_STR(text, "");
}

TEST(cursor_read_string__truncated)
{
	char text[4];

	for (size_t len_bytes = 0; len_bytes < 5; len_bytes++) {
		CHECK(!read_string("\3\0abc", len_bytes, text));
		CHECK_STR(text, "");
	}
}

TEST(cursor_read_string__nul_inside)
{
	char text[4];

	CHECK(!read_string("\3\0\0bc", 5, text));
	CHECK_STR(text, "");
	CHECK(!read_string("\3\0ab\0", 5, text));
	CHECK_STR(text, "");
}

TEST(cursor_write__little_endian)
{
	uint8_t buf[15] = {0};
	struct cursor_writer writer;

	cursor_writer_init(&writer, buf, sizeof(buf));
	cursor_write_u8(&writer, 0x01);
	cursor_write_u16(&writer, 0x0302);
	cursor_write_u32(&writer, 0x07060504);
	cursor_write_u64(&writer, UINT64_C(0x0f0e0d0c0b0a0908));
	CHECK(!writer.failed);
	CHECK_INT(writer.written_bytes, 15);
	CHECK_INT(writer.left_bytes, 0);
	CHECK_MEM(buf, counting, sizeof(buf));
}

static void write_width(struct cursor_writer *writer, size_t width)
{
	switch (width) {
	case 1:
		cursor_write_u8(writer, UINT8_MAX);
		break;
	case 2:
		cursor_write_u16(writer, UINT16_MAX);
		break;
	case 4:
		cursor_write_u32(writer, UINT32_MAX);
		break;
	default:
		cursor_write_u64(writer, UINT64_MAX);
		break;
	}
}

TEST(cursor_write__every_width_in_every_room)
{
	static const uint8_t zeros[9];
	static const size_t widths[] = {1, 2, 4, 8};

	for (size_t i = 0; i < sizeof(widths) / sizeof(widths[0]); i++) {
		for (size_t cap_bytes = 0; cap_bytes <= 9; cap_bytes++) {
			bool fits = cap_bytes >= widths[i];
			uint8_t *buf = exact_copy(zeros, cap_bytes);
			struct cursor_writer writer;
			size_t changed = 0;

			cursor_writer_init(&writer, buf, cap_bytes);
			write_width(&writer, widths[i]);
			for (size_t k = 0; k < cap_bytes; k++)
				changed += buf[k] == 0xff;
			free(buf);
			CHECK_INT(writer.failed, !fits);
			CHECK_INT(changed, fits ? widths[i] : 0);
			CHECK_INT(writer.written_bytes, changed);
		}
	}
}

TEST(cursor_write__failure_is_latched)
{
	uint8_t buf[3] = {0};
	struct cursor_writer writer;

	cursor_writer_init(&writer, buf, sizeof(buf));
	cursor_write_u32(&writer, UINT32_MAX);
	cursor_write_u8(&writer, 0xff);
	cursor_write_bytes(&writer, counting, 1);
	CHECK(writer.failed);
	CHECK_INT(writer.written_bytes, 0);
	CHECK_MEM(buf, "\0\0\0", 3);
}

TEST(cursor_write_bytes__exact_and_one_more)
{
	uint8_t buf[4] = {0};
	struct cursor_writer writer;

	cursor_writer_init(&writer, buf, sizeof(buf));
	cursor_write_bytes(&writer, counting, 4);
	CHECK(!writer.failed);
	CHECK_MEM(buf, counting, 4);
	cursor_write_bytes(&writer, counting, 0);
	CHECK(!writer.failed);
	cursor_write_bytes(&writer, counting, 1);
	CHECK(writer.failed);
}

TEST(cursor_write_string__without_nul)
{
	uint8_t buf[5] = {0};
	struct cursor_writer writer;

	cursor_writer_init(&writer, buf, sizeof(buf));
	cursor_write_string(&writer, "abc");
	CHECK(!writer.failed);
	CHECK_INT(writer.written_bytes, 5);
	CHECK_MEM(buf, "\3\0abc", 5);

	cursor_writer_init(&writer, buf, 4);
	cursor_write_string(&writer, "abc");
	CHECK(writer.failed);
}

TEST(cursor_write_string__longest_and_one_more)
{
	size_t cap_bytes = UINT16_MAX + 3;
	uint8_t *buf = malloc(cap_bytes);
	char *text = malloc(UINT16_MAX + 2);
	struct cursor_writer longest;
	struct cursor_writer longer;

	if (buf == NULL || text == NULL)
		abort();
	memset(text, 'a', UINT16_MAX + 1);
	text[UINT16_MAX + 1] = '\0';
	cursor_writer_init(&longer, buf, cap_bytes);
	cursor_write_string(&longer, text);
	text[UINT16_MAX] = '\0';
	cursor_writer_init(&longest, buf, cap_bytes);
	cursor_write_string(&longest, text);
	free(text);
	free(buf);
	CHECK(longer.failed);
	CHECK_INT(longer.written_bytes, 0);
	CHECK(!longest.failed);
	CHECK_INT(longest.written_bytes, UINT16_MAX + 2);
}
