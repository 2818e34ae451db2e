/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Encoder and decoder of the control channel's messages. One table row per type
 * gives its name, flags, rule for the request id and the two functions for its
 * payload. A message has exactly one encoding, so whatever decodes encodes to the
 * same bytes again. The same check of values guards both directions: for what a
 * peer sent it is a refusal, for what we send an assertion. Pure code, any thread.
 */
#include "proto/message.h"

#include <assert.h>
#include <errno.h>
#include <stdbool.h>
#include <string.h>

#include "proto/cursor.h"

#define HEADER_CREDITS_AT  16
#define DESCRIPTOR_BYTES   28
#define GRANT_FIXED_BYTES  54
#define LISTED_LEASE_BYTES 12 /* in released, revoke and leases ended */

_Static_assert(MESSAGE_HEADER_BYTES + GRANT_FIXED_BYTES +
			       PROTO_GRANT_DESCRIPTORS * DESCRIPTOR_BYTES <=
		       PROTO_MESSAGE_MAX,
	       "the largest grant must fit a message");
_Static_assert(MESSAGE_HEADER_BYTES + 2 + PROTO_NOTICE_LEASES * LISTED_LEASE_BYTES <=
		       PROTO_MESSAGE_MAX,
	       "the longest list of leases must fit a message");

enum id_rule {
	ID_REQUIRED, /* a request or an answer to one */
	ID_NONE,
	ID_ANY,
};

struct kind {
	const char *name;
	enum id_rule id_rule;
	uint16_t flags; /* that are defined */
	void (*write)(struct cursor_writer *writer, const struct message *m);
	void (*read)(struct cursor_reader *reader, struct message *m);
	bool (*is_valid)(const struct message *m);
};

static bool is_text(const char *text, size_t max_bytes)
{
	size_t len_bytes = strnlen(text, max_bytes + 1);

	if (len_bytes > max_bytes)
		return false;
	for (size_t i = 0; i < len_bytes; i++) {
		if (text[i] < ' ' || text[i] > '~')
			return false;
	}
	return true;
}

static bool are_receives(uint16_t receives)
{
	return receives >= PROTO_CREDITS_MIN && receives <= PROTO_CREDITS_MAX;
}

/* A receiver may return the negative of a code, so it must be one, and not 0. */
static bool is_code(uint32_t code)
{
	return code != 0 && code <= INT32_MAX;
}

static bool is_code_or_none(uint32_t code)
{
	return code == 0 || is_code(code);
}

static bool is_count(uint16_t count, uint16_t max)
{
	return count >= 1 && count <= max;
}

/* Reads the count of a list; 0 if it is above the limit, and the reader has failed then. */
static uint16_t read_count(struct cursor_reader *reader, uint16_t max)
{
	uint16_t count = cursor_read_u16(reader);

	if (count <= max)
		return count;
	cursor_fail(reader);
	return 0;
}

static void write_nothing(struct cursor_writer *writer, const struct message *m)
{
	(void)writer;
	(void)m;
}

static void read_nothing(struct cursor_reader *reader, struct message *m)
{
	(void)reader;
	(void)m;
}

static bool is_always_valid(const struct message *m)
{
	(void)m;
	return true;
}

static void write_hello(struct cursor_writer *writer, const struct message *m)
{
	const struct message_hello *hello = &m->u.hello;

	cursor_write_u16(writer, hello->version);
	cursor_write_u16(writer, hello->receives);
	cursor_write_bytes(writer, hello->instance, sizeof(hello->instance));
}

static void read_hello(struct cursor_reader *reader, struct message *m)
{
	struct message_hello *hello = &m->u.hello;

	hello->version = cursor_read_u16(reader);
	hello->receives = cursor_read_u16(reader);
	cursor_read_bytes(reader, hello->instance, sizeof(hello->instance));
}

static bool is_valid_hello(const struct message *m)
{
	return are_receives(m->u.hello.receives);
}

