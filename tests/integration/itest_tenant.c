/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Tenants changed while the daemon runs: at once, saved or not, over a reload and a restart; what
 * is wrong is refused and changes nothing. And mempoolctl, which is the way to all of it.
 */
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "proto/error.h"
#include "tests/integration/accounts.h"
#include "tests/integration/peer.h"
#include "tests/integration/tenants.h"

#define PAGE	  4096
#define TTL_MS	  60000
#define LONG_NAME 10000
#define PARAMS	  (-32602)

static json_t *entry(const char *name, const char *keys, const char *quota, bool save)
{
	json_t *params = tenants_entry(&(struct tenants_row){name, keys, quota});

	if (save)
		json_object_set_new(params, "save", json_true());
	return params;
}

static json_t *named(const char *name, bool save)
{
	return save ? json_pack("{s:s,s:b}", "name", name, "save", 1)
		    : json_pack("{s:s}", "name", name);
}

static int connects(const char *key)
{
	mempool *pool = NULL;
	int r = harness_connect(key, &pool);

	harness_close(&pool);
	return r;
}

TEST(tenant__added_changed_removed)
{
	HARNESS(h, .pool_size = NULL);
	mempool *pool = NULL;
	mempool_lease *lease;

	CHECK_INT(connects("new"), MEMPOOL_E_AUTH);
	CHECK_INT(harness_order(&h, "tenant.add", entry("new", NULL, NULL, false), NULL), 0);
	CHECK_INT(tenants_number(&h, "new", "configured"), 1);
	CHECK_INT(tenants_number(&h, "new", "saved"), 0);
	CHECK_INT(tenants_number(&h, "alpha", "saved"), 1);
	CHECK_INT(harness_connect("new", &pool), 0);
	CHECK_INT(harness_acquire(pool, PAGE, TTL_MS, &lease), 0);
	CHECK_INT(tenants_quota(&h, "new", "{\"leases\": 1}"), 0);
	CHECK_INT(harness_acquire(pool, PAGE, TTL_MS, &lease), MEMPOOL_E_QUOTA_LEASES);
	/* What is not named stays. */
	CHECK_INT(tenants_quota(&h, "new", "{\"ttl_max\": \"1min\"}"), 0);
	CHECK_INT(harness_acquire(pool, PAGE, TTL_MS, &lease), MEMPOOL_E_QUOTA_LEASES);
	CHECK_INT(harness_order(&h, "tenant.set",
				json_pack("{s:s,s:[s]}", "name", "new", "keys",
					  keys_public_text("newer", (char[KEYS_TEXT_MAX]){0})),
				NULL),
		  0);
	CHECK(tenants_wait(&h, "new", "charged.sessions", 0));
	harness_close(&pool);
	CHECK_INT(connects("new"), MEMPOOL_E_AUTH);
	CHECK_INT(harness_connect("newer", &pool), 0);
	CHECK_INT(harness_acquire(pool, PAGE, TTL_MS, &lease), 0);
	CHECK_INT(harness_acquire(pool, PAGE, TTL_MS, &lease), MEMPOOL_E_QUOTA_LEASES);
	CHECK_INT(harness_order(&h, "tenant.remove", named("new", false), NULL), 0);
	CHECK(tenants_wait(&h, "new", "configured", -1));
	harness_close(&pool);
	CHECK_INT(connects("newer"), MEMPOOL_E_AUTH);
	accounts_check(&h);
	CHECK_INT(harness_stop(&h), 0);
}

