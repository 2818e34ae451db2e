/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Handles that were given back, as far as they are recognised: those of buffers, until another
 * buffer takes them, and a session that is closed once more. (Two threads that free a buffer at
 * once: itest_buffer; a lease that was released while an event about it waits: itest_events.)
 */
#include <stdio.h>
#include <string.h>

#include "tests/misuse/misuse.h"

#define MISUSE_GROUP "freed"

static struct mempool_op op_of_freed(struct misuse *m, uint32_t kind)
{
	struct mempool_op op = misuse_op_of(m, m->lease, kind);

	op.buf = m->buf_2;
	return op;
}

MISUSE(mempool_buf_free, once_more, MEMPOOL_E_STATE, mempool_buf_free(m->buf_2))
MISUSE(mempool_buf_bytes, of_freed, 1, mempool_buf_bytes(m->buf_2) == NULL)
MISUSE(mempool_buf_length, of_freed, 1, mempool_buf_length(m->buf_2) == 0)
MISUSE(mempool_submit, read_to_freed, MEMPOOL_E_STATE,
       misuse_op(m, op_of_freed(m, MEMPOOL_OP_READ)))
MISUSE(mempool_submit, write_from_freed, MEMPOOL_E_STATE,
       misuse_op(m, op_of_freed(m, MEMPOOL_OP_WRITE)))
MISUSE(mempool_submit, word_to_freed,
       (m->rights & MEMPOOL_ATOMIC) != 0 ? MEMPOOL_E_STATE : MEMPOOL_E_ACCESS,
       misuse_op(m, op_of_freed(m, MEMPOOL_OP_FETCH_ADD)))
MISUSE(mempool_close, once_more, 0, (mempool_close(m->pool_2), 0))

MISUSE_NONE(sessions,
	    "a session's handle is freed memory after mempool_close(), as the header says; that it "
	    "is closed once more is noticed by its address alone",
	    "mempool_acquire mempool_acquire_many mempool_reattach mempool_buf_alloc "
	    "mempool_buf_register mempool_cache_limit mempool_cache_forget mempool_cache_stats "
	    "mempool_queue_create mempool_next_event mempool_event_fd")
MISUSE_NONE(leases, "a lease's handle is freed memory after its release, as the header says",
	    "mempool_read mempool_write mempool_readv mempool_writev mempool_fetch_add "
	    "mempool_compare_swap mempool_renew mempool_auto_renew mempool_modify mempool_release "
	    "mempool_release_many mempool_lease_info mempool_lease_token")
MISUSE_NONE(queues, "a queue's handle is freed memory after its end, as the header says",
	    "mempool_queue_destroy mempool_queue_attach mempool_queue_restore mempool_poll "
	    "mempool_cancel mempool_queue_fd mempool_queue_arm mempool_flush mempool_queue_info")
MISUSE_NONE(nothing, "they take no handle", "mempool_connect mempool_error_text mempool_last_error")

TEST(misuse_freed__table_is_complete)
{
	misuse_check_complete();
}

static void run_freed(struct misuse *m)
{
	CHECK(misuse_run(m, "freed") >= 4);
	CHECK(!test_has_failed());
	mempool_close(m->pool_2);
	CHECK_STR(mempool_last_error(), "the session has been closed already");
}

TEST(misuse_freed__each_function)
{
	MISUSE_SCENE(m, NULL);
	static uint8_t own[MISUSE_BYTES];
	mempool *closed;

	/* Of the library's memory, whose address is not there any more, and of the program's. */
	CHECK_INT(mempool_buf_alloc(m->pool, MISUSE_BYTES, 0, &m->buf_2), 0);
	CHECK_INT(mempool_buf_free(m->buf_2), 0);
	CHECK_INT(harness_connect("alpha", &closed), 0);
	mempool_close(closed);
	m->pool_2 = closed;
	run_freed(m);
	CHECK(!test_has_failed());
	CHECK_INT(mempool_buf_register(m->pool, own, sizeof(own), &m->buf_2), 0);
	CHECK_INT(mempool_buf_free(m->buf_2), 0);
	run_freed(m);
	CHECK(!test_has_failed());
	m->pool_2 = NULL;
	/* The memory is the program's again: it may be read into, and be another buffer. */
	CHECK_INT(mempool_read(m->lease, 0, own, sizeof(own)), 0);
	CHECK_MEM(own, m->content, sizeof(own));
	CHECK_INT(mempool_buf_register(m->pool, own, sizeof(own), &m->buf_2), 0);
	CHECK_INT(mempool_buf_free(m->buf_2), 0);
	CHECK_INT(harness_number(&m->h, "counters.lanes_lost"), 0);
	misuse_end(m);
}
