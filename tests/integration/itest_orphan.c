/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Leases whose session is lost: what is kept of them and for how long, who may take them over,
 * and who may not.
 */
#include <errno.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/clock.h"
#include "proto/error.h"
#include "tests/integration/accounts.h"
#include "tests/integration/harness.h"
#include "tests/integration/order.h"
#include "tests/integration/peer.h"
#include "tests/integration/proof.h"

#define PAGE	 4096
#define TTL_MS	 600000
#define GROWTHS	 10
#define LATE_MAX (100 * CLOCK_NS_PER_MS)

/* The orphan grace; what the other keys say is as without it. */
#define GRACE(text) .extra = "\"orphan_grace\": \"" text "\""

static bool wait_orphans(struct harness *h, int64_t count)
{
	return harness_wait_number(h, "leases.orphaned", count, 10000);
}

/* Has the daemon's log a line with both? */
static bool is_logged(const struct harness *h, const char *first, const char *second)
{
	char path[HARNESS_TEXT_MAX];
	char line[1024];
	bool found = false;
	FILE *file;

	snprintf(path, sizeof(path), "%s/log", h->dir);
	file = fopen(path, "re");
	while (file != NULL && !found && fgets(line, sizeof(line), file) != NULL)
		found = strstr(line, first) != NULL && strstr(line, second) != NULL;
	if (file != NULL)
		fclose(file);
	return found;
}

static int write_byte(struct peer_lane *lane, const struct message_grant *grant, int byte)
{
	memset(peer_buffer(lane), byte, PAGE);
	return peer_access(lane, IBV_WR_RDMA_WRITE, PAGE, grant->descriptors[0].remote_addr,
			   grant->descriptors[0].rkey);
}

static void check_bytes(struct peer_lane *lane, const struct message_grant *grant, int byte)
{
	memset(peer_buffer(lane), ~byte, PAGE);
	CHECK_INT(peer_access(lane, IBV_WR_RDMA_READ, PAGE, grant->descriptors[0].remote_addr,
			      grant->descriptors[0].rkey),
		  IBV_WC_SUCCESS);
	for (int i = 0; i < PAGE; i++)
		CHECK_INT(peer_buffer(lane)[i], byte);
}

/* Killed, and back. */

#define CHILD_LEASES 4
#define CHILD_BYTES  (64 * 1024)

struct child {
	pid_t pid;
	int out;
	struct mempool_lease_token tokens[CHILD_LEASES];
};

static void child_kill(struct child *child)
{
	int status;

	if (child->pid <= 0)
		return;
	(void)kill(child->pid, SIGKILL);
	(void)waitpid(child->pid, &status, 0);
	close(child->out);
	child->pid = 0;
}

static bool read_all(int fd, void *buf, size_t len_bytes)
{
	size_t got = 0;
	ssize_t n;

	while (got < len_bytes && (n = read(fd, (uint8_t *)buf + got, len_bytes - got)) > 0)
		got += (size_t)n;
	return got == len_bytes;
}

static bool child_start(struct child *child)
{
	char program[PATH_MAX];
	char count[16];
	char len_bytes[16];
	const char *argv[] = {harness_program("itest_child", program),
			      harness_endpoint(),
			      "alpha",
			      count,
			      len_bytes,
			      "tokens",
			      NULL};
	char line[6];

	snprintf(count, sizeof(count), "%d", CHILD_LEASES);
	snprintf(len_bytes, sizeof(len_bytes), "%d", CHILD_BYTES);
	child->pid = harness_spawn(argv, &child->out);
	return child->pid > 0 && read_all(child->out, line, sizeof(line)) &&
	       memcmp(line, "ready\n", sizeof(line)) == 0 &&
	       read_all(child->out, child->tokens, sizeof(child->tokens));
}

static void check_pattern(mempool_lease *lease, uint32_t seed)
{
	static uint8_t sent[CHILD_BYTES];
	static uint8_t got[CHILD_BYTES];

	harness_fill(sent, CHILD_BYTES, seed);
	CHECK_INT(mempool_read(lease, 0, got, CHILD_BYTES), 0);
	CHECK_MEM(got, sent, CHILD_BYTES);
}

static int64_t unfenced(struct harness *h)
{
	return harness_number(h, "counters.binds_succeeded") -
	       harness_number(h, "counters.invalidates_succeeded") -
	       harness_number(h, "counters.windows_unknown");
}

