/* SPDX-License-Identifier: BSD-3-Clause */
#include "client/sessions.h"

#include <pthread.h>
#include <stdatomic.h>

#include "client/pool.h"
#include "tests/unit/test.h"

#define THREADS 4
#define ROUNDS	2000

TEST(sessions_remove__once)
{
	static struct mempool pools[3];

	for (int i = 0; i < 3; i++)
		sessions_add(&pools[i]);
	/* From the middle, the beginning and the end. */
	CHECK(sessions_remove(&pools[1]));
	CHECK(!sessions_remove(&pools[1]));
	CHECK(sessions_remove(&pools[2]));
	CHECK(sessions_remove(&pools[0]));
	for (int i = 0; i < 3; i++)
		CHECK(!sessions_remove(&pools[i]));
	/* Memory that has got a session once more. */
	sessions_add(&pools[1]);
	CHECK(sessions_remove(&pools[1]));
}

/* What is not in the list may be freed memory: here, none at all. */
TEST(sessions_remove__looks_into_none_that_is_not_open)
{
	static struct mempool pool;

	CHECK(!sessions_remove((struct mempool *)8));
	sessions_add(&pool);
	CHECK(!sessions_remove((struct mempool *)8));
	CHECK(sessions_remove(&pool));
}

static struct mempool shared[ROUNDS];
static atomic_uint removed;

static void *remove_all(void *arg)
{
	(void)arg;
	for (int i = 0; i < ROUNDS; i++)
		atomic_fetch_add(&removed, sessions_remove(&shared[i]));
	return NULL;
}

TEST(sessions_remove__by_threads_at_once)
{
	pthread_t threads[THREADS];

	for (int i = 0; i < ROUNDS; i++)
		sessions_add(&shared[i]);
	for (int i = 0; i < THREADS; i++)
		CHECK_INT(pthread_create(&threads[i], NULL, remove_all, NULL), 0);
	for (int i = 0; i < THREADS; i++)
		CHECK_INT(pthread_join(threads[i], NULL), 0);
	CHECK_INT(atomic_load(&removed), ROUNDS);
}
