/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Cases of daemon/config.c, and of common/strict_json.c beneath it. Every case writes a
 * file and loads it; the file lives in memory under a path that error lines name.
 */
#include "daemon/config.h"

#include <errno.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "daemon/mapping.h"
#include "tests/unit/test.h"

#define REQUIRED "\"listen\":[\"10.77.0.1:7471\"],\"pool_size\":\"1GiB\""

struct loaded {
	struct config config;
	char error[CONFIG_ERROR_MAX]; /* without the path in front */
	int r;
};

static void load_bytes(const char *bytes, size_t len, struct loaded *loaded)
{
	int fd = memfd_create("config", 0);
	char path[64], error[CONFIG_ERROR_MAX] = "";
	size_t path_len;

	if (fd < 0 || write(fd, bytes, len) != (ssize_t)len)
		abort();
	path_len = (size_t)snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	memset(loaded, 0x5a, sizeof(*loaded));
	loaded->r = config_load(path, &loaded->config, error);
	close(fd);
	loaded->error[0] = '\0';
	if (!strncmp(error, path, path_len))
		strcpy(loaded->error, error + path_len);
	/* Always one line. */
	if (strchr(error, '\n'))
		strcpy(loaded->error, "several lines");
}

static void load_text(const char *text, struct loaded *loaded)
{
	load_bytes(text, strlen(text), loaded);
}

/* The required keys and one more member. */
static void load_member(const char *member, struct loaded *loaded)
{
	char text[2048];

	snprintf(text, sizeof(text), "{" REQUIRED ",%s}", member);
	load_text(text, loaded);
}

static void check_refused(const char *member, const char *error)
{
	struct loaded loaded;

	load_member(member, &loaded);
	CHECK_STR(loaded.error, error);
	CHECK_INT(loaded.r, -EINVAL);
}

static void check_taken(const char *member)
{
	struct loaded loaded;

	load_member(member, &loaded);
	CHECK_STR(loaded.error, "");
	CHECK_INT(loaded.r, 0);
}

/* Key number @n in base64: a byte of it, then zeros. */
static const char *key_text(unsigned int n)
{
	static char texts[4][SECURE_KEY_TEXT_LENGTH + 1];
	static unsigned int next;
	uint8_t key[SECURE_KEY_BYTES] = {0};
	char *text = texts[next++ % 4];

	key[0] = (uint8_t)n;
	key[1] = (uint8_t)(n >> 8);
	key[31] = 0x40;
	secure_key_encode(key, text);
	text[SECURE_KEY_TEXT_LENGTH] = '\0';
	return text;
}

TEST(config_defaults__values)
{
	struct config c;

	memset(&c, 0x5a, sizeof(c));
	config_defaults(&c);
	CHECK_STR(c.device, "");
	CHECK_INT(c.device_wait_ms, 60000);
	CHECK_INT(c.listen_count, 0);
	CHECK_INT(c.pool_size_bytes, 0);
	CHECK_INT(c.hugepages, MAPPING_PAGES_NONE);
	CHECK_STR(c.numa_node, "any");
	CHECK_INT(config_numa_node(&c), MAPPING_ANY_NODE);
	CHECK_STR(c.admin_socket, "/run/mempoold/admin.sock");
	CHECK_STR(c.admin_group, "");
	CHECK_INT(c.ttl_default_ms, 30000);
	CHECK_INT(c.ttl_max_ms, 3600000);
	CHECK_INT(c.isolation, CONFIG_ISOLATION_AUTO);
	CHECK_INT(c.window_max_bytes, UINT64_C(1) << 30);
	CHECK_INT(c.scrub_chunk_bytes, UINT64_C(16) << 20);
	CHECK_INT(c.sessions_max, 256);
	CHECK_INT(c.lanes_max, 16);
	CHECK_INT(c.leases_max, 65536);
	CHECK_INT(c.lane_leases_max, 1024);
	CHECK_INT(c.control_receives, 32);
	CHECK_INT(c.lane_send_queue, 128);
	CHECK_INT(c.read_depth, 16);
	CHECK_INT(c.backlog, 128);
	CHECK_INT(c.traffic_class, 0);
	CHECK_INT(c.ack_timeout_ms, 0);
	CHECK_INT(c.path_mtu_min, CONFIG_MTU_ANY);
	CHECK_INT(c.handshake_timeout_ms, 5000);
	CHECK_INT(c.lane_offer_ms, 10000);
	CHECK_INT(c.lane_sweep_ms, 5000);
	CHECK_INT(c.completion_timeout_ms, 2000);
	CHECK_INT(c.credit_timeout_ms, 2000);
	CHECK_STR(c.state_dir, "/var/lib/mempoold");
	CHECK_STR(c.key_file, "");
	CHECK_INT(c.connections_max_per_address, 64);
	CHECK_INT(c.handshakes_max, 64);
	CHECK_INT(c.handshakes_max_per_address, 16);
	CHECK_INT(c.ban_after, 10);
	CHECK_INT(c.ban_time_ms, 600000);
	CHECK_INT(c.ban_backoff_min_ms, 100);
	CHECK_INT(c.strikes_max, 10);
	CHECK_INT(c.strike_grace_ms, 2000);
	CHECK_INT(c.strike_decay_ms, 60000);
	CHECK_INT(c.heartbeat_ms, 5000);
	CHECK_INT(c.orphan_grace_ms, 0);
	CHECK_INT(c.stop_drain_ms, 100);
	CHECK_STR(c.audit_log, "");
	CHECK_INT(c.log_level, LOG_LEVEL_INFO);
	CHECK(!c.tenants);
	CHECK_INT(c.tenant_count, 0);
}

