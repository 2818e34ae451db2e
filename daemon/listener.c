/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Listening, and the one rdma_cm event channel of the daemon. Connect requests are decoded
 * and handed to the session or lane that they are for; everything else goes to the object
 * that the id belongs to.
 *
 * Invariants: an event is copied and acknowledged before it is acted on, exactly once, since
 * destroying an id waits for the acknowledgement of its events; an id that nobody took is
 * rejected with a reason and destroyed by the verbs worker. While many of those wait, no events
 * are taken: further requests fill the kernel's backlog, and those behind it are dropped
 * there, so that their senders try again.
 *
 * Thread: the loop.
 */
#include "daemon/listener.h"

#include <arpa/inet.h>
#include <errno.h>
#include <event2/event.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/clock.h"
#include "common/secure.h"
#include "common/verbs.h"
#include "daemon/accept.h"
#include "daemon/loop.h"
#include "daemon/server.h"
#include "proto/error.h"
#include "proto/private_data.h"

#define LISTENER_EVENTS_PER_TURN 8 /* at most ... */
#define LISTENER_TURN_MS	 5 /* ... and no further one after that */
#define LISTENER_DISCARDS_MAX	 64

#define LISTENER_REJ_TIMEOUT 4 /* reason of a reject, InfiniBand specification 12.6.7.2 */

static struct log_limit listener_reject_limit;
static struct log_limit listener_failure_limit;

/* Split "host:port" or "[v6]:port". */
static int listener_split(const char *name, char *host, char *port)
{
	const char *colon = strrchr(name, ':');
	size_t len;

	if (colon == NULL || colon[1] == '\0')
		return -EINVAL;
	len = (size_t)(colon - name);
	if (len >= 2 && name[0] == '[' && name[len - 1] == ']') {
		name++;
		len -= 2;
	}
	memcpy(host, name, len);
	host[len] = '\0';
	snprintf(port, CONFIG_STRING_MAX, "%s", colon + 1);
	return 0;
}

static const char *listener_remedy(int error)
{
	switch (error) {
	case EADDRINUSE:
		return "; another daemon, or another program that uses rdma_cm, has the port";
	case EADDRNOTAVAIL:
		return "; the machine has no such address";
	case ENODEV:
		return "; the address is not on an interface with an RDMA device";
	default:
		return "";
	}
}

/* rdma_cm binds to a loopback address, too, though no device is behind it. */
static bool listener_has_device(const struct rdma_cm_id *id, const struct sockaddr *address)
{
	const struct sockaddr_in *v4 = (const struct sockaddr_in *)(const void *)address;
	const struct sockaddr_in6 *v6 = (const struct sockaddr_in6 *)(const void *)address;

	if (id->verbs != NULL)
		return true;
	return address->sa_family == AF_INET6 ? IN6_IS_ADDR_UNSPECIFIED(&v6->sin6_addr)
					      : v4->sin_addr.s_addr == htonl(INADDR_ANY);
}

static int listener_bind_one(struct listener *listener, const struct config *config,
			     const char *name, char *error)
{
	struct addrinfo hints = {.ai_flags = AI_PASSIVE, .ai_socktype = SOCK_STREAM};
	char host[CONFIG_STRING_MAX];
	char port[CONFIG_STRING_MAX];
	struct addrinfo *found;
	struct rdma_cm_id *id;
	int r;

	if (listener_split(name, host, port) < 0) {
		snprintf(error, LISTENER_ERROR_MAX,
			 "cannot listen on '%s': it must be host:port or [v6 address]:port", name);
		return -EINVAL;
	}
	r = getaddrinfo(host[0] != '\0' ? host : NULL, port, &hints, &found);
	if (r != 0) {
		snprintf(error, LISTENER_ERROR_MAX, "cannot listen on '%s': %s", name,
			 gai_strerror(r));
		return -EINVAL;
	}
	if (rdma_create_id(listener->channel, &id, listener, RDMA_PS_TCP) != 0) {
		r = -errno;
		snprintf(error, LISTENER_ERROR_MAX, "cannot listen on '%s': %s", name,
			 strerror(-r));
		goto out_free;
	}
	r = rdma_bind_addr(id, found->ai_addr) != 0 ? -errno : accept_prepare(id, config);
	if (r == 0 && !listener_has_device(id, found->ai_addr))
		r = -ENODEV;
	if (r < 0) {
		snprintf(error, LISTENER_ERROR_MAX, "cannot listen on '%s': %s%s", name,
			 strerror(-r), listener_remedy(-r));
		(void)rdma_destroy_id(id);
		goto out_free;
	}
	listener->ids[listener->count++] = id;
	r = 0;
out_free:
	freeaddrinfo(found);
	return r;
}

