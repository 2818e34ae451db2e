/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Release requests. Owns the answer that is being put together.
 *
 * Invariant: `pending` counts the leases that refer to the record; the last one that is
 * fenced sends the answer and frees it.
 *
 * Thread: the loop.
 */
#include "daemon/release.h"

#include <stdlib.h>

#include "daemon/server.h"
#include "proto/error.h"

static void release_done(struct release *release, struct session *session)
{
	struct message m = {.type = MESSAGE_RELEASED};

	if (--release->pending > 0)
		return;
	if (session != NULL) {
		m.u.released = release->answer;
		session_reply(session, &m, release->request_id);
	}
	free(release);
}

int release_begin(struct session *session, uint64_t request_id,
		  const struct message_leases *request)
{
	struct release *release = calloc(1, sizeof(*release));

	if (release == NULL)
		return ERROR_INTERNAL;
	release->request_id = request_id;
	release->answer.count = request->count;
	release->pending = 1;
	for (uint16_t i = 0; i < request->count; i++) {
		struct lease *lease = session_own_lease(session, request->lease_ids[i]);

		release->answer.released[i].lease_id = request->lease_ids[i];
		if (lease == NULL) {
			release->answer.released[i].code =
				(uint32_t)notices_reason(&session->notices, request->lease_ids[i]);
			continue;
		}
		release->pending++;
		lease->release = release;
		lease_end(lease, ERROR_RELEASED);
	}
	release_done(release, session);
	return 0;
}

void release_lease_fenced(struct release *release, struct session *session)
{
	release_done(release, session);
}
