/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Makes wrong calls and looks at what is left of everything. Owns the daemon, the sessions and
 * what calls take; programs close what they add.
 *
 * Thread: the test's.
 */
#include "tests/misuse/misuse.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/error.h"
#include "tests/integration/accounts.h"
#include "tests/integration/proof.h"
#include "tests/integration/queues.h"

#define UNTOUCHED	0xa5
#define NEIGHBOUR_SEED	4711
#define WRITTEN_BYTES	64u
#define STALE_SENTENCE	"this is about another call"
#define FUNCTION_LENGTH 64

/* What the library exports, made of tests/abi/libmempool.symbols. */
#define SYMBOL(name) #name,
static const char *const symbols[] = {
#include "tests/misuse/symbols.h"
};
#undef SYMBOL

static struct misuse_call *first_call;
static struct misuse_call **last_link = &first_call;

void misuse_register(struct misuse_call *call)
{
	*last_link = call;
	last_link = &call->next;
}

/* The tables. */

/* Return: is a word one of those in a text? */
static bool has_word(const char *text, const char *word)
{
	size_t len = strlen(word);

	for (const char *at = strstr(text, word); at != NULL; at = strstr(at + 1, word)) {
		bool begins = at == text || at[-1] == ' ';

		if (begins && (at[len] == ' ' || at[len] == '\0'))
			return true;
	}
	return false;
}

static bool is_symbol(const char *name)
{
	for (size_t i = 0; i < sizeof(symbols) / sizeof(symbols[0]); i++) {
		if (strcmp(symbols[i], name) == 0)
			return true;
	}
	return false;
}

static bool is_in_table(const char *name)
{
	for (const struct misuse_call *call = first_call; call != NULL; call = call->next) {
		if (has_word(call->functions, name))
			return true;
	}
	return false;
}

/* A call that names one function and calls another would hide what is missing. */
static bool calls_what_it_says(const struct misuse_call *call)
{
	const char *at = strstr(call->source, call->functions);

	/* Operations are submitted by misuse_op(). */
	if (strcmp(call->functions, "mempool_submit") == 0 &&
	    strstr(call->source, "misuse_op(") != NULL)
		return true;
	/* A call, or the name of a function that is to make it. */
	return at != NULL && strchr("(),", at[strlen(call->functions)]) != NULL;
}

/* Each word is the name of a function. */
static void check_names(const char *functions)
{
	char name[FUNCTION_LENGTH];
	int used;

	while (sscanf(functions, "%63s%n", name, &used) == 1) {
		if (!is_symbol(name))
			printf("# the library has no %s\n", name);
		CHECK(is_symbol(name));
		functions += used;
	}
}

void misuse_check_complete(void)
{
	CHECK(sizeof(symbols) / sizeof(symbols[0]) > 40);
	for (size_t i = 0; i < sizeof(symbols) / sizeof(symbols[0]); i++) {
		if (!is_in_table(symbols[i]))
			printf("# there is nothing about %s\n", symbols[i]);
		CHECK(is_in_table(symbols[i]));
	}
	for (const struct misuse_call *call = first_call; call != NULL; call = call->next) {
		check_names(call->functions);
		if (call->run != NULL && !calls_what_it_says(call))
			printf("# %s, %s: calls something else\n", call->functions, call->what);
		CHECK(call->run == NULL || calls_what_it_says(call));
		CHECK(call->run != NULL || strlen(call->what) > 10);
	}
	CHECK(!test_has_failed());
}

/* Calls. */

static void prepare(struct misuse *m)
{
	memset(&m->out, UNTOUCHED, sizeof(m->out));
	m->out.info.size = sizeof(m->out.info);
	m->out.stats.size = sizeof(m->out.stats);
	m->out.queue_info.size = sizeof(m->out.queue_info);
	m->out.event.size = sizeof(m->out.event);
	memset(m->bytes, UNTOUCHED, MISUSE_BYTES);
	m->in_completion = false;
	(void)client_error_raise(MEMPOOL_E_INTERNAL, STALE_SENTENCE);
}

bool misuse_told(void)
{
	const char *sentence = mempool_last_error();

	return sentence[0] != '\0' && strcmp(sentence, STALE_SENTENCE) != 0;
}

/* Static, for it is large: what prepare() has made of the outputs. */
static struct misuse_out untouched;

static void check_failed(struct misuse *m, int code, int expected)
{
	CHECK_INT(code, expected);
	CHECK_MEM(&m->out, &untouched, sizeof(m->out));
	for (uint32_t i = 0; i < MISUSE_BYTES; i++)
		CHECK_INT(m->bytes[i], UNTOUCHED);
	if (m->in_completion)
		return;
	CHECK(misuse_told());
}

