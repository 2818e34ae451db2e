/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Atomic operations at offsets, and into memory, that are no multiples of 8: each of the seven, by
 * calls and by a queue. All other operations, and all memory, may begin anywhere.
 *
 * Behind the client's checks: the same by raw work requests. (Words at the edges, with their
 * values: itest_atomic; words in two windows: itest_operations.)
 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "client/lane.h"
#include "client/pool.h"
#include "tests/integration/proof.h"
#include "tests/misuse/misuse.h"

#define AT 16 /* the word before which all of them begin */

/* @local_bytes: by how much the memory is not aligned */
static struct mempool_op op_of_word(struct misuse *m, uint32_t kind, uint64_t offset_bytes,
				    uint64_t local_bytes)
{
	struct mempool_op op = misuse_op_of(m, m->lease, kind);

	op.offset_bytes = offset_bytes;
	op.bytes = m->bytes + local_bytes;
	op.operand = 1;
	op.swap = 1;
	return op;
}

/* A range of the lease that is as odd as its memory; what is written is there already. */
static const struct mempool_segment *odd_segment(struct misuse *m, uint8_t *bytes)
{
	static struct mempool_segment segment;

	segment = (struct mempool_segment){m->offset_bytes, bytes + m->offset_bytes, 8};
	return &segment;
}

static struct mempool_op op_of_bytes(struct misuse *m, uint32_t kind)
{
	struct mempool_op op = misuse_op_of(m, m->lease, kind);

	memcpy(m->bytes, m->content, MISUSE_BYTES);
	op.offset_bytes = m->offset_bytes;
	op.bytes = m->bytes + m->offset_bytes;
	op.len_bytes = 9;
	return op;
}

static uint8_t odd_memory[64];

#define MISUSE_GROUP "words"
MISUSE(mempool_fetch_add, offset, MEMPOOL_E_ALIGN,
       mempool_fetch_add(m->lease, AT + m->offset_bytes, 1, &m->out.old))
MISUSE(mempool_fetch_add, offset_beyond_the_end, MEMPOOL_E_ALIGN,
       mempool_fetch_add(m->lease, MISUSE_BYTES + m->offset_bytes, 1, &m->out.old))
MISUSE(mempool_compare_swap, offset, MEMPOOL_E_ALIGN,
       mempool_compare_swap(m->lease, AT + m->offset_bytes, 0, 1, &m->out.old))
MISUSE(mempool_submit, offset_to_add, MEMPOOL_E_ALIGN,
       misuse_op(m, op_of_word(m, MEMPOOL_OP_FETCH_ADD, AT + m->offset_bytes, 0)))
MISUSE(mempool_submit, offset_to_swap, MEMPOOL_E_ALIGN,
       misuse_op(m, op_of_word(m, MEMPOOL_OP_COMPARE_SWAP, AT + m->offset_bytes, 0)))
MISUSE(mempool_submit, memory_to_add, MEMPOOL_E_ALIGN,
       misuse_op(m, op_of_word(m, MEMPOOL_OP_FETCH_ADD, AT, m->offset_bytes)))
MISUSE(mempool_submit, memory_to_swap, MEMPOOL_E_ALIGN,
       misuse_op(m, op_of_word(m, MEMPOOL_OP_COMPARE_SWAP, AT, m->offset_bytes)))
MISUSE(mempool_read, offset, 0,
       mempool_read(m->lease, m->offset_bytes, m->out.bytes + m->offset_bytes, 8))
MISUSE(mempool_write, offset, 0,
       mempool_write(m->lease, m->offset_bytes, m->content + m->offset_bytes, 9))
MISUSE(mempool_readv, offset, 0, mempool_readv(m->lease, odd_segment(m, m->out.bytes), 1, NULL))
MISUSE(mempool_writev, offset, 0, mempool_writev(m->lease, odd_segment(m, m->content), 1, NULL))
MISUSE(mempool_submit, offset_to_read, 0, misuse_op(m, op_of_bytes(m, MEMPOOL_OP_READ)))
MISUSE(mempool_submit, offset_to_write, 0, misuse_op(m, op_of_bytes(m, MEMPOOL_OP_WRITE)))
MISUSE(mempool_buf_register, address, 0,
       misuse_undo(m, mempool_buf_register(m->pool, odd_memory + m->offset_bytes, 9, &m->out.buf)))
