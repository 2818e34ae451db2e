/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef COMMON_NOISE_H
#define COMMON_NOISE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/secure.h"

/*
 * Noise_IK_25519_ChaChaPoly_BLAKE2b (Noise specification, revision 34): two messages by
 * which two ends that hold X25519 keys come to share two secrets, one per direction, and
 * then the sealed messages of each direction.
 *
 *	initiator (knows the responder's key)	responder
 *	noise_init_initiator()			noise_init_responder()
 *	noise_write() ---------- message 1 ---> noise_read(), noise_peer_public()
 *	noise_read() <---------- message 2 ---- noise_write()
 *	noise_export(), noise_split()		noise_export(), noise_split()
 *	noise_seal() <-------------------------> noise_open()
 *
 * Anybody can send a recorded message 1 again, and its payload with it: what it says of its
 * sender is proven only by the first message that noise_open() takes from it.
 *
 * Objects hold secrets: keep them in memory of secure_alloc(). One thread at a time; no I/O,
 * no clock, no memory of its own.
 *
 * Errors, by cause:
 *	-EBADMSG	changed, cut, replayed, out of order, or not meant for us
 *	-EKEYREJECTED	a public key of the peer is of low order: the shared secret would be zero
 *	-EMSGSIZE	longer than NOISE_MESSAGE_MAX, or than the room for the payload
 *	-ENOBUFS	no room for what is to be written
 *	-EPROTO		not the time for this call; also everything after a failure
 *	-EOVERFLOW	a direction has used up its nonces
 */

#define NOISE_MESSAGE_MAX 65535
/* What the handshake messages add to their payloads. */
#define NOISE_FIRST_BYTES  (SECURE_KEY_BYTES + SECURE_KEY_BYTES + 2 * SECURE_TAG_BYTES)
#define NOISE_SECOND_BYTES (SECURE_KEY_BYTES + SECURE_TAG_BYTES)
/* After so many messages a direction goes on with the next key. */
#define NOISE_REKEY_MESSAGES (UINT64_C(1) << 16)

enum noise_state {
	NOISE_NEW,	    /* all zero */
	NOISE_WRITE_FIRST,  /* initiator */
	NOISE_READ_FIRST,   /* responder */
	NOISE_WRITE_SECOND, /* responder */
	NOISE_READ_SECOND,  /* initiator */
	NOISE_DONE,	    /* both messages have passed */
	NOISE_SPLIT,	    /* the secrets have left for the two ciphers */
	NOISE_FAILED,	    /* wiped; for good */
	NOISE_STATES
};

/* One handshake; all zero at first. The fields are its own. */
struct noise {
	enum noise_state state; /* only noise_set_state() writes it; the rest is behind it */
	const struct secure_key_pair *own;
	struct secure_key_pair ephemeral;
	bool is_initiator;
	bool has_ephemeral; /* given by a test */
	bool has_peer;	    /* peer_static is known */
	uint8_t peer_static[SECURE_KEY_BYTES];
	uint8_t peer_ephemeral[SECURE_KEY_BYTES];
	uint8_t hash[SECURE_HASH_BYTES];
	uint8_t chaining_key[SECURE_HASH_BYTES];
	uint8_t key[SECURE_KEY_BYTES]; /* for the next sealed part */
};

/* One direction after the handshake; all zero at first. */
struct noise_cipher {
	uint8_t key[SECURE_KEY_BYTES];
	uint64_t nonce; /* of the next message; tests may set it */
	bool is_live;
};

/** noise_can_go() - may the state follow on the other? */
bool noise_can_go(enum noise_state from, enum noise_state to);

/**
 * noise_init_initiator() - start as the end that speaks first
 * @noise: all zero or wiped (asserted)
 * @prologue: what both ends must see alike, as they see it; may be NULL if the length is 0
 * @own: must stay until the handshake is done, has failed or is wiped
 * @peer_public: the responder's key, known beforehand
 */
void noise_init_initiator(struct noise *noise, const void *prologue, size_t prologue_len_bytes,
			  const struct secure_key_pair *own,
			  const uint8_t peer_public[SECURE_KEY_BYTES]);

/** noise_init_responder() - start as the end that waits; see noise_init_initiator() */
void noise_init_responder(struct noise *noise, const void *prologue, size_t prologue_len_bytes,
			  const struct secure_key_pair *own);

/**
 * noise_set_ephemeral() - for tests only: the ephemeral key that noise_write() would choose
 *
 * Before the end's noise_write() (asserted). Nothing but a test may call this: an ephemeral
 * key that is used twice gives the secrets away.
 */
