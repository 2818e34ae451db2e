/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef CLIENT_TOOLS_STOP_H
#define CLIENT_TOOLS_STOP_H

#include <stdbool.h>

#include "client/tools/tool.h"

/*
 * Signals that end a tool in order: SIGINT, SIGTERM and SIGHUP, unless they were ignored when it
 * was started.
 */

/** stop_catch() - from now on these signals ask to stop; main thread, before there are others */
void stop_catch(void);

/** stop_asked() - has one come? Any thread. Calls that wait are to look before, and on EINTR. */
bool stop_asked(void);

/** stop_no_more() - what comes now need not be interrupted: it has limits of its own */
void stop_no_more(void);

/** stop_complain() - say that it was one of these signals; Return: TOOL_FAILED */
enum tool_status stop_complain(void);

#endif
