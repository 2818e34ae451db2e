/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef CLIENT_CTL_KEYGEN_H
#define CLIENT_CTL_KEYGEN_H

#include <stdbool.h>

/**
 * keygen() - make a private key file and print the public key
 * @path: must not exist
 * @json: print an object, {"public_key": "..."}
 *
 * Complaints go to standard error. Return: 0, or -1.
 */
int keygen(const char *path, bool json);

#endif
