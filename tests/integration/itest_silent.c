/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The daemon's host falls silent: its link goes down and comes back only when node 2 is done with
 * it (nodes.h). For each kind of call there is a session that meets the silence by just that call.
 */
#include <inttypes.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include "client/lane.h"
#include "client/pool.h"
#include "client/queue.h"
#include "common/clock.h"
#include "tests/integration/accounts.h"
#include "tests/integration/calls.h"
#include "tests/integration/harness.h"
#include "tests/integration/nodes.h"
#include "tests/integration/queues.h"
#include "tests/integration/told.h"

#define PAGE		  4096
#define SILENT_MS	  16000
#define SILENT_TIMEOUT_MS 1500
#define SILENT_LIMIT_MS	  (SILENT_TIMEOUT_MS + 1000 + 1500) /* to collect what is posted; slack */
#define SILENT_BYTES	  (64 * 1024)

struct silent {
	mempool *pool;
	mempool_lease *lease;
	mempool_lease *idle; /* that the queue does not know */
	mempool_queue *queue;
	mempool_buf *buf;
	struct mempool_acquire_opts opts;
	struct mempool_lease_token token; /* of another's lease */
	struct calls *calls;
	const struct silent_kind *kind;
	pthread_t thread;
	int codes[2];
};

static int silent_acquire(struct silent *s)
{
	mempool_lease *lease;

	return mempool_acquire(s->pool, PAGE, &s->opts, &lease);
}

static int silent_acquire_many(struct silent *s)
{
	mempool_lease *leases[2];

	return mempool_acquire_many(s->pool, PAGE, &s->opts, 2, leases);
}

static int silent_read(struct silent *s)
{
	uint8_t bytes[PAGE];

	return mempool_read(s->lease, 0, bytes, sizeof(bytes));
}

static int silent_write(struct silent *s)
{
	uint8_t bytes[PAGE] = {1};

	return mempool_write(s->lease, 0, bytes, sizeof(bytes));
}

static int silent_list(struct silent *s)
{
	uint8_t bytes[PAGE] = {1};
	struct mempool_segment list[] = {{0, bytes, PAGE}, {PAGE, bytes, PAGE}};
	size_t done = 9;
	int r = mempool_writev(s->lease, list, 2, &done);

	return r == 0 || done < 2 ? r : MEMPOOL_E_INVALID;
}

static int silent_without_copy(struct silent *s)
{
	return mempool_read(s->lease, 0, mempool_buf_bytes(s->buf), SILENT_BYTES);
}

static int silent_add(struct silent *s)
{
	uint64_t old;

	return mempool_fetch_add(s->lease, 0, 1, &old);
}

static int silent_swap(struct silent *s)
{
	uint64_t old;

	return mempool_compare_swap(s->lease, 8, 0, 1, &old);
}

static int silent_renew(struct silent *s)
{
	return mempool_renew(s->lease, 600000);
}

static int silent_modify(struct silent *s)
{
	return mempool_modify(s->lease, PAGE, MEMPOOL_READ);
}

/* The handle is gone whatever happens. */
static int silent_release(struct silent *s)
{
	mempool_lease **lease = s->lease != NULL ? &s->lease : &s->idle;
	int r = mempool_release(*lease);

	*lease = NULL;
	return r;
}

static int silent_release_many(struct silent *s)
{
	mempool_lease *leases[] = {s->lease, s->idle};
	int r = s->lease == NULL ? MEMPOOL_E_SESSION_LOST : mempool_release_many(leases, 2);

	s->lease = s->idle = NULL;
	return r;
}

static int silent_reattach(struct silent *s)
{
	mempool_lease *lease;

	return mempool_reattach(s->pool, &s->token, &lease);
}

static int silent_queue(struct silent *s)
{
	mempool_queue *queue;

	return queues_make(s->pool, &queue);
}

static int silent_attach(struct silent *s)
{
	return mempool_queue_attach(s->queue, s->idle);
}

/* Its lane is lost first. */
static int silent_restore(struct silent *s)
{
	(void)pthread_mutex_lock(&s->pool->lock);
	lane_lose(&s->queue->lane, MEMPOOL_E_LANE, "lost by the test");
	(void)pthread_mutex_unlock(&s->pool->lock);
	return mempool_queue_restore(s->queue);
}

static int silent_operation(struct silent *s)
{
	return queues_run(s->queue, s->lease, MEMPOOL_OP_READ, s->buf, SILENT_BYTES);
}

static int silent_queued_add(struct silent *s)
{
	return queues_run(s->queue, s->lease, MEMPOOL_OP_FETCH_ADD, s->buf, sizeof(uint64_t));
}

