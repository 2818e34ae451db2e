/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef DAEMON_MODIFY_H
#define DAEMON_MODIFY_H

#include <stdbool.h>
#include <stdint.h>

#include "daemon/deadline.h"
#include "proto/message.h"

struct lease;

/* A change of a lease's rights or length that is under way. */
struct modify {
	struct deadline deadline; /* for the client's word that nothing is in flight */
	uint64_t request_id;
	uint64_t len_bytes;
	uint32_t rights;
	uint64_t grown_from_bytes; /* the lease's length before, if it is made longer; else 0 */
	int failure;		   /* code: what was added is taken back; 0: all goes well */
	bool applied;  /* the lease has the new rights and length; windows are being bound */
	bool starting; /* attachments are being started: not to be judged yet */
	uint32_t lane_count;
	uint32_t lanes[]; /* numbers of those it was attached to, and is to be again */
};

/**
 * modify_begin() - change a lease as its owner asks
 *
 * Only longer: further windows are bound over the added bytes, the keys so far stay.
 * Anything else: the owner must first say that nothing is in flight (modify_quiesced()).
 * Return: 0 (the answer goes out now or later), or an error code that the caller answers
 * with; the lease is untouched then.
 */
int modify_begin(struct lease *lease, uint64_t request_id, const struct message_modify *request);

/** modify_quiesced() - nothing is in flight any more; ignored if nobody asked */
void modify_quiesced(struct lease *lease);

/** modify_progress() - an attachment of a lease that is being rebound has been bound or fenced */
void modify_progress(struct lease *lease);

/**
 * modify_short() - windows or registrations for a change cannot be had
 *
 * A lease that is being made longer goes back to what it was, and its keys stay.
 * Return: is it one? If not, the caller has to deal with the shortage.
 */
bool modify_short(struct lease *lease, int code);

/**
 * modify_hold(), modify_resume() - all attachments of the lease end: the change, if there is one,
 * is judged not before the last has been told
 */
void modify_hold(struct lease *lease);
void modify_resume(struct lease *lease);

/** modify_cancel() - the lease ends or has lost its lanes: answer with a code; none under way is allowed */
void modify_cancel(struct lease *lease, int code);

#endif
