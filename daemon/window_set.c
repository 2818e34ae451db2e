/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * All windows of one QP. They are allocated after it, in batches, by the verbs worker; bound
 * and invalidated through the one posting queue; and deallocated before the QP is destroyed.
 *
 * Invariants:
 * - `busy` counts the windows for which a completion or a job must come back, and the holds
 *   of the owner; the set is destroyed only when it is zero;
 * - while a job of a window or of the set is submitted, the loop touches nothing the job uses;
 * - once the QP is lost no window is posted on: bound ones become UNKNOWN, which only
 *   deallocation ends.
 *
 * Thread: the loop, except the *_run functions and window_set_destroy(), which run on the
 * verbs worker.
 */
#include "daemon/window_set.h"

#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "common/secure.h"
#include "common/verbs.h"
#include "daemon/server.h"
#include "proto/error.h"

#define WINDOW_SET_ALLOC_STEP  8u
#define WINDOW_SET_RETIRED_MAX 1024u /* then the client has to take another lane */

static void window_set_alloc(struct window_set *set, uint32_t wanted);

int window_set_init(struct window_set *set, struct server *server, struct ibv_qp *qp,
		    uint32_t route, uint32_t depth, const struct window_set_ops *ops)
{
	*set = (struct window_set){.server = server, .ops = ops};
	TAILQ_INIT(&set->waiting);
	return posting_init(&set->posting, qp, route, depth, &server->counters);
}

void window_set_deinit(struct window_set *set)
{
	assert(TAILQ_EMPTY(&set->waiting) && set->busy == 0);
	posting_deinit(&set->posting);
	for (uint32_t i = 0; i < set->count; i++) {
		assert(set->windows[i]->mw == NULL && set->windows[i]->guard == NULL);
		free(set->windows[i]);
	}
	free(set->windows);
	free(set->free);
	*set = (struct window_set){0};
	TAILQ_INIT(&set->waiting);
}

void window_set_open(struct window_set *set)
{
	set->open = true;
	window_set_alloc(set, WINDOW_SET_ALLOC_STEP);
}

void window_set_close(struct window_set *set)
{
	set->open = false;
}

/* Allocation. */

static void window_set_alloc_run(struct worker_job *job)
{
	struct window_set *set =
		(struct window_set *)((char *)job - offsetof(struct window_set, alloc_job));

	for (set->alloc_got = 0; set->alloc_got < set->alloc_wanted; set->alloc_got++) {
		if (verbs_alloc_mw(set->server->device.pd, &set->alloc_mws[set->alloc_got]) < 0)
			break;
	}
}

static void window_set_serve(struct window_set *set)
{
	struct attachment *attachment;

	while (set->open && (attachment = TAILQ_FIRST(&set->waiting)) != NULL) {
		uint32_t wanted = attachment_windows_wanted(attachment);

		if (wanted > set->free_count) {
			window_set_alloc(set, wanted - set->free_count);
			return;
		}
		window_set_cancel(set, attachment);
		attachment_windows_ready(attachment);
	}
}

static void window_set_alloc_failed(struct window_set *set)
{
	struct attachment *first;

	while ((first = TAILQ_FIRST(&set->waiting)) != NULL)
		attachment_short(first, ERROR_WINDOWS_MAX);
}

static void window_set_alloc_done(struct worker_job *job)
{
	struct window_set *set =
		(struct window_set *)((char *)job - offsetof(struct window_set, alloc_job));
	uint32_t end = set->count + set->alloc_wanted;

	set->server->counters.windows_allocated += set->alloc_got;
	for (uint32_t i = 0; i < set->alloc_got; i++) {
		struct window *window = set->windows[set->count++];

		window_init(window, set, set->alloc_mws[i]);
		set->free[set->free_count++] = window;
	}
	for (uint32_t i = set->count; i < end; i++)
		free(set->windows[i]);
	if (set->alloc_got == 0)
		window_set_alloc_failed(set);
	window_set_serve(set);
	if (window_set_is_idle(set))
		set->ops->idle(set);
}

/* Room for the new windows is made before the job, so that nothing can fail after it. */
static bool window_set_make_room(struct window_set *set, uint32_t more)
{
	uint32_t end = set->count + more;
	struct window **windows;
	struct window **free_windows;

	windows = realloc(set->windows, end * sizeof(struct window *));
	if (windows == NULL)
		return false;
	set->windows = windows;
	free_windows = realloc(set->free, end * sizeof(struct window *));
	if (free_windows == NULL)
		return false;
	set->free = free_windows;
	for (uint32_t i = set->count; i < end; i++) {
		windows[i] = calloc(1, sizeof(struct window));
		if (windows[i] == NULL) {
			while (i-- > set->count)
				free(windows[i]);
			return false;
		}
	}
	return true;
}

