/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef CLIENT_TOOLS_TOKEN_FILE_H
#define CLIENT_TOOLS_TOKEN_FILE_H

#include <stddef.h>

#include "client/include/mempool.h"

/*
 * A lease's token in a file of one line, which only its owner can read:
 *	mempool-lease-token:VERSION:LEASE-ID:SECRET
 * the numbers and the 16 bytes of the secret in hexadecimal.
 */

#define TOKEN_FILE_TEXT_MAX 96

/** token_file_format() - @buf: TOKEN_FILE_TEXT_MAX bytes; Return: @buf */
char *token_file_format(const struct mempool_lease_token *token, char *buf);

/** token_file_parse() - with or without its newline; Return: 0, or -EBADMSG: no such text */
int token_file_parse(const char *text, size_t len_bytes, struct mempool_lease_token *ret_token);

/** token_file_create() - an empty file that was not there; Return: its fd, or a negative errno */
int token_file_create(const char *path);

/** token_file_write() - into that file; Return: 0 or a negative errno */
int token_file_write(int fd, const struct mempool_lease_token *token);

/** token_file_load() - Return: 0 or a negative errno */
int token_file_load(const char *path, struct mempool_lease_token *ret_token);

#endif
