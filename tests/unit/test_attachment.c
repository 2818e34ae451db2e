/* SPDX-License-Identifier: BSD-3-Clause */
/* Which keys of a lease belong to which lane, and what can be done with a lease at all. */
#include "client/attachment.h"

#include "client/lane.h"
#include "client/lease.h"
#include "client/pool.h"
#include "common/clock.h"
#include "tests/unit/test.h"

/* A lease on three lanes, which are up. */
struct fixture {
	struct lane lanes[3];
	struct attachment first;
};

static struct message_grant grant_of(uint64_t remote_addr)
{
	return (struct message_grant){
		.descriptor_count = 1,
		.descriptors = {{.len_bytes = 64, .remote_addr = remote_addr}},
	};
}

static bool fixture_init(struct fixture *f)
{
	struct attachment *at;

	*f = (struct fixture){.first = {.lane = &f->lanes[0]}};
	for (uint32_t i = 0; i < 3; i++) {
		struct message_grant grant = grant_of(i);

		f->lanes[i].state = LANE_UP;
		f->lanes[i].number = i + 1;
		f->lanes[i].incarnation = i + 1;
		at = i == 0 ? &f->first : attachment_new(&f->first, &f->lanes[i]);
		if (at == NULL)
			return false;
		attachment_set(at, &grant, i + 1);
	}
	return true;
}

TEST(attachment_numbered__lanes_that_are_up)
{
	struct fixture f;

	CHECK(fixture_init(&f));
	for (uint32_t i = 0; i < 3; i++)
		CHECK(attachment_numbered(&f.first, i + 1) ==
		      attachment_find(&f.first, &f.lanes[i]));
	CHECK(attachment_numbered(&f.first, 0) == NULL);
	CHECK(attachment_numbered(&f.first, 4) == NULL);
	attachment_free_rest(&f.first);
}

/* Another session has begun to count lanes anew; one lane has been made in it, one not. */
TEST(attachment_numbered__number_of_a_lane_that_is_lost)
{
	struct message_grant grant = grant_of(7);
	struct fixture f;

	CHECK(fixture_init(&f));
	/* The later one comes first in the list. */
	f.lanes[2].state = LANE_LOST;
	f.lanes[1].number = f.lanes[2].number;
	f.lanes[1].incarnation = 4;
	attachment_set(attachment_find(&f.first, &f.lanes[1]), &grant, 4);
	CHECK(attachment_numbered(&f.first, 3) == attachment_find(&f.first, &f.lanes[1]));
	f.lanes[1].state = LANE_OPENING;
	CHECK(attachment_numbered(&f.first, 3) == NULL);
	attachment_free_rest(&f.first);
}

TEST(attachment_is_good__incarnations)
{
	struct fixture f;

	CHECK(fixture_init(&f));
	CHECK(!attachment_is_good(NULL));
	CHECK(attachment_is_good(&f.first));
	f.lanes[0].incarnation++;
	CHECK(!attachment_is_good(&f.first));
	f.first.incarnation = 0;
	f.lanes[0].incarnation = 0;
	CHECK(!attachment_is_good(&f.first));
	attachment_free_rest(&f.first);
}

/* An end that is known counts more than a session that is lost; that more than all else. */
TEST(lease_code__what_counts_more)
{
	struct mempool pool = {.control = {.welcomed = true}};
	struct mempool_lease lease = {
		.pool = &pool,
		.deadline_ns = clock_add_ms(clock_now_ns(), 60000),
	};

	CHECK_INT(lease_code(&lease), 0);
	lease.deadline_ns = clock_now_ns();
	CHECK_INT(lease_code(&lease), MEMPOOL_E_EXPIRED);
	lease.revoking = true;
	CHECK_INT(lease_code(&lease), MEMPOOL_E_REVOKED);
	/* The session is there again, but the lease has not come to it yet. */
	lease.away = true;
	CHECK_INT(lease_code(&lease), MEMPOOL_E_SESSION_LOST);
	lease.away = false;
	pool.control.lost = true;
	CHECK_INT(lease_code(&lease), MEMPOOL_E_SESSION_LOST);
	/* The handshake of the next session. */
	pool.control.lost = false;
	pool.control.welcomed = false;
	CHECK_INT(lease_code(&lease), MEMPOOL_E_SESSION_LOST);
	lease.end_reason = MEMPOOL_E_DRAINED;
	CHECK_INT(lease_code(&lease), MEMPOOL_E_DRAINED);
}
