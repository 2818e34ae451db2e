/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Can the proof of refusal fail? Against a daemon that does everything but invalidate, it
 * must: then, and only then, its verdict on the real one means something. The same program
 * without that fault is the other half of the comparison.
 */
#include <stdio.h>

#include "tests/integration/harness.h"
#include "tests/integration/proof.h"

#define PAGE 4096

enum end {
	END_RELEASE,
	END_REVOKE,
	END_EXPIRY,
};

#define END_TTL_MS 1500

static void mutate(const char *isolation, const char *seam, enum end end,
		   enum proof_result expected)
{
	HARNESS(h, .program = "mempoold-seam", .isolation = isolation, .seam = seam);
	SESSION(alpha, "alpha");
	mempool_lease *lease;
	struct proof proof;
	enum proof_result result;
	uint64_t id;

	CHECK_INT(harness_acquire(alpha, PAGE, end == END_EXPIRY ? END_TTL_MS : 600000, &lease), 0);
	id = harness_lease_id(lease);
	CHECK(proof_begin(&proof, alpha, lease, IBV_WR_RDMA_READ));
	if (end == END_RELEASE)
		CHECK_INT(mempool_release(lease), 0);
	else if (end == END_REVOKE)
		CHECK_INT(harness_revoke(&h, id), 0);
	else
		harness_sleep_ms(END_TTL_MS + 200);
	/* The daemon must believe that all is well: nothing else has gone wrong. */
	CHECK(harness_wait_lease_gone(&h, id, 5000));
	CHECK_INT(harness_number(&h, "lanes"), 1);
	CHECK_INT(harness_number(&h, "counters.windows_unknown"), 0);
	result = proof_end(&proof);
	printf("# %s, %s: %s\n", isolation, seam != NULL ? seam : "no fault",
	       proof_result_name(result));
	CHECK_STR(proof_result_name(result), proof_result_name(expected));
}

TEST(mutation__auto_skip_invalidate_at_release)
{
	mutate("auto", "skip-invalidate", END_RELEASE, PROOF_OPEN);
}

TEST(mutation__auto_skip_invalidate_at_revoke)
{
	mutate("auto", "skip-invalidate", END_REVOKE, PROOF_OPEN);
}

TEST(mutation__auto_skip_invalidate_at_expiry)
{
	mutate("auto", "skip-invalidate", END_EXPIRY, PROOF_OPEN);
}

TEST(mutation__unverified_skip_invalidate_at_release)
{
	mutate("unverified", "skip-invalidate", END_RELEASE, PROOF_OPEN);
}

TEST(mutation__auto_without_the_fault)
{
	mutate("auto", NULL, END_RELEASE, PROOF_REFUSED);
}

TEST(mutation__unverified_without_the_fault)
{
	mutate("unverified", NULL, END_RELEASE, PROOF_REFUSED);
}
