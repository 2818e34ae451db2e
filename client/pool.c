/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A session with a daemon: opening, closing, and the service thread, which waits for events
 * of the connections and handles them. What it does is in pool_step(), which never blocks;
 * the thread is but a loop around it.
 *
 * Order of undoing: the thread, the lanes, the control connection, the protection domains,
 * the event channel. Nothing here waits for the daemon longer than the session's time-out.
 *
 * Thread: any; the lock is taken where the state is touched.
 */
#include "client/pool.h"

#include <assert.h>
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "client/address.h"
#include "client/guard.h"
#include "client/lease.h"
#include "client/queue.h"
#include "client/secrets.h"
#include "client/sessions.h"
#include "client/wait.h"
#include "common/clock.h"
#include "common/secure.h"
#include "proto/error.h"

#define POOL_TIMEOUT_MS 5000
#define POOL_BYE_MS	1000 /* at most that for the last message */
#define POOL_CM_EVENTS	64   /* in one step */

/* What the first version had. What fills it up to the alignment was nobody's, and may be anything. */
#define POOL_CONNECT_OPTS_MIN offsetof(struct mempool_connect_opts, on_event)

struct pool_device {
	struct pool_device *next;
	struct ibv_context *context; /* librdmacm's: lives as long as the process */
	struct ibv_pd *pd;
};

static int pool_add_device(struct mempool *pool, struct ibv_context *context)
{
	struct pool_device *device = calloc(1, sizeof(*device));

	if (device == NULL)
		return -ENOMEM;
	errno = 0;
	device->pd = ibv_alloc_pd(context);
	if (device->pd == NULL) {
		free(device);
		return errno != 0 ? -errno : -EIO;
	}
	device->context = context;
	device->next = pool->devices;
	pool->devices = device;
	return 0;
}

/* The one that is used is the first from now on. */
int pool_pd(struct mempool *pool, struct ibv_context *context, struct ibv_pd **ret_pd)
{
	struct pool_device **at = &pool->devices;
	struct pool_device *device;
	int r;

	while (*at != NULL && (*at)->context != context)
		at = &(*at)->next;
	device = *at;
	if (device != NULL) {
		*at = device->next;
		device->next = pool->devices;
		pool->devices = device;
	} else {
		r = pool_add_device(pool, context);
		if (r < 0)
			return r;
	}
	*ret_pd = pool->devices->pd;
	return 0;
}

struct ibv_pd *pool_current_pd(const struct mempool *pool)
{
	return pool->devices != NULL ? pool->devices->pd : NULL;
}

static void pool_free_devices(struct mempool *pool)
{
	while (pool->devices != NULL) {
		struct pool_device *device = pool->devices;

		pool->devices = device->next;
		/* Refused if something on it could not be destroyed: then it stays, too. */
		(void)ibv_dealloc_pd(device->pd);
		free(device);
	}
}

uint64_t pool_deadline(const struct mempool *pool)
{
	return clock_add_ms(clock_now_ns(), pool->timeout_ms);
}

bool pool_options_known(const void *options, size_t known_bytes)
{
	const uint8_t *bytes = options;
	size_t size;

	if (options == NULL)
		return false;
	memcpy(&size, options, sizeof(size));
	if (size < known_bytes || size > POOL_OPTIONS_MAX)
		return false;
	/* A caller of a later version may use only what we know. */
	for (size_t i = known_bytes; i < size; i++) {
		if (bytes[i] != 0)
			return false;
	}
	return true;
}

bool pool_options_take(const void *options, size_t oldest_bytes, size_t known_bytes,
		       void *ret_options)
{
	size_t size;

	if (options == NULL)
		return false;
	memcpy(&size, options, sizeof(size));
	if (size != oldest_bytes && !pool_options_known(options, known_bytes))
		return false;
	if (size > known_bytes)
		size = known_bytes;
	memset(ret_options, 0, known_bytes);
	memcpy(ret_options, options, size);
	return true;
}

