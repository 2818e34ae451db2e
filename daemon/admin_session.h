/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef DAEMON_ADMIN_SESSION_H
#define DAEMON_ADMIN_SESSION_H

#include "daemon/admin.h"

/* Methods of the admin socket about sessions; ends with a NULL name. Their context is the server. */
extern const struct admin_method admin_session_methods[];

#endif
