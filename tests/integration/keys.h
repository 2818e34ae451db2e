/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef TESTS_INTEGRATION_KEYS_H
#define TESTS_INTEGRATION_KEYS_H

#include <stdio.h>

#include "common/secure.h"

#define KEYS_TEXT_MAX (SECURE_KEY_TEXT_LENGTH + 1)

/*
 * Key pairs of tests: every name has one that follows from it, so that each program of a test
 * knows all of them. "daemon" is the daemon's.
 */

/** keys_of() - the pair of a name */
void keys_of(const char *name, struct secure_key_pair *ret_pair);

/** keys_public_text() - the public key of a name, as configurations have it; Return: @buf */
char *keys_public_text(const char *name, char buf[KEYS_TEXT_MAX]);

/** keys_write() - the key file of a name; Return: 0 or a negative errno */
int keys_write(const char *name, const char *path);

/** keys_print_tenants() - "tenants" of a configuration: all that tests know */
void keys_print_tenants(FILE *file);

/** keys_tenant_count() - how many that are */
unsigned int keys_tenant_count(void);

#endif