TEST(config_load__every_key)
{
	struct loaded loaded;
	const struct config *c = &loaded.config;

	load_text("{\"device\":\"rxe0\",\"device_wait\":\"0\","
		  "\"listen\":[\"10.77.0.1:7471\",\"[fd00::1]:1\",\"host.example:65535\"],"
		  "\"pool_size\":\"64TiB\",\"admin_socket\":\"/tmp/a\","
		  "\"admin_group\":\"adm\",\"ttl_default\":\"1ms\","
		  "\"ttl_max\":\"30d\",\"isolation\":\"unverified\",\"window_max\":\"2GiB\","
		  "\"scrub_chunk\":\"4KiB\",\"sessions_max\":1,\"lanes_max\":2,\"leases_max\":3,"
		  "\"lane_leases_max\":4,\"control_receives\":5,\"lane_send_queue\":6,"
		  "\"read_depth\":7,\"backlog\":8,\"handshake_timeout\":\"11ms\","
		  "\"lane_offer\":\"12ms\",\"lane_sweep\":\"13ms\","
		  "\"completion_timeout\":\"14ms\",\"credit_timeout\":\"15ms\","
		  "\"revoke_grace\":\"16ms\",\"quiesce_timeout\":\"17ms\","
		  "\"lane_wait_min\":\"18ms\",\"lane_wait_max\":\"19ms\","
		  "\"lane_peace\":\"20ms\","
		  "\"state_dir\":\"/tmp/s\",\"key_file\":\"/tmp/k\","
		  "\"connections_max_per_address\":21,\"handshakes_max\":22,"
		  "\"handshakes_max_per_address\":23,\"ban_after\":24,\"ban_time\":\"25ms\","
		  "\"ban_backoff_min\":\"26ms\",\"strikes_max\":27,\"strike_grace\":\"28ms\","
		  "\"strike_decay\":\"29ms\",\"heartbeat\":\"30ms\","
		  "\"orphan_grace\":\"31ms\",\"audit_log\":\"/tmp/l\",\"tenants\":[],"
		  "\"log_level\":\"debug\"}",
		  &loaded);
	CHECK_INT(loaded.r, 0);
	CHECK_STR(c->device, "rxe0");
	CHECK_INT(c->device_wait_ms, 0);
	CHECK_INT(c->listen_count, 3);
	CHECK_STR(c->listen[0], "10.77.0.1:7471");
	CHECK_STR(c->listen[1], "[fd00::1]:1");
	CHECK_STR(c->listen[2], "host.example:65535");
	CHECK_INT(c->pool_size_bytes, UINT64_C(64) << 40);
	CHECK_STR(c->admin_socket, "/tmp/a");
	CHECK_STR(c->admin_group, "adm");
	CHECK_INT(c->ttl_default_ms, 1);
	CHECK_INT(c->ttl_max_ms, UINT64_C(2592000000));
	CHECK_INT(c->isolation, CONFIG_ISOLATION_UNVERIFIED);
	CHECK_INT(c->window_max_bytes, UINT64_C(2) << 30);
	CHECK_INT(c->scrub_chunk_bytes, 4096);
	CHECK_INT(c->sessions_max, 1);
	CHECK_INT(c->lanes_max, 2);
	CHECK_INT(c->leases_max, 3);
	CHECK_INT(c->lane_leases_max, 4);
	CHECK_INT(c->control_receives, 5);
	CHECK_INT(c->lane_send_queue, 6);
	CHECK_INT(c->read_depth, 7);
	CHECK_INT(c->backlog, 8);
	CHECK_INT(c->handshake_timeout_ms, 11);
	CHECK_INT(c->lane_offer_ms, 12);
	CHECK_INT(c->lane_sweep_ms, 13);
	CHECK_INT(c->completion_timeout_ms, 14);
	CHECK_INT(c->credit_timeout_ms, 15);
	CHECK_INT(c->revoke_grace_ms, 16);
	CHECK_INT(c->quiesce_timeout_ms, 17);
	CHECK_INT(c->lane_wait_min_ms, 18);
	CHECK_INT(c->lane_wait_max_ms, 19);
	CHECK_INT(c->lane_peace_ms, 20);
	CHECK_STR(c->state_dir, "/tmp/s");
	CHECK_STR(c->key_file, "/tmp/k");
	CHECK_INT(c->connections_max_per_address, 21);
	CHECK_INT(c->handshakes_max, 22);
	CHECK_INT(c->handshakes_max_per_address, 23);
	CHECK_INT(c->ban_after, 24);
	CHECK_INT(c->ban_time_ms, 25);
	CHECK_INT(c->ban_backoff_min_ms, 26);
	CHECK_INT(c->strikes_max, 27);
	CHECK_INT(c->strike_grace_ms, 28);
	CHECK_INT(c->strike_decay_ms, 29);
	CHECK_INT(c->heartbeat_ms, 30);
	CHECK_INT(c->orphan_grace_ms, 31);
	CHECK_STR(c->audit_log, "/tmp/l");
	CHECK_INT(c->tenant_count, 0);
	CHECK(!c->tenants);
	CHECK_INT(c->log_level, LOG_LEVEL_DEBUG);
}

TEST(config_load__only_required)
{
	struct loaded loaded;
	struct config defaults;

	load_text("{" REQUIRED "}", &loaded);
	CHECK_INT(loaded.r, 0);
	config_defaults(&defaults);
	strcpy(defaults.listen[0], "10.77.0.1:7471");
	defaults.listen_count = 1;
	defaults.pool_size_bytes = UINT64_C(1) << 30;
	CHECK_MEM(&loaded.config, &defaults, sizeof(defaults));
}

TEST(config_load__required_missing)
{
	struct loaded loaded;

	load_text("{\"pool_size\":\"1GiB\"}", &loaded);
	CHECK_STR(loaded.error, ": listen: is required and missing; allowed: 1..8 entries "
				"of the form host:port or [v6]:port");
	load_text("{\"listen\":[\"a:1\"]}", &loaded);
	CHECK_STR(loaded.error, ": pool_size: is required and missing; allowed: "
				"1MiB..64TiB, a multiple of 4KiB");
	CHECK_INT(loaded.r, -EINVAL);
}

