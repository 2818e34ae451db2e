/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Tokens as text: the same comes back, and nothing but such a text is taken.
 */
#include "client/tools/token_file.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/unit/test.h"

#define SECRET "000102030405060708090a0b0c0d0eff"
#define TEXT   "mempool-lease-token:1:123456789abcdef0:" SECRET

static const struct mempool_lease_token token = {
	.version = 1,
	.lease_id = UINT64_C(0x123456789abcdef0),
	.secret = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 255},
};

static int parse(const char *text)
{
	struct mempool_lease_token got;

	return token_file_parse(text, strlen(text), &got);
}

TEST(token_file_format__has_all_of_it)
{
	char text[TOKEN_FILE_TEXT_MAX];

	CHECK_STR(token_file_format(&token, text), TEXT);
}

TEST(token_file_parse__gives_it_back)
{
	struct mempool_lease_token got;

	CHECK_INT(token_file_parse(TEXT, strlen(TEXT), &got), 0);
	CHECK_MEM(&got, &token, sizeof(token));
	memset(&got, 0, sizeof(got));
	CHECK_INT(token_file_parse(TEXT "\n", strlen(TEXT) + 1, &got), 0);
	CHECK_MEM(&got, &token, sizeof(token));
}

TEST(token_file_parse__the_largest_numbers)
{
	struct mempool_lease_token got = {
		.version = UINT32_MAX, .lease_id = UINT64_MAX, .secret = {255, 255}};
	char text[TOKEN_FILE_TEXT_MAX];

	memset(got.secret, 255, sizeof(got.secret));
	token_file_format(&got, text);
	CHECK(strlen(text) + 2 < TOKEN_FILE_TEXT_MAX);
	CHECK_INT(parse(text), 0);
	CHECK_INT(parse("mempool-lease-token:100000000:1:" SECRET), -EBADMSG);
	CHECK_INT(parse("mempool-lease-token:1:10000000000000000:" SECRET), -EBADMSG);
}

TEST(token_file_parse__refuses_all_else)
{
	static const char *const texts[] = {
		"",
		"\n",
		"mempool-lease-token:",
		"mempool-lease-token:1",
		"mempool-lease-token:1:",
		"mempool-lease-token:1:2",
		"mempool-lease-token:1:2:",
		"mempool-lease-token::2:" SECRET,
		"mempool-lease-token:1::" SECRET,
		"mempool-lease-token:1:-2:" SECRET,
		"mempool-lease-token:1:0x2:" SECRET,
		"mempool-lease-token:1:2:" SECRET "0",
		"mempool-lease-token:1:2:" SECRET " ",
		"mempool-lease-token:1:2:" SECRET "\n\n",
		"mempool-lease-token:1:2:00010203040506070809A0B0C0D0E0FF",
		"mempool-lease-token:1:2:000102030405060708090a0b0c0d0ef",
		" mempool-lease-token:1:2:" SECRET,
		"mempool-private-key:AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=",
	};

	for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
		if (parse(texts[i]) == 0)
			printf("# taken: %s\n", texts[i]);
		CHECK_INT(parse(texts[i]), -EBADMSG);
	}
}

TEST(token_file_parse__refuses_a_nul)
{
	char text[] = TEXT;
	struct mempool_lease_token got = {.lease_id = 7};

	text[strlen(TEXT) - 1] = '\0';
	CHECK_INT(token_file_parse(text, strlen(TEXT), &got), -EBADMSG);
	CHECK_INT(got.lease_id, 7);
}

TEST(token_file__is_for_its_owner_and_never_replaced)
{
	char dir[] = "/tmp/test-token.XXXXXX";
	char path[64];
	struct mempool_lease_token got;
	struct stat st;
	int fd;

	CHECK(mkdtemp(dir) != NULL);
	snprintf(path, sizeof(path), "%s/token", dir);
	CHECK_INT(token_file_load(path, &got), -ENOENT);
	fd = token_file_create(path);
	CHECK(fd >= 0);
	CHECK_INT(token_file_load(path, &got), -EBADMSG);
	CHECK_INT(token_file_write(fd, &token), 0);
	CHECK_INT(close(fd), 0);
	CHECK_INT(stat(path, &st), 0);
	CHECK_INT(st.st_mode & 0777, 0600);
	CHECK_INT(token_file_create(path), -EEXIST);
	CHECK_INT(token_file_load(path, &got), 0);
	CHECK_MEM(&got, &token, sizeof(token));
	CHECK_INT(unlink(path), 0);
	CHECK_INT(rmdir(dir), 0);
}
