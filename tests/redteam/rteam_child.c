/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A tenant that is killed while it writes; no suite of its own.
 *
 * usage: rteam_child TENANT BYTES
 *
 * Acquires a lease, prints "ready", writes all of it for ever.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "proto/error.h"
#include "tests/integration/harness.h"
#include "tests/integration/peer.h"

#define TRIES_MAX 5000

/* This is no test, but the harness asks and tells. */
bool test_has_failed(void)
{
	return false;
}

void test_fail(const char *file, int line, const char *what)
{
	fprintf(stderr, "rteam_child: %s:%d: %s\n", file, line, what);
}

int main(int argc, char **argv)
{
	struct peer peer = {0};
	struct peer_lane lane = {0};
	struct message_grant grant;
	uint32_t len_bytes;
	int r = -1;

	if (argc != 3)
		return 2;
	len_bytes = (uint32_t)strtoul(argv[2], NULL, 10);
	if (peer_open(&peer, argv[1], NULL) != 0 || peer_lane_open(&peer, &lane) != 0)
		return 1;
	for (int i = 0; i < TRIES_MAX && r != 0; i++) {
		r = peer_acquire(&peer, &lane, len_bytes, 600000, 100, &grant);
		if (r != 0)
			harness_sleep_ms(1);
	}
	if (r != 0)
		return 1;
	puts("ready");
	fflush(stdout);
	memset(peer_buffer(&lane), 0xee, len_bytes);
	while (peer_access(&lane, IBV_WR_RDMA_WRITE, len_bytes, grant.descriptors[0].remote_addr,
			   grant.descriptors[0].rkey) == IBV_WC_SUCCESS)
		;
	return 1;
}
