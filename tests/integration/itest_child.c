/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A client for tests that kill it.
 *
 * usage: itest_child ENDPOINT TENANT LEASES BYTES [idle | read | tokens]
 *
 * Acquires so many leases of so many bytes, prints "ready", then writes to one after the
 * other for ever (or sleeps, or reads). With "tokens" it fills the leases with the patterns of
 * 1, 2, ..., and their tokens follow "ready\n" as they are in memory; then it sleeps. Exit
 * status 1 and a line on standard error if anything fails.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/integration/harness.h"

#define LEASES_MAX 1024

/* This is no test, but the harness asks and tells. */
bool test_has_failed(void)
{
	return false;
}

void test_fail(const char *file, int line, const char *what)
{
	fprintf(stderr, "itest_child: %s:%d: %s\n", file, line, what);
}

static int fail(const char *what)
{
	fprintf(stderr, "itest_child: %s: %s\n", what, mempool_last_error());
	return EXIT_FAILURE;
}

static int tell_tokens(mempool_lease **leases, size_t count, uint8_t *buf, size_t len_bytes)
{
	static struct mempool_lease_token tokens[LEASES_MAX];

	for (size_t i = 0; i < count; i++) {
		harness_fill(buf, len_bytes, (uint32_t)i + 1);
		if (mempool_write(leases[i], 0, buf, len_bytes) < 0 ||
		    mempool_lease_token(leases[i], &tokens[i]) < 0)
			return fail("tokens");
	}
	puts("ready");
	fwrite(tokens, sizeof(tokens[0]), count, stdout);
	fflush(stdout);
	for (;;)
		pause();
}

int main(int argc, char **argv)
{
	struct mempool_connect_opts connect = {.timeout_ms = 30000};
	struct harness_keys keys;
	struct mempool_acquire_opts acquire = {
		.size = sizeof(acquire),
		.ttl_ms = 600000,
		.rights = MEMPOOL_READ | MEMPOOL_WRITE,
	};
	static mempool_lease *leases[LEASES_MAX];
	static uint8_t *buf; /* needed until the process ends, like the leases */
	size_t count, len_bytes;
	mempool *pool;

	if (argc < 5)
		return 2;
	harness_keys(argv[2], &keys, &connect);
	count = strtoul(argv[3], NULL, 10);
	len_bytes = strtoul(argv[4], NULL, 10);
	buf = malloc(len_bytes);
	if (count == 0 || count > LEASES_MAX || buf == NULL)
		return 2;
	memset(buf, 0xee, len_bytes);
	if (mempool_connect(argv[1], &connect, &pool) < 0)
		return fail("connect");
	for (size_t i = 0; i < count; i++) {
		if (mempool_acquire(pool, len_bytes, &acquire, &leases[i]) < 0)
			return fail("acquire");
	}
	if (argc > 5 && strcmp(argv[5], "tokens") == 0)
		return tell_tokens(leases, count, buf, len_bytes);
	puts("ready");
	fflush(stdout);
	while (argc > 5 && strcmp(argv[5], "idle") == 0)
		pause();
	for (size_t i = 0;; i = (i + 1) % count) {
		if (argc > 5 && mempool_read(leases[i], 0, buf, len_bytes) < 0)
			return fail("read");
		if (argc == 5 && mempool_write(leases[i], 0, buf, len_bytes) < 0)
			return fail("write");
	}
}
