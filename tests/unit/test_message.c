/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The messages of the control channel: their exact bytes, a round trip of every
 * type with its lowest, ordinary and highest values, and that the decoder takes
 * nothing but what the encoder can make. All decoding is done from memory of the
 * exact length, so that an address sanitizer sees a read one byte outside.
 */
#include "proto/message.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "proto/error.h"
#include "tests/unit/test.h"

#define HEADER		 MESSAGE_HEADER_BYTES
#define ACQUIRE_COUNT_AT (HEADER + 28)
#define GRANT_COUNT_AT	 (HEADER + 52)
#define GRANT_FIXED	 54
#define DESCRIPTOR	 28

enum variant {
	LOWEST,
	ORDINARY,
	HIGHEST,
	VARIANT_END,
};

static const uint16_t types[] = {
	MESSAGE_HELLO,	    MESSAGE_WELCOME,	  MESSAGE_ERROR,	MESSAGE_BYE,
	MESSAGE_CREDIT,	    MESSAGE_PING,	  MESSAGE_PONG,		MESSAGE_LANE_OPEN,
	MESSAGE_LANE_OFFER, MESSAGE_LANE_CONFIRM, MESSAGE_LANE_READY,	MESSAGE_LANE_LOST,
	MESSAGE_ACQUIRE,    MESSAGE_GRANT,	  MESSAGE_RENEW,	MESSAGE_RENEWED,
	MESSAGE_RELEASE,    MESSAGE_RELEASED,	  MESSAGE_LEASES_ENDED, MESSAGE_ATTACH,
	MESSAGE_REVOKE,	    MESSAGE_REVOKED,	  MESSAGE_MODIFY,	MESSAGE_QUIESCE,
	MESSAGE_QUIESCED,   MESSAGE_REATTACH,	  MESSAGE_DRAIN,
};

#define TYPES (sizeof(types) / sizeof(types[0]))

_Static_assert(TYPES == MESSAGE_TYPE_END - 1, "every type is tested");

/* A number of a variant; salt keeps the fields of one message apart. */
static uint64_t number(enum variant variant, uint64_t salt)
{
	switch (variant) {
	case LOWEST:
		return 0;
	case ORDINARY:
		return UINT64_C(0x1112131415161700) + salt * UINT64_C(0x0101010101010101);
	default:
		return UINT64_MAX;
	}
}

static uint32_t number32(enum variant variant, uint64_t salt)
{
	return (uint32_t)number(variant, salt);
}

static uint32_t code_of(enum variant variant)
{
	static const uint32_t codes[VARIANT_END] = {1, ERROR_EXPIRED, INT32_MAX};

	return codes[variant];
}

static uint16_t count_of(enum variant variant, uint16_t max)
{
	if (variant == LOWEST)
		return 1;
	return variant == ORDINARY ? 3 : max;
}

static uint16_t receives_of(enum variant variant)
{
	static const uint16_t receives[VARIANT_END] = {PROTO_CREDITS_MIN, 32, PROTO_CREDITS_MAX};

	return receives[variant];
}

static void fill_hello(struct message *m, enum variant variant)
{
	m->u.hello.version = (uint16_t)number(variant, 1);
	m->u.hello.receives = receives_of(variant);
	for (size_t i = 0; i < PROTO_INSTANCE_BYTES; i++)
		m->u.hello.instance[i] = (uint8_t)number(variant, 2 + i);
}

static void fill_welcome(struct message *m, enum variant variant)
{
	m->u.welcome.version = (uint16_t)number(variant, 1);
	m->u.welcome.receives = receives_of(variant);
	m->u.welcome.session_id = number(variant, 2);
	m->u.welcome.ttl_default_ms = number(variant, 3);
	m->u.welcome.ttl_max_ms = number(variant, 4);
	m->u.welcome.window_max_bytes = number(variant, 5);
	m->u.welcome.page_bytes = number32(variant, 6);
	m->u.welcome.read_depth = number32(variant, 7);
	m->u.welcome.rights = number32(variant, 8);
	m->u.welcome.heartbeat_ms = number32(variant, 9);
	m->u.welcome.isolation = number32(variant, 10);
	m->u.welcome.enforced = number32(variant, 11);
}

static void fill_error(struct message *m, enum variant variant)
{
	m->u.error.code = code_of(variant);
	if (variant == ORDINARY)
		strcpy(m->u.error.text, "no lane 7 ~");
	else if (variant == HIGHEST)
		memset(m->u.error.text, '~', PROTO_TEXT_MAX);
}

static void fill_secret(uint8_t secret[PROTO_SECRET_BYTES], enum variant variant)
{
	for (size_t i = 0; i < PROTO_SECRET_BYTES; i++)
		secret[i] = (uint8_t)number(variant, 2 + i);
}

static void fill_grant(struct message *m, enum variant variant)
{
	m->flags = variant == LOWEST ? 0 : MESSAGE_FLAG_MORE;
	m->u.grant.lease_id = number(variant, 1);
	m->u.grant.len_bytes = number(variant, 2);
	m->u.grant.ttl_ms = number(variant, 3);
	m->u.grant.generation = number32(variant, 4);
	m->u.grant.rights = number32(variant, 5);
	m->u.grant.lane = number32(variant, 6);
	fill_secret(m->u.grant.secret, variant);
	m->u.grant.descriptor_count = count_of(variant, PROTO_GRANT_DESCRIPTORS);
	for (size_t i = 0; i < m->u.grant.descriptor_count; i++) {
		m->u.grant.descriptors[i].offset_bytes = number(variant, 7 + 4 * i);
		m->u.grant.descriptors[i].len_bytes = number(variant, 8 + 4 * i);
		m->u.grant.descriptors[i].remote_addr = number(variant, 9 + 4 * i);
		m->u.grant.descriptors[i].rkey = number32(variant, 10 + 4 * i);
	}
}

static void fill_leases(struct message *m, enum variant variant)
{
	m->u.leases.count = count_of(variant, PROTO_NOTICE_LEASES);
	for (size_t i = 0; i < m->u.leases.count; i++)
		m->u.leases.lease_ids[i] = number(variant, i);
}

static void fill_released(struct message *m, enum variant variant)
{
	m->u.released.count = count_of(variant, PROTO_NOTICE_LEASES);
	for (size_t i = 0; i < m->u.released.count; i++) {
		m->u.released.released[i].lease_id = number(variant, i);
		m->u.released.released[i].code = variant == LOWEST ? 0 : code_of(variant);
	}
}

static void fill_revoke(struct message *m, enum variant variant)
{
	m->u.revoke.count = count_of(variant, PROTO_NOTICE_LEASES);
	for (size_t i = 0; i < m->u.revoke.count; i++) {
		m->u.revoke.revoked[i].lease_id = number(variant, 2 * i);
		m->u.revoke.revoked[i].grace_ms = number32(variant, 2 * i + 1);
	}
}

static void fill_leases_ended(struct message *m, enum variant variant)
{
	m->u.leases_ended.count = count_of(variant, PROTO_NOTICE_LEASES);
	for (size_t i = 0; i < m->u.leases_ended.count; i++) {
		m->u.leases_ended.ended[i].lease_id = number(variant, i);
		m->u.leases_ended.ended[i].reason = code_of(variant);
	}
}

