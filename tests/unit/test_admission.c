/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * daemon/admission.c: each limit at n and n + 1, each time at its nanosecond, which addresses
 * are one, what is remembered when room is short, and all of it against a plain model.
 */
#include "daemon/admission.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>

#include "common/clock.h"
#include "proto/error.h"
#include "tests/unit/abort.h"
#include "tests/unit/random.h"
#include "tests/unit/test.h"

#define S  CLOCK_NS_PER_S
#define MS CLOCK_NS_PER_MS

#define TICKETS 18

static const struct admission_limits limits = {
	.connections_max = 10,
	.handshakes_max = 6,
	.address_connections_max = 5,
	.address_handshakes_max = 3,
	.failures_max = 4,
	.back_off_min_ms = 100,
	.back_off_max_ms = 250,
	.ban_ms = 60000,
	.forget_ms = 30000,
	.addresses_max = 8,
};

union address {
	struct sockaddr any;
	struct sockaddr_in v4;
	struct sockaddr_in6 v6;
};

static union address v4(uint32_t number)
{
	return (union address){
		.v4 = {.sin_family = AF_INET, .sin_port = htons(7), .sin_addr = {htonl(number)}}};
}

static union address v6(const char *text, uint32_t scope)
{
	union address address = {
		.v6 = {.sin6_family = AF_INET6, .sin6_port = htons(7), .sin6_scope_id = scope}};

	if (inet_pton(AF_INET6, text, &address.v6.sin6_addr) != 1)
		abort();
	return address;
}

static struct admission *make_table(const struct admission_limits *how)
{
	struct admission *table;

	if (admission_new(how, &table) != 0)
		abort();
	return table;
}

static int enter(struct admission *table, uint32_t number, uint64_t now_ns,
		 struct admission_ticket *ticket)
{
	union address address = v4(number);

	return admission_enter(table, &address.any, now_ns, ticket);
}

/* A connection whose handshake fails at once; Return: as admission_enter(). */
static int fail(struct admission *table, uint32_t number, uint64_t now_ns)
{
	struct admission_ticket ticket = {0};
	int code = enter(table, number, now_ns, &ticket);

	(void)admission_leave(&ticket, now_ns, true);
	return code;
}

static struct admission_counts counts_of(const struct admission *table)
{
	struct admission_counts counts;

	admission_counts(table, &counts);
	admission_check(table);
	return counts;
}

/* What a new connection of an address would be answered. */
static int try_enter(struct admission *table, uint32_t number, uint64_t now_ns)
{
	struct admission_ticket ticket = {0};
	int code = enter(table, number, now_ns, &ticket);

	(void)admission_leave(&ticket, now_ns, false);
	return code;
}

/* The codes are on the wire. */
TEST(admission_codes__numbers_fixed)
{
	CHECK_INT(ERROR_CONNECTIONS_MAX, 1080);
	CHECK_INT(ERROR_ADDRESS_MAX, 1081);
	CHECK_INT(ERROR_HANDSHAKES_MAX, 1082);
	CHECK_INT(ERROR_BACK_OFF, 1083);
	CHECK_INT(ERROR_BANNED, 1084);
}

TEST(admission_enter__address_handshakes)
{
	struct admission *table = make_table(&limits);
	struct admission_ticket tickets[4] = {0};

	for (int i = 0; i < 3; i++)
		CHECK_INT(enter(table, 1, 0, &tickets[i]), 0);
	CHECK_INT(enter(table, 1, 0, &tickets[3]), ERROR_HANDSHAKES_MAX);
	CHECK(tickets[3].address == NULL);
	CHECK_INT(counts_of(table).handshakes, 3);
	CHECK_INT(try_enter(table, 2, 0), 0);
	/* One over, one more. */
	admission_established(&tickets[0]);
	CHECK_INT(enter(table, 1, 0, &tickets[3]), 0);
	CHECK_INT(try_enter(table, 1, 0), ERROR_HANDSHAKES_MAX);
	CHECK_INT(counts_of(table).connections, 4);
	for (int i = 0; i < 4; i++)
		CHECK(!admission_leave(&tickets[i], 0, false));
	CHECK_INT(counts_of(table).addresses, 0);
	CHECK(admission_free(table) == NULL);
}

TEST(admission_enter__address_connections)
{
	struct admission *table = make_table(&limits);
	struct admission_ticket tickets[6] = {0};

	for (int i = 0; i < 5; i++) {
		CHECK_INT(enter(table, 1, 0, &tickets[i]), 0);
		admission_established(&tickets[i]);
	}
	CHECK_INT(enter(table, 1, 0, &tickets[5]), ERROR_ADDRESS_MAX);
	CHECK_INT(try_enter(table, 2, 0), 0);
	CHECK(!admission_leave(&tickets[2], 0, false));
	CHECK_INT(enter(table, 1, 0, &tickets[5]), 0);
	CHECK_INT(try_enter(table, 1, 0), ERROR_ADDRESS_MAX);
	for (int i = 0; i < 6; i++)
		(void)admission_leave(&tickets[i], 0, false);
	admission_free(table);
}

