/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef CLIENT_CTL_LEASE_H
#define CLIENT_CTL_LEASE_H

#include "client/ctl/command.h"

/* mempoolctl lease ...: functions of the table of commands. */
enum exit_status lease_run_list(const struct options *options, int argc, char **argv);
enum exit_status lease_run_show(const struct options *options, int argc, char **argv);
enum exit_status lease_run_revoke(const struct options *options, int argc, char **argv);

#endif
