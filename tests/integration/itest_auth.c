/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Who is not who he should be, or says so in the wrong way: a code and a text each, on both
 * ends, and nothing is charged to anybody or left behind.
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/clock.h"
#include "common/key_file.h"
#include "proto/error.h"
#include "tests/integration/accounts.h"
#include "tests/integration/harness.h"
#include "tests/integration/peer.h"
#include "tests/integration/tenants.h"

#define START_LIMIT_MS 30000
#define LATE_MS	       10000

/* Only the address is to be tried, not its patience. */
#define LIMITS                                                                                     \
	"\"ban_after\": 0, \"ban_backoff_min\": \"0\", \"strikes_max\": 2, \"ban_time\": \"2s\", " \
	"\"handshake_timeout\": \"500ms\", \"heartbeat\": \"0\", "                                 \
	"\"connections_max_per_address\": 65536, \"handshakes_max\": 65536, "                      \
	"\"handshakes_max_per_address\": 65536"

static int try_connect(const char *tenant, const char *daemon_key, mempool **ret_pool)
{
	struct mempool_connect_opts opts = {.timeout_ms = LATE_MS};
	struct harness_keys keys;
	int r;

	harness_keys(tenant, &keys, &opts);
	if (daemon_key != NULL)
		opts.daemon_key = daemon_key;
	r = mempool_connect(harness_endpoint(), &opts, ret_pool);
	if (r < 0)
		printf("# %s: %d, %s\n", tenant, r, mempool_last_error());
	return r;
}

/* @must_say: what the text must contain */
static void try_refused(const char *tenant, const char *daemon_key, int code, const char *must_say)
{
	mempool *pool = NULL;

	CHECK_INT(try_connect(tenant, daemon_key, &pool), code);
	CHECK(pool == NULL);
	CHECK(strstr(mempool_last_error(), must_say) != NULL);
	CHECK(strchr(mempool_last_error(), '\n') == NULL);
}

/* By its books, and because it can have the one session that it may, and no second. */
static void check_nothing_charged(struct harness *h, const char *tenant)
{
	mempool *pool = NULL;
	mempool *second = NULL;

	CHECK(harness_wait_number(h, "sessions", 0, LATE_MS));
	CHECK_INT(tenants_number(h, tenant, "charged.sessions"), 0);
	CHECK_INT(tenants_quota(h, tenant, "{\"sessions\": 1}"), 0);
	CHECK_INT(try_connect(tenant, NULL, &pool), 0);
	CHECK_INT(try_connect(tenant, NULL, &second), MEMPOOL_E_QUOTA_SESSIONS);
	mempool_close(pool);
	CHECK(harness_wait_number(h, "sessions", 0, LATE_MS));
}

static void finish(struct harness *h)
{
	check_nothing_charged(h, "alpha");
	CHECK(!test_has_failed());
	accounts_check(h);
	CHECK(!test_has_failed());
	CHECK_INT(harness_number(h, "pid"), h->pid);
	CHECK_INT(harness_stop(h), 0);
}

TEST(auth__key_of_no_tenant)
{
	HARNESS(h, .limits = LIMITS);

	for (int i = 0; i < 3; i++)
		try_refused("nobody", NULL, MEMPOOL_E_AUTH, error_text(ERROR_AUTH));
	CHECK(!test_has_failed());
	CHECK_INT(harness_count_log(&h, "event=session-opened", NULL), 0);
	finish(&h);
}

TEST(auth__wrong_key_of_the_daemon)
{
	HARNESS(h, .limits = LIMITS);
	char other[KEYS_TEXT_MAX];

	for (int i = 0; i < 3; i++)
		try_refused("alpha", keys_public_text("another daemon", other), MEMPOOL_E_AUTH,
			    "the daemon's key");
	CHECK(!test_has_failed());
	finish(&h);
}

/* The code of the error that ends a handshake, or a negative errno. */
static int wait_refusal(struct raw *raw)
{
	struct message m;
	int r = raw_wait(raw, LATE_MS, &m);

	if (r != 1)
		return r == 0 ? -ETIMEDOUT : r;
	if (m.type != MESSAGE_ERROR || m.u.error.text[0] == '\0')
		return -EPROTO;
	return (int)m.u.error.code;
}

