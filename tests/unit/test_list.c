/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Cases of client/ctl/list.c, client/ctl/table.c and client/ctl/options.c: which rows are shown,
 * in which order, in which colours; what options say.
 */
#include "client/ctl/list.h"

#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/ctl/options.h"
#include "tests/unit/test.h"

static const struct table_field fields[] = {
	{"ID", "{id:hex}", true},
	{"STATE", "{state:state}", false},
	{"TTL LEFT", "{ttl_left_ms:duration}", true},
	{"NESTED", "{pool.bytes:size} in all", true},
	{NULL, NULL, false},
};

static json_t *some_rows(void)
{
	json_t *rows = json_loads(
		"[{\"id\": 1, \"tenant\": \"b\", \"session\": 10, \"state\": \"active\", "
		"\"ttl_left_ms\": 300},"
		" {\"id\": 2, \"tenant\": \"a\", \"session\": 11, \"state\": \"ending\"},"
		" {\"id\": 3, \"tenant\": \"b\", \"session\": 11, \"state\": \"active\", "
		"\"ttl_left_ms\": 20},"
		" {\"id\": 4, \"tenant\": \"ab\", \"state\": \"active\", \"ttl_left_ms\": 300}]",
		0, NULL);

	if (rows == NULL)
		abort();
	return rows;
}

/* The ids of the rows that are left, "1,3" say. */
static const char *selected(const struct options *options)
{
	static char text[64];
	json_t *rows = some_rows();
	size_t used = 0;
	const json_t *row;
	size_t i;

	text[0] = '\0';
	if (list_select(options, fields, rows) != STATUS_OK)
		snprintf(text, sizeof(text), "refused");
	else
		json_array_foreach(rows, i, row) used += (size_t)snprintf(
			text + used, sizeof(text) - used, "%s%lld", i > 0 ? "," : "",
			json_integer_value(json_object_get(row, "id")));
	json_decref(rows);
	return text;
}

#define SELECTED(...) selected(&(struct options){__VA_ARGS__})

TEST(list_select__filters)
{
	CHECK_STR(SELECTED(.json = false), "1,2,3,4");
	CHECK_STR(SELECTED(.tenant = "b"), "1,3");
	CHECK_STR(SELECTED(.tenant = "a"), "2");
	CHECK_STR(SELECTED(.tenant = ""), "");
	CHECK_STR(SELECTED(.state = "active"), "1,3,4");
	CHECK_STR(SELECTED(.session = 11, .given = TAKES_SESSION), "2,3");
	/* No id is 0, and a row without a session is in none. */
	CHECK_STR(SELECTED(.session = 0, .given = TAKES_SESSION), "");
	CHECK_STR(SELECTED(.session = 11, .given = TAKES_SESSION, .tenant = "b"), "3");
}

TEST(list_select__order)
{
	CHECK_STR(SELECTED(.sort = "id"), "1,2,3,4");
	CHECK_STR(SELECTED(.sort = "ID", .reverse = true), "4,3,2,1");
	/* Rows that are alike stay as they are; one without the value is last. */
	CHECK_STR(SELECTED(.sort = "ttl-left"), "3,1,4,2");
	CHECK_STR(SELECTED(.sort = "Ttl-Left", .state = "active"), "3,1,4");
	CHECK_STR(SELECTED(.sort = "state"), "1,3,4,2");
	CHECK_STR(SELECTED(.reverse = true), "4,3,2,1");
	CHECK_STR(SELECTED(.sort = "nested"), "1,2,3,4");
}

TEST(list_select__no_such_column)
{
	CHECK_STR(SELECTED(.sort = "ttl left"), "refused");
	CHECK_STR(SELECTED(.sort = "ttl"), "refused");
	CHECK_STR(SELECTED(.sort = "ttl-left-"), "refused");
	CHECK_STR(SELECTED(.sort = ""), "refused");
}

