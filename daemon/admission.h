/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef DAEMON_ADMISSION_H
#define DAEMON_ADMISSION_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>

/*
 * What addresses may take before anybody knows who is behind them: connections, handshakes
 * that are not over, and failed ones. Knows nothing of rdma_cm; whoever accepts a connection
 * asks here first and says here how it went.
 *
 * An address is an IPv4 or IPv6 address without its port; an IPv4 address in IPv6 clothes
 * (::ffff:a.b.c.d) is that IPv4 address, and a link-local one belongs to its interface.
 * Times are clock_now_ns()'s; a time before that of an earlier call counts as the same time.
 */

struct admission;
struct admission_address;

struct admission_limits {
	uint32_t connections_max; /* of all addresses, those in their handshake included */
	uint32_t handshakes_max;  /* of all addresses */
	uint32_t address_connections_max;
	uint32_t address_handshakes_max;
	uint32_t failures_max;	  /* so many are a ban; 0: never */
	uint64_t back_off_min_ms; /* after the first failure; each further one doubles it */
	uint64_t back_off_max_ms;
	uint64_t ban_ms;      /* 0: never */
	uint64_t forget_ms;   /* after the last failure all are forgotten */
	size_t addresses_max; /* that are remembered at the same time */
};

struct admission_counts {
	uint64_t connections;
	uint64_t handshakes;
	uint64_t addresses; /* remembered */
	uint64_t banned;    /* of these, some of whose bans may be over */
	uint64_t bans;	    /* ever */
	uint64_t evictions; /* addresses forgotten early, for want of room, ever */
};

/* What one connection holds; embedded in it, all zero at first. */
struct admission_ticket {
	struct admission_address *address; /* NULL: holds nothing */
	bool established;
	bool failed;
};

/**
 * admission_new() - a table without addresses
 * @limits: copied
 *
 * Return: 0 or -ENOMEM.
 */
int admission_new(const struct admission_limits *limits, struct admission **ret_admission);

/**
 * admission_free() - NULL is allowed; no ticket may be held any more (asserted)
 *
 * Return: NULL.
 */
struct admission *admission_free(struct admission *admission);

/**
 * admission_set_limits() - other limits from now on
 *
 * Ends nothing: who has more than is allowed now gets no more. Waits and bans stay as they are.
 */
void admission_set_limits(struct admission *admission, const struct admission_limits *limits);

/**
 * admission_enter() - may a connection of this address begin its handshake?
 * @address: of the peer
 * @ticket: holds nothing (asserted); on success it holds the connection, until admission_leave()
 *
 * O(log n). An attempt that is refused changes nothing: no wait and no ban gets longer.
 * Return: 0, or an error code: ERROR_BANNED; ERROR_BACK_OFF; ERROR_CONNECTIONS_MAX (in all);
 * ERROR_ADDRESS_MAX; ERROR_HANDSHAKES_MAX (in all or of the address); ERROR_BUSY (every
 * address that is remembered has a connection or is banned); ERROR_NO_MEMORY; ERROR_INTERNAL (no
 * IPv4 or IPv6 address).
 */
int admission_enter(struct admission *admission, const struct sockaddr *address, uint64_t now_ns,
		    struct admission_ticket *ticket);

/**
 * admission_established() - the first valid transport message has come; once per ticket (asserted)
 *
 * Takes one failure of the address back, so one success is worth one failure. A wait that
 * runs goes on. Not behind admission_failed() (asserted).
 */
void admission_established(struct admission_ticket *ticket);

/**
 * admission_failed() - the handshake went wrong by the peer's doing, its silence included
 * @ticket: holds a connection (asserted), which it goes on to hold
 *
 * To be called as soon as that is known, since the connection may take its time to be over,
 * and the next attempt comes sooner. Counts once, and only before admission_established():
 * what comes later is the tenant's affair. Each failure makes the address wait, and
 * failures_max of them are a ban, at the end of which nothing is remembered. A connect request
 * can have a forged source, so do not call it a failure of the address before an answer of the
 * peer has come.
 * Return: true if this failure began a ban.
 */
bool admission_failed(struct admission_ticket *ticket, uint64_t now_ns);

/**
 * admission_leave() - the connection is over
 * @ticket: may hold nothing; holds nothing afterwards
 * @failed: as admission_failed(), if that has not been called
 *
 * Return: true if this failure began a ban.
 */
bool admission_leave(struct admission_ticket *ticket, uint64_t now_ns, bool failed);

/**
 * admission_pardon() - forget the failures, wait and ban of an address
 *
 * Return: was there anything to forget?
 */
bool admission_pardon(struct admission *admission, const struct sockaddr *address, uint64_t now_ns);

/** admission_counts() - O(1) */
void admission_counts(const struct admission *admission, struct admission_counts *ret_counts);

/** admission_check() - assert all invariants (tests; O(n)) */
void admission_check(const struct admission *admission);

#endif
