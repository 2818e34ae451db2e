/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef TESTS_REDTEAM_OWNER_H
#define TESTS_REDTEAM_OWNER_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "tests/integration/peer.h"

/* Who is lent the bytes next, and looks at each of them again and again. */
struct owner {
	const char *tenant;
	uint64_t len_bytes; /* of its leases */
	uint8_t mark;	    /* that it fills them with */
	const atomic_bool *stop;
	atomic_uint_least64_t leases;
	atomic_uint_least64_t dirty;   /* bytes that were not zero when lent */
	atomic_uint_least64_t foreign; /* bytes that somebody else has changed */
	const char *failure;
	int failure_code;
	pthread_t thread;
	struct peer peer;
	struct peer_lane lane;
};

/** owner_run() - the thread; @arg: a struct owner */
void *owner_run(void *arg);

#endif
