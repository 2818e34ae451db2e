/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * common/route.c: a route finds its object until it is removed and nothing afterwards,
 * also when its slot is used again; growth, the limit, and that slots come back oldest first.
 */
#include "common/route.h"

#include <errno.h>
#include <stdlib.h>

#include "tests/unit/abort.h"
#include "tests/unit/random.h"
#include "tests/unit/test.h"

#define SLOTS_MAX   (1u << 20)
#define SLOTS_FIRST 64u /* of a table that has just been used for the first time */
#define GENERATIONS 4095u

static char objects[SLOTS_MAX];

static uint32_t slot_of(uint32_t route)
{
	return route & (SLOTS_MAX - 1);
}

static void drop(struct route_table *table)
{
	for (uint32_t slot = 0; slot < table->capacity; slot++) {
		for (uint32_t generation = 1; generation <= GENERATIONS; generation++) {
			uint32_t route = generation << 20 | slot;

			if (route_find(table, route) != NULL) {
				route_remove(table, route);
				break;
			}
		}
	}
	route_table_deinit(table);
}

TEST(route_find__empty_table)
{
	struct route_table table = {0};

	CHECK(route_find(&table, 0) == NULL);
	CHECK(route_find(&table, 1) == NULL);
	CHECK(route_find(&table, 1u << 20) == NULL);
	CHECK(route_find(&table, UINT32_MAX) == NULL);
	route_remove(&table, 0);
	route_table_deinit(&table);
}

TEST(route_add__found)
{
	struct route_table table = {0};
	uint32_t a, b;

	CHECK_INT(route_add(&table, &objects[0], &a), 0);
	CHECK_INT(route_add(&table, &objects[1], &b), 0);
	CHECK(a != 0 && b != 0 && a != b);
	CHECK(route_find(&table, a) == &objects[0]);
	CHECK(route_find(&table, b) == &objects[1]);
	/* The neighbours in number and generation are nobody. */
	CHECK(route_find(&table, 0) == NULL);
	CHECK(route_find(&table, b + 1) == NULL);
	CHECK(route_find(&table, a + (1u << 20)) == NULL);
	CHECK(route_find(&table, slot_of(a)) == NULL);
	CHECK(route_find(&table, a | (SLOTS_MAX - 1)) == NULL);
	drop(&table);
}

TEST(route_remove__not_found)
{
	struct route_table table = {0};
	uint32_t a, b;

	CHECK_INT(route_add(&table, &objects[0], &a), 0);
	CHECK_INT(route_add(&table, &objects[1], &b), 0);
	route_remove(&table, a);
	CHECK(route_find(&table, a) == NULL);
	CHECK(route_find(&table, b) == &objects[1]);
	CHECK_INT(table.used, 1);
	route_remove(&table, b);
	CHECK(route_find(&table, b) == NULL);
	CHECK_INT(table.used, 0);
	route_table_deinit(&table);
	CHECK(table.entries == NULL && table.capacity == 0);
}

struct removal {
	struct route_table *table;
	uint32_t route;
};

static void remove_route(void *arg)
{
	const struct removal *removal = arg;

	route_remove(removal->table, removal->route);
}

static void deinit(void *arg)
{
	route_table_deinit(arg);
}

TEST(route_remove__twice)
{
	struct route_table table = {0};
	struct removal removal = {.table = &table};

	CHECK_INT(route_add(&table, &objects[0], &removal.route), 0);
	CHECK(test_aborts(deinit, &table));
	route_remove(&table, removal.route);
	CHECK(test_aborts(remove_route, &removal));
	route_table_deinit(&table);
}

/* A slot that is used again does not answer to its old route. */
TEST(route_find__old_generations)
{
	uint32_t *old = calloc(GENERATIONS, sizeof(*old));
	struct route_table table = {0};
	uint32_t round = 0;
	uint32_t other;

	CHECK(old != NULL);
	/* All other slots are taken, so that one is used again each time. */
	for (uint32_t i = 0; i < SLOTS_FIRST - 1; i++)
		CHECK_INT(route_add(&table, &objects[i], &other), 0);
	for (; round < GENERATIONS; round++) {
		CHECK_INT(route_add(&table, &objects[SLOTS_FIRST], &old[round]), 0);
		CHECK_INT(slot_of(old[round]), slot_of(old[0]));
		CHECK_INT(old[round] >> 20, round + 1);
		for (uint32_t i = 0; i < round; i++)
			CHECK(route_find(&table, old[i]) == NULL);
		CHECK(route_find(&table, old[round]) == &objects[SLOTS_FIRST]);
		route_remove(&table, old[round]);
	}
	/* 12 bits: then the generations begin anew, without the 0. */
	CHECK_INT(route_add(&table, &objects[SLOTS_FIRST], &other), 0);
	CHECK_INT(other, old[0]);
	free(old);
	drop(&table);
}

