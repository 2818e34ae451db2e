/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Structs that begin with their size: each size from 0 on, with what the library does not know
 * behind it all zero, or not; members that are reserved, and flags that there are not.
 *
 * (The rule itself: test_options; where members are: abi_public.)
 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "tests/integration/told.h"
#include "tests/misuse/misuse.h"

#define OPTIONS_MAX   4096
#define CONNECT_FIRST offsetof(struct mempool_connect_opts, on_event)
#define ACQUIRE_FIRST offsetof(struct mempool_acquire_opts, flags)
#define UNTOUCHED     0xa5
#define NOT_ALONE     77 /* something was written that must not be */
#define TAIL	      16 /* sizes so much beyond what is known are tried one by one */

/* The size is m->len_bytes. Behind what is known all is 0, but for a byte at m->offset_bytes. */
static _Alignas(16) uint8_t bytes[2 * OPTIONS_MAX];

static const void *options(const struct misuse *m, const void *good, size_t known_bytes)
{
	size_t size = m->len_bytes;

	memset(bytes, 0, sizeof(bytes));
	memcpy(bytes, good, known_bytes);
	memcpy(bytes, &size, sizeof(size));
	if (m->offset_bytes >= known_bytes)
		bytes[m->offset_bytes] = 1;
	return bytes;
}

static int code_of_options(const struct misuse *m, size_t first_bytes, size_t known_bytes)
{
	bool is_known = m->len_bytes >= known_bytes && m->len_bytes <= OPTIONS_MAX;

	if (m->len_bytes == first_bytes)
		return 0;
	if (!is_known || (m->offset_bytes >= known_bytes && m->offset_bytes < m->len_bytes))
		return MEMPOOL_E_INVALID;
	return 0;
}

static const void *connect_options(struct misuse *m)
{
	return options(m, &m->connect_opts, sizeof(m->connect_opts));
}

static const void *acquire_options(struct misuse *m)
{
	return options(m, &m->acquire_opts, sizeof(m->acquire_opts));
}

static const void *cache_options(struct misuse *m)
{
	static const struct mempool_cache_opts good;

	return options(m, &good, sizeof(good));
}

static const void *queue_options(struct misuse *m)
{
	static const struct mempool_queue_opts good;

	return options(m, &good, sizeof(good));
}

/* A struct to be filled in, of that size. */
static void *output(const struct misuse *m)
{
	size_t size = m->len_bytes;

	memset(bytes, UNTOUCHED, sizeof(bytes));
	memcpy(bytes, &size, sizeof(size));
	return bytes;
}

/* Return: @r, or NOT_ALONE if the size has changed, or what was not to be written. */
static int check_output(const struct misuse *m, int r, size_t known_bytes)
{
	size_t size = m->len_bytes;

	if (memcmp(bytes, &size, sizeof(size)) != 0)
		return NOT_ALONE;
	for (size_t i = r < 0 ? sizeof(size) : known_bytes; i < sizeof(bytes); i++) {
		if (bytes[i] != UNTOUCHED)
			return NOT_ALONE;
	}
	return r;
}

static int code_of_output(const struct misuse *m, size_t known_bytes)
{
	return m->len_bytes < known_bytes ? MEMPOOL_E_INVALID : 0;
}

#define SIZE_OF(what) sizeof(struct mempool_##what)

#define MISUSE_GROUP "sessions"
MISUSE(mempool_connect, size, code_of_options(m, CONNECT_FIRST, SIZE_OF(connect_opts)),
       misuse_undo(m, mempool_connect(harness_endpoint(), connect_options(m), &m->out.pool)))

#undef MISUSE_GROUP
#define MISUSE_GROUP "options"
MISUSE(mempool_acquire, size, code_of_options(m, ACQUIRE_FIRST, SIZE_OF(acquire_opts)),
       misuse_undo(m, mempool_acquire(m->pool, 1, acquire_options(m), &m->out.lease)))
