/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Memory that is not registered, not any more, not in this session, or not all of it: an operation
 * of a queue is refused; a call that takes any memory copies. (Buffers that overlap, and more that
 * cannot be registered: itest_buffer; buffers in use: misuse_state.)
 *
 * Behind the client's checks: work requests with a local key that was given back.
 */
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

#include "client/lane.h"
#include "client/memory.h"
#include "client/pool.h"
#include "common/clock.h"
#include "tests/integration/proof.h"
#include "tests/misuse/misuse.h"

static uint8_t plain[2 * MISUSE_BYTES]; /* the first half is registered as buf_2 */
static uint8_t *constant;		/* a page that can only be read */

static struct mempool_op op_at(struct misuse *m, uint32_t kind, void *bytes, uint64_t len_bytes)
{
	struct mempool_op op = misuse_op_of(m, m->lease, kind);

	op.bytes = bytes;
	op.len_bytes = len_bytes;
	return op;
}

static struct mempool_op op_in(struct misuse *m, uint32_t kind, mempool_buf *buf, void *bytes)
{
	struct mempool_op op = op_at(m, kind, bytes, MISUSE_BYTES);

	op.buf = buf;
	return op;
}

static uint32_t inline_max(struct misuse *m)
{
	struct mempool_queue_info info = {.size = sizeof(info)};

	return mempool_queue_info(m->queue, &info) == 0 ? info.inline_max_bytes : 0;
}

/* A write of what is there, without a buffer. */
static struct mempool_op op_inline(struct misuse *m, uint32_t len_bytes)
{
	struct mempool_op op = op_at(m, MEMPOOL_OP_WRITE, m->content, len_bytes);

	op.buf = NULL;
	return op;
}

#define MISUSE_GROUP "memory"
MISUSE(mempool_submit, not_registered_to_read, MEMPOOL_E_INVALID,
       misuse_op(m, op_in(m, MEMPOOL_OP_READ, NULL, m->out.bytes)))
MISUSE(mempool_submit, not_registered_to_write, MEMPOOL_E_INVALID,
       misuse_op(m, op_in(m, MEMPOOL_OP_WRITE, NULL, m->out.bytes)))
MISUSE(mempool_submit, memory_that_is_not_in_the_buffer, MEMPOOL_E_INVALID,
       misuse_op(m, op_in(m, MEMPOOL_OP_READ, m->buf, m->out.bytes)))
MISUSE(mempool_submit, memory_of_another_buffer, MEMPOOL_E_INVALID,
       misuse_op(m, op_in(m, MEMPOOL_OP_READ, m->buf, plain)))
MISUSE(mempool_submit, buffer_of_other_memory, MEMPOOL_E_INVALID,
       misuse_op(m, op_in(m, MEMPOOL_OP_READ, m->buf_2, m->bytes)))
MISUSE(mempool_submit, one_byte_beyond_the_buffer, MEMPOOL_E_INVALID,
       misuse_op(m, op_at(m, MEMPOOL_OP_READ, m->bytes + 1, MISUSE_BYTES)))
MISUSE(mempool_submit, one_byte_before_the_buffer, MEMPOOL_E_INVALID,
       misuse_op(m, op_at(m, MEMPOOL_OP_READ, m->bytes - 1, 1)))
MISUSE(mempool_submit, the_byte_behind_the_buffer, MEMPOOL_E_INVALID,
       misuse_op(m, op_at(m, MEMPOOL_OP_READ, m->bytes + MISUSE_BYTES, 1)))
MISUSE(mempool_submit, half_of_it_registered, MEMPOOL_E_INVALID,
       misuse_op(m, op_in(m, MEMPOOL_OP_READ, m->buf_2, plain + 1)))
MISUSE(mempool_submit, write_that_is_too_long_without_a_buffer, MEMPOOL_E_INVALID,
       misuse_op(m, op_inline(m, inline_max(m) + 1)))
MISUSE(mempool_submit, write_that_is_as_long_as_it_may_be, 0,
       misuse_op(m, op_inline(m, inline_max(m))))
MISUSE(mempool_submit, the_last_byte_of_the_buffer, 0,
       misuse_op(m, op_at(m, MEMPOOL_OP_READ, m->bytes + MISUSE_BYTES - 1, 1)))
