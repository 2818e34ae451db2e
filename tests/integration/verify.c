/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Writing and reading back through the library. Thread: the test's.
 */
#include "tests/integration/verify.h"

#include <stdlib.h>
#include <string.h>

#include "tests/integration/harness.h"

#define TTL_MS 600000

struct buffers {
	uint8_t *sent;
	uint8_t *got;
};

static void buffers_free(struct buffers *buffers)
{
	free(buffers->sent);
	free(buffers->got);
}

void verify_transfer(mempool *pool, size_t len_bytes, size_t offset_bytes)
{
	__attribute__((cleanup(buffers_free))) struct buffers buffers = {0};
	size_t lease_bytes = offset_bytes + len_bytes + 3;
	mempool_lease *lease;

	buffers.sent = calloc(1, lease_bytes);
	buffers.got = malloc(lease_bytes);
	CHECK(buffers.sent != NULL && buffers.got != NULL);
	harness_fill(buffers.sent + offset_bytes, len_bytes, (uint32_t)(len_bytes + offset_bytes));
	memset(buffers.got, 0xff, lease_bytes);
	CHECK_INT(harness_acquire(pool, lease_bytes, TTL_MS, &lease), 0);
	CHECK_INT(mempool_write(lease, offset_bytes, buffers.sent + offset_bytes, len_bytes), 0);
	CHECK_INT(mempool_read(lease, 0, buffers.got, lease_bytes), 0);
	CHECK_INT(memcmp(buffers.got, buffers.sent, lease_bytes), 0);
	memset(buffers.got, 0xff, lease_bytes);
	CHECK_INT(mempool_read(lease, offset_bytes, buffers.got, len_bytes), 0);
	CHECK_INT(memcmp(buffers.got, buffers.sent + offset_bytes, len_bytes), 0);
	CHECK_INT(buffers.got[len_bytes], 0xff);
	CHECK_INT(mempool_release(lease), 0);
}