/* Its tenant finds the bytes as they were; meanwhile they are nobody's, and no key opens them. */
TEST(orphan__killed_client_comes_back)
{
	HARNESS(h, GRACE("1min"));
	__attribute__((cleanup(child_kill))) struct child child = {0};
	__attribute__((cleanup(harness_close))) mempool *alpha = NULL;
	struct mempool_lease_info info = {.size = sizeof(info)};
	mempool_lease *leases[CHILD_LEASES];

	CHECK(child_start(&child));
	CHECK_INT(unfenced(&h), CHILD_LEASES);
	child_kill(&child);
	CHECK(wait_orphans(&h, CHILD_LEASES));
	CHECK(harness_wait_number(&h, "lanes", 0, 10000));
	CHECK(harness_wait_number(&h, "sessions", 0, 10000));
	CHECK(unfenced(&h) <= 0);
	CHECK_INT(harness_number(&h, "counters.windows_deallocated"),
		  harness_number(&h, "counters.windows_allocated"));
	CHECK_INT(harness_number(&h, "pool.leased_bytes"), CHILD_LEASES * CHILD_BYTES);
	CHECK_INT(harness_number(&h, "pool.dirty_bytes"), 0);
	CHECK_INT(harness_number(&h, "counters.sessions_lost"), 1);
	CHECK_INT(harness_number(&h, "counters.leases_orphaned"), CHILD_LEASES);
	CHECK_INT(harness_connect("alpha", &alpha), 0);
	for (uint32_t i = 0; i < CHILD_LEASES && !test_has_failed(); i++) {
		CHECK_INT(mempool_reattach(alpha, &child.tokens[i], &leases[i]), 0);
		check_pattern(leases[i], i + 1);
		CHECK_INT(mempool_lease_info(leases[i], &info), 0);
		CHECK_INT(info.id, child.tokens[i].lease_id);
		CHECK_INT(info.len_bytes, CHILD_BYTES);
		CHECK_INT(info.generation, 2);
		CHECK(info.ttl_left_ms > 0 && info.ttl_left_ms < TTL_MS);
	}
	CHECK(!test_has_failed());
	CHECK_INT(harness_number(&h, "leases.orphaned"), 0);
	CHECK_INT(harness_number(&h, "leases.active"), CHILD_LEASES);
	CHECK_INT(harness_number(&h, "counters.leases_reattached"), CHILD_LEASES);
	CHECK(is_logged(&h, "event=lease-orphaned", "duration_ms=60000"));
	CHECK(is_logged(&h, "event=lease-reattached", "generation="));
	CHECK_INT(mempool_renew(leases[0], TTL_MS), 0);
	CHECK_INT(mempool_release(leases[0]), 0);
	harness_close(&alpha);
	accounts_finish(&h);
}

/* Ends. */

/* What the admin socket showed of one lease, each time known to within a look. */
struct seen {
	uint64_t orphan_end_ns;	 /* when the first look ended that showed it orphaned */
	uint64_t alive_begun_ns; /* when the last look began that showed it alive */
	uint64_t ended_end_ns;	 /* when the first look ended that did not */
};

static bool watch(struct harness *h, uint64_t lease_id, uint64_t limit_ms, struct seen *ret_seen)
{
	uint64_t until_ns = clock_add_ms(clock_now_ns(), limit_ms);
	struct seen seen = {0};
	char state[32];

	while (seen.ended_end_ns == 0 && clock_now_ns() < until_ns) {
		uint64_t begun_ns = clock_now_ns();
		bool orphaned;

		harness_lease_state(h, lease_id, state);
		orphaned = strcmp(state, "orphaned") == 0;
		if (orphaned && seen.orphan_end_ns == 0)
			seen.orphan_end_ns = clock_now_ns();
		if (orphaned || strcmp(state, "active") == 0)
			seen.alive_begun_ns = begun_ns;
		else
			seen.ended_end_ns = clock_now_ns();
		harness_sleep_ms(1);
	}
	*ret_seen = seen;
	return seen.orphan_end_ns != 0 && seen.ended_end_ns != 0;
}

/* Not before its grace is over, at most 100 ms after; then the bytes are zeroed. */
TEST(orphan__nobody_comes_back)
{
	HARNESS(h, GRACE("700ms"));
	PEER(alpha, "alpha");
	PEER_LANE(lane, &alpha);
	struct message_grant grant;
	uint64_t cut_ns, nonzero;
	struct seen seen;

	CHECK_INT(peer_acquire(&alpha, &lane, PAGE, TTL_MS, 0, &grant), 0);
	CHECK_INT(write_byte(&lane, &grant, 0x77), IBV_WC_SUCCESS);
	cut_ns = clock_now_ns();
	peer_cut(&alpha);
	CHECK(watch(&h, grant.lease_id, 10000, &seen));
	printf("# cut, orphaned within %.1f ms, ended between %.1f and %.1f ms\n",
	       (double)(seen.orphan_end_ns - cut_ns) / 1e6,
	       (double)(seen.alive_begun_ns - cut_ns) / 1e6,
	       (double)(seen.ended_end_ns - cut_ns) / 1e6);
	CHECK(seen.ended_end_ns >= clock_add_ms(cut_ns, 700));
	CHECK(seen.alive_begun_ns <= clock_add_ms(seen.orphan_end_ns, 700) + LATE_MAX);
	CHECK(is_logged(&h, "event=lease-ended", "reason=orphaned"));
	peer_lane_close(&lane);
	peer_close(&alpha);
	CHECK_INT(harness_count_nonzero(&h, &nonzero), 0);
	if (!harness_is_unverified())
		CHECK_INT(nonzero, 0);
	accounts_finish(&h);
}

/* Its own time runs on. */
TEST(orphan__expires_before_the_grace)
{
	HARNESS(h, GRACE("1min"));
	PEER(alpha, "alpha");
	PEER_LANE(lane, &alpha);
	uint64_t asked_ns, granted_ns;
	struct message_grant grant;
	struct seen seen;

	asked_ns = clock_now_ns();
	CHECK_INT(peer_acquire(&alpha, &lane, PAGE, 800, 0, &grant), 0);
	granted_ns = clock_now_ns();
	peer_cut(&alpha);
	CHECK(watch(&h, grant.lease_id, 10000, &seen));
	printf("# ended between %.1f and %.1f ms\n", (double)(seen.alive_begun_ns - asked_ns) / 1e6,
	       (double)(seen.ended_end_ns - asked_ns) / 1e6);
	CHECK(seen.ended_end_ns >= clock_add_ms(asked_ns, 800));
	CHECK(seen.alive_begun_ns <= clock_add_ms(granted_ns, 800) + LATE_MAX);
	CHECK(is_logged(&h, "event=lease-ended", "reason=expired"));
	peer_lane_close(&lane);
	peer_close(&alpha);
	accounts_finish(&h);
}

