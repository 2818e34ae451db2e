/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Random bytes, comparison and wiping of secrets: thin names over libsodium, so that
 * no other file depends on it. No state of its own; any thread.
 */
#include "common/secure.h"

#include <assert.h>
#include <errno.h>
#include <sodium.h>

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

void secure_wipe(void *buf, size_t len_bytes)
{
	sodium_memzero(buf, len_bytes);
}
