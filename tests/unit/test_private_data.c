/* SPDX-License-Identifier: BSD-3-Clause */
/* Private data of rdma_cm: the bytes of every kind, and that nothing else is taken. */
#include "proto/private_data.h"

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/unit/random.h"
#include "tests/unit/test.h"

static const uint8_t control_bytes[] = {'m', 'p', 'l', 'd', 12, 1, 0, 0, 0x02, 0x03, 0x01, 0x02};
static const uint8_t lane_bytes[] = {'m',  'p',	 'l',  'd',  36,   2,	 0,    0,    0x08,
				     0x07, 0x06, 0x05, 0x04, 0x03, 0x02, 0x01, 0x0d, 0x0c,
				     0x0b, 0x0a, 0xa0, 0xa1, 0xa2, 0xa3, 0xa4, 0xa5, 0xa6,
				     0xa7, 0xa8, 0xa9, 0xaa, 0xab, 0xac, 0xad, 0xae, 0xaf};
static const uint8_t accept_bytes[] = {'m', 'p', 'l', 'd', 12, 3, 0, 0, 0x02, 0x01, 0, 0};
static const uint8_t reject_bytes[] = {'m', 'p', 'l', 'd', 12, 4, 0, 0, 0xea, 0x03, 0, 0};

static const struct sample {
	const uint8_t *bytes;
	size_t len_bytes;
	struct private_data data;
} samples[] = {
	{control_bytes,
	 sizeof(control_bytes),
	 {.kind = PRIVATE_DATA_CONTROL, .version = 0x0302, .version_min = 0x0201}},
	{lane_bytes,
	 sizeof(lane_bytes),
	 {.kind = PRIVATE_DATA_LANE,
	  .session_id = UINT64_C(0x0102030405060708),
	  .lane = 0x0a0b0c0d,
	  .mac = {0xa0, 0xa1, 0xa2, 0xa3, 0xa4, 0xa5, 0xa6, 0xa7, 0xa8, 0xa9, 0xaa, 0xab, 0xac,
		  0xad, 0xae, 0xaf}}},
	{accept_bytes, sizeof(accept_bytes), {.kind = PRIVATE_DATA_ACCEPT, .version = 0x0102}},
	{reject_bytes, sizeof(reject_bytes), {.kind = PRIVATE_DATA_REJECT, .code = 1002}},
};

#define SAMPLES	 (sizeof(samples) / sizeof(samples[0]))
#define TAIL_MAX ((size_t)256)

static void check_same(const struct private_data *actual, const struct private_data *expected)
{
	CHECK_INT(actual->kind, expected->kind);
	CHECK_INT(actual->version, expected->version);
	CHECK_INT(actual->version_min, expected->version_min);
	CHECK_INT(actual->session_id, expected->session_id);
	CHECK_INT(actual->lane, expected->lane);
	CHECK_MEM(actual->mac, expected->mac, sizeof(expected->mac));
	CHECK_INT(actual->code, expected->code);
}

/* Decodes from memory of exactly that length; a failure must leave the result alone. */
static int decode(const uint8_t *bytes, size_t len_bytes, struct private_data *ret_data)
{
	uint8_t *copy = malloc(len_bytes == 0 ? 1 : len_bytes);
	struct private_data before;
	int r;

	if (copy == NULL)
		abort();
	memcpy(copy, bytes, len_bytes);
	memset(ret_data, 0x5a, sizeof(*ret_data));
	memcpy(&before, ret_data, sizeof(before));
	r = private_data_decode(copy, len_bytes, ret_data);
	free(copy);
	if (r < 0 && memcmp(&before, ret_data, sizeof(before)) != 0)
		test_fail(__FILE__, __LINE__, "a failure changed the result");
	return r;
}

TEST(private_data_encode__bytes_of_every_kind)
{
	for (size_t i = 0; i < SAMPLES; i++) {
		uint8_t buf[PROTO_PRIVATE_DATA_MAX + 1];

		memset(buf, 0x5a, sizeof(buf));
		CHECK_INT(private_data_encode(&samples[i].data, buf), samples[i].len_bytes);
		CHECK_MEM(buf, samples[i].bytes, samples[i].len_bytes);
		CHECK_INT(buf[samples[i].len_bytes], 0x5a);
	}
}

TEST(private_data_decode__every_kind)
{
	for (size_t i = 0; i < SAMPLES; i++) {
		struct private_data data;

		CHECK_INT(decode(samples[i].bytes, samples[i].len_bytes, &data), 0);
		check_same(&data, &samples[i].data);
	}
}

