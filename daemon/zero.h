/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef DAEMON_ZERO_H
#define DAEMON_ZERO_H

#include <stddef.h>

/**
 * zero_pages() - zero memory that will not be read soon
 * @memory: aligned to 64 bytes
 * @len_bytes: multiple of 64
 *
 * Passes the processor's caches by where it can, since what is scrubbed is of no use there.
 * The zeros are visible to all processors and devices when it returns. Any thread.
 */
void zero_pages(void *memory, size_t len_bytes);

#endif
