/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Keys at rest: private ones in files that nobody else can read, public ones as text that
 * people copy.
 *
 * A file is opened once and judged by what was opened, so that it cannot be exchanged in
 * between. Buffers that held a private key are wiped. No state; any thread.
 */
#include "common/key_file.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/text.h"

#define PATH_TEXT_MAX	  128
#define PREFIX_LENGTH	  (sizeof(KEY_FILE_PREFIX) - 1)
#define FILE_TEXT_LENGTH  (PREFIX_LENGTH + SECURE_KEY_TEXT_LENGTH)
#define FILE_LENGTH	  (FILE_TEXT_LENGTH + 1) /* with its newline */
#define OTHERS		  (S_IRWXG | S_IRWXO)
#define PRIVATE_KEY_MODE  (S_IRUSR | S_IWUSR)
#define PUBLIC_UNUSED_BIT 0x80 /* of the last byte: X25519 ignores it, so a key has a second form */

static __attribute__((format(printf, 4, 5))) int refuse(char *error, const char *path, int code,
							const char *format, ...)
{
	char shown[PATH_TEXT_MAX], what[KEY_FILE_ERROR_MAX - PATH_TEXT_MAX - 8];
	va_list args;

	va_start(args, format);
	vsnprintf(what, sizeof(what), format, args);
	va_end(args);
	text_escape(path, shown, sizeof(shown));
	snprintf(error, KEY_FILE_ERROR_MAX, "%s: %s", shown, what);
	return code;
}

/* Making a file. */

static void print_private(const struct secure_key_pair *pair, char text[FILE_LENGTH])
{
	memcpy(text, KEY_FILE_PREFIX, PREFIX_LENGTH);
	secure_key_encode(pair->private_key, text + PREFIX_LENGTH);
	text[FILE_TEXT_LENGTH] = '\n';
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

static int write_private(int fd, const struct secure_key_pair *pair)
{
	char text[FILE_LENGTH];
	int r;

	/* The mode that open() was given went through the umask. */
	if (fchmod(fd, PRIVATE_KEY_MODE) < 0)
		return -errno;
	print_private(pair, text);
	r = write_all(fd, text, sizeof(text));
	secure_wipe(text, sizeof(text));
	if (r < 0)
		return r;
	return fsync(fd) < 0 ? -errno : 0;
}

/* A file that is on the disk without its name is lost just the same. */
static int sync_folder_of(const char *path)
{
	const char *slash = strrchr(path, '/');
	char folder[PATH_MAX] = ".";
	size_t length;
	int fd, r;

	if (slash != NULL) {
		length = (size_t)(slash - path) + 1;
		if (length >= sizeof(folder))
			return -ENAMETOOLONG;
		memcpy(folder, path, length);
		folder[length] = '\0';
	}
	fd = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (fd < 0)
		return -errno;
	r = fsync(fd) < 0 ? -errno : 0;
	(void)close(fd);
	return r;
}

int key_file_create(const char *path, struct secure_key_pair *ret_pair, char *error)
{
	struct secure_key_pair pair;
	int fd, r;

	fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, PRIVATE_KEY_MODE);
	if (fd < 0 && errno == EEXIST)
		return refuse(
			error, path, -EEXIST,
			"exists and is left as it is; choose another name, or remove it first "
			"if its key is not needed any more");
	if (fd < 0) {
		r = -errno;
		return refuse(error, path, r, "cannot be created: %s", strerror(-r));
	}
	secure_key_pair_make(&pair);
	r = write_private(fd, &pair);
	(void)close(fd);
	if (r == 0)
		r = sync_folder_of(path);
	if (r < 0) {
		(void)unlink(path);
		(void)refuse(error, path, r, "cannot be written: %s", strerror(-r));
	} else {
		*ret_pair = pair;
	}
	secure_wipe(&pair, sizeof(pair));
	return r;
}

/* Reading one. */

static int refuse_open(char *error, const char *path, int code)
{
	if (code == -ENOENT)
		return refuse(error, path, code,
			      "does not exist; make a key with mempoolctl keygen --out FILE");
	if (code == -ELOOP)
		return refuse(error, path, code,
			      "is a symbolic link; give the path of the file itself");
	/* A socket, or a device without a driver. */
	if (code == -ENXIO)
		return refuse(error, path, -ENOTSUP, "is not a regular file; give the key file");
	return refuse(error, path, code, "cannot be opened: %s", strerror(-code));
}