MISUSE(mempool_acquire_many, size, code_of_options(m, ACQUIRE_FIRST, SIZE_OF(acquire_opts)),
       misuse_undo(m, mempool_acquire_many(m->pool, 1, acquire_options(m), 2, m->out.leases)))
MISUSE(mempool_cache_limit, size, code_of_options(m, SIZE_OF(cache_opts), SIZE_OF(cache_opts)),
       mempool_cache_limit(m->pool, cache_options(m)))
MISUSE(mempool_queue_create, size, code_of_options(m, SIZE_OF(queue_opts), SIZE_OF(queue_opts)),
       misuse_undo(m, mempool_queue_create(m->pool, queue_options(m), &m->out.queue)))

#undef MISUSE_GROUP
#define MISUSE_GROUP "outputs"
MISUSE(mempool_lease_info, size, code_of_output(m, SIZE_OF(lease_info)),
       check_output(m, mempool_lease_info(m->lease, output(m)), SIZE_OF(lease_info)))
MISUSE(mempool_cache_stats, size, code_of_output(m, SIZE_OF(cache_stats)),
       check_output(m, mempool_cache_stats(m->pool, output(m)), SIZE_OF(cache_stats)))
MISUSE(mempool_queue_info, size, code_of_output(m, SIZE_OF(queue_info)),
       check_output(m, mempool_queue_info(m->queue, output(m)), SIZE_OF(queue_info)))
MISUSE(mempool_next_event, size,
       code_of_output(m, SIZE_OF(event)) != 0 ? MEMPOOL_E_INVALID : MEMPOOL_E_TIMEOUT,
       check_output(m, mempool_next_event(m->pool, output(m), 0), SIZE_OF(event)))

/* Members. */

static const struct mempool_connect_opts *connect_with(struct misuse *m, const char *key_file,
						       const char *daemon_key)
{
	static struct mempool_connect_opts opts;

	opts = m->connect_opts;
	if (key_file != NULL)
		opts.key = NULL;
	opts.key_file = key_file;
	if (daemon_key != NULL)
		opts.daemon_key = daemon_key;
	return &opts;
}

static const struct mempool_acquire_opts *acquire_with(struct misuse *m, uint32_t flags,
						       uint32_t reserved)
{
	static struct mempool_acquire_opts opts;

	opts = m->acquire_opts;
	opts.flags = flags;
	opts.reserved = reserved;
	return &opts;
}

static const struct mempool_lease_token *token_with(uint32_t version, uint32_t reserved)
{
	static struct mempool_lease_token token;

	token = (struct mempool_lease_token){.version = version, .reserved = reserved};
	return &token;
}

static struct mempool_op op_with(struct misuse *m, uint32_t kind, uint64_t reserved)
{
	struct mempool_op op = misuse_op_of(m, m->lease, kind);

	op.reserved = reserved;
	return op;
}

#undef MISUSE_GROUP
#define MISUSE_GROUP "members"
MISUSE(mempool_connect, no_such_key_file, MEMPOOL_E_INVALID,
       mempool_connect(harness_endpoint(), connect_with(m, "/nonexistent", NULL), &m->out.pool))
MISUSE(mempool_connect, key_of_the_daemon_that_is_none, MEMPOOL_E_INVALID,
       mempool_connect(harness_endpoint(), connect_with(m, NULL, "AAAA"), &m->out.pool))
MISUSE(mempool_acquire, unknown_flag, MEMPOOL_E_INVALID,
       mempool_acquire(m->pool, 1, acquire_with(m, 2, 0), &m->out.lease))
MISUSE(mempool_acquire, all_flags, MEMPOOL_E_INVALID,
       mempool_acquire(m->pool, 1, acquire_with(m, UINT32_MAX, 0), &m->out.lease))
MISUSE(mempool_acquire, reserved, MEMPOOL_E_INVALID,
       mempool_acquire(m->pool, 1, acquire_with(m, 0, 1), &m->out.lease))
MISUSE(mempool_acquire_many, unknown_flag, MEMPOOL_E_INVALID,
       mempool_acquire_many(m->pool, 1, acquire_with(m, 2, 0), 2, m->out.leases))
