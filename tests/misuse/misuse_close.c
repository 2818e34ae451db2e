/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Two threads that end things at once: one and the same, where it is noticed (a session, a buffer),
 * and two of a kind, which is allowed. (A session that is closed while it comes back to the daemon:
 * itest_reconnect; that is cut while it is opened: itest_closing.)
 */
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/integration/queues.h"
#include "tests/misuse/misuse.h"

#define ROUNDS 10

/* Two of a kind; twice the same, where one thing is ended by both. */
struct pair {
	mempool *pools[2];
	mempool_lease *leases[2];
	mempool_buf *bufs[2];
	mempool_queue *queues[2];
};

static struct pair pair;

struct ending {
	pthread_barrier_t *start;
	int (*end)(int which);
	int which;
	int code;
};

static void *run_ending(void *arg)
{
	struct ending *ending = arg;

	(void)pthread_barrier_wait(ending->start);
	ending->code = ending->end(ending->which);
	return NULL;
}

/* Return: whether the two codes are these, in any order; -1 if it could not be tried. */
static int ends_with(int (*end)(int which), int code, int other_code)
{
	struct ending endings[2] = {{.end = end}, {.end = end, .which = 1}};
	pthread_barrier_t start;
	pthread_t threads[2];
	bool as_expected;

	if (pthread_barrier_init(&start, NULL, 2) != 0)
		return -1;
	for (int i = 0; i < 2; i++) {
		endings[i].start = &start;
		if (pthread_create(&threads[i], NULL, run_ending, &endings[i]) != 0)
			return -1;
	}
	for (int i = 0; i < 2; i++)
		(void)pthread_join(threads[i], NULL);
	(void)pthread_barrier_destroy(&start);
	as_expected = (endings[0].code == code && endings[1].code == other_code) ||
		      (endings[1].code == code && endings[0].code == other_code);
	if (!as_expected)
		printf("# codes %d and %d\n", endings[0].code, endings[1].code);
	return as_expected;
}

static int by_mempool_close(int which)
{
	mempool_close(pair.pools[which]);
	return strcmp(mempool_last_error(), "the session has been closed already") == 0
		       ? MEMPOOL_E_STATE
		       : 0;
}

static int by_mempool_release(int which)
{
	return mempool_release(pair.leases[which]);
}

static int by_mempool_release_many(int which)
{
	return mempool_release_many(&pair.leases[which], 1);
}

static int by_mempool_buf_free(int which)
{
	return mempool_buf_free(pair.bufs[which]);
}

static int by_mempool_queue_destroy(int which)
{
	mempool_queue_destroy(pair.queues[which]);
	return 0;
}

static void make(struct misuse *m)
{
	for (int i = 0; i < 2; i++) {
		CHECK_INT(harness_connect("alpha", &pair.pools[i]), 0);
		pair.leases[i] = misuse_acquire(m->pool, m->rights, MISUSE_TTL_MS);
		CHECK(pair.leases[i] != NULL);
		CHECK_INT(mempool_buf_alloc(m->pool, MISUSE_BYTES, 0, &pair.bufs[i]), 0);
		CHECK_INT(queues_make(m->pool, &pair.queues[i]), 0);
		CHECK_INT(mempool_queue_attach(pair.queues[i], pair.leases[i]), 0);
	}
}

/* The session and the buffer are ended by both threads, the other one of each when it is over. */
#define MISUSE_GROUP "same"
MISUSE(mempool_close, by_two_threads, 1, ends_with(by_mempool_close, 0, MEMPOOL_E_STATE))
MISUSE(mempool_buf_free, by_two_threads, 1, ends_with(by_mempool_buf_free, 0, MEMPOOL_E_STATE))

#undef MISUSE_GROUP
#define MISUSE_GROUP "two"
MISUSE(mempool_queue_destroy, two_at_once, 1, ends_with(by_mempool_queue_destroy, 0, 0))
MISUSE(mempool_release, two_at_once, 1, ends_with(by_mempool_release, 0, 0))
MISUSE(mempool_close, two_at_once, 1, ends_with(by_mempool_close, 0, 0))
MISUSE(mempool_buf_free, two_at_once, 1, ends_with(by_mempool_buf_free, 0, 0))

#undef MISUSE_GROUP
#define MISUSE_GROUP "lists"
MISUSE(mempool_release_many, two_at_once, 1, ends_with(by_mempool_release_many, 0, 0))