/* Saved is saved: over a restart, and with the configuration as it was. */
TEST(tenant__saved_over_a_restart)
{
	HARNESS(h, .pool_size = NULL);
	char path[HARNESS_TEXT_MAX];
	struct stat status;

	CHECK_INT(harness_order(&h, "tenant.add", entry("saved", NULL, "{\"leases\": 7}", true),
				NULL),
		  0);
	CHECK_INT(harness_order(&h, "tenant.add", entry("passing", NULL, NULL, false), NULL), 0);
	CHECK_INT(harness_order(&h, "tenant.set", entry("alpha", "alpha-new", NULL, true), NULL),
		  0);
	CHECK_INT(harness_order(&h, "tenant.remove", named("beta", true), NULL), 0);
	CHECK_INT(harness_order(&h, "tenant.remove", named("gamma", false), NULL), 0);
	CHECK_INT(tenants_number(&h, "saved", "saved"), 1);
	CHECK_INT(tenants_number(&h, "passing", "saved"), 0);
	CHECK_INT(stat(harness_path(&h, "tenants.json", path), &status), 0);
	CHECK_INT(status.st_mode & 07777, 0600);
	CHECK_INT(harness_stop(&h), 0);
	CHECK_INT(harness_restart(&h), 0);
	CHECK_INT(tenants_number(&h, "saved", "quota.leases"), 7);
	CHECK_INT(connects("saved"), 0);
	CHECK_INT(tenants_number(&h, "passing", "configured"), -1);
	CHECK_INT(connects("alpha"), MEMPOOL_E_AUTH);
	CHECK_INT(connects("alpha-new"), 0);
	CHECK_INT(connects("beta"), MEMPOOL_E_AUTH);
	CHECK_INT(connects("gamma"), 0);
	/* And taken back: what is on file about a tenant is the last that was saved. */
	CHECK_INT(harness_order(&h, "tenant.remove", named("saved", true), NULL), 0);
	CHECK_INT(harness_order(&h, "tenant.add", entry("beta", NULL, NULL, true), NULL), 0);
	CHECK_INT(harness_stop(&h), 0);
	CHECK_INT(harness_restart(&h), 0);
	CHECK_INT(tenants_number(&h, "saved", "configured"), -1);
	CHECK_INT(connects("beta"), 0);
	CHECK_INT(harness_stop(&h), 0);
}

/* Saved alone: the settings as they live, changed before without being saved. */
TEST(tenant__saved_later)
{
	HARNESS(h, .pool_size = NULL);

	CHECK_INT(tenants_quota(&h, "alpha", "{\"leases\": 5}"), 0);
	CHECK_INT(tenants_number(&h, "alpha", "saved"), 0);
	CHECK_INT(harness_order(&h, "tenant.set", named("alpha", true), NULL), 0);
	CHECK_INT(tenants_number(&h, "alpha", "saved"), 1);
	CHECK_INT(harness_order(&h, "reload", NULL, NULL), 0);
	CHECK_INT(tenants_number(&h, "alpha", "quota.leases"), 5);
}

static const char *change_of(const json_t *lost, const char *name)
{
	const json_t *item;
	size_t i;

	json_array_foreach(lost, i, item)
	{
		if (strcmp(json_string_value(json_object_get(item, "name")), name) == 0)
			return json_string_value(json_object_get(item, "change"));
	}
	return NULL;
}

TEST(tenant__unsaved_changes_go_with_a_reload)
{
	HARNESS(h, .pool_size = NULL);
	const json_t *lost;
	json_t *result;

	CHECK_INT(harness_order(&h, "tenant.add", entry("passing", NULL, NULL, false), NULL), 0);
	CHECK_INT(harness_order(&h, "tenant.add", entry("saved", NULL, NULL, true), NULL), 0);
	CHECK_INT(tenants_quota(&h, "alpha", "{\"leases\": 5}"), 0);
	CHECK_INT(harness_order(&h, "tenant.remove", named("beta", false), NULL), 0);
	CHECK_INT(connects("passing"), 0);
	result = harness_call(&h, "reload", NULL);
	lost = json_object_get(result, "lost");
	CHECK_INT(json_array_size(lost), 3);
	CHECK_STR(change_of(lost, "passing"), "added");
	CHECK_STR(change_of(lost, "alpha"), "changed");
	CHECK_STR(change_of(lost, "beta"), "removed");
	json_decref(result);
	CHECK(harness_log_says(&h,
			       "a change that was not saved is gone tenant=alpha change=changed"));
	CHECK_INT(connects("passing"), MEMPOOL_E_AUTH);
	CHECK_INT(connects("saved"), 0);
	CHECK_INT(connects("beta"), 0);
	CHECK_INT(tenants_number(&h, "alpha", "quota.leases"), 1048576);
	/* Once. */
	result = harness_call(&h, "reload", NULL);
	CHECK(result != NULL);
	CHECK_INT(json_array_size(json_object_get(result, "lost")), 0);
	json_decref(result);
}