TEST(config_load__failure_leaves_config)
{
	struct loaded loaded;
	struct config untouched;

	memset(&untouched, 0x5a, sizeof(untouched));
	load_member("\"backlog\":0", &loaded);
	CHECK_INT(loaded.r, -EINVAL);
	CHECK_MEM(&loaded.config, &untouched, sizeof(untouched));
}

TEST(config_load__unknown_key)
{
	check_refused("\"pool_sise\":1",
		      ": pool_sise: is not a known key; mempoold --help-config lists all");
	check_refused("\"a\\nb\":1",
		      ": a\\x0ab: is not a known key; mempoold --help-config lists all");
}

TEST(config_load__duplicate_key)
{
	check_refused("\"backlog\":1,\"backlog\":1",
		      ": line 1: duplicate object key near '\"backlog\"'");
}

TEST(config_load__wrong_type)
{
	check_refused("\"device\":1", ": device: 1 is not a string; allowed: 0..255 characters");
	check_refused("\"device_wait\":5", ": device_wait: 5 is not a string with a duration such "
					   "as \"5s\"; allowed: 0..1h");
	check_refused("\"device_wait\":\"5\"", ": device_wait: \"5\" is not a string with a "
					       "duration such as \"5s\"; allowed: 0..1h");
	check_refused("\"window_max\":4096", ": window_max: 4096 is not a string with a size such "
					     "as \"256MiB\"; allowed: 4KiB..2GiB, a multiple of "
					     "4KiB");
	check_refused("\"backlog\":\"1\"", ": backlog: \"1\" is not a number; allowed: 1..65535");
	check_refused("\"backlog\":1.0", ": backlog: 1.0 is not a number; allowed: 1..65535");
	check_refused("\"backlog\":true", ": backlog: true is not a number; allowed: 1..65535");
	check_refused("\"backlog\":null", ": backlog: null is not a number; allowed: 1..65535");
	check_refused("\"isolation\":{}", ": isolation: {} is not a string; allowed: "
					  "auto|windows|unverified");
}

TEST(config_load__not_a_choice)
{
	check_refused("\"log_level\":\"Info\"", ": log_level: \"Info\" is not one of the choices; "
						"allowed: error|warn|info|debug");
	check_refused("\"isolation\":\"\"", ": isolation: \"\" is not one of the choices; "
					    "allowed: auto|windows|unverified");
}

TEST(config_load__number_range)
{
	static const char *const taken[] = {
		"\"sessions_max\":1",	     "\"sessions_max\":65536",
		"\"lanes_max\":1024",	     "\"leases_max\":1048576",
		"\"lane_leases_max\":16384", "\"control_receives\":4",
		"\"control_receives\":4096", "\"lane_send_queue\":2",
		"\"lane_send_queue\":4096",  "\"read_depth\":1",
		"\"read_depth\":255",	     "\"backlog\":65535",
	};
	static const char *const refused[] = {
		"\"sessions_max\":0",
		"\"sessions_max\":65537",
		"\"lanes_max\":1025",
		"\"leases_max\":1048577",
		"\"lane_leases_max\":16385",
		"\"control_receives\":3",
		"\"control_receives\":4097",
		"\"lane_send_queue\":1",
		"\"lane_send_queue\":4097",
		"\"read_depth\":0",
		"\"read_depth\":256",
		"\"backlog\":65536",
		"\"backlog\":-1",
		"\"backlog\":9223372036854775807",
	};
	struct loaded loaded;

	for (size_t i = 0; i < sizeof(taken) / sizeof(taken[0]); i++)
		check_taken(taken[i]);
	for (size_t i = 0; i < sizeof(refused) / sizeof(refused[0]); i++) {
		load_member(refused[i], &loaded);
		CHECK_INT(loaded.r, -EINVAL);
		CHECK(strstr(loaded.error, " is out of range; allowed: "));
	}
	check_refused("\"read_depth\":256", ": read_depth: 256 is out of range; allowed: 1..255");
}

TEST(config_load__duration_range)
{
	check_taken("\"device_wait\":\"1h\"");
	check_refused("\"device_wait\":\"3600001ms\"",
		      ": device_wait: \"3600001ms\" is out of range; allowed: 0..1h");
	check_taken("\"lane_sweep\":\"10ms\"");
	check_taken("\"lane_sweep\":\"60s\"");
	check_refused("\"lane_sweep\":\"9ms\"",
		      ": lane_sweep: \"9ms\" is out of range; allowed: 10ms..1min");
	check_refused("\"lane_sweep\":\"60001ms\"",
		      ": lane_sweep: \"60001ms\" is out of range; allowed: 10ms..1min");
	check_refused("\"ttl_max\":\"0\"", ": ttl_max: \"0\" is out of range; allowed: 1ms..30d");
	check_refused("\"ttl_max\":\"31d\"",
		      ": ttl_max: \"31d\" is out of range; allowed: 1ms..30d");
	check_refused("\"ttl_max\":\"99999999999999999999d\"",
		      ": ttl_max: \"99999999999999999999d\" is out of range; allowed: 1ms..30d");
}

static void load_pool(const char *size, struct loaded *loaded)
{
	char text[256];

	snprintf(text, sizeof(text), "{\"listen\":[\"a:1\"],\"pool_size\":\"%s\"}", size);
	load_text(text, loaded);
}

TEST(config_load__size_range)
{
	struct loaded loaded;

	load_pool("1MiB", &loaded);
	CHECK_INT(loaded.r, 0);
	CHECK_INT(loaded.config.pool_size_bytes, 1048576);
	load_pool("1044480", &loaded); /* 4 KiB less */
	CHECK_STR(loaded.error, ": pool_size: \"1044480\" is out of range; allowed: 1MiB..64TiB, "
				"a multiple of 4KiB");
	load_pool("1052672", &loaded); /* 4 KiB more */
	CHECK_INT(loaded.r, 0);
	load_pool("1048577", &loaded);
	CHECK_INT(loaded.r, -EINVAL);
	load_pool("64TiB", &loaded);
	CHECK_INT(loaded.r, 0);
	load_pool("68719476740KiB", &loaded); /* 4 KiB more */
	CHECK_INT(loaded.r, -EINVAL);
}

