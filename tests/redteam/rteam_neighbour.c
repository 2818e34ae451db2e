/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A tenant uses its neighbour's address and key from its own lane, and its own key for
 * addresses all around: each probe is refused, costs the prober its lane, and leaves the
 * neighbour and the neighbour's bytes alone.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "tests/integration/accounts.h"
#include "tests/integration/harness.h"
#include "tests/integration/peer.h"

#define PAGE	 4096
#define TTL_MS	 3600000
#define SENTINEL 0x5a
#define VICTIM	 0x99

/* The prober's lease has the victim's on both sides. */
struct scene {
	struct peer victim;
	struct peer prober;
	struct peer_lane victim_lane;
	struct peer_lane lane;
	struct message_grant before;
	struct message_grant own;
	struct message_grant behind;
	uint64_t tried;
	uint64_t refused;
	uint64_t changed; /* bytes of the victim */
};

static void scene_end(struct scene *scene)
{
	peer_lane_close(&scene->lane);
	peer_lane_close(&scene->victim_lane);
	peer_close(&scene->prober);
	peer_close(&scene->victim);
}

static int access_all(struct scene *scene, enum ibv_wr_opcode opcode,
		      const struct message_grant *grant)
{
	return peer_access(&scene->victim_lane, opcode, PAGE, grant->descriptors[0].remote_addr,
			   grant->descriptors[0].rkey);
}

static void victim_fill(struct scene *scene, const struct message_grant *grant)
{
	memset(peer_buffer(&scene->victim_lane), VICTIM, PAGE);
	CHECK_INT(access_all(scene, IBV_WR_RDMA_WRITE, grant), IBV_WC_SUCCESS);
}

static void victim_look(struct scene *scene, const struct message_grant *grant)
{
	CHECK_INT(access_all(scene, IBV_WR_RDMA_READ, grant), IBV_WC_SUCCESS);
	for (int i = 0; i < PAGE; i++)
		scene->changed += peer_buffer(&scene->victim_lane)[i] != VICTIM;
}

static void scene_begin(struct scene *scene)
{
	CHECK_INT(peer_open(&scene->victim, "victim", NULL), 0);
	CHECK_INT(peer_open(&scene->prober, "prober", NULL), 0);
	CHECK_INT(peer_lane_open(&scene->victim, &scene->victim_lane), 0);
	CHECK_INT(peer_lane_open(&scene->prober, &scene->lane), 0);
	CHECK_INT(
		peer_acquire(&scene->victim, &scene->victim_lane, PAGE, TTL_MS, 0, &scene->before),
		0);
	CHECK_INT(peer_acquire(&scene->prober, &scene->lane, PAGE, TTL_MS, 0, &scene->own), 0);
	CHECK_INT(
		peer_acquire(&scene->victim, &scene->victim_lane, PAGE, TTL_MS, 0, &scene->behind),
		0);
	CHECK_INT(scene->before.descriptors[0].remote_addr + PAGE,
		  scene->own.descriptors[0].remote_addr);
	CHECK_INT(scene->own.descriptors[0].remote_addr + PAGE,
		  scene->behind.descriptors[0].remote_addr);
	victim_fill(scene, &scene->before);
	victim_fill(scene, &scene->behind);
}

static void prober_again(struct scene *scene)
{
	struct message_grant grant;

	peer_lane_close(&scene->lane);
	CHECK_INT(peer_lane_open(&scene->prober, &scene->lane), 0);
	CHECK_INT(peer_attach(&scene->prober, &scene->lane, scene->own.lease_id, &grant), 0);
	scene->own = grant;
}

/* On a lane that has just carried an access of the prober's own. */
static void probe(struct scene *scene, const char *what, enum ibv_wr_opcode opcode, uint64_t addr,
		  uint64_t len_bytes, uint32_t rkey)
{
	const struct message_descriptor *own = &scene->own.descriptors[0];
	uint64_t tried = scene->tried;
	int status;

	CHECK_INT(peer_access(&scene->lane, opcode, 1, own->remote_addr, own->rkey),
		  IBV_WC_SUCCESS);
	memset(peer_buffer(&scene->lane), SENTINEL, PEER_BUFFER_BYTES);
	status = peer_access(&scene->lane, opcode, (uint32_t)len_bytes, addr, rkey);
	scene->tried++;
	scene->refused += status == IBV_WC_REM_ACCESS_ERR;
	if (status != IBV_WC_REM_ACCESS_ERR)
		printf("# not refused: probe %" PRIu64 ", %s, %s of %" PRIu64 " bytes: %d\n", tried,
		       what, opcode == IBV_WR_RDMA_READ ? "read" : "write", len_bytes, status);
	for (uint32_t i = 0; i < PEER_BUFFER_BYTES; i++)
		CHECK_INT(peer_buffer(&scene->lane)[i], SENTINEL);
	prober_again(scene);
}

/* @rkey: looked at anew each time, for our own changes with each probe */
static void probe_both(struct scene *scene, const char *what, uint64_t addr, uint64_t len_bytes,
		       const uint32_t *rkey)
{
	probe(scene, what, IBV_WR_RDMA_READ, addr, len_bytes, *rkey);
	if (!test_has_failed())
		probe(scene, what, IBV_WR_RDMA_WRITE, addr, len_bytes, *rkey);
}

