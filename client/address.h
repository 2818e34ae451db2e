/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef CLIENT_ADDRESS_H
#define CLIENT_ADDRESS_H

#include <netdb.h>
#include <sys/socket.h>

#define ADDRESS_HOST_MAX 255 /* bytes, without the terminating NUL */
#define ADDRESS_TEXT_MAX 80
#define ADDRESS_KEY_MAX	 44 /* bytes of a public key in base64 */
#define ADDRESS_PORT	 "7471"

struct address {
	char host[ADDRESS_HOST_MAX + 1];
	char port[6];
	char key[ADDRESS_KEY_MAX + 1]; /* of the daemon; "": the address names none */
};

/**
 * address_parse() - "host", "host:port", "[v6]", "[v6]:port", "mempool://[v6]:port?key=BASE64"
 * @text: more than one colon outside of brackets is refused; port 1 to 65535, in decimal digits
 * @ret_address: the parts; the port is ADDRESS_PORT if none is given
 *
 * Return: 0 or -EINVAL.
 */
int address_parse(const char *text, struct address *ret_address);

/**
 * address_resolve() - ask the system's resolver; may block for as long as that takes
 * @ret_list: free it with freeaddrinfo()
 *
 * Return: 0, or a code of getaddrinfo() for gai_strerror().
 */
int address_resolve(const struct address *address, struct addrinfo **ret_list);

/**
 * address_format() - "10.77.0.1:7471", "[fe80::1%eth0]:7471"
 * @buf: ADDRESS_TEXT_MAX bytes
 *
 * Return: @buf.
 */
char *address_format(const struct sockaddr *sa, socklen_t len_bytes, char *buf);

#endif
