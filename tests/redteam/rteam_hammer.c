/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Stale use. A writer and a reader never stop using their old descriptors while leases end in
 * every possible way, processes that write are killed, and the same bytes are lent to somebody
 * who looks at each of them.
 *
 * Environment: TEST_FULL=1 for the full figures; TEST_MINUTES: go on for so long;
 * RTEAM_DAEMON, RTEAM_SEAM: another daemon, with a fault (rteam_mutation).
 */
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/clock.h"
#include "tests/integration/harness.h"
#include "tests/redteam/figures.h"
#include "tests/redteam/hostile.h"
#include "tests/redteam/owner.h"

#define LIMIT_MS 1000000
#define PLACES	 3 /* of a lease each: writer, reader, a process to be killed */

struct hammer {
	atomic_bool stop;
	struct hostile_count count;
	struct hostile hostiles[2];
	struct owner owner;
	uint32_t started; /* threads */
	uint64_t begun_ns;
	pid_t child;
	int child_out;
};

static void hammer_stop(struct hammer *hammer)
{
	int status;

	atomic_store(&hammer->stop, true);
	for (uint32_t i = 0; i < hammer->started; i++)
		(void)pthread_join(i < 2 ? hammer->hostiles[i].thread : hammer->owner.thread, NULL);
	hammer->started = 0;
	if (hammer->child > 0) {
		(void)kill(hammer->child, SIGKILL);
		(void)waitpid(hammer->child, &status, 0);
		(void)close(hammer->child_out);
	}
	hammer->child = 0;
}

static bool hammer_start(struct hammer *hammer, const struct harness *h)
{
	hammer->begun_ns = clock_now_ns();
	hammer->owner = (struct owner){
		.tenant = "owner",
		.len_bytes = HOSTILE_LEASE_BYTES,
		.mark = 0x33,
		.stop = &hammer->stop,
	};
	for (unsigned int i = 0; i < 2; i++) {
		hammer->hostiles[i] = (struct hostile){
			.harness = h,
			.tenant = i == 0 ? "writer" : "reader",
			.opcode = i == 0 ? IBV_WR_RDMA_WRITE : IBV_WR_RDMA_READ,
			.mark = i == 0 ? 0xaa : 0xbb,
			.count = &hammer->count,
			.stop = &hammer->stop,
			.owners = &hammer->owner.leases,
			.seed = 7 + i,
		};
		if (pthread_create(&hammer->hostiles[i].thread, NULL, hostile_run,
				   &hammer->hostiles[i]) != 0)
			return false;
		hammer->started++;
	}
	if (pthread_create(&hammer->owner.thread, NULL, owner_run, &hammer->owner) != 0)
		return false;
	hammer->started++;
	return true;
}

static uint64_t hammer_endings(const struct hammer *hammer)
{
	uint64_t sum = 0;

	for (int i = 0; i < ENDINGS; i++)
		sum += atomic_load(&hammer->count.endings[i]);
	return sum;
}

static bool hammer_went_wrong(const struct hammer *hammer)
{
	if (hammer->hostiles[0].failure != NULL || hammer->hostiles[1].failure != NULL ||
	    hammer->owner.failure != NULL)
		return true;
	return !harness_is_unverified() &&
	       (atomic_load(&hammer->count.stale) > 0 || atomic_load(&hammer->count.open) > 0 ||
		atomic_load(&hammer->owner.dirty) > 0 || atomic_load(&hammer->owner.foreign) > 0);
}

static bool hammer_has_all(const struct hammer *hammer)
{
	const char *minutes = getenv("TEST_MINUTES");
	uint64_t ran_ms = (clock_now_ns() - hammer->begun_ns) / CLOCK_NS_PER_MS;

	if (minutes != NULL && minutes[0] != '\0' && ran_ms < strtoull(minutes, NULL, 10) * 60000)
		return false;
	for (int i = 0; i < ENDINGS; i++) {
		if (atomic_load(&hammer->count.endings[i]) == 0)
			return false;
	}
	return atomic_load(&hammer->count.operations) >= figure(200000) &&
	       hammer_endings(hammer) >= figure(500) &&
	       atomic_load(&hammer->count.proving) >= figure(500);
}

static bool hammer_is_late(const struct hammer *hammer)
{
	return getenv("TEST_MINUTES") == NULL &&
	       clock_now_ns() > clock_add_ms(hammer->begun_ns, LIMIT_MS);
}

