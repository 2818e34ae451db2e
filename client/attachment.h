/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef CLIENT_ATTACHMENT_H
#define CLIENT_ATTACHMENT_H

#include <stdbool.h>
#include <stdint.h>

#include "proto/message.h"

struct lane;

/*
 * A lease on a lane: the keys that are good there. Each lease has one for the session's own
 * lane, and one for the lane of each queue that it was attached to. All functions are called
 * with the session's lock held.
 */
struct attachment {
	struct attachment *next; /* of the same lease */
	struct lane *lane;
	uint64_t incarnation; /* of the lane that the keys are good for; 0: none */
	bool stale;	      /* a change of the lease has not brought its keys (yet) */
	uint32_t descriptor_count;
	struct message_descriptor descriptors[PROTO_LEASE_WINDOWS_MAX];
};

/** attachment_find() - Return: that of a lane, or NULL */
struct attachment *attachment_find(struct attachment *first, const struct lane *lane);

/** attachment_numbered() - Return: that of the lane with a number, as it is now, or NULL */
struct attachment *attachment_numbered(struct attachment *first, uint32_t number);

/** attachment_is_good() - are the keys those of the lane as it is now? NULL is allowed */
bool attachment_is_good(const struct attachment *attachment);

/** attachment_set() - take over the keys of a valid grant */
void attachment_set(struct attachment *attachment, const struct message_grant *grant,
		    uint64_t incarnation);

/** attachment_at() - Return: the descriptor that covers an offset, or NULL */
const struct message_descriptor *attachment_at(const struct attachment *attachment,
					       uint64_t offset_bytes);

/** attachment_new() - in a list, after its first; Return: it, or NULL */
struct attachment *attachment_new(struct attachment *first, struct lane *lane);

/** attachment_remove() - free that of a lane, if it has one that is not the first */
void attachment_remove(struct attachment *first, const struct lane *lane);

/** attachment_free_rest() - all but the first */
void attachment_free_rest(struct attachment *first);

#endif
