/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef TESTS_STORY_UNIT_H
#define TESTS_STORY_UNIT_H

#include <sys/types.h>

/* A unit of systemd's, by its own tools. Functions return 0, or -1 having told what failed. */

/** unit_start() - systemctl start, which must return with the service serving */
int unit_start(const char *unit, pid_t *ret_pid);

/** unit_stop() - systemctl stop; @ret_status: what the main process ended with */
int unit_stop(const char *unit, int *ret_status);

/** unit_print_log() - the last lines that the journal has of it */
void unit_print_log(const char *unit);

#endif