static void fill_payload(struct message *m, enum variant variant)
{
	switch (m->type) {
	case MESSAGE_HELLO:
		fill_hello(m, variant);
		break;
	case MESSAGE_WELCOME:
		fill_welcome(m, variant);
		break;
	case MESSAGE_ERROR:
		fill_error(m, variant);
		break;
	case MESSAGE_LANE_OFFER:
		m->u.lane_offer.lane = number32(variant, 1);
		m->u.lane_offer.expires_ms = number32(variant, 2);
		break;
	case MESSAGE_LANE_CONFIRM:
		m->u.lane_confirm.lane = number32(variant, 1);
		m->u.lane_confirm.daemon_qpn = number32(variant, 2);
		m->u.lane_confirm.client_qpn = number32(variant, 3);
		break;
	case MESSAGE_LANE_READY:
	case MESSAGE_LANE_LOST:
		m->u.lane.lane = number32(variant, 1);
		break;
	case MESSAGE_ACQUIRE:
		m->u.acquire.len_bytes = number(variant, 1);
		m->u.acquire.ttl_ms = number(variant, 2);
		m->u.acquire.rights = number32(variant, 3);
		m->u.acquire.lane = number32(variant, 4);
		m->u.acquire.wait_ms = number32(variant, 5);
		m->u.acquire.count = count_of(variant, PROTO_ACQUIRE_LEASES);
		break;
	case MESSAGE_GRANT:
		fill_grant(m, variant);
		break;
	case MESSAGE_RENEW:
	case MESSAGE_RENEWED:
		m->u.renew.lease_id = number(variant, 1);
		m->u.renew.ttl_ms = number(variant, 2);
		break;
	case MESSAGE_RELEASE:
	case MESSAGE_REVOKED:
		fill_leases(m, variant);
		break;
	case MESSAGE_RELEASED:
		fill_released(m, variant);
		break;
	case MESSAGE_LEASES_ENDED:
		fill_leases_ended(m, variant);
		break;
	case MESSAGE_ATTACH:
		m->u.attach.lease_id = number(variant, 1);
		m->u.attach.lane = number32(variant, 2);
		break;
	case MESSAGE_REATTACH:
		m->u.reattach.lease_id = number(variant, 1);
		fill_secret(m->u.reattach.secret, variant);
		m->u.reattach.lane = number32(variant, 2);
		break;
	case MESSAGE_REVOKE:
		fill_revoke(m, variant);
		break;
	case MESSAGE_DRAIN:
		m->u.drain.left_ms = number(variant, 1);
		m->u.drain.draining = variant != LOWEST;
		break;
	case MESSAGE_MODIFY:
		m->u.modify.lease_id = number(variant, 1);
		m->u.modify.len_bytes = number(variant, 2);
		m->u.modify.rights = number32(variant, 3);
		break;
	case MESSAGE_QUIESCE:
	case MESSAGE_QUIESCED:
		m->u.lease.lease_id = number(variant, 1);
		break;
	}
}

static bool has_no_id(uint16_t type)
{
	switch (type) {
	case MESSAGE_BYE:
	case MESSAGE_CREDIT:
	case MESSAGE_LANE_LOST:
	case MESSAGE_LEASES_ENDED:
	case MESSAGE_REVOKE:
	case MESSAGE_REVOKED:
	case MESSAGE_QUIESCE:
	case MESSAGE_QUIESCED:
	case MESSAGE_DRAIN:
		return true;
	default:
		return false;
	}
}

static void fill(struct message *m, uint16_t type, enum variant variant)
{
	static const uint64_t ids[VARIANT_END] = {1, UINT64_C(0x2122232425262728), UINT64_MAX};
	static const uint16_t credits[VARIANT_END] = {0, 17, PROTO_CREDITS_MAX};

	memset(m, 0, sizeof(*m));
	m->type = type;
	m->credits = credits[variant];
	if (!has_no_id(type))
		m->request_id = ids[variant];
	/* An error is the one message that may go either way. */
	if (type == MESSAGE_ERROR && variant == LOWEST)
		m->request_id = 0;
	fill_payload(m, variant);
}

static size_t encode(const struct message *m, uint8_t *buf)
{
	size_t len_bytes = 0;

	if (message_encode(m, buf, PROTO_MESSAGE_MAX, &len_bytes) != 0)
		abort();
	return len_bytes;
}

static size_t encode_sample(uint16_t type, enum variant variant, uint8_t *buf)
{
	struct message m;

	fill(&m, type, variant);
	return encode(&m, buf);
}

/* Decodes from memory of exactly that length; a failure must leave the result alone. */
static int decode(const uint8_t *bytes, size_t len_bytes, struct message *ret_m)
{
	static struct message before;
	uint8_t *copy = malloc(len_bytes == 0 ? 1 : len_bytes);
	int r;

	if (copy == NULL)
		abort();
	memcpy(copy, bytes, len_bytes);
	memset(ret_m, 0x5a, sizeof(*ret_m));
	memset(&before, 0x5a, sizeof(before));
	r = message_decode(copy, len_bytes, ret_m);
	free(copy);
	if (r != 0 && memcmp(&before, ret_m, sizeof(before)) != 0)
		test_fail(__FILE__, __LINE__, "a failure changed the result");
	return r;
}

static int decode_only(const uint8_t *bytes, size_t len_bytes)
{
	struct message m;

	return decode(bytes, len_bytes, &m);
}

static void put_u16(uint8_t *at, uint16_t value)
{
	at[0] = (uint8_t)(value & 0xff);
	at[1] = (uint8_t)(value >> 8);
}

static void put_u32(uint8_t *at, uint32_t value)
{
	put_u16(at, (uint16_t)(value & 0xffff));
	put_u16(at + 2, (uint16_t)(value >> 16));
}

static void put_u64(uint8_t *at, uint64_t value)
{
	put_u32(at, (uint32_t)value);
	put_u32(at + 4, (uint32_t)(value >> 32));
}

/* Makes the header agree with the length of the whole message. */
static void put_payload_bytes(uint8_t *buf, size_t len_bytes)
{
	put_u32(buf + 4, (uint32_t)(len_bytes - HEADER));
}

static void check_same_welcome(const struct message_welcome *a, const struct message_welcome *e)
{
	CHECK_INT(a->version, e->version);
	CHECK_INT(a->receives, e->receives);
	CHECK_INT(a->session_id, e->session_id);
	CHECK_INT(a->ttl_default_ms, e->ttl_default_ms);
	CHECK_INT(a->ttl_max_ms, e->ttl_max_ms);
	CHECK_INT(a->window_max_bytes, e->window_max_bytes);
	CHECK_INT(a->page_bytes, e->page_bytes);
	CHECK_INT(a->read_depth, e->read_depth);
	CHECK_INT(a->rights, e->rights);
	CHECK_INT(a->heartbeat_ms, e->heartbeat_ms);
	CHECK_INT(a->isolation, e->isolation);
	CHECK_INT(a->enforced, e->enforced);
}

static void check_same_grant(const struct message_grant *a, const struct message_grant *e)
{
	CHECK_INT(a->lease_id, e->lease_id);
	CHECK_INT(a->len_bytes, e->len_bytes);
	CHECK_INT(a->ttl_ms, e->ttl_ms);
	CHECK_INT(a->generation, e->generation);
	CHECK_INT(a->rights, e->rights);
	CHECK_INT(a->lane, e->lane);
	CHECK_MEM(a->secret, e->secret, PROTO_SECRET_BYTES);
	CHECK_INT(a->descriptor_count, e->descriptor_count);
	for (size_t i = 0; i < e->descriptor_count; i++) {
		CHECK_INT(a->descriptors[i].offset_bytes, e->descriptors[i].offset_bytes);
		CHECK_INT(a->descriptors[i].len_bytes, e->descriptors[i].len_bytes);
		CHECK_INT(a->descriptors[i].remote_addr, e->descriptors[i].remote_addr);
		CHECK_INT(a->descriptors[i].rkey, e->descriptors[i].rkey);
	}
}