TEST(admission_enter__handshakes_in_all)
{
	struct admission *table = make_table(&limits);
	struct admission_ticket tickets[7] = {0};

	for (uint32_t i = 0; i < 6; i++)
		CHECK_INT(enter(table, i, 0, &tickets[i]), 0);
	CHECK_INT(enter(table, 6, 0, &tickets[6]), ERROR_HANDSHAKES_MAX);
	/* Nothing is remembered of one that was refused. */
	CHECK_INT(counts_of(table).addresses, 6);
	CHECK(!admission_leave(&tickets[0], 0, false));
	CHECK_INT(enter(table, 6, 0, &tickets[6]), 0);
	for (int i = 0; i < 7; i++)
		(void)admission_leave(&tickets[i], 0, false);
	admission_free(table);
}

TEST(admission_enter__connections_in_all)
{
	struct admission_limits many = limits;
	struct admission_ticket tickets[11] = {0};
	struct admission *table;

	many.addresses_max = 100;
	table = make_table(&many);
	for (uint32_t i = 0; i < 10; i++) {
		CHECK_INT(enter(table, i, 0, &tickets[i]), 0);
		admission_established(&tickets[i]);
	}
	CHECK_INT(enter(table, 10, 0, &tickets[10]), ERROR_CONNECTIONS_MAX);
	CHECK_INT(counts_of(table).connections, 10);
	CHECK_INT(counts_of(table).addresses, 10);
	CHECK(!admission_leave(&tickets[9], 0, false));
	CHECK_INT(enter(table, 10, 0, &tickets[10]), 0);
	for (int i = 0; i < 11; i++)
		(void)admission_leave(&tickets[i], 0, false);
	admission_free(table);
}

static void free_table(void *arg)
{
	admission_free(arg);
}

struct held {
	struct admission *table;
	struct admission_ticket ticket;
};

static void enter_again(void *arg)
{
	struct held *held = arg;

	(void)enter(held->table, 2, 0, &held->ticket);
}

static void establish(void *arg)
{
	struct held *held = arg;

	admission_established(&held->ticket);
}

TEST(admission_ticket__our_own_mistakes)
{
	struct held held = {.table = make_table(&limits)};
	struct admission_ticket other = {0};

	CHECK_INT(enter(held.table, 1, 0, &other), 0);
	CHECK(test_aborts(establish, &held));
	CHECK(!test_aborts(enter_again, &held));
	CHECK_INT(enter(held.table, 1, 0, &held.ticket), 0);
	CHECK(test_aborts(enter_again, &held));
	CHECK(test_aborts(free_table, held.table));
	CHECK(!test_aborts(establish, &held));
	admission_established(&held.ticket);
	CHECK(test_aborts(establish, &held));
	CHECK(!admission_leave(&held.ticket, 0, false));
	CHECK(!admission_leave(&held.ticket, 0, true));
	CHECK(!admission_leave(&other, 0, false));
	CHECK_INT(counts_of(held.table).addresses, 0);
	admission_free(held.table);
	CHECK(admission_free(NULL) == NULL);
}

TEST(admission_enter__back_off_doubles)
{
	struct admission *table = make_table(&limits);

	CHECK_INT(fail(table, 1, 0), 0);
	CHECK_INT(try_enter(table, 1, 100 * MS - 1), ERROR_BACK_OFF);
	CHECK_INT(fail(table, 1, 100 * MS), 0);
	CHECK_INT(try_enter(table, 1, 300 * MS - 1), ERROR_BACK_OFF);
	CHECK_INT(fail(table, 1, 300 * MS), 0);
	/* The longest wait. */
	CHECK_INT(try_enter(table, 1, 550 * MS - 1), ERROR_BACK_OFF);
	CHECK_INT(try_enter(table, 1, 550 * MS), 0);
	CHECK_INT(counts_of(table).bans, 0);
	admission_free(table);
}

TEST(admission_enter__attempt_does_not_extend_back_off)
{
	struct admission *table = make_table(&limits);

	CHECK_INT(fail(table, 1, 0), 0);
	for (int i = 0; i < 50; i++)
		CHECK_INT(fail(table, 1, 100 * MS - 1), ERROR_BACK_OFF);
	CHECK_INT(try_enter(table, 1, 100 * MS), 0);
	/* It was one failure, so the next one waits twice as long, no longer. */
	CHECK_INT(fail(table, 1, 100 * MS), 0);
	CHECK_INT(try_enter(table, 1, 300 * MS), 0);
	CHECK_INT(try_enter(table, 2, 100 * MS - 1), 0);
	admission_free(table);
}

TEST(admission_leave__ban_at_the_last_failure)
{
	struct admission *table = make_table(&limits);
	struct admission_ticket ticket = {0};

	for (uint64_t i = 0; i < 3; i++)
		CHECK_INT(fail(table, 1, i * S), 0);
	CHECK_INT(counts_of(table).banned, 0);
	CHECK_INT(enter(table, 1, 3 * S, &ticket), 0);
	CHECK(admission_leave(&ticket, 3 * S, true));
	CHECK_INT(counts_of(table).banned, 1);
	CHECK_INT(counts_of(table).bans, 1);
	/* Attempts do not make it longer. */
	for (int i = 0; i < 50; i++)
		CHECK_INT(fail(table, 1, 63 * S - 1), ERROR_BANNED);
	CHECK_INT(try_enter(table, 2, 63 * S - 1), 0);
	CHECK_INT(fail(table, 1, 63 * S), 0);
	/* After it one begins anew. */
	CHECK_INT(counts_of(table).banned, 0);
	CHECK_INT(fail(table, 1, 64 * S), 0);
	CHECK_INT(fail(table, 1, 65 * S), 0);
	CHECK_INT(counts_of(table).banned, 0);
	CHECK_INT(fail(table, 1, 66 * S), 0);
	CHECK_INT(counts_of(table).banned, 1);
	CHECK_INT(counts_of(table).bans, 2);
	admission_free(table);
}

