/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef TESTS_INTEGRATION_SHADOW_H
#define TESTS_INTEGRATION_SHADOW_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/*
 * What the bytes of a lease may be: those that a successful write has left, and where a write has
 * failed either the old ones or those of that write, byte by byte.
 */
struct shadow {
	uint8_t *is;
	uint8_t *may_be;
	bool *open; /* of each byte: it may be the other one, too */
	size_t len_bytes;
};

/** shadow_init() - all bytes are 0; Return: 0 or -ENOMEM; shadow_deinit() in any case */
int shadow_init(struct shadow *shadow, size_t len_bytes);
void shadow_deinit(struct shadow *shadow);

/** shadow_reset() - all bytes are 0 again */
void shadow_reset(struct shadow *shadow);

/** shadow_wrote() - a write has succeeded */
void shadow_wrote(struct shadow *shadow, size_t at, const uint8_t *bytes, size_t len_bytes);

/** shadow_tried() - a write has failed; none of these bytes may be open */
void shadow_tried(struct shadow *shadow, size_t at, const uint8_t *bytes, size_t len_bytes);

/**
 * shadow_read() - a read has succeeded: of what was open it is known now
 *
 * Return: can the bytes be that? If not it tells where.
 */
bool shadow_read(struct shadow *shadow, size_t at, const uint8_t *bytes, size_t len_bytes);

#endif