static void check_same_leases(const struct message_leases *a, const struct message_leases *e)
{
	CHECK_INT(a->count, e->count);
	for (size_t i = 0; i < e->count; i++)
		CHECK_INT(a->lease_ids[i], e->lease_ids[i]);
}

static void check_same_released(const struct message_released *a, const struct message_released *e)
{
	CHECK_INT(a->count, e->count);
	for (size_t i = 0; i < e->count; i++) {
		CHECK_INT(a->released[i].lease_id, e->released[i].lease_id);
		CHECK_INT(a->released[i].code, e->released[i].code);
	}
}

static void check_same_revoke(const struct message_revoke *a, const struct message_revoke *e)
{
	CHECK_INT(a->count, e->count);
	for (size_t i = 0; i < e->count; i++) {
		CHECK_INT(a->revoked[i].lease_id, e->revoked[i].lease_id);
		CHECK_INT(a->revoked[i].grace_ms, e->revoked[i].grace_ms);
	}
}

static void check_same_notice(const struct message_leases_ended *a,
			      const struct message_leases_ended *e)
{
	CHECK_INT(a->count, e->count);
	for (size_t i = 0; i < e->count; i++) {
		CHECK_INT(a->ended[i].lease_id, e->ended[i].lease_id);
		CHECK_INT(a->ended[i].reason, e->ended[i].reason);
	}
}

static void check_same_payload(const struct message *a, const struct message *e)
{
	switch (e->type) {
	case MESSAGE_HELLO:
		CHECK_INT(a->u.hello.version, e->u.hello.version);
		CHECK_INT(a->u.hello.receives, e->u.hello.receives);
		CHECK_MEM(a->u.hello.instance, e->u.hello.instance, PROTO_INSTANCE_BYTES);
		break;
	case MESSAGE_WELCOME:
		check_same_welcome(&a->u.welcome, &e->u.welcome);
		break;
	case MESSAGE_ERROR:
		CHECK_INT(a->u.error.code, e->u.error.code);
		CHECK_STR(a->u.error.text, e->u.error.text);
		break;
	case MESSAGE_LANE_OFFER:
		CHECK_INT(a->u.lane_offer.lane, e->u.lane_offer.lane);
		CHECK_INT(a->u.lane_offer.expires_ms, e->u.lane_offer.expires_ms);
		break;
	case MESSAGE_LANE_CONFIRM:
		CHECK_INT(a->u.lane_confirm.lane, e->u.lane_confirm.lane);
		CHECK_INT(a->u.lane_confirm.daemon_qpn, e->u.lane_confirm.daemon_qpn);
		CHECK_INT(a->u.lane_confirm.client_qpn, e->u.lane_confirm.client_qpn);
		break;
	case MESSAGE_LANE_READY:
	case MESSAGE_LANE_LOST:
		CHECK_INT(a->u.lane.lane, e->u.lane.lane);
		break;
	case MESSAGE_ACQUIRE:
		CHECK_INT(a->u.acquire.len_bytes, e->u.acquire.len_bytes);
		CHECK_INT(a->u.acquire.ttl_ms, e->u.acquire.ttl_ms);
		CHECK_INT(a->u.acquire.rights, e->u.acquire.rights);
		CHECK_INT(a->u.acquire.lane, e->u.acquire.lane);
		CHECK_INT(a->u.acquire.wait_ms, e->u.acquire.wait_ms);
		CHECK_INT(a->u.acquire.count, e->u.acquire.count);
		break;
	case MESSAGE_GRANT:
		check_same_grant(&a->u.grant, &e->u.grant);
		break;
	case MESSAGE_RENEW:
	case MESSAGE_RENEWED:
		CHECK_INT(a->u.renew.lease_id, e->u.renew.lease_id);
		CHECK_INT(a->u.renew.ttl_ms, e->u.renew.ttl_ms);
		break;
	case MESSAGE_RELEASE:
	case MESSAGE_REVOKED:
		check_same_leases(&a->u.leases, &e->u.leases);
		break;
	case MESSAGE_RELEASED:
		check_same_released(&a->u.released, &e->u.released);
		break;
	case MESSAGE_LEASES_ENDED:
		check_same_notice(&a->u.leases_ended, &e->u.leases_ended);
		break;
	case MESSAGE_ATTACH:
		CHECK_INT(a->u.attach.lease_id, e->u.attach.lease_id);
		CHECK_INT(a->u.attach.lane, e->u.attach.lane);
		break;
	case MESSAGE_REATTACH:
		CHECK_INT(a->u.reattach.lease_id, e->u.reattach.lease_id);
		CHECK_MEM(a->u.reattach.secret, e->u.reattach.secret, PROTO_SECRET_BYTES);
		CHECK_INT(a->u.reattach.lane, e->u.reattach.lane);
		break;
	case MESSAGE_REVOKE:
		check_same_revoke(&a->u.revoke, &e->u.revoke);
		break;
	case MESSAGE_DRAIN:
		CHECK_INT(a->u.drain.left_ms, e->u.drain.left_ms);
		CHECK_INT(a->u.drain.draining, e->u.drain.draining);
		break;
	case MESSAGE_MODIFY:
		CHECK_INT(a->u.modify.lease_id, e->u.modify.lease_id);
		CHECK_INT(a->u.modify.len_bytes, e->u.modify.len_bytes);
		CHECK_INT(a->u.modify.rights, e->u.modify.rights);
		break;
	case MESSAGE_QUIESCE:
	case MESSAGE_QUIESCED:
		CHECK_INT(a->u.lease.lease_id, e->u.lease.lease_id);
		break;
	}
}

static void check_same(const struct message *actual, const struct message *expected)
{
	CHECK_INT(actual->type, expected->type);
	CHECK_INT(actual->flags, expected->flags);
	CHECK_INT(actual->credits, expected->credits);
	CHECK_INT(actual->request_id, expected->request_id);
	check_same_payload(actual, expected);
}

TEST(message_decode__round_trip_of_every_type)
{
	for (size_t i = 0; i < TYPES; i++) {
		for (enum variant variant = LOWEST; variant < VARIANT_END; variant++) {
			uint8_t buf[PROTO_MESSAGE_MAX];
			struct message expected;
			struct message actual;
			size_t len_bytes;

			fill(&expected, types[i], variant);
			len_bytes = encode(&expected, buf);
			CHECK_INT(decode(buf, len_bytes, &actual), 0);
			check_same(&actual, &expected);
		}
	}
}

/* Compares an encoded message with its bytes as PROTOCOL.md gives them. */
static void check_bytes(const struct message *m, const uint8_t *expected, size_t expected_bytes)
{
	uint8_t buf[PROTO_MESSAGE_MAX];

	CHECK_INT(encode(m, buf), expected_bytes);
	CHECK_MEM(buf, expected, expected_bytes);
}

#define CHECK_BYTES(m, ...)                                      \
	do {                                                     \
		static const uint8_t expected[] = {__VA_ARGS__}; \
		check_bytes(m, expected, sizeof(expected));      \
	} while (0)

/* Header without flags, with request id 0x0807060504030201 (or none) and 0x0203 credits. */
#define HEADER_WITH_ID(type, payload_bytes) \
	type, 0, 0, 0, payload_bytes, 0, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8, 0x03, 0x02, 0, 0, 0, 0, 0, 0
#define HEADER_WITHOUT_ID(type, payload_bytes) \
	type, 0, 0, 0, payload_bytes, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0x03, 0x02, 0, 0, 0, 0, 0, 0

static void start(struct message *m, uint16_t type)
{
	memset(m, 0, sizeof(*m));
	m->type = type;
	m->credits = 0x0203;
	if (!has_no_id(type))
		m->request_id = UINT64_C(0x0807060504030201);
}

