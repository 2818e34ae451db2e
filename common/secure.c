/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Random bytes, memory for secrets and the cryptographic primitives: thin names over
 * libsodium, so that no other file depends on it. No state of its own; any thread.
 *
 * What was secret on the way is wiped before a call returns.
 */
#include "common/secure.h"

#include <assert.h>
#include <errno.h>
#include <sodium.h>
#include <string.h>

#include "common/checked.h"

#define ALIGN_BYTES   16
#define NONCE_BYTES   12
#define COUNTER_START 4 /* of the nonce; before it zeros */
#define INNER_PAD     0x36
#define OUTER_PAD     0x5c

static_assert(SECURE_KEY_BYTES == crypto_scalarmult_curve25519_BYTES, "X25519 result");
static_assert(SECURE_KEY_BYTES == crypto_scalarmult_curve25519_SCALARBYTES, "X25519 key");
static_assert(SECURE_KEY_BYTES == crypto_aead_chacha20poly1305_ietf_KEYBYTES, "AEAD key");
static_assert(SECURE_TAG_BYTES == crypto_aead_chacha20poly1305_ietf_ABYTES, "AEAD tag");
static_assert(NONCE_BYTES == crypto_aead_chacha20poly1305_ietf_NPUBBYTES, "AEAD nonce");
static_assert(SECURE_HASH_BYTES == crypto_generichash_blake2b_BYTES_MAX, "BLAKE2b");
static_assert(SECURE_MAC_BYTES >= crypto_generichash_blake2b_BYTES_MIN, "BLAKE2b with a key");

int secure_init(void)
{
	return sodium_init() < 0 ? -EIO : 0;
}

void secure_random(void *buf, size_t len_bytes)
{
	randombytes_buf(buf, len_bytes);
}

uint32_t secure_uniform(uint32_t bound)
{
	assert(bound != 0);
	return randombytes_uniform(bound);
}

bool secure_equal(const void *a, const void *b, size_t len_bytes)
{
	return sodium_memcmp(a, b, len_bytes) == 0;
}

bool secure_is_zero(const void *buf, size_t len_bytes)
{
	return sodium_is_zero(buf, len_bytes) != 0;
}

void secure_wipe(void *buf, size_t len_bytes)
{
	sodium_memzero(buf, len_bytes);
}

void *secure_alloc(size_t len_bytes)
{
	uint64_t rounded_bytes;
	void *memory;
	int error;

	assert(len_bytes != 0);
	if (!checked_round_up(len_bytes, ALIGN_BYTES, &rounded_bytes)) {
		errno = ENOMEM;
		return NULL;
	}
	memory = sodium_malloc(rounded_bytes);
	if (memory == NULL)
		return NULL;
	/* The library goes on if it cannot lock; locking twice is the same as once. */
	if (sodium_mlock(memory, rounded_bytes) < 0) {
		error = errno;
		sodium_free(memory);
		errno = error;
		return NULL;
	}
	memset(memory, 0, rounded_bytes);
	return memory;
}

void secure_free(void *memory)
{
	sodium_free(memory);
}

/* X25519. */

void secure_key_pair_make(struct secure_key_pair *ret_pair)
{
	uint8_t private_key[SECURE_KEY_BYTES];

	secure_random(private_key, sizeof(private_key));
	secure_key_pair_from_private(private_key, ret_pair);
	secure_wipe(private_key, sizeof(private_key));
}

void secure_key_pair_from_private(const uint8_t private_key[SECURE_KEY_BYTES],
				  struct secure_key_pair *ret_pair)
{
	int r;

	memmove(ret_pair->private_key, private_key, SECURE_KEY_BYTES);
	/* No multiple of the base point that a clamped key gives is of low order. */
	r = crypto_scalarmult_curve25519_base(ret_pair->public_key, ret_pair->private_key);
	assert(r == 0);
	(void)r;
}

int secure_x25519(const uint8_t private_key[SECURE_KEY_BYTES],
		  const uint8_t public_key[SECURE_KEY_BYTES], uint8_t ret_shared[SECURE_KEY_BYTES])
{
	if (crypto_scalarmult_curve25519(ret_shared, private_key, public_key) == 0)
		return 0;
	secure_wipe(ret_shared, SECURE_KEY_BYTES);
	return -EKEYREJECTED;
}

