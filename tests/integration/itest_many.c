/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Many clients of several tenants do all that clients do, and come and go. When they have
 * left nothing is charged to any of the tenants, and the daemon and the kernel have what they
 * had before.
 */
#include <inttypes.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/clock.h"
#include "tests/integration/accounts.h"
#include "tests/integration/harness.h"
#include "tests/integration/resources.h"
#include "tests/integration/tenants.h"

#define TENANTS		   8
#define CLIENTS		   64
#define PAGE		   4096
#define LEASE_PAGES_MAX	   4
#define TTL_MS		   60000
#define ROUNDS_PER_SESSION 40
#define LATE_MS		   30000

/* Of a tenant, when all is over. */
#define SESSIONS    16
#define LEASES	    16
#define QUOTA_PAGES 64
#define QUOTA	    "{\"sessions\": 16, \"lanes\": 16, \"leases\": 16, \"bytes\": \"256KiB\"}"

/* As by default; but all clients share one address. */
#define LIMITS                                                                     \
	"\"handshake_timeout\": \"30s\", \"connections_max_per_address\": 65536, " \
	"\"handshakes_max\": 65536, \"handshakes_max_per_address\": 65536"

static const char *const tenants[TENANTS] = {"alpha", "beta",	"gamma",  "delta",
					     "owner", "reader", "writer", "other"};

struct many {
	atomic_bool stop;
	atomic_uint connected;
	atomic_uint_least64_t rounds;
	atomic_uint_least64_t sessions;
	atomic_uint_least64_t wrong;
};

struct client {
	struct many *many;
	const char *tenant;
	unsigned int seed;
	pthread_t thread;
	mempool *pool;
	int code;
	char text[256];
};

static bool client_failed(struct client *client, int r)
{
	if (r == 0)
		return false;
	client->code = r;
	snprintf(client->text, sizeof(client->text), "%s", mempool_last_error());
	return true;
}

static bool client_use(struct client *client, mempool_lease *lease, uint64_t len_bytes)
{
	uint8_t sent[LEASE_PAGES_MAX * PAGE];
	uint8_t got[LEASE_PAGES_MAX * PAGE];

	harness_fill(sent, len_bytes, (uint32_t)rand_r(&client->seed));
	if (client_failed(client, mempool_write(lease, 0, sent, len_bytes)) ||
	    client_failed(client, mempool_read(lease, 0, got, len_bytes)))
		return false;
	if (memcmp(sent, got, len_bytes) != 0)
		atomic_fetch_add(&client->many->wrong, 1);
	return true;
}

/* Some leave their lease to the end of the session. */
static bool client_round(struct client *client, bool last)
{
	uint64_t len_bytes = 1 + (uint64_t)rand_r(&client->seed) % (LEASE_PAGES_MAX * PAGE);
	mempool_lease *lease;

	if (client_failed(client, harness_acquire(client->pool, len_bytes, TTL_MS, &lease)) ||
	    !client_use(client, lease, len_bytes) ||
	    client_failed(client, mempool_renew(lease, TTL_MS)))
		return false;
	if (rand_r(&client->seed) % 4 == 0 &&
	    client_failed(client, mempool_modify(lease, 1 + len_bytes / 2, MEMPOOL_READ)))
		return false;
	atomic_fetch_add(&client->many->rounds, 1);
	return last || !client_failed(client, mempool_release(lease));
}

static bool client_session(struct client *client)
{
	struct many *many = client->many;
	bool going_on = true;

	if (client_failed(client, harness_connect(client->tenant, &client->pool)))
		return false;
	atomic_fetch_add(&many->sessions, 1);
	if (atomic_fetch_add(&many->connected, 1) < CLIENTS) {
		/* The time begins when all are there. */
		while (atomic_load(&many->connected) < CLIENTS && !atomic_load(&many->stop))
			harness_sleep_ms(5);
	}
	for (int i = 0; i < ROUNDS_PER_SESSION && going_on && !atomic_load(&many->stop); i++)
		going_on = client_round(client, i == ROUNDS_PER_SESSION - 1);
	harness_close(&client->pool);
	return going_on;
}

static void *client_thread(void *arg)
{
	struct client *client = arg;

	while (!atomic_load(&client->many->stop) && client_session(client))
		;
	return NULL;
}

