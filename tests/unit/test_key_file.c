/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * common/key_file.c: every file and every text that is no key is refused by a code of its own
 * and a text that helps, and no text of an error has a part of a key in it.
 */
#include "common/key_file.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/unit/hex.h"
#include "tests/unit/test.h"

#define PRIVATE_HEX  "e61ef9919cde45dd5f82166404bd08e38bceb5dfdfded0a34c8df7ed542214d1"
#define PRIVATE_TEXT "5h75kZzeRd1fghZkBL0I44vOtd/f3tCjTI337VQiFNE="
#define PUBLIC_HEX   "6bc3822a2aa7f4e6981d6538692b3cdf3e6df9eea6ed269eb41d93c22757b75a"
#define PUBLIC_TEXT  "a8OCKiqn9OaYHWU4aSs83z5t+e6m7SaetB2TwidXt1o="
#define FILE_TEXT    KEY_FILE_PREFIX PRIVATE_TEXT

#define FILE_TEXT_BYTES (sizeof(FILE_TEXT) - 1)
#define FOREIGN_USER	65534

/* A folder with one file in it, made for a case and removed at its end. */
struct place {
	char folder[64];
	char path[96];
	char error[KEY_FILE_ERROR_MAX];
	struct secure_key_pair pair;
};

static void place_close(struct place *place)
{
	(void)chmod(place->folder, 0700);
	(void)unlink(place->path);
	(void)rmdir(place->path);
	if (rmdir(place->folder) < 0)
		test_fail(__FILE__, __LINE__, "something was left behind in the folder");
}

static void place_open(struct place *place)
{
	int r = secure_init();

	assert(r == 0);
	(void)r;
	memset(place, 0, sizeof(*place));
	snprintf(place->folder, sizeof(place->folder), "/tmp/test_key_file.XXXXXX");
	if (mkdtemp(place->folder) == NULL)
		abort();
	snprintf(place->path, sizeof(place->path), "%s/key", place->folder);
}

#define PLACE(name)                                                    \
	__attribute__((cleanup(place_close))) struct place name = {0}; \
	place_open(&name)

static bool put_file(const char *path, mode_t mode, const void *bytes, size_t len_bytes)
{
	int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
	bool is_put;

	if (fd < 0)
		return false;
	is_put = write(fd, bytes, len_bytes) == (ssize_t)len_bytes && fchmod(fd, mode) == 0;
	return close(fd) == 0 && is_put;
}

/* One printable line that names the path and what to do. */
static bool is_good_error(const struct place *place, const char *what)
{
	const char *error = place->error;

	if (strstr(error, what) == NULL || strstr(error, PRIVATE_TEXT) != NULL ||
	    strstr(error, "5h75kZ") != NULL || strlen(error) >= KEY_FILE_ERROR_MAX - 1) {
		printf("# error text: %s\n", error);
		return false;
	}
	for (const char *c = error; *c != '\0'; c++) {
		if (*c < 0x20 || *c > 0x7e)
			return false;
	}
	return true;
}

/* Loads what must be refused: nothing may come out. */
static int load_refused(struct place *place)
{
	struct secure_key_pair before;
	int r;

	memset(&place->pair, 0xa5, sizeof(place->pair));
	before = place->pair;
	place->error[0] = '\0';
	r = key_file_load(place->path, &place->pair, place->error);
	if (r < 0 && memcmp(&before, &place->pair, sizeof(before)) != 0)
		return -ENOTRECOVERABLE;
	return r;
}

static int load_text(struct place *place, const void *bytes, size_t len_bytes)
{
	if (!put_file(place->path, 0600, bytes, len_bytes))
		return -EIO;
	return load_refused(place);
}

/* Making. */

TEST(key_file_create__is_what_key_file_load_reads)
{
	struct secure_key_pair loaded;
	struct stat status;
	char text[128], expected[128];
	ssize_t len_bytes;
	int fd;
	PLACE(place);

	snprintf(place.error, sizeof(place.error), "untouched");
	CHECK_INT(key_file_create(place.path, &place.pair, place.error), 0);
	CHECK_INT(key_file_load(place.path, &loaded, place.error), 0);
	CHECK_STR(place.error, "untouched");
	CHECK_MEM(&loaded, &place.pair, sizeof(loaded));
	CHECK(!secure_is_zero(loaded.private_key, sizeof(loaded.private_key)));
	CHECK_INT(stat(place.path, &status), 0);
	CHECK_INT(status.st_mode, S_IFREG | 0600);
	fd = open(place.path, O_RDONLY | O_CLOEXEC);
	len_bytes = read(fd, text, sizeof(text));
	CHECK_INT(close(fd), 0);
	CHECK_INT(len_bytes, 65);
	memcpy(expected, "mempool-private-key:", 20);
	secure_key_encode(loaded.private_key, expected + 20);
	expected[64] = '\n';
	CHECK_MEM(text, expected, 65);
}

