/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Clients that vanish in the middle of a transfer: their leases are fenced soon after the
 * daemon hears of it, their bytes are lent again soon after that, and are zero.
 */
#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/clock.h"
#include "tests/integration/harness.h"

#define LEASES	      4
#define LEASE_BYTES   (4 * MIB)
#define FENCE_MAX_NS  (100 * CLOCK_NS_PER_MS)
#define CLEAN_MAX_NS  (FENCE_MAX_NS + LEASES * LEASE_BYTES * 3 * CLOCK_NS_PER_S / (1024 * MIB))
#define WAIT_MAX_MS   30000
#define LOOK_EVERY_MS 5

struct client {
	pid_t pid;
	int out;
};

static void client_kill(struct client *client)
{
	int status;

	if (client->pid <= 0)
		return;
	(void)kill(client->pid, SIGKILL);
	(void)waitpid(client->pid, &status, 0);
	close(client->out);
	client->pid = 0;
}

static bool client_start(struct client *client)
{
	char program[PATH_MAX];
	char count[16];
	char len_bytes[32];
	const char *argv[] = {harness_program("itest_child", program),
			      harness_endpoint(),
			      "doomed",
			      count,
			      len_bytes,
			      NULL};
	char line[16];

	snprintf(count, sizeof(count), "%d", LEASES);
	snprintf(len_bytes, sizeof(len_bytes), "%" PRIu64, LEASE_BYTES);
	client->pid = harness_spawn(argv, &client->out);
	return client->pid > 0 && read(client->out, line, sizeof(line)) > 0 &&
	       strncmp(line, "ready", 5) == 0;
}

/*
 * What the admin socket shows of the end. A look takes its time, and what it shows was so at
 * some moment of it: so each time is known to within a look.
 */
struct observed {
	uint64_t alive_ns;  /* when the last look began that showed all leases active */
	uint64_t fenced_ns; /* when the first one ended that showed none that can be reached */
	uint64_t clean_ns;  /* when the first one ended that showed none at all */
	uint64_t look_ns;   /* the longest look */
};

/* Of all rounds. */
struct worst {
	uint64_t fence_ns;
	uint64_t clean_ns;
};

static void count_leases(struct harness *h, int *ret_active, int *ret_open, int *ret_all)
{
	json_t *result = harness_call(h, "lease.list", NULL);
	json_t *lease;
	size_t i;

	*ret_active = *ret_open = *ret_all = 0;
	json_array_foreach(json_object_get(result, "leases"), i, lease)
	{
		const char *state = json_string_value(json_object_get(lease, "state"));

		*ret_all += 1;
		*ret_active += strcmp(state, "active") == 0;
		*ret_open += strcmp(state, "scrubbing") != 0;
	}
	if (result == NULL)
		*ret_all = *ret_open = INT_MAX;
	json_decref(result);
}

static bool observe(struct harness *h, struct observed *ret_observed)
{
	uint64_t until_ns = clock_add_ms(clock_now_ns(), WAIT_MAX_MS);
	struct observed seen = {0};
	int active, open, all;

	do {
		uint64_t begun_ns = clock_now_ns();
		uint64_t ended_ns;

		count_leases(h, &active, &open, &all);
		ended_ns = clock_now_ns();
		if (active == LEASES)
			seen.alive_ns = begun_ns;
		if (open == 0 && seen.fenced_ns == 0)
			seen.fenced_ns = ended_ns;
		if (all == 0)
			seen.clean_ns = ended_ns;
		if (ended_ns - begun_ns > seen.look_ns)
			seen.look_ns = ended_ns - begun_ns;
		harness_sleep_ms(LOOK_EVERY_MS);
	} while (all > 0 && clock_now_ns() < until_ns);
	*ret_observed = seen;
	return all == 0;
}

static uint64_t less_two_looks(uint64_t took_ns, const struct observed *seen)
{
	return took_ns > 2 * seen->look_ns ? took_ns - 2 * seen->look_ns : 0;
}