TEST(orphan__time_left_is_shown)
{
	HARNESS(h, GRACE("1min"));
	PEER(alpha, "alpha");
	PEER_LANE(lane, &alpha);
	struct message_grant grant;
	const json_t *row;
	json_t *list;

	CHECK_INT(peer_acquire(&alpha, &lane, PAGE, TTL_MS, 0, &grant), 0);
	peer_cut(&alpha);
	CHECK(wait_orphans(&h, 1));
	list = harness_call(&h, "lease.list", NULL);
	row = json_array_get(json_object_get(list, "leases"), 0);
	CHECK_STR(json_string_value(json_object_get(row, "state")), "orphaned");
	CHECK(json_object_get(row, "session") == NULL);
	CHECK(json_integer_value(json_object_get(row, "orphan_left_ms")) > 40000);
	CHECK(json_integer_value(json_object_get(row, "orphan_left_ms")) <= 60000);
	CHECK(json_integer_value(json_object_get(row, "ttl_left_ms")) > 540000);
	json_decref(list);
	CHECK_INT(harness_number(&h, "leases.detached"), 1);
	CHECK_INT(harness_number(&h, "leases.active"), 1);
	peer_lane_close(&lane);
	peer_close(&alpha);
	CHECK_INT(harness_stop(&h), 0);
}

/* Without a grace a lease ends with its session, and a secret is good for nothing. */
TEST(orphan__no_grace)
{
	HARNESS(h, .pool_size = NULL);
	PEER(old, "alpha");
	PEER_LANE(old_lane, &old);
	PEER(fresh, "alpha");
	PEER_LANE(fresh_lane, &fresh);
	struct message_grant grant, other;

	CHECK_INT(peer_acquire(&old, &old_lane, PAGE, TTL_MS, 0, &grant), 0);
	CHECK_INT(peer_reattach(&fresh, &fresh_lane, &grant, &other), ERROR_NO_LEASE);
	CHECK_INT(peer_renew(&old, grant.lease_id, TTL_MS), 0);
	peer_cut(&old);
	CHECK(harness_wait_lease_gone(&h, grant.lease_id, 10000));
	CHECK(is_logged(&h, "event=lease-ended", "reason=session-ended"));
	CHECK_INT(peer_reattach(&fresh, &fresh_lane, &grant, &other), ERROR_NO_LEASE);
	CHECK_INT(harness_number(&h, "counters.leases_orphaned"), 0);
	peer_lane_close(&fresh_lane);
	peer_close(&fresh);
	peer_lane_close(&old_lane);
	peer_close(&old);
	accounts_finish(&h);
}

/* Nothing is kept of a session that says bye or breaks the rules. */
TEST(orphan__not_of_every_session)
{
	HARNESS(h, GRACE("1min"));
	struct message bye = {.type = MESSAGE_BYE};
	struct message wrong = {.type = MESSAGE_WELCOME, .request_id = 77};
	struct message_grant grant;

	wrong.u.welcome.receives = 8;
	for (int i = 0; i < 2; i++) {
		PEER(alpha, "alpha");
		PEER_LANE(lane, &alpha);

		CHECK_INT(peer_acquire(&alpha, &lane, PAGE, TTL_MS, 5000, &grant), 0);
		CHECK_INT(peer_send(&alpha, i == 0 ? &bye : &wrong), 0);
		CHECK(harness_wait_lease_gone(&h, grant.lease_id, 10000));
	}
	CHECK_INT(harness_number(&h, "counters.leases_orphaned"), 0);
	CHECK_INT(harness_number(&h, "counters.sessions_lost"), 0);
	accounts_finish(&h);
}

/* Nor what has not been granted yet: it waits for bytes, which are zeroed slowly. */
TEST(orphan__was_waiting)
{
	HARNESS(h, .extra = "\"orphan_grace\": \"1min\", \"scrub_chunk\": \"4KiB\"");
	PEER(alpha, "alpha");
	PEER_LANE(lane, &alpha);
	struct message_grant kept, large;
	struct message wait = {
		.type = MESSAGE_ACQUIRE,
		.u.acquire = {.len_bytes = 14 * MIB,
			      .ttl_ms = TTL_MS,
			      .rights = MESSAGE_RIGHT_READ,
			      .lane = lane.number,
			      .wait_ms = 60000,
			      .count = 1},
	};

	CHECK_INT(peer_acquire(&alpha, &lane, PAGE, TTL_MS, 0, &kept), 0);
	CHECK_INT(peer_acquire(&alpha, &lane, 14 * MIB, TTL_MS, 0, &large), 0);
	CHECK_INT(peer_release(&alpha, large.lease_id), 0);
	CHECK_INT(peer_send(&alpha, &wait), 0);
	CHECK(harness_wait_number(&h, "leases.active", 2, 10000));
	CHECK(harness_number(&h, "pool.dirty_bytes") > 0);
	peer_cut(&alpha);
	CHECK(wait_orphans(&h, 1));
	CHECK(harness_wait_number(&h, "leases.active", 1, 10000));
	CHECK_INT(harness_number(&h, "counters.leases_orphaned"), 1);
	CHECK_INT(harness_number(&h, "counters.leases_granted"), 2);
	CHECK_INT(harness_revoke(&h, kept.lease_id), 0);
	peer_lane_close(&lane);
	peer_close(&alpha);
	accounts_finish(&h);
}

