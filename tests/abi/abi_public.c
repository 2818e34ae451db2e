/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Every public function, called by way of the shared library with what it has to refuse
 * without a session; and where the members of the public structs are. Needs no device.
 */
#include <stddef.h>
#include <string.h>

#include "client/include/mempool.h"
#include "tests/unit/test.h"

#define KEY "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA="

static mempool *no_pool;
static mempool_lease *no_lease;
static mempool_buf *no_buf;
static mempool_queue *no_queue;

TEST(mempool_connect__refuses_what_is_not_valid)
{
	struct mempool_connect_opts opts = {.size = sizeof(opts), .key_file = "/nonexistent"};
	mempool *pool = NULL;

	CHECK_INT(mempool_connect("127.0.0.1", NULL, &pool), MEMPOOL_E_INVALID);
	CHECK_INT(mempool_connect(NULL, &opts, &pool), MEMPOOL_E_INVALID);
	CHECK_INT(mempool_connect("127.0.0.1", &opts, NULL), MEMPOOL_E_INVALID);
	CHECK_INT(mempool_connect("mempool://127.0.0.1?key=" KEY, &opts, &pool), MEMPOOL_E_INVALID);
	opts.size--;
	CHECK_INT(mempool_connect("127.0.0.1", &opts, &pool), MEMPOOL_E_INVALID);
	CHECK(pool == NULL);
}

/* Written by a program that was compiled with the header of a later version. */
TEST(mempool_connect__refuses_options_that_it_does_not_know)
{
	struct {
		struct mempool_connect_opts known;
		uint64_t later;
	} opts = {.known = {.size = sizeof(opts)}, .later = 1};
	mempool *pool = NULL;

	CHECK_INT(mempool_connect("127.0.0.1", &opts.known, &pool), MEMPOOL_E_INVALID);
	CHECK_STR(mempool_last_error(), "the options are not valid");
	opts.later = 0;
	CHECK_INT(mempool_connect("127.0.0.1", &opts.known, &pool), MEMPOOL_E_INVALID);
	CHECK(strcmp(mempool_last_error(), "the options are not valid") != 0);
}

/* Written by a program that was compiled with the header before there were events. */
TEST(mempool_connect__takes_the_first_options)
{
	struct mempool_connect_opts opts = {
		.size = offsetof(struct mempool_connect_opts, on_event),
		.key_file = "/nonexistent",
		.reconnect_ms = 7, /* that was no member */
	};
	mempool *pool = NULL;

	CHECK_INT(mempool_connect("127.0.0.1", &opts, &pool), MEMPOOL_E_INVALID);
	CHECK(strcmp(mempool_last_error(), "the options are not valid") != 0);
	opts.size--;
	CHECK_INT(mempool_connect("127.0.0.1", &opts, &pool), MEMPOOL_E_INVALID);
	CHECK_STR(mempool_last_error(), "the options are not valid");
}

TEST(mempool_close__allows_null)
{
	mempool_close(no_pool);
}

TEST(mempool_acquire__refuses_what_is_not_valid)
{
	struct mempool_acquire_opts opts = {
		.size = sizeof(opts), .ttl_ms = 1, .rights = MEMPOOL_READ};
	mempool_lease *lease = NULL;

	CHECK_INT(mempool_acquire(no_pool, 1, &opts, &lease), MEMPOOL_E_INVALID);
	CHECK_INT(mempool_acquire_many(no_pool, 1, &opts, 1, &lease), MEMPOOL_E_INVALID);
	CHECK(lease == NULL);
}

TEST(mempool_read__refuses_what_is_not_valid)
{
	uint8_t byte = 7;

	CHECK_INT(mempool_read(no_lease, 0, &byte, 1), MEMPOOL_E_INVALID);
	CHECK_INT(mempool_write(no_lease, 0, &byte, 1), MEMPOOL_E_INVALID);
	CHECK_INT(byte, 7);
}

TEST(mempool_renew__refuses_what_is_not_valid)
{
	struct mempool_lease_info info = {.size = sizeof(info), .id = 7};

	CHECK_INT(mempool_renew(no_lease, 1), MEMPOOL_E_INVALID);
	CHECK_INT(mempool_auto_renew(no_lease, 1), MEMPOOL_E_INVALID);
	CHECK_INT(mempool_lease_info(no_lease, &info), MEMPOOL_E_INVALID);
	CHECK_INT(info.id, 7);
}

