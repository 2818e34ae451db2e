/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A binary heap of (time, order of setting), so that deadlines of the same time fire
 * in the order in which they were set, and one timerfd for the earliest of them.
 * The time is absolute and on the clock that clock_now_ns() reads: the kernel never
 * wakes us early, and what is due is decided by the clock, not by the wake-up.
 *
 * The timer is armed no later than the earliest deadline. It may be earlier, after
 * that one was cleared or moved: the wake-up then finds nothing due and arms anew,
 * which is cheaper than a system call for each renewal of a lease. A wake-up fires a
 * bounded number; the time of what is left has passed, so the timer fires again at
 * once and the loop serves its other events in between. Loop thread only.
 */
#include "daemon/deadline.h"

#include <assert.h>
#include <errno.h>
#include <event2/event.h>
#include <stdlib.h>
#include <sys/timerfd.h>
#include <time.h>
#include <unistd.h>

#include "common/clock.h"
#include "daemon/loop.h"

#define FIRES_PER_WAKEUP 32
#define CAPACITY_MIN	 64

struct entry {
	struct deadline *deadline;
	uint64_t order; /* of setting */
};

struct deadline_queue {
	struct entry *heap; /* root at [0]; entry i has the children 2 * i + 1 and + 2 */
	size_t count;
	size_t capacity;
	uint64_t next_order;
	struct event *timer_event; /* NULL without a loop */
	int timer_fd;
	uint64_t armed_ns; /* UINT64_MAX: not armed */
	bool is_running;
};

static bool is_before(const struct entry *a, const struct entry *b)
{
	if (a->deadline->at_ns != b->deadline->at_ns)
		return a->deadline->at_ns < b->deadline->at_ns;
	return a->order < b->order;
}

static void put(struct deadline_queue *queue, size_t i, struct entry entry)
{
	queue->heap[i] = entry;
	entry.deadline->index_1 = i + 1;
}

static void sift_up(struct deadline_queue *queue, size_t i)
{
	struct entry entry = queue->heap[i];

	while (i > 0 && is_before(&entry, &queue->heap[(i - 1) / 2])) {
		put(queue, i, queue->heap[(i - 1) / 2]);
		i = (i - 1) / 2;
	}
	put(queue, i, entry);
}

static void sift_down(struct deadline_queue *queue, size_t i)
{
	struct entry entry = queue->heap[i];

	for (;;) {
		size_t child = 2 * i + 1;

		if (child >= queue->count)
			break;
		if (child + 1 < queue->count &&
		    is_before(&queue->heap[child + 1], &queue->heap[child]))
			child++;
		if (!is_before(&queue->heap[child], &entry))
			break;
		put(queue, i, queue->heap[child]);
		i = child;
	}
	put(queue, i, entry);
}

/* An entry has changed: move it up or down to where it belongs. */
static void sift(struct deadline_queue *queue, size_t i)
{
	if (i > 0 && is_before(&queue->heap[i], &queue->heap[(i - 1) / 2]))
		sift_up(queue, i);
	else
		sift_down(queue, i);
}

static int resize(struct deadline_queue *queue, size_t capacity)
{
	struct entry *heap = reallocarray(queue->heap, capacity, sizeof(*heap));

	if (heap == NULL)
		return -ENOMEM;
	queue->heap = heap;
	queue->capacity = capacity;
	return 0;
}

static int append(struct deadline_queue *queue, struct deadline *deadline)
{
	int r;

	if (queue->count == queue->capacity) {
		r = resize(queue, queue->capacity * 2);
		if (r < 0)
			return r;
	}
	put(queue, queue->count, (struct entry){.deadline = deadline});
	queue->count++;
	return 0;
}

static void take_out(struct deadline_queue *queue, struct deadline *deadline)
{
	size_t i = deadline->index_1 - 1;
	size_t last = queue->count - 1;

	assert(i < queue->count && queue->heap[i].deadline == deadline);
	queue->count = last;
	if (i != last) {
		put(queue, i, queue->heap[last]);
		sift(queue, i);
	}
	deadline->index_1 = 0;
	/* Without memory for a smaller array, the larger one stays. */
	if (queue->capacity > CAPACITY_MIN && queue->count <= queue->capacity / 4)
		(void)resize(queue, queue->capacity / 2);
}

