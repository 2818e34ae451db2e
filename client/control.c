/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The control connection: the handshake, requests with their answers, and the daemon's
 * notices. It owns the connection, its completion queue and memory, and the endpoint in it.
 *
 * A session is lost by disconnection, by an error that answers no request, or because the
 * daemon broke the protocol. Then every request in flight is answered with that, and every lane
 * is lost too. Another session may follow on another connection; until it is welcomed nothing
 * is sent but what belongs to the handshake.
 *
 * Thread: completions on the service thread; the rest on any. Everything under the lock.
 */
#include "client/control.h"

#include <assert.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>

#include "client/lane.h"
#include "client/lease.h"
#include "client/pool.h"
#include "client/secrets.h"
#include "client/wait.h"
#include "common/clock.h"
#include "common/secure.h"
#include "proto/error.h"
#include "proto/limits.h"

#define CONTROL_RECEIVES 32
#define CONTROL_ROUTE	 1 /* the queue is the endpoint's own, so one route does */
#define CONTROL_BATCH	 16
#define CONTROL_BATCHES	 16 /* in one step */
#define CONTROL_BEATS	 3  /* of the daemon that may fail to come before it counts as gone */

static const struct private_data control_request_data = {
	.kind = PRIVATE_DATA_CONTROL,
	.version = PROTO_VERSION,
	.version_min = PROTO_VERSION_MIN,
};

static int control_setup(struct cm *cm)
{
	struct mempool *pool = cm->owner;
	struct control *control = &pool->control;
	struct ibv_qp_init_attr attr = {
		.qp_type = IBV_QPT_RC,
		.cap =
			{
				.max_send_wr = ENDPOINT_SENDS,
				.max_recv_wr = CONTROL_RECEIVES,
				.max_send_sge = 1,
				.max_recv_sge = 1,
			},
	};
	struct ibv_pd *pd;
	int r;

	r = pool_pd(pool, cm->id->verbs, &pd);
	if (r < 0)
		return r;
	r = verbs_cq_init(&control->cq, cm->id->verbs, CONTROL_RECEIVES + ENDPOINT_SENDS);
	if (r < 0)
		return r;
	r = buffer_init(&control->memory, pd, endpoint_memory_bytes(CONTROL_RECEIVES));
	if (r < 0)
		return r;
	attr.send_cq = control->cq.cq;
	attr.recv_cq = control->cq.cq;
	if (rdma_create_qp(cm->id, pd, &attr) != 0)
		return -errno;
	control->posted = true;
	channel_init_client(&pool->secrets->channel, &control_request_data, PROTO_VERSION,
			    &pool->secrets->own, pool->secrets->daemon_public);
	return endpoint_init(&control->ep, cm->id->qp, control->memory.bytes,
			     control->memory.mr->lkey, CONTROL_RECEIVES, CONTROL_ROUTE,
			     &pool->secrets->channel);
}

static int control_prepare(struct cm *cm)
{
	int r = control_setup(cm);

	if (r == 0)
		return 0;
	return client_error_set(&cm->error, client_error_errno(r),
				"cannot set up the control connection: %s", strerrordesc_np(-r));
}

static void control_established(struct cm *cm)
{
	/* Costs time, not correctness, if the device refuses. */
	(void)verbs_qp_set_min_rnr_timer(cm_qp(cm));
}

static void control_gone(struct cm *cm)
{
	/* A last word of the daemon may be in the queue: it tells more than the event. */
	control_step(cm->owner);
	control_lose(cm->owner, MEMPOOL_E_SESSION_LOST, cm->error.text);
}

static const struct cm_ops control_cm_ops = {
	.prepare = control_prepare,
	.established = control_established,
	.gone = control_gone,
};

int control_init(struct mempool *pool)
{
	struct control *control = &pool->control;
	int r;

	*control = (struct control){0};
	r = wait_init(&control->sent);
	if (r < 0)
		return r;
	r = cm_init(&control->cm, &control_cm_ops, pool);
	if (r < 0)
		(void)pthread_cond_destroy(&control->sent);
	control->cm.patience_ms = pool->timeout_ms / 2;
	return r;
}

void control_deinit(struct mempool *pool)
{
	struct control *control = &pool->control;

	assert(control->requests.first == NULL);
	cm_deinit(&control->cm);
	(void)pthread_cond_destroy(&control->sent);
}