static void window_set_alloc(struct window_set *set, uint32_t wanted)
{
	if (set->alloc_job.submitted)
		return;
	if (wanted < WINDOW_SET_ALLOC_STEP)
		wanted = WINDOW_SET_ALLOC_STEP;
	if (wanted > WINDOW_SET_ALLOC_MAX)
		wanted = WINDOW_SET_ALLOC_MAX;
	if (!window_set_make_room(set, wanted)) {
		window_set_alloc_failed(set);
		return;
	}
	set->alloc_wanted = wanted;
	set->alloc_job.run = window_set_alloc_run;
	set->alloc_job.done = window_set_alloc_done;
	worker_submit(set->server->verbs_worker, &set->alloc_job);
}

void window_set_need(struct window_set *set, struct attachment *attachment)
{
	assert(set->open);
	TAILQ_INSERT_TAIL(&set->waiting, attachment, waiting_link);
	attachment->in_waiting = true;
	window_set_serve(set);
}

void window_set_cancel(struct window_set *set, struct attachment *attachment)
{
	if (!attachment->in_waiting)
		return;
	TAILQ_REMOVE(&set->waiting, attachment, waiting_link);
	attachment->in_waiting = false;
}

struct window *window_set_take(struct window_set *set, struct attachment *attachment)
{
	struct window *window;
	uint32_t index;

	assert(set->free_count > 0);
	index = secure_uniform(set->free_count);
	window = set->free[index];
	set->free[index] = set->free[--set->free_count];
	window->attachment = attachment;
	return window;
}

/* Binding, and the way behind the fence. */

static void window_set_go(struct window *window, enum window_state state)
{
	struct window_set *set = window->set;

	set->busy -= window_is_busy(window->state);
	set->busy += window_is_busy(state);
	window_set_state(window, state);
	if (state == WINDOW_UNKNOWN)
		set->server->counters.windows_unknown++;
}

/* The window opens nothing any more: it may be bound again, and its user may go on. */
static void window_set_fenced(struct window *window)
{
	struct attachment *attachment = window->attachment;
	struct window_set *set = window->set;

	if (window_exhausted(window)) {
		window_set_go(window, WINDOW_RETIRED);
		set->retired++;
	} else {
		window_set_go(window, WINDOW_FREE);
		set->free[set->free_count++] = window;
	}
	if (attachment != NULL)
		attachment_window_fenced(attachment, window);
	window_set_serve(set);
	if (set->retired == WINDOW_SET_RETIRED_MAX)
		set->ops->failed(set, "its windows are used up");
	if (window_set_is_idle(set))
		set->ops->idle(set);
}

static void window_set_dereg_run(struct worker_job *job)
{
	struct window *window = (struct window *)((char *)job - offsetof(struct window, job));

	window->job_result = verbs_dereg_mr(window->guard);
}

static void window_set_dereg_done(struct worker_job *job)
{
	struct window *window = (struct window *)((char *)job - offsetof(struct window, job));
	struct window_set *set = window->set;

	if (window->job_result == 0) {
		set->server->counters.guards_deregistered++;
		window->guard = NULL;
		window_set_fenced(window);
		return;
	}
	set->server->counters.destroy_failures++;
	log_error("guard not deregistered qp=0x%x error=\"%s\"", set->posting.qp->qp_num,
		  strerror(-window->job_result));
	window_set_go(window, WINDOW_UNKNOWN);
	set->ops->failed(set, "a guard registration could not be removed");
	if (window_set_is_idle(set))
		set->ops->idle(set);
}

/* The window is bound to nothing; on Soft-RoCE only removing the guard waits for what is under way. */
static void window_set_unguard(struct window *window)
{
	if (window->guard == NULL) {
		window_set_fenced(window);
		return;
	}
	window_set_go(window, WINDOW_UNGUARDING);
	window->job.run = window_set_dereg_run;
	window->job.done = window_set_dereg_done;
	worker_submit(window->set->server->verbs_worker, &window->job);
}

static void window_set_queue(struct window *window, enum window_state state)
{
	window_set_go(window, state);
	posting_add(&window->set->posting, window);
	window->set->ops->queued(window->set);
}

static void window_set_reg_run(struct worker_job *job)
{
	struct window *window = (struct window *)((char *)job - offsetof(struct window, job));

	window->job_result = verbs_reg_mr(
		window->set->server->device.pd, (void *)(uintptr_t)window->addr, window->len_bytes,
		IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_MW_BIND, &window->guard);
}