static int try_hello(const char *tenant, const struct message *hello)
{
	__attribute__((cleanup(raw_close))) struct raw raw = {0};
	int r = raw_open(&raw, tenant);

	if (r == 0)
		r = raw_send_message(&raw, hello);
	return r == 0 ? wait_refusal(&raw) : r;
}

static int try_versions(uint16_t version_min, uint16_t version)
{
	__attribute__((cleanup(raw_close))) struct raw raw = {0};
	struct private_data data = {
		.kind = PRIVATE_DATA_CONTROL,
		.version = version,
		.version_min = version_min,
	};

	return raw_connect_as(&raw, &data);
}

TEST(auth__other_versions)
{
	HARNESS(h, .limits = LIMITS);
	struct message hello = raw_hello_message();

	CHECK_INT(try_versions(PROTO_VERSION + 1, PROTO_VERSION + 1), ERROR_VERSION);
	CHECK_INT(try_versions(PROTO_VERSION + 1, UINT16_MAX), ERROR_VERSION);
	CHECK_INT(try_versions(PROTO_VERSION_MIN, UINT16_MAX), 0);
	/* In order in clear, but the greeting says another one. */
	hello.u.hello.version = PROTO_VERSION + 1;
	CHECK_INT(try_hello("alpha", &hello), ERROR_VERSION);
	finish(&h);
}

TEST(auth__garbage_instead_of_hello)
{
	HARNESS(h, .limits = LIMITS);
	static const uint32_t lens_bytes[] = {1, 47, 48, 95, 96, 139, 140, 141, 4096, 8192};
	uint8_t garbage[PROTO_FRAME_MAX];

	for (size_t i = 0; i < sizeof(lens_bytes) / sizeof(lens_bytes[0]); i++) {
		__attribute__((cleanup(raw_close))) struct raw raw = {0};

		harness_fill(garbage, sizeof(garbage), (uint32_t)i);
		CHECK_INT(raw_open(&raw, "alpha"), 0);
		CHECK_INT(raw_send(&raw, garbage, lens_bytes[i]), 0);
		CHECK_INT(wait_refusal(&raw), ERROR_AUTH);
	}
	CHECK_INT(harness_number(&h, "counters.strikes"), 0);
	finish(&h);
}

/* A proper message, sealed as the first should be, that is no hello. */
TEST(auth__something_else_instead_of_hello)
{
	HARNESS(h, .limits = LIMITS);
	struct message ping = {.type = MESSAGE_PING, .request_id = 1};

	for (int i = 0; i < 5; i++)
		CHECK_INT(try_hello("alpha", &ping), ERROR_PROTOCOL);
	/* Anybody can have made a first message that bears this tenant's key once. */
	CHECK_INT(harness_number(&h, "counters.strikes"), 0);
	finish(&h);
}

TEST(auth__no_hello_at_all)
{
	HARNESS(h, .limits = LIMITS);
	__attribute__((cleanup(raw_close))) struct raw raw = {0};
	uint64_t begun_ns = clock_now_ns();

	CHECK_INT(raw_open(&raw, "alpha"), 0);
	CHECK_INT(wait_refusal(&raw), ERROR_TIMEOUT);
	CHECK(clock_now_ns() - begun_ns >= 500 * CLOCK_NS_PER_MS);
	finish(&h);
}

/* A breach of the protocol on a session that is the tenant's own for certain. */
static void misbehave(const char *tenant)
{
	__attribute__((cleanup(peer_close))) struct peer peer = {0};
	struct message m = {.type = MESSAGE_PING};
	struct message hello = raw_hello_message();

	CHECK_INT(peer_open(&peer, tenant, NULL), 0);
	CHECK_INT(peer_call(&peer, &m, &m), 0);
	hello.request_id = 0;
	CHECK_INT(peer_send(&peer, &hello), 0);
	CHECK_INT(peer_take(&peer, MESSAGE_ERROR, 0, LATE_MS, &m), 1);
	CHECK_INT(m.u.error.code, ERROR_PROTOCOL);
}

