/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The handshake and the sealing of one control connection, over the Noise state machine.
 *
 * Invariants: nothing but the two handshake messages, and an error in place of the second,
 * passes before the keys are there; the handshake's secrets are gone as soon as they are.
 *
 * Thread: that of the owner; no locking.
 */
#include "common/channel.h"

#include <assert.h>
#include <errno.h>
#include <netinet/in.h>
#include <string.h>

#include "proto/message.h"

#define CHANNEL_LABEL	   "mempoold control"
#define CHANNEL_LANE_LABEL "mempoold lane"

static_assert(PROTO_SEAL_BYTES == SECURE_TAG_BYTES, "the protocol's number is the cipher's");
static_assert(PROTO_MAC_BYTES == SECURE_MAC_BYTES, "the protocol's number is the MAC's");

/* What both ends must have seen alike before the first message. Return: its length. */
static size_t channel_prologue(const struct private_data *request, uint16_t version, uint8_t *out)
{
	size_t len_bytes = sizeof(CHANNEL_LABEL) - 1;

	memcpy(out, CHANNEL_LABEL, len_bytes);
	len_bytes += private_data_encode(request, out + len_bytes);
	out[len_bytes++] = (uint8_t)(version & 0xff);
	out[len_bytes++] = (uint8_t)(version >> 8);
	return len_bytes;
}

void channel_init_client(struct channel *channel, const struct private_data *request,
			 uint16_t version, const struct secure_key_pair *own,
			 const uint8_t *daemon_public)
{
	uint8_t prologue[sizeof(CHANNEL_LABEL) + PROTO_PRIVATE_DATA_MAX + 2];
	size_t len_bytes = channel_prologue(request, version, prologue);

	channel_wipe(channel);
	channel->is_client = true;
	noise_init_initiator(&channel->noise, prologue, len_bytes, own, daemon_public);
}

void channel_init_daemon(struct channel *channel, const struct private_data *request,
			 uint16_t version, const struct secure_key_pair *own)
{
	uint8_t prologue[sizeof(CHANNEL_LABEL) + PROTO_PRIVATE_DATA_MAX + 2];
	size_t len_bytes = channel_prologue(request, version, prologue);

	channel_wipe(channel);
	noise_init_responder(&channel->noise, prologue, len_bytes, own);
}

void channel_wipe(struct channel *channel)
{
	noise_wipe(&channel->noise);
	noise_cipher_wipe(&channel->send);
	noise_cipher_wipe(&channel->receive);
	secure_wipe(channel, sizeof(*channel));
}

/* The second message has passed: from here on everything is sealed. */
static void channel_split(struct channel *channel)
{
	int r;

	if (!noise_is_done(&channel->noise))
		return;
	r = noise_export(&channel->noise, CHANNEL_LANE_LABEL, channel->lane_key);
	assert(r == 0);
	r = noise_split(&channel->noise, &channel->send, &channel->receive);
	assert(r == 0);
	(void)r;
	channel->sealed = true;
}

static int channel_copy(const void *bytes, size_t len_bytes, void *out, size_t cap_bytes,
			size_t *ret_len_bytes)
{
	if (len_bytes > cap_bytes)
		return -EMSGSIZE;
	memcpy(out, bytes, len_bytes);
	*ret_len_bytes = len_bytes;
	return 0;
}

int channel_seal(struct channel *channel, const void *bytes, size_t len_bytes, void *out,
		 size_t cap_bytes, size_t *ret_len_bytes)
{
	int r;

	if (channel->sealed) {
		if (cap_bytes < PROTO_SEAL_BYTES || len_bytes > cap_bytes - PROTO_SEAL_BYTES)
			return -EMSGSIZE;
		r = noise_seal(&channel->send, NULL, 0, bytes, len_bytes, out);
		if (r == 0)
			*ret_len_bytes = len_bytes + PROTO_SEAL_BYTES;
		return r;
	}
	if (!channel->is_client && channel->noise.state != NOISE_WRITE_SECOND)
		return channel_copy(bytes, len_bytes, out, cap_bytes, ret_len_bytes);
	r = noise_write(&channel->noise, bytes, len_bytes, out, cap_bytes, ret_len_bytes);
	if (r == 0)
		channel_split(channel);
	return r == -ENOBUFS ? -EMSGSIZE : r;
}

