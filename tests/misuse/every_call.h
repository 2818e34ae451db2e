/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef TESTS_MISUSE_EVERY_CALL_H
#define TESTS_MISUSE_EVERY_CALL_H

#include <string.h>

#include "tests/misuse/misuse.h"

/*
 * Each function once, called as it should be, for programs that do so in a wrong state. The
 * lease is m->subject, and attached to the queue. Each must fail with a code of the state, or return
 * 0; what it has made then is ended again.
 */
#define EVERY_CALL(X)                                                                             \
	X(mempool_connect,                                                                        \
	  misuse_undo(m, mempool_connect(harness_endpoint(), &m->connect_opts, &m->out.pool)))    \
	X(mempool_acquire,                                                                        \
	  misuse_undo(m, mempool_acquire(m->pool, 1, &m->acquire_opts, &m->out.lease)))           \
	X(mempool_acquire_many,                                                                   \
	  misuse_undo(m, mempool_acquire_many(m->pool, 1, &m->acquire_opts, 2, m->out.leases)))   \
	X(mempool_reattach, mempool_reattach(m->pool, &m->token, &m->out.lease))                  \
	X(mempool_read, mempool_read(m->subject, 0, m->out.bytes, 8))                             \
	X(mempool_write, mempool_write(m->subject, 0, m->content, 8))                             \
	X(mempool_readv, mempool_readv(m->subject, every_call_segment(m->out.bytes), 1, NULL))    \
	X(mempool_writev, mempool_writev(m->subject, every_call_segment(m->content), 1, NULL))    \
	X(mempool_fetch_add, mempool_fetch_add(m->subject, 0, 0, &m->out.old))                    \
	X(mempool_compare_swap, mempool_compare_swap(m->subject, 0, 0, 0, &m->out.old))           \
	X(mempool_renew, mempool_renew(m->subject, MISUSE_TTL_MS))                                \
	X(mempool_auto_renew, mempool_auto_renew(m->subject, 0))                                  \
	X(mempool_modify, mempool_modify(m->subject, MISUSE_BYTES, m->rights))                    \
	X(mempool_lease_info, mempool_lease_info(m->subject, &m->out.info))                       \
	X(mempool_lease_token, mempool_lease_token(m->subject, &m->out.token))                    \
	X(mempool_buf_alloc, misuse_undo(m, mempool_buf_alloc(m->pool, 1, 0, &m->out.buf)))       \
	X(mempool_buf_register,                                                                   \
	  misuse_undo(m, mempool_buf_register(m->pool, every_call_memory, 8, &m->out.buf)))       \
	X(mempool_buf_bytes, mempool_buf_bytes(m->buf) != NULL ? 0 : MEMPOOL_E_STATE)             \
	X(mempool_buf_length, mempool_buf_length(m->buf) == MISUSE_BYTES ? 0 : MEMPOOL_E_STATE)   \
	X(mempool_cache_limit,                                                                    \
	  mempool_cache_limit(m->pool, &(struct mempool_cache_opts){                              \
					       .size = sizeof(struct mempool_cache_opts)}))       \
	X(mempool_cache_forget, mempool_cache_forget(m->pool, m->content, 8))                     \
	X(mempool_cache_stats, mempool_cache_stats(m->pool, &m->out.stats))                       \
	X(mempool_queue_create,                                                                   \
	  misuse_undo(m, mempool_queue_create(m->pool,                                            \
					      &(struct mempool_queue_opts){                       \
						      .size = sizeof(struct mempool_queue_opts)}, \
					      &m->out.queue)))                                    \
	X(mempool_queue_attach, mempool_queue_attach(m->queue, m->subject))                       \
	X(mempool_queue_restore, mempool_queue_restore(m->queue))                                 \
	X(mempool_submit, misuse_op(m, misuse_op_of(m, m->subject, MEMPOOL_OP_READ)))             \
	X(mempool_poll, mempool_poll(m->queue, m->out.completions, 1, &m->out.count))             \
	X(mempool_cancel, mempool_cancel(m->queue, 0, &m->out.count))                             \
	X(mempool_flush, mempool_flush(m->queue, 0))                                              \
	X(mempool_queue_fd, every_call_fd(mempool_queue_fd(m->queue)))                            \
	X(mempool_queue_arm, mempool_queue_arm(m->queue))                                         \
	X(mempool_queue_info, mempool_queue_info(m->queue, &m->out.queue_info))                   \
	X(mempool_next_event, mempool_next_event(m->pool, &m->out.event, 0))                      \
	X(mempool_event_fd, every_call_fd(mempool_event_fd(m->pool)))                             \
	X(mempool_error_text, mempool_error_text(MEMPOOL_E_STATE) != NULL ? 0 : MEMPOOL_E_STATE)  \
	X(mempool_last_error, mempool_last_error() != NULL ? 0 : MEMPOOL_E_STATE)

/* The functions that end something, where they must do nothing. */
#define EVERY_ENDING_CALL(X)                                                      \
	X(mempool_release, mempool_release(m->subject))                           \
	X(mempool_release_many, mempool_release_many(&m->subject, 1))             \
	X(mempool_buf_free, mempool_buf_free(m->buf))                             \
	X(mempool_queue_destroy,                                                  \
	  (mempool_queue_destroy(m->queue), misuse_told() ? MEMPOOL_E_STATE : 0)) \
	X(mempool_close, (mempool_close(m->pool), misuse_told() ? MEMPOOL_E_STATE : 0))

static uint8_t every_call_memory[8];

/* What differs from the code that all others return. */
struct every_call_code {
	const char *function; /* NULL: the end */
	int code;
};

static inline int every_call_code(const struct every_call_code *codes, const char *function,
				  int otherwise)
{
	for (; codes->function != NULL; codes++) {
		if (strcmp(codes->function, function) == 0)
			return codes->code;
	}
	return otherwise;
}

static inline const struct mempool_segment *every_call_segment(uint8_t *bytes)
{
	static struct mempool_segment segment;

	segment = (struct mempool_segment){.buf = bytes, .len_bytes = 8};
	return &segment;
}

static inline int every_call_fd(int fd)
{
	return fd < 0 ? fd : 0;
}

#endif