static void write_welcome(struct cursor_writer *writer, const struct message *m)
{
	const struct message_welcome *welcome = &m->u.welcome;

	cursor_write_u16(writer, welcome->version);
	cursor_write_u16(writer, welcome->receives);
	cursor_write_u64(writer, welcome->session_id);
	cursor_write_u64(writer, welcome->ttl_default_ms);
	cursor_write_u64(writer, welcome->ttl_max_ms);
	cursor_write_u64(writer, welcome->window_max_bytes);
	cursor_write_u32(writer, welcome->page_bytes);
	cursor_write_u32(writer, welcome->read_depth);
	cursor_write_u32(writer, welcome->rights);
	cursor_write_u32(writer, welcome->heartbeat_ms);
	cursor_write_u32(writer, welcome->isolation);
	cursor_write_u32(writer, welcome->enforced);
}

static void read_welcome(struct cursor_reader *reader, struct message *m)
{
	struct message_welcome *welcome = &m->u.welcome;

	welcome->version = cursor_read_u16(reader);
	welcome->receives = cursor_read_u16(reader);
	welcome->session_id = cursor_read_u64(reader);
	welcome->ttl_default_ms = cursor_read_u64(reader);
	welcome->ttl_max_ms = cursor_read_u64(reader);
	welcome->window_max_bytes = cursor_read_u64(reader);
	welcome->page_bytes = cursor_read_u32(reader);
	welcome->read_depth = cursor_read_u32(reader);
	welcome->rights = cursor_read_u32(reader);
	welcome->heartbeat_ms = cursor_read_u32(reader);
	welcome->isolation = cursor_read_u32(reader);
	welcome->enforced = cursor_read_u32(reader);
}

static bool is_valid_welcome(const struct message *m)
{
	return are_receives(m->u.welcome.receives);
}

static void write_error(struct cursor_writer *writer, const struct message *m)
{
	cursor_write_u32(writer, m->u.error.code);
	cursor_write_string(writer, m->u.error.text);
}

static void read_error(struct cursor_reader *reader, struct message *m)
{
	m->u.error.code = cursor_read_u32(reader);
	cursor_read_string(reader, m->u.error.text, PROTO_TEXT_MAX);
}

static bool is_valid_error(const struct message *m)
{
	return is_code(m->u.error.code) && is_text(m->u.error.text, PROTO_TEXT_MAX);
}

static void write_lane_offer(struct cursor_writer *writer, const struct message *m)
{
	const struct message_lane_offer *offer = &m->u.lane_offer;

	cursor_write_u32(writer, offer->lane);
	cursor_write_u32(writer, offer->expires_ms);
}

static void read_lane_offer(struct cursor_reader *reader, struct message *m)
{
	struct message_lane_offer *offer = &m->u.lane_offer;

	offer->lane = cursor_read_u32(reader);
	offer->expires_ms = cursor_read_u32(reader);
}

static void write_lane_confirm(struct cursor_writer *writer, const struct message *m)
{
	cursor_write_u32(writer, m->u.lane_confirm.lane);
	cursor_write_u32(writer, m->u.lane_confirm.daemon_qpn);
	cursor_write_u32(writer, m->u.lane_confirm.client_qpn);
}

static void read_lane_confirm(struct cursor_reader *reader, struct message *m)
{
	m->u.lane_confirm.lane = cursor_read_u32(reader);
	m->u.lane_confirm.daemon_qpn = cursor_read_u32(reader);
	m->u.lane_confirm.client_qpn = cursor_read_u32(reader);
}

static void write_lane(struct cursor_writer *writer, const struct message *m)
{
	cursor_write_u32(writer, m->u.lane.lane);
}

static void read_lane(struct cursor_reader *reader, struct message *m)
{
	m->u.lane.lane = cursor_read_u32(reader);
}

static void write_acquire(struct cursor_writer *writer, const struct message *m)
{
	const struct message_acquire *acquire = &m->u.acquire;

	cursor_write_u64(writer, acquire->len_bytes);
	cursor_write_u64(writer, acquire->ttl_ms);
	cursor_write_u32(writer, acquire->rights);
	cursor_write_u32(writer, acquire->lane);
	cursor_write_u32(writer, acquire->wait_ms);
	cursor_write_u16(writer, acquire->count);
}

static void read_acquire(struct cursor_reader *reader, struct message *m)
{
	struct message_acquire *acquire = &m->u.acquire;

	acquire->len_bytes = cursor_read_u64(reader);
	acquire->ttl_ms = cursor_read_u64(reader);
	acquire->rights = cursor_read_u32(reader);
	acquire->lane = cursor_read_u32(reader);
	acquire->wait_ms = cursor_read_u32(reader);
	acquire->count = cursor_read_u16(reader);
}