TEST(message_encode__bytes_without_payload)
{
	struct message m;

	start(&m, MESSAGE_BYE);
	CHECK_BYTES(&m, HEADER_WITHOUT_ID(4, 0));
	start(&m, MESSAGE_CREDIT);
	CHECK_BYTES(&m, HEADER_WITHOUT_ID(5, 0));
	start(&m, MESSAGE_PING);
	CHECK_BYTES(&m, HEADER_WITH_ID(6, 0));
	start(&m, MESSAGE_PONG);
	CHECK_BYTES(&m, HEADER_WITH_ID(7, 0));
	start(&m, MESSAGE_LANE_OPEN);
	CHECK_BYTES(&m, HEADER_WITH_ID(8, 0));
}

TEST(message_encode__bytes_of_hello)
{
	struct message m;

	start(&m, MESSAGE_HELLO);
	m.u.hello.version = 0x0102;
	m.u.hello.receives = 0x0304;
	for (size_t i = 0; i < PROTO_INSTANCE_BYTES; i++)
		m.u.hello.instance[i] = (uint8_t)(0xa0 + i);
	CHECK_BYTES(&m, HEADER_WITH_ID(1, 20), 0x02, 0x01, 0x04, 0x03, 0xa0, 0xa1, 0xa2, 0xa3, 0xa4,
		    0xa5, 0xa6, 0xa7, 0xa8, 0xa9, 0xaa, 0xab, 0xac, 0xad, 0xae, 0xaf);
}

TEST(message_encode__bytes_of_welcome)
{
	struct message m;

	start(&m, MESSAGE_WELCOME);
	m.u.welcome = (struct message_welcome){
		.version = 0x0102,
		.receives = 0x0304,
		.session_id = UINT64_C(0x1817161514131211),
		.ttl_default_ms = UINT64_C(0x2827262524232221),
		.ttl_max_ms = UINT64_C(0x3837363534333231),
		.window_max_bytes = UINT64_C(0x4847464544434241),
		.page_bytes = 0x54535251,
		.read_depth = 0x64636261,
		.rights = 0x74737271,
		.heartbeat_ms = 0x84838281,
		.isolation = 0x94939291,
		.enforced = 0xa4a3a2a1,
	};
	CHECK_BYTES(&m, HEADER_WITH_ID(2, 60), 0x02, 0x01, 0x04, 0x03, 0x11, 0x12, 0x13, 0x14, 0x15,
		    0x16, 0x17, 0x18, 0x21, 0x22, 0x23, 0x24, 0x25, 0x26, 0x27, 0x28, 0x31, 0x32,
		    0x33, 0x34, 0x35, 0x36, 0x37, 0x38, 0x41, 0x42, 0x43, 0x44, 0x45, 0x46, 0x47,
		    0x48, 0x51, 0x52, 0x53, 0x54, 0x61, 0x62, 0x63, 0x64, 0x71, 0x72, 0x73, 0x74,
		    0x81, 0x82, 0x83, 0x84, 0x91, 0x92, 0x93, 0x94, 0xa1, 0xa2, 0xa3, 0xa4);
}

TEST(message_encode__bytes_of_error)
{
	struct message m;

	start(&m, MESSAGE_ERROR);
	m.u.error.code = ERROR_EXPIRED;
	strcpy(m.u.error.text, "a ~");
	CHECK_BYTES(&m, HEADER_WITH_ID(3, 9), 0x07, 0x04, 0, 0, 3, 0, 'a', ' ', '~');
	m.request_id = 0;
	m.u.error.text[0] = '\0';
	CHECK_BYTES(&m, HEADER_WITHOUT_ID(3, 6), 0x07, 0x04, 0, 0, 0, 0);
}

TEST(message_encode__bytes_of_lane_messages)
{
	struct message m;

	start(&m, MESSAGE_LANE_OFFER);
	m.u.lane_offer.lane = 0x14131211;
	m.u.lane_offer.expires_ms = 0x24232221;
	CHECK_BYTES(&m, HEADER_WITH_ID(9, 8), 0x11, 0x12, 0x13, 0x14, 0x21, 0x22, 0x23, 0x24);

	start(&m, MESSAGE_LANE_CONFIRM);
	m.u.lane_confirm.lane = 0x14131211;
	m.u.lane_confirm.daemon_qpn = 0x24232221;
	m.u.lane_confirm.client_qpn = 0x34333231;
	CHECK_BYTES(&m, HEADER_WITH_ID(10, 12), 0x11, 0x12, 0x13, 0x14, 0x21, 0x22, 0x23, 0x24,
		    0x31, 0x32, 0x33, 0x34);

	start(&m, MESSAGE_LANE_READY);
	m.u.lane.lane = 0x14131211;
	CHECK_BYTES(&m, HEADER_WITH_ID(11, 4), 0x11, 0x12, 0x13, 0x14);
	start(&m, MESSAGE_LANE_LOST);
	m.u.lane.lane = 0x14131211;
	CHECK_BYTES(&m, HEADER_WITHOUT_ID(12, 4), 0x11, 0x12, 0x13, 0x14);
}

TEST(message_encode__bytes_of_acquire)
{
	struct message m;

	start(&m, MESSAGE_ACQUIRE);
	m.u.acquire.len_bytes = UINT64_C(0x1817161514131211);
	m.u.acquire.ttl_ms = UINT64_C(0x2827262524232221);
	m.u.acquire.rights = 0x34333231;
	m.u.acquire.lane = 0x44434241;
	m.u.acquire.wait_ms = 0x54535251;
	m.u.acquire.count = 0x3f;
	CHECK_BYTES(&m, HEADER_WITH_ID(13, 30), 0x11, 0x12, 0x13, 0x14, 0x15, 0x16, 0x17, 0x18,
		    0x21, 0x22, 0x23, 0x24, 0x25, 0x26, 0x27, 0x28, 0x31, 0x32, 0x33, 0x34, 0x41,
		    0x42, 0x43, 0x44, 0x51, 0x52, 0x53, 0x54, 0x3f, 0);
}

TEST(message_encode__bytes_of_grant)
{
	struct message m;

	start(&m, MESSAGE_GRANT);
	m.flags = MESSAGE_FLAG_MORE;
	m.u.grant.lease_id = UINT64_C(0x1817161514131211);
	m.u.grant.len_bytes = UINT64_C(0x2827262524232221);
	m.u.grant.ttl_ms = UINT64_C(0x3837363534333231);
	m.u.grant.generation = 0x44434241;
	m.u.grant.rights = 0x54535251;
	m.u.grant.lane = 0x64636261;
	for (int i = 0; i < PROTO_SECRET_BYTES; i++)
		m.u.grant.secret[i] = (uint8_t)(0xb1 + i);
	m.u.grant.descriptor_count = 2;
	m.u.grant.descriptors[0].offset_bytes = 1;
	m.u.grant.descriptors[0].len_bytes = 2;
	m.u.grant.descriptors[0].remote_addr = 3;
	m.u.grant.descriptors[0].rkey = 4;
	m.u.grant.descriptors[1].offset_bytes = UINT64_C(0x7877767574737271);
	m.u.grant.descriptors[1].len_bytes = UINT64_C(0x8887868584838281);
	m.u.grant.descriptors[1].remote_addr = UINT64_C(0x9897969594939291);
	m.u.grant.descriptors[1].rkey = 0xa4a3a2a1;
	CHECK_BYTES(&m, 14, 0, 1, 0, 110, 0, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8, 0x03, 0x02, 0, 0, 0, 0,
		    0, 0, 0x11, 0x12, 0x13, 0x14, 0x15, 0x16, 0x17, 0x18, 0x21, 0x22, 0x23, 0x24,
		    0x25, 0x26, 0x27, 0x28, 0x31, 0x32, 0x33, 0x34, 0x35, 0x36, 0x37, 0x38, 0x41,
		    0x42, 0x43, 0x44, 0x51, 0x52, 0x53, 0x54, 0x61, 0x62, 0x63, 0x64, 0xb1, 0xb2,
		    0xb3, 0xb4, 0xb5, 0xb6, 0xb7, 0xb8, 0xb9, 0xba, 0xbb, 0xbc, 0xbd, 0xbe, 0xbf,
		    0xc0, 2, 0, 1, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0, 3, 0, 0, 0, 0, 0, 0,
		    0, 4, 0, 0, 0, 0x71, 0x72, 0x73, 0x74, 0x75, 0x76, 0x77, 0x78, 0x81, 0x82, 0x83,
		    0x84, 0x85, 0x86, 0x87, 0x88, 0x91, 0x92, 0x93, 0x94, 0x95, 0x96, 0x97, 0x98,
		    0xa1, 0xa2, 0xa3, 0xa4);
}

