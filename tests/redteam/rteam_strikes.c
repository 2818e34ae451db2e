/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A tenant that guesses keys is banned after as many tries as are configured, and it alone;
 * a tenant whose leases the operator takes back while it uses them is not.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/clock.h"
#include "proto/error.h"
#include "tests/integration/accounts.h"
#include "tests/integration/harness.h"
#include "tests/integration/order.h"
#include "tests/integration/peer.h"
#include "tests/integration/proof.h"
#include "tests/redteam/figures.h"
#include "tests/redteam/worker.h"

#define TTL_MS	      600000
#define STRIKES_MAX   10 /* by default */
#define BAN_MS	      3000
#define LATE_MS	      10000
#define PHASES_MAX    8
#define PHASE_MS      2500
#define REVOCATIONS   20
#define P99_RATIO_MAX 2
#define P99_NOISE_MS  5 /* a time slice of the emulator and a bit */
#define KNOCK_MS      10
#define STREAM_BYTES  (512u * 1024)

/* Strikes as they are by default; all clients of a test share one address. */
#define LIMITS                                                                               \
	"\"ban_after\": 0, \"ban_backoff_min\": \"0\", \"heartbeat\": \"0\", \"ban_time\": " \
	"\"3s\", \"connections_max_per_address\": 65536, \"handshakes_max\": 65536, "        \
	"\"handshakes_max_per_address\": 65536"
#define NO_WAIT "\"lane_wait_min\": \"0\""

struct guesser {
	struct peer peer;
	struct peer_lane lane;
};

static void guesser_end(struct guesser *guesser)
{
	peer_lane_close(&guesser->lane);
	peer_close(&guesser->peer);
}

/* A key that is wrong by one bit. */
static int guess(struct guesser *guesser, const struct message_descriptor *at)
{
	uint32_t rkey = at->rkey ^ UINT32_C(1) << (rand() % 8);

	return peer_access(&guesser->lane, IBV_WR_RDMA_READ, 64, at->remote_addr, rkey);
}

/* Return: the code with which the session ended, 0 if there was none. */
static int last_word(struct peer *peer)
{
	struct message m;
	int code = 0;

	while (peer_take(peer, MESSAGE_ERROR, 0, LATE_MS, &m) == 1)
		code = (int)m.u.error.code;
	return code;
}

/* Return: 0 if it may come in, the daemon's code if not, or a negative errno. */
static int knock(const char *tenant)
{
	__attribute__((cleanup(raw_close))) struct raw raw = {0};
	struct message m = raw_hello_message();
	int r = raw_open(&raw, tenant);

	if (r != 0)
		return r;
	r = raw_send_message(&raw, &m);
	if (r == 0)
		r = raw_wait(&raw, LATE_MS, &m);
	if (r != 1)
		return r == 0 ? -ETIMEDOUT : r;
	return m.type == MESSAGE_ERROR ? (int)m.u.error.code : 0;
}

/* A wrong guess, which costs the lane, and is counted before the next one is made. */
static bool guess_once(struct guesser *guesser, struct harness *h,
		       const struct message_descriptor *at, unsigned int tries)
{
	if (guess(guesser, at) != IBV_WC_REM_ACCESS_ERR)
		return false;
	peer_lane_close(&guesser->lane);
	return harness_wait_number(h, "counters.strikes", tries, LATE_MS);
}

/* Return: wrong guesses until there was no further lane; 0 if something else went wrong. */
static unsigned int guess_until_banned(struct guesser *guesser, struct harness *h,
				       const struct message_descriptor *at)
{
	for (unsigned int tries = 1; tries <= 2 * STRIKES_MAX; tries++) {
		if (!guess_once(guesser, h, at, tries))
			return 0;
		if (peer_lane_open(&guesser->peer, &guesser->lane) != 0)
			return tries;
	}
	return 0;
}

static void banned_within(const char *extra, unsigned int tries_max)
{
	HARNESS(h, .limits = LIMITS, .extra = extra);
	WORKER(worker, "victim");
	__attribute__((cleanup(guesser_end))) struct guesser guesser = {0};
	struct message_descriptor at = proof_descriptor(worker->lease);
	struct message_grant grant;
	unsigned int tries;
	uint64_t begun_ns;

	CHECK_INT(worker_start(worker), 0);
	CHECK_INT(peer_open(&guesser.peer, "guesser", NULL), 0);
	CHECK_INT(peer_lane_open(&guesser.peer, &guesser.lane), 0);
	CHECK_INT(peer_acquire(&guesser.peer, &guesser.lane, 4096, TTL_MS, 0, &grant), 0);
	tries = guess_until_banned(&guesser, &h, &at);
	begun_ns = clock_now_ns();
	printf("# S3 banned after %u wrong guesses\n", tries);
	CHECK_INT(tries, tries_max);
	CHECK_INT(last_word(&guesser.peer), ERROR_BANNED);
	CHECK(harness_wait_lease_gone(&h, grant.lease_id, LATE_MS));
	CHECK_INT(harness_count_log(&h, "event=tenant-banned tenant=guesser", NULL), 1);
	CHECK_INT(knock("guesser"), ERROR_BANNED);
	CHECK_INT(knock("bystander"), 0);
	while (knock("guesser") == ERROR_BANNED &&
	       clock_now_ns() - begun_ns < 4 * BAN_MS * 1000000ull)
		harness_sleep_ms(20);
	printf("# let in again after %.2f s\n", (double)(clock_now_ns() - begun_ns) / 1e9);
	/* Counted from the strike, which came a little before the word. */
	CHECK(clock_now_ns() - begun_ns > (BAN_MS - 2000) * CLOCK_NS_PER_MS);
	CHECK(clock_now_ns() - begun_ns < (BAN_MS + 3000) * CLOCK_NS_PER_MS);
	CHECK_INT(knock("guesser"), 0);
	worker_stop(worker);
	CHECK_INT(atomic_load(&worker->code), 0);
	CHECK_INT(atomic_load(&worker->wrong), 0);
	guesser_end(&guesser);
	worker_close(worker);
	accounts_check(&h);
	CHECK(!test_has_failed());
	CHECK_INT(harness_stop(&h), 0);
}

