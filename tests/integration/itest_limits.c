/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Requests that cannot be granted: each gets the code that says why, and the session goes on.
 */
#include <inttypes.h>
#include <stdio.h>

#include "tests/integration/harness.h"

#define POOL_BYTES (16 * MIB)
#define TTL_MAX_MS 60000
#define PAGE	   4096

static int acquire(mempool *pool, uint64_t len_bytes, uint64_t ttl_ms, uint32_t rights,
		   mempool_lease **ret_lease)
{
	struct mempool_acquire_opts opts = {
		.size = sizeof(opts), .ttl_ms = ttl_ms, .rights = rights};

	return mempool_acquire(pool, len_bytes, &opts, ret_lease);
}

/* A refusal, and then the session must still do its work. */
static void refuse(struct harness *h, mempool *pool, uint64_t len_bytes, uint64_t ttl_ms,
		   uint32_t rights, int code)
{
	int64_t leased_bytes = harness_number(h, "pool.leased_bytes");
	mempool_lease *lease = NULL;
	uint8_t byte = 1;

	CHECK_INT(acquire(pool, len_bytes, ttl_ms, rights, &lease), code);
	CHECK(lease == NULL);
	CHECK_INT(harness_number(h, "pool.leased_bytes"), leased_bytes);
	CHECK_INT(acquire(pool, 1, TTL_MAX_MS, MEMPOOL_READ | MEMPOOL_WRITE, &lease), 0);
	CHECK_INT(mempool_write(lease, 0, &byte, 1), 0);
	CHECK_INT(mempool_release(lease), 0);
	CHECK(harness_wait_number(h, "pool.leased_bytes", leased_bytes, 2000));
	CHECK(harness_wait_number(h, "pool.dirty_bytes", 0, 2000));
	CHECK_INT(harness_number(h, "sessions"), 1);
	CHECK_INT(harness_number(h, "counters.sessions_accepted"), 1);
}

TEST(limits__each_refusal_has_its_code)
{
	HARNESS(h, .ttl_max = "1min");
	SESSION(alpha, "alpha");
	const uint32_t rw = MEMPOOL_READ | MEMPOOL_WRITE;
	static const struct {
		uint64_t len_bytes;
		uint64_t ttl_ms;
		uint32_t rights;
		int code;
	} cases[] = {
		{0, 1000, rw, MEMPOOL_E_LENGTH_ZERO},
		{POOL_BYTES + 1, 1000, rw, MEMPOOL_E_LENGTH_POOL},
		{UINT64_MAX, 1000, rw, MEMPOOL_E_LENGTH_POOL},
		{PAGE, 0, rw, MEMPOOL_E_TTL_ZERO},
		{PAGE, TTL_MAX_MS + 1, rw, MEMPOOL_E_TTL_MAX},
		{PAGE, UINT64_MAX, rw, MEMPOOL_E_TTL_MAX},
		{PAGE, 1000, 0, MEMPOOL_E_RIGHTS},
		{PAGE, 1000, 8, MEMPOOL_E_RIGHTS},
		{PAGE, 1000, UINT32_MAX, MEMPOOL_E_RIGHTS},
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		refuse(&h, alpha, cases[i].len_bytes, cases[i].ttl_ms, cases[i].rights,
		       cases[i].code);
		if (test_has_failed()) {
			printf("# case %zu\n", i);
			return;
		}
	}
	CHECK_INT(harness_stop(&h), 0);
}

TEST(limits__the_largest_that_is_allowed)
{
	HARNESS(h, .ttl_max = "1min");
	SESSION(alpha, "alpha");
	mempool_lease *lease;
	uint8_t byte = 1;

	CHECK_INT(acquire(alpha, POOL_BYTES, TTL_MAX_MS, MEMPOOL_WRITE, &lease), 0);
	CHECK_INT(mempool_write(lease, POOL_BYTES - 1, &byte, 1), 0);
	CHECK_INT(mempool_read(lease, POOL_BYTES - 1, &byte, 1), MEMPOOL_E_ACCESS);
	CHECK_INT(mempool_release(lease), 0);
}

