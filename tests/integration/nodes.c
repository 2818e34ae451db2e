/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What a test needs to know of the node that it runs in, and of the other. Owns nothing.
 */
#include "tests/integration/nodes.h"

#include <stdlib.h>
#include <string.h>

#include "tests/integration/harness.h"

#define NODES_BARRIER_LIMIT_MS 240000

int nodes_number(void)
{
	const char *node = getenv("NODE");
	const char *nodes = getenv("NODES");

	if (node == NULL || nodes == NULL || strcmp(nodes, "2") != 0)
		return 0;
	return strcmp(node, "1") == 0 ? 1 : 2;
}

bool nodes_barrier(const char *port)
{
	static struct harness_output output;
	const char *argv[] = {"vm-barrier", port, NULL};

	return harness_run(argv, NODES_BARRIER_LIMIT_MS, &output) == 0 && output.status == 0;
}

bool nodes_set_link(const char *state)
{
	static struct harness_output output;
	const char *argv[] = {"ip", "link", "set", "dev", "eth0", state, NULL};

	return harness_run(argv, 10000, &output) == 0 && output.status == 0;
}
