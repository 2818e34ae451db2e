/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef TESTS_INTEGRATION_VERIFY_H
#define TESTS_INTEGRATION_VERIFY_H

#include <stddef.h>

#include "client/include/mempool.h"

/**
 * verify_transfer() - write bytes into a lease of their own, and read them back
 * @offset_bytes: in the lease, which is a little longer than it need be: the rest stays zero
 *
 * Fails the running case if anything is not as it should be.
 */
void verify_transfer(mempool *pool, size_t len_bytes, size_t offset_bytes);

#endif