static bool is_valid_acquire(const struct message *m)
{
	return is_count(m->u.acquire.count, PROTO_ACQUIRE_LEASES);
}

static void write_grant(struct cursor_writer *writer, const struct message *m)
{
	const struct message_grant *grant = &m->u.grant;

	cursor_write_u64(writer, grant->lease_id);
	cursor_write_u64(writer, grant->len_bytes);
	cursor_write_u64(writer, grant->ttl_ms);
	cursor_write_u32(writer, grant->generation);
	cursor_write_u32(writer, grant->rights);
	cursor_write_u32(writer, grant->lane);
	cursor_write_bytes(writer, grant->secret, sizeof(grant->secret));
	cursor_write_u16(writer, grant->descriptor_count);
	for (size_t i = 0; i < grant->descriptor_count; i++) {
		const struct message_descriptor *descriptor = &grant->descriptors[i];

		cursor_write_u64(writer, descriptor->offset_bytes);
		cursor_write_u64(writer, descriptor->len_bytes);
		cursor_write_u64(writer, descriptor->remote_addr);
		cursor_write_u32(writer, descriptor->rkey);
	}
}

static void read_grant(struct cursor_reader *reader, struct message *m)
{
	struct message_grant *grant = &m->u.grant;

	grant->lease_id = cursor_read_u64(reader);
	grant->len_bytes = cursor_read_u64(reader);
	grant->ttl_ms = cursor_read_u64(reader);
	grant->generation = cursor_read_u32(reader);
	grant->rights = cursor_read_u32(reader);
	grant->lane = cursor_read_u32(reader);
	cursor_read_bytes(reader, grant->secret, sizeof(grant->secret));
	grant->descriptor_count = read_count(reader, PROTO_GRANT_DESCRIPTORS);
	for (size_t i = 0; i < grant->descriptor_count; i++) {
		struct message_descriptor *descriptor = &grant->descriptors[i];

		descriptor->offset_bytes = cursor_read_u64(reader);
		descriptor->len_bytes = cursor_read_u64(reader);
		descriptor->remote_addr = cursor_read_u64(reader);
		descriptor->rkey = cursor_read_u32(reader);
	}
}

static bool is_valid_grant(const struct message *m)
{
	return is_count(m->u.grant.descriptor_count, PROTO_GRANT_DESCRIPTORS);
}

static void write_renew(struct cursor_writer *writer, const struct message *m)
{
	cursor_write_u64(writer, m->u.renew.lease_id);
	cursor_write_u64(writer, m->u.renew.ttl_ms);
}

static void read_renew(struct cursor_reader *reader, struct message *m)
{
	m->u.renew.lease_id = cursor_read_u64(reader);
	m->u.renew.ttl_ms = cursor_read_u64(reader);
}

static void write_lease(struct cursor_writer *writer, const struct message *m)
{
	cursor_write_u64(writer, m->u.lease.lease_id);
}

static void read_lease(struct cursor_reader *reader, struct message *m)
{
	m->u.lease.lease_id = cursor_read_u64(reader);
}

static void write_leases(struct cursor_writer *writer, const struct message *m)
{
	cursor_write_u16(writer, m->u.leases.count);
	for (size_t i = 0; i < m->u.leases.count; i++)
		cursor_write_u64(writer, m->u.leases.lease_ids[i]);
}

static void read_leases(struct cursor_reader *reader, struct message *m)
{
	m->u.leases.count = read_count(reader, PROTO_NOTICE_LEASES);
	for (size_t i = 0; i < m->u.leases.count; i++)
		m->u.leases.lease_ids[i] = cursor_read_u64(reader);
}

static bool is_valid_leases(const struct message *m)
{
	return is_count(m->u.leases.count, PROTO_NOTICE_LEASES);
}

static void write_released(struct cursor_writer *writer, const struct message *m)
{
	const struct message_released *released = &m->u.released;

	cursor_write_u16(writer, released->count);
	for (size_t i = 0; i < released->count; i++) {
		cursor_write_u64(writer, released->released[i].lease_id);
		cursor_write_u32(writer, released->released[i].code);
	}
}

