/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * common/channel.c: a client's end and a daemon's talk through bytes that the test holds in
 * between, and may record, change, drop, swap and send again.
 */
#include "common/channel.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <string.h>

#include "proto/error.h"
#include "proto/message.h"
#include "tests/unit/test.h"

#define FRAME_MAX PROTO_FRAME_MAX

struct ends {
	struct secure_key_pair client_key;
	struct secure_key_pair daemon_key;
	struct channel client;
	struct channel daemon;
};

struct frame {
	uint8_t bytes[FRAME_MAX];
	size_t len_bytes;
};

static const struct private_data request = {
	.kind = PRIVATE_DATA_CONTROL, .version = PROTO_VERSION, .version_min = PROTO_VERSION_MIN};

static struct ends *start(void)
{
	static struct ends ends;

	memset(&ends, 0, sizeof(ends));
	if (secure_init() < 0)
		return NULL;
	secure_key_pair_make(&ends.client_key);
	secure_key_pair_make(&ends.daemon_key);
	channel_init_client(&ends.client, &request, PROTO_VERSION, &ends.client_key,
			    ends.daemon_key.public_key);
	channel_init_daemon(&ends.daemon, &request, PROTO_VERSION, &ends.daemon_key);
	return &ends;
}

static int seal(struct channel *channel, const void *bytes, size_t len_bytes, struct frame *frame)
{
	return channel_seal(channel, bytes, len_bytes, frame->bytes, sizeof(frame->bytes),
			    &frame->len_bytes);
}

static int open_frame(struct channel *channel, const struct frame *frame, struct frame *ret_plain)
{
	return channel_open(channel, frame->bytes, frame->len_bytes, ret_plain->bytes,
			    sizeof(ret_plain->bytes), &ret_plain->len_bytes);
}

/* Send so many bytes from one end to the other and compare. */
static void pass(struct channel *from, struct channel *to, size_t len_bytes, uint8_t first)
{
	static struct frame sealed, plain;
	uint8_t bytes[FRAME_MAX];

	for (size_t i = 0; i < len_bytes; i++)
		bytes[i] = (uint8_t)(first + i);
	CHECK_INT(seal(from, bytes, len_bytes, &sealed), 0);
	CHECK_INT(open_frame(to, &sealed, &plain), 0);
	CHECK_INT(plain.len_bytes, len_bytes);
	CHECK_MEM(plain.bytes, bytes, len_bytes);
}

static struct ends *established(void)
{
	struct ends *ends = start();

	if (ends == NULL)
		return NULL;
	pass(&ends->client, &ends->daemon, 44, 1);
	pass(&ends->daemon, &ends->client, 84, 2);
	return test_has_failed() ? NULL : ends;
}

TEST(channel__handshake_then_messages_both_ways)
{
	struct ends *ends = established();

	CHECK(ends != NULL);
	CHECK(ends->client.sealed && ends->daemon.sealed);
	CHECK_MEM(channel_peer(&ends->daemon), ends->client_key.public_key, SECURE_KEY_BYTES);
	for (uint8_t i = 0; i < 20; i++) {
		pass(&ends->client, &ends->daemon, i, i);
		pass(&ends->daemon, &ends->client, 24u + i, i);
	}
	pass(&ends->client, &ends->daemon, PROTO_MESSAGE_MAX, 3);
	pass(&ends->daemon, &ends->client, PROTO_MESSAGE_MAX, 4);
	channel_wipe(&ends->client);
	channel_wipe(&ends->client);
}

TEST(channel_seal__room)
{
	struct ends *ends = start();
	uint8_t plain[PROTO_MESSAGE_MAX + 1] = {0};
	struct frame frame;
	size_t len_bytes = 7;

	CHECK(ends != NULL);
	CHECK_INT(channel_seal(&ends->client, plain, 44, frame.bytes,
			       44 + channel_overhead_bytes() - 1, &len_bytes),
		  -EMSGSIZE);
	CHECK_INT(len_bytes, 7);
	CHECK_INT(channel_seal(&ends->client, plain, 44, frame.bytes, 44 + channel_overhead_bytes(),
			       &len_bytes),
		  0);
	CHECK_INT(len_bytes, 44 + channel_overhead_bytes());
	ends = established();
	CHECK(ends != NULL);
	CHECK_INT(seal(&ends->client, plain, PROTO_MESSAGE_MAX + 1, &frame), -EMSGSIZE);
	CHECK_INT(seal(&ends->client, plain, PROTO_MESSAGE_MAX, &frame), 0);
	CHECK_INT(frame.len_bytes, PROTO_FRAME_MAX);
}

/* Nothing of what is said can be seen, and the same is never sealed to the same. */
TEST(channel__shows_nothing)
{
	struct ends *ends = established();
	static const char text[] = "remote_addr and rkey of a lease";
	struct frame one, two;

	CHECK(ends != NULL);
	CHECK_INT(seal(&ends->daemon, text, sizeof(text), &one), 0);
	CHECK_INT(seal(&ends->daemon, text, sizeof(text), &two), 0);
	CHECK(memmem(one.bytes, one.len_bytes, text, 8) == NULL);
	CHECK(memcmp(one.bytes, two.bytes, one.len_bytes) != 0);
}

