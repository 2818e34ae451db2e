/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * daemon/deadline.c: the heap against a plain array under time of our own, then the
 * timer in a real loop: never early, and other events served during a storm.
 */
#include "daemon/deadline.h"

#include <errno.h>
#include <event2/event.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "common/clock.h"
#include "tests/unit/random.h"
#include "tests/unit/test.h"

#define FIRED_MAX 16

/* Which deadlines have fired, in order. */
struct fired {
	size_t count;
	const struct deadline *order[FIRED_MAX];
};

static void note(struct deadline *deadline, void *context)
{
	struct fired *fired = context;

	CHECK(!deadline_is_set(deadline));
	CHECK(fired->count < FIRED_MAX);
	fired->order[fired->count++] = deadline;
}

TEST(deadline_queue__empty)
{
	struct deadline_queue *queue;

	CHECK_INT(deadline_queue_new(NULL, &queue), 0);
	CHECK_INT(deadline_queue_next_ns(queue), UINT64_MAX);
	CHECK_INT(deadline_queue_run(queue, UINT64_MAX, 64), 0);
	CHECK(deadline_queue_free(queue) == NULL);
	CHECK(deadline_queue_free(NULL) == NULL);
}

TEST(deadline_queue_run__not_before_its_time)
{
	struct deadline_queue *queue;
	struct fired fired = {0};
	struct deadline deadline = {.fire = note, .context = &fired};

	CHECK_INT(deadline_queue_new(NULL, &queue), 0);
	CHECK(!deadline_is_set(&deadline));
	CHECK_INT(deadline_set(queue, &deadline, 1000), 0);
	CHECK(deadline_is_set(&deadline));
	CHECK_INT(deadline_queue_next_ns(queue), 1000);
	CHECK_INT(deadline_queue_run(queue, 999, 64), 0);
	CHECK(deadline_is_set(&deadline));
	CHECK_INT(deadline_queue_run(queue, 1000, 64), 1);
	CHECK_INT(fired.count, 1);
	CHECK_INT(deadline_queue_run(queue, 2000, 64), 0);
	CHECK_INT(deadline_queue_next_ns(queue), UINT64_MAX);
	deadline_queue_free(queue);
}

TEST(deadline_queue_run__times_at_both_ends)
{
	struct deadline_queue *queue;
	struct fired fired = {0};
	struct deadline first = {.fire = note, .context = &fired};
	struct deadline last = {.fire = note, .context = &fired};

	CHECK_INT(deadline_queue_new(NULL, &queue), 0);
	CHECK_INT(deadline_set(queue, &last, UINT64_MAX), 0);
	CHECK_INT(deadline_set(queue, &first, 0), 0);
	CHECK_INT(deadline_queue_next_ns(queue), 0);
	CHECK_INT(deadline_queue_run(queue, 0, 64), 1);
	CHECK(fired.order[0] == &first);
	CHECK_INT(deadline_queue_run(queue, UINT64_MAX - 1, 64), 0);
	CHECK_INT(deadline_queue_run(queue, UINT64_MAX, 64), 1);
	CHECK(fired.order[1] == &last);
	deadline_queue_free(queue);
}

TEST(deadline_queue_run__same_time_in_order_of_setting)
{
	struct deadline_queue *queue;
	struct fired fired = {0};
	struct deadline deadlines[10];

	CHECK_INT(deadline_queue_new(NULL, &queue), 0);
	for (size_t i = 0; i < 10; i++) {
		deadlines[i] = (struct deadline){.fire = note, .context = &fired};
		CHECK_INT(deadline_set(queue, &deadlines[i], 5), 0);
	}
	/* Setting it again, even to the same time, puts it last. */
	CHECK_INT(deadline_set(queue, &deadlines[0], 5), 0);
	CHECK_INT(deadline_queue_run(queue, 5, 64), 10);
	for (size_t i = 0; i < 9; i++)
		CHECK(fired.order[i] == &deadlines[i + 1]);
	CHECK(fired.order[9] == &deadlines[0]);
	deadline_queue_free(queue);
}

