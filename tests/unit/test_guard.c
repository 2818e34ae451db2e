/* SPDX-License-Identifier: BSD-3-Clause */
/* Who may call: not a forked child, not a callback. */
#include "client/guard.h"

#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "client/include/mempool.h"
#include "tests/unit/test.h"

static int wait_status(pid_t pid)
{
	int status = -1;

	if (pid <= 0 || waitpid(pid, &status, 0) != pid || !WIFEXITED(status))
		return -1;
	return WEXITSTATUS(status);
}

/* In a child; exit status 0: all is as it should be. */
static int look_in_child(void)
{
	if (!guard_in_child() || guard_call() != MEMPOOL_E_STATE ||
	    guard_look() != MEMPOOL_E_STATE || guard_open() != MEMPOOL_E_STATE)
		return 1;
	return strstr(mempool_last_error(), "forked") != NULL ? 0 : 2;
}

TEST(guard__forked_child)
{
	pid_t pid;

	CHECK_INT(guard_open(), 0);
	CHECK_INT(guard_open(), 0);
	CHECK_INT(guard_call(), 0);
	pid = fork();
	if (pid == 0)
		_exit(look_in_child());
	CHECK_INT(wait_status(pid), 0);
	CHECK(!guard_in_child());
	CHECK_INT(guard_call(), 0);
}

/* Handlers of pthread_atfork() would not run. */
TEST(guard__child_of_a_bare_system_call)
{
	pid_t pid;

	CHECK_INT(guard_open(), 0);
	pid = (pid_t)syscall(SYS_clone, SIGCHLD, NULL, NULL, NULL, NULL);
	if (pid == 0)
		_exit(look_in_child());
	CHECK_INT(wait_status(pid), 0);
}

TEST(guard__child_of_a_child)
{
	pid_t pid;

	CHECK_INT(guard_open(), 0);
	pid = fork();
	if (pid == 0) {
		pid = fork();
		_exit(pid == 0 ? look_in_child() : wait_status(pid));
	}
	CHECK_INT(wait_status(pid), 0);
}

/* Of all functions with a handle: what they say when they are given none. */

struct calls {
	int waiting[40]; /* that may wait for something */
	int waiting_count;
	int looking[8]; /* that wait for nothing */
	int looking_count;
};

static void make_calls(struct calls *calls)
{
	struct mempool_completion completion;
	struct mempool_segment segment = {0};
	struct mempool_op op = {0};
	mempool_queue *queue = NULL;
	mempool_lease *lease = NULL;
	mempool_buf *buf = NULL;
	mempool *pool = NULL;
	uint64_t word;
	size_t count;
	uint8_t byte;
	int *r = calls->waiting;

	*r++ = mempool_connect("127.0.0.1", NULL, &pool);
	*r++ = mempool_acquire(NULL, 1, NULL, &lease);
	*r++ = mempool_acquire_many(NULL, 1, NULL, 1, &lease);
	*r++ = mempool_reattach(NULL, NULL, &lease);
	*r++ = mempool_read(NULL, 0, &byte, 1);
	*r++ = mempool_write(NULL, 0, &byte, 1);
	*r++ = mempool_readv(NULL, &segment, 1, NULL);
	*r++ = mempool_writev(NULL, &segment, 1, NULL);
	*r++ = mempool_fetch_add(NULL, 0, 1, &word);
	*r++ = mempool_compare_swap(NULL, 0, 1, 2, &word);
	*r++ = mempool_renew(NULL, 1);
	*r++ = mempool_modify(NULL, 1, MEMPOOL_READ);
	*r++ = mempool_release_many(NULL, 1);
	*r++ = mempool_next_event(NULL, NULL, 0);
	*r++ = mempool_event_fd(NULL);
	*r++ = mempool_buf_alloc(NULL, 1, 0, &buf);
	*r++ = mempool_buf_register(NULL, &byte, 1, &buf);
	*r++ = mempool_cache_limit(NULL, NULL);
	*r++ = mempool_cache_forget(NULL, NULL, 0);
	*r++ = mempool_cache_stats(NULL, NULL);
	*r++ = mempool_queue_create(NULL, NULL, &queue);
	*r++ = mempool_queue_attach(NULL, NULL);
	*r++ = mempool_queue_restore(NULL);
	*r++ = mempool_queue_info(NULL, NULL);
	*r++ = mempool_submit(NULL, &op, 1, &count);
	*r++ = mempool_poll(NULL, &completion, 1, &count);
	*r++ = mempool_cancel(NULL, 0, &count);
	*r++ = mempool_queue_arm(NULL);
	*r++ = mempool_flush(NULL, 0);
	calls->waiting_count = (int)(r - calls->waiting);
	r = calls->looking;
	*r++ = mempool_auto_renew(NULL, 1);
	*r++ = mempool_lease_info(NULL, NULL);
	*r++ = mempool_lease_token(NULL, NULL);
	*r++ = mempool_queue_fd(NULL);
	calls->looking_count = (int)(r - calls->looking);
}

/* Return: the number of the first call that did not say so, from 1 on; 0: all did. */
static int find_other(const int *results, int count, int code)
{
	for (int i = 0; i < count; i++) {
		if (results[i] != code)
			return i + 1;
	}
	return 0;
}

static int call_in_child(void)
{
	struct calls calls;
	int at;

	make_calls(&calls);
	at = find_other(calls.waiting, calls.waiting_count, MEMPOOL_E_STATE);
	if (at == 0 && find_other(calls.looking, calls.looking_count, MEMPOOL_E_STATE) != 0)
		at = 100;
	return at;
}

TEST(guard__every_call_in_a_child)
{
	pid_t pid;

	CHECK_INT(guard_open(), 0);
	pid = fork();
	if (pid == 0)
		_exit(call_in_child());
	CHECK_INT(wait_status(pid), 0);
}

TEST(guard__every_call_in_a_callback)
{
	struct calls calls;

	guard_enter_callback();
	make_calls(&calls);
	guard_leave_callback();
	CHECK_INT(find_other(calls.waiting, calls.waiting_count, MEMPOOL_E_STATE), 0);
	CHECK_INT(find_other(calls.looking, calls.looking_count, MEMPOOL_E_INVALID), 0);
}

static void *call_elsewhere(void *arg)
{
	*(int *)arg = guard_call();
	return NULL;
}

TEST(guard__callback)
{
	pthread_t thread;
	int r = 1;

	guard_enter_callback();
	CHECK(guard_in_callback());
	CHECK_INT(guard_call(), MEMPOOL_E_STATE);
	CHECK_STR(mempool_last_error(), "the call is not allowed in a callback");
	CHECK_INT(guard_open(), MEMPOOL_E_STATE);
	CHECK_INT(guard_look(), 0);
	/* It is about the thread. */
	CHECK_INT(pthread_create(&thread, NULL, call_elsewhere, &r), 0);
	CHECK_INT(pthread_join(thread, NULL), 0);
	CHECK_INT(r, 0);
	guard_leave_callback();
	CHECK_INT(guard_call(), 0);
}