/* What is wrong has a code and a text, and changes nothing that lives or is on file. */
TEST(tenant__refused)
{
	static const struct {
		const char *method;
		const char *params;
		int code;
		const char *text;
	} cases[] = {
		{"tenant.add", "{}", ERROR_INVALID, "is required and missing"},
		{"tenant.add", "{\"name\": \"x\"}", ERROR_INVALID, "keys: is required and missing"},
		{"tenant.add", "{\"name\": 7, \"keys\": []}", ERROR_INVALID,
		 "name: 7 is not a string"},
		{"tenant.add", "{\"name\": \"\", \"keys\": []}", ERROR_INVALID,
		 "name: \"\" is too short or too long"},
		{"tenant.add", "{\"name\": \"a b\", \"keys\": []}", ERROR_INVALID,
		 "name: \"a b\" is not valid"},
		{"tenant.add", "{\"name\": \"a\\u0001\\u001b[2J\", \"keys\": []}", ERROR_INVALID,
		 "is not valid"},
		{"tenant.add", "{\"name\": \"\\u00e9\", \"keys\": []}", ERROR_INVALID,
		 "is not valid"},
		{"tenant.add", "{\"name\": \"x\", \"keys\": []}", ERROR_INVALID,
		 "keys: has too few"},
		{"tenant.add", "{\"name\": \"x\", \"keys\": [\"secret\"]}", ERROR_INVALID,
		 "keys: is not valid"},
		{"tenant.add", "{\"name\": \"x\", \"keys\": [], \"save\": 1}", PARAMS,
		 "save must be true or false"},
		{"tenant.add", "{\"name\": \"x\", \"nonesuch\": 1}", ERROR_INVALID,
		 "nonesuch: is not a known key"},
		{"tenant.set", "{}", PARAMS, "name"},
		{"tenant.set", "{\"name\": \"nonesuch\"}", ERROR_NO_TENANT, "no such tenant"},
		{"tenant.set", "{\"name\": \"alpha\", \"quota\": 7}", ERROR_INVALID,
		 "quota: is not a JSON object"},
		{"tenant.set", "{\"name\": \"alpha\", \"quota\": {\"bytes\": \"65TiB\"}}",
		 ERROR_INVALID, "quota.bytes: \"65TiB\" is out of range"},
		{"tenant.set", "{\"name\": \"alpha\", \"quota\": {\"bytes\": \"99999999999TiB\"}}",
		 ERROR_INVALID, "quota.bytes: "},
		{"tenant.set", "{\"name\": \"alpha\", \"quota\": {\"leases\": -1}}", ERROR_INVALID,
		 "quota.leases: -1 is out of range"},
		{"tenant.set", "{\"name\": \"alpha\", \"quota\": {\"rights\": []}}", ERROR_INVALID,
		 "quota.rights: "},
		{"tenant.set", "{\"name\": \"alpha\", \"quota\": {\"nonesuch\": 1}}", ERROR_INVALID,
		 "quota.nonesuch: is not a known key"},
		{"tenant.set", "{\"name\": \"alpha\", \"keys\": []}", ERROR_INVALID,
		 "keys: has too few"},
		{"tenant.remove", "{}", PARAMS, "params"},
		{"tenant.remove", "{\"name\": \"alpha\", \"save\": 1}", PARAMS, "params"},
		{"tenant.remove", "{\"name\": \"nonesuch\"}", ERROR_NO_TENANT, "no such tenant"},
		{"tenant.remove", "{\"name\": \"nonesuch\", \"save\": true}", ERROR_NO_TENANT,
		 "no such tenant"},
		{"tenant.show", "{\"name\": \"nonesuch\"}", ERROR_NO_TENANT, "no such tenant"},
		{"tenant.show", "{\"name\": \"alpha\", \"more\": 1}", PARAMS, "params"},
		{"tenant.unban", "{\"name\": \"nonesuch\"}", ERROR_NO_TENANT, "no such tenant"},
		{"reload", "{\"now\": true}", PARAMS, "no params"},
	};
	HARNESS(h, .pool_size = NULL);
	char *before = tenants_list(&h), *after;
	char text[HARNESS_TEXT_MAX];

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		json_t *params = json_loads(cases[i].params, 0, NULL);

		CHECK(params != NULL);
		CHECK_INT(harness_order(&h, cases[i].method, params, text), cases[i].code);
		CHECK(tenants_says(text, cases[i].text));
		CHECK(strstr(text, "secret") == NULL);
	}
	after = tenants_list(&h);
	CHECK_STR(after, before);
	free(before);
	free(after);
	CHECK(access(harness_path(&h, "tenants.json", text), F_OK) != 0);
	CHECK_INT(harness_stop(&h), 0);
}

