/* SPDX-License-Identifier: BSD-3-Clause */
/* Forks of a process that has queues and buffers: the child gets errors, the parent no harm. */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "client/queue.h"
#include "tests/integration/accounts.h"
#include "tests/integration/harness.h"
#include "tests/integration/queues.h"

#define PAGE   4096
#define BYTES  (64 * 1024)
#define ODD    77 /* where memory begins, in the middle of a page that others use, too */
#define TTL_MS 600000

static int wait_child(pid_t pid)
{
	int status;

	if (pid < 0 || waitpid(pid, &status, 0) != pid)
		return -1;
	return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

/* Return: the number of the first call that did not say "state", or 0. */
static int use_in_child(mempool *pool, mempool_queue *queue, mempool_lease *lease, mempool_buf *buf,
			void *bytes)
{
	struct mempool_queue_info info = {.size = sizeof(info)};
	struct mempool_op op = {.kind = MEMPOOL_OP_WRITE, .lease = lease};
	struct mempool_completion completion;
	mempool_queue *other;
	uint64_t word;
	int results[16];
	int count = 0;
	size_t n;

	results[count++] = mempool_submit(queue, &op, 1, &n);
	results[count++] = mempool_poll(queue, &completion, 1, &n);
	results[count++] = mempool_cancel(queue, 0, &n);
	results[count++] = mempool_flush(queue, 1000);
	results[count++] = mempool_queue_arm(queue);
	results[count++] = mempool_queue_fd(queue);
	results[count++] = mempool_queue_info(queue, &info);
	results[count++] = mempool_queue_attach(queue, lease);
	results[count++] = mempool_queue_restore(queue);
	results[count++] = queues_make(pool, &other);
	results[count++] = mempool_fetch_add(lease, 0, 1, &word);
	results[count++] = mempool_buf_free(buf);
	for (int i = 0; i < count; i++) {
		if (results[i] != MEMPOOL_E_STATE)
			return i + 1;
	}
	/* Memory that the device writes to is the parent's alone. */
	if (mempool_buf_bytes(buf) != NULL || msync(bytes, PAGE, MS_ASYNC) == 0 || errno != ENOMEM)
		return 50;
	mempool_queue_destroy(queue);
	mempool_close(pool);
	return 0;
}

TEST(queue_fork__child_uses_the_queue)
{
	HARNESS(h, .pool_size = NULL);
	SESSION(alpha, "alpha");
	mempool_lease *lease;
	mempool_queue *queue;
	mempool_buf *buf;
	void *bytes;
	pid_t pid;

	CHECK_INT(queues_make(alpha, &queue), 0);
	CHECK_INT(mempool_buf_alloc(alpha, PAGE, 0, &buf), 0);
	CHECK_INT(harness_acquire(alpha, PAGE, TTL_MS, &lease), 0);
	CHECK_INT(mempool_queue_attach(queue, lease), 0);
	bytes = mempool_buf_bytes(buf);
	for (int i = 0; i < 4; i++) {
		/* In every other round somebody has the queue at that moment. */
		if (i % 2 == 1)
			(void)pthread_mutex_lock(&queue->lock);
		pid = fork();
		if (pid == 0) {
			alarm(10);
			_exit(use_in_child(alpha, queue, lease, buf, bytes));
		}
		if (i % 2 == 1)
			(void)pthread_mutex_unlock(&queue->lock);
		CHECK_INT(wait_child(pid), 0);
		CHECK_INT(queues_run(queue, lease, MEMPOOL_OP_WRITE, buf, PAGE), 0);
	}
	CHECK_INT(harness_number(&h, "lanes"), 2);
	CHECK_INT(harness_number(&h, "counters.lanes_lost"), 0);
	mempool_queue_destroy(queue);
	CHECK_INT(mempool_buf_free(buf), 0);
	CHECK_INT(mempool_release(lease), 0);
	harness_close(&alpha);
	accounts_finish(&h);
}

/* A child that changes all memory it has got, while the device writes to that of the parent. */
static pid_t fork_and_change(uint8_t *bytes, size_t len_bytes)
{
	pid_t pid = fork();

	if (pid == 0) {
		memset(bytes, 0xcc, len_bytes);
		_exit(0);
	}
	return pid;
}

/* Return: is what came back what was sent? @bytes: 2 * BYTES of the buffer's */
static bool there_and_back(mempool_queue *queue, mempool_lease *lease, mempool_buf *buf,
			   uint8_t *bytes, uint32_t seed)
{
	struct mempool_op op = {
		.lease = lease,
		.len_bytes = BYTES,
		.bytes = bytes,
		.buf = buf,
		.kind = MEMPOOL_OP_WRITE,
	};
	int code = 0;
	size_t n;
	pid_t pid;

	harness_fill(bytes, BYTES, seed);
	memset(bytes + BYTES, 0, BYTES);
	if (mempool_submit(queue, &op, 1, &n) != 0)
		return false;
	pid = fork_and_change(bytes, (size_t)2 * BYTES);
	if (queues_collect(queue, 1, &code) != 0 || code != 0 || wait_child(pid) != 0)
		return false;
	op.kind = MEMPOOL_OP_READ;
	op.bytes = bytes + BYTES;
	if (mempool_submit(queue, &op, 1, &n) != 0)
		return false;
	pid = fork_and_change(bytes, (size_t)2 * BYTES);
	if (queues_collect(queue, 1, &code) != 0 || code != 0 || wait_child(pid) != 0)
		return false;
	return memcmp(bytes, bytes + BYTES, BYTES) == 0;
}

/* Memory of the application's that is registered, in the middle of pages with other data. */
TEST(queue_fork__forks_during_operations)
{
	HARNESS(h, .pool_size = NULL);
	SESSION(alpha, "alpha");
	static uint8_t memory[2 * BYTES + 2 * PAGE];
	uint32_t count = harness_figure(FIGURE_FORKS);
	mempool_lease *lease;
	mempool_queue *queue;
	mempool_buf *buf;

	CHECK_INT(queues_make(alpha, &queue), 0);
	CHECK_INT(mempool_buf_register(alpha, memory + ODD, 2 * BYTES, &buf), 0);
	CHECK_INT(harness_acquire(alpha, BYTES, TTL_MS, &lease), 0);
	CHECK_INT(mempool_queue_attach(queue, lease), 0);
	for (uint32_t i = 0; i < count; i++)
		CHECK(there_and_back(queue, lease, buf, memory + ODD, i + 1));
	mempool_queue_destroy(queue);
	CHECK_INT(mempool_buf_free(buf), 0);
	CHECK_INT(mempool_release(lease), 0);
	harness_close(&alpha);
	accounts_finish(&h);
}
