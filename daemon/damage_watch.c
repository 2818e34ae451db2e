/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Reports of damaged memory, early ones from the kernel and late ones from the scrubber. Damage
 * in the pool costs the lease that has it and the pages; the daemon goes on. Damage anywhere
 * else is in memory of the daemon itself, which cannot be trusted any more.
 *
 * Owns its event. Thread: the loop.
 */
#include "daemon/damage_watch.h"

#include <errno.h>
#include <inttypes.h>

#include "daemon/damage.h"
#include "daemon/loop.h"
#include "daemon/server.h"
#include "proto/error.h"

#define DAMAGE_WATCH_BATCH 64 /* reports in one turn of the loop */

static bool damage_watch_has(const struct lease *lease, uint64_t begin, uint64_t end)
{
	const struct extent *extent = lease->back.extent;

	return !lease_is_ending(lease) && extent != NULL && extent_offset_bytes(extent) < end &&
	       extent_offset_bytes(extent) + extent_len_bytes(extent) > begin;
}

/* Ending one lease may end others of the same acquire and free them, so it begins anew. */
static void damage_watch_end_leases(struct server *server, uint64_t begin, uint64_t end)
{
	struct lease *lease = TAILQ_FIRST(&server->leases);

	while (lease != NULL) {
		if (!damage_watch_has(lease, begin, end)) {
			lease = TAILQ_NEXT(lease, server_link);
			continue;
		}
		lease_end(lease, ERROR_MEMORY);
		lease = TAILQ_FIRST(&server->leases);
	}
}

static void damage_watch_note(void *context, uint64_t offset_bytes, uint64_t len_bytes)
{
	struct server *server = context;

	server->counters.memory_errors++;
	log_error("memory of the pool is damaged, and is not lent again offset_bytes=%" PRIu64
		  " len_bytes=%" PRIu64,
		  offset_bytes, len_bytes);
}

static void damage_watch_pool(struct server *server, uint64_t begin, uint64_t end)
{
	damage_watch_note(server, begin, end - begin);
	pool_damage(&server->pool, begin, end - begin);
	damage_watch_end_leases(server, begin, end);
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
	server->pool.on_damage = damage_watch_note;
	return 0;
}

void damage_watch_stop(struct server *server)
{
	if (server->damage_watch.event != NULL)
		event_free(server->damage_watch.event);
	server->damage_watch.event = NULL;
	damage_close();
}