TEST(tenant__exists_or_has_the_key)
{
	HARNESS(h, .pool_size = NULL);
	char text[HARNESS_TEXT_MAX];

	CHECK_INT(harness_order(&h, "tenant.add", entry("alpha", "one", NULL, false), text),
		  ERROR_TENANT_EXISTS);
	CHECK(text[0] != '\0');
	CHECK_INT(harness_order(&h, "tenant.add", entry("new", "one,beta", NULL, false), text),
		  ERROR_KEY_USED);
	CHECK_STR(text, "a key is that of tenant \"beta\" that lives");
	CHECK_INT(harness_order(&h, "tenant.set", entry("alpha", "beta", NULL, true), text),
		  ERROR_KEY_USED);
	CHECK_INT(harness_order(&h, "tenant.add", entry("new", "one,one", NULL, false), text),
		  ERROR_INVALID);
	CHECK_STR(text, "keys[1]: is keys[0] as well; allowed: each key once");
	/* A key that is free for now, but not on file: saved, the two files would contradict. */
	CHECK_INT(harness_order(&h, "tenant.remove", named("beta", false), NULL), 0);
	CHECK_INT(harness_order(&h, "tenant.add", entry("new", "beta", NULL, true), text),
		  ERROR_KEY_USED);
	CHECK_STR(text, "a key is that of tenant \"beta\" on file");
	CHECK_INT(tenants_number(&h, "new", "configured"), -1);
	CHECK_INT(harness_order(&h, "tenant.add", entry("new", "beta", NULL, false), NULL), 0);
	CHECK_INT(connects("beta"), 0);
	CHECK_INT(harness_stop(&h), 0);
	CHECK_INT(harness_restart(&h), 0);
	CHECK_INT(tenants_number(&h, "beta", "configured"), 1);
}