TEST(deadline_queue_run__stops_at_budget)
{
	struct deadline_queue *queue;
	struct fired fired = {0};
	struct deadline deadlines[5];

	CHECK_INT(deadline_queue_new(NULL, &queue), 0);
	for (size_t i = 0; i < 5; i++) {
		deadlines[i] = (struct deadline){.fire = note, .context = &fired};
		CHECK_INT(deadline_set(queue, &deadlines[i], i), 0);
	}
	CHECK_INT(deadline_queue_run(queue, 100, 0), 0);
	CHECK_INT(deadline_queue_run(queue, 100, 2), 2);
	CHECK_INT(deadline_queue_next_ns(queue), 2);
	CHECK_INT(deadline_queue_run(queue, 100, 3), 3);
	CHECK_INT(fired.count, 5);
	deadline_queue_free(queue);
}

TEST(deadline_set__moves_both_ways)
{
	struct deadline_queue *queue;
	struct fired fired = {0};
	struct deadline a = {.fire = note, .context = &fired};
	struct deadline b = {.fire = note, .context = &fired};

	CHECK_INT(deadline_queue_new(NULL, &queue), 0);
	CHECK_INT(deadline_set(queue, &a, 10), 0);
	CHECK_INT(deadline_set(queue, &b, 20), 0);
	CHECK_INT(deadline_set(queue, &a, 30), 0);
	CHECK_INT(deadline_queue_next_ns(queue), 20);
	CHECK_INT(deadline_set(queue, &a, 5), 0);
	CHECK_INT(deadline_queue_next_ns(queue), 5);
	CHECK_INT(deadline_queue_run(queue, 30, 64), 2);
	CHECK(fired.order[0] == &a);
	CHECK(fired.order[1] == &b);
	deadline_queue_free(queue);
}

TEST(deadline_clear__set_or_not)
{
	struct deadline_queue *queue;
	struct fired fired = {0};
	struct deadline deadline = {.fire = note, .context = &fired};

	CHECK_INT(deadline_queue_new(NULL, &queue), 0);
	deadline_clear(queue, &deadline);
	CHECK_INT(deadline_set(queue, &deadline, 1), 0);
	deadline_clear(queue, &deadline);
	CHECK(!deadline_is_set(&deadline));
	deadline_clear(queue, &deadline);
	CHECK_INT(deadline_queue_run(queue, 100, 64), 0);
	CHECK_INT(fired.count, 0);
	deadline_queue_free(queue);
}

/* A deadline whose function sets itself again and clears one and sets another. */
struct meddler {
	struct deadline deadline;
	struct deadline_queue *queue;
	struct deadline *to_clear;
	struct deadline *to_set;
	uint64_t again_ns;
	unsigned int fired;
};

static void meddle(struct deadline *deadline, void *context)
{
	struct meddler *meddler = context;

	CHECK(deadline == &meddler->deadline);
	CHECK(!deadline_is_set(deadline));
	meddler->fired++;
	deadline_clear(meddler->queue, meddler->to_clear);
	CHECK_INT(deadline_set(meddler->queue, meddler->to_set, deadline->at_ns), 0);
	if (meddler->again_ns != 0)
		CHECK_INT(deadline_set(meddler->queue, deadline, meddler->again_ns), 0);
	meddler->again_ns = 0;
}

TEST(deadline_queue_run__set_and_clear_while_firing)
{
	struct deadline_queue *queue;
	struct fired fired = {0};
	struct deadline cleared = {.fire = note, .context = &fired};
	struct deadline set = {.fire = note, .context = &fired};
	struct meddler meddler = {
		.deadline = {.fire = meddle, .context = &meddler},
		.to_clear = &cleared,
		.to_set = &set,
		.again_ns = 50,
	};

	CHECK_INT(deadline_queue_new(NULL, &queue), 0);
	meddler.queue = queue;
	CHECK_INT(deadline_set(queue, &meddler.deadline, 10), 0);
	CHECK_INT(deadline_set(queue, &cleared, 10), 0);
	CHECK_INT(deadline_queue_run(queue, 49, 64), 2);
	CHECK_INT(meddler.fired, 1);
	CHECK_INT(fired.count, 1);
	CHECK(fired.order[0] == &set);
	CHECK_INT(deadline_queue_next_ns(queue), 50);
	CHECK_INT(deadline_queue_run(queue, 50, 64), 2);
	CHECK_INT(meddler.fired, 2);
	CHECK_INT(fired.count, 2);
	CHECK_INT(deadline_queue_next_ns(queue), UINT64_MAX);
	deadline_queue_free(queue);
}