MISUSE(mempool_acquire_many, reserved, MEMPOOL_E_INVALID,
       mempool_acquire_many(m->pool, 1, acquire_with(m, 0, 1u << 31), 2, m->out.leases))
MISUSE(mempool_cache_limit, reserved, MEMPOOL_E_INVALID,
       mempool_cache_limit(m->pool, &(struct mempool_cache_opts){.size = SIZE_OF(cache_opts),
								 .reserved = 1}))
MISUSE(mempool_reattach, version, MEMPOOL_E_INVALID,
       mempool_reattach(m->pool, token_with(MEMPOOL_LEASE_TOKEN_VERSION + 1, 0), &m->out.lease))
MISUSE(mempool_reattach, reserved, MEMPOOL_E_INVALID,
       mempool_reattach(m->pool, token_with(MEMPOOL_LEASE_TOKEN_VERSION, 1), &m->out.lease))
MISUSE(mempool_buf_alloc, unknown_flag, MEMPOOL_E_INVALID,
       mempool_buf_alloc(m->pool, 1, 4, &m->out.buf))
MISUSE(mempool_buf_alloc, all_flags, MEMPOOL_E_INVALID,
       mempool_buf_alloc(m->pool, 1, UINT32_MAX, &m->out.buf))
MISUSE(mempool_buf_alloc, flag_without_the_other, MEMPOOL_E_INVALID,
       mempool_buf_alloc(m->pool, 1, MEMPOOL_BUF_HUGE_ONLY, &m->out.buf))
MISUSE(mempool_submit, reserved, MEMPOOL_E_INVALID, misuse_op(m, op_with(m, MEMPOOL_OP_READ, 1)))
MISUSE(mempool_submit, reserved_high, MEMPOOL_E_INVALID,
       misuse_op(m, op_with(m, MEMPOOL_OP_WRITE, UINT64_C(1) << 63)))
MISUSE(mempool_submit, unknown_kind, MEMPOOL_E_INVALID, misuse_op(m, op_with(m, 5, 0)))
MISUSE(mempool_submit, kind_of_all_bits, MEMPOOL_E_INVALID, misuse_op(m, op_with(m, UINT32_MAX, 0)))

MISUSE_NONE(none, "they take no struct, or one without a size and without what is reserved",
	    "mempool_close mempool_read mempool_write mempool_readv mempool_writev "
	    "mempool_fetch_add mempool_compare_swap mempool_renew mempool_auto_renew "
	    "mempool_release mempool_release_many mempool_lease_token mempool_buf_register "
	    "mempool_buf_free mempool_buf_bytes mempool_buf_length mempool_cache_forget "
	    "mempool_queue_destroy mempool_queue_attach mempool_queue_restore mempool_poll "
	    "mempool_cancel mempool_queue_fd mempool_queue_arm mempool_flush mempool_event_fd "
	    "mempool_error_text mempool_last_error")
MISUSE_NONE(rights, "its rights are in misuse_rights", "mempool_modify")

TEST(misuse_options__table_is_complete)
{
	misuse_check_complete();
}

static void run_size(struct misuse *m, const char *group, uint64_t size, uint64_t nonzero_at)
{
	m->len_bytes = size;
	m->offset_bytes = nonzero_at;
	(void)misuse_run_alone(m, group);
	if (test_has_failed())
		printf("# size %" PRIu64 ", byte %" PRIu64 " is not 0\n", size, nonzero_at);
}

/* Each size up to a few more than the longest struct has, the longest that is allowed, and more. */
static void run_sizes(struct misuse *m, const char *group, size_t known_max_bytes)
{
	static const uint64_t others[] = {OPTIONS_MAX - 1,     OPTIONS_MAX, OPTIONS_MAX + 1,
					  2 * OPTIONS_MAX - 1, UINT32_MAX,  UINT64_C(1) << 63,
					  UINT64_MAX - 7,      UINT64_MAX};

	for (uint64_t size = 0; size <= known_max_bytes + TAIL && !test_has_failed(); size++)
		run_size(m, group, size, 0);
	for (size_t i = 0; i < sizeof(others) / sizeof(others[0]) && !test_has_failed(); i++)
		run_size(m, group, others[i], 0);
	misuse_check_works(m);
}

