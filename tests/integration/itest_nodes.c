/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The same across hosts: node 1 has the daemon, node 2 writes and reads. Run it in both at the
 * same time, with NODE=1 and 2 in the environment and a program `vm-barrier PORT` that
 * returns when both have called it (tests/vm/run --nodes 2 has all that).
 */
#include <inttypes.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/lane.h"
#include "client/pool.h"
#include "client/queue.h"
#include "common/clock.h"
#include "tests/integration/accounts.h"
#include "tests/integration/calls.h"
#include "tests/integration/harness.h"
#include "tests/integration/proof.h"
#include "tests/integration/queues.h"
#include "tests/integration/told.h"
#include "tests/integration/verify.h"

#define READY_PORT	 "7001"
#define DONE_PORT	 "7002"
#define HELD_PORT	 "7003"
#define MENDED_PORT	 "7004"
#define BARRIER_LIMIT_MS 240000
#define PAGE		 4096

static bool barrier(const char *port)
{
	static struct harness_output output;
	const char *argv[] = {"vm-barrier", port, NULL};

	return harness_run(argv, BARRIER_LIMIT_MS, &output) == 0 && output.status == 0;
}

static void serve(void)
{
	HARNESS(h, .pool_size = "256MiB");

	CHECK(barrier(READY_PORT));
	CHECK(barrier(DONE_PORT));
	CHECK(harness_wait_number(&h, "sessions", 0, 10000));
	CHECK(harness_wait_number(&h, "pool.free_bytes", 256 * (int64_t)MIB, 10000));
	CHECK(harness_number(&h, "counters.leases_granted") > 0);
	CHECK_INT(harness_number(&h, "counters.destroy_failures"), 0);
	CHECK_INT(harness_stop(&h), 0);
}

static void transfer_all_sizes(void)
{
	static const size_t lens_bytes[] = {1, PAGE, MIB, 64 * MIB};
	static const size_t offsets[] = {0, 1, 4097};
	SESSION(alpha, "alpha");

	for (size_t i = 0; i < sizeof(lens_bytes) / sizeof(lens_bytes[0]); i++) {
		/* The largest takes its time. */
		for (size_t j = lens_bytes[i] > MIB ? 2 : 0; j < 3 && !test_has_failed(); j++)
			verify_transfer(alpha, lens_bytes[i], offsets[j]);
	}
}

static void prove_release(enum ibv_wr_opcode opcode)
{
	SESSION(beta, "beta");
	mempool_lease *lease;
	struct proof proof;
	enum proof_result result;

	CHECK_INT(harness_acquire(beta, PAGE + 1, 600000, &lease), 0);
	CHECK(proof_begin(&proof, beta, lease, opcode));
	CHECK_INT(mempool_release(lease), 0);
	result = proof_end(&proof);
	CHECK_STR(proof_result_name(result), proof_result_name(PROOF_REFUSED));
}

static void use(void)
{
	bool ready = barrier(READY_PORT);

	if (ready) {
		transfer_all_sizes();
		prove_release(IBV_WR_RDMA_READ);
		prove_release(IBV_WR_RDMA_WRITE);
	}
	/* The other end waits for this, whatever has happened. */
	CHECK(barrier(DONE_PORT));
	CHECK(ready);
}

/* 1 or 2; 0: there are no two nodes */
static int node_number(void)
{
	const char *node = getenv("NODE");
	const char *nodes = getenv("NODES");

	if (node == NULL || nodes == NULL || strcmp(nodes, "2") != 0)
		return 0;
	return strcmp(node, "1") == 0 ? 1 : 2;
}

TEST(nodes__write_and_read)
{
	switch (node_number()) {
	case 1:
		serve();
		break;
	case 2:
		use();
		break;
	default:
		SKIP("there are no two nodes");
	}
}

/*
 * The link of node 2 is cut. No event tells the daemon or the client; each finds out by what
 * it does not hear.
 */

#define HEARTBEAT_MS	500
#define HEARTBEATS	"\"heartbeat\": \"500ms\", \"ban_after\": 0"
#define CUT_SLACK_MS	200 /* between the two ends of a barrier, and for a look */
#define CLEAN_MS	500 /* for so few bytes, while another guest is emulated, too */
#define CLIENT_SLACK_MS 500
#define KEPT_BYTES	(64 * 1024)

static void watch_cut(struct harness *h, const char *what)
{
	uint64_t begun_ns = clock_now_ns();
	uint64_t took_ms;

	CHECK_INT(harness_number(h, "leases.active"), 1);
	CHECK(harness_wait_number(h, what, 1, 3 * HEARTBEAT_MS + CUT_SLACK_MS));
	took_ms = (clock_now_ns() - begun_ns) / CLOCK_NS_PER_MS;
	printf("# the daemon missed the client %" PRIu64 " ms after the cut\n", took_ms);
	CHECK(took_ms >= 2 * HEARTBEAT_MS - CUT_SLACK_MS);
}

static void serve_over_cut(void)
{
	HARNESS(h, .limits = HEARTBEATS);
	uint64_t nonzero;

	CHECK(barrier(READY_PORT));
	CHECK(barrier(HELD_PORT));
	watch_cut(&h, "counters.sessions_lost");
	CHECK(harness_wait_number(&h, "pool.free_bytes", 16 * (int64_t)MIB, CLEAN_MS));
	CHECK_INT(harness_count_nonzero(&h, &nonzero), 0);
	CHECK_INT(nonzero, 0);
	CHECK(barrier(MENDED_PORT));
	CHECK(barrier(DONE_PORT));
	accounts_check(&h);
	CHECK_INT(harness_stop(&h), 0);
}