MISUSE(mempool_read, memory_that_is_not_registered, 0,
       mempool_read(m->lease, 0, m->out.bytes, MISUSE_BYTES))
MISUSE(mempool_read, memory_of_which_half_is_registered, 0,
       mempool_read(m->lease, 0, plain + MISUSE_BYTES / 2, MISUSE_BYTES))
MISUSE(mempool_write, memory_that_can_only_be_read, 0, mempool_write(m->subject, 0, constant, 8))
MISUSE(mempool_write, memory_of_which_half_is_registered, 0,
       mempool_write(m->subject, 0, plain + MISUSE_BYTES / 2, MISUSE_BYTES))
MISUSE(mempool_readv, memory_that_is_not_registered, 0,
       mempool_readv(m->lease,
		     &(struct mempool_segment){.buf = m->out.bytes, .len_bytes = MISUSE_BYTES}, 1,
		     NULL))
MISUSE(mempool_writev, memory_that_can_only_be_read, 0,
       mempool_writev(m->subject, &(struct mempool_segment){.buf = constant, .len_bytes = 8}, 1,
		      NULL))
MISUSE(mempool_buf_register, memory_that_can_only_be_read, MEMPOOL_E_SYSTEM,
       mempool_buf_register(m->pool, constant, MISUSE_BYTES, &m->out.buf))
MISUSE(mempool_buf_register, memory_that_cannot_be_used, MEMPOOL_E_SYSTEM,
       mempool_buf_register(m->pool, constant + MISUSE_BYTES, MISUSE_BYTES, &m->out.buf))
MISUSE(mempool_buf_register, memory_that_can_be_used_in_part, MEMPOOL_E_SYSTEM,
       mempool_buf_register(m->pool, constant + MISUSE_BYTES - 8, 16, &m->out.buf))
MISUSE(mempool_buf_register, part_of_a_buffer, MEMPOOL_E_STATE,
       mempool_buf_register(m->pool, plain + MISUSE_BYTES - 1, 2, &m->out.buf))
MISUSE(mempool_buf_register, what_is_behind_a_buffer, 0,
       misuse_undo(m,
		   mempool_buf_register(m->pool, plain + MISUSE_BYTES, MISUSE_BYTES, &m->out.buf)))
MISUSE(mempool_cache_forget, memory_that_it_does_not_have, 0,
       mempool_cache_forget(m->pool, m->out.bytes, MISUSE_BYTES))

MISUSE_NONE(handles, "buffers that were given back are in misuse_freed, others' in misuse_null",
	    "mempool_buf_free mempool_buf_bytes mempool_buf_length")
MISUSE_NONE(words, "they take no memory but the word for the result, which is copied",
	    "mempool_fetch_add mempool_compare_swap")
MISUSE_NONE(none, "they take no memory that is transferred",
	    "mempool_connect mempool_close mempool_acquire mempool_acquire_many mempool_renew "
	    "mempool_auto_renew mempool_modify mempool_release mempool_release_many "
	    "mempool_lease_info mempool_lease_token mempool_reattach mempool_buf_alloc "
	    "mempool_cache_limit mempool_cache_stats mempool_queue_create mempool_queue_destroy "
	    "mempool_queue_attach mempool_queue_restore mempool_poll mempool_cancel "
	    "mempool_queue_fd mempool_queue_arm mempool_flush mempool_queue_info "
	    "mempool_next_event mempool_event_fd mempool_error_text mempool_last_error")

TEST(misuse_buffer__table_is_complete)
{
	misuse_check_complete();
}

