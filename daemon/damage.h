/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef DAEMON_DAMAGE_H
#define DAEMON_DAMAGE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/*
 * Memory that the hardware has found to be broken, as the kernel tells of it: by SIGBUS, early
 * (a page has gone bad that nobody touches) or late (this thread has touched one). There is one
 * handler in a process.
 */

/* A damaged range: whole pages, or one huge one. */
struct damage {
	uint64_t addr;
	uint64_t len_bytes;
};

/**
 * damage_open() - take SIGBUS, and ask for early reports, for this thread
 * @ret_fd: readable when there is something for damage_next(); not blocking
 *
 * A SIGBUS that is not about damaged memory ends the process, as ever, and so does damage that
 * was touched outside of damage_zero() or that can be told to nobody.
 * Return: 0 or a negative errno.
 */
int damage_open(int *ret_fd);

/** damage_close() - give SIGBUS back; not open is allowed */
void damage_close(void);

/** damage_next() - take an early report. Return: was there one? */
bool damage_next(struct damage *ret_damage);

/**
 * damage_zero() - zero_pages() that lives through damage
 * @ret_list: room for @cap ranges: what could not be zeroed, in order, and the pages around it
 *	      as the kernel says
 *
 * What does not fit the list makes its last range longer. Any thread, with SIGBUS unblocked.
 * Return: the number of ranges.
 */
size_t damage_zero(void *memory, size_t len_bytes, struct damage *ret_list, size_t cap);

#endif