TEST(key_file_create__mode_does_not_depend_on_the_umask)
{
	static const mode_t masks[] = {0, 0022, 0077, 0777};

	for (size_t i = 0; i < sizeof(masks) / sizeof(masks[0]); i++) {
		struct stat status;
		mode_t old_mask;
		int r;
		PLACE(place);

		old_mask = umask(masks[i]);
		r = key_file_create(place.path, &place.pair, place.error);
		umask(old_mask);
		CHECK_INT(r, 0);
		CHECK_INT(stat(place.path, &status), 0);
		CHECK_INT(status.st_mode, S_IFREG | 0600);
	}
}

TEST(key_file_create__relative_path)
{
	char *old_folder = getcwd(NULL, 0);
	int r;
	PLACE(place);

	CHECK(old_folder != NULL && chdir(place.folder) == 0);
	r = key_file_create("key", &place.pair, place.error);
	CHECK_INT(chdir(old_folder), 0);
	free(old_folder);
	CHECK_INT(r, 0);
	CHECK_INT(access(place.path, F_OK), 0);
}

TEST(key_file_create__two_differ)
{
	struct secure_key_pair first;
	PLACE(place);

	CHECK_INT(key_file_create(place.path, &first, place.error), 0);
	CHECK_INT(unlink(place.path), 0);
	CHECK_INT(key_file_create(place.path, &place.pair, place.error), 0);
	CHECK(memcmp(&first, &place.pair, sizeof(first)) != 0);
}

TEST(key_file_create__never_writes_over_a_file)
{
	struct secure_key_pair untouched;
	char text[8];
	int fd;
	PLACE(place);

	memset(&place.pair, 0xa5, sizeof(place.pair));
	untouched = place.pair;
	CHECK(put_file(place.path, 0644, "old", 3));
	CHECK_INT(key_file_create(place.path, &place.pair, place.error), -EEXIST);
	CHECK(is_good_error(&place, "choose another name"));
	CHECK(is_good_error(&place, place.path));
	CHECK_MEM(&place.pair, &untouched, sizeof(untouched));
	fd = open(place.path, O_RDONLY | O_CLOEXEC);
	CHECK_INT(read(fd, text, sizeof(text)), 3);
	CHECK_INT(close(fd), 0);
	CHECK_MEM(text, "old", 3);
}

TEST(key_file_create__follows_no_link)
{
	char target[128];
	PLACE(place);

	snprintf(target, sizeof(target), "%s/target", place.folder);
	CHECK_INT(symlink(target, place.path), 0);
	CHECK_INT(key_file_create(place.path, &place.pair, place.error), -EEXIST);
	CHECK_INT(access(target, F_OK), -1);
}

TEST(key_file_create__folder_in_the_way_or_missing)
{
	char path[128];
	PLACE(place);

	CHECK_INT(mkdir(place.path, 0700), 0);
	CHECK_INT(key_file_create(place.path, &place.pair, place.error), -EEXIST);
	snprintf(path, sizeof(path), "%s/none/key", place.folder);
	CHECK_INT(key_file_create(path, &place.pair, place.error), -ENOENT);
	CHECK(is_good_error(&place, "cannot be created"));
	CHECK_INT(key_file_create("", &place.pair, place.error), -ENOENT);
}

