/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Calls in a wrong state: each function with a session that is lost, with a lease that has ended,
 * in a forked child; and what belongs to another session, is not attached, or is in use.
 *
 * Behind the client's checks: a key of a lease that was released, and messages about leases that
 * have ended or are another tenant's. (More of that: itest_lease and itest_mutation for keys of all
 * ends, rteam_hammer, itest_revoke for codes, itest_badinput for messages in a wrong state.)
 */
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "client/pool.h"
#include "proto/error.h"
#include "tests/integration/peer.h"
#include "tests/integration/proof.h"
#include "tests/integration/queues.h"
#include "tests/integration/told.h"
#include "tests/misuse/every_call.h"

#define LATE_MS 30000

/* Whether there is the right is asked before whether there is still a lease. */
static int code_in(const struct misuse *m, const struct every_call_code *codes,
		   const char *function, int otherwise)
{
	bool is_atomic = strcmp(function, "mempool_fetch_add") == 0 ||
			 strcmp(function, "mempool_compare_swap") == 0;

	if (is_atomic && (m->rights & MEMPOOL_ATOMIC) == 0)
		return MEMPOOL_E_ACCESS;
	return every_call_code(codes, function, otherwise);
}

/* A session that is lost, and does not come back. */

#define MISUSE_GROUP "lost"

static const struct every_call_code lost_codes[] = {
	{"mempool_connect", 0},
	{"mempool_reattach", MEMPOOL_E_STATE}, /* the session has it, lost as it is */
	{"mempool_lease_info", 0},
	{"mempool_lease_token", 0},
	{"mempool_buf_alloc", 0},
	{"mempool_buf_register", 0},
	{"mempool_buf_bytes", 0},
	{"mempool_buf_length", 0},
	{"mempool_cache_limit", 0},
	{"mempool_cache_forget", 0},
	{"mempool_cache_stats", 0},
	{"mempool_poll", 0},
	{"mempool_cancel", 0},
	{"mempool_flush", 0},
	{"mempool_queue_fd", 0},
	{"mempool_queue_arm", 0},
	{"mempool_queue_info", 0},
	{"mempool_next_event", MEMPOOL_E_TIMEOUT},
	{"mempool_event_fd", 0},
	{"mempool_error_text", 0},
	{"mempool_last_error", 0},
	{NULL, 0},
};