static void read_released(struct cursor_reader *reader, struct message *m)
{
	struct message_released *released = &m->u.released;

	released->count = read_count(reader, PROTO_NOTICE_LEASES);
	for (size_t i = 0; i < released->count; i++) {
		released->released[i].lease_id = cursor_read_u64(reader);
		released->released[i].code = cursor_read_u32(reader);
	}
}

static bool is_valid_released(const struct message *m)
{
	const struct message_released *released = &m->u.released;

	if (!is_count(released->count, PROTO_NOTICE_LEASES))
		return false;
	for (size_t i = 0; i < released->count; i++) {
		if (!is_code_or_none(released->released[i].code))
			return false;
	}
	return true;
}

static void write_revoke(struct cursor_writer *writer, const struct message *m)
{
	const struct message_revoke *revoke = &m->u.revoke;

	cursor_write_u16(writer, revoke->count);
	for (size_t i = 0; i < revoke->count; i++) {
		cursor_write_u64(writer, revoke->revoked[i].lease_id);
		cursor_write_u32(writer, revoke->revoked[i].grace_ms);
	}
}

static void read_revoke(struct cursor_reader *reader, struct message *m)
{
	struct message_revoke *revoke = &m->u.revoke;

	revoke->count = read_count(reader, PROTO_NOTICE_LEASES);
	for (size_t i = 0; i < revoke->count; i++) {
		revoke->revoked[i].lease_id = cursor_read_u64(reader);
		revoke->revoked[i].grace_ms = cursor_read_u32(reader);
	}
}

static bool is_valid_revoke(const struct message *m)
{
	return is_count(m->u.revoke.count, PROTO_NOTICE_LEASES);
}

static void write_modify(struct cursor_writer *writer, const struct message *m)
{
	cursor_write_u64(writer, m->u.modify.lease_id);
	cursor_write_u64(writer, m->u.modify.len_bytes);
	cursor_write_u32(writer, m->u.modify.rights);
}

static void read_modify(struct cursor_reader *reader, struct message *m)
{
	m->u.modify.lease_id = cursor_read_u64(reader);
	m->u.modify.len_bytes = cursor_read_u64(reader);
	m->u.modify.rights = cursor_read_u32(reader);
}

static void write_leases_ended(struct cursor_writer *writer, const struct message *m)
{
	const struct message_leases_ended *notice = &m->u.leases_ended;

	cursor_write_u16(writer, notice->count);
	for (size_t i = 0; i < notice->count; i++) {
		cursor_write_u64(writer, notice->ended[i].lease_id);
		cursor_write_u32(writer, notice->ended[i].reason);
	}
}

static void read_leases_ended(struct cursor_reader *reader, struct message *m)
{
	struct message_leases_ended *notice = &m->u.leases_ended;

	notice->count = read_count(reader, PROTO_NOTICE_LEASES);
	for (size_t i = 0; i < notice->count; i++) {
		notice->ended[i].lease_id = cursor_read_u64(reader);
		notice->ended[i].reason = cursor_read_u32(reader);
	}
}

static bool is_valid_leases_ended(const struct message *m)
{
	const struct message_leases_ended *notice = &m->u.leases_ended;

	if (!is_count(notice->count, PROTO_NOTICE_LEASES))
		return false;
	for (size_t i = 0; i < notice->count; i++) {
		if (!is_code(notice->ended[i].reason))
			return false;
	}
	return true;
}

static void write_attach(struct cursor_writer *writer, const struct message *m)
{
	cursor_write_u64(writer, m->u.attach.lease_id);
	cursor_write_u32(writer, m->u.attach.lane);
}

static void read_attach(struct cursor_reader *reader, struct message *m)
{
	m->u.attach.lease_id = cursor_read_u64(reader);
	m->u.attach.lane = cursor_read_u32(reader);
}

static void write_reattach(struct cursor_writer *writer, const struct message *m)
{
	const struct message_reattach *reattach = &m->u.reattach;

	cursor_write_u64(writer, reattach->lease_id);
	cursor_write_bytes(writer, reattach->secret, sizeof(reattach->secret));
	cursor_write_u32(writer, reattach->lane);
}