TEST(auth__hello_of_a_banned_tenant)
{
	HARNESS(h, .limits = LIMITS);
	struct message hello = raw_hello_message();
	mempool *pool = NULL;
	uint64_t begun_ns;
	int r;

	misbehave("mallory");
	CHECK(harness_wait_number(&h, "sessions", 0, LATE_MS));
	CHECK_INT(harness_number(&h, "counters.strikes"), 1);
	misbehave("mallory");
	begun_ns = clock_now_ns();
	CHECK(!test_has_failed());
	CHECK(harness_wait_number(&h, "counters.strikes", 2, LATE_MS));
	CHECK_INT(try_hello("mallory", &hello), ERROR_BANNED);
	try_refused("mallory", NULL, MEMPOOL_E_BANNED, error_text(ERROR_BANNED));
	CHECK(!test_has_failed());
	/* Others are not, and neither is the address. */
	check_nothing_charged(&h, "beta");
	CHECK(!test_has_failed());
	do {
		harness_sleep_ms(50);
		r = try_connect("mallory", NULL, &pool);
	} while (r == MEMPOOL_E_BANNED && clock_now_ns() < begun_ns + LATE_MS * CLOCK_NS_PER_MS);
	CHECK_INT(r, 0);
	CHECK(clock_now_ns() - begun_ns > 1500 * CLOCK_NS_PER_MS);
	mempool_close(pool);
	check_nothing_charged(&h, "mallory");
	CHECK(!test_has_failed());
	finish(&h);
}

/* Key files. */

enum key_file_fault {
	KEY_FILE_SHORT,
	KEY_FILE_EMPTY,
	KEY_FILE_GROUP,
	KEY_FILE_OTHERS,
	KEY_FILE_LINK,
	KEY_FILE_FOLDER,
	KEY_FILE_PUBLIC,
	KEY_FILE_FAULTS,
};

static const char *const key_file_says[KEY_FILE_FAULTS] = {
	[KEY_FILE_SHORT] = "too short",		[KEY_FILE_EMPTY] = "too short",
	[KEY_FILE_GROUP] = "mode 0640",		[KEY_FILE_OTHERS] = "mode 0604",
	[KEY_FILE_LINK] = "symbolic link",	[KEY_FILE_FOLDER] = "not a regular file",
	[KEY_FILE_PUBLIC] = "private key file",
};

static void write_text(const char *path, const char *text)
{
	int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);

	CHECK(fd >= 0);
	CHECK_INT(write(fd, text, strlen(text)), (ssize_t)strlen(text));
	close(fd);
}

/* @path: a good key file that is made a bad one; @other: a name that is free */
static void spoil(const char *path, const char *other, enum key_file_fault fault)
{
	char text[KEYS_TEXT_MAX];

	switch (fault) {
	case KEY_FILE_SHORT:
		CHECK_INT(truncate(path, 40), 0);
		break;
	case KEY_FILE_EMPTY:
		CHECK_INT(truncate(path, 0), 0);
		break;
	case KEY_FILE_GROUP:
		CHECK_INT(chmod(path, 0640), 0);
		break;
	case KEY_FILE_OTHERS:
		CHECK_INT(chmod(path, 0604), 0);
		break;
	case KEY_FILE_LINK:
		CHECK_INT(rename(path, other), 0);
		CHECK_INT(symlink(other, path), 0);
		break;
	case KEY_FILE_FOLDER:
		CHECK_INT(unlink(path), 0);
		CHECK_INT(mkdir(path, 0700), 0);
		break;
	case KEY_FILE_PUBLIC:
		write_text(path, keys_public_text("daemon", text));
		break;
	case KEY_FILE_FAULTS:
		break;
	}
}

/* A folder with a key file in it, good or spoilt. */
struct place {
	char dir[64];
	char key[96];
	char other[96];
	char config[96];
};

static void place_remove(struct place *place)
{
	(void)unlink(place->key);
	(void)rmdir(place->key);
	(void)unlink(place->other);
	(void)unlink(place->config);
	(void)rmdir(place->dir);
}

static void place_make(struct place *place, enum key_file_fault fault)
{
	snprintf(place->dir, sizeof(place->dir), "/tmp/itest.keys.XXXXXX");
	CHECK(mkdtemp(place->dir) != NULL);
	snprintf(place->key, sizeof(place->key), "%s/key", place->dir);
	snprintf(place->other, sizeof(place->other), "%s/other", place->dir);
	snprintf(place->config, sizeof(place->config), "%s/conf", place->dir);
	CHECK_INT(keys_write("daemon", place->key), 0);
	spoil(place->key, place->other, fault);
}

