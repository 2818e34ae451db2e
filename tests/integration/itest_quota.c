/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Quotas, resource by resource: granted up to n, refused at n + 1 with a code of its own and
 * nothing charged, granted again when something was given back, and when the limit is raised.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "proto/error.h"
#include "tests/integration/accounts.h"
#include "tests/integration/peer.h"
#include "tests/integration/tenants.h"

#define PAGE   4096
#define TTL_MS 60000

static int acquire(struct peer *peer, const struct peer_lane *lane, uint64_t len_bytes,
		   uint64_t ttl_ms, uint32_t rights, uint64_t *ret_id)
{
	struct message m = {
		.type = MESSAGE_ACQUIRE,
		.u.acquire =
			{
				.len_bytes = len_bytes,
				.ttl_ms = ttl_ms,
				.rights = rights,
				.lane = lane->number,
				.count = 1,
			},
	};
	int r = peer_call(peer, &m, &m);

	if (r == 0)
		*ret_id = m.u.grant.lease_id;
	return r;
}

static int take(struct peer *peer, const struct peer_lane *lane, uint64_t len_bytes,
		uint64_t *ret_id)
{
	return acquire(peer, lane, len_bytes, TTL_MS, MESSAGE_RIGHT_READ | MESSAGE_RIGHT_WRITE,
		       ret_id);
}

static int modify(struct peer *peer, uint64_t id, uint64_t len_bytes, uint32_t rights)
{
	struct message m = {
		.type = MESSAGE_MODIFY,
		.u.modify = {.lease_id = id, .len_bytes = len_bytes, .rights = rights},
	};

	return peer_call(peer, &m, &m);
}

/* All that the tenant has been charged is given back. */
static void check_nothing_charged(struct harness *h, const char *tenant)
{
	static const char *const paths[] = {"charged.bytes", "charged.leases", "charged.windows",
					    "charged.sessions", "charged.lanes"};

	for (size_t i = 0; i < sizeof(paths) / sizeof(paths[0]); i++)
		CHECK(tenants_wait(h, tenant, paths[i], 0));
}

/* What leases use up: two of a page each fit exactly. */
static void check_lease_quota(const char *quota, const char *more, const char *denied,
			      const char *charged, int64_t used, int code)
{
	HARNESS(h, .pool_size = NULL);
	PEER(alpha, "alpha");
	PEER_LANE(lane, &alpha);
	uint64_t a, b, c;

	CHECK_INT(tenants_quota(&h, "alpha", quota), 0);
	CHECK_INT(take(&alpha, &lane, PAGE, &a), 0);
	CHECK_INT(take(&alpha, &lane, PAGE, &b), 0);
	CHECK_INT(tenants_number(&h, "alpha", charged), used);
	CHECK_INT(tenants_number(&h, "alpha", denied), 0);
	for (int i = 1; i <= 3; i++) {
		CHECK_INT(take(&alpha, &lane, 1, &c), code);
		CHECK_INT(tenants_number(&h, "alpha", denied), i);
	}
	CHECK(tenants_wait(&h, "alpha", charged, used));
	CHECK_INT(tenants_number(&h, "alpha", "over_quota"), 0);
	CHECK_INT(harness_number(&h, "leases.active"), 2);
	CHECK_INT(peer_release(&alpha, a), 0);
	CHECK(tenants_wait(&h, "alpha", charged, used / 2));
	CHECK_INT(take(&alpha, &lane, PAGE, &a), 0);
	CHECK_INT(take(&alpha, &lane, 1, &c), code);
	/* Another tenant has limits of its own. */
	{
		PEER(beta, "beta");
		PEER_LANE(other, &beta);

		CHECK_INT(take(&beta, &other, 3 * PAGE, &c), 0);
	}
	CHECK_INT(tenants_quota(&h, "alpha", more), 0);
	CHECK_INT(take(&alpha, &lane, 1, &c), 0);
	CHECK_INT(take(&alpha, &lane, 1, &c), code);
	peer_lane_close(&lane);
	peer_close(&alpha);
	check_nothing_charged(&h, "alpha");
	accounts_check(&h);
	CHECK_INT(harness_stop(&h), 0);
}