/* Fields of other kinds are neither sent nor returned. */
TEST(private_data_decode__foreign_fields_zero)
{
	struct private_data all = {
		.version = 2, .version_min = 1, .session_id = 3, .lane = 4, .mac = {5}, .code = 6};

	for (uint8_t kind = PRIVATE_DATA_CONTROL; kind <= PRIVATE_DATA_REJECT; kind++) {
		struct private_data expected = {.kind = kind};
		uint8_t buf[PROTO_PRIVATE_DATA_MAX];
		struct private_data data;

		all.kind = kind;
		if (kind == PRIVATE_DATA_CONTROL || kind == PRIVATE_DATA_ACCEPT)
			expected.version = 2;
		if (kind == PRIVATE_DATA_CONTROL)
			expected.version_min = 1;
		if (kind == PRIVATE_DATA_LANE) {
			expected.session_id = 3;
			expected.lane = 4;
			expected.mac[0] = 5;
		}
		if (kind == PRIVATE_DATA_REJECT)
			expected.code = 6;
		CHECK_INT(decode(buf, private_data_encode(&all, buf), &data), 0);
		check_same(&data, &expected);
	}
}

TEST(private_data_decode__extreme_values)
{
	struct private_data lane = {
		.kind = PRIVATE_DATA_LANE, .session_id = UINT64_MAX, .lane = UINT32_MAX};
	struct private_data control = {
		.kind = PRIVATE_DATA_CONTROL, .version = UINT16_MAX, .version_min = UINT16_MAX};
	struct private_data reject = {.kind = PRIVATE_DATA_REJECT, .code = INT32_MAX};
	uint8_t buf[PROTO_PRIVATE_DATA_MAX];
	struct private_data data;

	memset(lane.mac, 0xff, sizeof(lane.mac));
	CHECK_INT(decode(buf, private_data_encode(&lane, buf), &data), 0);
	check_same(&data, &lane);
	CHECK_INT(decode(buf, private_data_encode(&control, buf), &data), 0);
	check_same(&data, &control);
	CHECK_INT(decode(buf, private_data_encode(&reject, buf), &data), 0);
	check_same(&data, &reject);
}

TEST(private_data_decode__tail_ignored)
{
	for (size_t i = 0; i < SAMPLES; i++) {
		uint8_t buf[196];
		struct private_data data;

		memset(buf, 0xee, sizeof(buf));
		memcpy(buf, samples[i].bytes, samples[i].len_bytes);
		CHECK_INT(decode(buf, samples[i].len_bytes + 1, &data), 0);
		CHECK_INT(decode(buf, PROTO_PRIVATE_DATA_MAX, &data), 0);
		CHECK_INT(decode(buf, sizeof(buf), &data), 0);
		check_same(&data, &samples[i].data);
	}
}

TEST(private_data_decode__truncated_at_every_byte)
{
	for (size_t i = 0; i < SAMPLES; i++) {
		for (size_t len_bytes = 0; len_bytes < samples[i].len_bytes; len_bytes++) {
			struct private_data data;

			CHECK_INT(decode(samples[i].bytes, len_bytes, &data), -EPROTO);
		}
	}
}

TEST(private_data_decode__nothing)
{
	struct private_data data;

	CHECK_INT(private_data_decode(NULL, 0, &data), -EPROTO);
}

/* Any other magic, length, kind or reserved bit: the first 8 bytes hold no freedom. */
TEST(private_data_decode__header_bit_flipped)
{
	for (size_t i = 0; i < SAMPLES; i++) {
		for (size_t bit = 0; bit < 64; bit++) {
			uint8_t buf[PROTO_PRIVATE_DATA_MAX] = {0};
			struct private_data data;
			int r;

			memcpy(buf, samples[i].bytes, samples[i].len_bytes);
			buf[bit / 8] ^= (uint8_t)(1u << bit % 8);
			r = decode(buf, sizeof(buf), &data);
			/* A flipped kind may be another kind of the same length. */
			if (bit / 8 == 5 && r == 0)
				CHECK(data.kind != samples[i].data.kind);
			else
				CHECK_INT(r, -EPROTO);
		}
	}
}

TEST(private_data_decode__kind_out_of_list)
{
	for (unsigned int kind = 0; kind <= UINT8_MAX; kind++) {
		uint8_t buf[PROTO_PRIVATE_DATA_MAX] = {'m', 'p', 'l', 'd'};
		struct private_data data;

		if (kind >= PRIVATE_DATA_CONTROL && kind <= PRIVATE_DATA_REJECT)
			continue;
		buf[5] = (uint8_t)kind;
		for (unsigned int len_bytes = 0; len_bytes <= sizeof(buf); len_bytes++) {
			buf[4] = (uint8_t)len_bytes;
			CHECK_INT(decode(buf, sizeof(buf), &data), -EPROTO);
		}
	}
}

TEST(private_data_decode__wrong_length_of_kind)
{
	for (size_t i = 0; i < SAMPLES; i++) {
		for (unsigned int len_bytes = 0; len_bytes <= UINT8_MAX; len_bytes++) {
			uint8_t buf[UINT8_MAX] = {0};
			struct private_data data;

			memcpy(buf, samples[i].bytes, samples[i].len_bytes);
			buf[4] = (uint8_t)len_bytes;
			CHECK_INT(decode(buf, sizeof(buf), &data),
				  len_bytes == samples[i].len_bytes ? 0 : -EPROTO);
		}
	}
}

