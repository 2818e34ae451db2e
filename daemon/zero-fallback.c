/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Zeroing where nothing better is known.
 */
#include "daemon/zero.h"

#include <assert.h>
#include <stdatomic.h>
#include <stdint.h>
#include <string.h>

void zero_pages(void *memory, size_t len_bytes)
{
	assert((uintptr_t)memory % 64 == 0 && len_bytes % 64 == 0);
	memset(memory, 0, len_bytes);
	atomic_thread_fence(memory_order_seq_cst);
}
