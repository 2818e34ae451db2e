/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Tables that describe JSON objects. Reading, writing, defaults, errors and help derive from
 * a table, so a key is added by adding a row and a field.
 *
 * What a table says is right (asserted); what an object says is never asserted on. Keeps
 * nothing between calls; any thread.
 */
#include "daemon/schema.h"

#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "common/text.h"

#define VALUE_TEXT_MAX	96 /* of a wrong value in an error line */
#define FILE_TEXT_MAX	128
#define NUMBER_TEXT_MAX 32

static void *field_of(void *target, const struct schema_key *key)
{
	return (char *)target + key->offset;
}

static const void *const_field_of(const void *target, const struct schema_key *key)
{
	return (const char *)target + key->offset;
}

/* "file: path.name: " */
static size_t write_place(const struct schema_context *context, const char *name)
{
	char file[FILE_TEXT_MAX];
	bool has_path = context->path[0] != '\0';
	size_t used = 0;

	if (context->file) {
		text_escape(context->file, file, sizeof(file));
		used = (size_t)snprintf(context->error, SCHEMA_ERROR_MAX, "%s: ", file);
	}
	if (name || has_path)
		used += (size_t)snprintf(context->error + used, SCHEMA_ERROR_MAX - used,
					 "%s%s%s: ", context->path, name && has_path ? "." : "",
					 name ? name : "");
	return used;
}

int schema_fail(const struct schema_context *context, const char *name, const char *format, ...)
{
	size_t used = write_place(context, name);
	va_list ap;

	va_start(ap, format);
	(void)vsnprintf(context->error + used, SCHEMA_ERROR_MAX - used, format, ap);
	va_end(ap);
	return -EINVAL;
}

static int fail_value(const struct schema_context *context, const struct schema_key *key,
		      const json_t *value, const char *what)
{
	char shown[VALUE_TEXT_MAX], allowed[SCHEMA_KEY_ALLOWED_MAX];
	char *dump;

	schema_key_describe(key, allowed);
	if (key->is_hidden)
		return schema_fail(context, key->name, "%s; allowed: %s", what, allowed);
	dump = json_dumps(value, JSON_ENCODE_ANY | JSON_COMPACT);
	text_escape(dump ? dump : "?", shown, sizeof(shown));
	free(dump);
	return schema_fail(context, key->name, "%s %s; allowed: %s", shown, what, allowed);
}

static int fail_type(const struct schema_context *context, const struct schema_key *key,
		     const json_t *value)
{
	char what[SCHEMA_KEY_ALLOWED_MAX];

	snprintf(what, sizeof(what), "is not %s", schema_key_wanted(key));
	return fail_value(context, key, value, what);
}

static int fail_memory(const struct schema_context *context, const struct schema_key *key)
{
	(void)schema_fail(context, key->name, "%s", strerror(ENOMEM));
	return -ENOMEM;
}

/* The place of an object within the object of a context; @index is not used but for lists. */
static void enter(const struct schema_context *context, const struct schema_key *key, size_t index,
		  struct schema_context *ret_inner)
{
	const char *dot = context->path[0] ? "." : "";
	int len;

	ret_inner->file = context->file;
	ret_inner->error = context->error;
	if (key->type == SCHEMA_OBJECT)
		len = snprintf(ret_inner->path, SCHEMA_PATH_MAX, "%s%s%s", context->path, dot,
			       key->name);
	else
		len = snprintf(ret_inner->path, SCHEMA_PATH_MAX, "%s%s%s[%zu]", context->path, dot,
			       key->name, index);
	assert(len > 0 && len < SCHEMA_PATH_MAX);
	(void)len;
}

static int read_string(const struct schema_context *context, const struct schema_key *key,
		       const json_t *value, void *target)
{
	const char *text = json_string_value(value);

	if (!text)
		return fail_type(context, key, value);
	if (!schema_key_number_allowed(key, strlen(text)))
		return fail_value(context, key, value, "is too short or too long");
	if (!schema_key_text_allowed(key, text))
		return fail_value(context, key, value, "is not valid");
	memcpy(field_of(target, key), text, strlen(text) + 1);
	return 0;
}

static int read_measure(const struct schema_context *context, const struct schema_key *key,
			const json_t *value, void *target)
{
	const char *text = json_string_value(value);
	uint64_t number;
	int r;

	if (!text)
		return fail_type(context, key, value);
	r = schema_key_number(key->type, text, &number);
	if (r == -EINVAL)
		return fail_type(context, key, value);
	if (r < 0 || !schema_key_number_allowed(key, number))
		return fail_value(context, key, value, "is out of range");
	*(uint64_t *)field_of(target, key) = number;
	return 0;
}

