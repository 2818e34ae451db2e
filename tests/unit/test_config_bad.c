/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Wrong values for every key of the configuration, made from the table itself: of another type,
 * beyond each end of what is allowed, with a wrong unit or name, there twice, not known. Each is
 * refused with one line that names file, key, value and what is allowed; and the values at both
 * ends of what is allowed are not refused for that.
 */
#include <errno.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "common/text.h"
#include "daemon/config.h"
#include "tests/unit/test.h"

#define FILE_TEXT    64
#define PLACE_TEXT   352
#define SHOWN_BYTES  40 /* of a value that must be in the line; longer ones are cut there */
#define CASES_MIN    400
#define KEY_CASES    3
#define TEXT_TOO_BIG "99999999999999999999"

static unsigned int cases;

/* An object of the configuration that has all that it must have. */
struct place {
	json_t *root;
	json_t *object;
	char path[2 * SCHEMA_PATH_MAX]; /* "tenants[0].quota." */
};

static int load(const char *text, char *file, char *error)
{
	int fd = memfd_create("config", 0);
	struct config config;
	size_t len = strlen(text);
	int r;

	if (fd < 0 || write(fd, text, len) != (ssize_t)len)
		abort();
	snprintf(file, FILE_TEXT, "/proc/self/fd/%d", fd);
	error[0] = '\0';
	r = config_load(file, &config, error);
	close(fd);
	if (r == 0)
		config_free(&config);
	return r;
}

static int load_root(const json_t *root, char *file, char *error)
{
	char *text = json_dumps(root, JSON_COMPACT);
	int r = load(text, file, error);

	free(text);
	return r;
}

static void check_line(const struct place *place, const struct schema_key *key, const json_t *shown,
		       const char *file, const char *error)
{
	char allowed[SCHEMA_KEY_ALLOWED_MAX];
	char begin[PLACE_TEXT];
	char end[SCHEMA_KEY_ALLOWED_MAX + 16];
	char value[SHOWN_BYTES + 1];
	size_t len = strlen(error);
	char *dump;

	schema_key_describe(key, allowed);
	snprintf(begin, sizeof(begin), "%s: %s%.60s: ", file, place->path, key->name);
	snprintf(end, sizeof(end), "; allowed: %s", allowed);
	CHECK(strncmp(error, begin, strlen(begin)) == 0);
	CHECK(len > strlen(end) && strcmp(error + len - strlen(end), end) == 0);
	CHECK(strchr(error, '\n') == NULL);
	CHECK(len < CONFIG_ERROR_MAX - 1);
	if (shown == NULL || key->is_hidden)
		return;
	dump = json_dumps(shown, JSON_ENCODE_ANY | JSON_COMPACT);
	snprintf(value, sizeof(value), "%s", dump);
	free(dump);
	CHECK(strstr(error, value) != NULL);
}

/* @value: consumed; @shown: what of it the line must show, borrowed from it; NULL: nothing */
static void refuse(const struct place *place, const struct schema_key *key, json_t *value,
		   const json_t *shown)
{
	json_t *before = json_incref(json_object_get(place->object, key->name));
	char error[CONFIG_ERROR_MAX];
	char file[FILE_TEXT];
	int r;

	json_object_set(place->object, key->name, value);
	r = load_root(place->root, file, error);
	cases++;
	if (r != -EINVAL)
		printf("# %s%s was taken\n", place->path, key->name);
	CHECK_INT(r, -EINVAL);
	check_line(place, key, shown, file, error);
	if (test_has_failed())
		printf("# %s\n", error);
	if (before != NULL)
		json_object_set_new(place->object, key->name, before);
	else
		json_object_del(place->object, key->name);
	json_decref(value);
}

static void refuse_whole(const struct place *place, const struct schema_key *key, json_t *value)
{
	refuse(place, key, value, value);
}

static void refuse_text(const struct place *place, const struct schema_key *key, const char *text)
{
	refuse_whole(place, key, json_string(text));
}

