/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * One access, write or read, is repeated on a lane without a pause from the grant of a lease
 * until the device refuses it; meanwhile the lease ends. A refusal counts as proving if the
 * same access, key, address and length, has succeeded on that very QP just before, the QP was
 * RTS, it ended with a remote access error, and the local buffer is as it was. That a refused
 * write has changed nothing is for the next owner of the bytes to see (owner.c).
 *
 * Owns its connections. Thread: its own.
 */
#include "tests/redteam/hostile.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/clock.h"
#include "proto/error.h"

#define SENTINEL	 0x5a
#define LOOK_EVERY	 8 /* accesses between looks at what the daemon says */
#define REFUSAL_LIMIT_MS 5000
#define ACQUIRE_LIMIT_MS 20000
#define OWNER_LIMIT_MS	 500
#define TRIES_MAX	 5

static const char *const ending_names[ENDINGS] = {
	[ENDING_EXPIRY] = "expiry",
	[ENDING_RELEASE] = "release",
	[ENDING_REVOKE_IGNORED] = "revoke, notice ignored",
	[ENDING_REVOKE_ACKNOWLEDGED] = "revoke, notice acknowledged",
	[ENDING_REVOKE_NOW] = "revoke now",
	[ENDING_FEWER_RIGHTS] = "fewer rights",
	[ENDING_SHORTER] = "shorter",
	[ENDING_LANE_LOST] = "lane lost",
	[ENDING_DISCONNECT] = "disconnect",
	[ENDING_KILL] = "kill",
};

/* Of 40 leases; only the first seven leave the QP alone until the refusal. */
static const uint8_t ending_weights[ENDINGS] = {6, 6, 3, 5, 5, 5, 5, 2, 3, 0};

const char *hostile_ending_name(enum hostile_ending ending)
{
	return ending_names[ending];
}

static uint32_t hostile_random(struct hostile *hostile, uint32_t end)
{
	return (uint32_t)rand_r(&hostile->seed) % end;
}

static bool hostile_fail(struct hostile *hostile, const char *what, int code)
{
	hostile->failure = what;
	hostile->failure_code = code;
	return false;
}

static bool hostile_stopped(const struct hostile *hostile)
{
	return atomic_load(hostile->stop) || hostile->failure != NULL;
}

/* Connections. */

static void hostile_hang_up(struct hostile *hostile)
{
	peer_lane_close(&hostile->lane);
	peer_close(&hostile->peer);
	hostile->connected = false;
}

static bool hostile_connect(struct hostile *hostile)
{
	int r = 0;

	for (int i = 0; i < TRIES_MAX && !hostile->connected; i++) {
		r = peer_open(&hostile->peer, hostile->tenant, NULL);
		hostile->connected = r == 0;
		if (r != 0)
			peer_close(&hostile->peer);
	}
	return hostile->connected || hostile_fail(hostile, "cannot connect", r);
}

static bool hostile_open_lane(struct hostile *hostile)
{
	int r = 0;

	for (int i = 0; i < TRIES_MAX; i++) {
		peer_lane_close(&hostile->lane);
		hostile->successes = 0;
		r = peer_lane_open(&hostile->peer, &hostile->lane);
		if (r == 0)
			return true;
	}
	return hostile_fail(hostile, "cannot open a lane", r);
}

static bool hostile_prepare(struct hostile *hostile)
{
	if (!hostile_connect(hostile))
		return false;
	hostile->peer.kept_count = 0;
	return hostile->lane.raw.id != NULL || hostile_open_lane(hostile);
}

/* The access. */

static bool is_all(const uint8_t *bytes, uint8_t value, uint32_t len_bytes)
{
	return bytes[0] == value && memcmp(bytes, bytes + 1, len_bytes - 1) == 0;
}

static void hostile_check_read(struct hostile *hostile)
{
	const uint8_t *got = peer_buffer(&hostile->lane);
	uint64_t wrong = 0;

	if (memcmp(got, hostile->expected, hostile->len_bytes) == 0)
		return;
	for (uint32_t i = 0; i < hostile->len_bytes; i++)
		wrong += got[i] != hostile->mark;
	atomic_fetch_add(&hostile->count->stale, wrong);
}

