/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Somebody comes with a request that is always wrong, again and again without a pause. How
 * often that reaches the daemon's handshake follows from the waits that double, or from the
 * ban, and not from how eager the client is; who works meanwhile is none the worse for it.
 *
 * Threads: the client with the wrong request has one of its own.
 */
#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/clock.h"
#include "proto/error.h"
#include "tests/integration/accounts.h"
#include "tests/integration/harness.h"
#include "tests/integration/peer.h"
#include "tests/redteam/figures.h"

#define PAGE	     4096
#define TTL_MS	     600000
#define NOBODYS_PORT 7999
#define LATE_MS	     400 /* of an attempt that comes after its wait, on a slow machine */
#define TRIES_MAX    100000

#define LIMITS(ban_after, min, ban_time)                            \
	"\"ban_after\": " ban_after ", \"ban_backoff_min\": \"" min \
	"\", \"ban_time\": \"" ban_time "\", \"strikes_max\": 0, \"heartbeat\": \"0\""

/*
 * One attempt: a first message that nobody can read.
 * @ret_in_ns: if the daemon lets it in, when that was; before the message is sent
 *
 * Return: as raw_connect()
 */
static int try_once(uint16_t port, uint64_t *ret_in_ns)
{
	static const uint8_t garbage[100] = {1, 2, 3};
	struct private_data data = {
		.kind = PRIVATE_DATA_CONTROL,
		.version = PROTO_VERSION,
		.version_min = PROTO_VERSION_MIN,
	};
	__attribute__((cleanup(raw_close))) struct raw raw = {0};
	uint8_t bytes[PROTO_PRIVATE_DATA_MAX];
	struct message m;
	int r = raw_prepare_for(&raw, port);

	if (r == 0)
		r = raw_request(&raw, bytes, private_data_encode(&data, bytes));
	*ret_in_ns = clock_now_ns();
	if (r == 0 && raw_send(&raw, garbage, sizeof(garbage)) == 0) {
		while (raw_wait(&raw, RAW_LATE_MS, &m) == 1)
			;
	}
	return r;
}

/* The waits. */

/* Each begins when the daemon has found the attempt before it wrong. */
TEST(field_44_repeat__as_often_as_the_waits_allow)
{
	static const uint64_t waits_ms[] = {100, 200, 400, 800, 800, 800};
	HARNESS(h, .limits = LIMITS("0", "100ms", "800ms"));
	size_t waits = sizeof(waits_ms) / sizeof(waits_ms[0]);
	uint64_t last_ns = 0;
	uint64_t in_ns;
	uint32_t refused = 0;
	uint32_t tries = 0;

	for (size_t reached = 0; reached <= waits; tries++) {
		int r = try_once(HARNESS_PORT, &in_ns);
		uint64_t gap_ms = (in_ns - last_ns) / CLOCK_NS_PER_MS;

		CHECK(tries < TRIES_MAX);
		CHECK(r == 0 || r == ERROR_BACK_OFF);
		refused += r != 0;
		if (r != 0)
			continue;
		if (reached > 0) {
			printf("# attempt %zu after %" PRIu64 " ms, %u were refused meanwhile\n",
			       reached + 1, gap_ms, refused);
			CHECK(gap_ms >= waits_ms[reached - 1]);
			CHECK(gap_ms < waits_ms[reached - 1] + LATE_MS);
			CHECK(refused > 0);
		}
		refused = 0;
		last_ns = in_ns;
		reached++;
	}
	printf("# %u attempts, of which %zu have reached the handshake\n", tries, waits + 1);
	CHECK_INT(harness_number(&h, "counters.sessions_accepted"), waits + 1);
	CHECK_INT(harness_number(&h, "counters.sessions_rejected"), tries - waits - 1);
	accounts_check(&h);
	CHECK(!test_has_failed());
	CHECK_INT(harness_stop(&h), 0);
}

TEST(field_44_repeat__then_a_ban)
{
	HARNESS(h, .limits = LIMITS("5", "0", "2s"));
	PEER(other, "other");
	PEER_LANE(lane, &other);
	struct message_grant grant;
	uint64_t in_ns = 0;
	uint64_t last_ns;
	uint64_t took_ms;
	uint32_t tries = 0;
	int r = 0;

	do {
		last_ns = in_ns;
		r = try_once(HARNESS_PORT, &in_ns);
		tries++;
	} while (r == 0 && tries < 100);
	CHECK_INT(r, ERROR_BANNED);
	/* One success, the other tenant's, was before the failures. */
	CHECK_INT(harness_number(&h, "counters.sessions_accepted"), 1 + 5);
	CHECK_INT(tries, 5 + 1);
	while ((r = try_once(HARNESS_PORT, &in_ns)) == ERROR_BANNED)
		tries++;
	took_ms = (in_ns - last_ns) / CLOCK_NS_PER_MS;
	printf("# banned after 5 attempts, %u were refused, let in again after %" PRIu64 " ms\n",
	       tries - 5, took_ms);
	CHECK_INT(r, 0);
	CHECK(took_ms >= 2000 && took_ms < 2000 + LATE_MS);
	CHECK_INT(harness_number(&h, "counters.sessions_accepted"), 1 + 5 + 1);
	/* The ban is for those who come: who is in, at the same address, stays in. */
	CHECK_INT(peer_acquire(&other, &lane, PAGE, TTL_MS, 0, &grant), 0);
	CHECK_INT(peer_access(&lane, IBV_WR_RDMA_WRITE, 1, grant.descriptors[0].remote_addr,
			      grant.descriptors[0].rkey),
		  IBV_WC_SUCCESS);
	peer_lane_close(&lane);
	peer_close(&other);
	accounts_check(&h);
	CHECK(!test_has_failed());
	CHECK_INT(harness_stop(&h), 0);
}