TEST(config_load__ttl_default_above_max)
{
	check_taken("\"ttl_default\":\"2s\",\"ttl_max\":\"2s\"");
	check_refused("\"ttl_default\":\"2001ms\",\"ttl_max\":\"2000ms\"",
		      ": ttl_default: 2 s is longer than ttl_max; allowed: at most ttl_max, 2 s");
	check_refused("\"ttl_max\":\"29s\"",
		      ": ttl_default: 30 s is longer than ttl_max; allowed: at most ttl_max, 29 s");
}

TEST(config_load__string_length)
{
	char member[512];
	struct loaded loaded;

	snprintf(member, sizeof(member), "\"admin_socket\":\"%0107d\"", 0);
	load_member(member, &loaded);
	CHECK_INT(loaded.r, 0);
	CHECK_INT(strlen(loaded.config.admin_socket), 107);
	snprintf(member, sizeof(member), "\"admin_socket\":\"%0108d\"", 0);
	load_member(member, &loaded);
	CHECK_INT(loaded.r, -EINVAL);
	CHECK(strstr(loaded.error, "... is too short or too long; allowed: 1..107 characters"));
	check_refused("\"admin_socket\":\"\"", ": admin_socket: \"\" is too short or too long; "
					       "allowed: 1..107 characters");
	snprintf(member, sizeof(member), "\"device\":\"%0255d\"", 0);
	check_taken(member);
	snprintf(member, sizeof(member), "\"device\":\"%0256d\"", 0);
	load_member(member, &loaded);
	CHECK_INT(loaded.r, -EINVAL);
}

TEST(config_load__string_control_characters)
{
	check_refused("\"device\":\"a\\nb\"",
		      ": device: \"a\\\\nb\" is not valid; allowed: 0..255 characters");
	check_refused("\"device\":\"a\\u0000b\"",
		      ": line 1: \\\\u0000 is not allowed without JSON_ALLOW_NUL near "
		      "'\"a\\\\u0000b\"'");
}

static void load_listen(const char *list, struct loaded *loaded)
{
	char text[2048];

	snprintf(text, sizeof(text), "{\"pool_size\":\"1MiB\",\"listen\":%s}", list);
	load_text(text, loaded);
}

TEST(config_load__listen_form)
{
	static const char *const refused[] = {
		"[\"\"]",	 "[\"a\"]",    "[\":1\"]",     "[\"a:\"]",	  "[\"a:0\"]",
		"[\"a:65536\"]", "[\"a:1x\"]", "[\"a:1KiB\"]", "[\"fd00::1:1\"]", "[\"[fd00::1]\"]",
		"[\"[]:1\"]",	 "[\"[a:1\"]", "[\"a:1\\n\"]", "[\"a:-1\"]",	  "[\"a:+1\"]",
	};
	struct loaded loaded;

	for (size_t i = 0; i < sizeof(refused) / sizeof(refused[0]); i++) {
		load_listen(refused[i], &loaded);
		CHECK_INT(loaded.r, -EINVAL);
		CHECK(strstr(loaded.error, "is not valid; allowed: 1..8 entries of the form"));
	}
	load_listen("[\"a:1\",\"b\"]", &loaded);
	CHECK_STR(loaded.error, ": listen: \"b\" is not valid; allowed: 1..8 entries of the form "
				"host:port or [v6]:port");
}

TEST(config_load__listen_count)
{
	struct loaded loaded;

	load_listen("[]", &loaded);
	CHECK_INT(loaded.r, -EINVAL);
	load_listen("\"a:1\"", &loaded);
	CHECK_INT(loaded.r, -EINVAL);
	load_listen("[1]", &loaded);
	CHECK_INT(loaded.r, -EINVAL);
	load_listen("[\"a:1\",\"a:2\",\"a:3\",\"a:4\",\"a:5\",\"a:6\",\"a:7\",\"a:8\"]", &loaded);
	CHECK_INT(loaded.r, 0);
	CHECK_INT(loaded.config.listen_count, 8);
	CHECK_STR(loaded.config.listen[7], "a:8");
	load_listen("[\"a:1\",\"a:2\",\"a:3\",\"a:4\",\"a:5\",\"a:6\",\"a:7\",\"a:8\",\"a:9\"]",
		    &loaded);
	CHECK_INT(loaded.r, -EINVAL);
}

TEST(config_load__listen_item_length)
{
	char list[512];
	struct loaded loaded;

	snprintf(list, sizeof(list), "[\"%0253d:1\"]", 0);
	load_listen(list, &loaded);
	CHECK_INT(loaded.r, 0);
	snprintf(list, sizeof(list), "[\"%0254d:1\"]", 0);
	load_listen(list, &loaded);
	CHECK_INT(loaded.r, -EINVAL);
}

TEST(config_load__syntax)
{
	struct loaded loaded;

	load_text("", &loaded);
	CHECK_INT(loaded.r, -EINVAL);
	load_text("[]", &loaded);
	CHECK_STR(loaded.error, ": is not a JSON object");
	load_text("{" REQUIRED "} x", &loaded);
	CHECK_STR(loaded.error, ": line 1: end of file expected near 'x'");
	load_text("{" REQUIRED "\n,}", &loaded);
	CHECK_STR(loaded.error, ": line 2: string or '}' expected near '}'");
	load_bytes("{}\0", 3, &loaded);
	CHECK_STR(loaded.error, ": there is a NUL byte in it");
}

/* @depth nested lists as the value of a key. */
static void load_nested(size_t depth, struct loaded *loaded)
{
	char member[512] = "\"device\":";
	size_t used = strlen(member);

	memset(member + used, '[', depth);
	memset(member + used + depth, ']', depth);
	member[used + 2 * depth] = '\0';
	load_member(member, loaded);
}