static void kill_once(struct harness *h, uint64_t wait_ms, struct worst *worst)
{
	__attribute__((cleanup(client_kill))) struct client client = {0};
	struct observed seen;
	uint64_t killed_ns, fence_ns, clean_ns;

	CHECK(client_start(&client));
	harness_sleep_ms(wait_ms);
	killed_ns = clock_now_ns();
	CHECK_INT(kill(client.pid, SIGKILL), 0);
	CHECK(observe(h, &seen));
	if (seen.alive_ns < killed_ns)
		seen.alive_ns = killed_ns;
	fence_ns = seen.fenced_ns - seen.alive_ns;
	clean_ns = seen.clean_ns - seen.alive_ns;
	printf("# killed after %" PRIu64 " ms of writing; heard of it %.1f ms later; then fenced "
	       "within %.1f ms, clean within %.1f ms (looks of %.1f ms at most)\n",
	       wait_ms, (double)(seen.alive_ns - killed_ns) / 1e6, (double)fence_ns / 1e6,
	       (double)clean_ns / 1e6, (double)seen.look_ns / 1e6);
	if (less_two_looks(fence_ns, &seen) > worst->fence_ns)
		worst->fence_ns = less_two_looks(fence_ns, &seen);
	if (less_two_looks(clean_ns, &seen) > worst->clean_ns)
		worst->clean_ns = less_two_looks(clean_ns, &seen);
}

static void check_next_owner(struct harness *h)
{
	uint64_t nonzero = UINT64_MAX;

	CHECK_INT(harness_count_nonzero(h, &nonzero), 0);
	if (harness_is_unverified())
		printf("# unverified: the next owner found %" PRIu64 " bytes that are not 0\n",
		       nonzero);
	else
		CHECK_INT(nonzero, 0);
}

TEST(disconnect__killed_while_writing)
{
	HARNESS(h, .pool_size = "32MiB");
	uint32_t rounds = harness_figure(FIGURE_KILL_ROUNDS);
	struct worst worst = {0};

	srand(7);
	for (uint32_t i = 0; i < rounds && !test_has_failed(); i++) {
		kill_once(&h, (uint64_t)(rand() % 400), &worst);
		if (!test_has_failed())
			check_next_owner(&h);
	}
	CHECK(!test_has_failed());
	printf("# the daemon's own figures, decision to fence: %" PRId64 " leases, half %" PRId64
	       " us, longest %" PRId64 " us\n",
	       harness_number(&h, "revocation.count"), harness_number(&h, "revocation.p50_us"),
	       harness_number(&h, "revocation.max_us"));
	CHECK(harness_number(&h, "revocation.max_us") <= 100000);
	CHECK(worst.fence_ns <= FENCE_MAX_NS);
	CHECK(worst.clean_ns <= CLEAN_MAX_NS);
	CHECK(harness_wait_number(&h, "lanes", 0, 5000));
	CHECK(harness_wait_number(&h, "sessions", 0, 5000));
	CHECK_INT(harness_number(&h, "counters.destroy_failures"), 0);
	CHECK_INT(harness_stop(&h), 0);
}

/* A session that is closed in order leaves as little. */
TEST(disconnect__closed)
{
	HARNESS(h, .pool_size = NULL);
	SESSION(alpha, "alpha");
	mempool_lease *lease;
	uint8_t byte = 1;

	CHECK_INT(harness_acquire(alpha, 4097, 600000, &lease), 0);
	CHECK_INT(mempool_write(lease, 4096, &byte, 1), 0);
	CHECK_INT(harness_number(&h, "pool.leased_bytes"), 8192);
	harness_close(&alpha);
	CHECK(harness_wait_number(&h, "pool.free_bytes", 16 * (int64_t)MIB, 2000));
	CHECK(harness_wait_number(&h, "sessions", 0, 5000));
	check_next_owner(&h);
}
