/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * daemon/service.c: what is sent, word for word, and when the watchdog is fed, under time of
 * our own.
 */
#include "daemon/service.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

#include "common/clock.h"
#include "daemon/notify.h"
#include "tests/unit/test.h"

#define MIB (UINT64_C(1) << 20)

void __wrap_notify_send(const char *state);
uint64_t __wrap_notify_watchdog_us(void);

static char sent[2048]; /* the last */
static unsigned int sent_count;
static uint64_t watchdog_us;
static uint64_t now_ns = 1;

void __wrap_notify_send(const char *state)
{
	(void)snprintf(sent, sizeof(sent), "%s", state);
	sent_count++;
}

uint64_t __wrap_notify_watchdog_us(void)
{
	return watchdog_us;
}

static uint64_t test_now(void)
{
	return now_ns;
}

TEST(service_stage__asks_for_time)
{
	service_stage("testing the device", 30000);
	CHECK_STR(sent, "EXTEND_TIMEOUT_USEC=30000000\nSTATUS=testing the device");
	service_stage("x", 0);
	CHECK_STR(sent, "EXTEND_TIMEOUT_USEC=0\nSTATUS=x");
}

TEST(service_stage__no_more_than_25_hours)
{
	service_stage("x", 90000000);
	CHECK_STR(sent, "EXTEND_TIMEOUT_USEC=90000000000\nSTATUS=x");
	service_stage("x", 90000001);
	CHECK_STR(sent, "EXTEND_TIMEOUT_USEC=90000000000\nSTATUS=x");
	service_stage("x", UINT64_MAX);
	CHECK_STR(sent, "EXTEND_TIMEOUT_USEC=90000000000\nSTATUS=x");
}

TEST(service_progress__bytes)
{
	service_progress("getting memory", 256 * MIB, 1024 * MIB, 31000);
	CHECK_STR(sent, "EXTEND_TIMEOUT_USEC=31000000\nSTATUS=getting memory: 256 MiB of 1 GiB");
}

TEST(service_bytes_ms__grows_with_the_pool)
{
	CHECK_INT(service_bytes_ms(0), 30000);
	CHECK_INT(service_bytes_ms(256 * MIB - 1), 30000);
	CHECK_INT(service_bytes_ms(256 * MIB), 31000);
	CHECK_INT(service_bytes_ms(1024 * 1024 * MIB), 30000 + 4096 * 1000);
}

/* A text cannot become a statement of its own. */
TEST(service_failed__one_line)
{
	service_failed("no such file 'a\nREADY=1\nb'");
	CHECK_STR(sent, "STATUS=no such file 'a\\x0aREADY=1\\x0ab'");
}

TEST(service_failed__longest)
{
	char text[4096];

	memset(text, 'x', sizeof(text) - 1);
	text[sizeof(text) - 1] = '\0';
	service_failed(text);
	CHECK_INT(strlen(sent), strlen("STATUS=") + SERVICE_STATUS_MAX - 1);
	CHECK_STR(sent + strlen(sent) - 4, "x...");
}

TEST(service_stopping__state)
{
	service_stopping("stopping", 40000);
	CHECK_STR(sent, "STOPPING=1\nEXTEND_TIMEOUT_USEC=40000000\nSTATUS=stopping");
	service_stopping("stopping", UINT64_MAX);
	CHECK_STR(sent, "STOPPING=1\nEXTEND_TIMEOUT_USEC=90000000000\nSTATUS=stopping");
}

TEST(service_reload__states)
{
	struct timespec before, after;
	unsigned long long at_us;
	struct service service = {0};
	int used = 0;

	watchdog_us = 0;
	service_ready(&service, NULL, "serving");
	CHECK_STR(sent, "READY=1\nSTATUS=serving");
	clock_gettime(CLOCK_MONOTONIC, &before);
	service_reloading();
	clock_gettime(CLOCK_MONOTONIC, &after);
	CHECK_INT(sscanf(sent, "RELOADING=1\nMONOTONIC_USEC=%llu%n", &at_us, &used), 1);
	CHECK_STR(sent + used, "\nSTATUS=reading the configuration again");
	CHECK(at_us >= (unsigned long long)before.tv_sec * 1000000 +
			       (unsigned long long)before.tv_nsec / 1000);
	CHECK(at_us <= (unsigned long long)after.tv_sec * 1000000 +
			       (unsigned long long)after.tv_nsec / 1000);
	service_reloaded(&service, "it is wrong");
	CHECK_STR(sent, "READY=1\nSTATUS=serving; configuration not reloaded: it is wrong");
	service_reloaded(&service, NULL);
	CHECK_STR(sent, "READY=1\nSTATUS=serving");
}

TEST(service_ready__nobody_watches)
{
	struct deadline_queue *deadlines;
	struct service service = {0};

	CHECK_INT(deadline_queue_new(NULL, &deadlines), 0);
	watchdog_us = 0;
	service_ready(&service, deadlines, "serving");
	CHECK(!deadline_is_set(&service.watchdog));
	service_clear(&service);
	CHECK(deadline_queue_free(deadlines) == NULL);
}

TEST(service_clear__never_ready)
{
	struct service service = {0};

	service_clear(&service);
}

/* At once, then every half of the time that we may be silent; not by being asked something else. */
TEST(service_ready__feeds_the_watchdog)
{
	struct deadline_queue *deadlines;
	struct service service = {0};

	clock_set_source(test_now);
	CHECK_INT(deadline_queue_new(NULL, &deadlines), 0);
	watchdog_us = 5000000;
	service_ready(&service, deadlines, "serving");
	CHECK_STR(sent, "WATCHDOG=1");
	sent_count = 0;
	CHECK_INT(deadline_queue_next_ns(deadlines), now_ns + 2500 * CLOCK_NS_PER_MS);
	now_ns += 2500 * CLOCK_NS_PER_MS - 1;
	CHECK_INT(deadline_queue_run(deadlines, now_ns, 64), 0);
	CHECK_INT(sent_count, 0);
	now_ns++;
	CHECK_INT(deadline_queue_run(deadlines, now_ns, 64), 1);
	CHECK_INT(sent_count, 1);
	CHECK_STR(sent, "WATCHDOG=1");
	CHECK_INT(deadline_queue_next_ns(deadlines), now_ns + 2500 * CLOCK_NS_PER_MS);
	service_clear(&service);
	CHECK_INT(deadline_queue_next_ns(deadlines), UINT64_MAX);
	CHECK(deadline_queue_free(deadlines) == NULL);
	clock_set_source(NULL);
}

/* The shortest: a loop that is fed all the time would do nothing else. */
TEST(service_ready__shortest_interval)
{
	struct deadline_queue *deadlines;
	struct service service = {0};

	clock_set_source(test_now);
	CHECK_INT(deadline_queue_new(NULL, &deadlines), 0);
	watchdog_us = 1;
	service_ready(&service, deadlines, "serving");
	CHECK_INT(deadline_queue_next_ns(deadlines), now_ns + CLOCK_NS_PER_MS);
	service_clear(&service);
	CHECK(deadline_queue_free(deadlines) == NULL);
	clock_set_source(NULL);
}