static void read_reattach(struct cursor_reader *reader, struct message *m)
{
	struct message_reattach *reattach = &m->u.reattach;

	reattach->lease_id = cursor_read_u64(reader);
	cursor_read_bytes(reader, reattach->secret, sizeof(reattach->secret));
	reattach->lane = cursor_read_u32(reader);
}

static void write_drain(struct cursor_writer *writer, const struct message *m)
{
	cursor_write_u64(writer, m->u.drain.left_ms);
	cursor_write_u32(writer, m->u.drain.draining);
}

static void read_drain(struct cursor_reader *reader, struct message *m)
{
	m->u.drain.left_ms = cursor_read_u64(reader);
	m->u.drain.draining = cursor_read_u32(reader);
}

static bool is_valid_drain(const struct message *m)
{
	return m->u.drain.draining == 1 || (m->u.drain.draining == 0 && m->u.drain.left_ms == 0);
}

static const struct kind kinds[MESSAGE_TYPE_END] = {
	[MESSAGE_HELLO] = {"hello", ID_REQUIRED, 0, write_hello, read_hello, is_valid_hello},
	[MESSAGE_WELCOME] = {"welcome", ID_REQUIRED, 0, write_welcome, read_welcome,
			     is_valid_welcome},
	[MESSAGE_ERROR] = {"error", ID_ANY, 0, write_error, read_error, is_valid_error},
	[MESSAGE_BYE] = {"bye", ID_NONE, 0, write_nothing, read_nothing, is_always_valid},
	[MESSAGE_CREDIT] = {"credit", ID_NONE, 0, write_nothing, read_nothing, is_always_valid},
	[MESSAGE_PING] = {"ping", ID_REQUIRED, 0, write_nothing, read_nothing, is_always_valid},
	[MESSAGE_PONG] = {"pong", ID_REQUIRED, 0, write_nothing, read_nothing, is_always_valid},
	[MESSAGE_LANE_OPEN] = {"lane-open", ID_REQUIRED, 0, write_nothing, read_nothing,
			       is_always_valid},
	[MESSAGE_LANE_OFFER] = {"lane-offer", ID_REQUIRED, 0, write_lane_offer, read_lane_offer,
				is_always_valid},
	[MESSAGE_LANE_CONFIRM] = {"lane-confirm", ID_REQUIRED, 0, write_lane_confirm,
				  read_lane_confirm, is_always_valid},
	[MESSAGE_LANE_READY] = {"lane-ready", ID_REQUIRED, 0, write_lane, read_lane,
				is_always_valid},
	[MESSAGE_LANE_LOST] = {"lane-lost", ID_NONE, 0, write_lane, read_lane, is_always_valid},
	[MESSAGE_ACQUIRE] = {"acquire", ID_REQUIRED, 0, write_acquire, read_acquire,
			     is_valid_acquire},
	[MESSAGE_GRANT] = {"grant", ID_REQUIRED, MESSAGE_FLAG_MORE, write_grant, read_grant,
			   is_valid_grant},
	[MESSAGE_RENEW] = {"renew", ID_REQUIRED, 0, write_renew, read_renew, is_always_valid},
	[MESSAGE_RENEWED] = {"renewed", ID_REQUIRED, 0, write_renew, read_renew, is_always_valid},
	[MESSAGE_RELEASE] = {"release", ID_REQUIRED, 0, write_leases, read_leases, is_valid_leases},
	[MESSAGE_RELEASED] = {"released", ID_REQUIRED, 0, write_released, read_released,
			      is_valid_released},
	[MESSAGE_LEASES_ENDED] = {"leases-ended", ID_NONE, 0, write_leases_ended, read_leases_ended,
				  is_valid_leases_ended},
	[MESSAGE_ATTACH] = {"attach", ID_REQUIRED, 0, write_attach, read_attach, is_always_valid},
	[MESSAGE_REVOKE] = {"revoke", ID_NONE, 0, write_revoke, read_revoke, is_valid_revoke},
	[MESSAGE_REVOKED] = {"revoked", ID_NONE, 0, write_leases, read_leases, is_valid_leases},
	[MESSAGE_MODIFY] = {"modify", ID_REQUIRED, 0, write_modify, read_modify, is_always_valid},
	[MESSAGE_QUIESCE] = {"quiesce", ID_NONE, 0, write_lease, read_lease, is_always_valid},
	[MESSAGE_QUIESCED] = {"quiesced", ID_NONE, 0, write_lease, read_lease, is_always_valid},
	[MESSAGE_REATTACH] = {"reattach", ID_REQUIRED, 0, write_reattach, read_reattach,
			      is_always_valid},
	[MESSAGE_DRAIN] = {"drain", ID_NONE, 0, write_drain, read_drain, is_valid_drain},
};

