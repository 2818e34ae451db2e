/* SPDX-License-Identifier: BSD-3-Clause */
/* Cases of common/units.c and common/text.c: numbers and bytes as text, and back. */
#include "common/units.h"

#include <errno.h>
#include <string.h>

#include "common/text.h"
#include "tests/unit/test.h"

static void check_size(const char *text, int expected_r, uint64_t expected)
{
	uint64_t bytes = 77;

	CHECK_INT(units_parse_size(text, &bytes), expected_r);
	CHECK_INT(bytes, expected_r == 0 ? expected : 77);
}

static void check_duration(const char *text, int expected_r, uint64_t expected)
{
	uint64_t ms = 77;

	CHECK_INT(units_parse_duration(text, &ms), expected_r);
	CHECK_INT(ms, expected_r == 0 ? expected : 77);
}

TEST(units_parse_size__units)
{
	check_size("0", 0, 0);
	check_size("4096", 0, 4096);
	check_size("1B", 0, 1);
	check_size("1KiB", 0, 1024);
	check_size("16MiB", 0, 16777216);
	check_size("2GiB", 0, UINT64_C(2147483648));
	check_size("64TiB", 0, UINT64_C(70368744177664));
	check_size("007KiB", 0, 7168);
}

TEST(units_parse_size__boundary)
{
	check_size("18446744073709551615", 0, UINT64_MAX);
	check_size("18446744073709551616", -ERANGE, 0);
	check_size("18446744073709551620", -ERANGE, 0);
	check_size("16777215TiB", 0, UINT64_C(18446742974197923840));
	check_size("16777216TiB", -ERANGE, 0);
	check_size("99999999999999999999999999B", -ERANGE, 0);
}

TEST(units_parse_size__wrong_form)
{
	static const char *const wrong[] = {
		"",	 " ",	  "MiB",    "-1",    "+1",    " 1",
		"1 ",	 "1 MiB", "1.5GiB", "1kib",  "1KB",   "1K",
		"1MiBx", "0x10",  "1e3",    "1,000", "1MiB ", "99999999999999999999999999x"};

	for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++)
		check_size(wrong[i], -EINVAL, 0);
}

TEST(units_parse_duration__units)
{
	check_duration("0", 0, 0);
	check_duration("0s", 0, 0);
	check_duration("1ms", 0, 1);
	check_duration("5s", 0, 5000);
	check_duration("1min", 0, 60000);
	check_duration("2h", 0, 7200000);
	check_duration("30d", 0, UINT64_C(2592000000));
}

TEST(units_parse_duration__boundary)
{
	check_duration("18446744073709551615ms", 0, UINT64_MAX);
	check_duration("18446744073709551616ms", -ERANGE, 0);
	check_duration("18446744073709551s", 0, UINT64_C(18446744073709551000));
	check_duration("18446744073709552s", -ERANGE, 0);
	check_duration("213503982334d", 0, UINT64_C(18446744073657600000));
	check_duration("213503982335d", -ERANGE, 0);
}

TEST(units_parse_duration__wrong_form)
{
	static const char *const wrong[] = {"",	   "5",	 "00", "s",   "-5s",  "+5s", " 5s",
					    "5 s", "5S", "5m", "5us", "1.5s", "5s ", "1min30s"};

	for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++)
		check_duration(wrong[i], -EINVAL, 0);
}

TEST(units_format_size__exact)
{
	char buf[UNITS_TEXT_MAX];

	CHECK_STR(units_format_size(0, buf), "0 B");
	CHECK_STR(units_format_size(1023, buf), "1023 B");
	CHECK_STR(units_format_size(1024, buf), "1 KiB");
	CHECK_STR(units_format_size(UINT64_C(256) << 20, buf), "256 MiB");
	CHECK_STR(units_format_size(UINT64_C(3) << 29, buf), "1.5 GiB");
	CHECK_STR(units_format_size(UINT64_C(5) << 28, buf), "1.25 GiB");
	CHECK_STR(units_format_size(UINT64_C(64) << 40, buf), "64 TiB");
	CHECK_STR(units_format_size(UINT64_C(2048) << 40, buf), "2048 TiB");
}

TEST(units_format_size__rounds_down)
{
	char buf[UNITS_TEXT_MAX];

	CHECK_STR(units_format_size(1025, buf), "1.00 KiB");
	CHECK_STR(units_format_size(UINT64_C(1471026298), buf), "1.36 GiB");
	CHECK_STR(units_format_size(UINT64_C(1471026299), buf), "1.37 GiB");
	CHECK_STR(units_format_size((UINT64_C(1) << 20) - 1, buf), "1023.99 KiB");
	CHECK_STR(units_format_size(UINT64_MAX, buf), "16777215.99 TiB");
}

TEST(units_format_duration__each_form)
{
	char buf[UNITS_TEXT_MAX];

	CHECK_STR(units_format_duration(0, buf), "0 ms");
	CHECK_STR(units_format_duration(999, buf), "999 ms");
	CHECK_STR(units_format_duration(1000, buf), "1 s");
	CHECK_STR(units_format_duration(4299, buf), "4.2 s");
	CHECK_STR(units_format_duration(59999, buf), "59.9 s");
	CHECK_STR(units_format_duration(60000, buf), "1 min");
	CHECK_STR(units_format_duration(200999, buf), "3 min 20 s");
	CHECK_STR(units_format_duration(3599999, buf), "59 min 59 s");
	CHECK_STR(units_format_duration(3600000, buf), "1 h");
	CHECK_STR(units_format_duration(7559999, buf), "2 h 5 min");
	CHECK_STR(units_format_duration(86399999, buf), "23 h 59 min");
	CHECK_STR(units_format_duration(86400000, buf), "1 d");
	CHECK_STR(units_format_duration(356400000, buf), "4 d 3 h");
	CHECK_STR(units_format_duration(UINT64_MAX, buf), "213503982334 d 14 h");
}

TEST(text_escape__keeps_printable)
{
	char buf[64];

	CHECK_INT(text_escape("", buf, sizeof(buf)), 0);
	CHECK_STR(buf, "");
	CHECK_INT(text_escape("a b~!\"", buf, sizeof(buf)), 6);
	CHECK_STR(buf, "a b~!\"");
}

TEST(text_escape__escapes)
{
	char buf[64];

	CHECK_INT(text_escape("\x1b[2J\n\x7f\x9b\\", buf, sizeof(buf)), 21);
	CHECK_STR(buf, "\\x1b[2J\\x0a\\x7f\\x9b\\\\");
}

TEST(text_escape__cut)
{
	char buf[8];

	CHECK_INT(text_escape("1234567", buf, sizeof(buf)), 7);
	CHECK_STR(buf, "1234567");
	CHECK_INT(text_escape("12345678", buf, sizeof(buf)), 7);
	CHECK_STR(buf, "1234...");
	CHECK_INT(text_escape("12\n\n", buf, sizeof(buf)), 5);
	CHECK_STR(buf, "12...");
	CHECK_INT(text_escape("12345\n", buf, sizeof(buf)), 7);
	CHECK_STR(buf, "1234...");
	CHECK_INT(text_escape("\n\n", buf, sizeof(buf)), 7);
	CHECK_STR(buf, "\\x0a...");
	CHECK_INT(text_escape("abcd", buf, 4), 3);
	CHECK_STR(buf, "...");
	CHECK_INT(text_escape("abc", buf, 4), 3);
	CHECK_STR(buf, "abc");
}
