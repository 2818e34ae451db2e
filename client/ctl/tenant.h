/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef CLIENT_CTL_TENANT_H
#define CLIENT_CTL_TENANT_H

#include "client/ctl/command.h"

/* mempoolctl tenant ..., and reload: functions of the table of commands. */
enum exit_status tenant_run_list(const struct options *options, int argc, char **argv);
enum exit_status tenant_run_show(const struct options *options, int argc, char **argv);
enum exit_status tenant_run_add(const struct options *options, int argc, char **argv);
enum exit_status tenant_run_remove(const struct options *options, int argc, char **argv);
enum exit_status tenant_run_set(const struct options *options, int argc, char **argv);
enum exit_status tenant_run_unban(const struct options *options, int argc, char **argv);
enum exit_status tenant_run_reload(const struct options *options, int argc, char **argv);

#endif
