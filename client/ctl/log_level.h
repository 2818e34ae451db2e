/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef CLIENT_CTL_LOG_LEVEL_H
#define CLIENT_CTL_LOG_LEVEL_H

#include "client/ctl/command.h"

/* mempoolctl log-level: a function of the table of commands. */
enum exit_status log_level_run(const struct options *options, int argc, char **argv);

#endif
