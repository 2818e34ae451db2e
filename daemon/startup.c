/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The steps of a start that can fail for want of something: each says in one line what is
 * missing, to the log and to the service manager. Owns nothing: what it opens is the server's,
 * which also tears down what a start that failed has left.
 *
 * Thread: the loop's, before the loop runs.
 */
#include "daemon/startup.h"

#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "common/clock.h"
#include "common/log.h"
#include "daemon/admin.h"
#include "daemon/admin_drain.h"
#include "daemon/admin_lease.h"
#include "daemon/admin_log.h"
#include "daemon/admin_session.h"
#include "daemon/admin_socket.h"
#include "daemon/admin_tenant.h"
#include "daemon/events.h"
#include "daemon/notify.h"
#include "daemon/server.h"
#include "daemon/status.h"
#include "proto/error.h"

#define STARTUP_SELFTEST_PAGES	  64u
#define STARTUP_ADDRESSES_MAX	  65536u
#define STARTUP_AUDIT_LINES_PER_S 1000u

int startup_fail(const char *text)
{
	log_error("%s", text);
	service_failed(text);
	return SERVER_EXIT_START;
}

static int startup_check_memlock(const struct server *server, bool guarded)
{
	struct pool_memlock need = {
		.pool_bytes = server->config.pool_size_bytes,
		.guard_bytes = guarded ? server->config.pool_size_bytes : 0,
		.control_bytes =
			device_control_bytes(&server->config) + identity_bytes(&server->config),
		.limit_bytes = pool_memlock_limit(),
	};
	char text[512];

	if (pool_memlock_check(&need, text) < 0)
		return startup_fail(text);
	return 0;
}

/* Which means that the device, or the address on it, may still come. */
static bool startup_may_come(int r)
{
	return r == -ENODEV || r == -EADDRNOTAVAIL;
}

/* A device that is being restarted, or not there yet at boot, is waited for. */
static int startup_bind(struct server *server)
{
	const struct config *config = &server->config;
	uint64_t until_ns = clock_add_ms(clock_now_ns(), config->device_wait_ms);
	char error[LISTENER_ERROR_MAX] = "cannot listen for connections";
	bool told = false;
	int r;

	device_wait(config->device, until_ns);
	for (;;) {
		r = listener_bind(&server->listener, config, error);
		if (r == 0)
			return 0;
		if (!startup_may_come(r) || clock_now_ns() >= until_ns)
			return startup_fail(error);
		if (!told)
			log_warn("%s; waiting for it wait_ms=%" PRIu64, error,
				 config->device_wait_ms);
		told = true;
		listener_close(&server->listener);
		service_stage("waiting for the addresses to listen on", STARTUP_STAGE_MS);
		(void)poll(NULL, 0, DEVICE_POLL_MS);
	}
}

static int startup_open_device(struct server *server)
{
	char error[DEVICE_ERROR_MAX];

	service_stage("opening the device",
		      service_bytes_ms(device_control_bytes(&server->config)));
	if (device_find(&server->device, server->config.device, listener_context(&server->listener),
			error) < 0 ||
	    device_open(&server->device, &server->config, error) < 0)
		return startup_fail(error);
	for (size_t i = 0; i < server->listener.count; i++) {
		struct ibv_context *context = server->listener.ids[i]->verbs;

		if (context == NULL || context == server->device.context)
			continue;
		snprintf(error, sizeof(error), "listen address '%s' is on device %s, but %s serves",
			 server->config.listen[i], ibv_get_device_name(context->device),
			 ibv_get_device_name(server->device.context->device));
		return startup_fail(error);
	}
	return 0;
}

static int startup_open_pool(struct server *server)
{
	const struct config *config = &server->config;
	struct mapping_request request = {
		.len_bytes = config->pool_size_bytes,
		.pages = (enum mapping_pages)config->hugepages,
		.numa_node = config_numa_node(config),
	};
	char error[DEVICE_ERROR_MAX];

	if (pool_init(&server->pool, &request, config->scrub_chunk_bytes, server->scrubber, error) <
	    0)
		return startup_fail(error);
	if (device_register_pool(&server->device, &server->pool, error) < 0)
		return startup_fail(error);
	return 0;
}

static void startup_log_isolation(const struct server *server)
{
	const struct isolation *isolation = &server->isolation;

	for (int mode = 0; mode < 2; mode++) {
		for (int i = 0; i < SELFTEST_PROPERTIES && isolation->ran[mode]; i++)
			log_info("self-test over=%s property=%s outcome=\"%s\"",
				 mode == 0 ? "pool" : "guard",
				 selftest_property_name((enum selftest_property)i),
				 selftest_outcome_name(isolation->result[mode].outcome[i]));
	}
	if (isolation->mode == MESSAGE_ISOLATION_UNVERIFIED)
		log_warn("tenants are not kept apart isolation=unverified fence=\"%s\"",
			 isolation->fence_strict ? "strict" : "not strict");
	else
		log_info("isolation chosen isolation=%s why=\"%s\"",
			 isolation_mode_name(isolation->mode), isolation->why);
}

