/* SPDX-License-Identifier: BSD-3-Clause */
/* Starts that are refused. Thread: the test's. */
#include "tests/integration/refused.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define REFUSED_LIMIT_MS 20000

int refused_start(const struct harness_options *options, const char *shell,
		  struct harness_output *ret_output)
{
	__attribute__((cleanup(harness_cleanup))) struct harness h = {0};
	char program[PATH_MAX];
	char config[HARNESS_TEXT_MAX];
	const char *argv[] = {
		"sh",
		"-c",
		shell != NULL ? shell : "exec \"$@\"",
		"sh",
		harness_program(options->program != NULL ? options->program : "mempoold", program),
		"--config",
		config,
		NULL,
	};
	int r;

	snprintf(h.dir, sizeof(h.dir), "/tmp/itest.XXXXXX");
	if (mkdtemp(h.dir) == NULL)
		return -errno;
	r = harness_configure(&h, options);
	if (r < 0)
		return r;
	harness_path(&h, "mempoold.conf", config);
	return harness_run(argv, REFUSED_LIMIT_MS, ret_output);
}

/* Lines that say why: of the log, or of a daemon that has not got as far as that. */
static unsigned int refused_count(const char *text)
{
	unsigned int count = 0;

	for (const char *line = text; *line != '\0'; line += strcspn(line, "\n") + 1) {
		size_t len = strcspn(line, "\n");

		count += memmem(line, len, "Z error: ", 9) != NULL ||
			 strncmp(line, "mempoold: ", 10) == 0;
		if (line[len] == '\0')
			break;
	}
	return count;
}

void refused_check(const struct harness_output *output, int status, const char *text)
{
	unsigned int count = refused_count(output->err);

	if (output->status != status || count != 1 || strstr(output->err, text) == NULL)
		printf("# expected \"%s\" in: %s\n", text, output->err);
	CHECK_INT(output->status, status);
	CHECK_INT(count, 1);
	CHECK(strstr(output->err, text) != NULL);
}
