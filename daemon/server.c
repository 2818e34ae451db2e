/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Start, wiring, stop. Everything that exists once is made here in order and torn down in
 * reverse: listeners bound, device, pool, registration, self-test, loop, admin socket, and
 * only then connections are accepted.
 *
 * Stopping: no new connections; every session ends (leases behind their fence, scrubbed);
 * when nothing is left the loop ends and each verbs object is destroyed with its status
 * checked. What has not gone within the limit is left to the kernel and said so.
 *
 * Thread: the loop's; the worker threads belong to the workers.
 */
#include "daemon/server.h"

#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>

#include "common/clock.h"
#include "common/secure.h"
#include "common/units.h"
#include "daemon/admin.h"
#include "daemon/admin_socket.h"
#include "daemon/events.h"
#include "daemon/loop.h"
#include "daemon/orphan.h"
#include "daemon/reload.h"
#include "daemon/startup.h"
#include "daemon/waiting.h"
#include "proto/error.h"

#define SERVER_STOP_LIMIT_MS 10000u
#define SERVER_SWEEP_PARTS   10u /* a sweep over all lanes is made in so many steps */

uint64_t server_random_id(uint32_t route)
{
	uint32_t high;

	secure_random(&high, sizeof(high));
	return (uint64_t)(high & 0x7fffffff) << 32 | route;
}

uint32_t server_enforced_bits(const struct server *server)
{
	const struct selftest_result *result = isolation_result(&server->isolation);
	uint32_t bits = 0;

	for (int i = 0; i < SELFTEST_PROPERTIES; i++)
		bits |= (uint32_t)(result->outcome[i] == SELFTEST_ENFORCED) << i;
	return bits;
}

/* The loop's events. */

void server_end_turn(struct server *server)
{
	event_active(server->turn_event, 0, 0);
}

static void server_on_turn(evutil_socket_t fd, short what, void *context)
{
	struct server *server = context;

	loop_mark();
	(void)fd;
	(void)what;
	if (server->serve_waiting) {
		server->serve_waiting = false;
		waiting_serve(server);
	}
	lane_flush_all(server);
	session_flush_notices(server);
}

/*
 * What is left goes on after the next look at all that is ready, by a timer: an event that is made
 * active by its own callback runs again before libevent looks at anything else.
 */
static void server_on_cq(struct verbs_cq *cq, struct event *again, bool (*poll)(struct server *),
			 struct server *server)
{
	if (verbs_cq_rearm(cq) < 0) {
		server_device_lost(server, "a completion queue cannot be armed");
		return;
	}
	if (!poll(server) && event_add(again, &(struct timeval){0}) < 0)
		server_device_lost(server, "a completion queue cannot be looked at again");
}

static void server_on_control_cq(evutil_socket_t fd, short what, void *context)
{
	struct server *server = context;

	loop_mark();
	(void)fd;
	(void)what;
	server_on_cq(&server->device.control_cq, server->control_again_event, session_poll, server);
}

static void server_on_lane_cq(evutil_socket_t fd, short what, void *context)
{
	struct server *server = context;

	loop_mark();
	(void)fd;
	(void)what;
	server_on_cq(&server->device.lane_cq, server->lane_again_event, lane_poll, server);
}

/* Lanes are asked for their state; a control connection that broke shows by its completions. */
static void server_qp_event(const struct ibv_qp *qp)
{
	const struct rdma_cm_id *id = qp->qp_context;
	enum cm_kind *kind = id->context;

	if (*kind == CM_LANE)
		(void)lane_check((struct lane *)(void *)kind);
}

static void server_async_event(struct server *server, struct ibv_async_event *event)
{
	switch (event->event_type) {
	case IBV_EVENT_COMM_EST:
		(void)rdma_notify(event->element.qp->qp_context, IBV_EVENT_COMM_EST);
		break;
	case IBV_EVENT_PORT_ERR:
	case IBV_EVENT_PORT_ACTIVE:
		server->port_down = event->event_type == IBV_EVENT_PORT_ERR;
		log_warn("port %s", server->port_down ? "down: no new leases" : "active again");
		break;
	case IBV_EVENT_QP_FATAL:
	case IBV_EVENT_QP_ACCESS_ERR:
	case IBV_EVENT_QP_REQ_ERR:
		server_qp_event(event->element.qp);
		break;
	case IBV_EVENT_CQ_ERR:
	case IBV_EVENT_DEVICE_FATAL:
		server_device_lost(server, ibv_event_type_str(event->event_type));
		break;
	default:
		log_info("device event event=\"%s\"", ibv_event_type_str(event->event_type));
	}
}

