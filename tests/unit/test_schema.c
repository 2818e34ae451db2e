/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * daemon/schema.c and daemon/schema_key.c: a table with every type, objects within objects
 * and lists of them. What is read is written the same way again; every refusal names file,
 * path, value and what is allowed.
 */
#include "daemon/schema.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "common/strict_json.h"
#include "tests/unit/test.h"

struct leaf {
	uint64_t number;
	char text[9];
};

struct branch {
	uint64_t size_bytes;
	struct leaf leaf;
	struct leaf *leaves;
	size_t leaf_count;
};

struct trunk {
	char text[9];
	uint64_t size_bytes;
	uint64_t time_ms;
	uint64_t number;
	int choice;
	uint32_t flags;
	char fixed[2][5];
	size_t fixed_count;
	uint8_t (*bytes)[1];
	size_t byte_count;
	struct branch branch;
	struct branch *branches;
	size_t branch_count;
};

static const char *const colours[] = {"red", "green", "blue", NULL};

/* One digit; stands for a byte of that value. */
static bool digit_decode(const char *text, void *ret_item)
{
	if (strlen(text) != 1 || *text < '0' || *text > '9')
		return false;
	*(uint8_t *)ret_item = (uint8_t)(*text - '0');
	return true;
}

static void digit_encode(const void *item, char *ret_text)
{
	ret_text[0] = (char)('0' + *(const uint8_t *)item);
	ret_text[1] = '\0';
}

static bool no_x(const char *item)
{
	return !strchr(item, 'x');
}

static const struct schema_key leaf_keys[] = {
	{.name = "number",
	 .type = SCHEMA_UINT,
	 .offset = offsetof(struct leaf, number),
	 .min = "1",
	 .max = "5",
	 .help = "required"},
	{.name = "text",
	 .type = SCHEMA_STRING,
	 .offset = offsetof(struct leaf, text),
	 .default_text = "leaf",
	 .min = "0",
	 .max = "8",
	 .help = "a text"},
};

static const struct schema_table leaf_table = {leaf_keys, 2};

static const struct schema_key branch_keys[] = {
	{.name = "size",
	 .type = SCHEMA_SIZE,
	 .offset = offsetof(struct branch, size_bytes),
	 .default_text = "2KiB",
	 .min = "1KiB",
	 .max = "1MiB",
	 .multiple = "1KiB",
	 .help = "a size"},
	{.name = "leaf",
	 .type = SCHEMA_OBJECT,
	 .offset = offsetof(struct branch, leaf),
	 .default_text = "",
	 .table = &leaf_table,
	 .help = "one"},
	{.name = "leaves",
	 .type = SCHEMA_OBJECTS,
	 .offset = offsetof(struct branch, leaves),
	 .count_offset = offsetof(struct branch, leaf_count),
	 .item_bytes = sizeof(struct leaf),
	 .is_allocated = true,
	 .default_text = "",
	 .min = "0",
	 .max = "2",
	 .table = &leaf_table,
	 .help = "some"},
};

static const struct schema_table branch_table = {branch_keys, 3};

