/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * daemon/json_file.c: what may be read, and replacement that is all or nothing. The calls that
 * write to the disk are replaced: each is tried in turn, and their order is looked at.
 */
#include "daemon/json_file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/strict_json.h"
#include "tests/unit/test.h"

/* What the replaced calls do, and have seen. */
static struct {
	int write_errno; /* of the next write, once */
	int write_after; /* that many writes go well first */
	size_t write_max;
	int fsync_errno; /* of the call with this number: */
	int fsync_fail;
	int rename_errno;
	int fsyncs; /* so far */
	char calls[16];
} fake;

static void note(char call)
{
	size_t used = strlen(fake.calls);

	if (used + 1 < sizeof(fake.calls))
		fake.calls[used] = call;
}

ssize_t __real_write(int fd, const void *buf, size_t len_bytes);
ssize_t __wrap_write(int fd, const void *buf, size_t len_bytes);
int __real_fsync(int fd);
int __wrap_fsync(int fd);
int __real_rename(const char *from, const char *to);
int __wrap_rename(const char *from, const char *to);

ssize_t __wrap_write(int fd, const void *buf, size_t len_bytes)
{
	if (fake.write_errno != 0 && fake.write_after-- == 0) {
		errno = fake.write_errno;
		fake.write_errno = 0;
		return -1;
	}
	if (fake.write_max != 0 && len_bytes > fake.write_max)
		len_bytes = fake.write_max;
	return __real_write(fd, buf, len_bytes);
}

int __wrap_fsync(int fd)
{
	struct stat status;

	if (fstat(fd, &status) < 0)
		abort();
	note(S_ISDIR(status.st_mode) ? 'd' : status.st_size > 0 ? 'f' : 'e');
	if (++fake.fsyncs == fake.fsync_fail) {
		errno = fake.fsync_errno;
		return -1;
	}
	return __real_fsync(fd);
}

int __wrap_rename(const char *from, const char *to)
{
	note('r');
	if (fake.rename_errno != 0) {
		errno = fake.rename_errno;
		return -1;
	}
	return __real_rename(from, to);
}

struct place {
	char folder[64];
	char path[96];
	char path_new[104];
	char error[SCHEMA_ERROR_MAX];
	struct schema_context context;
};

static void place_make(struct place *place)
{
	memset(&fake, 0, sizeof(fake));
	memset(place, 0, sizeof(*place));
	strcpy(place->folder, "/tmp/test_json_file.XXXXXX");
	if (!mkdtemp(place->folder))
		abort();
	snprintf(place->path, sizeof(place->path), "%s/file", place->folder);
	snprintf(place->path_new, sizeof(place->path_new), "%s.new", place->path);
	place->context = (struct schema_context){.file = place->path, .error = place->error};
}

/* Is there nothing in the folder but the file? */
static bool place_remove(const struct place *place)
{
	(void)unlink(place->path);
	return rmdir(place->folder) == 0;
}

static void put(const char *path, const char *text, mode_t mode)
{
	int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, mode);

	if (fd < 0 || __real_write(fd, text, strlen(text)) != (ssize_t)strlen(text) ||
	    fchmod(fd, mode) < 0 || close(fd) < 0)
		abort();
}

/* The error without the path in front. */
static const char *error_of(const struct place *place)
{
	const char *file = place->context.file;
	size_t len = strlen(file);

	return strncmp(place->error, file, len) != 0 ? "another file" : place->error + len;
}

static int write_number(const struct place *place, int number)
{
	json_t *root = json_pack("{s:i}", "n", number);
	int r;

	if (!root)
		abort();
	r = json_file_write(&place->context, root);
	json_decref(root);
	return r;
}

/* The number in the file; -1 if it cannot be read. */
static int read_number(const struct place *place)
{
	json_t *root;
	int number = -1;

	if (json_file_read_own(&place->context, "1KiB", &root) < 0)
		return -1;
	if (json_unpack(root, "{s:i!}", "n", &number) < 0)
		number = -1;
	json_decref(root);
	return number;
}

TEST(json_file_write__new_and_again)
{
	struct place place;
	struct stat status;

	place_make(&place);
	CHECK_INT(write_number(&place, 1), 0);
	CHECK_INT(read_number(&place), 1);
	/* What others may do with the old file does not matter to the new one. */
	CHECK_INT(chmod(place.path, 0666), 0);
	CHECK_INT(write_number(&place, 2), 0);
	CHECK_INT(read_number(&place), 2);
	CHECK_INT(stat(place.path, &status), 0);
	CHECK_INT(status.st_mode & 07777, 0600);
	CHECK_STR(place.error, "");
	CHECK(place_remove(&place));
}

/* The content is on the disk before the name is, and the name when the call returns. */
TEST(json_file_write__order)
{
	struct place place;

	place_make(&place);
	CHECK_INT(write_number(&place, 1), 0);
	CHECK_STR(fake.calls, "frd");
	CHECK(place_remove(&place));
}

TEST(json_file_write__short_and_interrupted_writes)
{
	struct place place;

	place_make(&place);
	fake.write_max = 1;
	fake.write_errno = EINTR;
	fake.write_after = 3;
	CHECK_INT(write_number(&place, 12345), 0);
	CHECK_INT(fake.write_errno, 0);
	CHECK_INT(read_number(&place), 12345);
	CHECK(place_remove(&place));
}