/* The first byte that is not known, some others, and the first that does not belong to it. */
static void run_tails(struct misuse *m, const char *group, size_t known_max_bytes)
{
	for (uint64_t at = known_max_bytes; at <= known_max_bytes + TAIL && !test_has_failed();
	     at++)
		run_size(m, group, known_max_bytes + TAIL, at);
	if (!test_has_failed())
		run_size(m, group, OPTIONS_MAX, OPTIONS_MAX - 1);
	if (!test_has_failed())
		run_size(m, group, OPTIONS_MAX, OPTIONS_MAX);
	misuse_check_works(m);
}

TEST(misuse_options__sizes)
{
	MISUSE_SCENE(m, NULL);

	run_sizes(m, "options", SIZE_OF(acquire_opts));
	CHECK(!test_has_failed());
	run_tails(m, "options", SIZE_OF(acquire_opts));
	CHECK(!test_has_failed());
	run_sizes(m, "outputs", SIZE_OF(cache_stats));
	CHECK(!test_has_failed());
	(void)misuse_run(m, "members");
	CHECK(!test_has_failed());
	CHECK_INT(harness_number(&m->h, "counters.lanes_lost"), 0);
	misuse_end(m);
}

/* Each size that is right opens a session. */
TEST(misuse_options__sizes_of_a_connect)
{
	MISUSE_SCENE(m, NULL);

	run_sizes(m, "sessions", SIZE_OF(connect_opts));
	CHECK(!test_has_failed());
	run_tails(m, "sessions", SIZE_OF(connect_opts));
	CHECK(!test_has_failed());
	misuse_end(m);
}

/* A size that was never set may say anything; what it claims must not be read. */
TEST(misuse_options__size_beyond_the_memory)
{
	MISUSE_SCENE(m, NULL);
	size_t page_bytes = (size_t)sysconf(_SC_PAGESIZE);
	uint8_t *page = mmap(NULL, 2 * page_bytes, PROT_READ | PROT_WRITE,
			     MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	struct mempool_queue_opts *opts;
	mempool_queue *queue = NULL;

	CHECK(page != MAP_FAILED);
	CHECK_INT(mprotect(page + page_bytes, page_bytes, PROT_NONE), 0);
	opts = (void *)(page + page_bytes - 256);
	opts->size = SIZE_MAX;
	CHECK_INT(mempool_queue_create(m->pool, opts, &queue), MEMPOOL_E_INVALID);
	opts->size = OPTIONS_MAX + 1;
	CHECK_INT(mempool_queue_create(m->pool, opts, &queue), MEMPOOL_E_INVALID);
	CHECK(queue == NULL);
	opts->size = 256;
	CHECK_INT(mempool_queue_create(m->pool, opts, &queue), 0);
	(void)munmap(page, 2 * page_bytes);
	misuse_end(m);
}

/* An event that comes into a struct of a later version. */
TEST(misuse_options__event_in_a_longer_struct)
{
	MISUSE_SCENE(m, NULL);
	struct {
		struct mempool_event event;
		uint64_t later;
	} longer = {.event.size = sizeof(longer), .later = 0x7777};

	m->subject = misuse_acquire(m->pool, MEMPOOL_READ, MISUSE_TTL_MS);
	CHECK(m->subject != NULL);
	CHECK_INT(harness_revoke(&m->h, harness_lease_id(m->subject)), 0);
	CHECK_INT(mempool_next_event(m->pool, &longer.event, 30000), 0);
	CHECK_INT(longer.event.kind, MEMPOOL_EVENT_LEASE_REVOKING);
	CHECK(longer.event.lease == m->subject);
	CHECK_INT(longer.event.size, sizeof(longer));
	CHECK_INT(longer.later, 0x7777);
	misuse_end(m);
}