/* The welcome says the version again; this is what the handshake goes by. */
static int control_check_accept(const struct private_data *accepted)
{
	if (accepted->kind != PRIVATE_DATA_ACCEPT)
		return client_error_raise(MEMPOOL_E_PROTOCOL,
					  "what accepted the connection is no mempoold");
	if (accepted->version != PROTO_VERSION)
		return client_error_raise(MEMPOOL_E_VERSION,
					  "the daemon wants version %u of the protocol, which we "
					  "have not offered",
					  accepted->version);
	return 0;
}

int control_open(struct mempool *pool, struct sockaddr *peer, uint64_t deadline_ns)
{
	int r;

	(void)pthread_mutex_lock(&pool->lock);
	if (pool->reconnect.stop) {
		r = client_error_raise(MEMPOOL_E_SESSION_LOST, "the session is being closed");
	} else {
		cm_open(&pool->control.cm, pool->channel, peer, &control_request_data, deadline_ns);
		r = cm_wait(&pool->control.cm, &pool->lock);
	}
	if (r == 0)
		r = control_check_accept(&pool->control.cm.accepted);
	(void)pthread_mutex_unlock(&pool->lock);
	return r;
}

void control_close(struct mempool *pool)
{
	struct control *control = &pool->control;

	(void)pthread_mutex_lock(&pool->lock);
	if (control->posted)
		endpoint_dead(&control->ep);
	(void)cm_close(&control->cm);
	if (control->posted)
		endpoint_deinit(&control->ep);
	control->posted = false;
	/* A queue that cannot be destroyed is left to the end of the process. */
	(void)verbs_cq_deinit(&control->cq);
	control->cq = (struct verbs_cq){0};
	buffer_deinit(&control->memory);
	(void)pthread_mutex_unlock(&pool->lock);
}

void control_tell_lost(struct mempool *pool)
{
	int code = pool->control.cause;

	if (!pool->events.on)
		return;
	/* Told once, however often it is lost again before it is back. */
	if (reconnect_is_away(pool)) {
		reconnect_lost_leases(pool);
		return;
	}
	if (code == MEMPOOL_E_DRAINED || code == MEMPOOL_E_DRAINING)
		events_tell_draining(pool);
	events_tell(pool, MEMPOOL_EVENT_SESSION_LOST, code == MEMPOOL_E_SESSION_LOST ? 0 : code);
	reconnect_lost(pool);
}

void control_reset(struct control *control)
{
	assert(control->cm.state == CM_CLOSED && control->requests.first == NULL);
	control->lost = false;
	control->welcomed = false;
}

static void control_finish_requests(struct control *control, const struct client_error *error)
{
	while (control->requests.first != NULL)
		request_finish(&control->requests, control->requests.first, error);
}

void control_give_up_requests(struct mempool *pool, int code, const char *text)
{
	struct client_error error;

	client_error_set(&error, code, "%s", text);
	control_finish_requests(&pool->control, &error);
}

void control_lose(struct mempool *pool, int code, const char *text)
{
	struct control *control = &pool->control;

	if (control->lost)
		return;
	control->lost = true;
	control->cause = code;
	client_error_set(&control->loss, control->welcomed ? MEMPOOL_E_SESSION_LOST : code, "%s",
			 text);
	if (control->posted)
		endpoint_dead(&control->ep);
	if (cm_qp(&control->cm) != NULL)
		(void)verbs_qp_to_error(cm_qp(&control->cm));
	control_finish_requests(control, &control->loss);
	(void)pthread_cond_broadcast(&control->sent);
	(void)pthread_cond_broadcast(&pool->leases_changed);
	for (struct lane *lane = pool->lanes; lane != NULL; lane = lane->next)
		lane_lose(lane, MEMPOOL_E_SESSION_LOST, text);
	control->loss.code = MEMPOOL_E_SESSION_LOST;
	control_tell_lost(pool);
}

static void control_break(struct mempool *pool, const struct message *m)
{
	char text[96];

	(void)snprintf(text, sizeof(text), "the daemon broke the protocol: message of type %s",
		       message_type_name(m->type));
	control_lose(pool, MEMPOOL_E_PROTOCOL, text);
}