/* Who may have it. */

TEST(orphan__wrong_ones_learn_nothing)
{
	HARNESS(h, GRACE("1min"));
	PEER(owner, "alpha");
	PEER_LANE(owner_lane, &owner);
	PEER(fresh, "alpha");
	PEER_LANE(fresh_lane, &fresh);
	PEER(beta, "beta");
	PEER_LANE(beta_lane, &beta);
	const struct peer_lane no_lane = {.number = 9};
	struct message_grant live, orphan, wrong, got;

	CHECK_INT(peer_acquire(&owner, &owner_lane, PAGE, TTL_MS, 0, &live), 0);
	CHECK(!secure_is_zero(live.secret, sizeof(live.secret)));
	CHECK_INT(peer_acquire(&owner, &owner_lane, PAGE, TTL_MS, 0, &orphan), 0);
	CHECK(memcmp(live.secret, orphan.secret, sizeof(live.secret)) != 0);
	for (int dead = 0; dead < 2 && !test_has_failed(); dead++) {
		const struct message_grant *grant = dead != 0 ? &orphan : &live;

		for (int bit = 0; bit < 128; bit += bit == 0 ? 63 : 64) {
			wrong = *grant;
			wrong.secret[bit / 8] ^= (uint8_t)(1u << bit % 8);
			CHECK_INT(peer_reattach(&fresh, &fresh_lane, &wrong, &got), ERROR_NO_LEASE);
		}
		CHECK_INT(peer_reattach(&beta, &beta_lane, grant, &got), ERROR_NO_LEASE);
		wrong = *grant;
		wrong.lease_id ^= UINT64_C(1) << 40;
		CHECK_INT(peer_reattach(&fresh, &fresh_lane, &wrong, &got), ERROR_NO_LEASE);
		if (dead == 0) {
			CHECK_INT(peer_renew(&owner, live.lease_id, TTL_MS), 0);
			CHECK_INT(peer_release(&owner, live.lease_id), 0);
			CHECK_INT(peer_reattach(&fresh, &fresh_lane, &live, &got), ERROR_NO_LEASE);
			/* Its own session is told what it knows anyway. */
			CHECK_INT(peer_reattach(&owner, &owner_lane, &live, &got), ERROR_RELEASED);
			peer_cut(&owner);
			CHECK(wait_orphans(&h, 1));
		}
	}
	CHECK(!test_has_failed());
	CHECK_INT(harness_number(&h, "counters.sessions_lost"), 1);
	CHECK_INT(peer_reattach(&fresh, &no_lane, &orphan, &got), ERROR_LANE_STATE);
	CHECK_INT(harness_number(&h, "leases.orphaned"), 1);
	CHECK_INT(peer_reattach(&fresh, &fresh_lane, &orphan, &got), 0);
	CHECK_INT(got.generation, orphan.generation + 1);
	CHECK_MEM(got.secret, orphan.secret, sizeof(got.secret));
	CHECK_INT(peer_reattach(&fresh, &fresh_lane, &orphan, &got), ERROR_BUSY);
	peer_lane_close(&beta_lane);
	peer_close(&beta);
	peer_lane_close(&fresh_lane);
	peer_close(&fresh);
	peer_lane_close(&owner_lane);
	peer_close(&owner);
	CHECK(wait_orphans(&h, 1));
	CHECK_INT(harness_revoke(&h, orphan.lease_id), 0);
	accounts_finish(&h);
}

/* The other session looks alive: it is told and ended; its other leases can be had as well. */
TEST(orphan__live_session_is_taken_over)
{
	HARNESS(h, GRACE("1min"));
	PEER(old, "alpha");
	PEER_LANE(old_lane, &old);
	PEER(fresh, "alpha");
	PEER_LANE(fresh_lane, &fresh);
	struct message_grant first, second, got;
	struct message m;

	CHECK_INT(peer_acquire(&old, &old_lane, PAGE, TTL_MS, 0, &first), 0);
	CHECK_INT(peer_acquire(&old, &old_lane, PAGE, TTL_MS, 0, &second), 0);
	CHECK_INT(write_byte(&old_lane, &first, 0x11), IBV_WC_SUCCESS);
	CHECK_INT(write_byte(&old_lane, &second, 0x22), IBV_WC_SUCCESS);
	CHECK_INT(peer_reattach(&fresh, &fresh_lane, &first, &got), 0);
	CHECK_INT(got.lease_id, first.lease_id);
	CHECK_INT(got.generation, first.generation + 1);
	CHECK_INT(got.len_bytes, PAGE);
	CHECK_INT(got.rights, first.rights);
	check_bytes(&fresh_lane, &got, 0x11);
	CHECK_INT(peer_take(&old, MESSAGE_ERROR, 0, 5000, &m), 1);
	CHECK_INT(m.u.error.code, ERROR_TAKEN_OVER);
	CHECK_STR(m.u.error.text, error_text(ERROR_TAKEN_OVER));
	CHECK_INT(harness_number(&h, "leases.orphaned"), 1);
	CHECK(write_byte(&old_lane, &first, 0x99) != IBV_WC_SUCCESS);
	check_bytes(&fresh_lane, &got, 0x11);
	CHECK_INT(peer_reattach(&fresh, &fresh_lane, &second, &got), 0);
	check_bytes(&fresh_lane, &got, 0x22);
	CHECK_INT(harness_number(&h, "leases.orphaned"), 0);
	CHECK(harness_wait_number(&h, "sessions", 1, 10000));
	CHECK_INT(peer_release(&fresh, first.lease_id), 0);
	CHECK_INT(peer_release(&fresh, second.lease_id), 0);
	peer_lane_close(&fresh_lane);
	peer_close(&fresh);
	peer_lane_close(&old_lane);
	peer_close(&old);
	accounts_finish(&h);
}