static void server_on_async(evutil_socket_t fd, short what, void *context)
{
	struct server *server = context;
	struct ibv_async_event event;

	loop_mark();
	(void)fd;
	(void)what;
	if (verbs_get_async_event(server->device.context, &event) < 0)
		return;
	server_async_event(server, &event);
	verbs_ack_async_event(&event);
}

static void server_on_signal(evutil_socket_t signal_number, short what, void *context)
{
	struct server *server = context;

	loop_mark();
	(void)what;
	log_info("told to stop signal=%s", sigabbrev_np((int)signal_number));
	service_stopping("draining",
			 server->config.stop_drain_ms + SERVER_STOP_LIMIT_MS + STARTUP_STAGE_MS);
	drain_on_signal(&server->drain, server->config.stop_drain_ms);
}

static void server_on_hangup(evutil_socket_t signal_number, short what, void *context)
{
	loop_mark();
	(void)signal_number;
	(void)what;
	reload_on_signal(context);
}

static void server_on_sweep(struct deadline *deadline, void *context)
{
	struct server *server = context;

	log_tick();
	lane_sweep(server, server->lane_count / SERVER_SWEEP_PARTS + 1);
	(void)deadline_set(server->deadlines, deadline,
			   clock_add_ms(clock_now_ns(),
					server->config.lane_sweep_ms / SERVER_SWEEP_PARTS + 1));
}

static void server_on_stop_limit(struct deadline *deadline, void *context)
{
	struct server *server = context;

	(void)deadline;
	log_error("stop limit reached, leaving the rest to the kernel sessions=%" PRIu64
		  " lanes=%" PRIu64 " leases=%" PRIu64,
		  server->session_count, server->lane_count, server->lease_count);
	server->exit_status = SERVER_EXIT_STUCK;
	event_base_loopbreak(server->base);
}

static void server_on_audit(struct deadline *deadline, void *context)
{
	struct server *server = context;
	uint64_t due_ns;

	audit_tick(server->audit, clock_now_ns());
	due_ns = audit_due_ns(server->audit);
	if (due_ns != UINT64_MAX)
		(void)deadline_set(server->deadlines, deadline, due_ns);
}

void server_audit(struct server *server, const struct audit_record *record)
{
	uint64_t due_ns;

	audit_write(server->audit, record, clock_now_ns());
	events_publish(server->admin, record);
	due_ns = audit_due_ns(server->audit);
	if (due_ns != UINT64_MAX && !deadline_is_set(&server->audit_deadline))
		(void)deadline_set(server->deadlines, &server->audit_deadline, due_ns);
}

/* Stopping. */

void server_device_lost(struct server *server, const char *why)
{
	log_error("device lost device=%s why=\"%s\"",
		  ibv_get_device_name(server->device.context->device), why);
	service_stopping("the device is lost", service_bytes_ms(server->pool.len_bytes));
	server->exit_status = SERVER_EXIT_DEVICE;
	event_base_loopbreak(server->base);
}

void server_memory_lost(struct server *server)
{
	log_error("the daemon's own memory is damaged");
	server->exit_status = SERVER_EXIT_MEMORY;
	event_base_loopbreak(server->base);
}

void server_maybe_stopped(struct server *server)
{
	if (drain_is_stopping(&server->drain) && server->session_count == 0 &&
	    server->lane_count == 0 && server->lease_count == 0 && server->tails == 0)
		event_base_loopbreak(server->base);
}

