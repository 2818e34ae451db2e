/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef TESTS_INTEGRATION_PEER_H
#define TESTS_INTEGRATION_PEER_H

#include <infiniband/verbs.h>
#include <stdbool.h>
#include <stdint.h>

#include "proto/message.h"
#include "tests/integration/raw.h"

#define PEER_KEPT_MAX	  256
#define PEER_BUFFER_BYTES (64u * 1024) /* of a lane */

/*
 * A tenant on raw verbs. It speaks the protocol as well as the test wants: nothing is
 * acknowledged, no key is forgotten and no lane given up unless the test does it. One thread.
 */
struct peer {
	struct raw control;
	struct message_welcome welcome;
	uint8_t instance[PROTO_INSTANCE_BYTES];
	uint64_t last_id;
	uint16_t owed;	      /* receives posted again that the daemon does not know of */
	struct message *kept; /* what has come and nobody has asked for yet, oldest first */
	uint32_t kept_count;
};

/* A data connection of one. All zero: none. */
struct peer_lane {
	struct raw raw;
	uint32_t number;
};

/** peer_open() - connect and say hello; @instance: NULL: random; Return: 0 or a negative errno */
int peer_open(struct peer *peer, const char *tenant, const uint8_t *instance);

/** peer_cut() - disconnect the control connection alone: lanes stay as they are */
void peer_cut(struct peer *peer);

/** peer_close() - without a bye; lanes are closed before; all zero is allowed */
void peer_close(struct peer *peer);

/** peer_send() - a request gets the next id if it has none; Return: 0 or a negative errno */
int peer_send(struct peer *peer, struct message *m);

/** peer_look() - take what has come, without waiting; Return: 0 or -ENETRESET */
int peer_look(struct peer *peer);

/**
 * peer_take() - the oldest message with that type and request id
 * @type: 0: any; @request_id: 0: a notice
 *
 * Return: 1, 0 if none came in time, -ENETRESET.
 */
int peer_take(struct peer *peer, uint16_t type, uint64_t request_id, uint64_t limit_ms,
	      struct message *ret_m);

/** peer_call() - Return: 0 with the answer, the code of an error, or a negative errno */
int peer_call(struct peer *peer, struct message *m, struct message *ret_answer);

/** peer_ask() - send an acquire, to read and write, for ten minutes; Return: its id, 0 if it could not be sent */
uint64_t peer_ask(struct peer *peer, const struct peer_lane *lane, uint64_t len_bytes,
		  uint16_t count, uint32_t wait_ms);

/** peer_answer() - Return: as peer_call(), -ETIMEDOUT if none comes in time */
int peer_answer(struct peer *peer, uint64_t request_id, uint64_t limit_ms);

/* Requests; each returns as peer_call(). */
int peer_acquire(struct peer *peer, const struct peer_lane *lane, uint64_t len_bytes,
		 uint64_t ttl_ms, uint32_t wait_ms, struct message_grant *ret_grant);
int peer_attach(struct peer *peer, const struct peer_lane *lane, uint64_t lease_id,
		struct message_grant *ret_grant);
int peer_reattach(struct peer *peer, const struct peer_lane *lane,
		  const struct message_grant *granted, struct message_grant *ret_grant);
int peer_renew(struct peer *peer, uint64_t lease_id, uint64_t ttl_ms);

/** peer_release() - as peer_call(); the lease's own code if it was not released */
int peer_release(struct peer *peer, uint64_t lease_id);

/** peer_say() - a notice of ours about one lease: MESSAGE_QUIESCED or MESSAGE_REVOKED */
int peer_say(struct peer *peer, uint16_t type, uint64_t lease_id);

/** peer_offer() - ask for a lane; Return: as peer_call() */
int peer_offer(struct peer *peer, struct message_lane_offer *ret_offer);

/** peer_connect() - use an offer; Return: 0, the code of the reject, or a negative errno */
int peer_connect(struct peer *peer, const struct message_lane_offer *offer,
		 struct peer_lane *ret_lane);

/** peer_connect_with() - the same, with private data that is changed before it is sent */
int peer_connect_with(struct peer *peer, const struct message_lane_offer *offer,
		      void (*change)(struct private_data *data), struct peer_lane *ret_lane);

/** peer_give_up() - as peer_connect(), but go without a word when the daemon has accepted */
int peer_give_up(struct peer *peer, const struct message_lane_offer *offer);

/** peer_prove() - fill in the MAC for a prepared connection of the session and lane in @data */
void peer_prove(const struct peer *peer, const struct peer_lane *lane, struct private_data *data);

/** peer_confirm() - Return: as peer_call() */
int peer_confirm(struct peer *peer, struct peer_lane *lane);

/** peer_lane_open() - offer, connect, confirm; Return: 0, a code or a negative errno */
int peer_lane_open(struct peer *peer, struct peer_lane *ret_lane);
void peer_lane_close(struct peer_lane *lane);

/** peer_buffer() - local memory of a lane's accesses, PEER_BUFFER_BYTES */
static inline uint8_t *peer_buffer(const struct peer_lane *lane)
{
	return lane->raw.memory;
}

/** peer_access() - one read or write; Return: an enum ibv_wc_status, or -1: no completion */
int peer_access(struct peer_lane *lane, enum ibv_wr_opcode opcode, uint32_t len_bytes,
		uint64_t remote_addr, uint32_t rkey);

/* A peer, or a lane, in a variable of the test case, closed with it. */
#define PEER(name, tenant)                                           \
	__attribute__((cleanup(peer_close))) struct peer name = {0}; \
	CHECK_INT(peer_open(&name, tenant, NULL), 0)
#define PEER_LANE(name, peer)                                                  \
	__attribute__((cleanup(peer_lane_close))) struct peer_lane name = {0}; \
	CHECK_INT(peer_lane_open(peer, &name), 0)

#endif
