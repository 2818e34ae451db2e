/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The same across hosts: node 1 has the daemon, node 2 writes and reads. Run it in both at the
 * same time, with NODE=1 and 2 in the environment and a program `vm-barrier PORT` that
 * returns when both have called it (tests/vm/run --nodes 2 has all that).
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/lane.h"
#include "tests/integration/harness.h"
#include "tests/integration/proof.h"
#include "tests/integration/verify.h"

#define READY_PORT	 "7001"
#define DONE_PORT	 "7002"
#define BARRIER_LIMIT_MS 240000
#define PAGE		 4096

static bool barrier(const char *port)
{
	static struct harness_output output;
	const char *argv[] = {"vm-barrier", port, NULL};

	return harness_run(argv, BARRIER_LIMIT_MS, &output) == 0 && output.status == 0;
}

static void serve(void)
{
	HARNESS(h, .pool_size = "256MiB");

	CHECK(barrier(READY_PORT));
	CHECK(barrier(DONE_PORT));
	CHECK(harness_wait_number(&h, "sessions", 0, 10000));
	CHECK(harness_wait_number(&h, "pool.free_bytes", 256 * (int64_t)MIB, 10000));
	CHECK(harness_number(&h, "counters.leases_granted") > 0);
	CHECK_INT(harness_number(&h, "counters.destroy_failures"), 0);
	CHECK_INT(harness_stop(&h), 0);
}

static void transfer_all_sizes(void)
{
	static const size_t lens_bytes[] = {1, PAGE, MIB, 64 * MIB};
	static const size_t offsets[] = {0, 1, 4097};
	SESSION(alpha, "alpha");

	for (size_t i = 0; i < sizeof(lens_bytes) / sizeof(lens_bytes[0]); i++) {
		/* The largest takes its time. */
		for (size_t j = lens_bytes[i] > MIB ? 2 : 0; j < 3 && !test_has_failed(); j++)
			verify_transfer(alpha, lens_bytes[i], offsets[j]);
	}
}

static void prove_release(enum ibv_wr_opcode opcode)
{
	SESSION(beta, "beta");
	mempool_lease *lease;
	struct proof proof;
	enum proof_result result;

	CHECK_INT(harness_acquire(beta, PAGE + 1, 600000, &lease), 0);
	CHECK(proof_begin(&proof, beta, lease, opcode));
	CHECK_INT(mempool_release(lease), 0);
	result = proof_end(&proof);
	CHECK_STR(proof_result_name(result), proof_result_name(PROOF_REFUSED));
}

static void use(void)
{
	bool ready = barrier(READY_PORT);

	if (ready) {
		transfer_all_sizes();
		prove_release(IBV_WR_RDMA_READ);
		prove_release(IBV_WR_RDMA_WRITE);
	}
	/* The other end waits for this, whatever has happened. */
	CHECK(barrier(DONE_PORT));
	CHECK(ready);
}

TEST(nodes__write_and_read)
{
	const char *node = getenv("NODE");
	const char *nodes = getenv("NODES");

	if (node == NULL || nodes == NULL || strcmp(nodes, "2") != 0)
		SKIP("there are no two nodes");
	if (strcmp(node, "1") == 0)
		serve();
	else
		use();
}
