/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Notices about leases: collected during a turn of the loop and sent with its end, as many
 * leases in one message as it holds; and the memory of why leases have ended.
 *
 * Thread: the loop.
 */
#include "daemon/notices.h"

#include "daemon/session.h"
#include "proto/error.h"

static void notices_send_ended(struct session *session)
{
	struct message m = {.type = MESSAGE_LEASES_ENDED};

	if (session->notices.ended.count == 0)
		return;
	m.u.leases_ended = session->notices.ended;
	session->notices.ended.count = 0;
	session_notice(session, &m);
}

static void notices_send_revoked(struct session *session)
{
	struct message m = {.type = MESSAGE_REVOKE};

	if (session->notices.revoked.count == 0)
		return;
	m.u.revoke = session->notices.revoked;
	session->notices.revoked.count = 0;
	session_notice(session, &m);
}

void notices_send(struct session *session)
{
	notices_send_revoked(session);
	notices_send_ended(session);
}

void notices_revoked(struct session *session, const struct lease *lease, uint64_t grace_ms)
{
	struct message_revoke *notice = &session->notices.revoked;

	if (notice->count == PROTO_NOTICE_LEASES)
		notices_send_revoked(session);
	notice->revoked[notice->count].lease_id = lease->id;
	notice->revoked[notice->count].grace_ms = (uint32_t)grace_ms;
	notice->count++;
	session_want_flush(session);
}

static void notices_remember(struct notices *notices, const struct lease *lease)
{
	notices->past[notices->past_next].lease_id = lease->id;
	notices->past[notices->past_next].reason = lease->reason;
	notices->past_next = (notices->past_next + 1) % NOTICES_ENDED_MAX;
}

void notices_ended(struct session *session, const struct lease *lease, bool tell)
{
	struct message_leases_ended *notice = &session->notices.ended;

	notices_remember(&session->notices, lease);
	if (!tell || session->state != SESSION_OPEN)
		return;
	if (notice->count == PROTO_NOTICE_LEASES)
		notices_send_ended(session);
	notice->ended[notice->count].lease_id = lease->id;
	notice->ended[notice->count].reason = (uint32_t)lease->reason;
	notice->count++;
	session_want_flush(session);
}

int notices_reason(const struct notices *notices, uint64_t lease_id)
{
	for (int i = 0; i < NOTICES_ENDED_MAX; i++) {
		if (notices->past[i].lease_id == lease_id && lease_id != 0)
			return notices->past[i].reason;
	}
	return ERROR_NO_LEASE;
}
