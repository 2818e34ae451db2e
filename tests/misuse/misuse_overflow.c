/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Ranges that go beyond the lease's end, or beyond the last address; counts, lengths and times that
 * are too large.
 *
 * Behind the client's checks: atomic operations just outside of the lease, and accesses with the key
 * of another lease of the session. (Reads and writes around a lease: rteam_neighbour; the word
 * behind the end: itest_atomic. Lengths and times of acquires are the daemon's to refuse, and
 * come to it as they are: also itest_limits.)
 */
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>

#include "client/lane.h"
#include "client/pool.h"
#include "tests/integration/proof.h"
#include "tests/misuse/misuse.h"

#define HALF (UINT64_C(1) << 63)

static const struct {
	uint64_t offset_bytes;
	uint64_t len_bytes;
} ranges[] = {
	{MISUSE_BYTES, 1},
	{MISUSE_BYTES - 1, 2},
	{MISUSE_BYTES + 1, 0},
	{0, MISUSE_BYTES + 1},
	{1, MISUSE_BYTES},
	{UINT64_MAX, 1},
	{UINT64_MAX, 2},
	{UINT64_MAX - 7, 8},
	{UINT64_MAX - 7, 16},
	{1, UINT64_MAX},
	{MISUSE_BYTES, UINT64_MAX},
	{MISUSE_BYTES, UINT64_MAX - MISUSE_BYTES + 1},
	{UINT64_MAX, UINT64_MAX},
	{HALF, HALF},
	{HALF, 1},
	{UINT64_MAX, 0},
};

static const uint64_t words[] = {MISUSE_BYTES, MISUSE_BYTES + 8, HALF, UINT64_MAX - 7,
				 UINT64_MAX - 15};

/* The first is good. */
static const struct mempool_segment *segments_of(struct misuse *m, uint8_t *bytes)
{
	static struct mempool_segment segments[2];

	segments[0] = (struct mempool_segment){.buf = bytes, .len_bytes = 8};
	segments[1] = (struct mempool_segment){m->offset_bytes, bytes, m->len_bytes};
	return segments;
}

static struct mempool_op op_of_range(struct misuse *m, uint32_t kind)
{
	struct mempool_op op = misuse_op_of(m, m->lease, kind);

	op.offset_bytes = m->offset_bytes;
	op.len_bytes = m->len_bytes;
	return op;
}

static const struct mempool_acquire_opts *acquire_opts(struct misuse *m, uint64_t ttl_ms,
						       uint32_t wait_ms)
{
	static struct mempool_acquire_opts opts;

	opts = m->acquire_opts;
	opts.ttl_ms = ttl_ms;
	opts.wait_ms = wait_ms;
	return &opts;
}

static const struct mempool_queue_opts *queue_opts(uint32_t depth, uint32_t capacity)
{
	static struct mempool_queue_opts opts;

	opts = (struct mempool_queue_opts){sizeof(opts), depth, capacity};
	return &opts;
}

/* On, and off again. */
static const struct mempool_cache_opts *cache_opts(uint64_t bytes_max, uint32_t entries_max)
{
	static struct mempool_cache_opts opts;

	opts = (struct mempool_cache_opts){
		.size = sizeof(opts), .bytes_max = bytes_max, .entries_max = entries_max};
	return &opts;
}

static void *address(uintptr_t value)
{
	return (void *)value;
}

#define MISUSE_GROUP "range"
MISUSE(mempool_read, range, MEMPOOL_E_RANGE,
       mempool_read(m->lease, m->offset_bytes, m->out.bytes, m->len_bytes))
MISUSE(mempool_write, range, MEMPOOL_E_RANGE,
       mempool_write(m->lease, m->offset_bytes, m->out.bytes, m->len_bytes))
MISUSE(mempool_readv, range, MEMPOOL_E_RANGE,
       mempool_readv(m->lease, segments_of(m, m->out.bytes), 2, NULL))
MISUSE(mempool_writev, range, MEMPOOL_E_RANGE,
       mempool_writev(m->lease, segments_of(m, m->out.bytes), 2, NULL))
MISUSE(mempool_submit, range_to_read, MEMPOOL_E_RANGE,
       misuse_op(m, op_of_range(m, MEMPOOL_OP_READ)))
MISUSE(mempool_submit, range_to_write, MEMPOOL_E_RANGE,
       misuse_op(m, op_of_range(m, MEMPOOL_OP_WRITE)))

#undef MISUSE_GROUP
#define MISUSE_GROUP "word"
MISUSE(mempool_fetch_add, range, MEMPOOL_E_RANGE,
       mempool_fetch_add(m->lease, m->offset_bytes, 1, &m->out.old))