MISUSE(mempool_buf_alloc, length, 0,
       misuse_undo(m, mempool_buf_alloc(m->pool, m->offset_bytes, 0, &m->out.buf)))
MISUSE(mempool_cache_forget, address, 0,
       mempool_cache_forget(m->pool, odd_memory + m->offset_bytes, 9))
MISUSE(mempool_acquire, length, 0,
       misuse_undo(m, mempool_acquire(m->pool, m->offset_bytes, &m->acquire_opts, &m->out.lease)))
MISUSE(mempool_acquire_many, length, 0,
       misuse_undo(m, mempool_acquire_many(m->pool, m->offset_bytes, &m->acquire_opts, 2,
					   m->out.leases)))

MISUSE_NONE(length, "the lease would be shorter, and nothing is wrong with that", "mempool_modify")
MISUSE_NONE(nothing, "they take neither offset nor memory of the caller's that is used",
	    "mempool_connect mempool_close mempool_renew mempool_auto_renew mempool_release "
	    "mempool_release_many mempool_lease_info mempool_lease_token mempool_reattach "
	    "mempool_buf_free mempool_buf_bytes mempool_buf_length mempool_cache_limit "
	    "mempool_cache_stats mempool_queue_create mempool_queue_destroy mempool_queue_attach "
	    "mempool_queue_restore mempool_poll mempool_cancel mempool_queue_fd mempool_queue_arm "
	    "mempool_flush mempool_queue_info mempool_next_event mempool_event_fd "
	    "mempool_error_text mempool_last_error")

TEST(misuse_unaligned__table_is_complete)
{
	misuse_check_complete();
}

TEST(misuse_unaligned__each_function)
{
	MISUSE_SCENE(m, NULL);
	uint64_t value = 5, old = 0;

	for (m->offset_bytes = 1; m->offset_bytes < 8; m->offset_bytes++) {
		(void)misuse_run(m, "words");
		if (test_has_failed())
			printf("# by %" PRIu64 " bytes\n", m->offset_bytes);
		CHECK(!test_has_failed());
	}
	CHECK_INT(harness_number(&m->h, "counters.lanes_lost"), 0);
	if ((m->rights & MEMPOOL_ATOMIC) != 0) {
		CHECK_INT(mempool_write(m->lease, AT, &value, sizeof(value)), 0);
		CHECK_INT(mempool_fetch_add(m->lease, AT, 1, &old), 0);
		CHECK_INT(old, 5);
		CHECK_INT(mempool_compare_swap(m->lease, AT, 6, 7, &old), 0);
		CHECK_INT(old, 6);
		CHECK_INT(mempool_read(m->lease, AT, &value, sizeof(value)), 0);
		CHECK_INT(value, 7);
		CHECK_INT(mempool_write(m->lease, AT, m->content + AT, sizeof(value)), 0);
	}
	misuse_end(m);
}

/* Soft-RoCE's library refuses to post it; other devices refuse it at the far end. */
static void refuse_raw(struct misuse *m, enum ibv_wr_opcode opcode, uint64_t by_bytes)
{
	struct message_descriptor at = proof_descriptor(m->lease);
	enum ibv_wc_status status = IBV_WC_SUCCESS;
	struct lane *lane = pool_lane(m->pool);
	uint8_t *local = lane_slot(lane, 0);
	int r;

	memset(local, 0x77, 8);
	r = lane_raw(lane, opcode, local, 8, at.remote_addr + AT + by_bytes, at.rkey, 10000,
		     &status);
	CHECK(r == MEMPOOL_E_SYSTEM || (r == 0 && status == IBV_WC_REM_INV_REQ_ERR));
	for (int i = 0; i < 8; i++)
		CHECK_INT(local[i], 0x77);
	misuse_check_works(m);
	misuse_check_neighbours(m);
	CHECK(!test_has_failed());
}

TEST(misuse_unaligned__device_refuses)
{
	MISUSE_SCENE(m, "\"lane_wait_min\": \"0\"");

	if ((m->rights & MEMPOOL_ATOMIC) == 0)
		SKIP("the device does not keep atomics inside their window");
	for (uint64_t by_bytes = 1; by_bytes < 8; by_bytes++) {
		refuse_raw(m, IBV_WR_ATOMIC_FETCH_AND_ADD, by_bytes);
		CHECK(!test_has_failed());
		refuse_raw(m, IBV_WR_ATOMIC_CMP_AND_SWP, by_bytes);
		CHECK(!test_has_failed());
	}
	misuse_end(m);
}
