/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What the configuration says of connections, read back from the queue pairs, which the daemon
 * logs as its device has them; and the connections work.
 */
#include <string.h>

#include "tests/integration/harness.h"
#include "tests/integration/log_lines.h"

#define TTL_MS	 600000
#define LIMIT_MS 10000

/* A session with a lane, and bytes there and back in packets of all lengths. */
static void use(void)
{
	SESSION(alpha, "alpha");
	static uint8_t written[5 * 4096 + 3];
	static uint8_t read[sizeof(written)];
	mempool_lease *lease;

	harness_fill(written, sizeof(written), 5);
	CHECK_INT(harness_acquire(alpha, sizeof(written), TTL_MS, &lease), 0);
	CHECK_INT(mempool_write(lease, 0, written, sizeof(written)), 0);
	CHECK_INT(mempool_read(lease, 0, read, sizeof(read)), 0);
	CHECK_MEM(read, written, sizeof(read));
	CHECK_INT(mempool_release(lease), 0);
	harness_close(&alpha);
}

TEST(accept__as_the_client_says)
{
	HARNESS(h, .pool_size = NULL);

	use();
	CHECK(!test_has_failed());
	CHECK(log_lines_wait(&h, "connection accepted qpn=", 2, LIMIT_MS));
	CHECK_INT(log_lines_count(&h, " traffic_class=0 "), 2);
	CHECK_INT(harness_stop(&h), 0);
}

TEST(accept__traffic_class_and_ack_timeout)
{
	HARNESS(h, .extra = "\"traffic_class\": 184, \"ack_timeout\": \"67ms\"");

	use();
	CHECK(!test_has_failed());
	CHECK(log_lines_wait(&h, "connection accepted qpn=", 2, LIMIT_MS));
	CHECK_INT(log_lines_count(&h, " traffic_class=184 ack_timeout=14"), 2);
	/* And again on connections that are made anew. */
	use();
	CHECK_INT(log_lines_count(&h, " traffic_class=184 ack_timeout=14"), 4);
	CHECK_INT(harness_stop(&h), 0);
}

/* An Ethernet frame of 1500 bytes has room for 1024. */
TEST(accept__path_mtu)
{
	HARNESS(h, .extra = "\"path_mtu_min\": \"1024\"");
	mempool *pool = NULL;

	use();
	CHECK(!test_has_failed());
	CHECK(log_lines_wait(&h, " path_mtu=1024 ", 2, LIMIT_MS));
	CHECK_INT(harness_stop(&h), 0);
	CHECK_INT(
		harness_start(&h, &(struct harness_options){.extra = "\"path_mtu_min\": \"2048\""}),
		0);
	CHECK_INT(harness_connect("alpha", &pool), MEMPOOL_E_PORT);
	CHECK(pool == NULL);
	CHECK(log_lines_wait(&h, "its path MTU is too small", 1, LIMIT_MS));
	CHECK_INT(harness_number(&h, "sessions"), 0);
	CHECK_INT(harness_stop(&h), 0);
}
