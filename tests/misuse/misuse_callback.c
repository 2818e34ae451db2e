/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Callbacks that call back in: each function, with what belongs to the session whose callback it
 * is, and with what belongs to another. Those that the header allows work, the others do nothing.
 */
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include "tests/integration/queues.h"
#include "tests/integration/told.h"
#include "tests/misuse/every_call.h"

#define MISUSE_GROUP "callback"
#define LATE_MS	     30000

static const struct every_call_code allowed[] = {
	{"mempool_lease_info", 0}, {"mempool_lease_token", 0}, {"mempool_auto_renew", 0},
	{"mempool_buf_bytes", 0},  {"mempool_buf_length", 0},  {"mempool_queue_fd", 0},
	{"mempool_error_text", 0}, {"mempool_last_error", 0},  {NULL, 0},
};

#define CALLBACK(function, ...)                                                             \
	MISUSE(function, in_callback, every_call_code(allowed, #function, MEMPOOL_E_STATE), \
	       __VA_ARGS__)
EVERY_CALL(CALLBACK)
EVERY_ENDING_CALL(CALLBACK)

/* On the session's thread, while the test's waits. */
struct heard {
	struct misuse own;   /* with what is of the session */
	struct misuse other; /* with what is of another one */
	unsigned int refused;
	atomic_bool done;
};

static void hear(const struct mempool_event *event, void *context)
{
	struct heard *heard = context;

	if (event->kind != MEMPOOL_EVENT_LEASE_ENDED)
		return;
	heard->refused = misuse_run_alone(&heard->own, "callback");
	if (!test_has_failed())
		heard->refused += misuse_run_alone(&heard->other, "callback");
	atomic_store(&heard->done, true);
}

/* What calls take, of the session whose callback it is. */
static void begin_own(struct misuse *m)
{
	m->subject = misuse_acquire(m->pool, m->rights, MISUSE_TTL_MS);
	CHECK(m->subject != NULL);
	CHECK_INT(mempool_lease_token(m->subject, &m->token), 0);
	CHECK_INT(mempool_buf_alloc(m->pool, MISUSE_BYTES, 0, &m->buf), 0);
	m->bytes = mempool_buf_bytes(m->buf);
	CHECK_INT(queues_make(m->pool, &m->queue), 0);
	CHECK_INT(mempool_queue_attach(m->queue, m->subject), 0);
	m->lease = m->subject;
	memset(m->content, 0, MISUSE_BYTES);
}

TEST(misuse_callback__table_is_complete)
{
	misuse_check_complete();
}

TEST(misuse_callback__each_function)
{
	MISUSE_SCENE(m, NULL);
	static struct heard heard;
	struct mempool_connect_opts opts = {.on_event = hear, .on_event_context = &heard};
	mempool_lease *victim;

	CHECK_INT(told_connect("alpha", &opts, &m->pool_2), 0);
	m->subject = m->lease;
	CHECK_INT(mempool_lease_token(m->subject, &m->token), 0);
	heard.other = *m;
	heard.own = *m;
	heard.own.pool = m->pool_2;
	begin_own(&heard.own);
	CHECK(!test_has_failed());
	victim = misuse_acquire(m->pool_2, MEMPOOL_READ, MISUSE_TTL_MS);
	CHECK(victim != NULL);
	CHECK_INT(harness_revoke(&m->h, harness_lease_id(victim)), 0);
	for (int i = 0; i < LATE_MS / 5 && !atomic_load(&heard.done); i++)
		harness_sleep_ms(5);
	CHECK(atomic_load(&heard.done));
	CHECK(!test_has_failed());
	printf("# %u calls were refused in a callback\n", heard.refused);
	CHECK_INT(heard.refused, 2 * (41 - 8));
	/* Both sessions are at work, and this thread is not in a callback. */
	misuse_check_works(&heard.own);
	misuse_check_works(m);
	CHECK_INT(mempool_release(victim), MEMPOOL_E_REVOKED);
	CHECK_INT(mempool_release(heard.own.subject), 0);
	misuse_end(m);
}
