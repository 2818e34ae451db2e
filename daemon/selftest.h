/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef DAEMON_SELFTEST_H
#define DAEMON_SELFTEST_H

#include <infiniband/verbs.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/*
 * Does the device keep tenants apart? Tried on the device itself, before anyone is served.
 */

enum selftest_property {
	SELFTEST_BOUNDS_BELOW,	  /* one byte before the window */
	SELFTEST_BOUNDS_ABOVE,	  /* one byte behind it */
	SELFTEST_BOUNDS_STRADDLE, /* begins inside, ends outside */
	SELFTEST_RIGHTS_READ,	  /* write through a read-only window */
	SELFTEST_RIGHTS_WRITE,	  /* read through a write-only window */
	SELFTEST_FOREIGN_QP,	  /* the right key on another QP of the same PD */
	SELFTEST_INVALIDATED,	  /* the key after a local invalidate */
	SELFTEST_REBOUND,	  /* the old key after invalidate and bind in one post */
	SELFTEST_MR_KEYS,	  /* the MR's own rkey and lkey from outside */
	SELFTEST_ATOMICS,	  /* atomics: work inside, refused outside and without the right */
	SELFTEST_ZERO_BASED,	  /* zero-based addressing: works inside, refused outside */
	SELFTEST_PROPERTIES,	  /* their number */
};

enum selftest_outcome {
	SELFTEST_UNKNOWN,	/* anything but a clear answer: counts as not enforced */
	SELFTEST_ENFORCED,	/* worked inside just before, refused outside, bytes unchanged */
	SELFTEST_NOT_ENFORCED,	/* the forbidden access went through */
	SELFTEST_NOT_SUPPORTED, /* the device does not offer it: never offered to tenants */
	SELFTEST_NOT_TRIED,	/* the outcome did not matter any more: counts as not enforced */
};

struct selftest_result {
	enum selftest_outcome outcome[SELFTEST_PROPERTIES];
};

struct selftest_params {
	struct ibv_pd *pd;
	struct ibv_mr *mr;  /* over the whole pool, LOCAL_WRITE | MW_BIND */
	uint8_t *memory;    /* start of the pool */
	size_t len_bytes;   /* that the test may use, zero before and after; at least 16 pages */
	bool guarded;	    /* each window over an MR of its own that covers exactly its range */
	bool bounds_decide; /* nothing more is tried when bounds are not enforced */
};

/**
 * selftest_run() - try every property on a QP pair connected to itself through a port
 * @ret_result: one outcome per property
 * @error: what prevented the test from running at all, 256 bytes
 *
 * Blocks (every wait is bounded, 2 s). Leaves no verbs object behind and the memory zero.
 * Return: 0, or a negative errno if no QP pair could be connected or something leaked.
 */
int selftest_run(const struct selftest_params *params, struct selftest_result *ret_result,
		 char *error);

/**
 * selftest_isolates() - is everything enforced that keeps tenants apart?
 *
 * Atomics may be unsupported. Zero-based does not count: a window is zero-based only if the
 * daemon binds it so, which it may do only where that is enforced.
 */
bool selftest_isolates(const struct selftest_result *result);

/**
 * selftest_only_bounds_fail() - would guarded mode help?
 *
 * Atomics do not count: outside they go through with the rest, and the guarded run judges them.
 * It also judges what was not tried since bounds failed.
 */
bool selftest_only_bounds_fail(const struct selftest_result *result);

const char *selftest_property_name(enum selftest_property property); /* "bounds-above" */
const char *selftest_outcome_name(enum selftest_outcome outcome);    /* "not enforced" */

#endif