/* Return: as endpoint_send(); the session is lost if it is neither short of room nor of memory. */
static int control_post(struct mempool *pool, enum endpoint_class class, const struct message *m)
{
	int r = endpoint_send(&pool->control.ep, class, m);

	if (r < 0 && r != -ENOBUFS && r != -ENOMEM)
		control_lose(pool, MEMPOOL_E_SESSION_LOST, "cannot send to the daemon");
	return r;
}

void control_notify(struct mempool *pool, const struct message *m)
{
	if (control_is_open(&pool->control))
		(void)control_post(pool, ENDPOINT_NOTICE, m);
}

static int control_send(struct mempool *pool, const struct message *m)
{
	int r = control_post(pool, ENDPOINT_ORDINARY, m);

	switch (r) {
	case 0:
		return 0;
	case -ENOBUFS:
		return client_error_raise(MEMPOOL_E_BUSY, "too many requests wait to be sent");
	case -ENOMEM:
		return client_error_raise(MEMPOOL_E_NO_MEMORY, "not enough memory");
	default:
		return client_error_forward(&pool->control.loss);
	}
}

int control_begin(struct mempool *pool, struct message *m, struct request *request)
{
	struct control *control = &pool->control;
	int r;

	if (control->lost ||
	    (!control->welcomed && m->type != MESSAGE_HELLO && control->loss.code != 0))
		return client_error_forward(&control->loss);
	if (!control->posted)
		return client_error_raise(MEMPOOL_E_STATE, "there is no connection");
	request_add(&control->requests, request);
	request->sent_ns = clock_now_ns();
	m->request_id = request->id;
	r = control_send(pool, m);
	if (r < 0)
		request_remove(&control->requests, request);
	return r;
}

int control_await(struct mempool *pool, struct request *request, uint16_t type,
		  uint64_t deadline_ns)
{
	while (!request->done && wait_until(&request->changed, &pool->lock, deadline_ns))
		;
	if (request->done)
		return request->error.code == 0 ? 0 : client_error_forward(&request->error);
	return client_error_raise(MEMPOOL_E_TIMEOUT, "no answer to a message of type %s in time",
				  message_type_name(type));
}

int control_call(struct mempool *pool, struct message *m, struct request *request,
		 uint64_t deadline_ns)
{
	int r;

	(void)pthread_mutex_lock(&pool->lock);
	r = control_begin(pool, m, request);
	if (r == 0)
		r = control_await(pool, request, m->type, deadline_ns);
	request_remove(&pool->control.requests, request);
	(void)pthread_mutex_unlock(&pool->lock);
	return r;
}

int control_request(struct mempool *pool, struct message *m, uint16_t answer_type,
		    request_answer_fn answer, void *context, uint64_t deadline_ns)
{
	struct request request;
	int r;

	r = request_init(&request, answer_type, answer, context);
	if (r < 0)
		return client_error_raise(client_error_errno(r), "cannot wait for an answer");
	r = control_call(pool, m, &request, deadline_ns);
	request_deinit(&request);
	return r;
}

static int control_welcome(struct request *request, const struct message *m)
{
	struct mempool *pool = request->context;
	struct control *control = &pool->control;
	const struct message_welcome *welcome = &m->u.welcome;

	if (welcome->version < PROTO_VERSION_MIN || welcome->version > PROTO_VERSION)
		return -EPROTO;
	if (welcome->receives < PROTO_CREDITS_MIN || welcome->receives > PROTO_CREDITS_MAX)
		return -EPROTO;
	if (endpoint_peer_receives(&control->ep, welcome->receives) < 0)
		return -EPROTO;
	control->welcome = *welcome;
	control->welcomed = true;
	control->sessions++;
	return 0;
}

int control_hello(struct mempool *pool, uint64_t deadline_ns)
{
	struct message m = {
		.type = MESSAGE_HELLO,
		.u.hello = {.version = PROTO_VERSION, .receives = CONTROL_RECEIVES},
	};

	secure_random(m.u.hello.instance, sizeof(m.u.hello.instance));
	return control_request(pool, &m, MESSAGE_WELCOME, control_welcome, pool, deadline_ns);
}

static bool control_sending(const struct control *control)
{
	return !control->lost && (control->ep.waiting > 0 || control->ep.sends_posted > 0);
}