/* A read that is refused half-way may have brought our own bytes, and nobody else's. */
static void hostile_check_refused(struct hostile *hostile)
{
	const uint8_t *got = peer_buffer(&hostile->lane);
	uint64_t wrong = 0;

	for (uint32_t i = 0; i < hostile->len_bytes; i++)
		wrong += got[i] != hostile->mark && got[i] != SENTINEL;
	atomic_fetch_add(&hostile->count->stale, wrong);
}

static void hostile_judge_failure(struct hostile *hostile, int status, bool was_ready)
{
	uint8_t before = hostile->opcode == IBV_WR_RDMA_READ ? SENTINEL : hostile->mark;
	bool unchanged = is_all(peer_buffer(&hostile->lane), before, hostile->len_bytes);

	hostile_check_refused(hostile);
	if (status == IBV_WC_REM_ACCESS_ERR && unchanged && was_ready && hostile->successes > 0)
		atomic_fetch_add(&hostile->count->proving, 1);
	else
		atomic_fetch_add(&hostile->count->other, 1);
	hostile->refused = true;
}

static void hostile_access(struct hostile *hostile)
{
	bool was_ready = verbs_qp_state(hostile->lane.raw.id->qp) == IBV_QPS_RTS;
	bool was_dead = hostile->dead;
	int status;

	memset(peer_buffer(&hostile->lane),
	       hostile->opcode == IBV_WR_RDMA_READ ? SENTINEL : hostile->mark, hostile->len_bytes);
	status = peer_access(&hostile->lane, hostile->opcode, hostile->len_bytes, hostile->addr,
			     hostile->rkey);
	atomic_fetch_add(&hostile->count->operations, 1);
	if (status != IBV_WC_SUCCESS) {
		hostile_judge_failure(hostile, status, was_ready);
		return;
	}
	hostile->successes++;
	if (was_dead)
		atomic_fetch_add(&hostile->count->open, 1);
	if (hostile->opcode == IBV_WR_RDMA_READ)
		hostile_check_read(hostile);
}

/* What the daemon says is heard, and no access is left out because of it. */
static void hostile_listen(struct hostile *hostile, enum hostile_ending ending)
{
	struct message m;

	if (hostile->peer.control.gone || peer_look(&hostile->peer) < 0)
		return;
	if (hostile->request_id != 0 &&
	    peer_take(&hostile->peer, 0, hostile->request_id, 0, &m) == 1) {
		/* An access that came between has cost the lane: there is nothing to grant on. */
		if (m.type == MESSAGE_ERROR && m.u.error.code != ERROR_LANE)
			(void)hostile_fail(hostile, "refused an ending", (int)m.u.error.code);
		hostile->request_id = 0;
		hostile->dead = true;
	}
	if (ending == ENDING_REVOKE_ACKNOWLEDGED &&
	    peer_take(&hostile->peer, MESSAGE_REVOKE, 0, 0, &m) == 1)
		(void)peer_say(&hostile->peer, MESSAGE_REVOKED, hostile->grant.lease_id);
	if (peer_take(&hostile->peer, MESSAGE_QUIESCE, 0, 0, &m) == 1)
		(void)peer_say(&hostile->peer, MESSAGE_QUIESCED, hostile->grant.lease_id);
}

static void hostile_hammer(struct hostile *hostile, enum hostile_ending ending, uint32_t count)
{
	for (uint32_t i = 0; i < count && !hostile->refused; i++) {
		hostile_access(hostile);
		if (i % LOOK_EVERY == 0)
			hostile_listen(hostile, ending);
	}
}

/* The lease. */

