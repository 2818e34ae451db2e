/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Reports of damaged memory, early ones from the kernel and late ones from the scrubber. Damage
 * in the pool costs the lease that has it and the pages; the daemon goes on. Damage anywhere
 * else is in memory of the daemon itself, which cannot be trusted any more.
 *
 * Invariant: once started its deadline is always set. Owns its event and the deadline.
 *
 * Thread: the loop.
 */
#include "daemon/damage_watch.h"

#include <errno.h>
#include <inttypes.h>

#include "common/clock.h"
#include "daemon/damage.h"
#include "daemon/loop.h"
#include "daemon/server.h"
#include "proto/error.h"

#define DAMAGE_WATCH_BATCH   64	      /* reports in one turn of the loop */
#define DAMAGE_WATCH_STEP    128      /* leases looked at in one turn of the loop */
#define DAMAGE_WATCH_IDLE_MS 86400000 /* to the next look for nothing */

static bool damage_watch_has(const struct server *server, const struct lease *lease)
{
	const struct extent *extent = lease->back.extent;

	return !lease_is_ending(lease) && extent != NULL &&
	       pool_is_damaged(&server->pool, extent_offset_bytes(extent),
			       extent_len_bytes(extent));
}

/* It is always set to some time, so that setting it cannot fail when it matters. */
static uint64_t damage_watch_next_ns(const struct damage_watch *watch)
{
	return clock_add_ms(clock_now_ns(), watch->next != NULL ? 0 : DAMAGE_WATCH_IDLE_MS);
}

/*
 * Some in each turn of the loop: a page of a gigabyte has many. Ending one may end others of the
 * same acquire and free them, which moves on what is next.
 */
static void damage_watch_end_leases(struct deadline *deadline, void *context)
{
	struct server *server = context;
	struct damage_watch *watch = &server->damage_watch;
	struct lease *lease;

	for (int i = 0; i < DAMAGE_WATCH_STEP && (lease = watch->next) != NULL; i++) {
		watch->next = TAILQ_NEXT(lease, server_link);
		if (damage_watch_has(server, lease))
			lease_end(lease, ERROR_MEMORY);
	}
	/* It was in the queue just now, so there is room for it. */
	(void)deadline_set(server->deadlines, deadline, damage_watch_next_ns(watch));
}

void damage_watch_lease_gone(struct damage_watch *watch, const struct lease *lease)
{
	if (watch->next == lease)
		watch->next = TAILQ_NEXT(lease, server_link);
}

/* The pool knows already. The leases are looked at later: who calls may be amid the scrubbing. */
static void damage_watch_note(void *context, uint64_t offset_bytes, uint64_t len_bytes)
{
	struct server *server = context;
	struct damage_watch *watch = &server->damage_watch;

	server->counters.memory_errors++;
	log_error("memory of the pool is damaged, and is not lent again offset_bytes=%" PRIu64
		  " len_bytes=%" PRIu64,
		  offset_bytes, len_bytes);
	watch->next = TAILQ_FIRST(&server->leases);
	(void)deadline_set(server->deadlines, &watch->deadline, damage_watch_next_ns(watch));
}

static void damage_watch_pool(struct server *server, uint64_t begin, uint64_t end)
{
	pool_damage(&server->pool, begin, end - begin);
	damage_watch_note(server, begin, end - begin);
}

static void damage_watch_report(struct server *server, const struct damage *damage)
{
	uint64_t memory = (uint64_t)(uintptr_t)server->pool.memory;
	uint64_t end = damage->addr + damage->len_bytes;

	if (end <= memory || damage->addr >= memory + server->pool.len_bytes) {
		server_memory_lost(server);
		return;
	}
	damage_watch_pool(server, damage->addr > memory ? damage->addr - memory : 0,
			  end - memory < server->pool.len_bytes ? end - memory
								: server->pool.len_bytes);
}

static void damage_watch_on_report(evutil_socket_t fd, short what, void *context)
{
	struct server *server = context;
	struct damage damage;

	loop_mark();
	(void)fd;
	(void)what;
	for (int i = 0; i < DAMAGE_WATCH_BATCH && damage_next(&damage); i++)
		damage_watch_report(server, &damage);
}

int damage_watch_start(struct server *server)
{
	int fd;
	int r = damage_open(&fd);

	if (r < 0)
		return r;
	server->damage_watch.event =
		event_new(server->base, fd, EV_READ | EV_PERSIST, damage_watch_on_report, server);
	if (server->damage_watch.event == NULL || event_add(server->damage_watch.event, NULL) < 0)
		return -ENOMEM;
	server->damage_watch.deadline =
		(struct deadline){.fire = damage_watch_end_leases, .context = server};
	r = deadline_set(server->deadlines, &server->damage_watch.deadline,
			 damage_watch_next_ns(&server->damage_watch));
	if (r < 0)
		return r;
	server->pool.on_damage = damage_watch_note;
	return 0;
}

void damage_watch_stop(struct server *server)
{
	if (server->damage_watch.event != NULL)
		event_free(server->damage_watch.event);
	server->damage_watch.event = NULL;
	if (server->deadlines != NULL)
		deadline_clear(server->deadlines, &server->damage_watch.deadline);
	server->damage_watch.next = NULL;
	damage_close();
}
