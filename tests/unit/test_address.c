/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Addresses as people write them: every form, what is refused, and the way back to text.
 */
#include "client/address.h"

#include <arpa/inet.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "tests/unit/test.h"

static void check_parse(const char *text, const char *host, const char *port)
{
	struct address address;

	CHECK_INT(address_parse(text, &address), 0);
	CHECK_STR(address.host, host);
	CHECK_STR(address.port, port);
}

/* Refused, and the result is left alone. */
static void check_refused(const char *text)
{
	struct address address;
	struct address before;

	memset(&address, 0x5a, sizeof(address));
	before = address;
	CHECK_INT(address_parse(text, &address), -EINVAL);
	CHECK_MEM(&address, &before, sizeof(address));
}

TEST(address_parse__host_and_port)
{
	check_parse("pool.example:7000", "pool.example", "7000");
	check_parse("10.77.0.1:7471", "10.77.0.1", "7471");
	check_parse("[2001:db8::1]:65535", "2001:db8::1", "65535");
	check_parse("[fe80::1%eth0]:1", "fe80::1%eth0", "1");
}

TEST(address_parse__default_port)
{
	check_parse("pool", "pool", "7471");
	check_parse("[::1]", "::1", "7471");
}

TEST(address_parse__port_boundaries)
{
	check_parse("h:1", "h", "1");
	check_parse("h:65535", "h", "65535");
	check_parse("h:00080", "h", "00080");
	check_refused("h:0");
	check_refused("h:65536");
	check_refused("h:99999");
	check_refused("h:000080");
	check_refused("h:4294967297");
}

TEST(address_parse__bad_port)
{
	check_refused("h:");
	check_refused("h: 1");
	check_refused("h:1 ");
	check_refused("h:+1");
	check_refused("h:-1");
	check_refused("h:0x50");
	check_refused("h:http");
	check_refused("[::1]:");
}

TEST(address_parse__bad_host)
{
	check_refused("");
	check_refused(":7471");
	check_refused("[]:7471");
	check_refused("[]");
	check_refused("[::1");
	check_refused("[::1]7471");
	check_refused("[::1] :7471");
	check_refused("::1");
	check_refused("::1:7471");
	check_refused("2001:db8::1");
}

TEST(address_parse__host_length)
{
	char text[ADDRESS_HOST_MAX + 16];
	char host[ADDRESS_HOST_MAX + 2];

	memset(host, 'a', sizeof(host));
	host[ADDRESS_HOST_MAX] = '\0';
	(void)snprintf(text, sizeof(text), "%s:7", host);
	check_parse(text, host, "7");
	(void)snprintf(text, sizeof(text), "[%s]:7", host);
	check_parse(text, host, "7");
	(void)snprintf(text, sizeof(text), "%sa:7", host);
	check_refused(text);
	(void)snprintf(text, sizeof(text), "[%sa]:7", host);
	check_refused(text);
}

TEST(address_format__both_families)
{
	struct sockaddr_in v4 = {.sin_family = AF_INET, .sin_port = htons(7471)};
	struct sockaddr_in6 v6 = {.sin6_family = AF_INET6, .sin6_port = htons(1)};
	char text[ADDRESS_TEXT_MAX];

	CHECK_INT(inet_pton(AF_INET, "10.77.0.1", &v4.sin_addr), 1);
	CHECK_INT(inet_pton(AF_INET6, "2001:db8::1", &v6.sin6_addr), 1);
	CHECK_STR(address_format((struct sockaddr *)&v4, sizeof(v4), text), "10.77.0.1:7471");
	CHECK_STR(address_format((struct sockaddr *)&v6, sizeof(v6), text), "[2001:db8::1]:1");
}

TEST(address_format__unknown_family)
{
	struct sockaddr_storage none = {.ss_family = AF_UNSPEC};
	char text[ADDRESS_TEXT_MAX];

	CHECK_STR(address_format((struct sockaddr *)&none, sizeof(none), text),
		  "(unknown address)");
}

TEST(address_resolve__numeric)
{
	struct address address = {.host = "127.0.0.1", .port = "7471"};
	char text[ADDRESS_TEXT_MAX];
	struct addrinfo *list;

	CHECK_INT(address_resolve(&address, &list), 0);
	CHECK(list->ai_next == NULL);
	address_format(list->ai_addr, list->ai_addrlen, text);
	freeaddrinfo(list);
	CHECK_STR(text, "127.0.0.1:7471");
}
