/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What a row of a schema table allows, says and defaults to. Limits and defaults are written in
 * the file's own language and go through the same parser as the operator's values.
 *
 * Invariant: what a row says is right (asserted). Pure code; any thread.
 */
#include "daemon/schema_key.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "common/units.h"

static const char *const type_names[] = {
	[SCHEMA_STRING] = "string", [SCHEMA_SIZE] = "size",	[SCHEMA_DURATION] = "duration",
	[SCHEMA_UINT] = "number",   [SCHEMA_ENUM] = "choice",	[SCHEMA_FLAGS] = "choices",
	[SCHEMA_LIST] = "list",	    [SCHEMA_OBJECT] = "object", [SCHEMA_OBJECTS] = "objects",
};

static const char *const type_wants[] = {
	[SCHEMA_STRING] = "a string",
	[SCHEMA_SIZE] = "a string with a size such as \"256MiB\"",
	[SCHEMA_DURATION] = "a string with a duration such as \"5s\"",
	[SCHEMA_UINT] = "a number",
	[SCHEMA_ENUM] = "a string",
	[SCHEMA_FLAGS] = "a list of strings",
	[SCHEMA_LIST] = "a list of strings",
	[SCHEMA_OBJECT] = "a JSON object",
	[SCHEMA_OBJECTS] = "a list of JSON objects",
};

int schema_key_number(enum schema_type type, const char *text, uint64_t *ret_value)
{
	if (type == SCHEMA_DURATION)
		return units_parse_duration(text, ret_value);
	return units_parse_size(text, ret_value);
}

uint64_t schema_key_table_number(enum schema_type type, const char *text)
{
	uint64_t value = 0;
	int r = schema_key_number(type, text, &value);

	assert(r == 0);
	(void)r;
	return value;
}

bool schema_key_number_allowed(const struct schema_key *key, uint64_t value)
{
	return value >= schema_key_table_number(key->type, key->min) &&
	       value <= schema_key_table_number(key->type, key->max) &&
	       (!key->multiple || value % schema_key_table_number(key->type, key->multiple) == 0);
}

bool schema_key_text_allowed(const struct schema_key *key, const char *text)
{
	for (const char *c = text; *c; c++) {
		if ((unsigned char)*c < 0x20 || *c == 0x7f)
			return false;
	}
	return !key->is_valid || key->is_valid(text);
}

int schema_key_name(const struct schema_key *key, const char *text, size_t len)
{
	for (int i = 0; key->names[i]; i++) {
		if (strlen(key->names[i]) == len && !memcmp(key->names[i], text, len))
			return i;
	}
	return -EINVAL;
}

const char *schema_key_type(const struct schema_key *key)
{
	return type_names[key->type];
}

const char *schema_key_wanted(const struct schema_key *key)
{
	return type_wants[key->type];
}

static void describe_names(const struct schema_key *key, char *buf, size_t cap_bytes)
{
	size_t used = 0;

	for (size_t i = 0; key->names[i] && used < cap_bytes; i++)
		used += (size_t)snprintf(buf + used, cap_bytes - used, "%s%s", i > 0 ? "|" : "",
					 key->names[i]);
}

static void describe_range(const struct schema_key *key, char *buf)
{
	bool is_list = key->type == SCHEMA_LIST || key->type == SCHEMA_OBJECTS;
	const char *of = key->type == SCHEMA_STRING ? " characters" : is_list ? " entries" : "";

	snprintf(buf, SCHEMA_KEY_ALLOWED_MAX, "%s..%s%s%s%s%s%s", key->min, key->max, of,
		 key->multiple ? ", a multiple of " : "", key->multiple ? key->multiple : "",
		 key->form ? " of the form " : "", key->form ? key->form : "");
}

void schema_key_describe(const struct schema_key *key, char *ret_text)
{
	size_t used = 0;

	switch (key->type) {
	case SCHEMA_STRING:
	case SCHEMA_SIZE:
	case SCHEMA_DURATION:
	case SCHEMA_UINT:
	case SCHEMA_LIST:
	case SCHEMA_OBJECTS:
		describe_range(key, ret_text);
		break;
	case SCHEMA_FLAGS:
		used = (size_t)snprintf(ret_text, SCHEMA_KEY_ALLOWED_MAX, "%s..%s of ", key->min,
					key->max);
		describe_names(key, ret_text + used, SCHEMA_KEY_ALLOWED_MAX - used);
		break;
	case SCHEMA_ENUM:
		describe_names(key, ret_text, SCHEMA_KEY_ALLOWED_MAX);
		break;
	case SCHEMA_OBJECT:
		snprintf(ret_text, SCHEMA_KEY_ALLOWED_MAX, "%s", schema_key_wanted(key));
		break;
	}
}

/* Names between commas. */
static uint32_t table_flags(const struct schema_key *key, const char *text)
{
	uint32_t flags = 0;

	while (*text) {
		size_t len = strcspn(text, ",");
		int number = schema_key_name(key, text, len);

		assert(number >= 0);
		flags |= 1u << number;
		text += len;
		text += *text == ',';
	}
	return flags;
}

void schema_key_default(const struct schema_key *key, void *field)
{
	const char *text = key->default_text;

	switch (key->type) {
	case SCHEMA_STRING:
		memcpy(field, text, strlen(text) + 1);
		break;
	case SCHEMA_SIZE:
	case SCHEMA_DURATION:
	case SCHEMA_UINT:
		*(uint64_t *)field = schema_key_table_number(key->type, text);
		break;
	case SCHEMA_ENUM:
		*(int *)field = schema_key_name(key, text, strlen(text));
		break;
	case SCHEMA_FLAGS:
		*(uint32_t *)field = table_flags(key, text);
		break;
	case SCHEMA_LIST:
	case SCHEMA_OBJECT:
	case SCHEMA_OBJECTS:
		break;
	}
}
