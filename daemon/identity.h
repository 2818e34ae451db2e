/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef DAEMON_IDENTITY_H
#define DAEMON_IDENTITY_H

#include <stdint.h>

#include "common/channel.h"
#include "daemon/config.h"

#define IDENTITY_ERROR_MAX 512

/* The daemon's key pair, and the secrets of all control connections. All zero: none. */
struct identity {
	struct secure_key_pair *own;
	struct channel *channels; /* one for each control slot of the device */
	uint32_t channel_count;
};

/**
 * identity_open() - load the daemon's key, or make it if there is none yet
 * @error: IDENTITY_ERROR_MAX bytes, one line with the remedy
 *
 * Blocks for the disk. Return: 0 or a negative errno; identity_close() is due in any case.
 */
int identity_open(struct identity *identity, const struct config *config, char *error);

/** identity_close() - wipe; all zero is allowed */
void identity_close(struct identity *identity);

/** identity_bytes() - locked memory that the secrets of a configuration need, about */
uint64_t identity_bytes(const struct config *config);

#endif
