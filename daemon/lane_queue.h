/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef DAEMON_LANE_QUEUE_H
#define DAEMON_LANE_QUEUE_H

#include <stdint.h>

#include "daemon/deadline.h"

struct session;

#define LANE_QUEUE_MAX 16 /* requests for a lane that may wait */

/* A session's requests for lanes, and how long it must wait for the next one. */
struct lane_queue {
	struct session *session;
	uint32_t next_number;
	uint64_t lost_ns;		/* when the last lane was lost; 0: none was */
	uint64_t wait_ms;		/* between the last loss and the next new lane */
	uint64_t opens[LANE_QUEUE_MAX]; /* request ids that wait for that, oldest first */
	uint32_t open_count;
	struct deadline deadline;
};

/** lane_queue_init() - empty */
void lane_queue_init(struct lane_queue *queue, struct session *session);

/** lane_queue_close() - the session ends: nobody is served any more */
void lane_queue_close(struct lane_queue *queue);

/** lane_queue_note_lost() - a lane was lost: the next one is offered later than the last time */
void lane_queue_note_lost(struct lane_queue *queue);

/**
 * lane_queue_open() - the client wants a lane: offer one now, or later if it has lost some lately
 *
 * Return: 0, or an error code that the caller answers with.
 */
int lane_queue_open(struct lane_queue *queue, uint64_t request_id);

#endif
