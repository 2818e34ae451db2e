/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What addresses hold and have done. An address is remembered as long as it has a
 * connection, or a failure that is not forgotten (and with it a wait), or a ban.
 *
 * Invariants:
 * - every address is in the tree, and in exactly one list: `active` if it has a connection,
 *   else `banned` or `idle`. The last two are in the order in which addresses came there;
 * - at most addresses_max addresses are remembered. A new one takes the place of the idle one
 *   that came there first; banned ones stay, since else a ban would end by making noise;
 * - connections and handshakes are the sums of those of the addresses;
 * - an address that has begun its ban has no failures.
 *
 * Nothing happens by itself: what is over by time is found to be over when somebody looks, and
 * what may be dropped is dropped a few at a time when somebody enters. Time spans are half
 * open: a ban of n ms from t is over at t + n ms.
 *
 * Thread: the loop.
 */
#include "daemon/admission.h"

#include <assert.h>
#include <errno.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>
#include <sys/queue.h>

#include "common/clock.h"
#include "daemon/back_off.h"
#include "daemon/tree.h"
#include "proto/error.h"

#define ADMISSION_DROPS_PER_ENTER 4 /* more than one address can come in that time */

struct admission_key {
	struct in6_addr address; /* IPv4 in its IPv6 clothes */
	uint32_t scope;		 /* interface of a link-local address, else 0 */
};

enum admission_place {
	ADMISSION_ACTIVE, /* has a connection */
	ADMISSION_BANNED, /* has none, but has begun a ban */
	ADMISSION_IDLE,	  /* only its failures are remembered */
	ADMISSION_PLACES,
};

struct admission_address {
	struct tree_node node; /* first, so that a node is its address */
	struct admission_key key;
	TAILQ_ENTRY(admission_address) link;
	enum admission_place place;
	struct admission *admission;
	uint32_t connections;
	uint32_t handshakes; /* of these */
	uint32_t failures;
	uint64_t failed_ns; /* the last failure */
	uint64_t back_off_until_ns;
	uint64_t banned_until_ns; /* 0: no ban has begun */
};

TAILQ_HEAD(admission_list, admission_address);

struct admission {
	struct admission_limits limits;
	struct tree addresses;
	struct admission_list places[ADMISSION_PLACES];
	uint64_t latest_ns; /* highest time of any call */
	struct admission_counts counts;
};

static int admission_compare(const struct tree_node *a, const struct tree_node *b)
{
	const struct admission_key *x = &((const struct admission_address *)a)->key;
	const struct admission_key *y = &((const struct admission_address *)b)->key;
	int order = memcmp(&x->address, &y->address, sizeof(x->address));

	return order != 0 ? order : (x->scope > y->scope) - (x->scope < y->scope);
}

/* Return: is it an address of a kind that is known here? */
static bool admission_key(const struct sockaddr *address, struct admission_key *ret_key)
{
	const struct sockaddr_in *v4 = (const struct sockaddr_in *)(const void *)address;
	const struct sockaddr_in6 *v6 = (const struct sockaddr_in6 *)(const void *)address;

	*ret_key = (struct admission_key){0};
	switch (address->sa_family) {
	case AF_INET:
		memset(ret_key->address.s6_addr + 10, 0xff, 2);
		memcpy(ret_key->address.s6_addr + 12, &v4->sin_addr, sizeof(v4->sin_addr));
		return true;
	case AF_INET6:
		ret_key->address = v6->sin6_addr;
		if (IN6_IS_ADDR_LINKLOCAL(&v6->sin6_addr))
			ret_key->scope = v6->sin6_scope_id;
		return true;
	default:
		return false;
	}
}

static uint64_t admission_forward(struct admission *admission, uint64_t now_ns)
{
	if (now_ns > admission->latest_ns)
		admission->latest_ns = now_ns;
	return admission->latest_ns;
}

int admission_new(const struct admission_limits *limits, struct admission **ret_admission)
{
	struct admission *admission = calloc(1, sizeof(*admission));

	if (admission == NULL)
		return -ENOMEM;
	admission->limits = *limits;
	admission->addresses.compare = admission_compare;
	for (int i = 0; i < ADMISSION_PLACES; i++)
		TAILQ_INIT(&admission->places[i]);
	*ret_admission = admission;
	return 0;
}

void admission_set_limits(struct admission *admission, const struct admission_limits *limits)
{
	admission->limits = *limits;
}

/* Put an address where it belongs now, at the end. */
static void admission_place(struct admission_address *address)
{
	struct admission *admission = address->admission;
	enum admission_place place = ADMISSION_IDLE;

	if (address->connections > 0)
		place = ADMISSION_ACTIVE;
	else if (address->banned_until_ns != 0)
		place = ADMISSION_BANNED;
	TAILQ_REMOVE(&admission->places[address->place], address, link);
	TAILQ_INSERT_TAIL(&admission->places[place], address, link);
	address->place = place;
}

