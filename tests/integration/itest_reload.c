/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The configuration read again, by the admin socket and by SIGHUP: all of it or nothing, and
 * nobody who may stay feels it.
 */
#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/clock.h"
#include "proto/error.h"
#include "tests/integration/accounts.h"
#include "tests/integration/peer.h"
#include "tests/integration/tenants.h"

#define PAGE	4096
#define TTL_MS	60000
#define CLIENTS 8

static const struct tenants_row both[] = {
	{"alpha", NULL, NULL}, {"beta", NULL, NULL}, {NULL, NULL, NULL}};
static const struct tenants_row beta_only[] = {{"beta", NULL, NULL}, {NULL, NULL, NULL}};

/* A daemon with some tenants and no others. */
static int start_with(struct harness *h, const struct tenants_row *rows)
{
	char *text = tenants_text(rows);
	int r = harness_start(h, &(struct harness_options){.tenants = text});

	free(text);
	return r;
}

#define TENANTS_HARNESS(name, rows)                                          \
	__attribute__((cleanup(harness_cleanup))) struct harness name = {0}; \
	CHECK_INT(start_with(&name, rows), 0)

static bool wait_log(const struct harness *h, const char *text)
{
	uint64_t until_ns = clock_add_ms(clock_now_ns(), TENANTS_LATE_MS);

	while (!harness_log_says(h, text)) {
		if (clock_now_ns() >= until_ns) {
			printf("# not in the log: %s\n", text);
			return false;
		}
		harness_sleep_ms(2);
	}
	return true;
}

static void write_config(const struct harness *h, const char *text)
{
	char path[HARNESS_TEXT_MAX];
	FILE *file = fopen(harness_path(h, "mempoold.conf", path), "we");

	CHECK(file != NULL);
	fputs(text, file);
	CHECK_INT(fclose(file), 0);
}

#define REQUIRED "\"pool_size\": \"16MiB\", \"listen\": [\"127.0.0.1:1\"], "

/* Whatever is wrong: the caller hears what, the log has it, and all is as it was. */
TEST(reload__invalid_file_changes_nothing)
{
	static const struct {
		const char *config;
		const char *text;
	} cases[] = {
		{"", "mempoold.conf: "},
		{"{\"tenants\": [}", "mempoold.conf: "},
		{"{}", "mempoold.conf: listen: is required and missing"},
		{"{" REQUIRED "\"nonesuch\": 1}", "nonesuch: is not a known key"},
		{"{" REQUIRED "\"ttl_default\": \"2h\", \"ttl_max\": \"1h\"}", "ttl_default: "},
		{"{" REQUIRED "\"tenants\": [{\"name\": \"alpha\"}]}", "tenants[0].keys: "},
		{"{" REQUIRED "\"tenants\": [{\"name\": \"a\\u0001\", \"keys\": []}]}",
		 "tenants[0].name: \"a\\"},
		{"{" REQUIRED "\"tenants\": [{\"name\": \"a\", \"keys\": [\"short\"]}]}",
		 "tenants[0].keys: is not valid"},
	};
	TENANTS_HARNESS(h, both);
	SESSION(alpha, "alpha");
	mempool_lease *lease;
	char path[HARNESS_TEXT_MAX], text[HARNESS_TEXT_MAX];
	char *before, *after;

	CHECK_INT(harness_acquire(alpha, PAGE, TTL_MS, &lease), 0);
	CHECK(tenants_wait(&h, "alpha", "charged.lanes", 1));
	before = tenants_list(&h);
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		write_config(&h, cases[i].config);
		CHECK_INT(harness_order(&h, "reload", NULL, text), ERROR_INVALID);
		CHECK(tenants_says(text, cases[i].text));
		CHECK(strchr(text, '\n') == NULL);
	}
	CHECK(harness_log_says(&h, "configuration not reloaded, nothing has changed"));
	CHECK(!harness_log_says(&h, "configuration reloaded"));
	CHECK_INT(unlink(harness_path(&h, "mempoold.conf", path)), 0);
	CHECK_INT(harness_order(&h, "reload", NULL, text), ERROR_SYSTEM);
	CHECK_INT(mkfifo(path, 0600), 0);
	CHECK_INT(harness_order(&h, "reload", NULL, text), ERROR_INVALID);
	CHECK(tenants_says(text, "is not a file that can be read again"));
	after = tenants_list(&h);
	CHECK_STR(after, before);
	free(before);
	free(after);
	CHECK_INT(mempool_write(lease, 0, "x", 1), 0);
	CHECK_INT(mempool_renew(lease, 3600000), 0);
	CHECK_INT(harness_acquire(alpha, PAGE, TTL_MS, &lease), 0);
	CHECK_INT(harness_number(&h, "pid"), h.pid);
	CHECK_INT(harness_stop(&h), 0);
}

