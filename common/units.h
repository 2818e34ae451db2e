/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef COMMON_UNITS_H
#define COMMON_UNITS_H

#include <stddef.h>
#include <stdint.h>

/* Text <-> numbers with units, as in configuration, options and tables. */

/**
 * units_parse_size() - "4096", "16MiB", "1.5 GiB" is not allowed, "2GiB" is
 * @text: digits, then nothing or one of B KiB MiB GiB TiB; no spaces, no sign, no fraction
 * @ret_bytes: the result
 *
 * Return: 0, -EINVAL (not of that form), -ERANGE (does not fit 64 bits).
 */
int units_parse_size(const char *text, uint64_t *ret_bytes);

/**
 * units_parse_duration() - digits, then one of ms s min h d (a bare number is refused unless 0)
 * @ret_ms: the result in milliseconds
 *
 * Return: 0, -EINVAL, -ERANGE.
 */
int units_parse_duration(const char *text, uint64_t *ret_ms);

/**
 * units_format_size() - the shortest exact or, failing that, two-digit form: "256 MiB", "1.37 GiB"
 * @buf: at least UNITS_TEXT_MAX bytes
 *
 * Return: @buf.
 */
char *units_format_size(uint64_t bytes, char *buf);

/**
 * units_format_duration() - "250 ms", "4.2 s", "3 min 20 s", "2 h 5 min", "4 d 3 h"
 */
char *units_format_duration(uint64_t ms, char *buf);

#define UNITS_TEXT_MAX 48

#endif
