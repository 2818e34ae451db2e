/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * NULL for each pointer that functions take. (Without a session: abi_public.)
 */
#include <stdio.h>

#include "tests/misuse/misuse.h"

#define MISUSE_GROUP "null"

static const struct mempool_segment *segment_of(struct misuse *m)
{
	static struct mempool_segment segment;

	segment = (struct mempool_segment){.buf = m->out.bytes, .len_bytes = 8};
	return &segment;
}

/* Two, of which the second has no memory. */
static const struct mempool_segment *segments_without_memory(struct misuse *m)
{
	static struct mempool_segment segments[2];

	segments[0] = *segment_of(m);
	segments[1] = (struct mempool_segment){.offset_bytes = 8, .len_bytes = 8};
	return segments;
}

static mempool_lease **lease_and_null(struct misuse *m)
{
	static mempool_lease *leases[2];

	leases[0] = m->lease;
	return leases;
}

static struct mempool_op op_without(struct misuse *m, uint32_t kind, bool lease, bool bytes,
				    bool buf)
{
	struct mempool_op op = misuse_op_of(m, lease ? m->lease : NULL, kind);

	if (!bytes)
		op.bytes = NULL;
	if (!buf)
		op.buf = NULL;
	return op;
}

MISUSE(mempool_connect, no_address, MEMPOOL_E_INVALID,
       mempool_connect(NULL, &m->connect_opts, &m->out.pool))
MISUSE(mempool_connect, no_options, MEMPOOL_E_INVALID,
       mempool_connect(harness_endpoint(), NULL, &m->out.pool))
MISUSE(mempool_connect, no_output, MEMPOOL_E_INVALID,
       mempool_connect(harness_endpoint(), &m->connect_opts, NULL))
MISUSE(mempool_connect, no_key, MEMPOOL_E_INVALID,
       mempool_connect(harness_endpoint(),
		       &(struct mempool_connect_opts){.size = sizeof(struct mempool_connect_opts),
						      .daemon_key = m->connect_opts.daemon_key},
		       &m->out.pool))
MISUSE(mempool_connect, no_key_of_the_daemon, MEMPOOL_E_INVALID,
       mempool_connect(harness_endpoint(),
		       &(struct mempool_connect_opts){.size = sizeof(struct mempool_connect_opts),
						      .key = m->connect_opts.key},
		       &m->out.pool))
MISUSE(mempool_close, no_session, 0, (mempool_close(NULL), 0))
MISUSE(mempool_acquire, no_session, MEMPOOL_E_INVALID,
       mempool_acquire(NULL, 1, &m->acquire_opts, &m->out.lease))
MISUSE(mempool_acquire, no_options, MEMPOOL_E_INVALID,
       mempool_acquire(m->pool, 1, NULL, &m->out.lease))
MISUSE(mempool_acquire, no_output, MEMPOOL_E_INVALID,
       mempool_acquire(m->pool, 1, &m->acquire_opts, NULL))
MISUSE(mempool_acquire_many, no_session, MEMPOOL_E_INVALID,
       mempool_acquire_many(NULL, 1, &m->acquire_opts, 2, m->out.leases))
MISUSE(mempool_acquire_many, no_options, MEMPOOL_E_INVALID,
       mempool_acquire_many(m->pool, 1, NULL, 2, m->out.leases))
MISUSE(mempool_acquire_many, no_output, MEMPOOL_E_INVALID,
       mempool_acquire_many(m->pool, 1, &m->acquire_opts, 2, NULL))
MISUSE(mempool_read, no_lease, MEMPOOL_E_INVALID, mempool_read(NULL, 0, m->out.bytes, 8))
MISUSE(mempool_read, no_lease_and_no_bytes, MEMPOOL_E_INVALID,
       mempool_read(NULL, 0, m->out.bytes, 0))