void noise_set_ephemeral(struct noise *noise, const uint8_t private_key[SECURE_KEY_BYTES]);

/**
 * noise_write() - write our handshake message
 * @payload: may be NULL if @len_bytes is 0; no overlap with @out. That of message 1 can be
 *           read by whoever gets hold of the responder's private key later.
 * @out: undefined on failure
 * @cap_bytes: room in @out; @len_bytes + NOISE_FIRST_BYTES or NOISE_SECOND_BYTES is needed
 * @ret_len_bytes: of the message; untouched on failure
 *
 * Return: 0; -EPROTO, -EMSGSIZE, -ENOBUFS (nothing has changed); -EKEYREJECTED (final).
 */
int noise_write(struct noise *noise, const void *payload, size_t len_bytes, void *out,
		size_t cap_bytes, size_t *ret_len_bytes);

/**
 * noise_read() - take the peer's handshake message
 * @message: any bytes that came
 * @payload: room for @cap_bytes; no overlap with @message; undefined on failure
 * @ret_len_bytes: of the payload; untouched on failure
 *
 * Return: 0; -EPROTO (nothing has changed); -EBADMSG, -EKEYREJECTED, -EMSGSIZE (final).
 */
int noise_read(struct noise *noise, const void *message, size_t len_bytes, void *payload,
	       size_t cap_bytes, size_t *ret_len_bytes);

/** noise_is_done() - have both messages passed, without a failure? */
bool noise_is_done(const struct noise *noise);

/**
 * noise_peer_public() - the peer's static public key
 *
 * An initiator has it from the start, a responder from message 1 on; it stays after
 * noise_split(). Return: 0 or -EPROTO.
 */
int noise_peer_public(const struct noise *noise, uint8_t ret_public[SECURE_KEY_BYTES]);

/**
 * noise_hash() - the hash of the whole handshake, the same at both ends
 *
 * Names this one session (channel binding). It is no secret: whoever knows the responder's
 * public key and sees the two messages can compute it; keys come from noise_export().
 * It stays after noise_split(). Return: 0, or -EPROTO: the handshake is not done.
 */
int noise_hash(const struct noise *noise, uint8_t ret_hash[SECURE_HASH_BYTES]);

/**
 * noise_export() - a further secret of this session, the same at both ends
 * @label: says what the key is for; not empty (asserted)
 *
 * The first 32 bytes of HMAC-BLAKE2b(chaining key, label || handshake hash). Independent of
 * the keys that noise_split() gives. Return: 0, or -EPROTO: not done, or split already.
 */
int noise_export(const struct noise *noise, const char *label, uint8_t ret_key[SECURE_KEY_BYTES]);

/**
 * noise_split() - start the two directions; the handshake forgets its secrets
 *
 * Return: 0, or -EPROTO: not done, or split already (the ciphers are untouched).
 */
int noise_split(struct noise *noise, struct noise_cipher *ret_send,
		struct noise_cipher *ret_receive);

/** noise_wipe() - forget everything, at any time; all zero is allowed */
void noise_wipe(struct noise *noise);

/**
 * noise_seal() - seal the next message of a direction
 * @ad: bytes that go along in clear and may not change; may be NULL if @ad_len_bytes is 0
 * @plain: may be NULL if @len_bytes is 0; may be @ret_sealed itself
 * @len_bytes: NOISE_MESSAGE_MAX - SECURE_TAG_BYTES at most
 * @ret_sealed: @len_bytes + SECURE_TAG_BYTES; untouched on failure
 *
 * Return: 0; -EPROTO, -EMSGSIZE, -EOVERFLOW (nothing has changed).
 */
int noise_seal(struct noise_cipher *cipher, const void *ad, size_t ad_len_bytes, const void *plain,
	       size_t len_bytes, uint8_t *ret_sealed);

/**
 * noise_open() - open the next message of a direction
 * @sealed: any bytes that came
 * @len_bytes: of @sealed
 * @ret_plain: @len_bytes - SECURE_TAG_BYTES; may be @sealed itself; zeroed or untouched on failure
 *
 * Messages carry no number: each opens only in its place.
 * Return: 0; -EPROTO, -EOVERFLOW (nothing has changed); -EBADMSG, -EMSGSIZE (final: the key
 * is wiped).
 */
int noise_open(struct noise_cipher *cipher, const void *ad, size_t ad_len_bytes,
	       const uint8_t *sealed, size_t len_bytes, void *ret_plain);

/** noise_cipher_wipe() - end a direction; all zero is allowed */
void noise_cipher_wipe(struct noise_cipher *cipher);

#endif
