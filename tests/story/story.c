/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The main job as a story: an operator lends memory with mempoold, three tenants use it, and
 * an ended lease is refused by the device. Prints each step with its numbers; the first step
 * that does not hold ends it with "step failed: ..." and exit status 1.
 *
 * A refusal is taken as proof only if the same access (key, address, length, connection) had
 * just worked, and ended in a remote access error.
 *
 * MEMPOOL_ADDRESS: the host's RDMA address, default 10.77.0.1.
 */
#include <inttypes.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/clock.h"
#include "tests/story/material.h"
#include "tests/story/operator.h"
#include "tests/story/tell.h"
#include "tests/story/tenant.h"

#define STORY_POOL_BYTES    ((size_t)256 << 20)
#define STORY_ALPHA_BYTES   ((size_t)16 << 20)
#define STORY_BETA_BYTES    ((size_t)4 << 20)
#define STORY_TTL_MS	    5000
#define STORY_GAMMA_TTL_MS  20000
#define STORY_GAMMA_WAIT_MS 60000
#define STORY_LATE_MS	    100
#define STORY_QUIET_MS	    100 /* before the end of a lease nothing is begun any more */
#define STORY_PORT	    7471

struct story {
	char address[80];
	struct operator op;
	struct tenant alpha;
	struct tenant beta;
	struct tenant gamma;
	struct message_descriptor alpha_descriptor;
	uint8_t *file; /* what alpha has written */
	uint8_t *copy; /* what was read, as large as the pool */
};

static int story_expect(const char *who, enum ibv_wc_status status, enum ibv_wc_status expected)
{
	if (status == expected)
		return 0;
	return tell_failure("%s: the device says \"%s\", expected \"%s\"", who,
			    ibv_wc_status_str(status), ibv_wc_status_str(expected));
}

static const char *story_path(const struct story *story, const char *name, char path[160])
{
	(void)snprintf(path, 160, "%s/%s", story->op.folder, name);
	return path;
}

static int story_start(struct story *story)
{
	static const char *const tenants[] = {"alpha", "beta", "gamma", NULL};

	tell_chapter("1. The operator starts mempoold with a pool of %zu MiB",
		     STORY_POOL_BYTES >> 20);
	if (operator_init(&story->op, story->address, STORY_POOL_BYTES, tenants) < 0)
		return -1;
	return operator_start(&story->op, story->address);
}

static int story_compare_hashes(const struct story *story)
{
	char hash[2][MATERIAL_HASH_CHARS + 1];
	char path[160];

	if (material_save(story_path(story, "copy", path), story->copy, STORY_ALPHA_BYTES) < 0 ||
	    material_hash(path, hash[0]) < 0 ||
	    material_hash(story_path(story, "file", path), hash[1]) < 0)
		return -1;
	tell("SHA-256 of the file          %s", hash[1]);
	tell("SHA-256 of what came back    %s", hash[0]);
	return strcmp(hash[0], hash[1]) != 0 ? tell_failure("the hashes differ") : 0;
}

static int story_alpha(struct story *story)
{
	struct tenant *alpha = &story->alpha;
	char path[160];

	tell_chapter("2. Tenant alpha leases %zu MiB for %d ms and keeps a file there",
		     STORY_ALPHA_BYTES >> 20, STORY_TTL_MS);
	if (material_make(story->file, STORY_ALPHA_BYTES) < 0 ||
	    material_save(story_path(story, "file", path), story->file, STORY_ALPHA_BYTES) < 0)
		return -1;
	if (tenant_connect(alpha, "alpha", &story->op) < 0 ||
	    tenant_acquire(alpha, STORY_ALPHA_BYTES, STORY_TTL_MS, 0) < 0 || tenant_hold(alpha) < 0)
		return -1;
	story->alpha_descriptor = *tenant_descriptor(alpha);
	tell("alpha renews it in the background");
	if (tenant_write(alpha, story->file, STORY_ALPHA_BYTES) < 0 ||
	    tenant_read(alpha, story->copy, STORY_ALPHA_BYTES) < 0)
		return -1;
	return story_compare_hashes(story);
}