MISUSE(mempool_read, no_memory, MEMPOOL_E_INVALID, mempool_read(m->lease, 0, NULL, 8))
MISUSE(mempool_read, no_memory_for_no_bytes, 0, mempool_read(m->lease, 0, NULL, 0))
MISUSE(mempool_write, no_lease, MEMPOOL_E_INVALID, mempool_write(NULL, 0, m->content, 8))
MISUSE(mempool_write, no_memory, MEMPOOL_E_INVALID, mempool_write(m->lease, 0, NULL, 8))
MISUSE(mempool_write, no_memory_for_no_bytes, 0, mempool_write(m->lease, 0, NULL, 0))
MISUSE(mempool_renew, no_lease, MEMPOOL_E_INVALID, mempool_renew(NULL, MISUSE_TTL_MS))
MISUSE(mempool_auto_renew, no_lease, MEMPOOL_E_INVALID, mempool_auto_renew(NULL, MISUSE_TTL_MS))
MISUSE(mempool_modify, no_lease, MEMPOOL_E_INVALID, mempool_modify(NULL, 1, MEMPOOL_READ))
MISUSE(mempool_release, no_lease, 0, mempool_release(NULL))
MISUSE(mempool_release_many, no_list, MEMPOOL_E_INVALID, mempool_release_many(NULL, 1))
MISUSE(mempool_release_many, no_lease_in_it, MEMPOOL_E_INVALID,
       mempool_release_many(lease_and_null(m), 2))
MISUSE(mempool_lease_info, no_lease, MEMPOOL_E_INVALID, mempool_lease_info(NULL, &m->out.info))
MISUSE(mempool_lease_info, no_output, MEMPOOL_E_INVALID, mempool_lease_info(m->lease, NULL))
MISUSE(mempool_lease_token, no_lease, MEMPOOL_E_INVALID, mempool_lease_token(NULL, &m->out.token))
MISUSE(mempool_lease_token, no_output, MEMPOOL_E_INVALID, mempool_lease_token(m->lease, NULL))
MISUSE(mempool_reattach, no_session, MEMPOOL_E_INVALID,
       mempool_reattach(NULL, &(struct mempool_lease_token){.version = MEMPOOL_LEASE_TOKEN_VERSION},
			&m->out.lease))
MISUSE(mempool_reattach, no_token, MEMPOOL_E_INVALID,
       mempool_reattach(m->pool, NULL, &m->out.lease))
MISUSE(mempool_reattach, no_output, MEMPOOL_E_INVALID,
       mempool_reattach(m->pool,
			&(struct mempool_lease_token){.version = MEMPOOL_LEASE_TOKEN_VERSION},
			NULL))
MISUSE(mempool_readv, no_lease, MEMPOOL_E_INVALID,
       mempool_readv(NULL, segment_of(m), 1, &m->out.count))
MISUSE(mempool_readv, no_segments, MEMPOOL_E_INVALID,
       mempool_readv(m->lease, NULL, 1, &m->out.count))
MISUSE(mempool_readv, no_memory, MEMPOOL_E_INVALID,
       mempool_readv(m->lease, segments_without_memory(m), 2, NULL))
MISUSE(mempool_readv, no_count, 0, mempool_readv(m->lease, segment_of(m), 1, NULL))
MISUSE(mempool_writev, no_lease, MEMPOOL_E_INVALID,
       mempool_writev(NULL, segment_of(m), 1, &m->out.count))
MISUSE(mempool_writev, no_segments, MEMPOOL_E_INVALID,
       mempool_writev(m->lease, NULL, 1, &m->out.count))
MISUSE(mempool_writev, no_memory, MEMPOOL_E_INVALID,
       mempool_writev(m->lease, segments_without_memory(m), 2, NULL))
MISUSE(mempool_fetch_add, no_lease, MEMPOOL_E_INVALID, mempool_fetch_add(NULL, 0, 1, &m->out.old))
MISUSE(mempool_fetch_add, no_output, MEMPOOL_E_INVALID, mempool_fetch_add(m->lease, 0, 1, NULL))
MISUSE(mempool_compare_swap, no_lease, MEMPOOL_E_INVALID,
       mempool_compare_swap(NULL, 0, 0, 1, &m->out.old))
