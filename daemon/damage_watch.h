/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef DAEMON_DAMAGE_WATCH_H
#define DAEMON_DAMAGE_WATCH_H

struct event;
struct server;

/* What becomes of damaged memory: its lease ends, its pages are never lent again. */
struct damage_watch {
	struct event *event;
};

/** damage_watch_start() - the pool is there; Return: 0 or a negative errno */
int damage_watch_start(struct server *server);

/** damage_watch_stop() - not started is allowed */
void damage_watch_stop(struct server *server);

#endif
