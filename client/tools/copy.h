/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef CLIENT_TOOLS_COPY_H
#define CLIENT_TOOLS_COPY_H

#include <stdbool.h>
#include <stdint.h>

#include "client/include/mempool.h"
#include "client/tools/progress.h"
#include "client/tools/tool.h"

#define COPY_CHUNK_BYTES (UINT64_C(4) << 20)

/* Bytes on their way between a file and a lease. */
struct copy {
	mempool *pool;
	mempool_lease *lease; /* NULL: none yet, or given back */
	bool given_back;      /* or tried to be: the session may be closed */
	int fd;
	const char *name; /* of the file, to complain with */
	uint8_t *chunk;	  /* COPY_CHUNK_BYTES */
	uint64_t ttl_ms;  /* that the lease is renewed to as time goes by; 0: it is not */
	uint64_t lease_bytes;
	uint64_t done_bytes;
	struct progress progress;
};

/**
 * copy_put() - acquire a lease and fill it from the file
 * @len_bytes: its length at first; 0: not known
 * @grows: the lease grows when more comes; else that is an error
 *
 * It is renewed by itself. The lease gets exactly as long as what was copied.
 * Return: TOOL_OK, or it has complained.
 */
enum tool_status copy_put(struct copy *copy, uint64_t len_bytes, bool grows);

/**
 * copy_take_over() - reattach a lease, and renew it from now on if there is a time for that
 *
 * Return: TOOL_OK, or it has complained.
 */
enum tool_status copy_take_over(struct copy *copy, const struct mempool_lease_token *token,
				uint32_t timeout_ms);

/** copy_get() - write all of that lease to the file; Return: TOOL_OK, or it has complained */
enum tool_status copy_get(struct copy *copy);

/** copy_renew() - its time runs from now on; Return: TOOL_OK, or it has complained */
enum tool_status copy_renew(const struct copy *copy);

#endif
