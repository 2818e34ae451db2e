/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Sessions that the daemon refuses or ends by itself, and then the time in which every timer
 * of them would have gone off: none is left that does. It is the address sanitizer that sees
 * best whether one is, so this is made with it, too.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "common/clock.h"
#include "proto/error.h"
#include "tests/integration/accounts.h"
#include "tests/integration/harness.h"
#include "tests/integration/peer.h"

#define PAGE	  4096
#define STRANGERS 4
#define REFUSED	  3
#define LIMIT_MS  20000
/* Of the timers below, and of those that are not in the configuration. */
#define LONGEST_MS 2000
/* All strangers must be there before the first one's time is over. */
#define SHORT_TIMES "\"handshake_timeout\": \"2s\", \"credit_timeout\": \"300ms\""
#define LIMITS(handshakes)                                                                  \
	"\"ban_after\": 0, \"ban_backoff_min\": \"0\", \"strikes_max\": 0, \"heartbeat\": " \
	"\"200ms\", \"connections_max_per_address\": 65536, \"handshakes_max\": 65536, "    \
	"\"handshakes_max_per_address\": " handshakes

/* How a session comes to its end. */
enum ending {
	ENDING_NO_HELLO, /* the time for the handshake is over */
	ENDING_SILENT,	 /* it is a session, and answers no heartbeat */
	ENDING_BREACH,	 /* the daemon ends it at once */
	ENDING_GONE,	 /* the client leaves before all timers */
};

static void begin_to_end(struct raw *raw, enum ending ending)
{
	static const uint8_t garbage[100] = {1, 2, 3};
	struct message ping = {.type = MESSAGE_PING, .request_id = 2};
	struct message_welcome welcome;

	if (ending == ENDING_SILENT) {
		CHECK_INT(raw_hello(raw, &welcome), 0);
		CHECK_INT(raw_send_message(raw, &ping), 0);
	}
	if (ending == ENDING_BREACH)
		CHECK_INT(raw_send(raw, garbage, sizeof(garbage)), 0);
	else if (ending == ENDING_GONE)
		raw_close(raw);
}

struct strangers {
	struct raw all[STRANGERS];
};

static void strangers_close(struct strangers *strangers)
{
	for (int i = 0; i < STRANGERS; i++)
		raw_close(&strangers->all[i]);
}

/* As many as there may be, some that are refused, and then each its own end. */
static void come_and_end(struct harness *h, int code)
{
	__attribute__((cleanup(strangers_close))) struct strangers strangers = {0};
	struct raw refused;
	int r;

	for (int i = 0; i < STRANGERS; i++)
		CHECK_INT(raw_open(&strangers.all[i], "mallory"), 0);
	for (int i = 0; i < REFUSED; i++) {
		r = raw_open(&refused, "mallory");
		raw_close(&refused);
		CHECK_INT(r, code);
	}
	CHECK_INT(harness_number(h, "sessions"), STRANGERS + 1);
	for (int i = 0; i < STRANGERS; i++)
		begin_to_end(&strangers.all[i], (enum ending)i);
	CHECK(!test_has_failed());
	CHECK(harness_wait_number(h, "sessions", 1, LIMIT_MS));
}

/* Meanwhile somebody else works, so that the loop runs and memory is used again. */
static void work(mempool_lease *lease, uint64_t ms)
{
	uint64_t until_ns = clock_add_ms(clock_now_ns(), ms);
	uint8_t byte = 1;

	while (clock_now_ns() < until_ns) {
		CHECK_INT(mempool_write(lease, 0, &byte, 1), 0);
		CHECK_INT(mempool_renew(lease, 60000), 0);
		harness_sleep_ms(10);
	}
}

static void refuse(const char *limits, uint32_t sessions_max, int code)
{
	HARNESS(h, .sessions_max = sessions_max, .limits = limits, .extra = SHORT_TIMES);
	SESSION(other, "other");
	mempool_lease *lease;
	uint64_t begun_ns;

	CHECK_INT(harness_acquire(other, PAGE, 60000, &lease), 0);
	begun_ns = clock_now_ns();
	come_and_end(&h, code);
	CHECK(!test_has_failed());
	printf("# %d sessions over after %" PRIu64 " ms\n", STRANGERS, harness_since_ms(begun_ns));
	work(lease, LONGEST_MS + LONGEST_MS / 4);
	CHECK(!test_has_failed());
	CHECK_INT(harness_number(&h, "sessions"), 1);
	CHECK_INT(harness_number(&h, "counters.sessions_accepted"), STRANGERS + 1);
	CHECK_INT(harness_number(&h, "counters.sessions_rejected"), REFUSED);
	CHECK_INT(harness_number(&h, "counters.destroy_failures"), 0);
	harness_close(&other);
	accounts_check(&h);
	CHECK(!test_has_failed());
	CHECK_INT(harness_stop(&h), 0);
}

TEST(field_36_refused__sessions_max)
{
	refuse(LIMITS("65536"), STRANGERS + 1, ERROR_SESSIONS_MAX);
}

TEST(field_36_refused__handshakes_max)
{
	refuse(LIMITS("4"), 64, ERROR_HANDSHAKES_MAX);
}