void server_stop(struct server *server)
{
	struct session *session;
	struct session *next;

	if (!drain_stop(&server->drain))
		return;
	service_stopping("stopping", SERVER_STOP_LIMIT_MS + STARTUP_STAGE_MS);
	pool_discard(&server->pool);
	listener_stop(&server->listener);
	(void)deadline_set(server->deadlines, &server->stop_limit,
			   clock_add_ms(clock_now_ns(), SERVER_STOP_LIMIT_MS));
	for (session = TAILQ_FIRST(&server->sessions); session != NULL; session = next) {
		next = TAILQ_NEXT(session, server_link);
		session_end(session, ERROR_DRAINED, "the daemon stops");
	}
	orphan_end_all(server, NULL, ERROR_DRAINED);
	server_maybe_stopped(server);
}

/* Starting. */

static struct event *server_add_event(struct server *server, int fd, short what,
				      event_callback_fn callback)
{
	struct event *event = event_new(server->base, fd, what, callback, server);

	if (event != NULL && what != 0 && event_add(event, NULL) < 0) {
		event_free(event);
		return NULL;
	}
	return event;
}

static int server_join_loop(struct server *server)
{
	short readable = EV_READ | EV_PERSIST;

	server->control_cq_event = server_add_event(server, server->device.control_cq.channel->fd,
						    readable, server_on_control_cq);
	server->lane_cq_event = server_add_event(server, server->device.lane_cq.channel->fd,
						 readable, server_on_lane_cq);
	server->async_event = server_add_event(server, verbs_async_fd(server->device.context),
					       readable, server_on_async);
	server->control_again_event = server_add_event(server, -1, 0, server_on_control_cq);
	server->lane_again_event = server_add_event(server, -1, 0, server_on_lane_cq);
	server->turn_event = server_add_event(server, -1, 0, server_on_turn);
	server->signal_events[0] =
		server_add_event(server, SIGTERM, EV_SIGNAL | EV_PERSIST, server_on_signal);
	server->signal_events[1] =
		server_add_event(server, SIGINT, EV_SIGNAL | EV_PERSIST, server_on_signal);
	server->signal_events[2] =
		server_add_event(server, SIGHUP, EV_SIGNAL | EV_PERSIST, server_on_hangup);
	if (server->control_cq_event == NULL || server->lane_cq_event == NULL ||
	    server->control_again_event == NULL || server->lane_again_event == NULL ||
	    server->async_event == NULL || server->turn_event == NULL ||
	    server->signal_events[0] == NULL || server->signal_events[1] == NULL ||
	    server->signal_events[2] == NULL)
		return startup_fail("cannot set up the event loop");
	server->sweep = (struct deadline){.fire = server_on_sweep, .context = server};
	server->stop_limit = (struct deadline){.fire = server_on_stop_limit, .context = server};
	server_on_sweep(&server->sweep, server);
	return 0;
}

static void server_on_clean(void *context)
{
	waiting_serve(context);
}

static int server_start(struct server *server)
{
	char error[LISTENER_ERROR_MAX] = "cannot listen for connections";
	int r;

	service_stage("starting", STARTUP_STAGE_MS);
	if (secure_init() < 0)
		return startup_fail("the kernel gives no random numbers");
	server->base = event_base_new();
	if (server->base == NULL || deadline_queue_new(server->base, &server->deadlines) < 0 ||
	    worker_new(server->base, "verbs", &server->verbs_worker) < 0 ||
	    worker_new(server->base, "scrub", &server->scrubber) < 0)
		return startup_fail("cannot set up the event loop");
	server->audit_deadline = (struct deadline){.fire = server_on_audit, .context = server};
	r = startup_open(server);
	if (r == 0)
		r = server_join_loop(server);
	if (r == 0)
		r = startup_open_admin(server);
	if (r != 0)
		return r;
	server->pool.on_clean = server_on_clean;
	server->pool.on_clean_context = server;
	if (damage_watch_start(server) < 0)
		return startup_fail("cannot watch for damaged memory");
	if (listener_start(server, error) < 0)
		return startup_fail(error);
	return 0;
}

static void server_tell_ready(struct server *server)
{
	char size[UNITS_TEXT_MAX];
	char text[SERVICE_WORDS_MAX];

	(void)snprintf(text, sizeof(text), "serving %s on %s, isolation: %s",
		       units_format_size(server->pool.len_bytes, size),
		       ibv_get_device_name(server->device.context->device),
		       isolation_mode_name(server->isolation.mode));
	service_ready(&server->service, server->deadlines, text);
}