void pool_wake(struct mempool *pool)
{
	uint64_t one = 1;
	ssize_t n = write(pool->wake_fd, &one, sizeof(one));

	(void)n; /* if it is full the thread wakes up as well */
}

void pool_step(struct mempool *pool)
{
	uint64_t count;
	ssize_t n = read(pool->wake_fd, &count, sizeof(count));

	(void)n; /* nothing in it is as good */
	control_step(pool);
	for (int i = 0; i < POOL_CM_EVENTS && cm_step(pool->channel); i++)
		;
	renewal_step(pool);
}

/* Milliseconds for poll(). */
static int pool_next_ms(const struct mempool *pool)
{
	int control_ms = control_next_ms(pool);
	int renewal_ms = renewal_next_ms(pool);

	if (control_ms < 0 || renewal_ms < 0)
		return control_ms < 0 ? renewal_ms : control_ms;
	return control_ms < renewal_ms ? control_ms : renewal_ms;
}

static void *pool_thread(void *arg)
{
	struct mempool *pool = arg;
	struct pollfd fds[3] = {
		{.fd = pool->wake_fd, .events = POLLIN},
		{.fd = pool->channel->fd, .events = POLLIN},
		{.events = POLLIN},
	};
	int next_ms;

	(void)pthread_mutex_lock(&pool->lock);
	while (!pool->stop) {
		/* The channel of a device that was removed would never be quiet again. */
		fds[2].fd = pool->control.posted && !pool->control.lost
				    ? pool->control.cq.channel->fd
				    : -1;
		next_ms = pool_next_ms(pool);
		(void)pthread_mutex_unlock(&pool->lock);
		(void)poll(fds, 3, next_ms);
		(void)pthread_mutex_lock(&pool->lock);
		pool_step(pool);
		events_deliver(pool);
	}
	(void)pthread_mutex_unlock(&pool->lock);
	return NULL;
}

int pool_spawn(struct mempool *pool, void *(*run)(void *), const char *name, pthread_t *ret_thread)
{
	sigset_t all;
	sigset_t before;
	int r;

	/* The application's signals are handled by the application's threads. */
	(void)sigfillset(&all);
	(void)pthread_sigmask(SIG_SETMASK, &all, &before);
	r = pthread_create(ret_thread, NULL, run, pool);
	(void)pthread_sigmask(SIG_SETMASK, &before, NULL);
	if (r != 0)
		return -r;
	(void)pthread_setname_np(*ret_thread, name);
	return 0;
}

static int pool_start_thread(struct mempool *pool)
{
	int r = pool_spawn(pool, pool_thread, "mempool", &pool->thread);

	pool->thread_runs = r == 0;
	return r;
}

static void pool_stop_thread(struct mempool *pool)
{
	if (!pool->thread_runs)
		return;
	(void)pthread_mutex_lock(&pool->lock);
	pool->stop = true;
	(void)pthread_mutex_unlock(&pool->lock);
	pool_wake(pool);
	(void)pthread_join(pool->thread, NULL);
	pool->thread_runs = false;
}

static int pool_open_channel(struct mempool *pool)
{
	int r;

	errno = 0;
	pool->channel = rdma_create_event_channel();
	if (pool->channel == NULL)
		return client_error_raise(
			errno == ENODEV || errno == ENOENT ? MEMPOOL_E_NO_RDMA : MEMPOOL_E_SYSTEM,
			"this machine has no RDMA connection manager: %s", strerrordesc_np(errno));
	r = verbs_set_nonblocking(pool->channel->fd);
	if (r == 0)
		return 0;
	rdma_destroy_event_channel(pool->channel);
	return client_error_raise(MEMPOOL_E_SYSTEM, "cannot set up the event channel: %s",
				  strerrordesc_np(-r));
}