/* The disk is full in the midst of the line. */
TEST(key_file_create__leaves_no_half_of_a_file)
{
	struct rlimit old_limit, limit;
	struct secure_key_pair untouched;
	int r;
	PLACE(place);

	memset(&place.pair, 0xa5, sizeof(place.pair));
	untouched = place.pair;
	CHECK_INT(getrlimit(RLIMIT_FSIZE, &old_limit), 0);
	limit = (struct rlimit){10, old_limit.rlim_max};
	signal(SIGXFSZ, SIG_IGN);
	CHECK_INT(setrlimit(RLIMIT_FSIZE, &limit), 0);
	r = key_file_create(place.path, &place.pair, place.error);
	CHECK_INT(setrlimit(RLIMIT_FSIZE, &old_limit), 0);
	signal(SIGXFSZ, SIG_DFL);
	CHECK_INT(r, -EFBIG);
	CHECK(is_good_error(&place, "cannot be written"));
	CHECK_INT(access(place.path, F_OK), -1);
	CHECK_MEM(&place.pair, &untouched, sizeof(untouched));
}

/* Reading. */

TEST(key_file_load__known_key_with_and_without_newline)
{
	uint8_t private_key[SECURE_KEY_BYTES], public_key[SECURE_KEY_BYTES];
	PLACE(place);

	hex(PRIVATE_HEX, private_key, sizeof(private_key));
	hex(PUBLIC_HEX, public_key, sizeof(public_key));
	for (size_t newlines = 0; newlines < 2; newlines++) {
		CHECK_INT(load_text(&place, FILE_TEXT "\n", FILE_TEXT_BYTES + newlines), 0);
		CHECK_MEM(place.pair.private_key, private_key, sizeof(private_key));
		CHECK_MEM(place.pair.public_key, public_key, sizeof(public_key));
	}
	CHECK_INT(FILE_TEXT_BYTES, 64);
}

TEST(key_file_load__modes)
{
	static const struct {
		mode_t mode;
		int result;
	} cases[] = {
		{0600, 0},	 {0400, 0},	  {0700, 0},	   {0500, 0},	    {0640, -EACCES},
		{0620, -EACCES}, {0610, -EACCES}, {0604, -EACCES}, {0602, -EACCES}, {0601, -EACCES},
		{0644, -EACCES}, {0440, -EACCES}, {0666, -EACCES}, {0777, -EACCES}, {0660, -EACCES},
	};
	PLACE(place);

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		char expected[16];

		CHECK(put_file(place.path, cases[i].mode, FILE_TEXT "\n", FILE_TEXT_BYTES + 1));
		CHECK_INT(load_refused(&place), cases[i].result);
		snprintf(expected, sizeof(expected), "%04o", (unsigned int)cases[i].mode);
		if (cases[i].result != 0) {
			CHECK(is_good_error(&place, expected));
			CHECK(is_good_error(&place, "chmod 600"));
			CHECK(is_good_error(&place, place.path));
		}
		CHECK_INT(unlink(place.path), 0);
	}
}

TEST(key_file_load__file_of_another_user)
{
	PLACE(place);

	if (geteuid() != 0)
		SKIP("only root can give files away");
	CHECK(put_file(place.path, 0600, FILE_TEXT, FILE_TEXT_BYTES));
	CHECK_INT(chown(place.path, FOREIGN_USER, (gid_t)-1), 0);
	CHECK_INT(load_refused(&place), -EPERM);
	CHECK(is_good_error(&place, "belongs to user 65534"));
	CHECK(is_good_error(&place, "chown"));
}

/* What key_file_load() returns to a user who is not root. */
static int load_as_foreign_user(struct place *place)
{
	int status;
	pid_t child = fork();

	if (child == 0) {
		if (setuid(FOREIGN_USER) < 0)
			_exit(255);
		_exit(-load_refused(place));
	}
	if (child < 0 || waitpid(child, &status, 0) != child || !WIFEXITED(status))
		return -EIO;
	return -WEXITSTATUS(status);
}

TEST(key_file_load__as_a_user_without_rights)
{
	PLACE(place);

	if (geteuid() != 0)
		SKIP("only root can become another user");
	CHECK_INT(chmod(place.folder, 0755), 0);
	CHECK(put_file(place.path, 0600, FILE_TEXT, FILE_TEXT_BYTES));
	CHECK_INT(load_as_foreign_user(&place), -EACCES);
	CHECK_INT(chown(place.path, FOREIGN_USER, (gid_t)-1), 0);
	CHECK_INT(load_as_foreign_user(&place), 0);
	CHECK_INT(chown(place.path, FOREIGN_USER - 1, (gid_t)-1), 0);
	CHECK_INT(load_as_foreign_user(&place), -EACCES);
}

