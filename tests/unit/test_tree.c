/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * daemon/tree.c: order, balance and look-ups after each step, for sorted, reverse and
 * random insertion, against a plain array of what is in the tree.
 */
#include "daemon/tree.h"

#include "tests/unit/random.h"
#include "tests/unit/test.h"

#define KEYS 300

struct item {
	struct tree_node node; /* first, so that a node is its item */
	size_t key;
};

static int compare_keys(const struct tree_node *a, const struct tree_node *b)
{
	size_t x = ((const struct item *)a)->key;
	size_t y = ((const struct item *)b)->key;

	return (x > y) - (x < y);
}

static void make_items(struct item *items)
{
	for (size_t i = 0; i < KEYS; i++)
		items[i] = (struct item){.key = i};
}

/* Does the tree hold exactly the items that are marked? */
static void check_against(const struct tree *tree, struct item *items, const bool *is_in)
{
	struct tree_node *at_least = NULL;
	struct tree_node *last = NULL;
	size_t count = 0;

	for (size_t i = KEYS; i-- > 0;) {
		struct item key = {.key = i};

		if (is_in[i]) {
			at_least = &items[i].node;
			last = last == NULL ? at_least : last;
			count++;
		}
		CHECK(tree_at_least(tree, &key.node) == at_least);
	}
	CHECK(tree_last(tree) == last);
	CHECK_INT(tree_check(tree), count);
}

TEST(tree__empty)
{
	struct tree tree = {.compare = compare_keys};
	struct item key = {.key = 0};

	CHECK(tree_last(&tree) == NULL);
	CHECK(tree_at_least(&tree, &key.node) == NULL);
	CHECK_INT(tree_check(&tree), 0);
}

TEST(tree_insert__sorted_stays_low)
{
	static struct item items[KEYS];
	bool is_in[KEYS] = {false};
	struct tree tree = {.compare = compare_keys};

	make_items(items);
	for (size_t i = 0; i < KEYS; i++) {
		tree_insert(&tree, &items[i].node);
		is_in[i] = true;
		check_against(&tree, items, is_in);
	}
	/* 1.4405 * log2(300 + 2) - 0.33 = 11.5; as a list it would be 300. */
	CHECK(tree.root->height <= 11);
}

TEST(tree_insert__reverse_stays_low)
{
	static struct item items[KEYS];
	bool is_in[KEYS] = {false};
	struct tree tree = {.compare = compare_keys};

	make_items(items);
	for (size_t i = KEYS; i-- > 0;) {
		tree_insert(&tree, &items[i].node);
		is_in[i] = true;
		check_against(&tree, items, is_in);
	}
	CHECK(tree.root->height <= 11);
}

/* Each item out of each small tree: all shapes of a removal near the root. */
TEST(tree_remove__each_of_a_small_tree)
{
	static struct item items[KEYS];

	for (size_t count = 1; count <= 40; count++) {
		for (size_t out = 0; out < count; out++) {
			bool is_in[KEYS] = {false};
			struct tree tree = {.compare = compare_keys};

			make_items(items);
			for (size_t i = 0; i < count; i++) {
				/* Taller on the left with an odd count, on the right else. */
				size_t key = count % 2 ? count - 1 - i : i;

				tree_insert(&tree, &items[key].node);
				is_in[key] = true;
			}
			tree_remove(&tree, &items[out].node);
			is_in[out] = false;
			check_against(&tree, items, is_in);
		}
	}
}

TEST(tree_remove__node_can_be_inserted_again)
{
	struct item a = {.key = 1};
	struct item b = {.key = 2};
	struct tree tree = {.compare = compare_keys};

	tree_insert(&tree, &a.node);
	tree_insert(&tree, &b.node);
	tree_remove(&tree, &a.node);
	CHECK(tree_last(&tree) == &b.node);
	a.key = 3;
	tree_insert(&tree, &a.node);
	CHECK(tree_last(&tree) == &a.node);
	CHECK_INT(tree_check(&tree), 2);
}

TEST(tree__random_steps)
{
	static struct item items[KEYS];
	bool is_in[KEYS] = {false};
	struct tree tree = {.compare = compare_keys};
	struct random random = random_start();

	make_items(items);
	for (int step = 0; step < 20000; step++) {
		size_t i = random_below(&random, KEYS);
		/* Long spells of mostly filling, then of mostly emptying. */
		bool is_filling = step / 2000 % 2 == 0;

		if (is_in[i] == is_filling && random_below(&random, 8) != 0)
			continue;
		if (is_in[i])
			tree_remove(&tree, &items[i].node);
		else
			tree_insert(&tree, &items[i].node);
		is_in[i] = !is_in[i];
		check_against(&tree, items, is_in);
	}
	for (size_t i = 0; i < KEYS; i++) {
		if (is_in[i])
			tree_remove(&tree, &items[i].node);
	}
	CHECK(tree.root == NULL);
}