static void run_clients(struct many *many, struct client *clients, uint64_t ms)
{
	uint64_t until_ns = clock_add_ms(clock_now_ns(), LATE_MS);
	int started = 0;

	for (; started < CLIENTS; started++) {
		clients[started] = (struct client){
			.many = many,
			.tenant = tenants[started % TENANTS],
			.seed = (unsigned int)started,
		};
		if (pthread_create(&clients[started].thread, NULL, client_thread,
				   &clients[started]) != 0)
			break;
	}
	while (atomic_load(&many->connected) < CLIENTS && clock_now_ns() < until_ns)
		harness_sleep_ms(10);
	harness_sleep_ms(ms);
	atomic_store(&many->stop, true);
	for (int i = 0; i < started; i++)
		(void)pthread_join(clients[i].thread, NULL);
	CHECK_INT(started, CLIENTS);
}

static void check_clients(const struct many *many, const struct client *clients)
{
	for (int i = 0; i < CLIENTS; i++) {
		if (clients[i].code != 0)
			printf("# %s: %d, %s\n", clients[i].tenant, clients[i].code,
			       clients[i].text);
		CHECK_INT(clients[i].code, 0);
	}
	CHECK_INT(atomic_load(&many->wrong), 0);
	CHECK(atomic_load(&many->connected) >= CLIENTS);
}

static void check_charges(struct harness *h, const char *tenant)
{
	static const char *const paths[] = {"charged.bytes", "charged.leases", "charged.windows",
					    "charged.sessions", "charged.lanes"};

	for (size_t i = 0; i < sizeof(paths) / sizeof(paths[0]); i++)
		CHECK_INT(tenants_number(h, tenant, paths[i]), 0);
	CHECK_INT(tenants_number(h, tenant, "over_quota"), 0);
}

/* Nothing is charged if there is exactly all of the quota to be had. */
static void check_quota(struct harness *h, const char *tenant)
{
	mempool *pools[SESSIONS] = {0};
	mempool_lease *lease;
	mempool *more;

	CHECK_INT(tenants_quota(h, tenant, QUOTA), 0);
	for (int i = 0; i < SESSIONS; i++)
		CHECK_INT(harness_connect(tenant, &pools[i]), 0);
	CHECK_INT(harness_connect(tenant, &more), MEMPOOL_E_QUOTA_SESSIONS);
	for (int i = 1; i < LEASES; i++)
		CHECK_INT(harness_acquire(pools[0], PAGE, TTL_MS, &lease), 0);
	CHECK_INT(harness_acquire(pools[0], (QUOTA_PAGES - LEASES + 1) * PAGE + 1, TTL_MS, &lease),
		  MEMPOOL_E_QUOTA_BYTES);
	CHECK_INT(harness_acquire(pools[0], (QUOTA_PAGES - LEASES + 1) * PAGE, TTL_MS, &lease), 0);
	CHECK_INT(harness_acquire(pools[0], 1, TTL_MS, &lease), MEMPOOL_E_QUOTA_LEASES);
	for (int i = 0; i < SESSIONS; i++)
		mempool_close(pools[i]);
}

static void load(struct harness *h, uint64_t ms)
{
	static struct client clients[CLIENTS];
	struct many many = {0};

	run_clients(&many, clients, ms);
	CHECK(!test_has_failed());
	check_clients(&many, clients);
	printf("# %d clients of %d tenants for %.0f s: %" PRIuLEAST64 " leases in %" PRIuLEAST64
	       " sessions\n",
	       CLIENTS, TENANTS, (double)ms / 1e3, atomic_load(&many.rounds),
	       atomic_load(&many.sessions));
	CHECK(!test_has_failed());
	accounts_check(h);
	for (int i = 0; i < TENANTS; i++)
		check_charges(h, tenants[i]);
}

TEST(many__clients_of_eight_tenants)
{
	const char *full = getenv("TEST_FULL");
	uint64_t ms = full != NULL && strcmp(full, "1") == 0 ? 60000 : 6000;
	HARNESS(h, .limits = LIMITS, .sessions_max = 2 * CLIENTS);
	struct resources before, after;
	bool counted;

	/* Once before, for what this process opens and keeps open. */
	load(&h, 500);
	CHECK(!test_has_failed());
	counted = resources_read(&before);
	load(&h, ms);
	CHECK(!test_has_failed());
	CHECK_INT(harness_number(&h, "counters.strikes"), 0);
	CHECK_INT(harness_number(&h, "counters.protocol_errors"), 0);
	CHECK_INT(harness_number(&h, "counters.destroy_failures"), 0);
	check_quota(&h, tenants[TENANTS - 1]);
	CHECK(!test_has_failed());
	accounts_check(&h);
	CHECK(!test_has_failed());
	if (counted) {
		CHECK(resources_read(&after));
		resources_print("before", &before);
		resources_print("after", &after);
		CHECK(resources_equal(&before, &after));
	}
	CHECK_INT(harness_stop(&h), 0);
	if (!counted)
		SKIP("there is no rdma tool");
}