/* One that is always due again must not hold the loop: the budget ends it. */
TEST(deadline_queue_run__set_again_in_the_past)
{
	struct deadline_queue *queue;
	struct meddler meddler = {.deadline = {.fire = meddle, .context = &meddler}};
	struct deadline unset = {0};

	CHECK_INT(deadline_queue_new(NULL, &queue), 0);
	meddler.queue = queue;
	meddler.to_clear = &unset;
	meddler.to_set = &meddler.deadline;
	CHECK_INT(deadline_set(queue, &meddler.deadline, 1), 0);
	CHECK_INT(deadline_queue_run(queue, 100, 64), 64);
	CHECK_INT(meddler.fired, 64);
	deadline_clear(queue, &meddler.deadline);
	deadline_queue_free(queue);
}

#define MODEL_DEADLINES 10000

struct model_deadline {
	struct deadline deadline;
	uint64_t order; /* of setting */
};

struct model {
	struct model_deadline *sorted[MODEL_DEADLINES];
	size_t fired;
};

static void check_next(struct deadline *deadline, void *context)
{
	struct model *model = context;

	CHECK(deadline == &model->sorted[model->fired]->deadline);
	model->fired++;
}

static int compare_model(const void *a, const void *b)
{
	const struct model_deadline *x = *(struct model_deadline *const *)a;
	const struct model_deadline *y = *(struct model_deadline *const *)b;

	if (x->deadline.at_ns != y->deadline.at_ns)
		return x->deadline.at_ns < y->deadline.at_ns ? -1 : 1;
	return (x->order > y->order) - (x->order < y->order);
}

/* Set all, move and clear many; then what fires is the sorted list of what is set. */
TEST(deadline_queue__random_against_sorted)
{
	static struct model_deadline deadlines[MODEL_DEADLINES];
	static struct model model;
	struct random random = random_start();
	struct deadline_queue *queue;
	uint64_t order = 0;
	size_t count = 0;

	model.fired = 0;
	CHECK_INT(deadline_queue_new(NULL, &queue), 0);
	for (int step = 0; step < 3 * MODEL_DEADLINES; step++) {
		/* The first round sets all; few times, so that many are equal. */
		size_t i = step < MODEL_DEADLINES ? (size_t)step
						  : random_below(&random, MODEL_DEADLINES);
		struct model_deadline *at = &deadlines[i];

		at->deadline.fire = check_next;
		at->deadline.context = &model;
		if (step >= MODEL_DEADLINES && random_below(&random, 3) == 0) {
			deadline_clear(queue, &at->deadline);
			continue;
		}
		CHECK_INT(deadline_set(queue, &at->deadline, random_below(&random, 5000)), 0);
		at->order = order++;
	}
	for (size_t i = 0; i < MODEL_DEADLINES; i++) {
		if (deadline_is_set(&deadlines[i].deadline))
			model.sorted[count++] = &deadlines[i];
	}
	CHECK(count > MODEL_DEADLINES / 4 && count < MODEL_DEADLINES);
	qsort(model.sorted, count, sizeof(model.sorted[0]), compare_model);
	for (uint64_t now_ns = 0; now_ns < 5000; now_ns++) {
		size_t was_fired = model.fired;
		size_t due = was_fired;

		while (due < count && model.sorted[due]->deadline.at_ns <= now_ns)
			due++;
		CHECK_INT(deadline_queue_run(queue, now_ns, SIZE_MAX), due - was_fired);
		CHECK_INT(model.fired, due);
		CHECK_INT(deadline_queue_next_ns(queue),
			  due == count ? UINT64_MAX : model.sorted[due]->deadline.at_ns);
	}
	CHECK_INT(model.fired, count);
	deadline_queue_free(queue);
}

