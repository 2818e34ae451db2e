/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * daemon/tenant_state.c: what was saved comes back the same, nothing is saved that could not
 * be loaded, and how it comes on top of the configuration.
 */
#include "daemon/tenant_state.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/unit/tenants.h"
#include "tests/unit/test.h"

#define KEY_ONE "AQAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA="

struct place {
	char folder[64];
	char path[96];
	char error[SCHEMA_ERROR_MAX];
};

static void place_make(struct place *place)
{
	memset(place, 0, sizeof(*place));
	strcpy(place->folder, "/tmp/test_tenant_state.XXXXXX");
	if (!mkdtemp(place->folder))
		abort();
	snprintf(place->path, sizeof(place->path), "%s/tenants.json", place->folder);
}

/* Is there nothing in the folder but the file? */
static bool place_remove(const struct place *place)
{
	(void)unlink(place->path);
	return rmdir(place->folder) == 0;
}

/* The error without the path in front. */
static const char *error_of(const struct place *place)
{
	size_t len = strlen(place->path);

	return strncmp(place->error, place->path, len) != 0 ? "another file" : place->error + len;
}

static void check_refused(const char *text, const char *error)
{
	struct tenant_state state, untouched;
	struct place place;
	int fd, r;

	place_make(&place);
	fd = open(place.path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
	if (fd < 0 || write(fd, text, strlen(text)) != (ssize_t)strlen(text))
		abort();
	close(fd);
	memset(&state, 0x5a, sizeof(state));
	untouched = state;
	r = tenant_state_load(place.path, &state, place.error);
	CHECK(place_remove(&place));
	CHECK_STR(error_of(&place), error);
	CHECK_INT(r, -EINVAL);
	CHECK_MEM(&state, &untouched, sizeof(state));
}

/* Saved, loaded and compared. */
static void check_round_trip(const struct tenant_state *state)
{
	struct tenant_state again;
	struct place place;
	struct stat status;

	place_make(&place);
	CHECK_INT(tenant_state_save(place.path, state, place.error), 0);
	CHECK_INT(stat(place.path, &status), 0);
	CHECK_INT(status.st_mode & 07777, 0600);
	CHECK_INT(tenant_state_load(place.path, &again, place.error), 0);
	CHECK_STR(place.error, "");
	CHECK(place_remove(&place));
	CHECK_INT(again.tenant_count, state->tenant_count);
	for (size_t i = 0; i < again.tenant_count; i++)
		CHECK(tenants_equal(&again.tenants[i], &state->tenants[i]));
	CHECK_INT(again.removed_count, state->removed_count);
	for (size_t i = 0; i < again.removed_count; i++)
		CHECK_STR(again.removed[i], state->removed[i]);
	tenant_state_free(&again);
	CHECK(!again.tenants && !again.removed);
	CHECK_INT(again.tenant_count + again.removed_count, 0);
	tenant_state_free(&again);
}

TEST(tenant_state_load__no_file)
{
	struct tenant_state state;
	struct place place;

	place_make(&place);
	memset(&state, 0x5a, sizeof(state));
	CHECK_INT(tenant_state_load(place.path, &state, place.error), 0);
	CHECK(!state.tenants && !state.removed);
	CHECK_INT(state.tenant_count + state.removed_count, 0);
	CHECK(place_remove(&place));
	/* Nor a folder. */
	CHECK_INT(tenant_state_load(place.path, &state, place.error), 0);
	CHECK_STR(place.error, "");
}

TEST(tenant_state_save__round_trip)
{
	struct tenant_state state = {0};
	struct tenant_settings a = tenants_make("a", 1), b = tenants_make("b", 2);

	check_round_trip(&state);
	b.quota.limit[TENANT_BYTES] = 4097;
	b.quota.rights = 2;
	tenants_key(9, b.keys[1]);
	b.key_count = 2;
	CHECK_INT(tenant_state_put(&state, &a), 0);
	CHECK_INT(tenant_state_put(&state, &b), 0);
	CHECK_INT(tenant_state_remove(&state, "c"), 0);
	CHECK_INT(tenant_state_remove(&state, "\"\\"), 0);
	CHECK_INT(state.tenant_count, 2);
	CHECK_INT(state.removed_count, 2);
	check_round_trip(&state);
	tenant_state_free(&state);
}

/* As long as the file can get. */
TEST(tenant_state_save__longest)
{
	struct tenant_state state = {0};

	state.tenants = tenants_many(TENANT_SETTINGS_MAX, 0);
	state.removed = calloc(TENANT_SETTINGS_MAX, sizeof(state.removed[0]));
	CHECK(state.removed);
	for (uint32_t i = 0; i < TENANT_SETTINGS_MAX; i++) {
		struct tenant_settings *settings = &state.tenants[i];

		for (uint32_t k = 0; k < TENANT_KEYS_MAX; k++)
			tenants_key(i * TENANT_KEYS_MAX + k, settings->keys[k]);
		settings->key_count = TENANT_KEYS_MAX;
		/* A character that JSON escapes. */
		snprintf(settings->name, sizeof(settings->name), "%04u%.*s", i, 60,
			 "\\\\\\\\\\\\\\\\\\\\\\\\\\\\\\\\\\\\\\\\\\\\\\\\\\\\\\\\\\\\"
			 "\\\\\\\\\\\\\\\\\\\\\\\\\\\\\\\\\\\\\\\\\\\\\\\\\\\\\\\\\\\\");
		CHECK_INT(strlen(settings->name), 64);
		memcpy(state.removed[i], settings->name, sizeof(state.removed[i]));
		state.removed[i][PROTO_TENANT_NAME_MAX - 1] = 'r';
	}
	state.tenant_count = TENANT_SETTINGS_MAX;
	state.removed_count = TENANT_SETTINGS_MAX;
	check_round_trip(&state);
	tenant_state_free(&state);
}

TEST(tenant_state_load__refused)
{
	check_refused("[]", ": is not a JSON object");
	check_refused("{", ": line 1: string or '}' expected near end of file");
	check_refused("{\"tenant\":[]}",
		      ": tenant: is not a known key; mempoold --help-config lists "
		      "all");
	check_refused("{\"tenants\":[{\"name\":\"a\"}]}",
		      ": tenants[0].keys: is required and missing; allowed: 1..8 entries of the "
		      "form base64 of 32 bytes");
	check_refused(
		"{\"tenants\":[{\"name\":\"a\",\"keys\":[\"" KEY_ONE "\"]},"
		"{\"name\":\"b\",\"keys\":[\"" KEY_ONE "\"]}]}",
		": tenants[1].keys[0]: a key of \"b\" is tenants[0].keys[0] of \"a\" as well; "
		"allowed: each key once");
	check_refused("{\"removed\":[\"a b\"]}",
		      ": removed: \"a b\" is not valid; allowed: 0..4096 "
		      "entries of the form a tenant's name");
	check_refused("{\"removed\":[\"\"]}", ": removed: \"\" is not valid; allowed: 0..4096 "
					      "entries of the form a tenant's name");
	check_refused("{\"removed\":[\"b\",\"a\",\"c\",\"a\"]}",
		      ": removed[3]: \"a\" is another entry as well; allowed: each name once");
	check_refused("{\"removed\":[\"b\",\"a\"],"
		      "\"tenants\":[{\"name\":\"a\",\"keys\":[\"" KEY_ONE "\"]}]}",
		      ": removed[1]: \"a\" is a tenant's name as well; allowed: each name once");
}

TEST(tenant_state_load__counts)
{
	struct tenant_state state = {0};
	struct place place;

	state.tenants = tenants_many(TENANT_SETTINGS_MAX + 1, 0);
	state.tenant_count = TENANT_SETTINGS_MAX + 1;
	place_make(&place);
	CHECK_INT(tenant_state_save(place.path, &state, place.error), -EINVAL);
	CHECK_STR(error_of(&place),
		  ": tenants: has too few or too many entries; allowed: 0..4096 entries");
	state.tenant_count = TENANT_SETTINGS_MAX;
	CHECK_INT(tenant_state_put(&state, &state.tenants[TENANT_SETTINGS_MAX]), -ENOSPC);
	CHECK_INT(state.tenant_count, TENANT_SETTINGS_MAX);
	/* One that is there can be replaced. */
	CHECK_INT(tenant_state_put(&state, &state.tenants[4095]), 0);
	CHECK_INT(state.tenant_count, TENANT_SETTINGS_MAX);
	tenant_state_free(&state);
	CHECK(place_remove(&place));
}

TEST(tenant_state_remove__count)
{
	struct tenant_state state = {0};
	char name[16];

	for (int i = 0; i < TENANT_SETTINGS_MAX; i++) {
		snprintf(name, sizeof(name), "t%d", i);
		CHECK_INT(tenant_state_remove(&state, name), 0);
	}
	CHECK_INT(tenant_state_remove(&state, "t4096"), -ENOSPC);
	CHECK_INT(tenant_state_remove(&state, "t0"), 0);
	CHECK_INT(state.removed_count, TENANT_SETTINGS_MAX);
	tenant_state_free(&state);
}

/* A state that cannot be loaded is not saved, and does not cost the one that is there. */
TEST(tenant_state_save__refused)
{
	struct tenant_state state = {0}, again;
	struct tenant_settings a = tenants_make("a", 1), b = tenants_make("b", 1);
	struct place place;

	place_make(&place);
	CHECK_INT(tenant_state_put(&state, &a), 0);
	CHECK_INT(tenant_state_save(place.path, &state, place.error), 0);
	CHECK_INT(tenant_state_put(&state, &b), 0);
	CHECK_INT(tenant_state_save(place.path, &state, place.error), -EINVAL);
	CHECK_STR(error_of(&place), ": tenants[1].keys[0]: a key of \"b\" is tenants[0].keys[0] of "
				    "\"a\" as well; allowed: each key once");
	tenant_state_free(&state);
	CHECK_INT(tenant_state_load(place.path, &again, place.error), 0);
	CHECK_INT(again.tenant_count, 1);
	CHECK(tenants_equal(&again.tenants[0], &a));
	tenant_state_free(&again);
	CHECK(place_remove(&place));
}

TEST(tenant_state_put__replaces_and_takes_back)
{
	struct tenant_state state = {0};
	struct tenant_settings settings = tenants_make("a", 1);

	CHECK_INT(tenant_state_remove(&state, "b"), 0);
	CHECK_INT(tenant_state_remove(&state, "a"), 0);
	CHECK_INT(tenant_state_remove(&state, "c"), 0);
	CHECK_INT(tenant_state_remove(&state, "a"), 0);
	CHECK_INT(state.removed_count, 3);
	CHECK_INT(tenant_state_put(&state, &settings), 0);
	CHECK_INT(state.removed_count, 2);
	CHECK_STR(state.removed[0], "b");
	CHECK_STR(state.removed[1], "c");
	settings.quota.rights = 1;
	CHECK_INT(tenant_state_put(&state, &settings), 0);
	CHECK_INT(state.tenant_count, 1);
	CHECK_INT(state.tenants[0].quota.rights, 1);
	settings = tenants_make("d", 4);
	CHECK_INT(tenant_state_put(&state, &settings), 0);
	CHECK_INT(tenant_state_remove(&state, "a"), 0);
	CHECK_INT(state.tenant_count, 1);
	CHECK_STR(state.tenants[0].name, "d");
	CHECK_STR(state.removed[2], "a");
	tenant_state_free(&state);
}

static int merge(const struct tenant_settings *configured, size_t count,
		 const struct tenant_state *state, struct tenant_settings **ret_list,
		 size_t *ret_count, char *error)
{
	error[0] = '\0';
	*ret_list = NULL;
	*ret_count = 77;
	return tenant_state_merge(configured, count, state, ret_list, ret_count, error);
}

/* Neither added nor removed: the configuration's word holds. */
TEST(tenant_state_forget__both_lists)
{
	struct tenant_settings a = tenants_make("a", 1), b = tenants_make("b", 2);
	struct tenant_state state = {0};

	CHECK_INT(tenant_state_put(&state, &a), 0);
	CHECK_INT(tenant_state_put(&state, &b), 0);
	CHECK_INT(tenant_state_remove(&state, "c"), 0);
	CHECK_INT(tenant_state_remove(&state, "d"), 0);
	tenant_state_forget(&state, "x");
	CHECK_INT(state.tenant_count, 2);
	CHECK_INT(state.removed_count, 2);
	tenant_state_forget(&state, "a");
	tenant_state_forget(&state, "c");
	CHECK_INT(state.tenant_count, 1);
	CHECK_STR(state.tenants[0].name, "b");
	CHECK_INT(state.removed_count, 1);
	CHECK_STR(state.removed[0], "d");
	tenant_state_free(&state);
}

TEST(tenant_state_merge__nothing)
{
	const struct tenant_settings configured[] = {tenants_make("a", 1), tenants_make("b", 2)};
	struct tenant_state state = {0};
	struct tenant_settings *list;
	char error[SCHEMA_ERROR_MAX];
	size_t count;

	CHECK_INT(merge(NULL, 0, &state, &list, &count, error), 0);
	CHECK(!list);
	CHECK_INT(count, 0);
	CHECK_INT(merge(configured, 2, &state, &list, &count, error), 0);
	CHECK_INT(count, 2);
	CHECK(tenants_equal(&list[0], &configured[0]));
	CHECK(tenants_equal(&list[1], &configured[1]));
	free(list);
	CHECK_INT(tenant_state_remove(&state, "b"), 0);
	CHECK_INT(tenant_state_remove(&state, "a"), 0);
	CHECK_INT(tenant_state_remove(&state, "unheard-of"), 0);
	CHECK_INT(merge(configured, 2, &state, &list, &count, error), 0);
	CHECK(!list);
	CHECK_INT(count, 0);
	tenant_state_free(&state);
}

TEST(tenant_state_merge__replaced_added_removed)
{
	const struct tenant_settings configured[] = {tenants_make("c", 1), tenants_make("b", 2),
						     tenants_make("a", 3)};
	/* One of a key that the configuration gives to a tenant that is removed. */
	const struct tenant_settings saved[] = {tenants_make("z", 2), tenants_make("a", 4),
						tenants_make("y", 5)};
	struct tenant_state state = {0};
	struct tenant_settings *list;
	char error[SCHEMA_ERROR_MAX];
	size_t count;

	for (int i = 0; i < 3; i++)
		CHECK_INT(tenant_state_put(&state, &saved[i]), 0);
	CHECK_INT(tenant_state_remove(&state, "b"), 0);
	CHECK_INT(merge(configured, 3, &state, &list, &count, error), 0);
	CHECK_STR(error, "");
	CHECK_INT(count, 4);
	CHECK(tenants_equal(&list[0], &configured[0]));
	CHECK(tenants_equal(&list[1], &saved[1]));
	CHECK(tenants_equal(&list[2], &saved[0]));
	CHECK(tenants_equal(&list[3], &saved[2]));
	free(list);
	tenant_state_free(&state);
}

TEST(tenant_state_merge__keys_conflict)
{
	const struct tenant_settings configured[] = {tenants_make("c", 1), tenants_make("b", 2)};
	const struct tenant_settings saved = tenants_make("z", 2);
	struct tenant_state state = {0};
	struct tenant_settings *list;
	char error[SCHEMA_ERROR_MAX];
	size_t count;

	CHECK_INT(tenant_state_put(&state, &saved), 0);
	CHECK_INT(merge(configured, 2, &state, &list, &count, error), -EINVAL);
	CHECK_STR(error, "configuration with what was saved: tenants[2].keys[0]: a key of \"z\" is "
			 "tenants[1].keys[0] of \"b\" as well; allowed: each key once");
	CHECK(!list);
	CHECK_INT(count, 77);
	tenant_state_free(&state);
}

TEST(tenant_state_merge__count)
{
	struct tenant_settings *configured = tenants_many(TENANT_SETTINGS_MAX, 0);
	struct tenant_settings saved = tenants_make("t0", 1000000);
	struct tenant_state state = {0};
	struct tenant_settings *list;
	char error[SCHEMA_ERROR_MAX];
	size_t count;

	/* One more that replaces. */
	CHECK_INT(tenant_state_put(&state, &saved), 0);
	CHECK_INT(merge(configured, TENANT_SETTINGS_MAX, &state, &list, &count, error), 0);
	CHECK_INT(count, TENANT_SETTINGS_MAX);
	CHECK(tenants_equal(&list[0], &saved));
	CHECK(tenants_equal(&list[4095], &configured[4095]));
	free(list);
	/* One more that is added, then with room for it. */
	saved = tenants_make("t4096", 1000001);
	CHECK_INT(tenant_state_put(&state, &saved), 0);
	CHECK_INT(merge(configured, TENANT_SETTINGS_MAX, &state, &list, &count, error), -EINVAL);
	CHECK_STR(error, "configuration with what was saved: tenants: are 4097; allowed: 0..4096 "
			 "entries");
	CHECK_INT(tenant_state_remove(&state, "t7"), 0);
	CHECK_INT(merge(configured, TENANT_SETTINGS_MAX, &state, &list, &count, error), 0);
	CHECK_INT(count, TENANT_SETTINGS_MAX);
	CHECK(tenants_equal(&list[4095], &saved));
	free(list);
	free(configured);
	tenant_state_free(&state);
}