/* Other rules, that tie keys together, may have something against a value; this key has not. */
static void take(const struct place *place, const struct schema_key *key, json_t *value)
{
	json_t *before = json_incref(json_object_get(place->object, key->name));
	char allowed[SCHEMA_KEY_ALLOWED_MAX];
	char error[CONFIG_ERROR_MAX];
	char file[FILE_TEXT];

	json_object_set_new(place->object, key->name, value);
	(void)load_root(place->root, file, error);
	schema_key_describe(key, allowed);
	if (strstr(error, allowed) != NULL)
		printf("# %s\n", error);
	CHECK(strstr(error, allowed) == NULL);
	if (before != NULL)
		json_object_set_new(place->object, key->name, before);
	else
		json_object_del(place->object, key->name);
}

static json_t *number(const struct schema_key *key, uint64_t value)
{
	char text[32];

	if (key->type == SCHEMA_UINT)
		return json_integer((json_int_t)value);
	snprintf(text, sizeof(text), "%" PRIu64 "%s", value,
		 key->type == SCHEMA_DURATION ? "ms" : "B");
	return json_string(text);
}

/* Both ends, and one beyond each. */
static void try_range(const struct place *place, const struct schema_key *key)
{
	uint64_t min = schema_key_table_number(key->type, key->min);
	uint64_t max = schema_key_table_number(key->type, key->max);

	take(place, key, number(key, min));
	take(place, key, number(key, max));
	refuse_whole(place, key, number(key, max + 1));
	if (min > 0)
		refuse_whole(place, key, number(key, min - 1));
	if (key->multiple != NULL)
		refuse_whole(place, key, number(key, min + 1));
}

static void try_measure(const struct place *place, const struct schema_key *key)
{
	static const char *const units[2][9] = {
		{"1XiB", "1 GiB", "-1GiB", "1.5GiB", "GiB", "", "1GiBs", "1gib", "0x10"},
		{"1m", "1 s", "-1s", "1.5s", "s", "", "1sec", "1S", "10"},
	};

	try_range(place, key);
	for (int i = 0; i < 9; i++)
		refuse_text(place, key, units[key->type == SCHEMA_DURATION][i]);
	refuse_text(place, key, TEXT_TOO_BIG);
	refuse_whole(place, key, json_integer(1));
}

static void try_uint(const struct place *place, const struct schema_key *key)
{
	try_range(place, key);
	refuse_whole(place, key, json_integer(-1));
	refuse_whole(place, key, json_integer(INT64_MAX));
	refuse_whole(place, key, json_real(1.5));
	refuse_text(place, key, "1");
}

/* A text of so many bytes. */
static json_t *text_of(size_t len)
{
	char *text = malloc(len + 1);
	json_t *value;

	if (text == NULL)
		abort();
	memset(text, '1', len);
	text[len] = '\0';
	value = json_string(text);
	free(text);
	return value;
}

static void try_string(const struct place *place, const struct schema_key *key)
{
	uint64_t min = schema_key_table_number(key->type, key->min);
	uint64_t max = schema_key_table_number(key->type, key->max);

	refuse_whole(place, key, text_of(max + 1));
	if (min > 0)
		refuse_whole(place, key, text_of(min - 1));
	refuse(place, key, json_string("a\nb"), NULL);
	refuse(place, key, json_string("a\x7f"), NULL);
	refuse_whole(place, key, json_integer(1));
}

static void try_names(const struct place *place, const struct schema_key *key)
{
	char upper[64];

	snprintf(upper, sizeof(upper), "%s", key->names[0]);
	upper[0] = (char)(upper[0] ^ ' ');
	if (key->type == SCHEMA_ENUM) {
		refuse_text(place, key, "nonsense");
		refuse_text(place, key, upper);
		refuse_text(place, key, "");
		refuse_whole(place, key, json_integer(0));
		return;
	}
	refuse(place, key, json_pack("[s]", "nonsense"), NULL);
	refuse(place, key, json_pack("[s]", upper), NULL);
	refuse(place, key, json_pack("[ss]", key->names[0], key->names[0]), NULL);
	refuse_whole(place, key, json_pack("[i]", 1));
	refuse_text(place, key, key->names[0]);
}

