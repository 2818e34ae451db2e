/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Lengths, counts and times of 0. Where 0 means something it is allowed, and where it is allowed
 * to do nothing, what is wrong besides is refused all the same.
 *
 * (A raw access of 0 bytes with a neighbour's key, which devices do not refuse and which reaches
 * nothing: rteam_neighbour. Lengths and times of 0 in acquires are the daemon's to refuse:
 * itest_limits.)
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "proto/error.h"
#include "tests/integration/peer.h"
#include "tests/misuse/misuse.h"

#define MISUSE_GROUP "zero"

static const struct mempool_segment *empty_segment(uint64_t offset_bytes)
{
	static struct mempool_segment segment;

	segment.offset_bytes = offset_bytes;
	return &segment;
}

static struct mempool_op op_of_zero(struct misuse *m, uint32_t kind, uint64_t offset_bytes)
{
	struct mempool_op op = misuse_op_of(m, m->lease, kind);

	op.offset_bytes = offset_bytes;
	op.len_bytes = 0;
	return op;
}

/* Options are good but for one thing. */
static const struct mempool_acquire_opts *acquire_opts(struct misuse *m, uint64_t ttl_ms,
						       uint32_t rights)
{
	static struct mempool_acquire_opts opts;

	opts = m->acquire_opts;
	opts.ttl_ms = ttl_ms;
	opts.rights = rights;
	return &opts;
}

MISUSE(mempool_acquire, length, MEMPOOL_E_LENGTH_ZERO,
       mempool_acquire(m->pool, 0, &m->acquire_opts, &m->out.lease))
MISUSE(mempool_acquire, time, MEMPOOL_E_TTL_ZERO,
       mempool_acquire(m->pool, 1, acquire_opts(m, 0, MEMPOOL_READ), &m->out.lease))
MISUSE(mempool_acquire, rights, MEMPOOL_E_RIGHTS,
       mempool_acquire(m->pool, 1, acquire_opts(m, 1000, 0), &m->out.lease))
MISUSE(mempool_acquire_many, count, MEMPOOL_E_INVALID,
       mempool_acquire_many(m->pool, 1, &m->acquire_opts, 0, m->out.leases))
MISUSE(mempool_acquire_many, length, MEMPOOL_E_LENGTH_ZERO,
       mempool_acquire_many(m->pool, 0, &m->acquire_opts, 2, m->out.leases))
MISUSE(mempool_acquire_many, time, MEMPOOL_E_TTL_ZERO,
       mempool_acquire_many(m->pool, 1, acquire_opts(m, 0, MEMPOOL_READ), 2, m->out.leases))
MISUSE(mempool_read, length, 0, mempool_read(m->lease, 0, m->out.bytes, 0))
MISUSE(mempool_read, length_at_the_end, 0, mempool_read(m->lease, MISUSE_BYTES, m->out.bytes, 0))
MISUSE(mempool_read, length_beyond_the_end, MEMPOOL_E_RANGE,
       mempool_read(m->lease, MISUSE_BYTES + 1, m->out.bytes, 0))
MISUSE(mempool_read, length_without_the_right, MEMPOOL_E_ACCESS,
       mempool_read(m->subject, 0, m->out.bytes, 0))
MISUSE(mempool_write, length, 0, mempool_write(m->lease, 0, m->content, 0))
MISUSE(mempool_write, length_at_the_end, 0, mempool_write(m->lease, MISUSE_BYTES, m->content, 0))
MISUSE(mempool_write, length_beyond_the_end, MEMPOOL_E_RANGE,
       mempool_write(m->lease, MISUSE_BYTES + 1, m->content, 0))
MISUSE(mempool_readv, count, MEMPOOL_E_INVALID,
       mempool_readv(m->lease, empty_segment(0), 0, &m->out.count))
MISUSE(mempool_readv, length, 0, mempool_readv(m->lease, empty_segment(MISUSE_BYTES), 1, NULL))
MISUSE(mempool_readv, length_beyond_the_end, MEMPOOL_E_RANGE,
       mempool_readv(m->lease, empty_segment(MISUSE_BYTES + 1), 1, NULL))
MISUSE(mempool_writev, count, MEMPOOL_E_INVALID,
       mempool_writev(m->lease, empty_segment(0), 0, &m->out.count))
MISUSE(mempool_writev, length, 0, mempool_writev(m->lease, empty_segment(MISUSE_BYTES), 1, NULL))
MISUSE(mempool_writev, length_beyond_the_end, MEMPOOL_E_RANGE,
       mempool_writev(m->lease, empty_segment(MISUSE_BYTES + 1), 1, NULL))
MISUSE(mempool_renew, time, MEMPOOL_E_TTL_ZERO, mempool_renew(m->lease, 0))
MISUSE(mempool_auto_renew, time, 0, mempool_auto_renew(m->lease, 0))
MISUSE(mempool_modify, length, MEMPOOL_E_LENGTH_ZERO, mempool_modify(m->lease, 0, m->rights))
MISUSE(mempool_modify, rights, MEMPOOL_E_RIGHTS, mempool_modify(m->lease, MISUSE_BYTES, 0))
MISUSE(mempool_release_many, count, MEMPOOL_E_INVALID, mempool_release_many(&m->lease, 0))
MISUSE(mempool_reattach, token, MEMPOOL_E_INVALID,
       mempool_reattach(m->pool, &(struct mempool_lease_token){.version = 0}, &m->out.lease))
MISUSE(mempool_reattach, lease_id, MEMPOOL_E_NO_LEASE,
       mempool_reattach(m->pool,
			&(struct mempool_lease_token){.version = MEMPOOL_LEASE_TOKEN_VERSION},
			&m->out.lease))
