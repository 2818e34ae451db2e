/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef DAEMON_ATTACHMENT_H
#define DAEMON_ATTACHMENT_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/queue.h>

struct lane;
struct lease;
struct message_grant;
struct window;

enum attachment_state {
	ATTACHMENT_WAITING, /* for free windows of the lane, or for the fence of a dead lane */
	ATTACHMENT_BINDING,
	ATTACHMENT_BOUND,      /* every window's bind has succeeded */
	ATTACHMENT_RETRACTING, /* windows of an extension are on their way behind the fence */
	ATTACHMENT_ENDING,     /* windows are on their way behind the fence */
	ATTACHMENT_FENCED,     /* no key of it opens anything; about to be freed */
	ATTACHMENT_STATES,
};

/* The windows of one lease on one lane. */
struct attachment {
	enum attachment_state state;
	struct lease *lease;
	struct lane *lane;
	LIST_ENTRY(attachment) lease_link;
	TAILQ_ENTRY(attachment) lane_link;
	TAILQ_ENTRY(attachment) waiting_link; /* in the window set's queue */
	bool in_waiting;
	uint64_t request_id;	/* of the client's message that is answered when it is bound */
	uint64_t len_bytes;	/* of the lease, as far as its windows are to reach */
	uint64_t covered_bytes; /* by the windows taken so far */
	uint32_t window_count;	/* wanted in all */
	uint32_t base_count;	/* of those, bound before the last extension */
	uint64_t base_bytes;	/* that those cover */
	uint32_t windows_taken; /* of those, so far */
	uint32_t windows_bound;
	uint32_t windows_held;	 /* taken and not yet fenced */
	int failure;		 /* error code if binding went wrong */
	struct window **windows; /* NULL where fenced */
};

/**
 * attachment_new() - plan the windows of a lease on a lane
 * @request_id: of the request that is answered once it is bound
 *
 * Joins both. Return: 0, or an error code: the tenant's quota, or no memory.
 */
int attachment_new(struct lease *lease, struct lane *lane, uint64_t request_id,
		   struct attachment **ret_attachment);

/** attachment_start() - get windows and bind them; the lane must be ready */
void attachment_start(struct attachment *attachment);

/**
 * attachment_extend() - bind further windows over the bytes behind those that are covered
 * @len_bytes: new length of the lease; the attachment is BOUND
 *
 * The windows so far stay as they are. Return: 0, or an error code as attachment_new()
 * (nothing has changed).
 */
int attachment_extend(struct attachment *attachment, uint64_t len_bytes);

/**
 * attachment_retract() - undo attachment_extend(), bound or not
 *
 * The windows from before stay as they are. modify_progress() follows when the others are
 * behind their fence, perhaps before the return.
 */
void attachment_retract(struct attachment *attachment);

/** attachment_windows_wanted() - how many windows it waits for */
static inline uint32_t attachment_windows_wanted(const struct attachment *attachment)
{
	return attachment->window_count - attachment->windows_taken;
}

/** attachment_window_total() - windows needed for a length; @window_max_bytes: of the configuration */
static inline uint64_t attachment_window_total(uint64_t len_bytes, uint64_t window_max_bytes)
{
	return len_bytes / window_max_bytes + (len_bytes % window_max_bytes != 0);
}

/** attachment_windows_ready() - the lane has enough free windows now */
void attachment_windows_ready(struct attachment *attachment);

/**
 * attachment_end() - invalidate what is bound; begins once, later calls do nothing
 *
 * lease_fenced() follows, perhaps before the return.
 */
void attachment_end(struct attachment *attachment);

/** attachment_fail() - end, and answer the request with an error code */
void attachment_fail(struct attachment *attachment, int code);

/**
 * attachment_short() - windows or registrations cannot be had
 *
 * An extension is undone, on all lanes of the lease; anything else fails.
 */
void attachment_short(struct attachment *attachment, int code);

/** attachment_window_bound(), attachment_window_fenced() - the lane reports on a window */
void attachment_window_bound(struct attachment *attachment, struct window *window);
void attachment_window_fenced(struct attachment *attachment, struct window *window);

/** attachment_drops() - is a window of it to be invalidated as soon as its bind is known? */
bool attachment_drops(const struct attachment *attachment, const struct window *window);

/** attachment_is_ending() - is it on its way behind the fence, or there? */
static inline bool attachment_is_ending(const struct attachment *attachment)
{
	return attachment->state >= ATTACHMENT_ENDING;
}

#endif
