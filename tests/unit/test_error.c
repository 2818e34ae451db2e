/* SPDX-License-Identifier: BSD-3-Clause */
/* The list of error codes: unique numbers, names and texts that may go over the wire. */
#include "proto/error.h"

#include <ctype.h>
#include <limits.h>
#include <string.h>

#include "proto/limits.h"
#include "tests/unit/test.h"

struct entry {
	const char *identifier;
	int number;
	const char *text;
};

static const struct entry entries[] = {
#define X(name, number, text) {#name, number, text},
	ERROR_LIST(X)
#undef X
};

#define ENTRIES (sizeof(entries) / sizeof(entries[0]))

TEST(error_list__numbers_unique)
{
	for (size_t i = 0; i < ENTRIES; i++) {
		for (size_t k = i + 1; k < ENTRIES; k++)
			CHECK(entries[i].number != entries[k].number);
	}
}

/* The numbers are on the wire: a moved one must fail here. */
TEST(error_list__numbers_fixed)
{
	CHECK_INT(ERROR_NONE, 0);
	CHECK_INT(ERROR_PROTOCOL, 1001);
	CHECK_INT(ERROR_SESSIONS_MAX, 1007);
	CHECK_INT(ERROR_TAKEN_OVER, 1008);
	CHECK_INT(ERROR_LENGTH_ZERO, 1010);
	CHECK_INT(ERROR_DEVICE, 1023);
	CHECK_INT(ERROR_PORT, 1024);
	CHECK_INT(ERROR_NO_LEASE, 1030);
	CHECK_INT(ERROR_EXPIRED, 1031);
	CHECK_INT(ERROR_REVOKED, 1032);
	CHECK_INT(ERROR_RELEASED, 1033);
	CHECK_INT(ERROR_SESSION_ENDED, 1034);
	CHECK_INT(ERROR_DRAINED, 1035);
	CHECK_INT(ERROR_ORPHANED, 1036);
	CHECK_INT(ERROR_MEMORY, 1037);
	CHECK_INT(ERROR_LANE, 1040);
	CHECK_INT(ERROR_SYSTEM, 1056);
	CHECK_INT(ERROR_QUOTA_BYTES, 1060);
	CHECK_INT(ERROR_QUOTA_LEASES, 1061);
	CHECK_INT(ERROR_QUOTA_WINDOWS, 1062);
	CHECK_INT(ERROR_QUOTA_SESSIONS, 1063);
	CHECK_INT(ERROR_QUOTA_LANES, 1064);
	CHECK_INT(ERROR_QUOTA_RATE, 1065);
	CHECK_INT(ERROR_QUOTA_LEASE_LENGTH, 1066);
	CHECK_INT(ERROR_QUOTA_TTL, 1067);
	CHECK_INT(ERROR_QUOTA_RIGHTS, 1068);
	CHECK_INT(ERROR_NO_TENANT, 1090);
	CHECK_INT(ERROR_TENANT_EXISTS, 1091);
	CHECK_INT(ERROR_KEY_USED, 1092);
	CHECK_INT(ERROR_NO_SESSION, 1093);
}

/* Linux's errno values end far below, so the negative of a code is never taken for one. */
TEST(error_list__numbers_above_errno)
{
	for (size_t i = 0; i < ENTRIES; i++)
		CHECK(entries[i].number > 1000);
}

TEST(error_name__follows_identifier)
{
	for (size_t i = 0; i < ENTRIES; i++) {
		char expected[64];
		size_t len_bytes = strlen(entries[i].identifier);

		CHECK(len_bytes < sizeof(expected));
		for (size_t k = 0; k <= len_bytes; k++) {
			char c = entries[i].identifier[k];

			expected[k] = c == '_' ? '-' : (char)tolower((unsigned char)c);
		}
		CHECK_STR(error_name(entries[i].number), expected);
		CHECK_STR(error_name(-entries[i].number), expected);
	}
}

TEST(error_name__unique)
{
	for (size_t i = 0; i < ENTRIES; i++) {
		for (size_t k = i + 1; k < ENTRIES; k++)
			CHECK(strcmp(error_name(entries[i].number),
				     error_name(entries[k].number)) != 0);
	}
}

TEST(error_text__as_listed)
{
	for (size_t i = 0; i < ENTRIES; i++) {
		CHECK_STR(error_text(entries[i].number), entries[i].text);
		CHECK_STR(error_text(-entries[i].number), entries[i].text);
	}
}

TEST(error_text__unique)
{
	for (size_t i = 0; i < ENTRIES; i++) {
		for (size_t k = i + 1; k < ENTRIES; k++)
			CHECK(strcmp(entries[i].text, entries[k].text) != 0);
	}
}

TEST(error_text__fits_error_message)
{
	for (size_t i = 0; i < ENTRIES; i++) {
		size_t len_bytes = strlen(entries[i].text);

		CHECK(len_bytes > 0 && len_bytes <= PROTO_TEXT_MAX);
		for (size_t k = 0; k < len_bytes; k++)
			CHECK(entries[i].text[k] >= 0x20 && entries[i].text[k] <= 0x7e);
	}
}

TEST(error_text__no_error)
{
	CHECK_STR(error_text(0), "no error");
	CHECK_STR(error_name(0), "none");
}

TEST(error_text__not_in_list)
{
	static const int numbers[] = {1,    -1,	  1000,	   1009,     1057,   -1057,
				      1059, 1069, INT_MAX, -INT_MAX, INT_MIN};

	for (size_t i = 0; i < sizeof(numbers) / sizeof(numbers[0]); i++) {
		CHECK_STR(error_text(numbers[i]), "an error whose number is not known here");
		CHECK_STR(error_name(numbers[i]), "unlisted");
	}
}
