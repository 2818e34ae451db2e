/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef COMMON_SECURE_H
#define COMMON_SECURE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/*
 * The only user of libsodium. No call keeps a pointer; any thread. Nothing here fails for
 * want of memory but secure_alloc().
 */

#define SECURE_KEY_BYTES       32  /* of X25519, ChaCha20-Poly1305 and MAC keys */
#define SECURE_HASH_BYTES      64  /* of BLAKE2b, HMAC-BLAKE2b and chaining keys */
#define SECURE_HASH_BLOCK      128 /* bytes of a BLAKE2b block */
#define SECURE_TAG_BYTES       16  /* that sealing adds */
#define SECURE_MAC_BYTES       16
#define SECURE_KEY_TEXT_LENGTH 44 /* of a key in base64, without a NUL */

/* X25519. */
struct secure_key_pair {
	uint8_t private_key[SECURE_KEY_BYTES];
	uint8_t public_key[SECURE_KEY_BYTES];
};

/* A piece of what is hashed; pieces are taken as if they stood one after the other. */
struct secure_part {
	const void *data; /* may be NULL if the length is 0 */
	size_t len_bytes;
};

/**
 * secure_init() - must succeed once before anything else here; idempotent; any thread
 *
 * Blocks until the kernel's random generator is seeded. Return: 0 or -EIO.
 */
int secure_init(void);

/** secure_random() - fill with random bytes */
void secure_random(void *buf, size_t len_bytes);

/** secure_uniform() - a random number below @bound (not 0) without bias */
uint32_t secure_uniform(uint32_t bound);

/** secure_equal() - compare in constant time */
bool secure_equal(const void *a, const void *b, size_t len_bytes);

/** secure_is_zero() - are all bytes 0? In constant time. */
bool secure_is_zero(const void *buf, size_t len_bytes);

/** secure_wipe() - zero memory in a way the compiler cannot drop */
void secure_wipe(void *buf, size_t len_bytes);

/**
 * secure_alloc() - memory for secrets: locked, not in core dumps, between guard pages, zeroed
 * @len_bytes: not 0; rounded up to 16 bytes, so that any object is aligned
 *
 * Costs a page of locked memory for every page begun, and system calls: one for all that a
 * session has to hide, not one per key.
 * Return: the memory for secure_free(); NULL with errno ENOMEM (or EPERM, EAGAIN) if there is
 * none or if the limit of locked memory (RLIMIT_MEMLOCK) does not allow it.
 */
void *secure_alloc(size_t len_bytes);

/** secure_free() - wipe and give back; NULL is allowed; aborts if a bound was overwritten */
void secure_free(void *memory);

/** secure_key_pair_make() - a new random key pair */
void secure_key_pair_make(struct secure_key_pair *ret_pair);

/** secure_key_pair_from_private() - the key pair of a private key (any 32 bytes) */
void secure_key_pair_from_private(const uint8_t private_key[SECURE_KEY_BYTES],
				  struct secure_key_pair *ret_pair);

/**
 * secure_x25519() - Diffie-Hellman
 * @ret_shared: zeroed on failure
 *
 * Return: 0, or -EKEYREJECTED: the public key is of low order, so the result would be zero
 * whatever the private key is.
 */
int secure_x25519(const uint8_t private_key[SECURE_KEY_BYTES],
		  const uint8_t public_key[SECURE_KEY_BYTES], uint8_t ret_shared[SECURE_KEY_BYTES]);

/** secure_x25519_is_weak() - would secure_x25519() refuse this public key? */
bool secure_x25519_is_weak(const uint8_t public_key[SECURE_KEY_BYTES]);

/**
 * secure_seal() - ChaCha20-Poly1305 (RFC 8439)
 * @counter: the nonce: four zero bytes and this number, little-endian; once per key
 * @ad: covered by the tag, not part of the result; may be NULL if @ad_len_bytes is 0
 * @plain: may be NULL if @len_bytes is 0; may be @ret_sealed itself, no other overlap
 * @ret_sealed: @len_bytes + SECURE_TAG_BYTES
 */
void secure_seal(const uint8_t key[SECURE_KEY_BYTES], uint64_t counter, const void *ad,
		 size_t ad_len_bytes, const void *plain, size_t len_bytes, uint8_t *ret_sealed);

/**
 * secure_open() - the reverse of secure_seal()
 * @len_bytes: of @sealed
 * @ret_plain: @len_bytes - SECURE_TAG_BYTES; may be @sealed itself; zeroed or untouched on failure
 *
 * Return: 0, or -EBADMSG: too short, or not sealed with this key, counter and @ad.
 */
int secure_open(const uint8_t key[SECURE_KEY_BYTES], uint64_t counter, const void *ad,
		size_t ad_len_bytes, const uint8_t *sealed, size_t len_bytes, void *ret_plain);

/** secure_hash() - BLAKE2b of parts; @ret_hash may be one of them */
void secure_hash(const struct secure_part *parts, size_t count,
		 uint8_t ret_hash[SECURE_HASH_BYTES]);

/**
 * secure_hmac() - HMAC (RFC 2104) over BLAKE2b, which is not BLAKE2b with a key
 * @ret_hmac: may be the key or one of @parts
 */
void secure_hmac(const void *key, size_t key_len_bytes, const struct secure_part *parts,
		 size_t count, uint8_t ret_hmac[SECURE_HASH_BYTES]);

/**
 * secure_hkdf() - the HKDF of the Noise specification with two outputs
 * @input: may be NULL if @len_bytes is 0
 * @ret_first: may be @chaining_key
 */
void secure_hkdf(const uint8_t chaining_key[SECURE_HASH_BYTES], const void *input, size_t len_bytes,
		 uint8_t ret_first[SECURE_HASH_BYTES], uint8_t ret_second[SECURE_HASH_BYTES]);

/** secure_mac() - BLAKE2b with a key; compare with secure_equal() */
void secure_mac(const uint8_t key[SECURE_KEY_BYTES], const struct secure_part *parts, size_t count,
		uint8_t ret_mac[SECURE_MAC_BYTES]);

/** secure_key_encode() - a key in base64 (with padding), in constant time; no NUL is added */
void secure_key_encode(const uint8_t key[SECURE_KEY_BYTES], char ret_text[SECURE_KEY_TEXT_LENGTH]);

/**
 * secure_key_decode() - the reverse; only what secure_key_encode() writes is taken
 * @ret_key: untouched on failure
 *
 * Return: 0 or -EBADMSG.
 */
int secure_key_decode(const char text[SECURE_KEY_TEXT_LENGTH], uint8_t ret_key[SECURE_KEY_BYTES]);

#endif
