/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef CLIENT_EVENTS_H
#define CLIENT_EVENTS_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "client/event_ring.h"
#include "client/include/mempool.h"
#include "proto/message.h"

/* What a session tells the application of its own accord; guarded by the session's lock. */
struct events {
	bool on;		   /* the application has the session: there is somebody to tell */
	bool draining;		   /* told, since the session was last opened */
	int fd;			   /* readable while there is an event to take */
	mempool_event_fn callback; /* NULL: the application takes them; constant */
	void *context;		   /* constant */
	pthread_cond_t came;
	struct event_ring ring;
};

/** events_init() - Return: 0 or a negative errno */
int events_init(struct events *events, const struct mempool_connect_opts *opts);
void events_deinit(struct events *events);

/* All of these with the lock held. What happens while nobody can be told is not told later. */

/** events_tell() - of the session; @code: why, 0: does not matter */
void events_tell(struct mempool *pool, uint32_t kind, int code);

/** events_tell_lease() - of a lease; @left_ms: as mempool_event has it */
void events_tell_lease(struct mempool_lease *lease, uint32_t kind, int code, uint64_t left_ms);

/** events_tell_draining() - once for each connection, and if it was not told by the daemon itself */
void events_tell_draining(struct mempool *pool);

/** events_tell_drain() - the daemon's notice: each time that it says so; or there is no drain */
void events_tell_drain(struct mempool *pool, const struct message_drain *notice);

/** events_forget() - a lease's handle is no good any more */
void events_forget(struct mempool *pool, const struct mempool_lease *lease);

/** events_deliver() - on the service thread: run the callback; gives up the lock meanwhile */
void events_deliver(struct mempool *pool);

#endif