static void window_set_reg_done(struct worker_job *job)
{
	struct window *window = (struct window *)((char *)job - offsetof(struct window, job));
	struct window_set *set = window->set;

	if (window->job_result < 0) {
		log_warn("guard not registered qp=0x%x error=\"%s\"", set->posting.qp->qp_num,
			 strerror(-window->job_result));
		attachment_short(window->attachment, ERROR_NO_MEMORY);
		window_set_fenced(window);
		return;
	}
	set->server->counters.guards_registered++;
	window->mr = window->guard;
	if (attachment_drops(window->attachment, window) || set->lost)
		window_set_unguard(window);
	else
		window_set_queue(window, WINDOW_BINDING);
}

void window_set_bind(struct window *window)
{
	struct server *server = window->set->server;

	/* Nothing that a client can say leads to a wrong one, and not every device refuses it. */
	assert(window_check(window, server->device.pool_mr, DEVICE_POOL_ACCESS) == 0);
	window_new_key(window);
	if (!server->isolation.guarded) {
		window->mr = server->device.pool_mr;
		window_set_queue(window, WINDOW_BINDING);
		return;
	}
	window_set_go(window, WINDOW_GUARDING);
	window->job.run = window_set_reg_run;
	window->job.done = window_set_reg_done;
	worker_submit(server->verbs_worker, &window->job);
}

void window_set_unbind(struct window *window)
{
	struct window_set *set = window->set;

	if (window->state == WINDOW_BOUND && set->lost) {
		window_set_go(window, WINDOW_UNKNOWN);
	} else if (window->state == WINDOW_BOUND) {
		window_set_queue(window, WINDOW_INVALIDATING);
	} else if (window->state == WINDOW_BINDING && window->queued) {
		posting_remove(&set->posting, window);
		window_set_unguard(window);
	}
	/* In every other state a completion or a job will see that it must go. */
}

/* Posting and completions. */

int window_set_flush(struct window_set *set)
{
	return set->lost ? 0 : posting_flush(&set->posting);
}

static void window_set_complete_one(struct window *window)
{
	struct window_set *set = window->set;

	if (window->state == WINDOW_INVALIDATING) {
		set->server->counters.invalidates_succeeded++;
		window_set_unguard(window);
		return;
	}
	assert(window->state == WINDOW_BINDING);
	set->server->counters.binds_succeeded++;
	window->mw->rkey = window->rkey;
	window_set_go(window, WINDOW_BOUND);
	if (attachment_drops(window->attachment, window))
		window_set_unbind(window);
	else
		attachment_window_bound(window->attachment, window);
}

void window_set_completed(struct window_set *set, uint32_t sequence)
{
	struct window *window;

	while ((window = posting_pop(&set->posting, sequence)) != NULL)
		window_set_complete_one(window);
	if (!TAILQ_EMPTY(&set->posting.queue))
		set->ops->queued(set);
}

void window_set_give_up(struct window_set *set)
{
	struct window *window;

	set->lost = true;
	while ((window = posting_pop_any(&set->posting)) != NULL)
		window_set_go(window, WINDOW_UNKNOWN);
	while ((window = TAILQ_FIRST(&set->posting.queue)) != NULL) {
		posting_remove(&set->posting, window);
		if (window->state == WINDOW_INVALIDATING)
			window_set_go(window, WINDOW_UNKNOWN);
		else
			window_set_unguard(window);
	}
}

/* The end. */

int window_set_destroy(struct window_set *set)
{
	int first = 0;

	for (uint32_t i = 0; i < set->count; i++) {
		struct window *window = set->windows[i];
		int r = 0;

		if (window->mw != NULL) {
			r = verbs_dealloc_mw(window->mw);
			if (r == 0)
				window->mw = NULL;
		}
		if (r == 0 && window->guard != NULL) {
			r = verbs_dereg_mr(window->guard);
			if (r == 0) {
				window->guard = NULL;
				set->guards_destroyed++;
			}
		}
		if (first == 0)
			first = r;
	}
	return first;
}

/* Deallocating a window is a fence as good as an invalidate. */
void window_set_destroyed(struct window_set *set)
{
	set->server->counters.guards_deregistered += set->guards_destroyed;
	set->guards_destroyed = 0;
	for (uint32_t i = 0; i < set->count; i++) {
		struct window *window = set->windows[i];
		struct attachment *attachment = window->attachment;

		if (window->state == WINDOW_GONE || window->mw != NULL || window->guard != NULL)
			continue;
		set->server->counters.windows_deallocated++;
		window_set_go(window, WINDOW_GONE);
		if (attachment != NULL)
			attachment_window_fenced(attachment, window);
	}
}

bool window_set_has_key(const struct window_set *set, uint32_t rkey)
{
	for (uint32_t i = 0; i < set->count; i++) {
		const struct window *window = set->windows[i];

		if (window->rkey == rkey && window->attachment != NULL)
			return true;
	}
	return false;
}
