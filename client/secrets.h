/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef CLIENT_SECRETS_H
#define CLIENT_SECRETS_H

#include <stdint.h>

#include "client/address.h"
#include "client/include/mempool.h"
#include "common/channel.h"

/* Who we are, whom we expect, and the secrets of the control connection; in locked memory. */
struct secrets {
	struct secure_key_pair own;
	uint8_t daemon_public[SECURE_KEY_BYTES];
	struct channel channel;
};

/**
 * secrets_new() - from the options of mempool_connect()
 * @address: may name the daemon's key
 * @ret_secrets: for secrets_free()
 *
 * Reads the key file. Return: 0, or a code with the thread's last error set.
 */
int secrets_new(const struct mempool_connect_opts *opts, const struct address *address,
		struct secrets **ret_secrets);

/** secrets_free() - wipe and give back; NULL is allowed; Return: NULL */
struct secrets *secrets_free(struct secrets *secrets);

#endif