TEST(quota__bytes)
{
	check_lease_quota("{\"bytes\": \"8KiB\"}", "{\"bytes\": \"12KiB\"}", "denied.bytes",
			  "charged.bytes", 2 * PAGE, ERROR_QUOTA_BYTES);
}

TEST(quota__leases)
{
	check_lease_quota("{\"leases\": 2}", "{\"leases\": 3}", "denied.leases", "charged.leases",
			  2, ERROR_QUOTA_LEASES);
}

TEST(quota__windows)
{
	check_lease_quota("{\"windows\": 2}", "{\"windows\": 3}", "denied.windows",
			  "charged.windows", 2, ERROR_QUOTA_WINDOWS);
}

/* Bytes count in whole pages: the limit is not reached, and yet a byte is too much. */
TEST(quota__bytes_in_pages)
{
	HARNESS(h, .pool_size = NULL);
	PEER(alpha, "alpha");
	PEER_LANE(lane, &alpha);
	uint64_t id = 0;

	CHECK_INT(tenants_quota(&h, "alpha", "{\"bytes\": \"8191\"}"), 0);
	CHECK_INT(take(&alpha, &lane, PAGE + 1, &id), ERROR_QUOTA_BYTES);
	CHECK_INT(take(&alpha, &lane, 1, &id), 0);
	CHECK_INT(take(&alpha, &lane, 1, &id), ERROR_QUOTA_BYTES);
	CHECK_INT(tenants_quota(&h, "alpha", "{\"bytes\": \"0\", \"leases\": 0}"), 0);
	CHECK_INT(tenants_number(&h, "alpha", "over_quota"), 1);
	CHECK_INT(peer_release(&alpha, id), 0);
	CHECK(tenants_wait(&h, "alpha", "over_quota", 0));
	CHECK_INT(take(&alpha, &lane, 1, &id), ERROR_QUOTA_LEASES);
}

/* The first request proves who it is, so that is where the third session is refused. */
TEST(quota__sessions)
{
	HARNESS(h, .pool_size = NULL);
	struct message ping = {.type = MESSAGE_PING}, answer;
	mempool *pool = NULL;

	CHECK_INT(tenants_quota(&h, "alpha", "{\"sessions\": 2}"), 0);
	{
		PEER(first, "alpha");
		PEER(second, "alpha");
		PEER(third, "alpha");

		CHECK_INT(peer_call(&first, &ping, &answer), 0);
		ping.request_id = 0;
		CHECK_INT(peer_call(&second, &ping, &answer), 0);
		ping.request_id = 0;
		CHECK_INT(tenants_number(&h, "alpha", "charged.sessions"), 2);
		CHECK_INT(peer_call(&third, &ping, &answer), ERROR_QUOTA_SESSIONS);
		CHECK_INT(peer_take(&third, MESSAGE_ERROR, 0, TENANTS_LATE_MS, &answer), 1);
		CHECK_INT(answer.u.error.code, ERROR_QUOTA_SESSIONS);
		CHECK_INT(peer_take(&third, 0, 0, TENANTS_LATE_MS, &answer), -ENETRESET);
		CHECK_INT(harness_connect("alpha", &pool), MEMPOOL_E_QUOTA_SESSIONS);
		CHECK_INT(tenants_number(&h, "alpha", "denied.sessions"), 2);
		CHECK_INT(tenants_number(&h, "alpha", "charged.sessions"), 2);
		peer_close(&first);
		CHECK(tenants_wait(&h, "alpha", "charged.sessions", 1));
		CHECK_INT(harness_connect("alpha", &pool), 0);
		CHECK_INT(tenants_number(&h, "alpha", "charged.sessions"), 2);
		harness_close(&pool);
		CHECK(tenants_wait(&h, "alpha", "charged.sessions", 1));
	}
	check_nothing_charged(&h, "alpha");
	CHECK_INT(harness_stop(&h), 0);
}