/* Atomics are granted where the device keeps them inside their window, else refused by a code. */
TEST(limits__atomic_rights)
{
	HARNESS(h, .ttl_max = NULL);
	SESSION(alpha, "alpha");
	mempool_lease *lease = NULL;
	int r = acquire(alpha, PAGE, 1000, MEMPOOL_READ | MEMPOOL_ATOMIC, &lease);

	printf("# atomic rights: %s\n", mempool_error_text(r));
	CHECK(r == 0 || r == MEMPOOL_E_RIGHTS_DEVICE);
	CHECK_INT(mempool_release(lease), 0);
	refuse(&h, alpha, PAGE, 1000, MEMPOOL_ATOMIC | 8, MEMPOOL_E_RIGHTS);
}

TEST(limits__the_pool_is_full)
{
	HARNESS(h, .ttl_max = "1min");
	SESSION(alpha, "alpha");
	mempool_lease *most;
	mempool_lease *rest;
	uint8_t byte = 1;

	CHECK_INT(harness_acquire(alpha, POOL_BYTES - 2 * PAGE, TTL_MAX_MS, &most), 0);
	CHECK_INT(harness_number(&h, "pool.free_bytes"), 2 * PAGE);
	refuse(&h, alpha, 2 * PAGE + 1, 1000, MEMPOOL_READ, MEMPOOL_E_LENGTH_EXTENT);
	CHECK(!test_has_failed());
	CHECK_INT(acquire(alpha, 2 * PAGE, TTL_MAX_MS, MEMPOOL_WRITE, &rest), 0);
	CHECK_INT(mempool_write(rest, 2 * PAGE - 1, &byte, 1), 0);
	CHECK_INT(harness_number(&h, "pool.free_bytes"), 0);
	CHECK_INT(acquire(alpha, 1, 1000, MEMPOOL_READ, &(mempool_lease *){NULL}),
		  MEMPOOL_E_LENGTH_EXTENT);
	CHECK_INT(mempool_release(most), 0);
	CHECK_INT(harness_acquire(alpha, 2 * PAGE + 1, TTL_MAX_MS, &most), 0);
	CHECK_INT(mempool_write(most, 2 * PAGE, &byte, 1), 0);
}

/* Free bytes in two pieces: what fits neither is refused, though there are bytes enough. */
TEST(limits__more_than_the_largest_free_extent)
{
	HARNESS(h, .ttl_max = "1min");
	SESSION(alpha, "alpha");
	mempool_lease *parts[3];
	int64_t largest;

	CHECK_INT(harness_acquire(alpha, 6 * MIB, TTL_MAX_MS, &parts[0]), 0);
	CHECK_INT(harness_acquire(alpha, 4 * MIB, TTL_MAX_MS, &parts[1]), 0);
	CHECK_INT(harness_acquire(alpha, 6 * MIB, TTL_MAX_MS, &parts[2]), 0);
	CHECK_INT(mempool_release(parts[0]), 0);
	CHECK_INT(mempool_release(parts[2]), 0);
	CHECK(harness_wait_number(&h, "pool.free_bytes", 12 * (int64_t)MIB, 5000));
	largest = harness_number(&h, "pool.largest_free_bytes");
	CHECK_INT(largest, 6 * MIB);
	refuse(&h, alpha, (uint64_t)largest + 1, 1000, MEMPOOL_READ, MEMPOOL_E_LENGTH_EXTENT);
	CHECK(!test_has_failed());
	CHECK_INT(harness_acquire(alpha, (uint64_t)largest, TTL_MAX_MS, &parts[0]), 0);
	CHECK_INT(mempool_release(parts[1]), 0);
	CHECK_INT(mempool_release(parts[0]), 0);
	CHECK(harness_wait_number(&h, "pool.largest_free_bytes", (int64_t)POOL_BYTES, 5000));
}
