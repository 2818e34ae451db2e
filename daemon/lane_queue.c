/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * When a session gets its next lane. The first lost lane is replaced at once, each further one
 * after twice the time; a tenant that has strikes against it waits in all its sessions.
 *
 * Thread: the loop.
 */
#include "daemon/lane_queue.h"

#include <string.h>

#include "common/clock.h"
#include "daemon/penalty.h"
#include "daemon/server.h"
#include "proto/error.h"

static uint64_t lane_queue_allowed_ns(const struct lane_queue *queue)
{
	uint64_t own_ns = queue->lost_ns == 0 ? 0 : clock_add_ms(queue->lost_ns, queue->wait_ms);
	uint64_t tenant_ns = penalty_lane_from_ns(queue->session->tenant);

	return own_ns > tenant_ns ? own_ns : tenant_ns;
}

void lane_queue_note_lost(struct lane_queue *queue)
{
	const struct config *config = &queue->session->server->config;
	uint64_t now_ns = clock_now_ns();

	if (queue->lost_ns == 0 || clock_add_ms(queue->lost_ns, config->lane_peace_ms) <= now_ns)
		queue->wait_ms = 0;
	else if (queue->wait_ms == 0)
		queue->wait_ms = config->lane_wait_min_ms;
	else
		queue->wait_ms *= 2;
	if (queue->wait_ms > config->lane_wait_max_ms)
		queue->wait_ms = config->lane_wait_max_ms;
	queue->lost_ns = now_ns;
}

static int lane_queue_offer(struct lane_queue *queue, uint64_t request_id)
{
	struct session *session = queue->session;
	struct message m = {.type = MESSAGE_LANE_OFFER};
	struct lane *lane;
	int code = lane_offer(session, queue->next_number, &lane);

	if (code != 0)
		return code;
	queue->next_number++;
	m.u.lane_offer.lane = lane->number;
	m.u.lane_offer.expires_ms = (uint32_t)session->server->config.lane_offer_ms;
	session_reply(session, &m, request_id);
	return 0;
}

/* One that has waited; with a further loss since then, the others go on waiting. */
static void lane_queue_on_deadline(struct deadline *deadline, void *context)
{
	struct lane_queue *queue = context;
	struct server *server = queue->session->server;
	uint64_t allowed_ns = lane_queue_allowed_ns(queue);
	uint64_t request_id = queue->opens[0];
	int code;

	if (allowed_ns > clock_now_ns()) {
		(void)deadline_set(server->deadlines, deadline, allowed_ns);
		return;
	}
	queue->open_count--;
	memmove(queue->opens, queue->opens + 1, queue->open_count * sizeof(queue->opens[0]));
	code = lane_queue_offer(queue, request_id);
	if (code != 0)
		session_reply_error(queue->session, request_id, code);
	if (queue->open_count > 0)
		(void)deadline_set(server->deadlines, deadline, clock_now_ns());
}

void lane_queue_init(struct lane_queue *queue, struct session *session)
{
	*queue = (struct lane_queue){
		.session = session,
		.deadline = {.fire = lane_queue_on_deadline, .context = queue},
	};
}

void lane_queue_close(struct lane_queue *queue)
{
	deadline_clear(queue->session->server->deadlines, &queue->deadline);
}

int lane_queue_open(struct lane_queue *queue, uint64_t request_id)
{
	struct session *session = queue->session;
	struct server *server = session->server;
	uint64_t allowed_ns = lane_queue_allowed_ns(queue);

	if (session->lane_count + queue->open_count >= server->config.lanes_max)
		return ERROR_LANES_MAX;
	if (queue->open_count == 0 && allowed_ns <= clock_now_ns())
		return lane_queue_offer(queue, request_id);
	if (queue->open_count == LANE_QUEUE_MAX ||
	    deadline_set(server->deadlines, &queue->deadline, allowed_ns) < 0)
		return ERROR_BUSY;
	queue->opens[queue->open_count++] = request_id;
	return 0;
}
