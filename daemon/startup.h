/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef DAEMON_STARTUP_H
#define DAEMON_STARTUP_H

#include "daemon/admission.h"
#include "daemon/config.h"

struct server;

#define STARTUP_STAGE_MS 30000u /* a step of the start that does not grow with the pool */

/** startup_fail() - say why there is no start; Return: SERVER_EXIT_START */
int startup_fail(const char *text);

/**
 * startup_open() - the admin socket's place, key, tenants, addresses, device, pool, isolation
 *
 * Waits for a device and addresses that are still to come. Return: 0, or an exit status of the
 * daemon, and why has been said; what is open then is the server's to tear down.
 */
int startup_open(struct server *server);

/** startup_open_admin() - serve the admin socket; Return: as startup_open() */
int startup_open_admin(struct server *server);

/** startup_admission_limits() - as the configuration says */
struct admission_limits startup_admission_limits(const struct config *config);

#endif
