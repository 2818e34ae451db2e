/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef DAEMON_ADMIN_DRAIN_H
#define DAEMON_ADMIN_DRAIN_H

#include "daemon/admin.h"

struct drain;

/** The methods "drain" and "undrain"; the context is a struct server. */
extern const struct admin_method admin_drain_methods[];

/** admin_drain_show() - the drain as JSON: state, leases left, time left */
json_t *admin_drain_show(const struct drain *drain);

#endif