static bool hostile_acquire(struct hostile *hostile, enum hostile_ending ending)
{
	uint64_t ttl_ms =
		ending == ENDING_EXPIRY ? 20 + hostile_random(hostile, 60) : HOSTILE_TTL_MS;
	uint64_t until_ns = clock_add_ms(clock_now_ns(), ACQUIRE_LIMIT_MS);
	int r;

	for (;;) {
		r = peer_acquire(&hostile->peer, &hostile->lane, HOSTILE_LEASE_BYTES, ttl_ms, 100,
				 &hostile->grant);
		if (r != ERROR_LENGTH_EXTENT && r != ERROR_TIMEOUT)
			break;
		if (clock_now_ns() >= until_ns || hostile_stopped(hostile))
			break;
		harness_sleep_ms(1);
	}
	if (r == ERROR_LENGTH_EXTENT && hostile_stopped(hostile))
		return false;
	return r == 0 || hostile_fail(hostile, "cannot acquire", r);
}

/* Of any length; in the half that a shorter lease does not have any more. */
static void hostile_choose(struct hostile *hostile)
{
	static const uint32_t lengths[] = {1, 64, 4096, HOSTILE_ACCESS_MAX_BYTES};
	const struct message_descriptor *descriptor = &hostile->grant.descriptors[0];
	uint32_t half = HOSTILE_LEASE_BYTES / 2;

	hostile->len_bytes = lengths[hostile_random(hostile, 4)];
	hostile->rkey = descriptor->rkey;
	hostile->addr = descriptor->remote_addr + half +
			hostile_random(hostile, half - hostile->len_bytes + 1);
	hostile->successes = 0;
	hostile->request_id = 0;
	hostile->dead = false;
	hostile->refused = false;
	memset(hostile->expected, hostile->mark, sizeof(hostile->expected));
}

static void hostile_mark(struct hostile *hostile)
{
	memset(peer_buffer(&hostile->lane), hostile->mark, hostile->len_bytes);
	if (peer_access(&hostile->lane, IBV_WR_RDMA_WRITE, hostile->len_bytes, hostile->addr,
			hostile->rkey) != IBV_WC_SUCCESS)
		hostile->refused = true;
}

static void hostile_ask(struct hostile *hostile, struct message *m)
{
	if (peer_send(&hostile->peer, m) < 0)
		(void)hostile_fail(hostile, "cannot send", m->type);
	hostile->request_id = m->request_id;
}

static void hostile_modify(struct hostile *hostile, uint64_t len_bytes, uint32_t rights)
{
	struct message m = {
		.type = MESSAGE_MODIFY,
		.u.modify =
			{
				.lease_id = hostile->grant.lease_id,
				.len_bytes = len_bytes,
				.rights = rights,
			},
	};

	hostile_ask(hostile, &m);
}

static void hostile_release(struct hostile *hostile)
{
	struct message m = {
		.type = MESSAGE_RELEASE,
		.u.leases = {.count = 1, .lease_ids = {hostile->grant.lease_id}},
	};

	hostile_ask(hostile, &m);
}

/* Another QP knows nothing of the key, so this ends both. */
static void hostile_kill_lane(struct hostile *hostile)
{
	(void)peer_access(&hostile->lane, IBV_WR_RDMA_READ, 1, hostile->addr,
			  hostile->rkey ^ 0x5a5a5a00);
}

static void hostile_end(struct hostile *hostile, enum hostile_ending ending)
{
	const uint64_t id = hostile->grant.lease_id;

	switch (ending) {
	case ENDING_RELEASE:
		hostile_release(hostile);
		break;
	case ENDING_REVOKE_IGNORED:
	case ENDING_REVOKE_ACKNOWLEDGED:
	case ENDING_REVOKE_NOW:
		order_forget(&hostile->order);
		if (order_revoke(&hostile->order, id, ending == ENDING_REVOKE_NOW) < 0)
			(void)hostile_fail(hostile, "cannot give orders", 0);
		break;
	case ENDING_FEWER_RIGHTS:
		hostile_modify(hostile, HOSTILE_LEASE_BYTES,
			       hostile->opcode == IBV_WR_RDMA_READ ? MESSAGE_RIGHT_WRITE
								   : MESSAGE_RIGHT_READ);
		break;
	case ENDING_SHORTER:
		hostile_modify(hostile, HOSTILE_LEASE_BYTES / 2,
			       MESSAGE_RIGHT_READ | MESSAGE_RIGHT_WRITE);
		break;
	case ENDING_LANE_LOST:
		hostile_kill_lane(hostile);
		break;
	case ENDING_DISCONNECT:
		(void)rdma_disconnect(hostile->peer.control.id);
		hostile->peer.control.gone = true;
		break;
	case ENDING_EXPIRY:
	case ENDING_KILL:
	case ENDINGS:
		break;
	}
}

