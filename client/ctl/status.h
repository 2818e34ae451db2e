/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef CLIENT_CTL_STATUS_H
#define CLIENT_CTL_STATUS_H

#include "client/ctl/command.h"

/* mempoolctl status: a function of the table of commands. */
enum exit_status status_run(const struct options *options, int argc, char **argv);

#endif