static int silent_connect(struct silent *s)
{
	struct mempool_connect_opts opts = {.timeout_ms = SILENT_TIMEOUT_MS};
	mempool *pool = NULL;
	int r = told_connect("alpha", &opts, &pool);

	(void)s;
	mempool_close(pool);
	return r;
}

static const struct silent_kind {
	const char *name;
	enum call call;
	int (*run)(struct silent *silent);
	bool is_atomic;
} silent_kinds[] = {
	{"acquire", CALL_ACQUIRE, silent_acquire, false},
	{"acquire_many", CALL_ACQUIRE, silent_acquire_many, false},
	{"read", CALL_TRANSFER, silent_read, false},
	{"write", CALL_TRANSFER, silent_write, false},
	{"writev", CALL_TRANSFER, silent_list, false},
	{"read to a buffer", CALL_TRANSFER, silent_without_copy, false},
	{"fetch_add", CALL_ATOMIC, silent_add, true},
	{"compare_swap", CALL_ATOMIC, silent_swap, true},
	{"renew", CALL_RENEW, silent_renew, false},
	{"modify", CALL_MODIFY, silent_modify, false},
	{"release", CALL_RELEASE, silent_release, false},
	{"release_many", CALL_RELEASE, silent_release_many, false},
	{"reattach", CALL_REATTACH, silent_reattach, false},
	{"queue_create", CALL_QUEUE, silent_queue, false},
	{"queue_attach", CALL_QUEUE, silent_attach, false},
	{"queue_restore", CALL_QUEUE, silent_restore, false},
	{"operation", CALL_OPERATION, silent_operation, false},
	{"queued fetch_add", CALL_OPERATION, silent_queued_add, true},
	{"connect", CALL_CONNECT, silent_connect, false},
};

#define SILENT_KINDS (sizeof(silent_kinds) / sizeof(silent_kinds[0]))

/*
 * Calls are to end soon from now on: by their deadlines; or, with @impatient, by devices that give
 * up before. Return: 0 or a code.
 */
static int silent_hurry(struct silent *s, bool impatient)
{
	uint64_t until_ns = clock_add_ms(clock_now_ns(), 20000);
	int r;

	(void)pthread_mutex_lock(&s->pool->lock);
	s->pool->timeout_ms = SILENT_TIMEOUT_MS;
	if (impatient) {
		s->pool->lane.cm.patience_ms = SILENT_TIMEOUT_MS / 2;
		s->queue->lane.cm.patience_ms = SILENT_TIMEOUT_MS / 2;
		lane_lose(&s->pool->lane, MEMPOOL_E_LANE, "lost by the test");
		lane_lose(&s->queue->lane, MEMPOOL_E_LANE, "lost by the test");
	}
	(void)pthread_mutex_unlock(&s->pool->lock);
	do {
		r = silent_write(s);
		if (r == 0)
			r = mempool_queue_restore(s->queue);
	} while (r != 0 && clock_now_ns() < until_ns);
	return r;
}

/* Return: 0 or a code. Every other session comes back, or would; and they are of two kinds. */
static int silent_make(struct silent *s, size_t index)
{
	struct mempool_connect_opts opts = {
		.reconnect_ms = index % 2 == 0 ? UINT32_MAX : 0,
	};
	int r;

	s->kind = &silent_kinds[index];
	s->opts = (struct mempool_acquire_opts){
		.size = sizeof(s->opts),
		.ttl_ms = 600000,
		.rights = MEMPOOL_READ | MEMPOOL_WRITE | MEMPOOL_ATOMIC,
	};
	r = told_connect("alpha", &opts, &s->pool);
	if (r == 0)
		r = mempool_acquire(s->pool, SILENT_BYTES, &s->opts, &s->lease);
	if (r == MEMPOOL_E_RIGHTS_DEVICE) {
		s->opts.rights = MEMPOOL_READ | MEMPOOL_WRITE;
		r = mempool_acquire(s->pool, SILENT_BYTES, &s->opts, &s->lease);
	}
	if (r == 0)
		r = mempool_acquire(s->pool, PAGE, &s->opts, &s->idle);
	if (r == 0)
		r = queues_make(s->pool, &s->queue);
	if (r == 0)
		r = mempool_queue_attach(s->queue, s->lease);
	if (r == 0)
		r = mempool_buf_alloc(s->pool, SILENT_BYTES, 0, &s->buf);
	return r == 0 ? silent_hurry(s, index / 2 % 2 == 0) : r;
}