/* Those that were let in together fail together; each counts. */
TEST(admission_leave__failures_at_once)
{
	struct admission_limits wide = limits;
	struct admission_ticket tickets[6] = {0};
	struct admission *table;

	wide.address_handshakes_max = 6;
	wide.address_connections_max = 6;
	table = make_table(&wide);
	for (int i = 0; i < 6; i++)
		CHECK_INT(enter(table, 1, 0, &tickets[i]), 0);
	for (int i = 0; i < 6; i++)
		CHECK_INT(admission_leave(&tickets[i], S, true), i == 3);
	CHECK_INT(counts_of(table).bans, 1);
	CHECK_INT(try_enter(table, 1, 61 * S - 1), ERROR_BANNED);
	/* Those during the ban do not count afterwards. */
	for (uint64_t i = 0; i < 3; i++)
		CHECK_INT(fail(table, 1, (61 + i) * S), 0);
	CHECK_INT(try_enter(table, 1, 64 * S), 0);
	admission_free(table);
}

TEST(admission_leave__failure_after_established)
{
	struct admission *table = make_table(&limits);

	for (int i = 0; i < 20; i++) {
		struct admission_ticket ticket = {0};

		CHECK_INT(enter(table, 1, 0, &ticket), 0);
		admission_established(&ticket);
		CHECK(!admission_leave(&ticket, 0, true));
	}
	CHECK_INT(counts_of(table).addresses, 0);
	admission_free(table);
}

TEST(admission_leave__established_connections_live_through_a_ban)
{
	struct admission *table = make_table(&limits);
	struct admission_ticket good = {0};

	CHECK_INT(enter(table, 1, 0, &good), 0);
	admission_established(&good);
	for (uint64_t i = 0; i < 4; i++)
		CHECK_INT(fail(table, 1, i * S), 0);
	CHECK_INT(try_enter(table, 1, 4 * S), ERROR_BANNED);
	CHECK_INT(counts_of(table).connections, 1);
	CHECK(!admission_leave(&good, 5 * S, false));
	CHECK_INT(try_enter(table, 1, 63 * S - 1), ERROR_BANNED);
	CHECK_INT(try_enter(table, 1, 63 * S), 0);
	CHECK_INT(counts_of(table).addresses, 0);
	admission_free(table);
}

TEST(admission_established__takes_one_failure_back)
{
	struct admission *table = make_table(&limits);
	struct admission_ticket ticket = {0};

	for (uint64_t i = 0; i < 3; i++)
		CHECK_INT(fail(table, 1, i * S), 0);
	CHECK_INT(enter(table, 1, 3 * S, &ticket), 0);
	admission_established(&ticket);
	(void)admission_leave(&ticket, 3 * S, false);
	/* Two are left: one more is no ban, two more are. */
	CHECK_INT(fail(table, 1, 4 * S), 0);
	CHECK_INT(try_enter(table, 1, 5 * S), 0);
	CHECK_INT(fail(table, 1, 5 * S), 0);
	CHECK_INT(try_enter(table, 1, 6 * S), ERROR_BANNED);
	admission_free(table);
}

TEST(admission_established__all_failures_back)
{
	struct admission *table = make_table(&limits);
	struct admission_ticket tickets[3] = {0};

	for (uint64_t i = 0; i < 2; i++)
		CHECK_INT(fail(table, 1, i * S), 0);
	for (int i = 0; i < 3; i++) {
		CHECK_INT(enter(table, 1, 2 * S, &tickets[i]), 0);
		admission_established(&tickets[i]);
		CHECK(!admission_leave(&tickets[i], 2 * S, false));
		CHECK_INT(counts_of(table).addresses, i == 0 ? 1 : 0);
	}
	admission_free(table);
}

/* A handshake that was under way succeeds: the wait that a neighbour has earned goes on. */
TEST(admission_established__does_not_end_back_off)
{
	struct admission *table = make_table(&limits);
	struct admission_ticket ticket = {0};

	CHECK_INT(enter(table, 1, 0, &ticket), 0);
	CHECK_INT(fail(table, 1, 0), 0);
	admission_established(&ticket);
	CHECK_INT(try_enter(table, 1, 100 * MS - 1), ERROR_BACK_OFF);
	CHECK(!admission_leave(&ticket, 100 * MS - 1, false));
	CHECK_INT(try_enter(table, 1, 100 * MS - 1), ERROR_BACK_OFF);
	CHECK_INT(try_enter(table, 1, 100 * MS), 0);
	CHECK_INT(counts_of(table).addresses, 0);
	admission_free(table);
}