/* S1: the neighbour's exact descriptor, and around it. */
static void sweep_neighbour(struct scene *scene, const struct message_descriptor *at)
{
	const struct {
		const char *what;
		uint64_t addr;
		uint64_t len_bytes;
	} probes[] = {
		{"the very descriptor", at->remote_addr, at->len_bytes},
		{"its first byte", at->remote_addr, 1},
		{"its last byte", at->remote_addr + at->len_bytes - 1, 1},
		{"the byte before it", at->remote_addr - 1, 1},
		{"the byte behind it", at->remote_addr + at->len_bytes, 1},
		{"across its start", at->remote_addr - 1, 2},
		{"across its end", at->remote_addr + at->len_bytes - 1, 2},
		{"all of it and a byte more", at->remote_addr, at->len_bytes + 1},
		{"several pages from before it", at->remote_addr - PAGE, 3 * PAGE},
	};

	for (size_t i = 0; i < sizeof(probes) / sizeof(probes[0]) && !test_has_failed(); i++)
		probe_both(scene, probes[i].what, probes[i].addr, probes[i].len_bytes, &at->rkey);
}

/* S4: our own key, beyond both ends of what it is for. */
static void sweep_bounds(struct scene *scene)
{
	const struct message_descriptor at = scene->own.descriptors[0];
	const struct {
		const char *what;
		uint64_t addr;
		uint64_t len_bytes;
	} probes[] = {
		{"the byte before", at.remote_addr - 1, 1},
		{"the byte behind", at.remote_addr + at.len_bytes, 1},
		{"across the start", at.remote_addr - 1, 2},
		{"across the end", at.remote_addr + at.len_bytes - 1, 2},
		{"one byte too many", at.remote_addr, at.len_bytes + 1},
		{"one byte too early", at.remote_addr - 1, at.len_bytes},
		{"one byte too late", at.remote_addr + 1, at.len_bytes},
		{"the page before", at.remote_addr - PAGE, PAGE},
		{"the page behind", at.remote_addr + PAGE, PAGE},
		{"many packets across the end", at.remote_addr, 16 * PAGE},
		{"address 0", 0, 1},
		{"a page at address 0", 0, PAGE},
		{"the last address", UINT64_MAX, 1},
		{"across 2^64", UINT64_MAX, 2},
		{"across 2^64 into what there is", UINT64_MAX - 7, 4096},
	};

	for (size_t i = 0; i < sizeof(probes) / sizeof(probes[0]) && !test_has_failed(); i++)
		probe_both(scene, probes[i].what, probes[i].addr, probes[i].len_bytes,
			   &scene->own.descriptors[0].rkey);
}

/* Nothing is refused that reaches no byte, and nothing is reached. */
static void try_no_bytes(struct scene *scene, const struct message_descriptor *at)
{
	int status = peer_access(&scene->lane, IBV_WR_RDMA_WRITE, 0, at->remote_addr, at->rkey);

	printf("# 0 bytes with the neighbour's key: %s\n",
	       status < 0 ? "no completion" : ibv_wc_status_str((enum ibv_wc_status)status));
	prober_again(scene);
}

TEST(neighbour__probes_are_refused)
{
	HARNESS(h, .extra = "\"lane_wait_min\": \"0\"");
	__attribute__((cleanup(scene_end))) struct scene scene = {0};

	if (harness_is_unverified())
		SKIP("bounds are not enforced in this mode");
	scene_begin(&scene);
	CHECK(!test_has_failed());
	sweep_neighbour(&scene, &scene.before.descriptors[0]);
	sweep_neighbour(&scene, &scene.behind.descriptors[0]);
	printf("# S1 the neighbour's descriptor: %" PRIu64 " tried, %" PRIu64 " refused\n",
	       scene.tried, scene.refused);
	CHECK_INT(scene.refused, scene.tried);
	sweep_bounds(&scene);
	try_no_bytes(&scene, &scene.behind.descriptors[0]);
	victim_look(&scene, &scene.before);
	victim_look(&scene, &scene.behind);
	printf("# S1 and S4 in all: %" PRIu64 " tried, %" PRIu64 " refused, %" PRIu64
	       " bytes of the neighbour changed\n",
	       scene.tried, scene.refused, scene.changed);
	CHECK(!test_has_failed());
	CHECK_INT(scene.refused, scene.tried);
	CHECK_INT(scene.changed, 0);
	/* Neither the victim's session nor its lane has noticed. */
	CHECK_INT(peer_renew(&scene.victim, scene.before.lease_id, TTL_MS), 0);
	CHECK_INT(harness_number(&h, "counters.sessions_accepted"), 2);
	CHECK_INT(verbs_qp_state(scene.victim_lane.raw.id->qp), IBV_QPS_RTS);
	scene_end(&scene);
	accounts_check(&h);
	CHECK(!test_has_failed());
	CHECK_INT(harness_stop(&h), 0);
}
