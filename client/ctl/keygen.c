/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * mempoolctl keygen: the one command that needs no daemon.
 */
#include "client/ctl/keygen.h"

#include <stdio.h>

#include "common/key_file.h"

int keygen(const char *path, bool json)
{
	char text[KEY_FILE_PUBLIC_TEXT];
	char error[KEY_FILE_ERROR_MAX];
	struct secure_key_pair pair;

	if (secure_init() < 0) {
		fputs("mempoolctl: the kernel gives no random numbers\n", stderr);
		return -1;
	}
	if (key_file_create(path, &pair, error) < 0) {
		fprintf(stderr, "mempoolctl: %s\n", error);
		return -1;
	}
	secure_wipe(pair.private_key, sizeof(pair.private_key));
	/* Base64 has nothing that JSON escapes. */
	printf(json ? "{\"public_key\":\"%s\"}\n" : "%s\n",
	       key_file_print_public(pair.public_key, text));
	return 0;
}
