/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A thread with three lists: jobs that wait for it, those that wait behind these, and
 * finished jobs that wait for the loop, which learns of them by an eventfd. One lock guards the lists and the order
 * to stop; a job's own fields pass from thread to thread with it. `submitted` and
 * `backlog` belong to the loop thread alone. A wake-up of the loop hands back a
 * bounded number of jobs; if more may be left, it wakes the loop again, so that other
 * events are served in between.
 */
#include "daemon/worker.h"

#include <assert.h>
#include <errno.h>
#include <event2/event.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "daemon/loop.h"

#define DONE_PER_WAKEUP 32
#define OTHERS_FIRST	16 /* jobs that run before one of those that can wait */
#define THREAD_NAME_MAX 16 /* with the closing 0 */

struct job_list {
	struct worker_job *first;
	struct worker_job **end; /* where the next job is linked */
};

struct worker {
	char name[THREAD_NAME_MAX];
	pthread_t thread;
	int finished_fd;
	struct event *finished_event;
	size_t backlog;

	pthread_mutex_t lock; /* for all below */
	pthread_cond_t waiting_cond;
	pthread_cond_t finished_cond;
	struct job_list waiting;
	struct job_list waiting_behind;
	unsigned int others_run; /* since one of the latter */
	struct job_list finished;
	bool stop;
};

static void job_list_init(struct job_list *list)
{
	list->first = NULL;
	list->end = &list->first;
}

static void job_list_push(struct job_list *list, struct worker_job *job)
{
	job->next = NULL;
	*list->end = job;
	list->end = &job->next;
}

static struct worker_job *job_list_pop(struct job_list *list)
{
	struct worker_job *job = list->first;

	if (job == NULL)
		return NULL;
	list->first = job->next;
	if (list->first == NULL)
		list->end = &list->first;
	return job;
}

static struct worker_job *next_job(struct worker *worker)
{
	struct worker_job *job = NULL;

	if (worker->others_run < OTHERS_FIRST || worker->waiting_behind.first == NULL)
		job = job_list_pop(&worker->waiting);
	if (job != NULL) {
		worker->others_run++;
		return job;
	}
	worker->others_run = 0;
	return job_list_pop(&worker->waiting_behind);
}

static void wake_loop(struct worker *worker)
{
	/* It can fail only when the count is full, and then the loop is awake anyway. */
	(void)eventfd_write(worker->finished_fd, 1);
}

static void *worker_main(void *context)
{
	struct worker *worker = context;
	struct worker_job *job;

	pthread_setname_np(pthread_self(), worker->name);
	pthread_mutex_lock(&worker->lock);
	for (;;) {
		while (worker->waiting.first == NULL && worker->waiting_behind.first == NULL &&
		       !worker->stop)
			pthread_cond_wait(&worker->waiting_cond, &worker->lock);
		job = next_job(worker);
		if (job == NULL)
			break;
		pthread_mutex_unlock(&worker->lock);
		job->run(job);
		pthread_mutex_lock(&worker->lock);
		job_list_push(&worker->finished, job);
		pthread_cond_signal(&worker->finished_cond);
		wake_loop(worker);
	}
	pthread_mutex_unlock(&worker->lock);
	return NULL;
}

/* Hand one finished job back. Return: was there one? */
static bool hand_back(struct worker *worker)
{
	struct worker_job *job;

	pthread_mutex_lock(&worker->lock);
	job = job_list_pop(&worker->finished);
	pthread_mutex_unlock(&worker->lock);
	if (job == NULL)
		return false;
	job->submitted = false;
	worker->backlog--;
	job->done(job);
	return true;
}

static void on_finished(evutil_socket_t fd, short what, void *context)
{
	struct worker *worker = context;
	eventfd_t count;

	loop_mark();
	(void)what;
	/* Reset before looking: a job that finishes after the look wakes the loop again. */
	(void)eventfd_read(fd, &count);
	for (int i = 0; i < DONE_PER_WAKEUP; i++) {
		if (!hand_back(worker))
			return;
	}
	wake_loop(worker);
}