bool secure_x25519_is_weak(const uint8_t public_key[SECURE_KEY_BYTES])
{
	/* Low order shows with any private key. */
	static const uint8_t any_private[SECURE_KEY_BYTES] = {1};
	uint8_t shared[SECURE_KEY_BYTES];

	return secure_x25519(any_private, public_key, shared) < 0;
}

/* Sealing. */

static void nonce_of(uint64_t counter, uint8_t nonce[NONCE_BYTES])
{
	memset(nonce, 0, COUNTER_START);
	for (size_t i = COUNTER_START; i < NONCE_BYTES; i++) {
		nonce[i] = (uint8_t)counter;
		counter >>= 8;
	}
}

void secure_seal(const uint8_t key[SECURE_KEY_BYTES], uint64_t counter, const void *ad,
		 size_t ad_len_bytes, const void *plain, size_t len_bytes, uint8_t *ret_sealed)
{
	uint8_t nonce[NONCE_BYTES];
	int r;

	nonce_of(counter, nonce);
	r = crypto_aead_chacha20poly1305_ietf_encrypt(ret_sealed, NULL, plain, len_bytes, ad,
						      ad_len_bytes, NULL, nonce, key);
	assert(r == 0);
	(void)r;
}

int secure_open(const uint8_t key[SECURE_KEY_BYTES], uint64_t counter, const void *ad,
		size_t ad_len_bytes, const uint8_t *sealed, size_t len_bytes, void *ret_plain)
{
	uint8_t nonce[NONCE_BYTES];

	if (len_bytes < SECURE_TAG_BYTES)
		return -EBADMSG;
	nonce_of(counter, nonce);
	if (crypto_aead_chacha20poly1305_ietf_decrypt(ret_plain, NULL, NULL, sealed, len_bytes, ad,
						      ad_len_bytes, nonce, key) != 0)
		return -EBADMSG;
	return 0;
}

/* Hashing. */

static void blake2b_start(crypto_generichash_blake2b_state *state, const uint8_t *key,
			  size_t key_len_bytes, size_t hash_bytes)
{
	int r = crypto_generichash_blake2b_init(state, key, key_len_bytes, hash_bytes);

	assert(r == 0);
	(void)r;
}

static void blake2b_add(crypto_generichash_blake2b_state *state, const struct secure_part *parts,
			size_t count)
{
	for (size_t i = 0; i < count; i++) {
		int r = 0;

		if (parts[i].len_bytes != 0)
			r = crypto_generichash_blake2b_update(state, parts[i].data,
							      parts[i].len_bytes);
		assert(r == 0);
		(void)r;
	}
}

static void blake2b_end(crypto_generichash_blake2b_state *state, uint8_t *ret_hash,
			size_t hash_bytes)
{
	int r = crypto_generichash_blake2b_final(state, ret_hash, hash_bytes);

	assert(r == 0);
	(void)r;
	secure_wipe(state, sizeof(*state));
}

void secure_hash(const struct secure_part *parts, size_t count, uint8_t ret_hash[SECURE_HASH_BYTES])
{
	crypto_generichash_blake2b_state state;

	blake2b_start(&state, NULL, 0, SECURE_HASH_BYTES);
	blake2b_add(&state, parts, count);
	blake2b_end(&state, ret_hash, SECURE_HASH_BYTES);
}

void secure_mac(const uint8_t key[SECURE_KEY_BYTES], const struct secure_part *parts, size_t count,
		uint8_t ret_mac[SECURE_MAC_BYTES])
{
	crypto_generichash_blake2b_state state;

	blake2b_start(&state, key, SECURE_KEY_BYTES, SECURE_MAC_BYTES);
	blake2b_add(&state, parts, count);
	blake2b_end(&state, ret_mac, SECURE_MAC_BYTES);
}

/* The key, filled up with zeros to a block; a longer key counts by its hash. */
static void hmac_block(const void *key, size_t key_len_bytes, uint8_t block[SECURE_HASH_BLOCK])
{
	struct secure_part whole = {key, key_len_bytes};

	memset(block, 0, SECURE_HASH_BLOCK);
	if (key_len_bytes > SECURE_HASH_BLOCK)
		secure_hash(&whole, 1, block);
	else if (key_len_bytes != 0)
		memcpy(block, key, key_len_bytes);
}

