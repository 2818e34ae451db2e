/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef COMMON_KEY_FILE_H
#define COMMON_KEY_FILE_H

#include <stddef.h>
#include <stdint.h>

#include "common/secure.h"

/*
 * Private keys in files, public keys as text.
 *
 * A private key file is one line, with or without its newline:
 *	mempool-private-key:BASE64
 * A public key is the BASE64 alone. BASE64 is the usual alphabet with padding, 44
 * characters for the 32 bytes of an X25519 key; another spelling of the same bytes is refused.
 *
 * Errors, by cause; each comes with a text that names the remedy and never a part of a key:
 *	-ENOENT		no such file
 *	-EEXIST		create: there is something of that name, whatever it is
 *	-ELOOP		a symbolic link
 *	-ENOTSUP	not a regular file
 *	-EPERM		the file belongs to neither us nor root
 *	-EACCES		group or others have a right to the file, or we have none
 *	-ENODATA	empty or too short
 *	-EFBIG		too long
 *	-EBADMSG	not a key of that kind
 *	-EKEYREJECTED	a key that nobody may use: zero, of low order, or beyond 255 bits
 *	others		what the system says
 */

#define KEY_FILE_PREFIX	     "mempool-private-key:"
#define KEY_FILE_PUBLIC_TEXT (SECURE_KEY_TEXT_LENGTH + 1) /* with its NUL */
#define KEY_FILE_ERROR_MAX   384

/**
 * key_file_create() - make a key pair and write its file, which only we can read (0600)
 * @path: must not exist; is on the disk when this returns, and is removed again if that fails
 * @ret_pair: untouched on failure; for memory of secure_alloc()
 * @error: KEY_FILE_ERROR_MAX bytes; on failure one printable line; otherwise untouched
 *
 * Return: 0 or an error. Blocks for the disk.
 */
int key_file_create(const char *path, struct secure_key_pair *ret_pair, char *error);

/**
 * key_file_load() - read a private key file; @ret_pair, @error as above
 *
 * Return: 0 or an error.
 */
int key_file_load(const char *path, struct secure_key_pair *ret_pair, char *error);

/**
 * key_file_parse_public() - read a public key
 * @text: need not end in a NUL; one newline at its end is allowed
 * @ret_public: untouched on failure
 * @error: as above
 *
 * Return: 0, -ENODATA, -EFBIG, -EBADMSG, -EKEYREJECTED.
 */
int key_file_parse_public(const char *text, size_t len_bytes, uint8_t ret_public[SECURE_KEY_BYTES],
			  char *error);

/** key_file_print_public() - Return: @buf, with a NUL */
char *key_file_print_public(const uint8_t public_key[SECURE_KEY_BYTES],
			    char buf[KEY_FILE_PUBLIC_TEXT]);

#endif