TEST(config_load__depth)
{
	struct loaded loaded;

	load_nested(31, &loaded); /* within one object: 32 levels, parsed, then a wrong type */
	CHECK(strstr(loaded.error, "is not a string"));
	load_nested(32, &loaded);
	CHECK_STR(loaded.error, ": nested deeper than 32 levels");
	check_taken("\"device\":\"[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[\\\"[[[\"");
}

TEST(config_load__file_size)
{
	size_t limit = 1u << 20;
	char *text = malloc(limit + 1);
	struct loaded loaded;

	CHECK(text);
	memset(text, ' ', limit + 1);
	memcpy(text, "{" REQUIRED "}", strlen("{" REQUIRED "}"));
	load_bytes(text, limit, &loaded);
	CHECK_INT(loaded.r, 0);
	load_bytes(text, limit + 1, &loaded);
	free(text);
	CHECK_STR(loaded.error, ": is too long; allowed: 1MiB");
	CHECK_INT(loaded.r, -EINVAL);
}

TEST(config_load__file_missing)
{
	char error[CONFIG_ERROR_MAX];
	struct config config;

	CHECK_INT(config_load("/nonexistent/\n", &config, error), -ENOENT);
	CHECK_STR(error, "/nonexistent/\\x0a: cannot be opened: No such file or directory");
	CHECK_INT(config_load("/", &config, error), -EISDIR);
	CHECK_STR(error, "/: cannot be read: Is a directory");
}

TEST(config_load__long_path_and_value)
{
	char path[4000], error[CONFIG_ERROR_MAX];
	struct config config;

	memset(path, 'p', sizeof(path));
	path[sizeof(path) - 1] = '\0';
	CHECK_INT(config_load(path, &config, error), -ENAMETOOLONG);
	CHECK(strlen(error) < CONFIG_ERROR_MAX);
	CHECK(strstr(error, "ppp...: cannot be opened: File name too long"));
}

/* For each new kind of wrong value a key of each type, then the ends of all ranges. */
TEST(config_load__admission_wrong_type)
{
	check_refused("\"state_dir\":1", ": state_dir: 1 is not a string; allowed: 1..255 "
					 "characters");
	check_refused("\"key_file\":[]", ": key_file: [] is not a string; allowed: 0..255 "
					 "characters");
	check_refused("\"audit_log\":{}", ": audit_log: {} is not a string; allowed: 0..255 "
					  "characters");
	check_refused("\"connections_max_per_address\":\"1\"",
		      ": connections_max_per_address: \"1\" is not a number; allowed: 1..65536");
	check_refused("\"handshakes_max\":null",
		      ": handshakes_max: null is not a number; allowed: 1..65536");
	check_refused("\"handshakes_max_per_address\":true",
		      ": handshakes_max_per_address: true is not a number; allowed: 1..65536");
	check_refused("\"ban_after\":\"10\"",
		      ": ban_after: \"10\" is not a number; allowed: 0..1000000");
	check_refused("\"strikes_max\":1.5", ": strikes_max: 1.5 is not a number; allowed: 0..64");
	check_refused("\"ban_time\":600", ": ban_time: 600 is not a string with a duration such as "
					  "\"5s\"; allowed: 1ms..30d");
	check_refused("\"ban_backoff_min\":\"1\"",
		      ": ban_backoff_min: \"1\" is not a string with a duration such as \"5s\"; "
		      "allowed: 0..1min");
	check_refused("\"strike_grace\":\"2 s\"",
		      ": strike_grace: \"2 s\" is not a string with a duration such as \"5s\"; "
		      "allowed: 0..1min");
	check_refused("\"strike_decay\":\"1MiB\"",
		      ": strike_decay: \"1MiB\" is not a string with a duration such as \"5s\"; "
		      "allowed: 1ms..30d");
	check_refused("\"heartbeat\":5", ": heartbeat: 5 is not a string with a duration such as "
					 "\"5s\"; allowed: 0..1min");
	check_refused("\"orphan_grace\":\"\"",
		      ": orphan_grace: \"\" is not a string with a duration such as \"5s\"; "
		      "allowed: 0..1d");
	check_refused("\"tenants\":{}",
		      ": tenants: is not a list of JSON objects; allowed: 0..4096 entries");
}

TEST(config_load__admission_range)
{
	static const char *const taken[] = {
		"\"connections_max_per_address\":1",
		"\"connections_max_per_address\":65536",
		"\"handshakes_max\":1",
		"\"handshakes_max\":65536",
		"\"handshakes_max_per_address\":1",
		"\"handshakes_max_per_address\":65536",
		"\"ban_after\":0",
		"\"ban_after\":1000000",
		"\"strikes_max\":0",
		"\"strikes_max\":64",
		"\"ban_time\":\"1ms\"",
		"\"ban_time\":\"30d\"",
		"\"ban_backoff_min\":\"0\"",
		"\"ban_backoff_min\":\"60s\"",
		"\"strike_grace\":\"0\"",
		"\"strike_grace\":\"60s\"",
		"\"strike_decay\":\"1ms\"",
		"\"strike_decay\":\"30d\"",
		"\"heartbeat\":\"0\"",
		"\"heartbeat\":\"60s\"",
		"\"orphan_grace\":\"0\"",
		"\"orphan_grace\":\"24h\"",
	};
	static const char *const refused[] = {
		"\"connections_max_per_address\":0",
		"\"connections_max_per_address\":65537",
		"\"handshakes_max\":0",
		"\"handshakes_max\":65537",
		"\"handshakes_max_per_address\":0",
		"\"handshakes_max_per_address\":65537",
		"\"ban_after\":-1",
		"\"ban_after\":1000001",
		"\"strikes_max\":65",
		"\"strikes_max\":-1",
		"\"ban_time\":\"0\"",
		"\"ban_time\":\"2592000001ms\"",
		"\"ban_backoff_min\":\"60001ms\"",
		"\"strike_grace\":\"60001ms\"",
		"\"strike_decay\":\"0\"",
		"\"strike_decay\":\"2592000001ms\"",
		"\"heartbeat\":\"60001ms\"",
		"\"orphan_grace\":\"86400001ms\"",
	};
	struct loaded loaded;

	for (size_t i = 0; i < sizeof(taken) / sizeof(taken[0]); i++)
		check_taken(taken[i]);
	for (size_t i = 0; i < sizeof(refused) / sizeof(refused[0]); i++) {
		load_member(refused[i], &loaded);
		CHECK_INT(loaded.r, -EINVAL);
		CHECK(strstr(loaded.error, " is out of range; allowed: "));
	}
}