TEST(reload__by_signal)
{
	TENANTS_HARNESS(h, both);
	char *text = tenants_text(beta_only);

	write_config(&h, "{");
	CHECK_INT(kill(h.pid, SIGHUP), 0);
	CHECK(wait_log(&h, "configuration not reloaded, nothing has changed"));
	CHECK_INT(tenants_number(&h, "alpha", "configured"), 1);
	CHECK_INT(harness_configure(&h, &(struct harness_options){.tenants = text}), 0);
	free(text);
	CHECK_INT(kill(h.pid, SIGHUP), 0);
	CHECK(wait_log(&h, "configuration reloaded"));
	CHECK_INT(tenants_number(&h, "alpha", "configured"), -1);
	CHECK_INT(tenants_number(&h, "beta", "configured"), 1);
	CHECK_INT(harness_number(&h, "pid"), h.pid);
	CHECK_INT(harness_stop(&h), 0);
}

static bool has_text(const json_t *list, const char *text)
{
	const json_t *item;
	size_t i;

	json_array_foreach(list, i, item)
	{
		if (strcmp(json_string_value(item), text) == 0)
			return true;
	}
	return false;
}

/* Limits hold at once; what needs a restart stays and is named. */
TEST(reload__keys_of_both_kinds)
{
	HARNESS(h, .ttl_max = "1min");
	SESSION(alpha, "alpha");
	mempool_lease *lease;
	json_t *result;
	const json_t *names;

	CHECK_INT(harness_acquire(alpha, PAGE, 60001, &lease), MEMPOOL_E_TTL_MAX);
	CHECK_INT(harness_acquire(alpha, PAGE, 60000, &lease), 0);
	CHECK_INT(harness_configure(&h, &(struct harness_options){.ttl_max = "90s",
								  .pool_size = "32MiB",
								  .sessions_max = 65,
								  .extra = "\"leases_max\": 2"}),
		  0);
	result = harness_call(&h, "reload", NULL);
	names = json_object_get(result, "needs_restart");
	CHECK_INT(json_array_size(names), 2);
	CHECK(has_text(names, "pool_size"));
	CHECK(has_text(names, "sessions_max"));
	CHECK_INT(json_array_size(json_object_get(result, "lost")), 0);
	json_decref(result);
	CHECK(harness_log_says(&h, "take effect at a restart keys=pool_size,sessions_max"));
	CHECK_INT(harness_number(&h, "pool.bytes"), 16 * MIB);
	CHECK_INT(mempool_renew(lease, 90001), MEMPOOL_E_TTL_MAX);
	CHECK_INT(mempool_renew(lease, 90000), 0);
	CHECK_INT(harness_acquire(alpha, PAGE, 60000, &lease), 0);
	CHECK_INT(harness_acquire(alpha, PAGE, 60000, &lease), MEMPOOL_E_LEASES_MAX);
	/* Named as long as the file says so. */
	result = harness_call(&h, "reload", NULL);
	CHECK_INT(json_array_size(json_object_get(result, "needs_restart")), 2);
	json_decref(result);
	CHECK_INT(harness_stop(&h), 0);
	CHECK_INT(harness_restart(&h), 0);
	CHECK_INT(harness_number(&h, "pool.bytes"), 32 * MIB);
}