/* As the library tells it. */
TEST(orphan__library)
{
	HARNESS(h, GRACE("1min"));
	SESSION(old, "alpha");
	SESSION(fresh, "alpha");
	SESSION(beta, "beta");
	struct mempool_lease_token token, wrong;
	mempool_lease *lease, *got = NULL;
	uint8_t byte = 0x5c;

	CHECK_INT(mempool_lease_token(NULL, &token), MEMPOOL_E_INVALID);
	CHECK_INT(harness_acquire(old, PAGE, TTL_MS, &lease), 0);
	CHECK_INT(mempool_write(lease, PAGE - 1, &byte, 1), 0);
	CHECK_INT(mempool_lease_token(lease, &token), 0);
	CHECK_INT(token.version, 1);
	CHECK_INT(token.lease_id, harness_lease_id(lease));
	CHECK_INT(mempool_reattach(fresh, NULL, &got), MEMPOOL_E_INVALID);
	wrong = token;
	wrong.version = 2;
	CHECK_INT(mempool_reattach(fresh, &wrong, &got), MEMPOOL_E_INVALID);
	wrong = token;
	wrong.secret[15] ^= 0x80;
	CHECK_INT(mempool_reattach(fresh, &wrong, &got), MEMPOOL_E_NO_LEASE);
	CHECK_INT(mempool_reattach(beta, &token, &got), MEMPOOL_E_NO_LEASE);
	CHECK_INT(mempool_reattach(old, &token, &got), MEMPOOL_E_STATE);
	CHECK(got == NULL);
	CHECK_INT(mempool_renew(lease, TTL_MS), 0);
	CHECK_INT(mempool_reattach(fresh, &token, &got), 0);
	byte = 0;
	CHECK_INT(mempool_read(got, PAGE - 1, &byte, 1), 0);
	CHECK_INT(byte, 0x5c);
	CHECK_INT(mempool_renew(lease, TTL_MS), MEMPOOL_E_SESSION_LOST);
	CHECK(strstr(mempool_last_error(), error_text(ERROR_TAKEN_OVER)) != NULL);
	CHECK_INT(mempool_lease_token(lease, &wrong), 0);
	CHECK_MEM(&wrong, &token, sizeof(token));
	CHECK_INT(mempool_modify(got, 2 * PAGE, MEMPOOL_READ), 0);
	CHECK_INT(mempool_lease_token(got, &wrong), 0);
	CHECK_MEM(&wrong, &token, sizeof(token));
	CHECK_INT(mempool_release(got), 0);
	CHECK_INT(mempool_reattach(fresh, &token, &got), MEMPOOL_E_RELEASED);
	harness_close(&old);
	harness_close(&fresh);
	harness_close(&beta);
	accounts_finish(&h);
}

/* Lost again and again; the secret and the bytes stay the same. */
TEST(orphan__lost_many_times)
{
	HARNESS(h, GRACE("1min"));
	struct message_grant grant = {0};

	for (int i = 0; i < 5 && !test_has_failed(); i++) {
		PEER(alpha, "alpha");
		PEER_LANE(lane, &alpha);

		if (i == 0)
			CHECK_INT(peer_acquire(&alpha, &lane, PAGE, TTL_MS, 0, &grant), 0);
		else
			CHECK_INT(peer_reattach(&alpha, &lane, &grant, &grant), 0);
		CHECK_INT(grant.generation, (uint32_t)i + 1);
		if (i > 0)
			check_bytes(&lane, &grant, i);
		CHECK_INT(write_byte(&lane, &grant, i + 1), IBV_WC_SUCCESS);
	}
	CHECK(wait_orphans(&h, 1));
	CHECK_INT(harness_number(&h, "counters.leases_orphaned"), 5);
	CHECK_INT(harness_revoke(&h, grant.lease_id), 0);
	accounts_finish(&h);
}

/* More leases than are looked at in one turn, and the one that is asked for is the last. */
TEST(orphan__many)
{
	HARNESS(h, GRACE("1min"));
	PEER(old, "alpha");
	PEER_LANE(old_lane, &old);
	PEER(fresh, "alpha");
	PEER_LANE(fresh_lane, &fresh);
	struct message_grant grant, got;

	for (int i = 0; i < 300; i++)
		CHECK_INT(peer_acquire(&old, &old_lane, 1, TTL_MS, 0, &grant), 0);
	CHECK_INT(peer_reattach(&fresh, &fresh_lane, &grant, &got), 0);
	CHECK(wait_orphans(&h, 299));
	CHECK_INT(harness_number(&h, "leases.active"), 300);
	CHECK(harness_wait_number(&h, "sessions", 1, 10000));
	CHECK_INT(harness_stop(&h), 0);
}