/* Failures taken back make the later wait shorter, but not the one that runs. */
TEST(admission_leave__wait_never_ends_earlier)
{
	struct admission_limits wide = limits;
	struct admission_ticket tickets[5] = {0};
	struct admission *table;

	wide.address_handshakes_max = 5;
	table = make_table(&wide);
	for (int i = 0; i < 5; i++)
		CHECK_INT(enter(table, 1, 0, &tickets[i]), 0);
	for (int i = 0; i < 2; i++)
		CHECK(!admission_leave(&tickets[i], 0, true));
	for (int i = 2; i < 4; i++)
		admission_established(&tickets[i]);
	CHECK(!admission_leave(&tickets[4], 1 * MS, true));
	CHECK_INT(try_enter(table, 1, 200 * MS - 1), ERROR_BACK_OFF);
	CHECK_INT(try_enter(table, 1, 200 * MS), 0);
	for (int i = 2; i < 4; i++)
		(void)admission_leave(&tickets[i], 200 * MS, false);
	admission_free(table);
}

TEST(admission_leave__neither_failed_nor_established)
{
	struct admission *table = make_table(&limits);

	CHECK_INT(fail(table, 1, 0), 0);
	for (int i = 0; i < 10; i++)
		CHECK_INT(try_enter(table, 1, S), 0);
	/* Neither for the worse nor for the better: the second wait is twice the first. */
	CHECK_INT(fail(table, 1, S), 0);
	CHECK_INT(try_enter(table, 1, S + 200 * MS - 1), ERROR_BACK_OFF);
	CHECK_INT(try_enter(table, 1, S + 200 * MS), 0);
	admission_free(table);
}

/* The wait begins when the failure is known, not when the connection is gone at last. */
TEST(admission_failed__counts_before_the_connection_is_over)
{
	struct admission *table = make_table(&limits);
	struct admission_ticket ticket = {0};

	CHECK_INT(enter(table, 1, 0, &ticket), 0);
	CHECK(!admission_failed(&ticket, 0));
	CHECK_INT(counts_of(table).connections, 1);
	CHECK_INT(counts_of(table).handshakes, 1);
	CHECK_INT(try_enter(table, 1, 100 * MS - 1), ERROR_BACK_OFF);
	CHECK_INT(try_enter(table, 1, 100 * MS), 0);
	/* It has been counted. */
	CHECK(!admission_failed(&ticket, 100 * MS));
	CHECK(!admission_leave(&ticket, 100 * MS, true));
	CHECK_INT(counts_of(table).connections, 0);
	CHECK_INT(counts_of(table).handshakes, 0);
	CHECK_INT(try_enter(table, 1, 100 * MS), 0);
	CHECK_INT(fail(table, 1, S), 0);
	CHECK_INT(try_enter(table, 1, S + 200 * MS - 1), ERROR_BACK_OFF);
	CHECK_INT(try_enter(table, 1, S + 200 * MS), 0);
	admission_free(table);
}

TEST(admission_failed__begins_the_ban)
{
	struct admission_limits strict = limits;
	struct admission_ticket ticket = {0};
	struct admission *table;

	strict.failures_max = 1;
	table = make_table(&strict);
	CHECK_INT(enter(table, 1, 0, &ticket), 0);
	CHECK(admission_failed(&ticket, 0));
	CHECK_INT(try_enter(table, 1, 0), ERROR_BANNED);
	admission_check(table);
	CHECK(!admission_leave(&ticket, 0, true));
	CHECK_INT(counts_of(table).bans, 1);
	CHECK_INT(try_enter(table, 1, limits.ban_ms * MS - 1), ERROR_BANNED);
	CHECK_INT(try_enter(table, 1, limits.ban_ms * MS), 0);
	admission_free(table);
}

TEST(admission_failed__not_behind_established)
{
	struct admission *table = make_table(&limits);
	struct admission_ticket ticket = {0};

	CHECK_INT(enter(table, 1, 0, &ticket), 0);
	admission_established(&ticket);
	CHECK(!admission_failed(&ticket, 0));
	CHECK_INT(try_enter(table, 1, 0), 0);
	CHECK(!admission_leave(&ticket, 0, true));
	CHECK_INT(try_enter(table, 1, 0), 0);
	admission_free(table);
}

TEST(admission__failures_forgotten_at_their_nanosecond)
{
	struct admission *table = make_table(&limits);

	for (uint64_t i = 0; i < 3; i++)
		CHECK_INT(fail(table, 1, i * S), 0);
	CHECK_INT(fail(table, 1, 32 * S - 1), 0);
	CHECK_INT(try_enter(table, 1, 32 * S - 1), ERROR_BANNED);
	for (uint64_t i = 0; i < 3; i++)
		CHECK_INT(fail(table, 2, (40 + i) * S), 0);
	CHECK_INT(fail(table, 2, 72 * S), 0);
	/* It is the first failure again. */
	CHECK_INT(try_enter(table, 2, 72 * S + 100 * MS - 1), ERROR_BACK_OFF);
	CHECK_INT(try_enter(table, 2, 72 * S + 100 * MS), 0);
	admission_free(table);
}

/* While it has a connection, too. */
TEST(admission__failures_forgotten_of_an_active_address)
{
	struct admission *table = make_table(&limits);
	struct admission_ticket ticket = {0};

	CHECK_INT(enter(table, 1, 0, &ticket), 0);
	for (uint64_t i = 0; i < 3; i++)
		CHECK_INT(fail(table, 1, i * S), 0);
	CHECK(!admission_leave(&ticket, 32 * S, true));
	CHECK_INT(try_enter(table, 1, 32 * S + 100 * MS - 1), ERROR_BACK_OFF);
	CHECK_INT(try_enter(table, 1, 32 * S + 100 * MS), 0);
	admission_free(table);
}