MISUSE(mempool_compare_swap, range, MEMPOOL_E_RANGE,
       mempool_compare_swap(m->lease, m->offset_bytes, 0, 1, &m->out.old))
MISUSE(mempool_submit, word_to_add_to, MEMPOOL_E_RANGE,
       misuse_op(m, op_of_range(m, MEMPOOL_OP_FETCH_ADD)))
MISUSE(mempool_submit, word_to_swap, MEMPOOL_E_RANGE,
       misuse_op(m, op_of_range(m, MEMPOOL_OP_COMPARE_SWAP)))

#undef MISUSE_GROUP
#define MISUSE_GROUP "numbers"
MISUSE(mempool_connect, port, MEMPOOL_E_INVALID,
       mempool_connect("127.0.0.1:65536", &m->connect_opts, &m->out.pool))
MISUSE(mempool_connect, port_of_many_digits, MEMPOOL_E_INVALID,
       mempool_connect("127.0.0.1:18446744073709559087", &m->connect_opts, &m->out.pool))
MISUSE(mempool_acquire, length, MEMPOOL_E_LENGTH_POOL,
       mempool_acquire(m->pool, UINT64_MAX, &m->acquire_opts, &m->out.lease))
MISUSE(mempool_acquire, length_to_wait_for, MEMPOOL_E_LENGTH_POOL,
       mempool_acquire(m->pool, UINT64_MAX - 4095, acquire_opts(m, 1000, UINT32_MAX),
		       &m->out.lease))
MISUSE(mempool_acquire, time, MEMPOOL_E_TTL_MAX,
       mempool_acquire(m->pool, 1, acquire_opts(m, UINT64_MAX, 0), &m->out.lease))
MISUSE(mempool_acquire_many, count, MEMPOOL_E_INVALID,
       mempool_acquire_many(m->pool, 1, &m->acquire_opts, 65, m->out.leases))
MISUSE(mempool_acquire_many, count_of_all_bits, MEMPOOL_E_INVALID,
       mempool_acquire_many(m->pool, 1, &m->acquire_opts, SIZE_MAX, m->out.leases))
MISUSE(mempool_acquire_many, count_that_is_1_in_16_bits, MEMPOOL_E_INVALID,
       mempool_acquire_many(m->pool, 1, &m->acquire_opts, 65537, m->out.leases))
MISUSE(mempool_acquire_many, length_in_all, MEMPOOL_E_LENGTH_POOL,
       mempool_acquire_many(m->pool, HALF, &m->acquire_opts, 2, m->out.leases))
MISUSE(mempool_readv, count, MEMPOOL_E_INVALID,
       mempool_readv(m->lease, segments_of(m, m->out.bytes), 1025, &m->out.count))
MISUSE(mempool_readv, count_of_all_bits, MEMPOOL_E_INVALID,
       mempool_readv(m->lease, segments_of(m, m->out.bytes), SIZE_MAX, &m->out.count))
MISUSE(mempool_writev, count, MEMPOOL_E_INVALID,
       mempool_writev(m->lease, segments_of(m, m->out.bytes), 1025, &m->out.count))
MISUSE(mempool_writev, count_of_all_bits, MEMPOOL_E_INVALID,
       mempool_writev(m->lease, segments_of(m, m->out.bytes), SIZE_MAX, &m->out.count))
MISUSE(mempool_renew, time, MEMPOOL_E_TTL_MAX, mempool_renew(m->lease, UINT64_MAX))
MISUSE(mempool_auto_renew, time, 0,
       mempool_auto_renew(m->lease, UINT64_MAX) != 0 ? 1 : mempool_auto_renew(m->lease, 0))
MISUSE(mempool_modify, length, MEMPOOL_E_LENGTH_POOL,
       mempool_modify(m->lease, UINT64_MAX, m->rights))
MISUSE(mempool_modify, length_over_the_neighbour, MEMPOOL_E_LENGTH_EXTENT,
       mempool_modify(m->lease, MISUSE_BYTES + 1, m->rights))
MISUSE(mempool_release_many, count, MEMPOOL_E_INVALID, mempool_release_many(&m->lease, 65))
MISUSE(mempool_release_many, count_of_all_bits, MEMPOOL_E_INVALID,
       mempool_release_many(&m->lease, SIZE_MAX))
MISUSE(mempool_reattach, lease_id, MEMPOOL_E_NO_LEASE,
       mempool_reattach(m->pool,
			&(struct mempool_lease_token){.version = MEMPOOL_LEASE_TOKEN_VERSION,
						      .lease_id = UINT64_MAX},
			&m->out.lease))
MISUSE(mempool_buf_alloc, length, MEMPOOL_E_NO_MEMORY,
       mempool_buf_alloc(m->pool, SIZE_MAX, 0, &m->out.buf))