/* A repeated acquire finds its lease wherever it is. */
TEST(orphan__acquire_is_repeated)
{
	HARNESS(h, GRACE("1min"));
	PEER(old, "alpha");
	PEER_LANE(old_lane, &old);
	__attribute__((cleanup(peer_close))) struct peer fresh = {0};
	__attribute__((cleanup(peer_lane_close))) struct peer_lane lane = {0};
	PEER(other, "alpha");
	PEER_LANE(other_lane, &other);
	struct message acquire = {
		.type = MESSAGE_ACQUIRE,
		.u.acquire = {.len_bytes = PAGE, .ttl_ms = TTL_MS, .rights = 3, .count = 1},
	};
	struct message_grant grant, got;
	struct message m;

	acquire.request_id = 1000;
	acquire.u.acquire.lane = old_lane.number;
	m = acquire;
	CHECK_INT(peer_call(&old, &m, &m), 0);
	grant = m.u.grant;
	peer_cut(&old);
	CHECK(wait_orphans(&h, 1));
	CHECK_INT(peer_open(&fresh, "alpha", old.instance), 0);
	CHECK_INT(peer_lane_open(&fresh, &lane), 0);
	acquire.u.acquire.lane = lane.number;
	m = acquire;
	CHECK_INT(peer_call(&fresh, &m, &m), ERROR_BUSY);
	CHECK_INT(peer_reattach(&fresh, &lane, &grant, &got), 0);
	m = acquire;
	CHECK_INT(peer_call(&fresh, &m, &m), 0);
	CHECK_INT(m.u.grant.lease_id, grant.lease_id);
	CHECK_INT(m.u.grant.generation, got.generation);
	CHECK_INT(m.u.grant.descriptors[0].rkey, got.descriptors[0].rkey);
	/* Of another instance it is another request. */
	acquire.u.acquire.lane = other_lane.number;
	m = acquire;
	CHECK_INT(peer_call(&other, &m, &m), 0);
	CHECK(m.u.grant.lease_id != grant.lease_id);
	CHECK_INT(peer_release(&other, m.u.grant.lease_id), 0);
	CHECK_INT(peer_release(&fresh, grant.lease_id), 0);
	peer_lane_close(&other_lane);
	peer_close(&other);
	peer_lane_close(&lane);
	peer_close(&fresh);
	peer_lane_close(&old_lane);
	peer_close(&old);
	accounts_finish(&h);
}

/* The fence. The seam keeps back the completion of the first invalidate for a second. */

#define SLOW_FENCE(name)                                                               \
	HARNESS(name, .program = "mempoold-seam", .seam = "lose-invalidate:1",         \
		.extra = "\"orphan_grace\": \"1min\", \"completion_timeout\": \"1s\"," \
			 "\"quiesce_timeout\": \"1min\"")

/*
 * Only the control connection is cut, so the QPs of the lane are as good as before: it is the
 * device that refuses the old key. New ones are given not before the fence, and the bytes are
 * as they were.
 */
TEST(orphan__old_key_is_refused)
{
	SLOW_FENCE(h);
	PEER(old, "alpha");
	PEER_LANE(old_lane, &old);
	PEER(fresh, "alpha");
	PEER_LANE(fresh_lane, &fresh);
	struct message_grant grant, got;
	uint64_t lost_ns, got_ns;

	CHECK_INT(peer_acquire(&old, &old_lane, PAGE, TTL_MS, 0, &grant), 0);
	CHECK_INT(write_byte(&old_lane, &grant, 0x31), IBV_WC_SUCCESS);
	lost_ns = clock_now_ns();
	peer_cut(&old);
	CHECK(wait_orphans(&h, 1));
	harness_sleep_ms(50);
	CHECK_INT(verbs_qp_state(old_lane.raw.id->qp), IBV_QPS_RTS);
	CHECK_INT(harness_number(&h, "lanes"), 2);
	CHECK_INT(write_byte(&old_lane, &grant, 0x32), IBV_WC_REM_ACCESS_ERR);
	CHECK_INT(peer_reattach(&fresh, &fresh_lane, &grant, &got), 0);
	got_ns = clock_now_ns();
	printf("# granted anew %.1f ms after the loss\n", (double)(got_ns - lost_ns) / 1e6);
	check_bytes(&fresh_lane, &got, 0x31);
	CHECK_INT(harness_number(&h, "counters.windows_unknown"), 1);
	CHECK_INT(peer_release(&fresh, grant.lease_id), 0);
	peer_lane_close(&fresh_lane);
	peer_close(&fresh);
	peer_lane_close(&old_lane);
	peer_close(&old);
	accounts_finish(&h);
}

/* The daemon does not know that the invalidate is done, so nothing new is bound. */
TEST(orphan__new_key_waits_for_the_fence)
{
	SLOW_FENCE(h);
	PEER(old, "alpha");
	PEER_LANE(old_lane, &old);
	PEER(fresh, "alpha");
	PEER_LANE(fresh_lane, &fresh);
	struct message_grant grant, got;
	uint64_t lost_ns, got_ns;

	CHECK_INT(peer_acquire(&old, &old_lane, PAGE, TTL_MS, 0, &grant), 0);
	CHECK_INT(write_byte(&old_lane, &grant, 0x31), IBV_WC_SUCCESS);
	lost_ns = clock_now_ns();
	CHECK_INT(peer_reattach(&fresh, &fresh_lane, &grant, &got), 0);
	got_ns = clock_now_ns();
	printf("# granted anew %.1f ms after the loss\n", (double)(got_ns - lost_ns) / 1e6);
	CHECK(got_ns >= clock_add_ms(lost_ns, 1000));
	check_bytes(&fresh_lane, &got, 0x31);
	CHECK_INT(peer_release(&fresh, grant.lease_id), 0);
	peer_lane_close(&fresh_lane);
	peer_close(&fresh);
	peer_lane_close(&old_lane);
	peer_close(&old);
	accounts_finish(&h);
}

/* What was about to be done with it. */

