/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef CLIENT_EVENT_RING_H
#define CLIENT_EVENT_RING_H

#include <stdbool.h>
#include <stdint.h>

#include "client/include/mempool.h"

#define EVENT_RING_MAX 256

/* Events that nobody has taken yet, oldest first. All zero: empty. */
struct event_ring {
	uint32_t first;
	uint32_t count;
	uint64_t lost; /* that found no room behind the last one */
	struct mempool_event events[EVENT_RING_MAX];
};

/**
 * event_ring_push() - add an event; the size in it does not matter
 *
 * Without room it is counted as lost. The count is an event of its own
 * (MEMPOOL_EVENT_EVENTS_LOST), in the place of those that it stands for.
 */
void event_ring_push(struct event_ring *ring, const struct mempool_event *event);

/** event_ring_pop() - take the oldest; Return: was there one? */
bool event_ring_pop(struct event_ring *ring, struct mempool_event *ret_event);

/** event_ring_is_empty() - is there nothing to take? */
bool event_ring_is_empty(const struct event_ring *ring);

/** event_ring_forget() - a lease's handle is no good any more: its events stay, without it */
void event_ring_forget(struct event_ring *ring, const mempool_lease *lease);

#endif
