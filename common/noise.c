/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The handshake and the sealed messages of a control connection: bytes in, bytes out.
 *
 * Invariants:
 * - a secret is wiped where it is used for the last time, and all of them at a failure;
 * - every key of the handshake seals one part only, so its nonce is always 0;
 * - a cipher's nonce only grows; the last one, 2^64-1, belongs to the change of keys.
 *
 * Thread: any, one at a time per object.
 */
#include "common/noise.h"

#include <assert.h>
#include <errno.h>
#include <string.h>

#define PROTOCOL_NAME "Noise_IK_25519_ChaChaPoly_BLAKE2b"
#define REKEY_NONCE   UINT64_MAX

#define SEALED_KEY_BYTES (SECURE_KEY_BYTES + SECURE_TAG_BYTES)

static_assert(sizeof(PROTOCOL_NAME) - 1 <= SECURE_HASH_BYTES, "a longer name is hashed first");

#define GO(state) (1u << NOISE_##state)

static const uint32_t noise_next[NOISE_STATES] = {
	[NOISE_NEW] = GO(WRITE_FIRST) | GO(READ_FIRST),
	[NOISE_WRITE_FIRST] = GO(READ_SECOND) | GO(FAILED),
	[NOISE_READ_FIRST] = GO(WRITE_SECOND) | GO(FAILED),
	[NOISE_WRITE_SECOND] = GO(DONE) | GO(FAILED),
	[NOISE_READ_SECOND] = GO(DONE) | GO(FAILED),
	[NOISE_DONE] = GO(SPLIT),
	[NOISE_SPLIT] = 0,
	[NOISE_FAILED] = 0,
};

bool noise_can_go(enum noise_state from, enum noise_state to)
{
	return from < NOISE_STATES && to < NOISE_STATES && (noise_next[from] >> to & 1) != 0;
}

static void noise_set_state(struct noise *noise, enum noise_state state)
{
	assert(noise_can_go(noise->state, state));
	noise->state = state;
}

/* The steps that the specification is made of. */

static void mix_hash(struct noise *noise, const void *data, size_t len_bytes)
{
	struct secure_part parts[] = {{noise->hash, sizeof(noise->hash)}, {data, len_bytes}};

	secure_hash(parts, 2, noise->hash);
}

static int mix_key(struct noise *noise, const struct secure_key_pair *pair,
		   const uint8_t public_key[SECURE_KEY_BYTES])
{
	uint8_t shared[SECURE_KEY_BYTES], output[SECURE_HASH_BYTES];
	int r;

	r = secure_x25519(pair->private_key, public_key, shared);
	if (r < 0)
		return r;
	secure_hkdf(noise->chaining_key, shared, sizeof(shared), noise->chaining_key, output);
	memcpy(noise->key, output, sizeof(noise->key));
	secure_wipe(shared, sizeof(shared));
	secure_wipe(output, sizeof(output));
	return 0;
}

static void seal_part(struct noise *noise, const void *plain, size_t len_bytes, uint8_t *out)
{
	secure_seal(noise->key, 0, noise->hash, sizeof(noise->hash), plain, len_bytes, out);
	mix_hash(noise, out, len_bytes + SECURE_TAG_BYTES);
	secure_wipe(noise->key, sizeof(noise->key));
}

static int open_part(struct noise *noise, const uint8_t *sealed, size_t len_bytes, void *ret_plain)
{
	int r;

	r = secure_open(noise->key, 0, noise->hash, sizeof(noise->hash), sealed, len_bytes,
			ret_plain);
	if (r < 0)
		return r;
	mix_hash(noise, sealed, len_bytes);
	secure_wipe(noise->key, sizeof(noise->key));
	return 0;
}

static void write_ephemeral(struct noise *noise, uint8_t *out)
{
	if (!noise->has_ephemeral)
		secure_key_pair_make(&noise->ephemeral);
	memcpy(out, noise->ephemeral.public_key, SECURE_KEY_BYTES);
	mix_hash(noise, out, SECURE_KEY_BYTES);
}

