/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Encoder and decoder of rdma_cm's private data. The layouts are the same in
 * all versions of the protocol, since they are what the version is agreed on
 * with; so each kind has one fixed length. Pure code, any thread.
 */
#include "proto/private_data.h"

#include <assert.h>
#include <errno.h>
#include <stdbool.h>

#include "proto/cursor.h"

#define MAGIC UINT32_C(0x646c706d) /* "mpld" as bytes */

enum {
	HEADER_BYTES = 8,
	CONTROL_BYTES = HEADER_BYTES + 2 + 2,
	LANE_BYTES = HEADER_BYTES + 8 + 4 + PROTO_MAC_BYTES,
	ACCEPT_BYTES = HEADER_BYTES + 2 + 2,
	REJECT_BYTES = HEADER_BYTES + 4,
};

_Static_assert(LANE_BYTES <= PROTO_PRIVATE_DATA_MAX, "the longest kind must fit");

/* Length of a kind, header included; 0 for numbers that are no kind. */
static size_t kind_bytes(uint8_t kind)
{
	switch (kind) {
	case PRIVATE_DATA_CONTROL:
		return CONTROL_BYTES;
	case PRIVATE_DATA_LANE:
		return LANE_BYTES;
	case PRIVATE_DATA_ACCEPT:
		return ACCEPT_BYTES;
	case PRIVATE_DATA_REJECT:
		return REJECT_BYTES;
	default:
		return 0;
	}
}

static bool is_valid(const struct private_data *data)
{
	switch (data->kind) {
	case PRIVATE_DATA_CONTROL:
		return data->version_min != 0 && data->version_min <= data->version;
	case PRIVATE_DATA_REJECT:
		return data->code != 0 && data->code <= INT32_MAX;
	default:
		return true;
	}
}

static void write_fields(struct cursor_writer *writer, const struct private_data *data)
{
	switch (data->kind) {
	case PRIVATE_DATA_CONTROL:
		cursor_write_u16(writer, data->version);
		cursor_write_u16(writer, data->version_min);
		break;
	case PRIVATE_DATA_LANE:
		cursor_write_u64(writer, data->session_id);
		cursor_write_u32(writer, data->lane);
		cursor_write_bytes(writer, data->mac, sizeof(data->mac));
		break;
	case PRIVATE_DATA_ACCEPT:
		cursor_write_u16(writer, data->version);
		cursor_write_u16(writer, 0);
		break;
	case PRIVATE_DATA_REJECT:
		cursor_write_u32(writer, data->code);
		break;
	}
}

static void read_fields(struct cursor_reader *reader, struct private_data *data)
{
	switch (data->kind) {
	case PRIVATE_DATA_CONTROL:
		data->version = cursor_read_u16(reader);
		data->version_min = cursor_read_u16(reader);
		break;
	case PRIVATE_DATA_LANE:
		data->session_id = cursor_read_u64(reader);
		data->lane = cursor_read_u32(reader);
		cursor_read_bytes(reader, data->mac, sizeof(data->mac));
		break;
	case PRIVATE_DATA_ACCEPT:
		data->version = cursor_read_u16(reader);
		if (cursor_read_u16(reader) != 0)
			cursor_fail(reader);
		break;
	case PRIVATE_DATA_REJECT:
		data->code = cursor_read_u32(reader);
		break;
	}
}

uint8_t private_data_encode(const struct private_data *data, uint8_t *buf)
{
	size_t len_bytes = kind_bytes(data->kind);
	struct cursor_writer writer;

	assert(len_bytes != 0 && is_valid(data));

	cursor_writer_init(&writer, buf, PROTO_PRIVATE_DATA_MAX);
	cursor_write_u32(&writer, MAGIC);
	cursor_write_u8(&writer, (uint8_t)len_bytes);
	cursor_write_u8(&writer, data->kind);
	cursor_write_u16(&writer, 0);
	write_fields(&writer, data);
	assert(!writer.failed && writer.written_bytes == len_bytes);
	return (uint8_t)len_bytes;
}

int private_data_decode(const void *buf, size_t len_bytes, struct private_data *ret_data)
{
	struct private_data data = {0};
	struct cursor_reader reader;
	uint8_t encoded_bytes;

	cursor_reader_init(&reader, buf, len_bytes);
	if (cursor_read_u32(&reader) != MAGIC)
		return -EPROTO;
	encoded_bytes = cursor_read_u8(&reader);
	data.kind = cursor_read_u8(&reader);
	if (encoded_bytes == 0 || encoded_bytes != kind_bytes(data.kind))
		return -EPROTO;
	if (cursor_read_u16(&reader) != 0)
		return -EPROTO;
	read_fields(&reader, &data);
	if (reader.failed || !is_valid(&data))
		return -EPROTO;

	*ret_data = data;
	return 0;
}
