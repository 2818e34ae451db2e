/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Lists that the daemon gives whole: which rows are shown, in which order, is seen to here.
 * Keeps nothing.
 */
#include "client/ctl/list.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/units.h"

#define COLUMN_PATH_MAX 64

/* A row and what it is sorted by. */
struct sorted_row {
	json_t *row;
	const json_t *value; /* NULL: none */
	size_t index;	     /* rows that are alike stay in their order */
};

static bool matches_text(const json_t *row, const char *member, const char *wanted)
{
	const char *text = json_string_value(json_object_get(row, member));

	return wanted == NULL || (text != NULL && !strcmp(text, wanted));
}

static bool is_wanted(const struct options *options, const json_t *row)
{
	const json_t *session = json_object_get(row, "session");

	if ((options->given & TAKES_SESSION) != 0 &&
	    (!json_is_integer(session) ||
	     json_integer_value(session) != (json_int_t)options->session))
		return false;
	return matches_text(row, "tenant", options->tenant) &&
	       matches_text(row, "state", options->state);
}

static void filter(const struct options *options, json_t *rows)
{
	for (size_t i = json_array_size(rows); i-- > 0;) {
		if (!is_wanted(options, json_array_get(rows, i)))
			(void)json_array_remove(rows, i);
	}
}

/* "16GiB" is more than "2GiB"; what is no size is compared as text. */
static int compare_texts(const char *a, const char *b)
{
	uint64_t x, y;

	if (units_parse_size(a, &x) == 0 && units_parse_size(b, &y) == 0)
		return (x > y) - (x < y);
	return strcmp(a, b);
}

static int compare_values(const json_t *a, const json_t *b)
{
	json_int_t x = json_integer_value(a), y = json_integer_value(b);

	if (json_is_string(a) && json_is_string(b))
		return compare_texts(json_string_value(a), json_string_value(b));
	if (json_is_array(a) && json_is_array(b)) {
		x = (json_int_t)json_array_size(a);
		y = (json_int_t)json_array_size(b);
		return (x > y) - (x < y);
	}
	if (json_is_integer(a) && json_is_integer(b))
		return (x > y) - (x < y);
	return (json_typeof(a) > json_typeof(b)) - (json_typeof(a) < json_typeof(b));
}

static int compare_rows(const void *a, const void *b)
{
	const struct sorted_row *x = a, *y = b;
	int order = 0;

	if (x->value == NULL || y->value == NULL)
		order = (x->value == NULL) - (y->value == NULL);
	else
		order = compare_values(x->value, y->value);
	return order != 0 ? order : (x->index > y->index) - (x->index < y->index);
}

static int sort_rows(json_t *rows, const char *path)
{
	size_t count = json_array_size(rows);
	struct sorted_row *sorted = calloc(count + 1, sizeof(*sorted));
	const json_t *value;

	if (sorted == NULL)
		return -1;
	for (size_t i = 0; i < count; i++) {
		json_t *row = json_incref(json_array_get(rows, i));

		value = table_look_up(row, path);
		sorted[i] = (struct sorted_row){
			.row = row, .value = json_is_null(value) ? NULL : value, .index = i};
	}
	qsort(sorted, count, sizeof(*sorted), compare_rows);
	(void)json_array_clear(rows);
	for (size_t i = 0; i < count; i++)
		(void)json_array_append_new(rows, sorted[i].row);
	free(sorted);
	return 0;
}

static void reverse_rows(json_t *rows)
{
	json_t *copy = json_copy(rows);

	(void)json_array_clear(rows);
	for (size_t i = json_array_size(copy); i-- > 0;)
		(void)json_array_append(rows, json_array_get(copy, i));
	json_decref(copy);
}

enum exit_status list_select(const struct options *options, const struct table_field *fields,
			     json_t *rows)
{
	char path[COLUMN_PATH_MAX];

	if (options->sort != NULL && !table_find_path(fields, options->sort, path, sizeof(path)))
		return command_fail_usage("there is no such column to sort by: ", options->sort);
	filter(options, rows);
	if (options->sort != NULL && sort_rows(rows, path) < 0) {
		command_complain("not enough memory");
		return STATUS_PROTOCOL;
	}
	if (options->reverse)
		reverse_rows(rows);
	return STATUS_OK;
}

enum exit_status list_run(const struct options *options, const char *method, const char *member,
			  const struct table_field *fields)
{
	enum exit_status status;
	json_t *result, *rows;

	status = command_call_once(options, method, NULL, "", &result);
	if (status != STATUS_OK)
		return status;
	rows = json_object_get(result, member);
	status = list_select(options, fields, rows);
	if (status == STATUS_OK && options->json)
		command_print_json(result);
	else if (status == STATUS_OK)
		status = command_print_table(fields, rows);
	json_decref(result);
	return status;
}