int listener_bind(struct listener *listener, const struct config *config, char *error)
{
	int r;

	listener->kind = CM_LISTENER;
	listener->channel = rdma_create_event_channel();
	if (listener->channel == NULL) {
		r = -errno;
		snprintf(error, LISTENER_ERROR_MAX,
			 "cannot use rdma_cm: %s; is the module rdma_ucm loaded and "
			 "/dev/infiniband/rdma_cm accessible?",
			 strerror(-r));
		return r;
	}
	r = verbs_set_nonblocking(listener->channel->fd);
	if (r < 0)
		return r;
	for (size_t i = 0; i < config->listen_count; i++) {
		r = listener_bind_one(listener, config, config->listen[i], error);
		if (r < 0)
			return r;
	}
	return 0;
}

struct ibv_context *listener_context(const struct listener *listener)
{
	for (size_t i = 0; i < listener->count; i++) {
		if (listener->ids[i]->verbs != NULL)
			return listener->ids[i]->verbs;
	}
	return NULL;
}

/* An id that is destroyed where it may take its time. */
struct listener_discard {
	struct worker_job job;
	struct rdma_cm_id *id;
	struct server *server;
};

static void listener_discard_run(struct worker_job *job)
{
	struct listener_discard *discard = (struct listener_discard *)job;

	(void)rdma_destroy_id(discard->id);
}

static void listener_pause(struct listener *listener)
{
	if (!listener->paused && listener->discards >= LISTENER_DISCARDS_MAX &&
	    event_del(listener->event) == 0)
		listener->paused = true;
}

static void listener_go_on(struct listener *listener)
{
	if (listener->paused && listener->discards <= LISTENER_DISCARDS_MAX / 2 &&
	    event_add(listener->event, NULL) == 0)
		listener->paused = false;
}

static void listener_discard_done(struct worker_job *job)
{
	struct server *server = ((struct listener_discard *)job)->server;

	free(job);
	server->listener.discards--;
	listener_go_on(&server->listener);
	server_maybe_stopped(server);
}

void listener_name_peer(struct rdma_cm_id *id, char *buf)
{
	char host[LISTENER_PEER_MAX - sizeof(":65535")];
	char port[sizeof("65535")];

	if (getnameinfo(rdma_get_peer_addr(id), sizeof(struct sockaddr_in6), host, sizeof(host),
			port, sizeof(port), NI_NUMERICHOST | NI_NUMERICSERV) == 0)
		snprintf(buf, LISTENER_PEER_MAX, "%s:%s", host, port);
	else
		snprintf(buf, LISTENER_PEER_MAX, "unknown");
}

static enum cm_kind listener_no_object = CM_NONE;

static void listener_reject(struct server *server, struct rdma_cm_id *id, int code)
{
	struct private_data data = {.kind = PRIVATE_DATA_REJECT, .code = (uint32_t)code};
	struct listener_discard *discard = calloc(1, sizeof(*discard));
	uint8_t bytes[PROTO_PRIVATE_DATA_MAX];
	char peer[LISTENER_PEER_MAX];

	server->counters.sessions_rejected++;
	listener_name_peer(id, peer);
	log_limited(LOG_LEVEL_INFO, &listener_reject_limit, "connection rejected peer=%s reason=%s",
		    peer, error_name(code));
	id->context = &listener_no_object;
	(void)rdma_reject(id, bytes, private_data_encode(&data, bytes));
	if (discard == NULL) {
		(void)rdma_destroy_id(id);
		return;
	}
	discard->job.run = listener_discard_run;
	discard->job.done = listener_discard_done;
	discard->id = id;
	discard->server = server;
	server->listener.discards++;
	worker_submit_later(server->verbs_worker, &discard->job);
	listener_pause(&server->listener);
}