TEST(message_encode__bytes_of_lease_messages)
{
	struct message m;

	start(&m, MESSAGE_RENEW);
	m.u.renew.lease_id = UINT64_C(0x1817161514131211);
	m.u.renew.ttl_ms = UINT64_C(0x2827262524232221);
	CHECK_BYTES(&m, HEADER_WITH_ID(15, 16), 0x11, 0x12, 0x13, 0x14, 0x15, 0x16, 0x17, 0x18,
		    0x21, 0x22, 0x23, 0x24, 0x25, 0x26, 0x27, 0x28);
	m.type = MESSAGE_RENEWED;
	CHECK_BYTES(&m, HEADER_WITH_ID(16, 16), 0x11, 0x12, 0x13, 0x14, 0x15, 0x16, 0x17, 0x18,
		    0x21, 0x22, 0x23, 0x24, 0x25, 0x26, 0x27, 0x28);

	start(&m, MESSAGE_LEASES_ENDED);
	m.u.leases_ended.count = 2;
	m.u.leases_ended.ended[0].lease_id = 1;
	m.u.leases_ended.ended[0].reason = ERROR_EXPIRED;
	m.u.leases_ended.ended[1].lease_id = UINT64_C(0x1817161514131211);
	m.u.leases_ended.ended[1].reason = 0x24232221;
	CHECK_BYTES(&m, HEADER_WITHOUT_ID(19, 26), 2, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0x07, 0x04, 0, 0,
		    0x11, 0x12, 0x13, 0x14, 0x15, 0x16, 0x17, 0x18, 0x21, 0x22, 0x23, 0x24);

	start(&m, MESSAGE_ATTACH);
	m.u.attach.lease_id = UINT64_C(0x1817161514131211);
	m.u.attach.lane = 0x24232221;
	CHECK_BYTES(&m, HEADER_WITH_ID(20, 12), 0x11, 0x12, 0x13, 0x14, 0x15, 0x16, 0x17, 0x18,
		    0x21, 0x22, 0x23, 0x24);

	start(&m, MESSAGE_REATTACH);
	m.u.reattach.lease_id = UINT64_C(0x1817161514131211);
	for (int i = 0; i < PROTO_SECRET_BYTES; i++)
		m.u.reattach.secret[i] = (uint8_t)(0xb1 + i);
	m.u.reattach.lane = 0x24232221;
	CHECK_BYTES(&m, HEADER_WITH_ID(26, 28), 0x11, 0x12, 0x13, 0x14, 0x15, 0x16, 0x17, 0x18,
		    0xb1, 0xb2, 0xb3, 0xb4, 0xb5, 0xb6, 0xb7, 0xb8, 0xb9, 0xba, 0xbb, 0xbc, 0xbd,
		    0xbe, 0xbf, 0xc0, 0x21, 0x22, 0x23, 0x24);
}

TEST(message_encode__bytes_of_lease_lists)
{
	struct message m;

	start(&m, MESSAGE_RELEASE);
	m.u.leases.count = 2;
	m.u.leases.lease_ids[0] = 1;
	m.u.leases.lease_ids[1] = UINT64_C(0x1817161514131211);
	CHECK_BYTES(&m, HEADER_WITH_ID(17, 18), 2, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0x11, 0x12, 0x13,
		    0x14, 0x15, 0x16, 0x17, 0x18);
	m.type = MESSAGE_REVOKED;
	m.request_id = 0;
	CHECK_BYTES(&m, HEADER_WITHOUT_ID(22, 18), 2, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0x11, 0x12, 0x13,
		    0x14, 0x15, 0x16, 0x17, 0x18);

	start(&m, MESSAGE_RELEASED);
	m.u.released.count = 2;
	m.u.released.released[0].lease_id = 1;
	m.u.released.released[0].code = 0;
	m.u.released.released[1].lease_id = UINT64_C(0x1817161514131211);
	m.u.released.released[1].code = ERROR_EXPIRED;
	CHECK_BYTES(&m, HEADER_WITH_ID(18, 26), 2, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0x11,
		    0x12, 0x13, 0x14, 0x15, 0x16, 0x17, 0x18, 0x07, 0x04, 0, 0);

	start(&m, MESSAGE_REVOKE);
	m.u.revoke.count = 2;
	m.u.revoke.revoked[0].lease_id = 1;
	m.u.revoke.revoked[0].grace_ms = 0;
	m.u.revoke.revoked[1].lease_id = UINT64_C(0x1817161514131211);
	m.u.revoke.revoked[1].grace_ms = 0xa4a3a2a1;
	CHECK_BYTES(&m, HEADER_WITHOUT_ID(21, 26), 2, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0x11,
		    0x12, 0x13, 0x14, 0x15, 0x16, 0x17, 0x18, 0xa1, 0xa2, 0xa3, 0xa4);
}

TEST(message_encode__bytes_of_modification_messages)
{
	struct message m;

	start(&m, MESSAGE_MODIFY);
	m.u.modify.lease_id = UINT64_C(0x1817161514131211);
	m.u.modify.len_bytes = UINT64_C(0x2827262524232221);
	m.u.modify.rights = 0x34333231;
	CHECK_BYTES(&m, HEADER_WITH_ID(23, 20), 0x11, 0x12, 0x13, 0x14, 0x15, 0x16, 0x17, 0x18,
		    0x21, 0x22, 0x23, 0x24, 0x25, 0x26, 0x27, 0x28, 0x31, 0x32, 0x33, 0x34);

	start(&m, MESSAGE_QUIESCE);
	m.u.lease.lease_id = UINT64_C(0x1817161514131211);
	CHECK_BYTES(&m, HEADER_WITHOUT_ID(24, 8), 0x11, 0x12, 0x13, 0x14, 0x15, 0x16, 0x17, 0x18);
	m.type = MESSAGE_QUIESCED;
	CHECK_BYTES(&m, HEADER_WITHOUT_ID(25, 8), 0x11, 0x12, 0x13, 0x14, 0x15, 0x16, 0x17, 0x18);
}

TEST(message_encode__bytes_of_drain)
{
	struct message m;

	start(&m, MESSAGE_DRAIN);
	m.u.drain.left_ms = UINT64_C(0x1817161514131211);
	m.u.drain.draining = 1;
	CHECK_BYTES(&m, HEADER_WITHOUT_ID(27, 12), 0x11, 0x12, 0x13, 0x14, 0x15, 0x16, 0x17, 0x18,
		    1, 0, 0, 0);
}

