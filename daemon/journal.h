/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef DAEMON_JOURNAL_H
#define DAEMON_JOURNAL_H

#include <stdbool.h>

/**
 * journal_open() - give the lines of the log to systemd's journal, if standard error leads there
 *
 * Each line becomes an entry with its priority, the line as its message, and a field MEMPOOL_NAME
 * for each field of the line. Before there are other threads.
 * Return: is it so? If not, lines go to standard error as before.
 */
bool journal_open(void);

#endif