static void read_ephemeral(struct noise *noise, const uint8_t *message)
{
	memcpy(noise->peer_ephemeral, message, SECURE_KEY_BYTES);
	mix_hash(noise, message, SECURE_KEY_BYTES);
}

/* Start and end. */

static void noise_init(struct noise *noise, const void *prologue, size_t prologue_len_bytes,
		       const struct secure_key_pair *own)
{
	assert(noise->state == NOISE_NEW);
	noise->own = own;
	memcpy(noise->hash, PROTOCOL_NAME, sizeof(PROTOCOL_NAME) - 1);
	memcpy(noise->chaining_key, noise->hash, sizeof(noise->chaining_key));
	mix_hash(noise, prologue, prologue_len_bytes);
}

void noise_init_initiator(struct noise *noise, const void *prologue, size_t prologue_len_bytes,
			  const struct secure_key_pair *own,
			  const uint8_t peer_public[SECURE_KEY_BYTES])
{
	noise_init(noise, prologue, prologue_len_bytes, own);
	noise->is_initiator = true;
	memcpy(noise->peer_static, peer_public, SECURE_KEY_BYTES);
	noise->has_peer = true;
	mix_hash(noise, noise->peer_static, SECURE_KEY_BYTES);
	noise_set_state(noise, NOISE_WRITE_FIRST);
}

void noise_init_responder(struct noise *noise, const void *prologue, size_t prologue_len_bytes,
			  const struct secure_key_pair *own)
{
	noise_init(noise, prologue, prologue_len_bytes, own);
	mix_hash(noise, own->public_key, SECURE_KEY_BYTES);
	noise_set_state(noise, NOISE_READ_FIRST);
}

void noise_set_ephemeral(struct noise *noise, const uint8_t private_key[SECURE_KEY_BYTES])
{
	assert(noise->state == NOISE_WRITE_FIRST || noise->state == NOISE_READ_FIRST ||
	       noise->state == NOISE_WRITE_SECOND);
	secure_key_pair_from_private(private_key, &noise->ephemeral);
	noise->has_ephemeral = true;
}

static void noise_fail(struct noise *noise)
{
	size_t state_bytes = offsetof(struct noise, own);

	noise_set_state(noise, NOISE_FAILED);
	secure_wipe((uint8_t *)noise + state_bytes, sizeof(*noise) - state_bytes);
}

/* Only the chaining key is needed behind the second message. */
static void noise_finish(struct noise *noise)
{
	noise_set_state(noise, NOISE_DONE);
	noise->own = NULL;
	secure_wipe(&noise->ephemeral, sizeof(noise->ephemeral));
	secure_wipe(noise->peer_ephemeral, sizeof(noise->peer_ephemeral));
}

/* Back to NOISE_NEW, from any state: that is no step of the handshake but its removal. */
void noise_wipe(struct noise *noise)
{
	secure_wipe(noise, sizeof(*noise));
}

/* Message 1: e, es, s, ss and the payload. */

static int write_first(struct noise *noise, const void *payload, size_t len_bytes, uint8_t *out)
{
	int r;

	write_ephemeral(noise, out);
	r = mix_key(noise, &noise->ephemeral, noise->peer_static);
	if (r < 0)
		return r;
	seal_part(noise, noise->own->public_key, SECURE_KEY_BYTES, out + SECURE_KEY_BYTES);
	r = mix_key(noise, noise->own, noise->peer_static);
	if (r < 0)
		return r;
	seal_part(noise, payload, len_bytes, out + SECURE_KEY_BYTES + SEALED_KEY_BYTES);
	noise_set_state(noise, NOISE_READ_SECOND);
	return 0;
}

static int read_first(struct noise *noise, const uint8_t *message, size_t len_bytes, void *payload)
{
	const uint8_t *sealed_key = message + SECURE_KEY_BYTES;
	const uint8_t *sealed = sealed_key + SEALED_KEY_BYTES;
	int r;

	read_ephemeral(noise, message);
	r = mix_key(noise, noise->own, noise->peer_ephemeral);
	if (r < 0)
		return r;
	r = open_part(noise, sealed_key, SEALED_KEY_BYTES, noise->peer_static);
	if (r < 0)
		return r;
	r = mix_key(noise, noise->own, noise->peer_static);
	if (r < 0)
		return r;
	r = open_part(noise, sealed, len_bytes - (size_t)(sealed - message), payload);
	if (r < 0)
		return r;
	noise->own = NULL;
	noise->has_peer = true;
	noise_set_state(noise, NOISE_WRITE_SECOND);
	return 0;
}

