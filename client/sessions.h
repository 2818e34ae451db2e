/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef CLIENT_SESSIONS_H
#define CLIENT_SESSIONS_H

#include <stdbool.h>

/*
 * Which sessions of this process are open, so that one that is closed twice, by two threads at
 * once even, is closed once.
 */

struct mempool;

/** sessions_add() - the session has been opened */
void sessions_add(struct mempool *pool);

/**
 * sessions_remove() - it is to be closed
 * @pool: not looked into unless it is open
 *
 * Return: is it open, and the caller's to close?
 */
bool sessions_remove(const struct mempool *pool);

#endif
