/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The daemon's books, read from the admin socket. Owns nothing.
 */
#include "tests/integration/accounts.h"

#include <inttypes.h>
#include <stdio.h>

#include "tests/integration/harness.h"

#define ACCOUNTS_LIMIT_MS 30000

static int64_t accounts_counter(const json_t *status, const char *name)
{
	return json_integer_value(json_object_get(json_object_get(status, "counters"), name));
}

static void accounts_check_counters(const json_t *status)
{
	int64_t binds = accounts_counter(status, "binds_succeeded");
	int64_t invalidates = accounts_counter(status, "invalidates_posted");
	int64_t windows = accounts_counter(status, "windows_allocated");
	int64_t guards = accounts_counter(status, "guards_registered");

	printf("# %" PRId64 " binds, %" PRId64 " invalidates, %" PRId64
	       " of unknown outcome; %" PRId64 " windows, %" PRId64 " guards; longest turn %" PRId64
	       " us\n",
	       binds, invalidates, accounts_counter(status, "windows_unknown"), windows, guards,
	       (int64_t)json_integer_value(json_object_get(status, "longest_turn_us")));
	CHECK(invalidates <= binds);
	CHECK_INT(accounts_counter(status, "windows_deallocated"), windows);
	CHECK_INT(accounts_counter(status, "guards_deregistered"), guards);
	CHECK_INT(accounts_counter(status, "leases_ended") >=
			  accounts_counter(status, "leases_granted"),
		  1);
}

void accounts_check(struct harness *h)
{
	json_t *status;

	CHECK(harness_wait_number(h, "sessions", 0, ACCOUNTS_LIMIT_MS));
	CHECK(harness_wait_number(h, "lanes", 0, ACCOUNTS_LIMIT_MS));
	CHECK(harness_wait_number(h, "leases.ending", 0, ACCOUNTS_LIMIT_MS));
	CHECK_INT(harness_number(h, "leases.active"), 0);
	CHECK(harness_wait_number(h, "pool.dirty_bytes", 0, ACCOUNTS_LIMIT_MS));
	CHECK_INT(harness_number(h, "pool.leased_bytes"), 0);
	CHECK_INT(harness_number(h, "pool.free_bytes"), harness_number(h, "pool.bytes"));
	status = harness_call(h, "status", NULL);
	CHECK(status != NULL);
	accounts_check_counters(status);
	json_decref(status);
}

void accounts_finish(struct harness *h)
{
	accounts_check(h);
	CHECK(!test_has_failed());
	CHECK_INT(harness_stop(h), 0);
}
