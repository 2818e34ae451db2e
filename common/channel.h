/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef COMMON_CHANNEL_H
#define COMMON_CHANNEL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>

#include "common/noise.h"
#include "proto/limits.h"
#include "proto/private_data.h"

/*
 * What is done to the messages of one control connection between the moment they are encoded
 * and the wire (PROTOCOL.md, sealing): the first of each direction makes the handshake, all
 * others are sealed. No I/O. Holds secrets: keep it in memory of secure_alloc().
 */
struct channel {
	struct noise noise;
	struct noise_cipher send;
	struct noise_cipher receive;
	uint8_t lane_key[SECURE_KEY_BYTES];
	bool is_client;
	bool sealed;  /* the handshake is over */
	bool refused; /* client: an error came in place of the handshake's answer, in clear */
};

/* What a lane's private data is bound to. */
struct channel_lane {
	uint64_t session_id;
	uint32_t lane;
	uint32_t client_qpn;
	uint8_t client_address[16]; /* IPv6, or IPv4 mapped into it; without the port */
};

/**
 * channel_init_client(), channel_init_daemon() - before the connection's first message
 * @channel: all zero or wiped
 * @request: the private data of the connect request
 * @version: of the protocol, that the accept has told
 * @own: our key pair, @daemon_public: the daemon's key; both must stay until the handshake is over
 */
void channel_init_client(struct channel *channel, const struct private_data *request,
			 uint16_t version, const struct secure_key_pair *own,
			 const uint8_t *daemon_public);
void channel_init_daemon(struct channel *channel, const struct private_data *request,
			 uint16_t version, const struct secure_key_pair *own);

/** channel_wipe() - forget all secrets; all zero is allowed */
void channel_wipe(struct channel *channel);

/**
 * channel_overhead_bytes() - by how much sealing makes a message longer, at most
 */
static inline size_t channel_overhead_bytes(void)
{
	return NOISE_FIRST_BYTES;
}

/**
 * channel_seal() - make of the next message that we send what goes over the wire
 * @bytes: an encoded message; no overlap with @out
 * @cap_bytes: room in @out
 * @ret_len_bytes: of what is in @out
 *
 * A daemon that has not read the client's first message, or cannot, answers in clear: it has
 * no key in common with it.
 *
 * Return: 0; -EMSGSIZE (too long for @out); -EPROTO (not our turn); -EKEYREJECTED (the
 * peer's key is none); -EOVERFLOW (the direction has used up its nonces).
 */
int channel_seal(struct channel *channel, const void *bytes, size_t len_bytes, void *out,
		 size_t cap_bytes, size_t *ret_len_bytes);

/**
 * channel_open() - make of what came the message that the peer sent
 * @bytes: anything; no overlap with @out
 *
 * Return: 0; -EKEYREJECTED: changed, cut, replayed, out of turn, or meant for another key;
 * -EOVERFLOW: the direction has used up its nonces. Nothing can be opened after a failure.
 */
int channel_open(struct channel *channel, const void *bytes, size_t len_bytes, void *out,
		 size_t cap_bytes, size_t *ret_len_bytes);

/** channel_peer() - the peer's public key; valid once its first message has been opened */
const uint8_t *channel_peer(const struct channel *channel);

/** channel_lane_address() - fill in the client's address; any but IPv4 and IPv6 is all zero */
void channel_lane_address(const struct sockaddr *address, struct channel_lane *lane);

/** channel_lane_mac() - of a lane's private data; the handshake is over (asserted) */
void channel_lane_mac(const struct channel *channel, const struct channel_lane *lane,
		      uint8_t ret_mac[PROTO_MAC_BYTES]);

#endif
