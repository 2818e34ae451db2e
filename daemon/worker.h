/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef DAEMON_WORKER_H
#define DAEMON_WORKER_H

#include <stdbool.h>
#include <stddef.h>

struct event_base;
struct worker;

/*
 * A helper thread for calls that block. Jobs run in the order of submission on the
 * worker's thread, but those that can wait behind the others; their results are handed back on the loop's thread. The worker
 * changes no state of the daemon itself. Two exist: the scrubber and the verbs worker.
 */

/* Embedded in the object that has work; owned by the worker from submit until done() is called. */
struct worker_job {
	void (*run)(struct worker_job *job);  /* worker thread; may block */
	void (*done)(struct worker_job *job); /* loop thread; the job may be submitted again */
	struct worker_job *next;
	bool submitted;
};

/**
 * worker_new() - start the thread
 * @base: the loop to which results are handed
 * @name: of the thread, 15 bytes at most
 *
 * All signals are blocked in the thread. Return: 0 or a negative errno.
 */
int worker_new(struct event_base *base, const char *name, struct worker **ret_worker);

/**
 * worker_free() - let the thread finish all submitted jobs, then end it
 * @worker: may be NULL
 *
 * Blocks. done() of jobs that finished is called before the return, and so is that of
 * jobs submitted from such a done(). Return: NULL.
 */
struct worker *worker_free(struct worker *worker);

/**
 * worker_submit() - queue a job (loop thread)
 * @job: not submitted (asserted); run and done set
 */
void worker_submit(struct worker *worker, struct worker_job *job);

/**
 * worker_submit_later() - as worker_submit(), for a job whose end nobody waits for
 *
 * It runs when no other job waits, or after 16 others at the latest.
 */
void worker_submit_later(struct worker *worker, struct worker_job *job);

/**
 * worker_backlog() - jobs submitted whose done() has not been called yet
 */
size_t worker_backlog(const struct worker *worker);

#endif
