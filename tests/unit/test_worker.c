/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * daemon/worker.c: order, threads, what worker_free() waits for, and that a flood of
 * finished jobs leaves room for other events. Also meant for the thread sanitizer.
 */
#include "daemon/worker.h"

#include <errno.h>
#include <event2/event.h>
#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "tests/unit/test.h"

#define JOBS		1000
#define DONE_PER_WAKEUP 32

struct test_job {
	struct worker_job job; /* first, so that a job is its test_job */
	struct test_state *state;
	unsigned int number;
	unsigned int resubmits;
};

/* No lock of its own: the worker's must make this safe. */
struct test_state {
	struct event_base *base;
	struct worker *worker;
	pthread_t loop_thread;
	unsigned int run_count;	 /* worker thread */
	unsigned int done_count; /* loop thread */
	unsigned int done_target;
	unsigned int done_at_last_event;
	unsigned int most_between_events;
	bool wrong_thread;
	bool wrong_order;
};

static void run(struct worker_job *job)
{
	struct test_job *test_job = (struct test_job *)job;
	struct test_state *state = test_job->state;

	if (pthread_equal(pthread_self(), state->loop_thread))
		state->wrong_thread = true;
	if (test_job->resubmits == 0 && test_job->number != state->run_count)
		state->wrong_order = true;
	state->run_count++;
}

static void done(struct worker_job *job)
{
	struct test_job *test_job = (struct test_job *)job;
	struct test_state *state = test_job->state;

	if (!pthread_equal(pthread_self(), state->loop_thread))
		state->wrong_thread = true;
	if (job->submitted)
		state->wrong_order = true;
	state->done_count++;
	if (test_job->resubmits > 0) {
		test_job->resubmits--;
		worker_submit(state->worker, job);
	}
	if (state->done_count == state->done_target)
		event_base_loopbreak(state->base);
}

static void start(struct test_state *state)
{
	*state = (struct test_state){.loop_thread = pthread_self()};
	state->base = event_base_new();
	CHECK(state->base != NULL);
	CHECK_INT(worker_new(state->base, "test-worker", &state->worker), 0);
	CHECK_INT(worker_backlog(state->worker), 0);
}