/* Its sessions end with a code, its leases are revoked; it may come again when it is back. */
TEST(reload__removed_tenant)
{
	TENANTS_HARNESS(h, both);
	SESSION(beta, "beta");
	PEER(alpha, "alpha");
	PEER_LANE(lane, &alpha);
	struct message_grant grant;
	struct message m;
	mempool_lease *lease;
	mempool *pool = NULL;
	char text[HARNESS_TEXT_MAX];

	CHECK_INT(harness_acquire(beta, PAGE, TTL_MS, &lease), 0);
	CHECK_INT(peer_acquire(&alpha, &lane, PAGE, TTL_MS, 0, &grant), 0);
	CHECK_INT(peer_access(&lane, IBV_WR_RDMA_WRITE, 8, grant.descriptors[0].remote_addr,
			      grant.descriptors[0].rkey),
		  IBV_WC_SUCCESS);
	CHECK_INT(tenants_reload(&h, beta_only), 0);
	CHECK_INT(peer_take(&alpha, MESSAGE_ERROR, 0, TENANTS_LATE_MS, &m), 1);
	CHECK_INT(m.u.error.code, ERROR_AUTH);
	CHECK_INT(peer_take(&alpha, MESSAGE_BYE, 0, TENANTS_LATE_MS, &m), -ENETRESET);
	CHECK(harness_wait_lease_gone(&h, grant.lease_id, TENANTS_LATE_MS));
	CHECK(peer_access(&lane, IBV_WR_RDMA_WRITE, 8, grant.descriptors[0].remote_addr,
			  grant.descriptors[0].rkey) != IBV_WC_SUCCESS);
	snprintf(text, sizeof(text), "lease ends id=0x%" PRIx64 " tenant=alpha reason=revoked",
		 grant.lease_id);
	CHECK(harness_log_says(&h, text));
	CHECK(tenants_wait(&h, "alpha", "configured", -1));
	CHECK_INT(harness_connect("alpha", &pool), MEMPOOL_E_AUTH);
	CHECK_INT(mempool_write(lease, 0, "x", 1), 0);
	CHECK(harness_wait_number(&h, "sessions", 1, TENANTS_LATE_MS));
	CHECK_INT(tenants_reload(&h, both), 0);
	CHECK_INT(harness_connect("alpha", &pool), 0);
	harness_close(&pool);
	mempool_release(lease);
	harness_close(&beta);
	accounts_check(&h);
	CHECK_INT(harness_stop(&h), 0);
}

TEST(reload__lowered_quota)
{
	static const struct tenants_row low[] = {
		{"alpha", NULL, "{\"bytes\": \"8KiB\"}"}, {"beta", NULL, NULL}, {NULL, NULL, NULL}};
	TENANTS_HARNESS(h, both);
	SESSION(alpha, "alpha");
	mempool_lease *leases[3], *more;

	for (int i = 0; i < 3; i++)
		CHECK_INT(harness_acquire(alpha, PAGE, TTL_MS, &leases[i]), 0);
	CHECK_INT(tenants_number(&h, "alpha", "over_quota"), 0);
	CHECK_INT(tenants_reload(&h, low), 0);
	CHECK_INT(tenants_number(&h, "alpha", "over_quota"), 1);
	CHECK_INT(tenants_number(&h, "beta", "over_quota"), 0);
	CHECK_INT(harness_acquire(alpha, 1, TTL_MS, &more), MEMPOOL_E_QUOTA_BYTES);
	for (int i = 0; i < 3; i++) {
		CHECK_INT(mempool_write(leases[i], 0, "x", 1), 0);
		CHECK_INT(mempool_renew(leases[i], TTL_MS), 0);
	}
	CHECK_INT(mempool_release(leases[0]), 0);
	CHECK(tenants_wait(&h, "alpha", "over_quota", 0));
	CHECK_INT(harness_acquire(alpha, 1, TTL_MS, &more), MEMPOOL_E_QUOTA_BYTES);
	CHECK_INT(mempool_release(leases[1]), 0);
	CHECK(tenants_wait(&h, "alpha", "charged.bytes", PAGE));
	CHECK_INT(harness_acquire(alpha, PAGE, TTL_MS, &more), 0);
	CHECK_INT(harness_stop(&h), 0);
}