#define LOOP_DEADLINES 300

struct loop_test {
	struct event_base *base;
	size_t left;
	size_t early;
	uint64_t latest_ns;
};

static void measure(struct deadline *deadline, void *context)
{
	struct loop_test *test = context;
	struct timespec now;
	uint64_t now_ns;

	/* The kernel's clock itself, not the one that the queue decided by. */
	clock_gettime(CLOCK_BOOTTIME, &now);
	now_ns = (uint64_t)now.tv_sec * CLOCK_NS_PER_S + (uint64_t)now.tv_nsec;
	if (now_ns < deadline->at_ns)
		test->early++;
	else if (now_ns - deadline->at_ns > test->latest_ns)
		test->latest_ns = now_ns - deadline->at_ns;
	test->left--;
	if (test->left == 0)
		event_base_loopbreak(test->base);
}

static void on_give_up(evutil_socket_t fd, short what, void *context)
{
	(void)fd;
	(void)what;
	event_base_loopbreak(context);
}

/* Run the loop until somebody breaks it, 20 s at most. */
static void run_loop(struct event_base *base)
{
	struct timeval limit = {.tv_sec = 20};

	event_base_once(base, -1, EV_TIMEOUT, on_give_up, base, &limit);
	event_base_dispatch(base);
}

TEST(deadline_queue__loop_is_never_early)
{
	static struct deadline deadlines[LOOP_DEADLINES];
	struct loop_test test = {.left = LOOP_DEADLINES};
	struct random random = random_start();
	struct deadline_queue *queue;

	test.base = event_base_new();
	CHECK(test.base != NULL);
	CHECK_INT(deadline_queue_new(test.base, &queue), 0);
	for (size_t i = 0; i < LOOP_DEADLINES; i++) {
		uint64_t delay_ns = random_below(&random, 300 * CLOCK_NS_PER_MS);

		deadlines[i] = (struct deadline){.fire = measure, .context = &test};
		CHECK_INT(deadline_set(queue, &deadlines[i], clock_now_ns() + delay_ns), 0);
	}
	run_loop(test.base);
	printf("# latest by %" PRIu64 " us\n", test.latest_ns / 1000);
	CHECK_INT(test.left, 0);
	CHECK_INT(test.early, 0);
	/* A busy machine may be slow, but a missed wake-up would take the 20 s of run_loop(). */
	CHECK(test.latest_ns < 5 * CLOCK_NS_PER_S);
	deadline_queue_free(queue);
	event_base_free(test.base);
}

/* Moved later or cleared, the timer may wake the loop in vain but must still fire in time. */
TEST(deadline_queue__loop_after_moving_and_clearing)
{
	struct loop_test test = {.left = 2};
	struct deadline moved = {.fire = measure, .context = &test};
	struct deadline cleared = {.fire = measure, .context = &test};
	struct deadline sooner = {.fire = measure, .context = &test};
	struct deadline_queue *queue;
	uint64_t start_ns = clock_now_ns();

	test.base = event_base_new();
	CHECK(test.base != NULL);
	CHECK_INT(deadline_queue_new(test.base, &queue), 0);
	CHECK_INT(deadline_set(queue, &cleared, clock_add_ms(start_ns, 1)), 0);
	CHECK_INT(deadline_set(queue, &moved, clock_add_ms(start_ns, 2)), 0);
	deadline_clear(queue, &cleared);
	CHECK_INT(deadline_set(queue, &moved, clock_add_ms(start_ns, 40)), 0);
	CHECK_INT(deadline_set(queue, &sooner, clock_add_ms(start_ns, 20)), 0);
	run_loop(test.base);
	CHECK_INT(test.left, 0);
	CHECK_INT(test.early, 0);
	CHECK(!deadline_is_set(&moved) && !deadline_is_set(&sooner));
	CHECK(test.latest_ns < 5 * CLOCK_NS_PER_S);
	deadline_queue_free(queue);
	event_base_free(test.base);
}

