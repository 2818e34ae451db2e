/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Zeroing: exactly the range, from any multiple of 64 bytes on.
 */
#include "daemon/zero.h"

#include <stdlib.h>
#include <string.h>

#include "tests/unit/test.h"

#define BYTES 16384

/* The first byte that is not as expected, or BYTES. */
static size_t first_wrong(const unsigned char *bytes, size_t from, size_t len_bytes)
{
	for (size_t i = 0; i < BYTES; i++) {
		bool inside = i >= from && i < from + len_bytes;

		if (bytes[i] != (inside ? 0 : 0xa5))
			return i;
	}
	return BYTES;
}

TEST(zero_pages__exactly_the_range)
{
	static const size_t lengths[] = {0, 64, 128, 4096, 4160, BYTES - 128};
	unsigned char *bytes = aligned_alloc(64, BYTES);

	CHECK(bytes != NULL);
	for (size_t i = 0; i < sizeof(lengths) / sizeof(lengths[0]); i++) {
		for (size_t from = 0; from <= 128; from += 64) {
			memset(bytes, 0xa5, BYTES);
			zero_pages(bytes + from, lengths[i]);
			CHECK_INT(first_wrong(bytes, from, lengths[i]), BYTES);
		}
	}
	free(bytes);
}