static void try_list(const struct place *place, const struct schema_key *key)
{
	uint64_t max = schema_key_table_number(key->type, key->max);
	uint64_t min = schema_key_table_number(key->type, key->min);
	json_t *many = json_array();

	for (uint64_t i = 0; i <= max; i++)
		json_array_append_new(many,
				      key->type == SCHEMA_LIST ? json_string("x") : json_object());
	refuse_whole(place, key, many);
	if (min > 0)
		refuse_whole(place, key, json_array());
	refuse_text(place, key, "x");
	refuse_whole(place, key, json_object());
	if (key->type == SCHEMA_LIST) {
		refuse_whole(place, key, json_pack("[i]", 1));
		refuse_whole(place, key, json_pack("[n]"));
	}
	if (key->is_valid != NULL || key->decode != NULL)
		refuse(place, key, json_pack("[s]", "nonsense"), NULL);
}

static void try_key(const struct place *place, const struct schema_key *key)
{
	unsigned int before = cases;

	switch (key->type) {
	case SCHEMA_STRING:
		try_string(place, key);
		break;
	case SCHEMA_SIZE:
	case SCHEMA_DURATION:
		try_measure(place, key);
		break;
	case SCHEMA_UINT:
		try_uint(place, key);
		break;
	case SCHEMA_ENUM:
	case SCHEMA_FLAGS:
		try_names(place, key);
		break;
	case SCHEMA_LIST:
	case SCHEMA_OBJECTS:
		try_list(place, key);
		break;
	case SCHEMA_OBJECT:
		return; /* its own line is the object's, see below */
	}
	/* What no key takes. */
	refuse_whole(place, key, json_null());
	refuse_whole(place, key, json_true());
	CHECK(cases - before >= KEY_CASES);
}

static void try_table(const struct place *place, const struct schema_table *table,
		      void (*try)(const struct place *place, const struct schema_key *key));

/* The object that a key stands for, or the first of its list. */
static void enter(const struct place *place, const struct schema_key *key,
		  void (*try)(const struct place *place, const struct schema_key *key))
{
	json_t *value = json_object_get(place->object, key->name);
	struct place inner = {
		.root = place->root,
		.object = key->type == SCHEMA_OBJECTS ? json_array_get(value, 0) : value,
	};

	snprintf(inner.path, sizeof(inner.path), "%.100s%.60s%s.", place->path, key->name,
		 key->type == SCHEMA_OBJECTS ? "[0]" : "");
	CHECK(inner.object != NULL);
	try_table(&inner, key->table, try);
}

static void try_table(const struct place *place, const struct schema_table *table,
		      void (*try)(const struct place *place, const struct schema_key *key))
{
	for (size_t i = 0; i < table->count && !test_has_failed(); i++) {
		try(place, &table->keys[i]);
		if (table->keys[i].table != NULL)
			enter(place, &table->keys[i], try);
	}
}

static void try_all(void (*try)(const struct place *place, const struct schema_key *key))
{
	struct place place = {
		.root = json_pack("{s:[s],s:s,s:[{s:s,s:[s],s:{}}]}", "listen", "10.77.0.1:7471",
				  "pool_size", "1GiB", "tenants", "name", "alpha", "keys",
				  "cHV0IHRoZSBwdWJsaWMga2V5IG9mIGFscGhhIGhlcmU=", "quota"),
	};
	char error[CONFIG_ERROR_MAX];
	char file[FILE_TEXT];

	place.object = place.root;
	CHECK_INT(load_root(place.root, file, error), 0);
	cases = 0;
	try_table(&place, config_schema(), try);
	json_decref(place.root);
}