#define LOST(function, ...)                                                               \
	MISUSE(function, lost, code_in(m, lost_codes, #function, MEMPOOL_E_SESSION_LOST), \
	       __VA_ARGS__)
EVERY_CALL(LOST)

/* A lease that the operator has taken back. */

#undef MISUSE_GROUP
#define MISUSE_GROUP "ended"

static const struct every_call_code ended_codes[] = {
	{"mempool_reattach", MEMPOOL_E_STATE}, /* it is there, and to be released yet */
	{"mempool_read", MEMPOOL_E_REVOKED},
	{"mempool_write", MEMPOOL_E_REVOKED},
	{"mempool_readv", MEMPOOL_E_REVOKED},
	{"mempool_writev", MEMPOOL_E_REVOKED},
	{"mempool_fetch_add", MEMPOOL_E_REVOKED},
	{"mempool_compare_swap", MEMPOOL_E_REVOKED},
	{"mempool_renew", MEMPOOL_E_REVOKED},
	{"mempool_auto_renew", MEMPOOL_E_REVOKED},
	{"mempool_modify", MEMPOOL_E_REVOKED},
	{"mempool_queue_attach", MEMPOOL_E_REVOKED},
	{"mempool_submit", MEMPOOL_E_REVOKED},
	{"mempool_next_event", MEMPOOL_E_TIMEOUT},
	{NULL, 0},
};

#define ENDED(function, ...) \
	MISUSE(function, ended, code_in(m, ended_codes, #function, 0), __VA_ARGS__)
EVERY_CALL(ENDED)

/* A forked child. */

#undef MISUSE_GROUP
#define MISUSE_GROUP "child"

static const struct every_call_code child_codes[] = {
	{"mempool_error_text", 0},
	{"mempool_last_error", 0},
	{NULL, 0},
};

#define CHILD(function, ...)                                                              \
	MISUSE(function, child, every_call_code(child_codes, #function, MEMPOOL_E_STATE), \
	       __VA_ARGS__)
EVERY_CALL(CHILD)
EVERY_ENDING_CALL(CHILD)

/* What is not attached, is in use, or belongs to somebody else. */

#undef MISUSE_GROUP
#define MISUSE_GROUP "relation"

/* Operations that are under way until they are looked for. */
static struct misuse *begin_operation(struct misuse *m)
{
	struct mempool_op op = misuse_op_of(m, m->lease, MEMPOOL_OP_READ);
	size_t taken;

	if (mempool_submit(m->queue, &op, 1, &taken) < 0)
		test_fail(__FILE__, __LINE__, "an operation could not be submitted");
	return m;
}

/* Return: @r, of a call in between */
static int end_operation(struct misuse *m, int r)
{
	int code = 1;

	if (queues_collect(m->queue, 1, &code) < 0 || code != 0)
		test_fail(__FILE__, __LINE__, "an operation has failed");
	/* It has read what is there; the outputs are to be as they were. */
	memset(m->bytes, m->out.bytes[0], MISUSE_BYTES);
	return r;
}

static mempool_lease **two_leases(mempool_lease *first, mempool_lease *second)
{
	static mempool_lease *leases[2];

	leases[0] = first;
	leases[1] = second;
	return leases;
}

static struct mempool_op op_with_buf(struct misuse *m, mempool_buf *buf)
{
	struct mempool_op op = misuse_op_of(m, m->lease, MEMPOOL_OP_READ);

	op.buf = buf;
	op.bytes = mempool_buf_bytes(buf);
	return op;
}

MISUSE(mempool_submit, lease_that_is_not_attached, MEMPOOL_E_STATE,
       misuse_op(m, misuse_op_of(m, m->subject, MEMPOOL_OP_READ)))
MISUSE(mempool_submit, lease_of_another_session, MEMPOOL_E_INVALID,
       misuse_op(m, misuse_op_of(m, m->behind, MEMPOOL_OP_READ)))
MISUSE(mempool_submit, buffer_of_another_session, MEMPOOL_E_INVALID,
       misuse_op(m, op_with_buf(m, m->buf_2)))
MISUSE(mempool_queue_attach, lease_of_another_session, MEMPOOL_E_INVALID,
       mempool_queue_attach(m->queue, m->behind))
MISUSE(mempool_release, operations_under_way, MEMPOOL_E_BUSY,
       end_operation(m, mempool_release(begin_operation(m)->lease)))
MISUSE(mempool_release_many, operations_under_way, MEMPOOL_E_BUSY,
       end_operation(m, mempool_release_many(two_leases(m->subject, begin_operation(m)->lease), 2)))
MISUSE(mempool_release_many, one_named_twice, MEMPOOL_E_INVALID,
       mempool_release_many(two_leases(m->subject, m->subject), 2))
MISUSE(mempool_release_many, of_two_sessions, MEMPOOL_E_INVALID,
       mempool_release_many(two_leases(m->subject, m->behind), 2))
MISUSE(mempool_buf_free, operations_under_way, MEMPOOL_E_BUSY,
       end_operation(m, mempool_buf_free(begin_operation(m)->buf)))
MISUSE(mempool_flush, nothing_under_way, 0, mempool_flush(m->queue, 0))
MISUSE(mempool_cancel, nothing_under_way, 0, mempool_cancel(m->queue, 0, &m->out.count))
MISUSE(mempool_reattach, lease_that_is_held, MEMPOOL_E_STATE,
       mempool_reattach(m->pool, &m->token, &m->out.lease))
MISUSE(mempool_buf_register, part_of_a_buffer, MEMPOOL_E_STATE,
       mempool_buf_register(m->pool, m->bytes + MISUSE_BYTES - 1, 1, &m->out.buf))

TEST(misuse_state__table_is_complete)
{
	misuse_check_complete();
}

static void begin_subject(struct misuse *m)
{
	m->subject = misuse_acquire(m->pool, m->rights, MISUSE_TTL_MS);
	CHECK(m->subject != NULL);
	CHECK_INT(mempool_lease_token(m->subject, &m->token), 0);
}

/* A second session with what calls take, in place of the first. */
static void begin_session(const struct misuse *m, struct misuse *ret_other)
{
	struct misuse *other = ret_other;

	*other = *m;
	CHECK_INT(harness_connect("alpha", &other->pool), 0);
	begin_subject(other);
	CHECK(!test_has_failed());
	CHECK_INT(mempool_buf_alloc(other->pool, MISUSE_BYTES, 0, &other->buf), 0);
	other->bytes = mempool_buf_bytes(other->buf);
	CHECK_INT(queues_make(other->pool, &other->queue), 0);
	CHECK_INT(mempool_queue_attach(other->queue, other->subject), 0);
}

TEST(misuse_state__session_is_lost)
{
	MISUSE_SCENE(m, NULL);
	static struct misuse lost;
	mempool_lease *leases[2];

	begin_session(m, &lost);
	m->pool_2 = lost.pool;
	CHECK(!test_has_failed());
	for (int i = 0; i < 2; i++)
		leases[i] = misuse_acquire(lost.pool, MEMPOOL_READ, MISUSE_TTL_MS);
	CHECK(leases[0] != NULL && leases[1] != NULL);
	told_cut(lost.pool);
	CHECK(told_wait(lost.pool, MEMPOOL_EVENT_SESSION_LOST, LATE_MS, NULL));
	printf("# %u calls had to fail\n", misuse_run_alone(&lost, "lost"));
	CHECK(!test_has_failed());
	/* What ends something ends it. */
	CHECK_INT(mempool_release_many(leases, 2), MEMPOOL_E_SESSION_LOST);
	CHECK_INT(mempool_release(lost.subject), MEMPOOL_E_SESSION_LOST);
	CHECK_INT(mempool_buf_free(lost.buf), 0);
	CHECK_INT(mempool_buf_free(lost.buf), MEMPOOL_E_STATE);
	mempool_queue_destroy(lost.queue);
	harness_close(&m->pool_2);
	misuse_end(m);
}

TEST(misuse_state__lease_has_ended)
{
	MISUSE_SCENE(m, NULL);
	mempool_lease *other;

	begin_subject(m);
	CHECK(!test_has_failed());
	CHECK_INT(mempool_queue_attach(m->queue, m->subject), 0);
	other = misuse_acquire(m->pool, MEMPOOL_READ, MISUSE_TTL_MS);
	CHECK(other != NULL);
	CHECK_INT(harness_revoke(&m->h, harness_lease_id(m->subject)), 0);
	CHECK(told_wait(m->pool, MEMPOOL_EVENT_LEASE_ENDED, LATE_MS, NULL));
	printf("# %u calls had to fail\n", misuse_run(m, "ended"));
	CHECK(!test_has_failed());
	/* The one is not released, the other is. */
	CHECK_INT(mempool_release_many(two_leases(m->subject, other), 2), MEMPOOL_E_REVOKED);
	CHECK(strstr(mempool_last_error(), "lease 0x") != NULL);
	CHECK(harness_wait_number(&m->h, "leases.active", 3, LATE_MS));
	misuse_check_works(m);
	CHECK(!test_has_failed());
	misuse_end(m);
}

/* In the child, where the memory of buffers is not. Never returns. */
static void run_in_child(struct misuse *m)
{
	static uint8_t memory[MISUSE_BYTES];

	m->bytes = memory;
	(void)misuse_run_alone(m, "child");
	(void)fflush(stdout);
	_exit(test_has_failed() ? 1 : 0);
}

TEST(misuse_state__forked_child)
{
	MISUSE_SCENE(m, NULL);
	int status = -1;
	pid_t pid;

	begin_subject(m);
	CHECK(!test_has_failed());
	(void)fflush(stdout);
	pid = fork();
	if (pid == 0)
		run_in_child(m);
	CHECK(pid > 0);
	CHECK_INT(waitpid(pid, &status, 0), pid);
	CHECK_INT(status, 0);
	misuse_end(m);
}

TEST(misuse_state__relations)
{
	MISUSE_SCENE(m, NULL);

	begin_subject(m);
	CHECK(!test_has_failed());
	CHECK_INT(mempool_buf_alloc(m->neighbour, MISUSE_BYTES, 0, &m->buf_2), 0);
	printf("# %u calls had to fail\n", misuse_run(m, "relation"));
	CHECK(!test_has_failed());
	CHECK_INT(mempool_release(m->subject), 0);
	CHECK_INT(harness_number(&m->h, "counters.lanes_lost"), 0);
	misuse_end(m);
}

/* A key of a released lease, on the lane of which it was; what was there is lent anew. */
TEST(misuse_state__device_refuses_the_key_of_a_released_lease)
{
	MISUSE_SCENE(m, "\"lane_wait_min\": \"0\"");
	static const enum ibv_wr_opcode opcodes[] = {IBV_WR_RDMA_READ, IBV_WR_RDMA_WRITE};
	struct proof proof;

	for (size_t i = 0; i < 2; i++) {
		begin_subject(m);
		CHECK(!test_has_failed());
		CHECK(proof_begin(&proof, m->pool, m->subject, opcodes[i]));
		CHECK_INT(mempool_release(m->subject), 0);
		CHECK_STR(proof_result_name(proof_end(&proof)), proof_result_name(PROOF_REFUSED));
		CHECK_INT(mempool_release(proof.witness), 0);
		misuse_check_works(m);
		CHECK(!test_has_failed());
	}
	misuse_end(m);
}

static int peer_modify(struct peer *peer, uint64_t lease_id)
{
	struct message m = {
		.type = MESSAGE_MODIFY,
		.u.modify = {.lease_id = lease_id, .len_bytes = 1, .rights = MESSAGE_RIGHT_READ},
	};

	return peer_call(peer, &m, &m);
}

/* Requests about a lease that is not the sender's: the session goes on, the lease is untouched. */
static void refuse_all(struct peer *peer, const struct peer_lane *lane, uint64_t lease_id)
{
	struct message_grant grant = {.lease_id = lease_id};

	CHECK_INT(peer_renew(peer, lease_id, 1000), ERROR_NO_LEASE);
	CHECK_INT(peer_attach(peer, lane, lease_id, &grant), ERROR_NO_LEASE);
	CHECK_INT(peer_reattach(peer, lane, &grant, &grant), ERROR_NO_LEASE);
	CHECK_INT(peer_modify(peer, lease_id), ERROR_NO_LEASE);
	CHECK_INT(peer_release(peer, lease_id), ERROR_NO_LEASE);
}

TEST(misuse_state__daemon_refuses_leases_of_others)
{
	MISUSE_SCENE(m, NULL);
	PEER(mallory, "mallory");
	PEER_LANE(lane, &mallory);
	struct message_grant grant;
	struct mempool_lease_info before = {.size = sizeof(before)};
	struct mempool_lease_info info = {.size = sizeof(info)};

	CHECK_INT(mempool_lease_info(m->lease, &before), 0);
	refuse_all(&mallory, &lane, harness_lease_id(m->lease));
	refuse_all(&mallory, &lane, harness_lease_id(m->behind));
	refuse_all(&mallory, &lane, UINT64_MAX);
	CHECK(!test_has_failed());
	CHECK_INT(peer_acquire(&mallory, &lane, MISUSE_BYTES, MISUSE_TTL_MS, 0, &grant), 0);
	CHECK_INT(peer_release(&mallory, grant.lease_id), 0);
	CHECK_INT(peer_release(&mallory, grant.lease_id), ERROR_RELEASED);
	CHECK_INT(peer_renew(&mallory, grant.lease_id, 1000), ERROR_RELEASED);
	CHECK_INT(peer_modify(&mallory, grant.lease_id), ERROR_RELEASED);
	CHECK_INT(mempool_lease_info(m->lease, &info), 0);
	CHECK_INT(info.len_bytes, MISUSE_BYTES);
	CHECK_INT(info.rights, m->rights);
	CHECK_INT(info.generation, before.generation);
	misuse_check_works(m);
	CHECK(!test_has_failed());
	peer_lane_close(&lane);
	peer_close(&mallory);
	misuse_end(m);
}