static void admission_drop(struct admission_address *address)
{
	struct admission *admission = address->admission;

	assert(address->connections == 0 && address->handshakes == 0);
	if (address->banned_until_ns != 0)
		admission->counts.banned--;
	TAILQ_REMOVE(&admission->places[address->place], address, link);
	tree_remove(&admission->addresses, &address->node);
	admission->counts.addresses--;
	free(address);
}

/* Forget what time has made void. */
static void admission_age(struct admission_address *address, uint64_t now_ns)
{
	struct admission *admission = address->admission;

	if (address->banned_until_ns != 0 && now_ns >= address->banned_until_ns) {
		address->banned_until_ns = 0;
		admission->counts.banned--;
	}
	if (now_ns >= clock_add_ms(address->failed_ns, admission->limits.forget_ms))
		address->failures = 0;
}

static bool admission_is_void(const struct admission_address *address, uint64_t now_ns)
{
	return address->connections == 0 && address->banned_until_ns == 0 &&
	       address->failures == 0 && now_ns >= address->back_off_until_ns;
}

/* Drop addresses at the front of a list of which nothing needs to be remembered. */
static void admission_drop_void(struct admission *admission, enum admission_place place,
				uint64_t now_ns)
{
	for (int i = 0; i < ADMISSION_DROPS_PER_ENTER; i++) {
		struct admission_address *address = TAILQ_FIRST(&admission->places[place]);

		if (address == NULL)
			return;
		admission_age(address, now_ns);
		if (!admission_is_void(address, now_ns))
			return;
		admission_drop(address);
	}
}

struct admission *admission_free(struct admission *admission)
{
	if (admission == NULL)
		return NULL;
	while (admission->addresses.root != NULL)
		admission_drop((struct admission_address *)(void *)admission->addresses.root);
	free(admission);
	return NULL;
}

static struct admission_address *admission_find(const struct admission *admission,
						const struct admission_key *key)
{
	struct admission_address wanted = {.key = *key};
	struct tree_node *node = tree_at_least(&admission->addresses, &wanted.node);

	if (node == NULL || admission_compare(node, &wanted.node) != 0)
		return NULL;
	return (struct admission_address *)(void *)node;
}

/* Return: is there room for one address more? */
static bool admission_make_room(struct admission *admission)
{
	struct admission_address *oldest = TAILQ_FIRST(&admission->places[ADMISSION_IDLE]);

	if (admission->counts.addresses < admission->limits.addresses_max)
		return true;
	if (oldest == NULL)
		return false;
	admission->counts.evictions++;
	admission_drop(oldest);
	/* Lowered limits: one goes for one that comes, and it stays too full for a while. */
	return admission->counts.addresses < admission->limits.addresses_max;
}

static int admission_add(struct admission *admission, const struct admission_key *key,
			 struct admission_address **ret_address)
{
	struct admission_address *address;

	if (!admission_make_room(admission))
		return ERROR_BUSY;
	address = calloc(1, sizeof(*address));
	if (address == NULL)
		return ERROR_NO_MEMORY;
	address->key = *key;
	address->admission = admission;
	address->place = ADMISSION_IDLE;
	TAILQ_INSERT_TAIL(&admission->places[ADMISSION_IDLE], address, link);
	tree_insert(&admission->addresses, &address->node);
	admission->counts.addresses++;
	*ret_address = address;
	return 0;
}

/* @address: NULL if it is new */
static int admission_refusal(const struct admission *admission,
			     const struct admission_address *address, uint64_t now_ns)
{
	const struct admission_limits *limits = &admission->limits;
	uint32_t connections = address == NULL ? 0 : address->connections;
	uint32_t handshakes = address == NULL ? 0 : address->handshakes;

	if (address != NULL && address->banned_until_ns != 0)
		return ERROR_BANNED;
	if (address != NULL && now_ns < address->back_off_until_ns)
		return ERROR_BACK_OFF;
	if (admission->counts.connections >= limits->connections_max)
		return ERROR_CONNECTIONS_MAX;
	if (connections >= limits->address_connections_max)
		return ERROR_ADDRESS_MAX;
	if (handshakes >= limits->address_handshakes_max ||
	    admission->counts.handshakes >= limits->handshakes_max)
		return ERROR_HANDSHAKES_MAX;
	return 0;
}

int admission_enter(struct admission *admission, const struct sockaddr *address, uint64_t now_ns,
		    struct admission_ticket *ticket)
{
	struct admission_address *found;
	struct admission_key key;
	int code;

	assert(ticket->address == NULL);
	now_ns = admission_forward(admission, now_ns);
	if (!admission_key(address, &key))
		return ERROR_INTERNAL;
	admission_drop_void(admission, ADMISSION_BANNED, now_ns);
	admission_drop_void(admission, ADMISSION_IDLE, now_ns);
	found = admission_find(admission, &key);
	if (found != NULL)
		admission_age(found, now_ns);
	code = admission_refusal(admission, found, now_ns);
	if (code == 0 && found == NULL)
		code = admission_add(admission, &key, &found);
	if (code != 0)
		return code;
	found->connections++;
	found->handshakes++;
	admission->counts.connections++;
	admission->counts.handshakes++;
	admission_place(found);
	*ticket = (struct admission_ticket){.address = found};
	return 0;
}