TEST(key_file_load__missing)
{
	PLACE(place);

	CHECK_INT(load_refused(&place), -ENOENT);
	CHECK(is_good_error(&place, "mempoolctl keygen"));
	CHECK(is_good_error(&place, place.path));
}

TEST(key_file_load__symbolic_link)
{
	char target[128];
	int r;
	PLACE(place);

	/* To a good file, to nothing, to itself. */
	snprintf(target, sizeof(target), "%s/target", place.folder);
	CHECK(put_file(target, 0600, FILE_TEXT, FILE_TEXT_BYTES));
	CHECK_INT(symlink(target, place.path), 0);
	r = load_refused(&place);
	CHECK_INT(unlink(target), 0);
	CHECK_INT(r, -ELOOP);
	CHECK(is_good_error(&place, "symbolic link"));
	CHECK_INT(load_refused(&place), -ELOOP);
	CHECK_INT(unlink(place.path), 0);
	CHECK_INT(symlink("key", place.path), 0);
	CHECK_INT(load_refused(&place), -ELOOP);
}

TEST(key_file_load__fifo_does_not_block)
{
	PLACE(place);

	CHECK_INT(mkfifo(place.path, 0600), 0);
	alarm(10);
	CHECK_INT(load_refused(&place), -ENOTSUP);
	alarm(0);
	CHECK(is_good_error(&place, "not a regular file"));
}

TEST(key_file_load__folder)
{
	PLACE(place);

	CHECK_INT(mkdir(place.path, 0700), 0);
	CHECK_INT(load_refused(&place), -ENOTSUP);
	CHECK(is_good_error(&place, "not a regular file"));
}

TEST(key_file_load__socket)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	int fd;
	PLACE(place);

	fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	CHECK(fd >= 0);
	memcpy(address.sun_path, place.path, strlen(place.path) + 1);
	CHECK_INT(bind(fd, (struct sockaddr *)&address, sizeof(address)), 0);
	CHECK_INT(load_refused(&place), -ENOTSUP);
	CHECK(is_good_error(&place, "not a regular file"));
	CHECK_INT(close(fd), 0);
}

TEST(key_file_load__device)
{
	PLACE(place);

	CHECK_INT(key_file_load("/dev/zero", &place.pair, place.error), -ENOTSUP);
	CHECK_INT(key_file_load("/dev/null", &place.pair, place.error), -ENOTSUP);
}

TEST(key_file_load__each_length)
{
	char text[FILE_TEXT_BYTES + 8];
	PLACE(place);

	for (size_t len = 0; len < FILE_TEXT_BYTES; len++) {
		CHECK_INT(load_text(&place, FILE_TEXT, len), -ENODATA);
		CHECK(is_good_error(&place, "too short"));
		CHECK(is_good_error(&place, "mempoolctl keygen"));
		/* A newline does not make up for a missing byte. */
		memcpy(text, FILE_TEXT, len);
		text[len] = '\n';
		CHECK_INT(load_text(&place, text, len + 1), -ENODATA);
	}
}

TEST(key_file_load__more_behind_the_key)
{
	static const char *const tails[] = {"\n\n", "\r\n", " ", " \n", "=", "A", "\nx", "x\n"};
	char text[FILE_TEXT_BYTES + 8];
	PLACE(place);

	for (size_t i = 0; i < sizeof(tails) / sizeof(tails[0]); i++) {
		int len = snprintf(text, sizeof(text), "%s%s", FILE_TEXT, tails[i]);

		CHECK_INT(load_text(&place, text, (size_t)len), -EFBIG);
		CHECK(is_good_error(&place, "too long"));
	}
	CHECK_INT(load_text(&place, FILE_TEXT "\0", FILE_TEXT_BYTES + 1), -EFBIG);
	CHECK_INT(load_text(&place, FILE_TEXT "\n\0", FILE_TEXT_BYTES + 2), -EFBIG);
}

TEST(key_file_load__huge)
{
	PLACE(place);

	CHECK(put_file(place.path, 0600, FILE_TEXT, FILE_TEXT_BYTES));
	CHECK_INT(truncate(place.path, (off_t)1 << 33), 0);
	CHECK_INT(load_refused(&place), -EFBIG);
}