/* Names of 10 000 bytes, and of one byte too many, are nobody's. */
TEST(tenant__names_that_are_too_long)
{
	static const char *const methods[] = {"tenant.show", "tenant.set", "tenant.remove",
					      "tenant.unban"};
	static const size_t lengths[] = {LONG_NAME, PROTO_TENANT_NAME_MAX + 1};
	HARNESS(h, .pool_size = NULL);
	static char name[LONG_NAME + 1];
	char text[HARNESS_TEXT_MAX];

	memset(name, 'x', PROTO_TENANT_NAME_MAX);
	CHECK_INT(harness_order(&h, "tenant.add", entry(name, "long", NULL, false), NULL), 0);
	CHECK_INT(tenants_number(&h, name, "configured"), 1);
	for (size_t i = 0; i < 2; i++) {
		memset(name, 'x', sizeof(name));
		name[lengths[i]] = '\0';
		CHECK_INT(harness_order(&h, "tenant.add", entry(name, "longer", NULL, true), text),
			  ERROR_INVALID);
		CHECK(strncmp(text, "name: ", 6) == 0);
		for (size_t k = 0; k < sizeof(methods) / sizeof(methods[0]); k++)
			CHECK_INT(harness_order(&h, methods[k], named(name, false), text),
				  ERROR_NO_TENANT);
		CHECK_INT(
			harness_order(&h, "lease.revoke", json_pack("{s:s}", "tenant", name), text),
			ERROR_NO_TENANT);
	}
	name[PROTO_TENANT_NAME_MAX] = '\0';
	CHECK_INT(tenants_number(&h, name, "configured"), 1);
	CHECK_INT(harness_number(&h, "pid"), h.pid);
	CHECK_INT(harness_stop(&h), 0);
}

/* It cannot be saved: then it does not live either. */
TEST(tenant__cannot_be_saved)
{
	HARNESS(h, .pool_size = NULL);
	char path[HARNESS_TEXT_MAX], text[HARNESS_TEXT_MAX];

	CHECK_INT(mkdir(harness_path(&h, "tenants.json.new", path), 0700), 0);
	CHECK_INT(harness_order(&h, "tenant.add", entry("new", NULL, NULL, true), text),
		  ERROR_SYSTEM);
	CHECK(tenants_says(text, "cannot be written"));
	CHECK_INT(harness_order(&h, "tenant.remove", named("alpha", true), NULL), ERROR_SYSTEM);
	CHECK_INT(harness_order(&h, "tenant.set", entry("alpha", "one", NULL, true), NULL),
		  ERROR_SYSTEM);
	CHECK_INT(tenants_number(&h, "new", "configured"), -1);
	CHECK_INT(tenants_number(&h, "alpha", "saved"), 1);
	CHECK_INT(connects("alpha"), 0);
	CHECK_INT(rmdir(path), 0);
	CHECK_INT(harness_order(&h, "tenant.add", entry("new", NULL, NULL, true), NULL), 0);
	/* A file of somebody else's making is not touched, and keeps the daemon from starting. */
	CHECK_INT(unlink(harness_path(&h, "tenants.json", path)), 0);
	CHECK_INT(symlink("/dev/null", path), 0);
	CHECK_INT(harness_order(&h, "tenant.remove", named("new", true), text), ERROR_SYSTEM);
	CHECK(tenants_says(text, "is a symbolic link"));
	CHECK_INT(harness_order(&h, "reload", NULL, text), ERROR_SYSTEM);
	CHECK(tenants_says(text, "is a symbolic link"));
	CHECK_INT(tenants_number(&h, "new", "configured"), 1);
	CHECK_INT(harness_stop(&h), 0);
	CHECK_INT(harness_restart(&h), -ECHILD);
	CHECK(harness_log_says(&h, "tenants.json: is a symbolic link"));
}

/* A breach costs the session, strikes_max of them the tenant's access for a time. */
static void break_the_protocol(struct peer *peer)
{
	struct message ping = {.type = MESSAGE_PING}, answer;

	CHECK_INT(peer_call(peer, &ping, &answer), 0);
	CHECK_INT(raw_send_sealed(&peer->control, "nonsense", 8), 0);
	CHECK_INT(peer_take(peer, MESSAGE_BYE, 0, TENANTS_LATE_MS, &answer), -ENETRESET);
}

