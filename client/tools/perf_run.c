/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Runs a case in slices: in each, all threads start together and measure for a part of the
 * time. With two modes their slices alternate, so that what changes on the machine or the wire
 * meanwhile concerns both alike.
 *
 * Thread: the main thread; a worker belongs to its thread during a slice.
 */
#include "client/tools/perf_run.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "client/tools/stop.h"
#include "common/checked.h"
#include "common/clock.h"

#define PERF_SLICES	5
#define PERF_TTL_MS	60000 /* renewed by itself */
#define PERF_TIMEOUT_MS 5000
#define PERF_TEXT_MAX	512

/* Where the threads of a slice wait for each other. */
struct perf_gate {
	pthread_mutex_t lock;
	pthread_cond_t changed;
	uint32_t missing; /* threads that are not there yet */
	bool cancelled;	  /* some will never be */
};

struct perf_slice {
	struct perf_worker *worker;
	const struct perf_case *what;
	const struct perf_mode *mode;
	struct perf_gate *gate;
	uint64_t duration_ns;
	uint64_t begun_ns;
	uint64_t ended_ns;
	struct perf_tally tally;
	int code;
	char text[PERF_TEXT_MAX]; /* about the code */
};

/* Sessions. */

static enum tool_status worker_open(struct perf_worker *worker, const struct tool_session *session,
				    uint64_t len_bytes, uint32_t rights)
{
	struct mempool_acquire_opts opts = {
		.size = sizeof(opts),
		.ttl_ms = PERF_TTL_MS,
		.rights = rights,
		.flags = MEMPOOL_AUTO_RENEW,
	};
	enum tool_status status;
	void *buf;
	int r;

	worker->timeout_ms = session->timeout_ms != 0 ? session->timeout_ms : PERF_TIMEOUT_MS;
	status = tool_connect(session, &worker->pool);
	if (status != TOOL_OK)
		return status;
	r = mempool_acquire(worker->pool, len_bytes, &opts, &worker->lease);
	if (r < 0)
		return tool_refused("no lease", r);
	buf = mmap(NULL, len_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (buf == MAP_FAILED) {
		tool_complain("not enough memory: %s", strerror(errno));
		return TOOL_FAILED;
	}
	worker->buf = buf;
	worker->lease_bytes = len_bytes;
	memset(buf, 0x5a, len_bytes);
	return TOOL_OK;
}

enum tool_status perf_run_open(struct perf_run *run, const struct tool_session *session,
			       uint64_t len_bytes, uint32_t rights)
{
	enum tool_status status = TOOL_OK;

	for (uint32_t i = 0; i < run->threads && status == TOOL_OK; i++) {
		status = worker_open(&run->workers[i], session, len_bytes, rights);
		if (status == TOOL_OK && stop_asked())
			status = stop_complain();
	}
	return status;
}

void perf_run_close(struct perf_run *run)
{
	stop_no_more();
	for (uint32_t i = 0; i < run->threads; i++) {
		struct perf_worker *worker = &run->workers[i];
		int r = perf_raw_unprepare(worker);

		if (r < 0)
			(void)tool_refused("the end of a measurement", r);
		mempool_close(worker->pool);
		if (worker->buf != NULL)
			(void)munmap(worker->buf, worker->lease_bytes);
	}
}

/* Slices. */

/* Return: true when all are there, false if they will not be. */
static bool gate_pass(struct perf_gate *gate)
{
	bool passed;

	(void)pthread_mutex_lock(&gate->lock);
	gate->missing--;
	(void)pthread_cond_broadcast(&gate->changed);
	while (gate->missing > 0 && !gate->cancelled)
		(void)pthread_cond_wait(&gate->changed, &gate->lock);
	passed = !gate->cancelled;
	(void)pthread_mutex_unlock(&gate->lock);
	return passed;
}

static void gate_cancel(struct perf_gate *gate)
{
	(void)pthread_mutex_lock(&gate->lock);
	gate->cancelled = true;
	(void)pthread_cond_broadcast(&gate->changed);
	(void)pthread_mutex_unlock(&gate->lock);
}

/* The first operation is not measured: it may have to restore what was lost meanwhile. */
static int slice_begin(struct perf_slice *slice)
{
	struct perf_worker *worker = slice->worker;
	int r = slice->what->op->call(worker, 0, worker->buf, slice->what->size_bytes);

	if (r == 0 && slice->mode->prepare != NULL)
		r = slice->mode->prepare(worker, slice->what);
	return r;
}

static void *slice_thread(void *arg)
{
	struct perf_slice *slice = arg;

	slice->code = slice_begin(slice);
	if (!gate_pass(slice->gate))
		return NULL;
	slice->begun_ns = perf_now_ns();
	if (slice->code == 0)
		slice->code = slice->mode->run(slice->worker, slice->what,
					       slice->begun_ns + slice->duration_ns, &slice->tally);
	slice->ended_ns = perf_now_ns();
	if (slice->code < 0)
		(void)snprintf(slice->text, sizeof(slice->text), "%s", mempool_last_error());
	return NULL;
}

static void histogram_join(struct histogram *histogram, const struct histogram *other)
{
	if (other->count == 0)
		return;
	if (histogram->count == 0 || other->min < histogram->min)
		histogram->min = other->min;
	if (other->max > histogram->max)
		histogram->max = other->max;
	histogram->count += other->count;
	histogram->sum += other->sum;
	for (size_t i = 0; i < HISTOGRAM_BUCKETS; i++)
		histogram->buckets[i] += other->buckets[i];
}

static enum tool_status slices_add(const struct perf_slice *slices, uint32_t count,
				   struct perf_tally *tally)
{
	uint64_t begun_ns = slices[0].begun_ns;
	uint64_t ended_ns = slices[0].ended_ns;

	for (uint32_t i = 0; i < count; i++) {
		const struct perf_slice *slice = &slices[i];

		if (slice->code < 0) {
			tool_complain("%s, %s, %llu bytes: error %d: %s", slice->mode->name,
				      slice->what->op->name,
				      (unsigned long long)slice->what->size_bytes, slice->code,
				      slice->text);
			return TOOL_FAILED;
		}
		begun_ns = slice->begun_ns < begun_ns ? slice->begun_ns : begun_ns;
		ended_ns = slice->ended_ns > ended_ns ? slice->ended_ns : ended_ns;
		tally->operations += slice->tally.operations;
		histogram_join(&tally->latency_ns, &slice->tally.latency_ns);
	}
	tally->elapsed_ns += ended_ns - begun_ns;
	return TOOL_OK;
}

/* The main thread is the first of them, so a case of one thread makes none. */
static enum tool_status slices_run(struct perf_slice *slices, uint32_t count)
{
	pthread_t threads[PERF_THREADS_MAX];
	uint32_t running = 1;
	int r = 0;

	while (running < count && r == 0) {
		r = pthread_create(&threads[running], NULL, slice_thread, &slices[running]);
		running += r == 0;
	}
	if (r == 0) {
		(void)slice_thread(&slices[0]);
	} else {
		tool_complain("cannot start a thread: %s", strerror(r));
		gate_cancel(slices[0].gate);
	}
	for (uint32_t i = 1; i < running; i++)
		(void)pthread_join(threads[i], NULL);
	return r == 0 ? TOOL_OK : TOOL_FAILED;
}

static enum tool_status run_slice(struct perf_run *run, const struct perf_case *what,
				  const struct perf_mode *mode, struct perf_slice *slices,
				  struct perf_tally *tally)
{
	struct perf_gate gate = {
		.lock = PTHREAD_MUTEX_INITIALIZER,
		.changed = PTHREAD_COND_INITIALIZER,
		.missing = run->threads,
	};
	enum tool_status status;

	for (uint32_t i = 0; i < run->threads; i++)
		slices[i] = (struct perf_slice){
			.worker = &run->workers[i],
			.what = what,
			.mode = mode,
			.gate = &gate,
			.duration_ns = run->duration_ms * CLOCK_NS_PER_MS / PERF_SLICES,
		};
	status = slices_run(slices, run->threads);
	if (status == TOOL_OK)
		status = slices_add(slices, run->threads, tally);
	(void)pthread_cond_destroy(&gate.changed);
	(void)pthread_mutex_destroy(&gate.lock);
	return status;
}

enum tool_status perf_run_case(struct perf_run *run, const struct perf_case *what,
			       const struct perf_mode *const *modes, size_t count,
			       struct perf_tally *ret_tallies)
{
	struct perf_slice *slices = calloc(run->threads, sizeof(*slices));
	enum tool_status status = TOOL_OK;

	if (slices == NULL) {
		tool_complain("not enough memory");
		return TOOL_FAILED;
	}
	memset(ret_tallies, 0, count * sizeof(*ret_tallies));
	for (size_t i = 0; i < PERF_SLICES * count && status == TOOL_OK; i++) {
		status = run_slice(run, what, modes[i % count], slices, &ret_tallies[i % count]);
		if (status == TOOL_OK && stop_asked())
			status = stop_complain();
	}
	free(slices);
	return status;
}
