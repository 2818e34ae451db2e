/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Which range an address lies in: borders, overlaps, and many random ranges against a plain
 * array.
 */
#include "client/registry.h"

#include <errno.h>

#include "tests/unit/random.h"
#include "tests/unit/test.h"

static int values[64];

static void release(struct registry *registry)
{
	registry_deinit(registry);
}

#define REGISTRY(name) __attribute__((cleanup(release))) struct registry name = {0}

TEST(registry_find__borders)
{
	REGISTRY(r);

	CHECK(registry_find(&r, 100, 1) == NULL);
	CHECK_INT(registry_insert(&r, 100, 50, &values[0]), 0);
	CHECK(registry_find(&r, 100, 50) == &values[0]);
	CHECK(registry_find(&r, 100, 1) == &values[0]);
	CHECK(registry_find(&r, 149, 1) == &values[0]);
	CHECK(registry_find(&r, 99, 1) == NULL);
	CHECK(registry_find(&r, 99, 2) == NULL);
	CHECK(registry_find(&r, 150, 1) == NULL);
	CHECK(registry_find(&r, 149, 2) == NULL);
	CHECK(registry_find(&r, 100, 51) == NULL);
	CHECK(registry_find(&r, 101, UINT64_MAX) == NULL);
	CHECK(registry_find(&r, 120, 0) == NULL);
}

/* Two that touch are two: nothing is found that lies in both. */
TEST(registry_find__neighbours)
{
	REGISTRY(r);

	CHECK_INT(registry_insert(&r, 100, 50, &values[0]), 0);
	CHECK_INT(registry_insert(&r, 150, 50, &values[1]), 0);
	CHECK(registry_find(&r, 149, 1) == &values[0]);
	CHECK(registry_find(&r, 150, 1) == &values[1]);
	CHECK(registry_find(&r, 149, 2) == NULL);
}

TEST(registry_insert__refused)
{
	REGISTRY(r);

	CHECK_INT(registry_insert(&r, 100, 0, &values[0]), -EINVAL);
	CHECK_INT(registry_insert(&r, UINT64_MAX, 2, &values[0]), -EINVAL);
	CHECK_INT(registry_insert(&r, 1, UINT64_MAX, &values[0]), 0);
	registry_remove(&r, 1);
	CHECK_INT(registry_insert(&r, 2, UINT64_MAX, &values[0]), -EINVAL);
	CHECK_INT(registry_insert(&r, UINT64_MAX, 1, &values[0]), 0);
	CHECK_INT(registry_insert(&r, 100, 50, &values[1]), 0);
	CHECK_INT(registry_insert(&r, 100, 50, &values[2]), -EEXIST);
	CHECK_INT(registry_insert(&r, 99, 2, &values[2]), -EEXIST);
	CHECK_INT(registry_insert(&r, 149, 1, &values[2]), -EEXIST);
	CHECK_INT(registry_insert(&r, 0, 1000, &values[2]), -EEXIST);
	CHECK_INT(registry_insert(&r, 99, 1, &values[2]), 0);
	CHECK_INT(registry_insert(&r, 150, 1, &values[3]), 0);
	CHECK_INT(r.count, 4);
}

TEST(registry_overlap__the_first)
{
	REGISTRY(r);

	CHECK_INT(registry_insert(&r, 300, 10, &values[1]), 0);
	CHECK_INT(registry_insert(&r, 100, 10, &values[0]), 0);
	CHECK(registry_overlap(&r, 0, 100) == NULL);
	CHECK(registry_overlap(&r, 0, 101) == &values[0]);
	CHECK(registry_overlap(&r, 109, 1000) == &values[0]);
	CHECK(registry_overlap(&r, 110, 190) == NULL);
	CHECK(registry_overlap(&r, 110, 191) == &values[1]);
	CHECK(registry_overlap(&r, 50, UINT64_MAX) == &values[0]);
	CHECK(registry_overlap(&r, 105, 0) == NULL);
}

TEST(registry_remove__what_is_there)
{
	REGISTRY(r);

	registry_remove(&r, 100);
	CHECK_INT(registry_insert(&r, 100, 10, &values[0]), 0);
	registry_remove(&r, 101);
	CHECK_INT(r.count, 1);
	registry_remove(&r, 100);
	CHECK_INT(r.count, 0);
	CHECK(registry_find(&r, 100, 1) == NULL);
}

#define SPACE 4096

/* A plain map of each address. */
struct model {
	uint8_t at[SPACE]; /* 0, or the number of the range */
	uint32_t start[64];
	uint32_t len[64]; /* 0: not there */
};

static bool model_is_free(const struct model *model, uint32_t start, uint32_t len)
{
	for (uint32_t i = start; i < start + len; i++) {
		if (model->at[i] != 0)
			return false;
	}
	return true;
}

static void model_set(struct model *model, uint32_t number, uint8_t value)
{
	for (uint32_t i = 0; i < model->len[number]; i++)
		model->at[model->start[number] + i] = value;
}

static void step(struct random *random, struct model *model, struct registry *r)
{
	uint32_t number = 1 + (uint32_t)random_below(random, 63);
	uint32_t start = (uint32_t)random_below(random, SPACE - 128);
	uint32_t len = 1 + (uint32_t)random_below(random, 100);
	uint8_t found;

	if (model->len[number] > 0) {
		registry_remove(r, model->start[number]);
		model_set(model, number, 0);
		model->len[number] = 0;
	} else if (model_is_free(model, start, len)) {
		CHECK_INT(registry_insert(r, start, len, &values[number]), 0);
		model->start[number] = start;
		model->len[number] = len;
		model_set(model, number, (uint8_t)number);
	} else {
		CHECK_INT(registry_insert(r, start, len, &values[number]), -EEXIST);
	}
	start = (uint32_t)random_below(random, SPACE);
	found = model->at[start];
	CHECK(registry_find(r, start, 1) == (found != 0 ? &values[found] : NULL));
}

TEST(registry__random_against_a_map)
{
	struct random random = random_start();
	static struct model model;
	REGISTRY(r);

	for (int i = 0; i < 100000 && !test_has_failed(); i++)
		step(&random, &model, &r);
}
