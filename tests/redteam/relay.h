/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef TESTS_REDTEAM_RELAY_H
#define TESTS_REDTEAM_RELAY_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "tests/integration/raw.h"

/*
 * A man in the middle. He takes connections that were meant for the daemon, connects on to it
 * with the same private data, and passes SENDs both ways through buffers of his own. He
 * records all that he sees and does with it what he likes.
 *
 * Control connections one at a time; a connect request for a lane he tries to use for himself,
 * with his own queue pair, and then passes on what the daemon said.
 */

enum relay_side {
	RELAY_TO_DAEMON,
	RELAY_TO_CLIENT,
	RELAY_SIDES,
};

#define RELAY_PRIVATE_DATA UINT32_MAX /* in place of the number of a SEND */

struct relay_record {
	uint32_t session; /* of the relay, from 1 on; 0: of a lane */
	enum relay_side side;
	uint32_t number; /* of the SENDs of that direction in that session, from 0 on */
	uint32_t len_bytes;
	uint8_t *bytes;
};

struct relay;

/** relay_pass_fn() - a SEND has come and is recorded; relay_deliver() it or something else, or not */
typedef void (*relay_pass_fn)(struct relay *relay, const struct relay_record *what);

/** relay_change_fn() - change the private data of a control connection */
typedef void (*relay_change_fn)(uint8_t *bytes, uint8_t len_bytes);

struct relay {
	pthread_t thread;
	bool running;
	atomic_bool stop;
	pthread_mutex_t lock; /* held while the relay's thread does something */
	struct rdma_event_channel *channel;
	struct rdma_cm_id *listener;
	struct raw ends[RELAY_SIDES]; /* over which is sent in that direction */
	bool open;		      /* there is a session */
	uint32_t sessions;	      /* so far */
	uint32_t numbers[RELAY_SIDES];
	struct relay_record *records;
	size_t count;
	size_t cap;
	relay_pass_fn pass;
	relay_change_fn change_request; /* on its way to the daemon; NULL: not at all */
	relay_change_fn change_accept;	/* on its way to the client; likewise */
	void *context;
	uint32_t lanes_tried;
	uint32_t lanes_opened; /* with his own queue pair: there must be none */
	int lane_code;	       /* of the daemon's last refusal */
	bool failed;	       /* he could not do what he should; the test is worth nothing */
};

/** relay_open() - @pass: NULL: everything is passed on as it is; Return: 0 or a negative errno */
int relay_open(struct relay *relay, relay_pass_fn pass, void *context);

/** relay_close() - all zero is allowed */
void relay_close(struct relay *relay);

/**
 * relay_divert() - the next connections that this process makes lead to the relay
 * @count: so many; the others go where they were meant to go
 *
 * Needs a program that was linked with --wrap=rdma_resolve_addr.
 */
void relay_divert(int count);

/** relay_deliver() - for relay_pass_fn: send bytes on */
void relay_deliver(struct relay *relay, enum relay_side side, const uint8_t *bytes,
		   uint32_t len_bytes);

/** relay_wait_idle() - wait until there is no session; Return: is it so? */
bool relay_wait_idle(struct relay *relay, uint64_t limit_ms);

/**
 * relay_count() - how often bytes are in the records; not while a session goes on
 * @session: in the records of this one; 0: of all
 */
unsigned int relay_count(const struct relay *relay, uint32_t session, const void *bytes,
			 size_t len_bytes);

/** relay_find() - a record; Return: NULL if there is none; not while a session goes on */
const struct relay_record *relay_find(const struct relay *relay, uint32_t session,
				      enum relay_side side, uint32_t number);

#endif