/* Return: did it have to fail? */
static bool run_call(struct misuse *m, const struct misuse_call *call)
{
	int expected = call->code(m);
	int code;

	prepare(m);
	memcpy(&untouched, &m->out, sizeof(untouched));
	code = call->run(m);
	if (expected < 0)
		check_failed(m, code, expected);
	else if (code != expected)
		test_fail(__FILE__, __LINE__, "what is allowed has failed");
	if (test_has_failed())
		printf("# %s: %s, %s: %d, expected %d (%s)\n", call->group, call->functions,
		       call->what, code, expected, mempool_last_error());
	return expected < 0;
}

static unsigned int run_group(struct misuse *m, const char *group, bool works)
{
	unsigned int failed = 0;
	unsigned int calls = 0;

	for (const struct misuse_call *call = first_call; call != NULL; call = call->next) {
		if (call->run == NULL || strcmp(call->group, group) != 0)
			continue;
		calls++;
		failed += run_call(m, call);
		if (works && !test_has_failed()) {
			misuse_check_works(m);
			if (test_has_failed())
				printf("# after %s, %s\n", call->functions, call->what);
		}
		if (test_has_failed())
			return failed;
	}
	if (calls == 0)
		test_fail(__FILE__, __LINE__, "there is no such group");
	return failed;
}

unsigned int misuse_run(struct misuse *m, const char *group)
{
	return run_group(m, group, true);
}

unsigned int misuse_run_alone(struct misuse *m, const char *group)
{
	return run_group(m, group, false);
}

int misuse_undo(struct misuse *m, int r)
{
	if (r != 0)
		return r;
	if (m->out.pool != untouched.pool)
		mempool_close(m->out.pool);
	if (m->out.lease != untouched.lease)
		r = mempool_release(m->out.lease);
	if (m->out.leases[0] != untouched.leases[0] && r == 0)
		r = mempool_release_many(m->out.leases, 2);
	if (m->out.buf != untouched.buf && r == 0)
		r = mempool_buf_free(m->out.buf);
	if (m->out.queue != untouched.queue)
		mempool_queue_destroy(m->out.queue);
	return r;
}

/* What calls take. */

struct mempool_op misuse_op_of(const struct misuse *m, mempool_lease *lease, uint32_t kind)
{
	bool is_atomic = kind == MEMPOOL_OP_FETCH_ADD || kind == MEMPOOL_OP_COMPARE_SWAP;

	return (struct mempool_op){
		.lease = lease,
		.len_bytes = is_atomic ? 8 : MISUSE_BYTES,
		.bytes = m->bytes,
		.buf = m->buf,
		.kind = kind,
	};
}

int misuse_op(struct misuse *m, struct mempool_op op)
{
	size_t taken = 0;
	int code = 0;
	int r;

	op.cookie = 0;
	r = mempool_submit(m->queue, &op, 1, &taken);
	if (r < 0)
		return r;
	r = queues_collect(m->queue, 1, &code);
	m->in_completion = true;
	return r < 0 ? r : code;
}

mempool_lease *misuse_acquire(mempool *pool, uint32_t rights, uint64_t ttl_ms)
{
	struct mempool_acquire_opts opts = {
		.size = sizeof(opts), .ttl_ms = ttl_ms, .rights = rights};
	mempool_lease *lease = NULL;

	if (mempool_acquire(pool, MISUSE_BYTES, &opts, &lease) < 0)
		test_fail(__FILE__, __LINE__, mempool_last_error());
	return lease;
}

static void check_content(struct misuse *m)
{
	static uint8_t got[MISUSE_BYTES];

	memset(got, 0, sizeof(got));
	CHECK_INT(mempool_read(m->lease, 0, got, MISUSE_BYTES), 0);
	CHECK_MEM(got, m->content, MISUSE_BYTES);
}

void misuse_check_works(struct misuse *m)
{
	uint32_t at = m->seed++ * WRITTEN_BYTES % MISUSE_BYTES;

	check_content(m);
	harness_fill(m->content + at, WRITTEN_BYTES, m->seed);
	CHECK_INT(mempool_write(m->lease, at, m->content + at, WRITTEN_BYTES), 0);
	memset(m->bytes, 0, MISUSE_BYTES);
	CHECK_INT(misuse_op(m, misuse_op_of(m, m->lease, MEMPOOL_OP_READ)), 0);
	CHECK_MEM(m->bytes, m->content, MISUSE_BYTES);
	CHECK(!test_has_failed());
}