/* Of all sessions of the tenant. */
TEST(quota__lanes)
{
	HARNESS(h, .pool_size = NULL);
	PEER(first, "alpha");
	PEER(second, "alpha");
	PEER_LANE(a, &first);
	PEER_LANE(b, &second);
	struct peer_lane c = {0};

	CHECK_INT(tenants_quota(&h, "alpha", "{\"lanes\": 2}"), 0);
	CHECK_INT(tenants_number(&h, "alpha", "charged.lanes"), 2);
	CHECK_INT(peer_lane_open(&first, &c), ERROR_QUOTA_LANES);
	CHECK_INT(peer_lane_open(&second, &c), ERROR_QUOTA_LANES);
	CHECK_INT(tenants_number(&h, "alpha", "denied.lanes"), 2);
	CHECK_INT(tenants_number(&h, "alpha", "charged.lanes"), 2);
	peer_lane_close(&b);
	CHECK(tenants_wait(&h, "alpha", "charged.lanes", 1));
	CHECK_INT(peer_lane_open(&first, &c), 0);
	CHECK_INT(peer_lane_open(&second, &b), ERROR_QUOTA_LANES);
	CHECK_INT(tenants_quota(&h, "alpha", "{\"lanes\": 3}"), 0);
	CHECK_INT(peer_lane_open(&second, &b), 0);
	peer_lane_close(&c);
	peer_lane_close(&b);
	peer_lane_close(&a);
	peer_close(&second);
	peer_close(&first);
	check_nothing_charged(&h, "alpha");
	accounts_check(&h);
}

/* Two at once, and one more after half a second; the session lives on. */
TEST(quota__rate)
{
	HARNESS(h, .pool_size = NULL);
	PEER(alpha, "alpha");
	PEER_LANE(lane, &alpha);
	uint64_t id = 0;

	CHECK_INT(take(&alpha, &lane, PAGE, &id), 0);
	CHECK_INT(tenants_quota(&h, "alpha", "{\"requests_per_second\": 2}"), 0);
	CHECK_INT(peer_renew(&alpha, id, TTL_MS), 0);
	CHECK_INT(peer_renew(&alpha, id, TTL_MS), 0);
	CHECK_INT(peer_renew(&alpha, id, TTL_MS), ERROR_QUOTA_RATE);
	CHECK_INT(tenants_number(&h, "alpha", "denied.rate"), 1);
	/* What gives something back is not held up. */
	CHECK_INT(peer_release(&alpha, id), 0);
	harness_sleep_ms(1100);
	CHECK_INT(take(&alpha, &lane, PAGE, &id), 0);
	CHECK_INT(peer_renew(&alpha, id, TTL_MS), 0);
	CHECK_INT(peer_renew(&alpha, id, TTL_MS), ERROR_QUOTA_RATE);
	CHECK_INT(tenants_quota(&h, "alpha", "{\"requests_per_second\": 0}"), 0);
	for (int i = 0; i < 20; i++)
		CHECK_INT(peer_renew(&alpha, id, TTL_MS), 0);
}

TEST(quota__length_of_a_lease)
{
	HARNESS(h, .pool_size = NULL);
	PEER(alpha, "alpha");
	PEER_LANE(lane, &alpha);
	uint32_t rights = MESSAGE_RIGHT_READ | MESSAGE_RIGHT_WRITE;
	uint64_t id = 0;

	CHECK_INT(tenants_quota(&h, "alpha", "{\"lease_max\": \"5000\"}"), 0);
	CHECK_INT(take(&alpha, &lane, 5001, &id), ERROR_QUOTA_LEASE_LENGTH);
	CHECK_INT(take(&alpha, &lane, 16 * MIB, &id), ERROR_QUOTA_LEASE_LENGTH);
	CHECK_INT(take(&alpha, &lane, UINT64_MAX, &id), ERROR_LENGTH_POOL);
	CHECK_INT(tenants_number(&h, "alpha", "charged.bytes"), 0);
	CHECK_INT(take(&alpha, &lane, 5000, &id), 0);
	CHECK_INT(modify(&alpha, id, 5001, rights), ERROR_QUOTA_LEASE_LENGTH);
	CHECK_INT(modify(&alpha, id, 5000, rights), 0);
	CHECK_INT(tenants_number(&h, "alpha", "denied.lease-length"), 3);
	CHECK_INT(tenants_quota(&h, "alpha", "{\"lease_max\": \"5001\"}"), 0);
	CHECK_INT(modify(&alpha, id, 5001, rights), 0);
	CHECK_INT(take(&alpha, &lane, 5001, &id), 0);
}

