/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef DAEMON_WINDOW_H
#define DAEMON_WINDOW_H

#include <infiniband/verbs.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/queue.h>

#include "daemon/worker.h"

struct attachment;
struct window_set;

enum window_state {
	WINDOW_FREE,	     /* bound to nothing; may be bound */
	WINDOW_GUARDING,     /* the verbs worker registers its guard MR */
	WINDOW_BINDING,	     /* a bind is queued or posted */
	WINDOW_BOUND,	     /* the bind's SUCCESS has been seen; the key opens the range */
	WINDOW_INVALIDATING, /* a local invalidate is queued or posted */
	WINDOW_UNGUARDING,   /* bound to nothing; the verbs worker deregisters its guard MR */
	WINDOW_UNKNOWN, /* a completion was not SUCCESS or never came: only dealloc leads out */
	WINDOW_RETIRED, /* bound to nothing, and its key bytes have run out */
	WINDOW_GONE,	/* deallocated */
	WINDOW_STATES,	/* their number */
};

struct window {
	enum window_state state;
	struct window_set *set;
	struct attachment *attachment; /* that uses it; NULL: nobody */
	TAILQ_ENTRY(window) link;      /* in the queue of binds and invalidates */
	bool queued;		       /* in that queue */
	bool posted;		       /* in the device's hands */
	struct ibv_mw *mw;
	uint32_t key_index;    /* the driver's part of the key: rkey >> 8 */
	uint8_t keys_used[32]; /* bit per low byte that has been used on this lane */
	uint32_t keys_left;
	uint32_t rkey; /* of the bind that is made, or the last one */
	uint64_t addr; /* what it covers */
	uint64_t len_bytes;
	uint64_t offset_bytes; /* of that within the lease */
	unsigned int access;   /* IBV_ACCESS_REMOTE_* */
	struct ibv_mr *mr;     /* that it is bound to */
	struct ibv_mr *guard;  /* that MR, if it is the window's own */
	struct worker_job job; /* registering or deregistering the guard */
	int job_result;
};

/**
 * window_init() - take over a fresh memory window
 * @mw: the window keeps it until the set deallocates it; its key's low byte counts as used
 */
void window_init(struct window *window, struct window_set *set, struct ibv_mw *mw);

/** window_can_go() - is the step in the table of transitions? (pure) */
bool window_can_go(enum window_state from, enum window_state to);

/** window_set_state() - the only writer of the state; an illegal step is asserted */
void window_set_state(struct window *window, enum window_state state);

/** window_state_name() - "free", "guarding", ... */
const char *window_state_name(enum window_state state);

/** window_is_busy() - does something have to come back before it can be left alone? */
static inline bool window_is_busy(enum window_state state)
{
	return state == WINDOW_GUARDING || state == WINDOW_BINDING ||
	       state == WINDOW_INVALIDATING || state == WINDOW_UNGUARDING;
}

/**
 * window_check() - may it be bound as it is told? (pure)
 * @mr: that its range must lie in; @mr_access: IBV_ACCESS_* that this was registered with
 *
 * Not every device checks all of this, so it is done before each bind. Return: 0; -EINVAL (no
 * bytes, or rights that are none or not a window's); -ERANGE; -EXDEV (another PD); -EACCES (the
 * registration does not allow it).
 */
int window_check(const struct window *window, const struct ibv_mr *mr, unsigned int mr_access);

/**
 * window_new_key() - choose the key for the next bind
 *
 * A random low byte that this window has not had yet; at least one must be left (asserted).
 */
void window_new_key(struct window *window);

/** window_exhausted() - has every low byte been used? */
static inline bool window_exhausted(const struct window *window)
{
	return window->keys_left == 0;
}

#endif
