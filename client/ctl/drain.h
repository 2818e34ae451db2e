/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef CLIENT_CTL_DRAIN_H
#define CLIENT_CTL_DRAIN_H

#include "client/ctl/command.h"

/* mempoolctl drain, undrain: functions of the table of commands. */
enum exit_status drain_run(const struct options *options, int argc, char **argv);
enum exit_status drain_run_undrain(const struct options *options, int argc, char **argv);

#endif