TEST(config_load__paths_length)
{
	static const char *const names[] = {"state_dir", "key_file", "audit_log"};
	char member[512];
	struct loaded loaded;

	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		snprintf(member, sizeof(member), "\"%s\":\"%0255d\"", names[i], 0);
		check_taken(member);
		snprintf(member, sizeof(member), "\"%s\":\"%0256d\"", names[i], 0);
		load_member(member, &loaded);
		CHECK_INT(loaded.r, -EINVAL);
		CHECK(strstr(loaded.error, "... is too short or too long; allowed: "));
	}
	check_refused("\"state_dir\":\"\"", ": state_dir: \"\" is too short or too long; allowed: "
					    "1..255 characters");
	check_taken("\"key_file\":\"\",\"audit_log\":\"\"");
	check_refused("\"audit_log\":\"a\\tb\"",
		      ": audit_log: \"a\\\\tb\" is not valid; allowed: 0..255 characters");
}

/* The wrong key of a tenant, which has a name and a key besides. */
static void check_tenant_refused(const char *member, const char *error)
{
	char text[1024];

	snprintf(text, sizeof(text),
		 "\"tenants\":[{\"name\":\"a\",\"keys\":[\"%s\"]},"
		 "{\"name\":\"b\",\"keys\":[\"%s\"],%s}]",
		 key_text(1), key_text(2), member);
	check_refused(text, error);
}

TEST(config_load__tenants)
{
	struct loaded loaded;
	const struct config *c = &loaded.config;
	char text[1024];

	snprintf(text, sizeof(text),
		 "\"tenants\":[{\"name\":\"alpha\",\"keys\":[\"%s\",\"%s\"]},"
		 "{\"quota\":{\"bytes\":\"1GiB\",\"rights\":[\"read\"]},\"keys\":[\"%s\"],"
		 "\"name\":\"beta\"}]",
		 key_text(1), key_text(2), key_text(3));
	load_member(text, &loaded);
	CHECK_STR(loaded.error, "");
	CHECK_INT(loaded.r, 0);
	CHECK_INT(c->tenant_count, 2);
	CHECK_STR(c->tenants[0].name, "alpha");
	CHECK_INT(c->tenants[0].key_count, 2);
	CHECK_INT(c->tenants[0].keys[0][0], 1);
	CHECK_INT(c->tenants[0].keys[1][0], 2);
	CHECK_INT(c->tenants[0].keys[1][31], 0x40);
	CHECK_INT(c->tenants[0].quota.limit[TENANT_BYTES], UINT64_C(64) << 40);
	CHECK_INT(c->tenants[0].quota.rights, 7);
	CHECK_STR(c->tenants[1].name, "beta");
	CHECK_INT(c->tenants[1].key_count, 1);
	CHECK_INT(c->tenants[1].quota.limit[TENANT_BYTES], 1 << 30);
	CHECK_INT(c->tenants[1].quota.limit[TENANT_LEASES], 1048576);
	CHECK_INT(c->tenants[1].quota.rights, 1);
	config_free(&loaded.config);
	CHECK(!c->tenants);
	CHECK_INT(c->tenant_count, 0);
	config_free(&loaded.config);
}

TEST(config_load__tenant_path_in_error)
{
	check_tenant_refused("\"nane\":1", ": tenants[1].nane: is not a known key; mempoold "
					   "--help-config lists all");
	check_tenant_refused("\"quota\":1", ": tenants[1].quota: is not a JSON object");
	check_tenant_refused("\"quota\":{\"byte\":1}",
			     ": tenants[1].quota.byte: is not a known key; mempoold "
			     "--help-config lists all");
	check_tenant_refused("\"quota\":{\"bytes\":\"65TiB\"}",
			     ": tenants[1].quota.bytes: \"65TiB\" is out of range; allowed: "
			     "0..64TiB");
	check_tenant_refused("\"quota\":{\"bytes\":\"1GiB\",\"bytes\":\"1GiB\"}",
			     ": line 1: duplicate object key near '\"bytes\"'");
	check_refused("\"tenants\":[{\"name\":\"a\"}]",
		      ": tenants[0].keys: is required and missing; allowed: 1..8 entries of the "
		      "form base64 of 32 bytes");
	check_refused("\"tenants\":[7]", ": tenants[0]: is not a JSON object");
}

TEST(config_load__tenants_alike)
{
	char text[1024];

	snprintf(text, sizeof(text),
		 "\"tenants\":[{\"name\":\"a\",\"keys\":[\"%s\"]},"
		 "{\"name\":\"a\",\"keys\":[\"%s\"]}]",
		 key_text(1), key_text(2));
	check_refused(text, ": tenants[1].name: \"a\" is the name of tenants[0] as well; allowed: "
			    "each name once");
	snprintf(text, sizeof(text),
		 "\"tenants\":[{\"name\":\"a\",\"keys\":[\"%s\",\"%s\"]},"
		 "{\"name\":\"b\",\"keys\":[\"%s\"]}]",
		 key_text(1), key_text(2), key_text(2));
	check_refused(text,
		      ": tenants[1].keys[0]: a key of \"b\" is tenants[0].keys[1] of \"a\" as "
		      "well; allowed: each key once");
}

