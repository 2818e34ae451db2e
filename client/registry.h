/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef CLIENT_REGISTRY_H
#define CLIENT_REGISTRY_H

#include <stddef.h>
#include <stdint.h>

/* Ranges of addresses that do not overlap, each with a value. All zero: none. Pure. */
struct registry_entry {
	uint64_t start;
	uint64_t len_bytes;
	void *value;
};

struct registry {
	struct registry_entry *entries; /* by start */
	size_t count;
	size_t room;
};

void registry_deinit(struct registry *registry);

/**
 * registry_insert() - Return: 0; -EEXIST (a part of it is there), -EINVAL (it is empty or goes
 * beyond the last address), -ENOMEM
 */
int registry_insert(struct registry *registry, uint64_t start, uint64_t len_bytes, void *value);

/** registry_find() - Return: the value of the range that has all of this one, or NULL */
void *registry_find(const struct registry *registry, uint64_t start, uint64_t len_bytes);

/** registry_overlap() - Return: the value of the first range that has a part of this one, or NULL */
void *registry_overlap(const struct registry *registry, uint64_t start, uint64_t len_bytes);

/** registry_remove() - the range that begins there; none is allowed */
void registry_remove(struct registry *registry, uint64_t start);

#endif
