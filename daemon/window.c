/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * One memory window: its state and its keys. Posting and deallocating are the set's.
 *
 * Invariants: exactly one local invalidate follows each successful bind, and none is posted
 * in any state but BOUND -> INVALIDATING; a window whose state is UNKNOWN is never posted on
 * again; a low key byte is used once in the life of a window.
 *
 * Thread: the loop.
 */
#include "daemon/window.h"

#include <assert.h>
#include <errno.h>

#include "common/checked.h"
#include "common/secure.h"

#define GO(state) (1u << WINDOW_##state)

static const uint32_t window_next[WINDOW_STATES] = {
	[WINDOW_FREE] = GO(GUARDING) | GO(BINDING) | GO(GONE),
	[WINDOW_GUARDING] = GO(BINDING) | GO(UNGUARDING) | GO(FREE) | GO(RETIRED),
	[WINDOW_BINDING] = GO(BOUND) | GO(UNGUARDING) | GO(FREE) | GO(RETIRED) | GO(UNKNOWN),
	[WINDOW_BOUND] = GO(INVALIDATING) | GO(UNKNOWN),
	[WINDOW_INVALIDATING] = GO(UNGUARDING) | GO(FREE) | GO(RETIRED) | GO(UNKNOWN),
	[WINDOW_UNGUARDING] = GO(FREE) | GO(RETIRED) | GO(UNKNOWN),
	[WINDOW_UNKNOWN] = GO(GONE),
	[WINDOW_RETIRED] = GO(GONE),
	[WINDOW_GONE] = 0,
};

static const char *const window_names[WINDOW_STATES] = {
	[WINDOW_FREE] = "free",
	[WINDOW_GUARDING] = "guarding",
	[WINDOW_BINDING] = "binding",
	[WINDOW_BOUND] = "bound",
	[WINDOW_INVALIDATING] = "invalidating",
	[WINDOW_UNGUARDING] = "unguarding",
	[WINDOW_UNKNOWN] = "unknown",
	[WINDOW_RETIRED] = "retired",
	[WINDOW_GONE] = "gone",
};

static bool window_key_is_used(const struct window *window, uint32_t byte)
{
	return (window->keys_used[byte / 8] >> (byte % 8) & 1) != 0;
}

static void window_use_key(struct window *window, uint32_t byte)
{
	assert(!window_key_is_used(window, byte));
	window->keys_used[byte / 8] = (uint8_t)(window->keys_used[byte / 8] | 1u << (byte % 8));
	window->keys_left--;
}

void window_init(struct window *window, struct window_set *set, struct ibv_mw *mw)
{
	*window = (struct window){
		.state = WINDOW_FREE,
		.set = set,
		.mw = mw,
		.key_index = mw->rkey >> 8,
		.keys_left = 256,
		.rkey = mw->rkey,
	};
	window_use_key(window, mw->rkey & 0xff);
}

bool window_can_go(enum window_state from, enum window_state to)
{
	return from < WINDOW_STATES && to < WINDOW_STATES && (window_next[from] >> to & 1) != 0;
}

void window_set_state(struct window *window, enum window_state state)
{
	assert(window_can_go(window->state, state));
	window->state = state;
}

const char *window_state_name(enum window_state state)
{
	return state < WINDOW_STATES ? window_names[state] : "invalid";
}

/* Zero-based windows are never bound. */
#define WINDOW_WRITES ((unsigned int)(IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC))
#define WINDOW_ACCESS (WINDOW_WRITES | IBV_ACCESS_REMOTE_READ)

int window_check(const struct window *window, const struct ibv_mr *mr, unsigned int mr_access)
{
	uint64_t start = (uintptr_t)mr->addr;

	if (window->len_bytes == 0 || window->access == 0 || (window->access & ~WINDOW_ACCESS) != 0)
		return -EINVAL;
	/* An address below the start wraps around to one far behind the end. */
	if (!checked_within(window->addr - start, window->len_bytes, mr->length))
		return -ERANGE;
	if (window->mw->pd != mr->pd)
		return -EXDEV;
	if ((mr_access & IBV_ACCESS_MW_BIND) == 0 ||
	    ((window->access & WINDOW_WRITES) != 0 && (mr_access & IBV_ACCESS_LOCAL_WRITE) == 0))
		return -EACCES;
	return 0;
}

void window_new_key(struct window *window)
{
	uint32_t skip;
	uint32_t byte = 0;

	assert(window->keys_left > 0);
	skip = secure_uniform(window->keys_left);
	for (;; byte++) {
		if (window_key_is_used(window, byte))
			continue;
		if (skip-- == 0)
			break;
	}
	window_use_key(window, byte);
	window->rkey = window->key_index << 8 | byte;
}