static const struct schema_key trunk_keys[] = {
	{.name = "text",
	 .type = SCHEMA_STRING,
	 .offset = offsetof(struct trunk, text),
	 .default_text = "trunk",
	 .min = "1",
	 .max = "8",
	 .is_valid = no_x,
	 .form = "no x",
	 .help = "a text"},
	{.name = "size",
	 .type = SCHEMA_SIZE,
	 .offset = offsetof(struct trunk, size_bytes),
	 .default_text = "3MiB",
	 .min = "0",
	 .max = "64TiB",
	 .help = "a size"},
	{.name = "time",
	 .type = SCHEMA_DURATION,
	 .offset = offsetof(struct trunk, time_ms),
	 .default_text = "1min",
	 .min = "0",
	 .max = "30d",
	 .help = "a time"},
	{.name = "number",
	 .type = SCHEMA_UINT,
	 .offset = offsetof(struct trunk, number),
	 .default_text = "7",
	 .min = "0",
	 .max = "9223372036854775807",
	 .help = "a number"},
	{.name = "choice",
	 .type = SCHEMA_ENUM,
	 .offset = offsetof(struct trunk, choice),
	 .default_text = "green",
	 .names = colours,
	 .help = "a colour"},
	{.name = "flags",
	 .type = SCHEMA_FLAGS,
	 .offset = offsetof(struct trunk, flags),
	 .default_text = "red,blue",
	 .min = "1",
	 .max = "3",
	 .names = colours,
	 .help = "colours"},
	{.name = "fixed",
	 .type = SCHEMA_LIST,
	 .offset = offsetof(struct trunk, fixed),
	 .count_offset = offsetof(struct trunk, fixed_count),
	 .item_bytes = 5,
	 .default_text = "",
	 .min = "0",
	 .max = "2",
	 .help = "texts"},
	{.name = "bytes",
	 .type = SCHEMA_LIST,
	 .offset = offsetof(struct trunk, bytes),
	 .count_offset = offsetof(struct trunk, byte_count),
	 .item_bytes = 1,
	 .is_allocated = true,
	 .default_text = "",
	 .min = "0",
	 .max = "3",
	 .decode = digit_decode,
	 .encode = digit_encode,
	 .form = "one digit",
	 .is_hidden = true,
	 .help = "digits"},
	{.name = "branch",
	 .type = SCHEMA_OBJECT,
	 .offset = offsetof(struct trunk, branch),
	 .default_text = "",
	 .table = &branch_table,
	 .help = "one"},
	{.name = "branches",
	 .type = SCHEMA_OBJECTS,
	 .offset = offsetof(struct trunk, branches),
	 .count_offset = offsetof(struct trunk, branch_count),
	 .item_bytes = sizeof(struct branch),
	 .is_allocated = true,
	 .default_text = "",
	 .min = "0",
	 .max = "3",
	 .table = &branch_table,
	 .help = "some"},
};

static const struct schema_table trunk_table = {
	trunk_keys,
	sizeof(trunk_keys) / sizeof(trunk_keys[0]),
};

static void trunk_free(struct trunk *trunk)
{
	free(trunk->bytes);
	free(trunk->branch.leaves);
	for (size_t i = 0; i < trunk->branch_count; i++)
		free(trunk->branches[i].leaves);
	free(trunk->branches);
}

static json_t *parse(const char *text)
{
	char error[STRICT_JSON_ERROR_MAX];
	json_t *root;

	if (strict_json_parse(text, strlen(text), error, &root) < 0) {
		printf("# %s\n", error);
		abort();
	}
	return root;
}

static int read_text(const char *text, struct trunk *trunk, const struct schema_context *context)
{
	json_t *root = parse(text);
	int r;

	memset(trunk, 0, sizeof(*trunk));
	schema_defaults(&trunk_table, trunk);
	r = schema_read(&trunk_table, root, trunk, context);
	json_decref(root);
	return r;
}

static void check_refused(const char *text, const char *expected)
{
	char error[SCHEMA_ERROR_MAX] = "";
	struct schema_context context = {.file = "file", .error = error};
	struct trunk trunk;
	int r = read_text(text, &trunk, &context);

	trunk_free(&trunk);
	CHECK_STR(error, expected);
	CHECK_INT(r, -EINVAL);
}

TEST(schema_defaults__every_type)
{
	struct trunk t = {0};

	schema_defaults(&trunk_table, &t);
	CHECK_STR(t.text, "trunk");
	CHECK_INT(t.size_bytes, 3 << 20);
	CHECK_INT(t.time_ms, 60000);
	CHECK_INT(t.number, 7);
	CHECK_INT(t.choice, 1);
	CHECK_INT(t.flags, 5);
	CHECK_INT(t.fixed_count, 0);
	CHECK_INT(t.byte_count, 0);
	CHECK(!t.bytes);
	CHECK_INT(t.branch.size_bytes, 2048);
	CHECK_STR(t.branch.leaf.text, "leaf");
	CHECK_INT(t.branch.leaf.number, 0);
	CHECK(!t.branches);
}