/* A daemon that cannot read our greeting has no other way to say so. */
static bool channel_is_refusal(const struct channel *channel, const void *bytes, size_t len_bytes)
{
	struct message m;

	return channel->noise.state == NOISE_READ_SECOND &&
	       message_decode(bytes, len_bytes, &m) == 0 && m.type == MESSAGE_ERROR;
}

int channel_open(struct channel *channel, const void *bytes, size_t len_bytes, void *out,
		 size_t cap_bytes, size_t *ret_len_bytes)
{
	int r;

	if (channel->sealed) {
		if (len_bytes < PROTO_SEAL_BYTES || len_bytes - PROTO_SEAL_BYTES > cap_bytes)
			return -EKEYREJECTED;
		r = noise_open(&channel->receive, NULL, 0, bytes, len_bytes, out);
		if (r == 0)
			*ret_len_bytes = len_bytes - PROTO_SEAL_BYTES;
		return r == 0 || r == -EOVERFLOW ? r : -EKEYREJECTED;
	}
	if (channel_is_refusal(channel, bytes, len_bytes)) {
		noise_wipe(&channel->noise);
		channel->refused = true;
		return channel_copy(bytes, len_bytes, out, cap_bytes, ret_len_bytes);
	}
	r = noise_read(&channel->noise, bytes, len_bytes, out, cap_bytes, ret_len_bytes);
	if (r == 0)
		channel_split(channel);
	return r == 0 ? 0 : -EKEYREJECTED;
}

const uint8_t *channel_peer(const struct channel *channel)
{
	return channel->noise.peer_static;
}

void channel_lane_address(const struct sockaddr *address, struct channel_lane *lane)
{
	static const uint8_t mapped[12] = {[10] = 0xff, [11] = 0xff};

	memset(lane->client_address, 0, sizeof(lane->client_address));
	if (address->sa_family == AF_INET6) {
		memcpy(lane->client_address,
		       &((const struct sockaddr_in6 *)(const void *)address)->sin6_addr,
		       sizeof(lane->client_address));
	} else if (address->sa_family == AF_INET) {
		memcpy(lane->client_address, mapped, sizeof(mapped));
		memcpy(lane->client_address + sizeof(mapped),
		       &((const struct sockaddr_in *)(const void *)address)->sin_addr, 4);
	}
}

void channel_lane_mac(const struct channel *channel, const struct channel_lane *lane,
		      uint8_t ret_mac[PROTO_MAC_BYTES])
{
	struct private_data data = {
		.kind = PRIVATE_DATA_LANE,
		.session_id = lane->session_id,
		.lane = lane->lane,
	};
	uint8_t qpn[4] = {(uint8_t)lane->client_qpn, (uint8_t)(lane->client_qpn >> 8),
			  (uint8_t)(lane->client_qpn >> 16), (uint8_t)(lane->client_qpn >> 24)};
	uint8_t bytes[PROTO_PRIVATE_DATA_MAX];
	/* The private data as it is sent, but for the MAC itself, which comes last. */
	struct secure_part parts[] = {
		{.data = bytes, .len_bytes = private_data_encode(&data, bytes) - PROTO_MAC_BYTES},
		{.data = qpn, .len_bytes = sizeof(qpn)},
		{.data = lane->client_address, .len_bytes = sizeof(lane->client_address)},
	};

	assert(channel->sealed);
	secure_mac(channel->lane_key, parts, sizeof(parts) / sizeof(parts[0]), ret_mac);
}
