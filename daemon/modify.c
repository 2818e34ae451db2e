/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Changing a lease's rights or length. Other rights and a shorter range need other windows:
 * the owner is asked to stop, the old windows go behind their fence, and new ones are bound
 * with new keys. A longer range needs only more windows.
 *
 * Invariants: a change happens wholly or not at all, except that a lane may be lost while it
 * is made, and that windows which had to go first may be impossible to replace; bytes that are cut off go to the scrubber behind the fence of every window that
 * reached them; one change per lease at a time.
 *
 * Thread: the loop.
 */
#include "daemon/modify.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>

#include "common/checked.h"
#include "common/clock.h"
#include "daemon/grant.h"
#include "daemon/server.h"
#include "proto/error.h"

/* Bytes that were cut off a lease, on their way back to free. */
struct modify_tail {
	struct pool_return back;
	struct server *server;
	struct tenant *tenant;
	uint64_t charged_bytes;
};

static int modify_check(const struct lease *lease, const struct message_modify *request)
{
	const struct server *server = lease->server;
	const struct attachment *attachment;
	int code;

	if (request->len_bytes == 0)
		return ERROR_LENGTH_ZERO;
	if (request->len_bytes > server->pool.len_bytes)
		return ERROR_LENGTH_POOL;
	if (request->rights == 0 || (request->rights & ~(uint32_t)MESSAGE_RIGHTS_ALL) != 0)
		return ERROR_RIGHTS;
	if ((request->rights & ~server->isolation.rights) != 0)
		return ERROR_RIGHTS_DEVICE;
	if (attachment_window_total(request->len_bytes, server->config.window_max_bytes) >
	    PROTO_LEASE_WINDOWS_MAX)
		return ERROR_WINDOWS_MAX;
	code = tenant_check_length(lease->tenant, request->len_bytes);
	if (code == 0)
		code = tenant_check_rights(lease->tenant, request->rights);
	if (code != 0)
		return code;
	if (lease->revoking)
		return ERROR_REVOKED;
	if (lease->state != LEASE_ACTIVE)
		return ERROR_BUSY;
	LIST_FOREACH (attachment, &lease->attachments, lease_link) {
		if (attachment->state != ATTACHMENT_BOUND)
			return ERROR_BUSY;
	}
	return 0;
}

static void modify_on_deadline(struct deadline *deadline, void *context)
{
	struct lease *lease = context;

	(void)deadline;
	modify_cancel(lease, ERROR_BUSY);
	lease_set_state(lease, LEASE_ACTIVE);
}

static struct modify *modify_new(struct lease *lease, uint64_t request_id,
				 const struct message_modify *request)
{
	const struct attachment *attachment;
	struct modify *modify;
	uint32_t count = 0;

	LIST_FOREACH (attachment, &lease->attachments, lease_link)
		count++;
	modify = calloc(1, sizeof(*modify) + count * sizeof(modify->lanes[0]));
	if (modify == NULL)
		return NULL;
	modify->deadline = (struct deadline){.fire = modify_on_deadline, .context = lease};
	modify->request_id = request_id;
	modify->len_bytes = request->len_bytes;
	modify->rights = request->rights;
	LIST_FOREACH (attachment, &lease->attachments, lease_link)
		modify->lanes[modify->lane_count++] = attachment->lane->number;
	return modify;
}

static void modify_free(struct lease *lease)
{
	deadline_clear(lease->server->deadlines, &lease->modify->deadline);
	free(lease->modify);
	lease->modify = NULL;
}

/* Take what is missing at the end. Return: 0 or an error code. */
static int modify_grow_extent(struct lease *lease, uint64_t len_bytes)
{
	uint64_t more_bytes = 0;
	uint64_t whole_bytes;
	int code = 0;
	int r;

	if (len_bytes <= lease->extent_bytes)
		return 0;
	if (!checked_round_up(len_bytes, lease->server->pool.page_bytes, &whole_bytes))
		return ERROR_LENGTH_POOL;
	if (!lease->quarantined) {
		more_bytes = whole_bytes - lease->extent_bytes;
		code = tenant_try_charge(lease->tenant, TENANT_BYTES, more_bytes);
	}
	if (code != 0)
		return code;
	r = extent_grow(lease->server->pool.extents, lease->back.extent, len_bytes);
	if (r < 0) {
		tenant_uncharge(lease->tenant, TENANT_BYTES, more_bytes);
		return lease_extent_error(r);
	}
	lease->extent_bytes = whole_bytes;
	assert(extent_len_bytes(lease->back.extent) == whole_bytes);
	return 0;
}

