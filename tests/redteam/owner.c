/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A well-behaved tenant that takes every lease it can get, finds it zero, fills it, and finds
 * its own bytes in it, several times.
 *
 * Owns its connections. Thread: its own.
 */
#include "tests/redteam/owner.h"

#include <string.h>

#include "proto/error.h"
#include "tests/integration/harness.h"

#define LOOKS  3
#define TTL_MS 600000

static bool owner_fail(struct owner *owner, const char *what, int code)
{
	owner->failure = what;
	owner->failure_code = code;
	return false;
}

static bool owner_access(struct owner *owner, enum ibv_wr_opcode opcode,
			 const struct message_descriptor *at)
{
	int status = peer_access(&owner->lane, opcode, (uint32_t)at->len_bytes, at->remote_addr,
				 at->rkey);

	return status == IBV_WC_SUCCESS || owner_fail(owner, "its own lease is refused", status);
}

/* How many bytes are not what they should be. */
static bool owner_look(struct owner *owner, const struct message_descriptor *at, uint8_t expected,
		       atomic_uint_least64_t *count)
{
	const uint8_t *got = peer_buffer(&owner->lane);
	uint64_t wrong = 0;

	if (!owner_access(owner, IBV_WR_RDMA_READ, at))
		return false;
	for (uint64_t i = 0; i < at->len_bytes; i++)
		wrong += got[i] != expected;
	atomic_fetch_add(count, wrong);
	return true;
}

static bool owner_inspect(struct owner *owner, const struct message_descriptor *at)
{
	if (!owner_look(owner, at, 0, &owner->dirty))
		return false;
	memset(peer_buffer(&owner->lane), owner->mark, at->len_bytes);
	if (!owner_access(owner, IBV_WR_RDMA_WRITE, at))
		return false;
	for (int i = 0; i < LOOKS; i++) {
		if (!owner_look(owner, at, owner->mark, &owner->foreign))
			return false;
	}
	return true;
}

static bool owner_round(struct owner *owner)
{
	struct message_grant grant;
	int r = peer_acquire(&owner->peer, &owner->lane, owner->len_bytes, TTL_MS, 100, &grant);

	if (r == ERROR_LENGTH_EXTENT || r == ERROR_TIMEOUT) {
		harness_sleep_ms(1);
		return true;
	}
	if (r != 0)
		return owner_fail(owner, "cannot acquire", r);
	if (!owner_inspect(owner, &grant.descriptors[0]))
		return false;
	r = peer_release(&owner->peer, grant.lease_id);
	atomic_fetch_add(&owner->leases, 1);
	harness_sleep_ms(1);
	return r == 0 || owner_fail(owner, "cannot release", r);
}

void *owner_run(void *arg)
{
	struct owner *owner = arg;
	int r = peer_open(&owner->peer, owner->tenant, NULL);

	if (r == 0)
		r = peer_lane_open(&owner->peer, &owner->lane);
	if (r != 0)
		(void)owner_fail(owner, "cannot connect", r);
	while (r == 0 && !atomic_load(owner->stop) && owner_round(owner))
		;
	peer_lane_close(&owner->lane);
	peer_close(&owner->peer);
	return NULL;
}
