/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef DAEMON_WINDOW_SET_H
#define DAEMON_WINDOW_SET_H

#include <infiniband/verbs.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/queue.h>

#include "daemon/attachment.h"
#include "daemon/posting.h"
#include "daemon/window.h"
#include "daemon/worker.h"

struct server;

#define WINDOW_SET_ALLOC_MAX 64 /* windows per job of the verbs worker */

struct window_set;

/* What the owner of a set, a lane, is told. */
struct window_set_ops {
	/* Something has been queued: window_set_flush() is due at the end of this turn. */
	void (*queued)(struct window_set *set);
	/* Nothing has to come back any more, for now. */
	void (*idle)(struct window_set *set);
	/* The lane must be closed, in good order if its QP allows it. */
	void (*failed)(struct window_set *set, const char *why);
};

/* All windows of one QP: allocation, binding, and the way behind the fence. */
struct window_set {
	struct server *server;
	const struct window_set_ops *ops;
	bool open;		 /* windows may be asked for */
	bool lost;		 /* nothing is posted any more; what was has an unknown outcome */
	struct window **windows; /* all */
	uint32_t count;
	struct window **free; /* those that may be bound, in no order */
	uint32_t free_count;
	uint32_t retired; /* whose key bytes have run out; they stay until the end */
	uint32_t busy;	  /* windows for which something must come back, and holds of the owner */
	TAILQ_HEAD(, attachment) waiting; /* for free windows, oldest first */
	struct posting posting;
	struct worker_job alloc_job;
	struct ibv_mw *alloc_mws[WINDOW_SET_ALLOC_MAX];
	uint32_t alloc_wanted;
	uint32_t alloc_got;
	uint32_t guards_destroyed; /* by window_set_destroy(), not counted yet */
};

/** window_set_init() - @depth: of the QP's send queue; Return: 0 or -ENOMEM */
int window_set_init(struct window_set *set, struct server *server, struct ibv_qp *qp,
		    uint32_t route, uint32_t depth, const struct window_set_ops *ops);

/** window_set_deinit() - all windows are gone; all zero is allowed */
void window_set_deinit(struct window_set *set);

/** window_set_open() - the QP is connected: from now on windows may be asked for */
void window_set_open(struct window_set *set);

/** window_set_close() - no window may be asked for any more */
void window_set_close(struct window_set *set);

/** window_set_need() - start an attachment when it can have its windows; the set is open */
void window_set_need(struct window_set *set, struct attachment *attachment);

/** window_set_cancel() - an attachment does not wait any more; one that does not wait is allowed */
void window_set_cancel(struct window_set *set, struct attachment *attachment);

/** window_set_take() - a random one of the free windows; there must be one (asserted) */
struct window *window_set_take(struct window_set *set, struct attachment *attachment);

/** window_set_bind() - bind a window whose range, rights and offset are set (guard first, in guarded mode) */
void window_set_bind(struct window *window);

/** window_set_unbind() - put a window behind the fence, whatever it is doing */
void window_set_unbind(struct window *window);

/** window_set_flush() - post what is queued; Return: 0, or a negative errno: the QP must be given up */
int window_set_flush(struct window_set *set);

/** window_set_completed() - the work request of that number, and all before it, have succeeded */
void window_set_completed(struct window_set *set, uint32_t sequence);

/** window_set_give_up() - the QP is in ERR: what is bound or on its way is UNKNOWN */
void window_set_give_up(struct window_set *set);

/** window_set_is_idle() - may the windows be destroyed? */
static inline bool window_set_is_idle(const struct window_set *set)
{
	return set->busy == 0 && !set->alloc_job.submitted;
}

/**
 * window_set_destroy() - deallocate all windows and deregister their guards
 *
 * On the verbs worker, while the set is idle. Return: 0, or the first negative errno; what
 * could be destroyed is.
 */
int window_set_destroy(struct window_set *set);

/** window_set_destroyed() - on the loop, after window_set_destroy(): what is gone is fenced */
void window_set_destroyed(struct window_set *set);

/** window_set_has_key() - does a key belong to one of the windows that are or may be bound? */
bool window_set_has_key(const struct window_set *set, uint32_t rkey);

#endif
