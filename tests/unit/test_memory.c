/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Buffers over devices that register anything: of which device they are, and what is left of them
 * when they are given back.
 */
#include "client/memory.h"

#include <errno.h>
#include <stdlib.h>

#include "client/pool.h"
#include "common/verbs.h"
#include "tests/unit/test.h"

#define PAGE 4096

static uint32_t registered;	/* now */
static int refuse_to_drop;	/* what unregistering ends with */
static struct ibv_mr *kept[16]; /* by the device, and so no leak of ours */
static uint32_t kept_count;

int __wrap_verbs_reg_mr(struct ibv_pd *on, void *addr, size_t len_bytes, int access,
			struct ibv_mr **ret_mr);
int __wrap_verbs_dereg_mr(struct ibv_mr *mr);
struct ibv_pd *__wrap_ibv_alloc_pd(struct ibv_context *context);

int __wrap_verbs_reg_mr(struct ibv_pd *on, void *addr, size_t len_bytes, int access,
			struct ibv_mr **ret_mr)
{
	(void)access;
	*ret_mr = calloc(1, sizeof(**ret_mr));
	if (*ret_mr == NULL)
		abort();
	**ret_mr = (struct ibv_mr){.pd = on, .addr = addr, .length = len_bytes};
	registered++;
	return 0;
}

int __wrap_verbs_dereg_mr(struct ibv_mr *mr)
{
	if (mr != NULL && refuse_to_drop < 0)
		kept[kept_count++ % 16] = mr;
	if (mr == NULL || refuse_to_drop < 0)
		return refuse_to_drop;
	registered--;
	free(mr);
	return 0;
}

struct ibv_pd *__wrap_ibv_alloc_pd(struct ibv_context *context)
{
	struct ibv_pd *pd = calloc(1, sizeof(*pd));

	if (pd == NULL)
		abort();
	pd->context = context;
	return pd;
}

/* A session that knows two devices, and has used the second last. */
struct scene {
	struct mempool pool;
	struct ibv_context contexts[2];
	struct ibv_pd *pds[2];
};

static void make(struct scene *scene)
{
	struct mempool_cache_opts limits = {
		.size = sizeof(limits), .bytes_max = 1 << 20, .entries_max = 4};

	*scene = (struct scene){0};
	registered = 0;
	refuse_to_drop = 0;
	CHECK_INT(pthread_mutex_init(&scene->pool.lock, NULL), 0);
	CHECK_INT(memory_init(&scene->pool.memory), 0);
	cache_limit(&scene->pool.memory.cache, &limits);
	for (int i = 0; i < 2; i++)
		CHECK_INT(pool_pd(&scene->pool, &scene->contexts[i], &scene->pds[i]), 0);
}

/* The session's end; what it has of devices is left to the end of the test. */
static void finish(struct scene *scene)
{
	memory_deinit(&scene->pool.memory);
	CHECK_INT(registered, 0);
}

TEST(pool_pd__the_one_that_is_used_is_the_present_one)
{
	static struct scene scene;
	struct ibv_pd *pd;

	make(&scene);
	CHECK(scene.pds[0] != scene.pds[1]);
	CHECK(pool_current_pd(&scene.pool) == scene.pds[1]);
	for (int i = 0; i < 6; i++) {
		CHECK_INT(pool_pd(&scene.pool, &scene.contexts[i / 2 % 2], &pd), 0);
		CHECK(pd == scene.pds[i / 2 % 2]);
		CHECK(pool_current_pd(&scene.pool) == pd);
	}
	finish(&scene);
}

/* Of a buffer, used on another device than its own. */
static void use_on(struct scene *scene, struct ibv_pd *pd, mempool_buf *buf,
		   struct memory_hold *ret_hold)
{
	CHECK(memory_find(&scene->pool.memory, pd, mempool_buf_bytes(buf), PAGE, ret_hold));
	CHECK(ret_hold->buf == NULL);
	CHECK(ret_hold->cached != NULL);
}

/* The next memory at that address must not be taken for this. */
TEST(mempool_buf_free__used_on_another_device)
{
	static struct scene scene;
	struct memory_hold hold = {0};
	mempool_buf *buf;

	make(&scene);
	CHECK_INT(mempool_buf_alloc(&scene.pool, PAGE + 1, 0, &buf), 0);
	use_on(&scene, scene.pds[0], buf, &hold);
	CHECK_INT(registered, 2);
	CHECK_INT(mempool_buf_free(buf), MEMPOOL_E_BUSY);
	CHECK_INT(registered, 2);
	CHECK_INT(mempool_buf_length(buf), PAGE + 1);
	memory_drop(&scene.pool.memory, &hold);
	CHECK_INT(registered, 2);
	CHECK_INT(mempool_buf_free(buf), 0);
	CHECK_INT(registered, 0);
	CHECK_INT(mempool_buf_free(buf), MEMPOOL_E_STATE);
	finish(&scene);
}

/* The device has it still: then it stays mapped, and the caller is told. */
TEST(mempool_buf_free__cannot_be_unregistered)
{
	static struct scene scene;
	struct memory_hold hold = {0};
	volatile uint8_t *bytes;
	mempool_buf *buf;

	make(&scene);
	CHECK_INT(mempool_buf_alloc(&scene.pool, PAGE, 0, &buf), 0);
	bytes = mempool_buf_bytes(buf);
	use_on(&scene, scene.pds[0], buf, &hold);
	memory_drop(&scene.pool.memory, &hold);
	refuse_to_drop = -EIO;
	CHECK_INT(mempool_buf_free(buf), MEMPOOL_E_SYSTEM);
	bytes[0] = 1;
	CHECK_INT(mempool_buf_free(buf), MEMPOOL_E_STATE);
	CHECK_INT(mempool_cache_forget(&scene.pool, (const void *)(uintptr_t)bytes, PAGE), 0);
	CHECK_INT(registered, 2);
}

TEST(mempool_cache_forget__cannot_be_unregistered)
{
	static struct scene scene;
	struct memory_hold hold = {0};
	static uint8_t bytes[PAGE];

	make(&scene);
	CHECK(memory_find(&scene.pool.memory, scene.pds[1], bytes, PAGE, &hold));
	CHECK_INT(mempool_cache_forget(&scene.pool, bytes, PAGE), MEMPOOL_E_BUSY);
	memory_drop(&scene.pool.memory, &hold);
	refuse_to_drop = -EIO;
	CHECK_INT(mempool_cache_forget(&scene.pool, bytes, PAGE), MEMPOOL_E_SYSTEM);
	CHECK_INT(mempool_cache_forget(&scene.pool, bytes, PAGE), 0);
}