/* Old and new key for a while; when the old one goes, so do its sessions, and only these. */
TEST(reload__key_rotation)
{
	static const struct tenants_row old_key[] = {{"alpha", "alpha", NULL}, {NULL, NULL, NULL}};
	static const struct tenants_row two_keys[] = {{"alpha", "alpha,alpha-new", NULL},
						      {NULL, NULL, NULL}};
	static const struct tenants_row new_key[] = {{"alpha", "alpha-new", NULL},
						     {NULL, NULL, NULL}};
	TENANTS_HARNESS(h, old_key);
	SESSION(older, "alpha");
	mempool *newer = NULL, *none = NULL;
	mempool_lease *old_lease, *new_lease;
	uint64_t old_id;
	int r;

	CHECK_INT(harness_acquire(older, PAGE, TTL_MS, &old_lease), 0);
	old_id = harness_lease_id(old_lease);
	CHECK_INT(harness_connect("alpha-new", &newer), MEMPOOL_E_AUTH);
	CHECK_INT(tenants_reload(&h, two_keys), 0);
	CHECK_INT(harness_connect("alpha-new", &newer), 0);
	CHECK_INT(harness_acquire(newer, PAGE, TTL_MS, &new_lease), 0);
	CHECK_INT(mempool_write(old_lease, 0, "x", 1), 0);
	CHECK_INT(tenants_number(&h, "alpha", "charged.sessions"), 2);
	CHECK_INT(tenants_number(&h, "alpha", "key_count"), 2);
	CHECK_INT(tenants_reload(&h, new_key), 0);
	CHECK(tenants_wait(&h, "alpha", "charged.sessions", 1));
	CHECK(harness_wait_lease_gone(&h, old_id, TENANTS_LATE_MS));
	CHECK_INT(mempool_write(new_lease, 0, "x", 1), 0);
	r = mempool_renew(old_lease, TTL_MS);
	printf("# the session of the old key: %s\n", mempool_error_text(r));
	CHECK(r == MEMPOOL_E_AUTH || r == MEMPOOL_E_SESSION_LOST);
	CHECK_INT(harness_connect("alpha", &none), MEMPOOL_E_AUTH);
	harness_close(&newer);
	harness_close(&older);
	accounts_check(&h);
	CHECK_INT(harness_stop(&h), 0);
}

/* A key that goes from one tenant to another takes no session with it. */
TEST(reload__key_moves)
{
	static const struct tenants_row before[] = {
		{"alpha", "one,two", NULL}, {"beta", "three", NULL}, {NULL, NULL, NULL}};
	static const struct tenants_row after[] = {
		{"alpha", "one", NULL}, {"beta", "three,two", NULL}, {NULL, NULL, NULL}};
	TENANTS_HARNESS(h, before);
	SESSION(one, "one");
	SESSION(two, "two");
	SESSION(three, "three");
	mempool *again = NULL;

	CHECK_INT(tenants_number(&h, "alpha", "charged.sessions"), 2);
	CHECK_INT(tenants_reload(&h, after), 0);
	CHECK(tenants_wait(&h, "alpha", "charged.sessions", 1));
	CHECK_INT(tenants_number(&h, "beta", "charged.sessions"), 1);
	CHECK_INT(harness_connect("two", &again), 0);
	CHECK_INT(tenants_number(&h, "beta", "charged.sessions"), 2);
	harness_close(&again);
}

/* The audit log is rotated by renaming it and SIGHUP; also with a configuration that is wrong. */
TEST(reload__audit_log_is_opened_again)
{
	char member[HARNESS_TEXT_MAX], path[64], moved[80];
	struct stat status;
	mempool *pool = NULL;

	snprintf(path, sizeof(path), "/tmp/itest.audit.%d", (int)getpid());
	snprintf(moved, sizeof(moved), "%s.1", path);
	snprintf(member, sizeof(member), "\"audit_log\": \"%s\"", path);
	HARNESS(h, .extra = member);
	CHECK_INT(harness_connect("alpha", &pool), 0);
	harness_close(&pool);
	CHECK_INT(rename(path, moved), 0);
	write_config(&h, "{");
	CHECK_INT(kill(h.pid, SIGHUP), 0);
	CHECK(wait_log(&h, "configuration not reloaded"));
	CHECK_INT(stat(path, &status), 0);
	CHECK_INT(status.st_size, 0);
	CHECK_INT(harness_connect("alpha", &pool), 0);
	harness_close(&pool);
	CHECK_INT(stat(path, &status), 0);
	CHECK(status.st_size > 0);
	CHECK_INT(unlink(path), 0);
	CHECK_INT(unlink(moved), 0);
	CHECK_INT(harness_stop(&h), 0);
}

