/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Makes a man page of a template, at build time: a line "@KEYS@" becomes the keys of the
 * configuration, so that the page has what the daemon knows; "@CONFIG@" becomes the path of the
 * configuration.
 *
 * usage: page TEMPLATE
 */
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/config.h"
#include "daemon/schema.h"

#define LINE_MAX_BYTES 1024

/* Text on a line of its own: nothing in it is an order to the formatter. */
static void print_text(const char *text)
{
	if (*text == '.' || *text == '\'')
		fputs("\\&", stdout);
	for (; *text; text++)
		fputs(*text == '\\' ? "\\e" : (char[]){*text, '\0'}, stdout);
}

/* "device; empty: any" is two sentences at most; one line of the source is good enough. */
static void print_sentence(const char *text)
{
	print_text(text);
	puts(".");
}

static void print_key(const struct schema_key *key, const char *prefix)
{
	char allowed[SCHEMA_KEY_ALLOWED_MAX];
	char first[2] = {key->help[0], '\0'};

	schema_key_describe(key, allowed);
	printf(".It Va %s%s\n", prefix, key->name);
	if (first[0] >= 'a' && first[0] <= 'z')
		first[0] = (char)(first[0] - 'a' + 'A');
	fputs(first, stdout);
	print_sentence(key->help + 1);
	printf("Type: %s; allowed: ", schema_key_type(key));
	print_text(allowed);
	puts(".");
	if (!key->default_text)
		puts("Required.");
	else if (*key->default_text)
		printf("Default:\n.Ql %s .\n", key->default_text);
	if (key->needs_restart)
		puts("Takes effect at a restart only.");
}

static void print_keys(const struct schema_table *table, const char *prefix)
{
	char inner[SCHEMA_PATH_MAX];

	for (size_t i = 0; i < table->count; i++) {
		const struct schema_key *key = &table->keys[i];

		print_key(key, prefix);
		if (!key->table)
			continue;
		snprintf(inner, sizeof(inner), "%s%s%s.", prefix, key->name,
			 key->type == SCHEMA_OBJECTS ? "[]" : "");
		print_keys(key->table, inner);
	}
}

static void print_line(const char *line)
{
	const char *at;

	while ((at = strstr(line, "@CONFIG@")) != NULL) {
		printf("%.*s%s", (int)(at - line), line, MEMPOOL_CONFIG);
		line = at + strlen("@CONFIG@");
	}
	fputs(line, stdout);
}

int main(int argc, char **argv)
{
	FILE *in = argc == 2 ? fopen(argv[1], "re") : NULL;
	char line[LINE_MAX_BYTES];

	if (in == NULL) {
		fprintf(stderr, "usage: page TEMPLATE\n");
		return 2;
	}
	while (fgets(line, sizeof(line), in) != NULL) {
		if (!strcmp(line, "@KEYS@\n"))
			print_keys(config_schema(), "");
		else
			print_line(line);
	}
	(void)fclose(in);
	return ferror(stdout) || fflush(stdout) != 0;
}
