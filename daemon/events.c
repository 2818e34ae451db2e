/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Events as JSON. Owns nothing: who follows is known to the admin object, which also bounds
 * what waits for a slow reader.
 *
 * Thread: the loop.
 */
#include "daemon/events.h"

#include <stdio.h>
#include <time.h>

#define TIME_MAX 40

/* Text that is no UTF-8, and what does not apply, is left out. */
static void put_text(json_t *event, const char *name, const char *text)
{
	if (text != NULL)
		(void)json_object_set_new(event, name, json_string(text));
}

static void put_number(json_t *event, const char *name, uint64_t number)
{
	if (number != 0)
		(void)json_object_set_new(event, name, json_integer((json_int_t)number));
}

static void put_time(json_t *event)
{
	struct timespec now = {0};
	struct tm utc = {0};
	char text[TIME_MAX];
	size_t used;

	(void)clock_gettime(CLOCK_REALTIME, &now);
	(void)gmtime_r(&now.tv_sec, &utc);
	used = strftime(text, sizeof(text), "%Y-%m-%dT%H:%M:%S", &utc);
	snprintf(text + used, sizeof(text) - used, ".%03ldZ", now.tv_nsec / 1000000);
	put_text(event, "time", text);
}

static json_t *show_event(const struct audit_record *record)
{
	json_t *event = json_object();
	char rights[AUDIT_RIGHTS_MAX];

	put_time(event);
	put_text(event, "event", audit_event_name(record->event));
	put_text(event, "tenant", record->tenant);
	put_number(event, "session", record->session_id);
	put_number(event, "lease", record->lease_id);
	put_number(event, "generation", record->generation);
	put_number(event, "bytes", record->len_bytes);
	if (record->rights != 0)
		put_text(event, "rights", audit_rights(record->rights, rights));
	put_text(event, "reason", record->reason);
	if (audit_event_has_duration(record->event))
		(void)json_object_set_new(event, "duration_ms",
					  json_integer((json_int_t)record->duration_ms));
	put_text(event, "peer", record->peer);
	return event;
}

void events_publish(struct admin *admin, const struct audit_record *record)
{
	if (admin != NULL && admin_has_followers(admin))
		admin_publish(admin, show_event(record));
}

void events_tell(struct admin *admin, const char *name, const char *tenant, const char *reason)
{
	json_t *event;

	if (admin == NULL || !admin_has_followers(admin))
		return;
	event = json_object();
	put_time(event);
	put_text(event, "event", name);
	put_text(event, "tenant", tenant);
	put_text(event, "reason", reason);
	admin_publish(admin, event);
}

static void events_follow(struct admin_request *request, json_t *params, void *context)
{
	(void)context;
	if (json_object_size(params) > 0)
		admin_fail(request, ADMIN_ERROR_PARAMS, "events.follow takes no params");
	else
		admin_follow(request, json_pack("{s:b}", "following", 1));
}

const struct admin_method events_methods[] = {
	{"events.follow", events_follow},
	{NULL, NULL},
};