TEST(mempool_modify__refuses_what_is_not_valid)
{
	CHECK_INT(mempool_modify(no_lease, 1, MEMPOOL_READ), MEMPOOL_E_INVALID);
}

TEST(mempool_release__refuses_what_is_not_valid)
{
	CHECK_INT(mempool_release(no_lease), 0);
	CHECK_INT(mempool_release_many(NULL, 1), MEMPOOL_E_INVALID);
	CHECK_INT(mempool_release_many(&no_lease, 0), MEMPOOL_E_INVALID);
	CHECK_INT(mempool_release_many(&no_lease, 1), MEMPOOL_E_INVALID);
}

TEST(mempool_reattach__refuses_what_is_not_valid)
{
	struct mempool_lease_token token = {.version = MEMPOOL_LEASE_TOKEN_VERSION};
	mempool_lease *lease = NULL;

	CHECK_INT(mempool_reattach(no_pool, &token, &lease), MEMPOOL_E_INVALID);
	CHECK_INT(mempool_lease_token(no_lease, &token), MEMPOOL_E_INVALID);
	CHECK(lease == NULL);
}

TEST(mempool_next_event__refuses_what_is_not_valid)
{
	struct mempool_event event = {.size = sizeof(event), .kind = 7};

	CHECK_INT(mempool_next_event(no_pool, &event, 0), MEMPOOL_E_INVALID);
	CHECK_INT(mempool_next_event(no_pool, NULL, 0), MEMPOOL_E_INVALID);
	CHECK_INT(event.kind, 7);
	/* Never a number that could be taken for a descriptor. */
	CHECK_INT(mempool_event_fd(no_pool), MEMPOOL_E_INVALID);
}

TEST(mempool_readv__refuses_what_is_not_valid)
{
	uint8_t byte = 7;
	struct mempool_segment segment = {.buf = &byte, .len_bytes = 1};
	size_t count = 7;

	CHECK_INT(mempool_readv(no_lease, &segment, 1, &count), MEMPOOL_E_INVALID);
	CHECK_INT(mempool_writev(no_lease, &segment, 1, &count), MEMPOOL_E_INVALID);
	CHECK_INT(count, 7);
	CHECK_INT(mempool_readv(no_lease, NULL, 0, NULL), MEMPOOL_E_INVALID);
	CHECK_INT(mempool_writev(no_lease, NULL, 0, NULL), MEMPOOL_E_INVALID);
	CHECK_INT(byte, 7);
}

TEST(mempool_fetch_add__refuses_what_is_not_valid)
{
	uint64_t old = 7;

	CHECK_INT(mempool_fetch_add(no_lease, 0, 1, &old), MEMPOOL_E_INVALID);
	CHECK_INT(mempool_compare_swap(no_lease, 0, 1, 2, &old), MEMPOOL_E_INVALID);
	/* Before its alignment it is asked whether there is a lease at all. */
	CHECK_INT(mempool_fetch_add(no_lease, 1, 1, &old), MEMPOOL_E_INVALID);
	CHECK_INT(old, 7);
}

TEST(mempool_buf_alloc__refuses_what_is_not_valid)
{
	mempool_buf *buf = NULL;
	uint8_t byte = 7;

	CHECK_INT(mempool_buf_alloc(no_pool, 1, 0, &buf), MEMPOOL_E_INVALID);
	CHECK_INT(mempool_buf_register(no_pool, &byte, 1, &buf), MEMPOOL_E_INVALID);
	CHECK(buf == NULL);
	CHECK_INT(byte, 7);
}

TEST(mempool_buf_free__allows_null)
{
	CHECK_INT(mempool_buf_free(no_buf), 0);
	CHECK(mempool_buf_bytes(no_buf) == NULL);
	CHECK_INT(mempool_buf_length(no_buf), 0);
}

TEST(mempool_cache_limit__refuses_what_is_not_valid)
{
	struct mempool_cache_opts opts = {.size = sizeof(opts), .entries_max = 1};
	struct mempool_cache_stats stats = {.size = sizeof(stats), .hits = 7};
	uint8_t byte = 7;

	CHECK_INT(mempool_cache_limit(no_pool, &opts), MEMPOOL_E_INVALID);
	CHECK_INT(mempool_cache_limit(no_pool, NULL), MEMPOOL_E_INVALID);
	CHECK_INT(mempool_cache_forget(no_pool, &byte, 1), MEMPOOL_E_INVALID);
	CHECK_INT(mempool_cache_stats(no_pool, &stats), MEMPOOL_E_INVALID);
	CHECK_INT(stats.hits, 7);
}