/* Reload under load. */

struct client {
	const char *tenant;
	pthread_t thread;
	atomic_bool *stop;
	uint64_t rounds;
	int r;
	const char *what; /* that did not work */
};

static bool fails(struct client *client, const char *what, int r)
{
	if (r == 0)
		return false;
	client->r = r;
	client->what = what;
	printf("# %s: %s: %s\n", client->tenant, what, mempool_last_error());
	return true;
}

/* One lease all the time, and one that is new each time. */
static void client_work(struct client *client, mempool *pool, mempool_lease *kept)
{
	uint8_t mine[PAGE], got[PAGE];
	mempool_lease *lease;

	harness_fill(mine, sizeof(mine), (uint32_t)client->tenant[0]);
	if (fails(client, "write", mempool_write(kept, 0, mine, sizeof(mine))))
		return;
	while (!atomic_load(client->stop)) {
		if (fails(client, "read", mempool_read(kept, 0, got, sizeof(got))) ||
		    fails(client, "compare", memcmp(mine, got, sizeof(got)) != 0) ||
		    fails(client, "renew", mempool_renew(kept, TTL_MS)) ||
		    fails(client, "acquire", harness_acquire(pool, PAGE, TTL_MS, &lease)) ||
		    fails(client, "write to a new one", mempool_write(lease, 0, mine, PAGE)) ||
		    fails(client, "release", mempool_release(lease)))
			return;
		client->rounds++;
	}
}

static void *client_run(void *arg)
{
	struct client *client = arg;
	mempool_lease *kept;
	mempool *pool;
	uint64_t id;

	if (fails(client, "connect", harness_connect(client->tenant, &pool)))
		return NULL;
	if (!fails(client, "first acquire", harness_acquire(pool, PAGE, TTL_MS, &kept))) {
		id = harness_lease_id(kept);
		client_work(client, pool, kept);
		if (client->r == 0 && harness_lease_id(kept) != id)
			(void)fails(client, "keep its lease", -1);
	}
	mempool_close(pool);
	return NULL;
}

static const char *const working[CLIENTS] = {"alpha",	"beta",	  "gamma",  "delta",
					     "cyclist", "filler", "greedy", "owner"};

/*
 * Two configurations in turn: other tenants come and go, keys, quotas and limits change. Good
 * until the next call.
 */
static const struct harness_options *load_options(uint32_t round)
{
	static const char *const limits[2] = {
		HARNESS_NO_LIMITS,
		"\"ban_after\": 1000, \"connections_max_per_address\": 200, \"strikes_max\": 60, "
		"\"handshakes_max_per_address\": 200, \"credit_timeout\": \"10s\", "
		"\"heartbeat\": \"1min\", \"lanes_max\": 20, \"leases_max\": 1000",
	};
	static struct harness_options options;
	static char *text;
	bool odd = round % 2 != 0;
	struct tenants_row rows[CLIENTS + 3] = {{NULL, NULL, NULL}};
	char keys[CLIENTS][64];
	size_t count = 0;

	for (; count < CLIENTS; count++) {
		snprintf(keys[count], sizeof(keys[count]), odd ? "%s,%s-%u" : "%s", working[count],
			 working[count], round);
		rows[count] = (struct tenants_row){working[count], keys[count],
						   odd ? "{\"leases\": 10}" : "{\"leases\": 20}"};
	}
	if (odd) {
		rows[count++] = (struct tenants_row){"extra", NULL, NULL};
		rows[count++] = (struct tenants_row){"other", NULL, "{\"sessions\": 0}"};
	}
	free(text);
	text = tenants_text(rows);
	options = (struct harness_options){
		.pool_size = "32MiB", .tenants = text, .limits = limits[odd]};
	return &options;
}

