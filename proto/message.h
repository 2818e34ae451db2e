/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef PROTO_MESSAGE_H
#define PROTO_MESSAGE_H

#include <stddef.h>
#include <stdint.h>

#include "proto/limits.h"

/*
 * The messages of the control channel as structs, and their only encoder and
 * decoder. PROTOCOL.md is the normative text.
 */

enum message_type {
	MESSAGE_HELLO = 1,	/* client: who I am; first message */
	MESSAGE_WELCOME = 2,	/* daemon: answer to hello */
	MESSAGE_ERROR = 3,	/* either: answer to a request, or (request id 0) why I hang up */
	MESSAGE_BYE = 4,	/* client: all is done, end the session */
	MESSAGE_CREDIT = 5,	/* either: returns credits, nothing else */
	MESSAGE_PING = 6,	/* either */
	MESSAGE_PONG = 7,	/* either: answer to ping, same request id */
	MESSAGE_LANE_OPEN = 8,	/* client: I want a data connection */
	MESSAGE_LANE_OFFER = 9, /* daemon: answer to lane open */
	MESSAGE_LANE_CONFIRM = 10, /* client: my lane is connected to this QP of yours */
	MESSAGE_LANE_READY = 11,   /* daemon: answer to lane confirm */
	MESSAGE_LANE_LOST = 12,	   /* daemon, notice: a lane is gone; its keys are dead */
	MESSAGE_ACQUIRE = 13,	   /* client: lend me memory */
	MESSAGE_GRANT = 14,	   /* daemon: answer to acquire, attach, reattach and modify */
	MESSAGE_RENEW = 15,	   /* client: move the deadline */
	MESSAGE_RENEWED = 16,	   /* daemon: answer to renew */
	MESSAGE_RELEASE = 17,	   /* client: give back */
	MESSAGE_RELEASED = 18,	   /* daemon: answer to release, behind the fence */
	MESSAGE_LEASES_ENDED = 19, /* daemon, notice */
	MESSAGE_ATTACH = 20,	   /* client: bind this lease of mine on that lane of mine too */
	MESSAGE_REVOKE = 21,	   /* daemon, notice: these leases end when their grace is over */
	MESSAGE_REVOKED = 22,	   /* client: nothing is in flight on these any more; no answer */
	MESSAGE_MODIFY = 23,	   /* client: other rights or another length */
	MESSAGE_QUIESCE = 24,  /* daemon, notice: stop using this lease, keys are about to change */
	MESSAGE_QUIESCED = 25, /* client: nothing is in flight on it; no answer of its own */
	MESSAGE_REATTACH =
		26, /* client: that lease of my tenant's is to be mine; I know its secret */
	MESSAGE_DRAIN =
		27,	  /* daemon, notice: no new leases, and all end at a time; or no more so */
	MESSAGE_TYPE_END, /* one past the last */
};

/* Access rights of a lease. */
enum {
	MESSAGE_RIGHT_READ = 1u << 0,
	MESSAGE_RIGHT_WRITE = 1u << 1,
	MESSAGE_RIGHT_ATOMIC = 1u << 2,
	MESSAGE_RIGHTS_ALL = 7,
};

/* How the daemon keeps tenants apart (welcome). */
enum {
	MESSAGE_ISOLATION_WINDOWS = 1,	  /* windows over the one big MR, enforced by the device */
	MESSAGE_ISOLATION_GUARDED = 2,	  /* a window over an MR of the lease's own */
	MESSAGE_ISOLATION_UNVERIFIED = 3, /* windows over the big MR, not enforced */
};

/* Header flags. No flag is defined for a type not named here. */
enum {
	MESSAGE_FLAG_MORE = 1u << 0, /* grant: further grants with the same request id follow */
};

#define MESSAGE_HEADER_BYTES 24

struct message_hello {
	uint16_t version;
	uint16_t receives; /* that the client has posted: the daemon's first credits */
	uint8_t instance[PROTO_INSTANCE_BYTES];
};

struct message_welcome {
	uint16_t version;
	uint16_t receives; /* that the daemon has posted, hello's one included */
	uint64_t session_id;
	uint64_t ttl_default_ms;
	uint64_t ttl_max_ms;
	uint64_t window_max_bytes;
	uint32_t page_bytes;
	uint32_t read_depth;   /* outstanding RDMA reads and atomics that a lane may have */
	uint32_t rights;       /* MESSAGE_RIGHT_* that can be granted at all */
	uint32_t heartbeat_ms; /* 0: none */
	uint32_t isolation;    /* MESSAGE_ISOLATION_* */
	uint32_t enforced;     /* bit i: property i of PROTOCOL.md's list is enforced */
};

struct message_error {
	uint32_t code; /* 1 to INT32_MAX, so that its negative is an error to every caller */
	char text[PROTO_TEXT_MAX + 1];
};