TEST(mempool_queue_create__refuses_what_is_not_valid)
{
	struct mempool_queue_opts opts = {.size = sizeof(opts)};
	struct mempool_queue_info info = {.size = sizeof(info), .depth = 7};
	mempool_queue *queue = NULL;

	CHECK_INT(mempool_queue_create(no_pool, &opts, &queue), MEMPOOL_E_INVALID);
	CHECK_INT(mempool_queue_create(no_pool, NULL, &queue), MEMPOOL_E_INVALID);
	CHECK(queue == NULL);
	CHECK_INT(mempool_queue_attach(no_queue, no_lease), MEMPOOL_E_INVALID);
	CHECK_INT(mempool_queue_restore(no_queue), MEMPOOL_E_INVALID);
	CHECK_STR(mempool_last_error(), "no queue was given");
	CHECK_INT(mempool_queue_info(no_queue, &info), MEMPOOL_E_INVALID);
	CHECK_INT(info.depth, 7);
}

TEST(mempool_queue_destroy__allows_null)
{
	mempool_queue_destroy(no_queue);
}

TEST(mempool_submit__refuses_what_is_not_valid)
{
	struct mempool_op op = {.kind = MEMPOOL_OP_READ};
	struct mempool_completion completion = {.cookie = 7};
	size_t count = 7;

	CHECK_INT(mempool_submit(no_queue, &op, 1, &count), MEMPOOL_E_INVALID);
	CHECK_INT(mempool_poll(no_queue, &completion, 1, &count), MEMPOOL_E_INVALID);
	CHECK_INT(mempool_cancel(no_queue, 7, &count), MEMPOOL_E_INVALID);
	CHECK_INT(count, 7);
	CHECK_INT(completion.cookie, 7);
	CHECK_INT(mempool_flush(no_queue, 1), MEMPOOL_E_INVALID);
	CHECK_INT(mempool_queue_arm(no_queue), MEMPOOL_E_INVALID);
	/* Never a number that could be taken for a descriptor. */
	CHECK_INT(mempool_queue_fd(no_queue), MEMPOOL_E_INVALID);
}

TEST(mempool_error_text__has_a_text_for_any_number)
{
	CHECK_STR(mempool_error_text(MEMPOOL_E_EXPIRED), "the lease has expired");
	CHECK(strcmp(mempool_error_text(MEMPOOL_E_CANCELLED), mempool_error_text(-1)) != 0);
	CHECK(mempool_error_text(0)[0] != '\0');
	CHECK(mempool_error_text(-1)[0] != '\0');
	CHECK_INT(mempool_renew(no_lease, 1), MEMPOOL_E_INVALID);
	CHECK_STR(mempool_last_error(), "no lease was given");
}

/* Of programs that were compiled with the first header: members do not move. */

TEST(connect_opts__are_where_they_were)
{
	CHECK_INT(offsetof(struct mempool_connect_opts, size), 0);
	CHECK_INT(offsetof(struct mempool_connect_opts, key_file), sizeof(size_t));
	CHECK_INT(offsetof(struct mempool_connect_opts, key), 2 * sizeof(size_t));
	CHECK_INT(offsetof(struct mempool_connect_opts, daemon_key), 3 * sizeof(size_t));
	CHECK_INT(offsetof(struct mempool_connect_opts, timeout_ms), 4 * sizeof(size_t));
	CHECK_INT(offsetof(struct mempool_connect_opts, reconnect_ms), 4 * sizeof(size_t) + 4);
	CHECK_INT(offsetof(struct mempool_connect_opts, on_event), 4 * sizeof(size_t) + 8);
	CHECK_INT(offsetof(struct mempool_connect_opts, on_event_context), 5 * sizeof(size_t) + 8);
}

TEST(acquire_opts__are_where_they_were)
{
	CHECK_INT(offsetof(struct mempool_acquire_opts, size), 0);
	CHECK_INT(offsetof(struct mempool_acquire_opts, ttl_ms), 8);
	CHECK_INT(offsetof(struct mempool_acquire_opts, rights), 16);
	CHECK_INT(offsetof(struct mempool_acquire_opts, wait_ms), 20);
	CHECK_INT(offsetof(struct mempool_acquire_opts, flags), 24);
	CHECK_INT(offsetof(struct mempool_acquire_opts, reserved), 28);
}