/* Message 2: e, ee, se and the payload. */

static int write_second(struct noise *noise, const void *payload, size_t len_bytes, uint8_t *out)
{
	int r;

	write_ephemeral(noise, out);
	r = mix_key(noise, &noise->ephemeral, noise->peer_ephemeral);
	if (r < 0)
		return r;
	r = mix_key(noise, &noise->ephemeral, noise->peer_static);
	if (r < 0)
		return r;
	seal_part(noise, payload, len_bytes, out + SECURE_KEY_BYTES);
	noise_finish(noise);
	return 0;
}

static int read_second(struct noise *noise, const uint8_t *message, size_t len_bytes, void *payload)
{
	int r;

	read_ephemeral(noise, message);
	r = mix_key(noise, &noise->ephemeral, noise->peer_ephemeral);
	if (r < 0)
		return r;
	r = mix_key(noise, noise->own, noise->peer_ephemeral);
	if (r < 0)
		return r;
	r = open_part(noise, message + SECURE_KEY_BYTES, len_bytes - SECURE_KEY_BYTES, payload);
	if (r < 0)
		return r;
	noise_finish(noise);
	return 0;
}

/* Either. */

int noise_write(struct noise *noise, const void *payload, size_t len_bytes, void *out,
		size_t cap_bytes, size_t *ret_len_bytes)
{
	size_t added_bytes;
	int r;

	if (noise->state != NOISE_WRITE_FIRST && noise->state != NOISE_WRITE_SECOND)
		return -EPROTO;
	added_bytes = noise->is_initiator ? NOISE_FIRST_BYTES : NOISE_SECOND_BYTES;
	if (len_bytes > NOISE_MESSAGE_MAX - added_bytes)
		return -EMSGSIZE;
	if (cap_bytes < len_bytes + added_bytes)
		return -ENOBUFS;
	r = noise->is_initiator ? write_first(noise, payload, len_bytes, out)
				: write_second(noise, payload, len_bytes, out);
	if (r < 0) {
		noise_fail(noise);
		return r;
	}
	*ret_len_bytes = len_bytes + added_bytes;
	return 0;
}

int noise_read(struct noise *noise, const void *message, size_t len_bytes, void *payload,
	       size_t cap_bytes, size_t *ret_len_bytes)
{
	size_t added_bytes;
	int r;

	if (noise->state != NOISE_READ_FIRST && noise->state != NOISE_READ_SECOND)
		return -EPROTO;
	added_bytes = noise->is_initiator ? NOISE_SECOND_BYTES : NOISE_FIRST_BYTES;
	if (len_bytes < added_bytes)
		r = -EBADMSG;
	else if (len_bytes > NOISE_MESSAGE_MAX || len_bytes - added_bytes > cap_bytes)
		r = -EMSGSIZE;
	else if (noise->is_initiator)
		r = read_second(noise, message, len_bytes, payload);
	else
		r = read_first(noise, message, len_bytes, payload);
	if (r < 0) {
		noise_fail(noise);
		return r;
	}
	*ret_len_bytes = len_bytes - added_bytes;
	return 0;
}

/* What a handshake leaves. */

bool noise_is_done(const struct noise *noise)
{
	return noise->state == NOISE_DONE || noise->state == NOISE_SPLIT;
}

int noise_peer_public(const struct noise *noise, uint8_t ret_public[SECURE_KEY_BYTES])
{
	if (!noise->has_peer)
		return -EPROTO;
	memcpy(ret_public, noise->peer_static, SECURE_KEY_BYTES);
	return 0;
}