MISUSE(mempool_compare_swap, no_output, MEMPOOL_E_INVALID,
       mempool_compare_swap(m->lease, 0, 0, 1, NULL))
MISUSE(mempool_buf_alloc, no_session, MEMPOOL_E_INVALID, mempool_buf_alloc(NULL, 1, 0, &m->out.buf))
MISUSE(mempool_buf_alloc, no_output, MEMPOOL_E_INVALID, mempool_buf_alloc(m->pool, 1, 0, NULL))
MISUSE(mempool_buf_register, no_session, MEMPOOL_E_INVALID,
       mempool_buf_register(NULL, m->out.bytes, 8, &m->out.buf))
MISUSE(mempool_buf_register, no_memory, MEMPOOL_E_INVALID,
       mempool_buf_register(m->pool, NULL, 8, &m->out.buf))
MISUSE(mempool_buf_register, no_output, MEMPOOL_E_INVALID,
       mempool_buf_register(m->pool, m->out.bytes, 8, NULL))
MISUSE(mempool_buf_free, no_buffer, 0, mempool_buf_free(NULL))
MISUSE(mempool_buf_bytes, no_buffer, 1, mempool_buf_bytes(NULL) == NULL)
MISUSE(mempool_buf_length, no_buffer, 1, mempool_buf_length(NULL) == 0)
MISUSE(mempool_cache_limit, no_session, MEMPOOL_E_INVALID,
       mempool_cache_limit(NULL,
			   &(struct mempool_cache_opts){.size = sizeof(struct mempool_cache_opts)}))
MISUSE(mempool_cache_limit, no_options, MEMPOOL_E_INVALID, mempool_cache_limit(m->pool, NULL))
MISUSE(mempool_cache_forget, no_session, MEMPOOL_E_INVALID,
       mempool_cache_forget(NULL, m->out.bytes, 8))
MISUSE(mempool_cache_forget, no_memory, MEMPOOL_E_INVALID, mempool_cache_forget(m->pool, NULL, 8))
MISUSE(mempool_cache_stats, no_session, MEMPOOL_E_INVALID, mempool_cache_stats(NULL, &m->out.stats))
MISUSE(mempool_cache_stats, no_output, MEMPOOL_E_INVALID, mempool_cache_stats(m->pool, NULL))
MISUSE(mempool_queue_create, no_session, MEMPOOL_E_INVALID,
       mempool_queue_create(NULL,
			    &(struct mempool_queue_opts){.size = sizeof(struct mempool_queue_opts)},
			    &m->out.queue))
MISUSE(mempool_queue_create, no_options, MEMPOOL_E_INVALID,
       mempool_queue_create(m->pool, NULL, &m->out.queue))
MISUSE(mempool_queue_create, no_output, MEMPOOL_E_INVALID,
       mempool_queue_create(m->pool,
			    &(struct mempool_queue_opts){.size = sizeof(struct mempool_queue_opts)},
			    NULL))
MISUSE(mempool_queue_destroy, no_queue, 0, (mempool_queue_destroy(NULL), 0))
MISUSE(mempool_queue_attach, no_queue, MEMPOOL_E_INVALID, mempool_queue_attach(NULL, m->lease))
MISUSE(mempool_queue_attach, no_lease, MEMPOOL_E_INVALID, mempool_queue_attach(m->queue, NULL))
MISUSE(mempool_queue_restore, no_queue, MEMPOOL_E_INVALID, mempool_queue_restore(NULL))
MISUSE(mempool_submit, no_queue, MEMPOOL_E_INVALID,
       mempool_submit(NULL, &(struct mempool_op){.cookie = 0}, 1, &m->out.count))
MISUSE(mempool_submit, no_operations, MEMPOOL_E_INVALID,
       mempool_submit(m->queue, NULL, 1, &m->out.count))