TEST(tenant__unbanned)
{
	HARNESS(h, .limits = "\"ban_after\": 0, \"strikes_max\": 2, \"heartbeat\": \"0\"");
	json_t *result;

	for (int i = 1; i <= 2; i++) {
		PEER(alpha, "alpha");

		break_the_protocol(&alpha);
		if (i == 1)
			CHECK_INT(tenants_number(&h, "alpha", "strikes"), 1);
	}
	CHECK_INT(connects("alpha"), MEMPOOL_E_BANNED);
	CHECK(tenants_number(&h, "alpha", "ban_left_ms") > 500000);
	CHECK(tenants_number(&h, "alpha", "ban_left_ms") <= 600000);
	CHECK_INT(tenants_number(&h, "beta", "ban_left_ms"), 0);
	result = harness_call(&h, "tenant.unban", named("alpha", false));
	CHECK(json_is_true(json_object_get(result, "was_banned")));
	json_decref(result);
	CHECK_INT(tenants_number(&h, "alpha", "ban_left_ms"), 0);
	CHECK_INT(connects("alpha"), 0);
	result = harness_call(&h, "tenant.unban", named("alpha", false));
	CHECK(json_is_false(json_object_get(result, "was_banned")));
	json_decref(result);
	CHECK_INT(harness_stop(&h), 0);
}

/* mempoolctl */

static struct harness_output ctl_output;

/* Return: its exit status. */
static int ctl(const struct harness *h, const char *const *args)
{
	char path[HARNESS_TEXT_MAX];
	char program[PATH_MAX];
	const char *argv[24] = {harness_program("mempoolctl", program), "--socket",
				harness_socket(h, path)};

	for (size_t i = 3; i < 23 && *args != NULL; i++)
		argv[i] = *args++;
	return harness_run(argv, 20000, &ctl_output) < 0 ? -1 : ctl_output.status;
}

#define CTL(h, ...) ctl(h, (const char *const[]){__VA_ARGS__, NULL})

TEST(mempoolctl__tenants)
{
	HARNESS(h, .pool_size = NULL);
	char key[KEYS_TEXT_MAX], other[KEYS_TEXT_MAX];

	keys_public_text("new", key);
	keys_public_text("newer", other);
	CHECK_INT(CTL(&h, "tenant", "add", "new", "--key", key, "--key", other, "--quota",
		      "bytes=1GiB", "--quota", "leases=7", "--quota", "rights=read,write"),
		  0);
	CHECK_STR(ctl_output.out, "tenant new added, not saved: a reload takes it back\n");
	CHECK_STR(ctl_output.err, "");
	CHECK_INT(connects("new"), 0);
	CHECK_INT(connects("newer"), 0);
	CHECK_INT(CTL(&h, "tenant", "show", "new"), 0);
	CHECK(tenants_says(ctl_output.out, key));
	CHECK(tenants_says(ctl_output.out, other));
	CHECK(tenants_says(ctl_output.out, "\nbytes                      1GiB   0 B       0\n"));
	CHECK(tenants_says(ctl_output.out, "\nleases                        7     0       0\n"));
	CHECK(tenants_says(ctl_output.out, "read,write"));
	CHECK(tenants_says(ctl_output.out, "ok\n"));
	CHECK_INT(CTL(&h, "tenant", "list"), 0);
	CHECK_INT(harness_count_lines(ctl_output.out), 1 + keys_tenant_count() + 1);
	CHECK(tenants_says(ctl_output.out, "\nnew "));
	CHECK(strstr(ctl_output.out, key) == NULL);
	CHECK_INT(CTL(&h, "tenant", "set", "new", "--quota", "leases=0", "--save"), 0);
	CHECK_STR(ctl_output.out, "tenant new set and saved\n");
	CHECK_INT(CTL(&h, "tenant", "unban", "new"), 0);
	CHECK_STR(ctl_output.out, "tenant new was not banned\n");
	CHECK_INT(CTL(&h, "tenant", "set", "alpha", "--quota", "leases=0"), 0);
	CHECK_INT(CTL(&h, "reload"), 0);
	CHECK_STR(ctl_output.out, "reloaded; tenants: 0 added, 1 changed, 0 removed\n"
				  "gone, as it was not saved: tenant alpha changed\n");
	CHECK_INT(CTL(&h, "tenant", "remove", "new", "--save"), 0);
	CHECK_STR(ctl_output.out, "tenant new removed and saved\n");
	CHECK_INT(CTL(&h, "tenant", "show", "new"), 1);
	CHECK_STR(ctl_output.out, "");
	CHECK_STR(ctl_output.err, "mempoolctl: tenant new: error 1090: there is no such tenant\n");
	CHECK_INT(harness_stop(&h), 0);
}