MISUSE(mempool_buf_alloc, length_in_pages, MEMPOOL_E_NO_MEMORY,
       mempool_buf_alloc(m->pool, SIZE_MAX - 4095, 0, &m->out.buf))
MISUSE(mempool_buf_alloc, length_in_huge_pages, MEMPOOL_E_NO_MEMORY,
       mempool_buf_alloc(m->pool, SIZE_MAX - 4096, MEMPOOL_BUF_HUGE, &m->out.buf))
MISUSE(mempool_buf_register, length, MEMPOOL_E_INVALID,
       mempool_buf_register(m->pool, m->out.bytes, SIZE_MAX, &m->out.buf))
MISUSE(mempool_buf_register, last_address, MEMPOOL_E_INVALID,
       mempool_buf_register(m->pool, address(UINTPTR_MAX), 2, &m->out.buf))
MISUSE(mempool_buf_register, up_to_the_last_address, MEMPOOL_E_SYSTEM,
       mempool_buf_register(m->pool, address(UINTPTR_MAX - 4095), 4096, &m->out.buf))
MISUSE(mempool_cache_limit, all, 0,
       mempool_cache_limit(m->pool, cache_opts(UINT64_MAX, UINT32_MAX)) != 0
	       ? 1
	       : mempool_cache_limit(m->pool, cache_opts(0, 0)))
MISUSE(mempool_cache_forget, length, 0, mempool_cache_forget(m->pool, m->content, SIZE_MAX))
MISUSE(mempool_queue_create, depth, MEMPOOL_E_INVALID,
       mempool_queue_create(m->pool, queue_opts(4097, 0), &m->out.queue))
MISUSE(mempool_queue_create, depth_of_all_bits, MEMPOOL_E_INVALID,
       mempool_queue_create(m->pool, queue_opts(UINT32_MAX, 0), &m->out.queue))
MISUSE(mempool_queue_create, capacity, MEMPOOL_E_INVALID,
       mempool_queue_create(m->pool, queue_opts(0, 65537), &m->out.queue))
MISUSE(mempool_queue_create, capacity_of_all_bits, MEMPOOL_E_INVALID,
       mempool_queue_create(m->pool, queue_opts(0, UINT32_MAX), &m->out.queue))
MISUSE(mempool_submit, memory_beyond_the_last_address, MEMPOOL_E_INVALID,
       misuse_op(m, (struct mempool_op){.lease = m->lease,
					.len_bytes = 16,
					.bytes = address(UINTPTR_MAX - 7),
					.buf = m->buf,
					.kind = MEMPOOL_OP_READ}))
MISUSE(mempool_poll, count, 0, mempool_poll(m->queue, m->out.completions, SIZE_MAX, &m->out.count))
MISUSE(mempool_flush, time, 0, mempool_flush(m->queue, UINT32_MAX))
MISUSE(mempool_cancel, cookie, 0, mempool_cancel(m->queue, UINT64_MAX, &m->out.count))
MISUSE(mempool_error_text, code, 1,
       mempool_error_text(INT_MIN)[0] != '\0' && mempool_error_text(INT_MAX)[0] != '\0')

MISUSE_NONE(size, "their only number is a size, in misuse_options",
	    "mempool_lease_info mempool_cache_stats mempool_queue_info")
MISUSE_NONE(wait, "the longest time means to wait that long", "mempool_next_event")
MISUSE_NONE(nothing, "they take no number",
	    "mempool_close mempool_release mempool_lease_token mempool_buf_free mempool_buf_bytes "
	    "mempool_buf_length mempool_queue_destroy mempool_queue_attach mempool_queue_restore "
	    "mempool_queue_fd mempool_queue_arm mempool_event_fd mempool_last_error")

TEST(misuse_overflow__table_is_complete)
{
	misuse_check_complete();
}

TEST(misuse_overflow__each_function)
{
	MISUSE_SCENE(m, NULL);

	for (size_t i = 0; i < sizeof(ranges) / sizeof(ranges[0]); i++) {
		m->offset_bytes = ranges[i].offset_bytes;
		m->len_bytes = ranges[i].len_bytes;
		(void)misuse_run(m, "range");
		if (test_has_failed())
			printf("# range %zu\n", i);
		CHECK(!test_has_failed());
	}
	m->len_bytes = 8;
	for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++) {
		m->offset_bytes = words[i];
		(void)misuse_run(m, "word");
		CHECK(!test_has_failed());
	}
	m->offset_bytes = 0;
	(void)misuse_run(m, "numbers");
	CHECK(!test_has_failed());
	CHECK_INT(harness_number(&m->h, "counters.lanes_lost"), 0);
	misuse_end(m);
}

