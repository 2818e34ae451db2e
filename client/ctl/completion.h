/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef CLIENT_CTL_COMPLETION_H
#define CLIENT_CTL_COMPLETION_H

#include <stdbool.h>
#include <stdio.h>

#include "client/ctl/options.h"

/**
 * completion_print() - a script that completes command lines
 * @shell: its name
 *
 * Return: false if nothing is known of such a shell.
 */
bool completion_print(const char *shell, const struct command *commands, FILE *out);

#endif