/* Who has the wrong one of the daemon's keys gets an answer that needs none. */
TEST(channel__wrong_daemon_key_is_answered_in_clear)
{
	struct ends *ends = start();
	struct secure_key_pair other;
	struct message m = {.type = MESSAGE_ERROR, .u.error.code = ERROR_AUTH};
	uint8_t bytes[PROTO_MESSAGE_MAX];
	struct frame frame, plain;
	size_t len_bytes;

	CHECK(ends != NULL);
	secure_key_pair_make(&other);
	channel_init_client(&ends->client, &request, PROTO_VERSION, &ends->client_key,
			    other.public_key);
	CHECK_INT(seal(&ends->client, "hello", 5, &frame), 0);
	CHECK_INT(open_frame(&ends->daemon, &frame, &plain), -EKEYREJECTED);
	CHECK_INT(message_encode(&m, bytes, sizeof(bytes), &len_bytes), 0);
	CHECK_INT(seal(&ends->daemon, bytes, len_bytes, &frame), 0);
	CHECK_INT(open_frame(&ends->client, &frame, &plain), 0);
	CHECK_INT(plain.len_bytes, len_bytes);
	CHECK_MEM(plain.bytes, bytes, len_bytes);
	CHECK(ends->client.refused && !ends->client.sealed);
	/* It was the last word. */
	CHECK(open_frame(&ends->client, &frame, &plain) != 0);
	CHECK(seal(&ends->client, "hello", 5, &frame) != 0);
}

/* Nothing but an error is taken in clear, and none once there are keys. */
TEST(channel__clear_text_is_refused)
{
	struct ends *ends = start();
	struct message m = {.type = MESSAGE_WELCOME, .request_id = 1, .u.welcome.receives = 8};
	struct frame clear, sealed, plain;

	CHECK(ends != NULL);
	CHECK_INT(seal(&ends->client, "hello", 5, &sealed), 0);
	CHECK_INT(message_encode(&m, clear.bytes, sizeof(clear.bytes), &clear.len_bytes), 0);
	CHECK_INT(open_frame(&ends->client, &clear, &plain), -EKEYREJECTED);
	ends = established();
	CHECK(ends != NULL);
	m = (struct message){.type = MESSAGE_ERROR, .u.error.code = ERROR_AUTH};
	CHECK_INT(message_encode(&m, clear.bytes, sizeof(clear.bytes), &clear.len_bytes), 0);
	CHECK_INT(open_frame(&ends->client, &clear, &plain), -EKEYREJECTED);
	ends = established();
	CHECK(ends != NULL);
	CHECK_INT(open_frame(&ends->daemon, &clear, &plain), -EKEYREJECTED);
	ends = start();
	CHECK(ends != NULL);
	CHECK_INT(open_frame(&ends->daemon, &clear, &plain), -EKEYREJECTED);
}

TEST(channel__prologue_binds_request_and_version)
{
	struct private_data other = request;
	struct ends *ends = start();
	struct frame frame, plain;

	CHECK(ends != NULL);
	other.version++;
	channel_init_daemon(&ends->daemon, &other, PROTO_VERSION, &ends->daemon_key);
	CHECK_INT(seal(&ends->client, "hello", 5, &frame), 0);
	CHECK_INT(open_frame(&ends->daemon, &frame, &plain), -EKEYREJECTED);
	ends = start();
	CHECK(ends != NULL);
	channel_init_daemon(&ends->daemon, &request, PROTO_VERSION + 1, &ends->daemon_key);
	CHECK_INT(seal(&ends->client, "hello", 5, &frame), 0);
	CHECK_INT(open_frame(&ends->daemon, &frame, &plain), -EKEYREJECTED);
}

TEST(channel__out_of_turn)
{
	struct ends *ends = start();
	struct frame frame, plain;

	CHECK(ends != NULL);
	CHECK_INT(seal(&ends->client, "hello", 5, &frame), 0);
	CHECK_INT(seal(&ends->client, "again", 5, &plain), -EPROTO);
	CHECK_INT(open_frame(&ends->daemon, &frame, &plain), 0);
	CHECK_INT(open_frame(&ends->daemon, &frame, &plain), -EKEYREJECTED);
}

/* The same first message again makes another session, whose messages its sender cannot make. */
TEST(channel__replayed_first_message)
{
	struct ends *ends = established();
	static struct frame hello, later, plain, answer;

	ends = start();
	CHECK(ends != NULL);
	CHECK_INT(seal(&ends->client, "hello", 5, &hello), 0);
	CHECK_INT(open_frame(&ends->daemon, &hello, &plain), 0);
	CHECK_INT(seal(&ends->daemon, "welcome", 7, &answer), 0);
	CHECK_INT(open_frame(&ends->client, &answer, &plain), 0);
	CHECK_INT(seal(&ends->client, "acquire", 7, &later), 0);
	channel_init_daemon(&ends->daemon, &request, PROTO_VERSION, &ends->daemon_key);
	CHECK_INT(open_frame(&ends->daemon, &hello, &plain), 0);
	CHECK_INT(seal(&ends->daemon, "welcome", 7, &answer), 0);
	CHECK_INT(open_frame(&ends->daemon, &later, &plain), -EKEYREJECTED);
}