/* Tenants with names and keys of their own, as one list. */
static char *many_tenants(unsigned int count)
{
	size_t cap = 200 + (size_t)count * 100, used;
	char *text = malloc(cap);

	if (!text)
		abort();
	used = (size_t)snprintf(text, cap, "{" REQUIRED ",\"tenants\":[");
	for (unsigned int i = 0; i < count; i++)
		used += (size_t)snprintf(text + used, cap - used,
					 "%s{\"name\":\"t%u\",\"keys\":[\"%s\"]}", i > 0 ? "," : "",
					 i, key_text(i));
	snprintf(text + used, cap - used, "]}");
	return text;
}

TEST(config_load__tenant_count)
{
	char *text = many_tenants(4096);
	struct loaded loaded;

	load_text(text, &loaded);
	free(text);
	CHECK_STR(loaded.error, "");
	CHECK_INT(loaded.r, 0);
	CHECK_INT(loaded.config.tenant_count, 4096);
	CHECK_STR(loaded.config.tenants[4095].name, "t4095");
	config_free(&loaded.config);
	text = many_tenants(4097);
	load_text(text, &loaded);
	free(text);
	CHECK_STR(loaded.error,
		  ": tenants: has too few or too many entries; allowed: 0..4096 entries");
	CHECK_INT(loaded.r, -EINVAL);
}

/* The text of the table, for the keys and their columns. */
TEST(config_print_schema__rows)
{
	size_t len = 0, lines = 0;
	char *text = NULL;
	FILE *out = open_memstream(&text, &len);

	CHECK(out);
	config_print_schema(out);
	fclose(out);
	for (size_t i = 0; i < len; i++)
		lines += text[i] == '\n';
	CHECK_INT(lines, 64);
	CHECK(strstr(text,
		     "\npool_size                            size      (required)              "
		     "  1MiB..64TiB, a multiple of 4KiB "));
	CHECK(strstr(text, "\ndevice                               string    (empty) "));
	CHECK(strstr(text,
		     "\nlog_level                            choice    info                    "
		     "  error|warn|info|debug "));
	CHECK(strstr(text,
		     "\ntenants[].quota.requests_per_second  number    0                       "
		     "  0..1000000 "));
	free(text);
}

/* The example is valid, and names every key of the table. */
TEST(config_load__example)
{
	char error[CONFIG_ERROR_MAX] = "", *help = NULL, *save = NULL;
	json_t *example = json_load_file(CONFIG_EXAMPLE, 0, NULL);
	struct config config;
	size_t len = 0, keys = 0;
	FILE *out = open_memstream(&help, &len);

	CHECK(example && out);
	CHECK_INT(config_load(CONFIG_EXAMPLE, &config, error), 0);
	CHECK_STR(error, "");
	CHECK_INT(config.tenant_count, 2);
	config_free(&config);
	config_print_schema(out);
	fclose(out);
	for (char *line = strtok_r(help, "\n", &save); line; line = strtok_r(NULL, "\n", &save)) {
		line[strcspn(line, " ")] = '\0';
		if (!strcmp(line, "KEY") || strpbrk(line, ".["))
			continue;
		if (!json_object_get(example, line))
			printf("# %s\n", line);
		CHECK(json_object_get(example, line));
		keys++;
	}
	CHECK_INT(keys, 51);
	json_decref(example);
	free(help);
}

/* Every key with a value other than the default; the tenants are another matter. */
static const struct {
	const char *name;
	const char *value;
	bool needs_restart;
} changes[] = {
	{"device", "\"rxe7\"", true},
	{"device_wait", "\"1s\"", true},
	{"listen", "[\"10.77.0.1:7471\", \"10.77.0.2:7471\"]", true},
	{"pool_size", "\"2GiB\"", true},
	{"hugepages", "\"2MiB\"", true},
	{"numa_node", "\"0\"", true},
	{"admin_socket", "\"/other\"", true},
	{"admin_group", "\"other\"", true},
	{"ttl_default", "\"31s\"", false},
	{"ttl_max", "\"2h\"", false},
	{"isolation", "\"windows\"", true},
	{"window_max", "\"2GiB\"", true},
	{"scrub_chunk", "\"1MiB\"", true},
	{"sessions_max", "7", true},
	{"lanes_max", "7", false},
	{"leases_max", "7", false},
	{"lane_leases_max", "7", false},
	{"control_receives", "7", true},
	{"lane_send_queue", "7", true},
	{"read_depth", "7", true},
	{"backlog", "7", true},
	{"traffic_class", "7", true},
	{"ack_timeout", "\"7s\"", true},
	{"path_mtu_min", "\"1024\"", true},
	{"handshake_timeout", "\"7s\"", false},
	{"lane_offer", "\"7s\"", false},
	{"lane_sweep", "\"7s\"", false},
	{"completion_timeout", "\"7s\"", false},
	{"credit_timeout", "\"7s\"", false},
	{"revoke_grace", "\"7s\"", false},
	{"quiesce_timeout", "\"7s\"", false},
	{"lane_wait_min", "\"7s\"", false},
	{"lane_wait_max", "\"7s\"", false},
	{"lane_peace", "\"7s\"", false},
	{"state_dir", "\"/other\"", true},
	{"key_file", "\"/other\"", true},
	{"connections_max_per_address", "7", false},
	{"handshakes_max", "7", false},
	{"handshakes_max_per_address", "7", false},
	{"ban_after", "7", false},
	{"ban_time", "\"7s\"", false},
	{"ban_backoff_min", "\"7s\"", false},
	{"strikes_max", "7", false},
	{"strike_grace", "\"7s\"", false},
	{"strike_decay", "\"7s\"", false},
	{"heartbeat", "\"7s\"", false},
	{"orphan_grace", "\"7s\"", false},
	{"stop_drain", "\"7s\"", false},
	{"audit_log", "\"/other\"", true},
	{"log_level", "\"warn\"", false},
};

#define CHANGE_COUNT (sizeof(changes) / sizeof(changes[0]))