/* In every place a byte that does not belong there: NUL, newline, the next one. */
TEST(key_file_load__each_byte_wrong)
{
	static const char wrong[] = {'\0', '\n', ' ', '\x80', '-'};
	char text[FILE_TEXT_BYTES];
	PLACE(place);

	for (size_t i = 0; i < FILE_TEXT_BYTES; i++) {
		for (size_t w = 0; w < sizeof(wrong); w++) {
			bool is_end = i == FILE_TEXT_BYTES - 1 && wrong[w] == '\n';

			memcpy(text, FILE_TEXT, sizeof(text));
			if (text[i] == wrong[w])
				continue;
			text[i] = wrong[w];
			CHECK_INT(load_text(&place, text, sizeof(text)),
				  is_end ? -ENODATA : -EBADMSG);
			CHECK(is_good_error(&place, place.path));
		}
	}
}

TEST(key_file_load__not_a_private_key)
{
	static const char *const texts[] = {
		/* Bits behind the last byte that are not 0, another alphabet, other prefixes. */
		KEY_FILE_PREFIX "5h75kZzeRd1fghZkBL0I44vOtd/f3tCjTI337VQiFNF=",
		KEY_FILE_PREFIX "5h75kZzeRd1fghZkBL0I44vOtd_f3tCjTI337VQiFNE=",
		KEY_FILE_PREFIX "5h75kZzeRd1fghZkBL0I44vOtd/f3tCjTI337VQiFN==",
		KEY_FILE_PREFIX "5h75kZzeRd1fghZkBL0I44vOtd/f3tCjTI337VQiFNEA",
		"mempool-public--key:" PRIVATE_TEXT,
		"Mempool-private-key:" PRIVATE_TEXT,
		"mempool-private-key " PRIVATE_TEXT,
	};
	PLACE(place);

	for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
		CHECK_INT(strlen(texts[i]), FILE_TEXT_BYTES);
		CHECK_INT(load_text(&place, texts[i], FILE_TEXT_BYTES), -EBADMSG);
		CHECK(is_good_error(&place, "not a private key file"));
	}
	CHECK_INT(load_text(&place, PUBLIC_TEXT "\n", 45), -ENODATA);
}

TEST(key_file_load__zero)
{
	static const char zero[] = KEY_FILE_PREFIX "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=\n";
	PLACE(place);

	CHECK_INT(load_text(&place, zero, FILE_TEXT_BYTES + 1), -EKEYREJECTED);
	CHECK(is_good_error(&place, "zero"));
}

TEST(key_file_load__path_cannot_forge_lines)
{
	char error[KEY_FILE_ERROR_MAX], path[2000];
	struct secure_key_pair pair;

	CHECK_INT(key_file_load("/none\nforged: \x1b[31m", &pair, error), -ENOENT);
	CHECK(strstr(error, "/none\\x0aforged") == error);
	CHECK(strchr(error, '\n') == NULL && strchr(error, '\x1b') == NULL);
	/* A long one leaves room for what to do. */
	memset(path, 'x', sizeof(path));
	path[0] = '/';
	path[sizeof(path) - 1] = '\0';
	CHECK_INT(key_file_load(path, &pair, error), -ENAMETOOLONG);
	CHECK(strstr(error, "cannot be opened: File name too long") != NULL);
}

/* Public keys. */

static int parse(const char *text, size_t len_bytes, uint8_t ret_public[SECURE_KEY_BYTES],
		 char *error)
{
	int r;

	memset(ret_public, 0xa5, SECURE_KEY_BYTES);
	error[0] = '\0';
	r = key_file_parse_public(text, len_bytes, ret_public, error);
	for (size_t i = 0; r < 0 && i < SECURE_KEY_BYTES; i++) {
		if (ret_public[i] != 0xa5)
			return -ENOTRECOVERABLE;
	}
	/* A text if and only if there is an error. */
	return (error[0] != '\0') == (r < 0) ? r : -ENOTRECOVERABLE;
}

TEST(key_file_parse_public__and_print)
{
	uint8_t expected[SECURE_KEY_BYTES], public_key[SECURE_KEY_BYTES];
	char error[KEY_FILE_ERROR_MAX], text[KEY_FILE_PUBLIC_TEXT];

	hex(PUBLIC_HEX, expected, sizeof(expected));
	CHECK_INT(parse(PUBLIC_TEXT, 44, public_key, error), 0);
	CHECK_MEM(public_key, expected, sizeof(expected));
	CHECK_INT(parse(PUBLIC_TEXT "\n", 45, public_key, error), 0);
	CHECK_MEM(public_key, expected, sizeof(expected));
	CHECK(key_file_print_public(public_key, text) == text);
	CHECK_STR(text, PUBLIC_TEXT);
}