/* Also the shortest exact text of each number. */
static const char everything[] =
	"{\"text\":\"abcdefgh\",\"size\":\"5GiB\",\"time\":\"90s\","
	"\"number\":9223372036854775807,\"choice\":\"blue\",\"flags\":[\"green\",\"blue\"],"
	"\"fixed\":[\"\",\"four\"],\"bytes\":[\"9\",\"0\",\"4\"],"
	"\"branch\":{\"size\":\"1MiB\",\"leaf\":{\"number\":5,\"text\":\"\"},\"leaves\":[]},"
	"\"branches\":[{\"size\":\"1KiB\",\"leaf\":{\"number\":1,\"text\":\"leaf\"},"
	"\"leaves\":[{\"number\":2,\"text\":\"a\"},{\"number\":3,\"text\":\"b\"}]}]}";

static void check_everything(const struct trunk *t)
{
	CHECK_STR(t->text, "abcdefgh");
	CHECK_INT(t->size_bytes, UINT64_C(5) << 30);
	CHECK_INT(t->time_ms, 90000);
	CHECK_INT(t->number, INT64_MAX);
	CHECK_INT(t->choice, 2);
	CHECK_INT(t->flags, 6);
	CHECK_INT(t->fixed_count, 2);
	CHECK_STR(t->fixed[0], "");
	CHECK_STR(t->fixed[1], "four");
	CHECK_INT(t->byte_count, 3);
	CHECK_INT(t->bytes[0][0], 9);
	CHECK_INT(t->bytes[1][0], 0);
	CHECK_INT(t->bytes[2][0], 4);
	CHECK_INT(t->branch.size_bytes, 1 << 20);
	CHECK_INT(t->branch.leaf.number, 5);
	CHECK_STR(t->branch.leaf.text, "");
	CHECK_INT(t->branch_count, 1);
	CHECK_INT(t->branches[0].size_bytes, 1024);
	CHECK_INT(t->branches[0].leaf.number, 1);
	CHECK_STR(t->branches[0].leaf.text, "leaf");
	CHECK_INT(t->branches[0].leaf_count, 2);
	CHECK_INT(t->branches[0].leaves[1].number, 3);
	CHECK_STR(t->branches[0].leaves[1].text, "b");
}

TEST(schema_read__every_type)
{
	char error[SCHEMA_ERROR_MAX] = "";
	struct schema_context context = {.error = error};
	struct trunk trunk;

	CHECK_INT(read_text(everything, &trunk, &context), 0);
	CHECK_STR(error, "");
	check_everything(&trunk);
	trunk_free(&trunk);
}

/* What an inner object does not say. */
TEST(schema_read__inner_defaults)
{
	char error[SCHEMA_ERROR_MAX] = "";
	struct schema_context context = {.error = error};
	struct trunk t;

	CHECK_INT(read_text("{\"branch\":{\"size\":\"1KiB\"},\"branches\":[{},{\"leaf\":"
			    "{\"number\":1},\"leaves\":[{\"number\":2}]}]}",
			    &t, &context),
		  0);
	CHECK_INT(t.branch.size_bytes, 1024);
	CHECK_STR(t.branch.leaf.text, "leaf");
	CHECK_INT(t.branch_count, 2);
	CHECK_INT(t.branches[0].size_bytes, 2048);
	CHECK_STR(t.branches[0].leaf.text, "leaf");
	CHECK_INT(t.branches[0].leaf_count, 0);
	CHECK_INT(t.branches[1].leaf.number, 1);
	CHECK_STR(t.branches[1].leaf.text, "leaf");
	CHECK_STR(t.branches[1].leaves[0].text, "leaf");
	trunk_free(&t);
}

TEST(schema_write__as_it_was_read)
{
	char error[SCHEMA_ERROR_MAX] = "";
	struct schema_context context = {.error = error};
	struct trunk trunk;
	json_t *written;
	char *dump;

	CHECK_INT(read_text(everything, &trunk, &context), 0);
	written = schema_write(&trunk_table, &trunk);
	trunk_free(&trunk);
	CHECK(written);
	dump = json_dumps(written, JSON_COMPACT);
	json_decref(written);
	CHECK(dump);
	CHECK_STR(dump, everything);
	free(dump);
}

static void check_written(uint64_t size_bytes, uint64_t time_ms, const char *size, const char *time)
{
	struct trunk trunk = {.size_bytes = size_bytes, .time_ms = time_ms, .flags = 0};
	json_t *written = schema_write(&trunk_table, &trunk);

	CHECK(written);
	CHECK_STR(json_string_value(json_object_get(written, "size")), size);
	CHECK_STR(json_string_value(json_object_get(written, "time")), time);
	CHECK_INT(json_array_size(json_object_get(written, "flags")), 0);
	json_decref(written);
}

