/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What is said to the service manager. A status is one line whatever is in it, so that a text
 * of the operator's cannot become another statement.
 *
 * The watchdog is fed by a deadline in the loop's own queue and by nothing else: if the loop
 * does not come around, the deadline does not fire.
 *
 * Owns its deadline. Thread: the loop's, also before the loop runs.
 */
#include "daemon/service.h"

#include <inttypes.h>
#include <stdio.h>
#include <time.h>

#include "common/clock.h"
#include "common/log.h"
#include "common/text.h"
#include "common/units.h"
#include "daemon/notify.h"

#define SERVICE_STATE_MAX    (SERVICE_STATUS_MAX + 128)
#define SERVICE_BYTES_PER_S  (UINT64_C(256) << 20) /* slower is no memory that one would lend */
#define SERVICE_BYTES_MIN_MS 30000u
#define SERVICE_ALLOW_MAX_MS (UINT64_C(25) * 3600 * 1000) /* a day for the tenants, and our own */

static uint64_t service_monotonic_us(void)
{
	struct timespec now = {0};

	(void)clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000000u + (uint64_t)now.tv_nsec / 1000;
}

/* @states: lines, each closed by a newline */
static void service_send(const char *states, const char *status)
{
	char escaped[SERVICE_STATUS_MAX];
	char text[SERVICE_STATE_MAX];

	(void)text_escape(status, escaped, sizeof(escaped));
	(void)snprintf(text, sizeof(text), "%sSTATUS=%s", states, escaped);
	notify_send(text);
}

/* @state: closed by a newline, or empty */
static void service_allow(const char *state, const char *status, uint64_t allow_ms)
{
	char states[64];

	if (allow_ms > SERVICE_ALLOW_MAX_MS)
		allow_ms = SERVICE_ALLOW_MAX_MS;
	(void)snprintf(states, sizeof(states), "%sEXTEND_TIMEOUT_USEC=%" PRIu64 "\n", state,
		       allow_ms * 1000);
	service_send(states, status);
}

void service_stage(const char *what, uint64_t allow_ms)
{
	service_allow("", what, allow_ms);
}

void service_progress(const char *what, uint64_t done_bytes, uint64_t total_bytes,
		      uint64_t allow_ms)
{
	char done[UNITS_TEXT_MAX], total[UNITS_TEXT_MAX];
	char text[SERVICE_STATUS_MAX];

	(void)snprintf(text, sizeof(text), "%s: %s of %s", what,
		       units_format_size(done_bytes, done), units_format_size(total_bytes, total));
	service_stage(text, allow_ms);
}

uint64_t service_bytes_ms(uint64_t len_bytes)
{
	return SERVICE_BYTES_MIN_MS + len_bytes / SERVICE_BYTES_PER_S * 1000;
}

static void service_on_watchdog(struct deadline *deadline, void *context)
{
	struct service *service = context;

	notify_send("WATCHDOG=1");
	(void)deadline_set(service->deadlines, deadline,
			   clock_add_ms(clock_now_ns(), service->interval_ms));
}

void service_ready(struct service *service, struct deadline_queue *deadlines, const char *status)
{
	uint64_t silent_us = notify_watchdog_us();

	*service = (struct service){
		.watchdog = {.fire = service_on_watchdog, .context = service},
		.deadlines = deadlines,
		.interval_ms = silent_us / 2000 > 0 ? silent_us / 2000 : 1,
	};
	(void)snprintf(service->status, sizeof(service->status), "%s", status);
	service_send("READY=1\n", status);
	if (silent_us == 0)
		return;
	log_info("watched by the service manager silent_at_most_ms=%" PRIu64, silent_us / 1000);
	service_on_watchdog(&service->watchdog, service);
}

void service_reloading(void)
{
	char states[64];

	(void)snprintf(states, sizeof(states), "RELOADING=1\nMONOTONIC_USEC=%" PRIu64 "\n",
		       service_monotonic_us());
	service_send(states, "reading the configuration again");
}

void service_reloaded(const struct service *service, const char *error)
{
	char text[SERVICE_STATUS_MAX];

	(void)snprintf(text, sizeof(text), "%s%s%s", service->status,
		       error != NULL ? "; configuration not reloaded: " : "",
		       error != NULL ? error : "");
	service_send("READY=1\n", text);
}

void service_stopping(const char *status, uint64_t allow_ms)
{
	service_allow("STOPPING=1\n", status, allow_ms);
}

void service_failed(const char *status)
{
	service_send("", status);
}

void service_clear(struct service *service)
{
	if (service->deadlines != NULL)
		deadline_clear(service->deadlines, &service->watchdog);
}
