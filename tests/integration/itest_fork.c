/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Forks of a process that has a session: one that execs is safe at any time, one that goes on by
 * itself cannot use the session, nor harm it.
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "client/pool.h"
#include "tests/integration/accounts.h"
#include "tests/integration/harness.h"
#include "tests/integration/told.h"

#define TTL_MS 600000
#define BYTES  (200 * 1024 + 13)
#define ODD    77 /* buffers begin there, in the middle of a page that others use, too */

/* Return: the exit status, 128 and the signal, or -1. */
static int wait_child(pid_t pid)
{
	int status;

	if (pid < 0 || waitpid(pid, &status, 0) != pid)
		return -1;
	return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

/* In the child. Return: the number of the first call that did not say "state", or 0. */
static int use_in_child(mempool *pool, mempool_lease *lease, int inherited_fd)
{
	struct mempool_acquire_opts acquire = {
		.size = sizeof(acquire),
		.ttl_ms = 1000,
		.rights = MEMPOOL_READ,
	};
	struct mempool_connect_opts connect = {.size = sizeof(connect)};
	struct mempool_event event = {.size = sizeof(event)};
	struct mempool_lease_token token = {.version = MEMPOOL_LEASE_TOKEN_VERSION};
	struct mempool_lease_info info = {.size = sizeof(info)};
	mempool_lease *other = NULL;
	mempool *fresh = NULL;
	struct harness_keys keys;
	uint8_t byte = 0;
	int results[16];
	int count = 0;

	harness_keys("alpha", &keys, &connect);
	results[count++] = mempool_read(lease, 0, &byte, 1);
	results[count++] = mempool_write(lease, 0, &byte, 1);
	results[count++] = mempool_read(lease, 0, &byte, 0);
	results[count++] = mempool_renew(lease, 1000);
	results[count++] = mempool_auto_renew(lease, 1000);
	results[count++] = mempool_modify(lease, 64, MEMPOOL_READ);
	results[count++] = mempool_lease_info(lease, &info);
	results[count++] = mempool_lease_token(lease, &token);
	results[count++] = mempool_reattach(pool, &token, &other);
	results[count++] = mempool_acquire(pool, 64, &acquire, &other);
	results[count++] = mempool_next_event(pool, &event, 1000);
	results[count++] = mempool_event_fd(pool);
	results[count++] = mempool_release_many(&lease, 1);
	results[count++] = mempool_release(lease);
	results[count++] = mempool_connect(harness_endpoint(), &connect, &fresh);
	for (int i = 0; i < count; i++) {
		if (results[i] != MEMPOOL_E_STATE)
			return i + 1;
	}
	if (strstr(mempool_last_error(), "forked") == NULL)
		return 50;
	mempool_close(pool);
	/* What was ours alone is closed. */
	return fcntl(inherited_fd, F_GETFD) == -1 && errno == EBADF ? 0 : 51;
}

TEST(fork__child_uses_the_handle)
{
	HARNESS(h, .pool_size = NULL);
	SESSION(alpha, "alpha");
	mempool_lease *lease;
	uint8_t sent = 0x42, got = 0;
	pid_t pid;

	CHECK_INT(harness_acquire(alpha, BYTES, TTL_MS, &lease), 0);
	CHECK_INT(mempool_write(lease, 0, &sent, 1), 0);
	for (int i = 0; i < 3; i++) {
		pid = fork();
		if (pid == 0)
			_exit(use_in_child(alpha, lease, alpha->events.fd));
		CHECK_INT(wait_child(pid), 0);
		/* Nothing of it has reached the daemon, or the parent. */
		CHECK_INT(mempool_read(lease, 0, &got, 1), 0);
		CHECK_INT(got, sent);
		CHECK_INT(mempool_renew(lease, TTL_MS), 0);
	}
	CHECK_INT(harness_number(&h, "sessions"), 1);
	CHECK_INT(harness_number(&h, "lanes"), 1);
	CHECK_INT(mempool_release(lease), 0);
	harness_close(&alpha);
	accounts_finish(&h);
}

/* Somebody may hold the session's lock at that moment: the child must not wait for it. */
TEST(fork__while_the_lock_is_held)
{
	HARNESS(h, .pool_size = NULL);
	SESSION(alpha, "alpha");
	mempool_lease *lease;
	pid_t pid;

	CHECK_INT(harness_acquire(alpha, BYTES, TTL_MS, &lease), 0);
	(void)pthread_mutex_lock(&alpha->lock);
	pid = fork();
	if (pid == 0) {
		alarm(10);
		_exit(use_in_child(alpha, lease, alpha->events.fd));
	}
	(void)pthread_mutex_unlock(&alpha->lock);
	CHECK_INT(wait_child(pid), 0);
	CHECK_INT(mempool_release(lease), 0);
	harness_close(&alpha);
	accounts_finish(&h);
}

/* Transfers that go on. */

struct traffic {
	mempool_lease *lease;
	atomic_bool stop;
	atomic_uint done;
	atomic_int failed; /* a code */
	atomic_bool corrupt;
	uint8_t *sent; /* both begin in the middle of a page, */
	uint8_t *got;  /* and end in one */
	uint8_t memory[2 * BYTES + 4 * 4096];
};

static void *traffic_run(void *arg)
{
	struct traffic *t = arg;
	uint32_t seed = 0;
	int r;

	while (!atomic_load(&t->stop)) {
		harness_fill(t->sent, BYTES, ++seed);
		memset(t->got, 0, BYTES);
		r = mempool_write(t->lease, 0, t->sent, BYTES);
		if (r == 0)
			r = mempool_read(t->lease, 0, t->got, BYTES);
		if (r != 0) {
			printf("# %s\n", mempool_last_error());
			atomic_store(&t->failed, r);
			break;
		}
		if (memcmp(t->sent, t->got, BYTES) != 0)
			atomic_store(&t->corrupt, true);
		atomic_fetch_add(&t->done, 1);
	}
	return NULL;
}

/* fork(), and exec in the child. */
static bool fork_exec(void)
{
	pid_t pid = fork();

	if (pid == 0) {
		execlp("true", "true", NULL);
		_exit(127);
	}
	return wait_child(pid) == 0;
}

static bool run_popen(void)
{
	char line[32] = "";
	FILE *file = popen("echo of a child", "re");
	bool good = file != NULL && fgets(line, sizeof(line), file) != NULL &&
		    strcmp(line, "of a child\n") == 0;

	return file != NULL && pclose(file) == 0 && good;
}

static bool run_system(void)
{
	return system("exit 7") == 7 << 8;
}

/* A child that goes on for a while, with memory of its own: it sees and changes only that. */
static bool fork_and_stay(struct traffic *t)
{
	pid_t pid = fork();
	uint8_t copy;
	int wrong = 0;

	if (pid == 0) {
		copy = t->memory[0];
		memset(t->memory, 0xcc, sizeof(t->memory));
		for (size_t i = 0; i < sizeof(t->memory); i++)
			wrong += t->memory[i] != 0xcc;
		_exit(wrong != 0 || copy != 0x11 ||
		      mempool_renew(t->lease, 1000) != MEMPOOL_E_STATE);
	}
	return wait_child(pid) == 0;
}

TEST(fork__during_transfers)
{
	HARNESS(h, .pool_size = NULL);
	SESSION(alpha, "alpha");
	uint32_t count = harness_figure(FIGURE_FORKS);
	static struct traffic t;
	pthread_t thread;

	t = (struct traffic){.sent = t.memory + ODD, .got = t.memory + ODD + BYTES + 4096 + 5};
	t.memory[0] = 0x11;
	CHECK_INT(harness_acquire(alpha, BYTES, TTL_MS, &t.lease), 0);
	CHECK_INT(pthread_create(&thread, NULL, traffic_run, &t), 0);
	for (uint32_t i = 0; i < count && !test_has_failed(); i++) {
		if (!fork_exec() || !run_popen() || !run_system() || !fork_and_stay(&t))
			test_fail(__FILE__, __LINE__, "a child did not do what it should");
	}
	atomic_store(&t.stop, true);
	CHECK_INT(pthread_join(thread, NULL), 0);
	printf("# %u transfers there and back during %u children of each kind\n",
	       atomic_load(&t.done), count);
	CHECK(!test_has_failed());
	CHECK_INT(atomic_load(&t.failed), 0);
	CHECK(!atomic_load(&t.corrupt));
	CHECK(atomic_load(&t.done) > 0);
	CHECK_INT(mempool_release(t.lease), 0);
	harness_close(&alpha);
	accounts_finish(&h);
}

/* Nothing of ours is open in a program that a child execs. */
TEST(fork__descriptors_are_closed_on_exec)
{
	HARNESS(h, .pool_size = NULL);
	struct mempool_connect_opts opts = {.reconnect_ms = 1000};
	__attribute__((cleanup(harness_close))) mempool *alpha = NULL;
	char line[256];
	FILE *file;
	int left = 0;

	CHECK_INT(told_connect("alpha", &opts, &alpha), 0);
	file = popen("ls -l /proc/self/fd", "re");
	CHECK(file != NULL);
	while (fgets(line, sizeof(line), file) != NULL) {
		if (strstr(line, "infiniband") == NULL && strstr(line, "anon_inode") == NULL)
			continue;
		printf("# %s", line);
		left++;
	}
	CHECK_INT(pclose(file), 0);
	CHECK_INT(left, 0);
	harness_close(&alpha);
	accounts_finish(&h);
}