static int send_modify(struct peer *peer, uint64_t lease_id, uint64_t len_bytes, uint32_t rights)
{
	struct message m = {
		.type = MESSAGE_MODIFY,
		.u.modify = {.lease_id = lease_id, .len_bytes = len_bytes, .rights = rights},
	};

	return peer_send(peer, &m);
}

/* Its owner has not stopped: nothing has been changed. */
TEST(orphan__was_quiescing)
{
	SLOW_FENCE(h);
	PEER(old, "alpha");
	PEER_LANE(old_lane, &old);
	PEER(fresh, "alpha");
	PEER_LANE(fresh_lane, &fresh);
	struct message_grant grant, got;
	struct message m;

	CHECK_INT(peer_acquire(&old, &old_lane, 2 * PAGE, TTL_MS, 0, &grant), 0);
	CHECK_INT(write_byte(&old_lane, &grant, 0x41), IBV_WC_SUCCESS);
	CHECK_INT(send_modify(&old, grant.lease_id, PAGE, MESSAGE_RIGHT_READ), 0);
	CHECK_INT(peer_take(&old, MESSAGE_QUIESCE, 0, 5000, &m), 1);
	/* From a live session it cannot be taken meanwhile. */
	CHECK_INT(peer_reattach(&fresh, &fresh_lane, &grant, &got), ERROR_BUSY);
	CHECK_INT(harness_number(&h, "sessions"), 2);
	peer_cut(&old);
	CHECK(wait_orphans(&h, 1));
	CHECK_INT(peer_reattach(&fresh, &fresh_lane, &grant, &got), 0);
	CHECK_INT(got.rights, grant.rights);
	CHECK_INT(got.len_bytes, 2 * PAGE);
	check_bytes(&fresh_lane, &got, 0x41);
	CHECK_INT(peer_release(&fresh, grant.lease_id), 0);
	peer_lane_close(&fresh_lane);
	peer_close(&fresh);
	peer_lane_close(&old_lane);
	peer_close(&old);
	accounts_finish(&h);
}

static bool wait_state(struct harness *h, uint64_t lease_id, const char *wanted)
{
	char state[32];

	for (int i = 0; i < 2000; i++) {
		if (strcmp(harness_lease_state(h, lease_id, state), wanted) == 0)
			return true;
		harness_sleep_ms(2);
	}
	printf("# the lease is %s\n", state);
	return false;
}

/* The old windows were on their way out: it comes to what was asked for, without windows. */
TEST(orphan__was_rebinding)
{
	SLOW_FENCE(h);
	PEER(old, "alpha");
	PEER_LANE(old_lane, &old);
	PEER(fresh, "alpha");
	PEER_LANE(fresh_lane, &fresh);
	struct message_grant grant, got;
	struct message m;
	int code;

	CHECK_INT(peer_acquire(&old, &old_lane, 2 * PAGE, TTL_MS, 0, &grant), 0);
	CHECK_INT(write_byte(&old_lane, &grant, 0x42), IBV_WC_SUCCESS);
	CHECK_INT(send_modify(&old, grant.lease_id, PAGE, MESSAGE_RIGHT_READ), 0);
	CHECK_INT(peer_take(&old, MESSAGE_QUIESCE, 0, 5000, &m), 1);
	CHECK_INT(peer_say(&old, MESSAGE_QUIESCED, grant.lease_id), 0);
	CHECK(wait_state(&h, grant.lease_id, "rebinding"));
	peer_cut(&old);
	CHECK(wait_orphans(&h, 1));
	code = peer_reattach(&fresh, &fresh_lane, &grant, &got);
	printf("# first: %s\n", error_name(code));
	for (int i = 0; i < 500 && code == ERROR_BUSY; i++) {
		harness_sleep_ms(10);
		code = peer_reattach(&fresh, &fresh_lane, &grant, &got);
	}
	CHECK_INT(code, 0);
	CHECK_INT(got.rights, MESSAGE_RIGHT_READ);
	CHECK_INT(got.len_bytes, PAGE);
	check_bytes(&fresh_lane, &got, 0x42);
	CHECK(harness_wait_number(&h, "pool.leased_bytes", PAGE, 5000));
	CHECK_INT(peer_release(&fresh, grant.lease_id), 0);
	peer_lane_close(&fresh_lane);
	peer_close(&fresh);
	peer_lane_close(&old_lane);
	peer_close(&old);
	accounts_finish(&h);
}

/* On two lanes, and being made longer: it is as it was, or what was asked for. */
TEST(orphan__was_growing)
{
	HARNESS(h, GRACE("1min"));
	PEER(fresh, "alpha");
	PEER_LANE(fresh_lane, &fresh);
	struct message_grant grant, got;
	int grown = 0, under_way = 0;

	for (int i = 0; i < GROWTHS && !test_has_failed(); i++) {
		PEER(old, "alpha");
		PEER_LANE(first, &old);
		PEER_LANE(second, &old);
		char state[32];
		int code;

		CHECK_INT(peer_acquire(&old, &first, PAGE, TTL_MS, 5000, &grant), 0);
		CHECK_INT(peer_attach(&old, &second, grant.lease_id, &got), 0);
		CHECK_INT(write_byte(&first, &grant, 0x43), IBV_WC_SUCCESS);
		CHECK_INT(send_modify(&old, grant.lease_id, 3 * PAGE, grant.rights), 0);
		/* Every other time it is found out first how far it has got, which takes a while. */
		under_way += i % 2 == 0 && strcmp(harness_lease_state(&h, grant.lease_id, state),
						  "rebinding") == 0;
		peer_cut(&old);
		CHECK(wait_orphans(&h, 1));
		code = peer_reattach(&fresh, &fresh_lane, &grant, &got);
		for (int k = 0; k < 500 && code == ERROR_BUSY; k++)
			code = peer_reattach(&fresh, &fresh_lane, &grant, &got);
		CHECK_INT(code, 0);
		CHECK(got.len_bytes == PAGE || got.len_bytes == 3 * PAGE);
		grown += got.len_bytes == 3 * PAGE;
		check_bytes(&fresh_lane, &got, 0x43);
		CHECK_INT(peer_release(&fresh, grant.lease_id), 0);
	}
	printf("# of %d leases %d are longer; %d were seen on the way\n", GROWTHS, grown,
	       under_way);
	peer_lane_close(&fresh_lane);
	peer_close(&fresh);
	accounts_finish(&h);
}

