/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef TESTS_INTEGRATION_TENANTS_H
#define TESTS_INTEGRATION_TENANTS_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "tests/integration/harness.h"

/* Tenants of a daemon: in its configuration, and on its admin socket. */

#define TENANTS_LATE_MS 10000

/* One of a configuration. */
struct tenants_row {
	const char *name;  /* NULL: the end of the rows */
	const char *keys;  /* names of keys (keys.h) between commas; NULL: the tenant's own */
	const char *quota; /* JSON, or NULL */
};

/** tenants_entry() - the JSON object of one, as the configuration and tenant.add take it */
json_t *tenants_entry(const struct tenants_row *row);

/** tenants_text() - the list of a configuration; to be freed */
char *tenants_text(const struct tenants_row *rows);

/** tenants_reload() - reload with other tenants, otherwise with the same options; Return: a code */
int tenants_reload(struct harness *h, const struct tenants_row *rows);

/** tenants_quota() - tenant.set with members of a quota; Return: as harness_order() */
int tenants_quota(struct harness *h, const char *name, const char *quota);

/**
 * tenants_number() - a number of tenant.show, "charged.bytes" say; 0 and 1 for false and true
 *
 * Return: -1 if it, or the tenant, is not there.
 */
int64_t tenants_number(struct harness *h, const char *name, const char *path);

/** tenants_wait() - wait until it has a value, at most TENANTS_LATE_MS; Return: has it? */
bool tenants_wait(struct harness *h, const char *name, const char *path, int64_t value);

/** tenants_says() - is a part in a text? If not it prints both */
bool tenants_says(const char *text, const char *part);

/** tenants_list() - tenant.list as text; to be freed */
char *tenants_list(struct harness *h);

#endif
