/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef TESTS_INTEGRATION_REFUSED_H
#define TESTS_INTEGRATION_REFUSED_H

#include "tests/integration/harness.h"

/**
 * refused_start() - start a daemon that is expected to end by itself, and wait for that
 * @shell: a command for sh that runs "$@", with other limits say; NULL: as it is
 *
 * Return: 0 or a negative errno (-ETIMEDOUT: it has not ended, and was killed).
 */
int refused_start(const struct harness_options *options, const char *shell,
		  struct harness_output *ret_output);

/** refused_check() - that it ended with a status, and one line on stderr that has a text in it */
void refused_check(const struct harness_output *output, int status, const char *text);

#endif
