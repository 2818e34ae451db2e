/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The same across hosts (nodes.h): node 1 has the daemon, node 2 writes and reads.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/lane.h"
#include "common/clock.h"
#include "tests/integration/accounts.h"
#include "tests/integration/harness.h"
#include "tests/integration/nodes.h"
#include "tests/integration/proof.h"
#include "tests/integration/verify.h"

#define PAGE 4096

static void serve(void)
{
	HARNESS(h, .pool_size = "256MiB");

	CHECK(nodes_barrier(NODES_READY_PORT));
	CHECK(nodes_barrier(NODES_DONE_PORT));
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
	bool ready = nodes_barrier(NODES_READY_PORT);

	if (ready) {
		transfer_all_sizes();
		prove_release(IBV_WR_RDMA_READ);
		prove_release(IBV_WR_RDMA_WRITE);
	}
	/* The other end waits for this, whatever has happened. */
	CHECK(nodes_barrier(NODES_DONE_PORT));
	CHECK(ready);
}

TEST(nodes__write_and_read)
{
	switch (nodes_number()) {
	case 1:
		serve();
		break;
	case 2:
		use();
		break;
	default:
		SKIP("there are no two nodes");
	}
}

/*
 * The link of node 2 is cut. No event tells the daemon or the client; each finds out by what
 * it does not hear.
 */

#define HEARTBEAT_MS	500
#define HEARTBEATS	"\"heartbeat\": \"500ms\", \"ban_after\": 0"
#define CUT_SLACK_MS	200 /* between the two ends of a barrier, and for a look */
#define CLEAN_MS	500 /* for so few bytes, while another guest is emulated, too */
#define CLIENT_SLACK_MS 500
#define KEPT_BYTES	(64 * 1024)

static void watch_cut(struct harness *h, const char *what)
{
	uint64_t begun_ns = clock_now_ns();
	uint64_t took_ms;

	CHECK_INT(harness_number(h, "leases.active"), 1);
	CHECK(harness_wait_number(h, what, 1, 3 * HEARTBEAT_MS + CUT_SLACK_MS));
	took_ms = harness_since_ms(begun_ns);
	printf("# the daemon missed the client %" PRIu64 " ms after the cut\n", took_ms);
	CHECK(took_ms >= 2 * HEARTBEAT_MS - CUT_SLACK_MS);
}

static void serve_over_cut(void)
{
	HARNESS(h, .limits = HEARTBEATS);
	uint64_t nonzero;

	CHECK(nodes_barrier(NODES_READY_PORT));
	CHECK(nodes_barrier(NODES_HELD_PORT));
	watch_cut(&h, "counters.sessions_lost");
	CHECK(harness_wait_number(&h, "pool.free_bytes", 16 * (int64_t)MIB, CLEAN_MS));
	CHECK_INT(harness_count_nonzero(&h, &nonzero), 0);
	CHECK_INT(nonzero, 0);
	CHECK(nodes_barrier(NODES_MENDED_PORT));
	CHECK(nodes_barrier(NODES_DONE_PORT));
	accounts_check(&h);
	CHECK_INT(harness_stop(&h), 0);
}

static void serve_orphan(void)
{
	HARNESS(h, .limits = HEARTBEATS, .extra = "\"orphan_grace\": \"2min\"");

	CHECK(nodes_barrier(NODES_READY_PORT));
	CHECK(nodes_barrier(NODES_HELD_PORT));
	watch_cut(&h, "leases.orphaned");
	CHECK_INT(harness_number(&h, "pool.leased_bytes"), KEPT_BYTES);
	CHECK(nodes_barrier(NODES_MENDED_PORT));
	CHECK(nodes_barrier(NODES_DONE_PORT));
	CHECK_INT(harness_number(&h, "counters.leases_reattached"), 1);
	accounts_check(&h);
	CHECK_INT(harness_stop(&h), 0);
}

/* Return: is the session lost in time? The link is up again in any case. */
static bool live_through_cut(mempool_lease *lease)
{
	uint64_t begun_ns = clock_now_ns();
	bool cut = nodes_set_link("down");
	uint64_t took_ms;
	int r;

	r = mempool_renew(lease, 600000);
	took_ms = harness_since_ms(begun_ns);
	printf("# the client missed the daemon %" PRIu64 " ms after the cut: %s\n", took_ms,
	       mempool_last_error());
	/* Until the daemon has found out, too. */
	harness_sleep_ms(3 * HEARTBEAT_MS + CUT_SLACK_MS + CLEAN_MS);
	return nodes_set_link("up") && cut && r == MEMPOOL_E_SESSION_LOST &&
	       took_ms <= 3 * HEARTBEAT_MS + CLIENT_SLACK_MS;
}

static void check_kept(const struct mempool_lease_token *token)
{
	static uint8_t sent[KEPT_BYTES];
	static uint8_t got[KEPT_BYTES];
	SESSION(alpha, "alpha");
	mempool_lease *lease;

	harness_fill(sent, KEPT_BYTES, 9);
	CHECK_INT(mempool_reattach(alpha, token, &lease), 0);
	CHECK_INT(mempool_read(lease, 0, got, KEPT_BYTES), 0);
	CHECK_MEM(got, sent, KEPT_BYTES);
	CHECK_INT(mempool_release(lease), 0);
}

static void check_serves(void)
{
	SESSION(alpha, "alpha");

	verify_transfer(alpha, MIB, 1);
}

static void use_over_cut(bool kept)
{
	static uint8_t bytes[KEPT_BYTES];
	struct mempool_lease_token token;
	mempool *alpha = NULL;
	mempool_lease *lease;
	bool held, lost = false;

	/* The other end waits for each of these, whatever has happened. */
	CHECK(nodes_barrier(NODES_READY_PORT));
	harness_fill(bytes, KEPT_BYTES, 9);
	held = harness_connect("alpha", &alpha) == 0 &&
	       harness_acquire(alpha, KEPT_BYTES, 600000, &lease) == 0 &&
	       mempool_write(lease, 0, bytes, KEPT_BYTES) == 0 &&
	       mempool_lease_token(lease, &token) == 0;
	CHECK(nodes_barrier(NODES_HELD_PORT));
	if (held)
		lost = live_through_cut(lease);
	CHECK(nodes_barrier(NODES_MENDED_PORT));
	if (lost && kept)
		check_kept(&token);
	else if (lost)
		check_serves();
	mempool_close(alpha);
	CHECK(nodes_barrier(NODES_DONE_PORT));
	CHECK(held);
	CHECK(lost);
}

TEST(nodes__link_is_cut)
{
	switch (nodes_number()) {
	case 1:
		serve_over_cut();
		break;
	case 2:
		use_over_cut(false);
		break;
	default:
		SKIP("there are no two nodes");
	}
}

TEST(nodes__orphan_after_a_cut)
{
	switch (nodes_number()) {
	case 1:
		serve_orphan();
		break;
	case 2:
		use_over_cut(true);
		break;
	default:
		SKIP("there are no two nodes");
	}
}