TEST(admission__never_banned)
{
	struct admission_limits mild = limits;
	struct admission *table;

	for (int i = 0; i < 2; i++) {
		mild = limits;
		if (i == 0)
			mild.failures_max = 0;
		else
			mild.ban_ms = 0;
		table = make_table(&mild);
		for (uint64_t k = 0; k < 200; k++)
			CHECK_INT(fail(table, 1, k * 250 * MS), 0);
		CHECK_INT(try_enter(table, 1, 200 * 250 * MS - 1), ERROR_BACK_OFF);
		CHECK_INT(counts_of(table).bans, 0);
		admission_free(table);
	}
}

TEST(admission__ban_at_the_first_failure)
{
	struct admission_limits strict = limits;
	struct admission *table;

	strict.failures_max = 1;
	strict.ban_ms = UINT64_MAX;
	table = make_table(&strict);
	CHECK_INT(fail(table, 1, 0), 0);
	CHECK_INT(try_enter(table, 1, UINT64_MAX - 1), ERROR_BANNED);
	admission_free(table);
}

/* The ban takes the place of the wait. */
TEST(admission__ban_shorter_than_the_wait)
{
	struct admission_limits quick = limits;
	struct admission *table;

	quick.back_off_min_ms = 10000;
	quick.back_off_max_ms = 40000;
	quick.failures_max = 2;
	quick.ban_ms = 1000;
	quick.address_handshakes_max = 2;
	table = make_table(&quick);
	for (int i = 0; i < 2; i++) {
		struct admission_ticket tickets[2] = {0};
		uint64_t now_ns = (uint64_t)i * S;

		CHECK_INT(enter(table, 1, now_ns, &tickets[0]), 0);
		CHECK_INT(enter(table, 1, now_ns, &tickets[1]), 0);
		CHECK(!admission_leave(&tickets[0], now_ns, true));
		CHECK(admission_leave(&tickets[1], now_ns, true));
		CHECK_INT(try_enter(table, 1, now_ns + S - 1), ERROR_BANNED);
	}
	CHECK_INT(try_enter(table, 1, 2 * S), 0);
	admission_free(table);
}

TEST(admission__ban_is_over_while_a_connection_lives)
{
	struct admission *table = make_table(&limits);
	struct admission_ticket ticket = {0};

	CHECK_INT(enter(table, 1, 0, &ticket), 0);
	admission_established(&ticket);
	for (uint64_t i = 0; i < 4; i++)
		CHECK_INT(fail(table, 1, i * S), 0);
	CHECK_INT(try_enter(table, 1, 63 * S - 1), ERROR_BANNED);
	CHECK_INT(try_enter(table, 1, 63 * S), 0);
	(void)admission_leave(&ticket, 63 * S, false);
	CHECK_INT(counts_of(table).addresses, 0);
	admission_free(table);
}

TEST(admission__clock_goes_back)
{
	struct admission *table = make_table(&limits);

	CHECK_INT(fail(table, 1, 100 * S), 0);
	CHECK_INT(try_enter(table, 1, 0), ERROR_BACK_OFF);
	CHECK_INT(fail(table, 2, 0), 0);
	CHECK_INT(try_enter(table, 2, 100 * S + 100 * MS - 1), ERROR_BACK_OFF);
	CHECK_INT(try_enter(table, 2, 100 * S + 100 * MS), 0);
	admission_free(table);
}

TEST(admission_enter__which_addresses_are_one)
{
	static const struct {
		const char *a, *b;
		uint32_t scope_a, scope_b;
		bool are_one;
	} cases[] = {
		{"2001:db8::1", "2001:db8::1", 0, 0, true},
		{"2001:db8::1", "2001:db8::2", 0, 0, false},
		{"2001:db8::1", "2001:db9::1", 0, 0, false},
		/* The interface is part of a link-local address only. */
		{"2001:db8::1", "2001:db8::1", 1, 2, true},
		{"fe80::1", "fe80::1", 1, 1, true},
		{"fe80::1", "fe80::1", 1, 2, false},
		{"::ffff:192.0.2.1", "::ffff:192.0.2.1", 0, 3, true},
		{"::ffff:192.0.2.1", "::192.0.2.1", 0, 0, false},
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct admission *table = make_table(&limits);
		struct admission_ticket tickets[2] = {0};
		union address a = v6(cases[i].a, cases[i].scope_a);
		union address b = v6(cases[i].b, cases[i].scope_b);

		b.v6.sin6_port = htons(8);
		b.v6.sin6_flowinfo = 9;
		CHECK_INT(admission_enter(table, &a.any, 0, &tickets[0]), 0);
		CHECK_INT(admission_enter(table, &b.any, 0, &tickets[1]), 0);
		CHECK_INT(tickets[0].address == tickets[1].address, cases[i].are_one);
		CHECK_INT(counts_of(table).addresses, cases[i].are_one ? 1 : 2);
		for (int k = 0; k < 2; k++)
			(void)admission_leave(&tickets[k], 0, false);
		admission_free(table);
	}
}

