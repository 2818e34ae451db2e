/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The daemon's key pair and the secrets of its control connections. All of them are in
 * locked memory that is taken at start, so that admitting a session needs none.
 *
 * Thread: the loop's.
 */
#include "daemon/identity.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "common/key_file.h"
#include "common/log.h"
#include "common/secure.h"

#define IDENTITY_FILE "key"

static void identity_path(const struct config *config, char *path, size_t cap_bytes)
{
	if (config->key_file[0] != '\0')
		snprintf(path, cap_bytes, "%s", config->key_file);
	else
		snprintf(path, cap_bytes, "%s/" IDENTITY_FILE, config->state_dir);
}

static int identity_load(struct identity *identity, const char *path, char *error)
{
	char public_text[KEY_FILE_PUBLIC_TEXT];
	char text[KEY_FILE_ERROR_MAX];
	int r = key_file_load(path, identity->own, text);

	if (r == -ENOENT) {
		r = key_file_create(path, identity->own, text);
		if (r == 0)
			log_info("key made file=%s", path);
	}
	if (r < 0) {
		snprintf(error, IDENTITY_ERROR_MAX, "%s", text);
		return r;
	}
	log_info("daemon key public=%s",
		 key_file_print_public(identity->own->public_key, public_text));
	return 0;
}

uint64_t identity_bytes(const struct config *config)
{
	return config->sessions_max * sizeof(struct channel) + sizeof(struct secure_key_pair);
}

int identity_open(struct identity *identity, const struct config *config, char *error)
{
	char path[2 * CONFIG_STRING_MAX];

	identity->channel_count = (uint32_t)config->sessions_max;
	identity->own = secure_alloc(sizeof(*identity->own));
	identity->channels = secure_alloc(identity->channel_count * sizeof(identity->channels[0]));
	if (identity->own == NULL || identity->channels == NULL) {
		snprintf(error, IDENTITY_ERROR_MAX, "cannot lock memory for keys: %s",
			 strerror(errno));
		return -ENOMEM;
	}
	identity_path(config, path, sizeof(path));
	return identity_load(identity, path, error);
}

void identity_close(struct identity *identity)
{
	secure_free(identity->channels);
	secure_free(identity->own);
	*identity = (struct identity){0};
}