static int startup_isolate(struct server *server)
{
	const char *name = ibv_get_device_name(server->device.context->device);
	uint64_t want_bytes = STARTUP_SELFTEST_PAGES * server->pool.page_bytes;
	struct selftest_params params = {
		.pd = server->device.pd,
		.mr = server->device.pool_mr,
		.memory = server->pool.memory,
		.len_bytes =
			want_bytes < server->pool.len_bytes ? want_bytes : server->pool.len_bytes,
	};
	char error[CONFIG_ERROR_MAX];
	char text[CONFIG_ERROR_MAX + 128];

	service_stage("testing the device", STARTUP_STAGE_MS);
	if (isolation_decide(server->config.isolation, &params, strncmp(name, "rxe", 3) == 0,
			     &server->isolation, error) < 0) {
		snprintf(text, sizeof(text), "the device %s cannot be used: %s", name, error);
		return startup_fail(text);
	}
	startup_log_isolation(server);
	return startup_check_memlock(server, server->isolation.guarded);
}

static int startup_open_identity(struct server *server)
{
	char error[IDENTITY_ERROR_MAX];

	if (identity_open(&server->identity, &server->config, error) < 0)
		return startup_fail(error);
	return 0;
}

struct admission_limits startup_admission_limits(const struct config *config)
{
	return (struct admission_limits){
		.connections_max = (uint32_t)config->sessions_max,
		.handshakes_max = (uint32_t)config->handshakes_max,
		.address_connections_max = (uint32_t)config->connections_max_per_address,
		.address_handshakes_max = (uint32_t)config->handshakes_max_per_address,
		.failures_max = (uint32_t)config->ban_after,
		.back_off_min_ms = config->ban_backoff_min_ms,
		.back_off_max_ms = config->ban_time_ms,
		.ban_ms = config->ban_time_ms,
		/* Who comes right after the longest wait has not been quiet for that long. */
		.forget_ms = 2 * config->ban_time_ms,
		.addresses_max = STARTUP_ADDRESSES_MAX,
	};
}

/* Who may come, and where it is written down. */
static int startup_open_gate(struct server *server)
{
	const struct config *config = &server->config;
	struct admission_limits limits = startup_admission_limits(config);
	char error[ROSTER_ERROR_MAX];
	int r;

	r = audit_new(config->audit_log[0] != '\0' ? config->audit_log : NULL,
		      STARTUP_AUDIT_LINES_PER_S, &server->audit);
	if (r < 0) {
		snprintf(error, sizeof(error), "cannot write the audit log '%s': %s",
			 config->audit_log, strerror(-r));
		return startup_fail(error);
	}
	if (admission_new(&limits, &server->admission) < 0)
		return startup_fail("cannot set up admission: not enough memory");
	if (roster_open(server, error) != 0)
		return startup_fail(error);
	if (server->roster.filed.count == 0)
		log_warn("no tenants are configured: nobody can connect");
	return 0;
}

static int startup_fail_admin(const struct server *server, int r)
{
	char error[CONFIG_ERROR_MAX + CONFIG_STRING_MAX];

	snprintf(error, sizeof(error), "cannot listen on admin socket '%s': %s",
		 server->config.admin_socket,
		 r == -EADDRINUSE ? "another daemon uses it"
		 : r == -EPERM	  ? "the daemon is not a member of 'admin_group' (the service's "
				    "SupplementaryGroups=)"
		 : r == -ENOTSOCK ? "something that is not a socket is there and was left alone: "
				    "remove it, or change 'admin_socket'"
		 : r == -EEXIST	  ? "another user's socket is there and was left alone: remove it, "
				    "or change 'admin_socket'"
				  : strerror(-r));
	(void)startup_fail(error);
	return r == -EADDRINUSE ? SERVER_EXIT_RUNNING : SERVER_EXIT_START;
}

/* First of all: a second daemon is to say so, and not that something else is in its way. */
static int startup_take_place(struct server *server)
{
	char error[CONFIG_STRING_MAX + 128];
	gid_t gid;
	int r, fd;

	r = admin_socket_group(server->config.admin_group, &gid);
	if (r < 0) {
		snprintf(error, sizeof(error), "admin_group '%s' cannot be used: %s",
			 server->config.admin_group,
			 r == -ENOENT ? "there is no such group; make it, or correct the key"
				      : strerror(-r));
		return startup_fail(error);
	}
	r = admin_socket_new(server->config.admin_socket, gid, &server->admin_door);
	/* One that the service manager holds has its file made, and keeps it. */
	fd = r == 0 ? notify_take_listener(server->config.admin_socket) : -1;
	if (fd >= 0) {
		r = admin_socket_adopt(server->admin_door, fd);
		if (r < 0)
			(void)close(fd);
	}
	return r < 0 ? startup_fail_admin(server, r) : 0;
}

int startup_open(struct server *server)
{
	int r;

	r = startup_take_place(server);
	if (r == 0)
		r = startup_check_memlock(server, false);
	if (r == 0)
		r = startup_open_identity(server);
	if (r == 0)
		r = startup_open_gate(server);
	if (r == 0)
		r = startup_bind(server);
	if (r == 0)
		r = startup_open_device(server);
	if (r == 0)
		r = startup_open_pool(server);
	if (r == 0)
		r = startup_isolate(server);
	return r;
}

int startup_open_admin(struct server *server)
{
	static const struct admin_method *const tables[] = {
		status_methods,	       admin_lease_methods,
		admin_session_methods, admin_tenant_methods,
		admin_drain_methods,   admin_log_methods,
		events_methods,	       NULL,
	};
	int r = admin_new(server->base, server->admin_door, tables, server, &server->admin);

	if (r < 0)
		return startup_fail_admin(server, r);
	server->admin_door = NULL;
	return 0;
}
