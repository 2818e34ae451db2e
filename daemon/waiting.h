/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef DAEMON_WAITING_H
#define DAEMON_WAITING_H

#include <stdint.h>

struct extent;
struct lane;
struct lease;
struct server;

/**
 * waiting_take() - bytes for a new lease
 * @wait_ms: how long it may wait for them; 0: not at all
 *
 * Return: 0; -EAGAIN: it is to wait; or what extent_take() returned.
 */
int waiting_take(struct lease *lease, uint32_t wait_ms, struct extent **ret_extent);

/**
 * waiting_add() - let a new lease wait for bytes, to be bound on a lane
 *
 * Return: 0 or -ENOMEM.
 */
int waiting_add(struct lease *lease, const struct lane *lane, uint32_t wait_ms);

/** waiting_remove() - it waits no longer */
void waiting_remove(struct lease *lease);

/** waiting_serve() - bytes have become clean: serve who waits, tenants in turn */
void waiting_serve(struct server *server);

#endif