TEST(lease_info__is_where_it_was)
{
	CHECK_INT(offsetof(struct mempool_lease_info, size), 0);
	CHECK_INT(offsetof(struct mempool_lease_info, id), 8);
	CHECK_INT(offsetof(struct mempool_lease_info, len_bytes), 16);
	CHECK_INT(offsetof(struct mempool_lease_info, ttl_left_ms), 24);
	CHECK_INT(offsetof(struct mempool_lease_info, rights), 32);
	CHECK_INT(offsetof(struct mempool_lease_info, generation), 36);
}

TEST(event__is_where_it_was)
{
	CHECK_INT(offsetof(struct mempool_event, size), 0);
	CHECK_INT(offsetof(struct mempool_event, kind), sizeof(size_t));
	CHECK_INT(offsetof(struct mempool_event, code), sizeof(size_t) + 4);
	CHECK_INT(offsetof(struct mempool_event, lease), sizeof(size_t) + 8);
	CHECK_INT(offsetof(struct mempool_event, lease_id), 2 * sizeof(size_t) + 8);
	CHECK_INT(offsetof(struct mempool_event, left_ms), 2 * sizeof(size_t) + 16);
	CHECK_INT(offsetof(struct mempool_event, count), 2 * sizeof(size_t) + 24);
}

TEST(events__are_what_they_were)
{
	CHECK_INT(MEMPOOL_EVENT_LEASE_EXPIRING, 1);
	CHECK_INT(MEMPOOL_EVENT_LEASE_REVOKING, 2);
	CHECK_INT(MEMPOOL_EVENT_LEASE_ENDED, 3);
	CHECK_INT(MEMPOOL_EVENT_LANE_LOST, 4);
	CHECK_INT(MEMPOOL_EVENT_LANE_RESTORED, 5);
	CHECK_INT(MEMPOOL_EVENT_DRAINING, 6);
	CHECK_INT(MEMPOOL_EVENT_SESSION_LOST, 7);
	CHECK_INT(MEMPOOL_EVENT_SESSION_RESTORED, 8);
	CHECK_INT(MEMPOOL_EVENT_SESSION_GIVEN_UP, 9);
	CHECK_INT(MEMPOOL_EVENT_EVENTS_LOST, 10);
}

/* This one has no size, so it keeps its own, too. */
TEST(lease_token__is_as_it_was)
{
	CHECK_INT(sizeof(struct mempool_lease_token), 32);
	CHECK_INT(offsetof(struct mempool_lease_token, version), 0);
	CHECK_INT(offsetof(struct mempool_lease_token, reserved), 4);
	CHECK_INT(offsetof(struct mempool_lease_token, lease_id), 8);
	CHECK_INT(offsetof(struct mempool_lease_token, secret), 16);
	CHECK_INT(MEMPOOL_LEASE_TOKEN_VERSION, 1);
}

TEST(cache_opts__are_where_they_were)
{
	CHECK_INT(offsetof(struct mempool_cache_opts, size), 0);
	CHECK_INT(offsetof(struct mempool_cache_opts, bytes_max), 8);
	CHECK_INT(offsetof(struct mempool_cache_opts, len_min_bytes), 16);
	CHECK_INT(offsetof(struct mempool_cache_opts, entries_max), 24);
	CHECK_INT(offsetof(struct mempool_cache_opts, reserved), 28);
}

TEST(cache_stats__are_where_they_were)
{
	CHECK_INT(offsetof(struct mempool_cache_stats, size), 0);
	CHECK_INT(offsetof(struct mempool_cache_stats, hits), 8);
	CHECK_INT(offsetof(struct mempool_cache_stats, misses), 16);
	CHECK_INT(offsetof(struct mempool_cache_stats, evictions), 24);
	CHECK_INT(offsetof(struct mempool_cache_stats, failures), 32);
	CHECK_INT(offsetof(struct mempool_cache_stats, entries), 40);
	CHECK_INT(offsetof(struct mempool_cache_stats, bytes), 48);
}

TEST(queue_opts__are_where_they_were)
{
	CHECK_INT(offsetof(struct mempool_queue_opts, size), 0);
	CHECK_INT(offsetof(struct mempool_queue_opts, depth), sizeof(size_t));
	CHECK_INT(offsetof(struct mempool_queue_opts, capacity), sizeof(size_t) + 4);
}

