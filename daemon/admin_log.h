/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef DAEMON_ADMIN_LOG_H
#define DAEMON_ADMIN_LOG_H

#include "daemon/admin.h"

/* Methods of the admin socket about the daemon's log; ends with a NULL name. Their context is the server. */
extern const struct admin_method admin_log_methods[];

#endif