/* By the admin socket and by SIGHUP in turn; each one is known to be over by what it has changed. */
static void reload_once(struct harness *h, uint32_t round)
{
	CHECK_INT(harness_configure(h, load_options(round)), 0);
	if (round % 4 < 2)
		CHECK_INT(harness_order(h, "reload", NULL, NULL), 0);
	else
		CHECK_INT(kill(h->pid, SIGHUP), 0);
	CHECK(tenants_wait(h, "extra", "configured", round % 2 != 0 ? 1 : -1));
	harness_sleep_ms(20);
}

static void start_clients(struct client *clients, atomic_bool *stop)
{
	for (size_t i = 0; i < CLIENTS; i++) {
		clients[i] = (struct client){.tenant = working[i], .stop = stop};
		CHECK_INT(pthread_create(&clients[i].thread, NULL, client_run, &clients[i]), 0);
	}
}

/* Nobody has been thrown out, and no lease has ended but by its owner's wish. */
static void check_nothing_lost(struct harness *h)
{
	CHECK_INT(harness_number(h, "sessions"), CLIENTS);
	CHECK_INT(harness_number(h, "counters.sessions_accepted"), CLIENTS);
	CHECK_INT(harness_number(h, "counters.lanes_lost"), 0);
	CHECK(!harness_log_says(h, "reason=revoked"));
	CHECK(!harness_log_says(h, "reason=expired"));
	CHECK(!harness_log_says(h, "reason=session-ended"));
}

TEST(reload__under_load)
{
	uint32_t reloads = harness_figure(FIGURE_RELOADS);
	struct client clients[CLIENTS];
	atomic_bool stop = false;
	uint64_t rounds = 0;

	__attribute__((cleanup(harness_cleanup))) struct harness h = {0};
	CHECK_INT(harness_start(&h, load_options(0)), 0);
	start_clients(clients, &stop);
	if (test_has_failed())
		return;
	(void)harness_wait_number(&h, "sessions", CLIENTS, HARNESS_TIMEOUT_MS);
	for (uint32_t i = 1; i <= reloads && !test_has_failed(); i++)
		reload_once(&h, i);
	check_nothing_lost(&h);
	atomic_store(&stop, true);
	for (size_t i = 0; i < CLIENTS; i++) {
		(void)pthread_join(clients[i].thread, NULL);
		rounds += clients[i].rounds;
	}
	printf("# %" PRIu32 " reloads, %" PRIu64 " rounds of %d clients\n", reloads, rounds,
	       CLIENTS);
	for (size_t i = 0; i < CLIENTS; i++) {
		CHECK_INT(clients[i].r, 0);
		CHECK(clients[i].rounds > 0);
		CHECK(tenants_wait(&h, working[i], "charged.bytes", 0));
	}
	accounts_check(&h);
	CHECK_INT(harness_stop(&h), 0);
}

/* What a session was told in its welcome is what it is held to; new ones are told the new value. */
TEST(reload__heartbeat_is_for_new_sessions)
{
	HARNESS(h, .limits = "\"ban_after\": 0, \"heartbeat\": \"1min\"");
	PEER(old, "alpha");
	__attribute__((cleanup(peer_close))) struct peer new = {0};
	struct message ping = {.type = MESSAGE_PING}, answer;

	CHECK_INT(old.welcome.heartbeat_ms, 60000);
	CHECK_INT(peer_call(&old, &ping, &answer), 0);
	CHECK_INT(harness_configure(&h, &(struct harness_options){.limits = "\"ban_after\": 0, "
									    "\"heartbeat\": "
									    "\"100ms\""}),
		  0);
	CHECK_INT(harness_order(&h, "reload", NULL, NULL), 0);
	CHECK_INT(peer_open(&new, "beta", NULL), 0);
	CHECK_INT(new.welcome.heartbeat_ms, 100);
	ping.request_id = 0;
	CHECK_INT(peer_call(&new, &ping, &answer), 0);
	/* Neither says anything any more. */
	CHECK_INT(peer_take(&new, MESSAGE_BYE, 0, 3000, &answer), -ENETRESET);
	CHECK_INT(peer_take(&old, MESSAGE_BYE, 0, 1000, &answer), 0);
	ping.request_id = 0;
	CHECK_INT(peer_call(&old, &ping, &answer), 0);
}
