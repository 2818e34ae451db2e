/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef DAEMON_ADMIN_TENANT_H
#define DAEMON_ADMIN_TENANT_H

#include "daemon/admin.h"

/*
 * What the operator asks and orders about tenants, and `reload`; context = struct server.
 *
 *	tenant.list	{} -> {"tenants": [tenant, ...]} by name
 *	tenant.show	{"name"} -> tenant, with "keys"
 *	tenant.add	{"name", "keys", "quota"?, "save"?} -> {"name", "saved"}
 *	tenant.set	{"name", "keys"?, "quota"?, "save"?} -> {"name", "saved"}; what is not named,
 *			within "quota" too, stays
 *	tenant.remove	{"name", "save"?} -> {"name", "saved"}
 *	tenant.unban	{"name"} -> {"name", "was_banned"}
 *	reload		{} -> as reload_run()
 *
 * A tenant that was removed is listed, as not "configured", until all that it had is gone.
 */
extern const struct admin_method admin_tenant_methods[];

#endif