TEST(config_load__wrong_values_of_every_key)
{
	try_all(try_key);
	printf("# %u wrong values\n", cases);
	CHECK(cases >= CASES_MIN);
}

/* One letter more is another key, wherever it stands. */
static void try_unknown(const struct place *place, const struct schema_key *key)
{
	char name[64];
	char expected[CONFIG_ERROR_MAX];
	char error[CONFIG_ERROR_MAX];
	char file[FILE_TEXT];

	snprintf(name, sizeof(name), "%sx", key->name);
	json_object_set_new(place->object, name, json_integer(1));
	CHECK_INT(load_root(place->root, file, error), -EINVAL);
	snprintf(expected, sizeof(expected),
		 "%s: %s%s: is not a known key; mempoold --help-config lists all", file,
		 place->path, name);
	CHECK_STR(error, expected);
	json_object_del(place->object, name);
	cases++;
}

TEST(config_load__unknown_keys)
{
	try_all(try_unknown);
	CHECK(cases > 50);
}

/* The second of two alike is refused, even with the same value; JSON's writer makes none. */
static void try_twice(const struct place *place, const struct schema_key *key)
{
	char *text = json_dumps(place->root, JSON_COMPACT);
	char *object = json_dumps(place->object, JSON_COMPACT);
	char *at = strstr(text, object);
	char *twice = malloc(strlen(text) + 256);
	char expected[160];
	char error[CONFIG_ERROR_MAX];
	char file[FILE_TEXT];

	if (twice == NULL || at == NULL)
		abort();
	sprintf(twice, "%.*s{\"%s\":1,\"%s\":1%s%s", (int)(at - text), text, key->name, key->name,
		at[1] == '}' ? "" : ",", at + 1);
	CHECK_INT(load(twice, file, error), -EINVAL);
	snprintf(expected, sizeof(expected), "%s: line 1: duplicate object key near '\"%s\"'", file,
		 key->name);
	CHECK_STR(error, expected);
	free(twice);
	free(object);
	free(text);
	cases++;
}

TEST(config_load__keys_that_are_there_twice)
{
	try_all(try_twice);
	CHECK(cases > 50);
}

/* Without one that has no default nothing is taken; the line says what it may be. */
static void try_missing(const struct place *place, const struct schema_key *key)
{
	json_t *before = json_incref(json_object_get(place->object, key->name));
	char allowed[SCHEMA_KEY_ALLOWED_MAX];
	char expected[CONFIG_ERROR_MAX];
	char error[CONFIG_ERROR_MAX];
	char file[FILE_TEXT];

	json_object_del(place->object, key->name);
	if (key->default_text == NULL) {
		CHECK_INT(load_root(place->root, file, error), -EINVAL);
		schema_key_describe(key, allowed);
		snprintf(expected, sizeof(expected),
			 "%s: %s%s: is required and missing; allowed: %s", file, place->path,
			 key->name, allowed);
		CHECK_STR(error, expected);
		cases++;
	} else {
		CHECK_INT(load_root(place->root, file, error), 0);
	}
	if (before != NULL)
		json_object_set_new(place->object, key->name, before);
}

TEST(config_load__missing_keys)
{
	try_all(try_missing);
	CHECK_INT(cases, 4); /* listen, pool_size; name and keys of a tenant */
}

/* Too large for any number here: the reader itself refuses it, by line and value. */
TEST(config_load__number_beyond_64_bits)
{
	char error[CONFIG_ERROR_MAX];
	char expected[160];
	char file[FILE_TEXT];

	CHECK_INT(load("{\n\"sessions_max\": " TEXT_TOO_BIG "}", file, error), -EINVAL);
	snprintf(expected, sizeof(expected), "%s: line 2: too big integer near '" TEXT_TOO_BIG "'",
		 file);
	CHECK_STR(error, expected);
}