TEST(queue_info__is_where_it_was)
{
	CHECK_INT(offsetof(struct mempool_queue_info, size), 0);
	CHECK_INT(offsetof(struct mempool_queue_info, depth), sizeof(size_t));
	CHECK_INT(offsetof(struct mempool_queue_info, capacity), sizeof(size_t) + 4);
	CHECK_INT(offsetof(struct mempool_queue_info, inline_max_bytes), sizeof(size_t) + 8);
	CHECK_INT(offsetof(struct mempool_queue_info, waiting), sizeof(size_t) + 12);
	CHECK_INT(offsetof(struct mempool_queue_info, posted), sizeof(size_t) + 16);
	CHECK_INT(offsetof(struct mempool_queue_info, done), sizeof(size_t) + 20);
	CHECK_INT(offsetof(struct mempool_queue_info, lane_up), sizeof(size_t) + 24);
}

/* These come in arrays, so they keep their sizes. */

TEST(segment__is_as_it_was)
{
	CHECK_INT(sizeof(struct mempool_segment), 8 + 2 * sizeof(size_t));
	CHECK_INT(offsetof(struct mempool_segment, offset_bytes), 0);
	CHECK_INT(offsetof(struct mempool_segment, buf), 8);
	CHECK_INT(offsetof(struct mempool_segment, len_bytes), 8 + sizeof(size_t));
}

TEST(op__is_as_it_was)
{
	CHECK_INT(sizeof(struct mempool_op), 64 + 2 * sizeof(size_t));
	CHECK_INT(offsetof(struct mempool_op, cookie), 0);
	CHECK_INT(offsetof(struct mempool_op, lease), 8);
	CHECK_INT(offsetof(struct mempool_op, offset_bytes), 16);
	CHECK_INT(offsetof(struct mempool_op, len_bytes), 24);
	CHECK_INT(offsetof(struct mempool_op, bytes), 32);
	CHECK_INT(offsetof(struct mempool_op, buf), 32 + sizeof(size_t));
	CHECK_INT(offsetof(struct mempool_op, kind), 32 + 2 * sizeof(size_t));
	CHECK_INT(offsetof(struct mempool_op, timeout_ms), 36 + 2 * sizeof(size_t));
	CHECK_INT(offsetof(struct mempool_op, operand), 40 + 2 * sizeof(size_t));
	CHECK_INT(offsetof(struct mempool_op, swap), 48 + 2 * sizeof(size_t));
	CHECK_INT(offsetof(struct mempool_op, reserved), 56 + 2 * sizeof(size_t));
}

TEST(completion__is_as_it_was)
{
	CHECK_INT(sizeof(struct mempool_completion), 16);
	CHECK_INT(offsetof(struct mempool_completion, cookie), 0);
	CHECK_INT(offsetof(struct mempool_completion, code), 8);
	CHECK_INT(offsetof(struct mempool_completion, reserved), 12);
}

TEST(kinds_and_flags__are_what_they_were)
{
	CHECK_INT(MEMPOOL_OP_READ, 1);
	CHECK_INT(MEMPOOL_OP_WRITE, 2);
	CHECK_INT(MEMPOOL_OP_FETCH_ADD, 3);
	CHECK_INT(MEMPOOL_OP_COMPARE_SWAP, 4);
	CHECK_INT(MEMPOOL_BUF_HUGE, 1);
	CHECK_INT(MEMPOOL_BUF_HUGE_ONLY, 2);
	CHECK_INT(MEMPOOL_AUTO_RENEW, 1);
}

/* Codes are kept in files and logs, and compared by programs of other languages. */
TEST(codes_of_operations__are_what_they_were)
{
	CHECK_INT(MEMPOOL_E_UNKNOWN, -1042);
	CHECK_INT(MEMPOOL_E_ALIGN, -1045);
	CHECK_INT(MEMPOOL_E_STATE, -1047);
	CHECK_INT(MEMPOOL_E_CANCELLED, -1048);
}

TEST(rights__are_what_they_were)
{
	CHECK_INT(MEMPOOL_READ, 1);
	CHECK_INT(MEMPOOL_WRITE, 2);
	CHECK_INT(MEMPOOL_ATOMIC, 4);
}