/* One access with alpha's descriptor, which costs the connection. */
static int story_intrude_by(struct story *story, enum ibv_wr_opcode opcode, const char *what)
{
	struct tenant intruder;
	enum ibv_wc_status status;
	uint8_t bytes[TENANT_RAW_BYTES] = {0};
	int r = -1;

	if (tenant_connect(&intruder, "beta", &story->op) < 0 ||
	    tenant_acquire(&intruder, sizeof(bytes), STORY_TTL_MS, 0) < 0)
		goto out;
	if (tenant_raw(&intruder, opcode, tenant_descriptor(&intruder), bytes, &status) < 0 ||
	    story_expect("beta's own bytes", status, IBV_WC_SUCCESS) < 0)
		goto out;
	tell("raw %s of its own %u bytes: %s", what, TENANT_RAW_BYTES, ibv_wc_status_str(status));
	if (tenant_raw(&intruder, opcode, &story->alpha_descriptor, bytes, &status) < 0 ||
	    story_expect("alpha's bytes", status, IBV_WC_REM_ACCESS_ERR) < 0)
		goto out;
	tell("raw %s with alpha's key and address: %s", what, ibv_wc_status_str(status));
	r = 0;
out:
	tenant_close(&intruder);
	return r;
}

static int story_beta(struct story *story)
{
	struct tenant *beta = &story->beta;

	tell_chapter("3. Tenant beta has a lease of its own and cannot reach alpha's bytes");
	if (tenant_connect(beta, "beta", &story->op) < 0 ||
	    tenant_acquire(beta, STORY_BETA_BYTES, STORY_TTL_MS, 0) < 0 || tenant_hold(beta) < 0 ||
	    tenant_write(beta, story->file, STORY_BETA_BYTES) < 0 ||
	    tenant_read(beta, story->copy, STORY_BETA_BYTES) < 0)
		return -1;
	if (memcmp(story->file, story->copy, STORY_BETA_BYTES) != 0)
		return tell_failure("beta has read something else");
	tell("beta, over further connections, tries alpha's descriptor");
	if (story_intrude_by(story, IBV_WR_RDMA_READ, "read") < 0 ||
	    story_intrude_by(story, IBV_WR_RDMA_WRITE, "write") < 0)
		return -1;
	if (tenant_read(&story->alpha, story->copy, STORY_ALPHA_BYTES) < 0)
		return -1;
	if (memcmp(story->file, story->copy, STORY_ALPHA_BYTES) != 0)
		return tell_failure("alpha's bytes are not what alpha has written");
	tell("alpha's bytes are unchanged, all %zu", STORY_ALPHA_BYTES);
	return 0;
}

static int story_list(struct story *story)
{
	const struct tenant *alpha = &story->alpha;
	const struct tenant *beta = &story->beta;

	tell_chapter("4. The operator looks: mempoolctl lease list");
	return operator_show_leases(&story->op, alpha->id, alpha->len_bytes, beta->id,
				    beta->len_bytes);
}

static int story_revoke(struct story *story)
{
	struct tenant *alpha = &story->alpha;
	uint8_t mark[TENANT_RAW_BYTES];
	enum ibv_wc_status status;

	tell_chapter("5. The operator revokes alpha's lease");
	memset(mark, 0xa5, sizeof(mark));
	if (tenant_raw(alpha, IBV_WR_RDMA_WRITE, &story->alpha_descriptor, mark, &status) < 0 ||
	    story_expect("alpha before", status, IBV_WC_SUCCESS) < 0)
		return -1;
	tell("alpha, raw write of %u bytes before: %s", TENANT_RAW_BYTES,
	     ibv_wc_status_str(status));
	if (operator_revoke(&story->op, alpha->id) < 0 ||
	    tenant_raw(alpha, IBV_WR_RDMA_WRITE, &story->alpha_descriptor, mark, &status) < 0 ||
	    story_expect("alpha after", status, IBV_WC_REM_ACCESS_ERR) < 0)
		return -1;
	tell("alpha, the same write on the same connection after: %s", ibv_wc_status_str(status));
	tenant_let_go(alpha);
	tell("alpha had renewed it %u times", alpha->renewals);
	return tenant_check_ended(alpha, MEMPOOL_E_REVOKED);
}

/* Reads with beta's key until a time. */
static int story_read_until(struct story *story, uint64_t until_ns, uint64_t *ret_count)
{
	const struct message_descriptor descriptor = *tenant_descriptor(&story->beta);
	enum ibv_wc_status status;
	uint64_t count = 0;

	while (clock_now_ns() < until_ns) {
		if (tenant_raw(&story->beta, IBV_WR_RDMA_READ, &descriptor, story->copy, &status) <
			    0 ||
		    story_expect("beta", status, IBV_WC_SUCCESS) < 0)
			return -1;
		if (memcmp(story->copy, story->file, TENANT_RAW_BYTES) != 0)
			return tell_failure("beta reads something else than it has written");
		count++;
	}
	if (count == 0)
		return tell_failure("beta's key has not worked even once");
	*ret_count = count;
	return 0;
}

/*
 * No read is under way when the lease ends: one that is cut off in the middle of its packets
 * may be reported as flushed, which would prove nothing.
 */
