/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Sizes and durations as text. Parsing is strict, as it reads configuration and
 * options; formatting is for people and rounds down, so that free memory and time
 * left are never overstated. Pure code.
 */
#include "common/units.h"

#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "common/checked.h"

struct unit {
	const char *name;
	uint64_t factor;
};

/* Smallest first. */
static const struct unit size_units[] = {
	{"B", 1},
	{"KiB", UINT64_C(1) << 10},
	{"MiB", UINT64_C(1) << 20},
	{"GiB", UINT64_C(1) << 30},
	{"TiB", UINT64_C(1) << 40},
};

static const struct unit duration_units[] = {
	{"ms", 1},
	{"s", 1000},
	{"min", UINT64_C(60) * 1000},
	{"h", UINT64_C(60) * 60 * 1000},
	{"d", UINT64_C(24) * 60 * 60 * 1000},
};

#define UNIT_COUNT(units) (sizeof(units) / sizeof((units)[0]))

enum { DURATION_MS, DURATION_S }; /* places in duration_units */

static const struct unit *find_unit(const struct unit *units, size_t count, const char *name)
{
	for (size_t i = 0; i < count; i++) {
		if (!strcmp(units[i].name, name))
			return &units[i];
	}
	return NULL;
}

static size_t count_digits(const char *text)
{
	size_t digits = 0;

	while (isdigit((unsigned char)text[digits]))
		digits++;
	return digits;
}

static int parse_digits(const char *text, size_t digits, uint64_t *ret_value)
{
	uint64_t value = 0;

	for (size_t i = 0; i < digits; i++) {
		if (!checked_mul(value, 10, &value) ||
		    !checked_add(value, (uint64_t)(text[i] - '0'), &value))
			return -ERANGE;
	}
	*ret_value = value;
	return 0;
}

static int parse_scaled(const char *text, size_t digits, uint64_t factor, uint64_t *ret_value)
{
	uint64_t value, scaled;
	int r;

	r = parse_digits(text, digits, &value);
	if (r < 0)
		return r;
	if (!checked_mul(value, factor, &scaled))
		return -ERANGE;
	*ret_value = scaled;
	return 0;
}

int units_parse_size(const char *text, uint64_t *ret_bytes)
{
	size_t digits = count_digits(text);
	const struct unit *unit = &size_units[0];

	if (digits == 0)
		return -EINVAL;
	if (text[digits])
		unit = find_unit(size_units, UNIT_COUNT(size_units), text + digits);
	if (!unit)
		return -EINVAL;
	return parse_scaled(text, digits, unit->factor, ret_bytes);
}

int units_parse_duration(const char *text, uint64_t *ret_ms)
{
	size_t digits = count_digits(text);
	const struct unit *unit;

	if (digits == 0)
		return -EINVAL;
	if (!strcmp(text, "0")) {
		*ret_ms = 0;
		return 0;
	}
	unit = find_unit(duration_units, UNIT_COUNT(duration_units), text + digits);
	if (!unit)
		return -EINVAL;
	return parse_scaled(text, digits, unit->factor, ret_ms);
}

/* The largest unit of which there is at least one, else the smallest unit. */
static size_t largest_unit(const struct unit *units, size_t count, uint64_t value)
{
	size_t i = count - 1;

	while (i > 0 && value < units[i].factor)
		i--;
	return i;
}

char *units_format_size(uint64_t bytes, char *buf)
{
	size_t i = largest_unit(size_units, UNIT_COUNT(size_units), bytes);
	const struct unit *unit = &size_units[i];
	uint64_t whole = bytes / unit->factor;
	uint64_t rest = bytes % unit->factor;
	/* Below 100 * 2^40, so this cannot overflow. */
	uint64_t hundredths = rest * 100 / unit->factor;
	bool is_exact = rest * 100 % unit->factor == 0;

	if (rest == 0)
		snprintf(buf, UNITS_TEXT_MAX, "%" PRIu64 " %s", whole, unit->name);
	else if (is_exact && hundredths % 10 == 0)
		snprintf(buf, UNITS_TEXT_MAX, "%" PRIu64 ".%" PRIu64 " %s", whole, hundredths / 10,
			 unit->name);
	else
		snprintf(buf, UNITS_TEXT_MAX, "%" PRIu64 ".%02" PRIu64 " %s", whole, hundredths,
			 unit->name);
	return buf;
}

static void format_seconds(uint64_t ms, char *buf)
{
	uint64_t tenths = ms % 1000 / 100;

	if (tenths == 0)
		snprintf(buf, UNITS_TEXT_MAX, "%" PRIu64 " s", ms / 1000);
	else
		snprintf(buf, UNITS_TEXT_MAX, "%" PRIu64 ".%" PRIu64 " s", ms / 1000, tenths);
}

char *units_format_duration(uint64_t ms, char *buf)
{
	size_t i = largest_unit(duration_units, UNIT_COUNT(duration_units), ms);
	const struct unit *unit = &duration_units[i];
	uint64_t whole = ms / unit->factor;
	uint64_t part;

	if (i == DURATION_MS) {
		snprintf(buf, UNITS_TEXT_MAX, "%" PRIu64 " ms", ms);
		return buf;
	}
	if (i == DURATION_S) {
		format_seconds(ms, buf);
		return buf;
	}
	part = ms % unit->factor / duration_units[i - 1].factor;
	if (part == 0)
		snprintf(buf, UNITS_TEXT_MAX, "%" PRIu64 " %s", whole, unit->name);
	else
		snprintf(buf, UNITS_TEXT_MAX, "%" PRIu64 " %s %" PRIu64 " %s", whole, unit->name,
			 part, duration_units[i - 1].name);
	return buf;
}