/* The same call twice: it finds out, and is made when that is known; then all is closed. */
static void *silent_run(void *arg)
{
	struct silent *s = arg;
	bool is_possible = !s->kind->is_atomic || (s->opts.rights & MEMPOOL_ATOMIC) != 0;
	uint64_t begun_ns;

	for (int i = 0; i < 2 && is_possible; i++) {
		begun_ns = clock_now_ns();
		s->codes[i] = calls_note(s->calls, s->kind->call, begun_ns, s->kind->run(s));
		printf("# %s: %d after %" PRIu64 " ms\n", s->kind->name, s->codes[i],
		       harness_since_ms(begun_ns));
	}
	begun_ns = clock_now_ns();
	mempool_close(s->pool);
	(void)calls_note(s->calls, CALL_CLOSE, begun_ns, 0);
	return NULL;
}

/* Until a call to the other end fails. */
static bool wait_for_silence(mempool_lease *lease)
{
	uint64_t until_ns = clock_add_ms(clock_now_ns(), 10000);
	uint8_t byte;

	while (mempool_read(lease, 0, &byte, 1) == 0) {
		if (clock_now_ns() >= until_ns)
			return false;
		harness_sleep_ms(20);
	}
	return true;
}

static void call_into_silence(struct silent *all, struct calls *calls)
{
	uint64_t begun_ns = clock_now_ns();
	size_t running = 0;

	for (size_t i = 0; i < SILENT_KINDS; i++) {
		all[i].calls = calls;
		running += pthread_create(&all[i].thread, NULL, silent_run, &all[i]) == 0;
	}
	CHECK_INT(running, SILENT_KINDS);
	for (size_t i = 0; i < SILENT_KINDS; i++)
		CHECK_INT(pthread_join(all[i].thread, NULL), 0);
	printf("# all has ended after %" PRIu64 " ms\n", harness_since_ms(begun_ns));
	calls_print(calls);
	CHECK(!atomic_load(&calls->wrong));
	for (size_t i = 0; i < SILENT_KINDS; i++) {
		bool is_possible = !all[i].kind->is_atomic || all[i].opts.rights & MEMPOOL_ATOMIC;

		/* None has succeeded: the silence was there. */
		CHECK(!is_possible || (all[i].codes[0] < 0 && all[i].codes[1] < 0));
	}
}

static int silent_make_all(struct silent *all)
{
	int r = 0;

	for (size_t i = 0; i < SILENT_KINDS && r == 0; i++) {
		r = silent_make(&all[i], i);
		if (r == 0 && i > 0)
			r = mempool_lease_token(all[0].lease, &all[i].token);
	}
	return r;
}

static void use_silent(void)
{
	static struct silent all[SILENT_KINDS];
	static struct calls calls = {.limit_ms = SILENT_LIMIT_MS};
	mempool *probe = NULL;
	mempool_lease *lease;
	uint64_t begun_ns;
	bool held, silent = false;

	/* The other end waits for each of these, whatever has happened. */
	CHECK(nodes_barrier(NODES_READY_PORT));
	held = silent_make_all(all) == 0 && harness_connect("alpha", &probe) == 0 &&
	       harness_acquire(probe, PAGE, 600000, &lease) == 0;
	if (held)
		probe->timeout_ms = SILENT_TIMEOUT_MS;
	CHECK(nodes_barrier(NODES_HELD_PORT));
	begun_ns = clock_now_ns();
	if (held)
		silent = wait_for_silence(lease);
	if (silent)
		call_into_silence(all, &calls);
	mempool_close(probe);
	/* Otherwise it was not silent all the time. */
	CHECK(harness_since_ms(begun_ns) < SILENT_MS);
	CHECK(nodes_barrier(NODES_DONE_PORT));
	CHECK(held);
	CHECK(silent);
}

static void serve_silent(void)
{
	HARNESS(h, .pool_size = NULL);
	bool cut, mended;

	CHECK(nodes_barrier(NODES_READY_PORT));
	CHECK(nodes_barrier(NODES_HELD_PORT));
	cut = nodes_set_link("down");
	harness_sleep_ms(SILENT_MS);
	mended = nodes_set_link("up");
	CHECK(nodes_barrier(NODES_DONE_PORT));
	CHECK(cut && mended);
	accounts_check(&h);
	CHECK_INT(harness_stop(&h), 0);
}

TEST(silent__every_call_ends_in_time)
{
	switch (nodes_number()) {
	case 1:
		serve_silent();
		break;
	case 2:
		use_silent();
		break;
	default:
		SKIP("there are no two nodes");
	}
}