TEST(admission_enter__ipv4_in_ipv6)
{
	struct admission *table = make_table(&limits);
	union address mapped = v6("::ffff:192.0.2.1", 0);
	union address plain = v4(0xc0000201), other_port = plain, other = v4(0xc0000202);
	struct admission_ticket tickets[4] = {0};

	other_port.v4.sin_port = htons(9);
	CHECK_INT(admission_enter(table, &plain.any, 0, &tickets[0]), 0);
	CHECK_INT(admission_enter(table, &mapped.any, 0, &tickets[1]), 0);
	CHECK_INT(admission_enter(table, &other_port.any, 0, &tickets[2]), 0);
	CHECK_INT(admission_enter(table, &other.any, 0, &tickets[3]), 0);
	CHECK(tickets[0].address == tickets[1].address);
	CHECK(tickets[0].address == tickets[2].address);
	CHECK(tickets[0].address != tickets[3].address);
	for (int i = 0; i < 4; i++)
		(void)admission_leave(&tickets[i], 0, false);
	admission_free(table);
}

TEST(admission_enter__no_address)
{
	struct admission *table = make_table(&limits);
	struct admission_ticket ticket = {0};
	struct sockaddr unknown = {.sa_family = AF_UNIX};

	CHECK_INT(admission_enter(table, &unknown, 0, &ticket), ERROR_INTERNAL);
	CHECK(ticket.address == NULL);
	CHECK(!admission_pardon(table, &unknown, 0));
	CHECK_INT(counts_of(table).addresses, 0);
	admission_free(table);
}

TEST(admission_enter__full_of_failures_evicts_the_oldest)
{
	struct admission *table = make_table(&limits);

	for (uint32_t i = 0; i < 8; i++)
		CHECK_INT(fail(table, i, i * MS), 0);
	/* What came later than the others is not the first to go. */
	CHECK_INT(counts_of(table).addresses, 8);
	CHECK_INT(counts_of(table).evictions, 0);
	CHECK_INT(fail(table, 8, 10 * MS), 0);
	CHECK_INT(counts_of(table).addresses, 8);
	CHECK_INT(counts_of(table).evictions, 1);
	CHECK_INT(try_enter(table, 1, 10 * MS), ERROR_BACK_OFF);
	CHECK_INT(try_enter(table, 8, 10 * MS), ERROR_BACK_OFF);
	/* The oldest has been forgotten; in turn the next one goes. */
	CHECK_INT(try_enter(table, 0, 10 * MS), 0);
	CHECK_INT(try_enter(table, 1, 10 * MS), 0);
	CHECK_INT(try_enter(table, 2, 10 * MS), ERROR_BACK_OFF);
	admission_free(table);
}

/* The oldest by what it did last, not by when it was first seen. */
TEST(admission_enter__activity_makes_young)
{
	struct admission *table = make_table(&limits);

	for (uint32_t i = 0; i < 8; i++)
		CHECK_INT(fail(table, i, 0), 0);
	CHECK_INT(fail(table, 0, S), 0);
	CHECK_INT(try_enter(table, 8, S), 0);
	CHECK_INT(try_enter(table, 0, S), ERROR_BACK_OFF);
	CHECK_INT(counts_of(table).evictions, 1);
	admission_free(table);
}

TEST(admission_enter__full_of_bans_and_connections)
{
	struct admission_limits strict = limits;
	struct admission_ticket tickets[2] = {0};
	struct admission *table;

	strict.failures_max = 1;
	table = make_table(&strict);
	CHECK_INT(enter(table, 100, 0, &tickets[0]), 0);
	for (uint32_t i = 0; i < 7; i++)
		CHECK_INT(fail(table, i, i * S), 0);
	CHECK_INT(counts_of(table).banned, 7);
	CHECK_INT(try_enter(table, 101, 7 * S), ERROR_BUSY);
	CHECK_INT(try_enter(table, 0, 7 * S), ERROR_BANNED);
	CHECK_INT(enter(table, 100, 7 * S, &tickets[1]), 0);
	/* There is room when the first ban is over, not before. */
	CHECK_INT(try_enter(table, 101, 60 * S - 1), ERROR_BUSY);
	CHECK_INT(fail(table, 101, 60 * S), 0);
	CHECK_INT(try_enter(table, 102, 60 * S), ERROR_BUSY);
	CHECK_INT(counts_of(table).evictions, 0);
	for (int i = 0; i < 2; i++)
		(void)admission_leave(&tickets[i], 60 * S, false);
	admission_free(table);
}

TEST(admission_enter__forgets_when_time_has_passed)
{
	struct admission *table = make_table(&limits);

	for (uint32_t i = 0; i < 8; i++)
		CHECK_INT(fail(table, i, 0), 0);
	CHECK_INT(try_enter(table, 0, 30 * S - 1), 0);
	CHECK_INT(counts_of(table).addresses, 8);
	/* A few at a time. */
	CHECK_INT(try_enter(table, 100, 30 * S), 0);
	CHECK_INT(try_enter(table, 100, 30 * S), 0);
	CHECK_INT(counts_of(table).addresses, 0);
	CHECK_INT(counts_of(table).evictions, 0);
	admission_free(table);
}

