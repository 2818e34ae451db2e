/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A tenant at work, who is to notice nothing of what others do. Owns its session.
 *
 * Thread: its own, or the test's while that one does not run.
 */
#include "tests/redteam/worker.h"

#include <stdio.h>
#include <string.h>

#include "common/clock.h"
#include "tests/integration/harness.h"

#define WORKER_TTL_MS 3600000

int worker_open(struct worker *worker, const char *tenant)
{
	int r;

	memset(worker, 0, sizeof(*worker));
	r = harness_connect(tenant, &worker->pool);
	return r < 0 ? r
		     : harness_acquire(worker->pool, WORKER_BYTES, WORKER_TTL_MS, &worker->lease);
}

static void worker_once(struct worker *worker)
{
	size_t count = atomic_load(&worker->count);
	uint64_t begun_ns = clock_now_ns();
	uint8_t sent[WORKER_BYTES];
	uint8_t got[WORKER_BYTES];
	int r;

	memset(sent, (int)(count % 255 + 1), sizeof(sent));
	r = mempool_write(worker->lease, 0, sent, sizeof(sent));
	if (r == 0)
		r = mempool_read(worker->lease, 0, got, sizeof(got));
	worker->took_ns[count % WORKER_SAMPLES_MAX] = clock_now_ns() - begun_ns;
	atomic_store(&worker->count, count + 1);
	if (r == 0 && memcmp(sent, got, sizeof(sent)) != 0)
		atomic_fetch_add(&worker->wrong, 1);
	if (r != 0)
		printf("# the tenant at work: %s\n", mempool_last_error());
	atomic_store(&worker->code, r);
}

void worker_run(struct worker *worker, unsigned int count)
{
	for (unsigned int i = 0; i < count && atomic_load(&worker->code) == 0; i++) {
		worker_once(worker);
		harness_sleep_ms(1);
	}
}

static void *worker_thread(void *arg)
{
	struct worker *worker = arg;

	while (!atomic_load(&worker->stop) && atomic_load(&worker->code) == 0)
		worker_run(worker, 1);
	return NULL;
}

int worker_start(struct worker *worker)
{
	atomic_store(&worker->stop, false);
	return pthread_create(&worker->thread, NULL, worker_thread, worker);
}

void worker_stop(struct worker *worker)
{
	atomic_store(&worker->stop, true);
	if (worker->thread != 0)
		(void)pthread_join(worker->thread, NULL);
	worker->thread = 0;
}

void worker_close(struct worker *worker)
{
	worker_stop(worker);
	mempool_close(worker->pool);
	worker->pool = NULL;
}

uint64_t worker_percentile(struct worker *worker, unsigned int permille)
{
	size_t count = atomic_load(&worker->count);

	if (count == 0)
		return 0;
	if (count > WORKER_SAMPLES_MAX)
		count = WORKER_SAMPLES_MAX;
	harness_sort(worker->took_ns, count);
	return worker->took_ns[(count - 1) * permille / 1000];
}

void worker_print(struct worker *worker, const char *when)
{
	CHECK(atomic_load(&worker->count) > 0);
	printf("# %s: %zu writes and reads of 4 KiB, half within %.2f ms, 99 %% within %.2f ms, "
	       "all within %.2f ms\n",
	       when, atomic_load(&worker->count), (double)worker_percentile(worker, 500) / 1e6,
	       (double)worker_percentile(worker, 990) / 1e6,
	       (double)worker_percentile(worker, 1000) / 1e6);
	atomic_store(&worker->count, 0);
}
