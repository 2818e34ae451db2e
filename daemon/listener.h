/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef DAEMON_LISTENER_H
#define DAEMON_LISTENER_H

#include <infiniband/verbs.h>
#include <rdma/rdma_cma.h>
#include <stdbool.h>
#include <stddef.h>

#include "daemon/config.h"
#include "daemon/lane.h"

struct event;
struct server;

#define LISTENER_ERROR_MAX 512
#define LISTENER_PEER_MAX  64

/* The rdma_cm event channel of the daemon and the addresses it listens on. */
struct listener {
	enum cm_kind kind; /* CM_LISTENER; first, since rdma_cm's events find us by it */
	struct rdma_event_channel *channel;
	struct event *event;
	struct rdma_cm_id *ids[CONFIG_LISTEN_MAX];
	size_t count;
	size_t discards; /* rejected ids that are being destroyed */
	bool paused;	 /* there are too many of those */
};

/**
 * listener_bind() - bind all addresses of the configuration, without listening yet
 * @error: LISTENER_ERROR_MAX bytes, one line with the address and the remedy
 *
 * Return: 0 or a negative errno. listener_close() is due in any case.
 */
int listener_bind(struct listener *listener, const struct config *config, char *error);

/** listener_context() - the device that a listen address belongs to; NULL if all are wildcards */
struct ibv_context *listener_context(const struct listener *listener);

/** listener_name_peer() - who is at the other end, for people; @buf: LISTENER_PEER_MAX bytes */
void listener_name_peer(struct rdma_cm_id *id, char *buf);

/** listener_start() - listen, and serve the channel's events from the loop; Return: 0 or a negative errno */
int listener_start(struct server *server, char *error);

/** listener_stop() - no new connections; events of those that exist are still served */
void listener_stop(struct listener *listener);

/** listener_close() - the channel too; every id of the daemon must be gone; all zero is allowed */
void listener_close(struct listener *listener);

#endif