/* With the waits for new lanes that there are by default it takes longer, and no more guesses. */
TEST(strikes__guesser_is_banned_at_the_last)
{
	banned_within(figure(1000) == 1000 ? NULL : NO_WAIT, STRIKES_MAX);
}

TEST(strikes__as_many_as_are_configured)
{
	banned_within("\"strikes_max\": 3, " NO_WAIT, 3);
}

/*
 * What the victim has beside it, on the same few processors: nobody; a tenant that opens lanes,
 * uses its own lease and goes; one that does the same and guesses, is banned, knocks until it is
 * let in again, and so on. The last two differ in nothing but the guesses and what follows.
 */
enum neighbour {
	NEIGHBOUR_NONE,
	NEIGHBOUR_HONEST,
	NEIGHBOUR_GUESSER,
	NEIGHBOURS,
};

/* One lane and one access. Return: 1: it was refused, 0: it was not, -1: no lane. */
static int visit(struct guesser *guesser, const struct message_descriptor *at)
{
	struct message_grant own;
	int status;

	if (peer_lane_open(&guesser->peer, &guesser->lane) != 0)
		return -1;
	if (at == NULL) {
		if (peer_acquire(&guesser->peer, &guesser->lane, 64, TTL_MS, 1000, &own) != 0)
			return -1;
		status = peer_access(&guesser->lane, IBV_WR_RDMA_READ, 64,
				     own.descriptors[0].remote_addr, own.descriptors[0].rkey);
		(void)peer_release(&guesser->peer, own.lease_id);
	} else {
		status = guess(guesser, at);
	}
	peer_lane_close(&guesser->lane);
	return status != IBV_WC_SUCCESS;
}

/* @at: whose key is guessed; NULL: nobody's. Return: accesses that were refused. */
static unsigned int pester(const char *tenant, const struct message_descriptor *at,
			   uint64_t until_ns)
{
	__attribute__((cleanup(guesser_end))) struct guesser guesser = {0};
	unsigned int refused = 0;
	int r;

	while (clock_now_ns() < until_ns) {
		guesser_end(&guesser);
		harness_sleep_ms(KNOCK_MS);
		if (peer_open(&guesser.peer, tenant, NULL) != 0)
			continue;
		for (int i = 0; i < STRIKES_MAX && clock_now_ns() < until_ns; i++) {
			r = visit(&guesser, at);
			if (r < 0)
				break;
			refused += (unsigned int)r;
		}
	}
	return refused;
}

/* Percentiles of the victim, of each phase. */
struct pace {
	uint64_t half_ns[PHASES_MAX];
	uint64_t p99_ns[PHASES_MAX];
	unsigned int refused;
};

static void measure(struct worker *worker, enum neighbour neighbour, struct pace *pace,
		    uint64_t phase)
{
	struct message_descriptor at = proof_descriptor(worker->lease);
	uint64_t until_ns = clock_add_ms(clock_now_ns(), PHASE_MS);

	CHECK_INT(worker_start(worker), 0);
	if (neighbour == NEIGHBOUR_NONE)
		harness_sleep_ms(PHASE_MS);
	else if (neighbour == NEIGHBOUR_HONEST)
		pace->refused += pester("other", NULL, until_ns);
	else
		pace->refused += pester("guesser", &at, until_ns);
	worker_stop(worker);
	pace->half_ns[phase] = worker_percentile(worker, 500);
	pace->p99_ns[phase] = worker_percentile(worker, 990);
	atomic_store(&worker->count, 0);
}

