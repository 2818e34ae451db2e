/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A bounded queue of events. Pure code.
 *
 * Invariants: the order is kept, that of the count of lost events included. Events are lost
 * only from when the ring is full until it has room for the count and for a further event.
 *
 * Thread: the owner's.
 */
#include "client/event_ring.h"

static void event_ring_add(struct event_ring *ring, const struct mempool_event *event)
{
	ring->events[(ring->first + ring->count) % EVENT_RING_MAX] = *event;
	ring->count++;
}

static struct mempool_event event_ring_lost(const struct event_ring *ring)
{
	return (struct mempool_event){.kind = MEMPOOL_EVENT_EVENTS_LOST, .count = ring->lost};
}

void event_ring_push(struct event_ring *ring, const struct mempool_event *event)
{
	uint32_t room = EVENT_RING_MAX - ring->count;
	struct mempool_event lost = event_ring_lost(ring);

	if (room < (ring->lost > 0 ? 2u : 1u)) {
		ring->lost++;
		return;
	}
	if (ring->lost > 0)
		event_ring_add(ring, &lost);
	ring->lost = 0;
	event_ring_add(ring, event);
}

bool event_ring_is_empty(const struct event_ring *ring)
{
	return ring->count == 0 && ring->lost == 0;
}

bool event_ring_pop(struct event_ring *ring, struct mempool_event *ret_event)
{
	if (event_ring_is_empty(ring))
		return false;
	if (ring->count > 0) {
		*ret_event = ring->events[ring->first];
		ring->first = (ring->first + 1) % EVENT_RING_MAX;
		ring->count--;
		return true;
	}
	*ret_event = event_ring_lost(ring);
	ring->lost = 0;
	return true;
}

void event_ring_forget(struct event_ring *ring, const mempool_lease *lease)
{
	for (uint32_t i = 0; i < ring->count; i++) {
		struct mempool_event *event = &ring->events[(ring->first + i) % EVENT_RING_MAX];

		if (event->lease == lease)
			event->lease = NULL;
	}
}
