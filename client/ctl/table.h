/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef CLIENT_CTL_TABLE_H
#define CLIENT_CTL_TABLE_H

#include <jansson.h>
#include <stdbool.h>
#include <stdio.h>

/*
 * JSON for people. A template is text with fields: "{pool.bytes:size} in all" looks up
 * "bytes" in "pool" of an object. The kind behind the colon may be "size" (bytes),
 * "duration" (milliseconds), "hex", "state" (coloured, where there are colours) or absent (as it is). A field that is missing or of
 * the wrong type is shown as "-". Everything the object says is made safe for a terminal.
 */

/* A column of a table, or a labelled line of a record. */
struct table_field {
	const char *label;
	const char *template;
	bool is_number; /* columns: aligned to the right */
};

/**
 * table_set_colours() - print in colours from now on, or not; not unless set
 */
void table_set_colours(bool wanted);

/**
 * table_look_up() - a member by its path, "a.b.c"
 *
 * Return: NULL if any of it is missing; borrowed.
 */
const json_t *table_look_up(const json_t *object, const char *path);

/**
 * table_find_path() - what a column shows first
 * @column: a label, in any case and with '-' for blanks
 *
 * Return: false if there is no such column.
 */
bool table_find_path(const struct table_field *fields, const char *column, char *ret_path,
		     size_t cap_bytes);

/**
 * table_print() - print a list of objects, one a row, columns aligned
 * @fields: ends with a NULL label
 * @rows: an array; anything else is shown as no rows
 *
 * Return: 0 or -ENOMEM.
 */
int table_print(FILE *out, const struct table_field *fields, const json_t *rows);

/**
 * table_print_record() - print one object, a field a line, labels aligned
 */
void table_print_record(FILE *out, const struct table_field *fields, const json_t *object);

#endif