/* Only the session's client can have made the MAC, and only for this QP and address. */
static bool listener_lane_is_genuine(const struct session *session, struct rdma_cm_id *id,
				     const struct rdma_conn_param *param,
				     const struct private_data *data)
{
	struct channel_lane lane = {
		.session_id = data->session_id,
		.lane = data->lane,
		.client_qpn = param->qp_num,
	};
	uint8_t mac[PROTO_MAC_BYTES];

	channel_lane_address(rdma_get_peer_addr(id), &lane);
	channel_lane_mac(session->channel, &lane, mac);
	return secure_equal(mac, data->mac, sizeof(mac));
}

static int listener_take_lane(struct server *server, struct rdma_cm_id *id,
			      const struct rdma_conn_param *param, const struct private_data *data)
{
	struct session *session = session_find(server, data->session_id);
	struct lane *lane;

	if (session == NULL || session->state != SESSION_OPEN)
		return ERROR_LANE_OFFER;
	lane = session_lane(session, data->lane);
	if (lane == NULL || !listener_lane_is_genuine(session, id, param, data))
		return ERROR_LANE_OFFER;
	return lane_accept(lane, id, param);
}

static int listener_take(struct server *server, struct rdma_cm_id *id,
			 const struct rdma_conn_param *param, const struct private_data *data)
{
	int code;

	if (drain_is_stopping(&server->drain))
		return ERROR_DRAINING;
	if (id->verbs != server->device.context)
		return ERROR_DEVICE;
	code = accept_check(id, &server->config);
	if (code != 0)
		return code;
	if (data->kind == PRIVATE_DATA_LANE)
		return listener_take_lane(server, id, param, data);
	if (data->kind != PRIVATE_DATA_CONTROL)
		return ERROR_PROTOCOL;
	if (data->version_min > PROTO_VERSION || data->version < PROTO_VERSION_MIN)
		return ERROR_VERSION;
	return session_accept(server, id, data);
}

/* An event, copied out of rdma_cm's memory. */
struct listener_event {
	enum rdma_cm_event_type type;
	int status;
	struct rdma_cm_id *id; /* of a connect request; any other may be destroyed already */
	enum cm_kind *object;  /* that the id belongs to */
	struct rdma_conn_param param;
	uint8_t private_data[256];
};

static void listener_connect_request(struct server *server, const struct listener_event *event)
{
	struct private_data data;
	int code = ERROR_PROTOCOL;

	if (private_data_decode(event->private_data, event->param.private_data_len, &data) == 0)
		code = listener_take(server, event->id, &event->param, &data);
	if (code != 0)
		listener_reject(server, event->id, code);
}

/* What an operator needs to tell a network that loses packets from a client that gives up. */
static void listener_log_failure(const struct listener_event *event)
{
	const struct session *session = NULL;

	if (*event->object == CM_SESSION)
		session = (const struct session *)(const void *)event->object;
	else if (*event->object == CM_LANE)
		session = ((const struct lane *)(const void *)event->object)->session;
	log_limited(LOG_LEVEL_INFO, &listener_failure_limit,
		    "connection not made peer=%s event=%s status=%d",
		    session != NULL ? session->peer : "unknown", rdma_event_str(event->type),
		    event->status);
}

/*
 * The peer has refused our answer, so it has had it. A time-out does not prove that: what it
 * names is known to whoever has made up the request.
 */
static bool listener_was_answered(const struct listener_event *event)
{
	return event->type == RDMA_CM_EVENT_REJECTED && event->status != LISTENER_REJ_TIMEOUT;
}

static void listener_not_connected(struct server *server, const struct listener_event *event)
{
	enum cm_kind *kind = event->object;

	server->counters.connections_failed++;
	listener_log_failure(event);
	if (*kind == CM_LANE)
		lane_not_connected((struct lane *)(void *)kind);
	else if (*kind == CM_SESSION && listener_was_answered(event))
		session_disconnected((struct session *)(void *)kind);
	else if (*kind == CM_SESSION)
		session_not_connected((struct session *)(void *)kind);
}