static int read_uint(const struct schema_context *context, const struct schema_key *key,
		     const json_t *value, void *target)
{
	json_int_t number = json_integer_value(value);

	if (!json_is_integer(value))
		return fail_type(context, key, value);
	if (number < 0 || !schema_key_number_allowed(key, (uint64_t)number))
		return fail_value(context, key, value, "is out of range");
	*(uint64_t *)field_of(target, key) = (uint64_t)number;
	return 0;
}

static int read_enum(const struct schema_context *context, const struct schema_key *key,
		     const json_t *value, void *target)
{
	const char *text = json_string_value(value);
	int number;

	if (!text)
		return fail_type(context, key, value);
	number = schema_key_name(key, text, strlen(text));
	if (number < 0)
		return fail_value(context, key, value, "is not one of the choices");
	*(int *)field_of(target, key) = number;
	return 0;
}

static int read_flags(const struct schema_context *context, const struct schema_key *key,
		      const json_t *value, void *target)
{
	const json_t *item;
	uint32_t flags = 0;
	size_t i;

	if (!json_is_array(value))
		return fail_type(context, key, value);
	json_array_foreach(value, i, item)
	{
		const char *text = json_string_value(item);
		int number;

		if (!text)
			return fail_type(context, key, value);
		number = schema_key_name(key, text, strlen(text));
		if (number < 0)
			return fail_value(context, key, item, "is not one of the choices");
		if (flags & 1u << number)
			return fail_value(context, key, item, "is there twice");
		flags |= 1u << number;
	}
	if (!schema_key_number_allowed(key, json_array_size(value)))
		return fail_value(context, key, value, "has too few or too many entries");
	*(uint32_t *)field_of(target, key) = flags;
	return 0;
}

static void set_count(const struct schema_key *key, void *target, size_t count)
{
	*(size_t *)((char *)target + key->count_offset) = count;
}

static size_t get_count(const struct schema_key *key, const void *target)
{
	return *(const size_t *)((const char *)target + key->count_offset);
}

/* The first entry of a list's array; the field may be a pointer of any type. */
static void *get_items(const struct schema_key *key, const void *target)
{
	void *items;

	if (!key->is_allocated)
		return (char *)(uintptr_t)const_field_of(target, key);
	memcpy(&items, const_field_of(target, key), sizeof(items));
	return items;
}

static int make_items(const struct schema_key *key, void *target, size_t count)
{
	void *items;

	if (!key->is_allocated || count == 0)
		return 0;
	items = calloc(count, key->item_bytes);
	if (!items)
		return -ENOMEM;
	memcpy(field_of(target, key), &items, sizeof(items));
	return 0;
}

static bool read_item(const struct schema_key *key, const char *text, char *ret_item)
{
	if (!schema_key_text_allowed(key, text))
		return false;
	if (key->decode)
		return key->decode(text, ret_item);
	if (strlen(text) >= key->item_bytes)
		return false;
	memcpy(ret_item, text, strlen(text) + 1);
	return true;
}

static int read_list(const struct schema_context *context, const struct schema_key *key,
		     const json_t *value, void *target)
{
	const json_t *item;
	char *items;
	size_t i;

	if (!json_is_array(value))
		return fail_type(context, key, value);
	if (!schema_key_number_allowed(key, json_array_size(value)))
		return fail_value(context, key, value, "has too few or too many entries");
	if (make_items(key, target, json_array_size(value)) < 0)
		return fail_memory(context, key);
	set_count(key, target, json_array_size(value));
	items = get_items(key, target);
	json_array_foreach(value, i, item)
	{
		const char *text = json_string_value(item);

		if (!text)
			return fail_type(context, key, value);
		if (!read_item(key, text, items + i * key->item_bytes))
			return fail_value(context, key, item, "is not valid");
	}
	return 0;
}

static int read_objects(const struct schema_context *context, const struct schema_key *key,
			const json_t *value, void *target)
{
	struct schema_context inner;
	json_t *item;
	char *items;
	size_t i;
	int r;

	if (!json_is_array(value))
		return fail_type(context, key, value);
	if (!schema_key_number_allowed(key, json_array_size(value)))
		return fail_value(context, key, value, "has too few or too many entries");
	if (make_items(key, target, json_array_size(value)) < 0)
		return fail_memory(context, key);
	/* At once, so that after a failure the owner finds what the items have allocated. */
	set_count(key, target, json_array_size(value));
	items = get_items(key, target);
	json_array_foreach(value, i, item)
	{
		enter(context, key, i, &inner);
		schema_defaults(key->table, items + i * key->item_bytes);
		r = schema_read(key->table, item, items + i * key->item_bytes, &inner);
		if (r < 0)
			return r;
	}
	return 0;
}