MISUSE(mempool_submit, no_count, MEMPOOL_E_INVALID,
       mempool_submit(m->queue, &(struct mempool_op){.cookie = 0}, 1, NULL))
MISUSE(mempool_submit, no_lease, MEMPOOL_E_INVALID,
       misuse_op(m, op_without(m, MEMPOOL_OP_READ, false, true, true)))
MISUSE(mempool_submit, no_memory, MEMPOOL_E_INVALID,
       misuse_op(m, op_without(m, MEMPOOL_OP_READ, true, false, true)))
MISUSE(mempool_submit, no_memory_to_write, MEMPOOL_E_INVALID,
       misuse_op(m, op_without(m, MEMPOOL_OP_WRITE, true, false, false)))
MISUSE(mempool_submit, no_buffer, MEMPOOL_E_INVALID,
       misuse_op(m, op_without(m, MEMPOOL_OP_READ, true, true, false)))
MISUSE(mempool_submit, no_buffer_for_a_word,
       (m->rights & MEMPOOL_ATOMIC) != 0 ? MEMPOOL_E_INVALID : MEMPOOL_E_ACCESS,
       misuse_op(m, op_without(m, MEMPOOL_OP_FETCH_ADD, true, true, false)))
MISUSE(mempool_submit, no_memory_for_a_word,
       (m->rights & MEMPOOL_ATOMIC) != 0 ? MEMPOOL_E_INVALID : MEMPOOL_E_ACCESS,
       misuse_op(m, op_without(m, MEMPOOL_OP_COMPARE_SWAP, true, false, true)))
MISUSE(mempool_poll, no_queue, MEMPOOL_E_INVALID,
       mempool_poll(NULL, m->out.completions, 2, &m->out.count))
MISUSE(mempool_poll, no_room, MEMPOOL_E_INVALID, mempool_poll(m->queue, NULL, 2, &m->out.count))
MISUSE(mempool_poll, no_count, MEMPOOL_E_INVALID,
       mempool_poll(m->queue, m->out.completions, 2, NULL))
MISUSE(mempool_cancel, no_queue, MEMPOOL_E_INVALID, mempool_cancel(NULL, 0, &m->out.count))
MISUSE(mempool_cancel, no_count, MEMPOOL_E_INVALID, mempool_cancel(m->queue, 0, NULL))
MISUSE(mempool_queue_fd, no_queue, MEMPOOL_E_INVALID, mempool_queue_fd(NULL))
MISUSE(mempool_queue_arm, no_queue, MEMPOOL_E_INVALID, mempool_queue_arm(NULL))
MISUSE(mempool_flush, no_queue, MEMPOOL_E_INVALID, mempool_flush(NULL, 1))
MISUSE(mempool_queue_info, no_queue, MEMPOOL_E_INVALID,
       mempool_queue_info(NULL, &m->out.queue_info))
MISUSE(mempool_queue_info, no_output, MEMPOOL_E_INVALID, mempool_queue_info(m->queue, NULL))
MISUSE(mempool_next_event, no_session, MEMPOOL_E_INVALID,
       mempool_next_event(NULL, &m->out.event, 0))
MISUSE(mempool_next_event, no_output, MEMPOOL_E_INVALID, mempool_next_event(m->pool, NULL, 0))
MISUSE(mempool_event_fd, no_session, MEMPOOL_E_INVALID, mempool_event_fd(NULL))
MISUSE_NONE(pointers, "they take no pointer", "mempool_error_text mempool_last_error")

TEST(misuse_null__table_is_complete)
{
	misuse_check_complete();
}

TEST(misuse_null__each_function)
{
	MISUSE_SCENE(m, NULL);

	printf("# %u calls had to fail\n", misuse_run(m, "null"));
	CHECK(!test_has_failed());
	CHECK_INT(harness_number(&m->h, "counters.lanes_lost"), 0);
	misuse_end(m);
}
