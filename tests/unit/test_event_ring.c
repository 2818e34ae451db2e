/* SPDX-License-Identifier: BSD-3-Clause */
/* The queue of events: its order, its end, and what it says of those that found no room. */
#include "client/event_ring.h"

#include <string.h>

#include "tests/unit/test.h"

static struct event_ring ring;

/* Events are told apart by the lease's id. */
static void push(uint64_t id)
{
	struct mempool_event event = {.kind = MEMPOOL_EVENT_LEASE_ENDED, .lease_id = id};

	event_ring_push(&ring, &event);
}

static void pop(uint64_t id)
{
	struct mempool_event event = {0};

	CHECK(event_ring_pop(&ring, &event));
	CHECK_INT(event.kind, MEMPOOL_EVENT_LEASE_ENDED);
	CHECK_INT(event.lease_id, id);
}

static void pop_lost(uint64_t count)
{
	struct mempool_event event = {0};

	CHECK(event_ring_pop(&ring, &event));
	CHECK_INT(event.kind, MEMPOOL_EVENT_EVENTS_LOST);
	CHECK_INT(event.count, count);
	CHECK_INT(event.lease_id, 0);
	CHECK(event.lease == NULL);
}

static void check_empty(void)
{
	struct mempool_event event = {.kind = 77};

	CHECK(event_ring_is_empty(&ring));
	CHECK(!event_ring_pop(&ring, &event));
	CHECK_INT(event.kind, 77);
}

static void fill(void)
{
	memset(&ring, 0, sizeof(ring));
	for (uint64_t i = 1; i <= EVENT_RING_MAX; i++)
		push(i);
}

TEST(event_ring__order_is_kept_around_the_end)
{
	memset(&ring, 0, sizeof(ring));
	check_empty();
	for (uint64_t i = 1; i <= 3 * EVENT_RING_MAX; i++) {
		push(2 * i);
		push(2 * i + 1);
		CHECK(!event_ring_is_empty(&ring));
		pop(2 * i);
		pop(2 * i + 1);
	}
	check_empty();
}

TEST(event_ring__full_and_nothing_lost)
{
	fill();
	for (uint64_t i = 1; i <= EVENT_RING_MAX; i++)
		pop(i);
	check_empty();
}

TEST(event_ring__one_too_many)
{
	fill();
	push(1000);
	for (uint64_t i = 1; i <= EVENT_RING_MAX; i++)
		pop(i);
	CHECK(!event_ring_is_empty(&ring));
	pop_lost(1);
	check_empty();
}

/* The count stands where the missing ones would, before what came later. */
TEST(event_ring__count_is_in_its_place)
{
	fill();
	for (uint64_t i = 0; i < 5; i++)
		push(1000 + i);
	pop(1);
	push(2000); /* there is room for it, but not for the count, too */
	pop(2);
	push(3000);
	CHECK_INT(ring.count, EVENT_RING_MAX);
	push(4000);
	for (uint64_t i = 3; i <= EVENT_RING_MAX; i++)
		pop(i);
	pop_lost(6);
	pop(3000);
	pop_lost(1);
	check_empty();
	push(5000);
	pop(5000);
	check_empty();
}

TEST(event_ring_forget__only_that_lease)
{
	mempool_lease *first = (mempool_lease *)&ring.events[0];
	mempool_lease *second = (mempool_lease *)&ring.events[1];
	struct mempool_event event = {.kind = MEMPOOL_EVENT_LEASE_ENDED};

	fill();
	for (uint64_t i = 1; i <= EVENT_RING_MAX; i++)
		pop(i);
	event.lease = first;
	event_ring_push(&ring, &event);
	event.lease = second;
	event_ring_push(&ring, &event);
	event_ring_forget(&ring, first);
	CHECK(event_ring_pop(&ring, &event));
	CHECK(event.lease == NULL);
	CHECK(event_ring_pop(&ring, &event));
	CHECK(event.lease == second);
}