TEST(channel__replay_swap_loss_and_change)
{
	struct ends *ends;
	static struct frame one, two, plain;

	for (int what = 0; what < 5; what++) {
		ends = established();
		CHECK(ends != NULL);
		CHECK_INT(seal(&ends->client, "one", 3, &one), 0);
		CHECK_INT(seal(&ends->client, "two", 3, &two), 0);
		if (what == 0) { /* swapped */
			CHECK_INT(open_frame(&ends->daemon, &two, &plain), -EKEYREJECTED);
			CHECK_INT(open_frame(&ends->daemon, &one, &plain), -EKEYREJECTED);
			continue;
		}
		CHECK_INT(open_frame(&ends->daemon, &one, &plain), 0);
		if (what == 1) /* once more */
			two = one;
		if (what == 2) /* cut */
			two.len_bytes--;
		if (what == 3) /* longer */
			two.bytes[two.len_bytes++] = 0;
		if (what == 4) /* sent back to whom it came from */
			CHECK_INT(open_frame(&ends->client, &two, &plain), -EKEYREJECTED);
		else
			CHECK_INT(open_frame(&ends->daemon, &two, &plain), -EKEYREJECTED);
	}
	for (size_t bit = 0; bit < 8 * (3 + SECURE_TAG_BYTES); bit++) {
		ends = established();
		CHECK(ends != NULL);
		CHECK_INT(seal(&ends->client, "one", 3, &one), 0);
		one.bytes[bit / 8] ^= (uint8_t)(1u << bit % 8);
		CHECK_INT(open_frame(&ends->daemon, &one, &plain), -EKEYREJECTED);
	}
}

TEST(channel__nonces_end)
{
	struct ends *ends = established();
	static struct frame frame, plain;

	CHECK(ends != NULL);
	ends->client.send.nonce = UINT64_MAX - 1;
	ends->daemon.receive.nonce = UINT64_MAX - 1;
	CHECK_INT(seal(&ends->client, "last", 4, &frame), 0);
	CHECK_INT(open_frame(&ends->daemon, &frame, &plain), 0);
	CHECK_INT(seal(&ends->client, "more", 4, &frame), -EOVERFLOW);
	CHECK_INT(open_frame(&ends->daemon, &frame, &plain), -EOVERFLOW);
	pass(&ends->daemon, &ends->client, 10, 1);
}

/* A lane's proof: the same at both ends, another one if anything is another. */
TEST(channel_lane_mac__binds_everything)
{
	struct ends *ends = established();
	struct channel_lane lane = {.session_id = 5, .lane = 3, .client_qpn = 17};
	struct channel_lane other;
	uint8_t mac[PROTO_MAC_BYTES], again[PROTO_MAC_BYTES];
	struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(1)};

	CHECK(ends != NULL);
	CHECK_INT(inet_pton(AF_INET, "10.77.0.1", &address.sin_addr), 1);
	channel_lane_address((struct sockaddr *)&address, &lane);
	channel_lane_mac(&ends->client, &lane, mac);
	/* The port is not part of it. */
	address.sin_port = htons(2);
	channel_lane_address((struct sockaddr *)&address, &lane);
	channel_lane_mac(&ends->daemon, &lane, again);
	CHECK_MEM(again, mac, sizeof(mac));
	for (int what = 0; what < 4; what++) {
		other = lane;
		other.session_id += what == 0;
		other.lane += what == 1;
		other.client_qpn += what == 2 ? 0x10000 : 0;
		other.client_address[15] ^= what == 3;
		channel_lane_mac(&ends->daemon, &other, again);
		CHECK(memcmp(again, mac, sizeof(mac)) != 0);
	}
	ends = established();
	CHECK(ends != NULL);
	channel_lane_mac(&ends->daemon, &lane, again);
	CHECK(memcmp(again, mac, sizeof(mac)) != 0);
}

TEST(channel_lane_address__families)
{
	static const uint8_t mapped[16] = {[10] = 0xff, [11] = 0xff, [12] = 10, 77, 0, 1};
	static const uint8_t none[16] = {0};
	struct sockaddr_in v4 = {.sin_family = AF_INET};
	struct sockaddr_in6 v6 = {.sin6_family = AF_INET6, .sin6_scope_id = 2};
	struct sockaddr other = {.sa_family = AF_UNIX};
	struct channel_lane lane;

	CHECK_INT(inet_pton(AF_INET, "10.77.0.1", &v4.sin_addr), 1);
	CHECK_INT(inet_pton(AF_INET6, "::ffff:10.77.0.1", &v6.sin6_addr), 1);
	channel_lane_address((struct sockaddr *)&v4, &lane);
	CHECK_MEM(lane.client_address, mapped, 16);
	channel_lane_address((struct sockaddr *)&v6, &lane);
	CHECK_MEM(lane.client_address, mapped, 16);
	channel_lane_address(&other, &lane);
	CHECK_MEM(lane.client_address, none, 16);
}
