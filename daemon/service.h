/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef DAEMON_SERVICE_H
#define DAEMON_SERVICE_H

#include <stdint.h>

#include "daemon/deadline.h"

/*
 * The daemon as a service: what it tells the service manager about its life, in words and in
 * states, and the proof that its loop runs. Does nothing where there is no service manager.
 */

#define SERVICE_STATUS_MAX 768
#define SERVICE_WORDS_MAX  256

/* Zero-initialised = nothing has been said yet, and nothing is watched. */
struct service {
	char status[SERVICE_WORDS_MAX]; /* while nothing is wrong */
	struct deadline watchdog;
	struct deadline_queue *deadlines;
	uint64_t interval_ms;
};

/**
 * service_stage() - something long begins
 * @what: for the operator, a few words
 * @allow_ms: how long it may take at most; the service manager waits for so long from now on
 */
void service_stage(const char *what, uint64_t allow_ms);

/** service_progress() - the same, with how many bytes of all are done */
void service_progress(const char *what, uint64_t done_bytes, uint64_t total_bytes,
		      uint64_t allow_ms);

/** service_bytes_ms() - how long a number of bytes may take to be got and registered */
uint64_t service_bytes_ms(uint64_t len_bytes);

/**
 * service_ready() - clients can connect from now on
 * @deadlines: of the loop that the watchdog is to watch; until service_clear()
 * @status: for the operator, as long as nothing is wrong
 */
void service_ready(struct service *service, struct deadline_queue *deadlines, const char *status);

/** service_reloading() - the configuration is being read again; service_reloaded() must follow */
void service_reloading(void);

/** service_reloaded() - @error: why everything is as it was, or NULL: it has been taken over */
void service_reloaded(const struct service *service, const char *error);

/**
 * service_stopping() - from now on we end, by ourselves or as we were told
 * @allow_ms: how long that may take at most
 */
void service_stopping(const char *status, uint64_t allow_ms);

/** service_failed() - why we end; @status: any text */
void service_failed(const char *status);

/** service_clear() - the watchdog gets nothing any more */
void service_clear(struct service *service);

#endif