static enum hostile_ending hostile_next_ending(struct hostile *hostile)
{
	uint32_t left = hostile_random(hostile, 40);
	int ending = 0;

	while (left >= ending_weights[ending])
		left -= ending_weights[ending++];
	return (enum hostile_ending)ending;
}

/* The old descriptor on a QP that it was never good for. */
static void hostile_try_elsewhere(struct hostile *hostile)
{
	int status;

	if (!hostile_open_lane(hostile))
		return;
	status = peer_access(&hostile->lane, hostile->opcode, hostile->len_bytes, hostile->addr,
			     hostile->rkey);
	atomic_fetch_add(&hostile->count->operations, 1);
	if (status == IBV_WC_SUCCESS)
		atomic_fetch_add(&hostile->count->open, 1);
	else
		atomic_fetch_add(&hostile->count->elsewhere, 1);
	peer_lane_close(&hostile->lane);
}

/* Whoever gets the bytes next is to have had them before we ask again. */
static void hostile_wait_for_owner(struct hostile *hostile)
{
	uint64_t until_ns = clock_add_ms(clock_now_ns(), OWNER_LIMIT_MS);
	uint64_t before = atomic_load(hostile->owners);

	while (atomic_load(hostile->owners) == before && clock_now_ns() < until_ns &&
	       !hostile_stopped(hostile))
		harness_sleep_ms(1);
}

static void hostile_clear_up(struct hostile *hostile, enum hostile_ending ending)
{
	if (hostile->peer.control.gone) {
		hostile_hang_up(hostile);
		return;
	}
	peer_lane_close(&hostile->lane);
	/* Lives on, without a lane or as something less: its bytes are for others, too. */
	if (ending == ENDING_LANE_LOST || ending == ENDING_FEWER_RIGHTS || ending == ENDING_SHORTER)
		(void)peer_release(&hostile->peer, hostile->grant.lease_id);
	if (ending == ENDING_LANE_LOST || hostile_random(hostile, 8) == 0)
		hostile_try_elsewhere(hostile);
}

static void hostile_round(struct hostile *hostile)
{
	enum hostile_ending ending = hostile_next_ending(hostile);
	uint64_t until_ns;

	if (!hostile_prepare(hostile) || !hostile_acquire(hostile, ending))
		return;
	hostile_choose(hostile);
	hostile_mark(hostile);
	hostile_hammer(hostile, ending, 50 + hostile_random(hostile, 700));
	hostile_end(hostile, ending);
	until_ns = clock_add_ms(clock_now_ns(), REFUSAL_LIMIT_MS);
	while (!hostile->refused && clock_now_ns() < until_ns)
		hostile_hammer(hostile, ending, LOOK_EVERY);
	if (!hostile->refused)
		(void)hostile_fail(hostile, "never refused after this ending", (int)ending);
	atomic_fetch_add(&hostile->count->endings[ending], 1);
	hostile_clear_up(hostile, ending);
	hostile_wait_for_owner(hostile);
}

void *hostile_run(void *arg)
{
	struct hostile *hostile = arg;
	int r = order_open(&hostile->order, hostile->harness);

	if (r < 0)
		(void)hostile_fail(hostile, "cannot reach the admin socket", r);
	while (!hostile_stopped(hostile))
		hostile_round(hostile);
	hostile_hang_up(hostile);
	order_close(&hostile->order);
	return NULL;
}