/* The others. */

#define SAMPLES_MAX 65536
#define PHASE_MS    1000

/* What the client with the wrong request does while the others are measured. */
enum phase {
	PHASE_QUIET,
	PHASE_ELSEWHERE, /* as busy, but with a port where nobody listens */
	PHASE_HERE,
	PHASES,
};

struct caller {
	pthread_t thread;
	atomic_bool stop;
	atomic_int phase;
	atomic_uint tries[PHASES];
};

static void *caller_thread(void *arg)
{
	struct caller *caller = arg;
	uint64_t in_ns;

	while (!atomic_load(&caller->stop)) {
		int phase = atomic_load(&caller->phase);

		if (phase == PHASE_QUIET) {
			harness_sleep_ms(1);
			continue;
		}
		(void)try_once(phase == PHASE_HERE ? HARNESS_PORT : NOBODYS_PORT, &in_ns);
		atomic_fetch_add(&caller->tries[phase], 1);
	}
	return NULL;
}

static void caller_end(struct caller *caller)
{
	atomic_store(&caller->stop, true);
	if (caller->thread != 0)
		(void)pthread_join(caller->thread, NULL);
	caller->thread = 0;
}

/* How long another tenant's acquire, write and release took, all together. */
struct samples {
	uint64_t took_ns[SAMPLES_MAX];
	size_t count;
};

static void measure(struct peer *peer, struct peer_lane *lane, struct samples *samples)
{
	uint64_t until_ns = clock_add_ms(clock_now_ns(), PHASE_MS);
	struct message_grant grant;

	while (clock_now_ns() < until_ns && samples->count < SAMPLES_MAX) {
		uint64_t begun_ns = clock_now_ns();

		CHECK_INT(peer_acquire(peer, lane, PAGE, TTL_MS, 5000, &grant), 0);
		CHECK_INT(peer_access(lane, IBV_WR_RDMA_WRITE, PAGE,
				      grant.descriptors[0].remote_addr, grant.descriptors[0].rkey),
			  IBV_WC_SUCCESS);
		CHECK_INT(peer_release(peer, grant.lease_id), 0);
		samples->took_ns[samples->count++] = clock_now_ns() - begun_ns;
	}
}

static double percentile_ms(struct samples *samples, size_t percent)
{
	harness_sort(samples->took_ns, samples->count);
	return (double)samples->took_ns[samples->count * percent / 100] / 1e6;
}

TEST(field_44_repeat__others_are_not_affected)
{
	static const char *const names[PHASES] = {"quiet", "calling elsewhere", "calling here"};
	static struct samples samples[PHASES];
	HARNESS(h, .limits = LIMITS("0", "100ms", "800ms"));
	PEER(other, "other");
	PEER_LANE(lane, &other);
	__attribute__((cleanup(caller_end))) struct caller caller = {0};
	uint64_t rounds = 2 + figure(10);
	double ratio;

	CHECK_INT(pthread_create(&caller.thread, NULL, caller_thread, &caller), 0);
	for (uint64_t i = 0; i < rounds * PHASES && !test_has_failed(); i++) {
		atomic_store(&caller.phase, (int)(i % PHASES));
		harness_sleep_ms(20);
		measure(&other, &lane, &samples[i % PHASES]);
	}
	caller_end(&caller);
	CHECK(!test_has_failed());
	for (int i = 0; i < PHASES; i++)
		printf("# S5 %s (%u times): %zu leases, half within %.2f ms, 99 %% within %.2f "
		       "ms\n",
		       names[i], atomic_load(&caller.tries[i]), samples[i].count,
		       percentile_ms(&samples[i], 50), percentile_ms(&samples[i], 99));
	ratio = percentile_ms(&samples[PHASE_HERE], 99) /
		percentile_ms(&samples[PHASE_ELSEWHERE], 99);
	printf("# S5 99th percentile, calling here as against calling elsewhere: %.2f; %" PRId64
	       " attempts have reached the handshake\n",
	       ratio, harness_number(&h, "counters.sessions_accepted") - 1);
	CHECK(atomic_load(&caller.tries[PHASE_HERE]) > 10);
	CHECK(ratio < 2.0);
	/* At most each 800 ms, when the waits have grown. */
	CHECK(harness_number(&h, "counters.sessions_accepted") <=
	      1 + 4 + (int64_t)(rounds * PHASES * (PHASE_MS + 100) / 800));
	peer_lane_close(&lane);
	peer_close(&other);
	accounts_check(&h);
	CHECK(!test_has_failed());
	CHECK_INT(harness_stop(&h), 0);
}