TEST(private_data_decode__accept_reserved_bit_set)
{
	for (size_t bit = 0; bit < 16; bit++) {
		uint8_t buf[sizeof(accept_bytes)];
		struct private_data data;

		memcpy(buf, accept_bytes, sizeof(buf));
		buf[10 + bit / 8] ^= (uint8_t)(1u << bit % 8);
		CHECK_INT(decode(buf, sizeof(buf), &data), -EPROTO);
	}
}

static int decode_control(uint8_t version, uint8_t version_min)
{
	uint8_t buf[] = {'m', 'p', 'l', 'd', 12, 1, 0, 0, version, 0, version_min, 0};
	struct private_data data;

	return decode(buf, sizeof(buf), &data);
}

TEST(private_data_decode__control_versions)
{
	CHECK_INT(decode_control(1, 1), 0);
	CHECK_INT(decode_control(2, 1), 0);
	CHECK_INT(decode_control(2, 2), 0);
	CHECK_INT(decode_control(2, 3), -EPROTO);
	CHECK_INT(decode_control(1, 0), -EPROTO);
	CHECK_INT(decode_control(0, 0), -EPROTO);
}

TEST(private_data_decode__reject_codes)
{
	static const struct {
		uint8_t code[4];
		int expected;
	} cases[] = {
		{{0, 0, 0, 0}, -EPROTO},
		{{1, 0, 0, 0}, 0},
		{{0xff, 0xff, 0xff, 0x7f}, 0},
		{{0, 0, 0, 0x80}, -EPROTO},
		{{0xff, 0xff, 0xff, 0xff}, -EPROTO},
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		uint8_t buf[sizeof(reject_bytes)];
		struct private_data data;

		memcpy(buf, reject_bytes, sizeof(buf));
		memcpy(buf + 8, cases[i].code, 4);
		CHECK_INT(decode(buf, sizeof(buf), &data), cases[i].expected);
	}
}

static void fill_random(struct random *random, uint8_t *buf, size_t len_bytes)
{
	for (size_t i = 0; i < len_bytes; i++)
		buf[i] = (uint8_t)random_next(random);
}

/* Of any length that rdma_cm can say, whatever the bytes are that nobody has sent. */
TEST(field_45_private_data__any_length_with_any_tail)
{
	struct random random = random_start();

	for (size_t i = 0; i < SAMPLES; i++) {
		for (size_t len_bytes = 0; len_bytes <= TAIL_MAX; len_bytes++) {
			bool whole = len_bytes >= samples[i].len_bytes;
			struct private_data data;
			uint8_t buf[TAIL_MAX];

			fill_random(&random, buf, sizeof(buf));
			memcpy(buf, samples[i].bytes, samples[i].len_bytes);
			CHECK_INT(decode(buf, len_bytes, &data), whole ? 0 : -EPROTO);
			if (whole)
				check_same(&data, &samples[i].data);
		}
	}
}

static uint32_t number_at(const uint8_t *buf, size_t len_bytes)
{
	uint32_t number = 0;

	while (len_bytes-- > 0)
		number = number << 8 | buf[len_bytes];
	return number;
}

/* What the fields behind the header must be, by PROTOCOL.md. */
static bool is_allowed(uint8_t kind, const uint8_t *fields)
{
	uint32_t first = number_at(fields, 2);
	uint32_t second = number_at(fields + 2, 2);
	uint32_t code = number_at(fields, 4);

	switch (kind) {
	case PRIVATE_DATA_CONTROL:
		return second >= 1 && second <= first;
	case PRIVATE_DATA_ACCEPT:
		return second == 0;
	case PRIVATE_DATA_REJECT:
		return code >= 1 && code <= INT32_MAX;
	default:
		return true;
	}
}

/* A header as it should be, and anything behind it. */
TEST(field_45_private_data__any_length_with_any_fields)
{
	struct random random = random_start();
	uint32_t taken = 0;

	for (size_t round = 0; round < 100 * SAMPLES; round++) {
		const struct sample *sample = &samples[round % SAMPLES];

		for (size_t len_bytes = 0; len_bytes <= TAIL_MAX; len_bytes++) {
			struct private_data data;
			uint8_t buf[TAIL_MAX];
			bool good;

			fill_random(&random, buf, sizeof(buf));
			memcpy(buf, sample->bytes, 8);
			good = len_bytes >= sample->len_bytes && is_allowed(buf[5], buf + 8);
			CHECK_INT(decode(buf, len_bytes, &data), good ? 0 : -EPROTO);
			taken += good;
		}
	}
	printf("# %u of %zu taken\n", taken, 100 * SAMPLES * (TAIL_MAX + 1));
	CHECK(taken > 0);
}
