/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * JSON files: bounded, strict reading, and replacement that a crash at any point leaves either
 * undone or complete. Keeps nothing between calls; one writer per file.
 */
#include "daemon/json_file.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/log.h"
#include "common/strict_json.h"
#include "common/units.h"

#define MODE_OWN 0600
#define SUFFIX	 ".new"

static int fail(const struct schema_context *context, const char *what, int r)
{
	(void)schema_fail(context, NULL, "%s: %s", what, strerror(-r));
	return r;
}

/* Reads up to @cap_bytes; a full buffer means that there may be more. */
static int read_all(int fd, char *buf, size_t cap_bytes, size_t *ret_len_bytes)
{
	size_t used = 0;

	while (used < cap_bytes) {
		ssize_t n = read(fd, buf + used, cap_bytes - used);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return -errno;
		if (n == 0)
			break;
		used += (size_t)n;
	}
	*ret_len_bytes = used;
	return 0;
}

static int parse_fd(const struct schema_context *context, int fd, const char *limit,
		    json_t **ret_root)
{
	char why[STRICT_JSON_ERROR_MAX];
	uint64_t limit_bytes = 0;
	size_t len_bytes = 0;
	char *buf;
	int r;

	r = units_parse_size(limit, &limit_bytes);
	assert(r == 0 && limit_bytes < SIZE_MAX);
	buf = malloc((size_t)limit_bytes + 1);
	if (!buf)
		return fail(context, "cannot be read", -ENOMEM);
	r = read_all(fd, buf, (size_t)limit_bytes + 1, &len_bytes);
	if (r < 0) {
		(void)fail(context, "cannot be read", r);
		goto out_free;
	}
	if (len_bytes > limit_bytes) {
		r = schema_fail(context, NULL, "is too long; allowed: %s", limit);
		goto out_free;
	}
	r = strict_json_parse(buf, len_bytes, why, ret_root);
	if (r < 0)
		r = schema_fail(context, NULL, "%s", why);
out_free:
	free(buf);
	return r;
}

int json_file_read(const struct schema_context *context, const char *limit, json_t **ret_root)
{
	int fd = open(context->file, O_RDONLY | O_CLOEXEC);
	int r;

	if (fd < 0)
		return fail(context, "cannot be opened", -errno);
	r = parse_fd(context, fd, limit, ret_root);
	(void)close(fd);
	return r;
}

/* Does nobody but root and this user have a say in a file? */
static int check_own(const struct schema_context *context, int fd)
{
	struct stat status;

	if (fstat(fd, &status) < 0)
		return fail(context, "cannot be read", -errno);
	if (!S_ISREG(status.st_mode)) {
		(void)schema_fail(context, NULL, "is not a regular file");
		return -EPERM;
	}
	if ((status.st_uid != 0 && status.st_uid != geteuid()) ||
	    (status.st_mode & (S_IWGRP | S_IWOTH)) != 0) {
		(void)schema_fail(context, NULL, "others than the daemon's user can write it");
		return -EPERM;
	}
	return 0;
}

int json_file_read_own(const struct schema_context *context, const char *limit, json_t **ret_root)
{
	/* Not blocking: to open a pipe must not wait for its other end. */
	int fd = open(context->file, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
	int r;

	if (fd < 0 && errno == ELOOP) {
		(void)schema_fail(context, NULL, "is a symbolic link");
		return -EPERM;
	}
	if (fd < 0)
		return fail(context, "cannot be opened", -errno);
	r = check_own(context, fd);
	if (r == 0)
		r = parse_fd(context, fd, limit, ret_root);
	(void)close(fd);
	return r;
}

static int write_all(int fd, const char *buf, size_t len_bytes)
{
	while (len_bytes > 0) {
		ssize_t n = write(fd, buf, len_bytes);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return -errno;
		buf += n;
		len_bytes -= (size_t)n;
	}
	return 0;
}

/* A file that is not there yet, complete and on the disk, or not there at all. */
static int write_new(const char *path, const char *text)
{
	int fd, r;

	/* One that a crash has left; nobody else's, as the folder is the daemon's own. */
	if (unlink(path) < 0 && errno != ENOENT)
		return -errno;
	fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, MODE_OWN);
	if (fd < 0)
		return -errno;
	r = write_all(fd, text, strlen(text));
	if (r == 0 && fsync(fd) < 0)
		r = -errno;
	if (close(fd) < 0 && r == 0)
		r = -errno;
	if (r < 0)
		(void)unlink(path);
	return r;
}

/* What was renamed in the folder of a file is renamed on the disk. */
static int sync_folder(const char *path)
{
	char *folder = strdup(path);
	char *slash = folder ? strrchr(folder, '/') : NULL;
	int fd, r = 0;

	if (!folder)
		return -ENOMEM;
	if (slash)
		slash[slash == folder] = '\0'; /* the slash of the root stays */
	fd = open(slash ? folder : ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	free(folder);
	if (fd < 0)
		return -errno;
	if (fsync(fd) < 0)
		r = -errno;
	(void)close(fd);
	return r;
}

static int replace(const struct schema_context *context, const char *path_new, const char *text)
{
	int r = write_new(path_new, text);

	if (r < 0)
		return fail(context, "cannot be written", r);
	if (rename(path_new, context->file) < 0) {
		r = -errno;
		(void)unlink(path_new);
		return fail(context, "cannot be replaced", r);
	}
	/* Whoever reads it has the new one: it is done, though not for certain for ever. */
	r = sync_folder(context->file);
	if (r < 0)
		log_warn("%s is replaced, but may not outlive a crash of the machine error=\"%s\"",
			 context->file, strerror(-r));
	return 0;
}

int json_file_write(const struct schema_context *context, const json_t *root)
{
	char *text = json_dumps(root, JSON_INDENT(2));
	char *path_new = NULL;
	int r;

	if (!text || asprintf(&path_new, "%s" SUFFIX, context->file) < 0) {
		free(text);
		return fail(context, "cannot be written", -ENOMEM);
	}
	r = replace(context, path_new, text);
	free(path_new);
	free(text);
	return r;
}
