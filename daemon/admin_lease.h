/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef DAEMON_ADMIN_LEASE_H
#define DAEMON_ADMIN_LEASE_H

#include "daemon/admin.h"

/* Methods of the admin socket about leases; ends with a NULL name. Their context is the server. */
extern const struct admin_method admin_lease_methods[];

#endif
