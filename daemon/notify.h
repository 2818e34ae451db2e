/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef DAEMON_NOTIFY_H
#define DAEMON_NOTIFY_H

#include <stdint.h>

/*
 * The way to the service manager that has started us, if one has. Without one nothing is
 * sent, and there is no watchdog and no socket. Thread: the loop's, also before the loop runs.
 */

/**
 * notify_send() - tell the service manager
 * @state: "KEY=value", one a line, as in sd_notify(3)
 *
 * What it does not take is lost: nobody's service depends on it.
 */
void notify_send(const char *state);

/** notify_watchdog_us() - how long we may be silent once we serve; 0: there is no watchdog */
uint64_t notify_watchdog_us(void);

/**
 * notify_take_listener() - a socket that the service manager listens on for us
 * @path: of the unix stream socket
 *
 * The first that matches; others are left alone, and closed by nobody.
 * Return: its descriptor, the caller's, close-on-exec and non-blocking; or -ENOENT: none.
 */
int notify_take_listener(const char *path);

#endif