static const char *printed(bool colours)
{
	static char text[1024];
	json_t *rows = json_loads("[{\"id\": 1, \"state\": \"active\"},"
				  " {\"id\": 2, \"state\": \"banned\"},"
				  " {\"id\": 255, \"state\": \"ending\"}]",
				  0, NULL);
	FILE *out = fmemopen(text, sizeof(text), "w");

	table_set_colours(colours);
	if (table_print(out, fields, rows) < 0)
		abort();
	table_set_colours(false);
	fclose(out);
	json_decref(rows);
	return text;
}

TEST(table_print__plain)
{
	CHECK_STR(printed(false), "  ID  STATE   TTL LEFT    NESTED\n"
				  " 0x1  active         -  - in all\n"
				  " 0x2  banned         -  - in all\n"
				  "0xff  ending         -  - in all\n");
}

/* Colours take no room. */
TEST(table_print__colours)
{
	const char *text = printed(true);
	char stripped[1024];
	size_t used = 0;

	CHECK(strstr(text, "\033[32mactive\033[0m") != NULL);
	CHECK(strstr(text, "\033[31mbanned\033[0m") != NULL);
	CHECK(strstr(text, "\033[33mending\033[0m") != NULL);
	CHECK(strstr(text, "\033[1mID\033[0m") != NULL);
	for (; *text != '\0'; text++) {
		if (*text == '\033')
			text += strcspn(text, "m");
		else
			stripped[used++] = *text;
	}
	stripped[used] = '\0';
	CHECK_STR(stripped, printed(false));
}

static enum exit_status parsed(struct options *options, const char *a, const char *b)
{
	char words[3][32];
	char *argv[4] = {words[0], words[1], words[2], NULL};
	int first;

	snprintf(words[0], sizeof(words[0]), "mempoolctl");
	snprintf(words[1], sizeof(words[1]), "%s", a);
	snprintf(words[2], sizeof(words[2]), "%s", b);
	*options = (struct options){0};
	optind = 0; /* getopt is to begin anew */
	return options_parse(options, 3, argv, &first);
}

TEST(options_parse__values)
{
	struct options options;

	CHECK_INT(parsed(&options, "--session=0x1f", "list"), STATUS_OK);
	CHECK_INT(options.session, 31);
	CHECK_INT(options.given, TAKES_SESSION);
	CHECK_STR(options.socket_path, OPTIONS_SOCKET);
	CHECK_INT(options.timeout_ms, 5000);
	CHECK_INT(parsed(&options, "--deadline", "30d"), STATUS_OK);
	CHECK_INT(options.deadline_ms, INT64_C(30) * 24 * 60 * 60 * 1000);
	CHECK_INT(parsed(&options, "--deadline", "2592000001ms"), STATUS_USAGE);
	CHECK_INT(parsed(&options, "--deadline", "0"), STATUS_OK);
	CHECK_INT(options.deadline_ms, 0);
	CHECK_INT(parsed(&options, "--timeout", "1ms"), STATUS_OK);
	CHECK_INT(options.timeout_ms, 1);
	CHECK_INT(options.given, 0);
	CHECK_INT(parsed(&options, "--timeout", "24h"), STATUS_OK);
	CHECK_INT(options.timeout_ms, 24 * 60 * 60 * 1000);
	CHECK_INT(parsed(&options, "--timeout", "86400001ms"), STATUS_USAGE);
	CHECK_INT(parsed(&options, "--timeout", "0"), STATUS_USAGE);
	CHECK_INT(parsed(&options, "--session", "-1"), STATUS_USAGE);
	CHECK_INT(parsed(&options, "--session", "9223372036854775807"), STATUS_OK);
	CHECK_INT(options.session, INT64_MAX);
	CHECK_INT(parsed(&options, "--session", "9223372036854775808"), STATUS_USAGE);
	CHECK_INT(parsed(&options, "--key", "\xff"), STATUS_USAGE);
	options_deinit(&options);
	CHECK_INT(parsed(&options, "--key=a", "--key=b"), STATUS_OK);
	CHECK_INT(json_array_size(options.keys), 2);
	options_deinit(&options);
}
