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

int strict_json_parse(const char *buf, size_t len_bytes, char *error, json_t **ret_root)
{
	char near[STRICT_JSON_ERROR_MAX - 32];
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
		text_escape(why.text, near, sizeof(near));
		snprintf(error, STRICT_JSON_ERROR_MAX, "line %d: %s", why.line, near);
		return -EINVAL;
	}
	*ret_root = root;
	return 0;
}