static void admission_handshake_over(struct admission_address *address)
{
	assert(address->handshakes > 0 && address->admission->counts.handshakes > 0);
	address->handshakes--;
	address->admission->counts.handshakes--;
}

void admission_established(struct admission_ticket *ticket)
{
	struct admission_address *address = ticket->address;

	assert(address != NULL && !ticket->established && !ticket->failed);
	ticket->established = true;
	admission_handshake_over(address);
	if (address->failures > 0)
		address->failures--;
}

/* Return: true if the failure began a ban. */
static bool admission_count_failure(struct admission_address *address, uint64_t now_ns)
{
	struct admission *admission = address->admission;
	const struct admission_limits *limits = &admission->limits;
	uint64_t until_ns;

	/* A handshake that was under way when the ban began. */
	if (address->banned_until_ns != 0)
		return false;
	if (address->failures < UINT32_MAX)
		address->failures++;
	address->failed_ns = now_ns;
	if (limits->failures_max > 0 && limits->ban_ms > 0 &&
	    address->failures >= limits->failures_max) {
		address->failures = 0;
		address->back_off_until_ns = 0;
		address->banned_until_ns = clock_add_ms(now_ns, limits->ban_ms);
		admission->counts.banned++;
		admission->counts.bans++;
		return true;
	}
	until_ns = clock_add_ms(now_ns, back_off_ms(limits->back_off_min_ms,
						    limits->back_off_max_ms, address->failures));
	if (until_ns > address->back_off_until_ns)
		address->back_off_until_ns = until_ns;
	return false;
}

bool admission_failed(struct admission_ticket *ticket, uint64_t now_ns)
{
	struct admission_address *address = ticket->address;

	assert(address != NULL);
	if (ticket->established || ticket->failed)
		return false;
	ticket->failed = true;
	now_ns = admission_forward(address->admission, now_ns);
	admission_age(address, now_ns);
	return admission_count_failure(address, now_ns);
}

bool admission_leave(struct admission_ticket *ticket, uint64_t now_ns, bool failed)
{
	struct admission_address *address = ticket->address;
	bool has_banned = false;

	if (address == NULL)
		return false;
	if (failed)
		has_banned = admission_failed(ticket, now_ns);
	now_ns = admission_forward(address->admission, now_ns);
	admission_age(address, now_ns);
	if (!ticket->established)
		admission_handshake_over(address);
	assert(address->connections > 0 && address->admission->counts.connections > 0);
	address->connections--;
	address->admission->counts.connections--;
	*ticket = (struct admission_ticket){0};
	if (admission_is_void(address, now_ns))
		admission_drop(address);
	else
		admission_place(address);
	return has_banned;
}

bool admission_pardon(struct admission *admission, const struct sockaddr *address, uint64_t now_ns)
{
	struct admission_address *found;
	struct admission_key key;
	bool had_any;

	now_ns = admission_forward(admission, now_ns);
	if (!admission_key(address, &key))
		return false;
	found = admission_find(admission, &key);
	if (found == NULL)
		return false;
	admission_age(found, now_ns);
	had_any = found->failures > 0 || found->banned_until_ns != 0 ||
		  now_ns < found->back_off_until_ns;
	if (found->banned_until_ns != 0)
		admission->counts.banned--;
	found->failures = 0;
	found->back_off_until_ns = 0;
	found->banned_until_ns = 0;
	if (admission_is_void(found, now_ns))
		admission_drop(found);
	return had_any;
}

void admission_counts(const struct admission *admission, struct admission_counts *ret_counts)
{
	*ret_counts = admission->counts;
}

void admission_check(const struct admission *admission)
{
	struct admission_counts sums = {0};

	for (int i = 0; i < ADMISSION_PLACES; i++) {
		const struct admission_address *address;

		TAILQ_FOREACH (address, &admission->places[i], link) {
			assert((int)address->place == i && address->admission == admission);
			assert((address->connections > 0) == (i == ADMISSION_ACTIVE));
			assert(address->handshakes <= address->connections);
			assert(address->banned_until_ns == 0 || address->failures == 0);
			sums.connections += address->connections;
			sums.handshakes += address->handshakes;
			sums.banned += address->banned_until_ns != 0;
			sums.addresses++;
		}
	}
	assert(sums.connections == admission->counts.connections);
	assert(sums.handshakes == admission->counts.handshakes);
	assert(sums.banned == admission->counts.banned);
	assert(sums.addresses == admission->counts.addresses);
	assert(tree_check(&admission->addresses) == sums.addresses);
}
