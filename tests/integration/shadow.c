/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A copy of a lease that knows what it does not know. Owns it; one thread at a time.
 */
#include "tests/integration/shadow.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int shadow_init(struct shadow *shadow, size_t len_bytes)
{
	*shadow = (struct shadow){
		.is = calloc(1, len_bytes),
		.may_be = calloc(1, len_bytes),
		.open = calloc(len_bytes, sizeof(bool)),
		.len_bytes = len_bytes,
	};
	return shadow->is != NULL && shadow->may_be != NULL && shadow->open != NULL ? 0 : -ENOMEM;
}

void shadow_deinit(struct shadow *shadow)
{
	free(shadow->is);
	free(shadow->may_be);
	free(shadow->open);
	*shadow = (struct shadow){0};
}

void shadow_reset(struct shadow *shadow)
{
	memset(shadow->is, 0, shadow->len_bytes);
	memset(shadow->open, 0, shadow->len_bytes * sizeof(bool));
}

void shadow_wrote(struct shadow *shadow, size_t at, const uint8_t *bytes, size_t len_bytes)
{
	assert(at + len_bytes <= shadow->len_bytes);
	memcpy(shadow->is + at, bytes, len_bytes);
	memset(shadow->open + at, 0, len_bytes * sizeof(bool));
}

void shadow_tried(struct shadow *shadow, size_t at, const uint8_t *bytes, size_t len_bytes)
{
	assert(at + len_bytes <= shadow->len_bytes);
	for (size_t i = at; i < at + len_bytes; i++) {
		assert(!shadow->open[i]);
		shadow->may_be[i] = bytes[i - at];
		shadow->open[i] = true;
	}
}

bool shadow_read(struct shadow *shadow, size_t at, const uint8_t *bytes, size_t len_bytes)
{
	assert(at + len_bytes <= shadow->len_bytes);
	for (size_t i = at; i < at + len_bytes; i++) {
		uint8_t byte = bytes[i - at];

		if (byte != shadow->is[i] && !(shadow->open[i] && byte == shadow->may_be[i])) {
			printf("# byte %zu is 0x%02x instead of 0x%02x%s\n", i, byte, shadow->is[i],
			       shadow->open[i] ? ", or that of a write that failed" : "");
			return false;
		}
		shadow->is[i] = byte;
		shadow->open[i] = false;
	}
	return true;
}
