/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Bounded reader and writer. A reader never touches a byte outside
 * [next, next + left_bytes), a writer neither; a failed one touches nothing at
 * all. Pure code, any thread.
 */
#include "proto/cursor.h"

#include <string.h>

void cursor_reader_init(struct cursor_reader *reader, const void *buf, size_t len_bytes)
{
	*reader = (struct cursor_reader){.next = buf, .left_bytes = len_bytes};
}

/* The next bytes, or NULL. */
static const uint8_t *take(struct cursor_reader *reader, size_t len_bytes)
{
	const uint8_t *bytes = reader->next;

	if (reader->failed || len_bytes > reader->left_bytes) {
		reader->failed = true;
		return NULL;
	}
	reader->next += len_bytes;
	reader->left_bytes -= len_bytes;
	return bytes;
}

static uint64_t read_uint(struct cursor_reader *reader, size_t len_bytes)
{
	const uint8_t *bytes = take(reader, len_bytes);
	uint64_t value = 0;

	if (bytes == NULL)
		return 0;
	for (size_t i = len_bytes; i > 0; i--)
		value = value << 8 | bytes[i - 1];
	return value;
}

uint8_t cursor_read_u8(struct cursor_reader *reader)
{
	return (uint8_t)read_uint(reader, 1);
}

uint16_t cursor_read_u16(struct cursor_reader *reader)
{
	return (uint16_t)read_uint(reader, 2);
}

uint32_t cursor_read_u32(struct cursor_reader *reader)
{
	return (uint32_t)read_uint(reader, 4);
}

uint64_t cursor_read_u64(struct cursor_reader *reader)
{
	return read_uint(reader, 8);
}

void cursor_read_bytes(struct cursor_reader *reader, void *ret_bytes, size_t len_bytes)
{
	const uint8_t *bytes;

	/* Nothing to take: next may be NULL, which is no failure then. */
	if (len_bytes == 0)
		return;
	bytes = take(reader, len_bytes);
	if (bytes != NULL)
		memcpy(ret_bytes, bytes, len_bytes);
}

void cursor_read_string(struct cursor_reader *reader, char *ret_text, size_t max_bytes)
{
	size_t len_bytes = cursor_read_u16(reader);
	const uint8_t *bytes;

	ret_text[0] = '\0';
	if (len_bytes == 0)
		return;
	if (len_bytes > max_bytes) {
		cursor_fail(reader);
		return;
	}
	bytes = take(reader, len_bytes);
	if (bytes == NULL)
		return;
	if (memchr(bytes, '\0', len_bytes) != NULL) {
		cursor_fail(reader);
		return;
	}
	memcpy(ret_text, bytes, len_bytes);
	ret_text[len_bytes] = '\0';
}

void cursor_fail(struct cursor_reader *reader)
{
	reader->failed = true;
}

bool cursor_reader_is_done(const struct cursor_reader *reader)
{
	return !reader->failed && reader->left_bytes == 0;
}

void cursor_writer_init(struct cursor_writer *writer, void *buf, size_t cap_bytes)
{
	*writer = (struct cursor_writer){.next = buf, .left_bytes = cap_bytes};
}

/* Room for the next bytes, or NULL. */
static uint8_t *reserve(struct cursor_writer *writer, size_t len_bytes)
{
	uint8_t *bytes = writer->next;

	if (writer->failed || len_bytes > writer->left_bytes) {
		writer->failed = true;
		return NULL;
	}
	writer->next += len_bytes;
	writer->left_bytes -= len_bytes;
	writer->written_bytes += len_bytes;
	return bytes;
}

static void write_uint(struct cursor_writer *writer, uint64_t value, size_t len_bytes)
{
	uint8_t *bytes = reserve(writer, len_bytes);

	if (bytes == NULL)
		return;
	for (size_t i = 0; i < len_bytes; i++) {
		bytes[i] = (uint8_t)(value & 0xff);
		value >>= 8;
	}
}

void cursor_write_u8(struct cursor_writer *writer, uint8_t value)
{
	write_uint(writer, value, 1);
}

void cursor_write_u16(struct cursor_writer *writer, uint16_t value)
{
	write_uint(writer, value, 2);
}

void cursor_write_u32(struct cursor_writer *writer, uint32_t value)
{
	write_uint(writer, value, 4);
}

void cursor_write_u64(struct cursor_writer *writer, uint64_t value)
{
	write_uint(writer, value, 8);
}

void cursor_write_bytes(struct cursor_writer *writer, const void *bytes, size_t len_bytes)
{
	uint8_t *to;

	if (len_bytes == 0)
		return;
	to = reserve(writer, len_bytes);
	if (to != NULL)
		memcpy(to, bytes, len_bytes);
}

void cursor_write_string(struct cursor_writer *writer, const char *text)
{
	size_t len_bytes = strlen(text);

	if (len_bytes > UINT16_MAX) {
		writer->failed = true;
		return;
	}
	cursor_write_u16(writer, (uint16_t)len_bytes);
	cursor_write_bytes(writer, text, len_bytes);
}
