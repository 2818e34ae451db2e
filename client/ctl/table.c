/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Turns JSON objects into aligned text by templates that the commands keep in const
 * tables. All text is ASCII after escaping, so bytes are columns. Nothing is kept
 * between calls.
 */
#include "client/ctl/table.h"

#include <errno.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "common/text.h"
#include "common/units.h"

#define CELL_MAX       1024
#define PATH_MAX_BYTES 64

#define MISSING "-"

/* Follow "a.b.c"; NULL if any of it is missing. */
static const json_t *look_up(const json_t *object, const char *path)
{
	char part[PATH_MAX_BYTES];

	while (object) {
		size_t len = strcspn(path, ".");

		if (len >= sizeof(part))
			return NULL;
		memcpy(part, path, len);
		part[len] = '\0';
		object = json_object_get(object, part);
		if (!path[len])
			return object;
		path += len + 1;
	}
	return NULL;
}

static void show_measure(const json_t *value, const char *kind, char *buf)
{
	json_int_t number = json_integer_value(value);

	if (!json_is_integer(value) || number < 0)
		snprintf(buf, CELL_MAX, MISSING);
	else if (!strcmp(kind, "size"))
		units_format_size((uint64_t)number, buf);
	else if (!strcmp(kind, "duration"))
		units_format_duration((uint64_t)number, buf);
	else
		snprintf(buf, CELL_MAX, "0x%" PRIx64, (uint64_t)number);
}

static void show_scalar(const json_t *value, char *buf)
{
	if (json_is_string(value))
		text_escape(json_string_value(value), buf, CELL_MAX);
	else if (json_is_integer(value))
		snprintf(buf, CELL_MAX, "%" JSON_INTEGER_FORMAT, json_integer_value(value));
	else if (json_is_boolean(value))
		snprintf(buf, CELL_MAX, "%s", json_is_true(value) ? "yes" : "no");
	else
		snprintf(buf, CELL_MAX, MISSING);
}

/* Joined by commas; what does not fit ends in "...". */
static void show_list(const json_t *list, char *buf)
{
	char joined[CELL_MAX], item_text[CELL_MAX];
	const json_t *item;
	size_t used = 0, i;

	snprintf(joined, sizeof(joined), MISSING);
	json_array_foreach(list, i, item)
	{
		show_scalar(item, item_text);
		used += (size_t)snprintf(joined + used, sizeof(joined) - used, "%s%s",
					 i > 0 ? "," : "", item_text);
		if (used >= sizeof(joined)) {
			memcpy(joined + sizeof(joined) - 4, "...", 4);
			break;
		}
	}
	memcpy(buf, joined, sizeof(joined));
}

static void show(const json_t *value, const char *kind, char *buf)
{
	if (*kind)
		show_measure(value, kind, buf);
	else if (json_is_array(value))
		show_list(value, buf);
	else
		show_scalar(value, buf);
}

/* @field: "path:kind" or "path", without braces */
static void show_field(const json_t *object, const char *field, size_t field_len, char *buf)
{
	char path[PATH_MAX_BYTES];
	char *kind;

	snprintf(path, sizeof(path), "%.*s", (int)field_len, field);
	kind = strchr(path, ':');
	if (kind)
		*kind++ = '\0';
	show(look_up(object, path), kind ? kind : "", buf);
}

/* What does not fit is cut. Return: the length. */
static size_t fill_in(const json_t *object, const char *template, char *buf)
{
	char field[CELL_MAX];
	size_t used = 0;

	buf[0] = '\0';
	while (*template && used < CELL_MAX) {
		size_t text_len = strcspn(template, "{");
		size_t field_len;

		used += (size_t)snprintf(buf + used, CELL_MAX - used, "%.*s", (int)text_len,
					 template);
		template += text_len;
		if (!*template || used >= CELL_MAX)
			break;
		field_len = strcspn(template, "}");
		show_field(object, template + 1, field_len - 1, field);
		used += (size_t)snprintf(buf + used, CELL_MAX - used, "%s", field);
		template += field_len + (template[field_len] == '}');
	}
	return used < CELL_MAX ? used : CELL_MAX - 1;
}

static size_t count_fields(const struct table_field *fields)
{
	size_t count = 0;

	while (fields[count].label)
		count++;
	return count;
}

static void measure(const struct table_field *fields, const json_t *rows, size_t *widths)
{
	char cell[CELL_MAX];
	const json_t *row;
	size_t r;

	for (size_t i = 0; fields[i].label; i++)
		widths[i] = strlen(fields[i].label);
	json_array_foreach(rows, r, row)
	{
		for (size_t i = 0; fields[i].label; i++) {
			size_t len = fill_in(row, fields[i].template, cell);

			if (len > widths[i])
				widths[i] = len;
		}
	}
}

/* No blanks at the end of a line. */
static void print_cell(FILE *out, const struct table_field *field, size_t width, const char *cell)
{
	bool is_last = !field[1].label;

	if (field->is_number)
		fprintf(out, "%*s", (int)width, cell);
	else
		fprintf(out, "%-*s", is_last ? 0 : (int)width, cell);
	fputs(is_last ? "\n" : "  ", out);
}

int table_print(FILE *out, const struct table_field *fields, const json_t *rows)
{
	size_t *widths = calloc(count_fields(fields) + 1, sizeof(*widths));
	char cell[CELL_MAX];
	const json_t *row;
	size_t r;

	if (!widths)
		return -ENOMEM;
	measure(fields, rows, widths);
	for (size_t i = 0; fields[i].label; i++)
		print_cell(out, &fields[i], widths[i], fields[i].label);
	json_array_foreach(rows, r, row)
	{
		for (size_t i = 0; fields[i].label; i++) {
			(void)fill_in(row, fields[i].template, cell);
			print_cell(out, &fields[i], widths[i], cell);
		}
	}
	free(widths);
	return 0;
}

void table_print_record(FILE *out, const struct table_field *fields, const json_t *object)
{
	char cell[CELL_MAX];
	size_t width = 0;

	for (size_t i = 0; fields[i].label; i++) {
		if (strlen(fields[i].label) > width)
			width = strlen(fields[i].label);
	}
	for (size_t i = 0; fields[i].label; i++) {
		(void)fill_in(object, fields[i].template, cell);
		fprintf(out, "%-*s  %s\n", (int)width, fields[i].label, cell);
	}
}