TEST(deadline_queue__loop_fires_what_is_long_overdue)
{
	struct loop_test test = {.left = 2};
	struct deadline zero = {.fire = measure, .context = &test};
	struct deadline one = {.fire = measure, .context = &test};
	struct deadline never = {.fire = measure, .context = &test};
	struct deadline_queue *queue;

	test.base = event_base_new();
	CHECK(test.base != NULL);
	CHECK_INT(deadline_queue_new(test.base, &queue), 0);
	CHECK_INT(deadline_set(queue, &never, UINT64_MAX), 0);
	CHECK_INT(deadline_set(queue, &never, UINT64_MAX - 1), 0);
	CHECK_INT(deadline_set(queue, &one, 1), 0);
	CHECK_INT(deadline_set(queue, &zero, 0), 0);
	run_loop(test.base);
	CHECK_INT(test.left, 0);
	CHECK(deadline_is_set(&never));
	deadline_clear(queue, &never);
	deadline_queue_free(queue);
	event_base_free(test.base);
}

#define STORM_DEADLINES	 10000
#define STORM_PER_WAKEUP 32

struct storm {
	struct event_base *base;
	size_t fired;
	size_t fired_at_last_event;
	size_t most_between_events;
	size_t events;
};

static void count_fire(struct deadline *deadline, void *context)
{
	struct storm *storm = context;

	(void)deadline;
	storm->fired++;
}

/* Always ready: called once in each round of the loop. */
static void on_other_event(evutil_socket_t fd, short what, void *context)
{
	struct storm *storm = context;
	size_t between = storm->fired - storm->fired_at_last_event;

	(void)fd;
	(void)what;
	storm->events++;
	storm->fired_at_last_event = storm->fired;
	if (between > storm->most_between_events)
		storm->most_between_events = between;
	if (storm->fired == STORM_DEADLINES)
		event_base_loopbreak(storm->base);
}

TEST(deadline_queue__loop_serves_others_during_a_storm)
{
	static struct deadline deadlines[STORM_DEADLINES];
	struct storm storm = {0};
	struct deadline_queue *queue;
	struct event *other;
	int fd = eventfd(1, EFD_CLOEXEC | EFD_NONBLOCK);

	storm.base = event_base_new();
	CHECK(storm.base != NULL && fd >= 0);
	CHECK_INT(deadline_queue_new(storm.base, &queue), 0);
	other = event_new(storm.base, fd, EV_READ | EV_PERSIST, on_other_event, &storm);
	CHECK(other != NULL);
	CHECK_INT(event_add(other, NULL), 0);
	for (size_t i = 0; i < STORM_DEADLINES; i++) {
		deadlines[i] = (struct deadline){.fire = count_fire, .context = &storm};
		CHECK_INT(deadline_set(queue, &deadlines[i], clock_now_ns()), 0);
	}
	run_loop(storm.base);
	CHECK_INT(storm.fired, STORM_DEADLINES);
	CHECK_INT(storm.most_between_events, STORM_PER_WAKEUP);
	CHECK(storm.events >= STORM_DEADLINES / STORM_PER_WAKEUP);
	event_free(other);
	close(fd);
	deadline_queue_free(queue);
	event_base_free(storm.base);
}

TEST(deadline_queue_free__closes_the_timer)
{
	struct event_base *base = event_base_new();
	struct deadline_queue *queue;
	int before = eventfd(0, EFD_CLOEXEC);
	int after;

	CHECK(base != NULL && before >= 0);
	close(before);
	CHECK_INT(deadline_queue_new(base, &queue), 0);
	after = eventfd(0, EFD_CLOEXEC);
	CHECK_INT(after, before + 1);
	deadline_queue_free(queue);
	close(after);
	/* The lowest free number again: the timer's is given back. */
	after = eventfd(0, EFD_CLOEXEC);
	CHECK_INT(after, before);
	close(after);
	event_base_free(base);
}
