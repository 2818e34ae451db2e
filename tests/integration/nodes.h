/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef TESTS_INTEGRATION_NODES_H
#define TESTS_INTEGRATION_NODES_H

#include <stdbool.h>

/*
 * Tests across hosts: node 1 has the daemon, node 2 the clients. They run in both at the same
 * time, with NODE=1 and 2 in the environment and a program `vm-barrier PORT` that returns when
 * both have called it (tests/vm/run --nodes 2 has all that).
 */

#define NODES_READY_PORT  "7001"
#define NODES_DONE_PORT	  "7002"
#define NODES_HELD_PORT	  "7003"
#define NODES_MENDED_PORT "7004"

/** nodes_number() - Return: 1 or 2; 0: there are no two nodes */
int nodes_number(void);

/** nodes_barrier() - wait for the other node; Return: has it come? */
bool nodes_barrier(const char *port);

/** nodes_set_link() - of this node; @state: "up" or "down"; Return: done? */
bool nodes_set_link(const char *state);

#endif
