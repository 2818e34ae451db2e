/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef DAEMON_MAPPING_H
#define DAEMON_MAPPING_H

#include <stddef.h>
#include <stdint.h>

/*
 * The memory behind the pool: a memfd, of ordinary or huge pages, on any or on one NUMA node,
 * all of it there before anybody uses it.
 */

#define MAPPING_ERROR_MAX 512
#define MAPPING_ANY_NODE  (-1)

enum mapping_pages {
	MAPPING_PAGES_NONE, /* ordinary ones */
	MAPPING_PAGES_2MIB,
	MAPPING_PAGES_1GIB,
};

struct mapping_request {
	uint64_t len_bytes; /* whole pages of the kind asked for */
	enum mapping_pages pages;
	int numa_node; /* MAPPING_ANY_NODE */
};

struct mapping {
	uint8_t *memory; /* NULL: none */
	uint64_t len_bytes;
	uint64_t frame_bytes; /* of a page as the kernel hands them out */
	int fd;
};

/** mapping_page_bytes() - size of the pages of a kind */
uint64_t mapping_page_bytes(enum mapping_pages pages);

/**
 * mapping_open() - get the memory, touch every page, keep it out of core dumps
 * @error: MAPPING_ERROR_MAX bytes; on failure one line with what is missing and the remedy
 *
 * Blocks for long with much memory. A shortage is found here and never later.
 * Return: 0, -EINVAL (a length that is not whole pages), -ENOMEM, -ENODEV (no such node or
 * kind of pages), or another negative errno.
 */
int mapping_open(const struct mapping_request *request, struct mapping *ret_mapping, char *error);

/** mapping_close() - all zero is allowed */
void mapping_close(struct mapping *mapping);

#endif