int noise_hash(const struct noise *noise, uint8_t ret_hash[SECURE_HASH_BYTES])
{
	if (!noise_is_done(noise))
		return -EPROTO;
	memcpy(ret_hash, noise->hash, SECURE_HASH_BYTES);
	return 0;
}

int noise_export(const struct noise *noise, const char *label, uint8_t ret_key[SECURE_KEY_BYTES])
{
	struct secure_part parts[] = {{label, strlen(label)}, {noise->hash, sizeof(noise->hash)}};
	uint8_t output[SECURE_HASH_BYTES];

	assert(label[0] != '\0');
	if (noise->state != NOISE_DONE)
		return -EPROTO;
	secure_hmac(noise->chaining_key, sizeof(noise->chaining_key), parts, 2, output);
	memcpy(ret_key, output, SECURE_KEY_BYTES);
	secure_wipe(output, sizeof(output));
	return 0;
}

static void cipher_start(struct noise_cipher *cipher, const uint8_t key[SECURE_KEY_BYTES])
{
	memcpy(cipher->key, key, sizeof(cipher->key));
	cipher->nonce = 0;
	cipher->is_live = true;
}

int noise_split(struct noise *noise, struct noise_cipher *ret_send,
		struct noise_cipher *ret_receive)
{
	uint8_t to_responder[SECURE_HASH_BYTES], to_initiator[SECURE_HASH_BYTES];

	if (noise->state != NOISE_DONE)
		return -EPROTO;
	secure_hkdf(noise->chaining_key, NULL, 0, to_responder, to_initiator);
	cipher_start(noise->is_initiator ? ret_send : ret_receive, to_responder);
	cipher_start(noise->is_initiator ? ret_receive : ret_send, to_initiator);
	secure_wipe(to_responder, sizeof(to_responder));
	secure_wipe(to_initiator, sizeof(to_initiator));
	secure_wipe(noise->chaining_key, sizeof(noise->chaining_key));
	noise_set_state(noise, NOISE_SPLIT);
	return 0;
}

/* Sealed messages. */

/* A message has passed. The key that it used is gone before the next one, where it ends. */
static void cipher_step(struct noise_cipher *cipher)
{
	static const uint8_t zeros[SECURE_KEY_BYTES];
	uint8_t sealed[SECURE_KEY_BYTES + SECURE_TAG_BYTES];

	cipher->nonce++;
	if (cipher->nonce % NOISE_REKEY_MESSAGES != 0)
		return;
	secure_seal(cipher->key, REKEY_NONCE, NULL, 0, zeros, sizeof(zeros), sealed);
	memcpy(cipher->key, sealed, sizeof(cipher->key));
	secure_wipe(sealed, sizeof(sealed));
}

int noise_seal(struct noise_cipher *cipher, const void *ad, size_t ad_len_bytes, const void *plain,
	       size_t len_bytes, uint8_t *ret_sealed)
{
	if (!cipher->is_live)
		return -EPROTO;
	if (len_bytes > NOISE_MESSAGE_MAX - SECURE_TAG_BYTES)
		return -EMSGSIZE;
	if (cipher->nonce == REKEY_NONCE)
		return -EOVERFLOW;
	secure_seal(cipher->key, cipher->nonce, ad, ad_len_bytes, plain, len_bytes, ret_sealed);
	cipher_step(cipher);
	return 0;
}

int noise_open(struct noise_cipher *cipher, const void *ad, size_t ad_len_bytes,
	       const uint8_t *sealed, size_t len_bytes, void *ret_plain)
{
	int r;

	if (!cipher->is_live)
		return -EPROTO;
	if (cipher->nonce == REKEY_NONCE)
		return -EOVERFLOW;
	if (len_bytes > NOISE_MESSAGE_MAX)
		r = -EMSGSIZE;
	else
		r = secure_open(cipher->key, cipher->nonce, ad, ad_len_bytes, sealed, len_bytes,
				ret_plain);
	if (r < 0) {
		noise_cipher_wipe(cipher);
		return r;
	}
	cipher_step(cipher);
	return 0;
}

void noise_cipher_wipe(struct noise_cipher *cipher)
{
	secure_wipe(cipher, sizeof(*cipher));
}