static void modify_tail_cleaned(struct pool_return *back)
{
	struct modify_tail *tail =
		(struct modify_tail *)((char *)back - offsetof(struct modify_tail, back));

	tenant_uncharge(tail->tenant, TENANT_BYTES, tail->charged_bytes);
	tenant_unref(tail->tenant);
	tail->server->tails--;
	server_maybe_stopped(tail->server);
	free(tail);
}

/* Give back the whole pages behind the new end; without memory for that they stay with the lease. */
static void modify_cut_extent(struct lease *lease, uint64_t len_bytes)
{
	struct server *server = lease->server;
	struct modify_tail *tail = calloc(1, sizeof(*tail));
	struct extent *cut;

	if (tail == NULL)
		return;
	if (extent_cut(server->pool.extents, lease->back.extent, len_bytes, &cut) < 0 ||
	    cut == NULL) {
		free(tail);
		return;
	}
	lease->extent_bytes = extent_len_bytes(lease->back.extent);
	tail->back.extent = cut;
	tail->back.cleaned = modify_tail_cleaned;
	tail->server = server;
	tail->tenant = tenant_ref(lease->tenant);
	tail->charged_bytes = lease->quarantined ? 0 : extent_len_bytes(cut);
	server->tails++;
	pool_give_back(&server->pool, &tail->back);
}

static int modify_grow(struct lease *lease)
{
	struct attachment *attachment;
	struct attachment *next;
	int code = modify_grow_extent(lease, lease->modify->len_bytes);

	if (code != 0)
		return code;
	lease_set_state(lease, LEASE_REBINDING);
	lease->modify->grown_from_bytes = lease->len_bytes;
	lease->len_bytes = lease->modify->len_bytes;
	lease->modify->applied = true;
	lease->modify->starting = true;
	for (attachment = LIST_FIRST(&lease->attachments); attachment != NULL; attachment = next) {
		next = LIST_NEXT(attachment, lease_link);
		if (lease->modify->failure == 0)
			code = attachment_extend(attachment, lease->len_bytes);
		if (code != 0 && lease->modify->failure == 0)
			(void)modify_short(lease, code);
	}
	lease->modify->starting = false;
	modify_progress(lease);
	return 0;
}

bool modify_short(struct lease *lease, int code)
{
	struct modify *modify = lease->modify;
	struct attachment *attachment;
	bool was_starting;

	if (modify == NULL || modify->grown_from_bytes == 0)
		return false;
	if (modify->failure == 0)
		modify->failure = code;
	/* One that is taken back at once must not end the change before the others are. */
	was_starting = modify->starting;
	modify->starting = true;
	LIST_FOREACH (attachment, &lease->attachments, lease_link) {
		if (attachment->len_bytes > modify->grown_from_bytes &&
		    attachment->state < ATTACHMENT_RETRACTING)
			attachment_retract(attachment);
	}
	modify->starting = was_starting;
	modify_progress(lease);
	return true;
}

/* What was added is behind its fence. */
static void modify_take_back(struct lease *lease)
{
	modify_cut_extent(lease, lease->modify->grown_from_bytes);
	lease->len_bytes = lease->modify->grown_from_bytes;
	modify_cancel(lease, lease->modify->failure);
	lease_set_state(lease, LIST_EMPTY(&lease->attachments) ? LEASE_DETACHED : LEASE_ACTIVE);
}

static int modify_ask(struct lease *lease)
{
	struct message m = {.type = MESSAGE_QUIESCE, .u.lease.lease_id = lease->id};
	struct server *server = lease->server;

	if (deadline_set(server->deadlines, &lease->modify->deadline,
			 clock_add_ms(clock_now_ns(), server->config.quiesce_timeout_ms)) < 0)
		return ERROR_INTERNAL;
	lease_set_state(lease, LEASE_QUIESCING);
	session_notice(lease->session, &m);
	return 0;
}

/* As many windows as the lease would have if grown by adding to what there is. */
static bool modify_fits_windows(const struct lease *lease, uint64_t len_bytes)
{
	uint64_t window_max = lease->server->config.window_max_bytes;
	const struct attachment *attachment;

	LIST_FOREACH (attachment, &lease->attachments, lease_link) {
		if (attachment->window_count +
			    attachment_window_total(len_bytes - lease->len_bytes, window_max) >
		    PROTO_LEASE_WINDOWS_MAX)
			return false;
	}
	return true;
}

