/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What a session is told of a lease on a lane: its descriptors. Keeps nothing.
 *
 * Thread: the loop.
 */
#include "daemon/grant.h"

#include <assert.h>
#include <string.h>

#include "common/clock.h"
#include "daemon/lane.h"
#include "daemon/lease.h"
#include "daemon/session.h"
#include "daemon/window.h"
#include "proto/message.h"

void grant_send(struct lease *lease, struct session *session, const struct attachment *attachment,
		uint64_t request_id, bool more)
{
	struct message m = {.type = MESSAGE_GRANT, .flags = more ? MESSAGE_FLAG_MORE : 0};
	struct message_grant *grant = &m.u.grant;

	grant->lease_id = lease->id;
	grant->generation = lease->generation;
	grant->len_bytes = lease->len_bytes;
	grant->ttl_ms = clock_left_ms(lease->deadline.at_ns, clock_now_ns());
	grant->rights = lease->rights;
	grant->lane = attachment->lane->number;
	memcpy(grant->secret, lease->secret, sizeof(grant->secret));
	grant->descriptor_count = (uint16_t)attachment->window_count;
	for (uint32_t i = 0; i < attachment->window_count; i++) {
		const struct window *window = attachment->windows[i];

		grant->descriptors[i] = (struct message_descriptor){
			.offset_bytes = window->offset_bytes,
			.len_bytes = window->len_bytes,
			.remote_addr = window->addr,
			.rkey = window->rkey,
		};
	}
	lease->granted = true;
	session_reply(session, &m, request_id);
}

static struct attachment *grant_next(struct attachment *attachment)
{
	while (attachment != NULL && attachment->state != ATTACHMENT_BOUND)
		attachment = LIST_NEXT(attachment, lease_link);
	return attachment;
}

void grant_send_first(struct lease *lease, struct session *session, uint64_t request_id, bool more)
{
	struct attachment *attachment = grant_next(LIST_FIRST(&lease->attachments));

	assert(attachment != NULL);
	grant_send(lease, session, attachment, request_id, more);
}

void grant_send_all(struct lease *lease, uint64_t request_id)
{
	struct attachment *attachment = grant_next(LIST_FIRST(&lease->attachments));

	while (attachment != NULL) {
		struct attachment *next = grant_next(LIST_NEXT(attachment, lease_link));

		grant_send(lease, lease->session, attachment, request_id, next != NULL);
		attachment = next;
	}
}