static void listener_disconnected(const struct listener_event *event)
{
	enum cm_kind *kind = event->object;

	if (*kind == CM_SESSION)
		session_disconnected((struct session *)(void *)kind);
	else if (*kind == CM_LANE)
		lane_disconnected((struct lane *)(void *)kind);
}

static void listener_dispatch(struct server *server, const struct listener_event *event)
{
	switch (event->type) {
	case RDMA_CM_EVENT_CONNECT_REQUEST:
		listener_connect_request(server, event);
		break;
	case RDMA_CM_EVENT_DISCONNECTED:
		listener_disconnected(event);
		break;
	case RDMA_CM_EVENT_CONNECT_ERROR:
	case RDMA_CM_EVENT_UNREACHABLE:
	case RDMA_CM_EVENT_REJECTED:
		listener_not_connected(server, event);
		break;
	case RDMA_CM_EVENT_DEVICE_REMOVAL:
		server_device_lost(server, "the device is being removed");
		break;
	case RDMA_CM_EVENT_ESTABLISHED:
		if (*event->object == CM_SESSION)
			session_connected((struct session *)(void *)event->object);
		break;
	default: /* RDMA_CM_EVENT_TIMEWAIT_EXIT among them, which nothing here waits for */
		log_debug("rdma_cm event ignored event=%s status=%d", rdma_event_str(event->type),
			  event->status);
	}
}

/* Return: was there an event? */
static bool listener_next_event(struct listener *listener, struct listener_event *ret_event)
{
	struct rdma_cm_event *event;
	size_t len;

	if (rdma_get_cm_event(listener->channel, &event) != 0)
		return false;
	*ret_event = (struct listener_event){
		.type = event->event,
		.status = event->status,
		.id = event->id,
		.object = event->id->context,
		.param = event->param.conn,
	};
	len = event->param.conn.private_data == NULL ? 0 : event->param.conn.private_data_len;
	if (event->event == RDMA_CM_EVENT_CONNECT_REQUEST && len > 0)
		memcpy(ret_event->private_data, event->param.conn.private_data, len);
	ret_event->param.private_data = ret_event->private_data;
	ret_event->param.private_data_len = (uint8_t)len;
	(void)rdma_ack_cm_event(event);
	return true;
}

static void listener_on_readable(evutil_socket_t fd, short what, void *context)
{
	uint64_t until_ns = clock_add_ms(clock_now_ns(), LISTENER_TURN_MS);
	struct server *server = context;
	struct listener_event event;

	loop_mark();
	(void)fd;
	(void)what;
	for (int i = 0; i < LISTENER_EVENTS_PER_TURN && !server->listener.paused; i++) {
		if (i > 0 && clock_now_ns() >= until_ns)
			break;
		if (!listener_next_event(&server->listener, &event))
			break;
		listener_dispatch(server, &event);
	}
}

int listener_start(struct server *server, char *error)
{
	struct listener *listener = &server->listener;

	listener->event = event_new(server->base, listener->channel->fd, EV_READ | EV_PERSIST,
				    listener_on_readable, server);
	if (listener->event == NULL || event_add(listener->event, NULL) < 0)
		return -ENOMEM;
	for (size_t i = 0; i < listener->count; i++) {
		if (rdma_listen(listener->ids[i], (int)server->config.backlog) != 0) {
			int r = -errno;

			snprintf(error, LISTENER_ERROR_MAX, "cannot listen on '%s': %s%s",
				 server->config.listen[i], strerror(-r), listener_remedy(-r));
			return r;
		}
		log_info("listening address=%s", server->config.listen[i]);
	}
	return 0;
}

void listener_stop(struct listener *listener)
{
	for (size_t i = 0; i < listener->count; i++)
		(void)rdma_destroy_id(listener->ids[i]);
	listener->count = 0;
}

void listener_close(struct listener *listener)
{
	listener_stop(listener);
	if (listener->event != NULL)
		event_free(listener->event);
	if (listener->channel != NULL)
		rdma_destroy_event_channel(listener->channel);
	*listener = (struct listener){0};
}