TEST(route_add__oldest_free_slot_first)
{
	uint32_t routes[SLOTS_FIRST];
	struct route_table table = {0};
	uint32_t route;

	for (uint32_t i = 0; i < SLOTS_FIRST; i++)
		CHECK_INT(route_add(&table, &objects[i], &routes[i]), 0);
	CHECK_INT(table.capacity, SLOTS_FIRST);
	route_remove(&table, routes[17]);
	route_remove(&table, routes[3]);
	route_remove(&table, routes[60]);
	CHECK_INT(route_add(&table, &objects[17], &route), 0);
	CHECK_INT(slot_of(route), slot_of(routes[17]));
	route_remove(&table, route);
	CHECK_INT(route_add(&table, &objects[3], &route), 0);
	CHECK_INT(slot_of(route), slot_of(routes[3]));
	CHECK_INT(route_add(&table, &objects[60], &route), 0);
	CHECK_INT(slot_of(route), slot_of(routes[60]));
	CHECK_INT(route_add(&table, &objects[17], &route), 0);
	CHECK_INT(slot_of(route), slot_of(routes[17]));
	CHECK_INT(table.capacity, SLOTS_FIRST);
	drop(&table);
}

TEST(route_add__growth_keeps_routes)
{
	enum { COUNT = 1000 };
	uint32_t routes[COUNT];
	struct route_table table = {0};

	for (uint32_t i = 0; i < COUNT; i++) {
		CHECK_INT(route_add(&table, &objects[i], &routes[i]), 0);
		CHECK(table.capacity >= table.used);
		for (uint32_t k = 0; k <= i; k++)
			CHECK(route_find(&table, routes[k]) == &objects[k]);
	}
	CHECK_INT(table.used, COUNT);
	for (uint32_t i = 0; i < COUNT; i++)
		route_remove(&table, routes[i]);
	route_table_deinit(&table);
}

TEST(route_add__limit)
{
	uint32_t *routes = calloc(SLOTS_MAX, sizeof(*routes));
	struct route_table table = {0};
	uint32_t route = 42;

	CHECK(routes != NULL);
	for (uint32_t i = 0; i < SLOTS_MAX; i++)
		CHECK_INT(route_add(&table, &objects[i], &routes[i]), 0);
	CHECK_INT(route_add(&table, &objects[0], &route), -ENOMEM);
	CHECK_INT(route, 42);
	CHECK_INT(table.used, SLOTS_MAX);
	CHECK_INT(table.capacity, SLOTS_MAX);
	for (uint32_t i = 0; i < SLOTS_MAX; i++)
		CHECK(route_find(&table, routes[i]) == &objects[i]);
	route_remove(&table, routes[SLOTS_MAX / 2]);
	CHECK_INT(route_add(&table, &objects[0], &route), 0);
	CHECK_INT(slot_of(route), slot_of(routes[SLOTS_MAX / 2]));
	CHECK(route_find(&table, routes[SLOTS_MAX / 2]) == NULL);
	routes[SLOTS_MAX / 2] = route;
	for (uint32_t i = 0; i < SLOTS_MAX; i++)
		route_remove(&table, routes[i]);
	route_table_deinit(&table);
	free(routes);
}

/* Random steps against a plain list of what is in and what has been removed. */
TEST(route_find__random_steps)
{
	enum { COUNT = 500, STEPS = 100000 };
	struct random random = random_start();
	uint32_t routes[COUNT] = {0};
	uint32_t removed[COUNT] = {0};
	struct route_table table = {0};
	uint32_t used = 0;

	for (int step = 0; step < STEPS; step++) {
		uint32_t i = (uint32_t)random_below(&random, COUNT);

		if (routes[i] == 0) {
			CHECK_INT(route_add(&table, &objects[i], &routes[i]), 0);
			used++;
		} else {
			CHECK(route_find(&table, routes[i]) == &objects[i]);
			route_remove(&table, routes[i]);
			removed[i] = routes[i];
			routes[i] = 0;
			used--;
		}
		CHECK_INT(table.used, used);
		CHECK(routes[i] == 0 || routes[i] != removed[i]);
		CHECK(route_find(&table, removed[i]) == NULL);
	}
	for (uint32_t i = 0; i < COUNT; i++)
		route_remove(&table, routes[i]);
	route_table_deinit(&table);
}

TEST(route_wr_id__both_halves)
{
	uint64_t wr_id = route_wr_id(0xfedcba98, 0x80000007);

	CHECK_INT(wr_id, UINT64_C(0xfedcba9880000007));
	CHECK_INT(route_of(wr_id), 0xfedcba98u);
	CHECK_INT(route_index(wr_id), 0x80000007u);
	CHECK_INT(route_wr_id(0, UINT32_MAX), UINT32_MAX);
	CHECK_INT(route_of(UINT32_MAX), 0);
}