TEST(key_file_parse_public__each_length)
{
	uint8_t public_key[SECURE_KEY_BYTES];
	char error[KEY_FILE_ERROR_MAX];

	for (size_t len = 0; len < 44; len++) {
		CHECK_INT(parse(PUBLIC_TEXT, len, public_key, error), -ENODATA);
		CHECK(strstr(error, "too short") != NULL);
	}
	CHECK_INT(parse(PUBLIC_TEXT "\0", 45, public_key, error), -EFBIG);
	CHECK_INT(parse(PUBLIC_TEXT " ", 45, public_key, error), -EFBIG);
	CHECK_INT(parse(PUBLIC_TEXT "\n\n", 46, public_key, error), -EFBIG);
	CHECK(strstr(error, "too long") != NULL);
	CHECK_INT(parse(" " PUBLIC_TEXT, 45, public_key, error), -EFBIG);
	CHECK_INT(parse(NULL, 0, public_key, error), -ENODATA);
}

TEST(key_file_parse_public__each_byte_wrong)
{
	static const char wrong[] = {'\0', '\n', ' ', '\x80', '-', '_', '.'};
	uint8_t public_key[SECURE_KEY_BYTES];
	char error[KEY_FILE_ERROR_MAX], text[44];

	for (size_t i = 0; i < sizeof(text); i++) {
		for (size_t w = 0; w < sizeof(wrong); w++) {
			bool is_end = i == sizeof(text) - 1 && wrong[w] == '\n';

			memcpy(text, PUBLIC_TEXT, sizeof(text));
			text[i] = wrong[w];
			CHECK_INT(parse(text, sizeof(text), public_key, error),
				  is_end ? -ENODATA : -EBADMSG);
		}
	}
	/* The same bytes spelled otherwise. */
	CHECK_INT(parse("a8OCKiqn9OaYHWU4aSs83z5t+e6m7SaetB2TwidXt1p=", 44, public_key, error),
		  -EBADMSG);
	CHECK(strstr(error, "mempoolctl keygen") != NULL);
}

TEST(key_file_parse_public__keys_that_nobody_may_use)
{
	static const char *const points[] = {
		"0000000000000000000000000000000000000000000000000000000000000000",
		"0100000000000000000000000000000000000000000000000000000000000000",
		"e0eb7a7c3b41b8ae1656e3faf19fc46ada098deb9c32b1fd866205165f49b800",
		"5f9c95bca3508c24b1d0b1559c83ef5b04445cc4581c8e86d8224eddd09f1157",
		"ecffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f",
		"edffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f",
		"eeffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f",
		"0000000000000000000000000000000000000000000000000000000000000080",
		/* A good one, but with the bit that X25519 ignores. */
		"6bc3822a2aa7f4e6981d6538692b3cdf3e6df9eea6ed269eb41d93c22757b7da",
	};
	uint8_t public_key[SECURE_KEY_BYTES];
	char error[KEY_FILE_ERROR_MAX], text[KEY_FILE_PUBLIC_TEXT];

	CHECK_INT(secure_init(), 0);
	for (size_t i = 0; i < sizeof(points) / sizeof(points[0]); i++) {
		hex(points[i], public_key, sizeof(public_key));
		key_file_print_public(public_key, text);
		CHECK_INT(parse(text, 44, public_key, error), -EKEYREJECTED);
		CHECK(strstr(error, "not a usable public key") != NULL);
	}
}

/* Somebody who gives away the wrong one is told so, and the key is not repeated. */
TEST(key_file_parse_public__private_key)
{
	uint8_t public_key[SECURE_KEY_BYTES];
	char error[KEY_FILE_ERROR_MAX];

	CHECK_INT(parse(FILE_TEXT, FILE_TEXT_BYTES, public_key, error), -EBADMSG);
	CHECK(strstr(error, "this is a private key") != NULL);
	CHECK(strstr(error, "5h75") == NULL);
	CHECK_INT(parse(KEY_FILE_PREFIX, 20, public_key, error), -EBADMSG);
	CHECK_INT(parse(KEY_FILE_PREFIX, 19, public_key, error), -ENODATA);
}