TEST(schema_write__exact_numbers)
{
	check_written(0, 0, "0", "0");
	check_written(1, 1, "1B", "1ms");
	check_written(1023, 999, "1023B", "999ms");
	check_written(1024, 1000, "1KiB", "1s");
	check_written(1025, 1001, "1025B", "1001ms");
	check_written(UINT64_C(64) << 40, UINT64_C(2592000000), "64TiB", "30d");
	check_written((UINT64_C(64) << 40) - 1024, UINT64_C(86400000) + 3600000, "68719476735KiB",
		      "25h");
	check_written(UINT64_MAX, UINT64_MAX, "18446744073709551615B", "18446744073709551615ms");
}

TEST(schema_read__not_an_object)
{
	check_refused("[]", "file: is not a JSON object");
	check_refused("{\"branch\":[]}", "file: branch: is not a JSON object");
	check_refused("{\"branch\":{\"leaf\":1}}", "file: branch.leaf: is not a JSON object");
	check_refused("{\"branches\":[{},2]}", "file: branches[1]: is not a JSON object");
	check_refused("{\"branches\":{}}",
		      "file: branches: {} is not a list of JSON objects; allowed: 0..3 entries");
}

TEST(schema_read__unknown_key_with_its_path)
{
	check_refused("{\"a\":1}", "file: a: is not a known key; mempoold --help-config lists all");
	check_refused("{\"branch\":{\"leaf\":{\"number\":1,\"\\u0007\":1}}}",
		      "file: branch.leaf.\\x07: is not a known key; mempoold --help-config lists "
		      "all");
	check_refused("{\"branches\":[{},{\"leaves\":[{\"number\":1},{\"numbers\":1}]}]}",
		      "file: branches[1].leaves[1].numbers: is not a known key; mempoold "
		      "--help-config lists all");
}

TEST(schema_read__required_key_with_its_path)
{
	check_refused("{\"branch\":{\"leaf\":{}}}",
		      "file: branch.leaf.number: is required and missing; allowed: 1..5");
	check_refused("{\"branches\":[{\"leaves\":[{\"text\":\"\"}]}]}",
		      "file: branches[0].leaves[0].number: is required and missing; allowed: 1..5");
}

TEST(schema_read__value_with_its_path)
{
	check_refused("{\"branch\":{\"size\":\"1025B\"}}",
		      "file: branch.size: \"1025B\" is out of range; allowed: 1KiB..1MiB, a "
		      "multiple of 1KiB");
	check_refused("{\"branches\":[{},{},{\"leaf\":{\"number\":6}}]}",
		      "file: branches[2].leaf.number: 6 is out of range; allowed: 1..5");
	check_refused("{\"branches\":[{\"leaf\":{\"number\":\"1\"}}]}",
		      "file: branches[0].leaf.number: \"1\" is not a number; allowed: 1..5");
}

TEST(schema_read__counts_of_objects)
{
	check_refused("{\"branches\":[{},{},{},{}]}",
		      "file: branches: [{},{},{},{}] has too few or too many entries; allowed: "
		      "0..3 entries");
	check_refused("{\"branch\":{\"leaves\":[1,2,3]}}",
		      "file: branch.leaves: [1,2,3] has too few or too many entries; allowed: 0..2 "
		      "entries");
}

TEST(schema_read__flags)
{
	check_refused("{\"flags\":\"red\"}",
		      "file: flags: \"red\" is not a list of strings; allowed: 1..3 of "
		      "red|green|blue");
	check_refused("{\"flags\":[1]}",
		      "file: flags: [1] is not a list of strings; allowed: 1..3 of red|green|blue");
	check_refused("{\"flags\":[\"Red\"]}",
		      "file: flags: \"Red\" is not one of the choices; allowed: 1..3 of "
		      "red|green|blue");
	check_refused("{\"flags\":[\"red\",\"blue\",\"red\"]}",
		      "file: flags: \"red\" is there twice; allowed: 1..3 of red|green|blue");
	check_refused("{\"flags\":[]}",
		      "file: flags: [] has too few or too many entries; allowed: 1..3 of "
		      "red|green|blue");
}