/* The row of a type, or NULL. */
static const struct kind *kind_of(unsigned int type)
{
	if (type >= MESSAGE_TYPE_END || kinds[type].name == NULL)
		return NULL;
	return &kinds[type];
}

static bool is_valid_id(enum id_rule rule, uint64_t request_id)
{
	switch (rule) {
	case ID_REQUIRED:
		return request_id != 0;
	case ID_NONE:
		return request_id == 0;
	case ID_ANY:
		break;
	}
	return true;
}

/* Is all right that does not depend on the bytes? */
static bool is_valid(const struct kind *kind, const struct message *m)
{
	return (m->flags & ~kind->flags) == 0 && m->credits <= PROTO_CREDITS_MAX &&
	       is_valid_id(kind->id_rule, m->request_id) && kind->is_valid(m);
}

static void write_header(struct cursor_writer *writer, const struct message *m,
			 uint32_t payload_bytes)
{
	cursor_write_u16(writer, m->type);
	cursor_write_u16(writer, m->flags);
	cursor_write_u32(writer, payload_bytes);
	cursor_write_u64(writer, m->request_id);
	cursor_write_u16(writer, m->credits);
	cursor_write_u16(writer, 0);
	cursor_write_u32(writer, 0);
}

int message_encode(const struct message *m, void *buf, size_t cap_bytes, size_t *ret_len_bytes)
{
	const struct kind *kind = kind_of(m->type);
	struct cursor_writer payload;
	struct cursor_writer header;

	assert(kind != NULL && is_valid(kind, m));

	/* The header holds the payload's length, so it is written last. */
	if (cap_bytes < MESSAGE_HEADER_BYTES)
		return -EMSGSIZE;
	cursor_writer_init(&payload, (uint8_t *)buf + MESSAGE_HEADER_BYTES,
			   cap_bytes - MESSAGE_HEADER_BYTES);
	kind->write(&payload, m);
	if (payload.failed)
		return -EMSGSIZE;
	cursor_writer_init(&header, buf, MESSAGE_HEADER_BYTES);
	write_header(&header, m, (uint32_t)payload.written_bytes);
	assert(!header.failed && header.left_bytes == 0);

	*ret_len_bytes = MESSAGE_HEADER_BYTES + payload.written_bytes;
	return 0;
}

int message_decode(const void *buf, size_t len_bytes, struct message *ret_m)
{
	struct cursor_reader reader;
	const struct kind *kind;
	uint32_t payload_bytes;
	struct message m;

	/* Not an initialiser: that need not zero the whole union. */
	memset(&m, 0, sizeof(m));
	cursor_reader_init(&reader, buf, len_bytes);
	m.type = cursor_read_u16(&reader);
	m.flags = cursor_read_u16(&reader);
	payload_bytes = cursor_read_u32(&reader);
	m.request_id = cursor_read_u64(&reader);
	m.credits = cursor_read_u16(&reader);
	if (cursor_read_u16(&reader) != 0 || cursor_read_u32(&reader) != 0)
		return -EPROTO;
	if (reader.failed || reader.left_bytes != payload_bytes)
		return -EPROTO;

	kind = kind_of(m.type);
	if (kind == NULL)
		return -EPROTO;
	kind->read(&reader, &m);
	if (!cursor_reader_is_done(&reader) || !is_valid(kind, &m))
		return -EPROTO;

	*ret_m = m;
	return 0;
}

void message_set_credits(void *bytes, uint16_t credits)
{
	struct cursor_writer writer;

	assert(credits <= PROTO_CREDITS_MAX);
	cursor_writer_init(&writer, (uint8_t *)bytes + HEADER_CREDITS_AT, sizeof(credits));
	cursor_write_u16(&writer, credits);
}

const char *message_type_name(unsigned int type)
{
	const struct kind *kind = kind_of(type);

	return kind == NULL ? "unknown" : kind->name;
}
