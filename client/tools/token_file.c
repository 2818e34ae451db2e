/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Tokens as text, and in files. Keeps nothing; any thread.
 */
#include "client/tools/token_file.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define TOKEN_FILE_PREFIX "mempool-lease-token:"

char *token_file_format(const struct mempool_lease_token *token, char *buf)
{
	int used = snprintf(buf, TOKEN_FILE_TEXT_MAX, TOKEN_FILE_PREFIX "%" PRIx32 ":%" PRIx64 ":",
			    token->version, token->lease_id);

	for (size_t i = 0; i < sizeof(token->secret); i++)
		used += snprintf(buf + used, TOKEN_FILE_TEXT_MAX - (size_t)used, "%02x",
				 token->secret[i]);
	return buf;
}

static int digit_of(char c)
{
	if (c >= '0' && c <= '9')
		return c - '0';
	return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/* Digits up to a colon. Return: what is behind it, or NULL. */
static const char *take_number(const char *text, uint64_t max, uint64_t *ret_number)
{
	uint64_t number = 0;
	const char *at = text;

	for (; digit_of(*at) >= 0; at++) {
		if (number > max >> 4)
			return NULL;
		number = number << 4 | (uint64_t)digit_of(*at);
	}
	if (at == text || *at != ':' || number > max)
		return NULL;
	*ret_number = number;
	return at + 1;
}

static const char *take_bytes(const char *text, uint8_t *ret_bytes, size_t count)
{
	for (size_t i = 0; i < count; i++, text += 2) {
		if (digit_of(text[0]) < 0 || digit_of(text[1]) < 0)
			return NULL;
		ret_bytes[i] = (uint8_t)(digit_of(text[0]) << 4 | digit_of(text[1]));
	}
	return text;
}

int token_file_parse(const char *text, size_t len_bytes, struct mempool_lease_token *ret_token)
{
	struct mempool_lease_token token = {0};
	char line[TOKEN_FILE_TEXT_MAX];
	const char *at = line;
	uint64_t version;

	if (len_bytes > 0 && text[len_bytes - 1] == '\n')
		len_bytes--;
	if (len_bytes >= sizeof(line) || memchr(text, '\0', len_bytes) != NULL)
		return -EBADMSG;
	memcpy(line, text, len_bytes);
	line[len_bytes] = '\0';
	if (strncmp(line, TOKEN_FILE_PREFIX, strlen(TOKEN_FILE_PREFIX)) != 0)
		return -EBADMSG;
	at = take_number(line + strlen(TOKEN_FILE_PREFIX), UINT32_MAX, &version);
	if (at != NULL)
		at = take_number(at, UINT64_MAX, &token.lease_id);
	if (at != NULL)
		at = take_bytes(at, token.secret, sizeof(token.secret));
	if (at == NULL || *at != '\0')
		return -EBADMSG;
	token.version = (uint32_t)version;
	*ret_token = token;
	return 0;
}

int token_file_create(const char *path)
{
	int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);

	return fd < 0 ? -errno : fd;
}

int token_file_write(int fd, const struct mempool_lease_token *token)
{
	char text[TOKEN_FILE_TEXT_MAX];
	size_t len_bytes;
	ssize_t n;

	token_file_format(token, text);
	len_bytes = strlen(text);
	text[len_bytes++] = '\n';
	n = write(fd, text, len_bytes);
	if (n < 0)
		return -errno;
	return (size_t)n == len_bytes ? 0 : -ENOSPC;
}

int token_file_load(const char *path, struct mempool_lease_token *ret_token)
{
	char text[TOKEN_FILE_TEXT_MAX];
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	ssize_t n;
	int r;

	if (fd < 0)
		return -errno;
	n = read(fd, text, sizeof(text));
	r = n < 0 ? -errno : 0;
	(void)close(fd);
	return r < 0 ? r : token_file_parse(text, (size_t)n, ret_token);
}
