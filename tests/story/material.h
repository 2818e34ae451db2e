/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef TESTS_STORY_MATERIAL_H
#define TESTS_STORY_MATERIAL_H

#include <stddef.h>
#include <stdint.h>

/* Real data: the machine's own programs. Functions return 0, or -1 having told what failed. */

#define MATERIAL_HASH_CHARS 64 /* SHA-256, hexadecimal */

/**
 * material_make() - programs of /usr/bin, one after the other, repeated until @bytes is full
 */
int material_make(uint8_t *bytes, size_t len_bytes);

/** material_save() - write a file */
int material_save(const char *path, const uint8_t *bytes, size_t len_bytes);

/** material_hash() - what sha256sum says about a file */
int material_hash(const char *path, char ret_hash[MATERIAL_HASH_CHARS + 1]);

/** material_nonzero() - Return: how many of the bytes are not zero */
size_t material_nonzero(const uint8_t *bytes, size_t len_bytes);

#endif