static void serve_orphan(void)
{
	HARNESS(h, .limits = HEARTBEATS, .extra = "\"orphan_grace\": \"2min\"");

	CHECK(barrier(READY_PORT));
	CHECK(barrier(HELD_PORT));
	watch_cut(&h, "leases.orphaned");
	CHECK_INT(harness_number(&h, "pool.leased_bytes"), KEPT_BYTES);
	CHECK(barrier(MENDED_PORT));
	CHECK(barrier(DONE_PORT));
	CHECK_INT(harness_number(&h, "counters.leases_reattached"), 1);
	accounts_check(&h);
	CHECK_INT(harness_stop(&h), 0);
}

static bool set_link(const char *state)
{
	static struct harness_output output;
	const char *argv[] = {"ip", "link", "set", "dev", "eth0", state, NULL};

	return harness_run(argv, 10000, &output) == 0 && output.status == 0;
}

/* Return: is the session lost in time? The link is up again in any case. */
static bool live_through_cut(mempool_lease *lease)
{
	uint64_t begun_ns = clock_now_ns();
	bool cut = set_link("down");
	uint64_t took_ms;
	int r;

	r = mempool_renew(lease, 600000);
	took_ms = (clock_now_ns() - begun_ns) / CLOCK_NS_PER_MS;
	printf("# the client missed the daemon %" PRIu64 " ms after the cut: %s\n", took_ms,
	       mempool_last_error());
	/* Until the daemon has found out, too. */
	harness_sleep_ms(3 * HEARTBEAT_MS + CUT_SLACK_MS + CLEAN_MS);
	return set_link("up") && cut && r == MEMPOOL_E_SESSION_LOST &&
	       took_ms <= 3 * HEARTBEAT_MS + CLIENT_SLACK_MS;
}

static void check_kept(const struct mempool_lease_token *token)
{
	static uint8_t sent[KEPT_BYTES];
	static uint8_t got[KEPT_BYTES];
	SESSION(alpha, "alpha");
	mempool_lease *lease;

	harness_fill(sent, KEPT_BYTES, 9);
	CHECK_INT(mempool_reattach(alpha, token, &lease), 0);
	CHECK_INT(mempool_read(lease, 0, got, KEPT_BYTES), 0);
	CHECK_MEM(got, sent, KEPT_BYTES);
	CHECK_INT(mempool_release(lease), 0);
}

static void check_serves(void)
{
	SESSION(alpha, "alpha");

	verify_transfer(alpha, MIB, 1);
}

static void use_over_cut(bool kept)
{
	static uint8_t bytes[KEPT_BYTES];
	struct mempool_lease_token token;
	mempool *alpha = NULL;
	mempool_lease *lease;
	bool held, lost = false;

	/* The other end waits for each of these, whatever has happened. */
	CHECK(barrier(READY_PORT));
	harness_fill(bytes, KEPT_BYTES, 9);
	held = harness_connect("alpha", &alpha) == 0 &&
	       harness_acquire(alpha, KEPT_BYTES, 600000, &lease) == 0 &&
	       mempool_write(lease, 0, bytes, KEPT_BYTES) == 0 &&
	       mempool_lease_token(lease, &token) == 0;
	CHECK(barrier(HELD_PORT));
	if (held)
		lost = live_through_cut(lease);
	CHECK(barrier(MENDED_PORT));
	if (lost && kept)
		check_kept(&token);
	else if (lost)
		check_serves();
	mempool_close(alpha);
	CHECK(barrier(DONE_PORT));
	CHECK(held);
	CHECK(lost);
}

TEST(nodes__link_is_cut)
{
	switch (node_number()) {
	case 1:
		serve_over_cut();
		break;
	case 2:
		use_over_cut(false);
		break;
	default:
		SKIP("there are no two nodes");
	}
}

TEST(nodes__orphan_after_a_cut)
{
	switch (node_number()) {
	case 1:
		serve_orphan();
		break;
	case 2:
		use_over_cut(true);
		break;
	default:
		SKIP("there are no two nodes");
	}
}

/*
 * The daemon's host falls silent: its link goes down and comes back only when node 2 is done with
 * it. For each kind of call there is a session that meets the silence by just that call.
 */

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
		       (clock_now_ns() - begun_ns) / CLOCK_NS_PER_MS);
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
	printf("# all has ended after %" PRIu64 " ms\n",
	       (clock_now_ns() - begun_ns) / CLOCK_NS_PER_MS);
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
	CHECK(barrier(READY_PORT));
	held = silent_make_all(all) == 0 && harness_connect("alpha", &probe) == 0 &&
	       harness_acquire(probe, PAGE, 600000, &lease) == 0;
	if (held)
		probe->timeout_ms = SILENT_TIMEOUT_MS;
	CHECK(barrier(HELD_PORT));
	begun_ns = clock_now_ns();
	if (held)
		silent = wait_for_silence(lease);
	if (silent)
		call_into_silence(all, &calls);
	mempool_close(probe);
	/* Otherwise it was not silent all the time. */
	CHECK((clock_now_ns() - begun_ns) / CLOCK_NS_PER_MS < SILENT_MS);
	CHECK(barrier(DONE_PORT));
	CHECK(held);
	CHECK(silent);
}

static void serve_silent(void)
{
	HARNESS(h, .pool_size = NULL);
	bool cut, mended;

	CHECK(barrier(READY_PORT));
	CHECK(barrier(HELD_PORT));
	cut = set_link("down");
	harness_sleep_ms(SILENT_MS);
	mended = set_link("up");
	CHECK(barrier(DONE_PORT));
	CHECK(cut && mended);
	accounts_check(&h);
	CHECK_INT(harness_stop(&h), 0);
}

TEST(nodes__host_is_gone)
{
	switch (node_number()) {
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
