/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Fields in lines of the log. Pure code, any thread.
 */
#include "daemon/log_fields.h"

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

static size_t name_length(const char *word)
{
	if (*word < 'a' || *word > 'z')
		return 0;
	return strspn(word, "abcdefghijklmnopqrstuvwxyz0123456789_");
}

/* Is it the end of the line, or a space and the next field? */
static bool begins_field(const char *rest)
{
	size_t name_len;

	if (*rest == '\0')
		return true;
	if (*rest != ' ')
		return false;
	rest += strspn(rest, " ");
	name_len = name_length(rest);
	return name_len > 0 && rest[name_len] == '=';
}

/* @text: behind the first quote, and may have quotes in it. Return: up to the one that ends it. */
static size_t quoted_length(const char *text)
{
	size_t spaced_len = SIZE_MAX, len;

	for (len = 0; text[len]; len++) {
		if (text[len] != '"')
			continue;
		if (begins_field(text + len + 1))
			return len;
		if (text[len + 1] == ' ')
			spaced_len = len;
	}
	return spaced_len < len ? spaced_len : len;
}

/* Return: where the word, or the field, ends. */
static const char *read_word(const char *word, struct log_field *field, bool *ret_is_field)
{
	size_t name_len = name_length(word);
	bool is_quoted = name_len > 0 && word[name_len] == '=' && word[name_len + 1] == '"';

	*ret_is_field = name_len > 0 && word[name_len] == '=';
	if (!*ret_is_field)
		return word + strcspn(word, " ");
	field->name = word;
	field->name_len = name_len;
	field->value = word + name_len + 1 + is_quoted;
	field->value_len = is_quoted ? quoted_length(field->value) : strcspn(field->value, " ");
	word = field->value + field->value_len;
	return word + (is_quoted && *word == '"');
}

size_t log_fields_find(const char *line, struct log_field *fields, size_t max)
{
	size_t count = 0;

	while (count < max) {
		bool is_field;

		line += strspn(line, " ");
		if (!*line)
			break;
		line = read_word(line, &fields[count], &is_field);
		count += is_field;
	}
	return count;
}
