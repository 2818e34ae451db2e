/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Sessions that tell of events. Thread: any.
 */
#include "tests/integration/told.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>

#include "client/lane.h"
#include "client/pool.h"
#include "common/clock.h"
#include "common/verbs.h"
#include "tests/integration/harness.h"

int told_connect(const char *tenant, struct mempool_connect_opts *opts, mempool **ret_pool)
{
	struct harness_keys keys;
	int r;

	harness_keys(tenant, &keys, opts);
	if (opts->timeout_ms == 0)
		opts->timeout_ms = HARNESS_TIMEOUT_MS;
	r = mempool_connect(harness_endpoint(), opts, ret_pool);
	if (r < 0)
		printf("# %s: %s\n", tenant, mempool_last_error());
	return r;
}

int told_connect_for(uint32_t reconnect_ms, uint32_t timeout_ms, mempool **ret_pool)
{
	struct mempool_connect_opts opts = {
		.timeout_ms = timeout_ms,
		.reconnect_ms = reconnect_ms,
	};

	return told_connect("alpha", &opts, ret_pool);
}

int told_acquire(mempool *pool, uint64_t len_bytes, uint64_t ttl_ms, uint32_t flags,
		 mempool_lease **ret_lease)
{
	struct mempool_acquire_opts opts = {
		.size = sizeof(opts),
		.ttl_ms = ttl_ms,
		.rights = MEMPOOL_READ | MEMPOOL_WRITE,
		.flags = flags,
	};

	return mempool_acquire(pool, len_bytes, &opts, ret_lease);
}

const char *told_name(uint32_t kind)
{
	static const char *const names[] = {
		[MEMPOOL_EVENT_LEASE_EXPIRING] = "lease expiring",
		[MEMPOOL_EVENT_LEASE_REVOKING] = "lease revoking",
		[MEMPOOL_EVENT_LEASE_ENDED] = "lease ended",
		[MEMPOOL_EVENT_LANE_LOST] = "lane lost",
		[MEMPOOL_EVENT_LANE_RESTORED] = "lane restored",
		[MEMPOOL_EVENT_DRAINING] = "draining",
		[MEMPOOL_EVENT_SESSION_LOST] = "session lost",
		[MEMPOOL_EVENT_SESSION_RESTORED] = "session restored",
		[MEMPOOL_EVENT_SESSION_GIVEN_UP] = "session given up",
		[MEMPOOL_EVENT_EVENTS_LOST] = "events lost",
	};

	return kind < sizeof(names) / sizeof(names[0]) && names[kind] != NULL ? names[kind] : "?";
}

static void told_print(const char *what, const struct mempool_event *event)
{
	printf("# %s: %s, code %d, lease 0x%" PRIx64 "\n", what, told_name(event->kind),
	       event->code, event->lease_id);
}

bool told_wait(mempool *pool, uint32_t kind, uint64_t limit_ms, struct mempool_event *ret_event)
{
	uint64_t until_ns = clock_add_ms(clock_now_ns(), limit_ms);
	struct mempool_event event = {.size = sizeof(event)};

	while (mempool_next_event(pool, &event,
				  (uint32_t)clock_left_ms(until_ns, clock_now_ns())) == 0) {
		if (event.kind == kind) {
			if (ret_event != NULL)
				*ret_event = event;
			return true;
		}
		told_print("passed over", &event);
	}
	printf("# not told: %s\n", told_name(kind));
	return false;
}

bool told_nothing(mempool *pool, uint32_t for_ms)
{
	struct mempool_event event = {.size = sizeof(event)};

	if (mempool_next_event(pool, &event, for_ms) == MEMPOOL_E_TIMEOUT)
		return true;
	told_print("told", &event);
	return false;
}

void told_cut(mempool *pool)
{
	(void)pthread_mutex_lock(&pool->lock);
	if (cm_qp(&pool->control.cm) != NULL)
		(void)verbs_qp_to_error(cm_qp(&pool->control.cm));
	(void)pthread_mutex_unlock(&pool->lock);
}

void told_cut_lane(mempool *pool)
{
	(void)pthread_mutex_lock(&pool->lock);
	if (pool->lane.state == LANE_UP)
		(void)verbs_qp_to_error(lane_qp(&pool->lane));
	(void)pthread_mutex_unlock(&pool->lock);
}