static int read_object(const struct schema_context *context, const struct schema_key *key,
		       json_t *value, void *target)
{
	struct schema_context inner;

	enter(context, key, 0, &inner);
	return schema_read(key->table, value, field_of(target, key), &inner);
}

static int read_value(const struct schema_context *context, const struct schema_key *key,
		      json_t *value, void *target)
{
	switch (key->type) {
	case SCHEMA_STRING:
		return read_string(context, key, value, target);
	case SCHEMA_SIZE:
	case SCHEMA_DURATION:
		return read_measure(context, key, value, target);
	case SCHEMA_UINT:
		return read_uint(context, key, value, target);
	case SCHEMA_ENUM:
		return read_enum(context, key, value, target);
	case SCHEMA_FLAGS:
		return read_flags(context, key, value, target);
	case SCHEMA_LIST:
		return read_list(context, key, value, target);
	case SCHEMA_OBJECT:
		return read_object(context, key, value, target);
	case SCHEMA_OBJECTS:
		return read_objects(context, key, value, target);
	}
	return -EINVAL;
}

static const struct schema_key *find_key(const struct schema_table *table, const char *name)
{
	for (size_t i = 0; i < table->count; i++) {
		if (!strcmp(table->keys[i].name, name))
			return &table->keys[i];
	}
	return NULL;
}

static int check_required(const struct schema_table *table, const struct schema_context *context,
			  const json_t *object)
{
	char allowed[SCHEMA_KEY_ALLOWED_MAX];

	for (size_t i = 0; i < table->count; i++) {
		const struct schema_key *key = &table->keys[i];

		if (key->default_text || json_object_get(object, key->name))
			continue;
		schema_key_describe(key, allowed);
		return schema_fail(context, key->name, "is required and missing; allowed: %s",
				   allowed);
	}
	return 0;
}

int schema_read(const struct schema_table *table, json_t *object, void *target,
		const struct schema_context *context)
{
	const char *name;
	json_t *value;
	int r;

	if (!json_is_object(object))
		return schema_fail(context, NULL, "is not a JSON object");
	json_object_foreach(object, name, value)
	{
		const struct schema_key *key = find_key(table, name);
		char shown[VALUE_TEXT_MAX];

		if (!key) {
			text_escape(name, shown, sizeof(shown));
			return schema_fail(context, shown,
					   "is not a known key; mempoold --help-config lists all");
		}
		r = read_value(context, key, value, target);
		if (r < 0)
			return r;
	}
	return check_required(table, context, object);
}

void schema_defaults(const struct schema_table *table, void *target)
{
	for (size_t i = 0; i < table->count; i++) {
		const struct schema_key *key = &table->keys[i];

		if (key->type == SCHEMA_OBJECT)
			schema_defaults(key->table, field_of(target, key));
		else if (key->default_text)
			schema_key_default(key, field_of(target, key));
	}
}

/* A number in the largest unit of which it is a multiple. */
static json_t *write_measure(enum schema_type type, uint64_t value)
{
	static const char *const sizes[] = {"1TiB", "1GiB", "1MiB", "1KiB", "1B"};
	static const char *const durations[] = {"1d", "1h", "1min", "1s", "1ms"};
	const char *const *unit = type == SCHEMA_DURATION ? durations : sizes;
	char text[NUMBER_TEXT_MAX];

	if (value == 0)
		return json_string("0");
	while (value % schema_key_table_number(type, *unit) != 0)
		unit++;
	snprintf(text, sizeof(text), "%" PRIu64 "%s", value / schema_key_table_number(type, *unit),
		 *unit + 1);
	return json_string(text);
}

static json_t *write_flags(const struct schema_key *key, uint32_t flags)
{
	json_t *list = json_array();

	for (unsigned int i = 0; list && key->names[i]; i++) {
		if ((flags & 1u << i) != 0 &&
		    json_array_append_new(list, json_string(key->names[i])) < 0) {
			json_decref(list);
			return NULL;
		}
	}
	return list;
}

static json_t *write_item(const struct schema_key *key, const char *item)
{
	char text[SCHEMA_KEY_TEXT_MAX];

	if (key->type == SCHEMA_OBJECTS)
		return schema_write(key->table, item);
	if (!key->encode)
		return json_string(item);
	key->encode(item, text);
	return json_string(text);
}

static json_t *write_list(const struct schema_key *key, const void *target)
{
	const char *items = get_items(key, target);
	json_t *list = json_array();

	for (size_t i = 0; list && i < get_count(key, target); i++) {
		if (json_array_append_new(list, write_item(key, items + i * key->item_bytes)) < 0) {
			json_decref(list);
			return NULL;
		}
	}
	return list;
}

