/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What is known of a lease on each lane. The first of a lease's list is part of the lease and
 * belongs to the session's own lane; the others are allocated when a lease is attached to the
 * lane of a queue, and freed with the queue or the lease.
 *
 * Invariants: keys are good as long as their lane is the incarnation that they came for. A lane's
 * number says which it is only while it is up: another session may use it for another one.
 *
 * Thread: any that has the session's lock.
 */
#include "client/attachment.h"

#include <stdlib.h>
#include <string.h>

#include "client/lane.h"

struct attachment *attachment_find(struct attachment *first, const struct lane *lane)
{
	while (first != NULL && first->lane != lane)
		first = first->next;
	return first;
}

struct attachment *attachment_numbered(struct attachment *first, uint32_t number)
{
	while (first != NULL && (!attachment_is_good(first) || first->lane->state != LANE_UP ||
				 first->lane->number != number))
		first = first->next;
	return first;
}

bool attachment_is_good(const struct attachment *attachment)
{
	return attachment != NULL && attachment->incarnation != 0 &&
	       attachment->incarnation == attachment->lane->incarnation;
}

void attachment_set(struct attachment *attachment, const struct message_grant *grant,
		    uint64_t incarnation)
{
	attachment->incarnation = incarnation;
	attachment->stale = false;
	attachment->descriptor_count = grant->descriptor_count;
	memcpy(attachment->descriptors, grant->descriptors,
	       grant->descriptor_count * sizeof(attachment->descriptors[0]));
}

const struct message_descriptor *attachment_at(const struct attachment *attachment,
					       uint64_t offset_bytes)
{
	for (uint32_t i = 0; i < attachment->descriptor_count; i++) {
		const struct message_descriptor *descriptor = &attachment->descriptors[i];

		if (offset_bytes - descriptor->offset_bytes < descriptor->len_bytes)
			return descriptor;
	}
	return NULL;
}

struct attachment *attachment_new(struct attachment *first, struct lane *lane)
{
	struct attachment *attachment = calloc(1, sizeof(*attachment));

	if (attachment == NULL)
		return NULL;
	attachment->lane = lane;
	attachment->next = first->next;
	first->next = attachment;
	return attachment;
}

void attachment_remove(struct attachment *first, const struct lane *lane)
{
	struct attachment **at = &first->next;
	struct attachment *removed;

	while (*at != NULL && (*at)->lane != lane)
		at = &(*at)->next;
	removed = *at;
	if (removed == NULL)
		return;
	*at = removed->next;
	free(removed);
}

void attachment_free_rest(struct attachment *first)
{
	while (first->next != NULL)
		attachment_remove(first, first->next->lane);
}