/* Neither a third state, nor a time without a drain. */
TEST(message_decode__drain_values)
{
	static const struct {
		uint64_t left_ms;
		uint32_t draining;
		int result;
	} cases[] = {
		{0, 0, 0},	 {0, 1, 0},	  {UINT64_MAX, 1, 0},
		{1, 0, -EPROTO}, {0, 2, -EPROTO}, {0, UINT32_MAX, -EPROTO},
	};
	uint8_t buf[PROTO_MESSAGE_MAX];
	size_t len_bytes = encode_sample(MESSAGE_DRAIN, LOWEST, buf);
	struct message m;

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		memcpy(buf + MESSAGE_HEADER_BYTES, &cases[i].left_ms, 8);
		memcpy(buf + MESSAGE_HEADER_BYTES + 8, &cases[i].draining, 4);
		CHECK_INT(decode(buf, len_bytes, &m), cases[i].result);
	}
}

TEST(message_encode__every_capacity)
{
	for (size_t i = 0; i < TYPES; i++) {
		uint8_t whole[PROTO_MESSAGE_MAX];
		size_t len_bytes = encode_sample(types[i], ORDINARY, whole);
		struct message m;

		fill(&m, types[i], ORDINARY);
		for (size_t cap_bytes = 0; cap_bytes <= len_bytes; cap_bytes++) {
			uint8_t *buf = malloc(cap_bytes == 0 ? 1 : cap_bytes);
			size_t written_bytes = 12345;
			bool same;
			int r;

			CHECK(buf != NULL);
			r = message_encode(&m, buf, cap_bytes, &written_bytes);
			same = r == 0 && memcmp(buf, whole, len_bytes) == 0;
			free(buf);
			CHECK_INT(r, cap_bytes < len_bytes ? -EMSGSIZE : 0);
			CHECK_INT(same, cap_bytes == len_bytes);
			CHECK_INT(written_bytes, cap_bytes < len_bytes ? 12345 : len_bytes);
		}
	}
}

TEST(message_encode__longest_fits_message_max)
{
	uint8_t buf[PROTO_MESSAGE_MAX];

	CHECK_INT(encode_sample(MESSAGE_GRANT, HIGHEST, buf), 24 + 54 + 64 * 28);
	CHECK_INT(encode_sample(MESSAGE_LEASES_ENDED, HIGHEST, buf), 24 + 2 + 128 * 12);
	CHECK_INT(encode_sample(MESSAGE_RELEASE, HIGHEST, buf), 24 + 2 + 128 * 8);
	CHECK_INT(encode_sample(MESSAGE_RELEASED, HIGHEST, buf), 24 + 2 + 128 * 12);
	CHECK_INT(encode_sample(MESSAGE_REVOKE, HIGHEST, buf), 24 + 2 + 128 * 12);
	CHECK_INT(encode_sample(MESSAGE_REVOKED, HIGHEST, buf), 24 + 2 + 128 * 8);
	CHECK_INT(encode_sample(MESSAGE_ERROR, HIGHEST, buf), 24 + 6 + 256);
	CHECK_INT(encode_sample(MESSAGE_HELLO, HIGHEST, buf), 24 + 20);
}

TEST(message_set_credits__changes_nothing_else)
{
	for (size_t i = 0; i < TYPES; i++) {
		uint8_t expected[PROTO_MESSAGE_MAX];
		uint8_t actual[PROTO_MESSAGE_MAX];
		struct message m;
		size_t len_bytes;

		fill(&m, types[i], ORDINARY);
		len_bytes = encode(&m, actual);
		m.credits = 0x0fed;
		CHECK_INT(encode(&m, expected), len_bytes);
		message_set_credits(actual, 0x0fed);
		CHECK_MEM(actual, expected, len_bytes);
		message_set_credits(actual, PROTO_CREDITS_MAX);
		CHECK_INT(decode(actual, len_bytes, &m), 0);
		CHECK_INT(m.credits, PROTO_CREDITS_MAX);
		message_set_credits(actual, 0);
		CHECK_INT(decode(actual, len_bytes, &m), 0);
		CHECK_INT(m.credits, 0);
	}
}

/*
 * Truncated with the header as it was, and with a header that agrees with the
 * shorter length: the second reaches the decoder of the payload.
 */
TEST(message_decode__truncated_at_every_byte)
{
	for (size_t i = 0; i < TYPES; i++) {
		for (enum variant variant = LOWEST; variant < VARIANT_END; variant++) {
			uint8_t buf[PROTO_MESSAGE_MAX];
			size_t len_bytes = encode_sample(types[i], variant, buf);

			for (size_t cut_bytes = 0; cut_bytes < len_bytes; cut_bytes++)
				CHECK_INT(decode_only(buf, cut_bytes), -EPROTO);
			for (size_t cut_bytes = HEADER; cut_bytes < len_bytes; cut_bytes++) {
				put_payload_bytes(buf, cut_bytes);
				CHECK_INT(decode_only(buf, cut_bytes), -EPROTO);
			}
		}
	}
}

TEST(message_decode__one_byte_appended)
{
	for (size_t i = 0; i < TYPES; i++) {
		for (enum variant variant = LOWEST; variant < VARIANT_END; variant++) {
			uint8_t buf[PROTO_MESSAGE_MAX] = {0};
			size_t len_bytes = encode_sample(types[i], variant, buf);

			CHECK_INT(decode_only(buf, len_bytes + 1), -EPROTO);
			put_payload_bytes(buf, len_bytes + 1);
			CHECK_INT(decode_only(buf, len_bytes + 1), -EPROTO);
			CHECK_INT(decode_only(buf, len_bytes), -EPROTO);
		}
	}
}

TEST(message_decode__length_in_header_wraps)
{
	uint8_t buf[PROTO_MESSAGE_MAX];
	size_t len_bytes = encode_sample(MESSAGE_PING, ORDINARY, buf);

	put_u32(buf + 4, UINT32_MAX);
	CHECK_INT(decode_only(buf, len_bytes), -EPROTO);
	put_u32(buf + 4, UINT32_MAX - HEADER + 1);
	CHECK_INT(decode_only(buf, len_bytes), -EPROTO);
}

TEST(message_decode__reserved_bit_set)
{
	for (size_t i = 0; i < TYPES; i++) {
		for (size_t bit = 0; bit < 48; bit++) {
			uint8_t buf[PROTO_MESSAGE_MAX];
			size_t len_bytes = encode_sample(types[i], ORDINARY, buf);

			buf[18 + bit / 8] ^= (uint8_t)(1u << bit % 8);
			CHECK_INT(decode_only(buf, len_bytes), -EPROTO);
		}
	}
}

TEST(message_decode__every_flag_bit)
{
	for (size_t i = 0; i < TYPES; i++) {
		for (unsigned int bit = 0; bit < 16; bit++) {
			uint16_t flags = (uint16_t)(1u << bit);
			bool known = types[i] == MESSAGE_GRANT && flags == MESSAGE_FLAG_MORE;
			uint8_t buf[PROTO_MESSAGE_MAX];
			size_t len_bytes = encode_sample(types[i], LOWEST, buf);

			put_u16(buf + 2, flags);
			CHECK_INT(decode_only(buf, len_bytes), known ? 0 : -EPROTO);
		}
	}
}

TEST(message_decode__unknown_type)
{
	for (uint32_t type = 0; type <= UINT16_MAX; type++) {
		uint8_t buf[PROTO_MESSAGE_MAX];
		size_t len_bytes;

		if (type >= MESSAGE_HELLO && type < MESSAGE_TYPE_END)
			continue;
		len_bytes = encode_sample(MESSAGE_PING, LOWEST, buf);
		put_u16(buf, (uint16_t)type);
		CHECK_INT(decode_only(buf, len_bytes), -EPROTO);
	}
}