/* Two pages, of which the second can be neither read nor written. */
static void map_constant(void)
{
	constant = mmap(NULL, 2 * MISUSE_BYTES, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	CHECK(constant != MAP_FAILED);
	CHECK_INT(mprotect(constant + MISUSE_BYTES, MISUSE_BYTES, PROT_NONE), 0);
}

TEST(misuse_buffer__each_function)
{
	MISUSE_SCENE(m, NULL);

	map_constant();
	CHECK(!test_has_failed());
	m->subject = misuse_acquire(m->pool, MEMPOOL_READ | MEMPOOL_WRITE, MISUSE_TTL_MS);
	CHECK(m->subject != NULL);
	CHECK_INT(mempool_buf_register(m->pool, plain, MISUSE_BYTES, &m->buf_2), 0);
	printf("# %u calls had to fail\n", misuse_run(m, "memory"));
	CHECK(!test_has_failed());
	CHECK_INT(harness_number(&m->h, "counters.lanes_lost"), 0);
	misuse_end(m);
	(void)munmap(constant, 2 * MISUSE_BYTES);
}

/* What went through the library's own memory is what is there. */
TEST(misuse_buffer__copies_what_is_registered_in_part)
{
	MISUSE_SCENE(m, NULL);

	CHECK_INT(mempool_buf_register(m->pool, plain, MISUSE_BYTES, &m->buf_2), 0);
	memset(plain, 0, sizeof(plain));
	CHECK_INT(mempool_read(m->lease, 0, plain + MISUSE_BYTES / 2, MISUSE_BYTES), 0);
	CHECK_MEM(plain + MISUSE_BYTES / 2, m->content, MISUSE_BYTES);
	/* And so it does when the buffer is there no more. */
	CHECK_INT(mempool_buf_free(m->buf_2), 0);
	memset(plain, 0, sizeof(plain));
	CHECK_INT(mempool_read(m->lease, 0, plain, MISUSE_BYTES), 0);
	CHECK_MEM(plain, m->content, MISUSE_BYTES);
	misuse_end(m);
}

/* Return: how a work request from or to our memory completes, with any local key. */
static enum ibv_wc_status access_with(struct misuse *m, enum ibv_wr_opcode opcode, void *local,
				      uint32_t lkey)
{
	struct message_descriptor at = proof_descriptor(m->lease);
	uint64_t deadline_ns = clock_add_ms(clock_now_ns(), 10000);
	enum ibv_wc_status status = IBV_WC_GENERAL_ERR;
	struct lane *lane = pool_lane(m->pool);
	struct lane_work work = {
		.opcode = opcode,
		.local = local,
		.lkey = lkey,
		.remote = {.remote_addr = at.remote_addr, .rkey = at.rkey, .len_bytes = 2048},
	};

	if (lane_enter(lane, deadline_ns) < 0)
		return IBV_WC_GENERAL_ERR;
	if (lane_post(lane, &work) < 0 || lane_collect(lane, deadline_ns, &status) != 1)
		status = IBV_WC_GENERAL_ERR;
	if (status != IBV_WC_SUCCESS)
		lane_abort(lane);
	lane_leave(lane);
	return status;
}

static void refuse_freed(struct misuse *m, enum ibv_wr_opcode opcode)
{
	enum ibv_wc_status status;
	uint32_t lkey;

	CHECK_INT(mempool_buf_register(m->pool, plain, MISUSE_BYTES, &m->buf_2), 0);
	memcpy(plain, m->content, MISUSE_BYTES);
	lkey = m->buf_2->mr->lkey;
	CHECK_INT(access_with(m, opcode, plain, lkey), IBV_WC_SUCCESS);
	CHECK_INT(mempool_buf_free(m->buf_2), 0);
	memset(plain, 0x77, MISUSE_BYTES);
	status = access_with(m, opcode, plain, lkey);
	printf("# opcode %d with a key that was given back: %s\n", (int)opcode,
	       ibv_wc_status_str(status));
	/* Soft-RoCE may come to flush it before it can say what is wrong. */
	CHECK(status == IBV_WC_LOC_PROT_ERR || status == IBV_WC_LOC_QP_OP_ERR ||
	      status == IBV_WC_WR_FLUSH_ERR);
	for (uint32_t i = 0; i < MISUSE_BYTES; i++)
		CHECK_INT(plain[i], 0x77);
	/* Nothing has come to the lease, and the lane is made anew. */
	misuse_check_works(m);
}

TEST(misuse_buffer__device_refuses_a_key_that_was_given_back)
{
	MISUSE_SCENE(m, "\"lane_wait_min\": \"0\"");

	refuse_freed(m, IBV_WR_RDMA_WRITE);
	CHECK(!test_has_failed());
	refuse_freed(m, IBV_WR_RDMA_READ);
	CHECK(!test_has_failed());
	misuse_end(m);
}