static void server_free_event(struct event **event)
{
	if (*event != NULL)
		event_free(*event);
	*event = NULL;
}

/* In the reverse order of server_start(); copes with a start that stopped half-way. */
static void server_teardown(struct server *server)
{
	int r;

	server->admin = admin_free(server->admin);
	server->admin_door = admin_socket_free(server->admin_door);
	listener_stop(&server->listener);
	server->scrubber = worker_free(server->scrubber);
	server->verbs_worker = worker_free(server->verbs_worker);
	damage_watch_stop(server);
	server_free_event(&server->signal_events[2]);
	server_free_event(&server->signal_events[1]);
	server_free_event(&server->signal_events[0]);
	server_free_event(&server->turn_event);
	server_free_event(&server->lane_again_event);
	server_free_event(&server->control_again_event);
	server_free_event(&server->async_event);
	server_free_event(&server->lane_cq_event);
	server_free_event(&server->control_cq_event);
	listener_close(&server->listener);
	log_tick();
	if (drain_is_stopping(&server->drain))
		service_stage("giving the pool back", service_bytes_ms(server->pool.len_bytes));
	r = device_close(&server->device);
	if (r < 0) {
		log_error("device not closed, leaving the rest to the kernel error=\"%s\"",
			  strerror(-r));
		server->exit_status = SERVER_EXIT_STUCK;
		return;
	}
	pool_deinit(&server->pool);
	identity_close(&server->identity);
	tenant_registry_clear(&server->tenants);
	roster_close(&server->roster);
	config_free(&server->config);
	server->admission = admission_free(server->admission);
	service_clear(&server->service);
	if (server->deadlines != NULL) {
		deadline_clear(server->deadlines, &server->sweep);
		drain_deinit(&server->drain);
		deadline_clear(server->deadlines, &server->stop_limit);
		deadline_clear(server->deadlines, &server->audit_deadline);
	}
	server->audit = audit_free(server->audit);
	server->deadlines = deadline_queue_free(server->deadlines);
	route_table_deinit(&server->lease_routes);
	if (server->base != NULL)
		event_base_free(server->base);
}

static void server_loop(struct server *server)
{
	while (!event_base_got_break(server->base) &&
	       event_base_loop(server->base, EVLOOP_ONCE) == 0) {
		loop_turn_over();
		server->turn_endings = 0;
	}
}

/* Without another word to the kernel about what is left; the audit log has its last lines. */
static _Noreturn void server_exit(struct server *server)
{
	server->audit = audit_free(server->audit);
	_exit(server->exit_status);
}

int server_run(const struct config *config, const char *path)
{
	struct server server = {
		.config = *config, .config_path = path, .started_ns = clock_now_ns()};

	/* No core dump: it would hold keys. Nor may others of this user look into the process. */
	(void)prctl(PR_SET_DUMPABLE, 0ul, 0ul, 0ul, 0ul);
	drain_init(&server.drain, &server);
	TAILQ_INIT(&server.sessions);
	TAILQ_INIT(&server.notices);
	TAILQ_INIT(&server.lanes);
	TAILQ_INIT(&server.flush);
	TAILQ_INIT(&server.leases);
	server.exit_status = server_start(&server);
	if (server.exit_status == 0) {
		log_info("ready device=%s pool_bytes=%" PRIu64,
			 ibv_get_device_name(server.device.context->device), server.pool.len_bytes);
		server_tell_ready(&server);
		server_loop(&server);
	}
	/* What still waits for a device that is gone or stuck cannot be destroyed in order. */
	if (server.exit_status == SERVER_EXIT_DEVICE || server.exit_status == SERVER_EXIT_STUCK ||
	    server.exit_status == SERVER_EXIT_MEMORY)
		server_exit(&server);
	server_teardown(&server);
	/* A device that could not be closed may still refer to all that is left. */
	if (server.exit_status == SERVER_EXIT_STUCK)
		server_exit(&server);
	if (server.exit_status == 0)
		log_info("stopped");
	return server.exit_status;
}