static void check_kept(struct place *place, int r, const char *error)
{
	CHECK_INT(write_number(place, 2), r);
	CHECK_STR(error_of(place), error);
	CHECK_INT(read_number(place), 1);
	CHECK(access(place->path_new, F_OK) < 0 && errno == ENOENT);
	/* Nothing stands in the way of the next. */
	memset(&fake, 0, sizeof(fake));
	CHECK_INT(write_number(place, 1), 0);
	memset(&fake, 0, sizeof(fake));
}

TEST(json_file_write__failure_keeps_old)
{
	struct place place;

	place_make(&place);
	CHECK_INT(write_number(&place, 1), 0);
	memset(&fake, 0, sizeof(fake));
	fake.write_errno = ENOSPC;
	check_kept(&place, -ENOSPC, ": cannot be written: No space left on device");
	fake.write_errno = EIO;
	fake.write_max = 1;
	fake.write_after = 2;
	check_kept(&place, -EIO, ": cannot be written: Input/output error");
	fake.fsync_fail = 1;
	fake.fsync_errno = EIO;
	check_kept(&place, -EIO, ": cannot be written: Input/output error");
	fake.rename_errno = EACCES;
	check_kept(&place, -EACCES, ": cannot be replaced: Permission denied");
	CHECK(place_remove(&place));
}

TEST(json_file_write__folder_not_synced)
{
	struct place place;

	place_make(&place);
	CHECK_INT(write_number(&place, 1), 0);
	fake.fsync_fail = 3;
	fake.fsyncs = 1;
	fake.fsync_errno = EIO;
	/* Whoever reads it gets the new one, so it would be wrong to say that nothing is changed. */
	CHECK_INT(write_number(&place, 2), 0);
	CHECK_INT(read_number(&place), 2);
	CHECK(place_remove(&place));
}

/* What a crash has left, whatever it is that stands there, is not written through. */
TEST(json_file_write__left_over)
{
	struct place place;
	char victim[104];

	place_make(&place);
	put(place.path_new, "half", 0666);
	CHECK_INT(write_number(&place, 1), 0);
	CHECK_INT(read_number(&place), 1);
	snprintf(victim, sizeof(victim), "%s/victim", place.folder);
	put(victim, "{\"n\":7}", 0600);
	CHECK_INT(symlink(victim, place.path_new), 0);
	CHECK_INT(write_number(&place, 2), 0);
	CHECK_INT(read_number(&place), 2);
	place.context.file = victim;
	CHECK_INT(read_number(&place), 7);
	CHECK_INT(unlink(victim), 0);
	CHECK(place_remove(&place));
}

TEST(json_file_write__no_folder)
{
	struct place place;

	place_make(&place);
	CHECK(place_remove(&place));
	CHECK_INT(write_number(&place, 1), -ENOENT);
	CHECK_STR(error_of(&place), ": cannot be written: No such file or directory");
}

static void check_not_own(struct place *place, int r, const char *error)
{
	json_t *root;

	CHECK_INT(json_file_read_own(&place->context, "1KiB", &root), r);
	CHECK_STR(error_of(place), error);
}

TEST(json_file_read_own__whose)
{
	struct place place;
	char link[104];

	place_make(&place);
	check_not_own(&place, -ENOENT, ": cannot be opened: No such file or directory");
	put(place.path, "{\"n\":1}", 0644);
	CHECK_INT(read_number(&place), 1);
	put(place.path, "{\"n\":1}", 0620);
	check_not_own(&place, -EPERM, ": others than the daemon's user can write it");
	put(place.path, "{\"n\":1}", 0602);
	check_not_own(&place, -EPERM, ": others than the daemon's user can write it");
	put(place.path, "{\"n\":1}", 0600);
	snprintf(link, sizeof(link), "%s/link", place.folder);
	CHECK_INT(symlink(place.path, link), 0);
	place.context.file = link;
	check_not_own(&place, -EPERM, ": is a symbolic link");
	CHECK_INT(unlink(link), 0);
	/* Must not wait for somebody to write. */
	CHECK_INT(mkfifo(link, 0600), 0);
	check_not_own(&place, -EPERM, ": is not a regular file");
	CHECK_INT(unlink(link), 0);
	place.context.file = place.folder;
	check_not_own(&place, -EPERM, ": is not a regular file");
	CHECK(place_remove(&place));
}

TEST(json_file_read_own__foreign_owner)
{
	struct place place;

	if (geteuid() != 0)
		SKIP("only root can give a file away");
	place_make(&place);
	put(place.path, "{\"n\":1}", 0600);
	CHECK_INT(chown(place.path, 1, 1), 0);
	check_not_own(&place, -EPERM, ": others than the daemon's user can write it");
	CHECK(place_remove(&place));
}

TEST(json_file_read__limit)
{
	struct place place;
	char text[1026];
	json_t *root;

	place_make(&place);
	memset(text, ' ', sizeof(text));
	memcpy(text, "{}", 2);
	text[1024] = '\0';
	put(place.path, text, 0600);
	CHECK_INT(json_file_read(&place.context, "1KiB", &root), 0);
	json_decref(root);
	text[1024] = ' ';
	text[1025] = '\0';
	put(place.path, text, 0600);
	CHECK_INT(json_file_read(&place.context, "1KiB", &root), -EINVAL);
	CHECK_STR(error_of(&place), ": is too long; allowed: 1KiB");
	put(place.path, "{\"a\":1,\"a\":2}", 0600);
	CHECK_INT(json_file_read(&place.context, "1KiB", &root), -EINVAL);
	CHECK_STR(error_of(&place), ": line 1: duplicate object key near '\"a\"'");
	CHECK(place_remove(&place));
}