TEST(schema_read__strings)
{
	check_refused("{\"text\":\"\"}", "file: text: \"\" is too short or too long; allowed: 1..8 "
					 "characters of the form no x");
	check_refused("{\"text\":\"123456789\"}",
		      "file: text: \"123456789\" is too short or too long; allowed: 1..8 "
		      "characters of the form no x");
	check_refused("{\"text\":\"axb\"}",
		      "file: text: \"axb\" is not valid; allowed: 1..8 characters of the form no "
		      "x");
	check_refused("{\"fixed\":[\"12345\"]}",
		      "file: fixed: \"12345\" is not valid; allowed: 0..2 entries");
	check_refused("{\"fixed\":[\"\",\"\",\"\"]}",
		      "file: fixed: [\"\",\"\",\"\"] has too few or too many entries; allowed: "
		      "0..2 entries");
}

/* A value that may be secret is in no error, whatever is wrong with it. */
TEST(schema_read__hidden_value)
{
	check_refused("{\"bytes\":[\"77\"]}",
		      "file: bytes: is not valid; allowed: 0..3 entries of the form one digit");
	check_refused("{\"bytes\":\"77\"}", "file: bytes: is not a list of strings; allowed: 0..3 "
					    "entries of the form one digit");
	check_refused("{\"bytes\":[77]}", "file: bytes: is not a list of strings; allowed: 0..3 "
					  "entries of the form one digit");
	check_refused("{\"bytes\":[\"7\",\"7\",\"7\",\"7\"]}",
		      "file: bytes: has too few or too many entries; allowed: 0..3 entries of the "
		      "form one digit");
}

TEST(schema_fail__without_file)
{
	char error[SCHEMA_ERROR_MAX];
	struct schema_context context = {.error = error};

	CHECK_INT(schema_fail(&context, NULL, "is %d", 1), -EINVAL);
	CHECK_STR(error, "is 1");
	CHECK_INT(schema_fail(&context, "key", "is %d", 2), -EINVAL);
	CHECK_STR(error, "key: is 2");
	strcpy(context.path, "a[1]");
	CHECK_INT(schema_fail(&context, NULL, "is %d", 3), -EINVAL);
	CHECK_STR(error, "a[1]: is 3");
	CHECK_INT(schema_fail(&context, "key", "is %d", 4), -EINVAL);
	CHECK_STR(error, "a[1].key: is 4");
	context.file = "\n";
	CHECK_INT(schema_fail(&context, "key", "is %d", 5), -EINVAL);
	CHECK_STR(error, "\\x0a: a[1].key: is 5");
}

/* A table of which a key of every type needs a restart, and the same keys again do not. */
static void keep_table(struct schema_key keys[2 * 8], struct schema_table *ret_table)
{
	for (size_t i = 0; i < 16; i++) {
		keys[i] = trunk_keys[i % 8];
		keys[i].needs_restart = i < 8;
		keys[i].offset += i < 8 ? 0 : sizeof(struct trunk);
		keys[i].count_offset += i < 8 ? 0 : sizeof(struct trunk);
	}
	*ret_table = (struct schema_table){keys, 16};
}

static void read_two(const char *text, struct trunk trunks[2])
{
	char error[SCHEMA_ERROR_MAX] = "";
	struct schema_context context = {.error = error};

	for (int i = 0; i < 2; i++) {
		if (read_text(text, &trunks[i], &context) < 0) {
			printf("# %s\n", error);
			abort();
		}
	}
}

#define KEEP_FIRST                                                                                \
	"{\"text\": \"long one\", \"size\": \"5KiB\", \"time\": \"7s\", \"number\": 1, "          \
	"\"choice\": "                                                                            \
	"\"red\", \"flags\": [\"red\"], \"fixed\": [\"ab\", \"cd\"], \"bytes\": [\"1\", \"2\"], " \
	"\"branch\": {\"leaf\": {\"number\": 1}}}"