static void load_changed(size_t i, struct loaded *loaded)
{
	char text[512];
	int used = snprintf(text, sizeof(text), "{\"%s\": %s", changes[i].name, changes[i].value);

	if (strcmp(changes[i].name, "listen") != 0)
		used += snprintf(text + used, sizeof(text) - (size_t)used,
				 ", \"listen\": [\"10.77.0.1:7471\"]");
	if (strcmp(changes[i].name, "pool_size") != 0)
		used += snprintf(text + used, sizeof(text) - (size_t)used,
				 ", \"pool_size\": \"1GiB\"");
	snprintf(text + used, sizeof(text) - (size_t)used, "}");
	load_text(text, loaded);
}

/* Which keys a running daemon keeps, one by one; all keys are there. */
TEST(config_keep__every_key)
{
	struct loaded running, loaded, again;
	json_t *kept;

	CHECK_INT(CHANGE_COUNT, 50);
	load_text("{" REQUIRED "}", &running);
	CHECK_INT(running.r, 0);
	for (size_t i = 0; i < CHANGE_COUNT; i++) {
		printf("# %s\n", changes[i].name);
		load_changed(i, &loaded);
		load_changed(i, &again);
		CHECK_STR(loaded.error, "");
		CHECK(memcmp(&loaded.config, &running.config, sizeof(loaded.config)) != 0);
		CHECK_INT(config_keep(&running.config, &loaded.config, &kept), 0);
		CHECK_INT(json_array_size(kept), changes[i].needs_restart);
		if (changes[i].needs_restart)
			CHECK_STR(json_string_value(json_array_get(kept, 0)), changes[i].name);
		json_decref(kept);
		/* Whole, as no field says less than it did. */
		CHECK_INT(config_keep(&running.config, &loaded.config, &kept), 0);
		CHECK_INT(json_array_size(kept), 0);
		json_decref(kept);
		if (!changes[i].needs_restart)
			CHECK_MEM(&loaded.config, &again.config, sizeof(loaded.config));
	}
}

TEST(config_keep__tenants_are_new)
{
	struct loaded running, loaded;
	json_t *kept;
	char member[256];

	load_text("{" REQUIRED "}", &running);
	snprintf(member, sizeof(member), "\"tenants\":[{\"name\":\"a\",\"keys\":[\"%s\"]}]",
		 key_text(1));
	load_member(member, &loaded);
	CHECK_INT(config_keep(&running.config, &loaded.config, &kept), 0);
	CHECK_INT(json_array_size(kept), 0);
	CHECK_INT(loaded.config.tenant_count, 1);
	CHECK_STR(loaded.config.tenants[0].name, "a");
	json_decref(kept);
	config_free(&loaded.config);
}

TEST(config_load__numa_node)
{
	static const struct {
		const char *text;
		int node;
	} taken[] = {{"any", MAPPING_ANY_NODE}, {"0", 0}, {"7", 7}, {"1023", 1023}};
	static const char *const refused[] = {"1024", "-1", "1KiB", "one", " 1", "0x1"};
	struct loaded loaded;
	char member[64];

	for (size_t i = 0; i < sizeof(taken) / sizeof(taken[0]); i++) {
		snprintf(member, sizeof(member), "\"numa_node\":\"%s\"", taken[i].text);
		load_member(member, &loaded);
		CHECK_STR(loaded.error, "");
		CHECK_INT(config_numa_node(&loaded.config), taken[i].node);
	}
	for (size_t i = 0; i < sizeof(refused) / sizeof(refused[0]); i++) {
		char error[256];

		snprintf(member, sizeof(member), "\"numa_node\":\"%s\"", refused[i]);
		snprintf(error, sizeof(error),
			 ": numa_node: \"%s\" is not valid; allowed: 1..4 characters of the form "
			 "\"any\" or a number up to \"1023\"",
			 refused[i]);
		check_refused(member, error);
	}
	check_refused("\"numa_node\":0",
		      ": numa_node: 0 is not a string; allowed: 1..4 characters of the form "
		      "\"any\" or a number up to \"1023\"");
}

/* The pool consists of whole pages. */
TEST(config_load__hugepages)
{
	static const struct {
		const char *pages;
		const char *size;
		const char *error;
	} cases[] = {
		{"none", "1028KiB", ""},
		{"2MiB", "2MiB", ""},
		{"2MiB", "1GiB", ""},
		{"2MiB", "3MiB",
		 ": pool_size: 3145728B is not a whole number of pages; allowed with hugepages "
		 "2MiB: multiples of 2 MiB"},
		{"1GiB", "3GiB", ""},
		{"1GiB", "1026MiB",
		 ": pool_size: 1075838976B is not a whole number of pages; allowed with hugepages "
		 "1GiB: multiples of 1 GiB"},
		{"4MiB", "1GiB",
		 ": hugepages: \"4MiB\" is not one of the choices; allowed: none|2MiB|1GiB"},
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct loaded loaded;
		char text[256];

		snprintf(text, sizeof(text),
			 "{\"listen\":[\"10.77.0.1:7471\"],\"hugepages\":\"%s\","
			 "\"pool_size\":\"%s\"}",
			 cases[i].pages, cases[i].size);
		load_text(text, &loaded);
		CHECK_STR(loaded.error, cases[i].error);
	}
	CHECK_STR(config_hugepages_name(MAPPING_PAGES_2MIB), "2MiB");
	CHECK_STR(config_hugepages_name(3), "unknown");
	CHECK_STR(config_hugepages_name(-1), "unknown");
}

TEST(config_isolation_name__all)
{
	CHECK_STR(config_isolation_name(CONFIG_ISOLATION_AUTO), "auto");
	CHECK_STR(config_isolation_name(CONFIG_ISOLATION_WINDOWS), "windows");
	CHECK_STR(config_isolation_name(CONFIG_ISOLATION_UNVERIFIED), "unverified");
	CHECK_STR(config_isolation_name(3), "unknown");
	CHECK_STR(config_isolation_name(-1), "unknown");
}
