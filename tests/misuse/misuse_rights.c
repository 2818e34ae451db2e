/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Operations without the right: each kind on a lease with each set of rights, by calls and by a
 * queue; and rights that there are not. Rights are the daemon's to judge, so calls that ask for
 * them come to it as they are. (Quotas of rights: itest_quota.)
 *
 * Behind the client's checks: the same accesses by raw work requests, with the lease's own key.
 * (Atomic operations with their values: itest_atomic.)
 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "client/lane.h"
#include "client/pool.h"
#include "tests/integration/proof.h"
#include "tests/misuse/misuse.h"

#define ALL (MEMPOOL_READ | MEMPOOL_WRITE | MEMPOOL_ATOMIC)

static int code_of(const struct misuse *m, uint32_t right)
{
	return (m->subject_rights & right) != 0 ? 0 : MEMPOOL_E_ACCESS;
}

static const struct mempool_segment *segment_of(uint8_t *bytes)
{
	static struct mempool_segment segment;

	segment = (struct mempool_segment){.buf = bytes, .len_bytes = 8};
	return &segment;
}

static const struct mempool_acquire_opts *rights_of(struct misuse *m, uint32_t rights)
{
	static struct mempool_acquire_opts opts;

	opts = m->acquire_opts;
	opts.rights = rights;
	return &opts;
}

#define MISUSE_GROUP "operations"
MISUSE(mempool_read, without, code_of(m, MEMPOOL_READ),
       mempool_read(m->subject, 0, m->out.bytes, 8))
MISUSE(mempool_read, no_bytes, code_of(m, MEMPOOL_READ),
       mempool_read(m->subject, 0, m->out.bytes, 0))
MISUSE(mempool_write, without, code_of(m, MEMPOOL_WRITE),
       mempool_write(m->subject, 0, m->content, 8))
MISUSE(mempool_readv, without, code_of(m, MEMPOOL_READ),
       mempool_readv(m->subject, segment_of(m->out.bytes), 1, NULL))
MISUSE(mempool_writev, without, code_of(m, MEMPOOL_WRITE),
       mempool_writev(m->subject, segment_of(m->content), 1, NULL))
MISUSE(mempool_fetch_add, without, code_of(m, MEMPOOL_ATOMIC),
       mempool_fetch_add(m->subject, 0, 1, &m->out.old))
MISUSE(mempool_compare_swap, without, code_of(m, MEMPOOL_ATOMIC),
       mempool_compare_swap(m->subject, 0, 0, 1, &m->out.old))
MISUSE(mempool_submit, read, code_of(m, MEMPOOL_READ),
       misuse_op(m, misuse_op_of(m, m->subject, MEMPOOL_OP_READ)))
MISUSE(mempool_submit, write, code_of(m, MEMPOOL_WRITE),
       misuse_op(m, misuse_op_of(m, m->subject, MEMPOOL_OP_WRITE)))
MISUSE(mempool_submit, fetch_add, code_of(m, MEMPOOL_ATOMIC),
       misuse_op(m, misuse_op_of(m, m->subject, MEMPOOL_OP_FETCH_ADD)))
MISUSE(mempool_submit, compare_swap, code_of(m, MEMPOOL_ATOMIC),
       misuse_op(m, misuse_op_of(m, m->subject, MEMPOOL_OP_COMPARE_SWAP)))

#undef MISUSE_GROUP
#define MISUSE_GROUP "rights"
MISUSE(mempool_acquire, none, MEMPOOL_E_RIGHTS,
       mempool_acquire(m->pool, 1, rights_of(m, 0), &m->out.lease))
MISUSE(mempool_acquire, unknown, MEMPOOL_E_RIGHTS,
       mempool_acquire(m->pool, 1, rights_of(m, MEMPOOL_READ | 8), &m->out.lease))
MISUSE(mempool_acquire, all_bits, MEMPOOL_E_RIGHTS,
       mempool_acquire(m->pool, 1, rights_of(m, UINT32_MAX), &m->out.lease))
MISUSE(mempool_acquire_many, none, MEMPOOL_E_RIGHTS,
       mempool_acquire_many(m->pool, 1, rights_of(m, 0), 2, m->out.leases))
MISUSE(mempool_acquire_many, unknown, MEMPOOL_E_RIGHTS,
       mempool_acquire_many(m->pool, 1, rights_of(m, 8), 2, m->out.leases))
MISUSE(mempool_modify, none, MEMPOOL_E_RIGHTS, mempool_modify(m->lease, MISUSE_BYTES, 0))
MISUSE(mempool_modify, unknown, MEMPOOL_E_RIGHTS,
       mempool_modify(m->lease, MISUSE_BYTES, MEMPOOL_READ | 8))
MISUSE(mempool_modify, all_bits, MEMPOOL_E_RIGHTS,
       mempool_modify(m->lease, MISUSE_BYTES, UINT32_MAX))

MISUSE_NONE(any, "they need no right of the lease, and take none",
	    "mempool_connect mempool_close mempool_renew mempool_auto_renew mempool_release "
	    "mempool_release_many mempool_lease_info mempool_lease_token mempool_next_event "
	    "mempool_event_fd mempool_error_text mempool_last_error")
MISUSE_NONE(token, "the lease that is taken over keeps its rights", "mempool_reattach")
MISUSE_NONE(local, "they are about memory of this machine",
	    "mempool_buf_alloc mempool_buf_register mempool_buf_free mempool_buf_bytes "
	    "mempool_buf_length mempool_cache_limit mempool_cache_forget mempool_cache_stats")
MISUSE_NONE(queue, "the right is needed for operations, not for the queue",
	    "mempool_queue_create mempool_queue_destroy mempool_queue_attach mempool_queue_restore "
	    "mempool_poll mempool_cancel mempool_queue_fd mempool_queue_arm mempool_flush "
	    "mempool_queue_info")

