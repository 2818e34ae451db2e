/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef TESTS_UNIT_HEX_H
#define TESTS_UNIT_HEX_H

#include <assert.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

/*
 * hex() - the bytes of a published figure: pairs of lower-case digits, nothing else
 * @cap_bytes: exactly so many are expected, so that a figure that lost a digit is noticed
 */
static inline void hex(const char *text, void *ret_bytes, size_t cap_bytes)
{
	uint8_t *bytes = ret_bytes;

	assert(strlen(text) == 2 * cap_bytes);
	for (size_t i = 0; i < cap_bytes; i++) {
		unsigned int byte;
		int count = sscanf(text + 2 * i, "%2x", &byte);

		assert(count == 1);
		(void)count;
		bytes[i] = (uint8_t)byte;
	}
}

#endif