MISUSE_NONE(noticed,
	    "that one lease or queue is ended by two threads is not noticed, as the header says",
	    "mempool_release mempool_queue_destroy")
MISUSE_NONE(open, "they end nothing",
	    "mempool_connect mempool_acquire mempool_acquire_many mempool_read mempool_write "
	    "mempool_readv mempool_writev mempool_fetch_add mempool_compare_swap mempool_renew "
	    "mempool_auto_renew mempool_modify mempool_lease_info mempool_lease_token "
	    "mempool_reattach mempool_buf_alloc mempool_buf_register mempool_buf_bytes "
	    "mempool_buf_length mempool_cache_limit mempool_cache_forget mempool_cache_stats "
	    "mempool_queue_create mempool_queue_attach mempool_queue_restore mempool_submit "
	    "mempool_poll mempool_cancel mempool_queue_fd mempool_queue_arm mempool_flush "
	    "mempool_queue_info mempool_next_event mempool_event_fd mempool_error_text "
	    "mempool_last_error")

TEST(misuse_close__table_is_complete)
{
	misuse_check_complete();
}

/* Both threads end what is second. */
static void end_the_same(struct misuse *m)
{
	struct pair made;

	make(m);
	CHECK(!test_has_failed());
	made = pair;
	pair.pools[0] = pair.pools[1];
	pair.bufs[0] = pair.bufs[1];
	(void)misuse_run(m, "same");
	CHECK(!test_has_failed());
	mempool_queue_destroy(made.queues[0]);
	mempool_queue_destroy(made.queues[1]);
	CHECK_INT(mempool_release_many(made.leases, 2), 0);
	CHECK_INT(mempool_buf_free(made.bufs[0]), 0);
	mempool_close(made.pools[0]);
	CHECK(harness_wait_number(&m->h, "sessions", 2, 10000));
}

static void end_two(struct misuse *m)
{
	make(m);
	CHECK(!test_has_failed());
	(void)misuse_run(m, "two");
	CHECK(!test_has_failed());
	for (int i = 0; i < 2; i++) {
		pair.leases[i] = misuse_acquire(m->pool, m->rights, MISUSE_TTL_MS);
		CHECK(pair.leases[i] != NULL);
	}
	(void)misuse_run(m, "lists");
	CHECK(harness_wait_number(&m->h, "sessions", 2, 10000));
	CHECK(harness_wait_number(&m->h, "leases.active", 3, 10000));
}

TEST(misuse_close__the_same_by_two_threads)
{
	MISUSE_SCENE(m, NULL);

	for (int round = 0; round < ROUNDS; round++) {
		end_the_same(m);
		CHECK(!test_has_failed());
	}
	misuse_end(m);
}

TEST(misuse_close__two_at_once)
{
	MISUSE_SCENE(m, NULL);

	for (int round = 0; round < ROUNDS; round++) {
		end_two(m);
		CHECK(!test_has_failed());
	}
	misuse_end(m);
}

/* Both find the daemon gone, and neither waits for it longer than a session's time-out. */
TEST(misuse_close__by_two_threads_when_the_daemon_is_gone)
{
	MISUSE_SCENE(m, NULL);

	make(m);
	CHECK(!test_has_failed());
	pair.pools[0] = m->pool;
	m->pool = NULL;
	harness_kill(&m->h);
	CHECK_INT(ends_with(by_mempool_close, 0, 0), 1);
	pair.pools[0] = pair.pools[1];
	CHECK_INT(ends_with(by_mempool_close, MEMPOOL_E_STATE, MEMPOOL_E_STATE), 1);
}

/* A child that closes twice what is its parent's closes no descriptor of another's. */
static int close_in_child(mempool *pool)
{
	int fds[2];
	uint8_t byte;

	mempool_close(pool);
	if (pipe(fds) < 0)
		return 1;
	mempool_close(pool);
	return write(fds[1], "x", 1) == 1 && read(fds[0], &byte, 1) == 1 ? 0 : 2;
}

TEST(misuse_close__twice_in_a_forked_child)
{
	MISUSE_SCENE(m, NULL);
	int status = -1;
	pid_t pid = fork();

	if (pid == 0)
		_exit(close_in_child(m->pool));
	CHECK(pid > 0);
	CHECK_INT(waitpid(pid, &status, 0), pid);
	CHECK_INT(status, 0);
	misuse_end(m);
}