/* The last bytes of the lease are within it. */
TEST(misuse_overflow__largest_that_is_allowed)
{
	MISUSE_SCENE(m, NULL);
	uint8_t got[MISUSE_BYTES];
	mempool_queue *queue;
	uint64_t old;

	CHECK_INT(mempool_read(m->lease, MISUSE_BYTES - 1, got, 1), 0);
	CHECK_INT(got[0], m->content[MISUSE_BYTES - 1]);
	CHECK_INT(mempool_read(m->lease, 1, got, MISUSE_BYTES - 1), 0);
	CHECK_MEM(got, m->content + 1, MISUSE_BYTES - 1);
	if ((m->rights & MEMPOOL_ATOMIC) != 0)
		CHECK_INT(mempool_fetch_add(m->lease, MISUSE_BYTES - 8, 0, &old), 0);
	CHECK_INT(mempool_queue_create(m->pool, queue_opts(1, 65536), &queue), 0);
	mempool_queue_destroy(queue);
	misuse_end(m);
}

/* Raw work requests. */

/* One that is refused; before it an access of the lease shows that the lane is up. */
static void refuse_raw(struct misuse *m, enum ibv_wr_opcode opcode, uint64_t addr, uint32_t rkey)
{
	struct message_descriptor own = proof_descriptor(m->lease);
	struct lane *lane = pool_lane(m->pool);
	uint8_t *local = lane_slot(lane, 0);

	CHECK_INT(proof_access(lane, IBV_WR_RDMA_READ, 8, own.remote_addr, own.rkey),
		  IBV_WC_SUCCESS);
	memset(local, 0x77, 8);
	CHECK_INT(proof_access(lane, opcode, 8, addr, rkey), IBV_WC_REM_ACCESS_ERR);
	for (int i = 0; i < 8; i++)
		CHECK_INT(local[i], 0x77);
	misuse_check_works(m);
	misuse_check_neighbours(m);
	CHECK(!test_has_failed());
}

TEST(misuse_overflow__device_refuses_words_outside)
{
	MISUSE_SCENE(m, "\"lane_wait_min\": \"0\"");
	static const enum ibv_wr_opcode opcodes[] = {IBV_WR_ATOMIC_FETCH_AND_ADD,
						     IBV_WR_ATOMIC_CMP_AND_SWP};

	if (harness_is_unverified())
		SKIP("bounds are not enforced in this mode");
	for (size_t i = 0; i < 2; i++) {
		struct message_descriptor at = proof_descriptor(m->lease);

		refuse_raw(m, opcodes[i], at.remote_addr - 8, at.rkey);
		CHECK(!test_has_failed());
		at = proof_descriptor(m->lease);
		refuse_raw(m, opcodes[i], at.remote_addr + MISUSE_BYTES, at.rkey);
		CHECK(!test_has_failed());
		at = proof_descriptor(m->lease);
		refuse_raw(m, opcodes[i], UINT64_MAX - 7, at.rkey);
		CHECK(!test_has_failed());
	}
	misuse_end(m);
}

/* Both leases are ours and on one lane; but each key is for its own bytes. */
TEST(misuse_overflow__device_refuses_the_key_of_another_lease)
{
	MISUSE_SCENE(m, "\"lane_wait_min\": \"0\"");
	static const enum ibv_wr_opcode opcodes[] = {IBV_WR_RDMA_READ, IBV_WR_RDMA_WRITE};
	struct message_descriptor own, other;
	uint8_t got[8];

	if (harness_is_unverified())
		SKIP("bounds are not enforced in this mode");
	m->subject = misuse_acquire(m->pool, MEMPOOL_READ | MEMPOOL_WRITE, MISUSE_TTL_MS);
	CHECK(m->subject != NULL);
	for (size_t i = 0; i < 2; i++) {
		/* Attaches it again if the lane was lost. */
		CHECK_INT(mempool_read(m->subject, 0, got, sizeof(got)), 0);
		own = proof_descriptor(m->lease);
		other = proof_descriptor(m->subject);
		refuse_raw(m, opcodes[i], other.remote_addr, own.rkey);
		CHECK(!test_has_failed());
		CHECK_INT(mempool_read(m->subject, 0, got, sizeof(got)), 0);
		own = proof_descriptor(m->lease);
		other = proof_descriptor(m->subject);
		refuse_raw(m, opcodes[i], own.remote_addr, other.rkey);
		CHECK(!test_has_failed());
	}
	CHECK_INT(mempool_read(m->subject, 0, got, sizeof(got)), 0);
	CHECK_MEM(got, ((uint8_t[8]){0}), 8);
	misuse_end(m);
}
