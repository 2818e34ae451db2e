/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef DAEMON_DAMAGE_WATCH_H
#define DAEMON_DAMAGE_WATCH_H

#include "daemon/deadline.h"

struct event;
struct lease;
struct server;

/* What becomes of damaged memory: its lease ends, its pages are never lent again. */
struct damage_watch {
	struct event *event;
	struct deadline deadline; /* for the next leases to be looked at */
	struct lease *next;	  /* to be looked at; NULL: all have been */
};

/** damage_watch_start() - the pool is there; Return: 0 or a negative errno */
int damage_watch_start(struct server *server);

/** damage_watch_lease_gone() - a lease is about to be freed: it is not looked at any more */
void damage_watch_lease_gone(struct damage_watch *watch, const struct lease *lease);

/** damage_watch_stop() - not started is allowed */
void damage_watch_stop(struct server *server);

#endif