static void fill_neighbour(mempool_lease *lease, uint32_t seed)
{
	uint8_t bytes[MISUSE_BYTES];

	harness_fill(bytes, sizeof(bytes), seed);
	CHECK_INT(mempool_write(lease, 0, bytes, sizeof(bytes)), 0);
}

static void check_neighbour(mempool_lease *lease, uint32_t seed)
{
	uint8_t expected[MISUSE_BYTES];
	uint8_t got[MISUSE_BYTES] = {0};

	harness_fill(expected, sizeof(expected), seed);
	CHECK_INT(mempool_read(lease, 0, got, sizeof(got)), 0);
	CHECK_MEM(got, expected, sizeof(got));
}

void misuse_check_neighbours(struct misuse *m)
{
	check_neighbour(m->before, NEIGHBOUR_SEED);
	check_neighbour(m->behind, NEIGHBOUR_SEED + 1);
}

/* Begin and end. */

static void begin_leases(struct misuse *m)
{
	const uint32_t rw = MEMPOOL_READ | MEMPOOL_WRITE;
	mempool_lease *lease = NULL;
	int r;

	m->before = misuse_acquire(m->neighbour, rw, MISUSE_TTL_MS);
	m->acquire_opts = (struct mempool_acquire_opts){
		.size = sizeof(m->acquire_opts),
		.ttl_ms = MISUSE_TTL_MS,
		.rights = rw | MEMPOOL_ATOMIC,
	};
	r = mempool_acquire(m->pool, MISUSE_BYTES, &m->acquire_opts, &lease);
	if (r == MEMPOOL_E_RIGHTS_DEVICE) {
		m->acquire_opts.rights = rw;
		r = mempool_acquire(m->pool, MISUSE_BYTES, &m->acquire_opts, &lease);
	}
	CHECK_INT(r, 0);
	m->lease = lease;
	m->rights = m->acquire_opts.rights;
	m->behind = misuse_acquire(m->neighbour, rw, MISUSE_TTL_MS);
	CHECK(m->before != NULL && m->behind != NULL);
	CHECK_INT(proof_descriptor(m->before).remote_addr + MISUSE_BYTES,
		  proof_descriptor(m->lease).remote_addr);
	CHECK_INT(proof_descriptor(m->lease).remote_addr + MISUSE_BYTES,
		  proof_descriptor(m->behind).remote_addr);
	fill_neighbour(m->before, NEIGHBOUR_SEED);
	fill_neighbour(m->behind, NEIGHBOUR_SEED + 1);
}

void misuse_begin(struct misuse *m, const char *extra)
{
	const struct harness_options options = {.extra = extra};

	CHECK_INT(harness_start(&m->h, &options), 0);
	m->connect_opts = (struct mempool_connect_opts){
		.size = sizeof(m->connect_opts),
		.timeout_ms = HARNESS_TIMEOUT_MS,
	};
	harness_keys("alpha", &m->keys, &m->connect_opts);
	CHECK_INT(harness_connect("alpha", &m->pool), 0);
	CHECK_INT(harness_connect("beta", &m->neighbour), 0);
	begin_leases(m);
	CHECK(!test_has_failed());
	CHECK_INT(mempool_buf_alloc(m->pool, MISUSE_BYTES, 0, &m->buf), 0);
	m->bytes = mempool_buf_bytes(m->buf);
	CHECK_INT(queues_make(m->pool, &m->queue), 0);
	CHECK_INT(mempool_queue_attach(m->queue, m->lease), 0);
	harness_fill(m->content, MISUSE_BYTES, 1);
	CHECK_INT(mempool_write(m->lease, 0, m->content, MISUSE_BYTES), 0);
	misuse_check_works(m);
}

void misuse_end(struct misuse *m)
{
	misuse_check_works(m);
	misuse_check_neighbours(m);
	CHECK(!test_has_failed());
	CHECK_INT(harness_number(&m->h, "pid"), m->h.pid);
	harness_close(&m->pool);
	harness_close(&m->pool_2);
	harness_close(&m->neighbour);
	accounts_check(&m->h);
	CHECK(!test_has_failed());
	CHECK_INT(harness_stop(&m->h), 0);
}

void misuse_cleanup(struct misuse *m)
{
	harness_close(&m->pool);
	harness_close(&m->pool_2);
	harness_close(&m->neighbour);
	harness_cleanup(&m->h);
}
