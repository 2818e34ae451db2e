/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Turns JSON objects into aligned text by templates that the commands keep in const
 * tables. All text is ASCII after escaping, so bytes are columns. Nothing but whether there
 * are colours is kept between calls.
 */
#include "client/ctl/table.h"

#include <ctype.h>
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

#define COLOUR_BOLD   "\033[1m"
#define COLOUR_GREEN  "\033[32m"
#define COLOUR_YELLOW "\033[33m"
#define COLOUR_RED    "\033[31m"
#define COLOUR_NONE   "\033[0m"

static bool table_colours;

/* What is as it should be, and what somebody should look at; all else is on its way. */
static const char *const good_states[] = {"ok", "active", "open", "serving", NULL};
static const char *const bad_states[] = {"banned", "removed", "over quota", NULL};

void table_set_colours(bool wanted)
{
	table_colours = wanted;
}

const json_t *table_look_up(const json_t *object, const char *path)
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
	if (*kind && strcmp(kind, "state") != 0)
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
	show(table_look_up(object, path), kind ? kind : "", buf);
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

static bool is_one_of(const char *const *words, const char *text)
{
	while (*words && strcmp(*words, text) != 0)
		words++;
	return *words != NULL;
}

static bool is_state(const struct table_field *field)
{
	return strstr(field->template, ":state}") != NULL;
}

static const char *state_colour(const char *state)
{
	if (is_one_of(good_states, state))
		return COLOUR_GREEN;
	return is_one_of(bad_states, state) ? COLOUR_RED : COLOUR_YELLOW;
}

/* @colour: NULL: none */
static void print_coloured(FILE *out, const char *colour, const char *text)
{
	if (colour && table_colours)
		fprintf(out, "%s%s%s", colour, text, COLOUR_NONE);
	else
		fputs(text, out);
}

/* No blanks at the end of a line. */
static void print_cell(FILE *out, const struct table_field *field, size_t width, const char *cell,
		       const char *colour)
{
	bool is_last = !field[1].label;
	int blanks = (int)(width - strlen(cell));

	if (field->is_number)
		fprintf(out, "%*s", blanks, "");
	print_coloured(out, colour, cell);
	if (!field->is_number && !is_last)
		fprintf(out, "%*s", blanks, "");
	fputs(is_last ? "\n" : "  ", out);
}

/* "TTL LEFT" is "ttl-left". */
static bool is_named(const char *label, const char *column)
{
	for (; *label && *column; label++, column++) {
		if (*label == ' '
			    ? *column != '-'
			    : tolower((unsigned char)*label) != tolower((unsigned char)*column))
			return false;
	}
	return !*label && !*column;
}

bool table_find_path(const struct table_field *fields, const char *column, char *ret_path,
		     size_t cap_bytes)
{
	const char *start;

	for (; fields->label; fields++) {
		start = strchr(fields->template, '{');
		if (!start || !is_named(fields->label, column))
			continue;
		snprintf(ret_path, cap_bytes, "%.*s", (int)strcspn(start + 1, ":}"), start + 1);
		return true;
	}
	return false;
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
		print_cell(out, &fields[i], widths[i], fields[i].label, COLOUR_BOLD);
	json_array_foreach(rows, r, row)
	{
		for (size_t i = 0; fields[i].label; i++) {
			(void)fill_in(row, fields[i].template, cell);
			print_cell(out, &fields[i], widths[i], cell,
				   is_state(&fields[i]) ? state_colour(cell) : NULL);
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
		fprintf(out, "%-*s  ", (int)width, fields[i].label);
		print_coloured(out, is_state(&fields[i]) ? state_colour(cell) : NULL, cell);
		putc('\n', out);
	}
}
