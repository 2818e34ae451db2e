/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef COMMON_STRICT_JSON_H
#define COMMON_STRICT_JSON_H

#include <jansson.h>
#include <stddef.h>

#define STRICT_JSON_DEPTH_MAX 32
#define STRICT_JSON_ERROR_MAX 256

/**
 * strict_json_parse() - parse one JSON object or array that somebody else wrote
 * @buf: the text
 * @len_bytes: its length; the caller has limited it
 * @error: STRICT_JSON_ERROR_MAX bytes; on failure what is wrong and where, one printable line
 * @ret_root: the value; the caller's reference
 *
 * Refused beyond what JSON itself refuses: a key twice in an object, a NUL byte or "\u0000",
 * more than STRICT_JSON_DEPTH_MAX levels of nesting. Return: 0 or -EINVAL.
 */
int strict_json_parse(const char *buf, size_t len_bytes, char *error, json_t **ret_root);

#endif