TEST(admission_set_limits__from_now_on)
{
	struct admission *table = make_table(&limits);
	struct admission_limits other = limits;
	struct admission_ticket tickets[3] = {0};

	for (int i = 0; i < 3; i++)
		CHECK_INT(enter(table, 1, 0, &tickets[i]), 0);
	other.address_handshakes_max = 1;
	admission_set_limits(table, &other);
	CHECK_INT(try_enter(table, 1, 0), ERROR_HANDSHAKES_MAX);
	admission_established(&tickets[0]);
	admission_established(&tickets[1]);
	CHECK_INT(try_enter(table, 1, 0), ERROR_HANDSHAKES_MAX);
	admission_established(&tickets[2]);
	CHECK_INT(try_enter(table, 1, 0), 0);
	other.address_connections_max = 3;
	admission_set_limits(table, &other);
	CHECK_INT(try_enter(table, 1, 0), ERROR_ADDRESS_MAX);
	for (int i = 0; i < 3; i++)
		(void)admission_leave(&tickets[i], 0, false);
	admission_free(table);
}

/* More addresses are remembered than the lowered limit allows; they get fewer. */
TEST(admission_set_limits__fewer_addresses)
{
	struct admission *table = make_table(&limits);
	struct admission_limits other = limits;

	for (uint32_t i = 0; i < 8; i++)
		CHECK_INT(fail(table, i, 0), 0);
	other.addresses_max = 6;
	admission_set_limits(table, &other);
	CHECK_INT(try_enter(table, 100, 0), ERROR_BUSY);
	CHECK_INT(try_enter(table, 100, 0), ERROR_BUSY);
	CHECK_INT(try_enter(table, 100, 0), 0);
	CHECK_INT(counts_of(table).addresses, 5);
	admission_free(table);
}

TEST(admission_pardon__each_kind)
{
	struct admission *table = make_table(&limits);
	union address address = v4(1);
	struct admission_ticket ticket = {0};

	CHECK(!admission_pardon(table, &address.any, 0));
	CHECK_INT(enter(table, 1, 0, &ticket), 0);
	CHECK(!admission_pardon(table, &address.any, 0));
	CHECK_INT(fail(table, 1, 0), 0);
	CHECK_INT(try_enter(table, 1, 0), ERROR_BACK_OFF);
	CHECK(admission_pardon(table, &address.any, 0));
	CHECK_INT(try_enter(table, 1, 0), 0);
	CHECK(!admission_leave(&ticket, 0, false));
	CHECK_INT(counts_of(table).addresses, 0);
	for (uint64_t i = 0; i < 4; i++)
		CHECK_INT(fail(table, 1, i * S), 0);
	CHECK_INT(try_enter(table, 1, 4 * S), ERROR_BANNED);
	CHECK(admission_pardon(table, &address.any, 4 * S));
	CHECK_INT(counts_of(table).banned, 0);
	CHECK_INT(counts_of(table).addresses, 0);
	CHECK_INT(try_enter(table, 1, 4 * S), 0);
	admission_free(table);
}

TEST(admission_pardon__what_is_over)
{
	struct admission *table = make_table(&limits);
	union address address = v4(1);

	for (uint64_t i = 0; i < 4; i++)
		CHECK_INT(fail(table, 1, i * S), 0);
	CHECK(!admission_pardon(table, &address.any, 63 * S));
	CHECK_INT(counts_of(table).banned, 0);
	CHECK_INT(counts_of(table).addresses, 0);
	admission_free(table);
}

TEST(admission__memory_stays_bounded)
{
	enum { ADDRESSES = 100000, KEPT = 1000 };
	struct admission_limits big = limits;
	struct random random = random_start();
	struct admission *table;
	uint64_t now_ns = 0;

	big.addresses_max = KEPT;
	table = make_table(&big);
	for (int i = 0; i < ADDRESSES; i++) {
		union address address = v6("2001:db8::", 0);
		struct admission_ticket ticket = {0};
		struct admission_counts counts;
		uint64_t low = random_next(&random);

		memcpy(address.v6.sin6_addr.s6_addr + 8, &low, sizeof(low));
		CHECK_INT(admission_enter(table, &address.any, now_ns, &ticket), 0);
		(void)admission_leave(&ticket, now_ns, true);
		admission_counts(table, &counts);
		CHECK_INT(counts.addresses, i < KEPT ? i + 1 : KEPT);
		now_ns += 1000;
	}
	CHECK_INT(counts_of(table).addresses, KEPT);
	CHECK_INT(counts_of(table).evictions, ADDRESSES - KEPT);
	/* When all is forgotten the memory goes back, with those that enter. */
	for (int i = 0; i < KEPT / 4; i++)
		CHECK_INT(try_enter(table, 1, now_ns + 30 * S), 0);
	CHECK_INT(counts_of(table).addresses, 0);
	admission_free(table);
}

/*
 * The model: an array with all there ever was of each address, no order and no memory limit.
 */
#define ADDRESSES 4

struct model_address {
	uint32_t connections, handshakes, failures;
	uint64_t failed_ns, wait_until_ns, ban_until_ns;
};

struct model {
	struct model_address addresses[ADDRESSES];
	uint32_t connections, handshakes;
	uint64_t bans;
};

static void model_age(struct model_address *a, uint64_t now_ns)
{
	if (now_ns >= a->failed_ns + limits.forget_ms * MS)
		a->failures = 0;
}

