/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef TESTS_REDTEAM_HOSTILE_H
#define TESTS_REDTEAM_HOSTILE_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>

#include "tests/integration/harness.h"
#include "tests/integration/order.h"
#include "tests/integration/peer.h"

#define HOSTILE_LEASE_BYTES	 (32u * 1024)
#define HOSTILE_ACCESS_MAX_BYTES (16u * 1024)
#define HOSTILE_TTL_MS		 600000

/* How a lease ends under somebody who goes on using its old descriptors. */
enum hostile_ending {
	ENDING_EXPIRY,
	ENDING_RELEASE,
	ENDING_REVOKE_IGNORED, /* the notice is not acknowledged */
	ENDING_REVOKE_ACKNOWLEDGED,
	ENDING_REVOKE_NOW,
	ENDING_FEWER_RIGHTS, /* says that it is quiet, and is not */
	ENDING_SHORTER,
	ENDING_LANE_LOST,
	ENDING_DISCONNECT,
	ENDING_KILL, /* of a process */
	ENDINGS,
};

struct hostile_count {
	atomic_uint_least64_t operations;
	atomic_uint_least64_t proving;	 /* refusals that prove something, see hostile.c */
	atomic_uint_least64_t other;	 /* accesses that failed in another way */
	atomic_uint_least64_t elsewhere; /* refusals of an old descriptor on a new lane */
	atomic_uint_least64_t open;  /* successes after the daemon has said that the key is dead */
	atomic_uint_least64_t stale; /* bytes read that are not the reader's own */
	atomic_uint_least64_t endings[ENDINGS];
};

/* A tenant that never stops using what it was lent. */
struct hostile {
	const struct harness *harness;
	const char *tenant;
	enum ibv_wr_opcode opcode;
	uint8_t mark; /* that fills all of its own bytes */
	struct hostile_count *count;
	const atomic_bool *stop;
	const atomic_uint_least64_t *owners; /* counts up each time the bytes were looked at */
	const char *failure;		     /* why it stopped by itself, or NULL */
	int failure_code;
	pthread_t thread;
	unsigned int seed;
	struct peer peer;
	struct peer_lane lane;
	struct order order;
	bool connected;
	/* The lease, and the access that is repeated all its life and beyond. */
	struct message_grant grant;
	uint64_t addr;
	uint32_t rkey;
	uint32_t len_bytes;
	uint64_t successes;  /* of that access, in a row, on the lane that is open */
	uint64_t request_id; /* whose answer says that the key is dead; 0: none */
	bool dead;
	bool refused;
	uint8_t expected[HOSTILE_ACCESS_MAX_BYTES];
};

/** hostile_run() - the thread; @arg: a struct hostile */
void *hostile_run(void *arg);

const char *hostile_ending_name(enum hostile_ending ending);

#endif