TEST(mempoolctl__tenants_as_json)
{
	HARNESS(h, .pool_size = NULL);
	char key[KEYS_TEXT_MAX];
	json_t *result;

	keys_public_text("new", key);
	CHECK_INT(CTL(&h, "--json", "tenant", "add", "new", "--key", key), 0);
	CHECK_STR(ctl_output.out, "{\"name\":\"new\",\"saved\":false}\n");
	CHECK_INT(CTL(&h, "--json", "tenant", "list"), 0);
	CHECK_INT(harness_count_lines(ctl_output.out), 1);
	result = json_loads(ctl_output.out, 0, NULL);
	CHECK_INT(json_array_size(json_object_get(result, "tenants")), keys_tenant_count() + 1);
	json_decref(result);
	CHECK_INT(CTL(&h, "--json", "tenant", "show", "new"), 0);
	result = json_loads(ctl_output.out, 0, NULL);
	CHECK_STR(json_string_value(json_array_get(json_object_get(result, "keys"), 0)), key);
	CHECK_STR(json_string_value(json_object_get(result, "state")), "ok");
	json_decref(result);
	CHECK_INT(CTL(&h, "--json", "tenant", "unban", "new"), 0);
	CHECK_STR(ctl_output.out, "{\"name\":\"new\",\"was_banned\":false}\n");
	CHECK_INT(CTL(&h, "--json", "reload"), 0);
	CHECK_STR(ctl_output.out,
		  "{\"tenants\":{\"added\":[],\"changed\":[],\"removed\":[\"new\"]},\"lost\":[{"
		  "\"name\":\"new\",\"change\":\"added\"}],\"needs_restart\":[]}\n");
	CHECK_INT(CTL(&h, "--json", "tenant", "remove", "alpha"), 0);
	CHECK_STR(ctl_output.out, "{\"name\":\"alpha\",\"saved\":false}\n");
}