static int model_enter(struct model *model, uint32_t number, uint64_t now_ns)
{
	struct model_address *a = &model->addresses[number];

	model_age(a, now_ns);
	if (now_ns < a->ban_until_ns)
		return ERROR_BANNED;
	if (now_ns < a->wait_until_ns)
		return ERROR_BACK_OFF;
	if (model->connections == limits.connections_max)
		return ERROR_CONNECTIONS_MAX;
	if (a->connections == limits.address_connections_max)
		return ERROR_ADDRESS_MAX;
	if (a->handshakes == limits.address_handshakes_max ||
	    model->handshakes == limits.handshakes_max)
		return ERROR_HANDSHAKES_MAX;
	a->connections++;
	a->handshakes++;
	model->connections++;
	model->handshakes++;
	return 0;
}

static void model_established(struct model *model, uint32_t number, uint64_t now_ns)
{
	struct model_address *a = &model->addresses[number];

	model_age(a, now_ns);
	a->handshakes--;
	model->handshakes--;
	if (a->failures > 0)
		a->failures--;
}

static bool model_fail(struct model *model, struct model_address *a, uint64_t now_ns)
{
	static const uint64_t waits_ms[] = {0, 100, 200, 250};

	if (now_ns < a->ban_until_ns)
		return false;
	a->failures++;
	a->failed_ns = now_ns;
	if (a->failures == limits.failures_max) {
		a->failures = 0;
		a->wait_until_ns = 0;
		a->ban_until_ns = now_ns + limits.ban_ms * MS;
		model->bans++;
		return true;
	}
	if (now_ns + waits_ms[a->failures] * MS > a->wait_until_ns)
		a->wait_until_ns = now_ns + waits_ms[a->failures] * MS;
	return false;
}

static bool model_failed(struct model *model, uint32_t number, uint64_t now_ns)
{
	model_age(&model->addresses[number], now_ns);
	return model_fail(model, &model->addresses[number], now_ns);
}

static bool model_leave(struct model *model, uint32_t number, uint64_t now_ns, bool established,
			bool failed)
{
	struct model_address *a = &model->addresses[number];
	bool has_banned = false;

	model_age(a, now_ns);
	a->connections--;
	model->connections--;
	if (!established) {
		a->handshakes--;
		model->handshakes--;
		has_banned = failed && model_fail(model, a, now_ns);
	}
	return has_banned;
}

struct run {
	struct admission *table;
	struct model model;
	struct admission_ticket tickets[TICKETS];
	uint32_t numbers[TICKETS]; /* whose ticket it is */
	uint64_t now_ns;
	uint64_t codes[6]; /* how often each answer was given */
};

static void count_code(struct run *run, int code)
{
	run->codes[code == 0 ? 0 : code - ERROR_CONNECTIONS_MAX + 1]++;
}

static void run_step(struct run *run, struct random *random)
{
	size_t i = random_below(random, TICKETS);
	struct admission_ticket *ticket = &run->tickets[i];

	if (ticket->address == NULL) {
		uint32_t number = (uint32_t)random_below(random, ADDRESSES);
		int code = model_enter(&run->model, number, run->now_ns);

		CHECK_INT(enter(run->table, number, run->now_ns, ticket), code);
		run->numbers[i] = number;
		count_code(run, code);
	} else if (!ticket->established && !ticket->failed && random_below(random, 4) == 0) {
		bool has_banned = model_failed(&run->model, run->numbers[i], run->now_ns);

		CHECK_INT(admission_failed(ticket, run->now_ns), has_banned);
	} else if (!ticket->established && !ticket->failed && random_below(random, 2) != 0) {
		model_established(&run->model, run->numbers[i], run->now_ns);
		admission_established(ticket);
	} else {
		bool failed = random_below(random, 4) != 0;
		bool has_banned = model_leave(&run->model, run->numbers[i], run->now_ns,
					      ticket->established, failed && !ticket->failed);

		CHECK_INT(admission_leave(ticket, run->now_ns, failed), has_banned);
	}
}

TEST(admission__as_model)
{
	struct admission_limits big = limits;
	struct random random = random_start();
	struct run run = {0};

	big.addresses_max = ADDRESSES;
	run.table = make_table(&big);
	for (int i = 0; i < 50000; i++) {
		struct admission_counts counts;

		run_step(&run, &random);
		if (test_has_failed())
			return;
		counts = counts_of(run.table);
		CHECK_INT(counts.connections, run.model.connections);
		CHECK_INT(counts.handshakes, run.model.handshakes);
		CHECK_INT(counts.bans, run.model.bans);
		CHECK_INT(counts.evictions, 0);
		/* In steps of 50 ms, so that waits end just when others begin. */
		run.now_ns += random_below(&random, 6) * 50 * MS;
		if (random_below(&random, 200) == 0)
			run.now_ns += random_below(&random, 7) * 10 * S;
	}
	/* Each answer was among them, none seldom. */
	for (int i = 0; i <= ERROR_BANNED - ERROR_CONNECTIONS_MAX + 1; i++)
		CHECK(run.codes[i] > 20);
	for (size_t i = 0; i < TICKETS; i++)
		(void)admission_leave(&run.tickets[i], run.now_ns, false);
	CHECK_INT(counts_of(run.table).connections, 0);
	admission_free(run.table);
}
