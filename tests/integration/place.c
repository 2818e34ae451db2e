/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Folders of tests that run other programs, and files in them. Thread: the test's.
 */
#include "tests/integration/place.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/integration/harness.h"
#include "tests/integration/keys.h"

char *place_path(const struct place *place, const char *name, char *buf)
{
	if (snprintf(buf, PLACE_TEXT_MAX, "%s/%s", place->dir, name) >= PLACE_TEXT_MAX)
		buf[0] = '\0';
	return buf;
}

int place_make(struct place *place, const char *tenant)
{
	char daemon[KEYS_TEXT_MAX];

	snprintf(place->dir, sizeof(place->dir), "/tmp/itest-place.XXXXXX");
	if (mkdtemp(place->dir) == NULL) {
		place->dir[0] = '\0';
		return -errno;
	}
	snprintf(place->address, sizeof(place->address), "mempool://%s?key=%s", harness_endpoint(),
		 keys_public_text("daemon", daemon));
	return keys_write(tenant, place_path(place, "key", place->key));
}

void place_remove(struct place *place)
{
	char path[PLACE_TEXT_MAX];
	const struct dirent *entry;
	DIR *dir = place->dir[0] != '\0' ? opendir(place->dir) : NULL;

	if (dir == NULL)
		return;
	while ((entry = readdir(dir)) != NULL) {
		if (entry->d_name[0] != '.')
			(void)unlink(place_path(place, entry->d_name, path));
	}
	(void)closedir(dir);
	(void)rmdir(place->dir);
	place->dir[0] = '\0';
}

int place_write(const struct place *place, const char *name, size_t len_bytes, uint32_t seed)
{
	char path[PLACE_TEXT_MAX];
	uint8_t *buf = malloc(len_bytes + 1);
	FILE *file = fopen(place_path(place, name, path), "we");
	int r = -EIO;

	if (file != NULL && buf != NULL) {
		harness_fill(buf, len_bytes, seed);
		r = fwrite(buf, 1, len_bytes, file) == len_bytes ? 0 : -EIO;
	}
	if (file != NULL && fclose(file) != 0)
		r = -EIO;
	free(buf);
	return r;
}

int place_holds(const struct place *place, const char *name, size_t len_bytes, uint32_t seed)
{
	char path[PLACE_TEXT_MAX];
	uint8_t *expected = malloc(len_bytes + 1);
	uint8_t *actual = malloc(len_bytes + 1);
	FILE *file = fopen(place_path(place, name, path), "re");
	int r = -EIO;

	if (file != NULL && expected != NULL && actual != NULL) {
		harness_fill(expected, len_bytes, seed);
		r = fread(actual, 1, len_bytes + 1, file) == len_bytes &&
		    memcmp(actual, expected, len_bytes) == 0;
	}
	if (file != NULL)
		(void)fclose(file);
	free(expected);
	free(actual);
	return r;
}
