/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef DAEMON_SELFTEST_PROBE_H
#define DAEMON_SELFTEST_PROBE_H

#include <infiniband/verbs.h>
#include <stddef.h>
#include <stdint.h>

#include "daemon/selftest.h"

/* What the self-test tries: an access that a window allows, then one that it does not. */

#define SELFTEST_WINDOW_BYTES 0x3a48 /* a multiple of 8, of more than three packets */
#define SELFTEST_REACH_BYTES  0x2000 /* no access goes further past either end */

/* What the forbidden access uses as key. */
enum selftest_key {
	SELFTEST_KEY_WINDOW, /* as at the allowed access */
	SELFTEST_KEY_MR_RKEY,
	SELFTEST_KEY_MR_LKEY,
	SELFTEST_KEY_GUARD_RKEY, /* only in guarded mode */
	SELFTEST_KEY_GUARD_LKEY,
};

/* What happens between the two accesses. */
enum selftest_step {
	SELFTEST_STEP_NONE,
	SELFTEST_STEP_INVALIDATE,
	SELFTEST_STEP_REBIND,  /* invalidate and bind in one post; the new key is tried too */
	SELFTEST_STEP_FOREIGN, /* go over to another pair, whose own window is tried first */
};

struct selftest_probe {
	enum selftest_property property;
	unsigned int rights; /* of the window; with IBV_ACCESS_ZERO_BASED perhaps */
	uint32_t len_bytes;  /* of both accesses */
	enum ibv_wr_opcode allowed;
	int32_t allowed_at; /* from the window's start */
	enum ibv_wr_opcode forbidden;
	int32_t forbidden_at;
	enum selftest_step step;
	enum selftest_key key;
};

/*
 * All probes of a property must be refused. Where a window has a right that devices may
 * lack, the first probe of the property decides whether this one has it.
 */
extern const struct selftest_probe selftest_probes[];
extern const size_t selftest_probe_count;

#endif
