/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Counts of the kernel's RDMA objects, from iproute2's rdma. Owns nothing.
 */
#include "tests/integration/resources.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/integration/harness.h"

static uint64_t resources_sum(const char *text, const char *name)
{
	uint64_t sum = 0;
	char key[16];

	snprintf(key, sizeof(key), " %s ", name);
	for (const char *at = strstr(text, key); at != NULL; at = strstr(at + 1, key))
		sum += strtoull(at + strlen(key), NULL, 10);
	return sum;
}

bool resources_read(struct resources *ret_resources)
{
	static struct harness_output output;
	const char *argv[] = {"rdma", "resource", "show", NULL};

	if (harness_run(argv, 10000, &output) < 0 || output.status != 0 ||
	    strstr(output.out, " qp ") == NULL)
		return false;
	*ret_resources = (struct resources){
		.pd = resources_sum(output.out, "pd"),
		.cq = resources_sum(output.out, "cq"),
		.qp = resources_sum(output.out, "qp"),
		.cm_id = resources_sum(output.out, "cm_id"),
		.mr = resources_sum(output.out, "mr"),
		.ctx = resources_sum(output.out, "ctx"),
	};
	return true;
}

bool resources_equal(const struct resources *a, const struct resources *b)
{
	return a->pd == b->pd && a->cq == b->cq && a->qp == b->qp && a->cm_id == b->cm_id &&
	       a->mr == b->mr && a->ctx == b->ctx;
}

void resources_print(const char *when, const struct resources *r)
{
	printf("# %s: pd %" PRIu64 " cq %" PRIu64 " qp %" PRIu64 " cm_id %" PRIu64 " mr %" PRIu64
	       " ctx %" PRIu64 "\n",
	       when, r->pd, r->cq, r->qp, r->cm_id, r->mr, r->ctx);
}