static int start_thread(struct worker *worker)
{
	sigset_t all;
	sigset_t old;
	int r;

	/*
	 * The thread inherits the mask: a signal meant for the loop never lands in it. The one
	 * that comes from what the thread itself does is not for the loop.
	 */
	sigfillset(&all);
	sigdelset(&all, SIGBUS);
	r = pthread_sigmask(SIG_SETMASK, &all, &old);
	if (r != 0)
		return -r;
	r = pthread_create(&worker->thread, NULL, worker_main, worker);
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	return -r;
}

int worker_new(struct event_base *base, const char *name, struct worker **ret_worker)
{
	size_t name_len = strlen(name);
	struct worker *worker;
	int r;

	if (name_len >= THREAD_NAME_MAX)
		return -EINVAL;
	worker = calloc(1, sizeof(*worker));
	if (worker == NULL)
		return -ENOMEM;
	memcpy(worker->name, name, name_len + 1);
	worker->lock = (pthread_mutex_t)PTHREAD_MUTEX_INITIALIZER;
	worker->waiting_cond = (pthread_cond_t)PTHREAD_COND_INITIALIZER;
	worker->finished_cond = (pthread_cond_t)PTHREAD_COND_INITIALIZER;
	job_list_init(&worker->waiting);
	job_list_init(&worker->waiting_behind);
	job_list_init(&worker->finished);
	worker->finished_fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
	if (worker->finished_fd < 0) {
		r = -errno;
		goto err_free_worker;
	}
	worker->finished_event =
		event_new(base, worker->finished_fd, EV_READ | EV_PERSIST, on_finished, worker);
	if (worker->finished_event == NULL) {
		r = -ENOMEM;
		goto err_close_fd;
	}
	if (event_add(worker->finished_event, NULL) < 0) {
		r = -EIO;
		goto err_free_event;
	}
	r = start_thread(worker);
	if (r < 0)
		goto err_free_event;
	*ret_worker = worker;
	return 0;

err_free_event:
	event_free(worker->finished_event);
err_close_fd:
	close(worker->finished_fd);
err_free_worker:
	free(worker);
	return r;
}

static void wait_finished(struct worker *worker)
{
	pthread_mutex_lock(&worker->lock);
	while (worker->finished.first == NULL)
		pthread_cond_wait(&worker->finished_cond, &worker->lock);
	pthread_mutex_unlock(&worker->lock);
}

static void stop_thread(struct worker *worker)
{
	pthread_mutex_lock(&worker->lock);
	worker->stop = true;
	pthread_cond_signal(&worker->waiting_cond);
	pthread_mutex_unlock(&worker->lock);
	pthread_join(worker->thread, NULL);
}

struct worker *worker_free(struct worker *worker)
{
	if (worker == NULL)
		return NULL;
	/* Not until now may the thread stop: done() can submit further jobs. */
	while (worker->backlog > 0) {
		wait_finished(worker);
		hand_back(worker);
	}
	stop_thread(worker);
	event_free(worker->finished_event);
	close(worker->finished_fd);
	pthread_cond_destroy(&worker->finished_cond);
	pthread_cond_destroy(&worker->waiting_cond);
	pthread_mutex_destroy(&worker->lock);
	free(worker);
	return NULL;
}

static void submit(struct worker *worker, struct job_list *list, struct worker_job *job)
{
	assert(!job->submitted);
	job->submitted = true;
	worker->backlog++;
	pthread_mutex_lock(&worker->lock);
	job_list_push(list, job);
	pthread_cond_signal(&worker->waiting_cond);
	pthread_mutex_unlock(&worker->lock);
}

void worker_submit(struct worker *worker, struct worker_job *job)
{
	submit(worker, &worker->waiting, job);
}

void worker_submit_later(struct worker *worker, struct worker_job *job)
{
	submit(worker, &worker->waiting_behind, job);
}

size_t worker_backlog(const struct worker *worker)
{
	return worker->backlog;
}
