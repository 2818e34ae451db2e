/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef COMMON_SECURE_H
#define COMMON_SECURE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The only user of libsodium. */

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

/** secure_wipe() - zero memory in a way the compiler cannot drop */
void secure_wipe(void *buf, size_t len_bytes);

#endif
