/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef TESTS_INTEGRATION_RESOURCES_H
#define TESTS_INTEGRATION_RESOURCES_H

#include <stdbool.h>
#include <stdint.h>

/* What the kernel says is open, all RDMA devices together (`rdma resource show`). */
struct resources {
	uint64_t pd;
	uint64_t cq;
	uint64_t qp;
	uint64_t cm_id;
	uint64_t mr;
	uint64_t ctx;
};

/** resources_read() - Return: false if there is no such tool or it does not work */
bool resources_read(struct resources *ret_resources);

bool resources_equal(const struct resources *a, const struct resources *b);
void resources_print(const char *when, const struct resources *resources);

#endif
