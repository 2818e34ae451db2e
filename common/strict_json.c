/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The only way in for JSON from files, admin clients and daemons. Depth is looked at
 * before the parser runs, because the parser recurses. Pure code.
 */
#include "common/strict_json.h"

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "common/text.h"

/* Brackets outside of strings; whether they match is for the parser to say. */
static bool nesting_within(const char *buf, size_t len_bytes, size_t depth_max)
{
	bool in_string = false;
	size_t depth = 0;

	for (size_t i = 0; i < len_bytes; i++) {
		char c = buf[i];

		if (in_string) {
			if (c == '\\')
				i++;
			else if (c == '"')
				in_string = false;
		} else if (c == '"') {
			in_string = true;
		} else if (c == '{' || c == '[') {
			if (++depth > depth_max)
				return false;
		} else if ((c == '}' || c == ']') && depth > 0) {
			depth--;
		}
	}
	return true;
}

/*
 * The string that ends at a place, its quotes included; jansson itself leaves out what is longer
 * than a word. @buf[0 .. end_bytes] has been read as JSON.
 */
static size_t string_before(const char *buf, size_t end_bytes, const char **ret_text)
{
	size_t begin = end_bytes;

	if (end_bytes < 2 || buf[end_bytes - 1] != '"')
		return 0;
	begin = end_bytes - 1;
	do {
		size_t backslashes = 0;

		begin--;
		while (backslashes < begin && buf[begin - 1 - backslashes] == '\\')
			backslashes++;
		if (buf[begin] == '"' && backslashes % 2 == 0)
			break;
	} while (begin > 0);
	*ret_text = buf + begin;
	return end_bytes - begin;
}

/* What jansson says, with the name of a key that is there twice. */
static void describe(const char *buf, size_t len_bytes, const json_error_t *why, char *error)
{
	char near[STRICT_JSON_ERROR_MAX - 32];
	char text[STRICT_JSON_ERROR_MAX];
	const char *name = NULL;
	size_t name_bytes = 0;

	if (json_error_code(why) == json_error_duplicate_key && why->position > 0 &&
	    (size_t)why->position <= len_bytes && strchr(why->text, '\'') == NULL)
		name_bytes = string_before(buf, (size_t)why->position, &name);
	if (name_bytes > 0)
		snprintf(text, sizeof(text), "%s near '%.*s'", why->text,
			 (int)(name_bytes < sizeof(text) ? name_bytes : sizeof(text)), name);
	else
		snprintf(text, sizeof(text), "%s", why->text);
	text_escape(text, near, sizeof(near));
	snprintf(error, STRICT_JSON_ERROR_MAX, "line %d: %s", why->line, near);
}

int strict_json_parse(const char *buf, size_t len_bytes, char *error, json_t **ret_root)
{
	json_error_t why;
	json_t *root;

	if (memchr(buf, '\0', len_bytes)) {
		snprintf(error, STRICT_JSON_ERROR_MAX, "there is a NUL byte in it");
		return -EINVAL;
	}
	if (!nesting_within(buf, len_bytes, STRICT_JSON_DEPTH_MAX)) {
		snprintf(error, STRICT_JSON_ERROR_MAX, "nested deeper than %d levels",
			 STRICT_JSON_DEPTH_MAX);
		return -EINVAL;
	}
	root = json_loadb(buf, len_bytes, JSON_REJECT_DUPLICATES, &why);
	if (!root) {
		describe(buf, len_bytes, &why, error);
		return -EINVAL;
	}
	*ret_root = root;
	return 0;
}
