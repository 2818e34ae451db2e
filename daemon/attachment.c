/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The windows of one lease on one lane. Between lease (why) and lane (how): it takes windows
 * from the lane, cuts the lease's range among them, counts binds and fences, and tells the
 * lease when all are bound and when none opens anything any more.
 *
 * Invariants: ending begins once; the lease's fence counts an attachment until the last of
 * its windows is fenced; no key leaves the daemon before all binds have succeeded.
 *
 * Thread: the loop.
 */
#include "daemon/attachment.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>

#include "daemon/modify.h"
#include "daemon/server.h"
#include "proto/error.h"

#define GO(state) (1u << ATTACHMENT_##state)

static const uint32_t attachment_next[ATTACHMENT_STATES] = {
	[ATTACHMENT_WAITING] = GO(BINDING) | GO(RETRACTING) | GO(ENDING),
	[ATTACHMENT_BINDING] = GO(BOUND) | GO(RETRACTING) | GO(ENDING),
	[ATTACHMENT_BOUND] = GO(WAITING) | GO(RETRACTING) | GO(ENDING),
	[ATTACHMENT_RETRACTING] = GO(BOUND) | GO(ENDING),
	[ATTACHMENT_ENDING] = GO(FENCED),
	[ATTACHMENT_FENCED] = 0,
};

static void attachment_set_state(struct attachment *attachment, enum attachment_state state)
{
	assert((attachment_next[attachment->state] >> state & 1) != 0);
	attachment->state = state;
}

static int attachment_charge(struct lease *lease, uint64_t windows)
{
	int code;

	if (lease->quarantined)
		return 0;
	code = tenant_try_charge(lease->tenant, TENANT_WINDOWS, windows);
	if (code == 0)
		lease->charged_windows += windows;
	return code;
}

static void attachment_uncharge(struct lease *lease, uint64_t windows)
{
	if (lease->quarantined)
		return;
	tenant_uncharge(lease->tenant, TENANT_WINDOWS, windows);
	lease->charged_windows -= windows;
}

int attachment_new(struct lease *lease, struct lane *lane, uint64_t request_id,
		   struct attachment **ret_attachment)
{
	uint64_t count =
		attachment_window_total(lease->len_bytes, lease->server->config.window_max_bytes);
	struct attachment *attachment;
	int code;

	assert(count <= PROTO_LEASE_WINDOWS_MAX);
	code = attachment_charge(lease, count);
	if (code != 0)
		return code;
	attachment = calloc(1, sizeof(*attachment));
	if (attachment == NULL)
		goto err_uncharge;
	attachment->windows = calloc(count, sizeof(*attachment->windows));
	if (attachment->windows == NULL)
		goto err_free;
	attachment->lease = lease;
	attachment->lane = lane;
	attachment->request_id = request_id;
	attachment->len_bytes = lease->len_bytes;
	attachment->window_count = (uint32_t)count;
	LIST_INSERT_HEAD(&lease->attachments, attachment, lease_link);
	TAILQ_INSERT_TAIL(&lane->attachments, attachment, lane_link);
	lane->attachment_count++;
	*ret_attachment = attachment;
	return 0;

err_free:
	free(attachment);
err_uncharge:
	attachment_uncharge(lease, count);
	return ERROR_INTERNAL;
}

int attachment_extend(struct attachment *attachment, uint64_t len_bytes)
{
	uint64_t more = attachment_window_total(len_bytes - attachment->covered_bytes,
						attachment->lease->server->config.window_max_bytes);
	struct window **windows;
	int code;

	assert(attachment->state == ATTACHMENT_BOUND &&
	       attachment->window_count + more <= PROTO_LEASE_WINDOWS_MAX);
	windows = realloc(attachment->windows,
			  (attachment->window_count + more) * sizeof(struct window *));
	if (windows == NULL)
		return ERROR_INTERNAL;
	attachment->windows = windows;
	code = attachment_charge(attachment->lease, more);
	if (code != 0)
		return code;
	for (uint64_t i = 0; i < more; i++)
		windows[attachment->window_count + i] = NULL;
	attachment->base_count = attachment->window_count;
	attachment->base_bytes = attachment->covered_bytes;
	attachment->window_count += (uint32_t)more;
	attachment->len_bytes = len_bytes;
	attachment_set_state(attachment, ATTACHMENT_WAITING);
	attachment_start(attachment);
	return 0;
}

/* None of the further windows opens anything: it is what it was before. */
static void attachment_retracted(struct attachment *attachment)
{
	attachment_uncharge(attachment->lease, attachment->window_count - attachment->base_count);
	attachment->window_count = attachment->base_count;
	attachment->windows_taken = attachment->base_count;
	attachment->windows_bound = attachment->base_count;
	attachment->len_bytes = attachment->base_bytes;
	attachment->covered_bytes = attachment->base_bytes;
	attachment_set_state(attachment, ATTACHMENT_BOUND);
	modify_progress(attachment->lease);
}

