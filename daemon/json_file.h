/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef DAEMON_JSON_FILE_H
#define DAEMON_JSON_FILE_H

#include <jansson.h>

#include "daemon/schema.h"

/**
 * json_file_read() - read and parse a JSON file that an operator wrote
 * @context: its file is read; on failure its error is set
 * @limit: of the length, a size such as "1MiB"
 * @ret_root: the caller's reference
 *
 * Return: 0, -EINVAL (too long, or not JSON as strict_json_parse() takes it), or what the
 * kernel says as a negative errno.
 */
int json_file_read(const struct schema_context *context, const char *limit, json_t **ret_root);

/**
 * json_file_read_own() - the same for a file that only the daemon writes
 *
 * Also refused (-EPERM): what is not a regular file, is a symbolic link, belongs to another
 * user than root or the daemon's, or can be written by others.
 */
int json_file_read_own(const struct schema_context *context, const char *limit, json_t **ret_root);

/**
 * json_file_write() - replace a file, with all or nothing
 * @context: its file is replaced; on failure its error is set
 *
 * The new content is on the disk before it takes the place of the old; only the owner may
 * read it. Uses a second file, of the same name with ".new" behind it. Blocks on the disk.
 * Return: 0 or a negative errno: the old file stays. If all that failed was to make sure that the
 * new name outlives a crash of the machine, that is logged and no failure.
 */
int json_file_write(const struct schema_context *context, const json_t *root);

#endif