MISUSE(mempool_buf_alloc, length, MEMPOOL_E_INVALID, mempool_buf_alloc(m->pool, 0, 0, &m->out.buf))
MISUSE(mempool_buf_register, length, MEMPOOL_E_INVALID,
       mempool_buf_register(m->pool, m->out.bytes, 0, &m->out.buf))
MISUSE(mempool_cache_limit, all, 0,
       mempool_cache_limit(m->pool,
			   &(struct mempool_cache_opts){.size = sizeof(struct mempool_cache_opts)}))
MISUSE(mempool_cache_forget, length, 0, mempool_cache_forget(m->pool, m->bytes, 0))
MISUSE(mempool_submit, count, MEMPOOL_E_INVALID,
       mempool_submit(m->queue, &(struct mempool_op){.cookie = 0}, 0, &m->out.count))
MISUSE(mempool_submit, length_of_a_read, 0,
       misuse_op(m, op_of_zero(m, MEMPOOL_OP_READ, MISUSE_BYTES)))
MISUSE(mempool_submit, length_of_a_write, 0,
       misuse_op(m, op_of_zero(m, MEMPOOL_OP_WRITE, MISUSE_BYTES)))
MISUSE(mempool_submit, length_beyond_the_end, MEMPOOL_E_RANGE,
       misuse_op(m, op_of_zero(m, MEMPOOL_OP_READ, MISUSE_BYTES + 1)))
MISUSE(mempool_submit, length_of_a_word, MEMPOOL_E_INVALID,
       misuse_op(m, op_of_zero(m, MEMPOOL_OP_FETCH_ADD, 0)))
MISUSE(mempool_submit, length_of_a_swap, MEMPOOL_E_INVALID,
       misuse_op(m, op_of_zero(m, MEMPOOL_OP_COMPARE_SWAP, 0)))
MISUSE(mempool_submit, kind, MEMPOOL_E_INVALID, misuse_op(m, op_of_zero(m, 0, 0)))
MISUSE(mempool_poll, count, MEMPOOL_E_INVALID,
       mempool_poll(m->queue, m->out.completions, 0, &m->out.count))
MISUSE(mempool_next_event, time, MEMPOOL_E_TIMEOUT, mempool_next_event(m->pool, &m->out.event, 0))
MISUSE(mempool_flush, time, 0, mempool_flush(m->queue, 0))
MISUSE(mempool_error_text, code, 1, mempool_error_text(0)[0] != '\0')
MISUSE_NONE(size, "a size of 0 is in misuse_options; all other options may be 0",
	    "mempool_connect mempool_queue_create mempool_lease_info mempool_cache_stats "
	    "mempool_queue_info")
MISUSE_NONE(nothing, "they take no number",
	    "mempool_close mempool_release mempool_lease_token mempool_buf_free mempool_buf_bytes "
	    "mempool_buf_length mempool_queue_destroy mempool_queue_attach mempool_queue_restore "
	    "mempool_queue_fd mempool_queue_arm mempool_event_fd mempool_last_error")
MISUSE_NONE(words, "their length is 8, their numbers may be 0",
	    "mempool_fetch_add mempool_compare_swap mempool_cancel")

TEST(misuse_zero__table_is_complete)
{
	misuse_check_complete();
}

TEST(misuse_zero__each_function)
{
	MISUSE_SCENE(m, NULL);

	m->subject = misuse_acquire(m->pool, MEMPOOL_WRITE, MISUSE_TTL_MS);
	CHECK(m->subject != NULL);
	printf("# %u calls had to fail\n", misuse_run(m, "zero"));
	CHECK(!test_has_failed());
	CHECK_INT(mempool_release(m->subject), 0);
	CHECK_INT(harness_number(&m->h, "counters.lanes_lost"), 0);
	misuse_end(m);
}

/* A message that asks for, or gives back, no lease at all, which the library does not send. */
static void send_without_count(struct misuse *m, uint16_t type, size_t count_at)
{
	PEER(peer, "mallory");
	PEER_LANE(lane, &peer);
	struct message message = {
		.type = type,
		.request_id = 77,
		.u.acquire = {.len_bytes = 1, .ttl_ms = 1000, .rights = 1, .count = 1},
	};
	uint8_t bytes[PROTO_MESSAGE_MAX];
	size_t len_bytes;
	int r;

	if (type == MESSAGE_RELEASE)
		message.u.leases = (struct message_leases){.count = 1, .lease_ids = {1}};
	else
		message.u.acquire.lane = lane.number;
	CHECK_INT(message_encode(&message, bytes, sizeof(bytes), &len_bytes), 0);
	CHECK_INT(bytes[count_at], 1);
	bytes[count_at] = 0;
	CHECK_INT(raw_send_sealed(&peer.control, bytes, (uint32_t)len_bytes), 0);
	r = peer_take(&peer, MESSAGE_ERROR, 0, RAW_LATE_MS, &message);
	CHECK_INT(r, 1);
	CHECK_INT(message.u.error.code, ERROR_PROTOCOL);
	misuse_check_works(m);
}

TEST(misuse_zero__daemon_refuses_a_count_of_none)
{
	MISUSE_SCENE(m, NULL);

	send_without_count(m, MESSAGE_ACQUIRE, MESSAGE_HEADER_BYTES + 28);
	CHECK(!test_has_failed());
	send_without_count(m, MESSAGE_RELEASE, MESSAGE_HEADER_BYTES);
	CHECK(!test_has_failed());
	CHECK(harness_wait_number(&m->h, "sessions", 2, 10000));
	misuse_end(m);
}
