/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The keys of one session. Nothing of them is kept anywhere else, and none is ever part of an
 * error text.
 *
 * Thread: that which connects; afterwards whoever holds the session's lock.
 */
#include "client/secrets.h"

#include <errno.h>
#include <stdbool.h>
#include <string.h>

#include "client/error.h"
#include "common/key_file.h"

static int secrets_take_own(const struct mempool_connect_opts *opts, struct secrets *secrets)
{
	char error[KEY_FILE_ERROR_MAX];
	int r;

	if (opts->key != NULL) {
		secure_key_pair_from_private(opts->key, &secrets->own);
		return 0;
	}
	if (opts->key_file == NULL)
		return client_error_raise(MEMPOOL_E_INVALID,
					  "key_file is missing: our private key, made by "
					  "'mempoolctl keygen'");
	r = key_file_load(opts->key_file, &secrets->own, error);
	return r < 0 ? client_error_raise(MEMPOOL_E_INVALID, "%s", error) : 0;
}

static int secrets_take_daemon(const struct mempool_connect_opts *opts,
			       const struct address *address, struct secrets *secrets)
{
	const char *text = opts->daemon_key != NULL ? opts->daemon_key : address->key;
	char error[KEY_FILE_ERROR_MAX];

	if (text[0] == '\0')
		return client_error_raise(MEMPOOL_E_INVALID,
					  "daemon_key is missing: the daemon's public key, which "
					  "'mempoolctl status' shows");
	if (opts->daemon_key != NULL && address->key[0] != '\0' &&
	    strcmp(opts->daemon_key, address->key) != 0)
		return client_error_raise(MEMPOOL_E_INVALID,
					  "the address and daemon_key name two different keys");
	if (key_file_parse_public(text, strnlen(text, ADDRESS_KEY_MAX + 1), secrets->daemon_public,
				  error) < 0)
		return client_error_raise(MEMPOOL_E_INVALID, "the daemon's key: %s", error);
	return 0;
}

int secrets_new(const struct mempool_connect_opts *opts, const struct address *address,
		struct secrets **ret_secrets)
{
	struct secrets *secrets = secure_alloc(sizeof(*secrets));
	int r;

	if (secrets == NULL)
		return client_error_raise(MEMPOOL_E_NO_MEMORY, "cannot lock memory for keys: %s",
					  strerrordesc_np(errno));
	r = secrets_take_own(opts, secrets);
	if (r == 0)
		r = secrets_take_daemon(opts, address, secrets);
	if (r < 0) {
		secrets_free(secrets);
		return r;
	}
	*ret_secrets = secrets;
	return 0;
}

struct secrets *secrets_free(struct secrets *secrets)
{
	secure_free(secrets);
	return NULL;
}
