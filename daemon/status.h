/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef DAEMON_STATUS_H
#define DAEMON_STATUS_H

#include "daemon/admin.h"

/* What the operator can ask and order: the methods of the admin socket; context = struct server. */
extern const struct admin_method status_methods[];

#endif