/* What the operator takes back is not kept, neither before the loss nor after it. */
TEST(orphan__is_revoked)
{
	HARNESS(h, .extra = "\"orphan_grace\": \"1min\", \"revoke_grace\": \"30s\"");
	__attribute__((cleanup(order_close))) struct order order;
	PEER(alpha, "alpha");
	PEER_LANE(lane, &alpha);
	PEER(fresh, "alpha");
	PEER_LANE(fresh_lane, &fresh);
	struct message_grant before, after, got;
	uint64_t begun_ns = clock_now_ns();
	json_t *result = NULL;
	struct message m;

	CHECK_INT(order_open(&order, &h), 0);
	CHECK_INT(peer_acquire(&alpha, &lane, PAGE, TTL_MS, 0, &before), 0);
	CHECK_INT(peer_acquire(&alpha, &lane, PAGE, TTL_MS, 0, &after), 0);
	CHECK_INT(order_revoke(&order, before.lease_id, false), 0);
	CHECK_INT(peer_take(&alpha, MESSAGE_REVOKE, 0, 5000, &m), 1);
	CHECK_INT(peer_reattach(&fresh, &fresh_lane, &before, &got), ERROR_REVOKED);
	CHECK_INT(harness_number(&h, "sessions"), 2);
	peer_cut(&alpha);
	CHECK_INT(order_answer(&order, 10000, &result), 0);
	json_decref(result);
	CHECK(wait_orphans(&h, 1));
	CHECK(is_logged(&h, "event=lease-ended", "reason=revoked"));
	CHECK_INT(order_revoke(&order, after.lease_id, false), 0);
	CHECK_INT(order_answer(&order, 10000, &result), 0);
	json_decref(result);
	CHECK_INT(harness_number(&h, "leases.orphaned"), 0);
	CHECK_INT(peer_reattach(&fresh, &fresh_lane, &after, &got), ERROR_NO_LEASE);
	CHECK(clock_now_ns() - begun_ns < 30 * CLOCK_NS_PER_S);
	peer_lane_close(&fresh_lane);
	peer_close(&fresh);
	peer_lane_close(&lane);
	peer_close(&alpha);
	accounts_finish(&h);
}

/* A ban is no loss, and costs the orphans, too. */
TEST(orphan__tenant_is_banned)
{
	HARNESS(h, GRACE("1min"),
		.limits = "\"ban_after\": 0, \"ban_backoff_min\": \"0\", \"strikes_max\": 1, "
			  "\"heartbeat\": \"0\"");
	PEER(first, "alpha");
	PEER_LANE(first_lane, &first);
	PEER(second, "alpha");
	PEER_LANE(second_lane, &second);
	PEER(third, "alpha");
	PEER_LANE(third_lane, &third);
	struct message_grant grant;
	struct message wrong = {.type = MESSAGE_WELCOME, .request_id = 77};

	CHECK_INT(peer_acquire(&first, &first_lane, PAGE, TTL_MS, 0, &grant), 0);
	CHECK_INT(peer_acquire(&second, &second_lane, PAGE, TTL_MS, 0, &grant), 0);
	peer_cut(&first);
	CHECK(wait_orphans(&h, 1));
	wrong.u.welcome.receives = 8;
	CHECK_INT(peer_send(&third, &wrong), 0);
	CHECK(harness_wait_number(&h, "leases.active", 0, 10000));
	CHECK_INT(harness_number(&h, "leases.orphaned"), 0);
	CHECK_INT(harness_number(&h, "counters.leases_orphaned"), 1);
	peer_lane_close(&third_lane);
	peer_close(&third);
	peer_lane_close(&second_lane);
	peer_close(&second);
	peer_lane_close(&first_lane);
	peer_close(&first);
	accounts_finish(&h);
}

/* A daemon that stops waits for nobody. */
TEST(orphan__daemon_stops)
{
	HARNESS(h, GRACE("1d"));
	PEER(old, "alpha");
	PEER_LANE(old_lane, &old);
	PEER(live, "beta");
	PEER_LANE(live_lane, &live);
	struct message_grant grant;

	for (int i = 0; i < 150; i++)
		CHECK_INT(peer_acquire(&old, &old_lane, PAGE, TTL_MS, 0, &grant), 0);
	CHECK_INT(peer_acquire(&live, &live_lane, PAGE, TTL_MS, 0, &grant), 0);
	peer_cut(&old);
	CHECK(wait_orphans(&h, 150));
	CHECK_INT(harness_stop(&h), 0);
	CHECK(is_logged(&h, "event=lease-ended", "reason=drained"));
	CHECK(!is_logged(&h, "event=lease-ended", "reason=orphaned"));
}