TEST(message_decode__request_id_rule_of_every_type)
{
	for (size_t i = 0; i < TYPES; i++) {
		bool any = types[i] == MESSAGE_ERROR;
		bool none = has_no_id(types[i]);
		uint8_t buf[PROTO_MESSAGE_MAX];
		size_t len_bytes = encode_sample(types[i], LOWEST, buf);

		put_u64(buf + 8, 0);
		CHECK_INT(decode_only(buf, len_bytes), any || none ? 0 : -EPROTO);
		put_u64(buf + 8, 1);
		CHECK_INT(decode_only(buf, len_bytes), any || !none ? 0 : -EPROTO);
		put_u64(buf + 8, UINT64_C(1) << 63);
		CHECK_INT(decode_only(buf, len_bytes), any || !none ? 0 : -EPROTO);
	}
}

TEST(message_decode__credits_limit)
{
	for (size_t i = 0; i < TYPES; i++) {
		uint8_t buf[PROTO_MESSAGE_MAX];
		size_t len_bytes = encode_sample(types[i], ORDINARY, buf);

		put_u16(buf + 16, PROTO_CREDITS_MAX);
		CHECK_INT(decode_only(buf, len_bytes), 0);
		put_u16(buf + 16, PROTO_CREDITS_MAX + 1);
		CHECK_INT(decode_only(buf, len_bytes), -EPROTO);
		put_u16(buf + 16, UINT16_MAX);
		CHECK_INT(decode_only(buf, len_bytes), -EPROTO);
	}
}

TEST(message_decode__receives_limits)
{
	static const uint16_t both[] = {MESSAGE_HELLO, MESSAGE_WELCOME};

	for (size_t i = 0; i < 2; i++) {
		uint8_t buf[PROTO_MESSAGE_MAX];
		size_t len_bytes = encode_sample(both[i], ORDINARY, buf);

		put_u16(buf + HEADER + 2, PROTO_CREDITS_MIN - 1);
		CHECK_INT(decode_only(buf, len_bytes), -EPROTO);
		put_u16(buf + HEADER + 2, PROTO_CREDITS_MIN);
		CHECK_INT(decode_only(buf, len_bytes), 0);
		put_u16(buf + HEADER + 2, PROTO_CREDITS_MAX);
		CHECK_INT(decode_only(buf, len_bytes), 0);
		put_u16(buf + HEADER + 2, PROTO_CREDITS_MAX + 1);
		CHECK_INT(decode_only(buf, len_bytes), -EPROTO);
		put_u16(buf + HEADER + 2, 0);
		CHECK_INT(decode_only(buf, len_bytes), -EPROTO);
	}
}

/* Decodes an error with these bytes as its text. */
static int decode_text(const void *text, size_t text_bytes)
{
	size_t at = HEADER + 4;
	uint8_t buf[PROTO_MESSAGE_MAX];

	encode_sample(MESSAGE_ERROR, ORDINARY, buf);
	put_u16(buf + at, (uint16_t)text_bytes);
	memcpy(buf + at + 2, text, text_bytes);
	put_payload_bytes(buf, at + 2 + text_bytes);
	return decode_only(buf, at + 2 + text_bytes);
}

TEST(message_decode__text_lengths)
{
	char text[PROTO_TEXT_MAX + 1];

	memset(text, 'a', sizeof(text));
	CHECK_INT(decode_text(text, 0), 0);
	CHECK_INT(decode_text(text, 1), 0);
	CHECK_INT(decode_text(text, PROTO_TEXT_MAX), 0);
	CHECK_INT(decode_text(text, PROTO_TEXT_MAX + 1), -EPROTO);
}

TEST(message_decode__every_byte_in_text)
{
	for (unsigned int byte = 0; byte <= UINT8_MAX; byte++) {
		bool in_error = byte >= 0x20 && byte <= 0x7e;

		for (size_t at = 0; at < 3; at++) {
			uint8_t text[3] = {'a', 'b', 'c'};

			text[at] = (uint8_t)byte;
			CHECK_INT(decode_text(text, 3), in_error ? 0 : -EPROTO);
		}
	}
}

TEST(message_decode__grant_descriptor_counts)
{
	uint8_t buf[PROTO_MESSAGE_MAX];

	encode_sample(MESSAGE_GRANT, HIGHEST, buf);
	for (uint32_t count = 0; count <= 270; count++) {
		size_t len_bytes = HEADER + GRANT_FIXED + count * DESCRIPTOR;
		bool allowed = count >= 1 && count <= PROTO_GRANT_DESCRIPTORS;

		put_u16(buf + GRANT_COUNT_AT, (uint16_t)count);
		put_payload_bytes(buf, len_bytes);
		CHECK_INT(decode_only(buf, len_bytes), allowed ? 0 : -EPROTO);
	}
	put_u16(buf + GRANT_COUNT_AT, UINT16_MAX);
	put_payload_bytes(buf, PROTO_MESSAGE_MAX);
	CHECK_INT(decode_only(buf, PROTO_MESSAGE_MAX), -EPROTO);
}

TEST(message_decode__lease_counts_of_lists)
{
	static const struct {
		uint16_t type;
		size_t lease_bytes;
	} lists[] = {
		{MESSAGE_RELEASE, 8}, {MESSAGE_RELEASED, 12},	  {MESSAGE_REVOKE, 12},
		{MESSAGE_REVOKED, 8}, {MESSAGE_LEASES_ENDED, 12},
	};

	for (size_t i = 0; i < sizeof(lists) / sizeof(lists[0]); i++) {
		uint8_t buf[PROTO_MESSAGE_MAX];

		/* Beyond what the sample fills, any code will do. */
		memset(buf, 1, sizeof(buf));
		encode_sample(lists[i].type, HIGHEST, buf);
		for (uint32_t count = 0; count <= 300; count++) {
			size_t len_bytes = HEADER + 2 + count * lists[i].lease_bytes;
			bool allowed = count >= 1 && count <= PROTO_NOTICE_LEASES;

			put_u16(buf + HEADER, (uint16_t)count);
			put_payload_bytes(buf, len_bytes);
			CHECK_INT(decode_only(buf, len_bytes), allowed ? 0 : -EPROTO);
		}
		put_u16(buf + HEADER, UINT16_MAX);
		put_payload_bytes(buf, PROTO_MESSAGE_MAX);
		CHECK_INT(decode_only(buf, PROTO_MESSAGE_MAX), -EPROTO);
	}
}

/* A count that does not agree with the number of leases that follow. */
TEST(message_decode__lease_count_of_another_list)
{
	static const uint16_t lists[] = {MESSAGE_RELEASE, MESSAGE_RELEASED, MESSAGE_REVOKE,
					 MESSAGE_REVOKED, MESSAGE_LEASES_ENDED};

	for (size_t i = 0; i < sizeof(lists) / sizeof(lists[0]); i++) {
		for (uint16_t count = 0; count <= PROTO_NOTICE_LEASES; count++) {
			uint8_t buf[PROTO_MESSAGE_MAX];
			size_t len_bytes = encode_sample(lists[i], ORDINARY, buf);

			put_u16(buf + HEADER, count);
			CHECK_INT(decode_only(buf, len_bytes), count == 3 ? 0 : -EPROTO);
		}
	}
}

TEST(message_decode__acquire_lease_counts)
{
	for (uint32_t count = 0; count <= UINT16_MAX; count++) {
		bool allowed = count >= 1 && count <= PROTO_ACQUIRE_LEASES;
		uint8_t buf[HEADER + 30];

		CHECK_INT(encode_sample(MESSAGE_ACQUIRE, ORDINARY, buf), sizeof(buf));
		put_u16(buf + ACQUIRE_COUNT_AT, (uint16_t)count);
		CHECK_INT(decode_only(buf, sizeof(buf)), allowed ? 0 : -EPROTO);
	}
}