struct message_lane_offer {
	uint32_t lane;
	uint32_t expires_ms;
};

struct message_lane_confirm {
	uint32_t lane;
	uint32_t daemon_qpn;
	uint32_t client_qpn;
};

struct message_lane {
	uint32_t lane;
};

struct message_acquire {
	uint64_t len_bytes;
	uint64_t ttl_ms;
	uint32_t rights;
	uint32_t lane;
	uint32_t wait_ms; /* how long the request may wait for clean bytes */
	uint16_t count;	  /* of leases, all alike; all are granted or none */
};

struct message_descriptor {
	uint64_t offset_bytes; /* within the lease */
	uint64_t len_bytes;
	uint64_t remote_addr;
	uint32_t rkey;
};

struct message_grant {
	uint64_t lease_id;
	uint64_t len_bytes;
	uint64_t ttl_ms; /* left when the message was made */
	uint32_t generation;
	uint32_t rights;
	uint32_t lane;
	uint8_t secret[PROTO_SECRET_BYTES]; /* of the lease, for reattach; always the same */
	uint16_t descriptor_count;
	struct message_descriptor descriptors[PROTO_GRANT_DESCRIPTORS];
};

struct message_renew { /* renew and renewed */
	uint64_t lease_id;
	uint64_t ttl_ms;
};

struct message_lease { /* quiesce and quiesced */
	uint64_t lease_id;
};

struct message_leases { /* release and revoked */
	uint16_t count;
	uint64_t lease_ids[PROTO_NOTICE_LEASES];
};

struct message_released {
	uint16_t count;
	struct {
		uint64_t lease_id;
		uint32_t code; /* 0: released, behind the fence; else why not */
	} released[PROTO_NOTICE_LEASES];
};

struct message_revoke {
	uint16_t count;
	struct {
		uint64_t lease_id;
		uint32_t grace_ms;
	} revoked[PROTO_NOTICE_LEASES];
};

struct message_modify {
	uint64_t lease_id;
	uint64_t len_bytes; /* wanted; not 0 */
	uint32_t rights;    /* wanted */
};

struct message_attach {
	uint64_t lease_id;
	uint32_t lane;
};

struct message_reattach {
	uint64_t lease_id;
	uint8_t secret[PROTO_SECRET_BYTES];
	uint32_t lane;
};

struct message_drain {
	uint64_t left_ms;  /* until all leases end; 0 if there is no drain any more */
	uint32_t draining; /* 1; 0: no more */
};

struct message_leases_ended {
	uint16_t count;
	struct {
		uint64_t lease_id;
		uint32_t reason; /* an error code: EXPIRED, REVOKED, ... */
	} ended[PROTO_NOTICE_LEASES];
};

struct message {
	uint16_t type;
	uint16_t flags;
	uint16_t credits;    /* receives posted again since the last message */
	uint64_t request_id; /* 0: not a request and no answer */
	union {
		struct message_hello hello;
		struct message_welcome welcome;
		struct message_error error;
		struct message_lane_offer lane_offer;
		struct message_lane_confirm lane_confirm;
		struct message_lane lane; /* lane ready, lane lost */
		struct message_acquire acquire;
		struct message_grant grant;
		struct message_renew renew;
		struct message_lease lease;
		struct message_leases leases;
		struct message_released released;
		struct message_revoke revoke;
		struct message_modify modify;
		struct message_leases_ended leases_ended;
		struct message_attach attach;
		struct message_reattach reattach;
		struct message_drain drain;
	} u;
};

/**
 * message_encode() - write a message
 * @m: the message; all fields within their limits (asserted: they are ours)
 * @buf: where to
 * @cap_bytes: room in @buf; PROTO_MESSAGE_MAX always suffices
 * @ret_len_bytes: length written
 *
 * Return: 0, or -EMSGSIZE if @cap_bytes is too small.
 */
int message_encode(const struct message *m, void *buf, size_t cap_bytes, size_t *ret_len_bytes);

/**
 * message_decode() - read a message that a peer sent
 * @buf: the bytes
 * @len_bytes: their number
 * @ret_m: the message; untouched on failure
 *
 * Every field is checked that can be checked without knowing the receiver's
 * state: lengths, reserved bytes, flags, counts, text. Values that deserve an
 * error code of their own (a ttl of 0, unknown rights, ...) pass.
 *
 * Return: 0, or -EPROTO: whatever is wrong, the sender broke the protocol.
 */
int message_decode(const void *buf, size_t len_bytes, struct message *ret_m);

/**
 * message_set_credits() - fill in the credits of an encoded message
 * @bytes: an encoded message
 */
void message_set_credits(void *bytes, uint16_t credits);

/**
 * message_type_name() - "hello", "lane-open", ...
 * @type: any number
 *
 * Return: a static string; "unknown" for numbers that are no type.
 */
const char *message_type_name(unsigned int type);

#endif
