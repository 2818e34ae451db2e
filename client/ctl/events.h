/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef CLIENT_CTL_EVENTS_H
#define CLIENT_CTL_EVENTS_H

#include "client/ctl/command.h"

/* mempoolctl events: a function of the table of commands. */
enum exit_status events_run(const struct options *options, int argc, char **argv);

#endif
