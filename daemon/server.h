/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef DAEMON_SERVER_H
#define DAEMON_SERVER_H

#include <event2/event.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/queue.h>

#include "common/histogram.h"
#include "common/log.h"
#include "daemon/admission.h"
#include "daemon/audit.h"
#include "daemon/config.h"
#include "daemon/damage_watch.h"
#include "daemon/deadline.h"
#include "daemon/device.h"
#include "daemon/drain.h"
#include "daemon/identity.h"
#include "daemon/isolation.h"
#include "daemon/lane.h"
#include "daemon/lease.h"
#include "daemon/listener.h"
#include "daemon/pool.h"
#include "daemon/revocation.h"
#include "daemon/roster.h"
#include "daemon/service.h"
#include "daemon/session.h"
#include "daemon/tenant.h"
#include "daemon/worker.h"

struct admin;
struct admin_socket;

/* Exit statuses of the daemon. */
enum {
	SERVER_EXIT_OK = 0,
	SERVER_EXIT_START = 1,	 /* could not start; one line says why */
	SERVER_EXIT_USAGE = 2,	 /* options or configuration */
	SERVER_EXIT_RUNNING = 3, /* another daemon serves the admin socket */
	SERVER_EXIT_DEVICE = 74, /* the device was removed or failed */
	SERVER_EXIT_STUCK = 75,	 /* something was left to the kernel at stop */
	SERVER_EXIT_MEMORY = 76, /* the hardware has damaged the daemon's own memory */
};

/* What has been counted since the start; one list gives struct and JSON. */
#define SERVER_COUNTERS(X)       \
	X(sessions_accepted)     \
	X(sessions_rejected)     \
	X(sessions_lost)         \
	X(protocol_errors)       \
	X(strikes)               \
	X(strikes_pardoned)      \
	X(lanes_connected)       \
	X(lanes_lost)            \
	X(binds_posted)          \
	X(binds_succeeded)       \
	X(invalidates_posted)    \
	X(invalidates_succeeded) \
	X(windows_unknown)       \
	X(windows_allocated)     \
	X(windows_deallocated)   \
	X(guards_registered)     \
	X(guards_deregistered)   \
	X(leases_granted)        \
	X(leases_ended)          \
	X(leases_orphaned)       \
	X(leases_reattached)     \
	X(connections_failed)    \
	X(messages_unopened)     \
	X(memory_errors)         \
	X(destroy_failures)

struct server_counters {
#define X(name) uint64_t name;
	SERVER_COUNTERS(X)
#undef X
};

/* Everything that exists once; made by server_run(), used by all objects on the loop's thread. */
struct server {
	struct config config;
	const char *config_path; /* where it is from */
	struct event_base *base;
	struct deadline_queue *deadlines;
	struct worker *verbs_worker;
	struct worker *scrubber;
	struct device device;
	struct identity identity;
	struct pool pool;
	struct tenant_registry tenants;
	struct roster roster;
	struct admission *admission;
	struct audit *audit;
	struct deadline audit_deadline;

	struct isolation isolation;
	struct listener listener;
	struct admin_socket *admin_door; /* until the admin object has it */
	struct admin *admin;
	struct service service;

	TAILQ_HEAD(, session) sessions;
	uint64_t session_count;
	TAILQ_HEAD(, session) notices;	   /* sessions with notices to send or messages to post */
	TAILQ_HEAD(lane_list, lane) lanes; /* in the order in which they are swept */
	uint64_t lane_count;
	TAILQ_HEAD(, lane) flush; /* lanes with something to post */
	struct route_table lease_routes;
	TAILQ_HEAD(, lease) leases;
	uint64_t lease_count;
	LIST_HEAD(, revocation) revocations; /* orders that still look for leases */
	uint64_t tails;			     /* ranges cut off leases that are being scrubbed */

	struct event *control_cq_event;
	struct event *lane_cq_event;
	struct event *async_event;
	struct event *control_again_event; /* timers: what one turn was too short for */
	struct event *lane_again_event;
	struct event *turn_event; /* made active when something waits for the end of the turn */
	struct event *signal_events[3];
	struct deadline sweep;
	struct deadline stop_limit;

	uint32_t turn_endings; /* leases of ending sessions that have been ended in this turn */
	bool serve_waiting;    /* at the end of the turn: a lease that waited for bytes has gone */
	bool port_down;	       /* no new leases are granted */
	struct drain drain;
	struct damage_watch damage_watch;
	int exit_status;
	uint64_t started_ns;
	struct histogram revocation_us; /* decision -> fence */
	struct server_counters counters;
};

/**
 * server_run() - start, serve until told to stop, tear down
 * @config: checked; what it owns is the server's from now on
 * @path: of its file, which is read again when the server is told to; outlives the call
 *
 * SIGHUP must be ignored: until the loop takes it there is nothing to read again for.
 * Return: the process's exit status.
 */
int server_run(const struct config *config, const char *path);

/**
 * server_stop() - begin to stop: no new connections, all sessions end; the loop ends when all is gone
 */
void server_stop(struct server *server);

/**
 * server_device_lost() - the device is gone or unusable
 *
 * No completion can be expected any more: the process ends at once and leaves the rest to the kernel.
 */
void server_device_lost(struct server *server, const char *why);

/** server_memory_lost() - memory that is not the pool's is damaged: the process ends at once, too */
void server_memory_lost(struct server *server);

/** server_audit() - write to the audit log */
void server_audit(struct server *server, const struct audit_record *record);

/** server_enforced_bits() - bit i: the i-th self-test property is enforced in the mode that is used */
uint32_t server_enforced_bits(const struct server *server);

/** server_end_turn() - have notices, control messages and posts go out at the end of this turn */
void server_end_turn(struct server *server);

/** server_maybe_stopped() - called when a session, lane or lease has gone */
void server_maybe_stopped(struct server *server);

/** server_random_id() - an object id: 31 random bits over a route */
uint64_t server_random_id(uint32_t route);

#endif