void control_bye(struct mempool *pool, uint64_t deadline_ns)
{
	struct control *control = &pool->control;
	struct message m = {.type = MESSAGE_BYE};

	(void)pthread_mutex_lock(&pool->lock);
	if (control_is_open(control) && control_send(pool, &m) == 0) {
		while (control_sending(control) &&
		       wait_until(&control->sent, &pool->lock, deadline_ns))
			;
	}
	(void)pthread_mutex_unlock(&pool->lock);
}

void control_give_back(struct mempool *pool, const struct message_leases *leases)
{
	struct message m = {.type = MESSAGE_RELEASE, .u.leases = *leases};

	/* The answer finds nobody. */
	m.request_id = ++pool->control.requests.last_id;
	if (leases->count > 0 && control_is_open(&pool->control))
		(void)control_post(pool, ENDPOINT_ORDINARY, &m);
}

/* The grant that a thread has given up waiting for: nobody would ever release that lease. */
static void control_late_grant(struct mempool *pool, const struct message_grant *grant)
{
	struct message_leases leases = {.count = 1, .lease_ids = {grant->lease_id}};

	if (lease_find(pool, grant->lease_id) == NULL)
		control_give_back(pool, &leases);
}

static void control_answer(struct mempool *pool, const struct message *m)
{
	struct control *control = &pool->control;
	struct request *request = request_find(&control->requests, m->request_id);
	struct client_error error;
	int r = 0;

	if (request == NULL) {
		if (m->type == MESSAGE_GRANT)
			control_late_grant(pool, &m->u.grant);
		return;
	}
	if (m->type == MESSAGE_ERROR) {
		if (client_error_told(&error, &m->u.error) == MEMPOOL_E_DRAINING)
			events_tell_draining(pool);
		request_finish(&control->requests, request, &error);
		return;
	}
	if (m->type != request->answer_type) {
		control_break(pool, m);
		return;
	}
	if (request->answer != NULL)
		r = request->answer(request, m);
	if (r < 0)
		control_break(pool, m);
	else if (r == 0 && !request->done) /* or else the session was lost over the answer */
		request_finish(&control->requests, request, NULL);
}

static void control_error(struct mempool *pool, const struct message *m)
{
	struct client_error error;

	if (m->request_id != 0) {
		control_answer(pool, m);
		return;
	}
	client_error_told(&error, &m->u.error);
	/* In clear: it is not the tenant that the daemon does not know. */
	if (pool->secrets->channel.refused && error.code == MEMPOOL_E_AUTH)
		client_error_set(&error, MEMPOOL_E_AUTH,
				 "the daemon cannot read our greeting: the daemon's key is not the "
				 "one that we were given, or somebody changes messages on the way");
	control_lose(pool, error.code, error.text);
}

static void control_pong(struct mempool *pool, const struct message *ping)
{
	struct message m = {.type = MESSAGE_PONG, .request_id = ping->request_id};

	(void)control_post(pool, ENDPOINT_ORDINARY, &m);
}

static void control_message(struct mempool *pool, const struct message *m)
{
	switch (m->type) {
	case MESSAGE_WELCOME:
	case MESSAGE_PONG:
	case MESSAGE_LANE_OFFER:
	case MESSAGE_LANE_READY:
	case MESSAGE_GRANT:
	case MESSAGE_RENEWED:
	case MESSAGE_RELEASED:
		control_answer(pool, m);
		break;
	case MESSAGE_ERROR:
		control_error(pool, m);
		break;
	case MESSAGE_PING:
		control_pong(pool, m);
		break;
	case MESSAGE_LANE_LOST:
		lane_lost(pool, m->u.lane.lane);
		break;
	case MESSAGE_LEASES_ENDED:
		lease_ended(pool, &m->u.leases_ended);
		break;
	case MESSAGE_REVOKE:
		lease_revoke(pool, &m->u.revoke);
		break;
	case MESSAGE_DRAIN:
		events_tell_drain(pool, &m->u.drain);
		break;
	case MESSAGE_QUIESCE:
		lease_quiesce(pool, m->u.lease.lease_id);
		break;
	default:
		control_break(pool, m);
	}
}

