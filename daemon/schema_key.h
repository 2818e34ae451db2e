/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef DAEMON_SCHEMA_KEY_H
#define DAEMON_SCHEMA_KEY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* A row of a schema table: one key of a JSON object, and what it allows. */

#define SCHEMA_KEY_TEXT_MAX    256 /* bytes of an item that a row's encode writes */
#define SCHEMA_KEY_ALLOWED_MAX 128 /* bytes of a text that says what is allowed */

struct schema_table;

enum schema_type {
	SCHEMA_STRING,	 /* char[max + 1]; min and max are lengths */
	SCHEMA_SIZE,	 /* uint64_t; a string with a unit */
	SCHEMA_DURATION, /* uint64_t in milliseconds; a string with a unit */
	SCHEMA_UINT,	 /* uint64_t; a JSON integer */
	SCHEMA_ENUM,	 /* int; a string, one of names */
	SCHEMA_FLAGS,	 /* uint32_t, bit i for names[i]; a list of names, each at most once */
	SCHEMA_LIST,	 /* an array; a list of strings; min and max are counts */
	SCHEMA_OBJECT,	 /* a struct; an object, by a table of its own */
	SCHEMA_OBJECTS,	 /* an allocated array; a list of objects; min and max are counts */
};

struct schema_key {
	const char *name;
	enum schema_type type;
	size_t offset;		  /* of the field in the struct */
	const char *default_text; /* NULL: the key is required; "" for what has a table */
	const char *min;
	const char *max;
	const char *multiple;		    /* sizes only; NULL: any */
	const char *const *names;	    /* in the order of their numbers, NULL at the end */
	bool (*is_valid)(const char *item); /* strings and items of lists; NULL: anything */
	const char *form;		    /* what is_valid or decode takes */
	const char *help;
	bool is_hidden;	    /* errors do not show the value */
	bool needs_restart; /* of the outermost object: a running daemon keeps its value */

	/* Lists. */
	size_t count_offset; /* of the size_t with the number of entries */
	size_t item_bytes;   /* of an entry of the array */
	bool is_allocated;   /* the field is a pointer to the array, NULL if it is empty */
	bool (*decode)(const char *text, void *ret_item); /* NULL: items are texts */
	void (*encode)(const void *item, char *ret_text); /* SCHEMA_KEY_TEXT_MAX bytes */

	const struct schema_table *table; /* of objects */
};

/**
 * schema_key_number() - the number that a text stands for; bare digits if the type has no unit
 *
 * Return: 0, -EINVAL (not of the type's form), -ERANGE (does not fit 64 bits).
 */
int schema_key_number(enum schema_type type, const char *text, uint64_t *ret_value);

/** schema_key_table_number() - the same for a text of a table, which is right (asserted) */
uint64_t schema_key_table_number(enum schema_type type, const char *text);

/** schema_key_name() - which of the names a text of some length is; -EINVAL if none */
int schema_key_name(const struct schema_key *key, const char *text, size_t len);

/** schema_key_number_allowed() - a number, a length or a count */
bool schema_key_number_allowed(const struct schema_key *key, uint64_t value);

/** schema_key_text_allowed() - no control characters, and what is_valid says */
bool schema_key_text_allowed(const struct schema_key *key, const char *text);

/** schema_key_type() - "string", "size" and so on, for help */
const char *schema_key_type(const struct schema_key *key);

/** schema_key_wanted() - what JSON value the type takes, "a number" say */
const char *schema_key_wanted(const struct schema_key *key);

/** schema_key_describe() - what is allowed; @ret_text: SCHEMA_KEY_ALLOWED_MAX bytes */
void schema_key_describe(const struct schema_key *key, char *ret_text);

/** schema_key_default() - set the field of a key that has a default and no table */
void schema_key_default(const struct schema_key *key, void *field);

#endif