/* A code is positive as an int, so that its negative is an error to every caller. */
TEST(message_decode__code_limits)
{
	static const struct {
		uint32_t code;
		int expected;
	} cases[] = {
		{0, -EPROTO},	       {1, 0}, {999999, 0}, {INT32_MAX, 0}, {0x80000000, -EPROTO},
		{UINT32_MAX, -EPROTO},
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		uint8_t buf[PROTO_MESSAGE_MAX];
		size_t len_bytes = encode_sample(MESSAGE_ERROR, ORDINARY, buf);

		put_u32(buf + HEADER, cases[i].code);
		CHECK_INT(decode_only(buf, len_bytes), cases[i].expected);

		/* The reason of the last of three leases. */
		len_bytes = encode_sample(MESSAGE_LEASES_ENDED, ORDINARY, buf);
		put_u32(buf + len_bytes - 4, cases[i].code);
		CHECK_INT(decode_only(buf, len_bytes), cases[i].expected);

		/* Here 0 says that all is well. */
		len_bytes = encode_sample(MESSAGE_RELEASED, ORDINARY, buf);
		put_u32(buf + len_bytes - 4, cases[i].code);
		CHECK_INT(decode_only(buf, len_bytes), cases[i].code == 0 ? 0 : cases[i].expected);
	}
}

TEST(message_decode__values_with_codes_of_their_own_pass)
{
	struct message m;
	uint8_t buf[PROTO_MESSAGE_MAX];

	fill(&m, MESSAGE_ACQUIRE, LOWEST);
	m.u.acquire.rights = UINT32_MAX;
	CHECK_INT(decode_only(buf, encode(&m, buf)), 0);
	fill(&m, MESSAGE_RENEW, LOWEST);
	CHECK_INT(decode_only(buf, encode(&m, buf)), 0);
	fill(&m, MESSAGE_MODIFY, LOWEST);
	CHECK_INT(decode_only(buf, encode(&m, buf)), 0);
	m.u.modify.rights = UINT32_MAX;
	CHECK_INT(decode_only(buf, encode(&m, buf)), 0);
	/* One lease named twice. */
	fill(&m, MESSAGE_RELEASE, ORDINARY);
	m.u.leases.lease_ids[1] = m.u.leases.lease_ids[0];
	CHECK_INT(decode_only(buf, encode(&m, buf)), 0);
	fill(&m, MESSAGE_HELLO, HIGHEST);
	CHECK_INT(decode_only(buf, encode(&m, buf)), 0);
}

TEST(message_decode__nothing)
{
	struct message m;

	CHECK_INT(message_decode(NULL, 0, &m), -EPROTO);
}

static uint64_t random_next(uint64_t *state)
{
	*state ^= *state << 13;
	*state ^= *state >> 7;
	*state ^= *state << 17;
	return *state;
}

static size_t random_below(uint64_t *state, size_t bound)
{
	return (size_t)(random_next(state) % bound);
}

/* Changes a message somehow; buf has room for PROTO_MESSAGE_MAX bytes. Returns the new length. */
static size_t mutate(uint64_t *state, uint8_t *buf, size_t len_bytes)
{
	static const uint8_t odd_bytes[] = {0, 1, 0x20, 0x3f, 0x40, 0x7f, 0x80, 0xff};
	uint8_t other[PROTO_MESSAGE_MAX];
	size_t added;

	switch (random_below(state, 6)) {
	case 0:
		if (len_bytes > 0)
			buf[random_below(state, len_bytes)] ^=
				(uint8_t)(1u << random_below(state, 8));
		return len_bytes;
	case 1:
		if (len_bytes > 0)
			buf[random_below(state, len_bytes)] =
				odd_bytes[random_below(state, sizeof(odd_bytes))];
		return len_bytes;
	case 2:
		return random_below(state, len_bytes + 1);
	case 3:
		added = random_below(state, 64);
		for (size_t i = 0; i < added && len_bytes < PROTO_MESSAGE_MAX; i++)
			buf[len_bytes++] = (uint8_t)random_next(state);
		return len_bytes;
	case 4:
		/* The header of one type before the payload of another. */
		encode_sample(types[random_below(state, TYPES)], ORDINARY, other);
		memcpy(buf, other, len_bytes < HEADER ? len_bytes : HEADER);
		return len_bytes;
	default:
		if (len_bytes >= HEADER)
			put_payload_bytes(buf, len_bytes);
		return len_bytes;
	}
}

static bool encodes_to(const struct message *m, const uint8_t *expected, size_t expected_bytes)
{
	uint8_t buf[PROTO_MESSAGE_MAX];

	return encode(m, buf) == expected_bytes && memcmp(buf, expected, expected_bytes) == 0;
}

TEST(message_decode__mutated_messages)
{
	uint64_t state = UINT64_C(0x9e3779b97f4a7c15);
	size_t accepted[MESSAGE_TYPE_END] = {0};
	size_t refused = 0;

	for (size_t round = 0; round < 200000; round++) {
		uint16_t type = types[random_below(&state, TYPES)];
		enum variant variant = (enum variant)random_below(&state, VARIANT_END);
		uint8_t buf[PROTO_MESSAGE_MAX];
		size_t len_bytes = encode_sample(type, variant, buf);
		struct message m;

		for (size_t i = random_below(&state, 5) + 1; i > 0; i--)
			len_bytes = mutate(&state, buf, len_bytes);
		if (decode(buf, len_bytes, &m) != 0) {
			refused++;
			continue;
		}
		CHECK(encodes_to(&m, buf, len_bytes));
		accepted[m.type]++;
	}
	/* Both ways must have been taken often, or this has shown nothing. */
	CHECK(refused > 20000);
	for (size_t i = 0; i < TYPES; i++)
		CHECK(accepted[types[i]] > 100);
}

TEST(message_decode__random_bytes_behind_good_header)
{
	uint64_t state = UINT64_C(0x2545f4914f6cdd1d);
	size_t accepted = 0;

	for (size_t round = 0; round < 50000; round++) {
		size_t len_bytes = HEADER + random_below(&state, 200);
		uint8_t buf[PROTO_MESSAGE_MAX];
		struct message m;

		encode_sample(types[random_below(&state, TYPES)], ORDINARY, buf);
		for (size_t i = HEADER; i < len_bytes; i++)
			buf[i] = (uint8_t)random_next(&state);
		put_payload_bytes(buf, len_bytes);
		if (decode(buf, len_bytes, &m) != 0)
			continue;
		CHECK(encodes_to(&m, buf, len_bytes));
		accepted++;
	}
	CHECK(accepted > 0);
}

TEST(message_type_name__every_type)
{
	static const char *const names[MESSAGE_TYPE_END] = {
		"unknown",	"hello",      "welcome",   "error",	"bye",
		"credit",	"ping",	      "pong",	   "lane-open", "lane-offer",
		"lane-confirm", "lane-ready", "lane-lost", "acquire",	"grant",
		"renew",	"renewed",    "release",   "released",	"leases-ended",
		"attach",	"revoke",     "revoked",   "modify",	"quiesce",
		"quiesced",	"reattach",   "drain",
	};

	for (unsigned int type = 0; type < MESSAGE_TYPE_END; type++)
		CHECK_STR(message_type_name(type), names[type]);
	CHECK_STR(message_type_name(MESSAGE_TYPE_END), "unknown");
	CHECK_STR(message_type_name(65536 + MESSAGE_HELLO), "unknown");
	CHECK_STR(message_type_name(UINT32_MAX), "unknown");
}