/* The parts of a new session, without connections and thread. */
static int pool_init(struct mempool *pool, const struct mempool_connect_opts *opts)
{
	int r;

	r = pthread_mutex_init(&pool->lock, NULL);
	if (r != 0)
		return client_error_raise(MEMPOOL_E_SYSTEM, "%s", strerrordesc_np(r));
	pool->wake_fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
	if (pool->wake_fd < 0) {
		r = client_error_raise(client_error_errno(-errno), "eventfd: %s",
				       strerrordesc_np(errno));
		goto err_destroy_lock;
	}
	r = events_init(&pool->events, opts);
	if (r < 0) {
		r = client_error_raise(client_error_errno(r), "%s", strerrordesc_np(-r));
		goto err_close_wake_fd;
	}
	r = reconnect_init(&pool->reconnect, opts->reconnect_ms);
	if (r < 0) {
		r = client_error_raise(client_error_errno(r), "%s", strerrordesc_np(-r));
		goto err_deinit_events;
	}
	r = wait_init(&pool->leases_changed);
	if (r < 0) {
		r = client_error_raise(client_error_errno(r), "%s", strerrordesc_np(-r));
		goto err_deinit_reconnect;
	}
	r = memory_init(&pool->memory);
	if (r < 0) {
		r = client_error_raise(client_error_errno(r), "%s", strerrordesc_np(-r));
		goto err_destroy_leases_changed;
	}
	r = pool_open_channel(pool);
	if (r < 0)
		goto err_deinit_memory;
	r = control_init(pool);
	if (r < 0)
		goto err_destroy_channel;
	r = lane_init(&pool->lane, pool);
	if (r < 0)
		goto err_deinit_control;
	pool->lanes = &pool->lane;
	pool->renewal_due_ns = RENEWAL_NEVER;
	return 0;

err_deinit_control:
	control_deinit(pool);
err_destroy_channel:
	rdma_destroy_event_channel(pool->channel);
	if (r > MEMPOOL_E_PROTOCOL)
		r = client_error_raise(client_error_errno(r), "%s", strerrordesc_np(-r));
err_deinit_memory:
	memory_deinit(&pool->memory);
err_destroy_leases_changed:
	(void)pthread_cond_destroy(&pool->leases_changed);
err_deinit_reconnect:
	reconnect_deinit(&pool->reconnect);
err_deinit_events:
	events_deinit(&pool->events);
err_close_wake_fd:
	(void)close(pool->wake_fd);
err_destroy_lock:
	(void)pthread_mutex_destroy(&pool->lock);
	return r;
}

static int pool_new(const struct mempool_connect_opts *opts, struct mempool **ret_pool)
{
	struct mempool *pool;
	int r;

	pool = calloc(1, sizeof(*pool));
	if (pool == NULL)
		return client_error_raise(MEMPOOL_E_NO_MEMORY, "not enough memory");
	pool->timeout_ms = opts->timeout_ms;
	r = pool_init(pool, opts);
	if (r < 0) {
		free(pool);
		return r;
	}
	*ret_pool = pool;
	return 0;
}

static void pool_free_lanes(struct mempool *pool)
{
	while (pool->lanes != NULL) {
		struct lane *lane = pool->lanes;

		(void)lane_close(lane);
		pool->lanes = lane->next;
		lane_deinit(lane);
		if (lane != &pool->lane)
			free(lane);
	}
}

static void pool_free(struct mempool *pool)
{
	pool_stop_thread(pool);
	queue_free_all(pool);
	pool_free_lanes(pool);
	control_close(pool);
	lease_free_all(pool);
	control_deinit(pool);
	memory_deinit(&pool->memory);
	pool_free_devices(pool);
	pool->secrets = secrets_free(pool->secrets);
	rdma_destroy_event_channel(pool->channel);
	(void)pthread_cond_destroy(&pool->leases_changed);
	reconnect_deinit(&pool->reconnect);
	events_deinit(&pool->events);
	(void)close(pool->wake_fd);
	(void)pthread_mutex_destroy(&pool->lock);
	free(pool);
}

