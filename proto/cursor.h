/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef PROTO_CURSOR_H
#define PROTO_CURSOR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/*
 * Bounded reading and writing of little-endian fields, one after the other.
 * The first access that does not fit latches a failure: from then on reads give
 * zeros and writes do nothing, so a caller checks once, at the end.
 */

struct cursor_reader {
	const uint8_t *next;
	size_t left_bytes;
	bool failed;
};

struct cursor_writer {
	uint8_t *next;
	size_t left_bytes;
	size_t written_bytes;
	bool failed;
};

/**
 * cursor_reader_init() - read from the start of a buffer
 * @buf: must outlive the reader; may be NULL if @len_bytes is 0
 */
void cursor_reader_init(struct cursor_reader *reader, const void *buf, size_t len_bytes);

uint8_t cursor_read_u8(struct cursor_reader *reader);
uint16_t cursor_read_u16(struct cursor_reader *reader);
uint32_t cursor_read_u32(struct cursor_reader *reader);
uint64_t cursor_read_u64(struct cursor_reader *reader);

/**
 * cursor_read_bytes() - copy bytes out
 * @ret_bytes: room for @len_bytes; untouched on failure
 */
void cursor_read_bytes(struct cursor_reader *reader, void *ret_bytes, size_t len_bytes);

/**
 * cursor_read_string() - read a 16-bit length and that many bytes
 * @ret_text: room for @max_bytes and a NUL; always terminated, empty on failure
 *
 * Fails if the length is above @max_bytes or a byte is NUL.
 */
void cursor_read_string(struct cursor_reader *reader, char *ret_text, size_t max_bytes);

/**
 * cursor_fail() - latch a failure: a value that was read is not allowed
 */
void cursor_fail(struct cursor_reader *reader);

/**
 * cursor_reader_is_done() - has all been read, to the last byte and without failure?
 */
bool cursor_reader_is_done(const struct cursor_reader *reader);

/**
 * cursor_writer_init() - write from the start of a buffer
 * @buf: must outlive the writer; may be NULL if @cap_bytes is 0
 */
void cursor_writer_init(struct cursor_writer *writer, void *buf, size_t cap_bytes);

void cursor_write_u8(struct cursor_writer *writer, uint8_t value);
void cursor_write_u16(struct cursor_writer *writer, uint16_t value);
void cursor_write_u32(struct cursor_writer *writer, uint32_t value);
void cursor_write_u64(struct cursor_writer *writer, uint64_t value);
void cursor_write_bytes(struct cursor_writer *writer, const void *bytes, size_t len_bytes);

/**
 * cursor_write_string() - write a 16-bit length and the bytes of a string
 * @text: without its NUL; fails if it is longer than 65535 bytes
 */
void cursor_write_string(struct cursor_writer *writer, const char *text);

#endif