TEST(quota__time_of_a_lease)
{
	HARNESS(h, .pool_size = NULL);
	PEER(alpha, "alpha");
	PEER_LANE(lane, &alpha);
	uint32_t rights = MESSAGE_RIGHT_READ | MESSAGE_RIGHT_WRITE;
	uint64_t id = 0;

	CHECK_INT(tenants_quota(&h, "alpha", "{\"ttl_max\": \"50s\"}"), 0);
	CHECK_INT(acquire(&alpha, &lane, PAGE, 50001, rights, &id), ERROR_QUOTA_TTL);
	CHECK_INT(acquire(&alpha, &lane, PAGE, UINT64_MAX, rights, &id), ERROR_TTL_MAX);
	CHECK_INT(tenants_number(&h, "alpha", "charged.leases"), 0);
	CHECK_INT(acquire(&alpha, &lane, PAGE, 50000, rights, &id), 0);
	CHECK_INT(peer_renew(&alpha, id, 50001), ERROR_QUOTA_TTL);
	CHECK_INT(peer_renew(&alpha, id, 50000), 0);
	CHECK_INT(tenants_number(&h, "alpha", "denied.ttl"), 2);
	CHECK_INT(tenants_quota(&h, "alpha", "{\"ttl_max\": \"50001ms\"}"), 0);
	CHECK_INT(peer_renew(&alpha, id, 50001), 0);
}

TEST(quota__rights)
{
	HARNESS(h, .pool_size = NULL);
	PEER(alpha, "alpha");
	PEER_LANE(lane, &alpha);
	uint64_t id = 0;

	CHECK_INT(tenants_quota(&h, "alpha", "{\"rights\": [\"read\"]}"), 0);
	CHECK_INT(acquire(&alpha, &lane, PAGE, TTL_MS, MESSAGE_RIGHT_WRITE, &id),
		  ERROR_QUOTA_RIGHTS);
	CHECK_INT(take(&alpha, &lane, PAGE, &id), ERROR_QUOTA_RIGHTS);
	CHECK_INT(acquire(&alpha, &lane, PAGE, TTL_MS, 8, &id), ERROR_RIGHTS);
	CHECK_INT(tenants_number(&h, "alpha", "charged.leases"), 0);
	CHECK_INT(acquire(&alpha, &lane, PAGE, TTL_MS, MESSAGE_RIGHT_READ, &id), 0);
	CHECK_INT(modify(&alpha, id, PAGE, MESSAGE_RIGHT_READ | MESSAGE_RIGHT_WRITE),
		  ERROR_QUOTA_RIGHTS);
	CHECK_INT(tenants_number(&h, "alpha", "denied.rights"), 3);
	CHECK_INT(tenants_quota(&h, "alpha", "{\"rights\": [\"write\"]}"), 0);
	CHECK_INT(acquire(&alpha, &lane, PAGE, TTL_MS, MESSAGE_RIGHT_WRITE, &id), 0);
	CHECK_INT(acquire(&alpha, &lane, PAGE, TTL_MS, MESSAGE_RIGHT_READ, &id),
		  ERROR_QUOTA_RIGHTS);
}

/* From the configuration as well, and several at a time: the first that is in the way counts. */
TEST(quota__of_the_configuration)
{
	static const struct tenants_row rows[] = {
		{"alpha", NULL, "{\"bytes\": \"8KiB\", \"leases\": 1, \"ttl_max\": \"1min\"}"},
		{"beta", NULL, NULL},
		{NULL, NULL, NULL},
	};
	char *text = tenants_text(rows);
	HARNESS(h, .tenants = text);
	SESSION(alpha, "alpha");
	SESSION(beta, "beta");
	mempool_lease *lease;

	free(text);
	CHECK_INT(harness_acquire(alpha, 2 * PAGE + 1, TTL_MS, &lease), MEMPOOL_E_QUOTA_BYTES);
	CHECK_INT(harness_acquire(alpha, 2 * PAGE, TTL_MS + 1, &lease), MEMPOOL_E_QUOTA_TTL);
	CHECK_INT(harness_acquire(alpha, 2 * PAGE, TTL_MS, &lease), 0);
	CHECK_INT(harness_acquire(alpha, 1, TTL_MS, &lease), MEMPOOL_E_QUOTA_LEASES);
	CHECK_INT(harness_acquire(beta, 3 * PAGE, 2 * TTL_MS, &lease), 0);
}