#define KEEP_SECOND                                                                           \
	"{\"text\": \"b\", \"size\": \"6KiB\", \"time\": \"8s\", \"number\": 2, \"choice\": " \
	"\"blue\", \"flags\": [\"red\", \"blue\"], \"fixed\": [\"x\"], \"bytes\": [], "       \
	"\"branch\": "                                                                        \
	"{\"leaf\": {\"number\": 1}}}"

/* What needs a restart is as in the running object afterwards, and told; the rest is not. */
TEST(schema_keep__every_type)
{
	static const char *const names[] = {"text",   "size",  "time",	"number",
					    "choice", "flags", "fixed", "bytes"};
	struct trunk running[2], object[2];
	struct schema_key keys[16];
	struct schema_table table;
	json_t *kept = NULL;

	keep_table(keys, &table);
	read_two(KEEP_FIRST, running);
	read_two(KEEP_SECOND, object);
	free(object[0].bytes);
	object[0].bytes = NULL;
	CHECK_INT(schema_keep(&table, running, object, &kept), 0);
	CHECK_INT(json_array_size(kept), 8);
	for (size_t i = 0; i < 8; i++)
		CHECK_STR(json_string_value(json_array_get(kept, i)), names[i]);
	CHECK_STR(object[0].text, "long one");
	CHECK_INT(object[0].size_bytes, 5 * 1024);
	CHECK_INT(object[0].time_ms, 7000);
	CHECK_INT(object[0].number, 1);
	CHECK_INT(object[0].choice, 0);
	CHECK_INT(object[0].flags, 1);
	CHECK_INT(object[0].fixed_count, 2);
	CHECK_STR(object[0].fixed[1], "cd");
	CHECK_INT(object[0].byte_count, 2);
	CHECK_INT(object[0].bytes[1][0], 2);
	CHECK(object[0].bytes != running[0].bytes);
	CHECK_STR(object[1].text, "b");
	CHECK_INT(object[1].size_bytes, 6 * 1024);
	CHECK_INT(object[1].time_ms, 8000);
	CHECK_INT(object[1].number, 2);
	CHECK_INT(object[1].choice, 2);
	CHECK_INT(object[1].flags, 5);
	CHECK_INT(object[1].fixed_count, 1);
	CHECK_STR(object[1].fixed[0], "x");
	CHECK_INT(object[1].byte_count, 0);
	json_decref(kept);
	/* Nothing is different any more, so nothing is told. */
	CHECK_INT(schema_keep(&table, running, object, &kept), 0);
	CHECK_INT(json_array_size(kept), 0);
	json_decref(kept);
	for (int i = 0; i < 2; i++) {
		trunk_free(&running[i]);
		trunk_free(&object[i]);
	}
}

TEST(schema_print__needs_a_restart)
{
	struct schema_key keys[16];
	struct schema_table table;
	size_t len = 0, marks = 0;
	char *text = NULL;
	FILE *out = open_memstream(&text, &len);

	CHECK(out);
	keep_table(keys, &table);
	schema_print(&table, out);
	fclose(out);
	for (const char *at = text; (at = strstr(at, " (needs a restart)\n")); at++)
		marks++;
	CHECK_INT(marks, 8);
	free(text);
}

TEST(schema_print__inner_tables)
{
	static const char *const rows[] = {
		"KEY                         TYPE      DEFAULT                   ALLOWED  ",
		"\ntext                        string    trunk                     1..8 characters",
		"\nflags                       choices   red,blue                  1..3 of red",
		"\nfixed                       list      (empty)                   0..2 entries",
		"\nbranch.size                 size      2KiB                      1KiB..1MiB, a",
		"\nbranch.leaf.number          number    (required)                1..5 ",
		"\nbranches                    objects   (empty)                   0..3 entries",
		"\nbranches[].leaves           objects   (empty)                   0..2 entries",
		"\nbranches[].leaves[].text    string    leaf                      0..8 characters",
	};
	size_t len = 0, lines = 0;
	char *text = NULL;
	FILE *out = open_memstream(&text, &len);

	CHECK(out);
	schema_print(&trunk_table, out);
	fclose(out);
	for (size_t i = 0; i < len; i++)
		lines += text[i] == '\n';
	CHECK_INT(lines, 1 + 10 + 2 * (3 + 2 * 2));
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
		CHECK(strstr(text, rows[i]));
	free(text);
}