TEST(mempoolctl__tenants_wrong_usage)
{
	HARNESS(h, .pool_size = NULL);
	static char name[LONG_NAME + 1];
	char *before = tenants_list(&h), *after;
	char key[KEYS_TEXT_MAX];

	keys_public_text("new", key);
	memset(name, 'x', LONG_NAME);
	CHECK_INT(CTL(&h, "tenant"), 2);
	CHECK_INT(CTL(&h, "tenant", "nonesuch"), 2);
	CHECK_INT(CTL(&h, "tenant", "list", "alpha"), 2);
	CHECK_INT(CTL(&h, "tenant", "show"), 2);
	CHECK_INT(CTL(&h, "tenant", "show", "alpha", "beta"), 2);
	CHECK_INT(CTL(&h, "tenant", "show", "alpha", "--save"), 2);
	CHECK_STR(ctl_output.err,
		  "mempoolctl: this command does not take --save; see mempoolctl --help\n");
	CHECK_INT(CTL(&h, "tenant", "add", "new"), 2);
	CHECK_INT(CTL(&h, "tenant", "add", "--key", key), 2);
	CHECK_INT(CTL(&h, "tenant", "add", "new", "--key"), 2);
	CHECK_INT(CTL(&h, "tenant", "add", "new", "--key", key, "--now"), 2);
	CHECK_INT(CTL(&h, "tenant", "add", "new", "--key", key, "--quota", "bytes"), 2);
	CHECK_INT(CTL(&h, "tenant", "add", "new", "--key", key, "--quota", "=1"), 2);
	CHECK_INT(CTL(&h, "tenant", "add", "new", "--key", key, "--quota", "nonesuch=1"), 2);
	CHECK_INT(CTL(&h, "tenant", "add", "new", "--key", key, "--quota", "leases=many"), 2);
	CHECK_INT(CTL(&h, "tenant", "add", "new", "--key", key, "--quota",
		      "leases=9223372036854775808"),
		  2);
	CHECK_INT(CTL(&h, "tenant", "add", "new", "--key", key, "--quota", "leases=1", "--quota",
		      "leases=2"),
		  2);
	CHECK_INT(CTL(&h, "tenant", "set", "alpha"), 2);
	CHECK_INT(CTL(&h, "tenant", "remove", "alpha", "--quota", "leases=1"), 2);
	CHECK_INT(CTL(&h, "reload", "now"), 2);
	CHECK_INT(CTL(&h, "lease", "list", "--key", key), 2);
	/* What the daemon refuses. */
	CHECK_INT(CTL(&h, "tenant", "add", "new", "--key", "short"), 1);
	CHECK_INT(CTL(&h, "tenant", "add", "new", "--key", key, "--quota", "bytes=many"), 1);
	CHECK_INT(CTL(&h, "tenant", "add", "new", "--key", key, "--quota", "leases=1048577"), 1);
	CHECK(tenants_says(ctl_output.err, "quota.leases: 1048577 is out of range"));
	CHECK_INT(CTL(&h, "tenant", "add", "new", "--key", key, "--quota", "rights="), 1);
	CHECK_INT(CTL(&h, "tenant", "add", "a\x1b[2J", "--key", key), 1);
	CHECK(strchr(ctl_output.err, '\x1b') == NULL);
	CHECK_INT(CTL(&h, "tenant", "add", name, "--key", key), 1);
	CHECK_INT(CTL(&h, "tenant", "show", name), 1);
	CHECK_INT(harness_count_lines(ctl_output.err), 1);
	CHECK_INT(CTL(&h, "tenant", "show", "\xff"), 2);
	after = tenants_list(&h);
	CHECK_STR(after, before);
	free(before);
	free(after);
	CHECK_INT(harness_stop(&h), 0);
}

TEST(mempoolctl__over_quota_and_banned)
{
	HARNESS(h, .limits = "\"ban_after\": 0, \"strikes_max\": 1, \"heartbeat\": \"0\"");
	SESSION(beta, "beta");
	mempool_lease *lease;

	CHECK_INT(harness_acquire(beta, PAGE, TTL_MS, &lease), 0);
	CHECK_INT(CTL(&h, "tenant", "set", "beta", "--quota", "leases=0"), 0);
	CHECK_INT(CTL(&h, "tenant", "show", "beta"), 0);
	CHECK(tenants_says(ctl_output.out, "over quota\n"));
	CHECK_INT(CTL(&h, "tenant", "list"), 0);
	CHECK(tenants_says(ctl_output.out, "over quota"));
	{
		PEER(alpha, "alpha");

		break_the_protocol(&alpha);
	}
	CHECK_INT(CTL(&h, "tenant", "list"), 0);
	CHECK(tenants_says(ctl_output.out, "banned"));
	CHECK_INT(CTL(&h, "tenant", "unban", "alpha"), 0);
	CHECK_STR(ctl_output.out, "tenant alpha unbanned\n");
	CHECK_INT(CTL(&h, "tenant", "list"), 0);
	CHECK(strstr(ctl_output.out, "banned") == NULL);
}
