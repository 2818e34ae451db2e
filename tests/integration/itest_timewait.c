/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * TIMEWAIT_EXIT, the event that comes some time after the end of a connection, or never. An
 * id that has been destroyed gets none: the kernel drops the events of an id with the id, and
 * librdmacm destroys none before each event that was taken is acknowledged. So nobody here
 * waits for it, and it is harmless where an id lives so long that it comes.
 */
#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>

#include "common/clock.h"
#include "tests/integration/accounts.h"
#include "tests/integration/harness.h"
#include "tests/integration/log_lines.h"
#include "tests/integration/peer.h"
#include "tests/integration/resources.h"

#define PAGE	    4096
#define TTL_MS	    600000
#define LIMIT_MS    30000
#define TEARDOWN_MS 1000  /* of a session, on a machine that may be slow */
#define LATEST_MS   60000 /* that the event comes to somebody who waits for it */
#define EVENT	    "RDMA_CM_EVENT_TIMEWAIT_EXIT"

/* Return: has it come within the time? Others are passed over. */
static bool wait_for_timewait_exit(struct rdma_event_channel *channel, uint64_t limit_ms)
{
	uint64_t until_ns = clock_add_ms(clock_now_ns(), limit_ms);
	struct pollfd fd = {.fd = channel->fd, .events = POLLIN};
	struct rdma_cm_event *event;
	bool came = false;

	while (!came) {
		if (poll(&fd, 1, (int)clock_left_ms(until_ns, clock_now_ns())) != 1 ||
		    rdma_get_cm_event(channel, &event) != 0)
			return false;
		came = event->event == RDMA_CM_EVENT_TIMEWAIT_EXIT;
		(void)rdma_ack_cm_event(event);
	}
	return true;
}

static void destroy_id(struct raw *raw)
{
	CHECK_INT(verbs_destroy_qp(raw->id->qp), 0);
	raw->id->qp = NULL;
	CHECK_INT(rdma_destroy_id(raw->id), 0);
	raw->id = NULL;
}

/* Return: how long after its end the kernel tells a client that waits for it; 0: failed. */
static uint64_t timewait_ms(struct harness *h)
{
	__attribute__((cleanup(raw_close))) struct raw kept = {0};
	__attribute__((cleanup(raw_close))) struct raw destroyed = {0};
	struct pollfd fd = {.events = POLLIN};
	uint64_t begun_ns;
	uint64_t took_ms;

	if (raw_open(&kept, "alpha") != 0 || raw_open(&destroyed, "alpha") != 0)
		return 0;
	begun_ns = clock_now_ns();
	if (rdma_disconnect(kept.id) != 0 || rdma_disconnect(destroyed.id) != 0)
		return 0;
	destroy_id(&destroyed);
	if (test_has_failed() || !harness_wait_number(h, "sessions", 0, LIMIT_MS))
		return 0;
	took_ms = harness_since_ms(begun_ns);
	printf("# the daemon is done %" PRIu64 " ms after the client's end\n", took_ms);
	if (took_ms >= TEARDOWN_MS || !wait_for_timewait_exit(kept.channel, LATEST_MS))
		return 0;
	took_ms = harness_since_ms(begun_ns);
	/* What is destroyed is told nothing, then or later. */
	fd.fd = destroyed.channel->fd;
	return poll(&fd, 1, 1000) == 0 ? took_ms : 0;
}

static void live_once(struct harness *h)
{
	SESSION(beta, "beta");
	mempool_lease *lease;
	uint64_t begun_ns;
	uint8_t byte = 1;

	CHECK_INT(harness_acquire(beta, PAGE, TTL_MS, &lease), 0);
	CHECK_INT(mempool_write(lease, 0, &byte, 1), 0);
	begun_ns = clock_now_ns();
	harness_close(&beta);
	CHECK(harness_since_ms(begun_ns) < TEARDOWN_MS);
	CHECK(harness_wait_number(h, "sessions", 0, LIMIT_MS));
	CHECK(harness_wait_number(h, "lanes", 0, LIMIT_MS));
	CHECK(harness_since_ms(begun_ns) < TEARDOWN_MS);
}

/* Many lives, some of which begin while the kernel still has the ends of others in mind. */
TEST(field_42_timewait__teardown_does_not_wait)
{
	HARNESS(h, .pool_size = NULL);
	uint32_t most = harness_figure(FIGURE_CYCLES);
	uint64_t wait_ms = timewait_ms(&h);
	uint64_t begun_ns = clock_now_ns();
	uint32_t lives = 0;

	CHECK(wait_ms > 0);
	while (harness_since_ms(begun_ns) < 2 * wait_ms + 1000 || lives < most) {
		live_once(&h);
		CHECK(!test_has_failed());
		lives++;
	}
	printf("# the event comes after %" PRIu64 " ms; meanwhile %u lives of %" PRIu64
	       " ms each, and %d of their events came to the daemon\n",
	       wait_ms, lives, harness_since_ms(begun_ns) / lives, log_lines_count(&h, EVENT));
	CHECK(harness_since_ms(begun_ns) / lives < wait_ms);
	CHECK_INT(log_lines_count(&h, EVENT), 0);
	CHECK_INT(harness_number(&h, "counters.sessions_accepted"), lives + 2);
	accounts_check(&h);
	CHECK(!test_has_failed());
	CHECK_INT(harness_number(&h, "counters.destroy_failures"), 0);
	CHECK_INT(harness_stop(&h), 0);
}

/* A QP that cannot be destroyed for a while keeps its id, to which the event comes then. */
TEST(field_42_timewait__comes_to_an_id_that_lives_on)
{
	HARNESS(h, .program = "mempoold-seam", .seam = "fail-destroy-qp:7");
	struct raw raw;
	int r = raw_open(&raw, "alpha");
	uint64_t begun_ns = clock_now_ns();

	raw_close(&raw);
	CHECK_INT(r, 0);
	CHECK(log_lines_wait(&h, EVENT, 1, LATEST_MS));
	printf("# it has come to the daemon after %" PRIu64 " ms\n", harness_since_ms(begun_ns));
	CHECK_INT(harness_number(&h, "sessions"), 1);
	CHECK(harness_wait_number(&h, "sessions", 0, LIMIT_MS));
	CHECK_INT(harness_number(&h, "counters.destroy_failures"), 7);
	accounts_check(&h);
	CHECK(!test_has_failed());
	CHECK_INT(harness_stop(&h), 0);
}
