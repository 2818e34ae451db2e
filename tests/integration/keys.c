/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The keys of tests. Owns nothing; any thread.
 */
#include "tests/integration/keys.h"

#include <errno.h>
#include <fcntl.h>
#include <stddef.h>
#include <string.h>
#include <unistd.h>

#include "common/key_file.h"

static const char *const keys_tenants[] = {
	"alpha",  "attacker", "auditor", "beta",   "bystander", "churn",   "cyclist", "delta",
	"doomed", "filler",   "gamma",	 "greedy", "guesser",	"mallory", "other",   "owner",
	"prober", "racer",    "reader",	 "storm",  "victim",	"writer",
};

void keys_of(const char *name, struct secure_key_pair *ret_pair)
{
	static const char label[] = "key of a test: ";
	struct secure_part parts[] = {
		{.data = label, .len_bytes = sizeof(label) - 1},
		{.data = name, .len_bytes = strlen(name)},
	};
	uint8_t hash[SECURE_HASH_BYTES];

	(void)secure_init();
	secure_hash(parts, 2, hash);
	secure_key_pair_from_private(hash, ret_pair);
}

char *keys_public_text(const char *name, char buf[KEYS_TEXT_MAX])
{
	struct secure_key_pair pair;

	keys_of(name, &pair);
	return key_file_print_public(pair.public_key, buf);
}

int keys_write(const char *name, const char *path)
{
	struct secure_key_pair pair;
	char text[KEYS_TEXT_MAX] = "";
	int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
	int r;

	if (fd < 0)
		return -errno;
	keys_of(name, &pair);
	secure_key_encode(pair.private_key, text);
	r = dprintf(fd, KEY_FILE_PREFIX "%s\n", text) > 0 ? 0 : -EIO;
	close(fd);
	return r;
}

void keys_print_tenants(FILE *file)
{
	char text[KEYS_TEXT_MAX];

	fprintf(file, "\"tenants\": [");
	for (size_t i = 0; i < sizeof(keys_tenants) / sizeof(keys_tenants[0]); i++)
		fprintf(file, "%s{\"name\": \"%s\", \"keys\": [\"%s\"]}", i > 0 ? ",\n  " : "",
			keys_tenants[i], keys_public_text(keys_tenants[i], text));
	fprintf(file, "]");
}

unsigned int keys_tenant_count(void)
{
	return sizeof(keys_tenants) / sizeof(keys_tenants[0]);
}