static json_t *write_value(const struct schema_key *key, const void *target)
{
	const void *field = const_field_of(target, key);

	switch (key->type) {
	case SCHEMA_STRING:
		return json_string(field);
	case SCHEMA_SIZE:
	case SCHEMA_DURATION:
		return write_measure(key->type, *(const uint64_t *)field);
	case SCHEMA_UINT:
		return json_integer((json_int_t) * (const uint64_t *)field);
	case SCHEMA_ENUM:
		return json_string(key->names[*(const int *)field]);
	case SCHEMA_FLAGS:
		return write_flags(key, *(const uint32_t *)field);
	case SCHEMA_LIST:
	case SCHEMA_OBJECTS:
		return write_list(key, target);
	case SCHEMA_OBJECT:
		return schema_write(key->table, field);
	}
	return NULL;
}

json_t *schema_write(const struct schema_table *table, const void *target)
{
	json_t *object = json_object();

	for (size_t i = 0; object && i < table->count; i++) {
		/* A value that could not be made is refused here. */
		if (json_object_set_new(object, table->keys[i].name,
					write_value(&table->keys[i], target)) < 0) {
			json_decref(object);
			return NULL;
		}
	}
	return object;
}

/* By way of JSON, as all that is read is written the same way again. */
static int keep_value(const struct schema_key *key, const void *running, void *object,
		      json_t *names)
{
	char error[SCHEMA_ERROR_MAX];
	struct schema_context context = {.error = error};
	json_t *kept = write_value(key, running);
	json_t *wanted = write_value(key, object);
	int r = 0;

	if (!kept || !wanted)
		r = -ENOMEM;
	else if (!json_equal(kept, wanted))
		r = json_array_append_new(names, json_string(key->name)) < 0
			    ? -ENOMEM
			    : read_value(&context, key, kept, object);
	json_decref(kept);
	json_decref(wanted);
	assert(r == 0 || r == -ENOMEM);
	return r;
}

int schema_keep(const struct schema_table *table, const void *running, void *object,
		json_t **ret_names)
{
	json_t *names = json_array();
	int r = names ? 0 : -ENOMEM;

	for (size_t i = 0; r == 0 && i < table->count; i++) {
		if (table->keys[i].needs_restart)
			r = keep_value(&table->keys[i], running, object, names);
	}
	if (r < 0) {
		json_decref(names);
		return r;
	}
	*ret_names = names;
	return 0;
}

/* The prefix of the keys within a key's object. */
static void inner_prefix(const char *prefix, const struct schema_key *key, char *ret_prefix)
{
	snprintf(ret_prefix, SCHEMA_PATH_MAX, "%s%s%s.", prefix, key->name,
		 key->type == SCHEMA_OBJECTS ? "[]" : "");
}

static int name_width(const struct schema_table *table, const char *prefix)
{
	char inner[SCHEMA_PATH_MAX];
	int width = 0;

	for (size_t i = 0; i < table->count; i++) {
		const struct schema_key *key = &table->keys[i];
		int wanted = (int)(strlen(prefix) + strlen(key->name));

		if (wanted > width)
			width = wanted;
		if (!key->table)
			continue;
		inner_prefix(prefix, key, inner);
		wanted = name_width(key->table, inner);
		if (wanted > width)
			width = wanted;
	}
	return width;
}

static void print_rows(const struct schema_table *table, const char *prefix, int width, FILE *out)
{
	char allowed[SCHEMA_KEY_ALLOWED_MAX], name[SCHEMA_PATH_MAX];

	for (size_t i = 0; i < table->count; i++) {
		const struct schema_key *key = &table->keys[i];
		const char *shown = key->default_text ? key->default_text : "(required)";

		schema_key_describe(key, allowed);
		snprintf(name, sizeof(name), "%s%s", prefix, key->name);
		fprintf(out, "%-*s  %-8s  %-24s  %-47s  %s%s\n", width, name, schema_key_type(key),
			*shown ? shown : "(empty)", allowed, key->help,
			key->needs_restart ? " (needs a restart)" : "");
		if (!key->table)
			continue;
		inner_prefix(prefix, key, name);
		print_rows(key->table, name, width, out);
	}
}

void schema_print(const struct schema_table *table, FILE *out)
{
	int width = name_width(table, "");

	fprintf(out, "%-*s  %-8s  %-24s  %-47s  %s\n", width, "KEY", "TYPE", "DEFAULT", "ALLOWED",
		"MEANING");
	print_rows(table, "", width, out);
}