/* @key_file: its path, or NULL: where it is by default, in the folder */
static void run_daemon(const struct place *place, bool named, struct harness_output *ret_output)
{
	char program[PATH_MAX];
	char text[1024];
	const char *argv[] = {harness_program("mempoold", program), "--config", place->config,
			      NULL};

	snprintf(text, sizeof(text),
		 "{\"pool_size\": \"1MiB\", \"listen\": [\"%s\"], \"log_level\": \"error\", "
		 "\"admin_socket\": \"%s/admin.sock\", \"state_dir\": \"%s\"%s%s%s}",
		 harness_endpoint(), place->dir, place->dir, named ? ", \"key_file\": \"" : "",
		 named ? place->key : "", named ? "\"" : "");
	write_text(place->config, text);
	CHECK(!test_has_failed());
	(void)harness_run(argv, START_LIMIT_MS, ret_output);
}

static void try_key_file(enum key_file_fault fault, bool named)
{
	__attribute__((cleanup(place_remove))) struct place place = {0};
	static struct harness_output output;

	place_make(&place, fault);
	CHECK(!test_has_failed());
	run_daemon(&place, named, &output);
	CHECK(!test_has_failed());
	printf("# %s", output.err);
	CHECK_INT(output.status, 1);
	CHECK_INT(harness_count_lines(output.err), 1);
	CHECK(strstr(output.err, place.key) != NULL);
	CHECK(strstr(output.err, key_file_says[fault]) != NULL);
	/* Nothing of what is in it. */
	CHECK(strstr(output.err, KEY_FILE_PREFIX) == NULL);
	CHECK_STR(output.out, "");
}

TEST(key_file__of_the_daemon_is_refused)
{
	for (int fault = 0; fault < KEY_FILE_FAULTS; fault++) {
		try_key_file((enum key_file_fault)fault, true);
		try_key_file((enum key_file_fault)fault, false);
		CHECK(!test_has_failed());
	}
}

/* The same faults, of a client's key; no daemon is asked. */
static void try_client_key_file(enum key_file_fault fault)
{
	__attribute__((cleanup(place_remove))) struct place place = {0};
	char daemon[KEYS_TEXT_MAX];
	struct mempool_connect_opts opts = {
		.size = sizeof(opts),
		.key_file = place.key,
		.daemon_key = keys_public_text("daemon", daemon),
	};
	mempool *pool = NULL;

	place_make(&place, fault);
	CHECK(!test_has_failed());
	CHECK_INT(mempool_connect(harness_endpoint(), &opts, &pool), MEMPOOL_E_INVALID);
	printf("# %s\n", mempool_last_error());
	CHECK(pool == NULL);
	CHECK(strstr(mempool_last_error(), place.key) != NULL);
	CHECK(strstr(mempool_last_error(), key_file_says[fault]) != NULL);
}

TEST(key_file__of_a_client_is_refused)
{
	for (int fault = 0; fault < KEY_FILE_FAULTS; fault++) {
		try_client_key_file((enum key_file_fault)fault);
		CHECK(!test_has_failed());
	}
}

/* Without a fault the same call gets further. */
TEST(key_file__of_a_client_that_is_good)
{
	HARNESS(h, .limits = LIMITS);
	__attribute__((cleanup(place_remove))) struct place place = {0};
	char daemon[KEYS_TEXT_MAX];
	struct mempool_connect_opts opts = {
		.size = sizeof(opts),
		.key_file = place.key,
		.daemon_key = keys_public_text("daemon", daemon),
		.timeout_ms = LATE_MS,
	};
	mempool *pool = NULL;

	place_make(&place, KEY_FILE_FAULTS);
	CHECK(!test_has_failed());
	/* It is the daemon's own key, which is no tenant's. */
	CHECK_INT(mempool_connect(harness_endpoint(), &opts, &pool), MEMPOOL_E_AUTH);
	CHECK_INT(harness_stop(&h), 0);
}
