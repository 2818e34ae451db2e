/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A script for bash, made of the tables of commands and options. It knows words, not what the
 * daemon has: no completion waits for a daemon. Keeps nothing.
 *
 * The script walks over the words before the cursor to find the command, skipping options and
 * their arguments; what may come next is looked up under the command's name.
 */
#include "client/ctl/completion.h"

#include <string.h>

static const char script_head[] =
	"# bash completion for mempoolctl; made by mempoolctl --completion bash\n"
	"_mempoolctl()\n"
	"{\n"
	"\tlocal cur=${COMP_WORDS[COMP_CWORD]} command= words= options= i\n"
	"\tCOMPREPLY=()\n";

/* What an option's argument may be; "--name=value" is three words to bash. */
static const char script_value[] =
	"\tlocal prev=${COMP_WORDS[COMP_CWORD-1]}\n"
	"\tif [ \"$cur\" = \"=\" ]; then\n"
	"\t\tcur=\n"
	"\telif [ \"$prev\" = \"=\" ] && [ \"$COMP_CWORD\" -ge 2 ]; then\n"
	"\t\tprev=${COMP_WORDS[COMP_CWORD-2]}\n"
	"\tfi\n"
	"\tcase $prev in\n";

static const char script_walk[] = "\tfor ((i = 1; i < COMP_CWORD; i++)); do\n"
				  "\t\tcase ${COMP_WORDS[i]} in\n";

static const char script_walked[] = "\t\t-*) ;;\n"
				    "\t\t=) i=$((i + 1)) ;;\n"
				    "\t\t*) case \"$command ${COMP_WORDS[i]}\" in\n";

static const char script_found[] = "\t\t\tesac ;;\n"
				   "\t\tesac\n"
				   "\tdone\n"
				   "\tcase $command in\n";

static const char script_tail[] =
	"\tesac\n"
	"\t[ \"${cur:0:1}\" != - ] && [ -n \"$words\" ] || words=$options\n"
	"\tCOMPREPLY=($(compgen -W \"$words\" -- \"$cur\"))\n"
	"}\n"
	"complete -F _mempoolctl mempoolctl\n";

static void print_values(FILE *out)
{
	const struct option_row *row;

	for (row = options_table; row->name != NULL; row++) {
		if (row->argument == NULL)
			continue;
		if (row->words == NULL)
			fprintf(out, "\t--%s) return ;;\n", row->name);
		else if (strcmp(row->words, OPTIONS_FILES) == 0)
			fprintf(out, "\t--%s) COMPREPLY=($(compgen -f -- \"$cur\")); return ;;\n",
				row->name);
		else
			fprintf(out,
				"\t--%s) COMPREPLY=($(compgen -W \"%s\" -- \"$cur\")); "
				"return ;;\n",
				row->name, row->words);
	}
	fputs("\tesac\n", out);
}

/* Options whose argument is the next word. */
static void print_skips(FILE *out)
{
	const char *before = "\t\t";
	const struct option_row *row;

	for (row = options_table; row->name != NULL; row++) {
		if (row->argument == NULL)
			continue;
		fprintf(out, "%s--%s", before, row->name);
		before = "|";
	}
	fputs(") [ \"${COMP_WORDS[i+1]}\" = \"=\" ] || i=$((i + 1)) ;;\n", out);
}

static bool is_first_of_name(const struct command *commands, const struct command *command)
{
	for (; commands != command; commands++) {
		if (!strcmp(commands->name, command->name))
			return false;
	}
	return true;
}

/* The steps from no command over its first word to its second. */
static void print_steps(const struct command *commands, FILE *out)
{
	const struct command *command;

	for (command = commands; command->name != NULL; command++) {
		if (is_first_of_name(commands, command))
			fprintf(out, "\t\t\t\" %s\") command=%s ;;\n", command->name,
				command->name);
		if (command->subname != NULL)
			fprintf(out, "\t\t\t\"%s %s\") command=\"%s %s\" ;;\n", command->name,
				command->subname, command->name, command->subname);
	}
}

static void print_options(unsigned int takes, FILE *out)
{
	const struct option_row *row;

	fputs("\" options=\"", out);
	for (row = options_table; row->name != NULL; row++) {
		if (row->takes == 0 || (row->takes & takes) != 0)
			fprintf(out, " --%s", row->name);
	}
}

/* The second words of commands with that first one, or the first words of all. */
static void print_words(const struct command *commands, const char *name, FILE *out)
{
	const struct command *command;

	for (command = commands; command->name != NULL; command++) {
		if (name == NULL && is_first_of_name(commands, command))
			fprintf(out, " %s", command->name);
		else if (name != NULL && !strcmp(command->name, name))
			fprintf(out, " %s", command->subname);
	}
}

static void print_command(const struct command *command, FILE *out)
{
	fprintf(out, "\t\"%s%s%s\") words=\"%s", command->name, command->subname ? " " : "",
		command->subname ? command->subname : "", command->words ? command->words : "");
	print_options(command->takes, out);
	fputs("\" ;;\n", out);
}

bool completion_print(const char *shell, const struct command *commands, FILE *out)
{
	const struct command *command;

	if (strcmp(shell, "bash") != 0)
		return false;
	fputs(script_head, out);
	fputs(script_value, out);
	print_values(out);
	fputs(script_walk, out);
	print_skips(out);
	fputs(script_walked, out);
	print_steps(commands, out);
	fputs(script_found, out);
	fputs("\t\"\") words=\"", out);
	print_words(commands, NULL, out);
	print_options(~0u, out);
	fputs("\" ;;\n", out);
	for (command = commands; command->name != NULL; command++) {
		if (command->subname != NULL && is_first_of_name(commands, command)) {
			fprintf(out, "\t\"%s\") words=\"", command->name);
			print_words(commands, command->name, out);
			print_options(0, out);
			fputs("\" ;;\n", out);
		}
		print_command(command, out);
	}
	fputs(script_tail, out);
	return true;
}
