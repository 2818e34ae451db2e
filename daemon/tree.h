/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef DAEMON_TREE_H
#define DAEMON_TREE_H

#include <stddef.h>

/*
 * An ordered set whose nodes are embedded in the caller's objects: balanced, so
 * every step is O(log n) at worst, and nothing here allocates.
 */

struct tree_node {
	struct tree_node *parent;
	struct tree_node *child[2]; /* [0] all smaller, [1] all greater */
	unsigned int height;	    /* of the subtree; a leaf has 1 */
};

/* Return: negative, 0 or positive as @a comes before, is or comes after @b. */
typedef int (*tree_compare_fn)(const struct tree_node *a, const struct tree_node *b);

/* Zero-initialised but for compare = empty. */
struct tree {
	struct tree_node *root;
	tree_compare_fn compare;
};

/**
 * tree_insert() - add a node
 * @node: its content is ignored; no equal node may be in the tree (asserted)
 *
 * What compare looks at must not change while the node is in the tree.
 */
void tree_insert(struct tree *tree, struct tree_node *node);

/**
 * tree_remove() - take out a node that is in the tree
 */
void tree_remove(struct tree *tree, struct tree_node *node);

/**
 * tree_at_least() - the smallest node that does not come before a key
 * @key: a node used for comparing only
 *
 * Return: NULL if all come before it.
 */
struct tree_node *tree_at_least(const struct tree *tree, const struct tree_node *key);

/**
 * tree_last() - the greatest node, NULL if the tree is empty
 */
struct tree_node *tree_last(const struct tree *tree);

/**
 * tree_check() - assert all invariants (tests; O(n))
 *
 * Return: the number of nodes.
 */
size_t tree_check(const struct tree *tree);

#endif