/* A process that writes is killed, and its bytes are lent again like the others'. */
static void hammer_kill_one(struct hammer *hammer)
{
	char len_bytes[16];
	char program[4096];
	const char *argv[] = {program, "doomed", len_bytes, NULL};
	char line[16];
	int status;

	harness_program("rteam_child", program);
	(void)snprintf(len_bytes, sizeof(len_bytes), "%u", HOSTILE_LEASE_BYTES);
	hammer->child = harness_spawn(argv, &hammer->child_out);
	if (hammer->child <= 0)
		return;
	if (read(hammer->child_out, line, sizeof(line)) > 0) {
		harness_sleep_ms((uint64_t)rand() % 50);
		atomic_fetch_add(&hammer->count.endings[ENDING_KILL], 1);
	}
	(void)kill(hammer->child, SIGKILL);
	(void)waitpid(hammer->child, &status, 0);
	(void)close(hammer->child_out);
	hammer->child = 0;
}

static void hammer_print(const struct hammer *hammer)
{
	const struct hostile_count *count = &hammer->count;

	printf("# S2 stale use: %" PRIuLEAST64 " operations tried, %" PRIu64
	       " endings, refused: %" PRIuLEAST64 " proving, %" PRIuLEAST64
	       " otherwise, %" PRIuLEAST64 " on other lanes; %.1f s\n",
	       atomic_load(&count->operations), hammer_endings(hammer),
	       atomic_load(&count->proving), atomic_load(&count->other),
	       atomic_load(&count->elsewhere), (double)(clock_now_ns() - hammer->begun_ns) / 1e9);
	for (int i = 0; i < ENDINGS; i++)
		printf("#   %s: %" PRIuLEAST64 "\n", hostile_ending_name((enum hostile_ending)i),
		       atomic_load(&count->endings[i]));
	printf("# S2 stale bytes: %" PRIuLEAST64 " read by the reader, %" PRIuLEAST64
	       " found by the next owner at first, %" PRIuLEAST64 " later, in %" PRIuLEAST64
	       " leases; accesses that succeeded after the end: %" PRIuLEAST64 "\n",
	       atomic_load(&count->stale), atomic_load(&hammer->owner.dirty),
	       atomic_load(&hammer->owner.foreign), atomic_load(&hammer->owner.leases),
	       atomic_load(&count->open));
	for (int i = 0; i < 2; i++) {
		if (hammer->hostiles[i].failure != NULL)
			printf("# %s: %s (%d)\n", hammer->hostiles[i].tenant,
			       hammer->hostiles[i].failure, hammer->hostiles[i].failure_code);
	}
	if (hammer->owner.failure != NULL)
		printf("# owner: %s (%d)\n", hammer->owner.failure, hammer->owner.failure_code);
}

static void hammer_check(const struct hammer *hammer)
{
	CHECK(hammer->hostiles[0].failure == NULL);
	CHECK(hammer->hostiles[1].failure == NULL);
	CHECK(hammer->owner.failure == NULL);
	CHECK_INT(atomic_load(&hammer->count.open), 0);
	if (!harness_is_unverified()) {
		CHECK_INT(atomic_load(&hammer->count.stale), 0);
		CHECK_INT(atomic_load(&hammer->owner.dirty), 0);
		CHECK_INT(atomic_load(&hammer->owner.foreign), 0);
	}
	CHECK(hammer_has_all(hammer));
}

/* All but the places that change hands belongs to somebody who keeps it. */
static void fill_pool(mempool *pool, int64_t pool_bytes)
{
	uint64_t len_bytes = (uint64_t)pool_bytes - PLACES * HOSTILE_LEASE_BYTES;
	mempool_lease *lease;

	CHECK_INT(harness_acquire(pool, len_bytes, 30 * 24 * UINT64_C(3600000), &lease), 0);
}

TEST(hammer__old_descriptors_are_refused)
{
	HARNESS(h, .program = getenv("RTEAM_DAEMON"), .seam = getenv("RTEAM_SEAM"),
		.pool_size = "1MiB", .ttl_max = "30d",
		.extra = "\"lane_wait_min\": \"0\", \"revoke_grace\": \"30ms\"");
	SESSION(filler, "filler");
	__attribute__((cleanup(hammer_stop))) struct hammer hammer = {0};

	fill_pool(filler, harness_number(&h, "pool.bytes"));
	CHECK(!test_has_failed());
	CHECK(hammer_start(&hammer, &h));
	while (!hammer_went_wrong(&hammer) && !hammer_has_all(&hammer) &&
	       !hammer_is_late(&hammer)) {
		hammer_kill_one(&hammer);
		harness_sleep_ms(300);
	}
	hammer_stop(&hammer);
	hammer_print(&hammer);
	hammer_check(&hammer);
	CHECK(!test_has_failed());
	CHECK(harness_wait_number(&h, "sessions", 1, 10000));
	CHECK(harness_number(&h, "counters.invalidates_posted") <=
	      harness_number(&h, "counters.binds_succeeded"));
	CHECK_INT(harness_number(&h, "counters.destroy_failures"), 0);
	CHECK_INT(harness_stop(&h), 0);
}