int modify_begin(struct lease *lease, uint64_t request_id, const struct message_modify *request)
{
	bool same_rights = request->rights == lease->rights;
	int code = modify_check(lease, request);

	if (code != 0)
		return code;
	if (same_rights && request->len_bytes == lease->len_bytes) {
		grant_send_all(lease, request_id);
		return 0;
	}
	if (request->len_bytes > lease->len_bytes && !drain_is_serving(&lease->server->drain))
		return ERROR_DRAINING;
	if (same_rights && request->len_bytes > lease->len_bytes &&
	    !modify_fits_windows(lease, request->len_bytes))
		return ERROR_WINDOWS_MAX;
	lease->modify = modify_new(lease, request_id, request);
	if (lease->modify == NULL)
		return ERROR_INTERNAL;
	if (same_rights && request->len_bytes > lease->len_bytes)
		code = modify_grow(lease);
	else
		code = modify_ask(lease);
	if (code != 0)
		modify_free(lease);
	return code;
}

void modify_quiesced(struct lease *lease)
{
	struct modify *modify = lease->modify;
	struct attachment *attachment;
	struct attachment *next;
	int code = 0;

	if (lease->state != LEASE_QUIESCING)
		return;
	deadline_clear(lease->server->deadlines, &modify->deadline);
	if (modify->len_bytes > lease->len_bytes)
		code = modify_grow_extent(lease, modify->len_bytes);
	if (code != 0) {
		modify_cancel(lease, code);
		lease_set_state(lease, LEASE_ACTIVE);
		return;
	}
	lease_set_state(lease, LEASE_REBINDING);
	/* Ending the last attachment may go on to binding anew, so the list is walked only once. */
	for (attachment = LIST_FIRST(&lease->attachments); attachment != NULL; attachment = next) {
		next = LIST_NEXT(attachment, lease_link);
		attachment_end(attachment);
	}
}

/* The old windows are behind their fence: the lease becomes what was asked for. */
static void modify_apply(struct lease *lease)
{
	struct modify *modify = lease->modify;

	lease->rights = modify->rights;
	if (modify->len_bytes < lease->len_bytes)
		modify_cut_extent(lease, modify->len_bytes);
	lease->len_bytes = modify->len_bytes;
	modify->applied = true;
	modify->starting = true;
	for (uint32_t i = 0; i < modify->lane_count; i++) {
		struct lane *lane = NULL;
		struct attachment *attachment;

		if (lease->session != NULL)
			lane = session_lane(lease->session, modify->lanes[i]);
		if (lane != NULL && lane->state == LANE_READY &&
		    attachment_new(lease, lane, 0, &attachment) == 0)
			attachment_start(attachment);
	}
	modify->starting = false;
}

static bool modify_is_done(const struct lease *lease)
{
	const struct attachment *attachment;

	LIST_FOREACH (attachment, &lease->attachments, lease_link) {
		if (attachment->state != ATTACHMENT_BOUND)
			return false;
	}
	return true;
}

void modify_progress(struct lease *lease)
{
	uint64_t request_id = lease->modify->request_id;

	if (lease->modify->starting)
		return;
	if (!lease->modify->applied) {
		if (!LIST_EMPTY(&lease->attachments))
			return;
		modify_apply(lease);
	}
	if (!modify_is_done(lease))
		return;
	if (lease->modify->failure != 0) {
		modify_take_back(lease);
		return;
	}
	if (LIST_EMPTY(&lease->attachments)) {
		modify_cancel(lease, ERROR_LANE);
		lease_set_state(lease, LEASE_DETACHED);
		return;
	}
	modify_free(lease);
	lease->generation++;
	lease_set_state(lease, LEASE_ACTIVE);
	lease_audit(lease, AUDIT_LEASE_MODIFIED, NULL, 0);
	grant_send_all(lease, request_id);
}

void modify_hold(struct lease *lease)
{
	if (lease->modify != NULL)
		lease->modify->starting = true;
}

void modify_resume(struct lease *lease)
{
	if (lease->modify == NULL)
		return;
	lease->modify->starting = false;
	modify_progress(lease);
}

void modify_cancel(struct lease *lease, int code)
{
	if (lease->modify == NULL)
		return;
	if (lease->session != NULL)
		session_reply_error(lease->session, lease->modify->request_id, code);
	modify_free(lease);
}