static int check_file(int fd, const char *path, char *error)
{
	struct stat status;
	int r;

	if (fstat(fd, &status) < 0) {
		r = -errno;
		return refuse(error, path, r, "cannot be examined: %s", strerror(-r));
	}
	if (!S_ISREG(status.st_mode))
		return refuse(error, path, -ENOTSUP, "is not a regular file; give the key file");
	if (status.st_uid != geteuid() && status.st_uid != 0)
		return refuse(error, path, -EPERM,
			      "belongs to user %u; it must belong to user %u, who wants to use it, "
			      "or to root (chown)",
			      (unsigned int)status.st_uid, (unsigned int)geteuid());
	if ((status.st_mode & OTHERS) != 0)
		return refuse(error, path, -EACCES,
			      "has mode %04o, so that others can get at the key; chmod 600 it, and "
			      "make a new key if somebody may have read it",
			      (unsigned int)(status.st_mode & 07777));
	return 0;
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

/* How text of one line stands to the length it should have, its newline apart. */
static int check_length(const char *text, size_t len_bytes, size_t expected_bytes)
{
	if (len_bytes > 0 && text[len_bytes - 1] == '\n')
		len_bytes--;
	if (len_bytes < expected_bytes)
		return -ENODATA;
	return len_bytes > expected_bytes ? -EFBIG : 0;
}

static bool is_private_text(const char *text, size_t len_bytes)
{
	return len_bytes >= PREFIX_LENGTH && memcmp(text, KEY_FILE_PREFIX, PREFIX_LENGTH) == 0;
}

static int parse_private(const char *text, size_t len_bytes, uint8_t ret_private[SECURE_KEY_BYTES])
{
	int r;

	r = check_length(text, len_bytes, FILE_TEXT_LENGTH);
	if (r < 0)
		return r;
	if (!is_private_text(text, len_bytes))
		return -EBADMSG;
	r = secure_key_decode(text + PREFIX_LENGTH, ret_private);
	if (r < 0)
		return r;
	return secure_is_zero(ret_private, SECURE_KEY_BYTES) ? -EKEYREJECTED : 0;
}

static int refuse_private(char *error, const char *path, int code)
{
	const char *what = "is not a private key file";

	if (code == -ENODATA)
		what = "is too short for a private key file";
	else if (code == -EFBIG)
		what = "is too long for a private key file";
	else if (code == -EKEYREJECTED)
		what = "holds a key that is zero";
	return refuse(error, path, code,
		      "%s; take it from a backup, or remove it and make a new key with mempoolctl "
		      "keygen --out FILE",
		      what);
}

static int read_private(int fd, const char *path, uint8_t ret_private[SECURE_KEY_BYTES],
			char *error)
{
	char text[FILE_LENGTH + 1];
	size_t len_bytes = 0;
	int r;

	r = read_all(fd, text, sizeof(text), &len_bytes);
	if (r < 0) {
		(void)refuse(error, path, r, "cannot be read: %s", strerror(-r));
	} else {
		r = parse_private(text, len_bytes, ret_private);
		if (r < 0)
			(void)refuse_private(error, path, r);
	}
	secure_wipe(text, sizeof(text));
	return r;
}

int key_file_load(const char *path, struct secure_key_pair *ret_pair, char *error)
{
	uint8_t private_key[SECURE_KEY_BYTES];
	int fd, r;

	/* Without O_NONBLOCK a fifo would keep us until somebody writes to it. */
	fd = open(path, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
	if (fd < 0)
		return refuse_open(error, path, -errno);
	r = check_file(fd, path, error);
	if (r == 0)
		r = read_private(fd, path, private_key, error);
	if (r == 0)
		secure_key_pair_from_private(private_key, ret_pair);
	(void)close(fd);
	secure_wipe(private_key, sizeof(private_key));
	return r;
}

/* Public keys. */

static int parse_public(const char *text, size_t len_bytes, uint8_t ret_public[SECURE_KEY_BYTES])
{
	int r;

	if (is_private_text(text, len_bytes))
		return -EBADMSG;
	r = check_length(text, len_bytes, SECURE_KEY_TEXT_LENGTH);
	if (r < 0)
		return r;
	r = secure_key_decode(text, ret_public);
	if (r < 0)
		return r;
	if ((ret_public[SECURE_KEY_BYTES - 1] & PUBLIC_UNUSED_BIT) != 0)
		return -EKEYREJECTED;
	return secure_x25519_is_weak(ret_public) ? -EKEYREJECTED : 0;
}

static const char *public_remedy(const char *text, size_t len_bytes, int code)
{
	if (is_private_text(text, len_bytes))
		return "this is a private key; give the public key that mempoolctl keygen printed";
	if (code == -ENODATA)
		return "too short for a public key, which has 44 characters; copy all of it";
	if (code == -EFBIG)
		return "too long for a public key, which has 44 characters; copy nothing else";
	if (code == -EKEYREJECTED)
		return "not a usable public key; make a new one with mempoolctl keygen";
	return "not a public key; copy what mempoolctl keygen printed";
}

int key_file_parse_public(const char *text, size_t len_bytes, uint8_t ret_public[SECURE_KEY_BYTES],
			  char *error)
{
	uint8_t public_key[SECURE_KEY_BYTES];
	int r;

	r = parse_public(text, len_bytes, public_key);
	if (r < 0) {
		snprintf(error, KEY_FILE_ERROR_MAX, "%s", public_remedy(text, len_bytes, r));
		return r;
	}
	memcpy(ret_public, public_key, sizeof(public_key));
	return 0;
}

char *key_file_print_public(const uint8_t public_key[SECURE_KEY_BYTES],
			    char buf[KEY_FILE_PUBLIC_TEXT])
{
	secure_key_encode(public_key, buf);
	buf[SECURE_KEY_TEXT_LENGTH] = '\0';
	return buf;
}