static void arm(struct deadline_queue *queue)
{
	uint64_t at_ns = deadline_queue_next_ns(queue);
	struct itimerspec spec = {0};
	int r;

	if (queue->timer_event == NULL || queue->is_running || at_ns >= queue->armed_ns)
		return;
	queue->armed_ns = at_ns;
	if (at_ns == 0)
		at_ns = 1; /* 0 would disarm */
	spec.it_value.tv_sec = (time_t)(at_ns / CLOCK_NS_PER_S);
	spec.it_value.tv_nsec = (long)(at_ns % CLOCK_NS_PER_S);
	r = timerfd_settime(queue->timer_fd, TFD_TIMER_ABSTIME, &spec, NULL);
	assert(r == 0);
	(void)r;
}

static void on_timer(evutil_socket_t fd, short what, void *context)
{
	struct deadline_queue *queue = context;
	uint64_t expirations;

	loop_mark();
	(void)what;
	/* Nothing to read if the timer was armed anew since: what is due counts, not this. */
	if (read(fd, &expirations, sizeof(expirations)) < 0)
		assert(errno == EAGAIN);
	queue->armed_ns = UINT64_MAX;
	deadline_queue_run(queue, clock_now_ns(), FIRES_PER_WAKEUP);
}

static int join_loop(struct deadline_queue *queue, struct event_base *base)
{
	int r;

	queue->timer_fd = timerfd_create(CLOCK_BOOTTIME, TFD_NONBLOCK | TFD_CLOEXEC);
	if (queue->timer_fd < 0)
		return -errno;
	queue->timer_event =
		event_new(base, queue->timer_fd, EV_READ | EV_PERSIST, on_timer, queue);
	if (queue->timer_event == NULL) {
		r = -ENOMEM;
		goto err_close_timer;
	}
	if (event_add(queue->timer_event, NULL) < 0) {
		r = -EIO;
		goto err_free_event;
	}
	return 0;

err_free_event:
	event_free(queue->timer_event);
err_close_timer:
	close(queue->timer_fd);
	return r;
}

int deadline_queue_new(struct event_base *base, struct deadline_queue **ret_queue)
{
	struct deadline_queue *queue;
	int r;

	queue = calloc(1, sizeof(*queue));
	if (queue == NULL)
		return -ENOMEM;
	queue->armed_ns = UINT64_MAX;
	r = resize(queue, CAPACITY_MIN);
	if (r < 0)
		goto err_free_queue;
	if (base != NULL) {
		r = join_loop(queue, base);
		if (r < 0)
			goto err_free_heap;
	}
	*ret_queue = queue;
	return 0;

err_free_heap:
	free(queue->heap);
err_free_queue:
	free(queue);
	return r;
}

struct deadline_queue *deadline_queue_free(struct deadline_queue *queue)
{
	if (queue == NULL)
		return NULL;
	assert(queue->count == 0);
	if (queue->timer_event != NULL) {
		event_free(queue->timer_event);
		close(queue->timer_fd);
	}
	free(queue->heap);
	free(queue);
	return NULL;
}

int deadline_set(struct deadline_queue *queue, struct deadline *deadline, uint64_t at_ns)
{
	size_t i;
	int r;

	if (!deadline_is_set(deadline)) {
		r = append(queue, deadline);
		if (r < 0)
			return r;
	}
	i = deadline->index_1 - 1;
	assert(i < queue->count && queue->heap[i].deadline == deadline);
	deadline->at_ns = at_ns;
	queue->heap[i].order = queue->next_order++;
	sift(queue, i);
	arm(queue);
	return 0;
}

void deadline_clear(struct deadline_queue *queue, struct deadline *deadline)
{
	if (deadline_is_set(deadline))
		take_out(queue, deadline);
}

size_t deadline_queue_run(struct deadline_queue *queue, uint64_t now_ns, size_t budget)
{
	size_t fired = 0;

	/* Arm once at the end, not for each deadline that is set meanwhile. */
	queue->is_running = true;
	while (fired < budget && queue->count > 0) {
		struct deadline *deadline = queue->heap[0].deadline;

		if (deadline->at_ns > now_ns)
			break;
		take_out(queue, deadline);
		deadline->fire(deadline, deadline->context);
		fired++;
	}
	queue->is_running = false;
	arm(queue);
	return fired;
}

uint64_t deadline_queue_next_ns(const struct deadline_queue *queue)
{
	return queue->count == 0 ? UINT64_MAX : queue->heap[0].deadline->at_ns;
}