/* Nothing of it opens anything: leave both lists and let the lease know. */
static void attachment_fenced(struct attachment *attachment)
{
	struct lease *lease = attachment->lease;

	attachment_set_state(attachment, ATTACHMENT_FENCED);
	LIST_REMOVE(attachment, lease_link);
	if (attachment->lane->closing_next == attachment)
		attachment->lane->closing_next = TAILQ_NEXT(attachment, lane_link);
	TAILQ_REMOVE(&attachment->lane->attachments, attachment, lane_link);
	attachment->lane->attachment_count--;
	attachment_uncharge(lease, attachment->window_count);
	lease_attachment_fenced(lease, attachment);
	free(attachment->windows);
	free(attachment);
}

/* The next window covers what comes behind those taken so far. */
static void attachment_cut_range(struct attachment *attachment, struct window *window)
{
	const struct lease *lease = attachment->lease;
	const struct server *server = lease->server;
	uint64_t start = extent_offset_bytes(lease->back.extent);
	uint64_t left = attachment->len_bytes - attachment->covered_bytes;

	window->offset_bytes = attachment->covered_bytes;
	window->addr = (uintptr_t)(server->pool.memory + start + window->offset_bytes);
	window->len_bytes =
		left < server->config.window_max_bytes ? left : server->config.window_max_bytes;
	window->access = 0;
	if ((lease->rights & MESSAGE_RIGHT_READ) != 0)
		window->access |= IBV_ACCESS_REMOTE_READ;
	if ((lease->rights & MESSAGE_RIGHT_WRITE) != 0)
		window->access |= IBV_ACCESS_REMOTE_WRITE;
	if ((lease->rights & MESSAGE_RIGHT_ATOMIC) != 0)
		window->access |= IBV_ACCESS_REMOTE_ATOMIC;
	attachment->covered_bytes += window->len_bytes;
}

void attachment_start(struct attachment *attachment)
{
	window_set_need(&attachment->lane->windows, attachment);
}

void attachment_windows_ready(struct attachment *attachment)
{
	uint32_t first = attachment->windows_taken;

	attachment_set_state(attachment, ATTACHMENT_BINDING);
	while (attachment->windows_taken < attachment->window_count) {
		struct window *window = window_set_take(&attachment->lane->windows, attachment);

		attachment->windows[attachment->windows_taken++] = window;
		attachment->windows_held++;
		attachment_cut_range(attachment, window);
	}
	for (uint32_t i = first; i < attachment->window_count; i++)
		window_set_bind(attachment->windows[i]);
}

/* A window is fenced, or not held back any more: was that what an end waits for? */
static void attachment_let_go(struct attachment *attachment)
{
	assert(attachment->windows_held > 0);
	attachment->windows_held--;
	if (attachment->state == ATTACHMENT_ENDING && attachment->windows_held == 0)
		attachment_fenced(attachment);
	else if (attachment->state == ATTACHMENT_RETRACTING &&
		 attachment->windows_held == attachment->base_count)
		attachment_retracted(attachment);
}

static void attachment_unbind_from(struct attachment *attachment, uint32_t first)
{
	window_set_cancel(&attachment->lane->windows, attachment);
	/* Fencing the last window may free the attachment: hold on to it until all are told. */
	attachment->windows_held++;
	for (uint32_t i = first; i < attachment->window_count; i++) {
		if (attachment->windows[i] != NULL)
			window_set_unbind(attachment->windows[i]);
	}
	attachment_let_go(attachment);
}

void attachment_end(struct attachment *attachment)
{
	if (attachment_is_ending(attachment))
		return;
	attachment_set_state(attachment, ATTACHMENT_ENDING);
	attachment_unbind_from(attachment, 0);
}

void attachment_retract(struct attachment *attachment)
{
	attachment_set_state(attachment, ATTACHMENT_RETRACTING);
	attachment_unbind_from(attachment, attachment->base_count);
}

void attachment_fail(struct attachment *attachment, int code)
{
	if (attachment->failure == 0)
		attachment->failure = code;
	attachment_end(attachment);
}

void attachment_short(struct attachment *attachment, int code)
{
	if (!modify_short(attachment->lease, code))
		attachment_fail(attachment, code);
}

bool attachment_drops(const struct attachment *attachment, const struct window *window)
{
	return attachment_is_ending(attachment) || (attachment->state == ATTACHMENT_RETRACTING &&
						    window->offset_bytes >= attachment->base_bytes);
}

void attachment_window_bound(struct attachment *attachment, struct window *window)
{
	assert(window->state == WINDOW_BOUND);
	attachment->windows_bound++;
	if (attachment->state == ATTACHMENT_BINDING &&
	    attachment->windows_bound == attachment->window_count) {
		attachment_set_state(attachment, ATTACHMENT_BOUND);
		lease_bound(attachment->lease, attachment);
	}
}

void attachment_window_fenced(struct attachment *attachment, struct window *window)
{
	for (uint32_t i = 0; i < attachment->window_count; i++) {
		if (attachment->windows[i] == window)
			attachment->windows[i] = NULL;
	}
	window->attachment = NULL;
	attachment_let_go(attachment);
}