static void control_complete(struct mempool *pool, const struct ibv_wc *wc)
{
	struct message m;
	int r;

	r = endpoint_complete(&pool->control.ep, wc, &m);
	/* What is refused is flushed, too, and the next address of the host may do better. */
	if (r == -ENETRESET && pool->control.cm.state != CM_ESTABLISHED)
		return;
	if (r == 0 || pool->control.lost)
		return;
	if (r > 0) {
		control_message(pool, &m);
		secure_wipe(&m, sizeof(m)); /* a grant has a lease's secret */
		return;
	}
	if (r == -ENETRESET)
		control_lose(pool, MEMPOOL_E_SESSION_LOST, "the connection to the daemon broke");
	else if (r == -EKEYREJECTED)
		control_lose(pool, MEMPOOL_E_AUTH,
			     pool->control.welcomed ? "a message of the daemon cannot be opened"
						    : "the daemon's answer cannot be opened: its "
						      "key is not the one expected");
	else if (r == -EOVERFLOW)
		control_lose(pool, MEMPOOL_E_AUTH, "the keys of the session are used up");
	else
		control_lose(pool, MEMPOOL_E_PROTOCOL, "the daemon broke the protocol");
}

/* Return: were there as many completions as fit a batch? */
static bool control_batch(struct mempool *pool)
{
	struct ibv_wc wc[CONTROL_BATCH];
	int n = verbs_poll_cq(pool->control.cq.cq, CONTROL_BATCH, wc);

	if (n < 0)
		control_lose(pool, MEMPOOL_E_SESSION_LOST, "the completion queue is broken");
	for (int i = 0; i < n; i++)
		control_complete(pool, &wc[i]);
	return n == CONTROL_BATCH;
}

/* When we must have said something, and when we must have heard something. */
static uint64_t control_beat_ns(const struct control *control)
{
	return clock_add_ms(control->ep.spoke_ns, control->welcome.heartbeat_ms);
}

static uint64_t control_silent_ns(const struct control *control)
{
	return clock_add_ms(control->ep.heard_ns,
			    (uint64_t)CONTROL_BEATS * control->welcome.heartbeat_ms);
}

static bool control_has_heart(const struct control *control)
{
	return control_is_open(control) && control->welcome.heartbeat_ms != 0;
}

int control_next_ms(const struct mempool *pool)
{
	const struct control *control = &pool->control;
	uint64_t beat_ns = control_beat_ns(control);
	uint64_t silent_ns = control_silent_ns(control);
	uint64_t left_ms;

	if (!control_has_heart(control))
		return -1;
	/* A ping that found no credit is tried again when one comes, not in a busy loop. */
	if (beat_ns < silent_ns && control->ep.waiting == 0)
		silent_ns = beat_ns;
	left_ms = clock_left_ms(silent_ns, clock_now_ns());
	return left_ms > INT_MAX ? INT_MAX : (int)left_ms;
}

static void control_beat(struct mempool *pool)
{
	struct control *control = &pool->control;
	struct message m = {.type = MESSAGE_PING};
	uint64_t now_ns = clock_now_ns();

	if (!control_has_heart(control))
		return;
	if (control_silent_ns(control) <= now_ns) {
		control_lose(pool, MEMPOOL_E_SESSION_LOST, "the daemon is silent");
		return;
	}
	if (control_beat_ns(control) > now_ns || control->ep.waiting > 0)
		return;
	/* The answer finds nobody; that it comes is enough. */
	m.request_id = ++control->requests.last_id;
	(void)control_post(pool, ENDPOINT_ORDINARY, &m);
}

void control_step(struct mempool *pool)
{
	struct control *control = &pool->control;
	int batches = 0;

	if (!control->posted)
		return;
	if (verbs_cq_rearm(&control->cq) < 0)
		control_lose(pool, MEMPOOL_E_SESSION_LOST, "the completion queue is broken");
	while (control_batch(pool)) {
		if (++batches < CONTROL_BATCHES)
			continue;
		pool_wake(pool);
		break;
	}
	if (endpoint_flush(&control->ep) < 0)
		control_lose(pool, MEMPOOL_E_SESSION_LOST, "cannot send to the daemon");
	control_beat(pool);
	if (!control_sending(control))
		(void)pthread_cond_broadcast(&control->sent);
}
