/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Where a daemon listens, as people write it. Pure text work but for the look-up, which is
 * left to the system's resolver.
 *
 * Thread: any.
 */
#include "client/address.h"

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static bool address_port_valid(const char *port)
{
	size_t digits = strspn(port, "0123456789");
	long number;

	if (digits == 0 || digits > 5 || port[digits] != '\0')
		return false;
	number = strtol(port, NULL, 10);
	return number >= 1 && number <= 65535;
}

/* Splits off the host. Return: what comes behind it (its colon, if any), or NULL. */
static const char *address_split(const char *text, const char **ret_host, size_t *ret_len_bytes)
{
	const char *end;

	if (text[0] == '[') {
		end = strchr(text, ']');
		if (end == NULL)
			return NULL;
		*ret_host = text + 1;
		*ret_len_bytes = (size_t)(end - text) - 1;
		return end + 1;
	}
	end = strchr(text, ':');
	if (end == NULL)
		end = text + strlen(text);
	*ret_host = text;
	*ret_len_bytes = (size_t)(end - text);
	return end;
}

static int address_parse_host(const char *text, struct address *ret_address)
{
	const char *port = ADDRESS_PORT;
	struct address address = {0};
	size_t len_bytes;
	const char *host;
	const char *rest;

	rest = address_split(text, &host, &len_bytes);
	if (rest == NULL || len_bytes == 0 || len_bytes > ADDRESS_HOST_MAX)
		return -EINVAL;
	if (rest[0] == ':')
		port = rest + 1;
	else if (rest[0] != '\0')
		return -EINVAL;
	if (!address_port_valid(port))
		return -EINVAL;
	memcpy(address.host, host, len_bytes);
	memcpy(address.port, port, strlen(port));
	*ret_address = address;
	return 0;
}

/* The one parameter that there is; it is written as it is, without %-encoding. */
static int address_parse_query(const char *query, struct address *address)
{
	static const char name[] = "key=";
	size_t len_bytes;

	if (strncmp(query, name, sizeof(name) - 1) != 0)
		return -EINVAL;
	query += sizeof(name) - 1;
	len_bytes = strnlen(query, ADDRESS_KEY_MAX + 1);
	if (len_bytes == 0 || len_bytes > ADDRESS_KEY_MAX)
		return -EINVAL;
	memcpy(address->key, query, len_bytes + 1);
	return 0;
}

int address_parse(const char *text, struct address *ret_address)
{
	static const char scheme[] = "mempool://";
	char host[ADDRESS_HOST_MAX + sizeof(":65535[]")];
	struct address address;
	size_t len_bytes;

	if (strncmp(text, scheme, sizeof(scheme) - 1) != 0)
		return address_parse_host(text, ret_address);
	text += sizeof(scheme) - 1;
	len_bytes = strcspn(text, "?");
	if (len_bytes >= sizeof(host))
		return -EINVAL;
	memcpy(host, text, len_bytes);
	host[len_bytes] = '\0';
	if (address_parse_host(host, &address) < 0)
		return -EINVAL;
	if (text[len_bytes] == '?' && address_parse_query(text + len_bytes + 1, &address) < 0)
		return -EINVAL;
	*ret_address = address;
	return 0;
}

int address_resolve(const struct address *address, struct addrinfo **ret_list)
{
	struct addrinfo hints = {
		.ai_family = AF_UNSPEC,
		.ai_socktype = SOCK_STREAM,
		.ai_flags = AI_NUMERICSERV,
	};

	return getaddrinfo(address->host, address->port, &hints, ret_list);
}

char *address_format(const struct sockaddr *sa, socklen_t len_bytes, char *buf)
{
	char host[ADDRESS_TEXT_MAX - 16];
	char port[8];
	int r;

	r = getnameinfo(sa, len_bytes, host, sizeof(host), port, sizeof(port),
			NI_NUMERICHOST | NI_NUMERICSERV);
	if (r != 0)
		(void)snprintf(buf, ADDRESS_TEXT_MAX, "(unknown address)");
	else if (sa->sa_family == AF_INET6)
		(void)snprintf(buf, ADDRESS_TEXT_MAX, "[%s]:%s", host, port);
	else
		(void)snprintf(buf, ADDRESS_TEXT_MAX, "%s:%s", host, port);
	return buf;
}
