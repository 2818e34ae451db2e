/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef DAEMON_SCHEMA_H
#define DAEMON_SCHEMA_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "daemon/schema_key.h"

/*
 * JSON objects into structs and back, by tables: a row says where a value goes, what is
 * allowed and what it is if nobody says. A row may have a table of its own, for an object
 * within the object or a list of such.
 */

#define SCHEMA_ERROR_MAX 512 /* bytes of an error line */
#define SCHEMA_PATH_MAX	 96  /* bytes of a path such as "tenants[2].quota" */

struct schema_table {
	const struct schema_key *keys;
	size_t count;
};

/* Where the object stands, for errors. */
struct schema_context {
	const char *file;	    /* NULL: in none */
	char path[SCHEMA_PATH_MAX]; /* within the file; "" for the outermost object */
	char *error;		    /* SCHEMA_ERROR_MAX bytes; one line */
};

/**
 * schema_defaults() - set every field that has a default; the others are left
 * @target: zeroed; lists become empty
 */
void schema_defaults(const struct schema_table *table, void *target);

/**
 * schema_read() - take over an object
 * @object: any JSON value that strict_json_parse() has let through
 * @target: has its defaults; on failure it may have changed
 *
 * Allocated lists belong to the owner of @target, after a failure as well.
 * Return: 0, -EINVAL (the context's error names file, key, value and what is allowed) or -ENOMEM.
 */
int schema_read(const struct schema_table *table, json_t *object, void *target,
		const struct schema_context *context);

/**
 * schema_write() - the reverse of schema_read(): all keys, also those that have their default
 *
 * Return: the caller's reference, NULL if there is no memory.
 */
json_t *schema_write(const struct schema_table *table, const void *target);

/**
 * schema_keep() - give an object the running values of the keys that need a restart
 * @running: an object of the same table
 * @object: changed; complete
 * @ret_names: the caller's list of the names of those keys whose values were different
 *
 * Return: 0 or -ENOMEM; on failure @object may have changed.
 */
int schema_keep(const struct schema_table *table, const void *running, void *object,
		json_t **ret_names);

/**
 * schema_print() - all keys: type, default, what is allowed, help
 */
void schema_print(const struct schema_table *table, FILE *out);

/**
 * schema_fail() - write the context's error: file, path, name of a key, and what is wrong
 * @name: relative to the context's path; NULL: the error is about the object itself
 *
 * Return: -EINVAL.
 */
int schema_fail(const struct schema_context *context, const char *name, const char *format, ...)
	__attribute__((format(printf, 3, 4)));

#endif
