/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What submitting to a queue and polling it do not do: allocate, and call the kernel other than
 * for the device's doorbell. Allocations are counted; a thread of its own may call nothing else.
 */
#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <ucontext.h>
#include <unistd.h>

#include "tests/integration/harness.h"

#define TTL_MS	   600000
#define OPERATIONS 2000
#define DEPTH	   32
#define OP_BYTES   512

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define IS_SANITIZED true
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define IS_SANITIZED true
#endif
#endif
#ifndef IS_SANITIZED
#define IS_SANITIZED false

void *__libc_malloc(size_t size);
void *__libc_calloc(size_t count, size_t size);
void *__libc_realloc(void *old, size_t size);
void __libc_free(void *old);

static _Thread_local bool counting;
static atomic_uint allocations;

static void count_allocation(void)
{
	if (counting)
		atomic_fetch_add(&allocations, 1);
}

/* In the place of the C library's, for libraries, too. */

void *malloc(size_t size)
{
	count_allocation();
	return __libc_malloc(size);
}

void *calloc(size_t count, size_t size)
{
	count_allocation();
	return __libc_calloc(count, size);
}

void *realloc(void *old, size_t size)
{
	count_allocation();
	return __libc_realloc(old, size);
}

void free(void *old)
{
	__libc_free(old);
}
#else
static bool counting;
static atomic_uint allocations;
#endif

static atomic_uint calls; /* that are not allowed */
static atomic_int last_call;

static void on_call(int signal, siginfo_t *info, void *context)
{
	ucontext_t *at = context;

	(void)signal;
	atomic_store(&last_call, info->si_syscall);
	atomic_fetch_add(&calls, 1);
#ifdef __x86_64__
	at->uc_mcontext.gregs[REG_RAX] = -ENOSYS;
#else
	(void)at;
#endif
}

#define ALLOW(number)                                        \
	BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (number), 0, 1), \
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)

/*
 * Soft-RoCE's doorbell is a write; a lock that the session's own thread has is waited for with
 * futex; an emulator's clock may not be readable without the kernel. The rest ends the thread.
 */
static bool restrict_thread(void)
{
	static struct sock_filter filter[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		ALLOW(SYS_write),
		ALLOW(SYS_futex),
		ALLOW(SYS_clock_gettime),
		ALLOW(SYS_rt_sigreturn),
		ALLOW(SYS_rt_sigprocmask),
		ALLOW(SYS_madvise),
		ALLOW(SYS_munmap),
		ALLOW(SYS_exit),
		ALLOW(SYS_exit_group),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_TRAP),
	};
	struct sock_fprog program = {
		.len = sizeof(filter) / sizeof(filter[0]),
		.filter = filter,
	};
	struct sigaction action = {.sa_sigaction = on_call, .sa_flags = SA_SIGINFO};

	return sigaction(SIGSYS, &action, NULL) == 0 &&
	       prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
	       prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program, 0, 0) == 0;
}

struct path {
	mempool_queue *queue;
	mempool_lease *lease;
	mempool_buf *buf;
	bool restricted;
	uint32_t submitted;
	uint32_t done;
	uint32_t failures;
};

static void submit(struct path *path)
{
	struct mempool_op ops[DEPTH];
	uint32_t count = 0;
	size_t taken = 0;

	while (path->submitted + count < OPERATIONS &&
	       path->submitted + count - path->done < DEPTH) {
		uint32_t slot = (path->submitted + count) % DEPTH;
		uint32_t kind = (path->submitted + count) % 3;

		ops[count++] = (struct mempool_op){
			.lease = path->lease,
			.offset_bytes = slot * OP_BYTES,
			.len_bytes = kind == 2 ? 8 : OP_BYTES,
			.bytes = (uint8_t *)mempool_buf_bytes(path->buf) + slot * OP_BYTES,
			.buf = path->buf,
			.kind = kind == 0 ? MEMPOOL_OP_READ : MEMPOOL_OP_WRITE,
		};
	}
	if (count == 0)
		return;
	if (mempool_submit(path->queue, ops, count, &taken) < 0 || taken != count)
		path->failures++;
	path->submitted += (uint32_t)taken;
}

static void *run_path(void *arg)
{
	struct mempool_completion completions[DEPTH];
	struct path *path = arg;
	size_t n = 0;

	path->restricted = restrict_thread();
	counting = true;
	while (path->done < OPERATIONS && path->failures == 0) {
		submit(path);
		if (mempool_poll(path->queue, completions, DEPTH, &n) < 0)
			path->failures++;
		for (size_t i = 0; i < n; i++)
			path->failures += completions[i].code != 0;
		path->done += (uint32_t)n;
	}
	counting = false;
	return NULL;
}

TEST(datapath__no_allocation_and_no_call_but_the_doorbell)
{
	HARNESS(h, .pool_size = NULL);
	SESSION(alpha, "alpha");
	struct mempool_queue_opts opts = {.size = sizeof(opts), .depth = DEPTH};
	struct path path = {0};
	pthread_t thread;

	if (IS_SANITIZED)
		SKIP("sanitizers allocate, and call the kernel");
	CHECK_INT(harness_acquire(alpha, DEPTH * OP_BYTES, TTL_MS, &path.lease), 0);
	CHECK_INT(mempool_buf_alloc(alpha, DEPTH * OP_BYTES, 0, &path.buf), 0);
	CHECK_INT(mempool_queue_create(alpha, &opts, &path.queue), 0);
	CHECK_INT(mempool_queue_attach(path.queue, path.lease), 0);
	CHECK_INT(pthread_create(&thread, NULL, run_path, &path), 0);
	CHECK_INT(pthread_join(thread, NULL), 0);
	printf("# %u operations: %u allocations, %u forbidden calls (last: %d)\n", path.done,
	       atomic_load(&allocations), atomic_load(&calls), atomic_load(&last_call));
	CHECK(path.restricted);
	CHECK_INT(path.failures, 0);
	CHECK_INT(path.done, OPERATIONS);
	CHECK_INT(atomic_load(&allocations), 0);
	CHECK_INT(atomic_load(&calls), 0);
	mempool_queue_destroy(path.queue);
	harness_close(&alpha);
	CHECK_INT(harness_stop(&h), 0);
}

/* That the two count at all. */
static void *break_rules(void *arg)
{
	bool *restricted = arg;
	void *volatile memory;

	*restricted = restrict_thread();
	counting = true;
	memory = malloc(100);
	(void)syscall(SYS_getppid);
	counting = false;
	free(memory);
	return NULL;
}

TEST(datapath__what_is_forbidden_is_noticed)
{
	bool restricted = false;
	pthread_t thread;

	if (IS_SANITIZED)
		SKIP("sanitizers allocate, and call the kernel");
	CHECK_INT(pthread_create(&thread, NULL, break_rules, &restricted), 0);
	CHECK_INT(pthread_join(thread, NULL), 0);
	CHECK(restricted);
	CHECK(atomic_exchange(&allocations, 0) == 1);
	CHECK(atomic_exchange(&calls, 0) >= 1);
	CHECK_INT(atomic_load(&last_call), SYS_getppid);
}