/* By turns, so that what else happens hits all alike. */
TEST(strikes__others_keep_their_pace)
{
	HARNESS(h, .limits = LIMITS, .extra = NO_WAIT);
	WORKER(worker, "victim");
	static const char *const names[NEIGHBOURS] = {"alone", "with an honest neighbour",
						      "with a guesser"};
	struct pace paces[NEIGHBOURS] = {0};
	uint64_t phases = figure(10 * PHASES_MAX) / 10 < 3 ? 3 : PHASES_MAX;
	double p99_ms[NEIGHBOURS];

	worker_run(worker, 100);
	atomic_store(&worker->count, 0);
	for (uint64_t i = 0; i < phases; i++) {
		for (enum neighbour n = NEIGHBOUR_NONE; n < NEIGHBOURS; n++)
			measure(worker, n, &paces[n], i);
		CHECK(!test_has_failed());
	}
	CHECK_INT(atomic_load(&worker->code), 0);
	CHECK_INT(atomic_load(&worker->wrong), 0);
	for (enum neighbour n = NEIGHBOUR_NONE; n < NEIGHBOURS; n++) {
		harness_sort(paces[n].half_ns, phases);
		harness_sort(paces[n].p99_ns, phases);
		p99_ms[n] = (double)paces[n].p99_ns[phases / 2] / 1e6;
		printf("# S3 %s: half within %.2f ms, 99 %% within %.2f ms (medians of %" PRIu64
		       " phases)\n",
		       names[n], (double)paces[n].half_ns[phases / 2] / 1e6, p99_ms[n], phases);
	}
	printf("# S3 p99: guesser to alone %.2f, guesser to honest neighbour %.2f; %u guesses\n",
	       p99_ms[NEIGHBOUR_GUESSER] / p99_ms[NEIGHBOUR_NONE],
	       p99_ms[NEIGHBOUR_GUESSER] / p99_ms[NEIGHBOUR_HONEST],
	       paces[NEIGHBOUR_GUESSER].refused);
	CHECK_INT(paces[NEIGHBOUR_HONEST].refused, 0);
	CHECK(paces[NEIGHBOUR_GUESSER].refused >= STRIKES_MAX);
	CHECK(p99_ms[NEIGHBOUR_GUESSER] <= P99_RATIO_MAX * p99_ms[NEIGHBOUR_HONEST] + P99_NOISE_MS);
	worker_close(worker);
	accounts_check(&h);
	CHECK(!test_has_failed());
	CHECK_INT(harness_stop(&h), 0);
}

/* A tenant that streams into a lease, which the operator takes back in the midst of it. */
struct streamer {
	mempool *pool;
	mempool_lease *lease;
	uint8_t bytes[STREAM_BYTES];
	pthread_t thread;
	atomic_int code; /* that ended the stream */
};

static void *streamer_thread(void *arg)
{
	struct streamer *streamer = arg;
	int r;

	do
		r = mempool_write(streamer->lease, 0, streamer->bytes, STREAM_BYTES);
	while (r == 0 || r == MEMPOOL_E_LANE);
	atomic_store(&streamer->code, r);
	return NULL;
}

static void revoke_in_mid_transfer(struct harness *h, struct streamer *streamer)
{
	__attribute__((cleanup(order_close))) struct order order = {.fd = -1};
	json_t *result = NULL;
	int r;

	CHECK_INT(order_open(&order, h), 0);
	r = harness_acquire(streamer->pool, STREAM_BYTES, TTL_MS, &streamer->lease);
	if (r != 0)
		printf("# acquire: %s\n", mempool_last_error());
	CHECK_INT(r, 0);
	CHECK_INT(pthread_create(&streamer->thread, NULL, streamer_thread, streamer), 0);
	harness_sleep_ms(30 + (uint64_t)rand() % 30);
	r = order_revoke(&order, harness_lease_id(streamer->lease), true);
	if (r == 0)
		r = order_answer(&order, LATE_MS, &result);
	json_decref(result);
	(void)pthread_join(streamer->thread, NULL);
	CHECK_INT(r, 0);
	CHECK_INT(atomic_load(&streamer->code), MEMPOOL_E_REVOKED);
	(void)mempool_release(streamer->lease);
}

static void revoke_again_and_again(const char *extra, int revocations)
{
	static struct streamer streamer;
	HARNESS(h, .limits = LIMITS, .extra = extra);
	SESSION(alpha, "alpha");
	uint64_t begun_ns = clock_now_ns();

	streamer.pool = alpha;
	memset(streamer.bytes, 0x5c, STREAM_BYTES);
	for (int i = 0; i < revocations && !test_has_failed(); i++)
		revoke_in_mid_transfer(&h, &streamer);
	printf("# %d revocations in %.1f s: %" PRId64 " lanes lost, %" PRId64 " pardoned, %" PRId64
	       " strikes\n",
	       revocations, (double)(clock_now_ns() - begun_ns) / 1e9,
	       harness_number(&h, "counters.lanes_lost"),
	       harness_number(&h, "counters.strikes_pardoned"),
	       harness_number(&h, "counters.strikes"));
	CHECK(!test_has_failed());
	CHECK_INT(knock("alpha"), 0);
	CHECK_INT(harness_number(&h, "counters.strikes"), 0);
	/* Else this would have tested nothing. */
	CHECK(harness_number(&h, "counters.strikes_pardoned") > revocations / 2);
	harness_close(&alpha);
	accounts_check(&h);
	CHECK(!test_has_failed());
	CHECK_INT(harness_stop(&h), 0);
}

TEST(strikes__none_for_leases_taken_back_in_mid_transfer)
{
	revoke_again_and_again(NO_WAIT, REVOCATIONS);
}