TEST(misuse_rights__table_is_complete)
{
	misuse_check_complete();
}

static void run_with(struct misuse *m, uint32_t rights)
{
	m->subject_rights = rights;
	m->subject = misuse_acquire(m->pool, rights, MISUSE_TTL_MS);
	CHECK(m->subject != NULL);
	CHECK_INT(mempool_queue_attach(m->queue, m->subject), 0);
	(void)misuse_run(m, "operations");
	CHECK(!test_has_failed());
	CHECK_INT(mempool_release(m->subject), 0);
}

TEST(misuse_rights__each_set)
{
	MISUSE_SCENE(m, NULL);

	for (uint32_t rights = 1; rights <= ALL; rights++) {
		if ((rights & ~m->rights) == 0)
			run_with(m, rights);
		if (test_has_failed())
			printf("# with the rights %" PRIu32 "\n", rights);
		CHECK(!test_has_failed());
	}
	(void)misuse_run(m, "rights");
	CHECK(!test_has_failed());
	CHECK_INT(harness_number(&m->h, "counters.lanes_lost"), 0);
	misuse_end(m);
}

/* What was taken away is gone, and what was given is there. */
TEST(misuse_rights__that_were_taken_away)
{
	MISUSE_SCENE(m, NULL);

	m->subject = misuse_acquire(m->pool, MEMPOOL_READ | MEMPOOL_WRITE, MISUSE_TTL_MS);
	CHECK(m->subject != NULL);
	CHECK_INT(mempool_queue_attach(m->queue, m->subject), 0);
	for (uint32_t rights = 1; rights <= ALL; rights++) {
		if ((rights & ~m->rights) != 0)
			continue;
		CHECK_INT(mempool_modify(m->subject, MISUSE_BYTES, rights), 0);
		m->subject_rights = rights;
		(void)misuse_run(m, "operations");
		CHECK(!test_has_failed());
	}
	CHECK_INT(harness_number(&m->h, "counters.lanes_lost"), 0);
	misuse_end(m);
}

/* Raw work requests. */

static const struct {
	enum ibv_wr_opcode opcode;
	uint32_t right;
} raw_accesses[] = {
	{IBV_WR_RDMA_READ, MEMPOOL_READ},
	{IBV_WR_RDMA_WRITE, MEMPOOL_WRITE},
	{IBV_WR_ATOMIC_FETCH_AND_ADD, MEMPOOL_ATOMIC},
	{IBV_WR_ATOMIC_CMP_AND_SWP, MEMPOOL_ATOMIC},
};

/* An operation that the lease allows, and that changes nothing, has it attached to a new lane. */
static int attach_anew(struct misuse *m)
{
	uint8_t byte = 0;
	uint64_t old;

	if ((m->subject_rights & MEMPOOL_READ) != 0)
		return mempool_read(m->subject, 0, &byte, 1);
	if ((m->subject_rights & MEMPOOL_WRITE) != 0)
		return mempool_write(m->subject, 0, &byte, 1);
	return mempool_fetch_add(m->subject, 0, 0, &old);
}

/* All is zero in the lease, and stays so where writing is not allowed. */
static void access_raw(struct misuse *m, enum ibv_wr_opcode opcode, uint32_t right)
{
	bool allowed = (m->subject_rights & right) != 0;
	struct lane *lane = pool_lane(m->pool);
	struct message_descriptor at;
	uint8_t *local;

	CHECK_INT(attach_anew(m), 0);
	at = proof_descriptor(m->subject);
	local = lane_slot(lane, 0); /* another one on each lane */
	memset(local, 0x77, 8);
	CHECK_INT(proof_access(lane, opcode, 8, at.remote_addr, at.rkey),
		  allowed ? IBV_WC_SUCCESS : IBV_WC_REM_ACCESS_ERR);
	for (int i = 0; i < 8 && !allowed; i++)
		CHECK_INT(local[i], 0x77);
}

/* The right to read is the last that it gets: so it is seen what is there. */
static void check_zero(struct misuse *m)
{
	uint8_t got[MISUSE_BYTES];

	CHECK_INT(attach_anew(m), 0);
	CHECK_INT(mempool_modify(m->subject, MISUSE_BYTES, MEMPOOL_READ), 0);
	CHECK_INT(mempool_read(m->subject, 0, got, sizeof(got)), 0);
	for (uint32_t i = 0; i < MISUSE_BYTES; i++)
		CHECK_INT(got[i], 0);
}

static void access_raw_with(struct misuse *m, uint32_t rights)
{
	m->subject_rights = rights;
	m->subject = misuse_acquire(m->pool, rights, MISUSE_TTL_MS);
	CHECK(m->subject != NULL);
	for (size_t i = 0; i < sizeof(raw_accesses) / sizeof(raw_accesses[0]); i++) {
		access_raw(m, raw_accesses[i].opcode, raw_accesses[i].right);
		if (test_has_failed())
			printf("# opcode %d with the rights %" PRIu32 "\n",
			       (int)raw_accesses[i].opcode, rights);
		CHECK(!test_has_failed());
	}
	if ((rights & MEMPOOL_WRITE) == 0)
		check_zero(m);
	CHECK(!test_has_failed());
	CHECK_INT(mempool_release(m->subject), 0);
}

TEST(misuse_rights__device_refuses)
{
	MISUSE_SCENE(m, "\"lane_wait_min\": \"0\"");

	for (uint32_t rights = 1; rights <= ALL; rights++) {
		if ((rights & ~m->rights) == 0)
			access_raw_with(m, rights);
		CHECK(!test_has_failed());
		misuse_check_works(m);
		CHECK(!test_has_failed());
	}
	misuse_end(m);
}