static int story_read_until_refused(struct story *story, uint64_t *ret_worked_ns,
				    uint64_t *ret_refused_ns)
{
	const struct message_descriptor descriptor = *tenant_descriptor(&story->beta);
	uint64_t ends_ns = clock_add_ms(story->beta.renewed_ns, STORY_TTL_MS);
	uint64_t over_ns = clock_add_ms(story->beta.answered_ns, STORY_TTL_MS + STORY_LATE_MS);
	enum ibv_wc_status status;
	uint64_t worked_ns;
	uint64_t count = 0;

	if (story_read_until(story, ends_ns - STORY_QUIET_MS * CLOCK_NS_PER_MS, &count) < 0)
		return -1;
	worked_ns = clock_now_ns();
	(void)poll(NULL, 0, (int)clock_left_ms(over_ns, worked_ns));
	if (tenant_raw(&story->beta, IBV_WR_RDMA_READ, &descriptor, story->copy, &status) < 0)
		return -1;
	*ret_refused_ns = clock_now_ns();
	*ret_worked_ns = worked_ns;
	tell("beta, raw reads of %u bytes: %" PRIu64 " times %s, then %s", TENANT_RAW_BYTES, count,
	     ibv_wc_status_str(IBV_WC_SUCCESS), ibv_wc_status_str(status));
	return story_expect("beta", status, IBV_WC_REM_ACCESS_ERR);
}

static int story_expire(struct story *story)
{
	struct tenant *beta = &story->beta;
	uint64_t refused_ns = 0;
	uint64_t worked_ns = 0;

	tell_chapter("6. Beta's lease expires");
	tenant_let_go(beta);
	if (tenant_renew(beta) < 0)
		return -1;
	tell("beta has renewed it %u times, and now once more for %d ms", beta->renewals,
	     STORY_TTL_MS);
	if (story_read_until_refused(story, &worked_ns, &refused_ns) < 0)
		return -1;
	tell("last success %.1f ms, refusal %.1f ms after the renewal",
	     (double)(worked_ns - beta->renewed_ns) / (double)CLOCK_NS_PER_MS,
	     (double)(refused_ns - beta->renewed_ns) / (double)CLOCK_NS_PER_MS);
	return tenant_check_ended(beta, MEMPOOL_E_EXPIRED);
}

static int story_gamma(struct story *story)
{
	struct tenant *gamma = &story->gamma;
	size_t nonzero;

	tell_chapter("7. Tenant gamma gets the freed bytes: the whole pool, so all of them");
	if (operator_show_pool(&story->op) < 0 || tenant_connect(gamma, "gamma", &story->op) < 0 ||
	    tenant_acquire(gamma, STORY_POOL_BYTES, STORY_GAMMA_TTL_MS, STORY_GAMMA_WAIT_MS) < 0 ||
	    tenant_hold(gamma) < 0 || operator_show_pool(&story->op) < 0)
		return -1;
	memset(story->copy, 0xff, STORY_POOL_BYTES);
	if (tenant_read(gamma, story->copy, STORY_POOL_BYTES) < 0)
		return -1;
	nonzero = material_nonzero(story->copy, STORY_POOL_BYTES);
	tell("of %zu bytes, %zu are not zero", STORY_POOL_BYTES, nonzero);
	return nonzero != 0 ? tell_failure("gamma sees bytes that it has not written") : 0;
}

static int story_stop(struct story *story)
{
	tell_chapter("8. The operator stops mempoold, while gamma's lease is live");
	return operator_stop(&story->op);
}

static int story_tell(struct story *story)
{
	static int (*const chapters[])(struct story * story) = {
		story_start,  story_alpha,  story_beta,	 story_list,
		story_revoke, story_expire, story_gamma, story_stop,
	};

	for (size_t i = 0; i < sizeof(chapters) / sizeof(chapters[0]); i++) {
		if (chapters[i](story) < 0)
			return -1;
	}
	return 0;
}

int main(void)
{
	const char *host = getenv("MEMPOOL_ADDRESS");
	struct story story = {0};
	int r;

	(void)snprintf(story.address, sizeof(story.address), "%.70s:%d",
		       host != NULL ? host : "10.77.0.1", STORY_PORT);
	story.file = malloc(STORY_ALPHA_BYTES);
	story.copy = malloc(STORY_POOL_BYTES);
	if (story.file == NULL || story.copy == NULL)
		r = tell_failure("not enough memory");
	else
		r = story_tell(&story);
	tenant_close(&story.gamma);
	tenant_close(&story.beta);
	tenant_close(&story.alpha);
	operator_deinit(&story.op, r == 0);
	free(story.copy);
	free(story.file);
	return r == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
