/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef CLIENT_GUARD_H
#define CLIENT_GUARD_H

#include <stdbool.h>

/*
 * Who may call the library at all. A process that was forked from one that has a session shares
 * its devices and must leave them alone; a callback runs on the thread that all waiting calls
 * depend on. Every function with a handle begins with one of these checks.
 */

/** guard_open() - before a session is opened; Return: 0 or a code, last error set */
int guard_open(void);

/** guard_call() - of a call that may wait; Return: 0, or MEMPOOL_E_STATE with the last error set */
int guard_call(void);

/** guard_look() - of a call that waits for nothing, and so is allowed in callbacks; Return: the same */
int guard_look(void);

/** guard_in_child() - is this a forked child of a process that has had a session? */
bool guard_in_child(void);

/** guard_in_callback() - does this thread run a callback of the application? */
bool guard_in_callback(void);

/** guard_enter_callback(), guard_leave_callback() - around each callback */
void guard_enter_callback(void);
void guard_leave_callback(void);

#endif
