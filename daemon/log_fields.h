/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef DAEMON_LOG_FIELDS_H
#define DAEMON_LOG_FIELDS_H

#include <stddef.h>

/* A field of a line of the log; it points into the line. */
struct log_field {
	const char *name;
	size_t name_len;
	const char *value; /* without quotes */
	size_t value_len;
};

/**
 * log_fields_find() - the fields of a line, in their order: name=value, name="some text"
 * @fields: room for @max; those beyond are not found
 *
 * Names are of lower case letters, digits and underscores, and begin with a letter. A text may
 * have quotes in it: it ends at the first that has the next field or the end behind it, or, if
 * there is none, at the last with a space behind it.
 * Return: how many.
 */
size_t log_fields_find(const char *line, struct log_field *fields, size_t max);

#endif
