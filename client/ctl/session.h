/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef CLIENT_CTL_SESSION_H
#define CLIENT_CTL_SESSION_H

#include "client/ctl/command.h"

/* mempoolctl session ...: functions of the table of commands. */
enum exit_status session_run_list(const struct options *options, int argc, char **argv);
enum exit_status session_run_kick(const struct options *options, int argc, char **argv);

#endif