static void submit(struct test_state *state, struct test_job *jobs, unsigned int count)
{
	for (unsigned int i = 0; i < count; i++) {
		jobs[i] = (struct test_job){{.run = run, .done = done}, state, i, 0};
		worker_submit(state->worker, &jobs[i].job);
	}
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

TEST(worker_free__null)
{
	CHECK(worker_free(NULL) == NULL);
}

TEST(worker_free__without_jobs)
{
	struct test_state state;

	start(&state);
	CHECK(worker_free(state.worker) == NULL);
	event_base_free(state.base);
}

TEST(worker_new__length_of_name)
{
	struct event_base *base = event_base_new();
	struct worker *worker = NULL;

	CHECK(base != NULL);
	CHECK_INT(worker_new(base, "0123456789abcdef", &worker), -EINVAL);
	CHECK(worker == NULL);
	CHECK_INT(worker_new(base, "0123456789abcde", &worker), 0);
	worker_free(worker);
	event_base_free(base);
}

TEST(worker__jobs_in_order_on_both_threads)
{
	static struct test_job jobs[JOBS];
	struct test_state state;

	start(&state);
	state.done_target = JOBS;
	submit(&state, jobs, JOBS);
	CHECK_INT(worker_backlog(state.worker), JOBS);
	CHECK_INT(state.done_count, 0);
	run_loop(state.base);
	CHECK_INT(state.done_count, JOBS);
	CHECK_INT(worker_backlog(state.worker), 0);
	worker_free(state.worker);
	CHECK_INT(state.run_count, JOBS);
	CHECK(!state.wrong_thread);
	CHECK(!state.wrong_order);
	event_base_free(state.base);
}

/* Runs first and holds the thread until all others are submitted. */
struct gate {
	struct worker_job job;
	int fd;
};

static void gate_run(struct worker_job *job)
{
	eventfd_t count;

	(void)eventfd_read(((struct gate *)job)->fd, &count);
}

static void gate_done(struct worker_job *job)
{
	(void)job;
}

/* In the order 16 others, one that can wait, the rest of the others, the rest of those. */
TEST(worker_submit_later__behind_sixteen_others)
{
	static struct test_job others[20];
	static struct test_job later[3];
	struct gate gate = {.job = {.run = gate_run, .done = gate_done}};
	struct test_state state;
	/* The gate counts as one of the sixteen. */
	static const unsigned int later_at[] = {15, 21, 22};
	unsigned int at = 0;

	start(&state);
	state.done_target = 23;
	gate.fd = eventfd(0, EFD_CLOEXEC);
	CHECK(gate.fd >= 0);
	worker_submit(state.worker, &gate.job);
	for (unsigned int i = 0; i < 3; i++) {
		later[i] = (struct test_job){{.run = run, .done = done}, &state, later_at[i], 0};
		worker_submit_later(state.worker, &later[i].job);
	}
	for (unsigned int i = 0; i < 20; i++, at++) {
		if (at == later_at[0])
			at++;
		others[i] = (struct test_job){{.run = run, .done = done}, &state, at, 0};
		worker_submit(state.worker, &others[i].job);
	}
	CHECK_INT(eventfd_write(gate.fd, 1), 0);
	run_loop(state.base);
	worker_free(state.worker);
	CHECK_INT(state.run_count, 23);
	CHECK(!state.wrong_order);
	close(gate.fd);
	event_base_free(state.base);
}

TEST(worker_free__finishes_what_was_submitted)
{
	static struct test_job jobs[JOBS];
	struct test_state state;

	start(&state);
	submit(&state, jobs, JOBS);
	worker_free(state.worker);
	CHECK_INT(state.run_count, JOBS);
	CHECK_INT(state.done_count, JOBS);
	CHECK(!state.wrong_thread);
	CHECK(!state.wrong_order);
	event_base_free(state.base);
}

TEST(worker_free__finishes_what_done_submits)
{
	struct test_job job;
	struct test_state state;

	start(&state);
	job = (struct test_job){{.run = run, .done = done}, &state, 0, 25};
	worker_submit(state.worker, &job.job);
	worker_free(state.worker);
	CHECK_INT(state.run_count, 26);
	CHECK_INT(state.done_count, 26);
	CHECK(!job.job.submitted);
	event_base_free(state.base);
}

TEST(worker_submit__again_from_done)
{
	struct test_job job;
	struct test_state state;

	start(&state);
	state.done_target = 101;
	job = (struct test_job){{.run = run, .done = done}, &state, 0, 100};
	worker_submit(state.worker, &job.job);
	CHECK(job.job.submitted);
	run_loop(state.base);
	CHECK_INT(state.done_count, 101);
	CHECK(!job.job.submitted);
	CHECK_INT(worker_backlog(state.worker), 0);
	worker_free(state.worker);
	event_base_free(state.base);
}

/* Always ready: called once in each round of the loop. */
static void on_other_event(evutil_socket_t fd, short what, void *context)
{
	struct test_state *state = context;
	unsigned int between = state->done_count - state->done_at_last_event;

	(void)fd;
	(void)what;
	state->done_at_last_event = state->done_count;
	if (between > state->most_between_events)
		state->most_between_events = between;
	if (state->done_count == JOBS)
		event_base_loopbreak(state->base);
}

/* A job that tells the test by an eventfd that all before it have run. */
struct last_job {
	struct worker_job job;
	int fd;
	unsigned int done_count;
};

static void run_last(struct worker_job *job)
{
	eventfd_write(((struct last_job *)job)->fd, 1);
}

static void done_last(struct worker_job *job)
{
	((struct last_job *)job)->done_count++;
}

TEST(worker__loop_serves_others_during_a_flood)
{
	static struct test_job jobs[JOBS];
	struct last_job last = {{.run = run_last, .done = done_last}, -1, 0};
	struct test_state state;
	struct event *other;
	eventfd_t count;

	start(&state);
	last.fd = eventfd(0, EFD_CLOEXEC);
	CHECK(last.fd >= 0);
	submit(&state, jobs, JOBS);
	worker_submit(state.worker, &last.job);
	CHECK_INT(eventfd_read(last.fd, &count), 0);
	CHECK_INT(state.done_count, 0);
	CHECK_INT(worker_backlog(state.worker), JOBS + 1);

	CHECK_INT(eventfd_write(last.fd, 1), 0);
	other = event_new(state.base, last.fd, EV_READ | EV_PERSIST, on_other_event, &state);
	CHECK(other != NULL);
	CHECK_INT(event_add(other, NULL), 0);
	run_loop(state.base);
	CHECK_INT(state.done_count, JOBS);
	CHECK_INT(state.most_between_events, DONE_PER_WAKEUP);
	event_free(other);
	worker_free(state.worker);
	CHECK_INT(last.done_count, 1);
	close(last.fd);
	event_base_free(state.base);
}

/* What the thread sees of itself. */
struct look_job {
	struct worker_job job;
	struct event_base *base;
	char name[16];
	bool is_term_blocked;
	bool is_usr1_blocked;
};

static void look(struct worker_job *job)
{
	struct look_job *look_job = (struct look_job *)job;
	sigset_t mask;

	pthread_getname_np(pthread_self(), look_job->name, sizeof(look_job->name));
	pthread_sigmask(SIG_SETMASK, NULL, &mask);
	look_job->is_term_blocked = sigismember(&mask, SIGTERM) == 1;
	look_job->is_usr1_blocked = sigismember(&mask, SIGUSR1) == 1;
}

static void looked(struct worker_job *job)
{
	event_base_loopbreak(((struct look_job *)job)->base);
}

TEST(worker_new__thread_has_name_and_no_signals)
{
	struct look_job look_job = {.job = {.run = look, .done = looked}};
	struct test_state state;
	sigset_t mask;

	start(&state);
	look_job.base = state.base;
	worker_submit(state.worker, &look_job.job);
	run_loop(state.base);
	CHECK_STR(look_job.name, "test-worker");
	CHECK(look_job.is_term_blocked);
	CHECK(look_job.is_usr1_blocked);
	/* The loop's own mask is as before. */
	pthread_sigmask(SIG_SETMASK, NULL, &mask);
	CHECK_INT(sigismember(&mask, SIGTERM), 0);
	worker_free(state.worker);
	event_base_free(state.base);
}