static void hmac_pad(uint8_t block[SECURE_HASH_BLOCK], uint8_t pad)
{
	for (size_t i = 0; i < SECURE_HASH_BLOCK; i++)
		block[i] ^= pad;
}

void secure_hmac(const void *key, size_t key_len_bytes, const struct secure_part *parts,
		 size_t count, uint8_t ret_hmac[SECURE_HASH_BYTES])
{
	crypto_generichash_blake2b_state state;
	uint8_t block[SECURE_HASH_BLOCK], inner[SECURE_HASH_BYTES];
	struct secure_part block_part = {block, sizeof(block)};
	struct secure_part inner_part = {inner, sizeof(inner)};

	hmac_block(key, key_len_bytes, block);
	hmac_pad(block, INNER_PAD);
	blake2b_start(&state, NULL, 0, SECURE_HASH_BYTES);
	blake2b_add(&state, &block_part, 1);
	blake2b_add(&state, parts, count);
	blake2b_end(&state, inner, sizeof(inner));
	/* Takes the inner pad off and puts the outer one on. */
	hmac_pad(block, INNER_PAD ^ OUTER_PAD);
	blake2b_start(&state, NULL, 0, SECURE_HASH_BYTES);
	blake2b_add(&state, &block_part, 1);
	blake2b_add(&state, &inner_part, 1);
	blake2b_end(&state, ret_hmac, SECURE_HASH_BYTES);
	secure_wipe(block, sizeof(block));
	secure_wipe(inner, sizeof(inner));
}

void secure_hkdf(const uint8_t chaining_key[SECURE_HASH_BYTES], const void *input, size_t len_bytes,
		 uint8_t ret_first[SECURE_HASH_BYTES], uint8_t ret_second[SECURE_HASH_BYTES])
{
	static const uint8_t one = 1, two = 2;
	uint8_t temp_key[SECURE_HASH_BYTES];
	struct secure_part input_part = {input, len_bytes};
	struct secure_part one_part = {&one, 1};
	struct secure_part two_parts[] = {{ret_first, SECURE_HASH_BYTES}, {&two, 1}};

	secure_hmac(chaining_key, SECURE_HASH_BYTES, &input_part, 1, temp_key);
	secure_hmac(temp_key, sizeof(temp_key), &one_part, 1, ret_first);
	secure_hmac(temp_key, sizeof(temp_key), two_parts, 2, ret_second);
	secure_wipe(temp_key, sizeof(temp_key));
}

/* Keys as text. */

void secure_key_encode(const uint8_t key[SECURE_KEY_BYTES], char ret_text[SECURE_KEY_TEXT_LENGTH])
{
	char text[SECURE_KEY_TEXT_LENGTH + 1];

	static_assert(sizeof(text) == sodium_base64_ENCODED_LEN(SECURE_KEY_BYTES,
								sodium_base64_VARIANT_ORIGINAL),
		      "base64");
	sodium_bin2base64(text, sizeof(text), key, SECURE_KEY_BYTES,
			  sodium_base64_VARIANT_ORIGINAL);
	memcpy(ret_text, text, SECURE_KEY_TEXT_LENGTH);
	secure_wipe(text, sizeof(text));
}

int secure_key_decode(const char text[SECURE_KEY_TEXT_LENGTH], uint8_t ret_key[SECURE_KEY_BYTES])
{
	char again[SECURE_KEY_TEXT_LENGTH];
	uint8_t key[SECURE_KEY_BYTES] = {0};
	size_t key_bytes = 0;
	int r = -EBADMSG;

	if (sodium_base642bin(key, sizeof(key), text, SECURE_KEY_TEXT_LENGTH, NULL, &key_bytes,
			      NULL, sodium_base64_VARIANT_ORIGINAL) != 0 ||
	    key_bytes != sizeof(key))
		goto out_wipe;
	/* One key, one text: a second spelling would be a second name of the same tenant. */
	secure_key_encode(key, again);
	if (!secure_equal(again, text, sizeof(again)))
		goto out_wipe;
	memcpy(ret_key, key, sizeof(key));
	r = 0;
out_wipe:
	secure_wipe(again, sizeof(again));
	secure_wipe(key, sizeof(key));
	return r;
}