/* Adds the last error, which @where has led to, to what is told at the end. */
static void pool_note_failure(const struct addrinfo *where, int code, struct client_error *tried)
{
	size_t used = strlen(tried->text);
	char address[ADDRESS_TEXT_MAX];

	/* That the one address in two leads over no RDMA device tells less than anything else. */
	if (tried->code == 0 || code != MEMPOOL_E_NO_RDMA)
		tried->code = code;
	(void)snprintf(
		tried->text + used, sizeof(tried->text) - used, "%s%s: %s", used == 0 ? "" : "; ",
		address_format(where->ai_addr, where->ai_addrlen, address), mempool_last_error());
}

/* Return: might another address of the same host do better? */
static bool pool_try_next(int code)
{
	return code == MEMPOOL_E_NO_RDMA || code == MEMPOOL_E_UNREACHABLE ||
	       code == MEMPOOL_E_REJECTED || code == MEMPOOL_E_TIMEOUT;
}

/* What became of one connection says nothing about the next. */
static void pool_reset_control(struct mempool *pool)
{
	control_close(pool);
	(void)pthread_mutex_lock(&pool->lock);
	control_reset(&pool->control);
	(void)pthread_mutex_unlock(&pool->lock);
}

/* Each address gets its share of the time that is left. */
static int pool_connect_any(struct mempool *pool, struct addrinfo *list, uint64_t deadline_ns)
{
	struct client_error tried = {0};
	uint64_t left_ns;
	uint64_t now_ns;
	uint64_t count;
	int r;

	for (struct addrinfo *at = list; at != NULL; at = at->ai_next) {
		count = 0;
		for (struct addrinfo *rest = at; rest != NULL; rest = rest->ai_next)
			count++;
		now_ns = clock_now_ns();
		left_ns = deadline_ns > now_ns ? deadline_ns - now_ns : 0;
		r = control_open(pool, at->ai_addr, now_ns + left_ns / count);
		if (r == 0) {
			memcpy(&pool->peer, at->ai_addr, at->ai_addrlen);
			return 0;
		}
		pool_note_failure(at, r, &tried);
		pool_reset_control(pool);
		if (!pool_try_next(r))
			break;
	}
	return client_error_forward(&tried);
}

static int pool_connect(struct mempool *pool, struct addrinfo *list, uint64_t deadline_ns)
{
	int r;

	r = pool_start_thread(pool);
	if (r < 0)
		return client_error_raise(client_error_errno(r), "cannot start a thread: %s",
					  strerrordesc_np(-r));
	r = pool_connect_any(pool, list, deadline_ns);
	if (r < 0)
		return r;
	r = control_hello(pool, deadline_ns);
	if (r < 0)
		return r;
	r = lane_open(&pool->lane, deadline_ns);
	/* If the session is lost, too, its connection says so at the next attempt, and why. */
	if (r == MEMPOOL_E_LANE)
		r = lane_open(&pool->lane, deadline_ns);
	return r;
}

/* From now on there is somebody to tell, also of what has happened since it was connected. */
static int pool_opened(struct mempool *pool)
{
	int r = reconnect_start(pool);

	if (r < 0)
		return client_error_raise(client_error_errno(r), "cannot start a thread: %s",
					  strerrordesc_np(-r));
	(void)pthread_mutex_lock(&pool->lock);
	pool->events.on = true;
	if (pool->control.lost)
		control_tell_lost(pool);
	(void)pthread_mutex_unlock(&pool->lock);
	return 0;
}

/* What happens now is the caller's own doing. */
static void pool_closing(struct mempool *pool)
{
	(void)pthread_mutex_lock(&pool->lock);
	pool->events.on = false;
	(void)pthread_mutex_unlock(&pool->lock);
}

static int pool_resolve(const struct address *address, struct addrinfo **ret_list)
{
	int r = address_resolve(address, ret_list);

	if (r != 0)
		return client_error_raise(MEMPOOL_E_RESOLVE, "%s: %s", address->host,
					  gai_strerror(r));
	return 0;
}

