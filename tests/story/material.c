/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Real data to lend memory for: the machine's own programs, hashed by the machine's own tool.
 */
#include "tests/story/material.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/story/command.h"
#include "tests/story/tell.h"

#define MATERIAL_FOLDER	     "/usr/bin"
#define MATERIAL_MAGIC	     "\177ELF"
#define MATERIAL_MAGIC_BYTES 4

struct material {
	uint8_t *bytes;
	size_t len_bytes;
	size_t used_bytes;
	unsigned int programs;
};

static bool material_is_program(int fd)
{
	char magic[MATERIAL_MAGIC_BYTES];

	return pread(fd, magic, sizeof(magic), 0) == (ssize_t)sizeof(magic) &&
	       memcmp(magic, MATERIAL_MAGIC, sizeof(magic)) == 0;
}

static void material_append(struct material *m, int fd)
{
	ssize_t n;

	while (m->used_bytes < m->len_bytes) {
		n = read(fd, m->bytes + m->used_bytes, m->len_bytes - m->used_bytes);
		if (n <= 0)
			return;
		m->used_bytes += (size_t)n;
	}
}

/* A file that cannot be opened or is something else is passed over. */
static void material_add(struct material *m, const char *name)
{
	char path[PATH_MAX];
	int fd;

	(void)snprintf(path, sizeof(path), MATERIAL_FOLDER "/%s", name);
	/* A link would be the same program again. */
	fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
	if (fd < 0)
		return;
	if (material_is_program(fd)) {
		material_append(m, fd);
		m->programs++;
	}
	(void)close(fd);
}

int material_make(uint8_t *bytes, size_t len_bytes)
{
	struct material m = {.bytes = bytes, .len_bytes = len_bytes};
	struct dirent **list;
	size_t once_bytes;
	int count;

	count = scandir(MATERIAL_FOLDER, &list, NULL, alphasort);
	if (count < 0)
		return tell_failure("cannot list %s: %s", MATERIAL_FOLDER, strerrordesc_np(errno));
	for (int i = 0; i < count; i++) {
		if (m.used_bytes < len_bytes)
			material_add(&m, list[i]->d_name);
		free(list[i]);
	}
	free(list);
	if (m.used_bytes == 0)
		return tell_failure("no program found in %s", MATERIAL_FOLDER);
	once_bytes = m.used_bytes;
	for (; m.used_bytes < len_bytes; m.used_bytes++)
		bytes[m.used_bytes] = bytes[m.used_bytes - once_bytes];
	tell("%zu bytes made of %u programs in %s", len_bytes, m.programs, MATERIAL_FOLDER);
	return 0;
}

int material_save(const char *path, const uint8_t *bytes, size_t len_bytes)
{
	FILE *file = fopen(path, "we");
	bool complete;

	if (file == NULL)
		return tell_failure("cannot make %s: %s", path, strerrordesc_np(errno));
	complete = fwrite(bytes, 1, len_bytes, file) == len_bytes;
	if (fclose(file) != 0 || !complete)
		return tell_failure("cannot write %s: %s", path, strerrordesc_np(errno));
	return 0;
}

int material_hash(const char *path, char ret_hash[MATERIAL_HASH_CHARS + 1])
{
	const char *argv[] = {"sha256sum", path, NULL};
	char *output = NULL;
	int status = -1;
	int r;

	r = command_run(argv, &output, &status);
	if (r < 0)
		return tell_failure("cannot run sha256sum: %s", strerrordesc_np(-r));
	if (status == 0 && strspn(output, "0123456789abcdef") == MATERIAL_HASH_CHARS) {
		memcpy(ret_hash, output, MATERIAL_HASH_CHARS);
		ret_hash[MATERIAL_HASH_CHARS] = '\0';
	} else {
		r = tell_failure("sha256sum %s: exit status %d", path, status);
	}
	free(output);
	return r;
}

size_t material_nonzero(const uint8_t *bytes, size_t len_bytes)
{
	size_t count = 0;

	for (size_t i = 0; i < len_bytes; i++)
		count += bytes[i] != 0;
	return count;
}
