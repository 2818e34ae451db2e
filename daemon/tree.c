/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * An AVL tree with parent pointers. Invariants: every node comes after all of its
 * child[0] and before all of its child[1], the heights of the two differ by 1 at
 * most, and a node's height is 1 more than the greater of them. So n nodes are less
 * than 1.45 * log2(n + 2) high, whatever the order of insertion. Pure code; the
 * owner of the tree sees to it that one thread uses it at a time.
 */
#include "daemon/tree.h"

#include <assert.h>
#include <stdbool.h>

static unsigned int height_of(const struct tree_node *node)
{
	return node == NULL ? 0 : node->height;
}

static int taller_side(const struct tree_node *node)
{
	return height_of(node->child[1]) > height_of(node->child[0]);
}

static void update_height(struct tree_node *node)
{
	node->height = 1 + height_of(node->child[taller_side(node)]);
}

static bool is_balanced(const struct tree_node *node)
{
	int side = taller_side(node);

	return height_of(node->child[side]) <= height_of(node->child[!side]) + 1;
}

static void set_child(struct tree_node *node, int side, struct tree_node *child)
{
	node->child[side] = child;
	if (child != NULL)
		child->parent = node;
}

/* Hang a subtree, which may be empty, where another node hangs. */
static void replace(struct tree *tree, const struct tree_node *old, struct tree_node *new)
{
	struct tree_node *parent = old->parent;

	if (parent != NULL) {
		set_child(parent, parent->child[1] == old, new);
		return;
	}
	tree->root = new;
	if (new != NULL)
		new->parent = NULL;
}

/* Lift a node's child on one side above the node; return that child. */
static struct tree_node *rotate(struct tree *tree, struct tree_node *node, int side)
{
	struct tree_node *top = node->child[side];

	replace(tree, node, top);
	set_child(node, side, top->child[!side]);
	set_child(top, !side, node);
	update_height(node);
	update_height(top);
	return top;
}

/* Restore the invariants at a node whose subtrees keep them; return the subtree's top. */
static struct tree_node *balance(struct tree *tree, struct tree_node *node)
{
	struct tree_node *taller;
	int side;

	if (is_balanced(node)) {
		update_height(node);
		return node;
	}
	side = taller_side(node);
	taller = node->child[side];
	/* An inner grandchild would stay too deep if lifted with its parent. */
	if (height_of(taller->child[!side]) > height_of(taller->child[side]))
		rotate(tree, taller, !side);
	return rotate(tree, node, side);
}

static void balance_upwards(struct tree *tree, struct tree_node *node)
{
	while (node != NULL)
		node = balance(tree, node)->parent;
}

static struct tree_node *outermost(struct tree_node *node, int side)
{
	while (node->child[side] != NULL)
		node = node->child[side];
	return node;
}

void tree_insert(struct tree *tree, struct tree_node *node)
{
	struct tree_node *parent = NULL;
	struct tree_node *at = tree->root;
	int side = 0;

	while (at != NULL) {
		int order = tree->compare(node, at);

		assert(order != 0);
		parent = at;
		side = order > 0;
		at = at->child[side];
	}
	*node = (struct tree_node){.parent = parent, .height = 1};
	if (parent == NULL)
		tree->root = node;
	else
		parent->child[side] = node;
	balance_upwards(tree, parent);
}

void tree_remove(struct tree *tree, struct tree_node *node)
{
	struct tree_node *lowest = node->parent; /* whose subtree has changed */

	assert(node->height > 0);
	if (node->child[0] == NULL || node->child[1] == NULL) {
		replace(tree, node, node->child[node->child[0] == NULL]);
	} else {
		struct tree_node *next = outermost(node->child[1], 0);

		lowest = next->parent == node ? next : next->parent;
		replace(tree, next, next->child[1]);
		replace(tree, node, next);
		set_child(next, 0, node->child[0]);
		set_child(next, 1, node->child[1]);
	}
	*node = (struct tree_node){0};
	balance_upwards(tree, lowest);
}

struct tree_node *tree_at_least(const struct tree *tree, const struct tree_node *key)
{
	struct tree_node *found = NULL;
	struct tree_node *at = tree->root;

	while (at != NULL) {
		int is_before = tree->compare(at, key) < 0;

		if (!is_before)
			found = at;
		at = at->child[is_before];
	}
	return found;
}

struct tree_node *tree_last(const struct tree *tree)
{
	return tree->root == NULL ? NULL : outermost(tree->root, 1);
}

/* Check a subtree; @last is the node before it in order and becomes its greatest. */
static size_t check_subtree(const struct tree *tree, const struct tree_node *node,
			    const struct tree_node **last)
{
	size_t count = 1;

	assert(is_balanced(node));
	assert(node->height == 1 + height_of(node->child[taller_side(node)]));
	if (node->child[0] != NULL) {
		assert(node->child[0]->parent == node);
		count += check_subtree(tree, node->child[0], last);
	}
	assert(*last == NULL || tree->compare(*last, node) < 0);
	*last = node;
	if (node->child[1] != NULL) {
		assert(node->child[1]->parent == node);
		count += check_subtree(tree, node->child[1], last);
	}
	return count;
}

size_t tree_check(const struct tree *tree)
{
	const struct tree_node *last = NULL;

	if (tree->root == NULL)
		return 0;
	assert(tree->root->parent == NULL);
	return check_subtree(tree, tree->root, &last);
}