int mempool_connect(const char *address, const struct mempool_connect_opts *opts,
		    mempool **ret_pool)
{
	struct mempool *pool = NULL;
	struct secrets *secrets = NULL;
	struct addrinfo *list = NULL;
	struct address parts;
	struct mempool_connect_opts own;
	uint64_t deadline_ns;
	int r;

	r = guard_open();
	if (r < 0)
		return r;
	if (ret_pool == NULL || !pool_options_take(opts, POOL_CONNECT_OPTS_MIN, sizeof(own), &own))
		return client_error_raise(MEMPOOL_E_INVALID, "the options are not valid");
	if (address == NULL || address_parse(address, &parts) < 0)
		return client_error_raise(MEMPOOL_E_INVALID,
					  "an address is written host:port, [v6 address]:port or "
					  "mempool://host:port?key=...");
	if (secure_init() < 0)
		return client_error_raise(MEMPOOL_E_SYSTEM, "no source of randomness");
	if (opts->size == POOL_CONNECT_OPTS_MIN)
		own.reconnect_ms = 0;
	if (own.timeout_ms == 0)
		own.timeout_ms = POOL_TIMEOUT_MS;
	deadline_ns = clock_add_ms(clock_now_ns(), own.timeout_ms);
	r = secrets_new(&own, &parts, &secrets);
	if (r < 0)
		return r;
	r = pool_resolve(&parts, &list);
	if (r < 0)
		goto free_secrets;
	r = pool_new(&own, &pool);
	if (r < 0)
		goto free_list;
	pool->secrets = secrets;
	secrets = NULL;
	r = pool_connect(pool, list, deadline_ns);
	if (r == 0)
		r = pool_opened(pool);
	if (r < 0) {
		pool_free(pool);
		goto free_list;
	}
	sessions_add(pool);
	*ret_pool = pool;
free_list:
	freeaddrinfo(list);
free_secrets:
	secrets_free(secrets);
	return r;
}

/*
 * In a forked child everything but these belongs to the parent: its connections are alive, and
 * what its other threads were changing at that moment cannot be walked through. So the rest
 * stays until the child ends.
 */
static void pool_free_in_child(struct mempool *pool)
{
	pool->secrets = secrets_free(pool->secrets);
	(void)close(pool->events.fd);
	pool->events.fd = -1;
	(void)close(pool->wake_fd);
	pool->wake_fd = -1;
}

/* A session that the caller must leave alone. */
static bool pool_is_not_ours(struct mempool *pool)
{
	if (guard_in_child())
		pool_free_in_child(pool);
	return guard_call() < 0;
}

void mempool_close(mempool *pool)
{
	uint32_t bye_ms;

	if (pool == NULL || pool_is_not_ours(pool))
		return;
	if (!sessions_remove(pool)) {
		(void)client_error_raise(MEMPOOL_E_STATE, "the session has been closed already");
		return;
	}
	pool_closing(pool);
	reconnect_stop(pool);
	bye_ms = pool->timeout_ms < POOL_BYE_MS ? pool->timeout_ms : POOL_BYE_MS;
	control_bye(pool, clock_add_ms(clock_now_ns(), bye_ms));
	pool_free(pool);
}

int pool_lane_new(mempool *pool, struct lane **ret_lane)
{
	struct lane *lane;
	int r;

	lane = calloc(1, sizeof(*lane));
	if (lane == NULL || lane_init(lane, pool) < 0) {
		free(lane);
		return client_error_raise(MEMPOOL_E_NO_MEMORY, "not enough memory");
	}
	(void)pthread_mutex_lock(&pool->lock);
	lane->next = pool->lanes;
	pool->lanes = lane;
	(void)pthread_mutex_unlock(&pool->lock);
	r = lane_ensure(lane, pool_deadline(pool));
	if (r == 0)
		*ret_lane = lane;
	return r;
}
